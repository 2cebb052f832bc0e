"""A taskset of verifiers 0.4 whose answer stands in a drawer that only a tool opens."""

from collections.abc import Iterator

import verifiers.v1 as vf
from pydantic import Field


class Found(vf.State):
    opened: list[int] = Field(default=[])


class Data(vf.TaskData):
    drawer: int
    answer: str


class Drawers(vf.Toolset[vf.ToolsetConfig, Found]):
    TOOL_PREFIX = None

    async def setup_task(self, task: Data) -> None:
        self.contents = {task.drawer: task.answer}

    @vf.tool
    async def open(self, drawer: int) -> str:
        """Look into a drawer."""
        self.state.opened.append(drawer)
        if drawer > 9:
            raise ValueError(f"there is no drawer {drawer}")
        return self.contents.get(drawer, "nothing")


class DrawerTask(vf.Task[Data, Found]):
    @classmethod
    def toolsets(cls, config: vf.TaskConfig) -> list[vf.Toolset]:
        return [Drawers(vf.ToolsetConfig())]

    @vf.reward
    async def found(self, trace: vf.Trace) -> float:
        return float(trace.last_reply == self.data.answer)

    @vf.reward(weight=-0.5)
    async def extra(self, trace: vf.Trace) -> float:
        return float(len(trace.state.opened) > 1)


class DrawerTaskset(vf.Taskset[DrawerTask]):
    def load(self) -> Iterator[DrawerTask]:
        for drawer, answer in enumerate(["red", "green", "blue", "a", "b", "c", "d", "e"]):
            yield DrawerTask(Data(prompt=f"open {drawer}", drawer=drawer, answer=answer), self.config.task)


__all__ = ["DrawerTaskset"]
