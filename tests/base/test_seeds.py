"""Seeds derived from the parts of a name."""

from __future__ import annotations

import hashlib
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from fastslow.base.seeds import derive_seed

parts = st.integers(-100, 100) | st.text(max_size=5)


@settings(deadline=None, max_examples=200)
@given(st.lists(parts, max_size=4), st.lists(parts, max_size=4))
def test_derived_seeds_follow_from_their_parts(first: list[Any], second: list[Any]) -> None:
    assert 0 <= derive_seed(*first) < 2**32
    assert (derive_seed(*first) == derive_seed(*second)) == (first == second)


def test_derived_seeds_never_change() -> None:
    """Runs of yesterday must go on today."""
    digest = hashlib.sha256(b"(3, 'slow', 12)").hexdigest()
    assert derive_seed(3, "slow", 12) == int(digest[:8], 16)
