"""The kernels of a decoding step against the ordinary path of `Pass.attend`; without a GPU in Triton's interpreter."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

GPU = torch.cuda.is_available()
if not find_spec("triton"):
    pytest.skip("needs Triton", allow_module_level=True)
if not GPU and not os.environ.get("TRITON_INTERPRET"):
    if "triton" in sys.modules:
        pytest.skip("Triton was imported without its interpreter; run this file alone", allow_module_level=True)
    os.environ["TRITON_INTERPRET"] = "1"

from architectures import SHAPE, build  # noqa: E402
from transformers import Qwen3Config  # noqa: E402

from fastslow.prefix import decode_attention, level_attention, sampling  # noqa: E402
from fastslow.prefix.level_attention import Level, Pass, Store  # noqa: E402
from fastslow.prefix.sampling import SharedSampler  # noqa: E402
from fastslow.records import Sampling  # noqa: E402

DEVICE = torch.device("cuda" if GPU else "cpu")
UNBOUNDED = 10**6
PRECISION = {torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}


class Case:
    """Rows under texts of random lengths, some of their own columns written, and a new token for each."""

    def __init__(self, owners: list[list[int]], group: int, features: int, width: int, dtype: torch.dtype) -> None:
        self.draw = torch.Generator().manual_seed(0)
        self.dtype, self.rows, self.key_heads = dtype, len(owners[0]), 2
        self.levels, start = [], 0
        for of_row in owners:
            texts = max(of_row) + 1
            lengths = torch.randint(1, 150, (texts,), generator=self.draw).tolist()
            store = Store(texts, max(lengths))
            store.layers[0] = self.stored(store, features), self.stored(store, features)
            self.levels.append(Level(store, lengths, [start] * texts, of_row, DEVICE))
            start += 150
        self.own = Store(self.rows, 2 * width + 3)
        self.own.layers[0] = self.stored(self.own, features), self.stored(self.own, features)
        self.column = torch.tensor([width], device=DEVICE)
        self.positions = (start + width + torch.arange(self.rows)).to(DEVICE)[:, None]
        # As a model has them: a transposed view.
        self.query = self.normal(self.rows, 1, self.key_heads * group, features).transpose(1, 2)
        self.key, self.value = (self.normal(self.rows, 1, self.key_heads, features).transpose(1, 2) for _ in range(2))

    def normal(self, *shape: int) -> Tensor:
        return torch.randn(shape, generator=self.draw).to(DEVICE, self.dtype)

    def stored(self, store: Store, features: int) -> Tensor:
        return self.normal(store.rows, self.key_heads, store.columns, features)

    def expected(self, window: int | None, softcap: float | None) -> Tensor:
        """By the ordinary path, and in fp32: also writes the new keys and values."""
        shared = Pass(self.positions, self.levels, self.own, int(self.column), UNBOUNDED)
        every = [*(level.store for level in self.levels), self.own]
        kept = [store.layers for store in every]
        for store in every:
            keys, values = store.layers[0]
            store.layers = {0: (keys.float(), values.float())}
        out = shared.attend(
            0, self.query.float(), self.key.float(), self.value.float(), torch.float32, 0.3, window, softcap
        )
        for store, layers in zip(every, kept, strict=True):
            store.layers = layers
        return out

    def found(self, window: int | None, softcap: float | None, busy: int, ended: Tensor | None = None) -> Tensor:
        levels = [(level, *level.store.layers[0]) for level in self.levels]
        own, states = self.own.layers[0], (self.query, self.key, self.value)
        where = (self.positions, self.column)
        return decode_attention.attend(*states, own, levels, *where, 0.3, window, softcap, ended, busy)

    def check(self, window: int | None = None, softcap: float | None = None, busy: int = 1) -> None:
        before = [each.clone() for each in self.own.layers[0]]
        expected, found = self.expected(window, softcap), self.found(window, softcap, busy)
        assert found.shape == self.query.shape
        assert found.dtype == self.dtype
        allowed = PRECISION[self.dtype]
        torch.testing.assert_close(found.float(), expected, atol=allowed, rtol=allowed)
        for was, now, new in zip(before, self.own.layers[0], (self.key, self.value), strict=True):
            was[:, :, int(self.column)] = new[:, :, 0]
            torch.testing.assert_close(now, was, atol=0, rtol=0)


DTYPES = [torch.float16, torch.bfloat16] if GPU else [torch.float32, torch.float16]
UNDER = [[0, 0, 0, 0, 1, 1], [0, 0, 1, 1, 2, 2]]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    "owners", [UNDER, UNDER[:1], [[0] * 19, [0, 1] * 9 + [2]]], ids=["two levels", "one", "uneven"]
)
def test_the_kernels_agree_with_the_ordinary_path(owners: list[list[int]], dtype: torch.dtype) -> None:
    Case(owners, group=4, features=16, width=70, dtype=dtype).check()


@pytest.mark.parametrize("group", [1, 7, 16])
@pytest.mark.parametrize("features", [16, 256])
def test_any_number_of_query_heads_has_a_key_head(group: int, features: int) -> None:
    Case(UNDER, group, features, 9, DTYPES[0]).check()


@pytest.mark.parametrize("width", [0, 1, 64, 300])
def test_columns_are_divided_into_ranges(width: int) -> None:
    Case(UNDER, 2, 16, width, DTYPES[0]).check(busy=1000)


@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_windows_soft_caps_and_ranges(data: st.DataObject) -> None:
    rows = data.draw(st.integers(1, 5))
    owners = [sorted(data.draw(st.lists(st.integers(0, 2), min_size=rows, max_size=rows))) for _ in range(2)]
    case = Case(owners[: data.draw(st.integers(1, 2))], 2, 16, data.draw(st.integers(0, 200)), DTYPES[0])
    case.check(
        data.draw(st.sampled_from([None, 1, 5, 90, 250, 400])),
        data.draw(st.sampled_from([None, 2.0, 30.0])),
        data.draw(st.sampled_from([1, 8, 64])),
    )


@pytest.mark.parametrize("busy", [1, 40])
def test_nothing_is_read_for_rows_that_have_ended(busy: int) -> None:
    case = Case(UNDER, 4, 16, 300, DTYPES[0])
    expected = case.expected(None, None)
    ended = torch.tensor([True, False, True, True, False, False], device=DEVICE)
    for keys, values in (case.own.layers[0], case.levels[1].store.layers[0]):
        unused = ended if keys is case.own.layers[0][0] else torch.tensor([False, True, False], device=DEVICE)
        keys[unused], values[unused] = torch.nan, torch.nan
    found = case.found(None, None, busy, ended).float()
    allowed = PRECISION[case.dtype]
    torch.testing.assert_close(found[~ended], expected[~ended], atol=allowed, rtol=allowed)
    assert found.isfinite().all()


def test_rows_without_levels() -> None:
    case = Case([[0, 0, 0]], 4, 16, 20, DTYPES[0])
    case.levels = []
    case.check()


def test_a_pass_calls_them(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(UNDER, 4, 16, 40, DTYPES[0])
    shared = Pass(case.positions, case.levels, case.own, case.column, UNBOUNDED)
    arguments = (0, case.query, case.key, case.value, case.dtype, 0.3, 60, 5.0)
    monkeypatch.setattr(level_attention, "has_kernel", lambda *_: False)
    expected = shared.attend(*arguments)
    monkeypatch.setattr(level_attention, "has_kernel", lambda *_: True)
    monkeypatch.setattr(level_attention, "_kernels", lambda: decode_attention)
    monkeypatch.setattr(decode_attention, "_busy", lambda _: 20)
    monkeypatch.setattr(level_attention, "_scores", None)
    torch.testing.assert_close(shared.attend(*arguments), expected, atol=PRECISION[case.dtype], rtol=1e-2)


@pytest.mark.skipif(not GPU, reason="needs a GPU")
def test_a_recorded_graph_stays_right_as_columns_grow() -> None:
    case = Case(UNDER, 4, 64, 40, torch.bfloat16)
    case.found(None, None, 32)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = case.found(None, None, 32)
    for _ in range(5):
        case.column.add_(1)
        graph.replay()
        expected = case.expected(None, None)
        torch.testing.assert_close(out.float(), expected, atol=3e-2, rtol=3e-2)


@torch.no_grad()
def test_sampled_logprobs_are_those_of_a_full_forward_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows end at different times, columns are added, contexts differ in length. On a GPU the step is recorded."""
    model = build(Qwen3Config(**{**SHAPE, "head_dim": 16, "num_hidden_layers": 3 if GPU else 1})).to(DEVICE, DTYPES[0])
    texts = [[3 + (7 * i + j) % 20 for i in range(length)] for j, length in enumerate((150, 90))]
    each, tokens, ends = (5, 200, (2,)) if GPU else (1, 12, tuple(range(6)))
    prompts = [[5, *text, *problem] for text in texts for problem in ([4, 9, 11], [8]) for _ in range(each)]
    sampler = SharedSampler(model, ends, Sampling(1.0, 1.0, tokens))
    if not GPU:
        sampler.graphs = True
        monkeypatch.setattr(sampling, "BLOCK", 4)
        monkeypatch.setattr(sampling, "WIDE", 8)
        monkeypatch.setattr(sampling._Decoding, "_record", lambda decoding: decoding._step)
        monkeypatch.setattr(level_attention, "has_kernel", lambda query, *_: query.shape[2] == 1)
        monkeypatch.setattr(level_attention, "_kernels", lambda: decode_attention)
        monkeypatch.setattr(decode_attention, "_busy", lambda _: 20)
    found = sampler.sample(prompts, seed=0, batch=64)
    differences = []
    for prompt, completion in zip(prompts, found, strict=True):
        ids = torch.tensor([[*prompt, *completion.ids]], device=DEVICE)
        logprobs = torch.log_softmax(model(ids).logits[0, len(prompt) - 1 : -1].float(), -1)
        expected = logprobs.gather(1, torch.tensor(completion.ids, device=DEVICE)[:, None])[:, 0].cpu()
        differences.append((torch.tensor(completion.logprobs) - expected).abs())
    assert torch.cat(differences).mean() < (1e-2 if GPU else 1e-5)
    assert len({len(completion.ids) for completion in found}) > 1


def test_only_decoding_on_a_gpu_has_kernels() -> None:
    states = [torch.zeros(2, 4, 1, 16) for _ in range(3)]
    assert not level_attention.has_kernel(*states, torch.bfloat16)
    if GPU:
        states = [state.cuda() for state in states]
        assert level_attention.has_kernel(*states, torch.bfloat16)
        assert not level_attention.has_kernel(*states, torch.float32)
        assert not level_attention.has_kernel(*(torch.zeros(2, 4, 2, 16).cuda() for _ in range(3)), torch.bfloat16)
        assert not level_attention.has_kernel(*(torch.zeros(2, 4, 1, 24).cuda() for _ in range(3)), torch.bfloat16)
