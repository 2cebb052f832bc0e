"""Microbatches and processes change memory and speed, not the result: what reaches the loss, and the weights after it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from forked import fork_two
from slow_helpers import (
    GROUP,
    PROBLEMS,
    REWARDS,
    SETTINGS,
    make_recipe,
    make_rollouts,
    make_trainer,
    make_update,
    one_update,
)
from two_processes import main

from fastslow.base.world import World
from fastslow.engine.base import Update


@pytest.fixture(scope="module")
def one_process(tiny_folder: Path) -> dict[str, dict[int, dict[str, Any]]]:
    """Every setting with one process, by microbatch."""
    return {
        name: {size: one_update(tiny_folder, World(), **slow, microbatch=size) for size in (4, 8, 16)}
        for name, slow in SETTINGS.items()
    }


@pytest.fixture(scope="module")
def before(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, torch.Tensor]:
    """The weights that every update starts from."""
    trainer = make_trainer(make_recipe(tiny_folder))
    return dict(trainer.model.named_parameters())


@pytest.fixture(scope="module")
def two_processes(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, dict[str, Any]]]:
    """Every setting with two real processes over gloo, by process."""
    folder = tmp_path_factory.mktemp("two")
    fork_two(main, tiny_folder, folder, environment={"CUDA_VISIBLE_DEVICES": ""})
    return [torch.load(folder / f"process-{rank}.pt", weights_only=False) for rank in (0, 1)]


def expected_rows(name: str, folder: Path) -> Counter:
    recipe = make_recipe(folder, **SETTINGS[name])
    turns = [1 + index % 3 for index in range(len(REWARDS))]
    update = make_update(recipe, make_rollouts(REWARDS, turns=turns, contexts=2))
    assert 0 < len(update.rows) < sum(turns)  # some were left out
    return rows_of(update)


def rows_of(update: Update) -> Counter:
    return Counter(
        (tuple(row.turn.prompt_ids), tuple(row.turn.completion.ids), round(row.advantage, 5)) for row in update.rows
    )


def rows_in(microbatches: list[dict[str, torch.Tensor]]) -> tuple[Counter, int]:
    """The rows that carry tokens, unpadded, and the number of fillers."""
    rows, fillers = Counter(), 0
    for batch in microbatches:
        for index in range(len(batch["advantages"])):
            prompt = batch["prompt_ids"][index][batch["prompt_mask"][index].bool()]
            completion = batch["completion_ids"][index][batch["completion_mask"][index].bool()]
            advantage = round(batch["advantages"][index].item(), 5)
            if len(completion):
                rows[(tuple(prompt.tolist()), tuple(completion.tolist()), advantage)] += 1
            else:
                assert advantage == 0
                fillers += 1
    return rows, fillers


@pytest.mark.parametrize("name", SETTINGS)
def test_every_row_reaches_the_loss_once_at_any_microbatch(name: str, one_process, tiny_folder: Path) -> None:
    for size, found in one_process[name].items():
        rows, fillers = rows_in(found["microbatches"])
        assert rows == expected_rows(name, tiny_folder)
        losses = {"teacher_ids" in batch for batch in found["microbatches"]}
        assert len(losses) == 1 + (name == "feedback")  # which has rows of both
        assert PROBLEMS * GROUP // size <= len(found["microbatches"]) < PROBLEMS * GROUP // size + len(losses)
        assert fillers < len(found["microbatches"])


@pytest.mark.parametrize("name", SETTINGS)
def test_every_row_reaches_the_loss_once_over_two_processes(name: str, two_processes, tiny_folder: Path) -> None:
    shares = [rows_in(found[name]["microbatches"]) for found in two_processes]
    assert shares[0][0] + shares[1][0] == expected_rows(name, tiny_folder)
    microbatches = [len(found[name]["microbatches"]) for found in two_processes]
    assert microbatches == ([3, 3] if name == "feedback" else [2, 2])
    assert shares[0][1] + shares[1][1] < sum(microbatches)
    lengths = [[len(batch["advantages"]) for batch in found[name]["microbatches"]] for found in two_processes]
    assert lengths[0] == lengths[1]  # both processes have equally much to do
    assert len(set(lengths[0])) <= 1 + (name == "feedback")


@pytest.mark.parametrize("name", SETTINGS)
def test_the_weights_do_not_depend_on_microbatch_or_processes(name: str, one_process, two_processes, before) -> None:
    reference = one_process[name][16]["weights"]
    assert max((reference[key] - before[key]).abs().max() for key in reference) > 1e-2
    others = {f"microbatch {size}": found["weights"] for size, found in one_process[name].items()}
    others |= {f"process {rank}": found[name]["weights"] for rank, found in enumerate(two_processes)}
    for who, found in others.items():
        for key, value in reference.items():
            note = f"{who}, {key}: "
            torch.testing.assert_close(found[key], value, atol=1e-6, rtol=1e-5, msg=lambda text, note=note: note + text)
    for found in two_processes:
        assert found[name]["logs"]["grad_norm"] == pytest.approx(one_process[name][16]["logs"]["grad_norm"], rel=1e-4)


def test_without_rows_every_microbatch_is_one_filler(tiny_folder: Path, tmp_path: Path) -> None:
    for microbatch in (4, 16):
        trainer = make_trainer(make_recipe(tiny_folder, microbatch=microbatch))
        rows, fillers = rows_in([trainer.tensors(Update(1, []))])
        assert not rows
        assert fillers == PROBLEMS * GROUP // microbatch
