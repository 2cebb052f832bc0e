"""Sampling with shared prefixes: every context is computed once, every problem under it once, and all rows decode together.

Shared beginnings are found among the token ids (`tree.prompt_tree`), and their keys and values are stored once for all rows
under them (`level_attention`). Completed rows are removed from the batch. What a row draws depends only on the seed and the
row's number, not on the other rows (`draw`). On a GPU a decoding step is recorded as a CUDA graph and replayed, because
launching its hundreds of small kernels one by one takes several times longer than running them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor
from transformers import PreTrainedModel

from fastslow.errors import Diverged
from fastslow.prefix.draw import draw, uniforms
from fastslow.prefix.level_attention import Level, Pass, Store, shared_prefixes
from fastslow.prefix.tree import PromptTree, Tokens, lexicographic, prompt_tree
from fastslow.records import Completion, Enough, Finished, Part, Sampling

BLOCK = 128
"""Initial columns for the completion tokens of the rows. They are doubled whenever they are full; if a step reads only those
that are written, there are soon as many as a completion can have."""
READ, START = 160, 64
"""What stopping costs, on a GPU: the prompt tokens that are read in the time of a decoding step of few rows, about the
operations per byte of the device's memory, and the decoding steps in whose time a later call starts."""
TILE = 128
"""Rows that a GPU multiplies in the time of one: reading the weights takes that long."""
NO_PROBABILITIES = "the model's probabilities are not numbers (NaN), so its weights are damaged"


class SharedSampler:
    """Samples from one model."""

    def __init__(self, model: PreTrainedModel, eos_ids: Sequence[int], sampling: Sampling) -> None:
        self.model: PreTrainedModel = model.get_base_model() if hasattr(model, "get_base_model") else model
        self.device = self.model.device
        self.eos = torch.tensor(list(eos_ids), dtype=torch.long, device=self.device)
        self.eos_ids, self.sampling = frozenset(eos_ids), sampling
        gpu = self.device.type == "cuda"
        self.graphs = gpu and _recordable(self.model)
        self.check_every = 16 if gpu else 1
        """Steps between two checks for completed rows; on a GPU a check waits for the device."""
        self.compact_below = 0.5 if gpu else 0.875
        """Completed rows are removed when no more than this share is active; on a GPU the step is then recorded again."""
        config = self.model.config.get_text_config()
        self.fused = gpu and not getattr(config, "attn_logit_softcapping", None)
        """Whether torch's fused attention computes the prompts; then memory grows with tokens and keys, not with scores."""
        self.max_tokens, self.max_keys = 2**13, 2**16
        """Prompt tokens that a forward pass may compute, and keys of its rows, if attention is fused."""
        self.max_scores = 2**27 if gpu else 2**22
        """Attention scores that a forward pass over prompts may compute, if attention is not fused."""
        self.busy_tokens = 4096 if gpu else 256
        """Prompt tokens that are enough to keep the device busy."""
        self.read, self.start = (READ, START) if gpu else (2**40, 0)
        """What stopping costs; on a CPU it is not weighed."""
        self.heads: int = config.num_attention_heads

    @torch.no_grad()
    def sample(
        self,
        prompts: Sequence[Sequence[int]],
        seed: int,
        batch: int,
        finished: Finished | None = None,
    ) -> list[Completion]:
        """One completion per prompt, in the order of the prompts; `batch` of them are decoded together.

        `finished` is called with each completion when it leaves the batch.
        """
        order = lexicographic(prompts)
        completions: dict[int, Completion] = {}

        def collect(row: int, completion: Completion) -> None:
            completions[row] = completion
            if finished:
                finished(row, completion)

        with shared_prefixes(self.model):
            for start in range(0, len(order), batch):
                chosen = order[start : start + batch]
                tree = prompt_tree([prompts[index] for index in chosen])
                rows = [chosen[prompt] for prompt in tree.prompt_of]
                _Decoding(self, tree, self._prefill(tree), rows, seed).run(collect)
        return [completions[index] for index in range(len(prompts))]

    @torch.no_grad()
    def sample_until(
        self,
        prompts: Sequence[Sequence[int]],
        limits: Sequence[int],
        seed: int,
        batch: int,
        enough: Enough,
        finished: Finished | None = None,
    ) -> list[Part]:
        """`sample` with a limit for every prompt, which stops when `enough` says so; batches keep the given order.

        On a GPU it does not stop if the rest would end sooner than a later call reads its tokens again.
        """
        parts = dict.fromkeys(range(len(prompts)), Part(Completion((), ()), ended=False))

        def collect(row: int, completion: Completion) -> None:
            parts[row] = Part(completion, ended=True)
            if finished:
                finished(row, completion)

        with shared_prefixes(self.model):
            for start in range(0, len(prompts), batch):
                later = range(min(start + batch, len(prompts)), len(prompts))
                chosen = [start + row for row in lexicographic(prompts[start : start + batch])]
                tree = prompt_tree([prompts[index] for index in chosen])
                rows = [chosen[prompt] for prompt in tree.prompt_of]
                decoding = _Decoding(self, tree, self._prefill(tree), rows, seed, [limits[row] for row in rows])
                decoding.run(collect, enough, later)
                if decoding.stopped:
                    parts |= decoding.unfinished()
                    break
        return [parts[index] for index in range(len(prompts))]

    def forward(self, tokens: Tensor, shared: Pass) -> Tensor:
        """Logits after the last token of each row."""
        return self.model(
            input_ids=tokens, position_ids=shared.positions, use_cache=False, logits_to_keep=1, shared=shared
        ).logits[:, -1]

    def _prefill(self, tree: PromptTree) -> list[Level]:
        """The levels that the rows of a tree attend to; levels without any tokens are omitted."""
        context_of_row = [tree.context_of[problem] for problem in tree.problem_of]
        contexts = self._level(tree.contexts, [0] * len(tree.contexts), context_of_row, None, [])
        starts = [len(tree.contexts[context]) for context in tree.context_of]
        problems = self._level(tree.problems, starts, tree.problem_of, contexts, tree.context_of)
        return [level for level in (contexts, problems) if level is not None]

    def _level(
        self,
        texts: Sequence[Tokens],
        starts: Sequence[int],
        owners: Sequence[int],
        above: Level | None,
        above_of: Sequence[int],
    ) -> Level | None:
        """Keys and values of some texts, which follow texts of the level above."""
        lengths = [len(text) for text in texts]
        if not any(lengths):
            return None
        store = Store(len(texts), max(lengths))
        before = above.store.columns if above else 0
        for rows in self._chunks(lengths, above_of if above else [0] * len(texts), before):
            width = max(lengths[rows])
            if not width:
                continue
            tokens = torch.tensor([[*text, *[0] * (width - len(text))] for text in texts[rows]], device=self.device)
            first = torch.tensor(starts[rows], device=self.device)[:, None]
            levels = [above.part(above_of[rows])] if above else []
            piece = max(self._piece(rows.stop - rows.start, width + before), 1)
            for column in range(0, width, piece):
                positions = first + torch.arange(column, min(column + piece, width), device=self.device)
                farthest = max(starts[rows]) + width
                shared = Pass(positions, levels, store, column, farthest, rows, self.fused)
                self.forward(tokens[:, column : column + piece], shared)
        return Level(store, lengths, starts, owners, self.device)

    def _chunks(self, lengths: Sequence[int], groups: Sequence[int], above: int) -> Iterator[slice]:
        """Divides texts into ranges that are computed together: large enough to keep the device busy and small enough for its
        memory. Ranges end at the end of a group where possible: within a group, texts have similar lengths."""
        start = 0
        for end in range(1, len(lengths) + 1):
            if end == len(lengths):
                yield slice(start, end)
                return
            width, rows = max(lengths[start : end + 1]), end + 1 - start
            busy = (end - start) * max(lengths[start:end]) >= self.busy_tokens
            full = width > self._piece(rows, width + above)
            if full or (busy and groups[end] != groups[end - 1]):
                yield slice(start, end)
                start = end

    def _piece(self, rows: int, keys: int) -> int:
        """Tokens of each row that one forward pass may compute, if each attends to this number of keys."""
        if self.fused:
            return self.max_tokens // rows if rows == 1 or rows * keys <= self.max_keys else 0
        return self.max_scores // (rows * self.heads * max(keys, 1))


class _Decoding:
    """Decodes the rows of one batch, from the last token of their prompts on."""

    def __init__(
        self,
        sampler: SharedSampler,
        tree: PromptTree,
        levels: list[Level],
        rows: list[int],
        seed: int,
        limits: Sequence[int] | None = None,
    ) -> None:
        """`limits` are the most tokens of each row, by default the sampler's."""
        self.sampler, self.levels, self.rows = sampler, levels, rows
        device, self.limit = sampler.device, max(limits or [sampler.sampling.max_tokens])
        self.limits = torch.tensor(limits or [self.limit] * len(rows), device=device)
        self.limited = limits is not None
        self.tokens = torch.tensor(tree.last, device=device)
        self.positions = torch.tensor(tree.positions, device=device)
        self.farthest = max(tree.positions) + self.limit
        self.uniforms = uniforms(seed, rows, self.limit).to(device, torch.float64)
        self.ids = torch.zeros((len(rows), self.limit), dtype=torch.long, device=device)
        self.logprobs = torch.zeros((len(rows), self.limit), device=device)
        self.ended = torch.zeros(len(rows), dtype=torch.bool, device=device)
        self.own = Store(len(rows), min(BLOCK, self.limit))
        self.column = torch.zeros(1, dtype=torch.long, device=device)
        self.drawn = 0
        self.reads_unwritten = True
        """Whether a recorded step reads all own columns; if so, no more of them than needed are allocated."""
        self.stopped = False

    def run(self, finished: Finished, enough: Enough | None = None, later: Sequence[int] = ()) -> None:
        """Decode until all rows have ended, or until `enough` of them have; `later` are rows of later batches."""
        while self.rows and self.drawn < self.limit and not self.stopped:
            if self.drawn == self.own.columns:
                self.own.widen(min(2 * self.own.columns, self.limit))
            self._decode(enough, later)
            self._remove_ended(finished)

    def unfinished(self) -> dict[int, Part]:
        """The rows that have not ended."""
        if not self.rows:
            return {}
        ids, logprobs = self.ids[:, : self.drawn].tolist(), self.logprobs[:, : self.drawn].tolist()
        return {
            row: Part(self._completion(tokens, logs), ended=False)
            for row, tokens, logs in zip(self.rows, ids, logprobs, strict=True)
        }

    def _decode(self, enough: Enough | None, later: Sequence[int]) -> None:
        """Steps until the own columns are full or enough rows have ended. Before a step is recorded one is run without
        recording: libraries then have done their setup, and autocast has cached its copies of the weights."""
        step: Callable[[], None] = self._step
        active = len(self.rows)
        while self.drawn < self.own.columns:
            step()
            self.drawn += 1
            if self.drawn % self.sampler.check_every == 0 or self.drawn == self.own.columns:
                before, active = active, len(self.rows) - int(self.ended.sum())
                if enough and active < before:
                    rows = zip(self.rows, self.ended.tolist(), strict=True)
                    self.stopped = enough([*(row for row, ended in rows if not ended), *later]) and self._pays(active)
                if self.stopped or self._sparse(active):
                    return
            if step == self._step and self.sampler.graphs and self.own.columns - self.drawn > 1:
                if not self.reads_unwritten and self.own.columns < self.limit:
                    self.own.widen(self.limit)
                step = self._record()

    def _sparse(self, active: int) -> bool:
        """Whether completed rows are worth removing. Matrix products of more than `TILE` rows take time in proportion to the
        tiles, so one tile less is worth it too, if it is a quarter of the rows and a while is left."""
        rows = len(self.rows)
        fewer = math.ceil(active / TILE) < math.ceil(rows / TILE) and active <= 0.75 * rows
        return active <= self.sampler.compact_below * rows or (fewer and self.limit - self.drawn >= 2 * TILE)

    def _pays(self, active: int) -> bool:
        """Whether to stop: reading the tokens of active rows again takes less time than they can take to end."""
        left = int(self.limits.masked_fill(self.ended, 0).max()) - self.drawn
        return active * self.drawn <= self.sampler.read * max(left - self.sampler.start, 0)

    def _record(self) -> Callable[[], None]:
        graph = torch.cuda.CUDAGraph()
        # Other threads may use CUDA during the capture: graders', and those of the communication library.
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            self._step()
        return graph.replay

    def _step(self) -> None:
        """Draws one token for every row, without leaving the device and without allocating what the next step needs."""
        column = self.column if self.sampler.graphs else self.drawn
        shared = Pass(self.positions[:, None], self.levels, self.own, column, self.farthest, ended=self.ended)
        logits = self.sampler.forward(self.tokens[:, None], shared)
        self.reads_unwritten = shared.reads_unwritten
        uniform = self.uniforms.index_select(1, self.column)[:, 0]
        token, logprob = draw(logits, self.sampler.sampling, uniform)
        self.ids.index_copy_(1, self.column, token[:, None])
        self.logprobs.index_copy_(1, self.column, logprob[:, None])
        self.tokens.copy_(token)
        self.positions.add_(1)
        self.column.add_(1)
        self.ended.logical_or_((token[:, None] == self.sampler.eos).any(1))
        if self.limited:
            self.ended.logical_or_(self.column >= self.limits)

    def _remove_ended(self, finished: Finished) -> None:
        """Reports the completions of rows that drew an end token or reached the limit, and removes these rows."""
        ended = self.ended.tolist()
        if self.drawn == self.limit:
            ended = [True] * len(ended)
        removed = [row for row, end in enumerate(ended) if end]
        if not removed:
            return
        chosen = torch.tensor(removed, device=self.ids.device)
        ids = self.ids[chosen, : self.drawn].tolist()
        logprobs = self.logprobs[chosen, : self.drawn].tolist()
        limits = self.limits[chosen].tolist()
        for row, tokens, logs, limit in zip(removed, ids, logprobs, limits, strict=True):
            finished(self.rows[row], self._completion(tokens[:limit], logs[:limit]))
        kept = [row for row, end in enumerate(ended) if not end]
        self.rows = [self.rows[row] for row in kept]
        if not kept:
            return
        chosen = torch.tensor(kept, device=self.ids.device)
        for name in ("tokens", "positions", "uniforms", "ids", "logprobs", "ended", "limits"):
            setattr(self, name, getattr(self, name).index_select(0, chosen))
        self.own.select(chosen)
        self.levels = [level.select(kept) for level in self.levels]

    def _completion(self, ids: list[int], logprobs: list[float]) -> Completion:
        """The tokens up to and including the first end token."""
        ends = (place + 1 for place, token in enumerate(ids) if token in self.sampler.eos_ids)
        end = next(ends, len(ids))
        if any(map(math.isnan, logprobs[:end])):
            raise Diverged(NO_PROBABILITIES)
        return Completion(tuple(ids[:end]), tuple(logprobs[:end]))


def _recordable(model: PreTrainedModel) -> bool:
    """Whether a decoding step runs the same kernels at every length; some models rescale positions as sequences grow."""
    kinds = (getattr(module, "rope_type", "default") for module in model.modules())
    return not any("dynamic" in str(kind) or "longrope" in str(kind) for kind in kinds)
