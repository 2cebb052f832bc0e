"""Takes an answer apart, from the outside in, to say which rules about writing it breaks and what its items are."""

from __future__ import annotations

from collections.abc import Sequence

from fastslow.tasks.families.rulebook import universe as u

OUTSIDE_IN: tuple[u.Kind, ...] = ("suffix", "prefix", "frame", "separator")


def read(answer: str, styles: Sequence[u.Style]) -> tuple[list[u.Style], u.Items]:
    """The styles an answer breaks, in their order, and its items.

    Where none is broken, the items are all that is left, whatever it is: so a wrong answer breaks a style or has wrong items.
    """
    parts = answer.split()
    broken: list[u.Style] = []
    for kind in OUTSIDE_IN:
        for style in styles:
            if style.kind == kind:
                inside = _inside(style, parts, exact=not broken)
                if inside is None:
                    broken.append(style)
                else:
                    parts = inside
    return [style for style in styles if style in broken], [*filter(u.ITEMS.__contains__, parts)] if broken else parts


def demand(style: u.Style) -> str:
    """What a style asks of an answer, in its very marks."""
    before, between, after = _marks(style)
    if between:
        return f"have {between} between every two items"
    ends = [("begin", before), ("end", after)]
    return " and ".join(f"{verb} with {' '.join(marks)}" for verb, marks in ends if marks)


def _inside(style: u.Style, parts: list[str], exact: bool) -> list[str] | None:
    """What is left when a style's marks are taken off, or nothing where they are not there.

    Unless `exact`, a rule further outside is broken already, and that one answers for what stands around the marks.
    """
    before, between, after = _marks(style)
    if between:
        items = [index for index, part in enumerate(parts) if part in u.ITEMS]
        if not exact and items:
            parts = parts[items[0] : items[-1] + 1]
        kept = parts[1::2] == [between] * (len(parts) // 2) and between not in parts[::2]
        return parts[::2] if kept and (len(parts) % 2 or not parts) else None
    if before and after and not exact and before[0] in parts and after[0] in parts:
        parts = parts[parts.index(before[0]) : len(parts) - parts[::-1].index(after[0])]
    end = len(parts) - len(after)
    kept = end >= len(before) and parts[: len(before)] == before and parts[end:] == after
    return parts[len(before) : end] if kept else None


def _marks(style: u.Style) -> tuple[list[str], str, list[str]]:
    """What stands before an answer, between its items and after it."""
    written = style.apply("x y").split()
    x, y = written.index("x"), written.index("y")
    return written[:x], " ".join(written[x + 1 : y]), written[y + 1 :]
