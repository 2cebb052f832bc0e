"""What the tests of the fast optimizers share: which there are, proposers that can be watched, and landscapes."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Mapping

import pytest

from fastslow.fast.optimizers.lines import GENERIC
from fastslow.fast.reflection import LanguageModelReflector, Lessons, Reply, TextRequest
from fastslow.recipe.parts import OPTIMIZER
from fastslow.tasks import Example

OTHERS = [name for name in OPTIMIZER.registry.built_in if name not in ("gepa", "digest")]
"""Those that score every context they keep on all anchors; `digest` does not, and has tests of its own."""
SCALAR_ONLY = ["ape", "opro", "evoprompt", "promptbreeder", "mipro"]
READERS = ["textgrad", "reflexion", "ace", "dspy-gepa"]
OWN = [name for name in OTHERS if name not in ("mipro", "dspy-gepa")]

needs_optuna = pytest.mark.skipif(importlib.util.find_spec("optuna") is None, reason="MIPROv2 needs optuna")


def each(*names: str) -> pytest.MarkDecorator:
    """Once for every optimizer."""
    marked = [pytest.param(name, marks=needs_optuna if name == "mipro" else ()) for name in names]
    return pytest.mark.parametrize("optimizer", marked)


class Watched(Lessons):
    """Proposing by hand, with everything written down that a model would have been shown, and what came of it."""

    def __init__(self) -> None:
        super().__init__()
        self.requests: list[tuple[TextRequest, str]] = []

    def write(self, request: TextRequest, seed: int) -> str:
        written = super().write(request, seed)
        self.requests.append((request, written))
        return written


class Script:
    """A chat that has something new to say to every optimizer, in the form it is asked for."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    def __call__(self, messages: list[dict[str, str]], seed: int) -> Reply:
        heard = "\n".join(message["content"] for message in messages)
        self.heard.append(heard)
        text = f"Idea {len(self.heard)}."
        if "new_instruction" in heard:  # dspy.GEPA, in JSON
            return Reply(f'{{"new_instruction": "{text}"}}')
        if "[[ ##" in heard:  # DSPy's own form
            fields = ("observations", "summary", "proposed_instruction")
            return Reply("\n".join(f"[[ ## {name} ## ]]\n{text}" for name in fields if f"[[ ## {name}" in heard))
        verb = "ADD: " if "one line for each change" in heard else ""
        return Reply(f"```\n{verb}{text}\n```")


def scripted() -> tuple[LanguageModelReflector, Script]:
    chat = Script()
    return LanguageModelReflector(chat), chat


HINT = re.compile(r"rule \d")
"""What the feedback says in the tests' world, and nothing else does."""


def half(texts: Mapping[str, str], example: Example) -> float:
    """Half of the problems are solved under any text; at the others it gets better with every word, but never right."""
    words = sum(len(text.split()) for text in texts.values())
    return 1.0 if int(example.id.split("-")[1]) % 2 else min(0.9, 0.02 * words)


def advice(texts: Mapping[str, str], example: Example) -> float:
    """The more lines of generic advice the better, up to four."""
    return min(4, len(set(GENERIC) & set(texts["system"].splitlines()))) / 4


def without_chaff(texts: Mapping[str, str], example: Example) -> float:
    """A good line for each kind of problem, and every bad line costs a third."""
    lines = texts["system"].splitlines()
    right = float(example.data["hint"] in lines)
    return right * max(0.0, 1 - sum(line.startswith("bad") for line in lines) / 3)
