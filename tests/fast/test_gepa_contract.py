"""What the fast loop relies on in gepa 0.1.4, asked of gepa alone."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import pytest
from gepa import optimize
from gepa.core.adapter import EvaluationBatch
from gepa.core.state import ValsetEvaluation
from gepa.proposer.base import CandidateProposal
from gepa.proposer.reflective_mutation.reflection_lm import ReflectionProposal
from gepa.strategies.proposal_sampling import IndependentSampling

from fastslow.fast.optimizers.gepa import Improvement


class Recorder:
    """An adapter and callback that writes down what is asked of it; longer texts score higher."""

    propose_new_texts = None

    def __init__(self, population: list[dict[Any, str]]) -> None:
        self.population = population
        self.events: list[str] = []
        self.sizes: list[tuple[str, list[int]]] = []
        self.parents: list[dict[Any, str]] = []
        self.proposed = 0

    def score(self, candidate: dict[Any, str], example: float) -> float:
        return min(1.0, sum(map(len, candidate.values())) / 10) * example

    def evaluate(self, batch: list[float], candidate: dict[Any, str], capture_traces: bool = False) -> EvaluationBatch:
        self.events.append("evaluate")
        self.sizes.append(("evaluate", [len(batch)]))
        return EvaluationBatch([None] * len(batch), [self.score(candidate, x) for x in batch])

    def batch_evaluate(self, items: list[tuple[dict[Any, str], list[float]]]) -> list[EvaluationBatch]:
        self.events.append("batch_evaluate")
        self.sizes.append(("batch", [len(batch) for _, batch in items]))
        return [
            EvaluationBatch([None] * len(batch), [self.score(c, x) for x in batch], trajectories=list(batch))
            for c, batch in items
        ]

    def make_reflective_dataset(self, candidate: Any, evaluation: Any, components: list[Any]) -> dict:
        self.parents.append(candidate)
        return {component: [{"score": score} for score in evaluation.scores] for component in components}

    def reflect_many(self, jobs: list[Any]) -> list[Any]:
        self.events.append(f"{len(jobs)} to reflect on")
        return [self.reflect(*job) for job in jobs]

    def reflect(self, candidate: dict[Any, str], dataset: Any, components: list[Any]) -> Any:
        self.proposed += 1
        texts = {component: candidate[component] + str(self.proposed) for component in components}
        return ReflectionProposal(texts), self

    def on_iteration_start(self, event: Any) -> None:
        self.events.append("iteration")
        self.state = event["state"]
        if len([e for e in self.events if e == "iteration"]) == 1:
            for texts in self.population:
                scores = {number: self.score(texts, x) for number, x in enumerate(EXAMPLES)}
                self.state.update_state_with_new_program(
                    parent_program_idx=[],
                    new_program=texts,
                    valset_evaluation=ValsetEvaluation({}, scores),
                    run_dir=None,
                    num_metric_calls_by_discovery_of_new_program=0,
                )

    def on_evaluation_start(self, event: Any) -> None:
        self.events.append("start")

    def on_evaluation_end(self, event: Any) -> None:
        self.events.append("end")


EXAMPLES = [0.5, 0.6, 0.7, 0.8, 0.9]


def run(recorder: Recorder, iterations: int = 1, proposals: int = 1) -> Any:
    return optimize(
        seed_candidate={0: "seed"},
        trainset=list(EXAMPLES),
        valset=list(EXAMPLES),
        adapter=recorder,
        reflection_strategy=recorder,
        reflection_minibatch_size=2,
        sampling_strategy=IndependentSampling(proposals),
        stop_callbacks=[lambda state: state.i + 1 >= iterations],
        callbacks=[recorder],
        track_best_outputs=False,
        logger=type("Quiet", (), {"log": staticmethod(lambda message: None)})(),
        seed=0,
    )


def test_version() -> None:
    assert version("gepa") == "0.1.4"


def test_only_the_seed_is_evaluated_alone_and_before_anything_else() -> None:
    recorder = Recorder([])
    run(recorder, iterations=4)
    assert recorder.events.count("evaluate") == 1
    assert recorder.events[0] == "evaluate"
    assert recorder.sizes[0] == ("evaluate", [len(EXAMPLES)])


def test_minibatches_are_announced_and_full_scoring_is_not() -> None:
    recorder = Recorder([])
    run(recorder)
    minibatch = ["start", "batch_evaluate", "end"]
    assert recorder.events == ["evaluate", "iteration", *minibatch, "1 to reflect on", *minibatch, "batch_evaluate"]
    assert [sizes for kind, sizes in recorder.sizes if kind == "batch"] == [[2], [2], [5]]


def test_programs_added_at_the_first_iteration_are_parents_at_once() -> None:
    recorder = Recorder([{0: "longer seed"}])  # better on every problem than the seed
    run(recorder)
    assert recorder.parents == [{0: "longer seed"}]
    assert recorder.state.program_candidates[:2] == [{0: "seed"}, {0: "longer seed"}]
    assert recorder.state.is_consistent()


def test_several_proposals_are_played_together() -> None:
    recorder = Recorder([])
    run(recorder, proposals=2)
    assert [sizes for kind, sizes in recorder.sizes if kind == "batch"] == [[2, 2], [2, 2], [5, 5]]


def test_ids_of_a_list_are_positions() -> None:
    recorder = Recorder([])
    run(recorder)
    assert list(recorder.state.prog_candidate_val_subscores[0]) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("before", "after", "accepted"),
    [
        ([0.3, 0.0, 0.0], [0.1, 0.2, 0.0], False),  # 0.1 + 0.2 is more than 0.3 for gepa's own criterion
        ([0.1] * 3, [0.3, 0.0, 0.0], False),
        ([0.7, 0.1, 0.2], [0.2, 0.1, 0.7], False),
        ([0.3, 0.0, 0.0], [0.1, 0.2, 0.01], True),
        ([0.0, 0.0, 0.0], [2.0**-20 / 300, 0.0, 0.0], True),  # progress on one problem
    ],
)
def test_equal_minibatches_are_no_improvement(before: list[float], after: list[float], accepted: bool) -> None:
    proposal = CandidateProposal({}, [0], subsample_scores_before=before, subsample_scores_after=after)
    assert Improvement().should_accept(proposal, None) == accepted  # type: ignore[arg-type]
