"""Drawing tokens, against exact probabilities and against transformers' own nucleus."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare, kstest
from transformers import TopPLogitsWarper

from fastslow.prefix.sampling import draw, uniforms
from fastslow.records import Sampling

LOGITS = torch.tensor([[0.3, -1.0, 2.0, 1.1, -0.2, 0.9]])


def even(count: int) -> torch.Tensor:
    """Numbers spread evenly over [0, 1): drawn from, they give every token its exact share."""
    return (torch.arange(count, dtype=torch.float64) + 0.5) / count


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_every_token_gets_its_share(temperature: float) -> None:
    count = 100_000
    tokens, logprobs = draw(LOGITS.expand(count, -1), Sampling(temperature, 1.0, 1), even(count))
    expected = torch.softmax(LOGITS[0].double() / temperature, -1)
    shares = torch.bincount(tokens, minlength=6) / count
    torch.testing.assert_close(shares.double(), expected, atol=2e-5, rtol=0)
    torch.testing.assert_close(logprobs.double(), expected.log()[tokens], atol=1e-6, rtol=0)


# In tenths: logits so near to each other that their probabilities are equal may be sorted either way.
@given(st.lists(st.integers(-80, 80).map(lambda tenths: tenths / 10), min_size=1, max_size=9), st.floats(0.05, 0.999))
def test_the_nucleus_is_transformers_own(logits: list[float], top_p: float) -> None:
    row = torch.tensor([logits])
    cut = TopPLogitsWarper(top_p)(torch.zeros(1, 0, dtype=torch.long), row)
    inside = set(torch.isfinite(cut[0]).nonzero()[:, 0].tolist())
    probabilities = torch.softmax(cut[0].double(), -1)
    tokens, logprobs = draw(row.expand(2000, -1), Sampling(1.0, top_p, 1), even(2000))
    assert set(tokens.tolist()) <= inside
    assert all(token in tokens for token in inside if probabilities[token] > 1e-3)
    torch.testing.assert_close(logprobs, row[0].log_softmax(-1)[tokens])  # as the trainer sees it, nucleus or not


@given(st.lists(st.floats(-30, 30, width=32), min_size=2, max_size=9, unique=True))
def test_near_zero_temperature_takes_the_likeliest(logits: list[float]) -> None:
    row = torch.tensor([logits])
    best = row.sort(descending=True).values[0]
    if best[0] - best[1] > 0.1:
        tokens, _ = draw(row.expand(20, -1), Sampling(1e-3, 1.0, 1), even(20))
        assert set(tokens.tolist()) == {int(row.argmax())}


@given(st.integers(1, 1300), st.integers(0, 10**6), st.floats(0.1, 8.0))
def test_any_vocabulary_is_searched_as_one_cumulative_sum(size: int, seed: int, spread: float) -> None:
    logits = spread * torch.randn((40, size), generator=torch.Generator().manual_seed(seed))
    tokens, _ = draw(logits, Sampling(), even(40))
    sums = torch.softmax(logits, -1).double().cumsum(-1)
    expected = torch.searchsorted(sums, (even(40) * sums[:, -1])[:, None], right=True)[:, 0]
    assert tokens.tolist() == expected.tolist()


def test_a_token_without_probability_is_never_drawn() -> None:
    logits = torch.tensor([[-torch.inf, 0.0, -torch.inf, 0.0, -torch.inf]])
    numbers = torch.tensor([0.0, 0.25, 0.5, 0.75, 1 - 2**-53], dtype=torch.float64)
    tokens, _ = draw(logits.expand(5, -1), Sampling(), numbers)
    assert tokens.tolist() == [1, 1, 3, 3, 3]


def test_a_rows_numbers_depend_on_seed_and_row_alone() -> None:
    all_rows = uniforms(5, range(6), 8)
    torch.testing.assert_close(uniforms(5, [4, 1], 3), all_rows[[4, 1], :3], atol=0, rtol=0)
    assert not torch.equal(uniforms(6, range(6), 8), all_rows)
    assert len(all_rows.unique()) == 48


def test_numbers_are_uniform_within_and_across_rows_and_seeds() -> None:
    assert kstest(uniforms(0, [0], 5000)[0], "uniform").pvalue > 1e-3
    firsts = torch.cat([uniforms(seed, range(50), 1)[:, 0] for seed in range(100)])
    counts = torch.histc(firsts.float(), 20, 0, 1)
    assert chisquare(counts).pvalue > 1e-3


def test_the_last_block_is_drawn_from_to_its_last_token() -> None:
    logits = torch.full((1, 1024 + 7), -torch.inf)
    logits[0, 512], logits[0, 1030] = 0.0, 0.0
    numbers = torch.tensor([0.0, 0.499, 0.5, 1 - 2**-53], dtype=torch.float64)
    tokens, logprobs = draw(logits.expand(4, -1), Sampling(), numbers)
    assert tokens.tolist() == [512, 512, 1030, 1030]
    torch.testing.assert_close(logprobs, torch.full((4,), 0.5).log())
