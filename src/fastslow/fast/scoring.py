"""Playing what a cycle needs to know, and no more: carried contexts, minibatches of parents and children, full scores."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fastslow.fast.evidence import Evidence
from fastslow.fast.pool import Member, Pool
from fastslow.fast.scores import Scores, mean_progress, mean_score, race_stops
from fastslow.recipe import FastRecipe
from fastslow.records import Context, Rollout
from fastslow.seeds import derive_seed
from fastslow.tasks.base import Example

PlayFast = Callable[[Sequence[tuple[Example, Context]], str, int], Sequence[Rollout]]
"""Plays (example, context) pairs for a purpose on the ledger with a seed, under the current policy."""

Item = tuple[Context, Sequence[Example]]
"""A context and the problems it is wanted on."""


class Scoring:
    """The scores of one cycle, and the rollouts behind them."""

    def __init__(
        self,
        recipe: FastRecipe,
        play: PlayFast,
        anchors: Sequence[Example],
        policy_step: int,
        seed: int,
        evidence: Evidence | None,
    ) -> None:
        self.recipe, self.play, self.anchors = recipe, play, anchors
        self.policy_step, self.seed, self.evidence = policy_step, seed, evidence
        self.scores = Scores()
        self.known: dict[str, dict[str, list[Rollout]]] = {}
        """With scores from rollouts: the rollouts behind a context's scores, by problem."""
        self.reserve: list[Member] = []
        """Carried contexts that were not scored; they fill the places that no scored one takes."""
        self.stopped: dict[str, list[list[Rollout]]] = {}
        """Contexts that fell behind in a race, with their rollouts until then."""
        self.reused: dict[str, int] = {}
        """Rollouts by the purpose they served without being played for it."""
        self.blank = True
        """No carried context has led to a right answer on the anchors."""
        self.spent = 0
        self.calls = 0
        """Counts what takes a seed of its own."""

    def carried(self, pool: Pool, progress: Callable[[str], None]) -> None:
        """Score the carried contexts on every anchor, in the way the recipe chooses; those to be played as one batch."""
        waiting = []
        if self.evidence is not None:
            self.scores.overall = mean_score(self.evidence.rollouts)
        for place, member in enumerate(pool.members):
            if self.evidence is not None and self._take_from(self.evidence, member.context):
                continue
            if self.recipe.rescore == "never" and member.scores:
                self.scores.trust(member, [example.id for example in self.anchors])
            elif self.recipe.rescore == "front" and place and not member.front:
                self.reserve.append(member)
            else:
                waiting.append(member.context)
        if waiting:
            progress(f"scoring {len(waiting)} carried context(s) on {len(self.anchors)} problems")
            played = self._play([(context, self.anchors) for context in waiting], "rescore")
            for context, rollouts in zip(waiting, played, strict=True):
                self._remember(context, rollouts)
        self.blank = not any(member.mean for member in self.scores.members.values())
        if not self.blank:
            self.scores.forget_progress()

    def minibatches(self, items: Sequence[Item], generation: int) -> list[list[list[Rollout]]]:
        """Rollouts by item and problem, in one batch but for those that are known; or, paired, each in a batch of its own."""
        if self.recipe.paired:
            # Parent and child then draw with the same numbers row by row, and differ only by what the context changes.
            return [
                self._play([item], "fast-minibatch", (generation, [example.id for example in item[1]]))[0]
                for item in items
            ]
        known = [self._known(context, batch) for context, batch in items]
        waiting = [item for item, found in zip(items, known, strict=True) if found is None]
        played = iter(self._play(waiting, "fast-minibatch") if waiting else [])
        return [next(played) if found is None else found for found in known]

    def in_full(self, contexts: Sequence[Context]) -> list[Member | None]:
        """Score children on all anchors; in a race, none for those that fell hopelessly behind on the first of them."""
        drawn: dict[str, list[list[Rollout]]] = {context.id: [] for context in contexts}
        going, start, count = list(contexts), 0, len(self.anchors)
        for stop in race_stops(count) if self.recipe.race else [count]:
            played = self._play([(context, self.anchors[start:stop]) for context in going], "fast-score")
            for context, rollouts in zip(going, played, strict=True):
                drawn[context.id] += rollouts
                if stop < count and self._is_hopeless(drawn[context.id]):
                    self.stopped[context.id] = drawn[context.id]
            going, start = [context for context in going if context.id not in self.stopped], stop
            if not going:
                break
        for context in going:
            self._remember(context, drawn[context.id])
        return [self.scores.members.get(context.id) for context in contexts]

    def _play(self, items: Sequence[Item], purpose: str, pairing: object = None) -> list[list[list[Rollout]]]:
        """Rollouts by item and example, `samples` of each, drawn in one batch; equal pairings draw with equal numbers."""
        samples = self.recipe.samples
        pairs = [(example, context) for context, batch in items for example in batch for _ in range(samples)]
        self.calls += 1
        seed = derive_seed(self.seed, purpose, self.calls if pairing is None else pairing)
        rollouts = iter(self.play(pairs, purpose, seed))
        if purpose != "rescore":
            self.spent += len(pairs)
        return [[[next(rollouts) for _ in range(samples)] for _ in batch] for _, batch in items]

    def _take_from(self, evidence: Evidence, context: Context) -> bool:
        """Score a context by the slow loop's rollouts, where it has any on these anchors."""
        found = evidence.of(context.id, self.anchors)
        rollouts = [rollout for drawn in found.values() for rollout in drawn]
        if not rollouts:
            return False
        self._reuse("rescore", len(rollouts))
        self._enter(context, found, max(rollout.policy_step for rollout in rollouts))
        return True

    def _remember(self, context: Context, rollouts: list[list[Rollout]]) -> None:
        by_problem = {example.id: drawn for example, drawn in zip(self.anchors, rollouts, strict=True)}
        self._enter(context, by_problem, self.policy_step)

    def _enter(self, context: Context, by_problem: dict[str, list[Rollout]], policy_step: int) -> None:
        if self.evidence is not None:
            # Of several draws, one that went wrong has more to teach.
            self.known[context.id] = {
                problem: sorted(drawn, key=lambda rollout: rollout.score) for problem, drawn in by_problem.items()
            }
        draws = {problem: [rollout.score for rollout in drawn] for problem, drawn in by_problem.items()}
        everything = [rollout for drawn in by_problem.values() for rollout in drawn]
        progress = {problem: self.progress(drawn or everything) for problem, drawn in by_problem.items()}
        self.scores.remember(context, draws, policy_step, progress)

    def progress(self, rollouts: Sequence[Rollout]) -> float:
        """How far answers got, where nothing was right and the fast loop may hear what the grader sees in answers."""
        return mean_progress(rollouts) if self.recipe.feedback and self.blank else 0.0

    def _known(self, context: Context, batch: Sequence[Example]) -> list[list[Rollout]] | None:
        """A context's rollouts on these problems, where its scores came with some for each of them."""
        by_problem = self.known.get(context.id, {})
        found = [by_problem.get(example.id, []) for example in batch]
        if not all(found):
            return None
        self._reuse("fast-minibatch", sum(map(len, found)))
        return found

    def _is_hopeless(self, rollouts: Sequence[Sequence[Rollout]]) -> bool:
        draws = {e.id: [r.score for r in drawn] for e, drawn in zip(self.anchors, rollouts, strict=False)}
        return self.scores.hopeless(draws, self.recipe.population)

    def _reuse(self, purpose: str, count: int) -> None:
        self.reused[purpose] = self.reused.get(purpose, 0) + count
