"""Reflection: reading the feedback on a context and proposing an edit of its text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastslow.base.errors import ModelError
from fastslow.fast.reflection.base import (
    Attempt,
    Chat,
    ChatFailed,
    ReflectionFailed,
    Reflector,
    Reply,
    Request,
    TextRequest,
    Usage,
)
from fastslow.fast.reflection.language_model import LanguageModelReflector
from fastslow.fast.reflection.lessons import Lessons
from fastslow.fast.reflection.litellm_chat import LiteLLMChat
from fastslow.fast.reflection.local_chat import LocalChat
from fastslow.recipe import ReflectionRecipe

__all__ = [
    "Attempt",
    "Chat",
    "ChatFailed",
    "LanguageModelReflector",
    "Lessons",
    "LiteLLMChat",
    "LocalChat",
    "ReflectionFailed",
    "Reflector",
    "Reply",
    "Request",
    "TextRequest",
    "Usage",
    "build_reflector",
]


def build_reflector(
    recipe: ReflectionRecipe, policy_chat: Chat | None, load_local: Callable[[str], tuple[Any, Any]]
) -> Reflector:
    """The reflector a recipe asks for. `load_local` turns a model's name into (model, tokenizer)."""
    if recipe.kind == "lessons":
        return Lessons()
    if recipe.kind == "policy":
        if policy_chat is None:
            raise ModelError("reflection kind 'policy' asks the model in training, but no policy was given to ask")
        return LanguageModelReflector(policy_chat)
    assert recipe.model is not None, "the recipe's own check"
    if recipe.kind == "local":
        model, tokenizer = load_local(recipe.model)
        return LanguageModelReflector(LocalChat(model, tokenizer, recipe.temperature, recipe.max_tokens))
    chat = LiteLLMChat(
        recipe.model,
        recipe.base_url,
        temperature=recipe.temperature,
        max_tokens=recipe.max_tokens,
        timeout=recipe.timeout,
        retries=recipe.retries,
    )
    return LanguageModelReflector(chat)
