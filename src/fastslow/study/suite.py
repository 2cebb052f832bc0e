"""`fastslow suite`: GEPA only from the base model and from each run's weights, on several tasks; a table and a radar chart.

All start from the task's own seed text with the same budget, and are scored before and after.
"""

from __future__ import annotations

import math
import re
import textwrap
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console
from rich.text import Text

from fastslow.base.errors import FastSlowError, Interrupted
from fastslow.launch.assembly import Snapshot, open_snapshot
from fastslow.launch.export import save_policy
from fastslow.models.tokenizer import ADAPTER
from fastslow.recipe import Recipe, build_recipe, load_recipe, read_stored_recipe
from fastslow.recipe.model import Method
from fastslow.runs.folder import RunFolder
from fastslow.runs.trust import require_trust
from fastslow.study.arms import BASE, LOOKS
from fastslow.study.curves import Estimate, over_seeds
from fastslow.study.figures import new_figure, save
from fastslow.study.sentences import shown, write_known
from fastslow.study.training import finished, refuse_other_settings, train_or_resume


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
    found = {(spoke.task, spoke.source, spoke.when, spoke.measure): spoke.score.words() for spoke in spokes}
    columns = [(when, measure) for measure in ("mean", "best") for when in ("before", "after")]
    rows = [
        (task, source, *(found[task, source, when, measure] for when, measure in columns))
        for task, source in dict.fromkeys((spoke.task, spoke.source) for spoke in spokes)
    ]
    heads = ("task", "from", f"mean@{k} before", "after GEPA", f"best@{k} before", "after GEPA")
    title = f"GEPA only from each starting point; 95% intervals over {over(spokes)}"
    console.print(shown(title, heads, rows, left=2))
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
    snapshots = [open_snapshot(run, "last") for run in runs]
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
    return [*(Source("Base", None, seed) for seed in seeds), *(found[key] for key in sorted(found))]


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


@dataclass(frozen=True)
class Spoke:
    """One score: on a task, from some weights, before or after GEPA."""

    task: str
    source: str
    method: Method | None
    when: str
    measure: str
    score: Estimate
    problems: int

    def row(self) -> dict[str, Any]:
        score = {"score": self.score.mean, "low": self.score.low, "high": self.score.high, "seeds": self.score.seeds}
        named = {"task": self.task, "source": self.source, "when": self.when, "measure": self.measure}
        return {**named, **score, "problems": self.problems}


def radar_title(spokes: Sequence[Spoke], measure: str = "mean") -> str:
    """On how many tasks the best starting point is highest, ties included, and on how many its interval is apart."""
    after = [spoke for spoke in spokes if spoke.when == "after" and spoke.measure == measure]
    ends = {(spoke.task, spoke.source): spoke.score for spoke in after}
    wins, clear = Counter[str](), Counter[str]()
    for (task, source), mine in ends.items():
        others = [score for (other, _), score in ends.items() if other == task and score is not mine]
        wins[source] += all(mine.mean >= score.mean for score in others)
        clear[source] += mine.has_interval and all(score.has_interval and mine.low > score.high for score in others)
    most = max(wins.values())
    best = [source for source, count in wins.items() if count == most]
    on = f"highest on {most} of {len({task for task, _ in ends})} tasks"
    if len(best) > 1:
        return f"After GEPA, {' and '.join(best)} are each {on}"
    return f"After GEPA, {best[0]} is {on}, beyond the intervals on {clear[best[0]]}"


def over(spokes: Sequence[Spoke]) -> str:
    """What the intervals are over."""
    seeds = max(spoke.score.seeds for spoke in spokes)
    return f"{seeds} seeds" if seeds > 1 else f"{spokes[0].problems} problems, one seed"


def radar(spokes: Sequence[Spoke], k: int) -> Any:
    """Two charts, mean@k and best@k: dashed before GEPA, solid after."""
    figure = new_figure((11, 6.4))
    panels = figure.subplots(1, 2, subplot_kw={"projection": "polar"})
    tasks = list(dict.fromkeys(spoke.task for spoke in spokes))
    for panel, measure in zip(panels, ("mean", "best"), strict=True):
        _draw(panel, [spoke for spoke in spokes if spoke.measure == measure], tasks, labelled=measure == "mean")
        panel.set_title(f"{measure}@{k} (reward, 0 to 1)", fontsize=10, pad=28)
        panel.set_ylim(0, min(1.0, max(0.1, 1.15 * max(spoke.score.mean for spoke in spokes))))
    figure.suptitle(f"{radar_title(spokes)}\n", x=0.01, ha="left", fontsize=11.5, weight="bold")
    figure.text(
        0.012, 0.93, f"whiskers (shifted for legibility): 95% intervals over {over(spokes)}", fontsize=9, color="0.3"
    )
    figure.legend(loc="outside lower center", ncols=len({spoke.source for spoke in spokes}), frameon=False)
    return figure


def _draw(panel: Any, spokes: Sequence[Spoke], tasks: Sequence[str], labelled: bool) -> None:
    angles = [2 * math.pi * index / len(tasks) for index in range(len(tasks))]
    sources = list(dict.fromkeys((spoke.source, spoke.method) for spoke in spokes))
    for place, (source, method) in enumerate(sources):
        look = LOOKS[method] if method else BASE
        shift = 0.035 * (place - (len(sources) - 1) / 2)
        for when, style in (("before", "--"), ("after", "-")):
            found = {spoke.task: spoke.score for spoke in spokes if spoke.source == source and spoke.when == when}
            ring = [found[task].mean for task in (*tasks, tasks[0])]
            after = when == "after"
            label = f"{source} → GEPA" if after else f"{source}, before"
            panel.plot(
                [*angles, angles[0]], ring, color=look.colour, linestyle=style, marker=look.marker if after else None,
                markersize=6, linewidth=2 if after else 1.2, label=label if labelled else None,
            )  # fmt: skip
            for angle, task in zip(angles, tasks, strict=True):
                if after and found[task].has_interval:
                    ends = [found[task].low, found[task].high]
                    panel.plot([angle + shift] * 2, ends, color=look.colour, linewidth=1.2, alpha=0.6)
    panel.set_theta_offset(math.pi / 2)
    panel.set_theta_direction(-1)
    panel.set_xticks(angles, _short(tasks), fontsize=9)
    for label, angle in zip(panel.get_xticklabels(), angles, strict=True):
        side = math.sin(angle)  # names right of the middle start at the rim, those on the left end there
        label.set_horizontalalignment("center" if abs(side) < 0.1 else "left" if side > 0 else "right")
    panel.set_rlabel_position(180 / len(tasks))
    panel.tick_params(axis="y", labelsize=8, labelcolor="0.4")


def _short(tasks: Sequence[str]) -> list[str]:
    """Names without the words that all of them share."""
    words = [task.replace("/", " ").split() for task in tasks]
    shared = set(words[0]).intersection(*words)
    own = [" ".join(word for word in each if word not in shared) for each in words]
    return [textwrap.fill(short or task, 20) for short, task in zip(own, tasks, strict=True)]
