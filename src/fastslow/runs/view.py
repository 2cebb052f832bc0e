"""The display of a run: a live screen on a terminal, a panel in a notebook, one line per event elsewhere."""

from __future__ import annotations

import math
import textwrap
import time
from collections.abc import Callable, Sequence
from typing import Any, Literal

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from fastslow.base.terminal import Terminal
from fastslow.base.text import duration, number, one_line, printable, scored, sparkline
from fastslow.recipe import Recipe
from fastslow.records import Rollout

Level = Literal["info", "warning"]
Drawn = tuple[float, int] | None
SHOWN_STEPS = 40
NARROWEST, LOWEST = 50, 15
"""The smallest terminal with a live screen, in columns and lines."""
FRAME = 4
"""Columns of the frame and its padding; as many lines are left for the frame and for messages."""
LABELS = 12
LEAST_FOR_A_SAMPLE = 8
"""Lines left below which the best context gets them all."""
MOST_SHOWN = 40
"""Lines that one paragraph of a context is wrapped to."""
BEST = "best_score"
"""The best score of a search, whose last digits count."""
POLICY_METRICS = {
    "entropy": "entropy",
    "response_length": "length",
    "zero_variance": "zero variance",
    "gradient_by_words": "ranked by words",
    "distilled": "distilled",
    BEST: "best",
    "evaluations": "evaluations",
}


class View:
    """Receives the events of a run, here in silence. Any metric may be missing; `close` may be called at any time."""

    def start(self, run: str, recipe: Recipe, step: int, rollouts: int = 0) -> None:
        """A run starts, or resumes after `step` steps and `rollouts` training rollouts."""

    def cycle(self, cycle: int, status: str) -> None:
        """Progress of the fast loop."""

    def doing(self, what: str) -> None:
        """Something begins that may take minutes without another event."""

    def step(self, step: int, total: int, metrics: dict[str, Any]) -> None:
        """A slow step has ended."""

    def spent(self, rollouts: int) -> None:
        """Training rollouts of both loops so far."""

    def sampled(self, rollouts: Sequence[Rollout]) -> None:
        """Training rollouts of either loop have been sampled and graded."""

    def evaluation(self, step: int, results: dict[str, dict[str, Any]]) -> None:
        """The evaluated contexts by label, each with mean, low, high, best, k and problems."""

    def context(self, best_id: str, score: float | None, text: str, drawn: Drawn = None) -> None:
        """The best context of the pool has changed. `drawn` is given where the score is an expectation: the mean score of the
        cycle's rollouts under the context, and their number."""

    def message(self, text: str, level: Level = "info") -> None:
        """A message or a warning."""

    def finish(self, summary: dict[str, Any]) -> None:
        """The run has finished."""

    def close(self) -> None:
        """Restore the terminal."""


def make_view(console: Console | None = None) -> View:
    """The live screen if the console supports it and has room for it, one panel in a notebook, plain lines otherwise."""
    console = console or Terminal()
    if console.is_jupyter and not console.quiet:
        from fastslow.runs.notebook import NotebookView

        return NotebookView()
    drawable = console.is_terminal and not console.is_dumb_terminal and console.encoding.startswith("utf")
    roomy = console.width >= NARROWEST and console.height >= LOWEST
    return LiveView(console) if drawable and roomy else PlainView(console)


class PlainView(View):
    """One line per event, for logs and pipes."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._limit: int | None = None

    def start(self, run: str, recipe: Recipe, step: int, rollouts: int = 0) -> None:
        self._limit = recipe.rollouts
        if self._limit is None:
            start = f"resumes after step {step} of" if step else "starts,"
            length = f"{recipe.slow.steps} steps"
        else:
            start = f"resumes after {rollouts} of" if rollouts else "starts,"
            length = f"{self._limit} rollouts"
        self._print(f"run {run}: {_described(recipe)}; {start} {length}")

    def cycle(self, cycle: int, status: str) -> None:
        self._print(f"cycle {cycle}: {status}")

    def doing(self, what: str) -> None:
        self._print(f"{what} …")

    def step(self, step: int, total: int, metrics: dict[str, Any]) -> None:
        parts = _labelled(metrics, {"reward": "reward", **POLICY_METRICS})
        if metrics.get("faulty_grades"):
            parts.append(f"faulty grades {number(metrics['faulty_grades'])}")
        if used := _rollouts_line(metrics):
            parts.append(f"rollouts {used}")
        if metrics.get("seconds") is not None:
            parts.append(f"{metrics['seconds']:.1f} s")
        of = f"/{total}" if self._limit is None else ""
        self._print(f"step {step}{of}: " + ", ".join(parts or ["done"]))

    def evaluation(self, step: int, results: dict[str, dict[str, Any]]) -> None:
        lines = (_evaluation_line(label, result) for label, result in results.items())
        self._print(f"evaluation at step {step}: " + "; ".join(lines))

    def context(self, best_id: str, score: float | None, text: str, drawn: Drawn = None) -> None:
        shown = textwrap.shorten(text, 200, placeholder=" …")
        self._print(f"best context {best_id}, {scored(score, drawn)}: {shown}")

    def message(self, text: str, level: Level = "info") -> None:
        self._print(f"warning: {text}" if level == "warning" else text)

    def finish(self, summary: dict[str, Any]) -> None:
        self._print("finished: " + ", ".join(f"{key} {number(value)}" for key, value in summary.items()))

    def _print(self, line: str) -> None:
        # A character that the log cannot encode must not end the run.
        encoding = self.console.encoding
        shown = printable(line).encode(encoding, "backslashreplace").decode(encoding)
        self.console.print(Text(shown), soft_wrap=True)


class LiveView(View):
    """One screen that stays in place; messages scroll above it. The numbers come first; the best context and a sampled
    rollout get the lines that are left."""

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self.console = console
        self._clock = clock
        self._title = self._subtitle = ""
        self._started = clock()
        self._limit: int | None = None  # the rollout budget, if the run has one
        self._done = self._total = 0
        self._rollouts, self._expected = 0, 1
        self._began = 0.0  # the fraction of the run that was done when this process began
        self._batches = 0
        self._sample: Rollout | None = None
        self._rewards: tuple[float, ...] = ()  # replaced, never mutated: another thread reads it
        self._metrics: dict[str, Any] = {}
        self._cycle: tuple[int, str] | None = None
        self._doing = ""
        self._evaluation: tuple[int, dict[str, dict[str, Any]]] | None = None
        self._context: tuple[str, str, str] | None = None
        self._live = Live(console=console, get_renderable=self._screen, refresh_per_second=2)

    def start(self, run: str, recipe: Recipe, step: int, rollouts: int = 0) -> None:
        self._title, self._subtitle = run, _described(recipe)
        self._started = self._clock()
        self._limit = recipe.rollouts
        self._done = step if self._limit is None else rollouts
        self._total = recipe.slow.steps if self._limit is None else self._limit
        self._rollouts, self._expected = rollouts, self._limit or _expected_rollouts(recipe)
        self._began = self._fraction()
        self._live.start()

    def cycle(self, cycle: int, status: str) -> None:
        self._cycle, self._doing = (cycle, status), ""
        self._changed()

    def doing(self, what: str) -> None:
        self._doing = what
        self._changed()

    def step(self, step: int, total: int, metrics: dict[str, Any]) -> None:
        self._metrics, self._doing = metrics, ""
        if self._limit is None:
            self._done, self._total = step, total
        reward = metrics.get("reward")
        if reward is not None and math.isfinite(reward):
            self._rewards = (*self._rewards, reward)[-SHOWN_STEPS:]
        self._changed()

    def spent(self, rollouts: int) -> None:
        self._rollouts = rollouts
        if self._limit is not None:
            self._done = rollouts
        self._changed()

    def sampled(self, rollouts: Sequence[Rollout]) -> None:
        if rollouts:
            self._sample = rollouts[self._batches % len(rollouts)]  # another problem each time
            self._batches += 1

    def evaluation(self, step: int, results: dict[str, dict[str, Any]]) -> None:
        self._evaluation, self._doing = (step, results), ""
        self._changed()

    def context(self, best_id: str, score: float | None, text: str, drawn: Drawn = None) -> None:
        self._context = (best_id, scored(score, drawn), text)
        self._changed()

    def _changed(self) -> None:
        """Rich draws by itself, twice a second."""

    def message(self, text: str, level: Level = "info") -> None:
        self.console.print(Text(printable(text), style="yellow" if level == "warning" else ""))

    def finish(self, summary: dict[str, Any]) -> None:
        self.close()
        for key, value in summary.items():
            self.console.print(Text.assemble((f"{key} ", "dim"), number(value)))

    def close(self) -> None:
        self._live.stop()

    def _screen(self) -> RenderableType:
        width, height = self.console.size
        rows, options = self._rows(), self.console.options.update(width=width - FRAME)
        taken = len(self.console.render_lines(_grid(rows), options, pad=False))
        shown = _grid([*rows, *self._texts(width - FRAME - LABELS, height - taken - FRAME)])
        return Panel(shown, title=Text(printable(self._title)), subtitle=Text(printable(self._subtitle)))

    def _texts(self, width: int, lines: int) -> list[tuple[str, RenderableType]]:
        """The best context and a sampled rollout, wrapped, in at most so many lines."""
        context: list[Text] = []
        if self._context is not None:
            best_id, score, text = self._context
            context = [Text(f"{best_id}  {score}"), *self._wrapped(text.strip(), width, "italic")]
        below: list[Text] = []
        if self._sample is not None and (lines >= LEAST_FOR_A_SAMPLE or not context):
            below = self._sample_lines(self._sample, width, max(lines // 2, lines - len(context)))
        above = _first(context, lines - len(below), width)
        shown = [("context", above), ("sample", below)]
        return [(label, Group(*found)) for label, found in shown if found]

    def _rows(self) -> list[tuple[str, RenderableType]]:
        rows: list[tuple[str, RenderableType]] = []
        if self._cycle is not None:
            rows.append(("cycle", f"{self._cycle[0]}  {self._cycle[1]}"))
        rows.append(("step" if self._limit is None else "spent", self._progress()))
        if self._rewards:
            rows.append(("reward", f"{number(self._rewards[-1])}  {sparkline(self._rewards)}"))
        rows += self._validation()
        if policy := _labelled(self._metrics, POLICY_METRICS):
            rows.append(("policy", ", ".join(policy)))
        if self._metrics.get("faulty_grades"):
            rows.append(("faulty grades", f"{number(self._metrics['faulty_grades'])} in the last step"))
        if used := _rollouts_line(self._metrics):
            rows.append(("rollouts", used))
        if self._doing:
            rows.append(("now", self._doing))
        rows.append(("time", self._time()))
        return rows

    def _progress(self) -> RenderableType:
        line = Table.grid(padding=(0, 2))
        unit = "" if self._limit is None else " rollouts"
        bar = ProgressBar(total=max(self._total, 1), completed=min(self._done, self._total), width=40)
        line.add_row(f"{self._done} of {self._total}{unit}", bar)
        return line

    def _validation(self) -> list[tuple[str, RenderableType]]:
        if self._evaluation is not None:
            step, results = self._evaluation
            lines = [_evaluation_line(label, result, problems=False) for label, result in results.items()]
            return [("validation", "\n".join([*lines, f"at step {step}"]))] if lines else []
        return []

    def _sample_lines(self, rollout: Rollout, width: int, lines: int) -> list[Text]:
        """The last turn's question and answer and the feedback, in at most so many lines; the question gives way."""
        head = f"{one_line(rollout.example.id, 60)}  score {number(rollout.score)}"
        found = _first([Text(printable(head), no_wrap=True, overflow="ellipsis")], lines, width)
        turn = rollout.turns[-1] if rollout.turns else None
        question, answer = (turn.question, turn.answer) if turn else ("", "")
        parts = {"asked": question, "answered": answer or "(nothing)", "feedback": rollout.feedback.text}
        wrapped = {
            name: self._wrapped(f"{name}: {text.strip()}", width) for name, text in parts.items() if text.strip()
        }
        left = lines - len(found)
        given: dict[str, list[Text]] = {}
        for place, name in enumerate(reversed(wrapped)):
            given[name] = _first(wrapped[name], left // (len(wrapped) - place), width)
            left -= len(given[name])
        return [*found, *(line for name in wrapped for line in given[name])]

    def _wrapped(self, text: str, width: int, style: str = "") -> list[Text]:
        lines = printable(text).expandtabs(4).splitlines()[: self.console.size.height]
        found = (Text(line[: MOST_SHOWN * width], style=style) for line in lines)
        return [part for line in found for part in line.wrap(self.console, max(width, 1), overflow="fold")]

    def _fraction(self) -> float:
        """How much of the run is done: by rollouts while the fast loop spends them, by steps where it ended early."""
        return min(1.0, max(self._rollouts / self._expected, self._done / max(self._total, 1)))

    def _time(self) -> str:
        elapsed, done = self._clock() - self._started, self._fraction()
        if done <= self._began:
            return f"{duration(elapsed)} elapsed"
        left = elapsed / (done - self._began) * (1 - done)
        return f"{duration(elapsed)} elapsed, about {duration(left)} left"


def _grid(rows: Sequence[tuple[str, RenderableType]]) -> Table:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True, min_width=LABELS - 2)
    grid.add_column()
    for label, value in rows:
        grid.add_row(label, Text(printable(value), overflow="fold") if isinstance(value, str) else value)
    return grid


def _labelled(metrics: dict[str, Any], labels: dict[str, str]) -> list[str]:
    shown = {key: metrics[key] for key in labels if metrics.get(key) is not None}
    return [f"{labels[key]} {f'{value:.10g}' if key == BEST else number(value)}" for key, value in shown.items()]


def _first(lines: Sequence[Text], most: int, width: int) -> list[Text]:
    """The first lines; the last of them shows that there are more."""
    if len(lines) <= most:
        return list(lines)
    kept = list(lines[: max(most, 0)])
    if kept:
        last = kept[-1].copy()
        last.truncate(max(width - 2, 0))
        kept[-1] = last.append(" …")
    return kept


def _expected_rollouts(recipe: Recipe) -> int:
    """The training rollouts that the settings of a run allow."""
    steps = recipe.slow.steps
    slow = 0 if recipe.method == "gepa" else steps * recipe.slow.problems * recipe.slow.group
    fast = 0 if recipe.method == "rl" else math.ceil(steps / recipe.fast.cycle) * recipe.fast.budget
    return max(1, slow + fast)


def _described(recipe: Recipe) -> str:
    stages = ", then ".join(f"{stage.name}@{stage.steps}" for stage in recipe.stages)
    tasks = stages or " + ".join(task.name for task in recipe.tasks)
    return f"{recipe.method}, model {recipe.model.name}, task {tasks}, seed {recipe.seed}"


def _evaluation_line(label: str, result: dict[str, Any], *, problems: bool = True) -> str:
    """One evaluated context: mean@k with its interval, best@k, and with `problems` the number of problems."""
    k = result.get("k", "k")
    line = f"{label} mean@{k} {number(result.get('mean'))}"
    if result.get("low") is not None and result.get("high") is not None:
        line += f" [{number(result['low'])}, {number(result['high'])}]"
    if result.get("best") is not None:
        line += f", best@{k} {number(result['best'])}"
    return line + (f" ({number(result['problems'])} problems)" if problems and "problems" in result else "")


def _rollouts_line(metrics: dict[str, Any]) -> str:
    used = {name: metrics.get(f"rollouts_{name}") for name in ("slow", "fast", "evaluation")}
    line = " + ".join(f"{number(count)} {name}" for name, count in used.items() if count is not None)
    reused = metrics.get("rollouts_reused")
    return f"{line} ({number(reused)} reused)" if reused else line
