"""`fastslow suite`: GEPA only from the base model and from each run's weights, on several tasks.

All start from the task's own seed text with the same budget, and are scored before and after.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fastslow.base.errors import FastSlowError, Interrupted
from fastslow.launch.assembly import Snapshot, open_snapshot
from fastslow.launch.export import save_policy
from fastslow.models.tokenizer import ADAPTER
from fastslow.recipe import Recipe, build_recipe, load_recipe, read_stored_recipe
from fastslow.recipe.model import Method
from fastslow.runs.folder import RunFolder
from fastslow.runs.trust import require_trust
from fastslow.study.arms import LOOKS
from fastslow.study.figures.drawing import save
from fastslow.study.figures.radar import Spoke, over, radar, radar_title
from fastslow.study.intervals import Estimate, over_seeds
from fastslow.study.tables import shown, write_known
from fastslow.study.training import finished, refuse_other_settings, train_or_resume

BASE = "Base"


@dataclass(frozen=True)
class Source:
    """Weights to start from: the base model's, or those of a run."""

    label: str
    method: Method | None
    seed: int
    snapshot: Snapshot | None = None

    @property
    def slug(self) -> str:
        return f"{self.method or 'base'}-seed{self.seed}"


def run_suite(
    runs: Sequence[str | Path],
    tasks: Sequence[str],
    out: str | Path,
    console: Console,
    *,
    recipe: str | Path | None = None,
    overrides: Sequence[str] = (),
    cycles: int = 1,
    k: int = 8,
    trust: bool = False,
) -> list[Spoke]:
    """Train the runs that are not finished, then show and write the results."""
    out = Path(out)
    sources = find_sources(runs, trust)
    stored = Path(runs[0]) / "recipe.yaml"
    template = load_recipe(recipe, overrides) if recipe else read_stored_recipe(stored, overrides)
    named = {
        " ".join([task["name"], *(f"{key}={value}" for key, value in task.items() if key != "name")]): task
        for task in map(read_task, tasks)
    }
    if not named:
        raise FastSlowError("no task is given; add some (--task rulebook/harbour --task rulebook/library …)")
    planned = [(name, source) for name in named for source in sources]
    for place, (name, source) in enumerate(planned, 1):
        path = _path(out, name, source)
        made = _recipe(template, named[name], source, _weights(source, template, out), cycles, k)
        refuse_other_settings(made, path, out)
        if not finished(path):
            head = f"\n{place} of {len(planned)}: {source.label} → GEPA on {name}, seed {source.seed}"
            console.print(Text(head, style="bold"), soft_wrap=True)
        try:
            train_or_resume(made, path)
        except (Interrupted, KeyboardInterrupt):
            raise Interrupted("interrupted; repeat the command to resume") from None
    spokes = collect(out, list(named), sources)
    write_known(out / "suite.csv", [spoke.row() for spoke in spokes])
    console.print(suite_table(spokes, k))
    if len(named) >= 3:
        save(radar(spokes, k), out, "radar")
        where = f"{radar_title(spokes)}. The radar chart is in {out / 'radar.png'}, the table is in suite.csv."
    else:
        where = f"The table is in {out / 'suite.csv'}. A radar chart needs at least three tasks."
    console.print(Text(where))
    return spokes


def find_sources(runs: Sequence[str | Path], trust: bool = False) -> list[Source]:
    """The base model for every seed, then the runs."""
    if not runs:
        raise FastSlowError("no run is given; give folders of runs of `fastslow train`")
    snapshots = [open_snapshot(run) for run in runs]
    for snapshot in snapshots:
        require_trust(snapshot.run.path, snapshot.run.recipe, trust)
    models = {snapshot.run.recipe.model.name: snapshot.run.path for snapshot in snapshots}
    if len(models) > 1:
        (first, there), (second, here), *_ = models.items()
        raise FastSlowError(
            f"the runs start from different base models: '{there}' from {first}, '{here}' from {second}; give runs of one "
            "base model"
        )
    found: dict[tuple[int, int], Source] = {}
    for snapshot in snapshots:
        method, seed = snapshot.run.recipe.method, snapshot.run.recipe.seed
        if method == "gepa":
            raise FastSlowError(
                f"'{snapshot.run.path}' has frozen weights (method=gepa), which are the base model's; remove it"
            )
        source, key = Source(LOOKS[method].name, method, seed, snapshot), (list(LOOKS).index(method), seed)
        if key in found:
            raise FastSlowError(
                f"'{snapshot.run.path}' is a second run of {source.label} with seed {seed}; give one run per method and seed"
            )
        found[key] = source
    seeds = sorted({seed for _, seed in found})
    return [*(Source(BASE, None, seed) for seed in seeds), *(found[key] for key in sorted(found))]


def collect(out: Path, tasks: Sequence[str], sources: Sequence[Source]) -> list[Spoke]:
    """Every score of a finished suite over seeds: by task, source, before and after GEPA, mean@k and best@k."""
    labels = {source.label: source.method for source in sources}
    spokes = []
    for task in tasks:
        for label, method in labels.items():
            rows = [
                RunFolder.open(_path(out, task, source)).rows("evals") for source in sources if source.label == label
            ]
            before = [each[0]["results"]["seed"] for each in rows]
            after = [each[-1]["results"].get("best context", each[-1]["results"]["seed"]) for each in rows]
            for when, results in (("before", before), ("after", after)):
                for measure, low, high in (("mean", "low", "high"), ("best", "best_low", "best_high")):
                    score = over_seeds([result[measure] for result in results], 0.0, 1.0)
                    if len(results) == 1:  # the interval of one seed is over problems
                        score = Estimate(results[0][measure], results[0][low], results[0][high])
                    spokes.append(Spoke(task, label, method, when, measure, score, results[0]["problems"]))
    return spokes


def suite_table(spokes: Sequence[Spoke], k: int) -> Table:
    found = {(spoke.task, spoke.source, spoke.when, spoke.measure): spoke.score.words() for spoke in spokes}
    columns = [(when, measure) for measure in ("mean", "best") for when in ("before", "after")]
    rows = [
        (task, source, *(found[task, source, when, measure] for when, measure in columns))
        for task, source in dict.fromkeys((spoke.task, spoke.source) for spoke in spokes)
    ]
    head = ("task", "from", f"mean@{k} before", "after GEPA", f"best@{k} before", "after GEPA")
    return shown(f"GEPA only from each starting point; 95% intervals over {over(spokes)}", head, rows, left=2)


def read_task(text: str, option: str = "--task") -> dict[str, Any]:
    """A task from the command line: NAME, or YAML with its options."""
    try:
        read = yaml.safe_load(text)
    except yaml.YAMLError:
        read = None
    if isinstance(read, str):
        return {"name": read}
    if isinstance(read, dict) and "name" in read:
        return read
    raise FastSlowError(
        f"{option} {text}: expected a name (rulebook/harbour) or options ({{name: rulebook, book: harbour}})"
    )


def _path(out: Path, task: str, source: Source) -> Path:
    return out / "runs" / re.sub(r"[^\w.=-]+", "-", task).strip("-") / source.slug


def _weights(source: Source, template: Recipe, out: Path) -> str:
    """The model to load: the base model, a checkpoint with full weights, or a checkpoint's adapter merged into the base."""
    if source.snapshot is None:
        return template.model.name
    if not (source.snapshot.path / ADAPTER).exists():
        return str(source.snapshot.path.resolve())
    target = out / "models" / source.slug
    if not (target / "config.json").exists():
        save_policy(source.snapshot, target)
    return str(target.resolve())


def _recipe(template: Recipe, task: dict[str, Any], source: Source, weights: str, cycles: int, k: int) -> Recipe:
    data = template.model_dump(mode="json")
    steps = cycles * template.fast.cycle
    data |= {"method": "gepa", "task": task, "stages": [], "seed": source.seed, "rollouts": None}
    data["model"] |= {"name": weights, "lora": None}
    data["engine"] = {"kind": "local"}  # the weights are here, not on a server
    data["slow"] |= {"steps": steps}
    data["evaluation"] |= {"every": steps, "k": k, "divergence": False}
    data["output"] |= {"folder": None, "checkpoint_every": steps, "save_rollouts": False}
    return build_recipe(data)
