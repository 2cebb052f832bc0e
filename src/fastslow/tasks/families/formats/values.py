"""The values of records: the words they are drawn from, and how each is written in the ways that are chosen."""

from __future__ import annotations

from collections.abc import Callable, Mapping

Ways = Mapping[str, str]
"""The way that is chosen of each aspect of a field; an aspect that is not named stays as the note gives it."""

MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
          "December")  # fmt: skip
CURRENCIES = (("euros", "EUR", "€"), ("dollars", "USD", "$"), ("pounds", "GBP", "£"), ("yen", "JPY", "¥"))
COUNTRIES = (
    ("Germany", "DE", "DEU"), ("France", "FR", "FRA"), ("Italy", "IT", "ITA"), ("Spain", "ES", "ESP"),
    ("Japan", "JP", "JPN"), ("Canada", "CA", "CAN"), ("Brazil", "BR", "BRA"), ("India", "IN", "IND"),
    ("Norway", "NO", "NOR"), ("Kenya", "KE", "KEN"), ("Peru", "PE", "PER"), ("Australia", "AU", "AUS"),
)  # fmt: skip
HOUSES = (
    "Brindle", "Marsh", "Dunmere", "Varrow", "Ossel", "Pellham", "Corvin", "Tarn", "Holm", "Lisk", "Aldous", "Quill",
)  # fmt: skip
FORMS = ("Ltd", "GmbH", "Inc", "SA")
FIRST_NAMES = ("Ilse", "Joren", "Mara", "Tobin", "Edda", "Rosa", "Viggo", "Nadia", "Ansel", "Orla", "Bram", "Tilda")
LAST_NAMES = (
    "Marend", "Lott", "Vance", "Okoro", "Haas", "Brandt", "Silva", "Moreau", "Kimura", "Novak", "Dahl", "Reyes",
)  # fmt: skip
GOODS = ("boxes", "crates", "rolls", "sheets", "bottles", "sacks", "tins", "bags")
DOCUMENTS = ("Invoice", "Booking", "Delivery", "Order", "Return", "Repair")


def write_vendor(value: tuple[str, str, str], ways: Ways) -> str:
    first, second, form = value
    words = [first, ways.get("and", "&"), second, *([] if "form" in ways else [form])]
    text = ways.get("joint", " ").join(words)
    return {"capitals": text.upper(), "small": text.lower()}.get(ways.get("case", ""), text)


def write_date(value: tuple[int, int, int], ways: Ways) -> str:
    day, month, year = value
    digits = 2 if "digits" in ways else 1
    name = MONTHS[month - 1]
    parts = {
        "D": f"{day:0{digits}d}",
        "M": {"number": f"{month:0{digits}d}", "short": name[:3]}.get(ways.get("month", ""), name),
        "Y": str(year)[2:] if "year" in ways else str(year),
    }
    return ways.get("joint", " ").join(parts[part] for part in ways.get("order", "DMY"))


def write_amount(value: tuple[int, int], ways: Ways) -> str:
    cents, currency = value
    number = f"{cents:,}" if "unit" in ways else f"{cents // 100:,}.{cents % 100:02d}"
    number = number.replace(",", ways.get("thousands", ","))
    mark = CURRENCIES[currency][{"code": 1, "sign": 2}.get(ways.get("currency", ""), 0)]
    return f"{mark} {number}" if "place" in ways else f"{number} {mark}"


def write_phone(value: tuple[int, int, int, int], ways: Ways) -> str:
    code, *groups = value
    begin = {"00": f"00{code}", "brackets": f"(+{code})"}.get(ways.get("begin", ""), f"+{code}")
    return ways.get("joint", " ").join([begin, *map(str, groups)])


def measure_writer(names: Mapping[str, str], units: Mapping[str, int]) -> Callable[[int, Ways], str]:
    """A measurement in tenths of the first unit; of the others, how many make one of the first."""
    usual = next(iter(names))

    def write(tenths: int, ways: Ways) -> str:
        unit = ways.get("unit", usual)
        number = str(tenths * units[unit] // 10) if unit in units else f"{tenths // 10}.{tenths % 10}"
        shown = {"word": names[unit], "capitals": unit.upper()}.get(ways.get("symbol", ""), unit)
        return ways.get("gap", " ").join([number, shown])

    return write


def write_person(value: tuple[str, str], ways: Ways) -> str:
    first, last = value
    first = f"{first[0]}." if "first" in ways else first
    last = last.upper() if "case" in ways else last
    return f"{last}, {first}" if "order" in ways else f"{first} {last}"


def write_country(value: int, ways: Ways) -> str:
    text = COUNTRIES[value][{"two": 1, "three": 2}.get(ways.get("code", ""), 0)]
    text = text.lower() if "case" in ways else text
    return {"round": f"({text})", "square": f"[{text}]"}.get(ways.get("frame", ""), text)


def write_time(value: tuple[int, int], ways: Ways) -> str:
    hour, minute = value
    shown, half = (hour, "") if "clock" in ways else ((hour - 1) % 12 + 1, " pm" if hour >= 12 else " am")
    return f"{shown:0{2 if 'digits' in ways else 1}d}{ways.get('joint', ':')}{minute:02d}{half}"


def write_reference(value: tuple[str, int], ways: Ways) -> str:
    text = ways.get("joint", "-").join(map(str, value))
    return ways.get("begin", "") + (text.upper() if "case" in ways else text)


def write_quantity(value: tuple[int, str], ways: Ways) -> str:
    number, unit = value
    shown = f"{number:0{4 if 'digits' in ways else 1}d}"
    return {"none": shown, "first": f"{unit} {shown}"}.get(ways.get("unit", ""), f"{shown} {unit}")
