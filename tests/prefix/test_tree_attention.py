"""Which tokens attend to which in a tree, against the definition."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from prefix_helpers import Rows, path, rows

from fastslow.prefix import tree_attention
from fastslow.prefix.tree import TokenTree, token_tree
from fastslow.prefix.tree_attention import KERNEL_BLOCK, TreeMask, gather

CPU = torch.device("cpu")


def attends(tree: TokenTree, window: int | None = None) -> np.ndarray:
    """By definition: queries × keys."""
    matrix = np.zeros((len(tree), len(tree)), dtype=bool)
    for query in range(len(tree)):
        for key in path(tree, query):
            matrix[query, key] = window is None or tree.positions[query] - tree.positions[key] < window
    return matrix


@given(rows(), st.sampled_from([None, 1, 3]), st.integers(1, 5))
@settings(max_examples=100, deadline=None)
def test_blocks_of_neighbours_attend_to_what_their_tokens_do(made: Rows, window: int | None, size: int) -> None:
    tree = token_tree(*made)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tree_attention, "QUERY_BLOCK", size)
        blocks = gather(tree, window, CPU)
    lines = []
    for block in blocks:
        assert len(block.mask) <= size
        for line in block.mask:
            found = np.zeros(len(tree), dtype=int)
            np.add.at(found, block.keys[line].numpy(), 1)
            lines.append(found.tolist())
    assert lines == attends(tree, window).astype(int).tolist()


@given(rows(longest=4), st.sampled_from([None, 3]), st.integers(1, 4), st.sampled_from([1, 8]))
@settings(max_examples=50, deadline=None)
def test_the_block_mask_allows_what_the_tree_does(made: Rows, window: int | None, size: int, multiple: int) -> None:
    tree = token_tree(*made, multiple=multiple)
    assert len(tree) % multiple == 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tree_attention, "KERNEL_BLOCK", size)
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
    tree = token_tree(
        [list(range(4 * KERNEL_BLOCK)) + [problem] * 70 for problem in range(4)], [[5, 6]] * 4, KERNEL_BLOCK
    )
    mask = TreeMask.build(tree, CPU)
    full = blocks(mask.full_kv_num_blocks, mask.full_kv_indices)
    assert full[4:6, :4].all()
    assert mask.kv_num_blocks[0, 0, :-1].max() <= 2  # the last block is filled up with tokens on their own
