"""What problem files import: running a candidate program where it cannot reach the evaluator.

It imports nothing heavy: it is loaded in the process of every evaluation.
"""

from __future__ import annotations

import sys
from typing import Any


class Failed(Exception):
    """A candidate did not return; the message says why. Not caught, it makes the candidate invalid with these words."""

    def __init__(self, words: str, reason: str = "error") -> None:
        super().__init__(words)
        self.reason = reason
        """`error`, `time`, `memory`, `output` or `crash`."""


def run(
    candidate: str,
    function: str,
    *arguments: Any,
    seconds: float | None = None,
    megabytes: int | None = None,
    packages: bool = True,
) -> Any:
    """What a function of a candidate program returns: numbers in full precision, texts, lists, dicts; arrays and tuples as
    lists. It runs in a fresh process of its own, without files and network, and with the installed packages unless `packages`
    is false. Limits are the problem's unless given: seconds of work, megabytes of memory.
    """
    question = {
        "candidate": candidate,
        "function": function,
        "arguments": _plain([*arguments]),
        "seconds": seconds,
        "megabytes": megabytes,
        "packages": packages,
    }
    inside = sys.modules.get("inside.calls")
    answer = inside.ask(question) if inside else None
    if answer is None:  # in a process of the user, as in a test of a problem
        from fastslow.discover.problem import run_candidate

        answer = run_candidate(question)
    if answer["reason"]:
        raise Failed(f"the candidate's {function}(): {answer['error']}", answer["reason"])
    return answer["value"]


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return _plain(value.tolist()) if hasattr(value, "tolist") else value
