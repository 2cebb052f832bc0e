"""What each helper has done, and what that did to the policy.

A helper's answers are trained on, but not all of them: of the groups that it solved, a share is held back at random. Some
steps later the policy tries the problems of both kinds again, without help. What training on the helper's answers does to
this policy is the difference of its two mean scores: nothing but chance decides which problems were held back, so harder or
easier problems bias neither. A helper whose difference is below 0 with 99% confidence hurts and is dropped, and so is one
that solves none of its first groups. The interval is looked at after every step, hence 99%.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from statistics import fmean
from typing import Any

from fastslow.base.intervals import Z99, difference
from fastslow.records import Context

HELD = 0.25
"""Share of the solved groups that are held back while a helper is measured."""
AFTER, PROBES = 3, 2
"""Updates after which a problem is tried again, and rollouts of it."""
LEAST, MEASURED = 8, 32
"""Problems of either kind before a helper is judged, and those held back after which it is kept for good."""
HOPELESS = 32
"""Groups without a single success after which a helper is dropped."""


@dataclass
class Account:
    """What one helper has done."""

    tried: int = 0
    """Groups."""
    solved: int = 0
    """Those in which it scored higher than everybody."""
    trained: int = 0
    """Those of them that were not held back."""
    taught: list[float] = field(default_factory=list)
    """Later scores of the policy on problems that were trained on."""
    held: list[float] = field(default_factory=list)
    """Later scores of the policy on problems that were held back."""
    dropped: str = ""
    """Why the helper is not asked any more."""

    @property
    def measuring(self) -> bool:
        return len(self.held) < MEASURED and not self.dropped

    @property
    def effect(self) -> tuple[float, float, float] | None:
        """What training on its answers does to the policy's later score, with its 99% interval."""
        if not self.taught or not self.held:
            return None
        return difference(fmean(self.taught), len(self.taught), fmean(self.held), len(self.held), Z99)

    def judge(self) -> str:
        """Why the helper is dropped now, if it is."""
        effect = self.effect
        if self.dropped:
            return ""
        if self.tried >= HOPELESS and not self.solved:
            self.dropped = f"it solved none of {self.tried} groups"
        elif effect and min(len(self.taught), len(self.held)) >= LEAST and effect[2] < 0:
            self.dropped = f"training on its answers hurts: {self.said}"
        return self.dropped

    @property
    def said(self) -> str:
        """What it has done and what that did, in words."""
        effect, done = self.effect, f"{self.solved} of {self.tried} groups"
        if effect is None or self.dropped:
            return f"{done}; dropped: {self.dropped}" if self.dropped else f"{done}; its effect is not measured yet"
        gap, low, high = effect
        return (
            f"{done}; the policy's later score changes by {gap:+.2f} [{low:+.2f}, {high:+.2f}]: {fmean(self.taught):.2f} on "
            f"{len(self.taught)} problems trained on, {fmean(self.held):.2f} on {len(self.held)} held back"
        )

    def summary(self) -> dict[str, Any]:
        """The numbers for a row of metrics."""
        effect = self.effect
        return {
            **{"tried": self.tried, "solved": self.solved, "trained": self.trained, "dropped": self.dropped or None},
            **{"taught": fmean(self.taught) if self.taught else None, "taught_problems": len(self.taught)},
            **{"held": fmean(self.held) if self.held else None, "held_problems": len(self.held)},
            **dict(zip(("effect", "effect_low", "effect_high"), effect or (None, None, None), strict=True)),
        }


@dataclass(frozen=True)
class Probe:
    """A problem that the policy tries again, without help."""

    step: int
    position: int
    """In the stream."""
    context: Context
    helper: str
    taught: bool
    """It was trained on, not held back."""


class Accounts:
    """The helpers of a run: a part of its state."""

    def __init__(self) -> None:
        self.of: dict[str, Account] = {}
        self.due: list[Probe] = []
        self.step: dict[str, int] = {}
        """The last step: groups in which nobody succeeded, those that were rescued, and those held back."""

    def row(self) -> dict[str, Any]:
        """What a row of metrics says."""
        return {**self.step, "helpers": {name: each.summary() for name, each in self.of.items()}}

    def copy(self) -> Accounts:
        return Accounts.from_dict(self.to_dict())

    def to_dict(self) -> dict[str, Any]:
        return {
            "helpers": {name: asdict(each) for name, each in self.of.items()},
            "due": [asdict(each) for each in self.due],
            "step": dict(self.step),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Accounts:
        accounts = cls()
        accounts.of = {name: Account(**each) for name, each in data.get("helpers", {}).items()}
        for each in data.get("due", ()):
            context = Context(each["context"]["texts"], tuple(each["context"]["parents"]), each["context"]["born"])
            accounts.due.append(Probe(**{**each, "context": context}))
        accounts.step = dict(data.get("step", {}))
        return accounts
