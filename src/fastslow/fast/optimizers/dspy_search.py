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
from typing import Any

from fastslow.base.errors import RecipeError
from fastslow.base.text import one_line
from fastslow.fast.evaluator import Evaluator
from fastslow.fast.optimizers.steps import Steps
from fastslow.fast.pool import Pool, mean_score
from fastslow.fast.reflection import LanguageModelReflector, ReflectionFailed, Reflector
from fastslow.records import Context, Rollout
from fastslow.runs.ledger import Purpose

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


class DSPySearch(Steps, dspy.utils.callback.BaseCallback):
    """One cycle by an optimizer of DSPy, which starts from the best carried context; the others stay in the population.

    It is DSPy's callback, which plays every evaluation before that starts, and its engine, which hands requests on to the
    reflection model.
    """

    def open(self, evaluator: Evaluator, reflector: Reflector, carried: Pool) -> None:
        super().open(evaluator, reflector, carried)
        self.broken: Exception | None = None
        self.ready: dict[tuple[Texts, str], list[Rollout]] = {}
        self.latest: dict[str, list[Rollout]] = {}
        """The rollouts of a context's last minibatch."""
        self.full: dict[str, dict[str, list[Rollout]]] = {}
        """Rollouts of the contexts that were played on all anchors, by context and problem."""
        self.known: dict[Texts, Context | None] = {}
        self.has_model = isinstance(self.reflector, LanguageModelReflector)
        self.lm = dspy.LM("fastslow/proposer", engine=self, cache=False, num_retries=0)

    @abstractmethod
    def compile(self, program: dspy.Module, golds: list[dspy.Example]) -> None:
        """Run DSPy's optimizer. It finds the contexts that it evaluates on all anchors."""

    def search(self) -> None:
        if self.finished():
            return
        self.outside = {name: dspy.settings.get(name) for name in SETTINGS}
        self.known |= {self.cleaned(member.context): member.context for member in reversed(self.carried.members)}
        best, golds = self.carried.best.context, []
        for problem, drawn in self.full[best.id].items():
            attempt = self.attempt(drawn[0], self.components[0])
            gold = dspy.Example(problem=problem, question=attempt.question if attempt else "")
            golds.append(gold.with_inputs("problem", "question"))
        with hushed(), dspy.context(lm=self.lm, trace=None, callbacks=[self], disable_history=True):
            try:
                self.compile(_program(self, best), golds)
            except Exception as error:
                if self.broken is None and not self.failures_in_a_row:
                    self.fail(ReflectionFailed(f"dspy gave up: {type(error).__name__}: {one_line(error, 300)}"))
        if self.broken is not None:
            raise self.broken

    def saw(self, rollouts: Sequence[Rollout], purpose: Purpose) -> None:
        for rollout in rollouts if purpose != "fast-minibatch" else ():
            self.full.setdefault(rollout.context.id, {}).setdefault(rollout.example.id, []).append(rollout)

    def on_evaluate_start(self, call_id: str, instance: Any, inputs: dict[str, Any]) -> None:
        """Play what DSPy is about to evaluate. Proposals that are rejected or over budget are not played and score 0."""
        texts = _texts_of(inputs["program"])
        problems = [gold.problem for gold in inputs["devset"] or instance.devset]
        context, whole = self.context_of(texts), len(problems) == len(self.anchors)
        if context is None or self.broken is not None or len(problems) * self.recipe.samples > self.left:
            return
        if whole and context.id in self.members:
            return
        anchors = {example.id: example for example in self.anchors}
        try:
            with dspy.context(**self.outside):
                self.progress(f"{self.spent}/{self.budget} rollouts")
                if whole:
                    self.score([context])
                    return
                (rollouts,) = self.evaluator.minibatches([(context, [anchors[problem] for problem in problems])])
        except Exception as error:  # DSPy would ignore it, but a failure to sample must stop the run
            self.broken = error
            return
        self.latest[context.id] = [drawn[0] for drawn in rollouts]
        self.ready |= {(texts, drawn[0].example.id): drawn for drawn in rollouts}
        if context.id in self.edits:
            self.edits[context.id].after = sum(map(mean_score, rollouts)) / len(rollouts)

    def rollouts_of(self, texts: Texts, problem: str) -> list[Rollout]:
        """The rollouts of a program on a problem: those of the minibatch just prepared, or else those it was scored by."""
        context = self.known.get(texts)
        scored = self.full.get(context.id, {}).get(problem, []) if context else []
        return self.ready.pop((texts, problem), scored)

    def context_of(self, texts: Texts) -> Context | None:
        """The context of a program; new ones are checked like any proposal, and None stands for a rejected one."""
        if texts not in self.known:
            best = self.carried.best.context
            named = zip(self.components, texts, self.cleaned(best), strict=True)
            changed = {name: text for name, text, before in named if text != before}
            found = self.contexts.get(Context({**best.texts, **changed}).id)
            self.known[texts] = found or self.offer([best], changed, before=self.members[best.id].mean)
        return self.known[texts]

    def complete(self, request: Request) -> Response:
        """The reflection model's answer, once for all processes."""
        reflector = self.reflector
        assert isinstance(reflector, LanguageModelReflector), "without a model nothing is asked"
        messages = [{"role": "system", "content": str(request.system)}] if request.system else []
        messages += [{"role": said.role, "content": said.text or ""} for said in request.messages]
        with dspy.context(**self.outside):
            answer = self.asked(lambda seed: reflector.ask(messages, seed).text)
        if answer is None:
            raise ReflectionFailed("the reflection model failed")
        said = Message.assistant(answer)
        return Response(id=None, model=request.model, message=said, finish_reason="stop", usage=Usage())

    def __deepcopy__(self, memo: Mapping[int, Any]) -> DSPySearch:
        return self

    def cleaned(self, context: Context) -> Texts:
        return _texts_of(_program(self, context))


def _texts_of(program: dspy.Module) -> Texts:
    return tuple(predictor.signature.instructions for predictor in program.predictors())


def _program(search: DSPySearch, context: Context) -> dspy.Module:
    """The program of a context. Copies of it share the search, which is why the class is made here."""

    class Program(dspy.Module):
        def __init__(self) -> None:
            super().__init__()
            for number, name in enumerate(search.components):
                # Numbers in the fields' names: dspy.GEPA tells predictors apart by their signatures.
                signature = dspy.Signature(f"question_{number} -> answer_{number}")
                predictor = dspy.Predict(signature.with_instructions(context.texts[name]))
                setattr(self, f"component_{number}", predictor)

        def forward(self, problem: str, question: str) -> dspy.Prediction:
            if search.broken is not None:
                raise search.broken
            drawn = search.rollouts_of(_texts_of(self), problem)
            feedback: dict[str, str] = {}
            for number, name in enumerate(search.components if drawn else ()):
                attempt = search.attempt(drawn[0], name)
                if attempt is None:
                    continue
                feedback[f"component_{number}"] = attempt.feedback
                if dspy.settings.trace is not None:
                    inputs = {f"question_{number}": attempt.question}
                    answer = dspy.Prediction(**{f"answer_{number}": attempt.answer})
                    dspy.settings.trace.append((getattr(self, f"component_{number}"), inputs, answer))
            return dspy.Prediction(score=mean_score(drawn) if drawn else 0.0, feedback=feedback)

    return Program()


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
