"""What a comparison found, in sentences: the title of a report and its findings.

They lead with the largest difference that is not noise. A number of times is always above 1: what needs 0.6 times fewer
rollouts needs 1.7 times more. Sizes of differences are compared on a logarithmic scale, since one kind is a reward and the
other a number of times.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from fastslow.evaluation.asymptote import Asymptote
from fastslow.study.arms import Arm
from fastslow.study.comparison import Comparison
from fastslow.study.curves import Cost
from fastslow.study.intervals import Estimate, over_seeds

FLOOR = 0.01
"""Added to rewards before they are divided: below it rewards do not differ in practice."""


@dataclass(frozen=True)
class Finding:
    """A sentence about one arm and the baseline."""

    arm: Arm
    words: str
    sure: bool
    """Whether it is beyond noise."""
    size: float


def times(saved: Estimate, what: str = "") -> str:
    """How many times fewer, or more, with the interval and the seeds."""
    direction, shown = oriented(saved)
    interval = f" [{shown.low:.1f}, {shown.high:.1f}]" if shown.has_interval else ""
    compared = f"{shown.mean:.1f}×{interval} {direction or 'the'}"
    return " ".join(part for part in (compared, what, saved.note) if part)


def oriented(saved: Estimate) -> tuple[str, Estimate]:
    """`fewer` or `more`, nothing where it is 1.0, and the number of times, which is not below 1."""
    if math.isnan(saved.mean) or saved.mean >= 1:
        shown, direction = saved, "fewer"
    else:
        shown, direction = Estimate(1 / saved.mean, 1 / saved.high, 1 / saved.low, saved.seeds, saved.note), "more"
    return "" if f"{shown.mean:.1f}" == "1.0" else direction, shown


def title(comparison: Comparison) -> str:
    """The largest difference beyond noise, with the rewards that both arms end at; where there is none, only the rewards."""
    base = comparison.baseline
    sure = [finding for finding in _differences(comparison) if finding.sure]
    if not sure:
        ranked = ranking(comparison)
        return f"{ranked}; no difference is beyond noise" if comparison.others else ranked
    arm = max(sure, key=lambda finding: finding.size).arm
    ends, saved = _end(comparison, arm), comparison.saving(arm, "rollouts")
    cheaper = _saving(comparison, arm)
    apart = f"{_apart(comparison, arm)}: a difference of {_size(comparison.margin(arm))}{_seeds(comparison, arm)}"
    if cheaper is None or not cheaper.sure:
        return apart
    needs = f"to reach the peak of {base.label}, {arm.label} needs {times(saved, 'rollouts')}"
    if ends.sure and ends.size >= cheaper.size:
        return f"{apart}; {needs}"
    return f"{needs[0].upper()}{needs[1:]}; {_apart(comparison, arm)}{'' if ends.sure else ', which is within noise'}"


def cost_title(comparison: Comparison) -> str:
    """The savings of the arm that needs the fewest rollouts, in rollouts and in steps, which leave the fast loop out."""
    found = {label: costs for label, costs in savings(comparison).items() if "rollouts" in costs}
    peak = sum(comparison.peaks.values()) / len(comparison.peaks)
    target = f"the peak of {comparison.baseline.label} ({peak:.2f})"
    best = max(found, key=lambda label: found[label]["rollouts"].mean, default="")
    if not best or (found[best]["rollouts"].mean <= 1 and "steps" not in found[best]):
        return f"No method reaches {target} at a lower cost"
    parts = [times(found[best][cost], cost) for cost in ("steps", "rollouts") if cost in found[best]]
    return f"To reach {target}, {best} needs {' and '.join(parts)}"


def savings(comparison: Comparison) -> dict[str, dict[Cost, Estimate]]:
    """How many times less each arm needs than the baseline, where that is known."""
    costs: tuple[Cost, ...] = ("steps", "rollouts", "tokens", "seconds")
    found: dict[str, dict[Cost, Estimate]] = {}
    for arm in comparison.others:
        known = {cost: saved for cost in costs if not math.isnan((saved := comparison.saving(arm, cost)).mean)}
        if known:
            found[arm.label] = known
    return found


def ranking(comparison: Comparison) -> str:
    """The rewards at the end, the highest first."""
    ranked = sorted(((arm.label, comparison.end(arm).mean) for arm in comparison.arms), key=lambda end: -end[1])
    return "Reward at the end: " + ", ".join(f"{label} {reward:.2f}" for label, reward in ranked)


def largest_margin(comparison: Comparison) -> str:
    """The largest difference of rewards at the end from the baseline, if one is beyond noise."""
    sure = [finding for arm in comparison.others if (finding := _end(comparison, arm)).sure]
    if not sure:
        return "no difference is beyond noise"
    arm = max(sure, key=lambda finding: abs(comparison.margin(finding.arm).mean)).arm
    margin = comparison.margin(arm)
    above = "above" if margin.mean > 0 else "below"
    return f"{arm.label} is {_size(margin)} {above} {comparison.baseline.label}{_seeds(comparison, arm)}"


def findings(comparison: Comparison, limits: Mapping[str, Asymptote | str] | None = None) -> list[str]:
    """All findings: those beyond noise first, the largest of them before the others, and asymptotes last."""
    found = sorted(_differences(comparison), key=lambda finding: (not finding.sure, -finding.size))
    said = [finding.words for finding in found if finding.sure]
    if comparison.others and not comparison.baseline_rises:
        said.append(
            f"{comparison.baseline.label} does not improve on its reward before training beyond noise (best: "
            f"{_peak(comparison)})."
        )
    said += [finding.words for finding in found if not finding.sure]
    return said + [_limit(label, limit) for label, limit in (limits or {}).items()]


def _differences(comparison: Comparison) -> Iterator[Finding]:
    for arm in comparison.others:
        yield _end(comparison, arm)
        if (saving := _saving(comparison, arm)) is not None:
            yield saving


def _end(comparison: Comparison, arm: Arm) -> Finding:
    """The reward at the end, compared with the baseline's."""
    base = comparison.baseline
    ours, theirs = comparison.end(arm).mean, comparison.end(base).mean
    margin = f"{comparison.margin(arm).words()}{_seeds(comparison, arm)}"
    words = f"{arm.label} ends at {ours:.2f}, {base.label} at {theirs:.2f}; difference {margin}."
    return Finding(arm, words, comparison.is_apart(arm), abs(math.log((ours + FLOOR) / (theirs + FLOOR))))


def _saving(comparison: Comparison, arm: Arm) -> Finding | None:
    """The cost of the baseline's peak, compared with the baseline's; None where the baseline has no peak beyond noise."""
    if not comparison.baseline_rises:
        return None
    base, peak = comparison.baseline, _peak(comparison)
    rollouts, steps = comparison.saving(arm, "rollouts"), comparison.saving(arm, "steps")
    if math.isnan(rollouts.mean):
        reached = any(cost < math.inf for cost in comparison.costs(arm, "rollouts").values())
        has = "is at or above" if reached else "does not reach"
        words = f"{arm.label} {has} the peak of {base.label} ({peak}){' before training' * reached}."
        return Finding(arm, words, sure=False, size=0.0)
    parts = [f"{times(rollouts, 'rollouts')}, fast-loop rollouts included"]
    if not math.isnan(steps.mean):
        parts.insert(0, times(steps, "steps"))
    words = f"To reach the peak of {base.label} ({peak}), {arm.label} needs {' and '.join(parts)}."
    return Finding(arm, words, rollouts.settled(1), abs(math.log(rollouts.mean)))


def _apart(comparison: Comparison, arm: Arm) -> str:
    """Where the arm and the baseline end, the higher one first."""
    ends = [(each.label, comparison.end(each).mean) for each in (arm, comparison.baseline)]
    (first, more), (second, less) = sorted(ends, key=lambda end: -end[1])
    return f"{first} ends at {more:.2f}, {second} at {less:.2f}"


def _size(margin: Estimate) -> str:
    """A difference without its sign."""
    if margin.mean >= 0:
        return margin.words()
    return Estimate(-margin.mean, -margin.high, -margin.low, margin.seeds, margin.note).words()


def _seeds(comparison: Comparison, arm: Arm) -> str:
    margin = comparison.margin(arm)
    if margin.seeds < 2:
        return ", one seed" if comparison.is_apart(arm) else ", one seed, within the noise of its evaluations"
    if margin.settled(0):
        return ""
    return f", in each of {margin.seeds} seeds" if comparison.is_apart(arm) else ", not significant over these seeds"


def _peak(comparison: Comparison) -> str:
    return replace(over_seeds(list(comparison.peaks.values()), 0.0, 1.0), note="").words()


def _limit(label: str, limit: Asymptote | str) -> str:
    if isinstance(limit, str):
        return f"The asymptote of {label} cannot be fitted: {limit}."
    if limit.determined:
        return f"The asymptote of {label} is {limit.limit:.2f} [{limit.low:.2f}, {limit.high:.2f}]."
    return f"The asymptote of {label} is not determined: {limit.doubts[0]}."
