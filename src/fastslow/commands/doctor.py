"""`fastslow doctor`."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from fastslow.commands.shared import console, quiet
from fastslow.errors import FastSlowError

MARKS = {"good": Text("✓", style="green"), "absent": Text("–", style="dim"), "wrong": Text("✗", style="bold red")}


def doctor() -> None:
    """Check what is installed, what a run would use and what is missing; then train a small run as a test."""
    quiet()
    from fastslow.doctor import findings, self_test

    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    wrong = []
    for finding in findings():
        table.add_row(MARKS[finding.state], Text(finding.what), Text(finding.found), Text(finding.advice, style="dim"))
        if finding.state == "wrong":
            wrong.append(f"{finding.what}: {finding.found}; {finding.advice}")
    console.print(table)
    if wrong:
        raise FastSlowError("\n".join(wrong))
    with console.status("a small run with nano"):
        tested = self_test()
    console.print(Text.assemble(MARKS[tested.state], f" {tested.what}: {tested.found}"), soft_wrap=True)
    if tested.state == "wrong":
        raise FastSlowError(f"{tested.what}: {tested.advice}")
