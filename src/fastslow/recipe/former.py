"""Keys and values that recipes had before: an error says what to use, and stored recipes are translated."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from fastslow.recipe.parts import SLOTS, set_key


@dataclass(frozen=True)
class Removed:
    was: Any
    """What a run without it does; a stored recipe with another value cannot be resumed."""
    now: str = "leave it out"
    machine: bool = False
    """It never changed what a run learns, so that any value may be resumed."""


_FORMER = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text())
KEYS: dict[str, str | Removed] = {
    key: new if isinstance(new, str) else Removed(**new) for key, new in _FORMER["keys"].items()
}
"""Former keys with their new names, or what is there in place of them."""
VALUES = {(key, value): new for key, values in _FORMER["values"].items() for value, new in values.items()}
"""The same for values of keys that are still there; None for those that were removed."""


def explain_key(key: str) -> str | None:
    new = KEYS.get(key)
    if isinstance(new, Removed):
        return f"{key} was removed: {new.now}"
    return f"{key} is now {new}" if new else None


def explain_value(key: str, value: Any, expected: str) -> str | None:
    """What to write in place of a former value; `expected` lists the values of today."""
    if not isinstance(value, str) or (key, value) not in VALUES:
        return None
    new = VALUES[key, value]
    return f"{key}={value} is now {key}={new}" if new else f"{key}={value} was removed: use {expected}"


def translate(data: dict[str, Any], known: set[str]) -> dict[str, Any]:
    """Bring a stored recipe up to date in place; gives the removed settings that were in use. `known` are the keys of
    today."""
    removed = {}
    for key, new in KEYS.items():
        section, name = section_of(data, key)
        if name not in section or key in known:
            continue
        value = section.pop(name)
        if isinstance(new, str):
            set_key(data, new, value)
        elif value != new.was and not new.machine:
            removed[key] = value
    for (key, former), replacement in VALUES.items():
        section, name = section_of(data, key)
        if section.get(name) == former:
            if replacement is not None:
                section[name] = replacement
            else:
                del section[name]
                removed[key] = former
    for key, slot in SLOTS.items():
        section, name = section_of(data, key)
        if isinstance(given := section.get(name), dict):
            section[name] = slot.current(given)
    return removed


def usual(key: str) -> Any:
    """What a run without a removed key does."""
    new = KEYS.get(key)
    return new.was if isinstance(new, Removed) else None


def section_of(data: dict[str, Any], key: str) -> tuple[dict[str, Any], str]:
    """The mapping that holds a dotted key, and the last name of the key."""
    *parents, name = key.split(".")
    found: Any = data
    for parent in parents:
        found = found.get(parent) if isinstance(found, dict) else None
    return found if isinstance(found, dict) else {}, name
