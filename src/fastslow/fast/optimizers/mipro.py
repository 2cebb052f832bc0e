"""MIPROv2 (Opsahl-Ong et al. 2024, arXiv 2406.11695), by DSPy itself, on the instructions alone.

Keeps: instructions proposed from a summary of the problems, from solved problems and from a tip; a Bayesian search (optuna's
TPE) over them by scores on minibatches, with the most promising scored on all anchors every few trials. It learns from scores
alone.

Leaves out: few-shot demonstrations in the prompt, since a context is a text (DSPy's zero-shot setting; solved problems still
inform the proposals), and the description of the program's code, since our program has none. Solved problems are those of the
re-scored best context, so that finding them costs nothing, and neither does the first full evaluation.

Without a model: an instruction is the current one with a line added, exchanged, dropped or moved, where new lines come from
problems, solved or not, and from generic advice. It does not read DSPy's summary or tip.
"""

from __future__ import annotations

import random
from typing import Any

from fastslow.base.errors import RecipeError
from fastslow.fast.optimizers.dspy_search import DSPySearch, dspy
from fastslow.fast.optimizers.lines import lines_of, plain_lines, vary
from fastslow.fast.optimizers.steps import some
from fastslow.fast.reflection import ReflectionFailed

try:
    import optuna
except ImportError as error:
    raise RecipeError(
        "fast.optimizer=mipro needs the package optuna, which is not installed; install it with: "
        "pip install 'fastslow[dspy]', or choose another fast.optimizer"
    ) from error

MOST_CANDIDATES = 18
"""The most instructions that are searched over, the current one included; DSPy's own number for a heavy run."""
TRIALS_PER_CANDIDATE = 1.5
"""DSPy's own rule."""
FULL_EVERY = 5
"""Minibatch trials between two full scorings, as in DSPy."""


class Mipro(DSPySearch):
    reads_feedback = False

    def compile(self, program: dspy.Module, golds: list[dspy.Example]) -> None:
        trials = affordable_trials(self.left // self.recipe.samples, self.batch_size, len(golds))
        if not trials:
            return
        self.generations, self.questions = trials, [gold.question for gold in golds]
        candidates = max(2, min(MOST_CANDIDATES, int(trials / TRIALS_PER_CANDIDATE)))
        optimizer = dspy.MIPROv2(
            metric=lambda gold, prediction, trace=None: prediction.score,
            metric_threshold=1.0,
            prompt_model=self.lm,
            task_model=self.lm,
            auto=None,
            num_candidates=candidates,
            max_bootstrapped_demos=0,
            max_labeled_demos=0,
            num_threads=1,
            seed=self.seed,
            track_stats=False,
        )
        optuna.logging.disable_default_handler()  # it would print the end of the search as a failed trial
        try:
            with dspy.context(adapter=self.outside["adapter"] if self.has_model else _ByHand(self)):
                optimizer.compile(
                    program,
                    trainset=golds,
                    valset=golds,
                    num_trials=trials,
                    minibatch=self.batch_size < len(golds),
                    minibatch_size=self.batch_size,
                    minibatch_full_eval_steps=FULL_EVERY,
                    program_aware_proposer=False,
                    data_aware_proposer=self.has_model,
                    tip_aware_proposer=self.has_model,
                )
        except ValueError as error:  # the search ends when all candidates are scored on all anchors
            if "No valid program" not in str(error):
                raise
        finally:
            optuna.logging.enable_default_handler()

    def instruction(self, text: str) -> str:
        """A text to try beside another, without a model."""
        best = [drawn[0] for drawn in self.full[self.carried.best.context.id].values()]
        attempts = [self.attempt(rollout, component) for rollout in best for component in self.components]
        right = [attempt for attempt in attempts if attempt and attempt.score >= 1]

        def by_hand(chance: random.Random) -> list[str]:
            questions, solved = some(self.questions, chance), some(right, chance)
            return vary(lines_of(text), plain_lines(solved, questions), chance)

        answer = self.ask(self.text_request("the instruction", text, "```", by_hand))
        if answer is None:
            raise ReflectionFailed("no instruction could be written")
        return answer


def affordable_trials(rollouts: int, minibatch: int, anchors: int) -> int:
    """Trials that so many rollouts cover, including the scores on all anchors after every few trials and at the end."""
    if minibatch >= anchors:
        return rollouts // anchors
    trials = 0
    while (trials + 1) * minibatch + ((trials + 1) // FULL_EVERY + 1) * anchors <= rollouts:
        trials += 1
    return trials


class _ByHand(dspy.Adapter):
    """Answers DSPy's request for an instruction without a model."""

    def __init__(self, search: Mipro) -> None:
        super().__init__()
        self.search = search

    def __call__(self, lm: Any, lm_kwargs: Any, signature: Any, demos: Any, inputs: Any) -> list[dict[str, Any]]:
        return [dict.fromkeys(signature.output_fields, self.search.instruction(str(inputs["basic_instruction"])))]
