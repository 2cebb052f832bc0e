"""Run folders that are damaged in every way: each is a row that says so, no route fails or hangs, and other runs stay."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from board_helpers import HOSTILE
from starlette.testclient import TestClient

from fastslow.runs.board.page import write_snapshot
from fastslow.runs.board.server import make_app
from fastslow.runs.board.text import difference
from fastslow.runs.board.views import Views
from fastslow.runs.lineage import Node

TEXTS = ("run.json", "recipe.yaml", "metrics.jsonl", "evals.jsonl", "ledger.jsonl", "ledger.json")
LATEST = ("contexts/seed.json", "contexts/cycle-0001.json")
VALUES = {
    "nan": "NaN",
    "infinity": "-Infinity",
    "huge": "1" + "0" * 400,
    "endless": "7" * 5_000,
    "float": "1e999",
    "null": "null",
    "true": "true",
    "text": json.dumps(HOSTILE),
    "list": '[[1, "a", null]]',
    "object": '{"a": {"b": [1]}, "": null}',
    "deep": "[" * 900 + "]" * 900,
    "deeper": "[" * 100_000 + "]" * 100_000,
    "surrogate": '"\\ud800"',
}
BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12)
)
MERGES = "a0: &a0 {k0: 1}\n" + "".join(
    f"a{n}: &a{n} {{k{n}: 1, <<: [{', '.join([f'*a{n - 1}'] * 9)}]}}\n" for n in range(1, 12)
)
RECIPES = {
    "bomb": BOMB + "model: *a11\ntask: *a11\nmethod: *a11\n",
    "merges": MERGES + "model: *a11\n",
    "circle": "model: &m [*m]\ntask: &t {name: *t}\n",
    "no date": "seed: 2026-13-45\nmodel: x\n",
    "hex": f"seed: 0x{'f' * 6_000}\nslow: {{steps: 0x{'f' * 6_000}}}\n",
    "deep": "model: " + "[" * 50_000,
    "python": "model: !!python/object/apply:os.system ['true']\n",
    "odd keys": "? [1, 2]\n: 3\n1: 2\n",
    "odd tags": "model: !!int ''\ntask: !!timestamp x\n",
    "long": "model: " + "x" * 5_000_000,
    "wrong types": "model: [1, 2]\ntask: 5\nslow: no\nfast: [1]\nstages: {a: b}\nmethod: {a: 1}\nseed: []\nrollouts: x\n",
}


@pytest.fixture(scope="module")
def runs(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    shutil.copytree(finished, folder / "good")
    return folder


def asked(client: TestClient, run: str) -> Iterator[tuple[str, int, Any]]:
    """Every route about a run, with what the page would ask next."""
    name = quote(run)
    for view in ("run", "curves", "spending", "text", "matrix", "rollouts", "rollouts.jsonl"):
        answer = client.get(f"/api/{view}?run={name}")
        yield view, answer.status_code, answer
    nodes = client.get(f"/api/text?run={name}")
    for node in nodes.json()["nodes"][:4] if nodes.status_code == 200 else []:
        yield "context", (answer := client.get(f"/api/context?run={name}&id={quote(node['id'])}")).status_code, answer
        pair = f"difference?run={name}&id={quote(node['id'])}&against={quote(nodes.json()['nodes'][-1]['id'])}"
        yield pair, (answer := client.get(f"/api/{pair}")).status_code, answer
    for file in ("step-000001", "cycle-0001"):
        for query in (f"rollout?run={name}&file={file}&row=0", f"group?run={name}&file={file}&example=train-0"):
            yield query, (answer := client.get(f"/api/{query}")).status_code, answer


def check(
    runs: Path, changed: Callable[[Path], object], *, told: Sequence[str] = (), snapshot: bool = False
) -> dict[str, Any]:
    """Damage a copy of the run; every route answers in time, and the list has both runs. Returns the bad one's row."""
    bad = runs / "bad"
    shutil.copytree(runs / "good", bad, symlinks=True)
    try:
        changed(bad)
        started = time.process_time()
        with TestClient(make_app(Views([runs]), hosts=["*"])) as client:
            listed = client.get("/api/runs")
            assert listed.status_code == 200
            rows = {row["name"]: row for row in listed.json()["runs"]}
            assert rows["good"]["status"] == "finished"
            assert not rows["good"]["notes"]
            for query, status, answer in asked(client, "bad"):
                assert status in (200, 404), f"{query}: {answer.text[:500]}"
            rows = {row["name"]: row for row in client.get("/api/runs").json()["runs"]}
        assert time.process_time() - started < 20
        if snapshot:
            write_snapshot(Views([runs]), runs / "snapshot.html")
        found = rows.get("bad", {})
        assert set(told) <= found.get("notes", {}).keys()
        return found
    finally:
        (runs / "snapshot.html").unlink(missing_ok=True)
        os.chmod(bad, 0o755)
        shutil.rmtree(bad)


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_that_no_run_has_written(runs: Path, name: str) -> None:
    row = check(runs, lambda bad: (bad / "recipe.yaml").write_text(RECIPES[name]))
    if name not in ("hex", "wrong types"):
        assert "recipe.yaml" in row["notes"]


def replaced(path: Path, *values: str) -> None:
    """Put values, as JSON text, in the place of every value of the first line or object, one level down and two."""
    lines = path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]
    data = json.loads(lines[0])
    mark = "@@"
    flat = dict.fromkeys(data, mark)
    deep = {
        key: dict.fromkeys(inner, mark)
        if isinstance(inner, dict)
        else [dict.fromkeys(each, mark) if isinstance(each, dict) else mark for each in inner]
        if isinstance(inner, list)
        else inner
        for key, inner in data.items()
    }
    made = [json.dumps(each).replace(f'"{mark}"', value) for each in (flat, deep) for value in values]
    path.write_text("\n".join([*made, *lines, *made]) + "\n" if path.suffix == ".jsonl" else made[-1])


@pytest.mark.parametrize("file", ["run.json", "ledger.json", *LATEST])
def test_values_in_a_file_that_no_run_has_written(runs: Path, file: str) -> None:
    for value in VALUES.values():
        check(runs, lambda bad, value=value: replaced(bad / file, value))  # type: ignore[misc]


@pytest.mark.parametrize("file", ["metrics.jsonl", "evals.jsonl", "ledger.jsonl"])
def test_values_in_a_log_that_no_run_has_written(runs: Path, file: str) -> None:
    check(runs, lambda bad: replaced(bad / file, *VALUES.values()), told=[file], snapshot=True)


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 2 // 3])
    os.utime(path, (1e9, 1e9))


def binary(path: Path) -> None:
    path.write_bytes(bytes(range(256)) * 100)


def folder_instead(path: Path) -> None:
    path.unlink()
    path.mkdir()


def link_to_itself(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.name)


def link_out(path: Path) -> None:
    path.unlink()
    path.symlink_to("/etc/hostname")


def link_to_nothing(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def one_line(path: Path) -> None:
    path.write_bytes(b'{"a": "' + b"x" * 3_000_000 + b'"}\n')


def nulls(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b"1", b"\x00"))


def scalars(path: Path) -> None:
    path.write_text('5\n"x"\n[1, 2]\nnull\n')


WAYS = (
    *(
        emptied,
        truncated,
        binary,
        folder_instead,
        link_to_itself,
        link_out,
        link_to_nothing,
        pipe,
        one_line,
        nulls,
        scalars,
    ),
    Path.unlink,
)
PARQUET = ("rollouts/step-000001.parquet", "rollouts/cycle-0001.parquet")


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_files_that_are_damaged_or_are_none(runs: Path, way: Callable[[Path], None]) -> None:
    others = [file for file in (*TEXTS, *LATEST, *PARQUET) if file not in ("run.json", "recipe.yaml")]
    check(runs, lambda bad: way(bad / "run.json"))
    check(runs, lambda bad: way(bad / "recipe.yaml"))
    told = others if way in (truncated, binary, folder_instead, link_out) else ()
    check(runs, lambda bad: [way(bad / file) for file in others], told=told, snapshot=True)


@pytest.mark.parametrize("name", ["contexts", "rollouts"])
def test_a_file_in_the_place_of_a_folder(runs: Path, name: str) -> None:
    def change(bad: Path) -> None:
        shutil.rmtree(bad / name)
        (bad / name).write_text("no folder")

    check(runs, change)


@pytest.mark.parametrize(
    "column",
    [
        pa.array(["x"] * 3),
        pa.array([2**62] * 3),
        pa.array([float("nan"), float("inf"), 1e300]),
        pa.array([None] * 3),
        pa.array([[[["x"]]]] * 3),
        pa.array([[None, "a"], None, []], pa.list_(pa.string())),
        pa.array([b"\xff"] * 3),
        pa.array([{"a": 1}] * 3),
        pa.array([[[None, 2**40], None], None, [[]]], pa.list_(pa.list_(pa.int64()))),
    ],
    ids=["text", "huge", "nan", "null", "deep", "texts", "bytes", "object", "numbers"],
)
def test_rollouts_of_other_kinds(runs: Path, column: pa.Array) -> None:
    def change(bad: Path) -> None:
        for name in PARQUET:
            table = pq.read_table(bad / name).slice(0, 3)
            for field in table.schema.names:
                one = table.set_column(table.schema.names.index(field), field, column)
                pq.write_table(one, (bad / name).with_name(f"step-{900 + table.schema.names.index(field):06d}.parquet"))
            other = dict.fromkeys(table.schema.names, column)
            pq.write_table(pa.table(other, metadata={b"fastslow.tokens": b"[" * 100_000}), bad / name)

    check(runs, change)


def test_a_table_that_would_fill_the_memory_is_refused(runs: Path) -> None:
    def change(bad: Path) -> None:
        values = pa.DictionaryArray.from_arrays(pa.array([0] * 2_000_000, pa.int32()), pa.array(["x" * 1000]))
        pq.write_table(pa.table({"example": values}), bad / PARQUET[0])

    check(runs, change, told=PARQUET[:1])


def test_numbers_in_names_of_files_are_bounded(runs: Path) -> None:
    def change(bad: Path) -> None:
        for name in ("step-99999999999", f"step-{'9' * 200}"):
            shutil.copy(bad / PARQUET[0], bad / f"rollouts/{name}.parquet")
        shutil.copy(bad / LATEST[1], bad / f"contexts/cycle-{'9' * 200}.json")

    check(runs, change)


@pytest.mark.parametrize("number", ["9" * 400, "9" * 5000, "-1", "1e400", "nan", "٣"])
def test_numbers_of_a_request_are_bounded(runs: Path, number: str) -> None:
    client = TestClient(make_app(Views([runs]), hosts=["*"]))
    for name in ("from", "to", "low", "high", "offset", "limit"):
        assert client.get(f"/api/rollouts?run=good&{name}={number}").status_code in (200, 400)
    assert client.get(f"/api/rollout?run=good&file=step-000001&row={number}").status_code in (200, 400, 404)
    assert client.get(f"/api/matrix?run=good&cycle={number}").status_code in (200, 400)


def test_many_proposals_lines_and_problems_take_little_time(runs: Path) -> None:
    def change(bad: Path) -> None:
        path = bad / LATEST[1]
        data = json.loads(path.read_text())
        text = "\n".join(f"line {number}" for number in range(20_000))
        data["contexts"] = [{"id": f"c{n}", "texts": {"system": text}, "parents": ["c0"], "born": 1} for n in range(4)]
        edit = {"parent": "c0", "accepted": True, "before": 0, "after": 1}
        data["edits"] = [{"child": "c1", **edit} for _ in range(5_000)]
        scores = {f"p{number}": 0.5 for number in range(20_000)}
        data["population"] = [{"id": f"c{n}", "score": 0.5, "scores": scores} for n in range(4)]
        path.write_text(json.dumps(data))

    check(runs, change)


def test_a_comparison_of_texts_is_bounded_and_says_what_changed() -> None:
    long = [f"{number % 7} {number % 3}" for number in range(3_000)]
    before, after = Node("a", {"system": "\n".join([*long, "old", *long])}), "\n".join([*long, "new", *long])
    started = time.process_time()
    lines = difference(before, {"system": after})[0]["lines"]
    assert [line for line in lines if line[0] != "same"] == [("gone", "old"), ("new", "new")]
    assert len(lines) == 6_002
    difference(before, {"system": "\n".join(reversed(long))})
    assert time.process_time() - started < 2
