"""The problems of CodeIO: functions shipped by reasoning-gym with generators of their arguments, called here to learn what
they return; or calls of your own, with their results, from a file."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from fastslow.base.cache import made_once
from fastslow.base.errors import TaskError
from fastslow.sandbox.process import Worker
from fastslow.tasks.data.rows import Row, read_rows
from fastslow.tasks.data.source import content_id, require_columns
from fastslow.tasks.imports import require_package
from fastslow.tasks.reading.answers import FENCE

SECONDS = 3.0
"""Working time for all calls of one function; all but a handful of the shipped ones need milliseconds."""
FORMAT = 1
"""Raised when the way calls are made changes, so that those in the cache are made again."""
_CLOCK = re.compile(r"\b(now|today|utcnow|localtime|time\.time|perf_counter|monotonic)\(")


def read_calls(path: str | None, functions: int | None, calls: int, seed: int) -> list[Row]:
    """One row a call: function (a hash of its code), code, description, specification, input and output."""
    source = path or "reasoning-gym's codeio data"
    rows = read_rows(path) if path else _shipped()
    ready = "output" in rows[0]
    columns = ("code_sample", "input", "output") if ready else ("code_sample", "input_generator")
    require_columns(source, rows, dict.fromkeys(columns[:2], "path"))
    if ready:
        _require_output(source, rows)
    rows = _first_functions(rows, functions)
    made = [_row(row, row["input"], row["output"]) for row in rows] if ready else _make(source, rows, calls, seed)
    return list({(row["function"], json.dumps(row["input"])): row for row in made}.values())


def fits(row: Row, longest_input: int, longest_output: int) -> bool:
    """Whether a call can be shown and its result be written; a result that holds a fence could not be read back."""
    output = json.dumps(row["output"], ensure_ascii=False)
    return len(json.dumps(row["input"])) <= longest_input and len(output) <= longest_output and FENCE not in output


def _shipped() -> list[Row]:
    file = require_package("codeio", "reasoning_gym", "reasoning-gym") / "data" / "codeio.jsonl.gz"
    try:
        with gzip.open(file, "rt", encoding="utf-8") as lines:
            return [json.loads(line) for line in lines]
    except (OSError, ValueError) as error:
        raise TaskError(
            f"reasoning-gym's data file '{file}' cannot be read ({error}); install reasoning-gym again"
        ) from None


def _require_output(source: str, rows: list[Row]) -> None:
    for number, row in enumerate(rows, 1):  # not require_columns: null is an output like any other
        if "output" not in row:
            raise TaskError(f"'{source}' row {number} has no column 'output'; expected it in every row or in none")


def _first_functions(rows: list[Row], count: int | None) -> list[Row]:
    if count is None:
        return rows
    kept = set(list(dict.fromkeys(_function(row) for row in rows))[:count])
    return [row for row in rows if _function(row) in kept]


def _make(source: str, rows: list[Row], calls: int, seed: int) -> list[Row]:
    requests = [
        {
            "code": row["code_sample"],
            "generator": row["input_generator"],
            "calls": calls,
            "seed": f"{seed}/{_function(row)}",
        }
        for row in rows
    ]
    recipe = json.dumps([FORMAT, sys.version_info[:2], rows, requests], sort_keys=True)
    folder = made_once(
        "codeio", hashlib.sha256(recipe.encode()).hexdigest()[:16], lambda to: _write(to, rows, requests)
    )
    made = [json.loads(line) for line in (folder / "calls.jsonl").read_text(encoding="utf-8").split("\n") if line]
    if not made:
        raise TaskError(
            f"no function of '{source}' could be called: expected code_sample to define main_solution(...), and "
            "input_generator to define generate_inputs(rng) returning its arguments as a dictionary"
        )
    return made


def _write(folder: Path, rows: Sequence[Row], requests: Sequence[Row]) -> None:
    if len(rows) > 500:
        print(f"codeio: calling {len(rows)} functions to learn what they return, once (minutes) …", file=sys.stderr)
    # Twice, in processes that order sets differently: a result that is not the same both times cannot be predicted.
    with ThreadPoolExecutor(2) as threads:
        first, second = threads.map(lambda hash_seed: _results(requests, hash_seed), ("1", "2"))
    with (folder / "calls.jsonl").open("w", encoding="utf-8") as file:
        for row, once, again in zip(rows, first, second, strict=True):
            if not isinstance(once, list) or once != again or _CLOCK.search(row["code_sample"]):
                continue
            file.writelines(json.dumps(_row(row, given, result)) + "\n" for given, result in once)


def _results(requests: Sequence[Row], hash_seed: str) -> list[Any]:
    worker = Worker(Path(__file__).with_name("codeio_worker.py"), SECONDS, environment={"PYTHONHASHSEED": hash_seed})
    try:
        return [worker.ask(request).value for request in requests]
    finally:
        worker.close()


def _row(row: Row, given: Any, result: Any) -> Row:
    return {
        "function": _function(row),
        "code": str(row["code_sample"]).strip(),
        "description": str(row.get("task_description") or "").strip(),
        "specification": str(row.get("input_output_spec") or "").strip(),
        "input": given,
        "output": result,
    }


def _function(row: Row) -> str:
    return content_id(str(row["code_sample"]).strip())
