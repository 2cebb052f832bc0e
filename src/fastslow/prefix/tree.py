"""Token sequences as one tree, laid out in a row: what several of them begin with stands there once.

The order is depth first, so the descendants of a token are the interval that ends at `ends`, and a token's own past is
every earlier one whose interval holds it. One label can be scored at a place, so a token that several scored ones follow
gets a twin for each but one of them: a copy at the same position that nothing follows. The last token of a completion
predicts nothing and is left out, so a tree is never longer than its distinct tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ids = Sequence[int] | NDArray[np.int64]
Integers = NDArray[np.int64]
UNSCORED = -100


@dataclass(frozen=True)
class Tree:
    """One row of tokens."""

    tokens: Integers
    positions: Integers
    """Distance from the beginning of the sequence."""
    ends: Integers
    """Where the tokens that follow this one, at any distance, end."""
    labels: Integers
    """The token to score after this one, or `UNSCORED`."""
    places: Sequence[Integers]
    """By sequence: where each token of its completion is scored."""

    def __len__(self) -> int:
        return len(self.tokens)


def plant(prompts: Sequence[Ids], completions: Sequence[Ids], multiple: int = 1) -> Tree:
    """The tree of prompts with their completions; its length is filled up to a multiple with tokens on their own."""
    rows = [
        np.concatenate([np.asarray(part, dtype=np.int64) for part in (prompt, completion)])
        for prompt, completion in zip(prompts, completions, strict=True)
    ]
    written = [len(completion) for completion in completions]
    if empty := [index for index, prompt in enumerate(prompts) if not len(prompt) and written[index]]:
        raise ValueError(f"prompt {empty[0]} is empty: the first token of a completion needs one before it")
    # Rows without a completion have nothing to score.
    order = sorted(
        (index for index in range(len(rows)) if written[index]), key=lambda index: rows[index].astype(">u4").tobytes()
    )
    nodes, tokens, parents, positions, ends = _nodes([rows[index] for index in order])
    scored = np.zeros(len(tokens), dtype=bool)
    for index, path in zip(order, nodes, strict=True):
        scored[path[-written[index] :]] = True

    # Scored tokens by the one before them: the first is scored at its place, the others at its twins.
    children = np.flatnonzero(scored)
    children = children[np.argsort(parents[children], kind="stable")]
    before = parents[children]
    first = np.concatenate([[True], before[1:] != before[:-1]]) if len(before) else np.zeros(0, dtype=bool)
    starts = np.flatnonzero(first)
    rank = np.arange(len(children)) - np.repeat(starts, np.diff([*starts, len(children)]))
    twins = np.zeros(len(tokens), dtype=np.int64)
    np.maximum.at(twins, before, rank)
    kept = ends > np.arange(len(tokens)) + 1  # something follows
    offsets = np.concatenate([[0], np.cumsum(np.where(kept, 1 + twins, 0))])
    place = offsets[:-1] + twins

    length = int(offsets[-1])
    size = max(-(-length // multiple), 1) * multiple
    tree = Tree(
        tokens=np.zeros(size, dtype=np.int64),
        positions=np.zeros(size, dtype=np.int64),
        ends=np.arange(1, size + 1),
        labels=np.full(size, UNSCORED, dtype=np.int64),
        places=[np.zeros(0, dtype=np.int64)] * len(rows),
    )
    origin = np.repeat(np.flatnonzero(kept), 1 + twins[kept])
    tree.tokens[:length], tree.positions[:length] = tokens[origin], positions[origin]
    tree.ends[place[kept]] = offsets[ends[kept]]
    scored_at = np.zeros(len(tokens), dtype=np.int64)
    scored_at[children] = place[before] - rank
    tree.labels[scored_at[children]] = tokens[children]
    for index, path in zip(order, nodes, strict=True):
        tree.places[index] = scored_at[path[-written[index] :]]  # type: ignore[index]
    return tree


def _nodes(rows: Sequence[Integers]) -> tuple[list[Integers], Integers, Integers, Integers, Integers]:
    """Rows in lexicographic order as paths through one tree, and of each of its tokens: itself, parent, position, end.

    Between neighbours in that order the shared beginning is the longest, so a row adds what follows it, and that is
    depth-first order already.
    """
    paths: list[Integers] = []
    shared: list[int] = []
    size = 0
    for index, row in enumerate(rows):
        common = _shared(rows[index - 1], row) if index else 0
        added = np.arange(size, size + len(row) - common)
        paths.append(np.concatenate([paths[-1][:common], added]) if index else added)
        shared.append(common)
        size += len(added)
    tokens, parents = np.zeros(size, dtype=np.int64), np.full(size, -1)
    positions, ends = np.zeros(size, dtype=np.int64), np.full(size, size)
    for row, path, common in zip(rows, paths, shared, strict=True):
        added = path[common:]
        tokens[added], positions[added] = row[common:], np.arange(common, len(row))
        parents[added[1:]] = added[:-1]
        if common and len(added):
            parents[added[0]] = path[common - 1]
    # A token's interval ends where the first later row leaves its path at or before it.
    following = np.full(max(map(len, rows), default=0), size)
    for path, common in zip(reversed(paths), reversed(shared), strict=True):
        added = path[common:]
        ends[added] = following[common : len(path)]
        following[common:] = added[0] if len(added) else following[common:]
    return paths, tokens, parents, positions, ends


def _shared(left: Integers, right: Integers) -> int:
    """How many tokens two rows begin with together."""
    length = min(len(left), len(right))
    different = np.flatnonzero(left[:length] != right[:length])
    return int(different[0]) if len(different) else length
