"""The simulation of allocations."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.allocation import WAYS, main, run


def test_better_predictions_and_larger_groups_raise_the_share() -> None:
    share = {way: np.mean([run(way, 4.0, seed, steps=6)[0] for seed in range(4)]) for way in WAYS}
    assert share["even"] < share["growth 2"] < share["known, growth 2"]
    assert share["informative"] < share["known"]


def test_a_row_for_every_way(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--seeds", "1", "--steps", "2", "--spread", "3"])
    assert [line.split(" | ")[1] for line in capsys.readouterr().out.splitlines()[2:]] == list(WAYS)
