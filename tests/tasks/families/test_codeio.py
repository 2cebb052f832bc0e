"""CodeIO: calls are made once and split by function, answers are graded by value and type, feedback names the difference."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastslow.base.errors import TaskError
from fastslow.tasks.base import Example, Feedback, Split
from fastslow.tasks.families import codeio
from fastslow.tasks.families.codeio import CodeIO, CodeIOOptions

pytestmark = pytest.mark.usefixtures("cache")
SPLITS: tuple[Split, ...] = ("train", "validation", "test")
ADVICE = [value for name, value in vars(codeio).items() if name.isupper() and isinstance(value, str)]


def ready(code: str, given: Any, output: Any) -> dict[str, Any]:
    return {"code_sample": code, "input": given, "output": output}


def generated(code: str, generator: str = "return {'n': rng.randint(0, 10**6)}") -> dict[str, Any]:
    return {
        "code_sample": code,
        "input_generator": f"def generate_inputs(rng):\n    {generator}",
        "task_description": "Do it.",
    }


def write(folder: Path, rows: list[dict[str, Any]]) -> str:
    path = folder / "functions.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def build(folder: Path, rows: list[dict[str, Any]], **options: Any) -> CodeIO:
    return CodeIO(CodeIOOptions(path=write(folder, rows), **{"holdout": 0, **options}))


def grade(folder: Path, output: Any, answer: str, **options: Any) -> Feedback:
    task = build(folder, [ready("def main_solution(n): ...", {"n": 7}, output)], **options)
    return task.grade(task.examples("train")[0], answer)


def block(value: Any) -> str:
    return f"Let me think.\n```json\n{value if isinstance(value, str) else json.dumps(value)}\n```"


@pytest.mark.parametrize(
    ("output", "answer", "score"),
    [
        (3, block(3), 1),
        (3, block("3"), 1),
        (3, block(" 3 "), 1),
        (3, "```3```", 1),
        (3, block(4) + block(3), 1),
        (3, block(3) + block(4), 0),
        (3, "3", 0),
        (3, "The answer is 3.", 0),
        (3, block(3.0), 0),
        (3, block('"3"'), 0),
        (3, block("3 # three"), 0),
        (3, block("n = 3"), 0),
        (3, block(3) + "\n```json\n3", 0),
        (3, block(""), 0),
        (1, block("true"), 0),
        (True, block("true"), 1),
        (True, block("True"), 0),
        (None, block("null"), 1),
        (None, block("None"), 0),
        ("a b", block('"a b"'), 1),
        ("a b", block("'a b'"), 0),
        ("a b", block("a b"), 0),
        ("é", block('"\\u00e9"'), 1),
        (0.3, block("0.30000000000000004"), 1),
        (0.3, block("3e-1"), 1),
        (0.3, block("0.3001"), 0),
        ([1, 2], block("[1,\n 2]"), 1),
        ([1, 2], block("(1, 2)"), 0),
        ([1, 2], block("[1, 2,]"), 0),
        ([1, 2], block("[1, 2] [1, 2]"), 0),
        ([], block("{}"), 0),
        ({"a": 1, "b": [2]}, block('{"b": [2], "a": 1}'), 1),
        ({"a": 1}, block('{"a": 1, "a": 1}'), 0),
        ({"a": 1}, block('{"a": 1, "b": null}'), 0),
        (1.5, block("NaN"), 0),
        (1.5, block("Infinity"), 0),
        (1, block("1" * 5000), 0),
        (1, block("[" * 100_000), 0),
    ],
)
def test_answers_are_graded_by_value_and_type(tmp_path: Path, output: Any, answer: str, score: float) -> None:
    assert grade(tmp_path, output, answer).score == score


@pytest.mark.parametrize(
    ("output", "answer", "fact", "advice"),
    [
        (3, "Three.", 'no JSON block with what the call with {"n": 7} returns', codeio.WRITE_A_BLOCK),
        (3, "```json\n3", "never closed", codeio.CLOSE_THE_BLOCK),
        (3, block(""), "empty", codeio.WRITE_A_BLOCK),
        (3, block("is 3"), "'is 3' is not a JSON value", codeio.ONLY_JSON),
        (3, block("NaN"), "NaN is not JSON", codeio.ONLY_JSON),
        ([1], block("(1,)"), "'(1,)' is not a JSON value", codeio.JSON_NOT_PYTHON),
        ({"a": 1}, block('{"a": 1, "a": 2}'), "a key comes twice", codeio.JSON_NOT_PYTHON),
        (["x"], block([1]), "a string is expected and an integer is given at [0]", codeio.MATCH_TYPES),
        (["x"], block([1]), 'expected "x", given 1.', codeio.MATCH_TYPES),
        (None, block("0"), "null is expected and an integer is given as a whole", codeio.MATCH_TYPES),
        (7, block({"total": 7}), "an integer is expected and an object is given as a whole", codeio.UNWRAP),
        ([1], block({"list": [1]}), "an array is expected and an object is given as a whole", codeio.UNWRAP),
        ([7], block([{"total": 7}]), "an integer is expected and an object is given at [0]", codeio.MATCH_TYPES),
        (3.0, block("3"), "a float is expected and an integer is given", codeio.MATCH_NUMBERS),
        ([[1, 2]], block([[1]]), "length 2 is expected and one of length 1 is given at [0]", codeio.COUNT_ELEMENTS),
        ({"a": 1}, block("{}"), 'the key "a" is missing', codeio.MATCH_KEYS),
        ({"a": 1}, block({"a": 1, "z": 2}), 'the key "z" is not one of the result\'s', codeio.MATCH_KEYS),
        ({"k": [1, 9]}, block({"k": [1, 8]}), 'a different one at ["k"][1]: expected 9, given 8', codeio.COMPUTE),
        ("abc", block('"abd"'), 'expected "abc", given "abd"', codeio.COPY_STRINGS),
        (True, block("false"), "expected true, given false", codeio.FOLLOW_CONDITIONS),
    ],
)
def test_feedback_names_the_first_difference(tmp_path: Path, output: Any, answer: str, fact: str, advice: str) -> None:
    feedback = grade(tmp_path, output, answer)
    first, *rest = feedback.text.split("\n")
    assert fact in first
    assert '{"n": 7}' in first
    assert rest == [advice]
    unreadable = {codeio.WRITE_A_BLOCK, codeio.CLOSE_THE_BLOCK, codeio.ONLY_JSON, codeio.JSON_NOT_PYTHON}
    only_the_value = {codeio.COMPUTE, codeio.COPY_STRINGS, codeio.FOLLOW_CONDITIONS}
    assert feedback.progress == (0 if advice in unreadable else 0.75 if advice in only_the_value else 0.5)


@pytest.mark.parametrize("given", [[1, 2], {"a": 70707}, "x", 70708.5, None, [[], 1, True]])
def test_results_stay_hidden_when_asked_to(tmp_path: Path, given: Any) -> None:
    feedback = grade(tmp_path, {"a": 70708}, block(given), feedback="advice")
    assert feedback.score == 0
    assert "70708" not in feedback.text.replace(json.dumps(given), "")
    assert feedback.text.split("\n")[1] in ADVICE


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**12), 10**12)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, CodeIO]:
    folder = tmp_path_factory.mktemp("codeio")
    return {option: build(folder, [ready("x", {}, 0)], feedback=option) for option in ("difference", "advice")}


@settings(max_examples=150, deadline=None)
@given(output=values)
def test_the_result_itself_always_scores_one(tasks: dict[str, CodeIO], output: Any) -> None:
    if "```" in json.dumps(output, ensure_ascii=False):  # such calls are left out
        return
    example = Example("x", {"input": {"n": 7}, "output": output})
    for written in (json.dumps(output), json.dumps(output, ensure_ascii=False), json.dumps(output, indent=2)):
        assert tasks["difference"].grade(example, f"So:\n```json\n{written}\n```").score == 1


@settings(max_examples=150, deadline=None)
@given(output=st.tuples(st.integers(0, 3), values), given_value=values, junk=st.none() | st.text())
def test_advice_never_holds_the_result(
    tasks: dict[str, CodeIO], output: tuple[int, Any], given_value: Any, junk: str | None
) -> None:
    secret = "xyzzy"
    place, filler = output
    hidden = [secret, [secret, filler], {"key": secret, "other": filler}, {secret: filler}][place]
    example = Example("x", {"input": {"n": 7}, "output": hidden})
    feedback = tasks["advice"].grade(example, block(json.dumps(given_value)) if junk is None else junk)
    assert feedback.score == 0
    assert secret not in feedback.text
    assert feedback.text.split("\n")[1] in ADVICE


def test_a_correct_answer_says_so(tmp_path: Path) -> None:
    assert grade(tmp_path, 3, block(3)).text == 'Correct: the call with {"n": 7} returns 3.'


def test_functions_are_called_and_shown(tmp_path: Path) -> None:
    code = "def main_solution(n):\n    return {'double': 2 * n, 'pair': (n, str(n))}"
    task = build(tmp_path, [generated(code)], calls=3)
    examples = task.examples("train")
    assert len({example.id for example in examples}) == 3
    for example in examples:
        n = example.data["input"]["n"]
        assert example.data["output"] == {"double": 2 * n, "pair": [n, str(n)]}
        assert task.grade(example, block(example.data["output"])).score == 1
        (message,) = task.messages(example)
        assert code in message["content"]
        assert json.dumps({"n": n}) in message["content"]
        assert message["content"].startswith("Do it.\n\n")
        assert "```json" in message["content"]
    assert build(tmp_path, [generated(code)], calls=3).examples("train") == examples
    assert build(tmp_path, [generated(code)], calls=3, seed=1).examples("train") != examples


def test_the_form_of_the_answer_can_be_left_to_the_grader_alone(tmp_path: Path) -> None:
    task = build(tmp_path, [generated("def main_solution(n): return n")], calls=1, form_told=False)
    (example,) = task.examples("train")
    (message,) = task.messages(example)
    assert message["content"].endswith("Work out what it returns without running it.")
    assert codeio.WRITE_A_BLOCK in task.grade(example, str(example.data["output"])).text


BROKEN = {
    "raises": "def main_solution(n): raise ValueError('no')",
    "exits": "import sys\ndef main_solution(n): sys.exit(0)",
    "has no main": "def other(n): return n",
    "is not Python": "def main_solution(n:",
    "does not end": "def main_solution(n):\n    while True: pass",
    "kills its process": "import os\ndef main_solution(n): os._exit(1)",
    "returns no JSON": "def main_solution(n): return {1, 2}",
    "returns NaN": "def main_solution(n): return float('nan')",
    "is random": "import random\ndef main_solution(n): return random.random()",
    "depends on the order of a set": "def main_solution(n): return list({str(i) for i in range(20)})",
    "asks for the time": "from datetime import datetime\ndef main_solution(n): return datetime.now().year",
    "writes a file": "def main_solution(n):\n    open('fastslow-test-file', 'w').write('x')\n    return n",
    "starts a process": "import subprocess\ndef main_solution(n):\n    return subprocess.call(['true'])",
    "opens a connection": "import socket\ndef main_solution(n):\n    socket.socket()\n    return n",
    "cannot be written in a block": "def main_solution(n): return '```'",
}


def test_a_function_that_cannot_be_predicted_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codeio, "SECONDS", 0.3)
    good = generated("def main_solution(n): return n + 1")
    task = build(tmp_path, [*map(generated, BROKEN.values()), good], calls=2)
    assert {example.data["code"] for example in task.examples("train")} == {good["code_sample"]}


def test_calls_are_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [generated(f"def main_solution(n): return n + {number}") for number in range(3)]
    examples = build(tmp_path, rows).examples("train")

    def never(*_: Any) -> None:
        raise AssertionError("called again")

    monkeypatch.setattr(codeio, "_results", never)
    assert build(tmp_path, rows).examples("train") == examples
    with pytest.raises(AssertionError):
        build(tmp_path, rows, calls=5)


def test_all_calls_of_a_function_are_in_one_split(tmp_path: Path) -> None:
    rows = [ready(f"def main_solution(n): return {f}", {"n": n}, f) for f in range(20) for n in range(4)]
    task = build(tmp_path, rows, holdout=0.2)
    functions = {split: {example.data["function"] for example in task.examples(split)} for split in SPLITS}
    assert [len(functions[split]) for split in SPLITS] == [12, 4, 4]
    assert sum(len(task.examples(split)) for split in SPLITS) == 80
    assert not functions["train"] & (functions["validation"] | functions["test"])
    assert not functions["validation"] & functions["test"]
    shuffled = build(tmp_path, rows[::-1], holdout=0.2)
    for split in SPLITS:
        assert {example.id for example in shuffled.examples(split)} == {example.id for example in task.examples(split)}


def test_a_call_that_comes_twice_is_one_problem(tmp_path: Path) -> None:
    assert len(build(tmp_path, [ready("x", {"n": 1}, 2)] * 3).examples("train")) == 1


def test_long_calls_and_further_functions_are_left_out(tmp_path: Path) -> None:
    rows = [ready("a", {"n": "x" * 50}, 1), ready("b", {"n": 1}, "y" * 50), ready("c", {"n": 1}, 1), ready("d", {}, 1)]
    task = build(tmp_path, rows, longest_input=40, longest_output=40, functions=3)
    assert [example.data["code"] for example in task.examples("train")] == ["c"]
    with pytest.raises(TaskError, match=r"no call of .* has arguments within 1 characters"):
        build(tmp_path, rows, longest_input=1)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"code": "x", "output": 1}], "row 1 has no column 'code_sample'"),
        ([{"code_sample": "x"}], "row 1 has no column 'input_generator'"),
        ([ready("x", {}, 1), {"code_sample": "x", "input": {}}], "row 2 has no column 'output'"),
        ([generated("nonsense")], "no function of .* could be called: expected code_sample to define main_solution"),
    ],
)
def test_bad_data_is_explained(tmp_path: Path, rows: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(TaskError, match=message):
        build(tmp_path, rows)


def test_null_is_an_output(tmp_path: Path) -> None:
    assert build(tmp_path, [ready("x", {"n": 1}, None)]).examples("train")[0].data["output"] is None


def test_the_functions_of_reasoning_gym_are_the_default() -> None:
    pytest.importorskip("reasoning_gym")
    task = CodeIO(CodeIOOptions(functions=12, calls=2))
    examples: list[Example] = [example for split in SPLITS for example in task.examples(split)]
    assert len(examples) >= 16
    for example in examples:
        assert "def main_solution" in example.data["code"]
        assert task.grade(example, block(json.dumps(example.data["output"]))).score == 1
        assert task.grade(example, block(json.dumps([example.data["output"]]))).score == 0


def test_a_missing_package_is_one_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastslow.tasks.base.find_spec", lambda name: None)
    with pytest.raises(
        TaskError, match=r"task 'codeio' needs the package reasoning-gym.*pip install 'fastslow\[tasks\]'"
    ):
        CodeIO(CodeIOOptions())
