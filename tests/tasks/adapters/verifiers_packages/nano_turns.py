"""A taskset of verifiers 0.4 with an environment of its own, which asks one question after the other."""

from collections.abc import Iterator
from typing import Any

import verifiers.v1 as vf
from nano_words import RULES, right

LISTS = ("p m", "z p", "m z")


class Data(vf.TaskData):
    questions: list[str]


class TurnsTask(vf.Task[Data]):
    @vf.stop
    async def gave_up(self, trace: vf.Trace) -> bool:
        return trace.num_turns > 0 and trace.last_reply == "stop"


class TurnsEnvConfig(vf.EnvConfig):
    player: vf.AgentConfig = vf.AgentConfig()


class TurnsEnv(vf.Env[TurnsEnvConfig]):
    async def run(self, task: Any, agents: Any) -> None:
        solved = 0
        async with agents.player.interaction(task) as exchange:
            for question in task.data.questions:
                segment = await exchange.turn(question)
                if segment.terminated:
                    break
                solved += segment.last_reply == right(question)
        exchange.trace.record_reward("solved", solved / len(task.data.questions))


class TurnsTaskset(vf.Taskset[TurnsTask]):
    INFINITE = True

    def load(self) -> Iterator[TurnsTask]:
        number = 0
        while True:
            questions = [f"{word} : {LISTS[(number + shift) % len(LISTS)]}" for shift, word in enumerate(RULES)]
            yield TurnsTask(Data(name=f"exchange {number}", questions=questions), self.config.task)
            number += 1


__all__ = ["TurnsEnv", "TurnsTaskset"]
