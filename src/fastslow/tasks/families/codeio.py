"""CodeIO: read a Python function and a call of it, and predict as JSON what it returns.

The functions are shipped by reasoning-gym with generators of their arguments, and called here to learn what they return; or
calls come with their results from a file of yours.
"""

from __future__ import annotations

import ast
import gzip
import hashlib
import json
import re
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from fastslow.base.cache import made_once
from fastslow.base.errors import TaskError
from fastslow.base.text import one_line
from fastslow.sandbox.process import Worker
from fastslow.tasks.base import Example, Feedback, Message, Options, QuestionTask, require_package
from fastslow.tasks.data import ListedTask, Row, complete_splits, content_id, name_examples, read_rows, require_columns
from fastslow.tasks.reading import FENCE, Difference, Reading, first_difference, has_fence, last_fenced, show, type_name

FORM = " End your answer with the returned value as JSON, in a block that opens with ```json and closes with ```."

# Advice that holds for every problem, each a whole sentence; what is true of one problem goes on lines of its own.
WRITE_A_BLOCK = "End the answer with the returned value as JSON in a block that opens with ```json and closes with ```."
CLOSE_THE_BLOCK = "Close the JSON block with ``` on a line of its own, right after the value."
ONLY_JSON = "Put nothing but one JSON value into the last block: no comments, no names, no calculation."
JSON_NOT_PYTHON = "Write JSON rather than Python: strings in double quotes, true, false and null, and lists for tuples."
MATCH_TYPES = "Give every value the type that the code returns: a number is not a string, and true is not 1."
UNWRAP = (
    'Where the code returns a number, a string or a list, write just that, as in 3 or "x", with no object around it.'
)
MATCH_NUMBERS = "Write a float with a decimal point, as in 3.0, and an integer without one."
COUNT_ELEMENTS = "Follow every loop to its end and count the elements of a list before writing it."
MATCH_KEYS = "Use exactly the keys that the code puts into its result, spelled as in the code."
COMPUTE = "Compute numbers step by step with the given arguments, and round only where the code rounds."
COPY_STRINGS = "Build strings character by character as the code does, with its capitals, spaces and punctuation."
FOLLOW_CONDITIONS = "Check the conditions in the order the code does, and follow only the branch that is taken."

READING = Reading(
    last_fenced,
    has_fence,
    missing=("The answer has no JSON block with what %s returns.", WRITE_A_BLOCK),
    unclosed=("The last block of the answer is never closed, so what %s returns cannot be read.", CLOSE_THE_BLOCK),
    empty=("The last block is empty instead of holding what %s returns.", WRITE_A_BLOCK),
)

SECONDS = 3.0
"""Working time for all calls of one function; all but a handful of the shipped ones need milliseconds."""
FORMAT = 1
"""Raised when the way calls are made changes, so that those in the cache are made again."""
_CLOCK = re.compile(r"\b(now|today|utcnow|localtime|time\.time|perf_counter|monotonic)\(")


class CodeIOOptions(Options):
    path: str | None = None
    """A file (or hub dataset) of functions: columns `code_sample` and `input_generator` as in reasoning-gym's data, or
    `code_sample`, `input` and `output` for calls already made. By default the functions reasoning-gym ships."""
    functions: int | None = Field(default=None, ge=1)
    """How many functions to use, from the first on; by default all (about three thousand, called once, then cached)."""
    calls: int = Field(default=4, ge=1)
    """Problems per function: calls with different arguments. Not for calls already made."""
    longest_input: int = Field(default=2000, ge=1)
    """Calls whose arguments take more characters than this are left out."""
    longest_output: int = Field(default=500, ge=1)
    """Calls whose result takes more characters than this are left out."""
    holdout: float = Field(default=0.1, ge=0, lt=0.5)
    """Share of the functions held out for validation, and as many again for test; all calls of one stay together."""
    seed: int = 0
    """Another seed makes other calls."""
    form_told: bool = True
    """Whether the question says how the answer must be written. If not, only the grader does, and a context has to."""
    feedback: Literal["difference", "advice"] = "difference"
    """`difference` shows the expected value where the answer first goes wrong; `advice` keeps every result to itself."""


class CodeIO(ListedTask, QuestionTask):
    """Predict as JSON what a call of a Python function returns."""

    Options = CodeIOOptions
    options: CodeIOOptions
    seed_text = "Predict what the Python function returns."

    def __init__(self, options: CodeIOOptions) -> None:
        super().__init__(options)
        source = options.path or "reasoning-gym's codeio data"
        calls = [
            call
            for call in _read_calls(source, options)
            if len(json.dumps(call["input"])) <= options.longest_input
            # A result that holds a fence could not be read back.
            if len(output := _written(call["output"])) <= options.longest_output and FENCE not in output
        ]
        if not calls:
            raise TaskError(
                f"no call of '{source}' has arguments within {options.longest_input} characters and a result within "
                f"{options.longest_output}; raise longest_input or longest_output"
            )
        rows = complete_splits({"train": calls}, options.holdout, lambda call: call["function"], source)
        self._examples = name_examples(rows, lambda call: f"{call['function']}/{content_id(call['input'])[:8]}")

    def messages(self, example: Example) -> list[Message]:
        call = example.data
        parts = [
            call["description"],
            f"Read this Python code:\n\n```python\n{call['code']}\n```",
            call["specification"],
            f"`main_solution` is called with these arguments, written as JSON:\n\n{_written(call['input'])}",
            "Work out what it returns without running it." + (FORM if self.options.form_told else ""),
        ]
        return [{"role": "user", "content": "\n\n".join(part for part in parts if part)}]

    def grade(self, example: Example, answer: str) -> Feedback:
        call = f"the call with {one_line(_written(example.data['input']), 80)}"
        given, faults = _read(answer, call)
        if faults:
            return Feedback(0.0, "\n".join(faults))
        difference = first_difference(example.data["output"], given)
        if difference is None:
            return Feedback(1.0, f"Correct: {call} returns {show(given)}.")
        fact = _fact(difference, call)
        if self.options.feedback == "advice":
            kind = {"number": "type", "missing key": "keys", "extra key": "keys"}.get(difference.kind, difference.kind)
            fact = f"For {call}, {show(difference.given)} has the wrong {kind}."
        progress = 0.75 if difference.kind == "value" else 0.5
        return Feedback(0.0, f"{fact}\n{_advice(difference)}", progress=progress)


def _read(answer: str, call: str) -> tuple[Any, list[str]]:
    """The value in the last block, or what keeps it from being read."""
    block, faults = READING.read(answer, call)
    if faults:
        return None, faults
    try:
        return json.loads(block, object_pairs_hook=_unique, parse_constant=_no_constant), []
    except (ValueError, RecursionError) as error:  # ValueError also for numbers of thousands of digits
        fault = f"'{one_line(block, 80)}' is not a JSON value ({one_line(error, 80)}), asked for {call}."
        return None, [fault, JSON_NOT_PYTHON if _is_python(block) else ONLY_JSON]


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """JSON readers disagree about a key that comes twice, so it has no value."""
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("a key comes twice in one object")
    return result


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _is_python(block: str) -> bool:
    """Whether the block is a Python literal, such as a tuple or a list with True in it. It is read, never run."""
    try:
        ast.literal_eval(block.strip())
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        return False
    return True


def _fact(difference: Difference, call: str) -> str:
    expected, given = difference.expected, difference.given
    here = f"at {difference.place}" if difference.place else "as a whole"
    match difference.kind:
        case "type" | "number":
            what = f"{_a(type_name(expected))} is expected and {_a(type_name(given))} is given"
        case "length":
            what = f"an array of length {len(expected)} is expected and one of length {len(given)} is given"
        case "missing key":
            what = f"the key {show(difference.key)} is missing"
        case "extra key":
            what = f"the key {show(difference.key)} is not one of the result's"
        case "value":
            what = f"the {type_name(expected)} is a different one"
    return f"For {call}, {what} {here}: expected {show(expected)}, given {show(given)}."


def _advice(difference: Difference) -> str:
    if difference.kind != "value":
        wrapped = not difference.place and isinstance(difference.given, dict)
        return {
            "type": UNWRAP if wrapped else MATCH_TYPES,
            "number": MATCH_NUMBERS,
            "length": COUNT_ELEMENTS,
            "missing key": MATCH_KEYS,
            "extra key": MATCH_KEYS,
        }[difference.kind]
    return {"string": COPY_STRINGS, "boolean": FOLLOW_CONDITIONS}.get(type_name(difference.expected), COMPUTE)


def _a(noun: str) -> str:
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}" if noun != "null" else noun


def _written(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _read_calls(source: str, options: CodeIOOptions) -> list[Row]:
    """One row a call: function (a hash of its code), code, description, specification, input and output."""
    rows = read_rows(options.path) if options.path else _shipped()
    ready = "output" in rows[0]
    require_columns(source, rows, dict.fromkeys(("code_sample", "input" if ready else "input_generator"), "path"))
    for number, row in enumerate(rows, 1):  # not require_columns: null is an output like any other
        if ready and "output" not in row:
            raise TaskError(f"'{source}' row {number} has no column 'output'; expected it in every row or in none")
    kept = set(list(dict.fromkeys(map(_function, rows)))[: options.functions])
    rows = [row for row in rows if _function(row) in kept]
    if ready:
        made = [_row(row, row["input"], row["output"]) for row in rows]
    else:
        made = _make(source, rows, options.calls, options.seed)
    return list({(row["function"], json.dumps(row["input"])): row for row in made}.values())


def _shipped() -> list[Row]:
    file = require_package("codeio", "reasoning_gym", "reasoning-gym") / "data" / "codeio.jsonl.gz"
    try:
        with gzip.open(file, "rt", encoding="utf-8") as lines:
            return [json.loads(line) for line in lines]
    except (OSError, ValueError) as error:
        raise TaskError(
            f"reasoning-gym's data file '{file}' cannot be read ({error}); install reasoning-gym again"
        ) from None


def _make(source: str, rows: list[Row], calls: int, seed: int) -> list[Row]:
    requests = []
    for row in rows:
        functions = {"code": row["code_sample"], "generator": row["input_generator"]}
        requests.append({**functions, "calls": calls, "seed": f"{seed}/{_function(row)}"})
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
