"""The example notebooks run from top to bottom, and are kept without their outputs."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest
from helpers import ROOT

NOTEBOOKS = sorted((ROOT / "examples").rglob("*.ipynb"))


def run_cell(source: str, names: dict[str, Any]) -> Any:
    """Execute a cell as a notebook does; the value of its last line, if that is an expression."""
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "cell", "exec"), names)
    return eval(compile(ast.Expression(last.value), "cell", "eval"), names) if last else None


def shown(value: Any) -> str:
    """The value as a notebook shows it."""
    if hasattr(value, "_repr_png_"):
        return str(value._repr_png_()[:4])
    return str(value._repr_html_()) if hasattr(value, "_repr_html_") else repr(value)


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_from_top_to_bottom(
    notebook: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    cells = [cell for cell in json.loads(notebook.read_text())["cells"] if cell["cell_type"] == "code"]
    assert all((cell["outputs"], cell["execution_count"]) == ([], None) for cell in cells)
    names: dict[str, Any] = {"__name__": "__main__"}
    values = [run_cell("".join(cell["source"]), names) for cell in cells]
    page = "\n".join(map(shown, values)) + capsys.readouterr().out
    if notebook.stem == "quickstart":
        assert "blimo means : put the first item last." in names["run"].best_prompt.splitlines()
        trained = {method: after for method, (_, after) in names["bought"].items()}
        assert {before for before, _ in names["bought"].values()} == {names["bought"]["fst"][0]}
        assert trained["fst"] > max(trained["rl"], trained["gepa"]) > names["bought"]["fst"][0]
        assert "RL only" in page
        assert values[-1] == "l m k"
