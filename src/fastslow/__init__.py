"""Fast-Slow Training of language models.

import fastslow
run = fastslow.train(model="nano", task="rulebook", slow={"steps": 3}, folder="runs/mine")
print(run.best_prompt)
"""

import glob
import importlib
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # for editors and type checkers; the names are loaded when they are used
    from fastslow.base.errors import FastSlowError as FastSlowError
    from fastslow.integrations.digest_proposer import DigestProposer as DigestProposer
    from fastslow.integrations.dspy_model import dspy_lm as dspy_lm
    from fastslow.integrations.dspy_optimizer import FastSlow as FastSlow
    from fastslow.launch.api import resume as resume
    from fastslow.launch.api import train as train
    from fastslow.launch.discovery import discover as discover
    from fastslow.launch.evaluate import evaluate_run as evaluate_run
    from fastslow.launch.export import export_run as export_run
    from fastslow.launch.harness import load_harness as load_harness
    from fastslow.launch.results import Run as Run
    from fastslow.prefix import completion_logprobs as completion_logprobs
    from fastslow.recipe import Recipe as Recipe
    from fastslow.recipe import load_recipe as load_recipe
    from fastslow.records import Context as Context
    from fastslow.records import Rollout as Rollout
    from fastslow.runs.folder import RunFolder as RunFolder
    from fastslow.tasks import Ask as Ask
    from fastslow.tasks import Component as Component
    from fastslow.tasks import Example as Example
    from fastslow.tasks import Feedback as Feedback
    from fastslow.tasks import QuestionTask as QuestionTask
    from fastslow.tasks import Task as Task
    from fastslow.tasks.adapters.dataset import RowsTask as RowsTask
    from fastslow.tasks.adapters.dspy_program import DSPyTask as DSPyTask
    from fastslow.tasks.adapters.gepa_adapter import GEPATask as GEPATask
    from fastslow.tasks.adapters.trl_rewards import TRLTask as TRLTask
    from fastslow.tasks.harness import HarnessTask as HarnessTask

if not glob.glob("/dev/nvidia[0-9]*"):
    # On shared CPU cores, threads that spin while they wait slow torch down many times over. It must be said before
    # torch is imported, and never overrides what the user said.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("KMP_BLOCKTIME", "0")

_PUBLIC = {
    "launch.api": ["resume", "train"],
    "launch.discovery": ["discover"],  # as a module, once it is loaded, `discover` is the same call
    "launch.results": ["Run"],
    "base.errors": ["FastSlowError"],
    "recipe": ["Recipe", "load_recipe"],
    "tasks": ["Ask", "Component", "Example", "Feedback", "QuestionTask", "Task"],
    "tasks.adapters.dataset": ["RowsTask"],
    "tasks.adapters.gepa_adapter": ["GEPATask"],
    "tasks.adapters.trl_rewards": ["TRLTask"],
    "tasks.harness": ["HarnessTask"],
    "integrations.digest_proposer": ["DigestProposer"],
    "records": ["Context", "Rollout"],
    "runs.folder": ["RunFolder"],
    "launch.evaluate": ["evaluate_run"],
    "launch.export": ["export_run"],
    "launch.harness": ["load_harness"],
    "prefix": ["completion_logprobs"],
}
_HOMES = {name: home for home, names in _PUBLIC.items() for name in names}
__all__ = list(_HOMES)
# In need of an extra, so no part of `import *`.
_HOMES |= {
    "DSPyTask": "tasks.adapters.dspy_program",
    "FastSlow": "integrations.dspy_optimizer",
    "dspy_lm": "integrations.dspy_model",
}


if not TYPE_CHECKING:  # a type checker would take any name for one of these

    def __getattr__(name: str) -> Any:
        """The public names, loaded when used: importing torch takes seconds, and the command line has quick commands too."""
        if name in _HOMES:
            return getattr(importlib.import_module(f"fastslow.{_HOMES[name]}"), name)
        raise AttributeError(f"module 'fastslow' has no attribute '{name}'")


def __dir__() -> list[str]:
    """The public names, for completion."""
    return sorted(_HOMES)
