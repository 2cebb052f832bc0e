"""Writes docs/recipe.md from the recipe model; with --check, says whether it is up to date."""

import sys
from pathlib import Path

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from fastslow.recipe import Recipe, walk

TARGET = Path(__file__).parent / "recipe.md"


def reference() -> str:
    lines = [
        "# Recipe reference",
        "",
        "Every key of a recipe, generated from `src/fastslow/recipe/model.py` by `make docs`. Any of them can be changed",
        "on the command line: `fastslow train RECIPE slow.learning_rate=2e-6 fast.population=4 seed=1`. A relative path in",
        "the file is looked for beside it; one on the command line in the current folder, and if it is not there beside the",
        "file. `-` in place of a file reads standard input, whose relative paths are those of the current folder.",
        "",
        "| key | default | meaning |",
        "|---|---|---|",
    ]
    for name, field in walk(Recipe):
        if field.is_required():
            default = "required"
        elif field.default is PydanticUndefined or isinstance(field.default, BaseModel):
            default = ""
        else:
            default = f"`{field.default!r}`"
        meaning = " ".join((field.description or "").split()).replace("|", "\\|")
        lines.append(f"| `{name}` | {default} | {meaning} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    if sys.argv[1:] == ["--check"]:
        if TARGET.read_text() != reference():
            sys.exit(f"{TARGET.name} does not match the recipe model; run `make docs`")
    else:
        TARGET.write_text(reference())


if __name__ == "__main__":
    main()
