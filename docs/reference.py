"""Writes docs/recipe.md from the recipe model; with --check, says whether it is up to date."""

import sys
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from fastslow.recipe import Recipe, walk
from fastslow.recipe.parts import SLOTS, Slot

TARGET = Path(__file__).parent / "recipe.md"


def reference() -> str:
    lines = [
        "# Recipe reference",
        "",
        "Every key of a recipe, generated from `src/fastslow/recipe` by `make docs`. Any of them can be changed",
        "on the command line: `fastslow train RECIPE slow.learning_rate=2e-6 fast.population=4 seed=1`. A relative path in",
        "the file is looked for beside it; one on the command line in the current folder, and if it is not there beside the",
        "file. `-` in place of a file reads standard input, whose relative paths are those of the current folder.",
        "",
        "`slow.loss`, `fast.optimizer`, `fast.reflection` and `engine` are parts with options of their own, which follow",
        "here with the parts that have them. `fast.optimizer: opro` alone is short for `{name: opro}`; on the command line,",
        "`fast.optimizer.proposals=4` sets one option. [Extending](extending.md) shows how to add parts.",
        "",
        "| key | default | meaning |",
        "|---|---|---|",
    ]
    for name, field in walk(Recipe):
        lines.append(row(name, field))
        if name in SLOTS:
            lines += options(SLOTS[name])
    return "\n".join(lines) + "\n"


def row(name: str, field: Any, of: str = "") -> str:
    default = f"`{field.default!r}`"
    if field.is_required():
        default = "required"
    elif field.default is PydanticUndefined or isinstance(field.default, BaseModel):
        default = ""
    meaning = " ".join((field.description or "").split()).replace("|", "\\|")
    return f"| `{name}` | {default} | {of}{meaning[0].lower() + meaning[1:] if of else meaning} |"


def options(slot: Slot) -> list[str]:
    """One row for each option; parts that have the same one share it."""
    parts: dict[str, list[str]] = {}
    for part, option, field in slot.known_options():
        parts.setdefault(row(f"{slot.key}.{option}", field, "PARTS: "), []).append(f"`{part}`")
    return [line.replace("PARTS", ", ".join(names)) for line, names in parts.items()]


def main() -> None:
    if sys.argv[1:] == ["--check"]:
        if TARGET.read_text() != reference():
            sys.exit(f"{TARGET.name} does not match the recipe model; run `make docs`")
    else:
        TARGET.write_text(reference())


if __name__ == "__main__":
    main()
