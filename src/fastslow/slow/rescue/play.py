"""One step's help: the groups in which nobody succeeded, who tries them, and what joins them."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from itertools import cycle, islice
from statistics import fmean

from fastslow.base.text import one_line
from fastslow.base.world import derive_seed
from fastslow.recipe import Recipe
from fastslow.records import Rollout
from fastslow.rollouts.play import Player, is_faulty
from fastslow.rollouts.rounds import Group
from fastslow.runs.ledger import Entry
from fastslow.runs.recorder import Recorder
from fastslow.slow.rescue.accounts import AFTER, HELD, PROBES, Account, Accounts, Probe
from fastslow.slow.rescue.helpers import Chat, SecondTry, Teacher
from fastslow.slow.stream import Stream
from fastslow.slow.update import Rescued


class Rescue:
    """The helpers of a run, in the order in which they are asked."""

    def __init__(
        self, recipe: Recipe, player: Player, stream: Stream, teachers: Mapping[str, Chat], record: Recorder
    ) -> None:
        self.recipe, self.player, self.stream, self.record = recipe, player, stream, record
        self.options, self.sampling = recipe.slow.rescue, recipe.sampling.training()
        self.helpers: list[SecondTry | Teacher] = []
        if not teachers or self.options.options.get("retry"):
            self.helpers.append(SecondTry(player, self.sampling, lambda *played: record.book("rescue", *played)))
        self.helpers += [Teacher(name, chat, player, self.sampling, self._book) for name, chat in teachers.items()]

    def _book(self, spent: Entry) -> None:
        self.record.state.ledger.book("rescue", spent)

    def play(self, groups: Sequence[Group], accounts: Accounts, step: int) -> list[Rescued]:
        """Help for the groups of a step; what joins them. Helpers are asked in turn, each for all groups that are left."""
        self._probe(accounts, step)
        best = {number: max(each.score for each in group.rollouts) for number, group in enumerate(groups)}
        failed = [number for number in best if best[number] < self.options.success]
        joining: list[Rescued] = []
        held: list[Rescued] = []
        for helper in self.helpers:
            account = accounts.of.setdefault(helper.name, Account())
            asked = [(number, each) for number in failed for each in self._chosen(groups[number], helper, step, number)]
            if account.dropped or not asked:
                continue
            seed = derive_seed(self.recipe.seed, "rescue", helper.name, step)
            tries = helper.attempt([each for _, each in asked], step, seed)
            if (kept := self.record.state.kept) is not None and not helper.helped:  # the policy's are taken in already
                kept.take([each for each in tries if each is not None], helper.name)
            account.tried += len({number for number, _ in asked})
            found: dict[int, Rescued] = {}
            for (number, _), tried in zip(asked, tries, strict=True):
                if tried is not None and _usable(tried) and tried.score > best[number]:
                    found[number], best[number] = Rescued(number, tried, helper.helped), tried.score
            for each in found.values():
                taught = self._settle(each, account, accounts, helper.name, step)
                (joining if taught else held).append(each)
            failed = [number for number in failed if number not in found]
            if helper.broken:
                account.dropped = f"it cannot be asked: {one_line(helper.broken, 200)}"
                self._say(helper.name, account.dropped)
        for name, account in accounts.of.items():
            if reason := account.judge():
                self._say(name, reason)
        accounts.step = {"failed": len(joining) + len(held) + len(failed), "rescued": len(joining), "held": len(held)}
        return sorted(joining, key=lambda each: each.group)

    def _say(self, helper: str, reason: str) -> None:
        self.record.view.message(f"rescue: {helper} is not asked any more: {reason}", "warning")

    def _settle(self, found: Rescued, account: Account, accounts: Accounts, helper: str, step: int) -> bool:
        """Count a solved group, and say whether it is trained on; while its helper is measured, chance decides."""
        account.solved += 1
        position = step * self.recipe.slow.problems + found.group
        chance = random.Random(derive_seed(self.recipe.seed, "rescue held", position))
        taught = not (account.measuring and chance.random() < HELD)
        if account.measuring:
            accounts.due.append(Probe(step + AFTER, position, found.rollout.context, helper, taught))
        account.trained += taught
        return taught

    def _chosen(self, group: Group, helper: SecondTry | Teacher, step: int, number: int) -> Iterator[Rollout]:
        """The rollouts of a group that a helper tries again: the highest scores first, then those that came nearest; chance
        decides between equals, so that no context is always the first."""
        able = [each for each in group.rollouts if helper.can(each) and not is_faulty(each)]
        random.Random(derive_seed(self.recipe.seed, "rescue order", step, number)).shuffle(able)
        able.sort(key=lambda each: (each.score, each.progress), reverse=True)
        return islice(cycle(able), self.options.attempts)

    def _probe(self, accounts: Accounts, step: int) -> None:
        """Play the problems whose time has come, without help; the score of each is the mean of its rollouts."""
        due = [probe for probe in accounts.due if probe.step <= step and accounts.of[probe.helper].measuring]
        accounts.due = [probe for probe in accounts.due if probe.step > step]
        if not due:
            return
        pairs = [(self.stream.take(each.position, 1)[0], each.context) for each in due for _ in range(PROBES)]
        seed = derive_seed(self.recipe.seed, "rescue probe", step)
        rollouts, timing = self.player.play(pairs, self.sampling, policy_step=step, seed=seed, strict=False)
        self.record.book("rescue", rollouts, timing)
        for place, probe in enumerate(due):
            account = accounts.of[probe.helper]
            scores = [each.score for each in rollouts[place * PROBES : (place + 1) * PROBES]]
            (account.taught if probe.taught else account.held).append(fmean(scores))


def _usable(tried: Rollout) -> bool:
    """Whether it can be trained on: every turn has tokens, and its grade means something."""
    return bool(tried.turns) and all(turn.completion.ids for turn in tried.turns) and not is_faulty(tried)
