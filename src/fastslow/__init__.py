"""Fast-Slow Training of language models.

from fastslow import load_recipe, train
train(load_recipe("recipe.yaml"), "runs/mine")
"""

import glob
import importlib
import os
from typing import Any

if not glob.glob("/dev/nvidia[0-9]*"):
    # On shared CPU cores, threads that spin while they wait slow torch down many times over. It must be said before
    # torch is imported, and never overrides what the user said.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("KMP_BLOCKTIME", "0")

_PUBLIC = {
    "errors": ["FastSlowError"],
    "recipe": ["Recipe", "load_recipe"],
    "tasks": ["Ask", "Example", "Feedback", "QuestionTask", "Task"],
    "tasks.adapters.trl_rewards": ["TRLTask"],
    "records": ["Context", "Rollout"],
    "runs.folder": ["RunFolder"],
    "start": ["resume", "train"],
    "evaluation.stored": ["evaluate_run"],
    "export": ["export_run"],
    "prefix": ["completion_logprobs"],
}
_HOMES = {name: home for home, names in _PUBLIC.items() for name in names}
__all__ = list(_HOMES)
# In need of an extra, so no part of `import *`.
_HOMES |= {"DSPyTask": "tasks.adapters.dspy_program", "FastSlow": "dspy_optimizer"}


def __getattr__(name: str) -> Any:
    """The public names, loaded when used: importing torch takes seconds, and the command line has quick commands too."""
    if name in _HOMES:
        return getattr(importlib.import_module(f"fastslow.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'fastslow' has no attribute '{name}'")
