"""The included problems as they are run: from their names, in the sandbox."""

import shutil

import numpy as np
import pytest

from fastslow.discover import Failed
from fastslow.discover.problem import included_problems, load_problem
from fastslow.discover.problems import bin_packing, cpu_kernel
from fastslow.sandbox import protections

SEEDS = {
    "autocorrelation-first": 2.0,
    "autocorrelation-second": 2 / 3,
    "autocorrelation-third": 2.0,
    "bin-packing": 4.07,
    "circle-packing": 2.54,
    "differences": -5,
    "distance-ratio": 18.0,
    "heilbronn-square": 0.028064,
    "heilbronn-triangle": 0.013457,
    "low-autocorrelation": 1.478406,
    "min-overlap": 0.40625,
}


def test_every_included_problem_is_known_here():
    assert set(included_problems()) == {*SEEDS, "cpu-kernel"}


@pytest.mark.parametrize("name", SEEDS)
def test_the_seed_scores_what_it_should_and_the_target_is_better(name):
    problem = load_problem(name)
    scored = problem.evaluate(problem.seed)
    assert scored.score == pytest.approx(SEEDS[name], rel=1e-3), scored.words
    assert problem.target is not None
    assert problem.better(problem.target, scored.score)
    assert len(problem.about) > 80
    assert len(scored.words) > 40


@pytest.mark.parametrize(
    ("candidate", "said"),
    [
        ("def solve():\n    return float('nan')", "must be a list"),
        ("def solve():\n    return (x for x in range(26))", "no plain data"),
        ("def solve():\n    raise ValueError('oh')", "oh"),
        ("def other(): pass", "no function 'solve'"),
        (
            "class F(float):\n    __le__ = __abs__ = lambda *a: True\ndef solve():\n    return [[F('nan')] * 3] * 26",
            "must be",
        ),
    ],
)
def test_what_a_program_returns_instead_of_a_solution_is_refused(candidate, said):
    scored = load_problem("circle-packing").evaluate(candidate)
    assert scored.score is None
    assert said in scored.words or "nan" in scored.words


# Bins ------------------------------------------------------------------------------------------------------------------


def table(rule):
    return [[rule(item, room) for room in range(item, 101)] for item in range(1, 101)]


def slow_pack(items, rule):
    """Bins one by one, as in the statement of the problem."""
    bins = []
    for item in items:
        fitting = [room for room in {*bins, 100} if room >= item]
        room = max(fitting, key=lambda room: (rule(item, room), -room))
        if room < 100:
            bins.remove(room)
        bins.append(room - item)
    return len(bins)


@pytest.mark.parametrize(
    "rule", [lambda item, room: -room, lambda item, room: (room - item) % 7, lambda item, room: 0.5]
)
def test_bins_are_counted_as_by_packing_one_by_one(rule):
    items = bin_packing.draw("a test", 0)[:400]
    used = int(bin_packing.pack(items, bin_packing._ranks(table(rule))).sum())
    assert used == slow_pack(items.tolist(), rule)


def test_items_are_the_same_every_time_and_others_are_held_out():
    first, again = (bin_packing.draw("search", 0) for _ in range(2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, bin_packing.draw("held out", 0))
    assert first.min() >= 1
    assert first.max() <= 100
    assert abs(first.mean() - 45 * 0.893) < 0.5  # the mean of the distribution


def test_a_priority_that_is_no_number_is_refused_with_its_place():
    rows = table(lambda item, room: -room)
    rows[4][2] = float("nan")
    with pytest.raises(Failed, match=r"priority\(5, 7\) is nan"):
        bin_packing.score(rows, "search")
    with pytest.raises(Failed, match="row of item 100 must have 1 elements; it has 0"):
        bin_packing.score([*table(lambda item, room: -room)[:-1], []], "search")


# A C function ----------------------------------------------------------------------------------------------------------

HEAD = "int lcs(const unsigned char *a, int n, const unsigned char *b, int m)"
compiles = pytest.mark.skipif(
    shutil.which("cc") is None or "namespaces" not in protections().layers, reason="no C compiler, or no namespaces"
)


@compiles
def test_c_is_compiled_in_the_sandbox():
    problem = load_problem("cpu-kernel")
    assert problem.processes
    assert "does not compile" in problem.evaluate(f"{HEAD} {{ return missing; }}").words


@compiles
@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("return -1;", "3 of 3 answers are wrong"),
        ("return *(volatile int *)0;", "crashed"),
        ("exit(0);", "ended its process"),
    ],
)
def test_c_that_is_wrong_or_ends_is_refused(monkeypatch, body, said):
    monkeypatch.setattr(cpu_kernel, "PAIRS", 3)
    with pytest.raises(Failed, match=said):
        cpu_kernel.evaluate(f"#include <stdlib.h>\n{HEAD} {{ {body} }}")


@compiles
def test_c_that_is_right_is_scored(monkeypatch):
    monkeypatch.setattr(cpu_kernel, "PAIRS", 3)
    monkeypatch.setattr(cpu_kernel, "ROUNDS", 1)
    _, words = cpu_kernel.evaluate(cpu_kernel.seed)
    assert words.startswith("All answers are right.")


def test_a_machine_without_a_compiler_gets_one_clear_error(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(Failed, match="no C compiler 'cc' on this machine; install one"):
        cpu_kernel.evaluate(cpu_kernel.seed)
