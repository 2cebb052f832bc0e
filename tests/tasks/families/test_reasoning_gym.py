"""Reasoning-gym: every generator makes problems that can be won, in splits that share no question, and the scorers' weak
spots give nothing away."""

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastslow.base.errors import RecipeError, TaskError
from fastslow.recipe import build_recipe
from fastslow.tasks.base import Example, Feedback, Split
from fastslow.tasks.families import reasoning_gym
from fastslow.tasks.families.reasoning_gym import READINGS, ReasoningGym, ReasoningGymOptions, home_of
from fastslow.tasks.registry import build_task

SPLITS: tuple[Split, ...] = ("train", "validation", "test")
GENERATORS: list[str] = reasoning_gym._ask(do="names")
ADVICE = {reasoning_gym.CHECK, reasoning_gym.FINISH, reasoning_gym.KEEP_THE_FORM, *reasoning_gym.FORMS.values()}
# Any valid answer is right, and none is stored.
NO_REFERENCE = {"boxnet", "graph_color", "propositional_logic", "rubiks_cube", "rush_hour"}
SMALL: dict[str, dict[str, Any]] = {  # these take seconds for a problem of their usual size
    "futoshiki": {"min_board_size": 4, "max_board_size": 4},
    "knight_swap": {"min_pieces": 1, "max_pieces": 1},
    "zebra_puzzles": {"num_people": 2, "num_characteristics": 2},
}
ONE_DIGIT = {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1}


def build(generator: str, **options: Any) -> ReasoningGym:
    return ReasoningGym(
        ReasoningGymOptions(**{"generator": generator, "train": 1, "validation": 0, "test": 0, **options})
    )


def tagged(answer: str) -> str:
    return f"<answer>{answer}</answer>"


def grade(task: ReasoningGym, answer: str, position: int = 0) -> Feedback:
    return task.grade(task.examples("train")[position], tagged(answer))


def total(example: Example) -> int:
    """The answer to a chain_sum, worked out from its question."""
    expression = example.data["question"].partition(":")[2]
    return sum(int(sign + number) for sign, number in re.findall(r"([+-]?) ?(\d+)", expression))


@pytest.mark.parametrize("generator", GENERATORS)
def test_every_generator_has_problems_that_can_be_won_and_keeps_the_answer_to_itself(generator: str) -> None:
    task = build(generator, parameters=SMALL.get(generator, {}))
    for example in task.examples("train"):
        reference = example.data["answer"]
        assert example.data["question"].strip() in task.messages(example)[0]["content"]
        assert (reference is None) == (generator in NO_REFERENCE)
        for wrong in ("zzz", "-987654321"):
            feedback = task.grade(example, tagged(wrong))
            fact, *advice = feedback.text.split("\n")
            assert feedback.score == 0
            assert fact.startswith(f"'{wrong}' ")
            assert example.data["about"] in fact
            assert set(advice) <= ADVICE
            told = fact.removeprefix(f"'{wrong}' ").replace(example.data["about"], "")
            assert reference is None or not re.search(rf"(?<!\w){re.escape(reference.strip())}(?!\w)", told)
        if reference is not None:
            right = task.grade(example, f"Let me think.\n{tagged(reference)}")
            assert right.score == 1
            assert right.text.startswith("Correct: ")


@pytest.mark.parametrize(
    ("answer", "score"),
    [
        ("<answer>R</answer>", 1),
        ("<answer>\nR\n</answer>", 1),
        ("first this, then that: <answer>R</answer> and done", 1),
        ("<Answer>R</Answer>", 1),
        ("<answer>W</answer> no: <answer>R</answer>", 1),
        ("<answer>W <answer>R</answer>", 1),
        ("<answer>+R</answer>", 1),
        ("<answer>R.0</answer>", 1),
        ("<answer>R</answer> no: <answer>W</answer>", 0),
        ("<answer>R</answer> no: <answer>W", 0),
        ("<answer>-R</answer>", 0),
        ("<answer>R0</answer>", 0),
        ("<answer>R.5</answer>", 0),
        ("<answer>R W</answer>", 0),
        ("<answer>The answer is R</answer>", 0),
        ("<answer>$R$</answer>", 0),
        ("<answer>nan</answer>", 0),
        ("<answer>R", 0),
        ("R</answer>", 0),
        (r"\boxed{R}", 0),
        ("<answer> \n </answer>", 0),
        ("<answer></answer>R", 0),
        ("", 0),
    ],
)
def test_the_last_tags_hold_the_answer_and_nothing_else(answer: str, score: float) -> None:
    task = build("chain_sum", parameters={"min_digits": 2, "min_terms": 3})
    example = task.examples("train")[0]
    right = total(example)
    assert right > 0
    assert task.grade(example, answer.replace("R", str(right)).replace("W", str(right + 1))).score == score


@pytest.mark.parametrize(
    ("reading", "answer", "fact", "advice"),
    [
        ("tags", "It is 7.", "is found: there are no <answer> tags.", READINGS["tags"].missing[1]),
        ("tags", "<answer>7", "can be read: the last <answer> is never closed.", READINGS["tags"].unclosed[1]),
        ("tags", "<answer>\n</answer>", "is found: the last <answer> tags are empty.", READINGS["tags"].missing[1]),
        ("boxed", "<answer>7</answer>", r"is found: there is no \boxed{}.", READINGS["boxed"].missing[1]),
        ("boxed", r"\boxed{7", r"can be read: the last \boxed{ is never closed.", READINGS["boxed"].unclosed[1]),
        ("boxed", r"\boxed{ }", r"is found: the last \boxed{} is empty.", READINGS["boxed"].missing[1]),
        ("text", " \n", "is found: the reply is empty.", READINGS["text"].empty[1]),
    ],
)
def test_an_answer_that_is_not_found_is_told_so(reading: str, answer: str, fact: str, advice: str) -> None:
    task = build("chain_sum", answer=reading)
    text = task.grade(task.examples("train")[0], answer).text
    assert text == f"No answer to chain_sum problem train/0 {fact}\n{advice}"


@pytest.mark.parametrize(
    ("reading", "right"), [("boxed", r"so \boxed{%s}."), ("text", " %s\n"), ("tags", "so <answer>%s</answer>.")]
)
def test_the_answer_is_looked_for_where_the_option_says_and_the_question_asks(reading: str, right: str) -> None:
    task = build("chain_sum", answer=reading)
    example = task.examples("train")[0]
    assert task.messages(example)[0]["content"].endswith(f" =\n\n{READINGS[reading].ask}")
    assert task.grade(example, right % total(example)).score == 1
    assert task.grade(example, right % (total(example) + 1)).score == 0


@pytest.mark.parametrize(
    ("generator", "answer", "form"),
    [
        ("chain_sum", "seven", "a number"),
        ("chain_sum", "[7]", "a number"),
        ("number_sorting", "1, 2, 3", "a list"),
        ("sudoku", "1 2 3 4 5 6 7 8 9", "several lines"),
        ("syllogism", "Yes, they are", "one word"),
    ],
)
def test_a_wrong_form_is_told_from_a_wrong_value(generator: str, answer: str, form: str) -> None:
    fact, advice = grade(build(generator), answer).text.split("\n")
    assert fact == f"'{answer}' for {generator} problem train/0 is not in the expected form, {form}."
    assert advice == reasoning_gym.FORMS[form]


def test_a_map_is_asked_for_where_the_answer_is_one() -> None:
    task = build("codeio", train=20)
    maps = [n for n, example in enumerate(task.examples("train")) if example.data["answer"].startswith("{")]
    assert grade(task, "7", maps[0]).text.endswith(f"in the expected form, a map.\n{reasoning_gym.FORMS['a map']}")
    assert "form, a map" not in grade(task, '{"zzz": 0}', maps[0]).text


def test_what_a_scorer_cannot_read_has_the_wrong_form() -> None:
    for generator, answer in [("prime_factorization", "2 times 3"), ("boxnet", "[1]"), ("countdown", "seven")]:
        feedback = grade(build(generator), answer)
        assert feedback.text.endswith(f"train/0 is not in the expected form.\n{reasoning_gym.KEEP_THE_FORM}")


def test_a_wrong_value_is_told_with_how_hard_the_problem_is() -> None:
    task = build("chain_sum", parameters={**ONE_DIGIT, "max_digits": 2})
    assert re.fullmatch(
        r"'999' is a wrong answer to chain_sum problem train/0 \((num terms 2, )?(num digits [12])?\)\.\n"
        f"{re.escape(reasoning_gym.CHECK)}\n{re.escape(reasoning_gym.KEEP_THE_FORM)}",
        grade(task, "999").text,
    )


def test_the_reference_is_shown_where_it_is_asked_for() -> None:
    shown, hidden = (build("chain_sum", feedback=feedback) for feedback in ("reference", "advice"))
    right = total(hidden.examples("train")[0])
    assert grade(shown, "x").text == f"{grade(hidden, 'x').text}\nThe expected answer is '{right}'."
    assert grade(shown, str(right)).text == grade(hidden, str(right)).text
    assert "expected answer is" not in grade(build("rush_hour", feedback="reference"), "A+1").text


def test_credit_for_a_part_counts_only_where_it_is_asked_for() -> None:
    """Prime factors: one half for a product that is right, a hundredth for numbers at all."""
    parameters = {"min_value": 90, "max_value": 96}  # none of them prime
    strict, kind = (build("prime_factorization", parameters=parameters, strict=strict) for strict in (True, False))
    number = _shown(kind.examples("train")[0].data["question"], r"factorization of (\d+)")
    scores = {f"1 × {number}": 0.5, "2 × 2": 0.01, "zzz": 0.0}
    for answer, score in scores.items():
        assert grade(strict, answer).score == 0
        assert grade(kind, answer).score == score
        assert grade(strict, answer).text == grade(kind, answer).text
    fact, advice = grade(kind, f"1 × {number}").text.split("\n")
    assert fact.endswith(", though the scorer gives it 0.5 of 1.")
    assert advice == reasoning_gym.FINISH


def _shown(question: str, pattern: str) -> str:
    found = re.search(pattern, question)
    assert found, question
    return found[1]


@pytest.mark.parametrize(
    ("generator", "wrong"),
    [
        ("coin_flip", "0"),
        ("coin_flip", "0."),
        ("complex_arithmetic", "nan"),
        ("game_of_life_halting", "zzz"),
        ("puzzle24", "4*4 + 4 + 4"),
        ("puzzle24", "24"),
        ("countdown", "integrate(1)"),
        ("simple_integration", "integrate(x)"),
        ("string_insertion", "['A'] * 10**10"),
        ("spiral_matrix", "().__class__.__bases__"),
        ("binary_matrix", "__import__('os').listdir()"),
        ("n_queens", "exit()"),
    ],
)
def test_no_answer_is_right_for_every_problem(generator: str, wrong: str) -> None:
    parameters = {"min_trials": 4, "max_trials": 9} if generator == "coin_flip" else {}
    task = build(generator, train=4, parameters=parameters)
    assert [grade(task, wrong, position).score for position in range(4)] == [0, 0, 0, 0]


def test_wrong_answers_that_scorers_let_pass_are_wrong_here() -> None:
    halting = build("game_of_life_halting")
    right = halting.examples("train")[0].data["answer"]
    assert grade(halting, right.lower()).score == 1
    assert grade(halting, {"True": "False", "False": "True"}[right]).score == 0

    for generator in ("letter_jumble", "word_sorting", "spell_backward"):
        task = build(generator)
        right = task.examples("train")[0].data["answer"]
        assert grade(task, right).score == 1
        assert {grade(task, answer).score for answer in (f"{right}, x", f"{right} x", f"x {right}")} == {0}

    integration = build("simple_integration")
    question = integration.examples("train")[0].data["question"]
    integrand = _shown(question, r": ∫ (.+) d\w")
    assert grade(integration, f"integrate({integrand}) + C").score == 0
    assert grade(integration, f"Integral({integrand}) + C").score == 0

    unsolved = build("intermediate_integration", train=12)  # its own reference is now and then an integral
    assert not any("Integral" in example.data["answer"] for example in unsolved.examples("train"))

    product = build("polynomial_multiplication")
    expression = _shown(product.examples("train")[0].data["question"], r": (.+)")
    assert grade(product, f"expand({expression})").score == 0

    logic = build("propositional_logic", train=8)
    for position, example in enumerate(logic.examples("train")):
        premise = _shown(example.data["question"], r"Given:\n1\. (.+)")
        assert grade(logic, premise, position).score == 0
        assert grade(logic, f"(({premise}))", position).score == 0


def test_puzzle24_takes_its_own_numbers_and_an_exact_24() -> None:
    task = build("puzzle24", train=1)
    right = task.examples("train")[0].data["answer"]
    numbers = re.findall(r"\d+", right)
    assert grade(task, right).score == 1
    assert grade(task, f"({right})").score == 1
    assert grade(task, f"{right} + 0").score == 0
    assert grade(task, right.replace(numbers[0], str(int(numbers[0]) + 1), 1)).score == 0
    assert grade(task, "24").score == 0


def test_sorted_numbers_are_those_of_the_question() -> None:
    parameters = {"min_numbers": 4, "max_numbers": 4, "min_decimals": 0, "max_decimals": 0}
    task = build("number_sorting", parameters=parameters)
    question = task.examples("train")[0].data["question"]
    numbers = sorted(map(float, _shown(question, r"order: (.+)").split(", ")), reverse="descending" in question)
    assert grade(task, str([str(number) for number in numbers])).score == 1
    assert grade(task, str(numbers)).score == 1
    assert grade(task, str(numbers[::-1])).score == 0
    assert grade(task, str([numbers[0] + (1 if "descending" in question else -1), *numbers[1:]])).score == 0


def test_letters_are_counted_as_a_reader_would() -> None:
    task = build("letter_counting", train=20)
    for position, example in enumerate(task.examples("train")):
        letter, text = re.findall(r'the letter "(.)" appear in the text: "(.*)"\?', example.data["question"])[0]
        count = text.lower().count(letter.lower())
        assert grade(task, str(count), position).score == 1
        assert grade(task, str(count + 1), position).score == 0


def test_no_code_in_an_answer_is_run(tmp_path: Path) -> None:
    target = tmp_path / "touched"
    for generator in ("string_insertion", "countdown", "polynomial_multiplication"):
        for code in (f"open({str(target)!r}, 'w')", f"__import__('os').mkdir({str(target)!r})"):
            assert grade(build(generator), code).score == 0
            assert not target.exists()


@pytest.mark.parametrize(
    ("generator", "options"),
    [
        ("chain_sum", {"parameters": ONE_DIGIT}),
        ("coin_flip", {"parameters": {"min_trials": 3, "max_trials": 4}}),
        ("tower_of_hanoi", {"parameters": {"min_disks": 3, "max_disks": 3, "min_pegs": 3, "max_pegs": 3}}),
        ("composite", {"mix": {"letter_counting": 1, "spell_backward": 3}}),
    ],
)
def test_no_question_is_in_two_splits(generator: str, options: dict[str, Any]) -> None:
    task = build(generator, train=200, validation=60, test=60, **options)
    examples = {split: list(task.examples(split)) for split in SPLITS}
    questions = {split: {example.data["question"] for example in examples[split]} for split in SPLITS}
    assert [len(examples[split]) for split in SPLITS] == [200, 60, 60]
    assert len({example.id for split in SPLITS for example in examples[split]}) == 320
    assert sum(map(len, questions.values())) == len(set.union(*questions.values()))


@given(st.text(), st.text(alphabet=" \t\n", min_size=1))
def test_spaces_and_capitals_make_no_other_question(question: str, space: str) -> None:
    assert home_of(question) == home_of(f"{space}{question}{space}") == home_of(space.join(question.split()))


def test_half_the_questions_are_for_training() -> None:
    counts = Counter(home_of(f"question {number}") for number in range(4000))
    assert 1850 < counts["train"] < 2150
    assert 900 < counts["validation"] < 1100


def test_an_answer_that_takes_forever_costs_one_answer_and_problems_are_the_same_in_the_next_process() -> None:
    names = ("isomorphic_strings", "polynomial_multiplication", "ransom_note", "list_functions", "knights_knaves")

    def made(size: int, positions: range) -> dict[tuple[str, int], Any]:
        examples = {name: build(name, train=size).examples("train") for name in names}
        return {
            (name, position): (example.id, example.data["question"], example.data["answer"])
            for position in positions
            for name in names
            for example in [examples[name][position]]
        }

    before = made(4, range(4))
    assert grade(build("polynomial_multiplication"), "9**9**9**9").text == (
        "'9**9**9**9' for polynomial_multiplication problem train/0 takes too long to be checked.\n"
        + reasoning_gym.SHORT
    )
    assert made(1000, range(3, -1, -1)) == before
    assert grade(build("polynomial_multiplication"), before["polynomial_multiplication", 0][2]).score == 1
    other = build("list_functions", seed=1).examples("train")[0]
    assert other.data["question"] != before["list_functions", 0][1]


def test_a_mix_draws_by_weight_and_each_generator_takes_its_own_parameters() -> None:
    task = build("composite", train=150, mix={"chain_sum": 2, "spell_backward": 1}, parameters={"chain_sum": ONE_DIGIT})
    examples = task.examples("train")
    counts = Counter(example.data["generator"] for example in examples)
    assert counts.keys() == {"chain_sum", "spell_backward"}
    assert 80 < counts["chain_sum"] < 120
    for example in examples:
        question = example.data["question"]
        if example.data["generator"] == "chain_sum":
            right = str(total(example))
            assert re.search(r": \d [+-] \d =$", question)
        else:
            right = question.rpartition(" ")[2][::-1]
        assert task.grade(example, tagged(right)).score == 1
        assert task.grade(example, tagged(f"{right}1")).score == 0


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ({"name": "reasoning-gym/leter_counting"}, "no generator 'leter_counting'; did you mean letter_counting or "),
        ({"name": "reasoning-gym/zzzzz"}, "no generator 'zzzzz'; `fastslow tasks reasoning-gym` lists all of them$"),
        (
            {"parameters": {"min_term": 3}},
            r"no parameter 'min_term'; did you mean 'min_terms'\? its parameters are: min_",
        ),
        ({"parameters": {"min_terms": 9, "max_terms": 2}}, "chain_sum refuses these parameters: max_terms must be >="),
        ({"parameters": {"min_terms": "many"}}, "chain_sum: min_terms='many': input should be a valid integer"),
        ({"parameters": {"size": 9}}, "'size' is not one of chain_sum's parameters here; set seed, train, validation"),
        ({"parameters": 3}, "parameters=3: input should be a valid dictionary"),
        ({"mix": {"lcm": 1}}, "mix goes with task: reasoning-gym/composite, but the generator is 'chain_sum'"),
        ({"name": "reasoning-gym/composite", "mix": {"lcm": 0}}, "mix.lcm=0: input should be greater than 0"),
        ({"name": "reasoning-gym/composite", "mix": {"lmc": 1}}, "no generator 'lmc'; did you mean lcm"),
        (
            {"name": "reasoning-gym/composite", "mix": {"lcm": 1, "gcd": 1}, "parameters": {"min_value": 3}},
            r"parameters has min_value=3; of a mix, expected \{generator: \{parameter: value\}\} with the generators lcm, ",
        ),
        (
            {"name": "reasoning-gym/composite", "mix": {"lcm": 1}, "parameters": {"lcm": {"valu": 3}}},
            "lcm has no parameter 'valu'",
        ),
        ({"answer": "whole"}, "answer='whole': input should be 'tags', 'boxed' or 'text'"),
    ],
)
def test_mistakes_in_a_recipe_are_told_in_a_line(task: dict[str, Any], message: str) -> None:
    with pytest.raises(RecipeError, match=message) as caught:
        build_task(build_recipe({"model": "nano", "task": {"name": "reasoning-gym/chain_sum", **task}}))
    assert "\n" not in str(caught.value)


def test_without_a_generator_all_of_them_are_named() -> None:
    with pytest.raises(TaskError, match="needs a generator, as in task: reasoning-gym/letter_counting") as caught:
        build_task(build_recipe({"model": "nano", "task": "reasoning-gym"}))
    assert set(GENERATORS) <= set(re.split(r"[ ,:;]+", str(caught.value)))


def test_parameters_that_leave_nothing_to_hold_out_are_refused() -> None:
    one_question = {"n": 4, "min_remove": 4, "max_remove": 4}  # the empty board
    errors = []
    for split in SPLITS:
        try:
            build("n_queens", parameters=one_question, **{"train": 0, split: 5})
        except TaskError as error:
            errors.append(str(error).partition(": ")[2])
    assert len(errors) == 2
    assert all(re.match("none of 64 questions is for the split .*; choose parameters", error) for error in errors)


def test_parameters_are_read_as_the_types_they_have() -> None:
    recipe = {"name": "reasoning-gym/time_intervals", "train": 5, "validation": 0, "test": 0}
    parameters = {"min_date": "2021-01-01", "max_date": "2022-12-31", "task_types": ["date"]}
    task = build_task(build_recipe({"model": "nano", "task": {**recipe, "parameters": parameters}}))
    assert all(re.search("202[12]", example.data["question"]) for example in task.examples("train"))


def test_problems_too_long_for_any_patience_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reasoning_gym, "_ask", lambda **request: None)
    with pytest.raises(
        TaskError, match="'chain_sum' makes no problem with these parameters: one problem takes more than 20"
    ):
        build("chain_sum")
