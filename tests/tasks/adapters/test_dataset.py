"""A user's own rows become a task, and every mistake in them becomes one line that says what to do."""

import asyncio
import csv
import itertools
import json
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import datasets
import pandas
import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet
from pydantic import ValidationError

import fastslow
from fastslow.base.errors import TaskError
from fastslow.tasks.adapters import dataset as grading
from fastslow.tasks.adapters.dataset import DatasetOptions, DatasetTask, GraderError, RowsTask, exact_match
from fastslow.tasks.base import Example, Feedback, Split
from fastslow.tasks.scripted import scripted_rollout

ROWS: list[dict[str, Any]] = [{"question": f"{n} + {n}?", "answer": str(2 * n)} for n in range(40)]
SPLITS: tuple[Split, ...] = ("train", "validation", "test")
_modules = itertools.count()


def write_jsonl(path: Path, rows: list[Any]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def build(path: object, **options: Any) -> DatasetTask:
    return DatasetTask(DatasetOptions(path=str(path), **options))


def ids(task: DatasetTask, split: Split) -> list[str]:
    return [example.id for example in task.examples(split)]


@pytest.fixture
def data(tmp_path: Path) -> str:
    return write_jsonl(tmp_path / "data.jsonl", ROWS)


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], str]]:
    """Writes a module into the current folder, under a name no other test has imported."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    written = []

    def write(code: str) -> str:
        name = f"my_grader_{next(_modules)}"
        (tmp_path / f"{name}.py").write_text(code)
        written.append(name)
        return name

    yield write
    for name in written:
        sys.modules.pop(name, None)


def write_json(path: Path) -> None:
    path.write_text(json.dumps(ROWS, indent=1))


def write_csv(path: Path) -> None:
    with path.open("w", newline="", encoding="utf-8-sig") as lines:
        writer = csv.DictWriter(lines, ["question", "answer"])
        writer.writeheader()
        writer.writerows(ROWS)


def write_parquet(path: Path) -> None:
    parquet.write_table(pyarrow.Table.from_pylist(ROWS), path)


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("data.json", write_json),
        ("lines.json", lambda path: write_jsonl(path, ROWS)),
        ("data.csv", write_csv),
        ("DATA.PARQUET", write_parquet),
    ],
)
def test_every_kind_of_file_gives_the_same_problems(
    tmp_path: Path, data: str, name: str, write: Callable[[Path], Any]
) -> None:
    write(tmp_path / name)
    task, reference = build(tmp_path / name), build(data)
    for split in SPLITS:
        assert task.examples(split) == reference.examples(split)


def test_a_hugging_face_dataset_is_read_split_by_split(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    folder = tmp_path / "corpus"
    folder.mkdir()
    write_jsonl(folder / "train.jsonl", ROWS)
    write_jsonl(folder / "test.jsonl", ROWS[:3])
    task = build(folder, test_split="test")
    assert [len(task.examples(split)) for split in SPLITS] == [36, 4, 3]
    with pytest.raises(TaskError, match=r"split 'dev' cannot be loaded .*dev.*; expected the path of a \.jsonl"):
        build(folder, validation_split="dev")
    with pytest.raises(TaskError, match="dataset 'no-such/thing', split 'train' cannot be loaded"):
        build("no-such/thing")


def test_question_is_the_prompt_and_context_the_only_system_message_by_default(data: str) -> None:
    task = build(data)
    assert task.messages(Example("x", ROWS[3])) == [{"role": "user", "content": "3 + 3?"}]
    assert dict(task.seed_texts) == {"system": "Answer the question."}


def test_prompt_system_and_seed_text_are_the_users(tmp_path: Path) -> None:
    row = {"my text": "{answer} é", "n": 3, "tags": ["a", "é"], "answer": "x"}
    path = write_jsonl(tmp_path / "data.jsonl", [row])
    prompt = r"{my text} #{n} {tags} in \boxed{}, {{n}}"
    task = build(path, prompt=prompt, system="Be brief.", seed_text="Think.", holdout=0)
    assert task.messages(task.examples("train")[0]) == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": r'{answer} é #3 ["a", "é"] in \boxed{}, {n}'},
    ]
    assert dict(task.seed_texts) == {"system": "Think."}


def test_ids_come_from_the_id_column_and_copies_are_told_apart(tmp_path: Path) -> None:
    rows = [{"id": name, "question": "?", "answer": "!"} for name in ("a", "a", 7, "a", "a-2")]
    other = write_jsonl(tmp_path / "other.jsonl", rows[:1])
    task = build(write_jsonl(tmp_path / "data.jsonl", rows), id="id", validation_path=other, test_path=other)
    assert ids(task, "train") == ["a", "a-2", "7", "a-3", "a-2-2"]
    assert ids(task, "validation") == ["a-4"]
    assert ids(task, "test") == ["a-5"]


def test_ids_without_a_column_follow_the_content_not_the_place(tmp_path: Path) -> None:
    forward = build(write_jsonl(tmp_path / "forward.jsonl", ROWS))
    turned = [dict(reversed(row.items())) for row in reversed(ROWS)]
    backward = build(write_jsonl(tmp_path / "backward.jsonl", turned))
    for split in SPLITS:
        assert ids(forward, split) == ids(backward, split)[::-1]


@pytest.mark.parametrize(
    ("count", "holdout", "sizes"),
    [(40, 0.1, [32, 4, 4]), (40, 0, [40, 0, 0]), (5, 0.1, [3, 1, 1]), (40, 0.25, [20, 10, 10])],
)
def test_holdout_sets_an_exact_share_aside(tmp_path: Path, count: int, holdout: float, sizes: list[int]) -> None:
    task = build(write_jsonl(tmp_path / "data.jsonl", ROWS[:count]), holdout=holdout)
    assert [len(task.examples(split)) for split in SPLITS] == sizes
    everything = [name for split in SPLITS for name in ids(task, split)]
    assert len(set(everything)) == count


def test_copies_of_a_row_are_never_on_both_sides_of_the_holdout(tmp_path: Path) -> None:
    task = build(write_jsonl(tmp_path / "data.jsonl", ROWS * 3), holdout=0.3)
    questions = [{example.data["question"] for example in task.examples(split)} for split in SPLITS]
    assert [len(each) for each in questions] == [16, 12, 12]
    assert len(set.union(*questions)) == 40


def test_files_of_their_own_replace_the_holdout(tmp_path: Path, data: str) -> None:
    other = write_jsonl(tmp_path / "other.jsonl", [{"question": "x", "answer": "y"}] * 2)
    only_test_held_out = build(data, validation_path=other)
    assert [len(only_test_held_out.examples(split)) for split in SPLITS] == [36, 2, 4]
    assert ids(only_test_held_out, "test") == ids(build(data), "test")
    assert [len(build(data, validation_path=other, test_path=other).examples(split)) for split in SPLITS] == [40, 2, 2]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("data.jsonl", "", "data.jsonl' has no rows; expected at least one problem"),
        ("data.json", "[]", "data.json' has no rows"),
        ("data.csv", "question,answer\n", "data.csv' has no rows"),
        (
            "data.jsonl",
            '{"a": 1}\n\n{"a": \n',
            "data.jsonl' line 3 is not valid JSON: Expecting value; expected one object",
        ),
        ("data.json", '[{"a": 1},\n{"a" 2}]', "data.json' line 2 is not valid JSON: Expecting ':' delimiter"),
        ("data.jsonl", "[1]\n", "data.jsonl' line 1 is of type list; expected an object"),
        ("data.json", '[{"a": 1}, "b"]', "data.json' item 2 is of type str; expected an object"),
        ("data.csv", "question,answer\n1,2\n3,4,5\n", "data.csv' line 3 has more cells than the header"),
        (
            "data.csv",
            "question,answer\n" + "x" * 200_000 + ",1\n",
            "data.csv' cannot be read as CSV after line 1: field larger .* save it as JSONL",
        ),
        ("data.csv", "question,answer\n1\n", "row 1 has no value in column 'answer', which the task's answer needs"),
        ("data.parquet", "nonsense", "data.parquet' is not a readable parquet file"),
        ("data.txt", "x", "data.txt' is not a kind of file that can be read; expected one of .jsonl, .json"),
        ("data.jsonl", b"\xff\xfe", "data.jsonl' is not UTF-8 text .* save it as UTF-8"),
        (
            "data.jsonl",
            '{"q": 1, "answer": 2}',
            "row 1 has no column 'question', .* it has q, answer; set question to one",
        ),
        (
            "data.jsonl",
            '{"question": 1, "a": 2}',
            "row 1 has no column 'answer', .* it has question, a; set answer to one",
        ),
        ("data.jsonl", '{"question": ' + "9" * 5000 + "}", "line 1 is not valid JSON: Exceeds the limit"),
        ("data.jsonl", "[" * 100_000, "line 1 is not valid JSON: maximum recursion depth"),
        ("data.json", "[" * 100_000, "line 1 is not valid JSON: maximum recursion depth"),
        ("data.csv", "question,question,answer\n1,2,3", "has the column 'question' twice; rename one"),
        ("data.jsonl", '{"question": 1, "answer": null}', "row 1 has no value in column 'answer'"),
        ("data.jsonl", '{"question": 1, "answer": 2}', "too few different rows to hold .* set holdout to 0"),
    ],
)
def test_bad_files_are_refused_in_one_line(tmp_path: Path, name: str, content: str | bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(TaskError, match=message) as caught:
        build(tmp_path / name)
    assert "\n" not in str(caught.value)


def test_missing_files_columns_and_template_fields_are_named(tmp_path: Path, data: str) -> None:
    with pytest.raises(TaskError, match=r"there is no data file '.*none.jsonl' \(looked in .*\); give the path"):
        build(tmp_path / "none.jsonl")
    with pytest.raises(TaskError, match="there is no data file"):
        build(data, validation_path=str(tmp_path / "none.csv"))
    (tmp_path / "folder.jsonl").mkdir()
    with pytest.raises(TaskError, match="is not a regular file"):
        build(tmp_path / "folder.jsonl")
    with pytest.raises(TaskError, match="no column 'name', which the task's id names; it has question, answer; set id"):
        build(data, id="name")
    with pytest.raises(
        TaskError, match=r"no column 'topic', which the task's prompt names; .* write {{ and }} for plain"
    ):
        build(data, prompt="{topic}: {question}")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"path": "a.jsonl", "validation_split": "dev"},
            "validation_split belongs to a hub dataset, but path='a.jsonl'",
        ),
        ({"path": "a.jsonl", "subset": "main"}, "subset belongs to a hub dataset"),
        ({"path": "a/b", "test_path": "t.csv", "test_split": "test"}, "test_path and test_split both say where"),
        ({"path": "a.jsonl", "holdout": 0.5}, "less than 0.5"),
    ],
)
def test_options_that_contradict_each_other_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        DatasetOptions(**options)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("\t4\r\n", "4"),
        ("4", " 4 "),
        ("new\nline", "new\nline"),
        ("  ", ""),
    ],
)
def test_the_exact_match_takes_the_expected_answer(answer: str, expected: str) -> None:
    feedback = exact_match(answer, expected, "Which one?")
    assert feedback.score == 1
    assert feedback.text.startswith("Correct: ")


WRONG = [grading.CHECK_FIRST, grading.ONLY_THE_ANSWER]


@pytest.mark.parametrize(
    ("answer", "expected", "fact", "advice"),
    [
        ("", "4", "The answer to 'Which one?' is empty.", [grading.ANSWER_SOMETHING]),
        ("\n ", "4", "The answer to 'Which one?' is empty.", [grading.ANSWER_SOMETHING]),
        ("paris.", "Paris", "'paris.' is the answer to 'Which one?', but not as it is", [grading.EXACT_WRITING]),
        ("**Paris**", "Paris", "is the answer", [grading.EXACT_WRITING]),
        ("4.", "4", "is the answer", [grading.EXACT_WRITING]),
        ("The answer is 4.", "4", "'The answer is 4.' has more in it than the answer", [grading.ONLY_THE_ANSWER]),
        ("Answer: paris", "Paris", "has more in it", [grading.ONLY_THE_ANSWER]),
        ("(4)", "4", "has more in it", [grading.ONLY_THE_ANSWER]),
        ("$4", "4", "has more in it", [grading.ONLY_THE_ANSWER]),
        ("14", "4", "'14' is not the answer to 'Which one?'.", WRONG),
        ("-4", "4", "'-4' is not the answer", WRONG),
        ("4.2", "4", "is not the answer", WRONG),
        ("0.4", "4", "is not the answer", WRONG),
        ("4th", "4", "is not the answer", WRONG),
        ("Parisian", "Paris", "is not the answer", WRONG),
        ("Pari", "Paris", "is not the answer", WRONG),
        ("new york", "New  York", "is not the answer", WRONG),
        ("x", "", "'x' is not the answer", WRONG),
        ("e", "é", "is not the answer", WRONG),
    ],
)
def test_the_exact_match_teaches(answer: str, expected: str, fact: str, advice: list[str]) -> None:
    feedback = exact_match(answer, expected, "Which one?")
    first, *lines = feedback.text.split("\n")
    assert feedback.score == 0
    assert fact in first
    assert "'Which one?'" in first  # a fact names its problem, so that it is not taken for a rule
    assert lines == advice
    revealed = exact_match(answer, expected, "Which one?", reveal=True)
    assert revealed == Feedback(0.0, f"{feedback.text}\nThe expected answer is '{' '.join(expected.split())}'.")


@given(answer=st.text(), expected=st.text())
def test_the_exact_match_scores_equality_but_for_outer_white_space(answer: str, expected: str) -> None:
    feedback = exact_match(answer, expected, "?")
    assert feedback.score == (answer.strip() == expected.strip())
    assert feedback.text


@given(expected=st.text(min_size=1).map("xyzzy{}".format), answer=st.text() | st.sampled_from(["xyzz", "yzzy"]))
def test_the_exact_match_keeps_the_expected_answer_to_itself(expected: str, answer: str) -> None:
    """All that is known of the expected answer is whether the given one is right, nearly right or holds it."""
    assert "xyzzy" not in exact_match(answer.replace("xyzzy", ""), expected, "Which one?").text


@pytest.mark.parametrize("option", ["advice", "reference"])
def test_the_expected_answer_is_said_only_when_asked_for(tmp_path: Path, option: str) -> None:
    path = write_jsonl(tmp_path / "data.jsonl", [{"question": "2 + 2?", "answer": "xyzzy"}])
    task = build(path, holdout=0, feedback=option)
    [example] = task.examples("train")
    feedback = task.grade(example, "5")
    assert feedback.text.startswith("'5' is not the answer to '2 + 2?'.\n")
    assert ("xyzzy" in feedback.text) == (option == "reference")
    assert build(path, holdout=0).grade(example, "5") == build(path, holdout=0, feedback="advice").grade(example, "5")


def test_without_a_grader_the_answer_column_decides_whatever_its_type(tmp_path: Path) -> None:
    task = build(write_jsonl(tmp_path / "data.jsonl", [{"question": "2 + 2?", "answer": 4}]), holdout=0)
    [example] = task.examples("train")
    assert task.grade(example, " 4\n").score == 1
    assert task.grade(example, "5").score == 0


@pytest.mark.parametrize(
    ("returned", "feedback"),
    [
        ("0.5", Feedback(0.5)),
        ("True", Feedback(1.0)),
        ("(0, 'Add the numbers.')", Feedback(0.0, "Add the numbers.")),
        ("Feedback(0.25, 'Half.', progress=0.5)", Feedback(0.25, "Half.", progress=0.5)),
        ("Feedback(0, 'Nearly.', progress=0.9)", Feedback(0.0, "Nearly.", progress=0.9)),
        ("Feedback(0, '', {'harness': 'Look it up.'})", Feedback(0.0, "", {"harness": "Look it up."})),
        ("__import__('numpy').float32(0.5)", Feedback(0.5)),
        ("float(answer == example['note'])", Feedback(1.0)),
    ],
)
def test_a_grader_of_the_users_own(module: Callable[[str], str], returned: str, feedback: Feedback) -> None:
    name = module(f"from fastslow.tasks import Feedback\n\ndef grade(answer, example):\n    return {returned}\n")
    path = write_jsonl(Path("data.jsonl"), [{"question": "?", "note": "yes"}])  # an answer column is not needed
    task = build(path, grader=f"{name}:grade", holdout=0)
    assert task.grade(task.examples("train")[0], "yes") == feedback


WAITS_FOR_THE_OTHER = {
    "async": """
        import asyncio
        released = asyncio.Event()

        async def grade(answer, example):
            if answer == "wait":
                await released.wait()
            released.set()
            return 1.0
    """,
    "blocks": """
        import threading
        released = threading.Event()

        def grade(answer, example):
            if answer == "wait":
                return float(released.wait(60))
            released.set()
            return 1.0
    """,
}


@pytest.mark.parametrize("kind", list(WAITS_FOR_THE_OTHER))
def test_a_grader_that_waits_does_not_hold_other_rollouts(module: Callable[[str], str], kind: str) -> None:
    """The answer that is graded first waits for the one that is graded last."""
    name = module(textwrap.dedent(WAITS_FOR_THE_OTHER[kind]))
    path = write_jsonl(Path("data.jsonl"), ROWS)
    task = build(path, grader=f"{name}:grade", grader_threads=kind == "blocks")
    example = task.examples("train")[0]

    async def play() -> list[Feedback]:
        async def say(text: str) -> str:
            return text

        rollouts = [task.rollout(example, {}, lambda ask, text=text: say(text)) for text in ("wait", "go")]
        return await asyncio.wait_for(asyncio.gather(*rollouts), 60)

    assert asyncio.run(play()) == [Feedback(1.0), Feedback(1.0)]


@pytest.mark.parametrize(
    "score", ["np.all(1 == 1)", "np.array(1.0)", "np.float16(1)", "Decimal(1)", "(np.bool_(1), 'Good.')"]
)
def test_a_single_value_of_a_library_is_a_score(module: Callable[[str], str], score: str) -> None:
    """A grader may return `0.0` for an empty answer, and `np.all(…)` for the right one."""
    name = module(f"import numpy as np\nfrom decimal import Decimal\ndef grade(answer, example):\n    return {score}\n")
    task = build(write_jsonl(Path("data.jsonl"), ROWS), grader=f"{name}:grade")
    assert repr(task.grade(task.examples("train")[0], "").score) == "1.0"


@pytest.mark.parametrize("body", ["return 2", "return {}['key']"])
def test_an_async_grader_that_fails_says_how(module: Callable[[str], str], body: str) -> None:
    name = module(f"async def grade(answer, example):\n    {body}\n")
    task = build(write_jsonl(Path("data.jsonl"), ROWS), grader=f"{name}:grade")
    with pytest.raises(GraderError, match=rf"grader '{name}:grade' (returned the score 2;|raised KeyError: 'key')"):
        scripted_rollout(task, task.examples("train")[0], [""])


def test_a_grader_that_changes_its_row_does_not_change_the_problem(module: Callable[[str], str]) -> None:
    name = module("def grade(answer, example):\n    return float(example.pop('answer') == answer)\n")
    task = build(write_jsonl(Path("data.jsonl"), ROWS), grader=f"{name}:grade")
    example = task.examples("train")[0]
    assert [task.grade(example, example.data["answer"]).score for _ in range(2)] == [1, 1]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("return float('nan')", "returned the score nan; expected a number from 0 to 1"),
        ("import decimal; return decimal.Decimal('sNaN')", r"returned the score Decimal\('sNaN'\); expected"),
        ("import numpy; return numpy.complex64(0.5 + 1j)", r"returned .*0\.5\+1j.*; expected a score"),
        ("return 1.5", "returned the score 1.5; expected a number from 0 to 1"),
        ("return 1.0000023", "returned the score 1.0000023; expected a number from 0 to 1"),
        ("return -0.25, ''", "returned the score -0.25; expected a number from 0 to 1"),
        ("return 10**400", "returned the score 1000.*; expected a number from 0 to 1"),
        ("return 'good'", r"returned 'good'; expected a score, a \(score, text\) tuple or a Feedback"),
        ("return 1.0, None", r"returned \(1.0, None\); expected a score"),
        ("return {}['key']", "raised KeyError: 'key'"),
    ],
)
def test_a_grader_that_fails_says_how(module: Callable[[str], str], body: str, message: str) -> None:
    name = module(f"def grade(answer, example):\n    {body}\n")
    task = build(write_jsonl(Path("data.jsonl"), ROWS), grader=f"{name}:grade")
    with pytest.raises(GraderError, match=f"grader '{name}:grade' {message}"):
        task.grade(task.examples("train")[0], "")


def test_graders_that_cannot_be_found_are_refused_when_the_task_is_built(
    module: Callable[[str], str], data: str
) -> None:
    good = module("THRESHOLD = 3\n")
    broken = module("1 / 0\n")
    needy = module("import no_such_library\n")
    for grader, message in {
        good: "is not MODULE:NAME",
        f":{good}": "is not MODULE:NAME",
        "no_such_module:grade": "there is no module 'no_such_module' in .*, beside the recipe or installed",
        f"{good}.inner:grade": f"there is no module '{good}.inner'|is not a package",
        f"{good}:grade": f"{good}.py has no 'grade'; define it there",
        f"{good}:THRESHOLD": f"grader '{good}:THRESHOLD' is of type int; expected a function",
        f"{broken}:grade": f"importing '{broken}' failed with ZeroDivisionError",
        f"{needy}:grade": f"module '{needy}' needs 'no_such_library'",
    }.items():
        with pytest.raises(TaskError, match=message):
            build(data, grader=grader)


@pytest.mark.usefixtures("module")
def test_a_file_in_the_current_folder_does_not_replace_a_library(data: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    Path("colorsys.py").write_text("def grade(answer, example):\n    return 1.0\n")
    with pytest.raises(TaskError, match="has no 'grade'"):
        build(data, grader="colorsys:grade")


# Rows as Python objects ------------------------------------------------------------------------------------------------


def test_rows_in_memory_are_the_task_that_a_file_of_them_is(data: str) -> None:
    ours, theirs = RowsTask(ROWS), build(data)
    for split in SPLITS:
        assert list(ours.examples(split)) == list(theirs.examples(split))
    example = ours.examples("train")[0]
    assert ours.messages(example) == theirs.messages(example)
    assert ours.grade(example, "no") == theirs.grade(example, "no")
    assert fastslow.RowsTask is RowsTask


@pytest.mark.parametrize("kind", [list, tuple, iter, pandas.DataFrame, datasets.Dataset.from_list])
def test_rows_come_as_a_list_a_dataset_or_a_frame(kind: Callable[[Any], Any]) -> None:
    task = RowsTask(kind(ROWS), lambda answer, row: (1.0, row["answer"]), validation=kind(ROWS[:2]), holdout=0)
    assert [example.data for example in task.examples("train")] == ROWS
    assert [example.data for example in task.examples("validation")] == ROWS[:2]
    assert not task.examples("test")
    played = scripted_rollout(task, task.examples("train")[3], ["x"])
    assert played.feedback == Feedback(1.0, "6")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"rows": "rows.jsonl"}, "rows is of type str; expected a list of dicts, a datasets.Dataset or a DataFrame"),
        ({"rows": {"a": 1}}, "rows is of type dict; expected a list"),
        ({"rows": [1]}, "rows row 1 is of type int; expected a dict"),
        ({"rows": []}, "rows is empty; expected at least one problem"),
        ({"rows": ROWS, "test": [{"question": "?"}]}, "'test' row 1 has no column 'answer'"),
        ({"rows": [{"text": "?"}]}, "'rows' row 1 has no column 'question', which the task's question names"),
        ({"rows": ROWS, "grader": "grading:grade"}, "grader is of type str; expected a function"),
    ],
)
def test_wrong_rows_are_refused(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(TaskError) as refused:
        RowsTask(**arguments)
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ({"holdout": 2}, "holdout=2: Input should be less than 0.5"),
        ({"holdout": True}, "holdout=True: .*"),
        ({"system": 5}, "system=5: Input should be a valid string"),
    ],
)
def test_wrong_options_of_rows_are_refused_in_one_line(option: dict[str, Any], words: str) -> None:
    with pytest.raises(TaskError, match=rf"^{words}$"):
        RowsTask([{"question": str(number), "answer": "a"} for number in range(9)], **option)


def test_a_grader_in_memory_is_blamed_by_name() -> None:
    def strict(answer: str, row: dict[str, Any]) -> float:
        raise LookupError("no such thing")

    task = RowsTask(ROWS, strict)
    with pytest.raises(GraderError, match="grader 'strict' raised LookupError: no such thing"):
        task.grade(task.examples("train")[0], "x")
