from __future__ import annotations

import csv
import io
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.testclient import TestClient

from fastslow.runs.board.index import Filter, RolloutIndex
from fastslow.runs.board.rollout import read_rollout, shaded
from fastslow.runs.board.search import TextIndex
from fastslow.runs.board.server import make_app
from fastslow.runs.board.views import Views
from fastslow.runs.folder import RunFolder
from fastslow.runs.reading import Place


@pytest.fixture(scope="module")
def rows(finished: Path) -> list[dict[str, Any]]:
    """All rollouts of the finished run, read in the plainest way, oldest first."""
    found = []
    for path in sorted((finished / "rollouts").glob("*.parquet")):
        kind, number = path.stem.split("-")
        for place, row in enumerate(pq.read_table(path).to_pylist()):
            step = row["policy_step"] if kind == "cycle" else int(number)
            found.append({**row, "file": path.stem, "row": place, "step": step})
    return sorted(found, key=lambda row: row["step"])


@pytest.fixture(scope="module")
def index(finished: Path) -> RolloutIndex:
    index = RolloutIndex(Place("run", finished, finished))
    index.refresh(60)
    return index


def said(row: dict[str, Any]) -> str:
    """All that stands in a rollout, in the plainest form."""
    texts = [*row["questions"], *row["answers"], row["feedback"], row["error"]]
    return "\n".join(" ".join((text or "").casefold().split()) for text in texts)


def keys(found: list[dict[str, Any]]) -> list[tuple[str, int]]:
    return [(row["file"], row["row"]) for row in found]


@pytest.mark.parametrize(
    ("chosen", "passes"),
    [
        (Filter(), lambda row: True),
        (Filter(first_step=2, last_step=3), lambda row: 2 <= row["step"] <= 3),
        (Filter(problem="train-1"), lambda row: "train-1" in row["example"]),
        (Filter(low=1.0), lambda row: row["score"] == 1),
        (Filter(high=0.0, purpose="fast-score"), lambda row: row["score"] == 0 and row.get("purpose") == "fast-score"),
        (Filter(purpose="slow"), lambda row: "purpose" not in row),
        (Filter(context="nobody"), lambda row: False),
        (Filter(fault="truncated"), lambda row: "truncated" in row["faults"]),
        (Filter(words="SAY  yes"), lambda row: "say yes" in said(row)),
        (Filter(words="a question of nobody"), lambda row: False),
        (Filter(words=" "), lambda row: True),
        (Filter(words="no", low=0.0, high=0.0), lambda row: "no" in said(row) and row["score"] == 0),
    ],
)
def test_a_filter_finds_what_a_plain_search_finds(
    index: RolloutIndex, rows: list[dict[str, Any]], chosen: Filter, passes: Any
) -> None:
    index.page(chosen, "newest", True, 0, 1)  # the first search has texts read, here all of them before the next
    index.refresh(60)
    page = index.page(chosen, "newest", True, 0, 10_000)
    assert page["indexed"] == page["files"]
    assert sorted(keys(page["rows"])) == sorted(keys([row for row in rows if passes(row)]))
    assert (page["total"], page["all"]) == (len(page["rows"]), len(rows))
    steps = [row["step"] for row in page["rows"]]
    assert steps == sorted(steps, reverse=True)


def test_pages_and_orders_make_up_the_whole(index: RolloutIndex, rows: list[dict[str, Any]]) -> None:
    for sort in ("newest", "score", "tokens", "advantage"):
        for descending in (True, False):
            whole = index.page(Filter(), sort, descending, 0, 10_000)["rows"]
            parts = [index.page(Filter(), sort, descending, start, 50)["rows"] for start in range(0, len(rows), 50)]
            assert [row for part in parts for row in part] == whole
    scores = [row["score"] for row in index.page(Filter(), "score", False, 0, 10_000)["rows"]]
    assert scores == sorted(scores)


def test_a_row_is_shown_as_it_was_written(index: RolloutIndex, rows: list[dict[str, Any]], finished: Path) -> None:
    written = {(row["file"], row["row"]): row for row in rows}
    views = next(iter(Views([finished]).find().values()))
    for shown in index.page(Filter(), "newest", True, 0, 40)["rows"]:
        row = written[shown["file"], shown["row"]]
        assert (shown["example"], shown["context"], shown["score"]) == (row["example"], row["context"], row["score"])
        assert shown["preview"] == row["answers"][-1]
        full = json.loads(views.rollout(shown["file"], shown["row"]))
        assert [turn["answer"] for turn in full["turns"]] == row["answers"]
        assert [turn["question"] for turn in full["turns"]] == row["questions"]
        assert (full["feedback"], full["faults"]) == (row["feedback"], row["faults"])
        assert "".join(text for text, _ in full["turns"][0]["tokens"]) == row["answers"][0]


def test_one_problem_under_every_context(finished: Path, rows: list[dict[str, Any]]) -> None:
    example = next(row["example"] for row in rows if row["file"] == "step-000005")
    views = next(iter(Views([finished]).find().values()))
    group = json.loads(views.group("step-000005", example))
    expected = [row for row in rows if row["file"] == "step-000005" and row["example"] == example]
    assert [row["row"] for row in group["rows"]] == [row["row"] for row in expected]
    assert set(group["texts"]) == {row["context"] for row in expected}
    advantages = [row["advantage"] for row in group["rows"]]
    assert sum(advantages) == pytest.approx(0, abs=1e-4)


@pytest.mark.parametrize(
    ("query", "passes"),
    [
        ({}, lambda row: True),
        ({"from": 2, "to": 3, "purpose": "slow"}, lambda row: 2 <= row["step"] <= 3 and "purpose" not in row),
        ({"words": "say YES", "high": 0}, lambda row: "say yes" in said(row) and row["score"] == 0),
        ({"context": "nobody"}, lambda row: False),
    ],
)
def test_what_passes_the_filter_can_be_downloaded(
    finished: Path, rows: list[dict[str, Any]], query: dict[str, Any], passes: Any
) -> None:
    client = TestClient(make_app(Views([finished]), hosts=["*"]))
    answer = client.get("/api/rollouts.jsonl", params={"run": "fst", **query})
    assert answer.headers["content-type"] == "application/x-ndjson"
    assert answer.headers["content-disposition"] == "attachment"
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    found = [json.loads(line) for line in answer.text.splitlines()]
    written = {(row["file"], row["row"]): row for row in rows if passes(row)}
    assert sorted(keys(found)) == sorted(written)
    for line in found:
        row = written[line["file"], line["row"]]
        assert line["run"] == "fst"
        for name in ("example", "context", "score", "feedback", "faults", "error"):
            assert line[name] == row[name]
        assert [turn["question"] for turn in line["turns"]] == row["questions"]
        assert [turn["answer"] for turn in line["turns"]] == row["answers"]
    newest = [
        max(row["step"] for row in rows if row["file"] == file) for file in dict.fromkeys(f for f, _ in keys(found))
    ]
    assert newest == sorted(newest, reverse=True)


def test_a_table_has_the_first_question_and_the_last_answer_and_no_formulas(finished: Path, tmp_path: Path) -> None:
    shutil.copytree(finished, tmp_path / "run")
    path = tmp_path / "run/rollouts/step-000001.parquet"
    table = pq.read_table(path).slice(0, 3)
    texts = [("=1+1", '"a",\nb'), ("-1", "x"), ("plain", "")]
    for name, values in (
        ("questions", [[first, "then"] for first, _ in texts]),
        ("answers", [["before", last] for _, last in texts]),
        ("feedback", ["@cmd", "Right.", "\tno"]),
    ):
        column = pa.array(values, table.schema.field(name).type)
        table = table.set_column(table.column_names.index(name), name, column)
    pq.write_table(table, path)
    client = TestClient(make_app(Views([tmp_path]), hosts=["*"]))
    answer = client.get("/api/rollouts.csv?run=run&from=1&to=1")
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    rows = [row for row in csv.DictReader(io.StringIO(answer.text, newline="")) if row["file"] == "step-000001"]
    assert [(row["question"], row["answer"]) for row in rows] == [("'=1+1", '"a",\nb'), ("'-1", "x"), ("plain", "")]
    assert [row["feedback"] for row in rows] == ["'@cmd", "Right.", "'\tno"]
    assert [float(row["score"]) for row in rows] == table["score"].to_pylist()


def test_answers_on_validation_problems_are_kept_and_shown(finished: Path) -> None:
    index = RolloutIndex(Place("run", finished, finished))
    index.refresh(60)
    page = index.page(Filter(purpose="evaluation", first_step=4, last_step=4), "newest", True, 0, 50)
    result = next(row for row in RunFolder.open(finished).rows("evals") if row["step"] == 4)["results"]
    assert page["total"] == sum(each["k"] * each["problems"] for each in result.values())
    assert {row["file"] for row in page["rows"]} == {"evaluation-000004"}
    shown = read_rollout(index.place, "rollouts/evaluation-000004.parquet", 0)
    assert shown is not None
    assert shown["turns"][0]["answer"]


def test_a_download_waits_until_all_files_are_read(
    finished: Path, rows: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def one(index: RolloutIndex) -> None:
        for name in index._waiting()[-1:]:
            index._index(name)

    monkeypatch.setattr(RolloutIndex, "refresh", one)
    found = RolloutIndex(Place("run", finished, finished)).matching(Filter())
    assert sum(map(len, found.values())) == len(rows)


def test_a_download_says_what_is_wrong_and_skips_damaged_files(finished: Path, tmp_path: Path) -> None:
    shutil.copytree(finished, tmp_path / "run")
    client = TestClient(make_app(Views([tmp_path]), hosts=["*"]))
    assert client.get("/api/rollouts.jsonl?run=nobody").status_code == 404
    assert client.get("/api/rollouts.jsonl?run=run&from=two").status_code == 400
    before = {json.loads(line)["file"] for line in client.get("/api/rollouts.jsonl?run=run").text.splitlines()}
    (tmp_path / "run/rollouts/step-000003.parquet").write_bytes(b"PAR1 no")
    after = {json.loads(line)["file"] for line in client.get("/api/rollouts.jsonl?run=run").text.splitlines()}
    assert before - after == {"step-000003"}


def test_new_files_and_files_of_earlier_versions(tmp_path: Path) -> None:
    folder = tmp_path / "rollouts"
    folder.mkdir()
    old = {"example": ["a", "b"], "context": ["c", "c"], "policy_step": [0, 0], "score": [0.0, 1.0]}
    old |= {"feedback": ["no", ""], "answers": [["x"], []], "prompt_tokens": [1, 1], "completion_tokens": [1, 2]}
    pq.write_table(pa.table(old), folder / "step-000001.parquet")
    (folder / "step-000002.parquet").write_bytes(b"")
    index = RolloutIndex(Place("run", tmp_path, tmp_path))
    page = index.page(Filter(), "newest", True, 0, 10)
    assert [(row["example"], row["advantage"], row["faults"]) for row in page["rows"]] == [
        ("b", None, ""),
        ("a", None, ""),
    ]
    assert list(index.place.notes) == ["rollouts/step-000002.parquet"]
    pq.write_table(pa.table({"other": [1]}), folder / "step-000003.parquet")
    pq.write_table(pa.table(old | {"error": ["KeyError", ""]}), folder / "step-000004.parquet")
    assert index.page(Filter(), "newest", True, 0, 10)["total"] == 4
    for step, error in ((1, ""), (4, "KeyError")):
        assert (read_rollout(index.place, f"rollouts/step-{step:06d}.parquet", 0) or {})["error"] == error
    (folder / "step-000004.parquet").unlink()  # as when a run is resumed from an earlier checkpoint
    assert index.page(Filter(), "newest", True, 0, 10)["total"] == 2


def test_the_steps_to_choose_from_are_the_first_and_the_last(tmp_path: Path) -> None:
    (tmp_path / "rollouts").mkdir()
    row = {"policy_step": [0], "score": [0.0], "feedback": [""], "answers": [["x"]], "prompt_tokens": [1]}
    for step, examples in ((2, ["a", "b"]), (5, ["c"])):
        columns = {name: values * len(examples) for name, values in row.items()}
        table = columns | {name: ["c"] * len(examples) for name in ("context",)} | {"example": examples}
        table |= {"completion_tokens": [1] * len(examples)}
        pq.write_table(pa.table(table), tmp_path / "rollouts" / f"step-{step:06d}.parquet")
    page = RolloutIndex(Place("run", tmp_path, tmp_path)).page(Filter(), "newest", True, 0, 10)
    assert page["facets"]["steps"] == [2, 5]
    assert [row["example"] for row in page["rows"]] == ["c", "b", "a"]


@given(st.lists(st.text(alphabet="ab \n<é☃", min_size=0, max_size=4)), st.booleans())
def test_shading_never_changes_the_answer(pieces: list[str], spoilt: bool) -> None:
    answer = "".join(pieces)
    decoded = [piece.strip() or "\ufffd" for piece in pieces] if spoilt else pieces
    found = shaded(answer, decoded, [-float(number) for number in range(len(pieces))])
    assert "".join(text for text, _ in found) == answer
    if not spoilt:
        assert [text for text, _ in found if text] == [piece for piece in pieces if piece]


def test_a_search_sees_new_files_and_only_them_again(finished: Path, tmp_path: Path) -> None:
    shutil.copytree(finished, tmp_path / "run")
    place = Place("run", tmp_path / "run", tmp_path / "run")
    searched = RolloutIndex(place)
    searched.page(Filter(words="yes"), "newest", True, 0, 10)
    searched.refresh(60)
    before = searched.page(Filter(words="zebra"), "newest", True, 0, 10)
    assert (before["total"], before["indexed"]) == (0, before["files"])
    newest = max((tmp_path / "run/rollouts").glob("step-*.parquet"))
    table = pq.read_table(newest)
    changed = table.set_column(table.column_names.index("feedback"), "feedback", pa.array(["Zebra!"] * table.num_rows))
    pq.write_table(changed, newest)
    searched.refresh(60)
    assert searched.page(Filter(words="zebra"), "newest", True, 0, 10)["total"] == table.num_rows


def test_rollouts_of_a_file_that_is_not_read_hold_no_words() -> None:
    index = TextIndex()
    index.add("read", [["yes", "no"]], 2)
    file, row = np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1])
    assert index.found("yes", ["read", "unread"], file, row).tolist() == [True, False, False, False]
    assert index.found("", ["read", "unread"], file, row).all(), "no words are in every text"
