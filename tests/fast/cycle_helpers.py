"""What the tests of the fast loop share: a world in which a context's score on a problem is known, and reflectors."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from helpers import with_parts

from fastslow.base.world import World, derive_seed
from fastslow.fast.evaluator import Evaluator
from fastslow.fast.memory import Evidence
from fastslow.fast.optimizers.base import Cycle
from fastslow.fast.pool import Member, Pool
from fastslow.fast.reflection import Reflector, Request, Usage
from fastslow.recipe import FastRecipe
from fastslow.recipe.parts import OPTIMIZER
from fastslow.records import Completion, Component, Context, Rollout, Sampling, Turn
from fastslow.rollouts.play import Timing
from fastslow.tasks import Example, Feedback

Score = Callable[[Mapping[str, str], Example], float]
PlayFast = Callable[[Sequence[tuple[Example, Context]], str, int], Sequence[Rollout]]
"""Plays pairs for a purpose with a seed."""


class Stage:
    """Plays pairs without a model: the score is a function of the context's texts and the problem. Books every rollout."""

    def __init__(self, score: Score, components: Sequence[str] = ("system",)) -> None:
        self.score, self.components = score, components
        self.booked: Counter[str] = Counter()
        self.calls: list[tuple[str, int, list[tuple[str, str]]]] = []
        """Purpose, seed, and (context id, example id) of every pair, in the order they were played."""
        self.policy_step = 0

    def play(self, pairs: Sequence[tuple[Example, Context]], purpose: str, seed: int) -> list[Rollout]:
        self.booked[purpose] += len(pairs)
        self.calls.append((purpose, seed, [(context.id, example.id) for example, context in pairs]))
        return [self._rollout(example, context) for example, context in pairs]

    def _rollout(self, example: Example, context: Context) -> Rollout:
        score = self.score(context.texts, example)
        turns = tuple(
            Turn(name, f"question {example.id} to {name}", (3,), Completion((4, 2), (-1.0, -1.0)), f"answer of {name}")
            for name in self.components
        )
        feedback = Feedback(score, "" if score >= 1 else str(example.data["hint"]))
        return Rollout(example, context, self.policy_step, turns, feedback)

    @property
    def fast(self) -> int:
        """Rollouts that the budget is about."""
        return self.booked["fast-minibatch"] + self.booked["fast-score"]


class Scripted:
    """A reflector that does what a function says, and remembers what it was asked."""

    def __init__(self, answer: Callable[[Request], str]) -> None:
        self.usage = Usage()
        self.answer = answer
        self.requests: list[Request] = []

    def __call__(self, request: Request) -> str:
        self.requests.append(request)
        return self.answer(request)


def add_hint(request: Request) -> str:
    """The first hint of a failed attempt that the text does not have yet, on a line of its own."""
    hints = [attempt.feedback for attempt in request.attempts if attempt.score < 1]
    new = [hint for hint in hints if hint not in request.text.splitlines()]
    return "\n".join([request.text, *new[:1]])


def add_counter() -> Callable[[Request], str]:
    """Always something new, never of any use."""
    count = 0

    def answer(request: Request) -> str:
        nonlocal count
        count += 1
        return f"{request.text.splitlines()[0]}\nuseless {count}"

    return answer


def problems(count: int, kinds: int = 3) -> list[Example]:
    return [Example(f"problem-{index}", {"hint": f"rule {index % kinds}"}) for index in range(count)]


PARTS = [Example(f"part-{i}", {"hint": f"rule {i % 4} for {('plan', 'solve')[i % 2]}"}) for i in range(12)]


def own_hint(request: Request) -> str:
    """A hint meant for this component that its text lacks; something useless where there is none."""
    new = sorted({a.feedback for a in request.attempts if a.score < 1 and a.feedback.endswith(request.component)})
    new = [hint for hint in new if hint not in request.text]
    chance = random.Random(request.seed)
    return f"{request.text}\n{chance.choice(new) if new else f'useless {chance.random()}'}"


def knows_rule(texts: Mapping[str, str], example: Example) -> float:
    """1 where any component's text has the rule that the problem needs."""
    return float(any(example.data["hint"] in text.splitlines() for text in texts.values()))


def pool_of(*texts: str | Mapping[str, str], scores: Sequence[Mapping[str, float]] | None = None, at: int = 0) -> Pool:
    contexts = [Context({"system": text} if isinstance(text, str) else dict(text)) for text in texts]
    return Pool(tuple(Member(context, (scores or [{}] * len(contexts))[i], at) for i, context in enumerate(contexts)))


def evolve(
    stage: Stage,
    reflector: Reflector,
    pool: Pool,
    anchors: Sequence[Example],
    *,
    cycle: int = 0,
    seed: int = 0,
    **fast: Any,
) -> Cycle:
    recipe = FastRecipe(**with_parts({"population": 4, "budget": 120, **fast}))
    return one_cycle(
        recipe, reflector, stage.play, pool, anchors, cycle=cycle, policy_step=stage.policy_step, seed=seed
    )


def words(text: str) -> int:
    return len(text.split())


class Playing:
    """A player that plays by a function of the pairs, their purpose and a seed."""

    evaluator: Evaluator

    def __init__(self, play: PlayFast) -> None:
        self.by = play

    def play(
        self, pairs: Sequence[tuple[Example, Context]], sampling: Sampling, *, policy_step: int, seed: int
    ) -> tuple[list[Rollout], Timing]:
        purposes = ("rescore", "fast-minibatch", "fast-score")
        (purpose,) = [p for p in purposes if derive_seed(self.evaluator.seed, p, self.evaluator.calls) == seed]
        return list(self.by(pairs, purpose, seed)), Timing()


def one_cycle(
    recipe: FastRecipe,
    reflector: Reflector,
    play: PlayFast,
    pool: Pool,
    anchors: Sequence[Example],
    *,
    cycle: int = 0,
    policy_step: int = 0,
    seed: int = 0,
    budget: int | None = None,
    evidence: Evidence | None = None,
    components: Sequence[Component] = (),
    count_tokens: Callable[[str], int] = words,
    world: World | None = None,
    report: Callable[[str], None] = lambda text: None,
    known: Sequence[Example] = (),
) -> Cycle:
    """One cycle of the recipe's optimizer; `known` are all training problems."""
    player = Playing(play)
    player.evaluator = Evaluator(
        recipe,
        player,
        anchors,
        sampling=Sampling(),
        cycle=cycle,
        policy_step=policy_step,
        seed=seed,
        budget=recipe.budget if budget is None else budget,
        evidence=evidence,
        components=components,
        count_tokens=count_tokens,
        world=world or World(),
        book=lambda purpose, rollouts, timing: None,
        report=report,
        problems=lambda: known,
    )
    return OPTIMIZER.registry.find(recipe.optimizer.name)(recipe).evolve(player.evaluator, reflector, pool)


def by_text(pool: Pool) -> dict[str, Member]:
    return {member.context.texts["system"]: member for member in pool.members}
