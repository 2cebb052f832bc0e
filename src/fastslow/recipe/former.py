"""Keys and values that recipes had before: an error names what replaces them, and stored recipes are translated."""

from __future__ import annotations

from typing import Any

KEYS: dict[str, str | None] = {
    "sampling.chat": "sampling.chat_template_kwargs",
    "sampling.vllm_server": None,
    "sampling.ahead_age": None,
    "fast.paired": None,
    "fast.overlap": None,
    "fast.reuse_age": None,
    "slow.fill": None,
    "slow.fill_cap": None,
    "slow.rounds": None,
}
"""Former keys with their new names; None for those that were removed."""
DEFAULTS: dict[str, Any] = {"slow.fill_cap": 2.0, "slow.rounds": 2}
"""Removed keys whose default was not empty or false: stored recipes have it, though nobody set it."""
VALUES: dict[tuple[str, str], str | None] = {
    ("slow.aggregation", "prompt"): "problem",
    ("fast.rescore", "front"): None,
    ("fast.rescore", "never"): None,
    ("sampling.backend", "continuous"): None,
    ("sampling.backend", "vllm-server"): None,
}
"""The same for values of keys that are still there."""


def explain_key(key: str) -> str | None:
    """What to write in place of a former key."""
    if key not in KEYS:
        return None
    new = KEYS[key]
    return f"{key} is now {new}" if new else f"{key} was removed: leave it out"


def explain_value(key: str, value: Any, expected: str) -> str | None:
    """What to write in place of a former value; `expected` lists the values of today."""
    if not isinstance(value, str) or (key, value) not in VALUES:
        return None
    new = VALUES[key, value]
    return f"{key}={value} is now {key}={new}" if new else f"{key}={value} was removed: use {expected}"


def translate(data: dict[str, Any]) -> list[str]:
    """Bring a stored recipe up to date in place; gives the removed settings that were in use, as KEY=VALUE."""
    removed = []
    for key, new in KEYS.items():
        section, name = _section(data, key)
        if name in section:
            value = section.pop(name)
            if new is not None:
                section[new.rpartition(".")[2]] = value
            elif value and value != DEFAULTS.get(key):
                removed.append(f"{key}={value}")
    for (key, value), new in VALUES.items():
        section, name = _section(data, key)
        if section.get(name) == value:
            if new is not None:
                section[name] = new
            else:
                del section[name]
                removed.append(f"{key}={value}")
    return removed


def _section(data: dict[str, Any], key: str) -> tuple[dict[str, Any], str]:
    section, name = key.split(".")
    found = data.get(section)
    return found if isinstance(found, dict) else {}, name
