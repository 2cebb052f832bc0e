from __future__ import annotations

from typing import Any

import pytest

from fastslow.base.errors import ModelError
from fastslow.fast.reflection import LanguageModelReflector, Lessons, LiteLLMChat, LocalChat, build_reflector
from fastslow.recipe import ReflectionRecipe


def no_loading(name: str) -> tuple[Any, Any]:
    raise AssertionError(f"{name} was loaded")


def test_lessons_is_the_default() -> None:
    assert isinstance(build_reflector(ReflectionRecipe(), None, no_loading), Lessons)


def test_litellm_gets_the_recipes_settings() -> None:
    recipe = ReflectionRecipe(
        kind="litellm", model="openai/x", base_url="http://here", temperature=0.5, max_tokens=9, timeout=3.0, retries=1
    )
    reflector = build_reflector(recipe, None, no_loading)
    assert isinstance(reflector, LanguageModelReflector)
    assert isinstance(reflector.chat, LiteLLMChat)
    assert vars(reflector.chat) == {**recipe.model_dump(exclude={"kind"}), "first_pause": 1.0}


def test_local_loads_the_named_model(tiny: tuple[Any, Any]) -> None:
    names: list[str] = []

    def load(name: str) -> tuple[Any, Any]:
        names.append(name)
        return tiny

    reflector = build_reflector(ReflectionRecipe(kind="local", model="a/b", max_tokens=9), None, load)
    assert isinstance(reflector, LanguageModelReflector)
    assert isinstance(reflector.chat, LocalChat)
    assert (names, reflector.chat.max_tokens, reflector.chat.model) == (["a/b"], 9, tiny[0])


def test_policy_asks_the_policy(tiny: tuple[Any, Any]) -> None:
    chat = LocalChat(*tiny)
    reflector = build_reflector(ReflectionRecipe(kind="policy"), chat, no_loading)
    assert isinstance(reflector, LanguageModelReflector)
    assert reflector.chat is chat
    with pytest.raises(ModelError, match="no policy"):
        build_reflector(ReflectionRecipe(kind="policy"), None, no_loading)
