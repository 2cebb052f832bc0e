"""What several commands share: their arguments, the console, results as JSON, and silencing libraries.

Commands import the rest of the package inside their functions: help and mistakes must not wait for torch.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, redirect_stdout
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

from typer import Argument, Option

from fastslow.base.errors import FastSlowError, FastSlowWarning
from fastslow.base.text import redacted
from fastslow.runs import files

if TYPE_CHECKING:
    from fastslow.base.terminal import Terminal
    from fastslow.tasks.base import Split


@cache
def console(*, stderr: bool = False) -> Terminal:
    """Where commands print. rich is imported when something is printed: `--help` does without it."""
    from fastslow.base.terminal import Terminal

    return Terminal(stderr=stderr)


RecipeFile = Annotated[Path, Argument(metavar="RECIPE", help="A recipe file; - is standard input.")]
Overrides = Annotated[
    list[str] | None, Argument(metavar="[KEY=VALUE]...", help="Settings to change: slow.learning_rate=2e-6 seed=1 …")
]
RunPath = Annotated[Path, Argument(metavar="RUN", help="A run folder.")]


def read_step(text: str) -> int | str:
    return text if text == "last" else int(text)


AtStep = Annotated[
    Any,
    Option(
        *("--step", "--checkpoint"),
        metavar="STEP",
        parser=read_step,
        help="Step of the checkpoint, or last; by default the best by training reward, the last unless the run fell.",
    ),
]
Trust = Annotated[
    bool, Option("--trust", help="Execute the code that a run folder made elsewhere names, such as its grader.")
]
Tasks = Annotated[
    list[str] | None, Option("--task", help="A task: rulebook/harbour, or {name: rulebook, book: harbour}. Repeatable.")
]
Rollouts = Annotated[int, Option("--k", min=1, max=10_000, help="Rollouts per problem.")]
SplitName = Annotated[str, Option("--split", help="validation, test or train.")]
Json = Annotated[bool, Option("--json", help="Print the results as JSON; all else goes to stderr.")]


@contextmanager
def results(as_json: bool) -> Iterator[Callable[[Any], None]]:
    """The function that prints a command's results as JSON on stdout. With `as_json`, whatever else is printed within the
    block goes to stderr."""
    stdout = sys.stdout
    with redirect_stdout(sys.stderr) if as_json else nullcontext():
        # In ASCII: NaN and infinity are null, paths are strings, credentials are hidden.
        yield lambda data: print(
            redacted(json.dumps(files.plain(data), indent=2, allow_nan=False, default=str)), file=stdout
        )


def checked_split(split: str) -> Split:
    from fastslow.tasks.base import Split

    if split not in get_args(Split):
        raise FastSlowError(f"--split {split}: expected validation, test or train")
    return split  # type: ignore[return-value]


def loading(what: str = "torch, transformers and the model") -> None:
    """Tell whoever watches a terminal that loading begins, before the imports that take long, and silence the libraries."""
    screen = console(stderr=True)
    if screen.is_terminal and os.environ.get("RANK", "0") == "0":
        screen.print(f"loading {what} …", style="dim", highlight=False, soft_wrap=True)
    quiet()


@contextmanager
def progress(what: str) -> Iterator[Callable[[str], None]]:
    """The function that says on stderr what is being done: in one place of a terminal, in lines elsewhere."""
    screen = console(stderr=True)
    if screen.is_terminal:
        with screen.status(what) as status:
            yield status.update
        return
    screen.print(what, soft_wrap=True)
    yield lambda text: screen.print(text, soft_wrap=True)


def quiet() -> None:
    """Silence the remarks of libraries; what matters is in the view and the run folder."""
    warnings.filterwarnings("ignore")
    warnings.filterwarnings("default", category=FastSlowWarning)
    logging.disable(logging.WARNING)
    os.environ.update(TRANSFORMERS_VERBOSITY="error", HF_HUB_DISABLE_PROGRESS_BARS="1")  # read when they are imported
    if loaded := sys.modules.get("transformers.utils.logging"):
        loaded.set_verbosity_error()
        loaded.disable_progress_bar()
    elif loaded := sys.modules.get("huggingface_hub.utils"):
        loaded.disable_progress_bars()
