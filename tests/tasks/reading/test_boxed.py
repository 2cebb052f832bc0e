r"""The answer is what the last \boxed{} holds."""

import pytest

from fastslow.tasks.reading.boxed import has_box, last_boxed


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
