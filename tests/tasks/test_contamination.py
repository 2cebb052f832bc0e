"""Rows, tasks and stages whose splits share a problem are refused before a run starts."""

import json
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any

import pytest

from fastslow.base.errors import TaskError
from fastslow.recipe import build_recipe
from fastslow.tasks.base import Ask, Example, Feedback, Message, Options, QuestionTask, Split, Task
from fastslow.tasks.registry import build_task
from fastslow.tasks.stages import refuse_contamination

SPLITS: tuple[Split, ...] = ("train", "validation", "test")
ENCYCLOPEDIA = Path(__file__).parent / "encyclopedia.jsonl"


def write(folder: Path, name: str, rows: list[dict[str, Any]]) -> str:
    (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(folder / name)


def check(*tasks: Any, stages: bool = False) -> None:
    chosen = {"stages": [{**task, "steps": 1} for task in tasks]} if stages else {"task": list(tasks)}
    refuse_contamination(build_task(build_recipe({"model": "nano", **chosen})))


def sums(*numbers: int, **more: Any) -> list[dict[str, Any]]:
    return [{"question": f"{n} + {n}?", "answer": str(2 * n), **more} for n in numbers]


@pytest.mark.parametrize("split", ["validation", "test"])
def test_a_training_problem_in_another_file_is_refused(tmp_path: Path, split: str) -> None:
    path = write(tmp_path, "train.jsonl", sums(1, 2, 3, 4, 5, 6, source="book"))
    other = write(tmp_path, "other.jsonl", sums(9, 3, 1, source="web"))  # another row, the same question
    with pytest.raises(TaskError) as caught:
        check({"name": "dataset", "path": path, f"{split}_path": other, "holdout": 0})
    message = str(caught.value)
    assert message.startswith("training problem '")
    assert f"shows the model the same as {split} problem '" in message
    assert "('1 + 1?'); so do 1 more: what is trained on cannot be measured on; take these problems out" in message
    assert "\n" not in message
    check({"name": "dataset", "path": path, f"{split}_path": write(tmp_path, "new.jsonl", sums(7, 8)), "holdout": 0})


def test_what_is_shown_counts_and_not_the_id_or_the_columns(tmp_path: Path) -> None:
    train = write(tmp_path, "train.jsonl", [{"id": 1, "question": "2 + 2?", "hint": "count", "answer": "4"}])
    same_id = write(tmp_path, "ids.jsonl", [{"id": 1, "question": "3 + 3?", "hint": "count", "answer": "6"}])
    same_question = write(tmp_path, "same.jsonl", [{"id": 2, "question": "2 + 2?", "hint": "think", "answer": "four"}])
    rows = {"name": "dataset", "path": train, "holdout": 0, "id": "id"}
    check({**rows, "validation_path": same_id})
    check({**rows, "validation_path": same_question, "prompt": "{question} ({hint})"})
    with pytest.raises(TaskError, match="training problem '1' shows the model the same as validation problem '2'"):
        check({**rows, "validation_path": same_question})


def test_rows_that_ask_the_same_are_held_out_together_however_they_differ(tmp_path: Path) -> None:
    rows = [{"id": f"{n}-{copy}", "question": f"{n}?", "answer": str(copy)} for n in range(20) for copy in range(3)]
    path = write(tmp_path, "rows.jsonl", rows)
    for options in ({}, {"id": "id"}):
        task = {"name": "dataset", "path": path, "holdout": 0.2, **options}
        check(task)
        built = build_task(build_recipe({"model": "nano", "task": task}))
        assert [len(built.examples(split)) for split in SPLITS] == [36, 12, 12]


def test_mathematics(tmp_path: Path) -> None:
    pytest.importorskip("math_verify")
    train = write(tmp_path, "train.jsonl", [{"question": "What is 2 + 2? ", "answer": "#### 4"}])
    validation = write(tmp_path, "validation.jsonl", [{"question": "What is 2 + 2?", "answer": r"\boxed{4}"}])
    with pytest.raises(TaskError, match="shows the model the same as validation problem"):
        check({"name": "math", "path": train, "validation_path": validation, "holdout": 0})
    padded = [{"question": f"{n}?" + " " * copy, "answer": "1"} for n in range(20) for copy in range(3)]
    check({"name": "math", "path": write(tmp_path, "padded.jsonl", padded), "holdout": 0.2})


def test_physics(tmp_path: Path) -> None:
    def row(texts: list[str]) -> dict[str, Any]:
        return {"question": "Which?", "choices": {"text": texts, "label": list("ABCD")}, "answerKey": "A"}

    train = write(tmp_path, "train.jsonl", [row(["a", "b", "c", "d"])])
    turned = write(tmp_path, "turned.jsonl", [row(["a", "d", "c", "b"])])  # shown in one order whatever the file's
    with pytest.raises(TaskError, match="shows the model the same as test problem"):
        check({"name": "physics", "path": train, "test_path": turned, "holdout": 0})
    check(
        {"name": "physics", "path": train, "test_path": write(tmp_path, "e.jsonl", [row([*"abce"])]), "holdout": 0},
    )


@pytest.mark.usefixtures("cache")
def test_hover(tmp_path: Path) -> None:
    pytest.importorskip("bm25s")

    def claim(uid: str, text: str) -> dict[str, Any]:
        return {"uid": uid, "claim": text, "supporting_facts": [["Ossel", 0], ["Ferrin", 0], ["Dunmere", 0]]}

    train = write(tmp_path, "train.jsonl", [claim("1", "Ossel is near Ferrin.")])
    other = write(tmp_path, "other.jsonl", [claim("2", "Ossel is near Ferrin.")])
    pages = {"name": "hover", "path": train, "passages_path": str(ENCYCLOPEDIA)}
    with pytest.raises(TaskError, match="training problem '1' shows the model the same as validation problem '2'"):
        check({**pages, "validation_path": other, "holdout": 0})
    copies = [claim(f"{n}-{copy}", f"Claim {n} of Ossel.") for n in range(20) for copy in range(3)]
    check({**pages, "path": write(tmp_path, "copies.jsonl", copies), "holdout": 0.2})


@pytest.mark.usefixtures("cache")
def test_codeio(tmp_path: Path) -> None:
    calls = [
        {
            "code_sample": f"def main_solution(n): return n + {f}",
            "input": {"n": n},
            "output": n + f,
            "task_description": text,
        }
        for f in range(10)
        for n in range(3)
        for text in ("One.", "Two.")
    ]
    check({"name": "codeio", "path": write(tmp_path, "calls.jsonl", calls), "holdout": 0.2})


@pytest.mark.parametrize("stages", [False, True])
def test_one_task_must_not_train_on_what_another_measures(tmp_path: Path, stages: bool) -> None:
    first = write(tmp_path, "first.jsonl", sums(1, 2))
    second = write(tmp_path, "second.jsonl", sums(3, 4))
    held = write(tmp_path, "held.jsonl", sums(3, 9))
    tasks = [
        {"name": "dataset", "path": first, "validation_path": held, "holdout": 0},
        {"name": "dataset", "path": second, "holdout": 0},
    ]
    check(tasks[0])
    check(tasks[1])
    with pytest.raises(
        TaskError,
        match=r"training problem '\w+' of 'dataset-2' shows .* validation problem '\w+' of 'dataset' \('3 \+ 3\?'\)",
    ):
        check(*tasks, stages=stages)
    check(tasks[1], {"name": "star-graph", "degree": 3, "path": 3, "nodes": 20}, stages=stages)


class Hangman(Task):
    """A game: all problems begin alike."""

    def __init__(self) -> None:
        super().__init__(Options())

    @property
    def seed_texts(self) -> Mapping[str, str]:
        return {"system": "Play."}

    def examples(self, split: Split) -> list[Example]:
        return [Example(f"{split}-{word}", {"word": word}) for word in ("cat", "dog")]

    def play(self, example: Example) -> Generator[Ask, str, Feedback]:
        guess = yield Ask("system", [{"role": "user", "content": "Guess my word."}])
        return Feedback(float(guess == example.data["word"]))


class SameQuestions(QuestionTask):
    def examples(self, split: Split) -> tuple[Example, ...]:
        return (Example(f"{split}-1", {}),)

    def messages(self, example: Example) -> list[Message]:
        return [{"role": "user", "content": "Who?"}]

    def grade(self, example: Example, answer: str) -> Feedback:
        return Feedback(0.0)


def test_tasks_made_in_python_are_compared_where_their_question_tells_problems_apart() -> None:
    refuse_contamination(Hangman())
    with pytest.raises(TaskError, match=r"'train-1' shows the model the same as test problem 'test-1' \('Who\?'\)"):
        refuse_contamination(SameQuestions(Options()))
