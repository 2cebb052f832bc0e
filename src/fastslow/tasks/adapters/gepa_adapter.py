"""A gepa adapter as a task: the `seed_candidate`, the data and the adapter of a `gepa.optimize` call."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gepa.adapters.default_adapter.default_adapter import DefaultAdapter
from pydantic import BaseModel

from fastslow.base.errors import TaskError
from fastslow.base.text import quoted
from fastslow.tasks.adapters.dataset import GraderError, blaming
from fastslow.tasks.adapters.foreign import ProgramTask
from fastslow.tasks.base import Ask, Feedback, Message, within
from fastslow.tasks.data import content_id

Policy = Callable[[str | Sequence[Message]], str]
"""What an adapter calls instead of its LM: chat messages, or the text of one user message, to the answer."""
MakeAdapter = Callable[[Policy], Any]
UNNAMED = "(no component)"
"""The component of calls in which no text of the candidate can be found."""
SHOWN_ELSEWHERE = ("Inputs", "Generated Outputs")
"""Keys of a reflective record that the fast loop has anyway: a rollout keeps its questions and answers."""


class GEPATask(ProgramTask):
    """The arguments of `gepa.optimize` as a task: every component of the candidate is a text that evolves (docs/gepa.md).

        task = fastslow.GEPATask(seed_candidate, trainset, valset, evaluator=evaluator)
        task = fastslow.GEPATask(seed_candidate, trainset, valset, adapter=lambda policy: MyAdapter(model=policy))

    `adapter` is a function that is given the policy and returns a `gepa.GEPAAdapter`; one is made for every rollout. The
    policy is called with chat messages, or with a text, and returns the model's answer. Without `adapter`, gepa's
    DefaultAdapter is used with `evaluator`, as in `gepa.optimize(task_lm=…)`. About attempts that score less than
    `perfect_score`, `make_reflective_dataset` is called for each component, and the field `Feedback` of its records, or else
    all fields but the inputs and outputs, is the feedback.
    """

    def __init__(
        self,
        seed_candidate: Mapping[str, str],
        trainset: Sequence[Any],
        valset: Sequence[Any] | None = None,
        testset: Sequence[Any] = (),
        *,
        adapter: MakeAdapter | None = None,
        evaluator: Callable[[Any, str], Any] | None = None,
        perfect_score: float = 1.0,
    ) -> None:
        if not isinstance(seed_candidate, Mapping) or not seed_candidate:
            shown = quoted(seed_candidate, 100)
            raise TaskError(f"seed_candidate is {shown}; expected a dict from component to text")
        for name, text in seed_candidate.items():
            if not isinstance(text, str):
                raise TaskError(f"seed_candidate['{name}'] is of type {type(text).__name__}; expected a text")
        self._make = _checked_adapter(adapter, evaluator)
        if not perfect_score > 0:
            raise TaskError(f"{perfect_score=}; expected a number above 0")
        self._perfect = perfect_score
        super().__init__(
            dict(seed_candidate), {"train": trainset, "validation": valset, "test": testset}, _plain, "problem"
        )

    def _asked(self, problem: Any) -> object:
        data = _plain(problem)
        asked = data.get("input", data) if isinstance(data, Mapping) else data
        return asked if isinstance(asked, str) else content_id(asked)

    def _attempt(self, problem: Any, texts: Mapping[str, str], ask: Callable[[Ask], str]) -> Feedback:
        candidate = dict(texts)

        def policy(asked: str | Sequence[Message]) -> str:
            messages = _messages(asked)
            return str(ask(Ask(_component(messages, candidate), messages, complete=True)))

        adapter = self._make(policy)
        name = type(adapter).__name__
        with blaming(f"{name}.evaluate", TaskError):
            batch = adapter.evaluate([problem], dict(candidate), capture_traces=True)
        score = self._score(name, batch)
        if score >= 1:
            return Feedback(score)
        said = {component: _reflection(adapter, candidate, batch, component) for component in candidate}
        if len(said) == 1:
            return Feedback(score, next(iter(said.values())))
        text = "\n".join(f"{component}: {words}" for component, words in said.items() if words)
        return Feedback(score, text, said if text else {})

    def _score(self, name: str, batch: Any) -> float:
        scores = list(getattr(batch, "scores", ()))
        if len(scores) != 1:
            raise GraderError(f"{name}.evaluate returned {len(scores)} scores for a batch of 1 problem; expected 1")
        given = within(scores[0], high=self._perfect)
        if given is None:
            raise GraderError(
                f"{name}.evaluate returned the score {quoted(scores[0], 100)}; expected a number from 0 to "
                f"{self._perfect:g}; scale the scores, or set perfect_score"
            )
        return given / self._perfect


def _reflection(adapter: Any, candidate: dict[str, str], batch: Any, component: str) -> str:
    """What the records of the adapter's reflective dataset say about one component."""
    with blaming(f"{type(adapter).__name__}.make_reflective_dataset"):
        dataset = adapter.make_reflective_dataset(dict(candidate), batch, [component])
    return "\n".join(words for record in dataset.get(component, ()) if (words := _words(record)))


def _words(record: Mapping[str, Any]) -> str:
    if record.get("Feedback"):
        return str(record["Feedback"])
    return "\n".join(f"{key}: {value}" for key, value in record.items() if key not in SHOWN_ELSEWHERE and value)


def _component(messages: Sequence[Message], candidate: Mapping[str, str]) -> str:
    """The component whose text the messages hold; of several, the one with the longest text."""
    if len(candidate) == 1:
        return next(iter(candidate))
    said = "\n".join(message["content"] for message in messages)
    found = [name for name, text in candidate.items() if text and text in said]
    return max(found, key=lambda name: len(candidate[name]), default=UNNAMED)


def _messages(asked: str | Sequence[Message]) -> list[Message]:
    if isinstance(asked, str):
        return [{"role": "user", "content": asked}]
    messages = list(asked)
    for message in messages:
        if not isinstance(message, Mapping) or not isinstance(message.get("content"), str) or "role" not in message:
            raise TaskError(
                f"the policy was asked {quoted(message, 100)}; expected a text, or messages with role and content"
            )
    return [{"role": str(message["role"]), "content": message["content"]} for message in messages]


def _checked_adapter(adapter: Any, evaluator: Any) -> MakeAdapter:
    if adapter is None:
        return lambda policy: DefaultAdapter(model=policy, evaluator=evaluator)
    if evaluator is not None:
        raise TaskError("both adapter and evaluator are given; give the evaluator to the adapter")
    if not callable(adapter):
        name = type(adapter).__name__
        raise TaskError(
            f"adapter is a {name} object, whose calls go to its own model; give a function that makes one with the policy "
            f"as its model: adapter=lambda policy: {name}(model=policy, …)"
        )
    made = adapter(_not_in_a_rollout)
    if not callable(getattr(made, "evaluate", None)) or not callable(getattr(made, "make_reflective_dataset", None)):
        raise TaskError(
            f"adapter(policy) returned {quoted(made, 100)}; expected a gepa.GEPAAdapter, with evaluate and "
            "make_reflective_dataset"
        )
    return adapter


def _not_in_a_rollout(asked: str | Sequence[Message]) -> str:
    raise TaskError("the policy was called outside of evaluate; it answers only while a problem is played")


def _plain(data: Any) -> Any:
    """A problem as data, by which it is named: the same in every process."""
    if dataclasses.is_dataclass(data) and not isinstance(data, type):
        return dataclasses.asdict(data)
    if isinstance(data, BaseModel):
        return data.model_dump()
    if type(data).__repr__ is object.__repr__:
        raise TaskError(
            f"a problem is of type {type(data).__name__}, which does not say what it holds; use dicts or dataclasses"
        )
    return data if isinstance(data, Mapping | list | tuple | str) else repr(data)
