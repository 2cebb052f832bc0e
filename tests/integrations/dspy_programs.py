"""DSPy programs that tests play, and a stand-in for a language model that plain dspy runs them with."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import dspy
from dspy.lm15 import Message, Request, Response, Usage

RULES = {"turn": "zorka means : write the list backwards.", "shift": "blimo means : put the first item last."}
SEED = "Answer the question."


class TurnAndShift(dspy.Module):
    """Two predictors, each with a word to read: the letters backwards, and then the first of those last."""

    def __init__(self) -> None:
        super().__init__()
        self.turn = dspy.Predict(dspy.Signature("question -> turned", SEED))
        self.shift = dspy.Predict(dspy.Signature("question -> answer", SEED))

    def forward(self, letters: str) -> dspy.Prediction:
        turned = self.turn(question=f"zorka : {letters}").turned
        return dspy.Prediction(turned=turned, answer=self.shift(question=f"blimo : {turned}").answer)


def expected(letters: str) -> tuple[str, str]:
    turned = letters.split()[::-1]
    return " ".join(turned), " ".join(turned[1:] + turned[:1])


def by_halves(gold: Any, pred: Any, trace: Any = None, pred_name: Any = None, pred_trace: Any = None) -> Any:
    """Half a point for each predictor; about a predictor, the rule it needed."""
    turned, answer = expected(gold.letters)
    score = ((pred.turned == turned) + (pred.answer == answer)) / 2
    return dspy.Prediction(score=score, feedback=RULES[pred_name] if pred_name else f"Half of it is for {turned}.")


def letters(count: int, seed: int = 0) -> list[dspy.Example]:
    chance = random.Random(seed)
    drawn = [chance.sample("abcdefghijklmnopqrstuvwxyz", chance.randint(3, 5)) for _ in range(count)]
    return [dspy.Example(letters=" ".join(each)).with_inputs("letters") for each in drawn]


class Bare(dspy.Adapter):
    """Instructions as the system message, the first input as the user's, the whole answer as the output: what nano reads."""

    def format(self, signature: Any, demos: Any, inputs: Any) -> list[dict[str, Any]]:
        question = str(next(iter(inputs.values())))
        return [{"role": "system", "content": signature.instructions}, {"role": "user", "content": question}]

    def parse(self, signature: Any, completion: str) -> dict[str, Any]:
        return dict.fromkeys(signature.output_fields, " ".join(completion.split()))


class Engine:
    """A language model for plain dspy: a function of the messages; remembers them."""

    def __init__(self, answer: Callable[[list[dict[str, str]]], str]) -> None:
        self.answer = answer
        self.seen: list[list[dict[str, str]]] = []

    def complete(self, request: Request) -> Response:
        system = [{"role": "system", "content": str(request.system)}] if request.system else []
        messages = [*system, *({"role": said.role, "content": said.text or ""} for said in request.messages)]
        self.seen.append(messages)
        said = Message.assistant(self.answer(messages))
        return Response(id=None, model=request.model, message=said, finish_reason="stop", usage=Usage())


def plain_lm(engine: Engine) -> dspy.LM:
    return dspy.LM("stand/in", engine=engine, cache=False)
