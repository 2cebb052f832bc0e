"""`fastslow.discover`: the recipe of a search, and searches with the embedded model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import fastslow
from fastslow.base.errors import FastSlowError, RecipeError
from fastslow.commands.app import main
from fastslow.discover.problem import load_problem
from fastslow.launch.discovery import search_recipe
from fastslow.runs.folder import RunFolder
from fastslow.runs.view import View


@pytest.mark.parametrize(
    ("learn", "method", "advantage", "archive"),
    [
        (None, "fst", "entropic", True),
        ("archive,weights", "rl", "entropic", True),
        ("archive,text", "gepa", "none", True),
        ("archive", "rl", "none", True),
        ("text", "gepa", "none", False),
        ("weights", "rl", "entropic", False),
        ("none", "rl", "none", False),
    ],
)
def test_each_learner_can_be_switched_off(learn: str | None, method: str, advantage: str, archive: bool) -> None:
    problem = load_problem("differences")
    recipe = search_recipe(problem, "differences", learn, {"tokens": 500}, {"model": "nano", "slow.group": 4})
    assert (recipe.method, recipe.slow.advantage, recipe.tasks[0].options["archive"]) == (method, advantage, archive)
    assert recipe.tasks[0].options["tokens"] == 500
    assert recipe.slow.group == 4
    assert recipe.slow.patience is None
    assert recipe.evaluation.every == 0


def test_mistakes_are_said() -> None:
    with pytest.raises(RecipeError, match="names 'weight'; expected some of archive, text, weights"):
        fastslow.discover("differences", model="nano", learn="text,weight")
    with pytest.raises(RecipeError, match="needs a model"):
        fastslow.discover("differences")
    with pytest.raises(RecipeError, match="either a problem or"):
        fastslow.discover()
    with pytest.raises(FastSlowError, match="there is no problem"):
        fastslow.discover("no-such-problem", model="nano")
    ahead: Any = {"sampling.ahead": 1}
    with pytest.raises(RecipeError, match=r"sampling\.ahead=1 cannot be combined with task discover"):
        fastslow.discover("differences", model="nano", **ahead)


SMALL: dict[str, Any] = {
    "model": {"name": "nano", "device": "cpu"},
    "slow": {"problems": 1, "group": 4, "learning_rate": 1e-4, "microbatch": 4},
    "fast": {"anchors": 2, "budget": 4, "minibatch": 1},
    "sampling": {"max_tokens": 16},
}


def test_the_embedded_model_finds_something_and_a_search_is_extended(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = fastslow.discover("differences", folder=tmp_path / "run", evaluations=12, view=View(), **SMALL)
    assert found.score is not None
    assert found.score > -5
    assert found.evaluations >= 12
    assert found.file == tmp_path / "run" / "best.txt"
    rows = RunFolder.open(tmp_path / "run").rows("metrics")
    assert rows[-1]["best_score"] == found.score
    assert rows[-1]["trained_rows"] > 0
    with pytest.raises(SystemExit) as ended:
        main(["discover", "--resume", str(tmp_path / "run"), "--evaluations", str(found.evaluations + 1), "--json"])
    assert not ended.value.code
    further = json.loads(capsys.readouterr().out)
    assert further["evaluations"] > found.evaluations
    assert further["score"] >= found.score


def test_another_model_proposes_beside_the_policy(tmp_path: Path) -> None:
    rescue = {"name": "teachers", "models": [{"kind": "local", "model": "nano"}]}
    slow = {**SMALL["slow"], "rescue": rescue, "steps": 1}
    settings = {**SMALL, "slow": slow}
    fastslow.discover(
        "differences", folder=tmp_path / "run", learn="archive", evaluations=1000, view=View(), **settings
    )
    rows = RunFolder.open(tmp_path / "run").rows("candidates")
    assert {row["by"] for row in rows if "by" in row} == {"seed", "policy", "nano"}
    assert RunFolder.open(tmp_path / "run").rows("metrics")[0]["trained_rows"] == 0
