"""A script that trains on an environment with TRL, as it is: what it gives to its trainer is the task."""

from __future__ import annotations

import inspect
import runpy
import shlex
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

from pydantic import Field

from fastslow.base.errors import TaskError
from fastslow.base.text import one_line
from fastslow.tasks.adapters.agent_rollout import AgentLimits
from fastslow.tasks.adapters.trl_environment import TRLEnvironmentTask
from fastslow.tasks.adapters.trl_rewards import TRLBounds


class TRLScriptOptions(TRLBounds, AgentLimits):
    script: str
    """The file of the script. It is run until it makes a `GRPOTrainer`, which is not made."""
    arguments: str = ""
    """What the script is given on its command line."""
    holdout: float = Field(default=0.1, ge=0, lt=0.5)
    """Share of the training rows held out for validation, where the script gives no `eval_dataset`, and as many again for
    test; 0 holds nothing out."""


class TRLScriptTask(TRLEnvironmentTask):
    """The environment, rows and reward functions of a TRL script, which is run until it makes its trainer."""

    Options = TRLScriptOptions
    options: TRLScriptOptions

    def __init__(self, options: TRLScriptOptions) -> None:
        given = trainer_arguments(options.script, options.arguments)
        if given.get("environment_factory") is None:
            raise TaskError(
                f"the GRPOTrainer of '{options.script}' has no environment_factory; if it has reward functions alone, name "
                "those in the task trl (docs/trl.md)"
            )
        super().__init__(
            given["environment_factory"],
            given.get("train_dataset"),  # type: ignore[arg-type]  # None is refused with the reason
            given.get("reward_funcs") or (),
            given.get("eval_dataset"),
            reward_weights=getattr(given.get("args"), "reward_weights", None),
            reward_processing_classes=given.get("reward_processing_classes"),
            holdout=options.holdout,
            limits=options,
            **options.bounds,
        )


class _Reached(BaseException):
    """The script makes its trainer."""

    def __init__(self, given: dict[str, Any]) -> None:
        self.given = given


def trainer_arguments(script: str, arguments: str) -> dict[str, Any]:
    """What a script gives to GRPOTrainer, by name. Its GRPOConfig is not checked: it may be for other machines."""
    from trl import GRPOConfig, GRPOTrainer

    file, signature = Path(script).expanduser(), inspect.signature(GRPOTrainer.__init__)
    if not file.is_file():
        raise TaskError(f"there is no script '{script}' (looked in {Path.cwd()}); correct its name")

    def reached(*given: Any, **named: Any) -> None:
        raise _Reached(dict(signature.bind(*given, **named).arguments))

    try:
        with (
            patch.object(GRPOTrainer, "__init__", reached),
            patch.object(GRPOConfig, "__post_init__", lambda config: None),
            patch.object(sys, "argv", [str(file), *shlex.split(arguments)]),
            patch.object(sys, "path", [str(file.resolve().parent), *sys.path]),
        ):
            runpy.run_path(str(file), run_name="__main__")
    except _Reached as trainer:
        return trainer.given
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # somebody else's code, which may call `sys.exit`
        raise TaskError(
            f"script '{script}' failed before it made a GRPOTrainer, with {type(error).__name__}: {one_line(error)}; it must "
            "run with TRL alone, with these arguments"
        ) from error
    raise TaskError(f"script '{script}' has ended and has made no GRPOTrainer; give one that trains with GRPOTrainer")
