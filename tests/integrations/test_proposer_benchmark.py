"""The benchmark of `DigestProposer` inside gepa: what it measures is what gepa chose."""

import pytest

from benchmarks.proposer import share


@pytest.mark.parametrize("proposer", ["digest", "copy"])
def test_calls_buy_a_share_of_the_oracles_gain(proposer: str) -> None:
    few, many = (share("expected", proposer, 0, calls, 48, 16) for calls in (16, 200))
    assert few == 0  # the seed text has been scored, and nothing else
    assert 0.5 < many <= 1
    assert share("expected", proposer, 0, 200, 48, 16) == many


def test_lines_that_mislead_are_copied_and_not_digested() -> None:
    assert share("one-line", "copy", 300, 200, 48, 16) < share("one-line", "digest", 300, 200, 48, 16)
