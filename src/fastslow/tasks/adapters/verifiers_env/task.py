"""Environments of the `verifiers` library: their problems, their rollouts and their rewards."""

from __future__ import annotations

import asyncio
import importlib
import math
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

from packaging.version import Version
from pydantic import Field, field_validator

from fastslow.base.errors import TaskError
from fastslow.base.text import one_line
from fastslow.tasks.adapters.foreign import lasting_loop, run_on
from fastslow.tasks.adapters.verifiers_env.environment import Environment, Outcome, Part, Policy, Problem, Reward
from fastslow.tasks.base import (
    SYSTEM,
    Ask,
    Asking,
    Component,
    Example,
    Feedback,
    Message,
    Options,
    QuestionTask,
    Split,
    require_package,
)
from fastslow.tasks.data import ListedTask, Row, hold_out, name_examples

# Advice that holds for every problem; what is true of one goes on lines of its own.
WRITE_CALLS = 'Write a tool call as JSON between tags, as in <tool_call>{"name": "NAME", "arguments": {}}</tool_call>.'


class VerifiersOptions(Options):
    environment: str
    """The environment, under the name `verifiers` loads it by; its package must be installed."""
    arguments: dict[str, Any] = Field(default={})
    """What the environment is loaded with: the arguments of its load_environment; of a taskset (verifiers 0.4 on), the
    fields of its configuration, e.g. {taskset: {split: train}, agent: {max_turns: 4}}."""
    limit: int | None = Field(default=None, ge=1)
    """At most this many problems of each of the environment's datasets; needed where they have no end."""
    holdout: float = Field(default=0.1, ge=0, lt=0.5)
    """Share of the problems held out for validation, and as many again for test, where the environment has none for
    evaluation. Those it has become validation and test, half each, and are not trained on. 0 holds nothing out."""
    reward_range: tuple[float, float] | None = None
    """The rewards that count as the scores 0 and 1; what lies outside counts as the nearer one. By default the sum of the
    negative weights and that of the positive ones, the worst and the best for reward functions from 0 to 1."""
    feedback: str = "feedback"
    """Where the environment leaves words of its own about a rollout: an entry of its state (of a taskset, of trace.info).
    A column of the problem is quoted too, so that `answer` reveals the reference."""

    @field_validator("reward_range")
    @classmethod
    def _ascends(cls, given: tuple[float, float] | None) -> tuple[float, float] | None:
        if given is not None and not given[0] < given[1]:
            raise ValueError("the first reward must be less than the second, e.g. [0, 1]")
        return given


class Verifiers(ListedTask):
    """Play an installed environment of Prime Intellect's `verifiers` library."""

    Options = VerifiersOptions
    options: VerifiersOptions
    named = "environment"

    def __init__(self, options: VerifiersOptions) -> None:
        super().__init__(options)
        name = options.environment
        try:
            self._environment = _load(name, options.arguments)
            parts = self._environment.problems(options.limit)
        except TaskError as error:
            raise TaskError(f"verifiers environment '{name}': {error}") from None
        except Exception as error:  # an environment is other people's code, and its data may come from anywhere
            raise TaskError(
                f"verifiers environment '{name}' cannot be loaded with arguments {options.arguments} "
                f"({type(error).__name__}: {one_line(error)})"
            ) from error
        systems = {problem.system for problems in parts.values() for problem in problems}
        # Texts that differ from problem to problem belong to the problems, and stay in their messages.
        self._system = systems.pop() if len(systems) == 1 else None
        self._examples = name_examples(_split(name, parts, options.holdout), lambda row: row["problem"].id)

    @property
    def components(self) -> Sequence[Component]:
        """The environment's system prompt, if it has one for all problems."""
        return [Component(SYSTEM, seed=self._system or QuestionTask.seed_text)]

    def shown(self, example: Example) -> object:
        """The whole row: games that begin alike differ in what is to be found."""
        return example.data["problem"].id

    async def rollout(self, example: Example, texts: Mapping[str, str], ask: Asking) -> Feedback:
        """The environment plays on its own loop, to which its clients and locks are bound, and asks on the player's."""
        problem: Problem = example.data["problem"]
        player = asyncio.get_running_loop()

        async def asked(messages: list[Message]) -> str:
            return await ask(Ask(SYSTEM, messages))

        policy = Policy(lambda messages: run_on(player, asked(messages)), self._system)
        outcome = await run_on(lasting_loop(), self._environment.play(problem, policy, self.options.feedback))
        return self._grade(problem, outcome, policy)

    def _grade(self, problem: Problem, outcome: Outcome, policy: Policy) -> Feedback:
        if not math.isfinite(outcome.reward):
            raise TaskError(f"the environment gave the reward {outcome.reward}; expected a finite number")
        weights = [reward.weight for reward in outcome.rewards if reward.weight] or [1.0]
        low, high = self.options.reward_range or (sum(min(w, 0) for w in weights), sum(max(w, 0) for w in weights))
        score = min(max((outcome.reward - low) / (high - low), 0.0), 1.0)
        words = self.options.feedback
        lines = [_fact(problem, outcome, policy, high)]
        if outcome.said:
            lines.append(outcome.said)
        if problem.values.get(words) and score < 1:
            lines.append(f"The {words} of this problem is '{one_line(problem.values[words], 200)}'.")
        if policy.unreadable:
            block = one_line(policy.unreadable[-1], 100)
            lines += [
                f"'{one_line(problem.question, 60)}' was answered with '{block}', which is no tool call.",
                WRITE_CALLS,
            ]
        if score < 1:
            if outcome.form:
                lines.append(f"Write the answer in this form: {one_line(outcome.form)}")
            said = [
                reward for reward in outcome.rewards if reward.about
            ]  # a name alone is nothing that a prompt could use
            lines += [_advice(reward) for reward in said if reward.value < 1 if reward.weight > 0]
            lines += [_advice(reward) for reward in said if reward.value > 0 if reward.weight < 0]
        return Feedback(score, "\n".join(lines))


def _fact(problem: Problem, outcome: Outcome, policy: Policy, high: float) -> str:
    """What this problem earned, from which reward function, and how it came to an end."""
    shares = ", ".join(
        f"{each.name} took {-each.value * each.weight:.3g}"
        if each.weight < 0
        else f"{each.name} gave {each.value * each.weight:.3g} of {each.weight:.3g}"
        for each in outcome.rewards
    )
    end = f" It took {policy.answers} answers and ended by '{outcome.stop}'." if policy.answers > 1 else ""
    earned = f"'{one_line(problem.question, 60)}' earned {outcome.reward:.3g} of {high:.3g}"
    return f"{earned}{f': {shares}' if shares else ''}.{end}"


def _advice(reward: Reward) -> str:
    return f"Answers are judged by {reward.name}: {reward.about}"


def _split(name: str, parts: Mapping[Part, Sequence[Problem]], share: float) -> dict[Split, list[Row]]:
    rows: dict[Part, list[Row]] = {part: [{"problem": problem} for problem in found] for part, found in parts.items()}

    def key(row: Row) -> str:
        return str(row["problem"].id)

    evaluation = rows.get("evaluation", [])
    measured = {key(row) for row in evaluation}
    trained = [row for row in rows["train"] if key(row) not in measured]
    if evaluation and trained:
        halves = hold_out({"train": evaluation, "validation": []}, 0.5, key)
        return {"train": trained, "validation": halves["train"], "test": halves.get("test", [])}
    split: dict[Split, list[Row]] = {"train": rows["train"]}
    if share:
        split = hold_out(split, share, key)
    if rows["train"] and not split["train"]:
        raise TaskError(
            f"verifiers environment '{name}' has too few problems to hold some out and still train; "
            "load more of them, or set holdout to 0"
        )
    return split


def _load(name: str, arguments: Mapping[str, Any]) -> Environment:
    """The environment, by the interface of the library it was written for."""
    require_package("verifiers", "verifiers", "verifiers", extra="verifiers")
    installed = version("verifiers")
    current = Version(installed) >= Version("0.4")
    module = name.rpartition("/")[2].partition("@")[0].replace("-", "_")
    bundled = current and find_spec(f"verifiers.v1.tasksets.{module}") is not None
    if not bundled and find_spec(module) is None:
        raise TaskError(f"there is no module '{module}' installed; install the environment's package")
    try:
        classic = not bundled and hasattr(importlib.import_module(module), "load_environment")
    except (AttributeError, ImportError) as error:
        # Where it reaches for what the library no longer has, and not for a package that is not installed.
        name_missing = isinstance(error, ImportError) and (error.name or "").partition(".")[0] == "verifiers"
        attribute_missing = isinstance(error, AttributeError) and "module 'verifiers" in str(error)
        if not current or not (name_missing or attribute_missing):
            raise
        classic = True
    if classic and current:
        raise TaskError(
            f"it is written for verifiers before 0.4, and {installed} is installed; "
            "take a newer version of the environment, or: pip install 'verifiers<0.4'"
        )
    if classic:
        from fastslow.tasks.adapters.verifiers_env.classic import ClassicEnvironment

        return ClassicEnvironment(name, arguments)
    if not current:
        raise TaskError(
            f"it has no load_environment, and tasksets need verifiers 0.4 or later, but {installed} is installed; "
            "pip install -U verifiers"
        )
    from fastslow.tasks.adapters.verifiers_env.taskset import TasksetEnvironment

    return TasksetEnvironment(name, arguments)
