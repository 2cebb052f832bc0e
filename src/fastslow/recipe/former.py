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
    "slow.betas": None,
    "slow.weight_decay": None,
    "slow.max_grad_norm": None,
    "slow.drop_zero_variance": None,
    "sampling.vllm_sleep": None,
    "sampling.vllm_memory": None,
    "model.lora.dropout": None,
    "model.kernels": None,
}
"""Former keys with their new names; None for those that were removed."""
ALWAYS: dict[str, Any] = {
    "slow.fill_cap": 2.0,
    "slow.rounds": 2,
    "slow.betas": [0.9, 0.999],
    "slow.max_grad_norm": 1.0,
    "slow.drop_zero_variance": True,
}
"""Values of removed keys that every run has now."""
OF_MACHINES = ("sampling.vllm_sleep", "sampling.vllm_memory", "model.kernels")
"""Removed keys that never changed what a run learns."""
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
            elif value and key not in OF_MACHINES and value != ALWAYS.get(key):
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
    *sections, name = key.split(".")
    for section in sections:
        found = data.get(section)
        data = found if isinstance(found, dict) else {}
    return data, name
