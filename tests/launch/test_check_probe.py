"""`fastslow check --probe`: what the first steps say of the whole run."""

from __future__ import annotations

import pytest
from fake_engine import Numbered
from fake_runs import recipe_of

from fastslow.engine.kind import Finding
from fastslow.launch import probe as module
from fastslow.launch.probe import Rate, _short, multiplied, probe
from fastslow.launch.schedule import KINDS, Span, count_rollouts, count_steps
from fastslow.recipe import build_recipe
from fastslow.runs.ledger import sum_rows
from fastslow.tasks.registry import build_task

COUNTED = {**dict.fromkeys(KINDS, Span(0, 0)), "slow": Span(100, 100), "search": Span(0, 50), "evaluation": Span(8, 8)}


def entry(rollouts: int, seconds: float, tokens: int) -> dict[str, float]:
    return {"rollouts": rollouts, "calls": rollouts, "seconds": seconds, "completion_tokens": tokens}


ROWS = [
    {"step": 0, "cycle": 0, "spent": {"evaluation": entry(4, 2.0, 40)}},
    {
        "step": 1,
        "cycle": 0,
        "spent": {"slow": entry(10, 90.0, 100), "fast-score": entry(5, 5.0, 50), "reflection": {"seconds": 5.0}},
    },
    {"step": 2, "cycle": 0, "spent": {"slow": entry(10, 1.0, 200), "evaluation": entry(4, 4.0, 40)}},
]
METRICS = [{"phases": {"update": 7.0, "sampling": 90.0}}, {"phases": {"update": 2.0, "sync": 1.0}}]


def test_each_kind_of_rollout_has_its_own_rate() -> None:
    found = multiplied(COUNTED, Span(10, 10), ROWS, METRICS, 0, "process")
    # The first step is slower: where there is another, its rollouts do not count, and its update counts once.
    assert found.rates == {"slow": Rate(0.1, 20), "search": Rate(2.0, 10), "evaluation": Rate(1.0, 10)}
    assert (found.update, found.first) == (3.0, 4.0)
    assert found.seconds == (pytest.approx(10 + 8 + 30 + 4), pytest.approx(10 + 100 + 8 + 30 + 4))
    assert found.tokens == (2080, 2580)
    said = {each.what: each.found for each in found.findings()}
    assert said["time"] == "0:00:52 to 0:02:32, loading not counted"
    assert said["tokens"].startswith("2,080 to 2,580")


def test_what_the_probe_never_played_costs_as_much_as_its_other_rollouts() -> None:
    helped = {**COUNTED, "rescue": Span(10, 10)}
    before, after = (multiplied(each, Span(0, 0), ROWS, METRICS, 0, "process") for each in (COUNTED, helped))
    assert after.seconds[0] - before.seconds[0] == pytest.approx(1.0)
    assert after.tokens[0] - before.tokens[0] == 200


def test_the_short_run_is_short() -> None:
    recipe = recipe_of("fst", slow={"steps": 500}, fast={"budget": 960, "anchors": 6}, evaluation={"problems": 10**6})
    short = _short(recipe)
    assert (short.slow.steps, short.fast.budget) == (4, 2 * (2 * short.fast.minibatch + 6))
    assert short.evaluation.problems * short.evaluation.k <= recipe.sampling.batch
    assert short.rollouts is None
    assert short.output.report_to == []


def test_steps_end_where_a_rollout_budget_does() -> None:
    task = Numbered(100)
    assert count_steps(recipe_of("rl", slow={"steps": 7}), task) == Span(7, 7)
    bounded = recipe_of("fst", rollouts=70, slow={"steps": 400})
    steps = count_steps(bounded, task)
    played = count_rollouts(bounded, task)["slow"]
    each = bounded.slow.problems * bounded.slow.group
    assert steps == Span(played.least // each, played.most // each)


def test_a_real_probe_plays_the_recipe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STEPS", 2)
    recipe = build_recipe(
        {
            "model": "nano",
            "task": "rulebook",
            "method": "rl",
            "slow": {"steps": 30, "problems": 1, "group": 2},
            "sampling": {"max_tokens": 2},
            "evaluation": {"problems": 1, "k": 1, "every": 10},
        }
    )
    heard: list[str] = []
    found = probe(recipe, build_task(recipe), heard.append)
    assert heard[0] == "loading the model"
    assert heard[-1].startswith("evaluating ")
    assert "step 2 of 2 is done" in heard
    assert (
        found.spent.rollouts == sum_rows([]).total().rollouts + 2 * 2 + 2 + 1
    )  # two steps, two evaluations, preflight
    assert set(found.rates) == {"slow", "evaluation"}
    assert found.seconds[0] == found.seconds[1] > found.spent.seconds
    assert found.memory > 0
    assert all(isinstance(each, Finding) for each in found.findings())
