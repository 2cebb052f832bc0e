"""gepa adapters as tasks: what gepa's own evaluation does with the same adapter and answers is what a rollout does."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gepa
import pytest
from gepa.adapters.default_adapter.default_adapter import DefaultAdapter, EvaluationResult
from gepa.core.adapter import EvaluationBatch

import fastslow
from fastslow.base.errors import FastSlowError, TaskError
from fastslow.tasks.adapters.dataset import GraderError
from fastslow.tasks.adapters.gepa_adapter import UNNAMED, GEPATask, Policy
from fastslow.tasks.base import Ask, Feedback, Task
from fastslow.tasks.scripted import scripted_rollout
from fastslow.tasks.stages import refuse_contamination

SEED = {"system_prompt": "Answer the question."}
RULE = "zorka means : write the list backwards."


def problems(letters: Sequence[str]) -> list[dict[str, Any]]:
    return [
        {"input": f"zorka : {' '.join(each)}", "additional_context": {}, "answer": " ".join(reversed(each))}
        for each in letters
    ]


TRAIN, HELD_OUT = problems(["abc", "bcd", "fgh", "ghk", "jkl", "xyz"]), problems(["klm", "nop"])


def exactly(data: Any, response: str) -> EvaluationResult:
    right = " ".join(response.split()) == data["answer"]
    return EvaluationResult(float(right), "Right." if right else RULE)


@dataclass(frozen=True)
class Problem:
    """A problem that is no dict."""

    question: str


class TwoTexts(gepa.GEPAAdapter[Any, Any, Any]):
    """Two calls, each under a text of its own, the second in a thread of the adapter's own."""

    def __init__(self, model: Policy) -> None:
        self.model = model

    def evaluate(self, batch: list[Any], candidate: dict[str, str], capture_traces: bool = False) -> Any:
        assert capture_traces
        (problem,) = batch
        draft = self.model([{"role": "user", "content": f"{candidate['draft']}\n{problem.question}"}])
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            final = pool.submit(self.model, f"{candidate['final']}\n{draft}").result()
        return EvaluationBatch([final], [5.0 if final == "good" else 2.5], [(draft, final)])

    def make_reflective_dataset(self, candidate: Any, eval_batch: Any, components_to_update: list[str]) -> Any:
        (component,) = components_to_update
        ((_, final),) = eval_batch.trajectories
        record = {"Inputs": "-", "Generated Outputs": final, "Feedback": f"mend {component}"}
        return {component: [record] if component == "draft" else [{"Inputs": "-", "note": "no word", "empty": ""}]}


TEXTS = {"draft": "Draft an answer.", "final": "Draft an answer. Then write the final one."}
TWO = [Problem("one?"), Problem("two?")]


def playing(task: Task, answers: Sequence[str], texts: Any = None) -> tuple[list[Ask], Feedback]:
    played = scripted_rollout(task, task.examples("train")[0], answers, texts)
    assert played.feedback is not None
    return list(played.asks), played.feedback


def test_the_default_adapter_needs_only_an_evaluator() -> None:
    task = GEPATask(SEED, TRAIN, HELD_OUT, evaluator=exactly)
    assert fastslow.GEPATask is GEPATask
    assert task.seed_texts == SEED
    evolved = {"system_prompt": RULE}
    asks, feedback = playing(task, ["a b c"], evolved)
    sent: list[Any] = []
    plain = DefaultAdapter(model=lambda messages: sent.append(list(messages)) or "a b c", evaluator=exactly)
    theirs = plain.evaluate([TRAIN[0]], evolved, capture_traces=True)
    assert [list(ask.messages) for ask in asks] == sent
    assert (asks[0].component, asks[0].question) == ("system_prompt", TRAIN[0]["input"])
    assert (feedback.score, feedback.text) == (theirs.scores[0], RULE)
    assert playing(task, ["c b a"])[1] == Feedback(1.0)


def test_without_an_evaluator_the_answer_must_contain_the_expected_one_as_in_gepa() -> None:
    _, feedback = playing(GEPATask(SEED, TRAIN), ["no"])
    assert feedback.score == 0
    assert "The correct answer is 'c b a'" in feedback.text


def test_an_adapter_of_ones_own_is_made_with_the_policy() -> None:
    task = GEPATask(TEXTS, TWO, adapter=TwoTexts, perfect_score=5.0)
    asks, feedback = playing(task, ["a draft", "bad"])
    assert [ask.component for ask in asks] == ["draft", "final"]
    assert asks[1].messages == [{"role": "user", "content": f"{TEXTS['final']}\na draft"}]
    assert feedback.score == 0.5
    assert feedback.by_component == {"draft": "mend draft", "final": "note: no word"}
    assert feedback.text == "draft: mend draft\nfinal: note: no word"
    assert playing(task, ["a draft", "good"])[1] == Feedback(1.0)
    elsewhere, _ = playing(task, ["x", "good"], {"draft": "", "final": ""})
    assert [ask.component for ask in elsewhere] == [UNNAMED, UNNAMED]


def test_problems_are_named_by_what_they_hold() -> None:
    first, again = GEPATask(TEXTS, TWO, adapter=TwoTexts), GEPATask(TEXTS, TWO[::-1], adapter=TwoTexts)
    names = [example.id for example in first.examples("train")]
    assert names == [example.id for example in again.examples("train")][::-1]
    refuse_contamination(first)  # without a valset, the trainset is validated on, as in gepa
    with pytest.raises(TaskError, match=r"the same as validation problem .* \('zorka : a b c'\)"):
        refuse_contamination(GEPATask(SEED, TRAIN, TRAIN[:1]))
    with pytest.raises(TaskError, match="of type object, which does not say what it holds"):
        GEPATask(SEED, [object()])


class Broken(TwoTexts):
    returned: Any = EvaluationBatch([], [])
    raised: Exception | None = None

    def evaluate(self, batch: list[Any], candidate: dict[str, str], capture_traces: bool = False) -> Any:
        if self.raised:
            raise self.raised
        return self.returned


@pytest.mark.parametrize(
    ("returned", "words"),
    [
        (EvaluationBatch([], []), "returned 0 scores for a batch of 1 problem"),
        (EvaluationBatch(["x"], [2.0]), r"returned the score 2.0; expected a number from 0 to 1; scale"),
        (EvaluationBatch(["x"], [float("nan")]), "returned the score nan"),
        (EvaluationBatch(["x"], ["many"]), "returned the score 'many'"),
        (EvaluationBatch(["x"], [0.0]), r"make_reflective_dataset raised TypeError"),
        (LookupError("no index"), "Broken.evaluate raised LookupError: no index"),
    ],
)
def test_what_an_adapter_does_wrong_is_said(returned: Any, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    raised = isinstance(returned, Exception)
    monkeypatch.setattr(Broken, "raised" if raised else "returned", returned)
    with pytest.raises(TaskError if raised else GraderError, match=words):
        playing(GEPATask(TEXTS, TWO, adapter=Broken), [])


def test_a_message_that_is_no_text_is_refused() -> None:
    def picture(policy: Policy) -> Any:
        return DefaultAdapter(model=lambda messages: policy([{"role": "user", "content": ["image"]}]))  # type: ignore[dict-item]

    with pytest.raises(TaskError, match=r"the policy was asked \{'role': 'user', 'content': \['image'\]\}; expected"):
        playing(GEPATask(SEED, TRAIN, adapter=picture), ["x"])


def test_arguments_are_checked() -> None:
    for candidate, words in ((None, "is None; expected a dict"), ({}, "expected a dict"), ({"a": 1}, "type int")):
        with pytest.raises(TaskError, match=words):
            GEPATask(candidate, TRAIN)  # type: ignore[arg-type]
    with pytest.raises(TaskError, match="trainset is empty"):
        GEPATask(SEED, [])
    with pytest.raises(TaskError, match="perfect_score=0; expected a number above 0"):
        GEPATask(SEED, TRAIN, perfect_score=0)
    with pytest.raises(TaskError, match="both adapter and evaluator"):
        GEPATask(SEED, TRAIN, adapter=TwoTexts, evaluator=exactly)
    with pytest.raises(
        TaskError, match=r"DefaultAdapter object, .*adapter=lambda policy: DefaultAdapter\(model=policy"
    ):
        GEPATask(SEED, TRAIN, adapter=DefaultAdapter(model=lambda messages: "x"))  # type: ignore[arg-type]
    with pytest.raises(TaskError, match=r"adapter\(policy\) returned None; expected a gepa.GEPAAdapter"):
        GEPATask(SEED, TRAIN, adapter=lambda policy: None)
    with pytest.raises(TaskError, match="outside of evaluate"):
        GEPATask(SEED, TRAIN, adapter=lambda policy: policy("hello"))


def test_nano_learns_the_rule_of_an_evaluator(tmp_path: Path) -> None:
    run = fastslow.train(
        model="nano",
        task=GEPATask(SEED, TRAIN, HELD_OUT, evaluator=exactly),
        slow={"steps": 1, "problems": 2, "group": 4, "microbatch": 8},
        fast={"population": 2, "cycle": 1, "anchors": 4, "budget": 12, "optimizer": {"proposer": "full"}},
        sampling={"max_tokens": 8},
        evaluation={"problems": 2, "k": 1},
        folder=tmp_path / "run",
    )
    assert RULE in run.best_prompt.splitlines()
    assert run.evaluations.iloc[-1]["mean"] == 1.0
    assert run.metrics["trained_rows"].notna().all()


def test_an_adapter_that_always_fails_leaves_no_run_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Broken, "raised", LookupError("no index"))
    task = GEPATask(TEXTS, TWO, adapter=Broken)
    with pytest.raises(FastSlowError, match="no index"):
        fastslow.train(model="nano", task=task, sampling={"max_tokens": 8}, folder=tmp_path / "run")
    assert not (tmp_path / "run").exists()
