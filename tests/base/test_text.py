from __future__ import annotations

import pytest

from fastslow.base.errors import RecipeError
from fastslow.base.text import (
    duration,
    has_credentials,
    hidden_characters,
    number,
    one_line,
    printable,
    quoted,
    redacted,
    sparkline,
)


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
    assert str(RecipeError("no key 'a\x1b[2J\0'\n\tor so")) == "no key 'a�[2J�'\n\tor so"


def test_what_cannot_be_shown_is_named_by_its_type() -> None:
    class Silent:
        def __str__(self) -> str:
            raise ValueError

        __repr__ = __str__

    assert one_line(Silent()) == quoted(Silent()) == "<Silent>"
    assert quoted("a\nb", 5) == "'a\\n…"
    assert quoted(10**5000) == "<int>"


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


@pytest.mark.parametrize(
    "text",
    [
        "https://me:hunter2@host:8000/v1",
        "http://hunter2@host/v1",
        "https://host/v1?key=hunter2&x=1",
        "https://host/v1?x=1&api_key=hunter2#part",
        "https://host/v1?access_token=hunter2",
        "postgres://me:hunter2@host",
        "Error: Incorrect API key provided: sk-hunter2hunter2hunter2",
        "Authorization: Bearer hunter2hunter2hunter2",
        "the key is hunter2-in-the-environment",
    ],
)
def test_credentials_are_redacted(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_API_KEY", "hunter2-in-the-environment")
    assert "hunter2" not in redacted(text)
    assert "hunter2" not in printable(text)
    assert has_credentials(text)


@pytest.mark.parametrize(
    "text", ["https://host:8000/v1?model=a", "mail me@example.org", "a token=4 key=5", "slow.learning_rate=2e-6"]
)
def test_what_is_no_credential_stays(text: str) -> None:
    assert redacted(text) == text
