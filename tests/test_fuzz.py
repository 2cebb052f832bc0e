"""Whatever a recipe, a dataset, a run folder or a proposal holds: one clear error or success, never another exception."""

from __future__ import annotations

import contextlib
import io
import json
import os
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml
from helpers import save_checkpoint
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.console import Console

from fastslow.base.errors import FastSlowError
from fastslow.base.text import hidden_characters
from fastslow.commands.app import main
from fastslow.fast.reflection.base import TextRequest
from fastslow.fast.reflection.language_model import Unusable, read_text
from fastslow.launch.assembly import open_snapshot
from fastslow.recipe import Recipe, build_recipe, dump_recipe, load_recipe, walk
from fastslow.recipe.parts import SLOTS
from fastslow.runs.checkpoint import Checkpoints
from fastslow.runs.folder import RunFolder
from fastslow.runs.ledger import show_ledger
from fastslow.runs.tree import show_contexts
from fastslow.tasks.registry import build_task

HOSTILE = settings(
    deadline=None,
    max_examples=60,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
words = st.text(max_size=12) | st.sampled_from(
    ["", "nano", "[/x]", "$\\frac{$", "a:b", "\x1b[2J", "\x00", "../..", "\ud800"]
)
numbers = st.integers() | st.floats() | st.sampled_from([10**12, -1, 10**30])
values = st.recursive(
    st.none() | st.booleans() | numbers | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=6,
)
KEYS = [key for key, _ in walk(Recipe)]
KEYS += [f"{key}.{option}" for key, slot in SLOTS.items() for _, option, _ in slot.known_options()]


def nested(key: str, value: Any) -> dict[str, Any]:
    head, _, rest = key.partition(".")
    return {head: nested(rest, value) if rest else value}


@HOSTILE
@given(st.lists(st.tuples(st.sampled_from(KEYS), values), max_size=3))
def test_recipes(changes: list[tuple[str, Any]]) -> None:
    data: dict[str, Any] = {"model": "nano", "task": "rulebook"}
    for key, value in changes:
        data.update(nested(key, value))
    with contextlib.suppress(FastSlowError):
        dump_recipe(build_recipe(data))


@HOSTILE
@given(
    data=st.binary(max_size=200)
    | values.map(lambda value: yaml.safe_dump(value, allow_unicode=True).encode("utf-8", "replace"))
)
def test_recipe_files(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_bytes(data)
    with contextlib.suppress(FastSlowError):
        load_recipe(tmp_path / "recipe.yaml")


@HOSTILE
@given(key=st.sampled_from(KEYS) | words, value=words)
def test_overrides_end_with_0_or_2_and_no_escape_sequence(key: str, value: str, tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text("model: nano\ntask: rulebook\n")
    said = io.StringIO()
    with (
        contextlib.redirect_stderr(said),
        contextlib.redirect_stdout(io.StringIO()),
        pytest.raises(SystemExit) as ended,
    ):
        main(["recipe", str(tmp_path / "recipe.yaml"), "--", f"{key}={value}"])
    assert ended.value.code in (0, 2)
    assert "\x1b" not in said.getvalue()
    assert "Traceback" not in said.getvalue()
    assert "unexpected" not in said.getvalue()


PLAIN = "model: nano\ntask: rulebook\nsampling: {max_tokens: 16}\n"
BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 10)}]\n" for level in range(1, 12)
)


@pytest.mark.parametrize(
    ("recipe", "overrides", "said"),
    [
        (BOMB, [], "more than 100,000 values"),
        (PLAIN, [f"seed={'9' * 5000}"], "seed"),
        (PLAIN, ["slow.group=1000000000000"], "slow.group"),
        (PLAIN, ["task={name: dataset, path: FOLDER/fifo.jsonl}"], "fifo.jsonl"),
        (PLAIN, ["output.folder=FOLDER/dangling"], "dangling"),
        (PLAIN, ["task={name: verifiers/lacking}"], "No module named 'nothing_of_that_name'"),
    ],
    ids=[
        "alias bomb",
        "a number of 5,000 digits",
        "a group of 10^12",
        "a fifo",
        "a dangling link",
        "a missing package",
    ],
)
def test_the_worst_recipes_end_with_one_line_at_once_and_leave_nothing(
    recipe: str, overrides: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import_module("fastslow.launch.start")  # modules take longer to load than all of this
    if "verifiers" in "".join(overrides):
        pytest.importorskip("verifiers.v1.tasksets")

    os.mkfifo(tmp_path / "fifo.jsonl")
    (tmp_path / "dangling").symlink_to(tmp_path / "absent" / "folder")
    (tmp_path / "lacking.py").write_text("import nothing_of_that_name\n")
    (tmp_path / "recipe.yaml").write_text(recipe)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    before, heard, started = sorted(tmp_path.rglob("*")), io.StringIO(), time.process_time()
    given_folder = (
        [] if any("output.folder" in override for override in overrides) else [f"output.folder={tmp_path / 'run'}"]
    )
    with contextlib.redirect_stderr(heard), pytest.raises(SystemExit) as ended:
        main(["train", "recipe.yaml", *(each.replace("FOLDER", str(tmp_path)) for each in overrides), *given_folder])
    assert time.process_time() - started < 10
    assert ended.value.code == 2
    assert heard.getvalue().count("\n") == 1
    assert said in heard.getvalue()
    assert "unexpected" not in heard.getvalue()
    assert [path for path in sorted(tmp_path.rglob("*")) if "__pycache__" not in str(path)] == before


rows = st.dictionaries(st.sampled_from(["question", "answer", "id", "x"]), values, max_size=4)


@HOSTILE
@given(
    data=st.binary(max_size=100) | st.lists(rows, max_size=6).map(lambda all: "\n".join(map(json.dumps, all)).encode())
)
def test_datasets(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_bytes(data)
    recipe = build_recipe({"model": "nano", "task": {"name": "dataset", "path": str(tmp_path / "rows.jsonl")}})
    with contextlib.suppress(FastSlowError):
        task = build_task(recipe)
        for example in task.examples("train"):
            task.messages(example)  # type: ignore[attr-defined]


FILES = ("run.json", "recipe.yaml", "metrics.jsonl", "ledger.jsonl", "evals.jsonl", "contexts/cycle-0000.json",
         "checkpoints/step-000001/state.json", "checkpoints/step-000001/manifest.json")  # fmt: skip


@HOSTILE
@given(
    name=st.sampled_from(FILES),
    data=st.binary(max_size=60) | values.map(lambda value: (json.dumps(value) + "\n").encode()),
)
def test_run_folders(name: str, data: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("run") / "run"
    with RunFolder.create(folder, build_recipe({"model": "nano", "task": "given"})) as run:
        run.append("metrics", {"step": 1})
        run.save_cycle(0, {"cycle": 0})
        save_checkpoint(run.checkpoints, 1, "state.json", '{"pool": []}')
    (folder / name).write_bytes(data)
    console = Console(file=io.StringIO())
    for look in (
        lambda: open_snapshot(folder),
        lambda: RunFolder.open(folder).latest_checkpoint(),
        lambda: RunFolder.open(folder).rewind(1),
        lambda: Checkpoints(folder / "checkpoints").latest(),
        lambda: show_contexts(RunFolder.open(folder), console, full=False),
        lambda: show_ledger(RunFolder.open(folder), console, steps=True),
    ):
        with contextlib.suppress(FastSlowError):
            look()


@HOSTILE
@given(st.text(max_size=80), st.booleans())
def test_proposals(answer: str, truncated: bool) -> None:
    """What is taken from an answer can be read by people."""
    request = TextRequest("", lambda _: "", max_tokens=50, count_tokens=len)
    with contextlib.suppress(Unusable):
        text = read_text(f"```\n{answer}\n```", truncated, request)
        assert text.strip()
        assert not hidden_characters(text)
