"""What the grader's words could teach the weights, measured before it is paid for: `fastslow check RECIPE --feedback`.

The untrained policy plays whole groups under the seed text. A plain second try needs no rollouts of its own: for a failed
rollout, the others of its group are such tries. Rollouts of one problem depend on each other, so intervals count problems.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import chain, islice, zip_longest
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

from scipy.special import stdtrit  # scipy.stats has the same, and takes a second to import

from fastslow.base.intervals import difference, interval
from fastslow.base.world import derive_seed
from fastslow.engine.kind import Finding
from fastslow.launch.assembly import assemble, changed, find_world
from fastslow.recipe import Recipe
from fastslow.records import Context, Example, Rollout
from fastslow.rollouts.again import has_words, helped
from fastslow.rollouts.play import Player
from fastslow.runs.ledger import Ledger, Purpose
from fastslow.slow.stream import open_stream

ROLLOUTS, TRIES, AT_ONCE = 128, 64, 32
"""Rollouts in groups, second tries at most, and rollouts between two reports of progress."""
ENOUGH = 0.1
"""Share of all groups with something to rank below which ranking is not worth it."""

Advice = Literal["yes", "no", "unclear"]
Progress = Callable[[str], None]
Groups = Sequence[Sequence[Rollout]]


@dataclass(frozen=True)
class Estimate:
    """A mean with its 95% interval; the mean of nothing is None."""

    mean: float | None = None
    low: float | None = None
    high: float | None = None
    count: int = 0
    """Rollouts."""

    def __str__(self) -> str:
        return "unknown" if self.mean is None else f"{self.mean:.2f} [{self.low:.2f}, {self.high:.2f}]"


@dataclass(frozen=True)
class Channel:
    """A way from feedback to the weights, whether to take it, and why."""

    name: str
    advice: Advice
    why: str

    @property
    def finding(self) -> Finding:
        words = {"yes": "worth trying", "no": "not here", "unclear": "unclear"}
        return Finding(self.name, f"{words[self.advice]}: {self.why}")


@dataclass(frozen=True)
class FeedbackCheck:
    """What was found; `spent` by purpose."""

    groups: dict[str, float]
    words: dict[str, float | None]
    after_words: Estimate
    plain: Estimate
    gain: Estimate
    gap_failed: Estimate
    gap_solved: Estimate
    channels: list[Channel]
    spent: dict[str, dict[str, Any]]

    def findings(self) -> Iterator[Finding]:
        groups, words = self.groups, self.words
        yield Finding(
            "groups",
            f"{groups['groups']:.0f} of {groups['size']:.0f} rollouts, mean reward {groups['reward']:.2f}; equal rewards in "
            f"{groups['equal']:.0%} of them: {groups['all_failed']:.0%} all 0, {groups['all_solved']:.0%} all 1, "
            f"{groups['between']:.0%} between; nobody succeeds in {groups['nobody']:.0%}",
        )
        said = ("-" if words[name] is None else f"{words[name]:.0%}" for name in ("failures", "differ"))
        yield Finding("words", "{} of the failures have words; they differ within {} of the equal groups".format(*said))
        yield from (channel.finding for channel in self.channels)
        rollouts = sum(each["rollouts"] for each in self.spent.values())
        tokens = sum(each["prompt_tokens"] + each["completion_tokens"] for each in self.spent.values())
        seconds = sum(each["seconds"] for each in self.spent.values())
        yield Finding("spent", f"{rollouts:,} rollouts, {tokens:,} tokens, {seconds:.0f} seconds")


def check_feedback(recipe: Recipe, progress: Progress = lambda text: None) -> FeedbackCheck:
    """Play, ask again, score, and advise."""
    recipe = changed(recipe, evaluation={"divergence": True}, output={"report_to": []})  # scores need the base model
    with tempfile.TemporaryDirectory() as folder:
        parts = assemble(recipe, Path(folder), find_world(recipe))
        with closing(parts.engine):
            return _Check(recipe, parts.player, Context(dict(parts.seed_texts)), progress).run()


class _Check:
    def __init__(self, recipe: Recipe, player: Player, seed: Context, progress: Progress) -> None:
        self.recipe, self.player, self.seed, self.progress = recipe, player, seed, progress
        self.success: float = recipe.slow.rescue.options.get("success", 1.0)
        self.ledger = Ledger()

    def run(self) -> FeedbackCheck:
        size = self.recipe.slow.group
        stream = open_stream(self.player.task, self.recipe.slow.problems, derive_seed(self.recipe.seed, "stream"))
        problems = stream.take(0, max(1, round(ROLLOUTS / size)))
        rollouts = self._play("slow", [(example, self.seed) for example in problems for _ in range(size)])
        groups = [rollouts[start : start + size] for start in range(0, len(rollouts), size)]
        failed = [[each for each in group if each.score < self.success] for group in groups]
        wrong = _spread([[each for each in those if has_words(each)] for those in failed], TRIES)
        tries = self._play("rescue", [(each.example, helped(each)) for _, each in wrong])
        again = [float(each.score >= self.success) for each in tries]
        others = [self._others(groups[number], each) for number, each in wrong]
        after, plain = _rate(wrong, again), _rate(wrong, others)
        gain = _gain(after, plain, [(number, a - b) for (number, _), a, b in zip(wrong, again, others, strict=True)])
        readable = {number: helped(each, with_answer=False) for number, each in reversed(wrong)}
        right = [[each for each in group if each.score >= self.success] for group in groups]
        solved = [(number, each) for number, each in _spread(right, len(rollouts)) if number in readable][:TRIES]
        gaps = self._gap(wrong, [helped(each, with_answer=False) for _, each in wrong])
        others_gaps = self._gap(solved, [readable[number] for number, _ in solved])
        numbers, words = self._groups(groups), self._words(groups, failed)
        channels = [_rank(numbers, words), _rescue(numbers, after, plain, gain), _distil(gaps, others_gaps)]
        self.player.faulty.end_step()
        spent = self.ledger.spent()
        return FeedbackCheck(numbers, words, after, plain, gain, gaps, others_gaps, channels, spent)

    def _play(self, purpose: Purpose, pairs: Sequence[tuple[Example, Context]]) -> list[Rollout]:
        done: list[Rollout] = []
        what = "rollouts" if purpose == "slow" else "second tries"
        for start in range(0, len(pairs), AT_ONCE):
            self.progress(f"{start} of {len(pairs)} {what}")
            seed = derive_seed(self.recipe.seed, "feedback", purpose, start)
            sampling = self.recipe.sampling.training()
            drawn, timing = self.player.play(pairs[start : start + AT_ONCE], sampling, policy_step=0, seed=seed)
            self.ledger.book_rollouts(purpose, drawn, timing.total, prices=self.recipe.prices)
            done += drawn
        return done

    def _others(self, group: Sequence[Rollout], rollout: Rollout) -> float:
        """How often the others of a group succeeded: what a plain second try would do."""
        return fmean(float(each.score >= self.success) for each in group if each is not rollout)

    def _groups(self, groups: Groups) -> dict[str, float]:
        equal = [group[0].score for group in groups if len({each.score for each in group}) == 1]
        nobody = [group for group in groups if max(each.score for each in group) < self.success]
        return {
            "groups": len(groups),
            "size": len(groups[0]),
            "reward": fmean(each.score for group in groups for each in group),
            "equal": len(equal) / len(groups),
            "all_failed": equal.count(0.0) / len(groups),
            "all_solved": equal.count(1.0) / len(groups),
            "between": sum(0 < score < 1 for score in equal) / len(groups),
            "nobody": len(nobody) / len(groups),
        }

    def _words(self, groups: Groups, failed: Groups) -> dict[str, float | None]:
        every = [each for those in failed for each in those]
        equal = [group for group in groups if len({each.score for each in group}) == 1]
        differ = [
            len({(each.feedback.text, *each.feedback.by_component.items()) for each in group}) > 1 for group in equal
        ]
        return {
            "failures": fmean(map(has_words, every)) if every else None,
            "differ": fmean(differ) if differ else None,
            "rankable_groups": sum(differ) / len(groups),
        }

    def _gap(self, chosen: Sequence[tuple[int, Rollout]], contexts: Sequence[Context]) -> Estimate:
        """How the log-probability of a rollout's own tokens changes when the policy has read the words, a token. A right
        answer is read after the words about a wrong one: they should make it likelier, or at least less unlikely."""
        self.progress(f"scoring {len(chosen)} rollouts with and without the words")
        prompts = self.player.replay([each for _, each in chosen], contexts)
        pairs = [
            (number, turn, replace(turn, prompt_ids=ids))
            for (number, rollout), those in zip(chosen, prompts, strict=True)
            for turn, ids in zip(rollout.turns, those or (), strict=those is not None)
        ]
        turns = [turn for _, *both in pairs for turn in both]
        totals = [math.fsum(each.policy) for each in self.player.engine.score(turns)] if turns else []
        gaps = [totals[place + 1] - totals[place] for place in range(0, len(totals), 2)]
        numbered = [(number, gap) for (number, *_), gap in zip(pairs, gaps, strict=True)]
        return _ratio(numbered, [len(turn.completion.ids) for _, turn, _ in pairs])


def _spread(groups: Groups, most: int) -> list[tuple[int, Rollout]]:
    """At most so many of the rollouts of groups, as evenly from all of them as possible, each with its group's number."""
    numbered = [[(number, each) for each in group] for number, group in enumerate(groups)]
    return sorted(islice(filter(None, chain.from_iterable(zip_longest(*numbered))), most), key=lambda pair: pair[0])


def _rate(chosen: Sequence[tuple[int, Rollout]], values: Sequence[float]) -> Estimate:
    if not values:
        return Estimate()
    return Estimate(fmean(values), *interval(fmean(values), len({number for number, _ in chosen})), len(values))


def _gain(after: Estimate, plain: Estimate, gaps: Sequence[tuple[int, float]]) -> Estimate:
    """The difference of two rates on the same rollouts. Where it is the same for every problem, only the rates say how sure
    that is."""
    if after.mean is None or plain.mean is None:
        return Estimate()
    found, problems = _ratio(gaps, [1] * len(gaps)), len({number for number, _ in gaps})
    if found.low != found.high:
        return found
    return Estimate(*difference(after.mean, problems, plain.mean, problems), len(gaps))


def _ratio(values: Sequence[tuple[int, float]], weights: Sequence[int]) -> Estimate:
    """The mean of values of problems, by number, a unit of weight: problems are independent, what belongs to one is not."""
    sums: dict[int, list[float]] = {}
    for (number, value), weight in zip(values, weights, strict=True):
        total = sums.setdefault(number, [0.0, 0.0])
        total[0], total[1] = total[0] + value, total[1] + weight
    count = len(sums)
    if count < 2:
        return Estimate(count=len(values))
    mean = sum(total for total, _ in sums.values()) / sum(weights)
    spread = sum((total - mean * weight) ** 2 for total, weight in sums.values())
    error = float(stdtrit(count - 1, 0.975)) * math.sqrt(spread * count / (count - 1)) / sum(weights)
    return Estimate(mean, mean - error, mean + error, len(values))


# Advice ----------------------------------------------------------------------------------------------------------------


def _rank(groups: dict[str, float], words: dict[str, float | None]) -> Channel:
    share = words["rankable_groups"] or 0.0
    why = f"rewards are equal in {groups['equal']:.0%} of the groups, and the words differ in {share:.0%} of all groups"
    return Channel(
        "rank", "unclear" if share >= ENOUGH else "no", f"{why}; whether words predict rewards shows in training"
    )


def _rescue(groups: dict[str, float], after: Estimate, plain: Estimate, gain: Estimate) -> Channel:
    if not groups["nobody"]:
        return Channel("rescue", "no", "in every group somebody succeeds")
    if gain.mean is None or gain.low is None:
        return Channel("rescue", "no", "no failure has words to try again with; teachers would need none")
    why = f"a second try after the words succeeds in {after}, a plain one in {plain}; the difference is {gain}"
    return Channel("rescue", "yes" if gain.low > 0 else "no" if gain.mean <= 0 else "unclear", why)


def _distil(failed: Estimate, solved: Estimate) -> Channel:
    if failed.mean is None or failed.high is None:
        return Channel("distil", "no", "too few failures have words for the policy to read")
    why = f"after reading the words, the log-probability of a failed answer's tokens changes by {failed} each"
    if solved.mean is None or solved.low is None:
        return Channel("distil", "unclear" if failed.high < 0 else "no", f"{why}; no right answer to compare it with")
    why += f", of a right answer's by {solved}"
    return Channel(
        "distil", "no" if failed.mean >= solved.mean else "yes" if failed.high < solved.low else "unclear", why
    )
