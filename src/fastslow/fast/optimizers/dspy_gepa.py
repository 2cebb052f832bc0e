"""dspy.GEPA (Agrawal et al. 2025, arXiv 2507.19457), by DSPy itself, for comparison with our `gepa`.

Keeps: DSPy's adapter to gepa and its prompts for the reflection model.

Leaves out: the carried population as parents: DSPy starts with one program, the best carried context, and the others only
stay candidates; merging, whose draws differ between processes where components have names; several proposals per generation.
A generation starts only if the budget covers all of it.

Without a model: `lessons` proposes, from the same attempts and feedback.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fastslow.fast.optimizers.dspy_search import DSPySearch, dspy
from fastslow.fast.optimizers.gepa import ProposerOptions
from fastslow.records import Context


class DSPyGepa(DSPySearch):
    Options = ProposerOptions
    trials = 2

    def compile(self, program: dspy.Module, golds: list[dspy.Example]) -> None:
        optimizer = dspy.GEPA(
            metric=_metric,
            max_metric_calls=self.budget,
            reflection_lm=self.lm if self.has_model else None,
            instruction_proposer=None if self.has_model else self._by_hand,
            reflection_minibatch_size=self.batch_size,
            use_merge=False,
            num_threads=1,
            warn_on_score_mismatch=False,
            seed=self.seed,
            gepa_kwargs={"stop_callbacks": [self._stop]},
        )
        optimizer.compile(program, trainset=golds, valset=golds)

    def _stop(self, state: Any) -> bool:
        over = self.broken is not None or self.finished() or self.left < self.price
        self.generations += not over
        return over

    def _by_hand(
        self, candidate: Mapping[str, str], reflective_dataset: Mapping[str, Any], components_to_update: Sequence[str]
    ) -> dict[str, str]:
        parent = self.context_of(tuple(candidate[f"component_{n}"] for n in range(len(self.components))))
        assert parent is not None, "a parent was scored"
        for number, component in enumerate(self.components):
            if f"component_{number}" in components_to_update and (child := self._edited(parent, component)):
                self.known[self.cleaned(child)] = child
                return {f"component_{number}": child.texts[component]}
        return {}

    def _edited(self, parent: Context, component: str) -> Context | None:
        rollouts = self.latest.get(parent.id, [])
        attempts = [attempt for each in rollouts if (attempt := self.attempt(each, component)) is not None]
        before = sum(rollout.score for rollout in rollouts) / max(1, len(rollouts))
        return self.edited(parent, component, attempts, before)


def _metric(gold: Any, prediction: Any, trace: Any = None, pred_name: Any = None, pred_trace: Any = None) -> Any:
    """The score; for a predictor also the feedback on its component."""
    if pred_name is None:
        return prediction.score
    return dspy.Prediction(score=prediction.score, feedback=prediction.feedback.get(pred_name, ""))
