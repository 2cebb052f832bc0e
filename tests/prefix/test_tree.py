"""The layout of a tree and who attends in it, against what a tree is."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from prefix_helpers import Rows, rows

from fastslow.prefix import mask as masks
from fastslow.prefix.mask import KERNEL_BLOCK, TreeMask, gather
from fastslow.prefix.tree import UNSCORED, Tree, plant

CPU = torch.device("cpu")


def path(tree: Tree, place: int) -> list[int]:
    """The places a token is preceded by, itself included."""
    return [before for before in range(place + 1) if tree.ends[before] > place]


def attends(tree: Tree, window: int | None = None) -> np.ndarray:
    """By definition: queries × keys."""
    matrix = np.zeros((len(tree), len(tree)), dtype=bool)
    for query in range(len(tree)):
        for key in path(tree, query):
            matrix[query, key] = window is None or tree.positions[query] - tree.positions[key] < window
    return matrix


@given(rows())
@settings(max_examples=100, deadline=None)
def test_every_completion_token_is_scored_after_exactly_what_precedes_it(made: Rows) -> None:
    tree = plant(*made)
    for prompt, completion, places in zip(*made, tree.places, strict=True):
        assert len(places) == len(completion)
        for index, place in enumerate(places):
            before = path(tree, place)
            assert tree.tokens[before].tolist() == [*prompt, *completion[:index]]
            assert tree.positions[before].tolist() == list(range(len(before)))
            assert tree.labels[place] == completion[index]
    scored = {place for places in tree.places for place in places}
    assert scored == set(np.flatnonzero(tree.labels != UNSCORED))


@given(rows())
@settings(max_examples=100, deadline=None)
def test_no_beginning_stands_there_twice_but_to_be_scored(made: Rows) -> None:
    """Twins apart, places are distinct beginnings that something follows; with them no more than there are beginnings."""
    tree = plant(*made)
    whole = [(*prompt, *completion) for prompt, completion in zip(*made, strict=True) if completion]
    beginnings = {row[:end] for row in whole for end in range(1, len(row) + 1)}
    inner = {row[:end] for row in whole for end in range(1, len(row))}
    assert len(tree) <= max(len(beginnings), 1)
    followed = [place for place in range(len(tree)) if tree.ends[place] > place + 1]
    assert len({tuple(tree.tokens[path(tree, place)]) for place in followed}) == len(followed)
    if whole:
        assert {tuple(tree.tokens[path(tree, place)]) for place in range(len(tree))} == inner


@given(rows(), st.sampled_from([None, 1, 3]), st.integers(1, 5), st.integers(1, 6))
@settings(max_examples=100, deadline=None)
def test_blocks_of_neighbours_attend_to_what_their_tokens_do(
    made: Rows, window: int | None, size: int, bucket: int
) -> None:
    tree = plant(*made)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(masks, "QUERY_BLOCK", size)
        patch.setattr(masks, "KEY_BUCKET", bucket)
        gathered = gather(tree, window, CPU)
    lines = []
    for batch in gathered.batches:
        for queries, keys, allowed in zip(batch.queries, batch.keys, batch.mask[:, 0], strict=True):
            for query, line in zip(queries, allowed, strict=True):
                found = np.zeros(len(tree), dtype=int)
                np.add.at(found, keys[line].numpy(), 1)
                lines.append((int(query), found))
    expected = attends(tree, window)
    for place, where in enumerate(gathered.order):
        query, found = lines[where]
        assert query == place
        assert found.tolist() == expected[place].astype(int).tolist()


@given(rows(longest=4), st.sampled_from([None, 3]), st.integers(1, 4), st.sampled_from([1, 8]))
@settings(max_examples=50, deadline=None)
def test_the_block_mask_allows_what_the_tree_does(made: Rows, window: int | None, size: int, multiple: int) -> None:
    tree = plant(*made, multiple=multiple)
    assert len(tree) % multiple == 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(masks, "KERNEL_BLOCK", size)
        mask = TreeMask.build(tree, CPU, window)
    expected = attends(tree, window)
    places = torch.arange(len(tree))
    allowed = mask.mask_mod(torch.tensor(0), torch.tensor(0), places[:, None], places[None, :]).numpy()
    assert (allowed == expected).all()
    assert mask.shape == (1, 1, len(tree), len(tree))
    # Blocks that are not listed hold nothing; blocks listed as full are looked at by nobody again.
    listed = blocks(mask.kv_num_blocks, mask.kv_indices), blocks(mask.full_kv_num_blocks, mask.full_kv_indices)
    for query in range(len(listed[0])):
        for key in range(len(listed[0])):
            part = expected[query * size : (query + 1) * size, key * size : (key + 1) * size]
            assert not (listed[0][query, key] and listed[1][query, key])
            assert listed[0][query, key] or listed[1][query, key] or not part.any()
            assert not listed[1][query, key] or part.all()


def blocks(counts: torch.Tensor, indices: torch.Tensor) -> np.ndarray:
    matrix = np.zeros(indices.shape[2:], dtype=bool)
    for row, count in enumerate(counts[0, 0]):
        matrix[row, indices[0, 0, row, :count]] = True
    return matrix


def test_full_blocks_are_found() -> None:
    """A long context is read by whole blocks, without looking at single tokens."""
    tree = plant([list(range(4 * KERNEL_BLOCK)) + [problem] * 70 for problem in range(4)], [[5, 6]] * 4, KERNEL_BLOCK)
    mask = TreeMask.build(tree, CPU)
    full = blocks(mask.full_kv_num_blocks, mask.full_kv_indices)
    assert full[4:6, :4].all()
    assert mask.kv_num_blocks[0, 0, :-1].max() <= 2  # the last block is filled up with tokens on their own


def test_without_completions_there_is_still_a_row_to_run() -> None:
    tree = plant([[1, 2], []], [[], []])
    assert len(tree) == 1
    assert tree.labels.tolist() == [UNSCORED]


def test_a_completion_needs_a_prompt() -> None:
    with pytest.raises(ValueError, match="prompt 1 is empty"):
        plant([[1], []], [[2], [2]])
