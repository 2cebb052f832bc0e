"""The last fenced block is the answer, and an unfinished one is none."""

import pytest

from fastslow.tasks.reading.fenced import has_fence, last_fenced


@pytest.mark.parametrize(
    ("text", "block"),
    [
        ("```json\n1\n```", "1\n"),
        ("```\n1\n```", "1\n"),
        ("```1```", "1"),
        ("```json 1```", "json 1"),
        ("first\n```\na\n```\nthen\n```json\nb\n```\nbye", "b\n"),
        ("```python3.11 x\ny\n```", "python3.11 x\ny\n"),
        ("```json\r\n[1]\r\n```", "[1]\r\n"),
        ("``````", ""),
        ("```\n\n```", "\n"),
        ("no block", None),
        ("```json\n1", None),
        ("```\na\n```\n```json\nb", None),
        ("", None),
    ],
)
def test_the_last_block_is_read_without_its_language(text: str, block: str | None) -> None:
    assert last_fenced(text) == block
    assert has_fence(text) == ("```" in text)
