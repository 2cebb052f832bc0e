from __future__ import annotations

from typing import Any

import pytest
from fake_engine import FakeEngine

from fastslow.base.errors import RecipeError
from fastslow.fast.reflection import LanguageModelReflector, Lessons, LiteLLMChat, LocalChat
from fastslow.fast.reflection.chats import PolicyChat
from fastslow.models import load
from fastslow.models.chat import ChatFormat
from fastslow.recipe import build_recipe
from fastslow.recipe.parts import REFLECTOR


def built(reflection: Any) -> Any:
    recipe = build_recipe({"model": "nano", "task": "rulebook", "fast": {"reflection": reflection}})
    engine = FakeEngine()
    chat = ChatFormat(engine.tokenizer)
    return REFLECTOR.registry.find(recipe.fast.reflection.kind).build(recipe, engine, chat)


def test_lessons_is_the_default() -> None:
    assert isinstance(built({}), Lessons)


def test_litellm_gets_the_recipes_settings() -> None:
    settings = {
        "model": "openai/x", "base_url": "http://here", "temperature": 0.5, "max_tokens": 9, "timeout": 3.0, "retries": 1
    }  # fmt: skip
    reflector = built({"kind": "litellm", **settings})
    assert isinstance(reflector, LanguageModelReflector)
    assert isinstance(reflector.chat, LiteLLMChat)
    assert vars(reflector.chat) == {**settings, "first_pause": 1.0}


def test_local_loads_the_named_model(tiny: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    names: list[str] = []

    def load_to_ask(name: str, device: str) -> tuple[Any, Any]:
        names.append(name)
        return tiny

    monkeypatch.setattr(load, "load_to_ask", load_to_ask)
    reflector = built({"kind": "local", "model": "a/b", "max_tokens": 9})
    assert isinstance(reflector, LanguageModelReflector)
    assert isinstance(reflector.chat, LocalChat)
    assert (names, reflector.chat.max_tokens, reflector.chat.model) == (["a/b"], 9, tiny[0])


def test_policy_asks_the_policy() -> None:
    reflector = built({"kind": "policy", "temperature": 0, "max_tokens": 7})
    assert isinstance(reflector, LanguageModelReflector)
    assert isinstance(reflector.chat, PolicyChat)
    assert isinstance(reflector.chat.engine, FakeEngine)
    assert (reflector.chat.sampling.temperature, reflector.chat.sampling.max_tokens) == (1e-3, 7)
    assert reflector.collective


def test_what_a_reflection_model_is_sent_has_bounds() -> None:
    model = {"kind": "litellm", "model": "openai/x", "base_url": "http://here"}
    least = {"temperature": 0.0, "max_tokens": 1, "timeout": 0.5, "retries": 0}
    assert {**vars(built({**model, **least}).chat), **least} == vars(built({**model, **least}).chat)
    for setting, value in {"temperature": -0.5, "max_tokens": 0, "timeout": 0, "retries": -1, "model": ""}.items():
        with pytest.raises(RecipeError, match=setting):
            built({**model, setting: value})
    with pytest.raises(RecipeError, match="would end up in the run folder"):
        built({**model, "base_url": "http://someone:secret@here"})


def test_who_has_a_model_of_its_own() -> None:
    kinds = {name: REFLECTOR.registry.find(name).own_model for name in ("lessons", "policy", "litellm", "local")}
    assert kinds == {"lessons": False, "policy": False, "litellm": True, "local": True}
