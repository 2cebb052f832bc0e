"""EvoPrompt (Guo et al. 2023, arXiv 2309.08532): a genetic algorithm whose operators work on text.

Keeps: its genetic algorithm. Two parents are drawn from the population by roulette, with a probability proportional to their
scores; their child is crossed from both and then mutated; a generation has as many children as the population has members,
and the best of old and new survive. It learns from scores alone.

Where there is only one text, children are mutations of it.

Without a model: crossing keeps the lines that both parents have and each other line with an even chance; a mutation adds,
exchanges, drops or moves one line, where new lines come from the population and from generic advice.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from fastslow.fast.optimizers.lines import GENERIC, cross, distinct, lines_of, vary
from fastslow.fast.optimizers.steps import Steps, listed
from fastslow.fast.pool import Member
from fastslow.fast.reflection.prompt import fence_of
from fastslow.records import Context


class EvoPrompt(Steps):
    reads_feedback = False
    supports = frozenset({"rescore", "reuse"})
    least_population = 2

    def step(self) -> None:
        self.score(self.brood(min(self.recipe.population, self.left // self.score_price)))

    def propose(self) -> Context | None:
        population = self.ranked()[: self.recipe.population]
        parents = [parent.context for parent in roulette(population, self.chance)]
        texts = [self.text(parent) for parent in parents]
        fence = fence_of(texts)
        prompt = f"""\
{listed(["Instruction 1:", "Instruction 2:"], texts, fence)}

{"Cross the two instructions into one that has parts of both." if len(texts) > 1 else ""}
Then change the result a little, so that it stays a sensible instruction for the same task."""
        lines = {**dict.fromkeys(GENERIC, 0.1), **self.population_lines(population)}

        def by_hand(chance: random.Random) -> list[str]:
            crossed = cross(lines_of(texts[0]), lines_of(texts[-1]), chance)
            return distinct(vary(crossed, lines, chance))

        return self.write(parents, self.text_request("the final instruction", prompt, fence, by_hand))


def roulette(population: Sequence[Member], chance: random.Random) -> list[Member]:
    """Two different members, each drawn by its score, or uniformly where none scores; one member where there is only one."""
    left, drawn = list(population), []
    for _ in range(min(2, len(left))):
        scores = [member.mean for member in left]
        (index,) = chance.choices(range(len(left)), scores if any(scores) else None)
        drawn.append(left.pop(index))
    return drawn
