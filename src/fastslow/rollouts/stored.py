"""Rollouts as JSON data and back, bit-exact, so that a run can resume."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from fastslow.records import Completion, Context, Rollout, Turn
from fastslow.tasks.base import Example, Feedback


def to_data(rollouts: Sequence[Rollout]) -> dict[str, Any]:
    """JSON data; problems are stored by id, and every context once."""
    contexts = {rollout.context.id: rollout.context for rollout in rollouts}
    return {
        "contexts": {identifier: asdict(context) for identifier, context in contexts.items()},
        "rollouts": [
            {
                "example": rollout.example.id,
                "context": rollout.context.id,
                "policy_step": rollout.policy_step,
                "turns": [{**asdict(turn), "completion": tokens_to_data(turn.completion)} for turn in rollout.turns],
                "feedback": asdict(rollout.feedback),
                "faults": dict(rollout.faults),
                "error": rollout.error,
            }
            for rollout in rollouts
        ],
    }


def from_data(data: Mapping[str, Any], examples: Iterable[Example]) -> list[Rollout]:
    """The rollouts that `to_data` stored; `examples` supplies their problems."""
    by_id, contexts = {example.id: example for example in examples}, contexts_from_data(data["contexts"])
    return [
        Rollout(
            by_id[item["example"]],
            contexts[item["context"]],
            item["policy_step"],
            tuple(_turn(turn) for turn in item["turns"]),
            _feedback(item["feedback"]),
            item["faults"],
            item.get("error", ""),
        )
        for item in data["rollouts"]
    ]


def contexts_from_data(data: Mapping[str, Any]) -> dict[str, Context]:
    return {key: Context(item["texts"], tuple(item["parents"]), item["born"]) for key, item in data.items()}


def tokens_to_data(completion: Completion) -> dict[str, Any]:
    return {"ids": completion.ids, "logprobs": completion.logprobs, "steps": completion.steps}


def tokens_from_data(data: Mapping[str, Any], *, ended: bool = True) -> Completion:
    return Completion(tuple(data["ids"]), tuple(data["logprobs"]), tuple(data.get("steps", ())), ended)


def _feedback(data: Mapping[str, Any]) -> Feedback:
    given: dict[str, Any] = {**data, **{name: tuple(data.get(name, ())) for name in ("rewards", "states", "masked")}}
    return Feedback(**given)


def _turn(data: Mapping[str, Any]) -> Turn:
    completion = tokens_from_data(data["completion"])
    prompt, shown = tuple(data["prompt_ids"]), data.get("shown")
    return Turn(data["component"], data["question"], prompt, completion, data["answer"], shown)
