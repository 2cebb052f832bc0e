"""Mathematics: answers are found in three styles of data, verified symbolically, and every way to be wrong is told apart."""

import json
import threading
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastslow.base.errors import TaskError
from fastslow.tasks.base import Example, Feedback
from fastslow.tasks.families import mathematics
from fastslow.tasks.families.mathematics import Mathematics, MathematicsOptions

pytest.importorskip("math_verify")
SHARED = Path(__file__).parents[4] / "shared" / "data"
ADVICE = {value for name, value in vars(mathematics).items() if name.isupper() and isinstance(value, str)}


def write(path: Path, rows: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def build(path: Path, rows: list[dict[str, Any]], **options: Any) -> Mathematics:
    return Mathematics(MathematicsOptions(path=write(path / "rows.jsonl", rows), **{"holdout": 0, **options}))


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> Mathematics:
    return build(tmp_path_factory.mktemp("math"), [{"question": "What?", "answer": "1"}])


def grade(task: Mathematics, expected: str, answer: str) -> Feedback:
    return task.grade(Example("x", {"question": "What is it?", "answer": expected}), answer)


@pytest.mark.parametrize(
    ("expected", "box", "score"),
    [
        ("42", "42", 1),
        ("42", " 42 ", 1),
        ("42", "42.0", 1),
        ("42", r"\$42", 1),
        ("42", "+42", 1),
        ("42", "x = 42", 1),
        ("42", "43", 0),
        ("42", "-42", 0),
        ("42", "4.2", 0),
        ("42", "420", 0),
        ("42", "42 clips", 0),
        ("42", r"42 \text{ or } 43", 0),
        ("1,000", "1000", 1),
        ("1000", "1,000", 1),
        ("1000", "1.000", 0),
        (r"\frac{1}{3}", "1/3", 1),
        (r"\frac{1}{3}", r"\dfrac{2}{6}", 1),
        (r"\frac{1}{3}", "0.33", 0),
        (r"\frac{1}{3}", "3", 0),
        ("0.5", r"\frac12", 1),
        (r"2\sqrt{3}", r"\sqrt{12}", 1),
        (r"2\sqrt{3}", r"\sqrt{11}", 0),
        ("x^2+1", "1+x^2", 1),
        ("x^2+1", "(x+1)^2-2x", 1),
        ("x^2+1", "x^2-1", 0),
        (r"\{1,2\}", r"\{2,1\}", 1),
        (r"\{1,2\}", r"\{1,3\}", 0),
        ("(1,2)", "(2,1)", 0),
        ("[0,1)", "[0,1]", 0),
        (r"\pi", r"\pi", 1),
        (r"\text{Evelyn}", "Evelyn", 1),
        (r"\text{Evelyn}", "Bob", 0),
        (r"\begin{pmatrix}1\\2\end{pmatrix}", r"\begin{pmatrix}1\\2\end{pmatrix}", 1),
        (r"\begin{pmatrix}1\\2\end{pmatrix}", r"\begin{pmatrix}2\\1\end{pmatrix}", 0),
    ],
)
def test_answers_are_verified_by_value(task: Mathematics, expected: str, box: str, score: float) -> None:
    assert grade(task, expected, rf"So it is \boxed{{{box}}}.").score == score


@pytest.mark.parametrize(
    ("expected", "answer", "fact", "advice"),
    [
        ("7731", "It is 7731.", r"no \boxed{}", [mathematics.WRITE_A_BOX]),
        ("7731", r"\boxed{7731", "never closed", [mathematics.CLOSE_THE_BOX]),
        ("7731", r"\boxed{ }", "empty", [mathematics.WRITE_A_BOX]),
        ("7731", r"\boxed{\sqrt{}2}{}", "", None),
        ("7731", r"\boxed{5^}", "cannot be read", [mathematics.PLAIN_MATHEMATICS, mathematics.ONLY_THE_ANSWER]),
        ("7731", r"\boxed{5 apples}", "has words in it", [mathematics.ONLY_THE_ANSWER]),
        ("7731", r"\boxed{5\text{ cm}}", "has words in it", [mathematics.ONLY_THE_ANSWER]),
        ("7731", r"\boxed{\{1, 2\}}", "not of the kind", [mathematics.RIGHT_KIND]),
        ("7731", r"\boxed{x + 1}", "not of the kind", [mathematics.RIGHT_KIND]),
        (r"\frac{1}{3}", r"\boxed{0.33}", "rounded", [mathematics.EXACT_VALUE]),
        (r"\sqrt{2}", r"\boxed{1.41}", "rounded", [mathematics.EXACT_VALUE]),
        (r"\sqrt{2}", r"\boxed{1.3}", "not the right value", [mathematics.CHECK_STEPS]),
        ("7731", r"\boxed{7730}", "not the right value", [mathematics.CHECK_STEPS]),
        ("7731", r"\boxed{7730.99}", "not the right value", [mathematics.CHECK_STEPS]),
        ("7731", rf"\boxed{{{'1+' * 600}1}}", "too complicated", [mathematics.SIMPLIFY]),
    ],
)
def test_form_and_value_are_told_apart(
    task: Mathematics, expected: str, answer: str, fact: str, advice: list[str] | None
) -> None:
    feedback = grade(task, expected, answer)
    first, *rest = feedback.text.split("\n")
    assert feedback.score == 0
    assert fact in first
    assert "What is it?" in first  # a fact names its problem, so that it is not taken for a rule
    assert set(rest) <= ADVICE
    assert advice is None or rest == advice
    assert expected not in feedback.text
    assert feedback.progress == (0.0 if rest in ([mathematics.WRITE_A_BOX], [mathematics.CLOSE_THE_BOX]) else 0.5)


WRITINGS = {
    "plain": str,
    "spaced": " {} ".format,
    "dollars": "${}$".format,
    "equation": "x = {}".format,
    "braces": "{{{}}}".format,
}


@settings(max_examples=60, deadline=None)
@given(numerator=st.integers(-(10**6), 10**6), denominator=st.integers(1, 999), data=st.data())
def test_the_reference_scores_one_however_it_is_written(
    task: Mathematics, numerator: int, denominator: int, data: st.DataObject
) -> None:
    value = Fraction(numerator, denominator)
    sign, top = "-" if value < 0 else "", abs(value.numerator)
    bottom, factor = value.denominator, data.draw(st.integers(1, 9))
    whole = [str(value), f"{value.numerator}.0", f"{value.numerator:,}"]
    fraction = [
        f"{value}",
        rf"{sign}\frac{{{top}}}{{{bottom}}}",
        rf"{sign}\dfrac{{{top * factor}}}{{{bottom * factor}}}",
    ]
    forms = st.sampled_from(whole if bottom == 1 else fraction)
    write = WRITINGS[data.draw(st.sampled_from(sorted(WRITINGS)))]
    expected = data.draw(forms)
    for reference in (expected, f"Some working.\n#### {expected}", rf"Hence \boxed{{{expected}}}."):
        assert grade(task, reference, rf"\boxed{{{expected}}}").score == 1
    assert grade(task, expected, rf"So it is \boxed{{{write(data.draw(forms))}}}.").score == 1


@settings(max_examples=60, deadline=None)
@given(
    expected=st.integers(10**6, 10**9),
    answer=st.integers(0, 10**5).map(r"\boxed{{{}}}".format)
    | st.sampled_from(
        [r"\boxed{1/7}", r"\boxed{x}", r"\boxed{(1,2)}", r"\boxed{two}", r"\boxed{3.14}", r"\boxed{^}", ""]
    )
    | st.text(alphabet=r"\boxed{} 123x", max_size=20),
)
def test_feedback_never_holds_the_reference(task: Mathematics, expected: int, answer: str) -> None:
    feedback = grade(task, str(expected), answer)
    assert feedback.score == 0
    assert str(expected) not in feedback.text
    assert set(feedback.text.split("\n")[1:]) <= ADVICE


def test_an_answer_that_takes_forever_scores_zero_and_the_next_one_is_graded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mathematics, "SECONDS", 1.5)
    slow = build(tmp_path, [{"question": "?", "answer": "1"}])
    feedback = grade(slow, "9", r"\boxed{9^{9^{9^{9}}}}")
    assert feedback.score == 0
    assert "too complicated" in feedback.text
    assert grade(slow, r"\frac12", r"\boxed{0.5}").score == 1


def test_grading_works_outside_the_main_thread(task: Mathematics) -> None:
    scores: list[float] = []
    thread = threading.Thread(target=lambda: scores.append(grade(task, r"\frac12", r"\boxed{\frac{2}{4}}").score))
    thread.start()
    thread.join()
    assert scores == [1.0]


@pytest.mark.parametrize(
    ("column", "answer"),
    [
        ("Half of 144 is <<144/2=72>>72.\n#### 72", "72"),
        ("#### 1,234", "1,234"),
        (r"We get $x=\boxed{\frac{1}{2}}$.", r"\frac{1}{2}"),
        (r"First \boxed{1}, then \boxed{2}.", "2"),
        (r"so it is $\boxed 5$", "5"),
        ("17", "17"),
        (17, "17"),
        (0.5, "0.5"),
        (r"$\sqrt{2}$", r"\sqrt{2}"),
    ],
)
def test_the_answer_is_found_in_every_style_of_data(tmp_path: Path, column: Any, answer: str) -> None:
    task = build(tmp_path, [{"problem": "Q", "solution": column}], question="problem", answer="solution")
    (example,) = task.examples("train")
    assert task.grade(example, rf"\boxed{{{answer}}}").score == 1
    assert task.grade(example, r"\boxed{99999}").score == 0


def test_the_reference_solution_is_shown_only_when_asked_for(tmp_path: Path) -> None:
    row = {"question": "Q", "answer": "Two and two.\n#### 4", "working": "Count on your fingers."}
    example = Example("x", row)
    hidden, shown, other = (
        build(tmp_path, [row], **options).grade(example, r"\boxed{5}")
        for options in ({}, {"feedback": "reference"}, {"feedback": "reference", "solution": "working"})
    )
    assert "4" not in hidden.text
    assert shown.text == hidden.text + "\nReference solution: Two and two. #### 4"
    assert other.text == hidden.text + "\nReference solution: Count on your fingers."


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"problem": "Q", "answer": "1"}, "row 1 has no column 'question', .*set question to one of them"),
        ({"question": "Q", "answer": None}, "row 1 has no value in column 'answer'"),
        ({"question": "Q", "answer": "####"}, r"row 1: column 'answer' has no final answer \('####'\)"),
        ({"question": "Q", "answer": r"\boxed{1"}, "has no final answer"),
        ({"question": "Q", "answer": "We see that " * 30}, r"expected one after ####, in \\boxed\{\}, or nothing else"),
    ],
)
def test_bad_data_is_explained(tmp_path: Path, row: dict[str, Any], message: str) -> None:
    with pytest.raises(TaskError, match=message):
        build(tmp_path, [row])


def test_gsm8k_is_the_default_and_another_source_replaces_all_of_it() -> None:
    default = MathematicsOptions()
    assert (default.path, default.subset, default.test_split) == ("openai/gsm8k", "main", "test")
    other = MathematicsOptions(path="POLARIS-Project/Polaris-Dataset-53K", question="problem")
    assert (other.subset, other.test_split) == (None, None)
    mixed = MathematicsOptions(test_path="mine.jsonl")
    assert (mixed.subset, mixed.test_split, mixed.test_path) == ("main", None, "mine.jsonl")
    file = MathematicsOptions(path="train.jsonl", test_path="test.jsonl")
    assert (file.subset, file.test_split) == (None, None)


def test_the_question_is_shown_and_the_problem_is_named_by_it(tmp_path: Path) -> None:
    task = build(tmp_path, [{"question": "What? ", "answer": "1"}])
    (example,) = task.examples("train")
    assert task.messages(example) == [{"role": "user", "content": "What?\n\nWrite the final answer inside \\boxed{}."}]
    other = build(tmp_path, [{"question": "What? ", "answer": "1", "more": "column"}])
    assert other.examples("train")[0].id == example.id


def test_the_form_of_the_answer_can_be_left_to_the_grader_alone(tmp_path: Path) -> None:
    task = build(tmp_path, [{"question": "What? ", "answer": "1"}], form_told=False)
    (example,) = task.examples("train")
    assert task.messages(example) == [{"role": "user", "content": "What?"}]
    assert mathematics.WRITE_A_BOX in task.grade(example, "1").text


@pytest.mark.skipif(not (SHARED / "gsm8k_test.jsonl").exists(), reason="GSM8K is not at hand")
def test_every_answer_of_gsm8k_is_read_and_scores() -> None:
    task = Mathematics(MathematicsOptions(path=str(SHARED / "gsm8k_test.jsonl"), holdout=0))
    assert len(task.examples("train")) == 1319
    for example in task.examples("train"):
        answer = example.data["answer"].rpartition("####")[2].strip()
        assert task.grade(example, rf"\boxed{{{answer}}}").score == 1


def test_a_missing_package_is_one_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastslow.tasks.base.find_spec", lambda name: None)
    with pytest.raises(TaskError, match=r"task 'math' needs the package math-verify.*pip install 'fastslow\[tasks\]'"):
        build(tmp_path, [{"question": "Q", "answer": "1"}])
