"""The processes of a run. All run the same program on the same rollouts, so all take the same decisions."""

from __future__ import annotations

import atexit
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class World:
    """Rank, size and collective operations; with one process, each operation is the identity."""

    def __init__(self, rank: int = 0, size: int = 1) -> None:
        self.rank, self.size = rank, size

    @classmethod
    def launched(cls, cpu: bool) -> World:
        """The processes started by a launcher. The process group is destroyed at exit: its threads can otherwise abort the
        process, and the launcher then reports a finished run as failed."""
        from accelerate import PartialState  # imports torch, so not at the top of the file

        state = PartialState(cpu=cpu)
        if state.num_processes > 1:
            atexit.register(state.destroy_process_group)
        return cls(state.process_index, state.num_processes)

    @property
    def main(self) -> bool:
        return self.rank == 0

    def gather(self, value: T) -> list[T]:
        """The values of all processes, by rank, on every process."""
        if self.size == 1:
            return [value]
        from accelerate.utils import gather_object

        return list(gather_object([value]))

    def largest(self, number: int) -> int:
        return max(self.gather(number))

    def from_main(self, make: Callable[[], T]) -> T:
        """What `make` returns on the main process, on every process; an exception is raised on all, so that none waits."""
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
