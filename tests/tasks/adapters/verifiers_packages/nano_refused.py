"""Tasksets of verifiers 0.4 that cannot be played, each for a reason of its own."""

from collections.abc import Iterator
from typing import Any

import verifiers.v1 as vf


class Config(vf.TasksetConfig):
    kind: str = ""


class JudgedConfig(vf.TaskConfig):
    judge: vf.JudgeConfig = vf.JudgeConfig(base_url="https://judge.invalid/v1", api_key_var="NANO_JUDGE_KEY")


class RefusedTask(vf.Task[vf.TaskData, vf.State, vf.TaskConfig]):
    @vf.reward
    async def crash(self, trace: vf.Trace) -> float:
        return float({}[trace.last_reply])


class RefusedTaskset(vf.Taskset[RefusedTask, Config]):
    def load(self) -> Iterator[RefusedTask]:
        if self.config.kind == "broken":
            raise OSError("disk")
        picture = vf.ImageUrlContentPart(image_url=vf.ImageUrlSource(url="data:"))
        prompt: Any = [vf.UserMessage(content=[picture])] if self.config.kind == "picture" else "go"
        image = "ubuntu" if self.config.kind == "image" else None
        config = JudgedConfig() if self.config.kind == "judge" else self.config.task
        yield RefusedTask(vf.TaskData(prompt=prompt, image=image), config)


__all__ = ["RefusedTaskset"]
