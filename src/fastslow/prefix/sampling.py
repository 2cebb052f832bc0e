"""Sampling with shared prefixes: every context is computed once, every problem under it once, and all rows decode together.

Shared beginnings are found among the token ids (`tree.prompt_tree`), and their keys and values are stored once for all rows
under them (`level_attention`). Completed rows are removed from the batch. What a row draws depends only on the seed and the
row's number, not on the other rows: a token is drawn from one uniform number. On a GPU a decoding step is recorded as a CUDA
graph and replayed, because launching its hundreds of small kernels one by one takes several times longer than running them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from fastslow.base.errors import Diverged
from fastslow.prefix.level_attention import Level, Pass, Store, shared_prefixes, without_adapter
from fastslow.prefix.tree import PromptTree, Tokens, lexicographic, prompt_tree
from fastslow.records import Completion, Enough, Ready, Sampling

BLOCK, WIDE = 128, 512
"""Initial columns for the completion tokens of the rows; the second if a step reads only those that are written. They are
doubled whenever they are full; by then most rows have ended."""
READ, START = 160, 64
"""What stopping costs, on a GPU: the prompt tokens that are read in the time of a decoding step of few rows, about the
operations per byte of the device's memory, and the decoding steps in whose time a later call starts."""
TILE = 128
"""Rows that a GPU multiplies in the time of one: reading the weights takes that long."""
SUMMED = 512
"""Tokens of the vocabulary whose probabilities are added up first when one is drawn."""
UNBOUNDED = 2**60
"""Room for any number of tokens."""
NO_PROBABILITIES = "the model's probabilities are not numbers (NaN), so its weights are damaged"


class SharedSampler:
    def __init__(self, model: PreTrainedModel, eos_ids: Sequence[int], sampling: Sampling) -> None:
        self.model: PreTrainedModel = without_adapter(model)
        self.device = self.model.device
        self.eos = torch.tensor(list(eos_ids), dtype=torch.long, device=self.device)
        self.eos_ids, self.sampling = frozenset(eos_ids), sampling
        gpu = self.device.type == "cuda"
        # A recorded step runs the same kernels at every length; some models rescale positions as sequences grow.
        kinds = [str(getattr(module, "rope_type", "default")) for module in self.model.modules()]
        self.graphs = gpu and not any("dynamic" in kind or "longrope" in kind for kind in kinds)
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
        *,
        limits: Sequence[int] | None = None,
        enough: Enough | None = None,
        ready: Ready | None = None,
        room: int = UNBOUNDED,
    ) -> list[Completion]:
        """One completion per prompt, in the order of the prompts; `batch` of them are decoded together.

        It stops when `enough` says so, and batches then keep the given order. On a GPU it does not stop if the rest would end
        sooner than a later call reads its tokens again. `ready` is called with each completion when it leaves the batch.
        `room` is how many tokens of completions are stored at once; rows for which none is left are continued later, when
        others have ended.
        """
        most = limits or [self.sampling.max_tokens] * len(prompts)
        drawn = [Completion((), (), ended=False)] * len(prompts)
        waiting, stopped = list(range(len(prompts)) if enough else lexicographic(prompts)), False

        def extend(row: int, completion: Completion, *, ended: bool = True) -> None:
            before = drawn[row]
            ids, logprobs = (*before.ids, *completion.ids), (*before.logprobs, *completion.logprobs)
            drawn[row] = Completion(ids, logprobs, ended=ended)
            if ended and ready:
                ready(row, drawn[row])

        with shared_prefixes(self.model):
            while waiting and not stopped:
                together = _together([len(drawn[row].ids) for row in waiting[:batch]], room)
                first, waiting = waiting[:together], waiting[together:]
                tree = prompt_tree([[*prompts[row], *drawn[row].ids] for row in first])
                rows = [first[index] for index in tree.prompt_of]
                begun = [len(drawn[row].ids) for row in rows]
                left = [most[row] - before for row, before in zip(rows, begun, strict=True)]
                free = room - len(rows) * max(begun)
                decoding = _Decoding(self, tree, self._prefill(tree), rows, seed, left, begun, free)
                decoding.run(extend, enough, waiting)
                unfinished = decoding.unfinished()
                for row, completion in unfinished.items():
                    extend(row, completion, ended=False)
                waiting, stopped = [*unfinished, *waiting], decoding.stopped
                del decoding  # its keys and values, before those of the next batch
        return drawn

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
        limits: Sequence[int],
        begun: Sequence[int],
        room: int,
    ) -> None:
        """`limits` are the most tokens that each row may draw, `begun` how many its prompt has that were drawn before, and
        `room` how many tokens of all rows are stored."""
        self.sampler, self.levels, self.rows = sampler, levels, rows
        device, self.limit, self.room = sampler.device, max(limits), room
        self.limits = torch.tensor(limits, device=device)
        self.tokens = torch.tensor(tree.last, device=device)
        self.positions = torch.tensor(tree.positions, device=device)
        self.farthest = max(tree.positions) + self.limit
        numbers = uniforms(seed, rows, max(begun) + self.limit)
        places = torch.tensor(begun)[:, None] + torch.arange(self.limit)
        self.uniforms = numbers.gather(1, places).to(device, torch.float64)
        self.ids = torch.zeros((len(rows), self.limit), dtype=torch.long, device=device)
        self.logprobs = torch.zeros((len(rows), self.limit), device=device)
        self.ended = torch.zeros(len(rows), dtype=torch.bool, device=device)
        self.own = Store(len(rows), min(BLOCK, self.limit))
        self.column = torch.zeros(1, dtype=torch.long, device=device)
        self.drawn = 0
        self.reads_unwritten = True
        """Whether a recorded step reads all own columns; if so, no more of them than needed are allocated."""
        self.stopped = False
        self.aside: dict[int, Completion] = {}
        """The rows for which there was no room, and what they have drawn."""

    def run(self, finished: Ready, enough: Enough | None = None, later: Sequence[int] = ()) -> None:
        """Decode until all rows have ended or are set aside, or until `enough` of them have ended; `later` are rows of later
        batches."""
        while self.rows and not self.stopped:
            if self.drawn == self.own.columns:
                columns = min(2 * self.own.columns, self.limit)
                self._set_aside(max(1, self.room // columns))
                self.own.widen(columns)
            self._decode(enough, later)
            self._remove_ended(finished)

    def unfinished(self) -> dict[int, Completion]:
        """What rows that have not ended have drawn."""
        return self.aside | self._drawn(range(len(self.rows)))

    def _set_aside(self, most: int) -> None:
        """Keep at most this number of rows; the others can be continued later."""
        if len(self.rows) > most:
            self.aside |= self._drawn(range(most, len(self.rows)))
            self._select(range(most))

    def _drawn(self, places: Sequence[int]) -> dict[int, Completion]:
        """What the rows at these places have drawn."""
        if not places:
            return {}
        chosen = torch.tensor(places, device=self.ids.device)
        ids, logprobs = self.ids[chosen, : self.drawn].tolist(), self.logprobs[chosen, : self.drawn].tolist()
        found = zip(places, ids, logprobs, self.limits[chosen].tolist(), strict=True)
        return {
            self.rows[place]: self._completion(tokens[:limit], logs[:limit]) for place, tokens, logs, limit in found
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
                    unfinished = [*(row for row, ended in rows if not ended), *self.aside, *later]
                    self.stopped = enough(unfinished) and self._pays(active)
                if self.stopped or self._sparse(active):
                    return
            if step == self._step and self.sampler.graphs and self.own.columns - self.drawn > 1:
                columns = min(self.limit, WIDE, self.room // len(self.rows))
                if not self.reads_unwritten and self.own.columns < columns:
                    self.own.widen(columns)
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
        self.ended.logical_or_(self.column >= self.limits)

    def _remove_ended(self, finished: Ready) -> None:
        """Reports the completions of rows that drew an end token or reached the limit, and removes these rows."""
        ended = self.ended.tolist()
        removed = [place for place, end in enumerate(ended) if end]
        if not removed:
            return
        for row, completion in self._drawn(removed).items():
            finished(row, completion)
        self._select([place for place, end in enumerate(ended) if not end])

    def _select(self, places: Sequence[int]) -> None:
        self.rows = [self.rows[place] for place in places]
        if not places:
            return
        chosen = torch.tensor(places, device=self.ids.device)
        for name in ("tokens", "positions", "uniforms", "ids", "logprobs", "ended", "limits"):
            setattr(self, name, getattr(self, name).index_select(0, chosen))
        self.own.select(chosen)
        self.levels = [level.select(places) for level in self.levels]

    def _completion(self, ids: list[int], logprobs: list[float]) -> Completion:
        """The tokens up to and including the first end token."""
        ends = (place + 1 for place, token in enumerate(ids) if token in self.sampler.eos_ids)
        end = next(ends, len(ids))
        if any(map(math.isnan, logprobs[:end])):
            raise Diverged(NO_PROBABILITIES)
        return Completion(tuple(ids[:end]), tuple(logprobs[:end]))


def _together(begun: Sequence[int], room: int) -> int:
    """How many of these rows are decoded together: their tokens so far, padded to the longest, take half the room at most."""
    longest = 0
    for place, before in enumerate(begun):
        longest = max(longest, before)
        if place and 2 * (place + 1) * longest > room:
            return place
    return len(begun)


# Drawing a token -------------------------------------------------------------------------------------------------------


def uniforms(seed: int, rows: Sequence[int], count: int) -> Tensor:
    """`count` numbers in [0, 1) for each row, which depend only on the seed and the row's number."""
    return torch.from_numpy(
        np.stack([np.random.Generator(np.random.Philox(key=[seed, row])).random(count) for row in rows])
    )


def draw(logits: Tensor, sampling: Sampling, uniform: Tensor) -> tuple[Tensor, Tensor]:
    """A token for every row, and its log-probability as the trainer computes it: with the temperature, without top-p."""
    if sampling.temperature != 1:  # of rows × vocabulary, and most runs sample at 1
        logits = logits.float() / sampling.temperature
    probabilities = torch.softmax(logits, dim=-1, dtype=torch.float32)
    kept = probabilities if sampling.top_p >= 1 else _nucleus(probabilities, sampling.top_p)
    token = _first_above(kept, uniform)
    return token, probabilities.gather(1, token[:, None])[:, 0].log()


def _first_above(probabilities: Tensor, uniform: Tensor) -> Tensor:
    """The first token at which the cumulative sum exceeds this share of the whole sum, for every row.

    Sums are in fp64, because vocabularies are large: first of blocks, then within one block, so that every probability is
    read once only.
    """
    size = probabilities.shape[1]
    if size <= SUMMED:
        sums = probabilities.double().cumsum_(1)
        return _search(sums, uniform * sums[:, -1])[:, 0]
    whole = size // SUMMED * SUMMED
    blocks = probabilities[:, :whole].unflatten(1, (-1, SUMMED)).sum(-1, dtype=torch.float64)
    rest = probabilities[:, whole:].sum(-1, keepdim=True, dtype=torch.float64)
    sums = torch.cat([blocks, rest], 1).cumsum_(1)
    target = uniform * sums[:, -1]
    block = _search(sums, target)
    target -= torch.nn.functional.pad(sums, (1, 0)).gather(1, block)[:, 0]
    place = block * SUMMED + torch.arange(SUMMED, device=block.device)
    inside = probabilities.gather(1, place.clamp(max=size - 1)).double().masked_fill_(place >= size, 0.0).cumsum_(1)
    return (block * SUMMED + _search(inside, target))[:, 0].clamp_(max=size - 1)


def _search(sums: Tensor, target: Tensor) -> Tensor:
    """The first place of a sum above the target, which rounding may have moved to the last sum."""
    below = torch.minimum(target, sums[:, -1] * (1 - 1e-15))
    return torch.searchsorted(sums, below[:, None], right=True).clamp_(max=sums.shape[1] - 1)


def _nucleus(probabilities: Tensor, top_p: float) -> Tensor:
    """Sets tokens outside the nucleus to 0: the smallest set of likely tokens that reaches `top_p`, as in transformers."""
    rising, order = probabilities.sort(dim=-1)
    dropped = rising.cumsum(-1) <= 1 - top_p
    dropped[:, -1] = False
    return probabilities.masked_fill(torch.zeros_like(dropped).scatter_(1, order, dropped), 0.0)
