"""DSPy programs: their predictors are the components, and the predictors' instructions the texts that evolve."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from fastslow.base.errors import TaskError
from fastslow.base.text import one_line, quoted
from fastslow.tasks.adapters.dataset import GraderError, blaming
from fastslow.tasks.adapters.foreign import ProgramTask
from fastslow.tasks.base import SYSTEM, Ask, Feedback, Message, Split, within

try:
    import dspy
    from dspy.lm15 import Message as DSPyMessage
    from dspy.lm15 import Request, Response, UnsupportedFeatureError, Usage
    from dspy.utils.exceptions import AdapterParseError
except ImportError as error:
    raise TaskError(
        f"DSPy programs need the package dspy, 3.4 or newer ({one_line(error)}); "
        "install it with: pip install 'fastslow[dspy]'"
    ) from error

Metric = Callable[[Any, Any, Any, Any, Any], Any]
"""(gold, pred, trace, pred_name, pred_trace) to a score, or to a dspy.Prediction of score and feedback: dspy.GEPA's."""
PROGRAMS = 32
"""Copies of the program that are kept, one for each context."""
UNNAMED = "(no predictor)"
"""The component of calls that no predictor of the program makes."""
_COMPONENT = "_fastslow_component"
"""The attribute in which a predictor knows its name; copies that a program makes of its predictors keep it."""


class DSPyTask(ProgramTask):
    """A dspy program with its metric and examples.

    The policy answers every call of the program, whatever LM its predictors were given; only where the program itself says
    `with dspy.context(lm=…)` does that LM answer, and is not trained. How answers are sampled is for the recipe to say, not
    for the predictors' settings. The adapter is the one dspy is configured with; where it asks again for an answer it
    cannot read, as the default one does in JSON, that is one more turn. The model reads what it will read when dspy runs
    the finished program: the evolved texts are the predictors' instructions.

    The metric is the one dspy.GEPA takes. It is asked for the score, from 0 to 1, and about attempts that fall short of 1
    again for each predictor, with its name and its part of the trace. An answer that the adapter cannot read scores 0.

    As in dspy, a program is shared by rollouts that are under way at the same time, so its `forward` must not keep their
    state in the module; and it is copied for each context, so large indexes are better kept outside of it. Program and
    metric run in a thread of their rollout, beside those of the others, so both must be safe in threads, as for
    dspy.Evaluate.
    """

    def __init__(
        self,
        program: dspy.Module,
        metric: Metric,
        trainset: Sequence[dspy.Example],
        valset: Sequence[dspy.Example] | None = None,
        testset: Sequence[dspy.Example] = (),
    ) -> None:
        sets: dict[Split, Sequence[dspy.Example] | None] = {"train": trainset, "validation": valset, "test": testset}
        texts = _instructions(program)
        _check_metric(metric)
        for name, golds in zip(("trainset", "valset", "testset"), sets.values(), strict=True):
            for place, gold in enumerate(golds or ()):
                _check(f"{name}[{place}]", gold)
        super().__init__(texts, sets, lambda gold: gold.toDict(), "dspy.Example")
        self.program, self.metric = program, metric
        self._playable = lru_cache(maxsize=PROGRAMS)(self._make_playable)

    def _asked(self, problem: dspy.Example) -> object:
        """The inputs of the program, in one order whatever the example's own."""
        return str(dict(sorted(problem.inputs().items())))

    def program_under(self, texts: Mapping[str, str]) -> dspy.Module:
        """A copy of the program with a context's texts as its predictors' instructions."""
        program = self.program.deepcopy()
        for name, predictor in program.named_predictors():
            predictor.signature = predictor.signature.with_instructions(texts[name])
        return program

    def _make_playable(self, texts: tuple[str, ...]) -> dspy.Module:
        program = self.program_under(dict(zip(self._texts, texts, strict=True)))
        for name, predictor in program.named_predictors():
            predictor.lm = None  # the policy, which the context names
            setattr(predictor, _COMPONENT, name)
        return program

    def _attempt(self, problem: dspy.Example, texts: Mapping[str, str], ask: Callable[[Ask], str]) -> Feedback:
        program, policy = self._playable(tuple(texts[name] for name in self._texts)), _Policy(ask)
        trace: list[Any] = []
        lm = dspy.LM("fastslow/policy", engine=policy, cache=False, num_retries=0)
        with dspy.context(lm=lm, trace=trace, disable_history=True):
            try:
                prediction = program(**problem.inputs())
            except AdapterParseError as error:
                words = _what_is_unreadable(error)
                by_component = {**dict.fromkeys(self._texts, ""), policy.component: words}
                return Feedback(0.0, words, by_component=by_component)
            except Exception as error:  # a user's program can fail in any way
                raise TaskError(f"the program raised {type(error).__name__}: {one_line(error)}") from error
        return self._grade(problem, prediction, trace)

    def _grade(self, gold: dspy.Example, prediction: Any, trace: list[Any]) -> Feedback:
        score, text = self._measure(gold, prediction, None, None, None)
        own: dict[str, str] = {}
        for name in self._texts if score < 1 else ():
            if calls := [call for call in trace if getattr(call[0], _COMPONENT, None) == name]:
                own[name] = self._measure(gold, prediction, trace, name, calls)[1] or text
        said = "\n".join(f"{name}: {words}" for name, words in own.items() if words)
        return Feedback(score, text or said, own if said else {})

    def _measure(self, *arguments: Any) -> tuple[float, str]:
        """Score and feedback text, from what the metric returns."""
        name = getattr(self.metric, "__name__", type(self.metric).__name__)
        with blaming(f"metric '{name}'"):
            returned = self.metric(*arguments)
        given = returned if isinstance(returned, (dspy.Example, Mapping)) else {"score": returned}
        score = within(given.get("score"))
        if score is None:
            raise GraderError(
                f"metric '{name}' returned {quoted(returned, 200)}; expected a score from 0 to 1, alone or as the "
                "field `score` beside `feedback`"
            )
        return score, str(given.get("feedback") or "")


class _Policy:
    """An engine of dspy's: what it is asked goes out as an `Ask` of the predictor that calls."""

    def __init__(self, ask: Callable[[Ask], str]) -> None:
        self.ask = ask
        self.component = UNNAMED
        """The last that asked."""

    def complete(self, request: Request) -> Response:
        callers = dspy.settings.caller_modules or [None]
        self.component = getattr(callers[-1], _COMPONENT, UNNAMED)
        answer = self.ask(Ask(self.component, as_messages(request), complete=True))
        said = DSPyMessage.assistant(str(answer))
        return Response(id=None, model=request.model, message=said, finish_reason="stop", usage=Usage())


def as_messages(request: Request) -> list[Message]:
    spoken = [("system", DSPyMessage.user(request.system))] if request.system else []
    spoken += [(message.role, message) for message in request.messages]
    messages: list[Message] = []
    for role, message in spoken:
        if message.text is None:
            raise UnsupportedFeatureError("the policy reads text only, and the program sends it something else")
        messages.append({"role": role, "content": message.text})
    return messages


def _what_is_unreadable(error: AdapterParseError) -> str:
    fields = list(error.signature.output_fields)
    missing = [name for name in fields if name not in (error.parsed_result or {})] or fields
    adapter = dspy.settings.adapter or dspy.ChatAdapter()
    if hasattr(adapter, "user_message_output_requirements"):
        advice = adapter.user_message_output_requirements(error.signature)
    else:
        advice = f"Write {' and '.join(fields)} in the form that is asked for."
    answer = one_line(error.lm_response, 60)
    return f"The form is wrong: '{answer}' does not give {' and '.join(missing)} as asked for.\n{advice}"


def _instructions(program: Any) -> dict[str, str]:
    if not isinstance(program, dspy.Module):
        raise TaskError(f"program is {quoted(program, 100)}; expected a dspy.Module")
    texts = {name: predictor.signature.instructions for name, predictor in program.named_predictors()}
    if not texts:
        raise TaskError(
            f"program {type(program).__name__} has no predictors; expected a dspy.Module with at least one dspy.Predict "
            "among its attributes that is not frozen by _compiled"
        )
    if SYSTEM in texts:  # its text would be exported as the system prompt of every call
        raise TaskError(f"program {type(program).__name__} has a predictor named '{SYSTEM}'; give it another name")
    return texts


def _check_metric(metric: Metric) -> None:
    try:
        inspect.signature(metric).bind(*[None] * 5)
    except (TypeError, ValueError) as error:
        raise TaskError(
            f"metric {quoted(metric, 100)} cannot be called with (gold, pred, trace, pred_name, pred_trace): "
            f"{one_line(error)}; give it these five arguments, as for dspy.GEPA"
        ) from None


def _check(name: str, gold: Any) -> None:
    if not isinstance(gold, dspy.Example):
        raise TaskError(f"{name} is {quoted(gold, 100)}; expected a dspy.Example")
    try:
        gold.inputs()
    except ValueError:
        raise TaskError(
            f"{name} does not say which of its fields are inputs; call .with_inputs(…) on the examples"
        ) from None
