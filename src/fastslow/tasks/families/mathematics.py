r"""Mathematics: solve a problem and write its answer inside \boxed{}, verified symbolically.

The rows may be GSM8K's (the answer after ####), MATH's (a solution with its answer in \boxed{}) or have the bare answer, as
Polaris does: `question` and `answer` name the columns.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

from fastslow.base.errors import TaskError
from fastslow.base.text import one_line
from fastslow.sandbox.process import Worker
from fastslow.tasks.base import Example, Feedback, Message, QuestionTask, require_package
from fastslow.tasks.data import Row, RowTask, SourceOptions, content_id, require_columns
from fastslow.tasks.reading import Reading, has_box, last_boxed

FORM = "\n\nWrite the final answer inside \\boxed{}."

# Advice that holds for every problem, each a whole sentence; what is true of one problem goes on lines of its own.
WRITE_A_BOX = r"Write the final answer inside \boxed{} at the end."
CLOSE_THE_BOX = r"Close \boxed{} right after the final answer."
ONLY_THE_ANSWER = r"Put nothing but the number or expression inside \boxed{}: no words, no units, no sentence."
PLAIN_MATHEMATICS = r"Write what stands inside \boxed{} as a plain number or as correct LaTeX."
RIGHT_KIND = "Give the kind of answer that is asked for: one number, an expression, an equation or a list of values."
EXACT_VALUE = "Give the exact value, as a fraction or with its roots, instead of a rounded decimal."
SIMPLIFY = "Work the final answer out to a short simple form before writing it."
CHECK_STEPS = "Solve the problem step by step and check each calculation before writing the final answer."

READING = Reading(
    last_boxed,
    has_box,
    missing=(r"There is no \boxed{} with the answer to '%s'.", WRITE_A_BOX),
    unclosed=(r"The last \boxed{ is never closed, so the answer to '%s' cannot be read.", CLOSE_THE_BOX),
    empty=(r"The last \boxed{} is empty instead of holding the answer to '%s'.", WRITE_A_BOX),
)
FAULTS: dict[str | None, tuple[str, ...]] = {
    "equal": ("",),
    "unreadable": ("cannot be read as mathematics", PLAIN_MATHEMATICS, ONLY_THE_ANSWER),
    "words": ("has words in it", ONLY_THE_ANSWER),
    "kind": ("is not of the kind that is asked for", RIGHT_KIND),
    "rounded": ("is a rounded value", EXACT_VALUE),
    "value": ("is not the right value", CHECK_STEPS),
    None: ("is too complicated to be checked", SIMPLIFY),
}
"""What can be wrong with the contents of a box: the fact, and the advice it calls for."""
SECONDS = 3.0
"""Time to compare two answers; ordinary ones take milliseconds."""
LONGEST_BARE_ANSWER = 200
"""Longer text without #### or a box is a solution, not an answer."""
LONGEST_BOX = 1000
"""A longer box is a model that repeats itself, and is not compared."""
_INTEGER = re.compile(r"[+-]?(?:[0-9]{1,18}|[0-9]{1,3}(?:,[0-9]{3}){1,5})")
_THOUSANDS = re.compile(r"(?<![\d,.])\d{1,3}(?:,\d{3})+(?![\d,])")


class MathematicsOptions(SourceOptions):
    hub: ClassVar[Mapping[str, str]] = {"path": "openai/gsm8k", "subset": "main", "test_split": "test"}

    path: str = hub["path"]
    """A `.jsonl`, `.json`, `.csv` or `.parquet` file, or the id of a dataset on the Hugging Face hub; GSM8K by default."""
    question: str = "question"
    """The column that holds the problem (`problem` in Polaris and MATH)."""
    answer: str = "answer"
    r"""The column that holds the answer: after `####`, else in the last \boxed{}, else all of it (`solution` in MATH)."""
    solution: str | None = None
    """The column with the reference solution for `feedback: reference`; by default the answer column as it stands."""
    form_told: bool = True
    """Whether the question says how the answer must be written. If not, only the grader does, and a context has to."""
    feedback: Literal["advice", "reference"] = "advice"
    """`reference` adds the reference solution to the feedback on wrong answers, and it can then appear in contexts."""


class Mathematics(RowTask, QuestionTask):
    r"""Solve a problem and write the answer inside \boxed{}: GSM8K, or any data of that kind."""

    Options = MathematicsOptions
    options: MathematicsOptions
    seed_text = "Solve the problem."
    grades_apart = True

    def __init__(self, options: MathematicsOptions) -> None:
        require_package("math", "math_verify", "math-verify")
        super().__init__(options)
        self._worker = Worker(Path(__file__).with_name("mathematics_worker.py"), SECONDS)

    def name(self, row: Row) -> str:
        # By the question alone, so that another column in the file does not make it another problem.
        return content_id(str(row[self.options.question]))

    def key(self, row: Row) -> str:
        return content_id(str(row[self.options.question]).strip())

    def messages(self, example: Example) -> list[Message]:
        problem = str(example.data[self.options.question]).strip()
        return [{"role": "user", "content": problem + (FORM if self.options.form_told else "")}]

    def grade(self, example: Example, answer: str) -> Feedback:
        question = one_line(example.data[self.options.question], 60)
        given, faults = READING.read(answer, question)
        progress = 0.0 if faults else 0.5
        if not faults:
            verdict = self._verdict(_final_answer(example.data[self.options.answer]), given)
            fault, *advice = FAULTS[verdict]
            faults = [f"'{one_line(given, 100)}' in the box for '{question}' {fault}.", *advice] if fault else []
        if not faults:
            return Feedback(1.0, f"Correct: '{one_line(given, 100)}' answers '{question}'.")
        if self.options.feedback == "reference":
            solution = example.data[self.options.solution or self.options.answer]
            faults.append(f"Reference solution: {one_line(solution, 2000)}")
        return Feedback(0.0, "\n".join(faults), progress=progress)

    def _verdict(self, expected: str, given: str) -> str | None:
        if given.strip() == expected:
            return "equal"
        if _INTEGER.fullmatch(expected):
            # Where one number is asked for, commas between its thousands make no list.
            given = _THOUSANDS.sub(lambda number: number[0].replace(",", ""), given)
            if _INTEGER.fullmatch(given.strip()):  # the common case, without the other process
                return "equal" if int(given) == int(expected.replace(",", "")) else "value"
        if len(given) > LONGEST_BOX:
            return None
        return self._worker.ask({"expected": expected, "given": given}).value

    def prepared(self, source: str, rows: list[Row]) -> list[Row]:
        options = self.options
        columns = {options.question: "question", options.answer: "answer"}
        if options.solution:
            columns[options.solution] = "solution"
        require_columns(source, rows, columns)
        for number, row in enumerate(rows, 1):
            answer = _final_answer(row[options.answer])
            if not answer or len(answer) > LONGEST_BARE_ANSWER:
                raise TaskError(
                    f"'{source}' row {number}: column '{options.answer}' has no final answer "
                    f"('{one_line(row[options.answer], 80)}'); expected one after ####, in \\boxed{{}}, or nothing else"
                )
        return rows


def _final_answer(value: Any) -> str:
    r"""The answer in a reference: after the last ####, else in the last \boxed{}, else all there is."""
    text = str(value).strip()
    if "####" in text:
        return text.rpartition("####")[2].strip()
    if has_box(text):
        return (last_boxed(text) or "").strip()
    bare = re.findall(r"\\(?:boxed|fbox)\s*(\w+)", text)  # MATH has a few boxes without braces
    return bare[-1] if bare else text.removeprefix("$").removesuffix("$").strip()
