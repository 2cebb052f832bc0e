"""A folder of OpenEvolve: `initial_program.*`, of which the part between its markers evolves, and `evaluator.py`."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

from fastslow.base.text import one_line
from fastslow.discover import Failed
from fastslow.discover.neighbours import let_start_python
from fastslow.discover.neighbours.words import LONGEST, TOLERANCE, failure, number, told

START, END = "EVOLVE-BLOCK-START", "EVOLVE-BLOCK-END"
SECONDS = 300.0
"""OpenEvolve's own limit, where its config.yaml has no `evaluator.timeout`."""


def problem(folder: Path) -> dict[str, Any]:
    """What a problem file says, and its `evaluate`."""
    program = min(folder.glob("initial_program.*"))
    seed = program.read_text(encoding="utf-8")
    config = _config(folder)
    evaluator = config.get("evaluator") or {}
    about = str((config.get("prompt") or {}).get("system_message") or f"Improve {program.name}.")
    if blocks(seed):
        about += f" Only the lines between {START} and {END} may change; keep all others, and both markers."

    def evaluate(candidate: str) -> tuple[float, str]:
        check_fixed(seed, candidate)
        return _evaluate(folder / "evaluator.py", candidate, program.suffix)

    return {
        "__doc__": " ".join(about.split()),
        "goal": "maximize",
        "seed": seed,
        "suffix": program.suffix,
        "seconds": float(number(evaluator.get("timeout")) or SECONDS),
        "tolerance": TOLERANCE,
        "evaluate": evaluate,
    }


def blocks(program: str) -> list[tuple[int, int]]:
    """The lines that evolve: first and one past the last of each block."""
    lines = program.splitlines()
    starts = [index + 1 for index, line in enumerate(lines) if START in line]
    ends = [index for index, line in enumerate(lines) if END in line]
    pairs = list(zip(starts, ends, strict=False))
    ordered = all(start <= end for start, end in pairs) and all(one[1] < two[0] for one, two in pairwise(pairs))
    if len(starts) != len(ends) or not ordered:
        raise Failed(
            f"the program has {len(starts)} lines with {START} and {len(ends)} with {END}; they must alternate"
        )
    return pairs


def check_fixed(seed: str, candidate: str) -> None:
    """Raise where a candidate differs from the seed outside the blocks in more than blank lines and trailing blanks."""
    if not blocks(seed):
        return
    if len(blocks(candidate)) != len(blocks(seed)):
        raise Failed(
            f"the program has {len(blocks(candidate))} blocks between {START} and {END}; it must keep {len(blocks(seed))}"
        )
    for kept, given in zip(_outside(seed), _outside(candidate), strict=True):
        for index in range(max(len(kept), len(given))):
            was, now = (part[index] if index < len(part) else "" for part in (kept, given))
            if was != now:
                raise Failed(
                    f"only the lines between {START} and {END} may change; '{one_line(was, 80)}' became '{one_line(now, 80)}'"
                )


def _outside(program: str) -> list[list[str]]:
    lines = program.splitlines()
    edges = [0, *(edge for block in blocks(program) for edge in block), len(lines)]
    parts = [lines[start:end] for start, end in zip(edges[::2], edges[1::2], strict=True)]
    return [[line.rstrip() for line in part if line.strip()] for part in parts]


def _config(folder: Path) -> Mapping[str, Any]:
    import yaml

    files = sorted(folder.glob("config*.yaml"), key=lambda file: (len(file.name), file.name))
    with contextlib.suppress(yaml.YAMLError, OSError, UnicodeDecodeError):
        said = yaml.safe_load(files[0].read_text(encoding="utf-8")) if files else None
        return said if isinstance(said, dict) else {}
    return {}


def _evaluate(evaluator: Path, candidate: str, suffix: str) -> tuple[float, str]:
    let_start_python()
    _stand_in()
    with tempfile.TemporaryDirectory() as place, contextlib.redirect_stdout(io.StringIO()) as printed:
        program = Path(place) / f"program{suffix}"
        program.write_text(candidate, encoding="utf-8")
        result = _module(evaluator).evaluate(str(program))
    metrics, artifacts = getattr(result, "metrics", result), getattr(result, "artifacts", {})
    if not isinstance(metrics, Mapping):
        metrics = {"combined_score": metrics}
    words = told({**metrics, **artifacts}, candidate)
    if error := failure(metrics):
        raise Failed(f"{error}\n{words}\n{printed.getvalue()[-LONGEST:]}".strip())
    numbers = [each for each in map(number, metrics.values()) if each is not None]
    if not numbers:
        raise Failed(f"evaluate() of evaluator.py returned no number: {one_line(result, LONGEST)}")
    score = number(metrics.get("combined_score"))
    return sum(numbers) / len(numbers) if score is None else score, words


def _module(file: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module
    spec.loader.exec_module(module)
    return module


@dataclass
class EvaluationResult:
    """What evaluators import from openevolve, where it is not installed."""

    metrics: dict[str, Any]
    artifacts: dict[str, Any] = field(default_factory=dict)


def _stand_in() -> None:
    if importlib.util.find_spec("openevolve") is None:
        package, module = ModuleType("openevolve"), ModuleType("openevolve.evaluation_result")
        package.__path__ = []
        module.EvaluationResult = package.EvaluationResult = EvaluationResult  # type: ignore[attr-defined]
        sys.modules.update({"openevolve": package, "openevolve.evaluation_result": module})
