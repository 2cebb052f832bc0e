"""Makes and scores problems with reasoning-gym, in a process of its own (see sandbox/process.py).

Of its own for three reasons: some generators order sets by their hash, which is fixed for this process; some take very long
for a problem or for an answer; and some scorers evaluate what the model wrote. Those are held to plain formulas and literals
here, and like every worker cannot change files, reach the network or start processes.
"""

import ast
import dataclasses
import difflib
import json
import math
import random
import re
import signal
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from typing import Any, get_type_hints

from pydantic import TypeAdapter, ValidationError
from reasoning_gym.algorithmic import binary_matrix, spiral_matrix, string_insertion
from reasoning_gym.composite import CompositeConfig, CompositeDataset, DatasetSpec
from reasoning_gym.dataset import ProceduralDataset
from reasoning_gym.factory import DATASETS, create_dataset
from reasoning_gym.games import n_queens
from sympy import parse_expr

COMPOSITE = "composite"
SIZE = 6_400
"""Candidates of one dataset; word_ladder allows at most 20,000, and acre makes all of them at once."""
SCORING_SECONDS = 3.0
"""Working time to score one answer; ordinary ones take milliseconds."""

for module in (binary_matrix, n_queens, spiral_matrix, string_insertion):
    module.eval = ast.literal_eval  # these look for a Python list in the answer

_FUNCTIONS = {"exp", "log", "ln", "sqrt", "pi", "abs", "Abs", "cot", "sec", "csc"} | {
    f"{arc}{name}{hyperbolic}" for arc in ("", "a") for name in ("sin", "cos", "tan") for hyperbolic in ("", "h")
}


def _is_arithmetic(answer: str) -> bool:
    return re.fullmatch(r"[0-9\s+\-*/().]+", answer) is not None and not re.search(r"\*\*|//", answer)


def _is_formula(answer: str) -> bool:
    words = re.findall(r"[^\W\d]\w*", answer)
    return (
        re.fullmatch(r"[\w\s+\-*/^(),.]+", answer) is not None
        and not re.search(r"\.\s*[^\W\d]", answer)
        and all(word in _FUNCTIONS or (len(word) == 1 and word.isalpha()) for word in words)
    )


READABLE: dict[str, Callable[[str], bool]] = {
    "countdown": _is_arithmetic,
    "puzzle24": _is_arithmetic,
    "simple_integration": _is_formula,
    "intermediate_integration": _is_formula,
    "polynomial_multiplication": _is_formula,
}
"""Answers that sympy evaluates: anything else is not even read. Without this `integrate(…)` would be a right answer."""


def _same_words(answer: str, entry: dict[str, Any]) -> bool:
    return _words(answer) == _words(entry["answer"])


def _words(text: str) -> list[str]:
    return re.split(r"[\s,]+", text.strip().casefold())


def _same_chance(answer: str, entry: dict[str, Any]) -> bool:
    return math.isclose(Fraction(answer.replace(",", "")), Fraction(entry["answer"]), rel_tol=0, abs_tol=1e-4)


def _makes_24(answer: str, entry: dict[str, Any]) -> bool:
    numbers = sorted(int(number) for number in re.findall(r"\d+", answer))
    return numbers == sorted(entry["metadata"]["numbers"]) and parse_expr(answer) == 24


def _same_numbers(answer: str, entry: dict[str, Any]) -> bool:
    given = json.loads(answer.replace("'", '"'))
    return [float(number) for number in given] == [float(number) for number in ast.literal_eval(entry["answer"])]


def _is_new(answer: str, entry: dict[str, Any]) -> bool:
    return _bare(answer) not in {_bare(premise) for premise in entry["metadata"]["premises"]}


def _bare(formula: str) -> str:
    return re.sub(r"[\s()]", "", formula)


FULL: dict[str, Callable[[str, dict[str, Any]], bool]] = {
    "coin_flip": _same_chance,  # the scorer takes the first digits for the number, so that 0 is every probability
    "complex_arithmetic": lambda answer, entry: "nan" not in answer.lower(),  # it has no distance from any number
    "game_of_life_halting": _same_words,  # any text at all is right
    "letter_jumble": _same_words,  # words after the last one do not count
    "number_sorting": _same_numbers,  # numbers may be one off
    "propositional_logic": _is_new,  # a premise is a conclusion
    "puzzle24": _makes_24,  # any four numbers do, and fractions are truncated
    "spell_backward": _same_words,  # letters after the last one do not count
    "word_sorting": _same_words,  # words after the last one do not count
}
"""What a full score needs besides, where the scorer gives it to wrong answers; without it the score is 0."""


def handle(request: dict[str, Any]) -> Any:
    actions: dict[str, Callable[..., Any]] = {"names": names, "check": check, "make": make, "score": score}
    return actions[request.pop("do")](**request)


def names() -> list[str]:
    return sorted(name for name in DATASETS if name != COMPOSITE)


def check(parts: str) -> str | None:
    """What is wrong with generators and their parameters, given as JSON {name: [weight, parameters]}."""
    for name, (_, parameters) in json.loads(parts).items():
        if name not in names():
            near = difflib.get_close_matches(name, names(), n=3)
            hint = f"did you mean {' or '.join(near)}? " if near else ""
            return f"there is no generator '{name}'; {hint}`fastslow tasks reasoning-gym` lists all of them"
        if problem := _check_parameters(name, parameters):
            return problem
    return None


def make(parts: str, seed: int, index: int) -> dict[str, Any]:
    """One problem: what is asked, the reference answer where there is one, and whether that is scored as right."""
    try:
        entry = _entry(parts, seed, index)
    except Exception as error:  # a generator may raise anything when it finds no problem
        return {"error": f"{type(error).__name__}: {error}"[:300]}
    reference = entry["answer"]
    return {
        "generator": entry["metadata"]["source_dataset"],
        "question": entry["question"],
        "answer": reference,
        "facts": _facts(entry["metadata"]),
        "sound": reference is None or _score(parts, seed, index, reference.strip()) == 1,
    }


def score(parts: str, seed: int, index: int, answer: str) -> dict[str, float | None]:
    """The scorer's verdict from 0 to 1; None where it cannot read the answer."""
    return {"score": _score(parts, seed, index, answer)}


def _score(parts: str, seed: int, index: int, answer: str) -> float | None:
    entry = _entry(parts, seed, index)
    generator = entry["metadata"]["source_dataset"]
    signal.setitimer(signal.ITIMER_PROF, SCORING_SECONDS)  # less than making the problem may take
    if generator in READABLE and not READABLE[generator](answer):
        return None
    try:
        given = float(_dataset(parts, seed).score_answer(answer, entry))
        if given >= 1 and generator in FULL and not FULL[generator](answer, entry):
            return 0.0
    except Exception:  # scorers stumble over answers of another form
        return None
    return min(max(given, 0.0), 1.0)


@lru_cache(maxsize=4096)
def _entry(parts: str, seed: int, index: int) -> dict[str, Any]:
    random.seed(f"{seed}/{index}")  # list_functions draws from the module's own generator
    entry: dict[str, Any] = _dataset(parts, seed)[index]
    return entry


@lru_cache(maxsize=64)
def _dataset(parts: str, seed: int) -> ProceduralDataset:
    chosen = json.loads(parts)
    if len(chosen) == 1:
        ((name, (_, parameters)),) = chosen.items()
        return create_dataset(name, seed=seed, size=SIZE, **_typed(name, parameters))
    specs = [DatasetSpec(name, weight, _typed(name, parameters)) for name, (weight, parameters) in chosen.items()]
    return CompositeDataset(CompositeConfig(size=SIZE, seed=seed, datasets=specs))


def _check_parameters(name: str, parameters: dict[str, Any]) -> str | None:
    config = DATASETS[name][1]
    known = [field.name for field in dataclasses.fields(config) if field.name not in ("seed", "size")]
    for parameter, value in parameters.items():
        if parameter in ("seed", "size"):
            return f"'{parameter}' is not one of {name}'s parameters here; set seed, train, validation and test instead"
        if parameter not in known:
            near = difflib.get_close_matches(parameter, known, n=1)
            hint = f"did you mean '{near[0]}'? " if near else ""
            return f"{name} has no parameter '{parameter}'; {hint}its parameters are: {', '.join(known) or 'none'}"
        try:
            _value(config, parameter, value)
        except ValidationError as error:
            message = error.errors()[0]["msg"]
            return f"{name}: {parameter}={value!r}: {message[0].lower()}{message[1:]}"
    try:
        made = config(seed=0, size=1, **_typed(name, parameters))
        getattr(made, "validate", lambda: None)()
    except Exception as error:  # a config checks itself with assertions, and may stumble over what it checks
        return f"{name} refuses these parameters: {error or type(error).__name__}"
    return None


def _typed(name: str, parameters: dict[str, Any]) -> dict[str, Any]:
    config = DATASETS[name][1]
    return {parameter: _value(config, parameter, value) for parameter, value in parameters.items()}


def _value(config: type, parameter: str, value: Any) -> Any:
    """A parameter as the type that its config declares: JSON has no tuples and no dates."""
    declared = TypeAdapter(get_type_hints(config)[parameter])
    try:
        declared.validate_python(getattr(config(), parameter))
    except ValidationError:  # a few declarations do not hold for their own defaults, and say nothing
        return value
    return declared.validate_python(value)


def _facts(metadata: dict[str, Any]) -> list[str]:
    """How hard the problem is, in the generator's own terms: its own figure where it is known, else the range."""
    difficulty = metadata.get("difficulty")
    if not isinstance(difficulty, dict):
        difficulty = {"difficulty": difficulty}
    facts = []
    for name, drawn_from in difficulty.items():
        own = metadata.get(name)
        value = own if _is_figure(own) else drawn_from
        if isinstance(value, list | tuple) and len(value) == 2 and value[0] == value[1]:
            value = value[0]
        if _is_figure(value):
            facts.append(f"{name.replace('_', ' ')} {value:g}")
        elif isinstance(value, list | tuple) and len(value) == 2 and all(_is_figure(end) for end in value):
            facts.append(f"{name.replace('_', ' ')} {value[0]:g} to {value[1]:g}")
    return facts


def _is_figure(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
