"""From single cases to their class."""

from __future__ import annotations

import pytest

from fastslow.fast.digest.classes import _bare, cut, generalized, states_something


def classes(*said: str, names: tuple[str, ...] = ()) -> list[str]:
    """The texts that sentences come to, each said of a problem of its own; those that say nothing are left out."""
    keys = [(str(place), text) for place, text in enumerate(said)]
    problems = {key: {key[0]: 1} for key in keys}
    texts, empty = generalized((cut(key, ("system",), key[1], names.__contains__) for key in keys), problems)
    return list(dict.fromkeys(texts.get(key, key[1]) for key in keys if key not in empty))


def test_the_number_of_a_problem_is_left_out_of_the_rule() -> None:
    said = [f"A parcel of {weight} kg goes to the amber desk." for weight in (3, 7, 12.5, 40)]
    assert classes(*said) == ["A parcel of … kg goes to the amber desk."]


def test_names_and_quoted_values_of_problems_are_left_out_and_what_all_share_stays() -> None:
    said = [f"The form of {name} needs '{word}' and 2 copies." for name, word in
            (("Ilse", "red"), ("Joren", "blue"), ("Mara", "grey"), ("Tobin", "pink"))]  # fmt: skip
    assert classes(*said, names=("Ilse", "Joren", "Mara", "Tobin")) == ["The form of … needs '…' and 2 copies."]


def test_a_name_of_several_words_is_one_value() -> None:
    vendors = ("Acme Ltd", "Bolt & Sons", "Cora", "Dune Trade Union")
    said = [f"The vendor must be {name.upper()}, not {name}." for name in vendors]
    known = {word.casefold() for name in vendors for word in name.replace("&", "").split()}

    def names(value: str) -> bool:
        return {word.casefold() for word in value.replace("&", "").split()} <= known

    keys = [(str(place), text) for place, text in enumerate(said)]
    problems = {key: {key[0]: 1} for key in keys}
    texts, _ = generalized((cut(key, ("system",), key[1], names) for key in keys), problems)
    assert set(texts.values()) == {"The vendor must be (in capital letters), not …."}


def test_whose_something_is_stays() -> None:
    names = ("Ilse", "Joren", "Mara", "O'Neil")
    assert classes(*(f"{name}'s parcel: name it." for name in names), names=names) == ["…'s parcel: name it."]


def test_of_several_values_that_few_differ_in_only_those_are_shared_that_few_differ_in_together() -> None:
    said = [f"Copy {copy} of the '{kind}' form of {year} is late." for copy in range(1, 25)
            for kind, year in [(("red", "blue")[copy % 2], 2020 + copy % 5)]]  # fmt: skip
    assert classes(*said) == ["Copy … of the 'blue' form of … is late.", "Copy … of the 'red' form of … is late."]


def test_what_several_problems_have_is_left_out_unless_it_tells_something() -> None:
    names = ("Ilse", "Joren", "Mara", "Tobin")
    said = [f"Dear {names[n % 4]}, name form {n}." for n in range(16)]
    assert classes(*said, names=names) == ["Dear …, name form …."]
    said = [f"Field {names[n % 4]} is '{names[n % 4][::-1]}', not '{n}'." for n in range(16)]
    assert classes(*said, names=names) == [f"Field {name} is '{name[::-1]}', not '…'." for name in names]


def test_what_was_expected_of_one_field_is_described_and_not_taken_apart() -> None:
    countries = [("FR", "Lille"), ("DE", "Jena"), ("PL", "Lodz"), ("DE", "Kiel"), ("FR", "Metz"), ("PL", "Posen")]
    said = [f"The country is expected {code} but got {city}." for code, city in countries]
    names = tuple(city for _, city in countries)
    assert classes(*said, names=names) == ["The country is expected (in capital letters) but got …."]
    units = [f"expected '{('kg', 'EUR')[n % 2]}', got '{n}'" for n in range(12)]
    assert classes(*units) == ["expected 'kg', got '…'", "expected 'EUR', got '…'"]


def test_what_says_nothing_without_its_values_is_no_rule() -> None:
    assert classes(*(f"expected {7 * n}, got {n}." for n in range(1, 6))) == []
    assert classes(*(f"it must go to {n}." for n in range(1, 6))) == []


def test_what_was_said_of_one_problem_alone_is_not_yet_a_class() -> None:
    """Three numbers for each of two desks; the second desk's were all said of one problem, the first's of two."""
    said = {f"A parcel of {n} kg goes to desk {desk}.": f"{desk}{n > most}" for desk, most in ((1, 5), (2, 99))
            for n in (3, 7, 12)}  # fmt: skip
    keys = [(str(place), text) for place, text in enumerate(said)]
    problems = {key: {said[key[1]]: 1} for key in keys}
    texts, empty = generalized((cut(key, ("system",), key[1], lambda _: False) for key in keys), problems)
    assert set(texts.values()) == {"A parcel of … kg goes to desk 1."}
    assert len(texts) == 3
    assert not empty


def test_values_of_the_questions_are_left_out_however_many_problems_share_them() -> None:
    """Eight towns, each of three problems: a rule for some towns would not name so many."""
    towns = ["Aarhus", "Bari", "Cork", "Ghent", "Graz", "Leeds", "Lyon", "Oslo"]

    def texts(named: list[str], *told: str) -> set[str]:
        spelt = [text.format(town=town, TOWN=town.upper()) for text in told for town in named]
        keys = [(str(place), text) for place, text in enumerate(spelt)]
        problems = {key: {f"{key[0]}{copy}": 1 for copy in range(3)} for key in keys}
        cuts = [cut(key, ("system",), key[1], lambda word: word.capitalize() in towns) for key in keys]
        return set(generalized(cuts, problems)[0].values())

    assert texts(towns, "{town} must be named first.") == {"… must be named first."}
    assert texts(towns, "the town is '{TOWN}', not '…'") == {"the town is (in capital letters), not '…'"}
    assert texts(towns[:7], "{town} must be named first.") == set()
    assert texts(towns, "Send what is for {town} by ship.", "Send what is for {town} by tram.") == {
        "Send what is for … by ship.", "Send what is for … by tram."}  # fmt: skip
    assert texts([f"Town{letter}" for letter in "ABCDEFGH"], "Go to '{town}' first.") == set()


def test_what_the_value_decides_is_looked_up() -> None:
    """Eight towns by ship, eight others by tram."""
    towns = [
        "Aarhus", "Bari", "Cork", "Ghent", "Graz", "Leeds", "Lyon", "Oslo",
        "Pisa", "Quito", "Riga", "Rome", "Split", "Turin", "Ulm", "York",
    ]  # fmt: skip
    said = [f"Send what is for {town} by {'ship' if place < 8 else 'tram'}." for place, town in enumerate(towns)]
    problems = {(text, text): {f"{text}{copy}": 1 for copy in range(3)} for text in said}
    leads = ["stop:" if " ship" in text else "by:" for text in said]
    for before, found in ((["by:"] * 16, 0), (leads, 16)):
        cuts = [
            cut(key, ("system", lead), key[1], lambda word: word in towns)
            for key, lead in zip(problems, before, strict=True)
        ]
        assert len(generalized(cuts, problems)[0]) == found


def test_the_more_numbers_there_are_the_more_problems_may_share_one() -> None:
    def texts(count: int) -> set[str]:
        keys = [(str(number), f"worker {number} was lost in the queue") for number in range(count)]
        problems = {key: {f"{key[0]}{copy}": 1 for copy in range(3)} for key in keys}
        return set(generalized([cut(key, ("system",), key[1], lambda _: False) for key in keys], problems)[0].values())

    assert texts(24) == {"worker … was lost in the queue"}
    assert texts(23) == set()


def test_identifiers_are_left_out_and_words_of_the_same_letters_stay() -> None:
    ids = ["c17c23c6612f", "0x9555ba91", "8f4f78de-5857-4a1b", "25b9fe6f4590b"]
    assert classes(*(f"name the unit (request {each})" for each in ids)) == ["name the unit (request …)"]
    words = ["defaced", "effaced", "acceded", "accede12"]
    said = [f"name the {word} unit" for word in words]
    assert classes(*said) == said


def test_single_letters_have_no_case() -> None:
    for values, given in (("ABCD", "x"), ("abcd", "X")):
        said = [f"the field must be '{value}', you wrote '{given} {place}'" for place, value in enumerate(values)]
        assert not any("case" in text or "capital" in text for text in classes(*said))


def test_a_few_numbers_may_be_rules() -> None:
    said = ["Use at most 7 steps.", "Use at most 9 steps.", "Use at most 11 steps."]
    assert classes(*said) == said


@pytest.mark.parametrize(
    ("expected", "given", "form"),
    [
        (
            ("2026-03-07", "2025-11-30", "2024-01-02", "2023-12-24"),
            "7 March",
            "in the form 0000-00-00, 0 for any digit",
        ),
        (("ACME LTD", "BOLT INC", "CORA AG", "DUNE BV"), "Acme", "in capital letters"),
        (("1.50", "20.00", "3.75", "14.20"), "EUR", "with two decimals"),
        (("12 kg", "3 kg", "450 kg", "7 kg"), "12000 g", 'ending in " kg"'),
    ],
)
def test_values_that_vary_are_described_by_the_form_they_share(
    expected: tuple[str, ...], given: str, form: str
) -> None:
    said = [f"the field must be '{value}', you wrote '{given} {place}'" for place, value in enumerate(expected)]
    (text,) = classes(*said)
    assert form in text
    assert not any(value in text for value in expected)


def test_verdicts_state_nothing() -> None:
    said = [
        "Wrong.",
        "Incorrect answer.",
        "That is not right.",
        "Well done!",
        "Expected 17, got 19.",
        "Total: 3/15",
        "Fine.",
    ]
    assert not any(map(states_something, said))
    assert all(map(states_something, ["Use JSON.", "A visa goes to amber.", "错误：日期必须用横线。"]))


def test_a_value_is_taken_out_of_its_quotation_marks() -> None:
    assert [_bare(value) for value in ('"ab"', "''", "(a)", '"', "-3", "7", "ab")] == [
        "ab",
        "",
        "a",
        '"',
        "-3",
        "7",
        "ab",
    ]
