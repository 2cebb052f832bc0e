"""Fast loops against each other on a simulated policy: how much of the oracle's gain each finds with how many rollouts.

    python -m benchmarks.fast_loop run --out RESULTS [--optimizers digest gepa ace …] [--settings office thirty …]
                                       [--seeds 1000:1200] [--set effect=0.5 …]
    python -m benchmarks.fast_loop run --out RESULTS --optimizers digest --without IDEA …
    python -m benchmarks.fast_loop report RESULTS [--figure PICTURE.png]

The policy has no model (simulated_policy.py, simulated_handbook.py); everything else is the real fast loop: its pool, its
optimizers, `lessons` as the reflector. A setting is a kind of task, a point on the dials; `--set` turns a dial of all
settings. Optimizers were tuned on seeds below 1000: report seeds from 1000 on.

Every optimizer is given the same rollouts, re-scoring among them, up to each of a setting's marks; a cycle ends at each mark
and looks at new problems after it. With `--one-cycle` each mark is a run of its own that spends all its rollouts in one
cycle, so that nothing goes into re-scoring. What is reported is the share of the oracle's gain that the best text of the pool
has, (found - seed) / (oracle - seed), in exact expected reward on problems that were never played.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.fast_loop_ablation import ABLATIONS, without
from benchmarks.simulated_conventions import ConventionDials, ConventionPolicy, ConventionWorld
from benchmarks.simulated_families import FamilyDials, FamilyPolicy, FamilyWorld
from benchmarks.simulated_handbook import HandbookDials, HandbookPolicy, HandbookWorld
from benchmarks.simulated_policy import COMPONENT, Dials, Policy, World, count_tokens
from benchmarks.simulated_reports import ReportDials, ReportPolicy, ReportWorld
from benchmarks.simulated_shown import ShownDials, ShownPolicy, ShownWorld
from fastslow.base.world import World as Processes
from fastslow.base.world import derive_seed
from fastslow.fast.evaluator import Evaluator
from fastslow.fast.optimizers.digest import FIRST_LOOK
from fastslow.fast.pool import Pool
from fastslow.fast.reflection import Lessons
from fastslow.recipe import FastRecipe
from fastslow.recipe.parts import OPTIMIZER
from fastslow.records import Component, Context, Example, Rollout, Sampling
from fastslow.rollouts.play import Timing

AnyDials = Dials | HandbookDials | ConventionDials | ShownDials | FamilyDials | ReportDials


@dataclass(frozen=True)
class Setting:
    """A kind of task and the numbers of rollouts at which the best text is looked at."""

    dials: AnyDials
    marks: tuple[int, ...] = (200, 400, 800)


SHORT = (200, 400)
LONG = (250, 500, 1000)
SETTINGS = {
    "office": Setting(Dials()),
    "thirty": Setting(Dials(rules=30), LONG),
    "wrong": Setting(Dials(wrong=0.2)),
    "thirty-wrong": Setting(Dials(rules=30, wrong=0.2), LONG),
    "five": Setting(Dials(rules=5)),
    "forty": Setting(Dials(rules=40), LONG),
    "weak": Setting(Dials(effect=0.1)),
    "strong": Setting(Dials(effect=0.6)),
    "certain": Setting(Dials(base=0.05, effect=0.9)),
    "even": Setting(Dials(zipf=0.0)),
    "remarks": Setting(Dials(remarks=1.0)),
    "crowded": Setting(Dials(remarks=1.0, room=1.0, crowding=0.5)),
    "unworded": Setting(Dials(worded=0.0)),
    "unworded-wrong": Setting(Dials(worded=0.0, wrong=0.2)),
    "verdicts": Setting(Dials(verdicts=1.0)),
    "one-line": Setting(Dials(verdicts=1.0, one_line=1)),
    "reworded": Setting(Dials(wordings=4)),
    "twelve-wordings": Setting(Dials(wordings=12)),
    "twelve-wordings-wrong": Setting(Dials(wordings=12, wrong=0.2)),
    "drift": Setting(Dials(drift=0.2)),
    "two-together": Setting(ConventionDials(together=2, fixed=1, follow=0.5), SHORT),
    "three-together": Setting(ConventionDials(together=3, fixed=1, follow=0.5), SHORT),
    "silent": Setting(ConventionDials(together=3, base=0.0, follow=0.7), SHORT),
    "numbers": Setting(ConventionDials(numbers=1), SHORT),
    "praise": Setting(ConventionDials(praise=1, base=0.3), SHORT),
    "bad-line": Setting(ConventionDials(bad_line=0.4), SHORT),
    "poison": Setting(ConventionDials(poison=0.1), SHORT),
    "mostly-false": Setting(ConventionDials(false=0.8, base=0.3, rules=12), SHORT),
    "several": Setting(ConventionDials(together=3, says="all", follow=0.8), SHORT),
    "graded": Setting(ConventionDials(together=3, says="all", graded=1, follow=0.8), SHORT),
    "expected": Setting(ConventionDials(expected=1), SHORT),
    "lies": Setting(ConventionDials(lies=0.5), SHORT),
    "fifth-false": Setting(ConventionDials(lies=0.2, together=2), SHORT),
    "drifting": Setting(ConventionDials(drift=0.2, together=2), SHORT),
    "called-wrong": Setting(ConventionDials(verdict=1), SHORT),
    "breaking": Setting(ConventionDials(breaking=1, together=2, base=0.05, follow=0.7), SHORT),
    "shown": Setting(ShownDials(), SHORT),
    "shown-six": Setting(ShownDials(needed=6), SHORT),
    "shown-whole": Setting(ShownDials(needed=3, mend=0.0, whole=1), SHORT),
    "manual": Setting(FamilyDials("manual"), (200, 360)),
    "formats": Setting(FamilyDials("formats"), (200, 360)),
    "formats-rules": Setting(FamilyDials("formats", feedback="rules"), (200, 360)),
    "reports": Setting(ReportDials(), SHORT),
    "reports-all": Setting(ReportDials(says="all"), SHORT),
    "handbook": Setting(HandbookDials(), (100, 200, 300)),
    "handbook-30": Setting(HandbookDials(rules=30), (100, 200, 300, 600)),
    "handbook-hard": Setting(HandbookDials(follow=0.3, misled=0.4, formless=0.5), (100, 200, 300)),
    "handbook-copied": Setting(
        HandbookDials(follow=0.3, misled=0.4, formless=0.6, distracted=0.15, skew=0.3), (100, 200, 300)
    ),
    "handbook-wrong": Setting(HandbookDials(wrong=0.2), (100, 200, 300)),
    "thirty-at-once": Setting(HandbookDials(rules=30, grip=6), (300, 600)),
    "thirty-skills": Setting(HandbookDials(rules=30, grip=6, skills=3), (300, 600)),
}
PROPOSALS = 4
RECIPE: dict[str, Any] = {"population": 4, "anchors": 32, "minibatch": 8}
OPTIONS = {"gepa": {"proposals": PROPOSALS, "proposer": "full"}, "opro": {"proposals": PROPOSALS}}
"""The settings of examples/house-rules that frozen weights leave a choice of."""
READS_ON = {"digest": {"anchors": 96}}
"""They do not score carried contexts anew, and play only the anchors that they choose: all the problems that lie ahead in
that example may be among them."""


class Simulated:
    """A simulated policy as a player."""

    def __init__(self, policy: Policy | HandbookPolicy | ConventionPolicy | ShownPolicy | FamilyPolicy) -> None:
        self.policy = policy

    def play(
        self, pairs: Sequence[tuple[Example, Context]], sampling: Sampling, *, policy_step: int, seed: int
    ) -> tuple[list[Rollout], Timing]:
        return self.policy.play(pairs, "", seed), Timing()


KINDS: dict[type, tuple[Any, Any]] = {
    Dials: (World, Policy),
    ConventionDials: (ConventionWorld, ConventionPolicy),
    HandbookDials: (HandbookWorld, HandbookPolicy),
    ShownDials: (ShownWorld, ShownPolicy),
    FamilyDials: (FamilyWorld, FamilyPolicy),
    ReportDials: (ReportWorld, ReportPolicy),
}


def open_world(dials: AnyDials, seed: int) -> tuple[Any, Any]:
    """A world of this kind, and a policy in it."""
    of_world, of_policy = KINDS[type(dials)]
    world = of_world(dials, seed)
    return world, of_policy(world)


def evaluator_of(
    fast: FastRecipe,
    player: Simulated,
    anchors: list[Example],
    cycle: int,
    seed: int,
    budget: int,
    components: Sequence[Component] = (),
    problems: Callable[[], Sequence[Example]] = lambda: (),
) -> Evaluator:
    """One cycle's evaluator, without the run that it belongs to."""
    return Evaluator(
        fast,
        player,
        anchors,
        sampling=Sampling(),
        cycle=cycle,
        policy_step=cycle,
        seed=derive_seed(seed, "fast", cycle),
        budget=budget,
        evidence=None,
        components=components,
        count_tokens=count_tokens,
        world=Processes(),
        book=lambda purpose, rollouts, timing: None,
        problems=problems,
    )


def run_one(
    optimizer: str, setting: Setting, seed: int, recipe: dict[str, Any], one_cycle: bool
) -> list[dict[str, Any]]:
    """The best text at every mark."""
    world, policy = open_world(setting.dials, seed)
    seed_reward, oracle = ([world.reward(text, c) for c in range(len(setting.marks) + 1)] for text in
                           (world.seed_text, world.oracle_text))  # fmt: skip
    rows = []
    for runs in [[mark] for mark in setting.marks] if one_cycle else [setting.marks]:
        policy = type(policy)(world)
        chosen: Any = {"name": optimizer, **OPTIONS.get(optimizer, {})}
        fast = FastRecipe(optimizer=chosen, **{**recipe, **READS_ON.get(optimizer, {})})
        pool, position = Pool.from_texts({COMPONENT: world.seed_text}), 0
        for cycle, mark in enumerate(runs):
            policy.cycle = cycle
            anchors = [world.problem("train", position + index) for index in range(fast.anchors)]
            position += fast.anchors
            first = not policy.rollouts
            rescored = len(pool.members) * fast.anchors
            if optimizer in READS_ON:
                rescored = FIRST_LOOK if first else 0
            budget = max(0, mark - policy.rollouts - rescored)
            components = library.components if (library := getattr(world, "library", None)) else ()
            evaluator = evaluator_of(
                fast, Simulated(policy), anchors, cycle, seed, budget, components, partial(drawn, world, position)
            )
            pool = OPTIMIZER.registry.find(optimizer)(fast).evolve(evaluator, Lessons(), pool).pool
            reward = world.reward(pool.best.context.texts[COMPONENT], cycle)
            gain = oracle[cycle] - seed_reward[cycle]
            rows.append(
                {
                    "mark": mark,
                    "rollouts": policy.rollouts,
                    "share": (reward - seed_reward[cycle]) / gain,
                    "reward": reward,
                    "worse": reward < seed_reward[cycle] - 1e-9,
                }
            )
    return rows


def drawn(world: Any, count: int) -> list[Example]:
    """The training problems so far."""
    return [world.problem("train", index) for index in range(count)]


def turned(dials: AnyDials, changes: list[str]) -> AnyDials:
    kinds = {field.name: type(getattr(dials, field.name)) for field in fields(dials)}
    given = {}
    for change in changes:
        name, _, value = change.partition("=")
        if name not in kinds:
            raise SystemExit(f"there is no dial '{name}'; the dials are: {', '.join(kinds)}")
        given[name] = kinds[name](value)
    return replace(dials, **given)


def seeds_of(text: str) -> range:
    first, _, end = text.partition(":")
    return range(int(first), int(end or int(first) + 1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="simulate, one JSON file for each setting and optimizer")
    run.add_argument("--out", type=Path, required=True)
    run.add_argument(
        "--optimizers", nargs="+", choices=OPTIMIZER.registry.names(), default=["digest", "gepa", "ace", "opro"]
    )
    run.add_argument("--settings", nargs="+", choices=SETTINGS, default=["office", "thirty", "wrong"])
    run.add_argument("--seeds", type=seeds_of, default=range(1000, 1200), help="FIRST:END, END not included")
    run.add_argument("--set", nargs="*", default=[], help="DIAL=VALUE, for all settings")
    run.add_argument("--fast", nargs="*", default=[], help="KEY=NUMBER of the recipe's fast section")
    run.add_argument("--one-cycle", action="store_true")
    run.add_argument("--without", choices=ABLATIONS, help="an idea of `digest` to switch off")
    reporter = commands.add_parser("report", help="a table of what was simulated, and a picture")
    reporter.add_argument("folder", type=Path)
    reporter.add_argument("--figure", type=Path)
    options = parser.parse_args()
    if options.command == "report":
        from benchmarks.fast_loop_report import report

        report(options.folder, options.figure)
        return
    recipe = {**RECIPE, **{name: int(value) for name, value in (item.split("=") for item in options.fast)}}
    options.out.mkdir(parents=True, exist_ok=True)
    for name in options.settings:
        setting = replace(SETTINGS[name], dials=turned(SETTINGS[name].dials, options.set))
        for optimizer in options.optimizers:
            with without(options.without):
                rows = [
                    {"seed": seed, **row}
                    for seed in options.seeds
                    for row in run_one(optimizer, setting, seed, recipe, options.one_cycle)
                ]
            label = f"{optimizer}{', one cycle' if options.one_cycle else ''}"
            label += f", without {options.without}" if options.without else ""
            target = options.out / f"{name}-{label.replace(' ', '-').replace(',', '')}.json"
            target.write_text(json.dumps({"setting": name, "optimizer": label, "rows": rows}))
            shown = []
            for mark in setting.marks:
                at = [row for row in rows if row["mark"] == mark]
                mean = sum(row["share"] for row in at) / len(at)
                shown.append(f"{mark}: {mean:.3f} ({sum(row['worse'] for row in at)} of {len(at)} below the seed text)")
            print(f"{name}, {label}: {'; '.join(shown)}", flush=True)


if __name__ == "__main__":
    main()
