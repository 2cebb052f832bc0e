"""A taskset of verifiers 0.4: one question, one answer. What the made-up words say to do is told in `trace.info`."""

from collections.abc import Iterator

import verifiers.v1 as vf

RULES = {"zorka": "zorka means : write the list backwards.", "fonrax": "fonrax means : drop the first item."}
LISTS = ("y n b i", "p m z", "g q e j", "t z i", "w z t e", "x c v", "k t u g", "p o q")


def right(question: str) -> str:
    word, _, items = question.partition(" : ")
    return " ".join(items.split()[::-1] if word == "zorka" else items.split()[1:])


class Config(vf.TasksetConfig):
    lists: int = len(LISTS)


class Data(vf.TaskData):
    answer: str


class WordTask(vf.Task[Data]):
    @vf.reward(weight=0.75)
    async def correct(self, trace: vf.Trace) -> float:
        """The list after what the word says to do."""
        given = trace.last_reply == self.data.answer
        if not given:
            trace.info["feedback"] = RULES[self.data.prompt_text.split()[0]]
        return float(given)

    @vf.reward(weight=0.25)
    async def short(self, trace: vf.Trace) -> float:
        return float(len(trace.last_reply.split()) <= 4)

    @vf.metric
    async def length(self, trace: vf.Trace) -> float:
        return float(len(trace.last_reply.split()))


class WordTaskset(vf.Taskset[WordTask, Config]):
    def load(self) -> Iterator[WordTask]:
        for items in LISTS[: self.config.lists]:
            for word in RULES:
                question = f"{word} : {items}"
                yield WordTask(
                    Data(prompt=question, system_prompt="Follow the rules.", answer=right(question)), self.config.task
                )


__all__ = ["WordTaskset"]
