"""A search: candidates are evaluated, taken into the archive in order, and announced when their scores have been verified.

Answers are graded in threads, in any order; what they lead to follows from the order of the rollouts alone. So a search that
is killed and resumed finds the same.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from copy import copy
from dataclasses import dataclass
from typing import Any

from fastslow.base.errors import RecipeError
from fastslow.base.text import one_line
from fastslow.base.world import World, derive_seed
from fastslow.discover.archive import Archive, Candidate
from fastslow.discover.candidates import Form, Unreadable, identify, read_answer
from fastslow.discover.problem import Problem, Scored
from fastslow.recipe import Recipe
from fastslow.records import Example, Feedback, Rollout
from fastslow.tasks.base import TaskMemory

CHECKS = 2
"""Evaluations from scratch that a score must hold in before it is announced."""
PRECISION = 1e-6
"""The relative difference from the verified score beyond which an evaluation is said to have been wrong."""
BEST = "best.json"


@dataclass(frozen=True)
class Judged:
    """What is known of a candidate."""

    score: float | None
    """None if it is invalid, or if its score did not hold."""
    words: str
    reason: str
    """As of `Scored`, or `unverified`."""
    first: float | None
    """The score of the first evaluation."""
    checks: tuple[float | None, ...] = ()
    """The scores of the evaluations from scratch, which a candidate gets that would be the best."""


def judge(problem: Problem, first: Scored, checks: Sequence[Scored]) -> Judged:
    """What holds of an evaluation and those that checked it. The worst of several scores counts."""
    scores = [each.score for each in checks if each.score is not None]
    if first.score is None or not checks:
        return Judged(first.score, first.words, first.reason, first.score)
    # Without a function of its own for this, the first evaluation is one more of the same kind.
    kind = scores if problem.verifies else [first.score, *scores]
    found = tuple(each.score for each in checks)
    if len(scores) < len(checks) or not problem.agree(kind):
        said = " and ".join("invalid" if each is None else f"{each:.10g}" for each in found)
        words = f"The score {first.score:.10g} does not hold: evaluated again it is {said}."
        return Judged(None, words, "unverified", first.score, found)
    worst = next(each for each in kind if not any(problem.better(each, other) for other in kind))
    words = next((each.words for each in checks if each.score == worst and each.words), first.words)
    return Judged(worst, words, "", first.score, found)


def require(recipe: Recipe) -> None:
    """Refuse settings under which answers would be to problems that have changed since."""
    try:
        recipe.sampling.refuse_ahead("task discover", "whose problems change with every step")
    except ValueError as error:
        raise RecipeError(str(error)) from None
    if recipe.fast.reuse and recipe.method in ("fst", "distill"):
        raise RecipeError(
            "fast.reuse=true trains on answers of the fast loop, and the problems of task discover have changed by then; set "
            "fast.reuse=false"
        )


@dataclass(frozen=True)
class Budget:
    """What a search may spend; None is no limit."""

    evaluations: int | None = None
    tokens: int | None = None
    seconds: float | None = None


class Search(TaskMemory):
    """The search of one run."""

    def __init__(self, problem: Problem, archive: Archive, budget: Budget, form: Form, shows: bool) -> None:
        self.problem, self.archive, self.budget, self.form, self.shows = problem, archive, budget, form, shows
        self.seed, self.world = 0, World()
        self.run: Any = None
        self.say: Callable[..., None] = lambda text, level="info": None
        self.pending: list[dict[str, Any]] = []
        """Rows that are not written yet."""
        self.origin = Candidate(identify(problem.seed, problem), problem.seed, 0.0, "", 0)
        """The seed, until it has a score, and in the place of every parent where no archive is shown."""
        self._fresh: dict[str, Future[Judged]] = {}
        self._lock = threading.Lock()
        self._started, self._before = time.monotonic(), 0.0
        self._saved: dict[str, Any] | None = None

    # What problems show, and what answers are told -------------------------------------------------------------------------

    def parent(self, example: Example) -> Candidate:
        """What a problem asks to improve."""
        if not self.shows:
            return self.origin
        found = self.archive.view.parent(int(example.data["number"]), self._seed_of("parent", example))
        return found or self.origin

    def others(self, example: Example, count: int) -> list[Candidate]:
        """What a problem shows beside the parent."""
        if not self.shows:
            return []
        return self.archive.view.others(self.parent(example), count, self._seed_of("others", example))

    def _seed_of(self, what: str, example: Example) -> int:
        """The seed of what a problem shows; another one after more evaluations."""
        return derive_seed(self.seed, "discover", what, example.id, self.archive.view.evaluations)

    def grade(self, example: Example, answer: str) -> Feedback:
        """Evaluate what an answer proposes, unless it cannot be read or was tried before. Called in threads."""
        parent, view = self.parent(example), self.archive.view
        try:
            candidate = read_answer(answer, parent.text, self.problem, self.form)
        except Unreadable as error:
            return Feedback(0.0, str(error), faults={"unreadable": 1})
        name = identify(candidate, self.problem)
        number, score = self.archive.seen.get(name, (0, None))
        if 0 < number <= view.evaluations:
            said = "was invalid" if score is None else f"scored {score:.10g}"
            return Feedback(
                0.0, f"This candidate was tried before and {said}. Propose another one.", faults={"duplicate": 1}
            )
        scored = self._evaluate(name, candidate)
        if scored.score is None:
            fault = "unverified" if scored.reason == "unverified" else "invalid"
            return Feedback(0.0, f"{scored.words}\nThe candidate is {fault}.", faults={fault: 1})
        reward = 1.0 if self.problem.reached(scored.score) else view.reward(self.problem.value(scored.score))
        return Feedback(reward, f"{scored.words}\n{self._compared(scored.score, parent)}".strip())

    def _compared(self, score: float, parent: Candidate) -> str:
        better = "higher" if self.problem.goal == "maximize" else "lower"
        words = f"It scores {score:.10g}, and {better} is better"
        if parent.number:
            words += f"; the candidate that it was made from scores {parent.score:.10g}"
        best = self.archive.best
        return f"{words}; the best so far scores {best.score:.10g}." if best else f"{words}."

    def _evaluate(self, name: str, candidate: str) -> Judged:
        """The evaluation of a candidate, which several answers may ask for at the same time. One that would be the best is
        evaluated again from scratch before anything is rewarded."""
        with self._lock:
            found = self._fresh.get(name)
            mine = found is None
            if found is None:
                found = self._fresh[name] = Future()
        if mine:
            try:
                found.set_result(self._judged(candidate))
            except BaseException as error:
                found.set_exception(error)
                raise
        return found.result()

    def _judged(self, candidate: str) -> Judged:
        first, best = self.problem.evaluate(candidate), self.archive.best
        leads = first.score is not None and (best is None or self.problem.better(first.score, best.score))
        return judge(self.problem, first, [self.problem.verify(candidate) for _ in range(CHECKS if leads else 0)])

    # The memory of the task ------------------------------------------------------------------------------------------------

    def begin(self, recorder: Any) -> None:
        recipe = recorder.recipe
        require(recipe)
        self.seed, self.world, self.run = recipe.seed, recorder.engine.world, recorder.run
        self.say = recorder.view.message
        self._started = time.monotonic()  # loading the model is no part of the search
        if not self.archive.counts["evaluations"]:
            scored = self.world.from_main(lambda: self._judged(self.problem.seed))
            self._announce([self._enter(self.origin.id, self.problem.seed, scored, None, "seed", None)])
            if scored.score is None:
                self.say(
                    f"the seed of problem {self.problem.name} is invalid: {one_line(scored.words)}", level="warning"
                )
            self.archive.look()
        self.done = self._is_done()
        self._write_best()

    def _is_done(self) -> bool:
        best, counts, budget = self.archive.best, self.archive.counts, self.budget
        if best is not None and self.problem.reached(best.score):
            return True
        spent = (
            (budget.evaluations, counts["evaluations"]),
            (budget.tokens, counts["tokens"]),
            (budget.seconds, self.seconds),
        )
        return any(limit is not None and used >= limit for limit, used in spent)

    @property
    def seconds(self) -> float:
        return self._before + time.monotonic() - self._started

    def take(self, rollouts: Sequence[Rollout], by: str = "policy") -> None:
        counts = self.archive.counts
        done = {name: each.result() for name, each in self._fresh.items() if each.done() and not each.exception()}
        evaluated: dict[str, Judged] = {}
        for share in self.world.gather(done):
            evaluated = {**share, **evaluated}
        found = []
        for rollout in rollouts:
            counts["proposals"] += 1
            counts["tokens"] += rollout.prompt_tokens + rollout.completion_tokens
            parent = self.parent(rollout.example)
            try:
                answer = rollout.turns[-1].answer if rollout.turns else ""
                candidate = read_answer(answer, parent.text, self.problem, self.form)
            except Unreadable:
                counts["unreadable"] += 1
                continue
            name = identify(candidate, self.problem)
            if name in self.archive.seen:
                counts["duplicates"] += 1
            elif name not in evaluated:  # the sandbox itself failed, which is a faulty grade
                counts["failed"] += 1
            else:
                island = int(rollout.example.data["number"])
                found.append(self._enter(name, candidate, evaluated[name], parent, by, island))
        self._announce(found)

    def _enter(
        self, name: str, text: str, judged: Judged, parent: Candidate | None, by: str, island: int | None
    ) -> Candidate | None:
        """Count an evaluation and keep its candidate; returned if it may be the best."""
        archive, counts = self.archive, self.archive.counts
        counts["evaluations"] += 1
        counts["checks"] += len(judged.checks)
        number = counts["evaluations"]
        archive.seen[name] = number, judged.score
        made_from = parent.id if parent is not None else ""
        archive.children[made_from] += 1
        row = {"number": number, "id": name, "parent": made_from, "by": by, "score": judged.score}
        checks = {"first": judged.first, "checks": list(judged.checks)} if judged.checks else {}
        self.pending.append({**row, **checks, "reason": judged.reason, "words": judged.words, "text": text})
        if judged.score is None:
            counts["unverified" if judged.reason == "unverified" else "invalid"] += 1
            if judged.reason == "unverified":
                self.say(f"evaluation {number} is not announced. {judged.words} (docs/discover.md)", "warning")
            return None
        corrected = abs((judged.first or 0.0) - judged.score) > PRECISION * abs(judged.score)
        if judged.checks and corrected and not self.problem.tolerance:
            self.say(
                f"evaluation {number}: verified, it scores {judged.score:.10g}, not {judged.first:.10g}", "warning"
            )
        candidate = Candidate(name, text, judged.score, judged.words, number, made_from, by)
        archive.add(candidate, island)
        return candidate if judged.checks else None

    def _announce(self, found: Sequence[Candidate | None]) -> None:
        """Announce the best of some verified candidates, if it is better than the best so far."""
        archive, before = self.archive, self.archive.best
        for candidate in filter(None, found):
            if archive.best is None or self.problem.better(candidate.score, archive.best.score):
                archive.best = candidate
        best = archive.best
        if best is None or best is before:
            return
        self.pending.append({"number": best.number, "id": best.id, "announced": best.score})
        self._write_best()
        was = f" (before: {before.score:.10g})" if before else ""
        self.say(f"evaluation {best.number}: {self.problem.name} {best.score:.10g}{was}, verified")

    def _write_best(self) -> None:
        """Write the best candidate, unless the folder holds a better one: a run that was killed may find others when it is
        resumed, where sampling cannot be repeated exactly."""
        best = self.archive.best
        if best is None or self.run is None:
            return
        there = (self.run.read_json(BEST) or {}).get("score")
        if isinstance(there, float) and self.problem.better(there, best.score):
            return
        self.run.write_text(f"best{self.problem.suffix}", best.text)
        said = {"score": best.score, "words": best.words, "evaluation": best.number, "id": best.id, "by": best.by}
        self.run.write_json(BEST, {"problem": self.problem.name, "goal": self.problem.goal, **said})

    def turn(self) -> None:
        self._fresh.clear()
        self.archive.turn()
        self.done = self._is_done()

    def rows(self) -> list[dict[str, Any]]:
        rows, self.pending = self.pending, []
        return rows

    def numbers(self) -> Mapping[str, float]:
        counts = self.archive.counts
        names = ("evaluations", "checks", "invalid", "unverified", "duplicates", "unreadable")
        best = {"best_score": self.archive.best.score} if self.archive.best else {}
        return {**best, **{name: counts[name] for name in names}}

    def to_data(self) -> dict[str, Any]:
        if self._saved is not None:
            return self._saved
        return {"archive": self.archive.to_data(), "pending": list(self.pending), "seconds": self.seconds}

    def restore(self, data: Mapping[str, Any]) -> None:
        self.archive.restore(data["archive"])
        self.pending = list(data["pending"])
        self._before, self._started = data["seconds"], time.monotonic()
        self.done = self._is_done()

    def __deepcopy__(self, memo: object) -> Search:
        """The search as it is now, to be saved."""
        held = copy(self)
        held._saved = self.to_data()
        return held
