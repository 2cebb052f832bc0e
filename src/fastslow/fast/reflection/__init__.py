"""Reflection: reading the feedback on a context and proposing an edit of its text.

A kind of reflector is a function, or a class, that makes a `Reflector`: it is called with the `Policy` of the run, which it
may ask, and with its own options by keyword, which are the keys beside `kind` in `fast.reflection`.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from importlib import import_module

from fastslow.engine.base import Engine
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
from fastslow.fast.reflection.chats import LocalChat, PolicyChat
from fastslow.fast.reflection.language_model import LanguageModelReflector
from fastslow.fast.reflection.lessons import Lessons
from fastslow.fast.reflection.litellm_chat import LiteLLMChat
from fastslow.recipe import ReflectionRecipe
from fastslow.records import Sampling
from fastslow.rollouts.chat import ChatFormat

__all__ = [
    "REFLECTORS",
    "Attempt",
    "Chat",
    "ChatFailed",
    "LanguageModelReflector",
    "Lessons",
    "LiteLLMChat",
    "LocalChat",
    "Policy",
    "ReflectionFailed",
    "Reflector",
    "Reply",
    "Request",
    "TextRequest",
    "Usage",
    "build_reflector",
]


@dataclass(frozen=True)
class Policy:
    """The model in training, as far as a reflector may use it."""

    engine: Engine
    chat: ChatFormat
    device: str
    """The device that the recipe names: `auto`, `cpu`, `cuda` or `mps`."""


def by_lessons(policy: Policy) -> Reflector:
    return Lessons()


def by_litellm(
    policy: Policy,
    *,
    model: str,
    base_url: str | None = None,
    temperature: float = 1.0,
    max_tokens: int = 4096,
    timeout: float = 120.0,
    retries: int = 4,
) -> Reflector:
    chat = LiteLLMChat(
        model, base_url, temperature=temperature, max_tokens=max_tokens, timeout=timeout, retries=retries
    )
    return LanguageModelReflector(chat)


def by_local(policy: Policy, *, model: str, temperature: float = 1.0, max_tokens: int = 4096) -> Reflector:
    from fastslow.models.load import choose_device, load_to_ask  # they import torch

    loaded, tokenizer = load_to_ask(model, choose_device(policy.device))
    return LanguageModelReflector(LocalChat(loaded, tokenizer, temperature, max_tokens))


def by_policy(policy: Policy, *, temperature: float = 1.0, max_tokens: int = 4096) -> Reflector:
    sampling = Sampling(max(temperature, 1e-3), 1.0, max_tokens)
    return LanguageModelReflector(PolicyChat(policy.engine, policy.chat, sampling))


REFLECTORS = {kind: f"fastslow.fast.reflection:by_{kind}" for kind in ("lessons", "litellm", "local", "policy")}
"""What makes the reflector of every `fast.reflection.kind`."""


def build_reflector(recipe: ReflectionRecipe, policy: Policy) -> Reflector:
    """The reflector that a recipe asks for."""
    module, _, name = REFLECTORS[recipe.kind].partition(":")
    make = getattr(import_module(module), name)
    options = {option for option in inspect.signature(make).parameters if option != "policy"}
    made: Reflector = make(policy, **recipe.model_dump(include=options))
    return made
