"""The order in which training problems come: a position is all there is to remember."""

from __future__ import annotations

import random
from collections.abc import Sequence

from fastslow.rollouts.play import derive_seed
from fastslow.tasks.base import Example


class Stream:
    """Endless passes over the training problems, each in an order of its own that follows from the seed."""

    def __init__(self, examples: Sequence[Example], seed: int) -> None:
        self.examples, self.seed = examples, seed
        self._epoch, self._order = -1, list(range(len(examples)))

    def take(self, position: int, count: int) -> list[Example]:
        """The problems at positions `position` … `position + count − 1`."""
        return [self._at(index) for index in range(position, position + count)]

    def _at(self, position: int) -> Example:
        epoch, offset = divmod(position, len(self.examples))
        if epoch != self._epoch:
            self._order = list(range(len(self.examples)))
            random.Random(derive_seed(self.seed, "epoch", epoch)).shuffle(self._order)
            self._epoch = epoch
        return self.examples[self._order[offset]]
