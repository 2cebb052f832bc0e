"""What is said of a comparison: examples by hand, and what holds for any curves."""

from __future__ import annotations

import importlib.util
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from helpers import ROOT
from hypothesis import given, settings
from hypothesis import strategies as st

from fastslow.study import measures
from fastslow.study.arms import LOOKS, Arm
from fastslow.study.conclusions import ablations, data_efficiency
from fastslow.study.curves import Curve, Estimate
from fastslow.study.measures import Comparison
from fastslow.study.sentences import (
    _size,
    cost_title,
    divergence_title,
    findings,
    largest_margin,
    oriented,
    summaries,
    times,
    title,
)

HALF = 0.1
"""Half of the width of an evaluation's interval."""


def curve(rewards: Sequence[float], a_step: int = 32, half: float = HALF) -> Curve:
    """Evaluations ten steps apart, of so many rollouts a step."""
    steps = tuple(10.0 * index for index in range(len(rewards)))
    unknown = (math.nan,) * len(rewards)
    return Curve(
        steps=steps, rollouts=tuple(a_step * step for step in steps), tokens=unknown, seconds=steps,
        rewards=tuple(rewards), lows=tuple(max(0.0, reward - half) for reward in rewards),
        highs=tuple(min(1.0, reward + half) for reward in rewards), kls=unknown, seed_kls=unknown,
    )  # fmt: skip


def compared(arms: Mapping[str, Sequence[Sequence[float]]], dearer: float = 1.0, half: float = HALF) -> Comparison:
    """Arms by method, a curve for each seed; rollouts of all but RL are dearer."""
    made = [
        Arm(
            LOOKS[method].name,  # type: ignore[index]
            method,  # type: ignore[arg-type]
            {seed: curve(row, round(32 * (1 if method == "rl" else dearer)), half) for seed, row in enumerate(rows)},
        )
        for method, rows in arms.items()
    ]
    return Comparison.of(made)


FST = [[0.1, 0.2, 0.7, 0.8], [0.1, 0.25, 0.6, 0.7], [0.1, 0.2, 0.6, 0.9]]
RL = [[0.1, 0.2, 0.4, 0.3], [0.1, 0.2, 0.3, 0.5], [0.1, 0.1, 0.2, 0.3]]


def test_titles_state_the_largest_difference_beyond_noise() -> None:
    rl = [[0.1, 0.2, 0.3, 0.4], [0.1, 0.2, 0.35, 0.45], [0.1, 0.15, 0.3, 0.35]]
    first = [[0.1, 0.4], [0.1, 0.5], [0.1, 0.3]]
    assert title(compared({"fst": first, "rl": [row[::-1][:1] + row for row in RL]})).startswith(
        "Reward at the end: FST 0.40, RL only 0.37"
    )
    ended = title(compared({"fst": FST, "rl": rl}))
    assert re.fullmatch(
        r"FST ends at 0.80, RL only at 0.40: a difference of 0.40 \[.*\]; to reach 80% of the gain of RL only, FST needs "
        r"\d\.\d× \[.*\] fewer rollouts|To reach 80% of the gain of RL only, FST needs \d\.\d× \[.*\] fewer rollouts; "
        r"FST ends at 0.80, RL only at 0.40",
        ended,
    )
    even = {"rl": [[0.1, 0.5, 0.6]] * 3, "fst": [[0.1, 0.5, 0.8], [0.1, 0.5, 0.55], [0.1, 0.5, 0.7]]}
    assert title(compared(even)) == "Reward at the end: FST 0.68, RL only 0.60; no difference is beyond noise"
    worse = title(compared({"fst": [[0.1, 0.2]] * 2, "rl": [[0.1, 0.7], [0.1, 0.8]]}))
    assert worse == "Reward at the end: RL only 0.75, FST 0.20; no difference is beyond noise"


def test_divergence_is_compared_at_the_level_where_two_arms_have_one() -> None:
    found = compared({"fst": FST, "rl": RL})
    kls = {"FST": (0.0, 0.01, 0.02, 0.03), "RL only": (0.0, 0.1, 0.2, 0.3)}

    def measured(*labels: str) -> Comparison:
        arms = [
            replace(arm, curves={seed: replace(each, kls=kls[arm.label]) for seed, each in arm.curves.items()})
            if arm.label in labels
            else arm
            for arm in found.arms
        ]
        return Comparison.of(arms)

    assert divergence_title(measured("FST", "RL only")) == (
        "KL from the base model at 80% of the gain of RL only (0.31): FST 0.020, RL only 0.25"
    )  # of the first evaluations that reach it: 0.02 with all; 0.2, 0.3 and never
    assert divergence_title(measured("FST")) == "KL from the base model at the end: FST 0.030"
    assert cost_title(found).startswith("To reach 80% of the gain of RL only (0.31), FST needs ")


def test_a_difference_is_said_without_its_sign() -> None:
    assert _size(Estimate(0.4, 0.3, 0.6, 3)) == _size(Estimate(-0.4, -0.6, -0.3, 3)) == "0.40 [0.30, 0.60]"
    assert _size(Estimate(0.0)) == "0.00"


def test_a_rise_that_is_noise_is_not_spoken_of() -> None:
    """As in the quickstart: RL stays at 0.02, and one of its evaluations is 0.04."""
    found = compared({"fst": [[0.03, 0.4, 0.72, 0.62]], "rl": [[0.02, 0.04, 0.02, 0.02]]}, dearer=1.8)
    assert title(found) == "Reward at the end: FST 0.62, RL only 0.02; one seed cannot tell whether they differ"
    said = findings(found)
    assert said[0].startswith("RL only does not improve on its reward before training beyond noise")
    assert said[1] == "FST ends at 0.62, RL only at 0.02; difference 0.60, which one seed cannot tell from noise."
    assert len(said) == 2


def test_more_is_never_called_fewer() -> None:
    # RL passes 0.42 at step 18, FST at step 54.
    more = compared({"fst": [[*[0.1] * 5, 0.3, 0.6]] * 3, "rl": [[0.1, 0.1, *[0.5] * 5]] * 3})
    level, more_steps = "80% of the gain of RL only (0.42)", "3.0× more steps (equal in all seeds)"
    needs = f"To reach {level}, FST needs {more_steps} and 3.0× more rollouts"
    assert any(line.startswith(needs) for line in findings(more))
    (cost,) = [table for table in summaries(more) if table.title.startswith("Cost to reach")]
    assert cost.rows[0][2] == "3.0× more (equal in all seeds)"
    numbers = {measure: found.mean for _, measure, found, _ in data_efficiency(more.arms, "made up").numbers}
    assert numbers["times more rollouts to 80% of the gain of RL only"] == pytest.approx(3)
    before = compared({"fst": [[0.9, 0.9, 0.9]], "rl": [[0.1, 0.1, 0.6]]})
    assert "FST is at or above 80% of the gain of RL only (0.50) before training." in findings(before)


def test_what_lies_before_the_first_evaluation_has_no_cost() -> None:
    """Whatever a straight line from the start says: when the level was reached is not known."""
    level, rl = "80% of the gain of RL only (0.42)", [[0.1, 0.1, 0.5], [0.1, 0.1, 0.5]]
    early = compared({"fst": [[0.1, 0.9, 0.9], [0.1, 0.8, 0.9], [0.1, 0.2, 0.3]], "rl": rl})
    (fst,) = early.others
    assert early.cost(fst, "rollouts").words() == "not resolved: before the first evaluation"
    assert early.saving(fst, "rollouts").words() == "not resolved"
    assert early.savings() == {}
    assert early.cost(early.baseline, "steps").words() == "18.00 (equal in all seeds)"
    by = f"reached {level} by the first evaluation after the start: the cost of FST is not resolved."
    assert f"FST has {by}" in findings(early)
    later = compared({"fst": [[0.1, 0.9, 0.9], [0.1, 0.3, 0.9]], "rl": rl})
    assert later.cost(later.arms[0], "steps").words() == "8.00 [0.00, 58.82]"
    both = compared({"fst": [[0.1, 0.9]] * 2, "rl": [[0.1, 0.5]] * 2})
    assert f"FST and RL only have {by}" in findings(both)
    base = compared({"fst": [[0.1, 0.1, 0.9]] * 2, "rl": [[0.1, 0.5, 0.5]] * 2})
    assert f"RL only has {by}" in findings(base)
    assert base.cost(base.arms[0], "steps").words() == "14.00 (equal in all seeds)"


def test_times() -> None:
    assert times(Estimate(2.0, 1.5, 3.0, 3), "steps") == "2.0× [1.5, 3.0] fewer steps"
    assert times(Estimate(0.5, 0.25, 1.0, 3), "steps") == "2.0× [1.0, 4.0] more steps"
    assert times(Estimate(1.02), "steps") == "1.0× the steps"
    assert oriented(Estimate(math.nan, note="not reached"))[0] == "fewer"


rewards = st.floats(0, 1, allow_nan=False).map(lambda value: round(value, 2))
halves = st.sampled_from((0.02, 0.05, 0.1))


@st.composite
def comparisons(draw: st.DrawFn) -> Comparison:
    """Two or three methods, one to four seeds, two to eight evaluations."""
    methods = ("rl", *draw(st.sampled_from((("fst",), ("fst", "gepa")))))
    seeds, length = draw(st.integers(1, 4)), draw(st.integers(2, 8))
    drawn = {
        method: draw(st.lists(st.lists(rewards, min_size=length, max_size=length), min_size=seeds, max_size=seeds))
        for method in methods
    }
    return compared(drawn, draw(st.sampled_from((0.5, 1.0, 1.8))), draw(halves))


@given(comparisons())
def test_the_title_agrees_with_the_table(found: Comparison) -> None:
    said = title(found)
    ends = {arm.label: f"{found.end(arm).mean:.2f}" for arm in found.arms}
    for first, more, second, less in re.findall(
        r"(FST|RL only|GEPA only) ends at ([\d.]+), ([\w ]+?) at ([\d.]+)", said
    ):
        assert (more, less) == (ends[first], ends[second])
        assert float(more) >= float(less)
    if said.startswith("Reward at the end"):
        assert all(f"{label} {end}" in said for label, end in ends.items())
        assert not any(found.is_apart(arm) for arm in found.others)
    else:
        assert "ends at" in said
    for label, direction in re.findall(r", (FST|GEPA only) needs [^;]*? (fewer|more) rollouts", said):
        (arm,) = [arm for arm in found.others if arm.label == label]
        assert (found.saving(arm, "rollouts").mean > 1) == (direction == "fewer")


@given(comparisons())
def test_a_number_of_times_is_never_below_one(found: Comparison) -> None:
    tables = [cell for table in summaries(found) for row in table.rows for cell in row]
    for text in (title(found), cost_title(found), *findings(found), *tables):
        assert not re.search(r"(?<![\d.])0\.\d×", text)
        assert "times fewer" not in text


@given(comparisons())
def test_findings_beyond_noise_come_first(found: Comparison) -> None:
    said = findings(found)
    unsure = [place for place, line in enumerate(said) if "not significant" in line or "cannot tell" in line]
    sure = [
        place for place, line in enumerate(said) if re.search(r"difference -?[\d.]+ \[", line) and place not in unsure
    ]
    assert max(sure, default=-1) < min(unsure, default=len(said))


@given(st.lists(st.tuples(rewards, rewards), min_size=1, max_size=4), halves, st.sampled_from((0.5, 1.0, 1.8)))
def test_only_what_seeds_settle_is_called_beyond_noise(
    ends: list[tuple[float, float]], half: float, dearer: float
) -> None:
    """However far apart two runs end: the interval over seeds decides, and one seed has none."""
    arms = {"fst": [[0.1, 0.1, fst] for fst, _ in ends], "rl": [[0.1, 0.1, rl] for _, rl in ends]}
    found = compared(arms, dearer, half)
    margin = found.margin(found.arms[0])
    assert found.is_apart(found.arms[0]) == margin.settled(0)
    if len(ends) == 1:
        assert "one seed cannot tell whether they differ" in title(found)
        assert largest_margin(found) == "one seed cannot tell whether they differ"
    elif margin.settled(0):
        for text in (title(found), largest_margin(found), *findings(found)):
            assert "not significant" not in text
            assert "no difference" not in text


def test_intervals_hold_the_truth_as_often_as_they_say() -> None:
    """The simulation of docs/compare.md, with fewer studies: 95% of 150 is 142, and 130 would be out of the question."""
    spec = importlib.util.spec_from_file_location("coverage", ROOT / "benchmarks" / "compare_coverage.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    for seeds in (3, 5, 10):
        for ratio in (1.0, 3.0):
            got = script.measure("hill", 16, seeds, ratio, studies=150)
            assert got["holds"] > 0.87
            assert got["known"] > 0.85
            if ratio == 1:
                assert got["mean"] == pytest.approx(1, abs=0.06)
                assert got["wrong"] < 0.12
    assert script.measure("hill", 16, 1, 1.0, studies=150)["wrong"] == 0


UNCHANGED: dict[tuple[int, int], Any] = {}
"""What is fitted to RL's curve, by its length and seeds."""


@settings(max_examples=30, deadline=None)  # each fits curves
@given(st.lists(rewards, min_size=5, max_size=10), st.integers(1, 2))
def test_a_run_that_rises_is_never_said_not_to_change(between: list[float], seeds: int) -> None:
    """It goes from 0.03 to 0.72, however it gets there."""
    arms = {"fst": [[0.03, *between, 0.72]] * seeds, "rl": [[0.02] * (len(between) + 2)] * seeds}
    found = compared(arms)
    draws, measures.DRAWS = measures.DRAWS, 5
    same = len(between), seeds
    try:
        fst, rl = found.arms
        if same not in UNCHANGED:
            UNCHANGED[same] = found.asymptote(rl)
        limits = {fst.label: found.asymptote(fst), rl.label: UNCHANGED[same]}
    finally:
        measures.DRAWS = draws
    said = [line for line in findings(found, limits) if "FST" in line]
    assert not any("does not change" in line for line in said)
    assert any("RL only" in line and "does not" in line for line in findings(found, limits))


def test_ablations_lead_with_the_largest() -> None:
    arms = compared({"fst": [[0.1, 0.9]] * 3, "rl": [[0.1, 0.3], [0.1, 0.32], [0.1, 0.28]]}).arms
    near = Arm("K = 1", "fst", {seed: curve([0.1, reward]) for seed, reward in enumerate((0.8, 0.81, 0.79))})
    said = ablations([arms[0], near, arms[1]], "made up").finding
    assert re.search(r": RL only by -0\.60 \[.*\], K = 1 by -0\.10 \[", said)
