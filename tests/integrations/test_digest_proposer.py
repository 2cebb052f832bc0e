"""`digest` as the proposer of gepa and of dspy.GEPA."""

from __future__ import annotations

import random
from typing import Any

import gepa
import pytest
from gepa import EvaluationBatch, GEPAAdapter

import fastslow
from fastslow.base.errors import TaskError

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


def records(feedback: Any, scores: Any = None, count: int = 6) -> list[dict[str, Any]]:
    found = [
        {"Inputs": f"message {number}", "Generated Outputs": f"Answer {number}", "Feedback": feedback(number)}
        for number in range(count)
    ]
    return [each | {"Score": scores(number)} for number, each in enumerate(found)] if scores else found


def proposed(proposer: fastslow.DigestProposer, of: list[dict[str, Any]], text: str = "Answer.") -> str:
    return proposer({"system": text}, {"system": of}, ["system"])["system"]


def test_praise_becomes_no_line_while_failures_are_explained() -> None:
    praise, rule = "Great answer, exactly what the desk wants.", "Write in lower case."
    mixed = records(lambda number: praise if number % 2 else rule, lambda number: float(number % 2))
    assert proposed(fastslow.DigestProposer(), mixed) == f"Answer.\n{rule}"
    later = fastslow.DigestProposer()  # the praise was heard first
    assert praise in proposed(later, mixed[1::2])
    assert proposed(later, mixed[::2]) == f"Answer.\n{rule}"


def test_a_grader_may_explain_successes_only() -> None:
    rule = "Lower case is what the desk wants."
    of = records(lambda number: rule if number % 2 else "Wrong.", lambda number: float(number % 2))
    assert rule in proposed(fastslow.DigestProposer(), of)


def test_a_record_without_feedback_is_named() -> None:
    row = {"Inputs": "message", "Generated Outputs": "answer", "Error": "not polite"}
    with pytest.raises(TaskError, match=r"'system' has no .Feedback., only Inputs, Generated Outputs, Error"):
        proposed(fastslow.DigestProposer(), [row])


def test_keys_may_be_in_lower_case() -> None:
    of = [{"Inputs": f"message {number}", "feedback": "Write in lower case.", "score": 0.0} for number in range(4)]
    assert "Write in lower case." in proposed(fastslow.DigestProposer(), of)


def test_no_text_is_proposed_twice_from_one_parent() -> None:
    """With words as an LM judge writes them."""
    judge = [
        "The tone is a bit cold; it should acknowledge the customer's frustration.",
        "It would be better to mention the refund window, which the customer asked for.",
        "The response lacks empathy and does not address the late delivery.",
        "Good structure, though the reply is too long for a chat.",
        "The tone is too formal for this customer.",
    ]
    proposer, found = fastslow.DigestProposer(), []
    for turn in range(12):
        of = records(lambda number, turn=turn: judge[(turn + number) % 5], lambda number: 0.3 * number, count=3)
        found.append(proposed(proposer, of))
    assert len(set(found)) == len(found)
    assert "Answer." not in found


def test_without_another_text_the_parent_comes_back() -> None:
    proposer = fastslow.DigestProposer()
    silent = records(lambda number: "")
    assert [proposed(proposer, silent) for _ in range(3)] == ["Answer."] * 3


def test_the_report_says_which_records_each_line_is_of() -> None:
    rules = ["Write in lower case.", "Leave out the greeting."]
    proposer = fastslow.DigestProposer()
    text = proposed(proposer, records(lambda number: rules[number % 3 == 0]))
    report = proposer.report()
    assert list(report["system"]) == text.splitlines()
    assert report["system"]["Answer."] == []
    assert report["system"][rules[1]] == ["message 0", "message 3"]
    assert len(report["system"][rules[0]]) == 4
    assert proposer.report({"system": rules[1]}) == {"system": {rules[1]: ["message 0", "message 3"]}}
