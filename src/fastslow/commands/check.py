"""`fastslow check`."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from fastslow.commands.shared import Overrides, RecipeFile, console, quiet
from fastslow.errors import FastSlowError


def check(recipe: RecipeFile, overrides: Overrides = None) -> None:
    """Say what a recipe would spend and what is missing, before anything is spent."""
    from fastslow.recipe import load_recipe

    loaded = load_recipe(recipe, overrides or [])
    quiet()
    from fastslow.estimate import check as findings

    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    missing = []
    for finding in findings(loaded):
        if finding.missing:
            missing.append(f"{finding.what}: {finding.found}")
        else:
            table.add_row(Text(finding.what), Text(finding.found))
    console.print(table)
    if missing:
        raise FastSlowError("\n".join(missing))
    console.print("nothing is missing")
