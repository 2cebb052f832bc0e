"""What each way of saving rollouts saves: the quickstart's rulebook with the settings of docs/rollouts.md, over seeds.

    python benchmarks/rollouts.py run --seeds 0 1 2 3 4 --out RESULTS [--jobs 1] [--variants paper reuse …] [KEY=VALUE …]
    python benchmarks/rollouts.py report RESULTS

`run` writes one JSON file a seed as its runs finish; repeat the command to resume. RL only runs at equal rollouts: its budget
is what the paper's schedule spent. `report` needs only those files and writes summary.md, summary.json and rollouts.png
beside them.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from seeds import side_by_side

from fastslow.study.curves import Curve, over_seeds
from fastslow.study.figures import dress, mean_line, new_figure, titled
from fastslow.study.measures import gain

FAST = ("fast-score", "fast-minibatch", "rescore")
"""What the fast loop draws, on the ledger."""
FREE = ["fast.rescore=from-rollouts"]
VARIANTS: dict[str, list[str]] = {
    "paper": [],
    "rl": ["method=rl"],
    "reuse": ["fast.reuse=true"],
    "from-rollouts": FREE,
    "adaptive": ["fast.adaptive=true"],
    "together": [*FREE, "fast.reuse=true", "fast.adaptive=true"],
    "lean": [
        "fast.rescore=from-rollouts",
        "fast.adaptive=true",
        "fast.cycle=24",
        "fast.optimizer.proposals=8",
        "fast.budget=60",
    ],
}
"""In the order they are run: the budget of RL only is what the paper's schedule spent. `lean` is for the clock: few cycles,
and children for about one large batch in each."""
COLOURS = {
    "rl": "#0072B2", "paper": "#000000", "reuse": "#D55E00", "from-rollouts": "#009E73", "adaptive": "#CC79A7",
    "together": "#E69F00", "lean": "#56B4E9",
}  # fmt: skip


def run_seed(seed: int, out: Path, variants: Sequence[str], overrides: list[str], recipe: Path | None) -> None:
    """All variants of one seed in a folder that goes away; their numbers stay."""
    from fastslow import RunFolder, load_recipe
    from fastslow.launch.start import train
    from fastslow.study.studies import RECIPE
    from fastslow.study.training import at_equal_rollouts

    out.mkdir(parents=True, exist_ok=True)
    file = out / f"seed-{seed}.json"
    results: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    for variant in [name for name in VARIANTS if name in variants and name not in results]:
        settings = [*overrides, *VARIANTS[variant], f"seed={seed}"]
        if variant == "rl" and "paper" not in results:
            sys.exit("the budget of the variant rl is what the variant paper spent; run paper too")
        made = load_recipe(recipe or RECIPE, settings)
        if variant == "rl":
            made = at_equal_rollouts(made, Curve.from_rows(results["paper"]["evals"]))
        with tempfile.TemporaryDirectory() as work:
            run = RunFolder.open(train(made, Path(work) / "run"))
            phases: Counter[str] = Counter()
            for row in run.rows("metrics"):
                phases.update(row["phases"])
            results[variant] = {
                "evals": run.rows("evals"),
                "steps": len(run.rows("metrics")),
                "seconds": dict(phases),
                "ledger": run.read_json("ledger.json"),
            }
        unfinished = file.with_suffix(".unfinished")
        unfinished.write_text(json.dumps(results))
        unfinished.replace(file)


def interval(values: Sequence[float]) -> dict[str, Any]:
    """Mean and 95% interval over the seeds that have a value."""
    found = over_seeds([value if math.isfinite(value) else math.nan for value in values])
    numbers = {"mean": found.mean, "low": found.low, "high": found.high}
    known = {name: None if math.isnan(number) else number for name, number in numbers.items()}
    return {**known, "seeds": found.seeds, "of": len(values)}


def ratio(values: Sequence[float]) -> dict[str, Any]:
    """The geometric mean of ratios with its interval: as far above one as below counts the same."""
    found = interval([math.log(value) if 0 < value < math.inf else math.inf for value in values])
    return {
        key: math.exp(value) if key in ("mean", "low", "high") and value is not None else value
        for key, value in found.items()
    }


def seconds_a_step(result: dict[str, Any]) -> tuple[float, float]:
    """Seconds a step took, measuring left out, and of them the fast loop's."""
    spent = {phase: seconds for phase, seconds in result["seconds"].items() if phase != "evaluation"}
    return sum(spent.values()) / result["steps"], spent.get("fast", 0.0) / result["steps"]


def summarize(seeds: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Every variant's numbers over the seeds; what compares with RL only does so seed by seed."""
    summary: dict[str, Any] = {}
    others = [Curve.from_rows(seed["rl"]["evals"]) for seed in seeds if "rl" in seed]
    start, level = gain(others) if others else (math.nan, math.nan)
    for variant in [name for name in VARIANTS if all(name in seed for seed in seeds)]:
        measured: dict[str, list[float]] = {}
        for seed in seeds:
            result, rl = seed[variant], seed.get("rl")
            curve, ledger = Curve.from_rows(result["evals"]), result["ledger"]
            whole, fast = seconds_a_step(result)
            slow = ledger["slow"]["rollouts"] + ledger["slow"]["reused"]
            values = {
                "reward": curve.rewards[-1],
                "rollouts": curve.rollouts[-1],
                "fast_rollouts": sum(ledger[purpose]["rollouts"] for purpose in FAST),
                "kl": curve.kls[-1],
                "cached": ledger["slow"]["reused"] / slow if slow else math.nan,
                "seconds": whole,
                "fast_seconds": fast,
            }
            if rl is not None:
                other = Curve.from_rows(rl["evals"])
                needed, cost = other.cost(level, "rollouts"), curve.cost(level, "rollouts")
                if variant != "rl" and curve.reached(level) == 1:  # when before its first evaluation is not known
                    cost = curve.rollouts[1]
                values["to_level"] = cost
                values["fewer"] = needed / cost if level > start and cost else math.nan
                values["fast_share"] = fast / seconds_a_step(rl)[0]
                values["added"] = whole / seconds_a_step(rl)[0] - 1
            for name, value in values.items():
                measured.setdefault(name, []).append(value)
        summary[variant] = {name: (ratio if name == "fewer" else interval)(each) for name, each in measured.items()}
    return summary


COLUMNS: dict[str, tuple[str, str]] = {
    "reward": ("final reward", "{:.3f}"),
    "rollouts": ("rollouts in all", "{:.0f}"),
    "fast_rollouts": ("of them the fast loop's", "{:.0f}"),
    "to_level": ("rollouts to 80% of RL's gain, at most", "{:.0f}"),
    "fewer": ("times fewer than RL, at least", "{:.2f}"),
    "cached": ("slow rollouts from the cache", "{:.0%}"),
    "kl": ("KL", "{:.4f}"),
    "seconds": ("seconds a step", "{:.2f}"),
    "fast_seconds": ("of them the fast loop", "{:.2f}"),
    "fast_share": ("the fast loop's against an RL step", "{:.0%}"),
    "added": ("whole step against an RL step", "{:+.0%}"),
}


def table(summary: dict[str, Any], seeds: Sequence[str]) -> str:
    """Markdown; means with 95% intervals, and how many seeds reached 80% of RL's gain where not all did."""

    def cell(found: dict[str, Any] | None, form: str) -> str:
        if not found or found["mean"] is None:
            return "never" if found else "-"
        text = form.format(found["mean"])
        if found["low"] is not None:
            text += f" [{form.format(found['low'])}, {form.format(found['high'])}]"
        return text if found["seeds"] == found["of"] else f"{text} ({found['seeds']} of {found['of']} seeds)"

    lines = [
        f"Seeds: {', '.join(seeds)}; means with 95% intervals over them.",
        "",
        "| variant | " + " | ".join(name for name, _ in COLUMNS.values()) + " |",
        "|---" * (len(COLUMNS) + 1) + "|",
    ]
    for variant, numbers in summary.items():
        cells = [cell(numbers.get(key), form) for key, (_, form) in COLUMNS.items()]
        lines.append(f"| {variant} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def draw(seeds: Sequence[dict[str, Any]], summary: dict[str, Any], target: Path) -> None:
    """Validation reward against all training rollouts, the mean over seeds, and how many fewer than RL each needs."""
    figure = new_figure((11, 5))
    left, right = figure.subplots(1, 2, width_ratios=[3, 2])
    for variant in summary:
        curves = [Curve.from_rows(seed[variant]["evals"]) for seed in seeds]
        grid, found = mean_line([(np.array(curve.rollouts), np.array(curve.rewards)) for curve in curves])
        left.plot(grid, [each.mean for each in found], color=COLOURS[variant], marker=".", label=variant)
        if len(seeds) > 2:
            bounds = [each.low for each in found], [each.high for each in found]
            left.fill_between(grid, *bounds, color=COLOURS[variant], alpha=0.1, linewidth=0)
    left.set_ylim(-0.02, 1.02)
    dress(left, "training rollouts played, both loops", "validation reward (0 to 1)")
    left.legend(frameon=False)
    others = {name: each for name, each in summary.items() if name != "rl"}
    shown = {name: each["fewer"] for name, each in others.items() if each.get("fewer", {}).get("mean")}
    for place, (variant, fewer) in enumerate(shown.items()):
        if fewer["low"] is not None:
            right.plot([fewer["low"], fewer["high"]], [place, place], color=COLOURS[variant], linewidth=2, alpha=0.6)
        right.plot([fewer["mean"]], [place], color=COLOURS[variant], marker="o", markersize=8)
        right.annotate(f"{fewer['mean']:.1f}×", (fewer["mean"], place), (0, 8), textcoords="offset points", ha="center")
    right.axvline(1, color="0.3", linewidth=1, linestyle="--")
    right.set_yticks(range(len(shown)), shown)
    right.set_ylim(len(shown) - 0.5, -0.6)
    right.set_xscale("log", base=2)
    right.xaxis.set_major_formatter("{x:g}×")
    right.set_xlabel("times fewer rollouts to 80% of RL's gain, at least")
    right.grid(axis="x", alpha=0.3)
    right.spines[["top", "right"]].set_visible(False)
    best = max(summary, key=lambda name: summary[name]["reward"]["mean"])
    finding = f"Reward at the end: {best} {summary[best]['reward']['mean']:.2f}"
    if "rl" in summary and best != "rl":
        finding += f", RL only {summary['rl']['reward']['mean']:.2f}"
    bands = ", bands and bars: 95% over seeds" if len(seeds) > 2 else ""
    titled(figure, finding, f"{len(seeds)} seed{'s' if len(seeds) > 1 else ''}{bands}")
    figure.savefig(target, dpi=150)


def report(folder: Path) -> None:
    files = {path.stem: json.loads(path.read_text()) for path in sorted(folder.glob("seed-*.json"))}
    if not files:
        sys.exit(f"no seed-*.json in '{folder}'; run the benchmark first")
    seeds = list(files.values())
    summary = summarize(seeds)
    text = table(summary, list(files))
    (folder / "summary.md").write_text(text)
    (folder / "summary.json").write_text(json.dumps(summary, indent=2) + "\n")
    draw(seeds, summary, folder / "rollouts.png")
    print(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run")
    run.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    run.add_argument("--out", type=Path, required=True)
    run.add_argument("--jobs", type=int, default=1)
    run.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    run.add_argument("--recipe", type=Path, help="in place of the quickstart's")
    run.add_argument("overrides", nargs="*")
    commands.add_parser("report").add_argument("folder", type=Path)
    options = parser.parse_args()
    if options.command == "report":
        report(options.folder)
    elif len(options.seeds) == 1:
        run_seed(options.seeds[0], options.out, options.variants, options.overrides, options.recipe)
    else:
        chosen = ["--variants", *options.variants, *(["--recipe", str(options.recipe)] if options.recipe else [])]
        start = [sys.executable, __file__, "run", "--out", str(options.out), *chosen, "--seeds"]
        side_by_side([[*start, str(seed), "--", *options.overrides] for seed in options.seeds], options.jobs)


if __name__ == "__main__":
    main()
