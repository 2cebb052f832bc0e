"""How long the families' graders take: seconds for so many answers, half of them right and half wrong.

    python benchmarks/grading.py [--answers 10000] [FAMILY …]

Answers go through `Task.play`, as in a run. Each family has a few hundred problems, which come again and again with other
answers; a first answer is given before the clock starts, so that helper processes and indexes are there.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hover_index import write_passages

from fastslow.tasks.base import Example, Feedback, Task
from fastslow.tasks.registry import task_class

PROBLEMS = 200
PASSAGES = 20_000


@dataclass(frozen=True)
class Case:
    """A family under some options, with answers to its problems: a right one, and a wrong one for a number."""

    family: str
    options: Callable[[Path], dict[str, Any]]
    right: Callable[[Task, Example], str]
    wrong: Callable[[Example, int], str]


def rows(folder: Path, make: Callable[[int], dict[str, Any]]) -> dict[str, Any]:
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(make(number)) + "\n" for number in range(PROBLEMS)))
    return {"path": str(path), "holdout": 0}


def choices(number: int) -> dict[str, Any]:
    texts = [f"{number + place} joule" for place in range(4)]
    return {"question": f"How much is {number}?", "choices": {"text": texts, "label": [*"ABCD"]}, "answerKey": "B"}


def root(number: int) -> dict[str, Any]:
    top = 2 * number + 1
    return {"question": f"{number}?", "answer": rf"\frac{{{top}}}{{2}}\sqrt{{3}}", "top": top}


def call(number: int) -> dict[str, Any]:
    result = {"values": list(range(number % 20)), "name": f"n{number}", "mean": number / 7}
    return {"code_sample": f"def main_solution(n):\n    return f{number}(n)", "input": {"n": number}, "output": result}


def claims(folder: Path) -> dict[str, Any]:
    titles = write_passages(folder / "passages.jsonl", PASSAGES)
    draw = random.Random(0)

    def claim(number: int) -> dict[str, Any]:
        return {
            "claim": f"Claim {number} w{number:x}.",
            "supporting_facts": [[title, 0] for title in draw.sample(titles, 3)],
        }

    return {**rows(folder, claim), "passages_path": str(folder / "passages.jsonl")}


def reward(folder: Path) -> dict[str, Any]:
    (folder / "reward.py").write_text(
        "def right(completions, answer, **kwargs):\n"
        "    return [float(given == expected) for given, expected in zip(completions, answer)]\n"
    )
    given = rows(folder, lambda n: {"prompt": f"What is {n} + {n}?", "answer": str(2 * n)})
    return {**given, "rewards": [f"{folder / 'reward.py'}:right"]}


def block(value: Any) -> str:
    return f"```json\n{json.dumps(value)}\n```"


CASES = {
    "star-graph": Case(
        "star-graph",
        lambda folder: {},
        lambda task, example: rf"\boxed{{{', '.join(map(str, example.data['path']))}}}",
        lambda example, number: rf"\boxed{{{example.data['source']}, {number}}}",
    ),
    "rulebook": Case(
        "rulebook",
        lambda folder: {"styles": 3},
        lambda task, example: task.answer(example),  # type: ignore[attr-defined]
        lambda example, number: f"[ {' - '.join(example.data['items'])} ] {number % 10}",
    ),
    "codeio": Case(
        "codeio",
        lambda folder: rows(folder, call),
        lambda task, example: block(example.data["output"]),
        lambda example, number: block({**example.data["output"], "name": f"n{number}!"}),
    ),
    "math, whole numbers": Case(
        "math",
        lambda folder: rows(folder, lambda n: {"question": f"{n}?", "answer": str(7 * n)}),
        lambda task, example: rf"\boxed{{{example.data['answer']}}}",
        lambda example, number: rf"\boxed{{{number}1}}",
    ),
    "math, expressions": Case(
        "math",
        lambda folder: rows(folder, root),
        lambda task, example: rf"\boxed{{\frac{{{2 * example.data['top']}}}{{4}}\sqrt{{3}}}}",
        lambda example, number: rf"\boxed{{\frac{{{number}}}{{4}}}}",
    ),
    "hover": Case(
        "hover",
        claims,
        lambda task, example: f"```\n{' '.join(example.data['pages'])}\n```",
        lambda example, number: f"```\n{example.data['pages'][0]} w{number:x}\n```",
    ),
    "physics": Case(
        "physics",
        lambda folder: rows(folder, choices),
        lambda task, example: f"<answer>{example.data['right']}</answer>",
        lambda example, number: (
            f"<answer>{'ABCD'[('ABCD'.index(example.data['right']) + 1 + number % 3) % 4]}</answer>"
        ),
    ),
    "dataset": Case(
        "dataset",
        lambda folder: rows(folder, lambda n: {"question": f"What is {n} + {n}?", "answer": str(2 * n)}),
        lambda task, example: example.data["answer"],
        lambda example, number: f"It is {number}!",
    ),
    "code": Case(
        "code",
        lambda folder: rows(folder, lambda n: {"question": f"Add {n}.", "tests": [f"assert add({n}, 2) == {n + 2}"]}),
        lambda task, example: "```python\ndef add(a, b):\n    return a + b\n```",
        lambda example, number: f"```python\ndef add(a, b):\n    return a - b - {number}\n```",
    ),
    "trl": Case(
        "trl",
        reward,
        lambda task, example: example.data["answer"],
        lambda example, number: f"It is {number}!",
    ),
    "reasoning-gym": Case(
        "reasoning-gym",
        lambda folder: {"generator": "letter_counting", "train": PROBLEMS},
        lambda task, example: f"<answer>{example.data['answer']}</answer>",
        lambda example, number: f"<answer>{number}</answer>",
    ),
}


def grade(task: Task, example: Example, answer: str) -> Feedback:
    game = task.play(example)
    next(game)
    try:
        game.send(answer)
    except StopIteration as finished:
        return finished.value  # type: ignore[no-any-return]
    raise AssertionError("the task asks for more")


def measure(case: Case, answers: int, folder: Path) -> tuple[float, float]:
    """Seconds, and the mean score, which says that right answers were right and wrong ones wrong."""
    chosen = task_class(case.family)
    task = chosen(chosen.Options.model_validate(case.options(folder)))
    examples = list(task.examples("train")[:PROBLEMS])
    pairs = [(example, case.right(task, example)) for example in examples]
    asked = [
        (example, case.wrong(example, number) if number % 2 else right)
        for number in range(answers)
        for example, right in [pairs[number // 2 % len(pairs)]]
    ]
    grade(task, *asked[0])
    started = time.perf_counter()
    scores = [grade(task, example, answer).score for example, answer in asked]
    return time.perf_counter() - started, sum(scores) / len(scores)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--answers", type=int, default=10_000)
    parser.add_argument("families", nargs="*", choices=[*CASES, []], metavar="FAMILY")
    options = parser.parse_args()
    print(f"{options.answers:,} answers, {len(os.sched_getaffinity(0))} cores")
    with tempfile.TemporaryDirectory() as work:
        os.environ["XDG_CACHE_HOME"] = f"{work}/cache"
        for number, name in enumerate(options.families or CASES):
            folder = Path(work) / str(number)
            folder.mkdir()
            seconds, score = measure(CASES[name], options.answers, folder)
            each = 1e6 * seconds / options.answers
            print(f"{name:20} {seconds:8.2f} s  {each:8.0f} µs each  mean score {score:.2f}", flush=True)


if __name__ == "__main__":
    main()
