"""JSON values are equal by value and type, and the first difference is found and named."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastslow.tasks.reading import Difference, first_difference, show, type_name

numbers = st.integers(-(10**12), 10**12) | st.floats(-1e9, 1e9, allow_nan=False)
scalars = st.none() | st.booleans() | numbers | st.text(max_size=8)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)


@given(values)
def test_a_value_equals_itself_after_a_round_trip(value: Any) -> None:
    assert first_difference(value, json.loads(json.dumps(value))) is None


@given(st.dictionaries(st.text(max_size=4), values, min_size=2, max_size=5))
def test_the_order_of_keys_does_not_matter(value: dict[str, Any]) -> None:
    assert first_difference(value, dict(reversed(value.items()))) is None


def places(value: Any, place: str = "") -> list[tuple[str, Any]]:
    """Every value inside a value, with its place."""
    inner: list[tuple[str, Any]] = [(place, value)]
    if isinstance(value, list):
        for index, item in enumerate(value):
            inner += places(item, f"{place}[{index}]")
    elif isinstance(value, dict):
        for key, item in value.items():
            inner += places(item, f"{place}[{show(key)}]")
    return inner


def put(value: Any, place: str, wanted: str, new: Any) -> Any:
    """A copy of the value with something else at one place."""
    if place == wanted:
        return new
    if isinstance(value, list):
        return [put(item, f"{place}[{index}]", wanted, new) for index, item in enumerate(value)]
    if isinstance(value, dict):
        return {key: put(item, f"{place}[{show(key)}]", wanted, new) for key, item in value.items()}
    return value


def changes(value: Any) -> list[tuple[str, Any]]:
    """Single changes of a value with the kind of difference each must be found as."""
    wrapped = ("type", [value]) if not isinstance(value, list) else ("length", [*value, None])
    found: list[tuple[str, Any]] = [wrapped, ("type", None if value is not None else 0)]
    if isinstance(value, bool):
        found += [("value", not value), ("type", int(value)), ("type", str(value))]
    elif isinstance(value, int):
        found += [("value", value + 1), ("number", float(value)), ("type", str(value)), ("type", bool(value))]
    elif isinstance(value, float):
        found += [("value", value + max(1.0, abs(value))), ("number", round(value)), ("type", str(value))]
    elif isinstance(value, str):
        found += [("value", value + " "), ("type", [value])]
    elif isinstance(value, list) and value:
        found += [("length", value[1:]), ("length", [])]
    elif isinstance(value, dict):
        found += [("extra key", {**value, "brand new key": 1})]
        if value:
            found += [("missing key", dict(list(value.items())[1:]))]
    return found


@given(values, st.data())
def test_any_single_change_is_found_and_named(value: Any, data: st.DataObject) -> None:
    place, old = data.draw(st.sampled_from(places(value)))
    kind, new = data.draw(st.sampled_from(changes(old)))
    difference = first_difference(value, put(value, "", place, new))
    assert difference is not None
    assert (difference.kind, difference.place) == (kind, place)
    assert (difference.expected, difference.given) == (old, new)
    back = first_difference(put(value, "", place, new), value)
    assert back is not None
    assert back.place == place


@pytest.mark.parametrize(
    ("expected", "given_value", "kind"),
    [
        (1, 1.0, "number"),
        (1.0, 1, "number"),
        (1, "1", "type"),
        (1, True, "type"),
        (True, 1, "type"),
        (False, None, "type"),
        (0, None, "type"),
        ("", None, "type"),
        ([], {}, "type"),
        ([], None, "type"),
        ("null", None, "type"),
        (1.5, "1.5", "type"),
        (0.1, 0.1000001, "value"),
        (1234567.89, 1234567.88, "value"),
        (1e-3, 2e-3, "value"),
        ("a", "A", "value"),
        ("a", "a ", "value"),
        ([1, 2], [2, 1], "value"),
        ([1], [1, 1], "length"),
        ({"a": 1}, {"A": 1}, "missing key"),
        ({"a": 1}, {"a": 1, "b": 2}, "extra key"),
        ({}, {"a": None}, "extra key"),
        ({"a": None}, {}, "missing key"),
        (10**30, 10**30 + 1, "value"),
        (1.0, float("inf"), "value"),
    ],
)
def test_near_misses_are_differences(expected: Any, given_value: Any, kind: str) -> None:
    difference = first_difference(expected, given_value)
    assert difference is not None
    assert difference.kind == kind


@pytest.mark.parametrize(
    ("expected", "given_value"),
    [
        (0.1 + 0.2, 0.3),
        (1 / 3, 0.3333333333),
        (33.333333333333336, 33.33333333333),
        (0.0, -0.0),
        (1e300, 1.0000000001e300),
    ],
)
def test_floats_need_nine_digits(expected: float, given_value: float) -> None:
    assert first_difference(expected, given_value) is None


def test_the_first_of_several_differences_is_named() -> None:
    expected = {"a": [1, {"b": "x"}], "c": 2}
    assert first_difference(expected, {"a": [1, {"b": "y"}], "c": 3}) == Difference("value", '["a"][1]["b"]', "x", "y")
    assert first_difference(expected, {"c": 3}) == Difference("missing key", "", expected, {"c": 3}, "a")


def test_every_json_type_has_a_name() -> None:
    names = [type_name(value) for value in (None, True, 1, 1.0, "", [], {})]
    assert names == ["null", "boolean", "integer", "float", "string", "array", "object"]
