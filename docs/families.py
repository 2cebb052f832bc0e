"""Writes docs/tasks.md from the task families, with feedback that their graders really gave; with --check, says whether it
is up to date."""

from __future__ import annotations

import inspect
import json
import os
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import metadata
from pathlib import Path
from typing import Any

from fastslow.tasks.base import Feedback, Task
from fastslow.tasks.families.codeio import _shipped
from fastslow.tasks.families.formats.fields import FIELDS
from fastslow.tasks.registry import TASKS, task_class
from fastslow.tasks.scripted import scripted_rollout

TARGET = Path(__file__).parent / "tasks.md"
ENCYCLOPEDIA = Path(__file__).parents[1] / "tests" / "tasks" / "encyclopedia.jsonl"
LONGEST = 400
"""Characters of a question that are shown."""


@dataclass(frozen=True)
class Family:
    """What the table says of a family, and an answer to grade: under which options, and written how from the problem."""

    source: str
    data: str
    """The licence of the data."""
    sizes: str
    grader: str
    packages: tuple[str, ...] = ()
    """What it needs beside fastslow; their licences are those their metadata names."""
    options: Callable[[Path], dict[str, Any]] = lambda folder: {}
    answers: Callable[[Any], list[str]] | None = None
    """One for each question that is asked; none where the family cannot be shown everywhere."""


def rows(folder: Path, name: str, *items: dict[str, Any]) -> str:
    path = folder / name
    path.write_text("".join(json.dumps(item) + "\n" for item in items))
    return str(path)


def sizes(name: str) -> str:
    """Problems to train, validate and test on, where options say how many."""
    fields = task_class(name).Options.model_fields
    return " / ".join(f"{fields[split].default:,}" for split in ("train", "validation", "test"))


def of_rows(folder: Path, *items: dict[str, Any]) -> dict[str, Any]:
    return {"path": rows(folder, "rows.jsonl", *items), "holdout": 0}


HELD_OUT = "10% held out for validation, 10% for test"
CALL = {"code_sample": "def main_solution(n):\n    return {'half': n // 2}", "input": {"n": 7}, "output": {"half": 3}}
UNITS = {"text": ["joule", "newton", "watt", "pascal"], "label": ["A", "B", "C", "D"]}
DOUBLE = {
    "question": "Write a function `double` that doubles a number.",
    "tests": ["assert double(2) == 4", "assert double(5) == 10"],
}
CLAIM = {
    "claim": "The opera The Salt Clock was written by a pupil of the violist who led the Brindle Quartet.",
    "supporting_facts": [["The Salt Clock", 0], ["Ilse Marend", 0], ["Joren Pell", 0]],
}
REWARD = '''def right(completions, answer, **kwargs):
    """Count every letter, the capitals too."""
    return [float(completion == expected) for completion, expected in zip(completions, answer)]
'''


def trl_options(folder: Path) -> dict[str, Any]:
    (folder / "reward.py").write_text(REWARD)
    row = {"prompt": "How many letters has Ossel?", "answer": "5"}
    return {**of_rows(folder, row), "rewards": [f"{folder / 'reward.py'}:right"]}


FAMILIES: dict[str, Family] = {
    "star-graph": Family(
        source="generated",
        data="none needed",
        sizes=sizes("star-graph"),
        grader=r"the last `\boxed{}` holds exactly the path",
        options=lambda folder: {"degree": 3, "path": 4, "nodes": 20},
        answers=lambda data: [rf"\boxed{{{data['source']}, {data['goal']}}}"],
    ),
    "rulebook": Family(
        source="generated, for the embedded model nano",
        data="none needed",
        sizes=sizes("rulebook"),
        grader="the answer is exactly the right one, but for white space",
        answers=lambda data: [" ".join(data["items"])],
    ),
    "handbook": Family(
        source="generated: office policies of 5 to 40 rules, `handbook/NAME` with expenses, triage, access or shipping",
        data="none needed",
        sizes=sizes("handbook"),
        grader="the one option named in the last box or after the last `ANSWER:` is the one that the policy names",
        answers=lambda data: ["ANSWER: archive"],
    ),
    "formats": Family(
        source="generated: notes to be written as records, by 5 to 15 conventions of a house",
        data="none needed",
        sizes=sizes("formats"),
        grader="every field has exactly the expected value; the reward is the share of fields that do",
        answers=lambda data: [
            "\n".join(f"{name}: {FIELDS[name].write(value, {})}" for name, value in data["values"].items())
        ],
    ),
    "manual": Family(
        source="generated: small tables, requests, and query languages of eleven rules",
        data="none needed",
        sizes=sizes("manual"),
        grader="the expression, run by an interpreter of the family's own, gives what was asked for",
        answers=lambda data: ["@stock then filter(weight > 5)"],
    ),
    "codeio": Family(
        source=f"{len(_shipped()):,} functions that reasoning-gym ships, called once; or a file of yours",
        data="Apache-2.0, as reasoning-gym",
        sizes="up to 4 calls of each function; of the functions, " + HELD_OUT,
        grader="the last fenced block holds the result as JSON, by value and type; floats to nine digits",
        packages=("reasoning-gym",),
        options=lambda folder: of_rows(folder, CALL),
        answers=lambda data: ['```json\n{"half": 3.5}\n```'],
    ),
    "math": Family(
        source="GSM8K on the hub; or a file or dataset of yours (MATH, Polaris, …)",
        data="GSM8K: MIT",
        sizes="GSM8K: 7,473 to train on, of which 10% held out for validation; 1,319 to test",
        grader=r"the last `\boxed{}` is equal to the reference, by math-verify in a process of its own",
        packages=("math-verify",),
        options=lambda folder: of_rows(folder, {"question": "What is a third of 1?", "answer": r"\frac{1}{3}"}),
        answers=lambda data: [r"It is about \boxed{0.33}."],
    ),
    "hover": Family(
        source="HoVer's claims on the hub, or a file; the passages are a file of yours",
        data="HoVer: MIT; passages: yours",
        sizes="18,171 claims to train on, of which 10% held out for validation; 4,000 to test; only those of 3 and 4 hops",
        grader="BM25 over the passages finds every page the claim rests on, with the one query in the last fenced block",
        packages=("bm25s",),
        options=lambda folder: {
            **of_rows(folder, CLAIM),
            "passages_path": str(ENCYCLOPEDIA),
            "results": 2,
        },
        answers=lambda data: ["```\nDunmere shipyards\n```"],
    ),
    "physics": Family(
        source="SciKnowEval on the hub; or a file of yours in its form",
        data="SciKnowEval: MIT",
        sizes="the questions on physics that have four options; " + HELD_OUT,
        grader="the letter in the last `<answer>` tags is the right one",
        options=lambda folder: of_rows(
            folder, {"question": "Which unit is force measured in?", "choices": UNITS, "answerKey": "B"}
        ),
        answers=lambda data: [f"<answer>{'ABCD'[(data['options'].index('newton') + 1) % 4]}</answer>"],
    ),
    "dataset": Family(
        source="a file or hub dataset of yours",
        data="yours",
        sizes="yours; where you name no other rows, " + HELD_OUT,
        grader="a function of yours; without one, the answer equals the answer column",
        options=lambda folder: of_rows(folder, {"question": "What is the capital of Varrow?", "answer": "Brindle"}),
        answers=lambda data: ["It is Brindle."],
    ),
    "trl": Family(
        source="the dataset of a TRL GRPO script",
        data="yours",
        sizes="yours; where you name no other rows, " + HELD_OUT,
        grader="the script's reward functions, weighted as TRL weighs them",
        packages=("trl",),
        options=trl_options,
        answers=lambda data: ["four"],
    ),
    "discover": Family(
        source="one problem whose best solution is looked for, yours or an included one ([Discover](discover.md))",
        data="none needed",
        sizes="100,000 / 0 / 0, which show different candidates of one archive",
        grader="the problem's `evaluate`, and where the score stands among all so far",
        options=lambda folder: {"path": "differences"},
        answers=lambda data: ["a b c e g n"],
    ),
    "code": Family(
        source="MBPP on the hub; or a file or dataset of yours (HumanEval, calls, programs that read and print)",
        data="MBPP: CC-BY-4.0",
        sizes="MBPP: 374 / 90 / 500",
        grader="the code in the last fenced block passes every test, run in a sandbox",
        options=lambda folder: of_rows(folder, DOUBLE),
        answers=lambda data: ["```python\ndef double(n):\n    return n + 2\n```"],
    ),
    "reasoning-gym": Family(
        source="generated by one of reasoning-gym's generators, `reasoning-gym/NAME`, or a mix of them",
        data="Apache-2.0, as reasoning-gym",
        sizes=sizes("reasoning-gym"),
        grader="the generator's own, in a process of its own",
        packages=("reasoning-gym",),
        options=lambda folder: {"generator": "letter_counting"},
        answers=lambda data: ["<answer>many</answer>"],
    ),
    "agent": Family(
        source="your rows, and an agent that calls OpenAI's or Anthropic's interface ([page](agents.md))",
        data="yours",
        sizes=HELD_OUT,
        grader="the agent's result, a grader, or tests",
    ),
    "harness": Family(
        source="your rows, and code that asks the model and calls tools ([page](harness.md))",
        data="yours",
        sizes=HELD_OUT,
        grader="the answer equals a column, or a grader",
    ),
    "harbor": Family(
        source="Harbor task folders ([page](agents.md#harbor-tasks))",
        data="the tasks'",
        sizes="a folder for each split, or 10% held out for each",
        grader="the folder's tests",
    ),
    "openenv": Family(
        source="an OpenEnv server ([page](agents.md#environments))",
        data="the environment's",
        sizes=sizes("openenv"),
        grader="the rewards of the environment's steps",
    ),
    "trl-environment": Family(
        source="TRL's `environment_factory` and rows with a `prompt` column ([page](agents.md#environments))",
        data="yours",
        sizes=HELD_OUT,
        grader="`get_reward` and TRL's reward functions",
    ),
    "trl-script": Family(
        source="a script that trains on an environment with TRL ([page](agents.md#environments))",
        data="yours",
        sizes=HELD_OUT,
        grader="as in the task `trl-environment`",
    ),
    "verifiers": Family(
        source="an installed environment of the `verifiers` library, `verifiers/NAME`",
        data="the environment's",
        sizes="the environment's",
        grader="the environment's reward functions",
        packages=("verifiers",),
    ),
}


def code_licence(package: str) -> str:
    """A package's licence in its own metadata: the expression, else the classifier, else the field."""
    about = metadata(package)
    classifiers = [entry.rpartition(" :: ")[2] for entry in about.get_all("Classifier") or [] if "License ::" in entry]
    return f"{package}: {about['License-Expression'] or (classifiers or [about['License']])[0]}"


def graded(name: str, family: Family, folder: Path) -> tuple[str, str, Feedback]:
    """A question of a family, an answer to it, and the feedback it gets."""
    assert family.answers is not None
    folder.mkdir()
    chosen = task_class(name)
    task: Task = chosen(chosen.Options.model_validate(family.options(folder)))
    example = task.examples("train")[0]
    answers = family.answers(example.data)
    played = scripted_rollout(task, example, answers)
    assert played.feedback is not None, f"{name} asks for more"
    return played.asks[0].question, answers[-1], played.feedback


def section(name: str, family: Family, folder: Path) -> list[str]:
    lines = ["", f"## {name}", "", (inspect.getdoc(task_class(name)) or "").partition("\n")[0]]
    if family.answers is None:
        shown = f"{name}/NAME` shows one that is installed" if task_class(name).named else f"{name}` lists its options"
        return [*lines, f"`fastslow tasks {shown}."]
    question, answer, feedback = graded(name, family, folder / name)
    shown = question if len(question) <= LONGEST else question[:LONGEST] + " …"
    text = feedback.text.replace(str(folder), "…")
    blocks = {"": shown, "An answer to it:": answer, f"It scores {feedback.score:g}, with this feedback:": text}
    for title, content in blocks.items():
        lines += [*(["", title] if title else []), "", f"````text\n{content}\n````"]
    return lines


def page() -> str:
    if missing := [name for name in TASKS.built_in if name not in FAMILIES]:
        sys.exit(f"docs/families.py says nothing of {', '.join(missing)}; add an entry for each to FAMILIES")
    lines = [
        "# Task families",
        "",
        "Generated by `make docs`; the feedback is what the graders really say, on small data where a family's own is not at",
        "hand. `fastslow tasks NAME` lists the options of one. Sizes are training / validation / test problems under the",
        "defaults. No problem is in two splits: problems read from files are compared by what the model is shown when a run",
        "starts, and a shared one is an error; generators make every problem for one split only.",
        "",
        "The questions of star-graph, codeio and math say how the answer must be written. With `form_told: false` they do",
        "not: then only the grader knows, and a context has to find out.",
        "",
        "A rollout awaits its completions, tools and grader, and the other rollouts proceed meanwhile. A grader of your own",
        "(`dataset`, `trl`) may be `async def`. One that blocks, such as a judge behind a server, holds the others unless",
        "`grader_threads: true` calls it in threads; it must then be safe in threads.",
        "",
        "The code of all families is fastslow's, Apache-2.0; named below is what they need besides.",
        "",
        "| family | source | licence of the data | licence of further code | sizes | scores 1 when |",
        "|---|---|---|---|---|---|",
    ]
    families = {name: FAMILIES[name] for name in TASKS.built_in}
    for name, family in families.items():
        code = ", ".join(code_licence(package) for package in family.packages) or "–"
        lines.append(f"| `{name}` | {family.source} | {family.data} | {code} | {family.sizes} | {family.grader} |")
    with tempfile.TemporaryDirectory() as work:
        os.environ["XDG_CACHE_HOME"] = str(Path(work) / "cache")  # the user's own one is spared
        for name, family in families.items():
            lines += section(name, family, Path(work))
    return "\n".join(lines) + "\n"


def main() -> None:
    if sys.argv[1:] == ["--check"]:
        if not TARGET.exists() or TARGET.read_text() != page():
            sys.exit(f"{TARGET.name} does not match the task families; run `make docs`")
    else:
        TARGET.write_text(page())


if __name__ == "__main__":
    main()
