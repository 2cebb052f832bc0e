"""Calling TRL's reward functions: plain and async ones and reward models, with weights, bounds and words for mistakes."""

from __future__ import annotations

import asyncio
import functools
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fastslow.base.errors import RecipeError, TaskError
from fastslow.base.text import one_line, quoted
from fastslow.tasks.adapters.dataset import GraderError, blaming
from fastslow.tasks.adapters.foreign import lasting_loop, run_on
from fastslow.tasks.base import within

RewardFunction = Callable[..., Any] | str
"""What GRPOTrainer takes: a function, a reward model, or the name of one."""
Numbers = float | Sequence[float] | None
"""One for all functions, or one each."""

NEGATIVE = " (negative rewards are welcome: scores are from 0 to 1, so they are shifted and scaled by low and high)"


class Withheld:
    """Stands for something that a task does not have. A function may accept it; reading it is an error."""

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise RecipeError(self._reason)

    def __len__(self) -> int:
        raise RecipeError(self._reason)

    def __getitem__(self, index: Any) -> Any:
        raise RecipeError(self._reason)


@dataclass(frozen=True)
class Reward:
    """A reward function with its weight and what it gives at least and at most."""

    name: str
    function: Callable[..., Any]
    is_async: bool
    weight: float
    low: float
    high: float

    @property
    def best(self) -> float:
        return self.high if self.weight >= 0 else self.low

    @property
    def size(self) -> float:
        """How much of the weighted sum lies between the function's worst and its best."""
        return abs(self.weight) * (self.high - self.low)

    def share(self, value: float) -> float:
        """How far a reward is on the way from the worst to the best, from 0 to 1."""
        return 1 - abs(self.best - value) / (self.high - self.low)

    def words(self, prompt: Any, completion: Any, columns: Mapping[str, Any]) -> str:
        """What to do better: what the function says itself, else the beginning of its docstring. A name alone says nothing
        that a prompt could use."""
        plain = self.function
        while isinstance(plain, functools.partial):
            plain = plain.func
        own = getattr(self.function, "feedback", None) or getattr(plain, "feedback", None)
        if not callable(own):
            return one_line((inspect.getdoc(plain) or "").partition("\n\n")[0])
        with blaming(f"the feedback of reward function '{self.name}'"):
            said = own(prompt=prompt, completion=completion, **columns)
        if not isinstance(said, str):
            raise GraderError(
                f"the feedback of reward function '{self.name}' returned {quoted(said, 200)}; expected a text"
            )
        return said


def make_rewards(
    functions: RewardFunction | Sequence[RewardFunction],
    weights: Sequence[float] | None,
    low: Numbers,
    high: Numbers,
    processing_classes: Any,
    given: Mapping[str, Any],
) -> list[Reward]:
    """Reward functions with their settings, all checked; `given` are the keywords that they will be called with."""
    from trl.trainer.utils import get_callable_name, is_async_callable

    listed = list(functions) if isinstance(functions, (list, tuple)) else [functions]
    if not listed:
        raise RecipeError("there are no reward functions; give at least one")
    processing = processing_classes if isinstance(processing_classes, list) else [processing_classes] * len(listed)
    if len(processing) != len(listed):
        raise RecipeError(
            f"{len(processing)} reward_processing_classes for {len(listed)} reward functions; give one each"
        )
    counts = _one_each("weights", weights, len(listed), 1.0)
    lows, highs = _one_each("low", low, len(listed), 0.0), _one_each("high", high, len(listed), 1.0)
    if not any(counts):
        raise RecipeError("every reward function has the weight 0, so no answer could be better than another")
    rewards: list[Reward] = []
    names: list[str] = []
    for function, processor, weight, least, most in zip(listed, processing, counts, lows, highs, strict=True):
        called = _as_function(function, processor, bounded=not (_missing(low) or _missing(high)))
        names.append(get_callable_name(called))
        name = f"{names[-1]}-{names.count(names[-1])}" if names.count(names[-1]) > 1 else names[-1]
        if not least < most:
            raise RecipeError(
                f"reward function '{name}' has low={least:g} and high={most:g}; "
                "set them to the least and the most that it gives"
            )
        _check_call(name, called, given)
        rewards.append(Reward(name, called, is_async_callable(called), weight, least, most))
    return rewards


def call_rewards(rewards: Sequence[Reward], given: Mapping[str, Any]) -> dict[str, Any]:
    """What each plain function returns for one completion, by name."""
    returned = {}
    for reward in rewards:
        if not reward.is_async:
            with blaming(f"reward function '{reward.name}'"):
                returned[reward.name] = reward.function(**given)
    return returned


async def await_rewards(rewards: Sequence[Reward], given: Mapping[str, Any]) -> dict[str, Any]:
    """What each async function returns for one completion, by name. They wait together, on one loop for the process, as in
    TRL's trainer: clients that a function keeps are bound to it."""

    async def call(reward: Reward) -> tuple[str, Any]:
        with blaming(f"reward function '{reward.name}'"):
            return reward.name, await reward.function(**given)

    async def call_all() -> list[tuple[str, Any]]:
        return await asyncio.gather(*(call(reward) for reward in rewards if reward.is_async))

    return dict(await run_on(lasting_loop(), call_all()))


def read_reward(reward: Reward, returned: Any) -> float | None:
    """The one number in what a function returned for one completion; as in TRL, not-a-number is the same as None."""
    try:
        (value,) = returned
        number = math.nan if value is None else float(value)
        if isinstance(value, str):
            raise TypeError
    except (TypeError, ValueError):
        raise GraderError(
            f"reward function '{reward.name}' returned {quoted(returned, 200)} for one completion; "
            "expected a list of one number or None"
        ) from None
    return None if math.isnan(number) else number


def bounded(rewards: Sequence[Reward], reward: Reward, value: float | None, clip: bool) -> float | None:
    """A reward within the bounds of its function, or refused."""
    if value is None:
        return None
    nearest = min(max(value, reward.low), reward.high) if clip else within(value, reward.low, reward.high)
    if nearest is not None:
        return nearest
    option, end, beyond = ("low", "least", math.floor) if value < reward.low else ("high", "most", math.ceil)
    bound = beyond(value) if math.isfinite(value) else value
    needed = [bound if each is reward else getattr(each, option) for each in rewards]
    penalty = ", and its high to 0 if it is a penalty" if value < 0 < reward.high else ""
    raise RecipeError(
        f"reward function '{reward.name}' gave {value:.15g} for an answer, but low={reward.low:g} and high={reward.high:g} "
        f"say what it can give{NEGATIVE if value < 0 else ''}; set {option} to the {end} that it can return for any answer, "
        f"such as {option}=[{', '.join(f'{number:.15g}' for number in needed)}]"
        f"{penalty}; or set outside=clip to count it as the bound"
    )


def _one_each(option: str, numbers: Any, count: int, default: float) -> list[float]:
    if _missing(numbers):
        return [default] * count
    given = list(numbers) if isinstance(numbers, (list, tuple)) else [numbers]
    if len(given) == 1 and option != "weights":
        given *= count
    if len(given) != count:
        raise RecipeError(f"{option}={given}: {len(given)} numbers for {count} reward functions; give one each")
    if not all(isinstance(number, (int, float)) and math.isfinite(number) for number in given):
        raise RecipeError(f"{option}={given}: expected finite numbers")
    return [float(number) for number in given]


def _missing(numbers: Any) -> bool:
    return numbers is None or numbers == ()


def _as_function(function: Any, processor: Any, *, bounded: bool) -> Callable[..., Any]:
    from torch import nn

    if not isinstance(function, (str, nn.Module)):
        if not callable(function) or isinstance(function, type):
            raise TaskError(
                f"reward function {quoted(function, 100)} is of type {type(function).__name__}; expected a function "
                "of prompts, completions and the dataset's columns, or a reward model"
            )
        return function
    from fastslow.tasks.adapters.trl_reward_model import RewardModel

    if not bounded:
        shown = function if isinstance(function, str) else type(function).__name__
        raise RecipeError(
            f"reward model '{shown}' may give any number; set low and high to the least and the most that should count, and "
            "outside=clip"
        )
    return RewardModel(function, processor)


def _check_call(name: str, function: Callable[..., Any], given: Mapping[str, Any]) -> None:
    """Refuse a function that cannot be called with these keywords, before a model is loaded."""
    try:
        inspect.signature(function).bind(**given)
    except ValueError:  # some functions of C libraries do not say what they take
        return
    except TypeError as error:
        raise TaskError(
            f"reward function '{name}' cannot be called: {error}; it is given {', '.join(given)}, so name columns of the "
            "dataset and take the rest as **kwargs"
        ) from None
