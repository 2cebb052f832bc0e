"""The agent of examples/agent-tools: what its desk accepts, says and scores, and a whole episode through its tools."""

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from helpers import ROOT

from fastslow import load_recipe
from fastslow.fast.digest.reading import read_feedback
from fastslow.tasks.registry import build_task

FOLDER = ROOT / "examples" / "agent-tools"
ORDER = {"question": "Order 754: 5 kg of soap to Madrid.", "number": 754, "kilograms": 5, "city": "Madrid"}
ORDER |= {"box": "E", "price": 36, "fragile": True}
RIGHT: list[tuple[str, dict[str, Any]]] = [
    ("open", {"order": 754}),
    ("weigh", {"weight": 5000}),
    ("quote", {"place": "MADRID", "box": "E"}),
    ("book", {"box": "E", "price": 36, "handling": "care"}),
    ("close", {"order": 754}),
]


@pytest.fixture(scope="module")
def desk() -> ModuleType:
    spec = importlib.util.spec_from_file_location("desk_tools", FOLDER / "desk.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def played(desk: ModuleType, calls: list[tuple[str, dict[str, Any]]]) -> tuple[float, str]:
    at = desk.Desk(ORDER)
    for name, arguments in calls:
        at.do(name, arguments)
    return desk.grade(at)


def test_the_score_is_the_share_of_the_steps_that_were_done(desk: ModuleType) -> None:
    for done in range(5):
        assert played(desk, RIGHT[:done])[0] == done / 5
    assert played(desk, RIGHT) == (1.0, "Right.")


def test_what_was_refused_is_told_with_the_calls_of_the_next_steps(desk: ModuleType) -> None:
    score, words = played(desk, [RIGHT[0], ("weigh", {"weight": 5})])
    assert score == 0.2
    assert '{"name": "weigh", "arguments": {"weight": 5}}</tool_call>\' was refused; it wanted' in words
    assert "No tool was called" in played(desk, [("", {})])[1]
    assert '"handling": "care"' in played(desk, RIGHT[:3])[1]


def test_digest_reads_each_rule_with_its_call_whole(desk: ModuleType) -> None:
    words = played(desk, [("", {})])[1]
    parts = [part.text for line in read_feedback("system", words, "no", "") for part in line]
    assert '<tool_call>{"name": "weigh", "arguments": {"weight": 4000}}</tool_call>' in parts


def test_an_episode_calls_one_tool_a_turn(desk: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([None, *RIGHT])
    shown: list[list[dict[str, Any]]] = []

    def ask(base_url: str, api_key: str, messages: list[dict[str, Any]]) -> dict[str, Any]:
        shown.append(list(messages))
        call = next(answers)
        if call is None:
            return {"role": "assistant", "content": "Hello."}
        function = {"name": call[0], "arguments": json.dumps(call[1])}
        return {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "function": function}]}

    monkeypatch.setattr(desk, "ask", ask)
    assert desk.solve(ORDER, "http://localhost", "key") == (1.0, "Right.")
    assert shown[1][-1] == {"role": "user", "content": "Refused. This is step 1."}
    assert shown[2][-1]["role"] == "tool"
    assert shown[2][-1]["content"] == "Order 754 is open. Next is step 2."


def test_the_recipe_finds_its_agent_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    task = build_task(load_recipe(FOLDER / "recipe.yaml"))
    assert sum(len(task.examples(split)) for split in ("train", "validation", "test")) == 600
    assert set(task.seed_texts) == {"system"}
