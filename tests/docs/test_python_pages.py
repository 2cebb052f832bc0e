"""What the pages about Python, TRL, gepa and DSPy show is run: code, both sides of the diffs, recipes and commands.

Only sizes are changed: the model is a tiny one, the reflection needs no model, and every run is a single small step. Of the
left side of a diff, which calls models behind an API, the imports are executed and the arguments of library calls checked.
"""

from __future__ import annotations

import ast
import inspect
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dspy
import pytest
import torch  # noqa: F401  before the fixture that tries models once
import yaml
from dspy_programs import Bare
from helpers import ROOT

from fastslow.commands.app import main
from fastslow.integrations import dspy_optimizer
from fastslow.launch import start
from fastslow.launch.results import Run
from fastslow.recipe import Recipe, load_recipe, make_recipe
from fastslow.tasks import Task
from fastslow.tasks.registry import check_options

SMALL: dict[str, Any] = {
    "slow": {"steps": 1, "problems": 2, "group": 2, "microbatch": 4, "learning_rate": 1e-4},
    "fast": {"population": 2, "cycle": 1, "anchors": 2, "budget": 6},
    "sampling": {"max_tokens": 8},
    "evaluation": {"problems": 2, "k": 1},
}
MODEL, REFLECTION = "Qwen/Qwen2.5-1.5B-Instruct", "openai/gpt-5.2"
FILES = {
    "recipe.yaml": f"model: {MODEL}\ntask: rulebook\n",
    "problems.jsonl": '{"prompt": "zorka : a b"}\n{"prompt": "zorka : b c"}\n{"prompt": "zorka : d e"}\n',
    "my_rewards.py": """
dataset = [{"prompt": f"zorka : {a} {b}"} for a in "abc" for b in "xyz"]
def accuracy(completions, **kwargs):
    return [2.0 * ("a" in completion) for completion in completions]
def form(completions, **kwargs):
    return [float(len(completion) > 4) for completion in completions]
""",
    "my_problems.py": """
rows = [{"input": f"zorka : {a} {b}", "additional_context": {}, "answer": f"{b} {a}"} for a in "abc" for b in "xyz"]
trainset, valset = rows[:6], rows[6:]
def evaluator(data, response):
    from gepa.adapters.default_adapter.default_adapter import EvaluationResult
    return EvaluationResult(float(response.strip() == data["answer"]), "zorka means : write the list backwards.")
""",
    "my_program.py": """
import dspy
class Program(dspy.Module):
    def __init__(self):
        super().__init__()
        self.answer = dspy.Predict("question -> answer")
    def forward(self, question):
        return self.answer(question=question)
def metric(gold, pred, trace=None, pred_name=None, pred_trace=None):
    right = pred.answer == gold.answer
    return dspy.Prediction(score=float(right), feedback="zorka means : write the list backwards.")
rows = [dspy.Example(question=f"zorka : {a} {b}", answer=f"{b} {a}").with_inputs("question") for a in "abc" for b in "xyz"]
trainset, valset = rows[:6], rows[6:]
""",
}
"""What the pages take as given."""
PAGES = ("python.md", "trl.md", "gepa.md", "dspy.md")


def blocks(page: str) -> list[tuple[str, str]]:
    """The fenced blocks of a page: language and text."""
    text = (ROOT / "docs" / page).read_text()
    return re.findall(r"^```(\w+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def sides(diff: str) -> tuple[str, str]:
    """The two sides of a diff."""
    lines = [line if line[:1] in ("-", "+", " ") else f" {line}" for line in diff.splitlines()]
    assert {line[:1] for line in lines} == {"-", "+", " "}
    before, after = ([line[1:] for line in lines if line[0] in kinds] for kinds in ("- ", "+ "))
    return "\n".join(before), "\n".join(after)


def check_calls(code: str) -> int:
    """Execute the imports of a script, and check that what it calls of them takes these arguments; returns how many."""
    tree, names, checked = ast.parse(code), dict[str, Any](), 0
    imports = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    exec(compile(ast.Module(imports, []), "<imports>", "exec"), names)
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        first = next((node.id for node in ast.walk(call.func) if isinstance(node, ast.Name)), "")
        if first in names:
            called = eval(compile(ast.Expression(call.func), "<call>", "eval"), names)
            keywords = {keyword.arg: None for keyword in call.keywords if keyword.arg}
            inspect.signature(called).bind(*[None] * len(call.args), **keywords)
            checked += 1
    return checked


@pytest.fixture
def _small_world(tmp_path: Path, tiny_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A folder with the reader's files, in which every run is small."""
    train = start.train

    def small(recipe: Recipe, folder: Path, view: Any = None, *, task: Task | None = None) -> Path:
        assert recipe.model.name in (MODEL, "smollm2")
        changed = make_recipe({**SMALL, "model": {"name": str(tiny_folder), "device": "cpu"}}, recipe)
        return train(changed, folder, view, task=task)

    for module in (start, dspy_optimizer):
        monkeypatch.setattr(module, "train", small)
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # importing litellm needs no network
    monkeypatch.syspath_prepend(str(tmp_path))
    with dspy.context(adapter=Bare(), lm=None):
        yield
    for name in FILES:
        sys.modules.pop(name.removesuffix(".py"), None)


@pytest.mark.usefixtures("_small_world")
@pytest.mark.parametrize("page", PAGES)
def test_what_a_page_shows_is_run(page: str, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {"__name__": "__main__"}
    found = blocks(page)
    for kind, text in found:
        code = text.replace(REFLECTION, "lessons")
        if kind == "yaml":
            check_recipe(code)
        elif kind == "bash":
            run_commands(code)
        else:
            assert kind in ("python", "diff"), f"{page} has a block of {kind}"
            if kind == "diff":
                before, code = sides(code)
                assert check_calls(before)
            exec(compile(code, f"<docs/{page}>", "exec"), names)
    assert {"trl.md": "yaml", "python.md": "bash"}.get(page, "diff") in {kind for kind, _ in found}
    assert isinstance(names["run"], Run)
    assert names["run"].status == "finished"
    assert names["run"].best_prompts
    if page in ("gepa.md", "dspy.md"):  # the proposer alone, with a stub for a hosted model
        text = (
            names["result"].best_candidate["system_prompt"]
            if page == "gepa.md"
            else names["better"].signature.instructions
        )
        assert all(f"a {topic} goes to {desk}." in text for topic, desk in names["DESKS"].items())
        assert names["proposer"].report()
    capsys.readouterr()


def check_recipe(text: str) -> None:
    Path("shown.yaml").write_text("model: nano\n" + text)
    loaded = load_recipe("shown.yaml")
    check_options(loaded)
    assert set(yaml.safe_load(text)) <= set(Recipe.model_fields)


def run_commands(text: str) -> None:
    for line in text.splitlines():
        program, *arguments = shlex.split(line.partition(">")[0], comments=True)
        assert program == "fastslow"
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        assert not ended.value.code


@pytest.mark.parametrize("page", PAGES)
def test_the_links_of_a_page_lead_somewhere(page: str) -> None:
    text = (ROOT / "docs" / page).read_text()
    for target in re.findall(r"\]\(([^)#\s]+)", text):
        assert target.startswith("http") or (ROOT / "docs" / target).exists(), target
