"""A script that calls gepa's `optimize_anything`: run up to that call, whose arguments are the problem."""

from __future__ import annotations

import json
import runpy
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fastslow.base.text import one_line
from fastslow.discover import Failed
from fastslow.discover.neighbours import let_start_python
from fastslow.discover.neighbours.words import LONGEST, TOLERANCE, failure, number, told

SECONDS = 600.0


class _Called(BaseException):  # no `except Exception` of the script catches it
    def __init__(self, arguments: dict[str, Any]) -> None:
        self.arguments = arguments


def problem(script: Path) -> dict[str, Any]:
    """What a problem file says, and its `evaluate`; with a `valset`, `verify` scores on that."""
    asked = _arguments(script)
    seed, dataset = asked.get("seed_candidate"), asked.get("dataset")
    if not seed:
        raise ValueError(f"{script.name} gives optimize_anything no seed_candidate; expected a text or a dict of texts")
    about = " ".join(f"{asked.get('objective') or ''} {asked.get('background') or ''}".split())
    score = _scorer(asked, dataset is None)

    def over(examples: list[Any] | None) -> Callable[[str], tuple[float, str]]:
        def evaluate(candidate: str) -> tuple[float, str]:
            texts = _texts(seed, candidate)
            if examples is None:
                return score(texts, None)
            scores = sorted((score(texts, example) for example in examples), key=lambda scored: scored[0])
            mean = sum(each for each, _ in scores) / len(scores)
            return mean, f"The worst of {len(scores)} examples:\n{scores[0][1]}"

        return evaluate

    said = {
        "__doc__": about or f"The problem of {script.name}.",
        "goal": "maximize",
        "seed": seed if isinstance(seed, str) else _shown(seed),
        "seconds": SECONDS,
        "tolerance": TOLERANCE,
        "evaluate": over(None if dataset is None else list(dataset)),
    }
    if isinstance(seed, dict) and len(seed) > 1:
        said["suffix"] = ".json"
    return {**said, "verify": over(list(asked["valset"]))} if asked.get("valset") is not None else said


def _arguments(script: Path) -> dict[str, Any]:
    """Run a script with an `optimize_anything` that only notes what it is asked."""
    import gepa.optimize_anything as library

    def note(seed_candidate: Any = None, **others: Any) -> None:
        raise _Called({"seed_candidate": seed_candidate, **others})

    sys.path[:0] = [str(folder) for folder in (script.parent, *script.parent.parents[:3])]
    let_start_python()
    real, library.optimize_anything = library.optimize_anything, note
    try:
        runpy.run_path(str(script), run_name="__main__")
    except _Called as called:
        return called.arguments
    except SystemExit as ended:
        raise ValueError(
            f"{script.name} ended itself ({ended}) before it called optimize_anything; it is run without arguments, and with "
            "the files that are beside it"
        ) from None
    finally:
        library.optimize_anything = real
    raise ValueError(f"{script.name} ends without a call of optimize_anything; expected one when it is run as a script")


def _scorer(asked: Mapping[str, Any], alone: bool) -> Callable[[Any, Any], tuple[float, str]]:
    from gepa.optimize_anything import EvaluatorWrapper, OptimizationState

    evaluator, batch = asked.get("evaluator"), asked.get("batch_evaluator")
    if evaluator is None and batch is None:
        raise ValueError("optimize_anything is given no evaluator and no batch_evaluator; expected one of them")
    wrapped = evaluator and EvaluatorWrapper(evaluator, single_instance_mode=alone, capture_stdio=True)

    def score(texts: Any, example: Any) -> tuple[float, str]:
        if wrapped is None:
            assert batch is not None
            answer = batch([(texts, example)])[0]
            value, info = answer if isinstance(answer, tuple) else (answer, {})
        else:
            value, _, info = wrapped(texts, example=example, opt_state=OptimizationState(best_example_evals=[]))
        info = info if isinstance(info, Mapping) else {"info": info}
        words = told(info, texts if isinstance(texts, str) else "")
        if error := failure(info):
            raise Failed(f"{error}\n{words}")
        found = number(value)
        if found is None:
            raise Failed(f"the evaluator returned {one_line(value, LONGEST)}; expected a score")
        return found, words

    return score


def _shown(texts: Mapping[str, str]) -> str:
    """A candidate of several texts, as one."""
    return next(iter(texts.values())) if len(texts) == 1 else json.dumps(texts, indent=2, ensure_ascii=False)


def _texts(seed: Any, candidate: str) -> Any:
    """A candidate in the shape of the seed."""
    if isinstance(seed, str):
        return candidate
    if len(seed) == 1:
        return {next(iter(seed)): candidate}
    try:
        texts = json.loads(candidate)
    except ValueError as error:
        raise Failed(
            f"the candidate is no JSON: {one_line(error)}; expected a text for each of {', '.join(seed)}"
        ) from None
    if (
        not isinstance(texts, dict)
        or set(texts) != set(seed)
        or not all(isinstance(text, str) for text in texts.values())
    ):
        raise Failed(f"the candidate must be a JSON object with a text for each of {', '.join(seed)}")
    return texts
