"""Rollouts as plain data and back, to the last bit: what a run needs to go on after an interruption."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from fastslow.records import Completion, Context, Rollout, Turn
from fastslow.tasks.base import Example, Feedback


def to_data(rollouts: Sequence[Rollout]) -> dict[str, Any]:
    """What JSON can hold. Problems are named by their ids, and every context is written once."""
    contexts = {rollout.context.id: rollout.context for rollout in rollouts}
    return {
        "contexts": {identifier: asdict(context) for identifier, context in contexts.items()},
        "rollouts": [
            {
                "example": rollout.example.id,
                "context": rollout.context.id,
                "policy_step": rollout.policy_step,
                "turns": [asdict(turn) for turn in rollout.turns],
                "feedback": asdict(rollout.feedback),
                "faults": dict(rollout.faults),
            }
            for rollout in rollouts
        ],
    }


def from_data(data: Mapping[str, Any], examples: Iterable[Example]) -> list[Rollout]:
    """The same rollouts, of the problems among `examples`."""
    by_id = {example.id: example for example in examples}
    contexts = {
        identifier: Context(item["texts"], tuple(item["parents"]), item["born"])
        for identifier, item in data["contexts"].items()
    }
    return [
        Rollout(
            by_id[item["example"]],
            contexts[item["context"]],
            item["policy_step"],
            tuple(_turn(turn) for turn in item["turns"]),
            Feedback(**item["feedback"]),
            item["faults"],
        )
        for item in data["rollouts"]
    ]


def _turn(data: Mapping[str, Any]) -> Turn:
    completion = data["completion"]
    drawn = Completion(tuple(completion["ids"]), tuple(completion["logprobs"]))
    return Turn(data["component"], data["question"], tuple(data["prompt_ids"]), drawn, data["answer"])
