"""`fastslow quickstart`: FST, RL only and GEPA only at equal rollouts on one hidden rulebook."""

from __future__ import annotations

import math
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from fastslow.base.errors import Interrupted
from fastslow.base.text import number, printable
from fastslow.launch.assembly import choose_seed_texts, open_snapshot
from fastslow.recipe import Recipe, load_recipe
from fastslow.recipe.model import Method
from fastslow.runs import files
from fastslow.study.arms import LOOKS
from fastslow.study.curves import Curve, read_curve
from fastslow.study.figures import draw_curves
from fastslow.study.sentences import shown
from fastslow.study.training import METHODS, check_methods, finished, run_method
from fastslow.tasks.registry import build_task

RECIPE = Path(__file__).with_name("quickstart.yaml")


def run_quickstart(overrides: Sequence[str], folder: Path, console: Console) -> None:
    """Train the runs that are not finished, then write and show the results."""
    recipe = load_recipe(RECIPE, overrides)
    check_methods(recipe, folder)
    try:
        for place, method in enumerate(METHODS, 1):
            if not finished(folder / method):
                heading = Text.assemble((f"\n{place} of {len(METHODS)}: {LOOKS[method].name}", "bold"))
                heading.append(f" {LOOKS[method].does}")
                if method != "fst":
                    spent = number(read_curve(folder / "fst").rollouts[-1])
                    heading.append(f", with the {spent} rollouts that FST spent")
                console.print(heading, soft_wrap=True)
                run_method(method, recipe, folder)
    except (Interrupted, KeyboardInterrupt):
        again = shlex.join([program(), "quickstart", *overrides, "--out", str(folder)])
        raise Interrupted(f"interrupted; `{again}` resumes") from None
    curves = {method: read_curve(folder / method) for method in METHODS}
    columns = {"reward": "rewards", "rollouts": "rollouts", "kl": "kls", "seconds": "seconds"}
    files.write_json(
        folder / "summary.json",
        {
            method: {name: getattr(curve, column)[-1] for name, column in columns.items()}
            for method, curve in curves.items()
        },
    )
    tasks = " and ".join(" ".join([task.name, *map(str, task.options.values())]) for task in recipe.tasks)
    bands = f"one seed; bands: 95% intervals over {recipe.evaluation.problems} validation problems"
    subtitle = f"{tasks}, model {recipe.model.name}, {bands}"
    draw_curves({method: [curve] for method, curve in curves.items()}, folder / "curves.png", subtitle)
    title = "What the model reads"
    texts = Table("seed text", "context evolved by FST", title=title, title_justify="left", expand=True)
    after = open_snapshot(folder / "fst", "last").pool.best.context.texts
    for component, text in choose_seed_texts(build_task(recipe), recipe.fast.seed_text).items():
        texts.add_row(Text(printable(text)), Text(printable(after[component])))
    console.print("\n", results_table(curves), "\n", texts, sep="")
    console.print(_next_steps(recipe, folder), soft_wrap=True)


def results_table(curves: Mapping[Method, Curve]) -> Table:
    reward = "validation reward\nand 95% interval"
    rows = [
        (
            Text.assemble((LOOKS[method].name, "bold"), f"\n{LOOKS[method].does}"),
            f"{curve.rewards[-1]:.3f}\n[{curve.lows[-1]:.3f}, {curve.highs[-1]:.3f}]",
            number(curve.rollouts[-1]),
            "-" if math.isnan(curve.kls[-1]) else f"{curve.kls[-1]:.4f}",
            f"{curve.seconds[-1]:,.0f}",
        )
        for method, curve in curves.items()
    ]
    head = ("method", reward, "training\nrollouts", "KL from\nbase", "training\nseconds")
    return shown("Three methods at equal rollouts", head, rows)


def program() -> str:
    """How to call this program: by its name, or by its path where the name is not on PATH."""
    if shutil.which("fastslow"):
        return "fastslow"
    beside = Path(sys.executable).with_name("fastslow")
    return str(beside.relative_to(Path.cwd()) if beside.is_relative_to(Path.cwd()) else beside)


def _next_steps(recipe: Recipe, folder: Path) -> Text:
    fst, seed = shlex.quote(str(folder / "fst")), recipe.seed + 1
    commands = {
        f"board {shlex.quote(str(folder))}": "the runs in a browser: curves, contexts, rollouts",
        f"contexts {fst}": "how the context evolved, edit by edit",
        f"eval {fst} --k 8 --split test": "evaluate it on test problems",
        f"export {fst} my-model": "a model folder for transformers and vLLM, with the context in its chat template",
        f"train {fst}/recipe.yaml task.book=orchard output.folder=runs/orchard": "FST on the rulebook orchard",
        f"quickstart seed={seed} --out {shlex.quote(f'{folder}-seed{seed}')}": f"all three with seed {seed}",
    }
    where = (str(folder / "curves.png"), "bold")
    lines = Text.assemble("\nThe curves are in ", where, ", the numbers in summary.json.\nNext steps:")
    for command, meaning in commands.items():
        lines.append(f"\n  {program()} {command}", style="bold")
        lines.append(f"\n      {meaning}", style="dim")
    return lines
