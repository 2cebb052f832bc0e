"""What a comparison found, in words: titles, findings and tables.

They lead with the largest difference that is not noise. A number of times is always above 1: what needs 0.6 times fewer
rollouts needs 1.7 times more. Sizes of differences are compared on a logarithmic scale, since one kind is a reward and the
other a number of times.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from fastslow.evaluation.asymptote import Asymptote
from fastslow.recipe.model import Method
from fastslow.runs.frames import write_csv
from fastslow.study.arms import LOOKS, Arm
from fastslow.study.curves import Curve, Estimate
from fastslow.study.measures import Comparison

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


def ranked(values: Mapping[str, float], form: str = ".2f", highest_first: bool = True) -> str:
    """The known values with their labels, in order."""
    known = {label: value for label, value in values.items() if not math.isnan(value)}
    return ", ".join(
        f"{each} {known[each]:{form}}" for each in sorted(known, key=known.__getitem__, reverse=highest_first)
    )


def title(comparison: Comparison) -> str:
    """The largest difference beyond noise, with the rewards that both arms end at; where there is none, only the rewards."""
    base = comparison.baseline
    sure = [finding for finding in _differences(comparison) if finding.sure]
    if not sure:
        return f"{ranking(comparison)}; {_unsure(comparison)}" if comparison.others else ranking(comparison)
    arm = max(sure, key=lambda finding: finding.size).arm
    ends, cheaper = _end(comparison, arm), _saving(comparison, arm)
    (first, more), (second, less) = sorted(
        ((each.label, comparison.end(each).mean) for each in (arm, base)), key=lambda end: -end[1]
    )
    apart = f"{first} ends at {more:.2f}, {second} at {less:.2f}"
    differ = f"{apart}: a difference of {_size(comparison.margin(arm))}{_seeds(comparison, arm)}"
    if cheaper is None or not cheaper.sure:
        return differ
    saved = times(comparison.saving(arm, "rollouts"), "rollouts")
    needs = f"to reach {comparison.level_words}, {arm.label} needs {saved}"
    if ends.sure and ends.size >= cheaper.size:
        return f"{differ}; {needs}"
    return f"{needs[0].upper()}{needs[1:]}; {apart}{'' if ends.sure else ', which is within noise'}"


def cost_title(comparison: Comparison) -> str:
    """The savings of the arm that needs the fewest rollouts, in rollouts and in steps, which leave the fast loop out."""
    found = {label: costs for label, costs in comparison.savings().items() if "rollouts" in costs}
    target = _level(comparison)
    best = max(found, key=lambda label: found[label]["rollouts"].mean, default="")
    if not best or (found[best]["rollouts"].mean <= 1 and "steps" not in found[best]):
        return f"No method is known to reach {target} at a lower cost"
    parts = [times(saved, cost) for cost, saved in found[best].items() if cost in ("steps", "rollouts")]
    return f"To reach {target}, {best} needs {' and '.join(parts)}"


def divergence_title(comparison: Comparison) -> str:
    """The KL at the baseline's level where two arms or more have one, otherwise at the end."""
    trained = [arm for arm in comparison.arms if arm.method != "gepa"]
    matched = {arm.label: comparison.kl_at_level(arm).mean for arm in trained} if comparison.baseline_rises else {}
    if sum(not math.isnan(kl) for kl in matched.values()) > 1:
        at = f"at {_level(comparison)}"
    else:
        at, matched = "at the end", {arm.label: comparison.last(arm, "kls").mean for arm in trained}
    return f"KL from the base model {at}: {ranked(matched, '#.2g', highest_first=False)}"


def ranking(comparison: Comparison) -> str:
    """The rewards at the end, the highest first."""
    return "Reward at the end: " + ranked({arm.label: comparison.end(arm).mean for arm in comparison.arms})


def headline(curves: Mapping[Method, Sequence[Curve]]) -> str:
    """The final reward of each method, best first, in one sentence; the mean over seeds."""
    spent = sorted({curve.rollouts[-1] for seeds in curves.values() for curve in seeds})
    rollouts = " to ".join(f"{count:,}" for count in dict.fromkeys((spent[0], spent[-1])))
    ends = {
        LOOKS[method].name: sum(curve.rewards[-1] for curve in seeds) / len(seeds) for method, seeds in curves.items()
    }
    return f"Reward after {rollouts} rollouts: {ranked(ends)}"


def largest_margin(comparison: Comparison) -> str:
    """The largest difference of rewards at the end from the baseline, if one is beyond noise."""
    margins = [(comparison.margin(arm), arm) for arm in comparison.others if comparison.is_apart(arm)]
    if not margins:
        return _unsure(comparison)
    margin, arm = max(margins, key=lambda each: abs(each[0].mean))
    above = "above" if margin.mean > 0 else "below"
    return f"{arm.label} is {_size(margin)} {above} {comparison.baseline.label}{_seeds(comparison, arm)}"


def findings(comparison: Comparison, limits: Mapping[str, Asymptote | str] | None = None) -> list[str]:
    """All findings: those beyond noise first, the largest of them before the others, and asymptotes last."""
    found = sorted(_differences(comparison), key=lambda finding: (not finding.sure, -finding.size))
    said = [finding.words for finding in found if finding.sure]
    if comparison.others and not comparison.baseline_rises:
        never = f"{comparison.baseline.label} does not improve on its reward before training beyond noise"
        said.append(f"{never}.")
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
    """The cost of the level, compared with the baseline's; None where the baseline does not rise beyond noise."""
    if not comparison.baseline_rises:
        return None
    level = _level(comparison)
    rollouts, steps = comparison.saving(arm, "rollouts"), comparison.saving(arm, "steps")
    unresolved = [each.label for each in (arm, comparison.baseline) if comparison.unresolved(each)]
    if unresolved:
        who = " and ".join(unresolved)
        has = "has" if len(unresolved) == 1 else "have"
        words = f"{who} {has} reached {level} by the first evaluation after the start"
        return Finding(arm, f"{words}: the cost of {arm.label} is not resolved.", sure=False, size=0.0)
    if math.isnan(rollouts.mean):
        reached = any(cost < math.inf for cost in comparison.costs(arm, "rollouts").values())
        words = f"is at or above {level} before training" if reached else f"does not reach {level}"
        return Finding(arm, f"{arm.label} {words}.", sure=False, size=0.0)
    parts = [] if math.isnan(steps.mean) else [times(steps, "steps")]
    parts.append(f"{times(rollouts, 'rollouts')}, fast-loop rollouts included")
    words = f"To reach {level}, {arm.label} needs {' and '.join(parts)}."
    return Finding(arm, words, rollouts.settled(1), abs(math.log(rollouts.mean)))


def _size(margin: Estimate) -> str:
    """A difference without its sign."""
    if margin.mean >= 0:
        return margin.words()
    return Estimate(-margin.mean, -margin.high, -margin.low, margin.seeds, margin.note).words()


def _seeds(comparison: Comparison, arm: Arm) -> str:
    margin = comparison.margin(arm)
    if margin.seeds < 2:
        return ", which one seed cannot tell from noise"
    return "" if margin.settled(0) else ", not significant over these seeds"


def _unsure(comparison: Comparison) -> str:
    return "one seed cannot tell whether they differ" if comparison.one_seed else "no difference is beyond noise"


def _level(comparison: Comparison) -> str:
    return f"{comparison.level_words} ({comparison.level:.2f})"


def _limit(label: str, limit: Asymptote | str) -> str:
    if isinstance(limit, str):
        return f"The asymptote of {label} cannot be fitted: {limit}."
    if limit.determined:
        return f"The asymptote of {label} is {limit.limit:.2f} [{limit.low:.2f}, {limit.high:.2f}]."
    return f"The asymptote of {label} is not determined: {limit.doubts[0]}."


@dataclass(frozen=True)
class Summary:
    """A table of the comparison, a row for each arm, in order."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]


def summaries(comparison: Comparison) -> list[Summary]:
    base, measured, several = comparison.baseline, comparison.has_kl, bool(comparison.others)
    found: list[Summary] = []

    def add(title: str, *columns: tuple[str, Callable[[Arm], str]]) -> None:
        rows = [[arm.label, *(column(arm) for _, column in columns)] for arm in comparison.arms]
        found.append(Summary(title, ["", *(name for name, _ in columns)], rows))

    def against(shown: Callable[[Arm], str]) -> Callable[[Arm], str]:
        """A column without a value for the baseline."""
        return lambda arm: "" if arm is base else shown(arm)

    def saved(estimate: Estimate) -> str:
        return estimate.words() if math.isnan(estimate.mean) else times(estimate)

    def whole(value: float) -> str:
        return "-" if math.isnan(value) else f"{value:,.0f}"

    add(
        "Reward",
        ("seeds", lambda arm: str(len(arm.curves))),
        ("reward at the end", lambda arm: comparison.end(arm).words()),
        (f"difference from {base.label}", against(lambda arm: comparison.margin(arm).words())),
        (
            f"reward within {comparison.shared_rollouts:,.0f} rollouts",
            lambda arm: comparison.within_shared_rollouts(arm).words(),
        ),
    )
    add(
        "Training cost",
        ("steps", lambda arm: "no updates" if arm.method == "gepa" else f"{comparison.last(arm, 'steps').mean:,.0f}"),
        ("rollouts", lambda arm: f"{comparison.last(arm, 'rollouts').mean:,.0f}"),
        ("tokens", lambda arm: whole(comparison.last(arm, "tokens").mean)),
        ("minutes", lambda arm: f"{comparison.last(arm, 'seconds').mean / 60:,.1f}"),
    )
    if several:
        level = comparison.level
        add(
            f"Cost to reach {_level(comparison)}"
            if comparison.baseline_rises
            else f"Cost to exceed {base.label} before training ({level:.2f}), which does not improve beyond noise",
            ("steps", lambda arm: comparison.cost(arm, "steps").words(0)),
            (f"compared with {base.label}", against(lambda arm: saved(comparison.saving(arm, "steps")))),
            ("rollouts", lambda arm: comparison.cost(arm, "rollouts").words(0)),
            (f"compared with {base.label}", against(lambda arm: saved(comparison.saving(arm, "rollouts")))),
        )
    if measured:
        add(
            "KL from the base model (nats a token)",
            ("at the end", lambda arm: comparison.last(arm, "kls").words(4)),
            ("both under the seed text", lambda arm: comparison.last(arm, "seed_kls").words(4)),
            (f"at {comparison.level_words}", lambda arm: comparison.kl_at_level(arm).words(4)),
            ("entropy", lambda arm: comparison.entropy(arm).words()),
        )
    if measured and several:
        kl = comparison.shared_kl
        add(
            f"Best reward within the KL that both the arm and {base.label} reached",
            ("KL", lambda arm: Estimate(kl(arm)).words(3)),
            ("reward", lambda arm: comparison.reward_at_kl(arm, kl(arm)).words()),
            (f"reward of {base.label}", against(lambda arm: comparison.reward_at_kl(base, kl(arm)).words())),
            (f"difference from {base.label}", against(lambda arm: comparison.margin_at_kl(arm).words())),
        )
    return found


def shown(
    title: str,
    head: Sequence[str],
    rows: Iterable[Sequence[str | Text]],
    *,
    left: int = 1,
    fold: bool = False,
    caption: str | None = None,
) -> Table:
    """A table for the terminal, its first `left` columns aligned left. `fold` breaks long words in place of an ellipsis."""
    table = Table(title=title, title_justify="left", caption=caption, caption_justify="left")
    for index, name in enumerate(head):
        table.add_column(name, justify="right" if index >= left else "left", overflow="fold" if fold else "ellipsis")
    for row in rows:
        table.add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in row))
    return table


def write_known(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write a CSV file with empty cells for NaN."""

    def cell(value: Any) -> Any:
        return "" if isinstance(value, float) and math.isnan(value) else value

    write_csv(path, [{name: cell(value) for name, value in row.items()} for row in rows])
