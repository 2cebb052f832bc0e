"""What records hold: how a value is drawn and noted, and the ways in which a house may want it written.

A field has aspects, such as the order of a date and the mark between its parts. An aspect has ways, one of which may be a
convention of the house; without one the value stays as the note gives it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

from fastslow.tasks.families.formats import values as v


@dataclass(frozen=True)
class Field:
    """One line of a record."""

    name: str
    notes: tuple[str, ...]
    """How a note mentions it; {} is its value."""
    draw: Callable[[random.Random], Any]
    write: Callable[[Any, v.Ways], str]
    aspects: Mapping[str, Mapping[str, str]]
    """By aspect and way, the sentence of the convention."""

    def every_way(self) -> Iterator[v.Ways]:
        """All combinations of ways."""
        choices = [[None, *ways] for ways in self.aspects.values()]
        for chosen in product(*choices):
            yield {aspect: way for aspect, way in zip(self.aspects, chosen, strict=True) if way is not None}


JOINTS = {"-": "hyphens", "/": "slashes", ".": "full stops", "_": "underscores", "": "nothing, not even a space,"}


def _joints(marks: str, sentence: str) -> dict[str, str]:
    """A way for each mark, and one for none where `marks` ends with a space."""
    return {mark: sentence.format(JOINTS[mark]) for mark in (part.strip() for part in marks)}


def _unit_ways(name: str, units: Mapping[str, str]) -> dict[str, dict[str, str]]:
    return {
        "unit": {unit: f"Convert the {name} to {word}." for unit, word in units.items()},
        "symbol": {
            "word": f"Spell out the unit of the {name} instead of its symbol.",
            "capitals": f"Write the unit of the {name} in capital letters.",
        },
        "gap": {
            "": f"Leave no space between the number and the unit of the {name}.",
            "_": f"Put an underscore between the number and the unit of the {name}.",
        },
    }


_ALL = (
    Field(
        "vendor",
        ("sold by {}", "from the firm {}"),
        lambda draw: (*draw.sample(v.HOUSES, 2), draw.choice(v.FORMS)),
        v.write_vendor,
        {
            "case": {
                "capitals": "Write the vendor in capital letters.",
                "small": "Write the vendor in small letters.",
            },
            "form": {"none": "Leave out the legal form of the vendor, such as Ltd or GmbH."},
            "and": {"and": "Replace the & of the vendor by the word and.", "+": "Replace the & of the vendor by +."},
            "joint": _joints("-_", "Put {} instead of spaces between the words of the vendor."),
        },
    ),
    Field(
        "date",
        ("dated {}", "on {}"),
        lambda draw: (draw.randint(1, 28), draw.randint(1, 12), draw.randint(2021, 2029)),
        v.write_date,
        {
            "order": {
                "YMD": "Write the year of the date first, then the month, then the day.",
                "MDY": "Write the month of the date first, then the day, then the year.",
            },
            "month": {
                "number": "Write the month of the date as a number.",
                "short": "Shorten the month of the date to its first three letters.",
            },
            "joint": _joints("-/.", "Put {} between the parts of the date."),
            "digits": {"two": "Write the day of the date with two digits, and so the month where it is a number."},
            "year": {"two": "Write the year of the date with its last two digits only."},
        },
    ),
    Field(
        "amount",
        ("total of {}", "price {}"),
        lambda draw: (draw.randint(100_000, 999_999), draw.randrange(len(v.CURRENCIES))),
        v.write_amount,
        {
            "unit": {"cents": "Multiply the amount by 100 and write it without a decimal point."},
            "thousands": {
                "": "Write the amount without a thousands separator.",
                "'": "Use an apostrophe as the thousands separator of the amount.",
            },
            "currency": {
                "code": "Write the currency of the amount as its three-letter code.",
                "sign": "Write the currency of the amount as its sign.",
            },
            "place": {"before": "Put the currency before the number of the amount, with a space between them."},
        },
    ),
    Field(
        "phone",
        ("phone {}", "call {}"),
        lambda draw: (draw.randint(30, 98), *(draw.randint(200, 999) for _ in range(3))),
        v.write_phone,
        {
            "begin": {
                "00": "Begin the phone number with 00 instead of +.",
                "brackets": "Put the country code of the phone number in round brackets, the + included.",
            },
            "joint": _joints("-/. ", "Put {} between the groups of the phone number."),
        },
    ),
    Field(
        "weight",
        ("weighs {}", "{} in weight"),
        lambda draw: draw.randint(11, 99),
        v.measure_writer({"kg": "kilograms", "g": "grams"}, {"g": 1000}),
        _unit_ways("weight", {"g": "grams"}),
    ),
    Field(
        "length",
        ("{} long", "measures {}"),
        lambda draw: draw.randint(11, 99),
        v.measure_writer({"m": "metres", "cm": "centimetres", "mm": "millimetres"}, {"cm": 100, "mm": 1000}),
        _unit_ways("length", {"cm": "centimetres", "mm": "millimetres"}),
    ),
    Field(
        "person",
        ("for {}", "signed by {}"),
        lambda draw: (draw.choice(v.FIRST_NAMES), draw.choice(v.LAST_NAMES)),
        v.write_person,
        {
            "order": {"last": "Write the surname of the person first, then a comma and the first name."},
            "case": {"capitals": "Write the surname of the person in capital letters."},
            "first": {"initial": "Shorten the first name of the person to its first letter and a full stop."},
        },
    ),
    Field(
        "country",
        ("bound for {}", "sent to {}"),
        lambda draw: draw.randrange(len(v.COUNTRIES)),
        v.write_country,
        {
            "code": {
                "two": "Write the country as its two-letter code.",
                "three": "Write the country as its three-letter code.",
            },
            "case": {"small": "Write the country in small letters."},
            "frame": {"round": "Put the country in round brackets.", "square": "Put the country in square brackets."},
        },
    ),
    Field(
        "time",
        ("at {}", "due by {}"),
        lambda draw: (draw.choice([*range(6, 10), *range(13, 22)]), draw.randrange(60)),
        v.write_time,
        {
            "clock": {"24": "Write the time on the 24-hour clock, without am or pm."},
            "digits": {"two": "Write the hour of the time with two digits."},
            "joint": {
                ".": "Put a full stop between the hour and the minutes of the time.",
                "h": "Put the letter h between the hour and the minutes of the time.",
            },
        },
    ),
    Field(
        "reference",
        ("reference {}", "filed as {}"),
        lambda draw: ("".join(draw.sample("abcdfghkmnpqrstvwxz", 2)), draw.randint(1000, 9999)),
        v.write_reference,
        {
            "case": {"capitals": "Write the letters of the reference as capitals."},
            "joint": _joints("/._ ", "Put {} between the letters and the digits of the reference."),
            "begin": {"#": "Begin the reference with #.", "REF ": "Begin the reference with REF and a space."},
        },
    ),
    Field(
        "quantity",
        ("{} in all", "contains {}"),
        lambda draw: (draw.randint(2, 99), draw.choice(v.GOODS)),
        v.write_quantity,
        {
            "digits": {"four": "Write the number of the quantity with four digits, zeros in front."},
            "unit": {
                "none": "Write the quantity as a number alone, without what is counted.",
                "first": "Write what is counted before the number of the quantity.",
            },
        },
    ),
)
FIELDS: dict[str, Field] = {field.name: field for field in _ALL}
