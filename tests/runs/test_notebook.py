"""The view in a notebook: one output that is updated, however many events there are."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest
from rich.console import Console

from fastslow.recipe import Recipe
from fastslow.runs.notebook import EVERY, NotebookView
from fastslow.runs.view import PlainView, make_view


class Cell:
    """Stands in for IPython: what a cell shows, and how often it was sent something."""

    def __init__(self) -> None:
        self.outputs: list[Any] = []
        self.updates = 0

    def display(self, shown: Any, *, display_id: bool) -> Cell:
        assert display_id
        self.outputs.append(shown)
        return self

    def update(self, shown: Any) -> None:
        self.outputs[-1] = shown
        self.updates += 1

    @property
    def text(self) -> str:
        (shown,) = self.outputs
        return str(shown._repr_mimebundle_([], [])["text/plain"])


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def cell(monkeypatch: pytest.MonkeyPatch) -> Cell:
    shown = Cell()
    module = ModuleType("IPython.display")
    module.display = shown.display  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    return shown


def test_a_thousand_events_are_one_panel(cell: Cell, recipe: Recipe, capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    view = NotebookView(clock)
    view.message("see it learn: fastslow board runs/x")
    view.start("runs/x", recipe, 0)
    for step in range(1, 1001):
        clock.now += EVERY / 100
        view.cycle(0, f"generation {step}")
        view.spent(step)
        view.step(step, 1000, {"reward": 0.25})
    view.evaluation(1000, {"best context": {"mean": 0.5, "k": 1}})
    view.context("ab12", 0.53, "Think <first>.")
    assert 5 <= cell.updates <= 11
    view.message("the disk is slow", "warning")
    view.finish({"run": "runs/x"})
    assert "1000 of 1000" in cell.text
    assert "Think <first>." in cell.text
    assert "Think &lt;first&gt;." in cell.outputs[0]._repr_mimebundle_([], [])["text/html"]
    assert capsys.readouterr().out == "warning: the disk is slow\n"
    drawn = cell.updates
    view.close()
    assert cell.updates == drawn


def test_a_notebook_gets_the_panel_unless_it_wants_nothing() -> None:
    assert isinstance(make_view(Console(force_jupyter=True)), NotebookView)
    assert isinstance(make_view(Console(force_jupyter=True, quiet=True)), PlainView)
