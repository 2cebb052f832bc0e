from __future__ import annotations

import json
from pathlib import Path

import pytest

from fastslow.runs.reading import Log, Place, column, rounded


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(Place("run", tmp_path, tmp_path), "metrics.jsonl")


def write(log: Log, text: str, mode: str = "a") -> None:
    with (log.place.path / log.name).open(mode) as file:
        file.write(text)


def test_rows_arrive_as_they_are_appended_and_a_partial_line_is_waited_for(log: Log) -> None:
    assert log.refresh() == []
    write(log, '{"step": 1}\n{"st')
    assert log.refresh() == [{"step": 1}]
    seen = log.version
    assert log.refresh() == [{"step": 1}]
    assert log.version == seen
    write(log, 'ep": 2}\n')
    assert log.refresh() == [{"step": 1}, {"step": 2}]
    assert log.version != seen
    assert log.place.notes == {}


def test_a_file_that_is_gone_has_no_rows_and_that_is_news(log: Log) -> None:
    write(log, '{"step": 1}\n')
    log.refresh()
    seen = log.version
    (log.place.path / log.name).unlink()
    assert log.refresh() == []
    assert log.version == seen + 1
    assert (log.refresh(), log.version) == ([], seen + 1)


def test_damaged_lines_are_skipped_and_noted(log: Log) -> None:
    write(log, '{"step": 1}\nnot json\n[1]\n' + "[" * 100_000 + '\n{"step": 2}\n')
    assert log.refresh() == [{"step": 1}, {"step": 2}]
    assert log.place.notes == {"metrics.jsonl": "3 damaged lines skipped, the last is line 4"}


@pytest.mark.parametrize("replaced", [True, False])
def test_a_rewound_file_is_read_again(log: Log, replaced: bool) -> None:
    write(log, "".join(f'{{"step": {step}}}\n' for step in range(9)))
    assert len(log.refresh()) == 9
    if replaced:  # as a resumed run does, and it may be longer than what was read
        other = log.place.path / "other"
        other.write_text("".join(json.dumps({"step": step, "again": True}) + "\n" for step in range(12)))
        other.replace(log.place.path / log.name)
    else:
        write(log, '{"step": 0, "again": true}\n', "w")
    assert len(log.refresh()) == (12 if replaced else 1)
    assert all(row["again"] for row in log.rows)


def test_only_finite_numbers_reach_a_column() -> None:
    rows = [{"a": 1}, {"a": "x"}, {"a": float("nan")}, {"a": True}, {}, {"b": 2.0}, {"a": 10**400}]
    assert column(rows[:-1], "a", "b") == [1, None, None, None, None, 2.0]
    assert rounded(0.123456789) == 0.123457
