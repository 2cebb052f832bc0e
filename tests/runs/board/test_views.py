"""What the views say of a run, compared with what the run itself booked and wrote."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from board_helpers import expecting, make_run
from helpers import ROOT

from fastslow.runs.board.curves import _task, curves, reason, summary, thinned, training_rollouts
from fastslow.runs.board.views import NotFound, RunViews, Views
from fastslow.runs.folder import RunFolder
from fastslow.runs.ledger import PURPOSES, sum_rows
from fastslow.runs.lineage import Lineage, read_drawn
from fastslow.runs.reading import Place


def views_of(folder: Path) -> RunViews:
    return next(iter(Views([folder]).find().values()))


def read(body: bytes) -> Any:
    return json.loads(body)


def test_a_summary_says_how_far_a_run_is_and_what_it_spent(finished: Path) -> None:
    run, found = RunFolder.open(finished), views_of(finished).summary()
    assert (found["status"], found["method"], found["step"], found["steps"]) == ("finished", "fst", 7, 7)
    rows = run.rows("metrics")
    assert found["rollouts"] == rows[-1]["rollouts_slow"] + rows[-1]["rollouts_fast"]
    assert found["spark"] == [pytest.approx(row["reward"], abs=1e-4) for row in rows]
    assert found["notes"] == {}


def test_a_curve_with_more_values_than_points_is_shown_by_means_of_equal_stretches() -> None:
    assert thinned([0.0, 1.0, 2.0, 3.0, 4.0, 5.0], 3) == [0.5, 2.5, 4.5]
    assert thinned([1.0, 2.0, 6.0], 2) == [1.5, 6.0]
    assert thinned([1 / 3, 1.0], 2) == [0.3333, 1.0]


def test_curves_and_spending_agree_with_the_ledger(finished: Path) -> None:
    run, views = RunFolder.open(finished), views_of(finished)
    shown, spending = read(views.curves()), read(views.spending())
    ledger, evals = sum_rows(run.rows("ledger")), run.rows("evals")
    assert shown["training"]["tokens"][-1] == ledger.training_tokens == evals[-1]["tokens"]
    assert shown["training"]["rollouts"][-1] == ledger.training_rollouts
    for purpose in PURPOSES:
        if purpose in spending["totals"]:
            assert spending["totals"][purpose]["rollouts"] == ledger[purpose].rollouts
            assert spending["amounts"]["rollouts"][purpose][-1] == ledger[purpose].rollouts
    assert sum(sum(cycle["rollouts"].values()) for cycle in spending["cycles"]) == ledger.total().rollouts
    assert [value for _, value in shown["cycles"]] == [0, 1, 2]
    for label, column in shown["evaluation"].items():
        assert column["mean"] == [pytest.approx(r["results"][label]["mean"]) for r in evals if label in r["results"]]


def test_each_reward_function_has_a_curve() -> None:
    rows = [{"step": 1, "parts": {"form": -1.5}}, {"step": 2, "parts": {"form": 0.5, "accuracy": 2}}, {"step": 3}]
    assert curves(rows, [], [])["training"]["parts"] == {"form": [-1.5, 0.5, None], "accuracy": [None, 2, None]}
    assert curves([{"step": 1}], [], [])["training"]["parts"] == {}


def test_a_loop_that_has_not_begun_has_spent_nothing() -> None:
    rows: list[dict[str, Any]] = [
        {},
        {"rollouts_slow": 3},
        {"rollouts_fast": 4},
        {"rollouts_slow": 3, "rollouts_fast": 4},
    ]
    assert [training_rollouts(row) for row in rows] == [0, 3, 4, 7]


def test_cycles_and_stages_are_marked_where_they_begin() -> None:
    rows = [{"step": n + 1, "cycle": n // 3, "stage": "a" if n < 4 else "b", "reward": 0.1} for n in range(7)]
    found = curves(rows, [], [])
    assert found["cycles"] == [[0, 0], [3, 1], [6, 2]]
    assert found["stages"] == [[0, "a"], [4, "b"]]


def test_the_text_view_has_every_edit_with_its_reason(finished: Path) -> None:
    views, cycles = views_of(finished), RunFolder.open(finished).cycles()
    text = read(views.text())
    nodes = {node["id"]: node for node in text["nodes"]}
    assert [node["id"] for node in text["nodes"] if node["best"]] == [cycles[-1]["best"]]
    assert {node["id"] for node in text["nodes"] if node["alive"]} == {each["id"] for each in cycles[-1]["population"]}
    edits = [(cycle, edit) for cycle in cycles for edit in cycle["edits"]]
    assert any(not edit["accepted"] for _, edit in edits)
    for cycle, edit in edits:
        assert nodes[edit["child"]]["parents"] == [edit["parent"]]
        detail = read(views.context(edit["child"]))
        (found,) = (each for each in detail["edits"] if each["cycle"] == cycle["cycle"])
        assert found["feedback"] == edit["feedback"]
        assert found["minibatch"] == edit["minibatch"]
        assert edit["child"] in [each.get("id") for each in read(views.context(edit["parent"]))["proposals"]]
    unplayed = [(cycle["cycle"], each) for cycle in cycles for each in cycle["rejected"] if each["parent"]]
    for number, each in unplayed:
        proposals = read(views.context(each["parent"]))["proposals"]
        assert (number, each["reason"]) in [(proposal["cycle"], proposal["reason"]) for proposal in proposals]


def test_of_several_edits_that_made_the_same_text_the_first_is_shown_unless_another_was_accepted(
    finished: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(finished, folder)
    path = folder / "contexts/cycle-0000.json"
    data = json.loads(path.read_text())
    child, edit = data["edits"][0]["child"], data["edits"][0]
    unknown = {**edit, "child": "nowhere"}
    for accepted, shown in (((False,), 0), ((False, False), 0), ((False, True), 1), ((True, False), 0)):
        edits = [{**edit, "accepted": each, "before": n} for n, each in enumerate(accepted)]
        path.write_text(json.dumps({**data, "edits": [unknown, *edits]}))
        lineage = Lineage(Place("run", folder, tmp_path))
        lineage.refresh()
        assert (lineage.nodes[child].edit or {})["before"] == shown
        assert "nowhere" not in lineage.nodes


def test_a_difference_leads_from_the_parent_to_the_child(finished: Path) -> None:
    views = views_of(finished)
    for node in read(views.text())["nodes"]:
        detail = read(views.context(node["id"]))
        for part in detail["difference"]:
            after = [line for kind, line in part["lines"] if kind != "gone"]
            assert after == detail["texts"][part["component"]].splitlines()
            if detail["parents"]:
                parent = read(views.context(detail["parents"][0]))["texts"][part["component"]]
                assert [line for kind, line in part["lines"] if kind != "new"] == parent.splitlines()
        assert node["added"] == sum(
            kind == "new" and bool(detail["parents"]) for p in detail["difference"] for kind, _ in p["lines"]
        )


def test_any_two_contexts_can_be_compared_across_runs_too(finished: Path, tmp_path: Path) -> None:
    other = tmp_path / "runs/other"
    shutil.copytree(finished, other)
    seed = json.loads((other / "contexts/seed.json").read_text())
    seed["texts"] = {"system": "answer\nin Latin", "tools": "none"}
    (other / "contexts/seed.json").write_text(json.dumps(seed))
    views = Views([finished, tmp_path / "runs"])
    mine, theirs = views[finished.name], views["other"]
    nodes = read(mine.text())["nodes"]
    old, best = nodes[0]["id"], next(node["id"] for node in nodes if node["best"])
    for run, against in ((mine, old), (theirs, old), (mine, best)):
        before, after = run.node(against).texts, mine.node(best).texts
        parts = read(mine.difference(best, run, against))["difference"]
        assert {part["component"] for part in parts} == {*before, *after}
        for part in parts:
            name, lines = part["component"], part["lines"]
            assert [line for kind, line in lines if kind != "new"] == before.get(name, "").splitlines()
            assert [line for kind, line in lines if kind != "gone"] == after.get(name, "").splitlines()
    assert ["gone", "in Latin"] in read(mine.difference(best, theirs, old))["difference"][0]["lines"]


def test_a_learnt_line_names_its_edit_gain_and_cost(finished: Path) -> None:
    views, cycles = views_of(finished), RunFolder.open(finished).cycles()
    lines = {line["text"]: line for line in read(views.text())["rules"]["lines"]}
    assert lines["answer"]["seed"]
    assert not lines["say yes"]["seed"]
    (cycle,) = (cycle for cycle in cycles if cycle["cycle"] == lines["say yes"]["cycle"])
    (edit,) = (edit for edit in cycle["edits"] if edit["child"] == lines["say yes"]["child"])
    assert edit["accepted"]
    assert lines["say yes"]["anchors"][1] == pytest.approx(edit["score"], abs=1e-5)
    assert lines["say yes"]["spent"] == sum(
        cycle["spent"][purpose]["rollouts"] for purpose in ("rescore", "fast-minibatch", "fast-score")
    )


def test_a_line_that_was_judged_says_what_it_brings(finished: Path, tmp_path: Path) -> None:
    folder = tmp_path / "judged"
    shutil.copytree(finished, folder)
    for path in sorted(folder.glob("contexts/cycle-*.json")):
        cycle = json.loads(path.read_text())
        judged = [{"component": "system", "line": "say yes", "problems": 7, "effect": 0.3, "deviation": 0.1}, 5]
        path.write_text(json.dumps({**cycle, "lines": judged}))
    lines = {line["text"]: line for line in read(views_of(folder).text())["rules"]["lines"]}
    assert lines["say yes"]["effect"] == [0.3, 0.1, 7]
    assert lines["answer"]["effect"] is None


@pytest.mark.parametrize("older", [False, True])
def test_scores_that_are_expected_say_so_with_what_was_measured(finished: Path, tmp_path: Path, older: bool) -> None:
    folder = expecting(finished, tmp_path / "digest", older=older)
    views, plain = views_of(folder), views_of(finished)
    last = RunFolder.open(folder).cycles()[-1]
    drawn = {each["id"]: each.get("drawn") for each in last["population"]}
    assert all(each is None for each in drawn.values()) == older
    text, matrix = read(views.text()), read(views.matrix(None))
    nodes = {node["id"]: node for node in text["nodes"]}
    assert text["rules"]["expected"]
    assert matrix["expected"]
    for key, each in drawn.items():
        assert (nodes[key]["expected"], nodes[key]["drawn"]) == (True, each)
        row = read(views.context(key))["history"][-1]
        assert (row["expected"], row["drawn"], row["problems"]) == (True, each, len(last["anchors"]))
    assert {row["id"]: row["drawn"] for row in matrix["rows"] if row["kept"]} == drawn
    assert (text["cycles"][-1]["expected"], text["cycles"][-1]["drawn"]) == (True, drawn[last["best"]])
    assert all(edit["expected"] for key in nodes for edit in read(views.context(key))["edits"])
    assert not read(plain.text())["rules"]["expected"]
    assert not read(plain.matrix(None))["expected"]
    assert not any(node["expected"] or node["drawn"] for node in read(plain.text())["nodes"])


@pytest.mark.parametrize("drawn", [None, 3, [], [0.5], ["a", 3], [0.5, None], {"0": 1}])
def test_a_measurement_that_is_no_pair_of_numbers_is_left_out(drawn: Any) -> None:
    assert read_drawn({"drawn": drawn}) is None
    assert read_drawn({"drawn": [0.1234567, 36]}) == [0.123457, 36]


def test_the_matrix_has_the_scores_of_every_scored_context(finished: Path) -> None:
    views = views_of(finished)
    for cycle in RunFolder.open(finished).cycles():
        matrix = read(views.matrix(cycle["cycle"]))
        scored = {each["id"]: each["scores"] for each in [*cycle["population"], *cycle["dropped"]]}
        assert {
            row["id"]: dict(zip(matrix["problems"], row["scores"], strict=True)) for row in matrix["rows"]
        } == scored
        for place in range(len(matrix["problems"])):
            column = [row["scores"][place] for row in matrix["rows"]]
            dotted = [row["top"][place] for row in matrix["rows"]]
            assert dotted == [value == max(column) > min(column) for value in column]


def test_a_damaged_run_shows_what_is_whole_and_says_what_is_not(finished: Path, tmp_path: Path) -> None:
    folder = tmp_path / "damaged"
    shutil.copytree(finished, folder)
    whole = views_of(finished)
    (folder / "contexts/cycle-0001.json").write_text('{"cycle": 1')
    (folder / "recipe.yaml").write_text("method: [")
    (folder / "rollouts/step-000003.parquet").write_bytes(b"PAR1 no")
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('garbage\n{"step": "x", "reward": {}, "phases": 3, "cycle": []}\n{"step": 8')
    views = views_of(folder)
    views.index.refresh(60)
    for body in (views.run(), views.curves(), views.text(), views.spending(), views.matrix(None)):
        read(body)
    assert set(views.summary()["notes"]) == {
        *("metrics.jsonl", "recipe.yaml", "contexts/cycle-0001.json", "rollouts/step-000003.parquet"),
    }
    assert len(read(views.text())["cycles"]) == len(read(whole.text())["cycles"]) - 1


def test_a_resumed_cycle_replaces_what_was_read(finished: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(finished, folder)
    views = views_of(folder)
    views.text()
    last = max((folder / "contexts").glob("cycle-*.json"))
    last.unlink()
    assert [cycle["cycle"] for cycle in read(views.text())["cycles"]] == [0, 1]


def test_runs_of_earlier_versions_can_be_read() -> None:
    runs = Views([ROOT / "docs/results"]).find()
    assert len(runs) == len(list((ROOT / "docs/results").rglob("run.json")))
    for views in runs.values():
        assert views.summary()["notes"] == {}
        truncated = [row.get("truncated", row.get("cut_off")) for row in views.metrics.rows]
        assert read(views.curves())["training"]["truncated"] == pytest.approx(truncated, abs=1e-6)
        assert len(read(views.spending())["steps"]) >= len(truncated)
        read(views.text())
        assert read(views.matrix(None))["rows"] or not views.lineage.cycles


def test_rl_only_shows_its_seed_text(tmp_path: Path) -> None:
    views = views_of(make_run(tmp_path / "rl", "rl"))
    (node,) = read(views.text())["nodes"]
    assert read(views.context(node["id"]))["texts"] == {"system": "answer"}
    rollout = read(views.rollout("step-000001", 0))
    assert rollout["texts"] == {"system": "answer"}


def test_what_is_not_there_is_said(finished: Path) -> None:
    views = views_of(finished)
    for ask in (
        lambda: views.context("nobody"),
        lambda: views.rollout("../../step-000001", 0),
        lambda: views.rollout("step-000001", 999),
        lambda: views.rollout("step-000001", -1),
        lambda: Views([finished])["other"],
    ):
        with pytest.raises(NotFound):
            ask()


def test_the_board_imports_neither_torch_nor_pandas(finished: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from fastslow.runs.board.server import make_app;"
        "from fastslow.runs.board.views import Views; from fastslow.runs.board.index import Filter;"
        f"views = Views([Path({str(finished)!r})]); make_app(views); run = next(iter(views.find().values()));"
        "run.run(), run.curves(), run.text(), run.spending(), run.rollouts(Filter(), 'newest', True, 0, 9);"
        "run.rollout('step-000001', 0), run.group('step-000001', '');"
        "print([name for name in ('torch', 'transformers', 'pandas', 'gepa') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_without_steps_a_run_has_come_as_far_as_its_last_evaluation(tmp_path: Path) -> None:
    place, evals = Place("run", tmp_path, tmp_path), [{"step": 0}, {"step": 6, "rollouts_fast": 5}]
    assert summary(place, {}, [], evals, [])["step"] == 6
    assert summary(place, {}, [], evals, [])["rollouts"] == 5
    assert summary(place, {}, [{"step": 7}], evals, [])["step"] == 7
    assert summary(place, {}, [], [], [])["step"] == 0


def test_a_run_with_frozen_weights_that_was_interrupted_says_how_far_it_came(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "gepa", "gepa")
    run = RunFolder.open(folder)
    assert run.rows("metrics") == []
    (folder / "evals.jsonl").write_text(json.dumps(run.rows("evals")[0]) + "\n")  # none was due later
    run.set_status("interrupted", error="Stopped: SIGTERM")
    found, told = views_of(folder).summary(), read(views_of(folder).text())["told"]
    assert found["step"] == 7
    assert found["rollouts"] == sum_rows(run.rows("ledger")).training_rollouts > 0
    assert (found["status"], found["error"]) == ("interrupted", "SIGTERM")
    assert told == {"status": "interrupted", "error": "SIGTERM", "saved": 7, "notes": {}}
    run.set_status("running", checkpoint=2)  # between two checkpoints the ledger says it
    assert views_of(folder).summary()["step"] == run.rows("ledger")[-1]["step"]
    (folder / "ledger.jsonl").unlink()
    assert views_of(folder).summary()["step"] == 2
    run.set_status("finished", steps=7)
    assert views_of(folder).summary()["step"] == 7


def test_the_reason_of_an_interruption_is_said_without_its_name() -> None:
    for error, said in (("Stopped: SIGHUP", "SIGHUP"), ("KeyboardInterrupt:", "Ctrl+C"), ("", "Ctrl+C")):
        assert reason({"status": "interrupted", "error": error}) == said
    assert reason({"status": "failed", "error": "Stopped: x"}) == "Stopped: x"
    assert reason({"status": "running"}) == ""


@pytest.mark.parametrize(
    ("recipe", "said"),
    [
        ({"task": "star-graph"}, "star-graph"),
        ({"task": {"name": "rulebook", "book": "harbour"}}, "rulebook/harbour"),
        ({"task": ["gsm8k", {"name": "codeio"}]}, "gsm8k, codeio"),
        (
            {"stages": [{"task": {"name": "rulebook", "book": "library"}, "steps": 2}, "hover"]},
            "rulebook/library, hover",
        ),
        ({}, ""),
    ],
)
def test_the_list_names_the_tasks_of_a_recipe(recipe: dict[str, Any], said: str) -> None:
    assert _task(recipe) == said
