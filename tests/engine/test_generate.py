"""Sampling, against full forward passes and exact probabilities of the same model."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import tiny
import torch
from scipy.stats import chisquare
from transformers import GenerationConfig, PreTrainedModel

from fastslow.base.errors import Diverged
from fastslow.engine.local.generate import generate
from fastslow.records import Completion, Sampling

TOKENIZER = tiny.make_tokenizer()
PAD, END = TOKENIZER.pad_token_id, TOKENIZER.eos_token_id
CHOICE = [24, 7, 14, 11, 11]
"""After this prompt the end token, and the prompt's own tokens, are all likely enough to be missed."""
LENGTHS = [7, 1, 12, 3, 3, 20, 1]


@pytest.fixture(scope="module")
def model() -> PreTrainedModel:
    """Opinionated: a fresh model is nearly uniform, and then every sampler looks right."""
    model = tiny.make_model(TOKENIZER).eval()
    with torch.no_grad():
        model.lm_head.weight *= 20
    return model


@pytest.fixture(scope="module")
def prompts() -> list[list[int]]:
    draw = torch.Generator().manual_seed(1)
    return [torch.randint(3, len(TOKENIZER), (length,), generator=draw).tolist() for length in LENGTHS]


def sample(
    model: PreTrainedModel,
    prompts: list[list[int]],
    sampling: Sampling,
    batch: int = 64,
    seed: int = 0,
    ends: tuple[int, ...] = (END,),
) -> list[Completion]:
    torch.manual_seed(seed)
    return generate(model, prompts, sampling, pad_id=PAD, eos_ids=ends, batch=batch)


@torch.no_grad()
def exact(model: PreTrainedModel, prompt: list[int], temperature: float) -> torch.Tensor:
    """The next token's probabilities, from one prompt alone, in double precision from the logits on."""
    return torch.softmax(model(torch.tensor([prompt])).logits[0, -1].double() / temperature, dim=-1)


@pytest.mark.parametrize("batch", [1, 4, 64])
@pytest.mark.parametrize("sampling", [Sampling(1.0, 1.0, 6), Sampling(0.7, 1.0, 6), Sampling(1.5, 0.8, 4)], ids=str)
def test_recorded_logprobs_are_those_of_a_full_forward_pass(
    model: PreTrainedModel, prompts: list[list[int]], sampling: Sampling, batch: int
) -> None:
    """Prompts of mixed lengths are padded on the left; each is checked on its own, without padding."""
    for prompt, completion in zip(prompts, sample(model, prompts, sampling, batch), strict=True):
        ids = [*prompt, *completion.ids]
        with torch.no_grad():
            logits = model(torch.tensor([ids])).logits[0, len(prompt) - 1 : -1]
        logprobs = torch.log_softmax(logits / sampling.temperature, dim=-1)
        expected = logprobs.gather(1, torch.tensor(completion.ids)[:, None])[:, 0]
        torch.testing.assert_close(torch.tensor(completion.logprobs), expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("ends", [(END,), (END, 7, 9)])
@pytest.mark.parametrize("batch", [9, 64])
def test_completions_stop_right_after_the_first_end_token(
    model: PreTrainedModel, prompts: list[list[int]], batch: int, ends: tuple[int, ...]
) -> None:
    completions = sample(model, prompts * 5, Sampling(2.0, 1.0, 9), batch, ends=ends)
    for completion in completions:
        assert 1 <= len(completion.ids) <= 9
        assert len(completion.logprobs) == len(completion.ids)
        assert not set(completion.ids[:-1]) & set(ends)
        assert completion.ids[-1] in ends or len(completion.ids) == 9
    lengths = {len(completion.ids) for completion in completions}
    assert 9 in lengths  # some were cut
    assert len(lengths) > 3  # and some ended by themselves


def test_every_completion_stands_at_its_prompts_place(model: PreTrainedModel) -> None:
    """Each prompt has one overwhelming continuation, so a completion tells which prompt it answers."""
    prompts = [[token] * length for token, length in [(8, 9), (9, 2), (10, 5), (11, 1), (12, 7), (13, 3), (14, 4)]]
    sharp = Sampling(1e-3, 1.0, 3)
    alone = [sample(model, [prompt], sharp)[0] for prompt in prompts]
    for batch in (2, 3, 64):
        together = sample(model, prompts, sharp, batch)
        assert [completion.ids for completion in together] == [completion.ids for completion in alone]
    assert len({completion.ids for completion in together}) > 3


def test_the_same_seed_draws_the_same_tokens(model: PreTrainedModel, prompts: list[list[int]]) -> None:
    first, second, third = (sample(model, prompts, Sampling(1.0, 1.0, 5), 4, seed) for seed in (5, 5, 6))
    assert first == second
    assert first != third


def test_no_prompts_no_completions(model: PreTrainedModel) -> None:
    assert sample(model, [], Sampling()) == []


LEAKS = {
    "nothing": {},
    "top_k": {"top_k": 1},
    "repetition_penalty": {"repetition_penalty": 1.5},
    "min_p": {"min_p": 0.9},
    "typical_p": {"typical_p": 0.1},
    "suppress_tokens": {"suppress_tokens": [4, 7]},
    "bad_words_ids": {"bad_words_ids": [[4], [24]]},
    "no_repeat_ngram_size": {"no_repeat_ngram_size": 1},
    "min_new_tokens": {"min_new_tokens": 3},
    "temperature and top_p": {"temperature": 0.1, "top_p": 0.2},
    "greedy": {"do_sample": False},
}


@pytest.mark.parametrize(("leak", "temperature"), [*((leak, 1.0) for leak in LEAKS), ("nothing", 0.7), ("top_k", 0.7)])
def test_draws_follow_the_plain_softmax_whatever_the_models_own_settings(
    model: PreTrainedModel, leak: str, temperature: float
) -> None:
    draws, prompt = 2000, CHOICE
    own = model.generation_config = GenerationConfig(pad_token_id=PAD, eos_token_id=END, **LEAKS[leak])
    completions = sample(model, [prompt] * draws, Sampling(temperature, 1.0, 1), batch=draws)
    counts = torch.bincount(torch.tensor([completion.ids[0] for completion in completions]), minlength=len(TOKENIZER))
    expected = exact(model, prompt, temperature) * draws
    assert expected.max() < 0.5 * draws  # the prompt leaves a choice
    common = expected >= 5  # the chi-square approximation needs that many; the rest counts as one kind
    observed = [*counts[common].tolist(), int(counts[~common].sum())]
    hoped = [*expected[common].tolist(), float(expected[~common].sum())]
    assert chisquare(observed, hoped).pvalue > 1e-3
    recorded = torch.tensor([completion.logprobs[0] for completion in completions])
    drawn = torch.tensor([completion.ids[0] for completion in completions])
    torch.testing.assert_close(recorded.double(), (expected / draws).log()[drawn], atol=1e-5, rtol=0)
    assert model.generation_config is own  # and they are given back


def test_a_nucleus_keeps_exactly_the_likeliest_tokens(model: PreTrainedModel) -> None:
    prompt, draws = CHOICE, 2000
    probabilities, tokens = exact(model, prompt, 1.0).sort(descending=True)
    inside = int((probabilities.cumsum(0) < 0.6).sum()) + 1
    completions = sample(model, [prompt] * draws, Sampling(1.0, 0.6, 1), batch=draws)
    drawn = torch.tensor([completion.ids[0] for completion in completions])
    assert set(drawn.tolist()) == set(tokens[:inside].tolist())
    # What is recorded is the policy's own probability, which is what the trainer compares with, not the nucleus's.
    recorded = torch.tensor([completion.logprobs[0] for completion in completions]).double()
    torch.testing.assert_close(recorded, exact(model, prompt, 1.0).log()[drawn], atol=1e-5, rtol=0)


def test_no_token_of_a_large_vocabulary_is_cut_off() -> None:
    """transformers' own default keeps the 50 likeliest; a fresh model is nearly uniform over all of these."""
    tokenizer = tiny.make_tokenizer(map(str, range(200)))
    completions = sample(tiny.make_model(tokenizer), [[3]] * 2000, Sampling(1.0, 1.0, 1), batch=2000)
    assert len({completion.ids[0] for completion in completions}) > 195


def test_the_models_own_settings_come_back_after_a_failure(model: PreTrainedModel) -> None:
    own = model.generation_config
    with pytest.raises(IndexError):
        sample(model, [[10**6]], Sampling(1.0, 1.0, 1))
    assert model.generation_config is own


def test_a_model_without_probabilities_is_an_error(prompts: list[list[int]]) -> None:
    broken = tiny.make_model(TOKENIZER).eval()
    with torch.no_grad():
        broken.lm_head.weight.fill_(torch.nan)
    with pytest.raises(Diverged, match="NaN"):
        sample(broken, prompts, Sampling(1.0, 1.0, 4))


@pytest.mark.parametrize("batch", [3, 64])
@pytest.mark.parametrize("needed", [1, 4, 10**6])
def test_it_stops_when_enough_rows_have_ended(model: PreTrainedModel, needed: int, batch: int) -> None:
    prompts, limits = [CHOICE] * 9, [12, 1, 12, 3, 12, 12, 12, 2, 12]
    counts: list[int] = []

    def enough(rows: Sequence[int]) -> bool:
        counts.append(len(prompts) - len(set(rows)))
        return counts[-1] >= needed

    torch.manual_seed(0)
    sampling = Sampling(2.0, 1.0, 12)
    parts = generate(model, prompts, sampling, PAD, [END, 7], batch=batch, limits=limits, enough=enough)
    assert sum(part.ended for part in parts) == counts[-1] >= min(needed, len(prompts))
    assert all(count < needed for count in counts[:-1])
    for prompt, part, limit in zip(prompts, parts, limits, strict=True):
        ids = part.ids
        assert part.ended == (len(ids) == limit or bool(ids and ids[-1] in (END, 7)))
        assert not {END, 7} & set(ids[:-1])
        if ids:
            logits = model(torch.tensor([[*prompt, *ids]])).logits[0, len(prompt) - 1 : -1].detach()
            expected = torch.log_softmax(logits / 2.0, dim=-1).gather(1, torch.tensor(ids)[:, None])[:, 0]
            torch.testing.assert_close(torch.tensor(part.logprobs), expected, atol=1e-5, rtol=1e-5)
