"""What records hold: how a value is drawn and noted, and the ways in which a house may want it written.

A field has aspects, such as the order of a date and the mark between its parts. An aspect has ways, one of which may be a
convention of the house; without one the value stays as the note gives it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import yaml

from fastslow.tasks.families.formats import values as v


@dataclass(frozen=True)
class Field:
    """One line of a record."""

    notes: Sequence[str]
    """How a note mentions it; {} is its value."""
    aspects: Mapping[str, Mapping[str, str]]
    """By aspect and way, the sentence of the convention."""
    draw: Callable[[random.Random], Any]
    write: Callable[[Any, v.Ways], str]

    def every_way(self) -> Iterator[v.Ways]:
        """All combinations of ways."""
        choices = [[None, *ways] for ways in self.aspects.values()]
        for chosen in product(*choices):
            yield {aspect: way for aspect, way in zip(self.aspects, chosen, strict=True) if way is not None}


_DRAWN: dict[str, tuple[Callable[[random.Random], Any], Callable[[Any, v.Ways], str]]] = {
    "vendor": (lambda draw: (*draw.sample(v.HOUSES, 2), draw.choice(v.FORMS)), v.write_vendor),
    "date": (lambda draw: (draw.randint(1, 28), draw.randint(1, 12), draw.randint(2021, 2029)), v.write_date),
    "amount": (lambda draw: (draw.randint(100_000, 999_999), draw.randrange(len(v.CURRENCIES))), v.write_amount),
    "phone": (lambda draw: (draw.randint(30, 98), *(draw.randint(200, 999) for _ in range(3))), v.write_phone),
    "weight": (lambda draw: draw.randint(11, 99), v.measure_writer({"kg": "kilograms", "g": "grams"}, {"g": 1000})),
    "length": (
        lambda draw: draw.randint(11, 99),
        v.measure_writer({"m": "metres", "cm": "centimetres", "mm": "millimetres"}, {"cm": 100, "mm": 1000}),
    ),
    "person": (lambda draw: (draw.choice(v.FIRST_NAMES), draw.choice(v.LAST_NAMES)), v.write_person),
    "country": (lambda draw: draw.randrange(len(v.COUNTRIES)), v.write_country),
    "time": (lambda draw: (draw.choice([*range(6, 10), *range(13, 22)]), draw.randrange(60)), v.write_time),
    "reference": (
        lambda draw: ("".join(draw.sample("abcdfghkmnpqrstvwxz", 2)), draw.randint(1000, 9999)),
        v.write_reference,
    ),
    "quantity": (lambda draw: (draw.randint(2, 99), draw.choice(v.GOODS)), v.write_quantity),
}
"""How the value of each field is drawn and written; what is said of it stands in fields.yaml."""
FIELDS: dict[str, Field] = {
    name: Field(given["notes"], given["aspects"], *_DRAWN[name])
    for name, given in yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text()).items()
}
