"""The command line application."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from importlib import metadata
from typing import Annotated, Any, NoReturn

import typer
from typer import Option

from fastslow.base.errors import FastSlowError, NothingLearnt, cause
from fastslow.base.text import printable
from fastslow.commands import discovering, inspecting, running
from fastslow.commands.shared import console

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
TRACEBACK = "FASTSLOW_TRACEBACK"
"""The environment variable that has an unexpected error shown with its traceback."""
COMMANDS: dict[str, Callable[..., None]] = {
    "train": running.train,
    "quickstart": running.quickstart,
    "discover": discovering.discover,
    "check": inspecting.check,
    "recipe": inspecting.show_recipe,
    "tasks": inspecting.tasks,
    "eval": running.evaluate,
    "divergence": running.divergence,
    "compare": inspecting.compare,
    "suite": running.suite,
    "study": running.study,
    "board": inspecting.board,
    "tag": inspecting.tag,
    "contexts": inspecting.contexts,
    "rollouts": inspecting.rollouts,
    "ledger": inspecting.ledger,
    "internalize": running.internalize,
    "serve": running.serve,
    "export": running.export,
    "doctor": inspecting.doctor,
}


def _print_version(wanted: bool) -> None:
    if wanted:
        try:
            print(f"fastslow {metadata.version('fastslow')}")
        except metadata.PackageNotFoundError:
            print("fastslow, run from its source without being installed")
        raise typer.Exit


@app.callback()
def options(
    _version: Annotated[
        bool, Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Fast-Slow Training: evolve the prompt of a model while RL updates its weights."""


for name, command in COMMANDS.items():
    about = " ".join((command.__doc__ or "").partition("\n\n")[0].split())  # what typer would take is cut short
    app.command(name, short_help=about)(command)


def main(arguments: list[str] | None = None) -> Any:
    """Run a command. A FastSlowError becomes one message on stderr and exit code 2, or 3 if a run cannot learn."""
    try:
        return app(arguments)
    except NothingLearnt as error:
        _complain(str(error), code=3)
    except FastSlowError as error:
        _complain(str(error))
    except Exception as error:
        if os.environ.get(TRACEBACK):
            raise
        from fastslow.engine.local.out_of_memory import of_command  # imports pydantic, which --help need not wait for

        if said := of_command(error, "free some (nvidia-smi shows what uses it), or use a larger card"):
            _complain(said)
        _complain(f"{cause(error)} (unexpected; with {TRACEBACK}=1 in the environment the command shows where)")


def _complain(text: str, code: int = 2) -> NoReturn:
    from rich.text import Text

    line = Text.assemble(("error:", "bold red"), " ", printable(text))
    console(stderr=True).print(line, highlight=False, soft_wrap=True)
    sys.exit(code)
