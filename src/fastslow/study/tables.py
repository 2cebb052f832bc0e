"""The numbers of a comparison as tables, which the terminal, a notebook and the page show."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from fastslow.runs.frames import write_csv
from fastslow.study.arms import Arm
from fastslow.study.intervals import Estimate
from fastslow.study.measures import Comparison
from fastslow.study.sentences import times


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
        (f"less {base.label}", against(lambda arm: comparison.margin(arm).words())),
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
        peak = comparison.mean_peak
        add(
            f"Cost to reach the peak of {base.label} ({peak:.2f})"
            if comparison.baseline_rises
            else f"Cost to exceed {base.label} ({peak:.2f} at best), which does not improve beyond noise",
            ("steps", lambda arm: comparison.cost(arm, "steps").words(0)),
            (f"than {base.label}", against(lambda arm: saved(comparison.saving(arm, "steps")))),
            ("rollouts", lambda arm: comparison.cost(arm, "rollouts").words(0)),
            (f"than {base.label}", against(lambda arm: saved(comparison.saving(arm, "rollouts")))),
        )
    if measured:
        add(
            "KL from the base model (nats a token)",
            ("at the end", lambda arm: comparison.last(arm, "kls").words(4)),
            ("both under the seed text", lambda arm: comparison.last(arm, "seed_kls").words(4)),
            (f"at the peak of {base.label}", lambda arm: comparison.kl_at_peak(arm).words(4)),
            ("entropy", lambda arm: comparison.entropy(arm).words()),
        )
    if measured and several:
        kl = comparison.shared_kl
        add(
            f"Best reward within the KL that both the arm and {base.label} reached",
            ("KL", lambda arm: Estimate(kl(arm)).words(3)),
            ("reward", lambda arm: comparison.reward_at_kl(arm, kl(arm)).words()),
            (f"of {base.label}", against(lambda arm: comparison.reward_at_kl(base, kl(arm)).words())),
            (f"less {base.label}", against(lambda arm: comparison.margin_at_kl(arm).words())),
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
