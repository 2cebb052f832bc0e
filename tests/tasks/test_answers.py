r"""The answer is what the last \boxed{}, fenced block or <answer> tags hold, and unfinished ones hold none."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastslow.tasks.reading import has_box, has_fence, has_tag, last_boxed, last_fenced, last_tagged


@pytest.mark.parametrize(
    ("text", "content"),
    [
        (r"\boxed{7}", "7"),
        (r"\boxed{\frac{1}{2}} is the {answer}", r"\frac{1}{2}"),
        (r"\boxed{1} and \boxed {2}", "2"),
        (r"\boxed{}", ""),
        (r"\boxed{1} and \boxed{\frac{1}{2}", None),
        (r"\boxed 7", None),
        ("{7}", None),
    ],
)
def test_the_last_box_is_read_with_its_inner_braces(text: str, content: str | None) -> None:
    assert last_boxed(text) == content


def test_an_unfinished_box_is_still_a_box() -> None:
    assert has_box(r"\boxed{1")
    assert not has_box(r"\boxed 1")


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
