"""The command line application."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from importlib import metadata
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.text import Text
from typer import Option

from fastslow.base.errors import FastSlowError, cause
from fastslow.base.text import printable
from fastslow.commands.board import board
from fastslow.commands.check import check
from fastslow.commands.compare import compare
from fastslow.commands.contexts import contexts
from fastslow.commands.divergence import divergence
from fastslow.commands.doctor import doctor
from fastslow.commands.eval import evaluate
from fastslow.commands.export import export
from fastslow.commands.internalize import internalize
from fastslow.commands.ledger import ledger
from fastslow.commands.quickstart import quickstart
from fastslow.commands.recipe import show_recipe
from fastslow.commands.rollouts import rollouts
from fastslow.commands.study import study
from fastslow.commands.suite import suite
from fastslow.commands.tasks import tasks
from fastslow.commands.train import train
from fastslow.engine.local.out_of_memory import refused

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
TRACEBACK = "FASTSLOW_TRACEBACK"
"""The environment variable that has an unexpected error shown with its traceback."""
COMMANDS: dict[str, Callable[..., None]] = {
    "train": train,
    "quickstart": quickstart,
    "check": check,
    "recipe": show_recipe,
    "tasks": tasks,
    "eval": evaluate,
    "divergence": divergence,
    "compare": compare,
    "suite": suite,
    "study": study,
    "board": board,
    "contexts": contexts,
    "rollouts": rollouts,
    "ledger": ledger,
    "internalize": internalize,
    "export": export,
    "doctor": doctor,
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
    app.command(name)(command)


def main(arguments: list[str] | None = None) -> Any:
    """Run a command. A FastSlowError becomes one message on stderr and exit code 2."""
    try:
        with refused("free some (nvidia-smi shows what uses it), or use a larger card"):
            return app(arguments)
    except FastSlowError as error:
        _complain(str(error))
    except Exception as error:
        if os.environ.get(TRACEBACK):
            raise
        _complain(f"{cause(error)} (unexpected; with {TRACEBACK}=1 in the environment the command shows where)")


def _complain(text: str) -> NoReturn:
    line = Text.assemble(("error:", "bold red"), " ", printable(text))
    Console(stderr=True).print(line, highlight=False, soft_wrap=True)
    sys.exit(2)
