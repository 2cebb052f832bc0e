"""The display of a run in a notebook: one panel that is updated in place."""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from typing import Any

from rich.console import Console, RenderableType
from rich.jupyter import JupyterRenderable

from fastslow.base.text import printable
from fastslow.runs.view import Level, LiveView

WIDTH, HEIGHT = 100, 30
"""Columns and lines of the panel."""
EVERY = 0.5
"""Seconds between two drawings: a notebook keeps up with few, and stores what it is sent."""
FORMAT = "<pre style='line-height:normal;overflow-x:auto;font-family:monospace'>{code}</pre>"


class NotebookView(LiveView):
    """The live screen as the output of a cell."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(Console(quiet=True, force_jupyter=False, width=WIDTH, height=HEIGHT), clock)
        self._live: Any = _Cell(self._screen, clock)

    def _changed(self) -> None:
        self._live.draw()

    def message(self, text: str, level: Level = "info") -> None:
        if level == "warning":  # other messages name commands, which a notebook has no use for
            print(f"warning: {printable(text)}")

    def finish(self, summary: dict[str, Any]) -> None:
        self.close()


class _Cell:
    """The output of a cell, in the place of rich's Live: that needs ipywidgets, this only IPython."""

    def __init__(self, screen: Callable[[], RenderableType], clock: Callable[[], float]) -> None:
        self.screen, self.clock = screen, clock
        self.handle: Any = None
        self.drawn = 0.0

    def start(self) -> None:
        from IPython.display import display

        self.handle = display(self._rendered(), display_id=True)
        self.drawn = self.clock()

    def draw(self) -> None:
        if self.handle is not None and self.clock() - self.drawn >= EVERY:
            self.handle.update(self._rendered())
            self.drawn = self.clock()

    def stop(self) -> None:
        if self.handle is not None:
            self.handle.update(self._rendered())
            self.handle = None

    def _rendered(self) -> JupyterRenderable:
        console = Console(file=io.StringIO(), record=True, width=WIDTH, force_jupyter=False, force_terminal=True)
        console.print(self.screen())
        return JupyterRenderable(
            console.export_html(inline_styles=True, code_format=FORMAT, clear=False), console.export_text()
        )
