"""Looking for the best solution of one problem: an archive of candidates, the text and the weights of the model that proposes
them.

`fastslow.discover(problem)` looks; `from fastslow.discover import run` is for problem files.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any

from fastslow.discover.programs import Failed, run

__all__ = ["Failed", "run"]


class _Room(ModuleType):
    def __call__(self, *arguments: Any, **settings: Any) -> Any:
        return import_module("fastslow.launch.discovery").discover(*arguments, **settings)


sys.modules[__name__].__class__ = _Room
