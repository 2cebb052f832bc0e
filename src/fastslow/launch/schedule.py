"""How many rollouts a run will play, by purpose: its schedule is walked through with the run's own state and stream.

What depends on scores is a range. A walk in which the searches spend the least gives the most steps that a rollout budget
allows; one in which they spend the most, the fewest. A run that stops early, by `slow.patience` or an error, plays less.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from fastslow.engine.kind import Rollouts
from fastslow.fast.evolution import choose_anchors
from fastslow.launch.assembly import choose_seed_texts
from fastslow.recipe import Recipe
from fastslow.recipe.parts import OPTIMIZER
from fastslow.runs.ledger import Entry, Purpose
from fastslow.slow.rescue.accounts import PROBES
from fastslow.slow.stream import Stream, open_stream
from fastslow.state import State
from fastslow.tasks import Task
from fastslow.tasks.stages import Stages


@dataclass(frozen=True)
class Span:
    """The least and the most."""

    least: int
    most: int

    def __str__(self) -> str:
        if self.least == self.most:
            return f"{self.most:,}"
        return f"{self.least:,} to {self.most:,}" if self.least else f"up to {self.most:,}"


KINDS: Mapping[str, tuple[Purpose, ...]] = {
    "slow": ("slow", "withdrawn"),
    "rescue": ("rescue",),
    "rescore": ("rescore",),
    "search": ("fast-minibatch", "fast-score"),
    "evaluation": ("evaluation",),
}
"""What is counted, and the ledger's purposes that it comprises."""
NAMES = {"rescue": "with help", "rescore": "to re-score contexts", "search": "to search for texts"}
"""The others are called as in KINDS."""


def count_rollouts(recipe: Recipe, task: Task) -> dict[str, Span]:
    """Rollouts by the names of KINDS. Those before step 1, one a task while grading works, are not counted."""
    long = _Walk(recipe, task, thrifty=True)
    short = long if recipe.rollouts is None else _Walk(recipe, task, thrifty=False)
    found = {kind: Span(short.least[kind], long.most[kind]) for kind in KINDS}
    if recipe.rollouts is not None:  # a run ends with the step in which they are spent
        for kind in ("rescue", "rescore", "search"):
            largest = min(found[kind].most, recipe.rollouts - 1 + long.largest[kind])
            found[kind] = Span(found[kind].least, largest)
    return found


def count_steps(recipe: Recipe, task: Task) -> Span:
    """Slow steps, of which a rollout budget may leave fewer."""
    least, most = (_Walk(recipe, task, thrifty=thrifty).state.step for thrifty in (False, True))
    return Span(least, most)


def at_most(counted: Mapping[str, Span]) -> Rollouts:
    """The most rollouts of each loop, and of evaluation."""
    most = {kind: span.most for kind, span in counted.items()}
    return Rollouts(most["slow"] + most["rescue"], most["rescore"] + most["search"], most["evaluation"])


def unspent(recipe: Recipe, counted: Mapping[str, Span]) -> str:
    """What is said of a rollout budget that the run cannot spend, because its steps end before."""
    most = sum(span.most for kind, span in counted.items() if kind != "evaluation")
    if recipe.rollouts is None or most >= recipe.rollouts:
        return ""
    ends = "the stages end" if recipe.stages else f"slow.steps={recipe.slow.steps:,} ends"
    return (
        f"rollouts={recipe.rollouts:,} cannot be spent: {ends} the run after at most {most:,}; "
        f"{'give the stages more steps' if recipe.stages else 'raise slow.steps'} to spend them"
    )


def rescue_rollouts(recipe: Recipe) -> int:
    """The most rollouts with help in one step."""
    if recipe.method == "gepa" or recipe.slow.rescue.name == "none":
        return 0
    asked = recipe.slow.rescue.options
    helpers = len(asked.get("models", ())) + asked.get("retry", True)
    return int(recipe.slow.problems * (helpers * asked["attempts"] + PROBES))


class _Walk:
    """One course of a run: least and most rollouts by kind, and the most of one step or cycle."""

    def __init__(self, recipe: Recipe, task: Task, *, thrifty: bool) -> None:
        self.recipe, self.task, self.thrifty = recipe, task, thrifty
        self.least, self.most, self.largest = Counter[str](), Counter[str](), Counter[str]()
        self.state = State(recipe, choose_seed_texts(task, recipe.fast.seed_text))
        self.stream: Stream = (
            open_stream(task, recipe.slow.problems, 0)
            if isinstance(task, Stages)
            else Stream(range(len(task.examples("train"))), 0)  # type: ignore[arg-type]
        )
        self.reusable = 0
        """Rollouts of the cycle that the slow loop may train on in place of its own."""
        self._walk(task.ends if isinstance(task, Stages) else ())

    def _walk(self, stage_ends: tuple[int, ...] | list[int]) -> None:
        state, recipe = self.state, self.recipe
        self._evaluate(stage_ends)
        while not state.done:
            if recipe.method != "rl" and state.cycle_due:
                self._cycle()
            if recipe.method != "gepa":
                self._step()
            state.step += 1
            self._evaluate(stage_ends)

    def _cycle(self) -> None:
        recipe, fast, state = self.recipe, self.recipe.fast, self.state
        optimizer, window = OPTIMIZER.registry.find(fast.optimizer.name), fast.cycle * recipe.slow.problems
        ahead = self.stream.take(state.step * recipe.slow.problems, window)
        played = len(choose_anchors(ahead, None, fast.anchors) if isinstance(self.task, Stages) else set(ahead))
        anchors = min(played, fast.anchors)
        carried = fast.population if state.step else 1
        if optimizer.reads_rollouts:  # later cycles have the rollouts of this one, or of the steps after it
            look = min(optimizer.first_look, anchors) if fast.budget and not state.step else 0
            rescored = Span(look, look)
        elif fast.rescore == "all" or not state.step:
            rescored = Span(anchors * fast.samples, carried * anchors * fast.samples)
        else:  # the anchors are problems that were trained on
            anchors = min(fast.anchors, len(self.task.examples("train")))
            rescored = Span(0, carried * anchors * fast.samples)
        search = optimizer.most_rollouts(fast, anchors, len(self.task.seed_texts))
        self._count("rescore", rescored.least, rescored.most)
        self._count("search", 0, search)
        spent = rescored.least if self.thrifty else rescored.most + search
        state.ledger.book("rescore", Entry(rollouts=spent))
        group = min(recipe.slow.group, fast.population * fast.samples)
        self.reusable = min(rescored.most + search, group * window) if fast.reuse else 0

    def _step(self) -> None:
        slow = self.recipe.slow
        played, helped = slow.problems * slow.group, rescue_rollouts(self.recipe)
        reused = min(played, self.reusable)
        self.reusable -= reused
        self._count("slow", played - reused, played)
        self._count("rescue", 0, helped)
        # What is reused was booked in its cycle, so that a step and its share of that are never less than this.
        self.state.ledger.book("slow", Entry(rollouts=played + (0 if self.thrifty else helped)))

    def _evaluate(self, stage_ends: tuple[int, ...] | list[int]) -> None:
        if not self.state.evaluation_due(stage_ends):
            return
        measured = self.recipe.evaluation
        tasks = list(self.task.each.values()) if isinstance(self.task, Stages) else [self.task]
        each = measured.k * sum(_first(task, measured.problems) for task in tasks)
        if measured.divergence and self.recipe.method != "gepa":
            now = self.task.behind(self.state.step).task if isinstance(self.task, Stages) else self.task
            each += _first(now, measured.problems)
        evolved = self.recipe.method != "rl" and self.state.step > 0
        self._count("evaluation", each, each * (2 if evolved else 1))  # the seed text, and the best where it is another

    def _count(self, kind: str, least: int, most: int) -> None:
        self.least[kind] += least
        self.most[kind] += most
        self.largest[kind] = max(self.largest[kind], most)


def _first(task: Task, most: int) -> int:
    return min(most, len(task.examples("validation")))
