"""`DigestProposer` inside `gepa.optimize`, against one that copies what the grader said, on a simulated policy.

    python -m benchmarks.proposer [--settings office wrong …] [--seeds 1000:1020] [--calls 400] [--train 64] [--validation 32]

Both are given the same metric calls, problems and minibatches of gepa's own size. `copy` stands for a reflection model that
writes every new line of the feedback on the minibatch's failures below the instruction, and nothing else; a real model may
reword lines, leave some out, and be misled by them. What is reported is the share of the oracle's gain that gepa's best text
has, (found - seed) / (oracle - seed), in exact expected reward on problems that were never played.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean, stdev
from typing import Any

import gepa
from scipy.stats import t

import fastslow
from benchmarks.fast_loop import SETTINGS, open_world, seeds_of
from benchmarks.simulated_policy import COMPONENT
from fastslow.base.text import line_key
from fastslow.records import Context, Example, Rollout

Proposer = Callable[[dict[str, str], Mapping[str, Sequence[Mapping[str, Any]]], list[str]], dict[str, str]]


class Adapter:
    """A simulated policy as gepa plays it: each call draws anew."""

    propose_new_texts = None

    def __init__(self, policy: Any) -> None:
        self.policy, self.calls = policy, 0

    def evaluate(self, batch: list[Example], candidate: dict[str, str], capture_traces: bool = False) -> Any:
        self.calls += 1
        context = Context(dict(candidate))
        rollouts = self.policy.play([(example, context) for example in batch], "", self.calls)
        scores = [rollout.feedback.score for rollout in rollouts]
        return gepa.EvaluationBatch(outputs=rollouts, scores=scores, trajectories=rollouts if capture_traces else None)

    def make_reflective_dataset(self, candidate: dict[str, str], batch: Any, components: list[str]) -> Any:
        return {component: [_record(rollout) for rollout in batch.trajectories] for component in components}


def _record(rollout: Rollout) -> dict[str, Any]:
    (turn,) = rollout.turns
    words, score = rollout.feedback.text, rollout.feedback.score
    return {"Inputs": turn.question, "Generated Outputs": turn.answer, "Feedback": words, "Score": score}


def copy(
    candidate: dict[str, str], records: Mapping[str, Sequence[Mapping[str, Any]]], components: list[str]
) -> dict[str, str]:
    """The text with every new line of the feedback on failures."""
    said = [line for each in records[COMPONENT] if each["Score"] < 1 for line in each["Feedback"].splitlines()]
    known = {line_key(line) for line in candidate[COMPONENT].splitlines()}
    new = {line_key(line): line for line in said if line_key(line) not in known}
    return {COMPONENT: "\n".join([candidate[COMPONENT], *new.values()])}


PROPOSERS: dict[str, Callable[[], Proposer]] = {"digest": fastslow.DigestProposer, "copy": lambda: copy}


def share(setting: str, proposer: str, seed: int, calls: int, train: int, validation: int) -> float:
    world, policy = open_world(SETTINGS[setting].dials, seed)
    examples = [world.problem("train", index) for index in range(train + validation)]
    found = gepa.optimize(
        seed_candidate={COMPONENT: world.seed_text},
        trainset=examples[:train],
        valset=examples[train:],
        adapter=Adapter(policy),
        custom_candidate_proposer=PROPOSERS[proposer](),
        max_metric_calls=calls,
        logger=Silent(),
        seed=seed,
    )
    reward, least, most = (
        world.reward(text) for text in (found.best_candidate[COMPONENT], world.seed_text, world.oracle_text)
    )
    return float((reward - least) / (most - least))


class Silent:
    def log(self, message: str) -> None:
        """gepa's progress is not shown."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--settings", nargs="+", choices=SETTINGS, default=["office", "wrong", "numbers", "reports"])
    parser.add_argument("--seeds", type=seeds_of, default=range(1000, 1020), help="FIRST:END, END not included")
    parser.add_argument("--calls", type=int, default=400)
    parser.add_argument("--train", type=int, default=64)
    parser.add_argument("--validation", type=int, default=32)
    options = parser.parse_args()
    for setting in options.settings:
        shown = []
        for name in PROPOSERS:
            shares = [
                share(setting, name, seed, options.calls, options.train, options.validation) for seed in options.seeds
            ]
            wide = float(t.ppf(0.975, len(shares) - 1)) * stdev(shares) / len(shares) ** 0.5
            below = sum(each < -1e-9 for each in shares)
            shown.append(f"{name} {fmean(shares):.2f} ± {wide:.2f} ({below} below the seed text)")
        print(f"{setting}: {', '.join(shown)}", flush=True)


if __name__ == "__main__":
    main()
