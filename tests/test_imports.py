"""Heavy libraries are imported when they are used: a quick command must not wait for torch."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import EXAMPLE

TASKS = "import fastslow.tasks.registry as registry; registry.task_classes()"
RUNS = "from fastslow.runs import checkpoint, folder, ledger, lineage, tree, view"
HELP = """
from fastslow.commands.app import main
for arguments in (["--help"], ["check", "--help"]):
    try:
        main(arguments)
    except SystemExit as stopped:
        assert not stopped.code
"""
SCORERS = """
from importlib import import_module
for name in (
    *("autocorrelation_first", "autocorrelation_second", "autocorrelation_third", "circle_packing", "distance_ratio"),
    *("heilbronn_square", "heilbronn_triangle", "low_autocorrelation", "min_overlap"),
):
    problem = import_module(f"fastslow.discover.problems.{name}")
    space = {}
    exec(problem.seed, space)
    problem.score(space["solve"]())
"""
METHOD = "import fastslow.loop"
PYTHON = "import fastslow; fastslow.train, fastslow.Run, fastslow.RowsTask, fastslow.GEPATask"
COMMANDS = f"""
from fastslow.commands.app import main
for code, *arguments in (
    [0, "--help"],
    [2, "train", {str(EXAMPLE)!r}, "slow.steps=many"],
    [2, "train", {str(EXAMPLE)!r}, "output.folder=taken"],
    [2, "train", {str(EXAMPLE)!r}, "output.folder=dangling"],
    [2, "train", {str(EXAMPLE)!r}, "output.folder=taken/run.json/folder"],
    [2, "train", {str(EXAMPLE)!r}, "task={{name: dataset, path: rows.jsonl}}"],
    [2, "train", "--resume", "nowhere"],
    [2, "eval", "nowhere"],
    [2, "divergence", "nowhere"],
    [2, "internalize", "nowhere"],
    [2, "export", "nowhere", "model"],
    [2, "export", "taken", "taken"],
    [2, "compare", "nowhere"],
    [2, "suite", "nowhere", "--task", "rulebook/harbour"],
    [2, "study", "unknown"],
):
    try:
        main(arguments)
    except SystemExit as stopped:
        assert (stopped.code or 0) == code, arguments
    else:
        raise AssertionError(arguments)
"""
PARTS = {
    "help": (HELP, "torch rich yaml numpy scipy pandas matplotlib pygments markdown_it"),
    "tasks": (TASKS, "torch datasets transformers pyarrow numpy sympy reasoning_gym math_verify bm25s"),
    "scorers": (SCORERS, "torch numpy scipy"),
    "runs": (RUNS, "torch pyarrow transformers"),
    "method": (METHOD, "torch transformers accelerate trl peft datasets litellm"),
    "python": (PYTHON, "torch transformers accelerate trl peft datasets litellm pandas"),
    "help and mistakes": (COMMANDS, "torch transformers accelerate trl peft datasets litellm"),
}
"""What is run, and what it must not have imported by then. One interpreter runs all, what imports least first."""


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """The modules that each part and those before it have imported."""
    folder = tmp_path_factory.mktemp("work")
    (folder / "taken").mkdir()
    (folder / "taken" / "run.json").touch()
    (folder / "dangling").symlink_to("nowhere")
    (folder / "rows.jsonl").write_text('{"text": 1}\n')
    code = ["import json, sys", "found = {}"]
    for name, (part, _) in PARTS.items():
        code += [part, f"found[{name!r}] = [module for module in sys.modules if '.' not in module]"]
    code += ["open('found.json', 'w').write(json.dumps(found))"]
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(code)], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(Path(folder / "found.json").read_text())


@pytest.mark.parametrize("name", PARTS)
def test_it_imports_no_heavy_library(name: str, imported: dict[str, list[str]]) -> None:
    assert "fastslow" in imported[name]
    assert set(PARTS[name][1].split()).isdisjoint(imported[name])
