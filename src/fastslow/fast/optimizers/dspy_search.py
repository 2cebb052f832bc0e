"""Optimizers of DSPy on our contexts: a DSPy program whose instructions are the texts, and whose every call is our rollout.

The program has a predictor for each component. It does not ask a model itself: it is played like any other context, so that
rollouts are counted, budgeted and graded by the task. Every evaluation of DSPy's is played as one batch. Its proposing model
is the recipe's reflection model.
"""

from __future__ import annotations

import contextlib
import io
import logging
import sys
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from fastslow.base.errors import RecipeError
from fastslow.base.text import one_line
from fastslow.fast.optimizers.steps import Steps
from fastslow.fast.reflection import LanguageModelReflector, ReflectionFailed
from fastslow.fast.scores import mean_score
from fastslow.records import Context, Rollout
from fastslow.tasks.base import Example

try:
    import dspy
    from dspy.lm15 import Message, Request, Response, Usage
except ImportError as error:
    raise RecipeError(
        f"fast.optimizer=mipro and fast.optimizer=dspy-gepa need the package dspy, 3.4 or newer ({one_line(error)}); "
        "install it with: pip install 'fastslow[dspy]', or choose another fast.optimizer"
    ) from error

Texts = tuple[str, ...]
"""A text for each component, as DSPy hands them back: without indentation and blank lines around them."""
SETTINGS = ("lm", "adapter", "callbacks", "trace")
"""The settings of DSPy that we change, and restore while a task plays, because it may be a DSPy program itself."""


class DSPySearch(Steps):
    """One cycle by an optimizer of DSPy, which starts from the best carried context; the others stay in the population."""

    @abstractmethod
    def compile(self, program: dspy.Module, golds: list[dspy.Example]) -> None:
        """Run DSPy's optimizer. It finds the contexts that it evaluates on all anchors."""

    def search(self) -> None:
        if self.finished():
            return
        self.broken: Exception | None = None
        self.ready: dict[tuple[Texts, str], list[Rollout]] = {}
        self.outside = {name: dspy.settings.get(name) for name in SETTINGS}
        self.known: dict[Texts, Context | None] = {}
        for member in reversed(self.carried.members):
            self.known[self.cleaned(member.context)] = member.context
        best = self.carried.best.context
        golds = [
            dspy.Example(problem=example.id, question=self._question(best, example)).with_inputs("problem", "question")
            for example in self.anchors
        ]
        with hushed(), dspy.context(lm=self.lm, trace=None, callbacks=[_Batches(self)], disable_history=True):
            try:
                self.compile(_program(self, best), golds)
            except Exception as error:
                if self.broken is None and not self.failures_in_a_row:
                    self.fail(ReflectionFailed(f"dspy gave up: {type(error).__name__}: {one_line(error, 300)}"))
        if self.broken is not None:
            raise self.broken

    # Playing -----------------------------------------------------------------------------------------------------------

    @cached_property
    def full(self) -> dict[str, dict[str, list[Rollout]]]:
        """Rollouts of the contexts that were played on all anchors, by context and problem."""
        return {}

    @cached_property
    def latest(self) -> dict[str, list[Rollout]]:
        """The rollouts of a context's last minibatch."""
        return {}

    def notice(self, rollouts: Sequence[Rollout], purpose: str) -> None:
        if purpose != "fast-minibatch":
            for rollout in rollouts:
                self.full.setdefault(rollout.context.id, {}).setdefault(rollout.example.id, []).append(rollout)

    def prepare(self, program: dspy.Module, golds: Sequence[dspy.Example]) -> None:
        """Play what DSPy is about to evaluate. Proposals that are rejected or over budget are not played and score 0."""
        texts = self.texts_of(program)
        context = self.context_of(texts)
        if context is None or self.broken is not None:
            return
        batch = [self._anchors[gold.problem] for gold in golds]
        whole = len(batch) == len(self.anchors)
        if (whole and context.id in self.members) or len(batch) * self.recipe.samples > self.left:
            return
        try:
            with dspy.context(**self.outside):
                self.progress(f"{self.spent}/{self.budget} rollouts")
                if whole:
                    self.score([context])
                    return
                (rollouts,) = self.drawn([(context, batch)])
        except Exception as error:  # DSPy would ignore it, but a failure to sample must stop the run
            self.broken = error
            return
        self.latest[context.id] = [drawn[0] for drawn in rollouts]
        if context.id in self.edits:
            self.edits[context.id].after = sum(map(mean_score, rollouts)) / len(rollouts)
        self.ready |= {(texts, example.id): drawn for example, drawn in zip(batch, rollouts, strict=True)}

    def rollouts_of(self, program: dspy.Module, problem: str) -> list[Rollout]:
        """The rollouts of a program on a problem: those of the minibatch just prepared, or else those it was scored by."""
        texts = self.texts_of(program)
        if (prepared := self.ready.pop((texts, problem), None)) is not None:
            return prepared
        context = self.known.get(texts)
        return self.full.get(context.id, {}).get(problem, []) if context else []

    @cached_property
    def _anchors(self) -> dict[str, Example]:
        return {example.id: example for example in self.anchors}

    def _question(self, context: Context, example: Example) -> str:
        attempt = self.attempt(self.full[context.id][example.id][0], self.components[0])
        return attempt.question if attempt else ""

    # Texts -------------------------------------------------------------------------------------------------------------

    def texts_of(self, program: dspy.Module) -> Texts:
        return tuple(predictor.signature.instructions for predictor in program.predictors())

    def context_of(self, texts: Texts) -> Context | None:
        """The context of a program; new ones are checked like any proposal, and None stands for a rejected one."""
        if texts not in self.known:
            best = self.carried.best.context
            old = self.cleaned(best)
            changed = {
                name: text for name, text, before in zip(self.components, texts, old, strict=True) if text != before
            }
            self.known[texts] = self.contexts.get(Context({**best.texts, **changed}).id) or self.offer_texts(
                [best], changed, before=self.members[best.id].mean
            )
        return self.known[texts]

    def cleaned(self, context: Context) -> Texts:
        return tuple(
            _signature(number, context.texts[name]).instructions for number, name in enumerate(self.components)
        )

    # Proposing ---------------------------------------------------------------------------------------------------------

    @property
    def has_model(self) -> bool:
        return isinstance(self.reflector, LanguageModelReflector)

    @cached_property
    def lm(self) -> dspy.LM:
        return dspy.LM("fastslow/proposer", engine=_Proposer(self), cache=False, num_retries=0)


def _signature(number: int, text: str) -> Any:
    # Numbers in the fields' names: dspy.GEPA tells predictors apart by their signatures.
    return dspy.Signature(f"question_{number} -> answer_{number}").with_instructions(text)


def _program(search: DSPySearch, context: Context) -> dspy.Module:
    """The program of a context. Copies of it share the search, which is why the class is made here."""

    class Program(dspy.Module):
        def __init__(self) -> None:
            super().__init__()
            for number, name in enumerate(search.components):
                setattr(self, f"component_{number}", dspy.Predict(_signature(number, context.texts[name])))

        def forward(self, problem: str, question: str) -> dspy.Prediction:
            if search.broken is not None:
                raise search.broken
            drawn = search.rollouts_of(self, problem)
            if not drawn:
                return dspy.Prediction(score=0.0, feedback={})
            feedback: dict[str, str] = {}
            predictors = dict(self.named_predictors())
            for number, name in enumerate(search.components):
                attempt = search.attempt(drawn[0], name)
                if attempt is None:
                    continue
                feedback[f"component_{number}"] = attempt.feedback
                if dspy.settings.trace is not None:
                    inputs = {f"question_{number}": attempt.question}
                    answer = dspy.Prediction(**{f"answer_{number}": attempt.answer})
                    dspy.settings.trace.append((predictors[f"component_{number}"], inputs, answer))
            return dspy.Prediction(score=mean_score(drawn), feedback=feedback)

    return Program()


class _Batches(dspy.utils.callback.BaseCallback):
    """Plays every evaluation of DSPy's before it starts."""

    def __init__(self, search: DSPySearch) -> None:
        self.search = search

    def on_evaluate_start(self, call_id: str, instance: Any, inputs: dict[str, Any]) -> None:
        self.search.prepare(inputs["program"], inputs["devset"] or instance.devset)


class _Proposer:
    """An engine of DSPy's: sends the requests of its optimizers to the reflection model, once for all processes."""

    def __init__(self, search: DSPySearch) -> None:
        self.search = search

    def __deepcopy__(self, memo: Mapping[int, Any]) -> _Proposer:
        return self

    def complete(self, request: Request) -> Response:
        reflector = self.search.reflector
        assert isinstance(reflector, LanguageModelReflector), "without a model nothing is asked"
        messages = [{"role": "system", "content": str(request.system)}] if request.system else []
        messages += [{"role": said.role, "content": said.text or ""} for said in request.messages]
        with dspy.context(**self.search.outside):
            answer = self.search.asked(lambda seed: reflector.ask(messages, seed).text)
        if answer is None:
            raise ReflectionFailed("the reflection model failed")
        said = Message.assistant(answer)
        return Response(id=None, model=request.model, message=said, finish_reason="stop", usage=Usage())


@contextlib.contextmanager
def hushed() -> Iterator[None]:
    """Hide DSPy's log and progress bars, but not what the run itself shows."""
    logger = logging.getLogger("dspy")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with contextlib.redirect_stdout(_Hushed(sys.stdout)), contextlib.redirect_stderr(_Hushed(sys.stderr)):
            yield
    finally:
        logger.setLevel(level)


class _Hushed(io.TextIOBase):
    """Discards what is written, except by rich, which looks for the file behind a proxy and finds the real one."""

    def __init__(self, file: Any) -> None:
        self.rich_proxied_file = getattr(file, "rich_proxied_file", file)

    def write(self, text: str) -> int:
        return len(text)
