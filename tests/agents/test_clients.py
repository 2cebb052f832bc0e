"""Unmodified clients, each trained for two steps. `make test-agents` sets up their environment and runs this."""

from __future__ import annotations

import itertools
import json
import os
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from fake_engine import FakeEngine
from fake_runs import make_loop, recipe_of
from gateway_helpers import TOOLS, make_tokenizer

from fastslow.records import Completion, Rollout
from fastslow.tasks.adapters.agent import AgentOptions, AgentTask

PYTHON = os.environ.get("FASTSLOW_AGENTS_PYTHON")
pytestmark = pytest.mark.skipif(not PYTHON, reason="`make test-agents` sets up the clients and runs this")
PROGRAMS = Path(__file__).parent / "programs.py"
TURNS = {
    **dict.fromkeys(("openai", "openai-async", "anthropic", "litellm", "openai-agents"), 2),
    **dict.fromkeys(("langgraph", "pydantic-ai", "mini-swe-agent", "smolagents"), 2),
    "dspy": 1,
}
"""Answers that each client needs."""
REWRITES = ("smolagents",)
"""Clients that show the model its earlier answers in other words: each of their requests begins a branch."""


def call(name: str, **arguments: str) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


class Policy(FakeEngine):
    """Uses tools in the way that an agent expects, and is right every other time."""

    def __init__(self) -> None:
        super().__init__()
        self.tokenizer: Any = make_tokenizer(TOOLS)
        self.places = itertools.cycle(("sea", "lake"))

    def _completion(self, text: str, draw: random.Random) -> Completion:
        place = next(self.places)
        if "[[ ## answer ## ]]" in text:
            said = f"[[ ## reasoning ## ]]\nhm\n\n[[ ## answer ## ]]\n{place}\n\n[[ ## completed ## ]]"
        elif "COMPLETE_TASK" in text:
            submitted = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT; echo"
            said = call("bash", command=f"{submitted} {place}" if "<tool_response>" in text else "echo cat")
        elif "final_answer" in text and "the cat is at the" in text:  # smolagents ends when this tool is called
            said = call("final_answer", answer=place)
        elif "<tool_response>" not in text:
            said = f"I look. {call('look', at=place)}"
        else:
            said = f"at the {place}"
        ids = self.tokenizer(said, add_special_tokens=False)["input_ids"]
        return Completion((*ids, self.tokenizer.eos_token_id), (-0.5,) * (len(ids) + 1))


@pytest.mark.parametrize("name", TURNS)
def test_a_client_is_trained_for_two_steps(name: str, tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"question": "where is the cat?"}\n')
    options = AgentOptions(
        path=str(tmp_path / "rows.jsonl"),
        holdout=0,
        command=f"{PYTHON} {PROGRAMS} {name}",
        components={"system": "look first"},
        at_once=2,
    )
    sizes = {"steps": 2, "problems": 1, "group": 2, "microbatch": 2}
    recipe = recipe_of("rl", slow=sizes, evaluation={"every": 0}, sampling={"max_tokens": 500})
    loop = make_loop(tmp_path / "run", recipe, Policy(), task=AgentTask(options))
    rollouts: list[Rollout] = []
    loop.player.faulty.count = rollouts.extend  # type: ignore[method-assign,assignment]
    assert loop.record.run is not None
    with loop.record.run:
        loop.run()
    assert [(each.faults, each.error) for each in rollouts] == [({}, "")] * 4
    assert {rollout.score for rollout in rollouts} == {0.0, 1.0}
    for rollout in rollouts:
        assert len(rollout.turns) == TURNS[name]
        assert "look first" in loop.engine.tokenizer.decode(list(rollout.turns[0].prompt_ids))
        for before, after in zip(rollout.turns, rollout.turns[1:], strict=False):
            extends = _begins(after.prompt_ids, [*before.prompt_ids, *before.completion.ids])
            assert extends == (name not in REWRITES)
    updates = [what for kind, what in loop.engine.events if kind == "update"]  # type: ignore[attr-defined]
    assert len(updates) == 2
    assert all(update.rows for update in updates)


def _begins(ids: Sequence[int], kept: Sequence[int]) -> bool:
    return list(ids[: len(kept)]) == list(kept)
