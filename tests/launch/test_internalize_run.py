"""Whole internalized runs of the task in examples/own-task: what is learnt, what is written, what is left alone."""

from __future__ import annotations

import hashlib
import json
import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from helpers import EXAMPLE

from fastslow.base.errors import RunError
from fastslow.engine.local.engine import LocalEngine
from fastslow.launch import internalize, start
from fastslow.launch.assembly import open_snapshot
from fastslow.launch.evaluate import evaluate_run
from fastslow.launch.export import export_run
from fastslow.launch.internalize import Settings, internalize_run
from fastslow.launch.results import Run
from fastslow.recipe import load_recipe
from fastslow.runs.folder import RunFolder

SHORT = Settings(epochs=2, batch=8)


def fingerprint(folder: Path) -> dict[str, str]:
    found = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in found}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    recipe = load_recipe(EXAMPLE, ["slow.steps=2", "evaluation.every=0", "evaluation.problems=4"])
    return start.train(recipe, tmp_path_factory.mktemp("runs") / "fst")


@pytest.fixture(scope="module")
def done(run: Path) -> tuple[Path, dict[str, Any], dict[str, str]]:
    """An internalized run, its numbers, and the run's files before."""
    before = fingerprint(run)
    also = {"name": "rulebook", "book": "harbour"}
    return run, internalize_run(run, None, replace(SHORT, sample=8, steps=1), also=also), before


def test_the_answers_get_likelier_under_the_seed_text_and_the_run_stays_as_it_was(
    done: tuple[Path, dict[str, Any], dict[str, str]],
) -> None:
    run, numbers, before = done
    first, *later = [row["held_back_loss"] for row in numbers["epochs"]]
    assert min(later) < first
    assert numbers["rollouts"] >= numbers["problems"] > 1
    assert 0 < numbers["sampled"] <= 8  # those that were solved
    assert len(numbers["distillation"]) == 1
    ledger = RunFolder.open(run / "internalized").read_json("ledger.json")
    assert ledger is not None
    assert ledger["slow"]["rollouts"] == 8 + 8
    assert list(numbers["before"]) == list(numbers["after"]) == ["seed", "best context", "other task"]
    assert numbers["after"]["seed"]["kl"] > 0
    left = fingerprint(run)
    assert {name: left[name] for name in before} == before
    assert {Path(name).parts[0] for name in left.keys() - before.keys()} == {"internalized"}
    assert json.loads((run / "internalized" / "internalized.json").read_text())["kept"] == numbers["kept"]


def test_the_result_is_a_run_whose_only_text_is_the_seed_text(
    done: tuple[Path, dict[str, Any], dict[str, str]], tmp_path: Path
) -> None:
    run, numbers, _ = done
    inside = run / "internalized"
    snapshot = open_snapshot(inside)
    assert [member.context.texts for member in snapshot.pool.members] == [{"system": "Answer the question."}]
    assert snapshot.step == snapshot.run.recipe.slow.steps > open_snapshot(run).step
    scores = evaluate_run(inside, k=snapshot.run.recipe.evaluation.k)
    assert {label: score.mean for label, score in scores.items()} == {"seed": numbers["after"]["seed"]["mean"]}
    folder = export_run(run, tmp_path / "model", internalized=True)
    card = (folder / "README.md").read_text()
    assert "fastslow internalize" in card
    assert json.loads((folder / "contexts.json").read_text())["best"] == snapshot.pool.best.context.id
    with pytest.raises(RunError, match=r"exists; remove it, or choose another folder with --out"):
        internalize_run(run, None, SHORT)


def test_an_interrupted_command_starts_over(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out"
    left = tmp_path / f"{internalize.UNFINISHED}out"
    shutil.copytree(run, left)  # a kill leaves a folder behind
    before = fingerprint(run)

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(internalize, "build_imitation", interrupted)
        with pytest.raises(KeyboardInterrupt):
            internalize_run(run, out, SHORT)
    assert not left.exists()
    assert not out.exists()
    with pytest.raises(RunError, match="internalize has no setting epoch; expected some of epochs, batch"):
        Run(run).internalize(out, epoch=2)
    numbers = Run(run).internalize(out, epochs=2, batch=8)
    assert RunFolder.open(out).read_json("run.json")["status"] == "finished"  # type: ignore[index]
    assert len(numbers["epochs"]) == 3
    assert fingerprint(run) == before


def test_graded_rewards_are_learnt_from_too(run: Path, tmp_path: Path) -> None:
    """A grader that never pays more than 0.8: the best of each problem is taken, and counts by its score."""
    graded = shutil.copytree(run, tmp_path / "run", ignore=shutil.ignore_patterns("internalized"))
    for path in (graded / "rollouts").glob("*.parquet"):
        table = pq.read_table(path)
        place = table.schema.get_field_index("score")
        pq.write_table(table.set_column(place, "score", pc.multiply(table["score"], 0.8)), path)
    with pytest.raises(RunError, match=r"of at least 1 \(the highest is 0.8\).*leave out --score"):
        internalize_run(graded, None, Settings(score=1.0), trust=True)
    numbers = internalize_run(graded, None, Settings(epochs=1, batch=8), trust=True)
    assert numbers["problems"] > 1
    assert numbers["epochs"][-1]["held_back_loss"] < numbers["epochs"][0]["held_back_loss"]


def test_a_run_that_was_not_internalized_cannot_be_exported_so(run: Path, tmp_path: Path) -> None:
    plain = shutil.copytree(run, tmp_path / "run", ignore=shutil.ignore_patterns("internalized"))
    with pytest.raises(RunError, match=r"has no internalized weights; make them with `fastslow internalize"):
        export_run(plain, tmp_path / "model", internalized=True)


def test_a_run_without_text_or_rollouts_is_refused(run: Path, tmp_path: Path) -> None:
    plain = shutil.copytree(run, tmp_path / "run", ignore=shutil.ignore_patterns("internalized"))
    with pytest.raises(RunError, match=r"\(the highest is 1\).* --score"):
        internalize_run(plain, None, Settings(score=1.5), trust=True)
    seed = json.loads((plain / "contexts" / "seed.json").read_text())
    best = open_snapshot(plain).pool.best.context.id
    (plain / "contexts" / "seed.json").write_text(json.dumps({**seed, "id": best}))
    with pytest.raises(RunError, match=r"its seed text: it has no text to internalize"):
        internalize_run(plain)
    recipe = (plain / "recipe.yaml").read_text().replace("method: fst", "method: rl")
    (plain / "recipe.yaml").write_text(recipe)
    with pytest.raises(RunError, match=r"\(method=rl\): it has no text to internalize"):
        internalize_run(plain)
    assert not (plain / "internalized").exists()


@pytest.mark.parametrize(
    "measured", [{"loss": math.nan}, {"loss": 1.0, "grad_norm": math.inf}, {"largest_weight": math.nan}]
)
def test_an_update_that_is_not_finite_ends_it_and_nothing_is_kept(
    measured: dict[str, float], run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LocalEngine, "update", lambda self, update: {"loss": 0.1, "grad_norm": 0.1, **measured})
    with pytest.raises(RunError, match=r"diverged in step 3: the .* is (nan|inf); lower --learning-rate"):
        internalize_run(run, tmp_path / "out", SHORT)
    assert list(tmp_path.iterdir()) == []
