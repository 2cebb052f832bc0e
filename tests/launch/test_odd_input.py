"""Odd input from Python and from the command line: each one clear error, and nothing foreign reaches the terminal."""

from __future__ import annotations

import asyncio
import io
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

import fastslow
from fastslow.base.errors import FastSlowError, RecipeError
from fastslow.base.terminal import Terminal
from fastslow.base.text import one_line
from fastslow.commands.app import main
from fastslow.launch import api
from fastslow.recipe import build_recipe, make_recipe

ROWS = [{"question": f"q{number}", "answer": "a"} for number in range(8)]
TINY: dict[str, Any] = {
    "model": "nano",
    "method": "rl",
    "slow": {"steps": 1, "problems": 2, "group": 2, "microbatch": 4},
    "sampling": {"max_tokens": 4},
    "evaluation": {"every": 0},
}
LONG = "x" * 300


def graded(row: dict[str, Any], answer: str) -> float:
    return 0.5


@pytest.mark.parametrize("folder", [5, 2.5, None, b"x", [], "a\0b", LONG, f"runs/{LONG}/b"])
def test_what_is_no_path_is_no_run_folder(folder: Any) -> None:
    opens: list[Any] = [fastslow.Run, fastslow.resume]
    if folder is not None:
        opens.append(lambda path: fastslow.train(task=ROWS, grader=graded, folder=path, **TINY))
    for opened in opens:
        with pytest.raises(FastSlowError, match=r"cannot be the path of a run folder|no run folder") as raised:
            opened(folder)
        assert len(str(raised.value)) < 400


def circle() -> dict[str, Any]:
    found: dict[str, Any] = {"question": "q", "answer": "a"}
    found["itself"] = found
    return found


def test_what_holds_itself_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FastSlowError, match="a problem cannot be written as JSON"):
        fastslow.train(task=[circle(), *ROWS], grader=graded, folder=tmp_path / "run", **TINY)
    for key in ("slow", "task", "stages"):
        with pytest.raises(RecipeError, match=f"{key} cannot be a setting: it holds itself"):
            make_recipe({"model": "nano", "task": "rulebook", key: circle()})
    with pytest.raises(RecipeError, match="recipe cannot be a setting"):
        make_recipe({}, circle())


@pytest.mark.parametrize("value", ["0x" + "f" * 6000, "9" * 4000, "-" + "9" * 4000])
@pytest.mark.parametrize("key", ["seed", "slow.steps", "slow.learning_rate", "task.book"])
def test_numbers_without_end_are_one_clear_error(key: str, value: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["recipe", str(fastslow_recipe()), f"{key}={value}"])
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert "digits" in said
    assert "unexpected" not in said
    assert len(said) < 400
    with pytest.raises(RecipeError, match="digits"):
        make_recipe({"model": "nano", "task": "rulebook", "seed": int(value, 0)})


def fastslow_recipe() -> Path:
    return next(Path(__file__).parents[2].joinpath("recipes").rglob("*.yaml"))


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("slow.steps=true", "slow.steps=True: expected a number, not true or false"),
        ("slow.microbatch=true", "slow.microbatch=True: expected a number, not true or false"),
        ("slow.kl=false", "slow.kl=False: expected a number, not true or false"),
        ("task.weight=true", "task.weight=True: expected a number, not true or false"),
        ("slow.loss.ratio_cap=true", "slow.loss.ratio_cap=True: expected a number, not true or false"),
        ("stages=[{name: rulebook, steps: true}]", "stages.0.steps=True: expected a number, not true or false"),
        ("stages=[rulebook@99999999999]", "stages.0.steps=99999999999: input should be less than"),
        ("slow.steps=1:30", "slow.steps='1:30': input should be a valid integer"),
        ("slow.kl=1:30.5", "slow.kl='1:30.5': input should be a valid number"),
        *(
            (f"fast.reflection={{kind: litellm, model: m, base_url: '{each}'}}", "http://")
            for each in ("host", "ftp://x")
        ),
        ('fast.reflection={kind: litellm, model: m, base_url: "http://x/\\e"}', "cannot be printed"),
        ("slow.loss={name: gspo, clip: 1e300}", "slow.loss.clip='1e300': input should be less than"),
        ("sampling.temperature=1e-320", "sampling.temperature='1e-320': input should be greater than"),
        ("grading.timeout=1e308", "grading.timeout='1e308': input should be less than"),
        ("slow.steps={}", "slow.steps={}: input should be a valid integer"),
        (f"model={LONG * 20}", "string should have at most 4096 characters"),
        (f"{LONG * 20}=1", "is not KEY=VALUE"),
        (f"slow={{? {LONG * 20} : 1}}", "has 6,000 characters"),
    ],
)
def test_a_value_of_another_kind_is_refused_with_its_key(
    setting: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["recipe", str(fastslow_recipe()), "task=rulebook", setting])
    heard = capsys.readouterr().err
    assert ended.value.code == 2
    assert said in heard
    assert len(heard) < 800
    assert "unexpected" not in heard


def test_an_option_of_a_task_that_is_a_number_is_not_true(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["tasks", "rulebook", "train=true"])
    assert "train=True: expected a number, not true or false" in capsys.readouterr().err


@pytest.mark.parametrize("key", ["fast.optimizer", "fast.reflection", "engine", "slow.rescue"])
@pytest.mark.parametrize("name", ["os:getcwd", "fractions:Fraction"])
def test_a_part_that_is_something_else_is_refused(key: str, name: str) -> None:
    section, _, word = key.rpartition(".")
    with pytest.raises(RecipeError, match=rf"'{name}' (is no subclass of fastslow\.|has no options)"):
        build_recipe({"model": "nano", "task": "rulebook", **({section: {word: name}} if section else {word: name})})


@pytest.mark.parametrize("rate", [1e300, 1e7, float("inf"), float("nan"), 0.0, -1e-3])
def test_a_learning_rate_that_cannot_be_meant_is_refused(rate: float) -> None:
    with pytest.raises(RecipeError, match=r"slow\.learning_rate"):
        build_recipe({"model": "nano", "task": "rulebook", "slow": {"learning_rate": rate}})


@pytest.mark.parametrize("name", ["builtins:exit", "builtins:quit", "sys:exit", "os:abs"])
def test_a_task_that_ends_the_process_is_an_error(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(f"model: nano\ntask: {{name: '{name}'}}\n")
    for command in (["check", str(recipe)], ["tasks", name]):
        with pytest.raises(SystemExit) as ended:
            main(command)
        assert ended.value.code == 2, command
        assert name in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["tasks", "rulebook", "--count", "-1"],
        ["tasks", "formats", "--count", "9" * 30],
        ["eval", "run", "--k", "9" * 30],
        ["tasks", "rulebook", r"book=$\frac{$"],
        ["tasks", "rulebook", "book=[/x]"],
    ],
)
def test_odd_arguments_of_tasks_end_with_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    said = capsys.readouterr()
    assert "unexpected" not in said.err
    assert "Traceback" not in said.out + said.err


class Odd(BaseException):
    pass


@pytest.mark.parametrize(
    "raised",
    [Odd("boom"), SystemExit(0), GeneratorExit(), asyncio.CancelledError()],
    ids=["own", "exit", "generator", "cancelled"],
)
def test_whatever_a_grader_raises_is_a_fault_of_the_grader(raised: BaseException, tmp_path: Path) -> None:
    def grader(row: dict[str, Any], answer: str) -> float:
        raise raised

    with pytest.raises(FastSlowError, match=f"grading failed on all .* {type(raised).__name__}"):
        fastslow.train(task=ROWS, grader=grader, folder=tmp_path / "run", **TINY)


def test_runs_of_two_threads_take_turns(tmp_path: Path) -> None:
    ended: dict[int, Any] = {}

    def train(number: int) -> None:
        try:
            folder = tmp_path / str(number)
            ended[number] = fastslow.train(task=ROWS, grader=graded, folder=folder, seed=number, **TINY).status
        except BaseException as error:
            ended[number] = error

    threads = [threading.Thread(target=train, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ended == {0: "finished", 1: "finished"}


def test_a_run_inside_a_run_is_refused() -> None:
    with api.one_at_a_time(), pytest.raises(FastSlowError, match="inside another one"), api.one_at_a_time():
        pass
    with api.one_at_a_time():
        pass


ESCAPES = "\x1b[2J\x1b]0;title\x07 \x9b31m\r\x08[/x] [bold]bold[/bold] \u202e"


@pytest.mark.parametrize("shown", [str, Text, lambda text: Panel(Text(text), title=Text(text))])
def test_the_terminal_is_commanded_by_nobody_else(shown: Any) -> None:
    printed = io.StringIO()
    console = Terminal(file=printed, force_terminal=True, width=200)
    table = Table("name", title="table")
    table.add_row(ESCAPES)
    console.print(shown(ESCAPES), table, highlight=False)
    found = printed.getvalue()
    assert "[2J" in found
    assert not {"\x1b[2J", "\x1b]", "\x07", "\x9b", "\r", "\x08", "\u202e"} & {
        each for each in ("\x1b[2J", "\x1b]", "\x07", "\x9b", "\r", "\x08", "\u202e") if each in found
    }
    assert "[/x] [bold]bold[/bold]" in found


def test_what_cannot_be_spelled_is_named_by_its_type() -> None:
    class Silent:
        def __str__(self) -> str:
            raise RuntimeError("no")

    assert one_line(16**6000) == "<int>"
    assert one_line(Silent()) == "<Silent>"
    assert sys.get_int_max_str_digits() == 4300
