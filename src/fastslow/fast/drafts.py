"""Edits drafted while the model trains, so that training does not wait for a slow reflection model.

Half-way through a cycle, threads send the slow loop's rollouts so far to the reflector, which drafts edits of their contexts.
The next cycle uses a draft instead of a reflection call, and makes the calls that have no draft in parallel. Drafts depend
only on the rollouts, the pool and the seed, and the cycle waits for all of them: with a deterministic reflector the run is
deterministic, and a resumed run makes the same drafts again.
"""

from __future__ import annotations

import math
import queue
import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from fastslow.base.seeds import derive_seed
from fastslow.fast.evidence import Evidence, read_attempt
from fastslow.fast.pool import Pool
from fastslow.fast.reflection import Attempt, ReflectionFailed, Reflector, Request
from fastslow.recipe import FastRecipe
from fastslow.records import Rollout

PARALLEL_CALLS = 8
"""Parallel reflection calls: a server answers several nearly as fast as one."""


@dataclass(frozen=True)
class Draft:
    """A proposed text for one component of a parent, with the attempts it is based on."""

    parent: str
    component: str
    text: str
    attempts: Sequence[Attempt]


@dataclass
class Desk:
    """Makes drafts in a thread, one batch at a time."""

    _thread: threading.Thread | None = None
    _done: list[Draft] = field(default_factory=list)
    _failed: list[BaseException] = field(default_factory=list)

    @property
    def started(self) -> bool:
        """Drafts are being made, or are ready to collect."""
        return self._thread is not None

    def start(self, make: Callable[[], list[Draft]]) -> None:
        """Start making drafts in a thread."""

        def work() -> None:
            try:
                self._done += make()
            except BaseException as error:
                self._failed.append(error)

        # A daemon, so that a run that ends early does not wait for a slow call.
        self._thread = threading.Thread(target=work, name="drafts", daemon=True)
        self._thread.start()

    def collect(self, make: Callable[[], list[Draft]]) -> list[Draft]:
        """Wait for the drafts; make them now if `start` was not called."""
        if self._thread is None:
            return make()
        self._thread.join()
        done, failed = self._done, self._failed
        self._thread, self._done, self._failed = None, [], []
        if failed:
            raise failed[0]
        return done


def make_drafts(
    recipe: FastRecipe,
    reflector: Reflector,
    pool: Pool,
    evidence: Evidence,
    count_tokens: Callable[[str], int],
    *,
    budget: int,
    seed: int,
) -> list[Draft]:
    """As many drafts as a cycle is expected to use, with parents sampled as the cycle samples them."""
    played = {rollout.context.id for rollout in evidence.rollouts}
    parents = [member for member in pool.members if member.context.id in played]
    if not parents:
        return []
    weights = [member.wins if member.front else 0 for member in parents]
    chance = random.Random(derive_seed(seed, "drafts"))
    turns: dict[str, int] = {}
    wanted: list[tuple[str, Request]] = []
    for number in range(expected(recipe, budget)):
        parent = chance.choices(parents, weights if any(weights) else None)[0].context
        components = list(parent.texts)
        component = components[turns.setdefault(parent.id, 0) % len(components)]
        turns[parent.id] += 1
        request = Request(
            component=component,
            text=parent.texts[component],
            attempts=_attempts(recipe, evidence, parent.id, component, chance),
            proposer=recipe.optimizer.proposer,
            max_tokens=recipe.max_tokens,
            count_tokens=count_tokens,
            seed=derive_seed(seed, "draft", number),
        )
        wanted.append((parent.id, request))
    return side_by_side(reflector, wanted)


def side_by_side(reflector: Reflector, wanted: Sequence[tuple[str, Request]]) -> list[Draft]:
    """Make reflection calls in parallel and return their drafts in order; stop after a permanent failure."""
    made: dict[int, Draft] = {}
    waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
    stopped = threading.Event()
    counting = threading.Lock()

    def ask(number: int) -> None:
        parent, request = wanted[number]

        def count(text: str) -> int:
            with counting:  # tokenizers are not thread-safe
                return request.count_tokens(text)

        try:
            text = reflector(replace(request, count_tokens=count))
            made[number] = Draft(parent, request.component, text, request.attempts)
        except ReflectionFailed as failure:
            if failure.permanent:
                stopped.set()
        except Exception:  # only this draft is lost; the cycle calls the reflector again and reports the error
            stopped.set()

    def work() -> None:
        while not stopped.is_set():
            try:
                ask(waiting.get_nowait())
            except queue.Empty:
                return

    for number in range(len(wanted)):
        waiting.put(number)
    name = f"{threading.current_thread().name}: reflection"
    threads = [threading.Thread(target=work, name=name, daemon=True) for _ in range(min(PARALLEL_CALLS, len(wanted)))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [made[number] for number in sorted(made)]


def expected(recipe: FastRecipe, budget: int) -> int:
    """Proposals that a budget pays for if half of the candidates are scored on all anchors."""
    proposal = recipe.samples * (2 * recipe.minibatch + recipe.anchors / 2)
    return math.ceil(budget / proposal)


def _attempts(
    recipe: FastRecipe, evidence: Evidence, parent: str, component: str, chance: random.Random
) -> list[Attempt]:
    """One attempt at each problem of a minibatch."""
    by_problem: dict[str, Rollout] = {}
    for rollout in evidence.rollouts:
        if rollout.context.id == parent:
            by_problem.setdefault(rollout.example.id, rollout)
    chosen = chance.sample(sorted(by_problem), min(recipe.minibatch, len(by_problem)))
    found = (read_attempt(by_problem[problem], component, recipe.feedback) for problem in chosen)
    return [made for made in found if made is not None]
