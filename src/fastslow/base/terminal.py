"""The console that everything is printed on: what others wrote can neither command the terminal nor pass for markup."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from fastslow.base.text import without_controls


class Terminal(Console):
    """A console without markup in strings, and without control characters other than its own."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(markup=False, **settings)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(without_controls(segment.text), segment.style)
