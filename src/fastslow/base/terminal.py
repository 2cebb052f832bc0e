"""The console that everything is printed on: what others wrote can neither command the terminal nor pass for markup."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
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


@contextmanager
def without_bars() -> Iterator[None]:
    """Models are loaded and saved without the progress bars of transformers, which would stand between a run's own lines;
    those of downloads stay."""
    from huggingface_hub.utils import are_progress_bars_disabled, enable_progress_bars
    from transformers.utils import logging

    shown, downloads = logging.is_progress_bar_enabled(), not are_progress_bars_disabled()
    if shown:
        logging.disable_progress_bar()
        if downloads:
            enable_progress_bars()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()
