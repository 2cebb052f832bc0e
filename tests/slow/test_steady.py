"""Rises, falls and standstills of the slow loop, from the rewards of its steps."""

from __future__ import annotations

import json
from statistics import fmean

import numpy as np
import pytest

from benchmarks.checkpoint_choice import simulate, simulated
from fastslow.slow.steady import CYCLES, ENTROPY, EQUAL, SOLVED, WINDOW, Course, Point, point, smooth


def course_of(rewards: list[float], *, variance: float = 0.01, cycle: int | None = None) -> Course:
    course = Course(cycle)
    for step, reward in enumerate(rewards, 1):
        course.add(Point(step, reward, variance))
    return course


def test_a_point_is_the_mean_over_problems_with_the_variance_of_that() -> None:
    made = point(7, [0.0, 0.5, 1.0, 0.5], 0.25, 0.1)
    assert made == Point(7, 0.5, pytest.approx(0.5 / 3 / 4), 0.25, 0.1)
    assert point(1, [0.25]) == Point(1, 0.25, 0.0)


@pytest.mark.parametrize("drift", [1e-3, 0.1, 1.0])
def test_smoothed_rewards_are_those_of_the_gaussian_posterior(drift: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastslow.slow.steady.DRIFTS", (drift,))
    rewards, noise = np.array([0.1, 0.4, 0.35, 0.8, 0.2]), 0.04
    found = smooth([Point(step, reward, noise) for step, reward in enumerate(rewards)])
    # A walk from anywhere: the precision of the increments, and of the measurements.
    steps = np.diff(np.eye(len(rewards)), axis=0)
    covariance = np.linalg.inv(steps.T @ steps / (drift * noise) + np.eye(len(rewards)) / noise)
    means = covariance @ rewards / noise
    assert found.means == pytest.approx(means)
    assert found.variances == pytest.approx(np.diag(covariance))
    lead, deviation = found.lead(1, 4)
    assert lead == pytest.approx(means[1] - means[4])
    assert deviation**2 == pytest.approx(covariance[1, 1] + covariance[4, 4] - 2 * covariance[1, 4])


def test_the_drift_is_that_of_the_measurements() -> None:
    flat = smooth([Point(step, 0.5 + 0.1 * (-1) ** step, 0.01) for step in range(40)])
    assert np.ptp(flat.means) < 0.01
    jump = smooth([Point(step, 0.2 if step < 20 else 0.8, 0.01) for step in range(40)])
    assert jump.means[0] == pytest.approx(0.2, abs=0.02)
    assert jump.means[-1] == pytest.approx(0.8, abs=0.02)


@pytest.mark.parametrize("varied", [False, True])
def test_what_a_run_chooses_is_near_its_peak(varied: bool) -> None:
    found = simulated("peaked", 60, varied, 25)
    assert fmean(each.last for each in found) < 0.7
    assert fmean(each.chosen for each in found) >= 0.97
    assert fmean(each.saved for each in found) < 10
    steady = [each for kind in ("rising", "flat") for each in simulated(kind, 60, varied, 12)]
    assert sum(each.earlier for each in steady) <= 3, "a run that did not fall ends with its last checkpoint"
    assert fmean(each.chosen for each in steady) > 0.99


@pytest.mark.parametrize("varied", [False, True])
def test_a_fall_is_noticed_and_noise_is_not(varied: bool) -> None:
    alarms = [each.alarm for kind in ("flat", "rising") for each in simulated(kind, 60, varied, 12)]
    assert sum(alarm is not None for alarm in alarms) <= 1
    true = np.concatenate([np.full(30, 0.75), np.linspace(0.75, 0.4, 5), np.full(15, 0.4)])
    late = [simulate(true, varied, np.random.default_rng((seed, 3))).alarm for seed in range(12)]
    assert sum(alarm is not None and 30 < alarm <= 42 for alarm in late) >= 11


def test_the_last_checkpoint_is_chosen_unless_the_best_is_better_beyond_noise() -> None:
    course = course_of([0.5] * 20)
    course.peaks = (4,)
    assert course.chosen(20) == 20
    assert course.fall(20) is None
    course = course_of([0.8] * 12 + [0.3] * 12, variance=0.001)
    course.peaks = (10,)
    assert course.chosen(24) == 10
    before, now = course.fall(24) or (0.0, 0.0)
    assert (before, now) == (pytest.approx(0.8, abs=0.06), pytest.approx(0.3, abs=0.06))
    assert Course(None).chosen(7) == 7


def test_a_small_loss_is_no_fall_however_certain() -> None:
    for last, chosen in ((0.79, 60), (0.75, 28)):
        course = course_of([0.80] * 30 + [last] * 30, variance=1e-8)
        course.peaks = (28,)
        assert course.chosen(60) == chosen
        assert course.fall(60) is None


def test_a_checkpoint_is_measured_by_the_step_after_it_unless_that_reads_another_text() -> None:
    weights, text = (course_of([0.1] * 6 + [0.9] * 6, variance=1e-6, cycle=cycle) for cycle in (None, 6))
    for course, best in ((weights, 6), (text, 7)):
        course.peaks = (5, best)
        assert course.best == best
        course.peaks = (5, 6)
        assert course.best == (6 if course is weights else 5), "step 7 plays the weights of step 6 under the next text"


def test_the_two_best_checkpoints_are_kept() -> None:
    course = course_of([reward for reward in (0.3, 0.5, 0.1, 0.9) for _ in range(4)], variance=1e-6)
    for step, kept in ((2, (2,)), (6, (2, 6)), (10, (6, 10)), (14, (6, 14))):
        course.keep(step)
        assert course.peaks == kept
    assert course.best == 14
    assert not course.improved(15), "too soon"


def test_what_is_measured_after_a_restored_checkpoint_is_forgotten() -> None:
    course = course_of([0.8] * 12 + [0.3] * 12)
    course.peaks = (10,)
    course.restored()
    assert [each.step for each in course.points] == list(range(1, 12))
    assert course.rate == 0.1
    assert course.fall(24) is None
    course.restart()
    assert (course.points, course.peaks, course.idle, course.rate) == ((), (), 0, 0.1)


@pytest.mark.parametrize(
    ("equal", "entropy", "reward", "collapsed"),
    [
        *((0.9, 0.05, 0.5, True), (0.5, 0.05, 0.5, False), (0.9, 0.3, 0.5, False), (0.9, 0.05, 1.0, False)),
        *((EQUAL, ENTROPY * 0.5, SOLVED, True), (0.9, None, 0.5, False)),
    ],
)  # fmt: skip
def test_a_collapse_is_equal_groups_without_entropy_that_are_not_solved(
    equal: float, entropy: float | None, reward: float, collapsed: bool
) -> None:
    course = course_of([])
    for step in range(2 * WINDOW):
        course.add(Point(step, 0.5, 0.01, 0.3, 0.5))
    assert course.collapse() is None
    for step in range(2 * WINDOW, 3 * WINDOW):
        course.add(Point(step, reward, 0.01, equal, entropy))
    assert (course.collapse() is not None) is collapsed
    course.points = course.points[WINDOW:]
    assert (course.collapse() is not None) is collapsed
    course.points = course.points[1:]
    assert course.collapse() is None, "too few steps"


def test_patience_counts_steps_and_cycles() -> None:
    weights, both = Course(None), Course(20)
    weights.idle = both.idle = 50
    assert weights.hopeless(50)
    assert not weights.hopeless(51)
    assert not weights.hopeless(None)
    assert not both.hopeless(50)
    both.idle = CYCLES * 20
    assert both.hopeless(50)


def test_a_course_is_restored_from_plain_data() -> None:
    course, again = course_of([0.2, 0.5, 0.7], cycle=2), Course(2)
    course.peaks, course.idle, course.rate = (1, 3), 2, 0.25
    again.restore(json.loads(json.dumps(course.to_data())))
    assert again.to_data() == course.to_data()
    again.restore(None)
    assert again.points == course.points
