"""Physics: four options in an order of their own, a letter in tags, and form told apart from substance."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastslow.base.errors import TaskError
from fastslow.tasks.base import Example, Feedback, Split
from fastslow.tasks.families import physics
from fastslow.tasks.families.physics import LETTERS, Physics, PhysicsOptions

SPLITS: tuple[Split, ...] = ("train", "validation", "test")


def row(question: str = "Which unit is force measured in?", key: str = "B", **more: Any) -> dict[str, Any]:
    texts = ["joule", "newton", "watt", "pascal"]
    return {"question": question, "choices": {"text": texts, "label": list("ABCD")}, "answerKey": key, **more}


def build(folder: Path, rows: list[dict[str, Any]], **options: Any) -> Physics:
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(each) + "\n" for each in rows))
    return Physics(PhysicsOptions(path=str(path), **{"holdout": 0, **options}))


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> Physics:
    return build(tmp_path_factory.mktemp("physics"), [row()])


def grade(folder: Path, answer: str, **options: Any) -> tuple[Feedback, str, str]:
    """The feedback on an answer in which R stands for the right letter and W for a wrong one."""
    task = build(folder, [row()], **options)
    (example,) = task.examples("train")
    right = example.data["right"]
    wrong = LETTERS[(LETTERS.index(right) + 1) % 4]
    return task.grade(example, answer.replace("R", right).replace("W", wrong)), right, wrong


@pytest.mark.parametrize(
    ("answer", "score"),
    [
        ("<answer>R</answer>", 1),
        ("<answer> R </answer>", 1),
        ("<answer>\nR\n</answer>", 1),
        ("because … <answer>R</answer> is it", 1),
        ("<Answer>R</Answer>", 1),
        ("<answer>W</answer> no: <answer>R</answer>", 1),
        ("<answer>R</answer> no: <answer>W</answer>", 0),
        ("<answer>W</answer>", 0),
        ("<answer>R</answer><answer>", 0),
        ("<answer>R", 0),
        ("R</answer>", 0),
        ("R", 0),
        ("The answer is R.", 0),
        (r"\boxed{R}", 0),
        ("<answer></answer>", 0),
        ("<answer>  </answer>", 0),
        ("<answer>E</answer>", 0),
        ("<answer>1</answer>", 0),
        ("<answer>R.</answer>", 0),
        ("<answer>(R)</answer>", 0),
        ("<answer>R. newton</answer>", 0),
        ("<answer>newton</answer>", 0),
        ("<answer>R, W</answer>", 0),
        ("<answer>RR</answer>", 0),
        ("<answer>R or W</answer>", 0),
        ("<answer>Option R</answer>", 0),
        ("<answer>ABCD</answer>", 0),
        ("<answer>AB</answer>", 0),
        ("<answer>a1</answer>", 0),
        ("<answer><answer>R</answer></answer>", 0),
        ("", 0),
    ],
)
def test_only_the_right_letter_in_tags_scores(tmp_path: Path, answer: str, score: float) -> None:
    assert grade(tmp_path, answer)[0].score == score


@pytest.mark.parametrize(
    ("answer", "fact", "advice"),
    [
        ("It is R.", "there are no <answer> tags", physics.WRITE_TAGS),
        ("<answer>R", "never closed", physics.CLOSE_TAGS),
        ("<answer>W</answer> or <answer>R", "never closed", physics.CLOSE_TAGS),
        ("<answer> </answer>", "are empty", physics.WRITE_TAGS),
        ("<answer>newton</answer>", "'newton' between the tags", physics.ONLY_THE_LETTER),
        ("<answer>E</answer>", "'E' between the tags", physics.ONLY_THE_LETTER),
    ],
)
def test_a_fault_of_form_is_called_one(tmp_path: Path, answer: str, fact: str, advice: str) -> None:
    first, *rest = grade(tmp_path, answer)[0].text.split("\n")
    assert first.startswith("The form is wrong: ")
    assert fact in first
    assert "Which unit" in first
    assert rest == [advice]


def test_a_fault_of_substance_is_another_thing(tmp_path: Path) -> None:
    feedback, right, wrong = grade(tmp_path, "<answer>W</answer>")
    first, *rest = feedback.text.split("\n")
    assert first.startswith(f"The form is right, but {wrong} ('")
    assert rest == [physics.REASON_FIRST, physics.RULE_OUT]
    assert "newton" not in feedback.text
    shown, *_ = grade(tmp_path, "<answer>W</answer>", feedback="reference")
    assert shown.text == f"{feedback.text}\nThe right option is {right} ('newton')."


@settings(max_examples=100, deadline=None)
@given(texts=st.lists(st.text(min_size=1).filter(str.strip), min_size=4, max_size=4), right=st.sampled_from(LETTERS))
def test_the_right_letter_always_scores_one(task: Physics, texts: list[str], right: str) -> None:
    example = Example("x", {"question": "Which?", "options": texts, "right": right})
    scores = {letter: task.grade(example, f"So <answer>{letter}</answer>.").score for letter in LETTERS}
    assert scores == {letter: float(letter == right) for letter in LETTERS}


@settings(max_examples=100, deadline=None)
@given(
    answer=st.sampled_from(LETTERS).map("<answer>{}</answer>".format)
    | st.text(max_size=30)
    | st.lists(st.sampled_from(["<answer>", "</answer>", "A", "B", "C", "D", " "])).map("".join)
)
def test_feedback_on_a_wrong_answer_is_the_same_whichever_other_option_is_right(task: Physics, answer: str) -> None:
    """So nothing of the right option can be in it."""
    examples = [Example("x", {"question": "Which?", "options": [*"pqrs"], "right": letter}) for letter in LETTERS]
    wrong = {feedback.text for feedback in (task.grade(example, answer) for example in examples) if feedback.score == 0}
    assert len(wrong) == 1


def test_options_are_shuffled_the_same_way_every_time(tmp_path: Path) -> None:
    rows = [row(f"Question {number}?") for number in range(200)]
    task = build(tmp_path, rows)
    places = Counter(example.data["right"] for example in task.examples("train"))
    assert set(places) == set(LETTERS)
    assert min(places.values()) > 30
    for example in task.examples("train"):
        assert sorted(example.data["options"]) == ["joule", "newton", "pascal", "watt"]
        assert example.data["options"][LETTERS.index(example.data["right"])] == "newton"
    shuffled = {example.id: example.data for example in build(tmp_path, rows[::-1]).examples("train")}
    assert shuffled == {example.id: example.data for example in task.examples("train")}
    other = {example.id: example.data for example in build(tmp_path, rows, seed=1).examples("train")}
    assert other.keys() == shuffled.keys()
    assert other != shuffled


@pytest.mark.parametrize("last", ["All of the above", "Both A and B", "None of these", "A, or C"])
def test_options_that_speak_of_each_other_keep_their_order(tmp_path: Path, last: str) -> None:
    texts = ["one", "two", "three", last]
    rows = [row(f"Question {n}?", choices={"text": texts, "label": list("ABCD")}) for n in range(10)]
    for example in build(tmp_path, rows).examples("train"):
        assert example.data["options"] == texts
        assert example.data["right"] == "B"


def test_the_question_is_shown_with_its_options(tmp_path: Path) -> None:
    task = build(tmp_path, [row()])
    (example,) = task.examples("train")
    ((question),) = task.messages(example)
    a, b, c, d = example.data["options"]
    assert f"Which unit is force measured in?\n\nA. {a}\nB. {b}\nC. {c}\nD. {d}\n\n" in question["content"]


def test_only_the_questions_asked_for_are_kept(tmp_path: Path) -> None:
    rows = [
        row("p1", domain="Physics", type="mcq-4-choices", details={"level": "L1"}),
        row("p3", domain="Physics", type="mcq-4-choices", details={"level": "L3"}),
        row("c", domain="Chemistry", type="mcq-4-choices", details={"level": "L3"}),
        {
            "question": "t",
            "domain": "Physics",
            "type": "true_or_false",
            "answer": "True",
            "choices": None,
            "answerKey": "",
        },
    ]

    def questions(**options: Any) -> list[str]:
        return [example.data["question"] for example in build(tmp_path, rows, **options).examples("train")]

    assert questions() == ["p1", "p3"]
    assert questions(levels=["L3"]) == ["p3"]
    assert questions(domain=None) == ["p1", "p3", "c"]
    assert questions(domain="Chemistry") == ["c"]
    with pytest.raises(TaskError, match="domain 'Biology' and levels any; its domains are: Chemistry, Physics"):
        questions(domain="Biology")


def test_a_question_that_comes_twice_is_never_in_two_splits(tmp_path: Path) -> None:
    rows = [row(f"Question {number}?") for number in range(20)]
    again = [row(f"question  {number}?", key="A") for number in range(20)]
    task = build(tmp_path, rows + again, holdout=0.2)
    found = [{" ".join(e.data["question"].casefold().split()) for e in task.examples(split)} for split in SPLITS]
    assert [len(each) for each in found] == [12, 4, 4]
    assert len(set.union(*found)) == 20


def test_choices_may_be_a_list_of_options(tmp_path: Path) -> None:
    listed = [{"label": label, "text": text} for label, text in zip("1234", ["a", "b", "c", "d"], strict=True)]
    (example,) = build(tmp_path, [row(choices=listed, key="3")]).examples("train")
    assert example.data["options"][LETTERS.index(example.data["right"])] == "c"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"choices": None}, "row 1 has no value in column 'choices'"),
        ({"choices": "a, b"}, "has 0 options; expected 4"),
        ({"choices": {"text": ["a", "b"], "label": ["A", "B"]}}, "'Which unit .*' has 2 options; expected 4"),
        ({"choices": {"text": ["a", "b", "c", "a"], "label": list("ABCD")}}, "has the same option twice"),
        ({"answerKey": "E"}, "has the answerKey 'E', which is none of its labels A, B, C, D; correct or remove it"),
        ({"question": None}, "row 1 has no value in column 'question'"),
    ],
)
def test_bad_data_is_explained(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    with pytest.raises(TaskError, match=message):
        build(tmp_path, [{**row(), **change}])


def test_sciknoweval_is_the_default() -> None:
    options = PhysicsOptions()
    assert (options.path, options.subset, options.train_split) == ("hicai-zju/SciKnowEval", "v2", "test")
    assert PhysicsOptions(path="mine.jsonl").subset is None
