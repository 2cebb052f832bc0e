from __future__ import annotations

import pytest

from fastslow.text import duration, hidden_characters, number, one_line, printable, sparkline


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


@pytest.mark.parametrize(
    "letter",
    [
        *"\x00\x07\x1b\x7f\x85\xad\u061c\u200b\u200d\u200e\u202e\u2028\u2060\u2066\ufeff\ufe00",
        "\ud800",
        "\U000e0041",
        "\U000e0100",
    ],
)
def test_characters_that_a_reader_does_not_see_are_found(letter: str) -> None:
    assert hidden_characters(f"obey{letter} me{letter}") == letter


@pytest.mark.parametrize("text", ["", "plain\n\ttext\r\n", "é ñ ü 漢字 عربى हिन्दी 🙂 ⚠️ \\boxed{x} – “quoted”"])
def test_readable_text_has_no_hidden_characters(text: str) -> None:
    assert hidden_characters(text) == ""
