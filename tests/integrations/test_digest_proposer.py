"""`digest` as the proposer of gepa and of dspy.GEPA."""

from __future__ import annotations

import random
from typing import Any

import gepa
import pytest
from gepa import EvaluationBatch, GEPAAdapter

import fastslow

RULES = {"invoice": "amber", "visa": "birch", "parcel": "cedar", "badge": "delta"}
TRAINSET = [{"id": number, "topic": topic} for number, topic in enumerate(list(RULES) * 6)]


class Desks(GEPAAdapter[dict[str, Any], Any, Any]):
    """A policy that sends a message to the right desk if its text says where, and a grader that says it."""

    def evaluate(self, batch: Any, candidate: dict[str, str], capture_traces: bool = False) -> Any:
        outputs, scores = [], []
        for row in batch:
            told = f"{row['topic']} goes to {RULES[row['topic']]}" in candidate["system"]
            outputs.append(RULES[row["topic"]] if told else "ember")
            scores.append(float(told))
        traces = list(zip(batch, outputs, scores, strict=True))
        return EvaluationBatch(outputs=outputs, scores=scores, trajectories=traces if capture_traces else None)

    def make_reflective_dataset(self, candidate: dict[str, str], batch: Any, components: list[str]) -> Any:
        records = [
            {
                "Inputs": f"Message {row['id']} about a {row['topic']}",
                "Generated Outputs": output,
                "Feedback": "Right." if score else f"Wrong. A {row['topic']} goes to {RULES[row['topic']]}.",
                "Score": score,
            }
            for row, output, score in batch.trajectories
        ]
        return dict.fromkeys(components, records)


def test_gepa_finds_all_rules_with_it() -> None:
    result = gepa.optimize(
        seed_candidate={"system": "Name the desk."},
        trainset=TRAINSET,
        valset=TRAINSET[:8],
        adapter=Desks(),
        custom_candidate_proposer=fastslow.DigestProposer(),
        reflection_minibatch_size=6,
        max_metric_calls=120,
        display_progress_bar=False,
        seed=0,
    )
    best = result.best_candidate["system"]
    assert all(f"{topic} goes to {desk}" in best for topic, desk in RULES.items())
    assert "Wrong" not in best


def test_dspy_s_gepa_takes_it_as_its_instruction_proposer() -> None:
    dspy = pytest.importorskip("dspy")
    rules, chance = fastslow.DigestProposer(), random.Random(0)

    class Scripted(dspy.LM):
        def __init__(self) -> None:
            super().__init__("scripted")

        def forward(self, prompt: Any = None, messages: Any = None, **_: Any) -> Any:
            text = "\n".join(str(message["content"]) for message in messages)
            topic = next(topic for topic in RULES if f"a {topic}?" in messages[-1]["content"])
            desk = RULES[topic] if f"{topic} goes to {RULES[topic]}" in text else chance.choice(["ember", "fjord"])
            from litellm import ModelResponse

            return ModelResponse(
                choices=[{"message": {"content": f"[[ ## desk ## ]]\n{desk}\n\n[[ ## completed ## ]]"}}],
                usage={"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
                model="scripted",
            )

    def metric(gold: Any, pred: Any, trace: Any = None, name: Any = None, part: Any = None) -> Any:
        right = pred.desk == gold.desk
        return dspy.Prediction(
            score=float(right), feedback="Right." if right else f"A {gold.topic} goes to {gold.desk}."
        )

    rows = [
        dspy.Example(question=f"Where goes message {number} about a {topic}?", topic=topic, desk=RULES[topic])
        for number, topic in enumerate(list(RULES) * 3)
    ]
    rows = [row.with_inputs("question") for row in rows]
    with dspy.context(lm=Scripted()):
        optimizer = dspy.GEPA(
            metric=metric, max_metric_calls=60, instruction_proposer=rules, reflection_minibatch_size=6, seed=0
        )
        program = optimizer.compile(dspy.Predict("question -> desk"), trainset=rows, valset=rows)
    assert all(f"{topic} goes to {desk}" in program.signature.instructions for topic, desk in RULES.items())
