"""Reflection: reading the feedback on a context and proposing an edit of its text."""

from __future__ import annotations

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
]
