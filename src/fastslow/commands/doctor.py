"""`fastslow doctor`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from fastslow.base.errors import FastSlowError
from fastslow.commands.shared import Json, console, loading, results

if TYPE_CHECKING:
    from fastslow.launch.doctor import Diagnosis

MARKS = {"good": Text("✓", style="green"), "absent": Text("–", style="dim"), "wrong": Text("✗", style="bold red")}


def doctor(as_json: Json = False) -> None:
    """Check what is installed, what a run would use and what is missing; then train a small run as a test."""
    loading("torch")
    from fastslow.launch.doctor import findings, self_test

    with results(as_json) as write:
        found = list(findings())
        if not as_json:
            console.print(_table(found))
        wrong = [f"{each.what}: {each.found}; {each.advice}" for each in found if each.state == "wrong"]
        if not wrong:
            with console.status("a small run with nano"):
                tested = self_test()
            found.append(tested)
            if not as_json:
                console.print(Text.assemble(MARKS[tested.state], f" {tested.what}: {tested.found}"), soft_wrap=True)
            wrong = [f"{tested.what}: {tested.advice}"] if tested.state == "wrong" else []
        if as_json:
            write({"ready": not wrong, "findings": [asdict(finding) for finding in found]})
        if wrong:
            raise FastSlowError("\n".join(wrong))


def _table(found: Sequence[Diagnosis]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    for finding in found:
        table.add_row(MARKS[finding.state], Text(finding.what), Text(finding.found), Text(finding.advice, style="dim"))
    return table
