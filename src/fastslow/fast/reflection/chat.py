"""The seam to a model that answers messages, wherever it runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Reply:
    """One answer and what it took."""

    text: str
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float = 0.0
    retries: int = 0
    """Further tries before this answer came."""
    cut: bool = False
    """The answer ran into its length limit."""


class ChatFailed(Exception):
    """No answer came; str(error) is the reason. `permanent` says that trying again later cannot help, `asked` whether the
    model was asked at all."""

    def __init__(self, reason: str, retries: int = 0, permanent: bool = False, asked: bool = True) -> None:
        super().__init__(reason)
        self.retries = retries
        self.permanent = permanent
        self.asked = asked


class Chat(Protocol):
    """Answers a list of `role`/`content` messages; the same seed asks for the same answer. Raises `ChatFailed`."""

    def __call__(self, messages: list[dict[str, str]], seed: int) -> Reply: ...
