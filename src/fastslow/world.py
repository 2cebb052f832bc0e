"""The processes of a run. All of them run the same program and see the same rollouts, so all take the same decisions."""

from __future__ import annotations

import atexit
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class World:
    """Rank, size and the few exchanges between processes; with one process each is the identity."""

    def __init__(self, rank: int = 0, size: int = 1) -> None:
        self.rank, self.size = rank, size

    @classmethod
    def launched(cls, cpu: bool) -> World:
        """This process among those that a launcher started. Their connection is closed when it ends: left open, its threads
        now and then abort the process at its end, and the launcher takes a finished run for a failed one."""
        from accelerate import PartialState  # it imports torch, which one process alone can do without

        state = PartialState(cpu=cpu)
        if state.num_processes > 1:
            atexit.register(state.destroy_process_group)
        return cls(state.process_index, state.num_processes)

    @property
    def main(self) -> bool:
        return self.rank == 0

    def gather(self, value: T) -> list[T]:
        """What every process gave, by rank, on every process."""
        if self.size == 1:
            return [value]
        from accelerate.utils import gather_object

        return list(gather_object([value]))

    def largest(self, number: int) -> int:
        return max(self.gather(number))

    def from_main(self, make: Callable[[], T]) -> T:
        """What the main process made, on every process; what it raised is raised on every one, so that none waits."""
        if self.size == 1:
            return make()
        from accelerate.utils import broadcast_object_list

        box: list[tuple[T | None, Exception | None] | None] = [None]
        if self.main:
            try:
                box = [(make(), None)]
            except Exception as error:
                box = [(None, error)]
        broadcast_object_list(box)
        assert box[0] is not None
        value, raised = box[0]
        if raised is not None:
            raise raised
        return value  # type: ignore[return-value]
