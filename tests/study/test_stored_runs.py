"""The tables of docs/results.md say what the stored runs say."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest
from helpers import ROOT

from fastslow.study.arms import Arm, gather
from fastslow.study.curves import over_seeds
from fastslow.study.measures import Comparison
from fastslow.study.sentences import summaries

STORED = ROOT / "docs" / "results" / "qwen-1.5b"
LABELS = ("FST", "RL only", "GEPA only", "FST-distill")


def tables_of(section: str) -> list[list[list[str]]]:
    """The tables of a section of the page, cell by cell."""
    text = (ROOT / "docs" / "results.md").read_text().split(f"\n## {section}\n")[1].split("\n## ")[0]
    blocks = [[line for line in block.splitlines() if line.startswith("|")] for block in text.split("\n\n")]
    return [[[cell.strip() for cell in line.split("|")[1:-1]] for line in block] for block in blocks if block]


@pytest.mark.parametrize("section", ["House rules", "Star-graph", "GSM8K", "CodeIO"])
def test_the_numbers_of_a_section_are_those_of_its_runs(section: str) -> None:
    folder = STORED / section.lower().replace(" ", "-")
    runs_of = [run for name in ("fst", "rl", "gepa", "distill") for run in sorted(folder.glob(f"{name}-[0-9]"))]
    comparison = Comparison.of(gather(runs_of)[0], None)
    found: dict[str, Callable[[Arm], str]] = {
        "by seed": lambda arm: ", ".join(f"{curve.rewards[-1]:.2f}" for curve in arm.curves.values()),
        "KL at the end": lambda arm: comparison.last(arm, "kls").words(2),
        "entropy": lambda arm: f"{comparison.entropy(arm).mean:.2f}",
    }
    reward, cost, *_ = summaries(comparison)
    printed = {
        row[0]: dict(zip(reward.head + cost.head, row + other, strict=True))
        for row, other in zip(reward.rows, cost.rows, strict=True)
    }
    assert [row["steps"] == "no updates" for row in printed.values()] == [False, False, True, False]
    (head, _, *rows), *_ = tables_of(section)
    assert [row[0] for row in rows] == [arm.label for arm in comparison.arms] == list(LABELS)
    for arm, row in zip(comparison.arms, rows, strict=True):
        for name, cell in zip(head[1:], row[1:], strict=True):
            said = (found[name](arm) if name in found else printed[arm.label][name]).removesuffix(
                " (equal in all seeds)"
            )
            zero = re.fullmatch(r"[0., ]+", said)
            assert cell == said or (zero and cell == said.replace(".00", "")) or (cell, said) == ("", "nan"), name


def test_the_costs_of_a_section_are_those_of_its_runs() -> None:
    folder = STORED / "handbook" / "shipping-11-slower"
    comparison = Comparison.of(gather([*folder.glob("fst-*"), *folder.glob("rl-*")])[0], None)
    table = next(table for table in tables_of("Handbooks") if "to it" in table[0][-1])
    fst, rl = comparison.arms
    head, _, *rows = table
    assert head[3] == f"rollouts to 80% of RL's gain, {comparison.level:.2f}"
    for arm, row in zip((fst, rl), rows[:2], strict=True):
        costs = [comparison.cost(arm, unit).words(0).replace("(in ", "(") for unit in ("rollouts", "steps")]
        last = f"{comparison.last(arm, 'rollouts').mean:,.0f}"
        assert row[1:] == [comparison.end(arm).words(), last, *costs]
    saved = [f"{comparison.saving(fst, unit).mean:.1f} (3 of 5 seeds)" for unit in ("rollouts", "steps")]
    assert rows[2][1:] == [comparison.margin(fst).words(), "", *saved]


def test_the_rewards_of_the_agent_with_tools_are_those_of_its_steps() -> None:
    table = next(table for table in tables_of("An agent") if "280 rollouts" in table[0][1])
    rows = {row[0]: row for row in table[2:]}
    for label, name, step in (("FST (`digest`)", "fst", 3), ("RL only", "rl", 4)):
        folders = sorted((STORED / "agent-tools").glob(f"{name}-*"))
        metrics = [[json.loads(line) for line in (each / "metrics.jsonl").read_text().splitlines()] for each in folders]
        rewards = [steps[step - 1]["reward"] for steps in metrics]
        found = over_seeds(rewards)
        assert rows[label][1] == f"{found.mean:.2f} [{found.low:.2f}, {found.high:.2f}]"
        assert rows[label][2] == ", ".join(f"{reward:.2f}" for reward in rewards)
