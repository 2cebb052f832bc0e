"""What a method is called and looks like, everywhere."""

from __future__ import annotations

from dataclasses import dataclass

from fastslow.recipe.model import Method


@dataclass(frozen=True)
class Look:
    """How a method is shown: its name, what it does in a few words, a colour and a marker."""

    name: str
    does: str
    colour: str
    marker: str


# Colours of Okabe and Ito, which people with any kind of colour vision can tell apart.
LOOKS: dict[Method, Look] = {
    "fst": Look("FST", "evolves the prompt and trains the weights", "#D55E00", "o"),
    "rl": Look("RL only", "trains the weights", "#0072B2", "s"),
    "gepa": Look("GEPA only", "evolves the prompt", "#009E73", "^"),
    "distill": Look("FST-distill", "trains what the prompt does into the weights", "#CC79A7", "D"),
}
BASE = Look("base model", "", "#000000", "X")
"""A model that none of them has trained."""
LINES = ("-", "--", ":", "-.")
"""Of several arms with one method, which share its colour where there are other methods beside them."""
MORE_COLOURS = ("#E69F00", "#000000", "#56B4E9")
"""Of the second arm and those after it, where all arms are of one method."""
