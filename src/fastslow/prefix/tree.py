"""Shared beginnings of token sequences, found among the token ids alone: nothing is known here of texts or templates.

In lexicographic order a sequence shares its longest beginning with a neighbour, so the order and the lengths that neighbours
share (`sort_by_prefix`) describe every shared beginning. Two layouts are built from them:

    token_tree     for training: one row that holds every distinct beginning of prompts and completions once
    prompt_tree    for sampling: two levels of prompt tokens, contexts and the problems under them, each stored once
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Ids = Sequence[int] | NDArray[np.int64]
Integers = NDArray[np.int64]
Tokens = tuple[int, ...]
UNSCORED = -100


def lexicographic(rows: Sequence[Ids]) -> list[int]:
    """The indices of the rows in lexicographic order; equal rows keep their order."""
    # Big-endian bytes sort as the tokens do.
    keys = [np.asarray(row, dtype=np.int64).astype(">u4").tobytes() for row in rows]
    return sorted(range(len(rows)), key=keys.__getitem__)


def sort_by_prefix(rows: Sequence[Ids]) -> tuple[list[int], list[int]]:
    """The lexicographic order, and for each row in it the number of leading tokens it shares with the row before it.

    Any two rows share as many leading tokens as the two neighbours between them that share the fewest.
    """
    arrays = [np.asarray(row, dtype=np.int64) for row in rows]
    order = lexicographic(arrays)
    shared = [_common(arrays[one], arrays[other]) for one, other in pairwise(order)]
    return order, ([0, *shared] if order else [])


def _common(left: Integers, right: Integers) -> int:
    length = min(len(left), len(right))
    different = np.flatnonzero(left[:length] != right[:length])
    return int(different[0]) if len(different) else length


# For training --------------------------------------------------------------------------------------------------------


def cut_by_tokens(rows: Sequence[Ids], limit: int) -> list[slice]:
    """Divides sorted rows into runs of at most `limit` tokens each, with what neighbours of a run share counted once.

    A row is never divided: one that is longer than the limit is a run of its own.
    """
    arrays = [np.asarray(row, dtype=np.int64) for row in rows]
    cuts, tokens = [0], 0
    for index, row in enumerate(arrays):
        added = len(row) - (_common(arrays[index - 1], row) if index > cuts[-1] else 0)
        if index > cuts[-1] and tokens + added > limit:
            cuts.append(index)
            tokens, added = 0, len(row)
        tokens += added
    return [slice(start, end) for start, end in pairwise([*cuts, len(rows)])]


@dataclass(frozen=True)
class TokenTree:
    """Prompts with their completions as one row of tokens, in depth-first order.

    The descendants of a token are the interval that ends at `ends`, so a token is preceded by every earlier one whose
    interval contains it. A place in the row can score one label. A token that is followed by several scored tokens is
    therefore repeated: all but one of them are scored at a copy that has the same position and no descendants. The last
    token of a completion predicts nothing and is not stored, so a tree never has more tokens than distinct beginnings.
    """

    tokens: Integers
    positions: Integers
    """Distance from the beginning of the sequence."""
    ends: Integers
    """Where the descendants of each token end."""
    labels: Integers
    """The token to score after each token, or `UNSCORED`."""
    places: Sequence[Integers]
    """For each sequence, where the tokens of its completion are scored."""

    def __len__(self) -> int:
        return len(self.tokens)


def token_tree(prompts: Sequence[Ids], completions: Sequence[Ids], multiple: int = 1) -> TokenTree:
    """The tree of prompts with their completions, padded to a multiple of some length with unrelated tokens."""
    rows = [
        np.concatenate([np.asarray(part, dtype=np.int64) for part in (prompt, completion)])
        for prompt, completion in zip(prompts, completions, strict=True)
    ]
    written = [len(completion) for completion in completions]
    if empty := [index for index, prompt in enumerate(prompts) if not len(prompt) and written[index]]:
        raise ValueError(
            f"prompt {empty[0]} is empty: the first token of a completion is predicted from the one before it"
        )
    scored_rows = [index for index in range(len(rows)) if written[index]]
    order, shared = sort_by_prefix([rows[index] for index in scored_rows])
    order = [scored_rows[index] for index in order]
    nodes, tokens, parents, positions, ends = _nodes([rows[index] for index in order], shared)
    scored = np.zeros(len(tokens), dtype=bool)
    for index, path in zip(order, nodes, strict=True):
        scored[path[-written[index] :]] = True

    # Scored tokens, sorted by their parents: the first is scored at its parent's place, the others at copies of it.
    children = np.flatnonzero(scored)
    children = children[np.argsort(parents[children], kind="stable")]
    before = parents[children]
    first = np.concatenate([[True], before[1:] != before[:-1]]) if len(before) else np.zeros(0, dtype=bool)
    starts = np.flatnonzero(first)
    rank = np.arange(len(children)) - np.repeat(starts, np.diff([*starts, len(children)]))
    copies = np.zeros(len(tokens), dtype=np.int64)
    np.maximum.at(copies, before, rank)
    kept = ends > np.arange(len(tokens)) + 1  # tokens with descendants
    offsets = np.concatenate([[0], np.cumsum(np.where(kept, 1 + copies, 0))])
    place = offsets[:-1] + copies

    length = int(offsets[-1])
    size = max(-(-length // multiple), 1) * multiple
    tree = TokenTree(
        tokens=np.zeros(size, dtype=np.int64),
        positions=np.zeros(size, dtype=np.int64),
        ends=np.arange(1, size + 1),
        labels=np.full(size, UNSCORED, dtype=np.int64),
        places=[np.zeros(0, dtype=np.int64)] * len(rows),
    )
    origin = np.repeat(np.flatnonzero(kept), 1 + copies[kept])
    tree.tokens[:length], tree.positions[:length] = tokens[origin], positions[origin]
    tree.ends[place[kept]] = offsets[ends[kept]]
    scored_at = np.zeros(len(tokens), dtype=np.int64)
    scored_at[children] = place[before] - rank
    tree.labels[scored_at[children]] = tokens[children]
    for index, path in zip(order, nodes, strict=True):
        tree.places[index] = scored_at[path[-written[index] :]]  # type: ignore[index]
    return tree


def _nodes(
    rows: Sequence[Integers], shared: Sequence[int]
) -> tuple[list[Integers], Integers, Integers, Integers, Integers]:
    """Sorted rows as paths through one tree, and the token, parent, position and end of each of its nodes.

    A row adds the nodes behind what it shares with the row before it, which gives depth-first order.
    """
    paths: list[Integers] = []
    size = 0
    for index, (row, common) in enumerate(zip(rows, shared, strict=True)):
        added = np.arange(size, size + len(row) - common)
        paths.append(np.concatenate([paths[-1][:common], added]) if index else added)
        size += len(added)
    tokens, parents = np.zeros(size, dtype=np.int64), np.full(size, -1)
    positions, ends = np.zeros(size, dtype=np.int64), np.full(size, size)
    for row, path, common in zip(rows, paths, shared, strict=True):
        added = path[common:]
        tokens[added], positions[added] = row[common:], np.arange(common, len(row))
        parents[added[1:]] = added[:-1]
        if common and len(added):
            parents[added[0]] = path[common - 1]
    # The descendants of a node end where the first later row branches off at or before it.
    following = np.full(max(map(len, rows), default=0), size)
    for path, common in zip(reversed(paths), reversed(shared), strict=True):
        added = path[common:]
        ends[added] = following[common : len(path)]
        following[common:] = added[0] if len(added) else following[common:]
    return paths, tokens, parents, positions, ends


# For sampling --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PromptTree:
    """The prompts of a batch in two levels. Rows, one per prompt, are ordered so that those of a context, and of a problem,
    are neighbours."""

    contexts: list[Tokens]
    """Beginnings that several prompts share."""
    problems: list[Tokens]
    """What follows a context, without the last token of the prompt; once for each distinct (context, problem)."""
    context_of: list[int]
    """For each problem, the index of its context."""
    problem_of: list[int]
    """For each row, the index of its problem."""
    last: list[int]
    """For each row, the last token of its prompt: decoding starts with it."""
    prompt_of: list[int]
    """For each row, the index of its prompt."""

    @property
    def positions(self) -> list[int]:
        """For each row, the position of the last token of its prompt."""
        ends = [len(self.contexts[c]) + len(p) for c, p in zip(self.context_of, self.problems, strict=True)]
        return [ends[problem] for problem in self.problem_of]

    @property
    def stored(self) -> tuple[int, int]:
        """Tokens of the contexts and of the problems as they are stored: padded to the longest."""
        contexts, problems = (len(texts) * max(map(len, texts)) for texts in (self.contexts, self.problems))
        return contexts, problems


def prompt_tree(prompts: Sequence[Sequence[int]]) -> PromptTree:
    """The tree of some prompts, of which none is empty."""
    bodies = [tuple(prompt[:-1]) for prompt in prompts]
    distinct = list(dict.fromkeys(bodies))
    order, shared = sort_by_prefix(distinct)
    groups = []
    for start, end in _runs(shared):
        group = [distinct[index] for index in order[start:end]]
        groups.append((group[0][: min(shared[start + 1 : end], default=0)], group))
    contexts: dict[Tokens, int] = {}
    problem_of: dict[Tokens, int] = {}
    problems: list[Tokens] = []
    context_of: list[int] = []
    for context, group in sorted(groups):
        number = contexts.setdefault(context, len(contexts))
        # Problems of similar length become neighbours: they are computed together, padded to one length.
        for body in sorted(group, key=len):
            problem_of[body] = len(problems)
            problems.append(body[len(context) :])
            context_of.append(number)
    rows = sorted(range(len(prompts)), key=lambda index: (problem_of[bodies[index]], prompts[index][-1]))
    return PromptTree(
        contexts=list(contexts),
        problems=problems,
        context_of=context_of,
        problem_of=[problem_of[bodies[index]] for index in rows],
        last=[prompts[index][-1] for index in rows],
        prompt_of=rows,
    )


def _runs(shared: Sequence[int]) -> list[tuple[int, int]]:
    """Divides sorted sequences into runs, so that sharing one beginning within each run saves the most tokens overall.

    `shared` is what `sort_by_prefix` returns. A run of n sequences with a common beginning of L tokens computes these once
    instead of n times. All prompts begin with the chat template's first tokens, so one run of all is rarely the best.
    """
    lengths = np.array(shared)
    saved, cuts = np.zeros(len(shared) + 1, dtype=np.int64), [0] * (len(shared) + 1)
    for end in range(1, len(shared) + 1):
        # For each run that ends here, the shortest first: how many leading tokens all its sequences share.
        common = np.concatenate([[0], np.minimum.accumulate(lengths[end - 1 : 0 : -1])])
        total = saved[end - 1 :: -1][:end] + np.arange(end) * common
        best = int(total.argmax())
        saved[end], cuts[end] = total[best], end - 1 - best
    runs, end = [], len(shared)
    while end:
        runs.append((cuts[end], end))
        end = cuts[end]
    return runs[::-1]
