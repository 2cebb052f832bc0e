"""Curves from hand-made evaluation rows, in closed form."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastslow.base.errors import RunError
from fastslow.recipe import build_recipe
from fastslow.runs.folder import RunFolder
from fastslow.study.curves import Curve, read_curve


def result(mean: float, kl: float | None = None) -> dict[str, Any]:
    return {"mean": mean, "low": mean - 0.1, "high": mean + 0.1, **({} if kl is None else {"kl": kl})}


ROWS: list[dict[str, Any]] = [
    {"results": {"seed": result(0.2, 0.0)}, "rollouts_slow": 0, "rollouts_fast": 0, "seconds": 0.0},
    {
        "results": {"seed": result(0.3, 0.1), "best context": result(0.5, 0.2)},
        "rollouts_slow": 64,
        "rollouts_fast": 36,
        "seconds": 5.0,
    },
    {
        "results": {"seed": result(0.9, 0.5), "best context": result(0.4, 0.3)},
        "rollouts_slow": 128,
        "rollouts_fast": 72,
        "seconds": 9.0,
    },
]


def test_a_curve_counts_both_loops_and_is_judged_under_the_best_context() -> None:
    curve = Curve.from_rows(ROWS)
    assert curve.rollouts == (0, 100, 200)
    assert curve.rewards == (0.2, 0.5, 0.4)
    assert curve.lows == pytest.approx((0.1, 0.4, 0.3))
    assert curve.highs == pytest.approx((0.3, 0.6, 0.5))
    assert curve.kls == (0.0, 0.2, 0.3)
    assert curve.seconds == (0.0, 5.0, 9.0)


def test_a_reward_is_reached_where_the_fitted_curve_passes_it() -> None:
    curve = Curve.from_rows(ROWS)
    assert curve.fitted == pytest.approx((0.2, 0.45, 0.45))
    assert curve.cost(0.2, "rollouts") == 0
    assert curve.cost(0.325, "rollouts") == pytest.approx(50)
    assert curve.cost(0.325, "seconds") == pytest.approx(2.5)
    assert curve.cost(0.46, "rollouts") == math.inf
    assert curve.kl_at(0.4) == 0.2
    assert math.isnan(curve.kl_at(0.46))
    assert curve.end == 0.4


def test_a_curve_that_stays_level_does_not_pass_its_reward_by_rounding() -> None:
    for reward in np.random.default_rng(0).uniform(size=200).tolist():
        curve = Curve.from_rows([{**ROWS[0], "results": {"seed": result(reward, 0.0)}}] * 6)
        assert curve.fitted == (reward,) * 6
        assert curve.cost(math.nextafter(reward, 1.0), "rollouts") == math.inf


def test_rewards_within_rollouts_or_a_divergence() -> None:
    curve = Curve.from_rows(ROWS)
    assert curve.reward_after(150) == 0.5
    assert curve.reward_after(200) == 0.4
    assert curve.reward_within(0.1) == 0.2
    assert curve.reward_within(0.3) == 0.5
    assert math.isnan(curve.reward_within(-1))


def test_the_student_of_a_distillation_is_judged_under_the_seed() -> None:
    curve = Curve.from_rows(ROWS, "distill")
    assert curve.rewards == (0.2, 0.3, 0.9)
    assert curve.kls == curve.seed_kls == (0.0, 0.1, 0.5)


def test_divergence_measured_afterwards_fills_the_gaps() -> None:
    rows = [{**row, "step": index, "results": {**row["results"]}} for index, row in enumerate(ROWS)]
    rows[1]["results"] = {label: {**found, "kl": None} for label, found in ROWS[1]["results"].items()}
    curve = Curve.from_rows(rows, "fst", {(1, "best context"): 0.25, (2, "best context"): 9.0})
    assert curve.kls == (0.0, 0.25, 0.3)
    assert math.isnan(curve.seed_kls[1])


def test_what_was_not_measured_is_not_a_number() -> None:
    rows = [{"results": {"seed": result(0.2)}, "rollouts_slow": 0, "rollouts_fast": 0}]
    curve = Curve.from_rows(rows)
    assert math.isnan(curve.kls[0])
    assert math.isnan(curve.seconds[0])
    lost = [{"results": {"seed": {**result(0.2), "kl": None}}, "rollouts_slow": 0, "rollouts_fast": 0}]  # JSON's NaN
    assert math.isnan(Curve.from_rows(lost).kls[0])


def test_a_run_folder_is_read(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path / "run", build_recipe({"model": "nano", "task": "rulebook"})) as run:
        with pytest.raises(RunError, match="has no evaluations; train it"):
            read_curve(run.path)
        for row in ROWS:
            run.append("evals", row)
    assert read_curve(tmp_path / "run") == Curve.from_rows(ROWS)
