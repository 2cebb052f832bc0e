"""Sampling with every context computed once, every problem under it once, and all rollouts decoded together.

What prompts begin with alike is found among their tokens (`prefixes`), stored once and never copied to the rows that share
it (`shared_attention`). Rows that have ended leave the batch. What a row draws depends on the seed and its own number, not on
the rows beside it (`draw`). On a GPU a decoding step is recorded as a CUDA graph and replayed, since starting its hundreds of
small kernels one by one takes several times longer than running them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import torch
from transformers import PreTrainedModel

from fastslow.errors import ModelError
from fastslow.prefix.draw import draw, uniforms
from fastslow.prefix.levels import Level, Pass, Store, shared_prefixes
from fastslow.prefix.prompts import PromptTree, Tokens, plant
from fastslow.records import Completion, Finished, Sampling

BLOCK = 128
"""Columns the rows' own tokens get at first; they are doubled whenever they are full."""


class SharedSampler:
    """Samples from one model."""

    def __init__(self, model: PreTrainedModel, eos_ids: Sequence[int], sampling: Sampling) -> None:
        self.model: PreTrainedModel = model.get_base_model() if hasattr(model, "get_base_model") else model
        self.device = self.model.device
        self.eos = torch.tensor(list(eos_ids), dtype=torch.long, device=self.device)
        self.eos_ids, self.sampling = frozenset(eos_ids), sampling
        gpu = self.device.type == "cuda"
        self.graphs = gpu and _recordable(self.model)
        self.every = 16 if gpu else 1
        """Steps between two looks at which rows have ended; on a GPU a look waits for it."""
        self.crowd = 0.5 if gpu else 0.875
        """Rows that have ended leave when no more than this share is still going; on a GPU the step is then recorded anew."""
        self.scores = 2**27 if gpu else 2**22
        """Attention scores computed at a time when prompts are read."""
        self.tokens = 4096 if gpu else 256
        """Tokens of a prompt batch that keep the device busy."""
        config = self.model.config.get_text_config()
        self.heads: int = config.num_attention_heads

    @torch.no_grad()
    def sample(
        self,
        prompts: Sequence[Sequence[int]],
        seed: int,
        batch: int,
        finished: Finished | None = None,
    ) -> list[Completion]:
        """One completion per prompt, in the prompts' order; `batch` of them are decoded together, and `finished` is told of
        each as it leaves."""
        order = sorted(range(len(prompts)), key=lambda index: (tuple(prompts[index]), index))
        completions: dict[int, Completion] = {}

        def leave(row: int, completion: Completion) -> None:
            completions[row] = completion
            if finished:
                finished(row, completion)

        with shared_prefixes(self.model):
            for start in range(0, len(order), batch):
                chosen = order[start : start + batch]
                tree = plant([prompts[index] for index in chosen])
                rows = [chosen[prompt] for prompt in tree.prompt_of]
                decoding = _Decoding(self, tree, self._read(tree), rows, seed)
                decoding.run(leave)
        return [completions[index] for index in range(len(prompts))]

    def forward(self, tokens: torch.Tensor, shared: Pass) -> torch.Tensor:
        """Logits after the last of each row's tokens."""
        return self.model(
            input_ids=tokens, position_ids=shared.positions, use_cache=False, logits_to_keep=1, shared=shared
        ).logits[:, -1]

    # Reading the prompts -----------------------------------------------------------------------------------------------

    def _read(self, tree: PromptTree) -> list[Level]:
        """The levels that the rows of a tree see; a level that no row has any tokens of is left out."""
        levels: list[Level] = []
        context_of_row = [tree.context_of[problem] for problem in tree.problem_of]
        contexts = self._level(tree.contexts, [0] * len(tree.contexts), context_of_row, None, [])
        if contexts is not None:
            levels.append(contexts)
        starts = [len(tree.contexts[context]) for context in tree.context_of]
        problems = self._level(tree.problems, starts, tree.problem_of, contexts, tree.context_of)
        if problems is not None:
            levels.append(problems)
        return levels

    def _level(
        self,
        texts: Sequence[Tokens],
        starts: Sequence[int],
        owners: Sequence[int],
        above: Level | None,
        above_of: Sequence[int],
    ) -> Level | None:
        """Keys and values of some texts, which stand under those of the level above."""
        lengths = [len(text) for text in texts]
        if not any(lengths):
            return None
        store = Store(len(texts), max(lengths))
        for rows in self._chunks(lengths, above_of if above else [0] * len(texts), above.store.columns if above else 0):
            width = max(lengths[rows])
            if not width:
                continue
            tokens = torch.tensor([[*text, *[0] * (width - len(text))] for text in texts[rows]], device=self.device)
            first = torch.tensor(starts[rows], device=self.device)[:, None]
            levels = [above.part(above_of[rows])] if above else []
            keys = width + (above.store.columns if above else 0)
            piece = max(self.scores // ((rows.stop - rows.start) * self.heads * keys), 1)
            for column in range(0, width, piece):
                positions = first + torch.arange(column, min(column + piece, width), device=self.device)
                farthest = max(starts[rows]) + width
                shared = Pass(positions, levels, store, column, farthest, rows)
                self.forward(tokens[:, column : column + piece], shared)
        return Level(store, lengths, starts, owners, self.device)

    def _chunks(self, lengths: Sequence[int], groups: Sequence[int], above: int) -> Iterator[slice]:
        """Cuts texts into stretches that are read together: many enough to keep the device busy, few enough for its memory,
        and where it can be had not across the end of a group, within which the texts have about one length."""
        start = 0
        for end in range(1, len(lengths) + 1):
            if end == len(lengths):
                yield slice(start, end)
                return
            width, rows = max(lengths[start : end + 1]), end + 1 - start
            busy = (end - start) * max(lengths[start:end]) >= self.tokens
            full = rows * self.heads * width * (width + above) > self.scores
            if full or (busy and groups[end] != groups[end - 1]):
                yield slice(start, end)
                start = end


class _Decoding:
    """The rows of one batch from the last token of their prompts to their ends."""

    def __init__(
        self, sampler: SharedSampler, tree: PromptTree, levels: list[Level], rows: list[int], seed: int
    ) -> None:
        self.sampler, self.levels, self.rows = sampler, levels, rows
        device, self.limit = sampler.device, sampler.sampling.max_tokens
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

    def run(self, finished: Finished) -> None:
        while self.rows and self.drawn < self.limit:
            if self.drawn == self.own.columns:
                self.own.widen(min(2 * self.own.columns, self.limit))
            self._stretch()
            self._leave(finished)

    def _stretch(self) -> None:
        """Steps until the own columns are full or enough rows have ended. Of a recorded step the first is made as it is:
        what libraries set up on first use is then done, and autocast has its copies of the weights."""
        step: Callable[[], None] = self._step
        while self.drawn < self.own.columns:
            step()
            self.drawn += 1
            if self.drawn % self.sampler.every == 0 or self.drawn == self.own.columns:
                going = len(self.rows) - int(self.ended.sum())
                if going <= self.sampler.crowd * len(self.rows):
                    return
            if step == self._step and self.sampler.graphs and self.own.columns - self.drawn > 1:
                step = self._record()

    def _record(self) -> Callable[[], None]:
        graph = torch.cuda.CUDAGraph()
        # Other threads go on meanwhile: graders', and those that watch over communication.
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            self._step()
        return graph.replay

    def _step(self) -> None:
        """One more token for every row. All of it stays on the device, and nothing is allocated that the next step needs."""
        column = self.column if self.sampler.graphs else self.drawn
        shared = Pass(self.positions[:, None], self.levels, self.own, column, self.farthest)
        logits = self.sampler.forward(self.tokens[:, None], shared)
        uniform = self.uniforms.index_select(1, self.column)[:, 0]
        token, logprob = draw(logits, self.sampler.sampling, uniform)
        self.ids.index_copy_(1, self.column, token[:, None])
        self.logprobs.index_copy_(1, self.column, logprob[:, None])
        self.tokens.copy_(token)
        self.positions.add_(1)
        self.column.add_(1)
        self.ended.logical_or_((token[:, None] == self.sampler.eos).any(1))

    def _leave(self, finished: Finished) -> None:
        """Rows that have ended, or may draw no more, hand in their completions; the others close ranks."""
        ended = self.ended.tolist()
        if self.drawn == self.limit:
            ended = [True] * len(ended)
        leaving = [row for row, end in enumerate(ended) if end]
        if not leaving:
            return
        chosen = torch.tensor(leaving, device=self.ids.device)
        ids = self.ids[chosen, : self.drawn].tolist()
        logprobs = self.logprobs[chosen, : self.drawn].tolist()
        for row, tokens, logs in zip(leaving, ids, logprobs, strict=True):
            finished(self.rows[row], self._until_end(tokens, logs))
        staying = [row for row, end in enumerate(ended) if not end]
        self.rows = [self.rows[row] for row in staying]
        if not staying:
            return
        chosen = torch.tensor(staying, device=self.ids.device)
        for name in ("tokens", "positions", "uniforms", "ids", "logprobs", "ended"):
            setattr(self, name, getattr(self, name).index_select(0, chosen))
        self.own.select(chosen)
        self.levels = [level.select(staying) for level in self.levels]

    def _until_end(self, ids: list[int], logprobs: list[float]) -> Completion:
        ends = (place + 1 for place, token in enumerate(ids) if token in self.sampler.eos_ids)
        end = next(ends, len(ids))
        if any(map(math.isnan, logprobs[:end])):
            raise ModelError(
                "the model gives no probabilities (NaN): its weights are damaged or training has diverged; lower "
                "slow.learning_rate and start from an earlier checkpoint"
            )
        return Completion(tuple(ids[:end]), tuple(logprobs[:end]))


def _recordable(model: PreTrainedModel) -> bool:
    """Whether a decoding step does the same at every length; some models rescale positions as sequences grow."""
    kinds = (getattr(module, "rope_type", "default") for module in model.modules())
    return not any("dynamic" in str(kind) or "longrope" in str(kind) for kind in kinds)
