"""examples/harness on nano, with a reflection model that follows a script: train, resume, board, export, serve."""

from __future__ import annotations

import json
import socket
import threading
from pathlib import Path
from runpy import run_path
from typing import Any

import httpx
import pytest
from helpers import ROOT

import fastslow
from fastslow.base.errors import RunError
from fastslow.fast.reflection import LocalChat
from fastslow.launch import start
from fastslow.launch.assembly import open_policy, open_snapshot
from fastslow.launch.harness import Harness, load_harness
from fastslow.launch.serve import serve_run, session_of
from fastslow.models.load import load_to_ask
from fastslow.recipe import load_recipe
from fastslow.runs.board.page import write_snapshot
from fastslow.runs.board.views import Views
from fastslow.runs.folder import RunFolder
from fastslow.runs.trust import code_of
from fastslow.tasks.harness import HARNESS

RECIPE = ROOT / "examples" / "harness" / "recipe.yaml"
BETTER = """\
def solve(problem, ask, tools):
    words, _, items = problem["question"].partition(" : ")
    for word in words.split(" then "):
        rule = tools.look_up(word)
        items = ask([{"role": "system", "content": rule}, {"role": "user", "content": f"{word} : {items}"}])
    return items"""
SCRIPTED = f'''
from fastslow.fast.reflection import LanguageModelReflector, Reply
from fastslow.fast.reflection.kinds import ReflectorKind


class Scripted(ReflectorKind):
    """Writes the better code when it is asked for code, and adds a sentence to a prompt."""

    @classmethod
    def build(cls, recipe, engine, chat):
        return LanguageModelReflector(cls.answer)

    @staticmethod
    def answer(messages, seed):
        if "A Python program calls a language model" in messages[0]["content"]:
            return Reply("```python\\n" + {BETTER!r} + "\\n```", 9, 9)
        return Reply(f"```\\nAnswer the question with {{seed % 9}} letters.\\n```", 9, 9)
'''
FEW: dict[str, int | str] = {
    "slow.problems": 2,
    "slow.microbatch": 8,
    "slow.warmup_steps": 0,
    "fast.anchors": 4,
    "fast.budget": 24,
}
FEW |= {"fast.minibatch": 4, "evaluation.problems": 8, "evaluation.every": 1, "output.save_rollouts": "true"}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of one step that was resumed for a second."""
    folder = tmp_path_factory.mktemp("harness")
    (folder / "scripted.py").write_text(SCRIPTED)
    chosen = [
        *(f"{key}={value}" for key, value in FEW.items()),
        f"fast.reflection={folder / 'scripted.py'}:Scripted",
        "seed=1",
    ]
    run = start.train(load_recipe(RECIPE, [*chosen, "slow.steps=1"]), folder / "run")
    return start.resume(run, overrides=["slow.steps=2"])


def test_better_code_is_found_and_the_policy_needs_it(trained: Path) -> None:
    run = RunFolder.open(trained)
    results = [row["results"] for row in run.rows("evals")]
    assert results[0]["seed"]["mean"] < 0.3
    assert results[-1]["best context"]["mean"] > 0.6
    assert open_snapshot(trained).pool.best.context.texts[HARNESS] == BETTER
    assert len(run.rows("metrics")) == 2
    assert any((row["grad_norm"] or 0) > 0 for row in run.rows("metrics"))
    assert set(code_of(run.recipe)) >= {f"task.code={ROOT / 'examples/harness/harness.py'}"}


def test_the_board_shows_the_code(trained: Path, tmp_path: Path) -> None:
    assert write_snapshot(Views([trained]), tmp_path / "board.html") == 1
    page = (tmp_path / "board.html").read_text()
    assert "rule = tools.look_up(word)" in page


@pytest.fixture(scope="module")
def exported(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fastslow.export_run(trained, tmp_path_factory.mktemp("exported") / "model")


def test_an_exported_harness_solves_problems_with_the_exported_policy(trained: Path, exported: Path) -> None:
    text = (exported / "harness.py").read_text()
    assert text.startswith("# The harness of a fastslow run: component 'harness' of context ")
    assert text.endswith(f"{BETTER}\n")
    assert "`fastslow.load_harness` runs" in (exported / "README.md").read_text()
    model, tokenizer = load_to_ask(str(exported), "cpu")
    chat = LocalChat(model, tokenizer, 0.1, 12)
    tools = {"look_up": run_path(str(RECIPE.parent / "tools.py"))["look_up"]}
    harness, seen = load_harness(exported), []

    def ask(messages: list[Any]) -> str:
        seen.append(messages[0]["content"])
        return chat(list(messages), 1).text

    rows = [json.loads(line) for line in (ROOT / "examples/harness/problems.jsonl").read_text().splitlines()[:12]]
    answers = [harness.solve({"question": row["question"]}, ask, tools) for row in rows]
    assert sum(answer == row["answer"] for answer, row in zip(answers, rows, strict=True)) >= 8
    prompt = open_snapshot(trained).pool.best.context.texts["system"]
    assert seen[0].startswith(f"{prompt}\n\n")
    assert " means : " in seen[0]


def test_a_changed_file_is_not_run(exported: Path, tmp_path: Path) -> None:
    for name in ("harness.py", "harness.json"):
        (tmp_path / name).write_text((exported / name).read_text())
    load_harness(tmp_path)
    with (tmp_path / "harness.py").open("a") as file:
        file.write("import os\n")
    with pytest.raises(RunError, match=r"harness.py' is not what was exported: its hash differs"):
        load_harness(tmp_path)
    (tmp_path / "harness.json").write_text('{"code": {}}')
    with pytest.raises(RunError, match="does not describe a harness"):
        load_harness(tmp_path)
    with pytest.raises(RunError, match=r"has no harness\.json"):
        load_harness(tmp_path / "nowhere")


def test_what_an_exported_harness_asks_wrongly_is_refused_to_it() -> None:
    asks = (
        "for name in ('no', [], {}, 1):\n  try: ask('x', component=name)\n  except RuntimeError: refused.append(name)"
    )
    code = "def solve(problem, ask, tools):\n refused = []\n " + asks.replace("\n", "\n ") + "\n return len(refused)"
    assert Harness(code, "solve(problem, ask, tools)", {"system": ""}).solve({}, lambda _: "x") == "4"


def test_the_harness_is_served_beside_the_policy(trained: Path) -> None:
    assert set(session_of(*open_policy(trained)).texts) == {"system"}
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        url, loaded = f"http://127.0.0.1:{listening.getsockname()[1]}", threading.Event()
        arguments = {"ready": lambda session: loaded.set()}
        threading.Thread(target=serve_run, args=(trained, listening, "right"), kwargs=arguments, daemon=True).start()
        assert loaded.wait(60)
        with httpx.Client(headers={"x-api-key": "right"}, timeout=60) as client:
            files = client.get(f"{url}/v1/harness").json()["files"]
            assert client.get(f"{url}/v1/harness", headers={"x-api-key": "no"}).status_code == 401
    assert BETTER in files["harness.py"]
    assert set(json.loads(files["harness.json"])["prompts"]) == {"system"}
