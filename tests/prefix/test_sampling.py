"""Sampling with shared prefixes, against full forward passes, exact probabilities and transformers' own `generate`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from architectures import CONFIGS, VOCABULARY, build
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2_contingency
from transformers import PreTrainedModel

from fastslow.base.errors import ModelError
from fastslow.engine.local.generate import generate
from fastslow.prefix import level_attention
from fastslow.prefix import sampling as sampling_module
from fastslow.prefix.sampling import SharedSampler
from fastslow.records import Completion, Sampling

END = 2
PLAIN = Sampling(1.0, 1.0, 6)


@pytest.fixture(scope="module")
def model() -> PreTrainedModel:
    return build(CONFIGS["llama"]())


def sample(
    model: PreTrainedModel,
    prompts: Sequence[Sequence[int]],
    sampling: Sampling = PLAIN,
    batch: int = 64,
    seed: int = 0,
    ends: Sequence[int] = (END,),
    scores: int | None = None,
    fused: bool = False,
) -> list[Completion]:
    """`scores` limits a pass over prompts; `fused` computes them as a GPU does."""
    sampler = SharedSampler(model, ends, sampling)
    sampler.fused = fused
    if scores:
        sampler.max_scores = scores
        sampler.max_tokens, sampler.max_keys = scores // 100 + 1, scores // 10 + 1
    return sampler.sample(prompts, seed, batch)


@torch.no_grad()
def check(
    model: PreTrainedModel, prompts: Sequence[Sequence[int]], completions: list[Completion], sampling: Sampling = PLAIN
) -> None:
    """Each row on its own: a whole pass over prompt and completion, without padding, cache or sharing."""
    for prompt, completion in zip(prompts, completions, strict=True):
        logits = model(torch.tensor([[*prompt, *completion.ids]])).logits[0, len(prompt) - 1 : -1]
        logprobs = torch.log_softmax(logits / sampling.temperature, dim=-1)
        expected = logprobs.gather(1, torch.tensor(completion.ids)[:, None])[:, 0]
        torch.testing.assert_close(torch.tensor(completion.logprobs), expected, atol=1e-5, rtol=1e-5)


def random_prompts(contexts: Sequence[int], problems: Sequence[int], each: int = 2) -> list[list[int]]:
    """Contexts and problems of these lengths, every problem under every context."""
    draw = torch.Generator().manual_seed(1)

    def text(length: int) -> list[int]:
        return torch.randint(3, VOCABULARY, (length,), generator=draw).tolist()

    texts = [text(length) for length in contexts]
    return [[5, *context, *text] for text in map(text, problems) for context in texts for _ in range(each)]


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("sampling", [PLAIN, Sampling(0.7, 0.9, 12)], ids=str)
@pytest.mark.parametrize("fused", [False, True])
def test_recorded_logprobs_are_those_of_a_full_forward_pass(name: str, sampling: Sampling, fused: bool) -> None:
    model = build(CONFIGS[name]())
    own = model.config._attn_implementation
    prompts = random_prompts([30, 17, 4], [3, 9, 1])
    check(model, prompts, sample(model, prompts, sampling, ends=(), fused=fused), sampling)
    assert model.config._attn_implementation == own


@pytest.mark.parametrize("name", ["llama", "gemma3, window 5"])
@settings(max_examples=25, deadline=None)
@given(
    contexts=st.lists(st.lists(st.integers(3, 5), max_size=9), min_size=1, max_size=3),
    problems=st.lists(st.lists(st.integers(3, 5), max_size=5), min_size=1, max_size=3),
    counts=st.lists(st.integers(0, 3), min_size=9, max_size=9),
    limit=st.integers(1, 7),
    batch=st.integers(1, 30),
    ends=st.sets(st.integers(0, VOCABULARY - 1), max_size=8),
    block=st.integers(1, 8),
    scores=st.sampled_from([1, 500, 2**22]),
    fused=st.booleans(),
)
def test_any_tree_of_prompts(
    name: str,
    contexts: list[list[int]],
    problems: list[list[int]],
    counts: list[int],
    limit: int,
    batch: int,
    ends: set[int],
    block: int,
    scores: int,
    fused: bool,
) -> None:
    """Contexts with a common beginning, empty contexts and problems, prompts that begin others, any number of rollouts."""
    model = MODELS.setdefault(name, build(CONFIGS[name]()))
    pairs = [(context, problem) for context in contexts for problem in problems]
    prompts = [[4, *context, *problem] for (context, problem), n in zip(pairs, counts, strict=False) for _ in range(n)]
    sampling = Sampling(1.3, 1.0, limit)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sampling_module, "BLOCK", block)
        completions = sample(model, prompts, sampling, batch, ends=tuple(ends), scores=scores, fused=fused)
    check(model, prompts, completions, sampling)
    for completion in completions:
        assert not set(completion.ids[:-1]) & ends
        assert len(completion.ids) == limit or completion.ids[-1] in ends


MODELS: dict[str, PreTrainedModel] = {}


@pytest.fixture
def as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps of one shape, which a GPU records and replays, looked at now and then; here they are made anew each time."""
    made = SharedSampler.__init__

    def init(self: SharedSampler, *arguments: Any) -> None:
        made(self, *arguments)
        self.graphs, self.check_every, self.compact_below = True, 3, 0.5

    monkeypatch.setattr(SharedSampler, "__init__", init)
    monkeypatch.setattr(sampling_module._Decoding, "_record", lambda decoding: decoding._step)
    monkeypatch.setattr(sampling_module, "BLOCK", 4)


@pytest.mark.parametrize("name", ["llama", "qwen2", "gemma2, window 5", "gemma3, window 5"])
@pytest.mark.parametrize("ends", [(), (END, 7, 9)])
def test_steps_of_one_shape_give_the_same(name: str, ends: tuple[int, ...], as_on_a_gpu: None) -> None:
    model, sampling = build(CONFIGS[name]()), Sampling(8.0, 1.0, 13)
    prompts = random_prompts([30, 17, 4], [3, 9, 1], 4)
    completions = sample(model, prompts, sampling, ends=ends)
    check(model, prompts, completions, sampling)
    lengths = {len(completion.ids) for completion in completions}
    assert lengths == {13} if not ends else len(lengths) > 3


def test_keys_and_values_in_bf16_cost_no_more_than_bf16_does(
    model: PreTrainedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a GPU keeps them; the product that it sums in fp32 is here one of fp32 numbers."""
    monkeypatch.setattr(level_attention, "_stored_dtype", lambda key: torch.bfloat16)
    monkeypatch.setattr(level_attention, "_product", lambda one, other: torch.bmm(one.float(), other.float()))
    prompts = random_prompts([30, 17, 4], [3, 9, 1])
    off = []
    for prompt, completion in zip(prompts, sample(model, prompts, ends=()), strict=True):
        with torch.no_grad():
            logits = model(torch.tensor([[*prompt, *completion.ids]])).logits[0, len(prompt) - 1 : -1]
        exact = logits.log_softmax(-1).gather(1, torch.tensor(completion.ids)[:, None])[:, 0]
        off.append((exact - torch.tensor(completion.logprobs)).abs())
    assert 1e-4 < torch.cat(off).mean() < 0.05


def test_prompts_without_anything_in_common(model: PreTrainedModel) -> None:
    prompts = [[token, *[token + 1] * token] for token in range(3, 12)]
    check(model, prompts, sample(model, prompts))


def test_many_rollouts_of_one_prompt_and_one_of_others(model: PreTrainedModel) -> None:
    """Groups as uneven as they can be."""
    prompts = [*[[5, 6, 7, 8]] * 20, [5, 6, 9], [10], [5, 6, 7, 11, 12, 13]]
    check(model, prompts, sample(model, prompts, Sampling(1.0, 1.0, 9)), PLAIN)


def test_completions_stop_right_after_the_first_end_token(model: PreTrainedModel) -> None:
    ends = (END, 7, 9)
    completions = sample(model, random_prompts([9, 5], [3, 4], 10), Sampling(2.0, 1.0, 9), ends=ends)
    for completion in completions:
        assert len(completion.logprobs) == len(completion.ids)
        assert not set(completion.ids[:-1]) & set(ends)
        assert completion.ids[-1] in ends or len(completion.ids) == 9
    lengths = {len(completion.ids) for completion in completions}
    assert 1 in lengths
    assert 9 in lengths
    assert len(lengths) > 4


def test_every_token_an_end_token(model: PreTrainedModel) -> None:
    completions = sample(model, random_prompts([9], [3, 4]), Sampling(1.0, 1.0, 9), ends=range(VOCABULARY))
    assert [len(completion.ids) for completion in completions] == [1] * 4


@pytest.mark.parametrize("top_p", [1.0, 0.8])
def test_what_a_row_draws_depends_on_no_other_row(model: PreTrainedModel, top_p: float) -> None:
    prompts, sampling = random_prompts([12, 9], [3, 4, 6], 3), Sampling(1.0, top_p, 8)
    together = sample(model, prompts, sampling, seed=4)
    for batch in (1, 3, 7):
        assert [c.ids for c in sample(model, prompts, sampling, batch, seed=4)] == [c.ids for c in together]
    assert [c.ids for c in sample(model, prompts[:5], sampling, seed=4)] == [c.ids for c in together[:5]]


def test_the_same_seed_draws_the_same_tokens(model: PreTrainedModel) -> None:
    prompts = random_prompts([12, 9], [3, 4])
    first, second, third = (sample(model, prompts, seed=seed) for seed in (5, 5, 6))
    assert first == second
    assert first != third
    assert len({completion.ids for completion in sample(model, prompts[:1] * 20)}) > 10


@pytest.mark.parametrize("name", CONFIGS)
def test_near_zero_temperature_writes_what_generate_writes_without_sampling(name: str) -> None:
    model, prompts = build(CONFIGS[name]()), random_prompts([30, 17], [3, 9], 1)
    for prompt, completion in zip(prompts, sample(model, prompts, Sampling(1e-5, 1.0, 8), ends=()), strict=True):
        greedy = model.generate(
            torch.tensor([prompt]), do_sample=False, max_new_tokens=8, eos_token_id=None, pad_token_id=0
        )
        assert list(completion.ids) == greedy[0, len(prompt) :].tolist()


@pytest.mark.parametrize(("temperature", "top_p"), [(1.0, 1.0), (0.7, 1.0), (1.2, 0.8)])
def test_the_draws_of_generate_and_these_come_from_one_distribution(
    model: PreTrainedModel, temperature: float, top_p: float
) -> None:
    """Two tokens each, so that the second depends on the first; a chi-square test that both samples have one distribution."""
    prompts, sampling, draws = [[5, 6, 7, 8, 9]], Sampling(temperature, top_p, 2), 3000
    ours = sample(model, prompts * draws, sampling, batch=draws)
    torch.manual_seed(0)
    theirs = generate(model, prompts * draws, sampling, pad_id=0, eos_ids=[END], batch=draws)
    counts: dict[Sequence[int], list[int]] = {}
    for place, completions in enumerate((ours, theirs)):
        for completion in completions:
            counts.setdefault(completion.ids, [0, 0])[place] += 1
    common = [pair for pair in counts.values() if sum(pair) >= 20]
    rare = [sum(values) for values in zip(*(pair for pair in counts.values() if sum(pair) < 20), strict=True)]
    table = torch.tensor([*common, *([rare] if rare else [])])
    assert len(table) > 8
    assert chi2_contingency(table).pvalue > 1e-3


def test_each_completion_is_reported_once_and_short_ones_before_the_others(model: PreTrainedModel) -> None:
    reported: list[tuple[int, Completion]] = []
    prompts = random_prompts([12, 9], [3, 4, 6], 6)
    sampler = SharedSampler(model, (END, 7, 9), Sampling(2.0, 1.0, 12))
    completions = sampler.sample(prompts, 0, 64, ready=lambda number, completion: reported.append((number, completion)))
    assert dict(reported) == dict(enumerate(completions))
    assert len(reported) == len(prompts)
    lengths = [len(completion.ids) for _, completion in reported]
    assert max(lengths[:5]) < max(lengths) == lengths[-1]


def test_a_context_is_read_once(model: PreTrainedModel) -> None:
    """Counted in tokens that go through the embedding: 2 contexts, 3 problems under each, then a token a row and step."""
    read: list[int] = []
    hook = model.get_input_embeddings().register_forward_hook(lambda _, inputs, __: read.append(inputs[0].numel()))
    prompts = random_prompts([40, 40], [5, 5, 5], 4)
    sample(model, prompts, Sampling(1.0, 1.0, 1), ends=())
    hook.remove()
    assert sum(read) <= 2 * 41 + 6 * 4 + 24 < sum(map(len, prompts)) / 7


def test_a_prompt_that_is_long_by_itself_is_still_read_in_large_pieces(model: PreTrainedModel) -> None:
    """Rows are read one by one where their keys are many, each in as few passes as its tokens need."""
    sampler = SharedSampler(model, (END,), Sampling(1.0, 1.0, 1))
    sampler.fused, sampler.max_keys, sampler.max_tokens = True, 4, 16
    read: list[int] = []
    hook = model.get_input_embeddings().register_forward_hook(lambda _, inputs, __: read.append(inputs[0].numel()))
    sampler.sample([[5] * 41], 0, 4)
    hook.remove()
    assert read == [16, 16, 8, 1]


def test_rows_that_have_ended_are_removed(model: PreTrainedModel) -> None:
    rows: list[int] = []
    hook = model.get_input_embeddings().register_forward_hook(lambda _, inputs, __: rows.append(len(inputs[0])))
    completions = sample(model, [[5, 6, 7]] * 64, Sampling(2.0, 1.0, 30), ends=(END, 7, 9))
    hook.remove()
    drawn = sum(len(completion.ids) for completion in completions)
    assert sum(rows[1:]) < 1.4 * drawn < 0.5 * 64 * 30


def test_a_model_that_gives_nothing_but_nan_is_an_error() -> None:
    broken = build(CONFIGS["llama"]())
    with torch.no_grad():
        broken.get_output_embeddings().weight.fill_(torch.nan)
    with pytest.raises(ModelError, match="NaN"):
        sample(broken, [[5, 6, 7]])


def test_the_models_own_attention_comes_back_after_a_failure(model: PreTrainedModel) -> None:
    with pytest.raises(IndexError):
        sample(model, [[10**6]])
    assert model.config._attn_implementation == "eager"


def test_no_prompts_no_completions(model: PreTrainedModel) -> None:
    assert sample(model, []) == []


LONG = Sampling(2.0, 1.0, 40)
ENDS = (END, 7, 9)


def check_parts(
    prompts: list[list[int]], whole: list[Completion], parts: list[Completion], limits: Sequence[int]
) -> None:
    """Parts against what the same rows draw when nothing stops them."""
    for completion, part, limit in zip(whole, parts, limits, strict=True):
        length = len(part.ids)
        assert part.ids == completion.ids[:length]
        assert part.logprobs == pytest.approx(completion.logprobs[:length], abs=1e-5)
        assert length <= limit
        assert part.ended == (length == min(len(completion.ids), limit))


@pytest.mark.parametrize("batch", [5, 64])
@pytest.mark.parametrize("needed", [1, 7, 20, 10**6])
def test_it_stops_when_enough_rows_have_ended(model: PreTrainedModel, needed: int, batch: int) -> None:
    prompts = random_prompts([30, 17], [3, 9, 1], 4)
    whole = sample(model, prompts, LONG, ends=ENDS)
    asked: list[int] = []
    reported: dict[int, Completion] = {}

    def enough(rows: Sequence[int]) -> bool:
        asked.append(len(prompts) - len(set(rows)))
        return asked[-1] >= needed

    sampler = SharedSampler(model, ENDS, LONG)
    limits = [LONG.max_tokens] * len(prompts)
    parts = sampler.sample(
        prompts, 0, batch, limits=limits, enough=enough, ready=lambda row, drawn: reported.update({row: drawn})
    )
    check_parts(prompts, whole, parts, limits)
    ended = [row for row, part in enumerate(parts) if part.ended]
    assert reported == {row: parts[row] for row in ended}
    assert asked == sorted(set(asked))  # asked when more rows have ended, and not after it said yes
    assert len(ended) == asked[-1] >= min(needed, len(prompts))
    assert all(count < needed for count in asked[:-1])
    if batch == 5 and needed == 1:  # the others have not begun
        assert [len(part.ids) for part in parts[5:]] == [0] * (len(prompts) - 5)


def test_every_row_has_a_limit_of_its_own(model: PreTrainedModel, as_on_a_gpu: None) -> None:
    prompts = random_prompts([30, 17], [3, 9, 1], 4)
    limits = [1 + 5 * row % 13 for row in range(len(prompts))]
    whole = sample(model, prompts, LONG, ends=ENDS)
    for needed in (6, 10**6):
        sampler = SharedSampler(model, ENDS, LONG)
        parts = sampler.sample(prompts, 0, 64, limits=limits, enough=lambda rows: len(prompts) - len(rows) >= needed)  # noqa: B023
        check_parts(prompts, whole, parts, limits)
        assert sum(part.ended for part in parts) >= min(needed, len(prompts))
        assert all(part.ended for part in parts) == (needed > len(prompts))


@pytest.mark.parametrize(("read", "start", "stops"), [(0, 0, False), (10, 0, True), (10, 45, False), (10**6, 10, True)])
def test_it_stops_only_if_that_costs_less_than_the_rest(
    read: int, start: int, stops: bool, model: PreTrainedModel
) -> None:
    prompts = random_prompts([30, 17], [3, 9, 1], 4)
    limits = [20 + row for row in range(len(prompts))]
    whole = sample(model, prompts, LONG, ends=ENDS)
    sampler = SharedSampler(model, ENDS, LONG)
    sampler.read, sampler.start = read, start
    parts = sampler.sample(prompts, 0, 64, limits=limits, enough=lambda rows: len(rows) <= len(prompts) - 2)
    check_parts(prompts, whole, parts, limits)
    paused = [(len(part.ids), limit) for part, limit in zip(parts, limits, strict=True) if not part.ended]
    assert bool(paused) == stops
    if paused:
        assert sum(drawn for drawn, _ in paused) <= read * max(limit - drawn - start for drawn, limit in paused)


@pytest.mark.parametrize("room", [1, 40, 150, 400])
def test_rows_without_room_are_continued_later(
    room: int, model: PreTrainedModel, as_on_a_gpu: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing but the order changes: rows draw what they draw with room for all, and no more than that is stored."""
    monkeypatch.setattr(sampling_module, "BLOCK", 4)
    prompts = random_prompts([30, 17], [3, 9, 1], 4)
    sampler = SharedSampler(model, ENDS, LONG)
    whole = sampler.sample(prompts, 0, 64)
    stored: list[int] = []
    widen = level_attention.Store.widen
    monkeypatch.setattr(
        level_attention.Store,
        "widen",
        lambda store, columns: (stored.append(columns * store.rows if store.rows > 1 else 0), widen(store, columns)),
    )
    reported: dict[int, Completion] = {}
    found = sampler.sample(prompts, 0, 64, ready=lambda row, drawn: reported.update({row: drawn}), room=room)
    assert [each.ids for each in found] == [each.ids for each in whole]
    check(model, prompts, found, LONG)
    assert reported == dict(enumerate(found))
    assert max(stored) <= room
    limits = [20 + row for row in range(len(prompts))]
    for needed in (5, 20):
        parts = sampler.sample(
            prompts,
            0,
            16,
            limits=limits,
            enough=lambda rows, needed=needed: len(prompts) - len(rows) >= needed,
            room=room,
        )
        check_parts(prompts, whole, parts, limits)
        assert needed <= sum(part.ended for part in parts) < len(prompts)


def test_room_for_at_most_twice_what_is_drawn_is_taken(model: PreTrainedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling_module, "BLOCK", 4)
    taken, widen = [(0, 4)], level_attention.Store.widen

    def widened(store: level_attention.Store, columns: int) -> None:
        taken.append((store.columns, columns))
        widen(store, columns)

    monkeypatch.setattr(level_attention.Store, "widen", widened)
    sample(model, random_prompts([9], [3], 4), Sampling(1.0, 1.0, 30), ends=())
    assert [before for before, _ in taken[1:]] == [after for _, after in taken[:-1]]
    assert all(after <= 2 * before for before, after in taken[1:])
    assert taken[-1][1] == 30


def test_a_stopped_row_is_continued_after_its_own_tokens(model: PreTrainedModel) -> None:
    """Prompts that end with different tokens of their own are one tree with the others."""
    prompts = random_prompts([30, 17], [3, 9, 1], 4)
    sampler = SharedSampler(model, ENDS, LONG)
    first = sampler.sample(prompts, 0, 64, enough=lambda rows: len(rows) <= 12)
    begun = [[*prompt, *part.ids] for prompt, part in zip(prompts, first, strict=True) if not part.ended]
    left = [40 - len(part.ids) for part in first if not part.ended]
    assert 0 < min(left) <= max(left) < 40
    second = sampler.sample(begun, 1, 64, limits=left, enough=lambda rows: False)
    assert all(part.ended and len(part.ids) <= limit for part, limit in zip(second, left, strict=True))
    check(model, begun, second, LONG)


def test_rows_are_removed_when_that_saves_a_tile(
    model: PreTrainedModel, as_on_a_gpu: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 24 rows in tiles of 4 more than half are still active; what is drawn stays the same."""
    prompts = random_prompts([30, 17], [3, 9, 1], 4)
    drawn, rows = [], []
    for tile in (1000, 4):
        monkeypatch.setattr(sampling_module, "TILE", tile)
        read: list[int] = []
        hook = model.get_input_embeddings().register_forward_hook(
            lambda _, inputs, __, read=read: read.append(len(inputs[0])) if inputs[0].shape[1] == 1 else None
        )
        drawn.append(sample(model, prompts, LONG, ends=ENDS))
        hook.remove()
        rows.append(sum(read))
    assert [each.ids for each in drawn[0]] == [each.ids for each in drawn[1]]
    assert rows[1] < rows[0]


@pytest.mark.parametrize("read", [0, 10**6])
def test_later_batches_are_not_begun_when_enough_rows_have_reached_their_limit(
    read: int, model: PreTrainedModel, as_on_a_gpu: None
) -> None:
    """Whether it may stop earlier or not."""
    prompts = random_prompts([30, 17], [3, 9, 1], 4)
    sampler = SharedSampler(model, (), Sampling(1.0, 1.0, 9))
    sampler.read = read
    parts = sampler.sample(prompts, 0, 8, limits=[9] * len(prompts), enough=lambda rows: len(rows) <= len(prompts) - 8)
    assert [len(part.ids) for part in parts] == [9] * 8 + [0] * (len(prompts) - 8)
    assert [part.ended for part in parts] == [True] * 8 + [False] * (len(prompts) - 8)
