"""`fastslow check`."""

from __future__ import annotations

from dataclasses import asdict

from rich.table import Table
from rich.text import Text

from fastslow.base.errors import FastSlowError
from fastslow.commands.shared import Json, Overrides, RecipeFile, console, loading, results


def check(recipe: RecipeFile, overrides: Overrides = None, as_json: Json = False) -> None:
    """Say what a recipe would spend and what is missing, before anything is spent."""
    loading("the task and the tokenizer")
    from fastslow.launch.estimate import check as findings
    from fastslow.recipe import load_recipe

    loaded = load_recipe(recipe, overrides or [])
    with results(as_json) as write:
        found = list(findings(loaded))
        missing = [f"{finding.what}: {finding.found}" for finding in found if finding.missing]
        if as_json:
            write({"recipe": recipe, "ready": not missing, "findings": [asdict(finding) for finding in found]})
        else:
            table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
            for finding in found:
                if not finding.missing:
                    table.add_row(Text(finding.what), Text(finding.found))
            console.print(table)
        if missing:
            raise FastSlowError("\n".join(missing))
        if not as_json:
            console.print("nothing is missing")
