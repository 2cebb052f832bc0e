"""What `sampling.ahead` saves and what it costs: runs that wait for every answer against runs that do not, over seeds.

    python benchmarks/ahead.py run --seeds 0 1 --out RESULTS [--recipe FILE] [--ahead 0 0.5 1 2] [KEY=VALUE …]
    python benchmarks/ahead.py report RESULTS
    python benchmarks/ahead.py rule [--mean 345] [--limit 1024] [--problems 16] [--group 8] [--cycle 6] [--ahead 0 0.5 1 2]

`run` trains one run after the other, so that they do not share the machine, and writes one JSON file for each; repeat the
command to resume. `report` needs only those files: it prints a table and writes
ahead.png: reward against rollouts, seconds a step by phase, and how old the trained tokens were. Decoding steps are those of
the slow loop; each reads all weights once, for however many rows. `rule` trains nothing: it plays the rule alone on answers
that end at random, exponential with this mean and truncated at the limit, and prints decoding steps and ages.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from fastslow.study.curves import Curve, over_seeds
from fastslow.study.figures import SEEDS_FOR_BAND, dress, mean_line, new_figure, titled

PHASES = {"sampling": "#56B4E9", "grading": "#CC79A7", "update": "#999999", "sync": "#E69F00"}
COLOURS = ["#000000", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00"]


@contextmanager
def counting() -> Iterator[list[int]]:
    """The decoding steps of every slow step made in this block."""
    from fastslow.loop import Loop
    from fastslow.prefix.sampling import _Decoding

    made: list[int] = []
    drawn = 0
    run, play = _Decoding.run, Loop._play

    def counted_run(self: _Decoding, *arguments: Any) -> None:
        nonlocal drawn
        run(self, *arguments)
        drawn += self.drawn

    def counted_play(self: Loop) -> Any:
        before = drawn
        played = play(self)
        made.append(drawn - before)
        return played

    _Decoding.run, Loop._play = counted_run, counted_play  # type: ignore[method-assign]
    try:
        yield made
    finally:
        _Decoding.run, Loop._play = run, play  # type: ignore[method-assign]


def run_one(setting: str, seed: int, recipe: Path | None, overrides: Sequence[str]) -> dict[str, Any]:
    from fastslow import RunFolder, load_recipe
    from fastslow.launch.start import train
    from fastslow.study.studies import RECIPE

    settings = [*overrides, f"seed={seed}", f"sampling.ahead={setting}"]
    with tempfile.TemporaryDirectory() as work, counting() as decoding:
        run = RunFolder.open(train(load_recipe(recipe or RECIPE, settings), Path(work) / "run"))
        rows = run.rows("metrics")
        kept = ("step", "reward", "response_length", "truncated", "ages", "staleness", "in_play", "phases")
        metrics = [{key: row[key] for key in kept} for row in rows]
        return {"evals": run.rows("evals"), "metrics": metrics, "decoding": decoding, "overrides": list(overrides)}


def numbers(result: dict[str, Any]) -> dict[str, float]:
    """What one run says, a step; its first step, in which libraries are set up, is left out of the seconds."""
    rows, curve = result["metrics"], Curve.from_rows(result["evals"])
    ages = age_counts([result])
    seconds = {phase: fmean(row["phases"].get(phase, 0.0) for row in rows[1:]) for phase in PHASES}
    return {
        "final reward": curve.rewards[-1],
        "mean reward": fmean(curve.rewards[1:]),
        "rollouts": curve.rollouts[-1],
        "seconds a step": sum(seconds.values()),
        "of them sampling": seconds["sampling"],
        "decoding steps": fmean(result["decoding"]),
        "staleness": sum(age * count for age, count in ages.items()) / sum(ages.values()),
        "oldest": max(ages),
    }


def age_counts(results: Sequence[dict[str, Any]]) -> Counter[int]:
    """Trained tokens by their age in steps."""
    ages: Counter[int] = Counter()
    for result in results:
        for row in result["metrics"]:
            ages.update({int(age): count for age, count in row["ages"].items()})
    return ages


def simulate(
    ahead: float, lengths: Iterator[int], problems: int, group: int, cycle: int, steps: int = 600
) -> tuple[float, Counter[int]]:
    """Decoding steps a step, and how many groups were trained how many steps after they were begun."""
    extra = math.ceil(ahead * problems)
    left: dict[int, int] = {}
    """Decoding steps that a group still needs, by its position."""
    begun: dict[int, int] = {}
    ages: Counter[int] = Counter()
    decoded = 0
    for step in range(steps):
        horizon = min(steps, (step // cycle + 1) * cycle)
        first, last = step * problems + len(left), min((step + 1) * problems + extra, horizon * problems)
        due = [needs for position, needs in left.items() if position < step * problems]
        if any(due) or list(left.values()).count(0) < problems:
            for position in range(first, last):
                left[position], begun[position] = max(next(lengths) for _ in range(group)), step
        due = [needs for position, needs in left.items() if position < step * problems]
        needed = max(*due, sorted(left.values())[problems - 1], 0) if due else sorted(left.values())[problems - 1]
        left = {position: max(needs - needed, 0) for position, needs in left.items()}
        decoded += needed
        for position in [position for position, needs in left.items() if not needs][:problems]:
            ages[step - begun[position]] += 1
            del left[position]
    return decoded / steps, ages


def answers(mean: float, limit: int) -> Iterator[int]:
    """Lengths of answers that end with one chance at every token, with this mean after the limit."""
    low, high = 1.0, 1000 * mean
    for _ in range(100):
        scale = (low + high) / 2
        low, high = (scale, high) if scale * (1 - math.exp(-limit / scale)) < mean else (low, scale)
    draw = random.Random(0)
    while True:
        yield min(limit, 1 + int(draw.expovariate(1 / low)))


def rule(chosen: argparse.Namespace) -> None:
    print("| ahead | decoding steps a step | mean age of a group | oldest |\n|---|---|---|---|")
    for setting in chosen.ahead:
        lengths = answers(chosen.mean, chosen.limit)
        decoded, ages = simulate(float(setting), lengths, chosen.problems, chosen.group, chosen.cycle)
        mean = sum(each * count for each, count in ages.items()) / ages.total()
        print(f"| {setting} | {decoded:.0f} | {mean:.2f} | {max(ages)} |")


def report(out: Path) -> None:
    found: dict[str, list[dict[str, Any]]] = {}
    for file in sorted(out.glob("ahead-*-seed-*.json"), key=lambda file: (float(name_of(file)), file.name)):
        found.setdefault(name_of(file), []).append(json.loads(file.read_text()))
    names = list(numbers(next(iter(found.values()))[0]))
    print("| ahead | runs | " + " | ".join(names) + " |\n" + "|---" * (len(names) + 2) + "|")
    for name, results in found.items():
        each = [numbers(result) for result in results]
        print(f"| {name} | {len(each)} | " + " | ".join(shown([one[key] for one in each]) for key in names) + " |")
    draw(found).savefig(out / "ahead.png", dpi=150)


def name_of(file: Path) -> str:
    return file.name.split("-")[1]


def shown(values: Sequence[float]) -> str:
    found = over_seeds(list(values))
    return f"{found.mean:.3g}" + (f" [{found.low:.3g}, {found.high:.3g}]" if len(values) >= SEEDS_FOR_BAND else "")


def draw(found: dict[str, list[dict[str, Any]]]) -> Any:
    figure = new_figure((11, 3.9))
    reward, seconds, ages = figure.subplots(1, 3)
    for colour, (name, results) in zip(COLOURS, found.items(), strict=False):
        curves = [Curve.from_rows(result["evals"]) for result in results]
        lines = [(np.array(curve.rollouts, dtype=float), np.array(curve.rewards)) for curve in curves]
        for xs, ys in lines:
            reward.plot(xs, ys, color=colour, linewidth=0.7, alpha=0.4)
        grid, estimates = mean_line(lines)
        reward.plot(grid, [each.mean for each in estimates], color=colour, label=f"ahead {name}")
        counts = age_counts(results)
        offset = (list(found).index(name) - (len(found) - 1) / 2) * 0.8 / len(found)
        shares = [counts[age] / sum(counts.values()) for age in range(max(counts) + 1)]
        ages.bar(np.arange(len(shares)) + offset, shares, width=0.8 / len(found), color=colour)
    bottom = np.zeros(len(found))
    for phase, colour in PHASES.items():
        heights = [
            fmean(row["phases"].get(phase, 0.0) for result in results for row in result["metrics"][1:])
            for results in found.values()
        ]
        if any(heights):
            seconds.bar(range(len(found)), heights, bottom=bottom, color=colour, label=phase, width=0.6)
            bottom += heights
    dress(reward, "rollouts, both loops", "validation reward")
    dress(seconds, "ahead", "seconds a step")
    dress(ages, "age in steps", "share of trained tokens")
    seconds.set_xlim(-0.6, len(found) - 0.4)
    seconds.set_xticks(range(len(found)), list(found))
    ages.set_xlim(left=-0.6)
    reward.legend(frameon=False, fontsize=8)
    seconds.legend(frameon=False, fontsize=8)
    seeds = max(map(len, found.values()))
    return titled(
        figure, "Not waiting for the longest answers", f"{seeds} seeds; thin lines are seeds, thick ones means"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    runs = verbs.add_parser("run")
    runs.add_argument("--seeds", type=int, nargs="+", required=True)
    runs.add_argument("--out", type=Path, required=True)
    runs.add_argument("--recipe", type=Path, help="the studies' by default")
    runs.add_argument("--ahead", nargs="+", default=["0", "0.5", "1", "2"])
    runs.add_argument("overrides", nargs="*", help="KEY=VALUE")
    verbs.add_parser("report").add_argument("out", type=Path)
    alone = verbs.add_parser("rule")
    alone.add_argument("--ahead", nargs="+", default=["0", "0.5", "1", "2", "3"])
    for name, default in {"mean": 345, "limit": 1024, "problems": 16, "group": 8, "cycle": 6}.items():
        alone.add_argument(f"--{name}", type=int, default=default)
    chosen = parser.parse_args()
    if chosen.verb == "rule":
        return rule(chosen)
    if chosen.verb == "run":
        chosen.out.mkdir(parents=True, exist_ok=True)
        for seed in chosen.seeds:
            for setting in chosen.ahead:
                file = chosen.out / f"ahead-{setting}-seed-{seed}.json"
                if not file.exists():
                    file.write_text(json.dumps(run_one(setting, seed, chosen.recipe, chosen.overrides)))
    return report(chosen.out)


if __name__ == "__main__":
    main()
