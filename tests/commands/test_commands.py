"""The command line: bad input gets one clear message and exit code 2, never a traceback; good input is quick and quiet."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import BRIEF, EXAMPLE, ROOT, fastslow

from fastslow.commands.app import main
from fastslow.commands.shared import loading, results
from fastslow.recipe import load_recipe
from fastslow.runs.folder import RunFolder
from fastslow.study.studies import STUDIES


def call(*arguments: str | Path) -> int:
    with pytest.raises(SystemExit) as stopped:
        main([str(argument) for argument in arguments])
    return int(stopped.value.code or 0)


FINISHED = ROOT / "docs" / "results" / "qwen-1.5b" / "house-rules" / "gepa-0"
BAD = {
    "no such recipe": (["train", "none.yaml"], "no recipe file 'none.yaml'"),
    "neither recipe nor run": (["train"], "give either a recipe"),
    "unknown key": (["train", EXAMPLE, "slow.learning_rat=1"], "did you mean slow.learning_rate?"),
    "a key at the wrong level": (["train", EXAMPLE, "population=4"], "did you mean fast.population?"),
    "K does not divide G": (
        ["train", EXAMPLE, "fast.population=3"],
        "fast.population=3 does not divide slow.group=4",
    ),
    "no override": (["train", EXAMPLE, "seed"], "'seed' is not KEY=VALUE"),
    "wrong type": (["train", EXAMPLE, "slow.steps=many"], "slow.steps='many'"),
    "unknown task": (["recipe", EXAMPLE, "task=star-grap"], "did you mean 'star-graph'?"),
    "unknown task option": (["recipe", EXAMPLE, "task={name: star-graph, degre: 3}"], "did you mean 'degree'?"),
    "missing data": (["train", EXAMPLE, "task.path=none.jsonl"], "none.jsonl"),
    "missing model": (["train", EXAMPLE, "model=./none"], "no model folder './none'"),
    "missing grader": (
        ["train", EXAMPLE, "task.grader=nowhere:grade"],
        f"there is no module 'nowhere' in {os.getcwd()}, beside the recipe or installed; put it there, or correct the name",
    ),
    "missing file of a grader": (
        ["train", EXAMPLE, "task.grader=nowhere.py:grade"],
        f"there is no file 'nowhere.py' in {os.getcwd()} or beside the recipe; put it there, or correct the name",
    ),
    "no device": (["train", EXAMPLE, "model.device=mps"], "model.device=mps, but this machine has only"),
    "prompt longer than the context": (
        ["train", EXAMPLE, "sampling.max_tokens=1020"],
        "does not fit the model's 1024",
    ),
    "no run": (["train", "--resume", "nowhere"], "no run folder 'nowhere'"),
    "not a run": (["contexts", ROOT / "src"], "is not a run folder"),
    "no run to evaluate": (["eval", "nowhere"], "no run folder 'nowhere'"),
    "no run to add up": (["ledger", "nowhere"], "no run folder 'nowhere'"),
    "no run to export": (["export", "nowhere", "model"], "no run folder 'nowhere'"),
    "no run to measure": (["divergence", "nowhere"], "no run folder 'nowhere'"),
    "no run to show": (["board", "nowhere"], "no folder 'nowhere'"),
    "no run to snapshot": (["board", ROOT / "recipes", "--snapshot", "x.html"], "no run under"),
    "no address to listen on": (["board", ROOT / "docs", "--host", "203.0.113.1", "--port", "1"], "cannot listen on"),
    "no run to compare": (["compare", "nowhere"], "no run folder 'nowhere'"),
    "a name that is too long to compare": (["compare", "x" * 300], "cannot be the path of a run folder"),
    "no run among several": (["compare", ROOT / "docs", ROOT / "src"], "none of these is a run folder: "),
    "a misspelt run among several": (["compare", FINISHED, "nowhere"], "no run folder 'nowhere'"),
    "the worst and the best": (["rollouts", "nowhere", "--worst", "--best"], "--worst and --best are both given"),
    "no run to read rollouts of": (["rollouts", "nowhere"], "no run folder 'nowhere'"),
    "no run to start a suite from": (["suite", "nowhere", "--task", "rulebook"], "no run folder 'nowhere'"),
    "bad split of a divergence": (["divergence", "nowhere", "--split", "half"], "--split half: expected validation"),
    "bad split": (["eval", "nowhere", "--split", "half"], "--split half: expected validation, test or train"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_gets_one_clear_message(case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments, expected = BAD[case]
    if arguments[:2] == ["train", EXAMPLE]:
        arguments = [*arguments, f"output.folder={tmp_path / 'run'}"]
    assert call(*arguments) == 2
    shown = capsys.readouterr().err
    assert expected in shown
    assert shown.count("error:") == 1
    assert "Traceback" not in shown
    assert not (tmp_path / "run").exists()  # nothing stands in the way of the corrected command


def test_empty_data_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty.jsonl").write_text("")
    assert call("train", EXAMPLE, f"task.path={tmp_path / 'empty.jsonl'}", f"output.folder={tmp_path / 'run'}") == 2
    assert "empty.jsonl" in capsys.readouterr().err


@pytest.mark.parametrize("given", ["-", "/dev/stdin"])
def test_a_recipe_is_read_from_standard_input(
    given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "rows.jsonl").touch()
    monkeypatch.chdir(tmp_path)
    before, (reads, writes) = os.dup(0), os.pipe()
    os.write(writes, b"{model: nano, task: {name: dataset, path: rows.jsonl}}")
    os.close(writes)
    os.dup2(reads, 0)
    try:
        assert call("recipe", given, "seed=3") == 0
    finally:
        os.dup2(before, 0)
        os.close(before)
        os.close(reads)
    shown = capsys.readouterr().out
    assert f"path: {tmp_path / 'rows.jsonl'}\n" in shown
    assert "seed: 3\n" in shown


def test_a_folder_that_holds_a_run_is_not_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "run"
    with RunFolder.create(folder, load_recipe(EXAMPLE)) as run:
        run.append("metrics", {"step": 1})
    before = (folder / "metrics.jsonl").read_text()
    assert call("train", EXAMPLE, f"output.folder={folder}") == 2
    assert "--resume" in capsys.readouterr().err
    assert (folder / "metrics.jsonl").read_text() == before


def test_the_commands_of_a_finished_run(
    by_words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)  # a run works from anywhere
    assert call("train", EXAMPLE, *BRIEF, *by_words, "seed=3") == 0
    run = tmp_path / "runs" / "recipe-fst-seed3"
    assert "finished" in capsys.readouterr().out
    monkeypatch.chdir("/")
    assert call("contexts", run) == 0
    assert "population by cycle" in capsys.readouterr().out
    assert call("contexts", run, "--best") == 0
    prompt = capsys.readouterr().out
    assert call("contexts", run, "--json") == 0
    listed = json.loads(capsys.readouterr().out)
    (best,) = [each for each in listed if each["best"]]
    assert prompt == best["texts"]["system"] + "\n"
    assert call("contexts", run, "--best", "--json") == 0
    assert json.loads(capsys.readouterr().out) == best
    assert call("tag", run, "--add", "first", "--add", "words") == 0
    assert call("tag", run, "--remove", "words") == 0
    capsys.readouterr()
    assert call("tag", run) == 0
    assert capsys.readouterr().out == f"{run}: first\n"
    assert call("ledger", run, "--steps") == 0
    assert "rollouts, by step" in capsys.readouterr().out
    assert call("rollouts", run, "--worst", "--limit", "1") == 0
    assert "feedback: " in capsys.readouterr().out
    assert call("eval", run, "--k", "2", "--pool", "--split", "test") == 0
    shown = capsys.readouterr().out
    assert "mean@2" in shown
    assert "…" not in shown  # all of every interval, in a narrow window too
    assert "pool" in shown
    assert call("divergence", run, "--problems", "2") == 0
    assert "best context" in capsys.readouterr().out
    assert call("compare", run, run / "recipe.yaml", "--out", tmp_path / "comparison") == 0
    shown = capsys.readouterr().out
    assert "Training cost" in shown
    assert "skipped, no run: " in shown
    for command, key in {
        ("eval", "--k", "1"): "contexts",
        ("divergence", "--problems", "1"): "checkpoints",
        ("rollouts",): "rollouts",
        ("ledger",): "spent",
        ("compare", "--out", tmp_path / "comparison"): "findings",
    }.items():
        assert call(command[0], run, *command[1:], "--json") == 0
        assert json.loads(capsys.readouterr().out)[key]
    assert (tmp_path / "comparison" / "report.html").exists()
    assert call("board", run, "--snapshot", tmp_path / "board.html") == 0
    assert "1 run" in capsys.readouterr().out
    assert call("export", run, tmp_path / "model") == 0
    assert (tmp_path / "model" / "model.safetensors").exists()
    assert call("recipe", run / "recipe.yaml") == 0
    assert "shared_prefix: true" in capsys.readouterr().out


def test_tasks_are_listed_and_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("tasks") == 0
    assert "star-graph" in capsys.readouterr().out
    assert call("tasks", "star-graph", "degree=3", "path=3", "nodes=20") == 0
    shown = capsys.readouterr().out
    assert "star-graph-3-3-20-s0/train/0" in shown
    assert "seed text" in shown
    assert call("tasks", "dataset") == 0
    assert "needs the option 'path'" in capsys.readouterr().out
    assert call("tasks", "none") == 2


def test_a_real_process_prints_plain_lines_and_nothing_else(by_words: list[str], tmp_path: Path) -> None:
    """Where output is not a terminal: one line an event, nothing of the libraries' remarks."""
    done = fastslow("train", EXAMPLE, *BRIEF, *by_words, f"output.folder={tmp_path / 'run'}", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    words = {line.split()[0].rstrip(":") for line in done.stdout.splitlines()}
    assert words == {"see", "run", "evaluation", "cycle", "best", "step", "finished", "evaluating", "truncated"}


def test_the_texts_of_several_components_follow_their_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with RunFolder.create(tmp_path / "run", load_recipe(EXAMPLE)) as run:
        run.write_json("contexts/seed.json", {"id": "ab", "texts": {"turn": "[bold]a[/bold]\nb", "shift": "ü"}})
    assert call("contexts", tmp_path / "run", "--best") == 0
    assert capsys.readouterr().out == "[turn]\n[bold]a[/bold]\nb\n\n[shift]\nü\n"


def test_every_command_says_that_it_loads_before_torch_is_imported(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path / "run", load_recipe(EXAMPLE)):
        pass
    commands = {
        "train": [EXAMPLE, f"output.folder={tmp_path / 'new'}"],
        "quickstart": [],
        "eval": [tmp_path / "run"],
        "divergence": [tmp_path / "run"],
        "export": [tmp_path / "run", tmp_path / "model"],
        "internalize": [tmp_path / "run"],
        "suite": [tmp_path / "run"],
        "study": ["ceiling"],
        "check": [EXAMPLE],
        "doctor": [],
    }
    code = """
import json, sys
from fastslow.commands import inspecting, running
from fastslow.commands.app import main
def stop(*_):
    print("torch" in sys.modules)
    sys.exit()
inspecting.loading = running.loading = stop
for name, arguments in json.loads(sys.argv[1]).items():
    try:
        main([name, *arguments])
    except SystemExit:
        pass
"""
    given = json.dumps({name: list(map(str, arguments)) for name, arguments in commands.items()})
    done = subprocess.run([sys.executable, "-c", code, given], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False"] * len(commands), done.stderr


def test_loading_is_said_on_a_terminal_alone(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fastslow.commands.shared.quiet", lambda: None)
    loading("the model")
    assert capsys.readouterr().err == ""
    monkeypatch.setenv("FORCE_COLOR", "1")
    loading("the model")
    assert "loading the model …" in capsys.readouterr().err


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("--version") == 0
    assert capsys.readouterr().out.startswith("fastslow")


def test_the_help_of_study_names_every_study(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("study", "--help") == 0
    shown = capsys.readouterr().out
    assert all(f"{name}: " in shown for name in STUDIES)


def test_tasks_and_checks_are_json_on_request(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("tasks", "--json") == 0
    assert "rulebook" in [task["task"] for task in json.loads(capsys.readouterr().out)]
    assert call("tasks", "rulebook", "--count", "1", "--json") == 0
    (example,) = json.loads(capsys.readouterr().out)["examples"]
    assert example["messages"][-1]["role"] == "user"
    assert call("check", EXAMPLE, "--json") == 0
    assert json.loads(capsys.readouterr().out)["ready"] is True
    assert call("check", EXAMPLE, "task.path=none.jsonl", "--json") == 2
    said = capsys.readouterr()
    assert json.loads(said.out)["ready"] is False
    assert "none.jsonl" in said.err


def test_json_is_valid_whatever_the_results_hold(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_API_KEY", "a-key-to-be-hidden")
    with results(as_json=True) as write:
        print("progress")
        write({"nan": float("nan"), "path": Path("a"), "text": "é \ud800 a-key-to-be-hidden", "more": (1, True)})
    said = capsys.readouterr()
    assert said.err == "progress\n"
    assert json.loads(said.out) == {"nan": None, "path": "a", "text": "é \ud800 [redacted]", "more": [1, True]}
    with results(as_json=False):
        print("a table")
    assert capsys.readouterr().out == "a table\n"
