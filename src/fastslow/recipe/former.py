"""Keys and values that recipes had before: an error says what to use, and stored recipes are translated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fastslow.recipe.parts import SLOTS, set_key


@dataclass(frozen=True)
class Removed:
    was: Any
    """What a run without it does; a stored recipe with another value cannot be resumed."""
    now: str = "leave it out"
    machine: bool = False
    """It never changed what a run learns, so that any value may be resumed."""


MORE_GRADIENT = "leave it out; graded rewards, or a higher sampling.temperature, give more groups a gradient"
KEYS: dict[str, str | Removed] = {
    "sampling.chat": "sampling.chat_template_kwargs",
    "slow.ratio_cap": "slow.loss.ratio_cap",
    "slow.clip": "slow.loss.clip",
    "slow.aggregation": "slow.loss.aggregation",
    "fast.proposals": "fast.optimizer.proposals",
    "fast.proposer": "fast.optimizer.proposer",
    "sampling.vllm_server": Removed(None),
    "fast.paired": Removed(False),
    "fast.race": Removed(False, "leave it out; fast.optimizer=digest spends the fewest rollouts"),
    "slow.betas": Removed([0.9, 0.999], "AdamW's betas are 0.9 and 0.999"),
    "slow.weight_decay": Removed(0.0, "AdamW has no weight decay"),
    "slow.max_grad_norm": Removed(1.0, "the gradient norm is clipped at 1"),
    "slow.drop_zero_variance": Removed(True, "groups whose rewards are all equal have no part in an update"),
    "slow.allocation": Removed("even", MORE_GRADIENT),
    "slow.fill": Removed(0.0, MORE_GRADIENT),
    "slow.fill_cap": Removed(2.0, MORE_GRADIENT),
    "slow.rounds": Removed(2, "a step plays one round"),
    "sampling.ahead_age": Removed(None, "rollouts are trained on at most one step later than sampling.ahead says"),
    "sampling.vllm_memory": Removed("auto", "vLLM's share of the card is calculated", machine=True),
    "sampling.vllm_sleep": Removed(
        False, "vLLM keeps its memory; running servers can have their own card", machine=True
    ),
    "model.lora.dropout": Removed(0.0, "adapters have no dropout"),
    "model.kernels": Removed("auto", "fused kernels are used where they are installed", machine=True),
    "fast.reuse_age": Removed(None, "rollouts are reused until their cycle ends"),
    "fast.overlap": Removed(False, "edits are asked for between steps"),
}
"""Former keys with their new names, or what is there in place of them."""
VALUES: dict[tuple[str, str], str | None] = {
    ("slow.loss.aggregation", "prompt"): "problem",
    ("fast.rescore", "front"): None,
    ("fast.rescore", "never"): None,
    ("sampling.backend", "continuous"): None,
    ("sampling.backend", "vllm-server"): None,
}
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
