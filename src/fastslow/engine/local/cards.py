"""Whether a run fits a GPU that this machine does not have, for `fastslow check --card`."""

from __future__ import annotations

from collections.abc import Iterator

from fastslow.base.errors import FastSlowError
from fastslow.engine.kind import Finding
from fastslow.engine.local.estimate import MEMORY_OF_CARD, TOO_LARGE, plan, weights_of
from fastslow.models.memory import GIB, PREFILL, Shape
from fastslow.models.tokenizer import read_config
from fastslow.recipe import LoraRecipe, Recipe

CARDS = {
    "l4": 24, "a10": 24, "rtx3090": 24, "rtx4090": 24, "rtx5090": 32, "a40": 48, "a6000": 48, "l40s": 48, "a100": 80,
    "h100": 80, "gh200": 96, "h200": 141, "b200": 192,
}  # fmt: skip
"""GB of memory by name; of an A100 there are some with 40."""
RANK = 32
"""Of the adapter that is tried where all weights do not fit."""


def size_of(card: str) -> int:
    """The GB of a card that is given by its name or its GB."""
    name = card.casefold().replace(" ", "").replace("-", "")
    number = name.removesuffix("gb")
    if number.isdecimal() and number.isascii() and 0 < int(number) <= 10_000:
        return int(number)
    if name not in CARDS:
        raise FastSlowError(f"--card {card}: give its memory in GB, as in --card 80, or one of {', '.join(CARDS)}")
    return CARDS[name]


def on_card(recipe: Recipe, prompt: float, card: str) -> Iterator[Finding]:
    """Whether the run fits one such card, or would with an adapter. How long it takes is not calculated."""
    size, model = size_of(card), recipe.model
    shape = Shape.of(read_config(model.name, trust_remote_code=model.trust_remote_code))
    weights = weights_of(recipe, shape)
    if shape is None or weights is None:
        yield Finding("card", f"one of {size} GB: unknown, since the shape of the model is unusual")
        return
    room = int(MEMORY_OF_CARD * size * 10**9)
    if recipe.method == "gepa":
        needed = 4 * weights + PREFILL
        words = f"{needed / GIB:.0f} GiB for weights in fp32 and prompts; what is left holds keys and values"
        yield Finding("card", f"one of {size} GB: {'yes' if needed < room else 'no'}, calculated: {words}")
    elif found := plan(recipe, shape, weights, prompt, room):
        yield Finding("card", f"one of {size} GB: yes, calculated: {found}")
    else:
        adapter = recipe.model_copy(update={"model": model.model_copy(update={"lora": LoraRecipe(rank=RANK)})})
        smaller = None if model.lora else plan(adapter, shape, weights, prompt, room)
        advice = f"with model.lora.rank={RANK}: yes, {smaller}" if smaller else TOO_LARGE
        yield Finding("card", f"one of {size} GB: no, calculated; {advice}")
    yield Finding(
        "time on it",
        "not known without playing there: `fastslow check RECIPE --probe` on it; docs/scale.md has measured steps",
    )
