from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from fastslow.fast.reflection import (
    REFLECTORS,
    LanguageModelReflector,
    Lessons,
    LiteLLMChat,
    LocalChat,
    Policy,
    build_reflector,
)
from fastslow.fast.reflection.chats import PolicyChat
from fastslow.recipe import ReflectionRecipe

POLICY = Policy(SimpleNamespace(name="engine"), SimpleNamespace(name="chat"), "cpu")  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def no_loading(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(name: str, device: str) -> tuple[Any, Any]:
        raise AssertionError(f"{name} was loaded")

    monkeypatch.setattr("fastslow.models.load.load_to_ask", load)


def test_every_kind_of_a_recipe_can_be_made() -> None:
    assert list(REFLECTORS) == ["lessons", "litellm", "local", "policy"]


def test_lessons_is_the_default() -> None:
    assert isinstance(build_reflector(ReflectionRecipe(), POLICY), Lessons)


def test_litellm_gets_the_recipes_settings() -> None:
    recipe = ReflectionRecipe(
        kind="litellm", model="openai/x", base_url="http://here", temperature=0.5, max_tokens=9, timeout=3.0, retries=1
    )
    reflector = build_reflector(recipe, POLICY)
    assert isinstance(reflector, LanguageModelReflector)
    assert isinstance(reflector.chat, LiteLLMChat)
    assert not reflector.collective
    assert vars(reflector.chat) == {**recipe.model_dump(exclude={"kind"}), "first_pause": 1.0}


def test_local_loads_the_named_model(tiny: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    names: list[tuple[str, str]] = []

    def load(name: str, device: str) -> tuple[Any, Any]:
        names.append((name, device))
        return tiny

    monkeypatch.setattr("fastslow.models.load.load_to_ask", load)
    reflector = build_reflector(ReflectionRecipe(kind="local", model="a/b", max_tokens=9), POLICY)
    assert isinstance(reflector, LanguageModelReflector)
    assert isinstance(reflector.chat, LocalChat)
    assert (names, reflector.chat.max_tokens, reflector.chat.model) == ([("a/b", "cpu")], 9, tiny[0])


def test_policy_asks_the_policy_on_all_processes_together() -> None:
    reflector = build_reflector(ReflectionRecipe(kind="policy", temperature=0, max_tokens=9), POLICY)
    assert isinstance(reflector, LanguageModelReflector)
    assert isinstance(reflector.chat, PolicyChat)
    assert (reflector.chat.engine, reflector.chat.chat) == (POLICY.engine, POLICY.chat)
    assert (reflector.chat.sampling.temperature, reflector.chat.sampling.max_tokens) == (1e-3, 9)
    assert reflector.collective
