"""How much memory a run needs, calculated from the shape of its model: for `fastslow check`, and for the engine that fits
micro-batches, sampler batches and vLLM's share to a GPU.

Bytes of activations are those that torch keeps for the backward pass of a transformers decoder with RMS norms of queries and
keys, gated MLP and fused attention, counted tensor by tensor (tests/models/test_memory.py compares them with what torch
holds). A model without these norms keeps a little less.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fastslow.recipe import Recipe

GIB = 2**30
USABLE = 0.9
"""Share of free memory that is planned with; the rest is for fragments, workspaces and what the formulas leave out."""
HEAD = GIB // 2
"""Logits in tiles, forward and backward: they do not grow with the tokens."""
DISTILLED_HEAD = 3 * GIB
"""The same where two distributions over the vocabulary are compared."""
PREFILL = 2 * GIB
"""Activations and attention of prompts in the own sampler, which limits how many tokens it computes together."""
DRAWING = 32
"""Bytes of a logit while a token is drawn: logits, probabilities and, with top-p, their order and sums."""
FEW_TOKENS = 512
"""Tokens of an answer for which there is room in every row of the own sampler."""
VLLM = 3 * GIB
"""vLLM's activations and CUDA graphs."""
MOST_TOKENS = 2**15
"""Of a micro-batch: more are hardly faster."""
ENOUGH_TOKENS = 2**13
"""Of a micro-batch: activations are kept if as many fit, and recomputed otherwise."""


@dataclass(frozen=True)
class Shape:
    layers: int
    hidden: int
    intermediate: int
    """Features inside the MLP; of a mixture, those of the experts that a token passes through."""
    heads: int
    key_heads: int
    head_size: int
    vocabulary: int
    tied: bool
    """Whether the output layer is the embedding."""
    experts: float = 1.0
    """Stored experts for each one that a token passes through."""

    @classmethod
    def of(cls, config: Any) -> Shape | None:
        """The shape in a transformers config, or None if it has not the usual names."""
        config = config.get_text_config(decoder=True)
        try:
            heads, hidden = config.num_attention_heads, config.hidden_size
            width, experts = getattr(config, "intermediate_size", None), 1.0
            if not isinstance(width, int | None):  # one for each layer
                return None
            if stored := getattr(config, "num_experts", None) or getattr(config, "num_local_experts", None):
                used = config.num_experts_per_tok
                width, experts = used * (getattr(config, "moe_intermediate_size", None) or width), stored / used
            return cls(
                layers=config.num_hidden_layers,
                hidden=hidden,
                intermediate=width or 4 * hidden,
                heads=heads,
                key_heads=getattr(config, "num_key_value_heads", None) or heads,
                head_size=getattr(config, "head_dim", None) or hidden // heads,
                vocabulary=config.vocab_size,
                tied=bool(getattr(config, "tie_word_embeddings", False)),
                experts=experts,
            )
        except (AttributeError, TypeError):
            return None

    @property
    def queries(self) -> int:
        return self.heads * self.head_size

    @property
    def keys(self) -> int:
        return self.key_heads * self.head_size

    def _matrices(self) -> Iterator[tuple[int, int]]:
        """Inputs and outputs of the linear layers of one block."""
        yield from ((self.hidden, self.queries), (self.hidden, self.keys), (self.hidden, self.keys))
        yield (self.queries, self.hidden)
        yield from ((self.hidden, self.intermediate), (self.hidden, self.intermediate))
        yield (self.intermediate, self.hidden)

    @property
    def linear_weights(self) -> int:
        *attention, gate, up, down = (one * other for one, other in self._matrices())
        return self.layers * (sum(attention) + round(self.experts * (gate + up + down)))

    @property
    def weights(self) -> int:
        embeddings = self.vocabulary * self.hidden * (1 if self.tied else 2)
        norms = self.layers * (2 * self.hidden + 2 * self.head_size) + self.hidden
        return self.linear_weights + embeddings + norms

    def adapter_weights(self, rank: int) -> int:
        """Of LoRA on every linear layer."""
        return self.layers * rank * sum(one + other for one, other in self._matrices())

    def key_bytes(self, width: int) -> int:
        """Keys and values of one token in all layers, in numbers of `width` bytes."""
        return 2 * self.layers * self.keys * width


@dataclass(frozen=True)
class Footprint:
    """The memory of a run in one process."""

    shape: Shape
    weights: int
    """Weights of the model, without an adapter."""
    trained: int
    rank: int | None
    """Of the adapter; None if all weights are trained."""
    bf16: bool
    """Whether activations are in bf16: a frozen base is then too, trained weights are in fp32."""
    reference: bool = False
    """Whether a copy of the base model is loaded for the KL penalty."""
    distilled: bool = False
    """Whether a teacher is compared with: a copy of the trained weights."""

    @classmethod
    def of(cls, recipe: Recipe, shape: Shape, weights: int, trained: int, *, bf16: bool) -> Footprint:
        lora, penalized = recipe.model.lora, bool(recipe.slow.kl) and recipe.method != "distill"
        reference = lora is None and (penalized or recipe.evaluation.divergence)
        return cls(shape, weights, trained, lora.rank if lora else None, bf16, reference, recipe.teaches)

    @property
    def loaded(self) -> int:
        """Bytes of weights, adapter, reference model and teacher."""
        base = (2 if self.bf16 and self.rank else 4) * self.weights
        adapter = 4 * self.trained if self.rank else 0
        return base + adapter + 4 * self.weights * self.reference + 4 * self.trained * self.distilled

    @property
    def gradients(self) -> int:
        """Bytes of gradients, and of the bf16 copies of trained weights that are computed with."""
        return (6 if self.bf16 else 4) * self.trained

    @property
    def moments(self) -> int:
        return 8 * self.trained

    @property
    def fixed(self) -> int:
        """Bytes of an update that do not depend on its tokens."""
        return self.loaded + self.gradients + self.moments + self.head

    @property
    def head(self) -> int:
        return DISTILLED_HEAD if self.distilled else HEAD

    def layer_bytes(self) -> int:
        """Activations of a token that one layer keeps for the backward pass."""
        shape, lora = self.shape, self.rank is not None
        # Inputs of norms and linear layers; queries, keys and values around norm and attention; gate, up and product.
        hidden, queries, keys, gated = {
            (True, True): (12, 14, 4, 8),
            (True, False): (26, 16, 6, 8),
            (False, True): (16, 24, 4, 16),
            (False, False): (24, 28, 8, 16),
        }[self.bf16, lora]
        adapter = 7 * (2 if self.bf16 else 4) * (self.rank or 0)
        statistics = 4 * (2 + 2 * shape.heads + shape.key_heads)
        wide = hidden * shape.hidden + queries * shape.queries + keys * shape.keys + gated * shape.intermediate
        return wide + adapter + statistics

    def token_bytes(self, checkpointing: bool) -> int:
        """What a token adds to the peak of an update."""
        shape, width = self.shape, 2 if self.bf16 else 4
        passing = 2 * width * shape.intermediate + 16 * shape.hidden  # in one layer, forward or backward
        if not checkpointing:
            return shape.layers * self.layer_bytes() + passing
        residual = (2 if self.bf16 and self.rank else 4) * shape.hidden
        return shape.layers * residual + self.layer_bytes() + passing

    def update_bytes(self, tokens: int, checkpointing: bool) -> int:
        """The peak of an update in micro-batches of `tokens` tokens."""
        return self.fixed + tokens * self.token_bytes(checkpointing)

    def microbatch(self, free: int, longest: int, checkpointing: bool | None) -> tuple[int, bool]:
        """Tokens of a micro-batch, and whether activations are recomputed, with `free` bytes for both.

        Without a wish, they are kept if a micro-batch is then large enough and holds two of the longest rows. The number is
        rounded, so that a little more or less free memory does not change how rows are divided.
        """
        room = USABLE * free - self.head
        tokens = {wish: rounded_down(int(room / self.token_bytes(wish))) for wish in (False, True)}
        if checkpointing is None:
            checkpointing = tokens[False] < max(ENOUGH_TOKENS, 2 * longest)
        return min(MOST_TOKENS, tokens[checkpointing]), checkpointing

    def sampling_bytes(self, rows: int, prompts: int, answers: int) -> int:
        """The peak of the own sampler on a GPU: `rows` completions of `answers` tokens in all, after `prompts` tokens."""
        shape = self.shape
        weights = self.loaded + (2 * shape.linear_weights if self.rank else 2 * self.trained * self.bf16)
        keys = (answers + prompts) * shape.key_bytes(2 if self.bf16 else 4)
        return weights + self.moments + PREFILL + keys + rows * shape.vocabulary * DRAWING

    def vllm_share(self, card: int, room: int, rows: int, most_tokens: int) -> float:
        """The share of a card for vLLM in the trainer's process, which has `room` bytes of it: its weights, and keys and
        values of all rows at full length if they fit beside an update with micro-batches that are large enough. vLLM makes do
        with less."""
        least = 2 * self.weights + VLLM
        wanted = rows * (most_tokens + ENOUGH_TOKENS // 8) * self.shape.key_bytes(2)
        trainer = self.update_bytes(2 * ENOUGH_TOKENS, checkpointing=True)
        keys = max(min(wanted, int(USABLE * room) - trainer - least), most_tokens * self.shape.key_bytes(2))
        return min(0.95, max(0.05, round((least + keys) / card, 2)))


def answers_that_fit(
    shape: Shape, width: int, free: int, contexts: int, prompt: float, rows: int, most_tokens: int
) -> tuple[int, int]:
    """How many completions the own sampler decodes together in `free` bytes, at most `rows`, and how many tokens of theirs it
    stores; keys and values have `width` bytes a number. `contexts` are tokens that they share, `prompt` those of each.

    There is room for `FEW_TOKENS` of each. Few answers are much longer, and the sampler sets rows aside if many are.
    """
    key = shape.key_bytes(width)
    room = max(USABLE * free - PREFILL, free / 2) - contexts * key
    each = prompt * key + shape.vocabulary * DRAWING
    rows = max(1, min(rows, int(room / (each + min(most_tokens, FEW_TOKENS) * key))))
    return rows, max(most_tokens, min(rows * most_tokens, int((room - rows * each) / key)))


def rounded_down(number: int) -> int:
    """To a power of two, or one and a half of it."""
    if number < 2:
        return max(number, 1)
    power = 1 << (number.bit_length() - 1)
    return power + power // 2 if number >= power + power // 2 else power
