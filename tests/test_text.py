from __future__ import annotations

from fastslow.text import duration, number, one_line, printable, sparkline


def test_bars_are_scaled_between_the_lowest_and_the_highest() -> None:
    assert sparkline([]) == ""
    assert sparkline([0.3, 0.3]) == "▁▁"
    assert sparkline([0.1, 0.2]) == "▁█"


def test_numbers_and_durations() -> None:
    assert duration(3725.4) == "1:02:05"
    assert [number(value) for value in (12345, 0.25, 1234.5, None)] == ["12,345", "0.250", "1,234", "-"]


def test_foreign_text_is_made_harmless_and_short() -> None:
    assert printable("a\x1b[2Jb\n\tc") == "a�[2Jb\n\tc"
    assert one_line("a\n b", 3) == "a b"
    assert one_line("a" * 10, 4) == "aaa…"
