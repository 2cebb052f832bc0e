"""Find a rule that packs items, which come one at a time, into as few bins as possible.
Write a Python program with a function `priority(item, room)`: items are whole numbers from 1 to 100, and `room` is
what is left in a bin, from `item` to 100, which is an empty bin. Each item goes into the bin with the highest
priority, and the fullest of equal ones; an empty bin is always among them. The score, to be minimized, is how many
percent more bins are used than the items fill, on 5 sequences of 5000 items from a Weibull distribution (shape 3,
scale 45). Other sequences decide what is announced.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fastslow.base.world import derive_seed
from fastslow.discover import run
from fastslow.discover.problems._exact import number, sequence

CAPACITY, ITEMS, SEQUENCES = 100, 5000, 5
SHAPE, SCALE = 3.0, 45.0

goal = "minimize"
target = 0.68
seconds = 20.0
tolerance = 0.5  # between the sequences of the search and those that are held out
seed = """\
def priority(item, room):
    return -room  # the fullest bin that has room: best fit
"""
_TABLE = """

def _table(capacity):
    return [[priority(item, room) for room in range(item, capacity + 1)] for item in range(1, capacity + 1)]
"""


def evaluate(candidate: str) -> tuple[float, str]:
    return score(run(candidate + _TABLE, "_table", CAPACITY), "search")


def verify(candidate: str) -> tuple[float, str]:
    return score(run(candidate + _TABLE, "_table", CAPACITY), "held out")


def score(table: Any, purpose: str) -> tuple[float, str]:
    """Percent of bins above the lower bound. The rule is a table, made before any item is drawn: it cannot look ahead."""
    ranks = _ranks(table)
    used = least = 0
    left = np.zeros(CAPACITY + 1)
    for index in range(SEQUENCES):
        items = draw(purpose, index)
        bins = pack(items, ranks)
        left += bins
        used += int(bins.sum())
        least += -(-int(items.sum()) // CAPACITY)
    waste = ", ".join(
        f"{int(left[room])} bins with {room} left" for room in np.argsort(-left * np.arange(CAPACITY + 1))[:3]
    )
    full = f"{left[0] / used:.1%} of the bins are full; most room is wasted by {waste}."
    return 100 * (used - least) / least, f"{used} bins, where the items fill {least}. {full}"


def draw(purpose: str, index: int) -> np.ndarray:
    """The sizes of a sequence of items."""
    random = np.random.default_rng(derive_seed("bin packing", purpose, index))
    return np.clip(np.rint(SCALE * random.weibull(SHAPE, ITEMS)), 1, CAPACITY).astype(int)


def pack(items: np.ndarray, ranks: list[list[int]]) -> np.ndarray:
    """How many bins have how much room left in the end. Bins with the same room are alike: only their number matters."""
    open_bins = [0] * (CAPACITY + 1)
    for item in items.tolist():
        room = next(room for room in ranks[item] if room == CAPACITY or open_bins[room])
        if room < CAPACITY:
            open_bins[room] -= 1
        open_bins[room - item] += 1
    return np.array(open_bins)


def _ranks(table: Any) -> list[list[int]]:
    """For each item the rooms that it fits in, the best first."""
    ranks: list[list[int]] = [[]]
    for item, row in enumerate(sequence(table, "The table of priorities", CAPACITY), start=1):
        cells = sequence(row, f"The row of item {item}", CAPACITY + 1 - item)
        known = [number(cell, f"priority({item}, {item + index})") for index, cell in enumerate(cells)]
        best = sorted(range(len(known)), key=lambda index: (-known[index], index))
        ranks.append([item + index for index in best])
    return ranks
