"""The answer is what the last <answer> tags hold, and unfinished ones hold none."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastslow.tasks.reading.tagged import has_tag, last_tagged


@pytest.mark.parametrize(
    ("text", "innermost", "whole"),
    [
        ("<answer>7</answer>", "7", "7"),
        ("<answer>\n7 </answer> done", "\n7 ", "\n7 "),
        ("<ANSWER>7</Answer>", "7", "7"),
        ("<answer>1</answer> or <answer>2</answer>", "2", "2"),
        ("<answer>1</answer></answer>", "1", "1"),
        ("<answer></answer>", "", ""),
        ("<answer>1 <answer>2</answer>", "2", "1 <answer>2"),
        ("<answer><answer>2</answer></answer>", "2", "<answer>2"),
        ("<answer>1</answer> or <answer>2", None, None),
        ("</answer><answer>", None, None),
        ("7</answer>", None, None),
        ("", None, None),
    ],
)
def test_the_last_tags_are_read(text: str, innermost: str | None, whole: str | None) -> None:
    assert last_tagged(text) == innermost
    assert last_tagged(text, innermost=False) == whole
    assert has_tag(text) == ("<answer>" in text.lower())


@given(st.text(), st.text().filter(lambda text: "answer>" not in text.lower()), st.text())
def test_what_is_written_inside_the_last_tags_is_read_back(before: str, inside: str, after: str) -> None:
    after = after.replace("<", "")
    assert last_tagged(f"{before}<answer>{inside}</answer>{after}") == inside
    assert last_tagged(f"{before}<answer>{inside}{after}") is None


@given(st.lists(st.sampled_from(["<answer>", "</answer>", "A", " "])).map("".join))
def test_any_order_of_tags_is_read_as_pairs_from_left_to_right(text: str) -> None:
    pairs = list(re.finditer("<answer>(.*?)</answer>", text))
    unfinished = not pairs or "<answer>" in text[pairs[-1].end() :]
    assert last_tagged(text, innermost=False) == (None if unfinished else pairs[-1][1])
    assert last_tagged(text) == (None if unfinished else pairs[-1][1].split("<answer>")[-1])
