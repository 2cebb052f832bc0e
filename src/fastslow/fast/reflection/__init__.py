"""Reflection: reading the feedback on a context and proposing an edit of its text.

kinds.py has the reflectors that a recipe can name, each with its options.
"""

from __future__ import annotations

from fastslow.fast.reflection import code as code  # enters its kind
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
from fastslow.fast.reflection.chats import LiteLLMChat, LocalChat
from fastslow.fast.reflection.language_model import LanguageModelReflector
from fastslow.fast.reflection.lessons import Lessons

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
