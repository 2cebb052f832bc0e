"""Calls the functions of the CodeIO data, in a process of its own (see sandbox/process.py). Nothing a model wrote comes here.

The data is published and reviewed, so what every worker is refused and files of no size guard against accidents.
"""

import contextlib
import json
import resource
from random import Random
from typing import Any

with contextlib.suppress(ValueError, OSError):
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))


def handle(request: dict[str, Any]) -> list[list[Any]] | str:
    """Pairs of arguments and result, or why there are none."""
    names: dict[str, Any] = {"Random": Random, "__name__": "codeio_function"}
    try:
        exec(f"{request['code']}\n\n{request['generator']}", names)
        return [_call(names, f"{request['seed']}/{call}") for call in range(request["calls"])]
    except BaseException as error:  # a function may raise anything, SystemExit too
        return f"{type(error).__name__}: {error}"[:300]


def _call(names: dict[str, Any], seed: str) -> list[Any]:
    written = json.dumps(names["generate_inputs"](Random(seed)), allow_nan=False)
    # Called with what the model will be shown: tuples have become lists, keys strings.
    result = names["main_solution"](**json.loads(written))
    return [json.loads(written), json.loads(json.dumps(result, allow_nan=False))]
