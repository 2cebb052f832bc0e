from __future__ import annotations

import os
import signal
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
from run_helpers import Start

from fastslow.base.errors import RunError
from fastslow.runs.checkpoint import Checkpoints


@pytest.fixture
def checkpoints(tmp_path: Path) -> Checkpoints:
    return Checkpoints(tmp_path / "checkpoints")


def filled(text: str) -> Callable[[Path], None]:
    def fill(path: Path) -> None:
        (path / "model").mkdir()
        (path / "model" / "weights.bin").write_bytes(text.encode() * 100)
        (path / "state.json").write_text("{}")

    return fill


def names(checkpoints: Checkpoints) -> list[str]:
    return sorted(path.name for path in checkpoints.folder.iterdir())


def test_what_was_written_is_found(checkpoints: Checkpoints) -> None:
    assert checkpoints.latest() is None
    assert checkpoints.steps() == []
    checkpoints.write(50, filled("a"))
    checkpoints.write(100, filled("b"))
    assert checkpoints.steps() == [50, 100]
    assert checkpoints.latest() == (100, checkpoints.folder / "step-000100")
    assert (checkpoints.get(50) / "model" / "weights.bin").read_bytes() == b"a" * 100


def test_writing_a_step_again_replaces_it(checkpoints: Checkpoints) -> None:
    checkpoints.write(50, filled("a"))
    checkpoints.write(50, filled("b"))
    assert (checkpoints.get(50) / "model" / "weights.bin").read_bytes() == b"b" * 100
    assert names(checkpoints) == ["step-000050"]


def test_several_processes_can_fill_one(checkpoints: Checkpoints, start: Start) -> None:
    path = checkpoints.begin(5)
    others = [
        start(
            "from pathlib import Path; from fastslow.runs.checkpoint import Checkpoints\n"
            f"(Checkpoints(Path({str(checkpoints.folder)!r})).temporary(5) / 'shard-{rank}').write_text('{rank}')"
        )
        for rank in range(2)
    ]
    assert [other.wait() for other in others] == [0, 0]
    assert path == checkpoints.temporary(5)
    assert checkpoints.latest() is None
    checkpoints.commit(5)
    assert sorted(file.name for file in checkpoints.get(5).iterdir()) == ["manifest.json", "shard-0", "shard-1"]


def test_an_abandoned_one_leaves_nothing(checkpoints: Checkpoints) -> None:
    filled("a")(checkpoints.begin(5))
    checkpoints.abandon(5)
    assert names(checkpoints) == []


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), RuntimeError("PytorchStreamWriter failed")])
def test_a_failing_fill_changes_nothing(checkpoints: Checkpoints, error: Exception) -> None:
    checkpoints.write(50, filled("a"))

    def fail(path: Path) -> None:
        filled("b")(path)
        raise error

    for step in (50, 100):
        with pytest.raises(RunError, match=rf"checkpoint of step {step} was not saved: .*{str(error)[-10:]}.*\(50\)"):
            checkpoints.write(step, fail)
    assert names(checkpoints) == ["step-000050"]
    assert (checkpoints.get(50) / "model" / "weights.bin").read_bytes() == b"a" * 100


def test_an_interrupt_stays_an_interrupt(checkpoints: Checkpoints) -> None:
    def interrupted(path: Path) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        checkpoints.write(1, interrupted)
    assert names(checkpoints) == []


def test_a_process_killed_in_the_middle_leaves_the_previous_one_the_latest(
    checkpoints: Checkpoints, start: Start
) -> None:
    checkpoints.write(50, filled("a"))
    writer = start(f"""
from pathlib import Path
from fastslow.runs.checkpoint import Checkpoints
def fill(path):
    (path / "weights.bin").write_text("half")
    print("halfway", flush=True)
    input()
Checkpoints(Path({str(checkpoints.folder)!r})).write(100, fill)
""")
    assert writer.stdout is not None
    assert writer.stdout.readline() == "halfway\n"
    os.kill(writer.pid, signal.SIGKILL)
    writer.wait()

    assert names(checkpoints) == [".writing-step-000100", "step-000050"]
    assert checkpoints.latest() == (50, checkpoints.folder / "step-000050")
    checkpoints.write(100, filled("c"))
    assert checkpoints.steps() == [50, 100]


def test_a_disk_that_refuses_a_write_keeps_the_old_checkpoint(checkpoints: Checkpoints, start: Start) -> None:
    checkpoints.write(50, filled("a"))
    writer = start(f"""
import resource
from pathlib import Path
from fastslow.base.errors import RunError
from fastslow.runs.checkpoint import Checkpoints
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
def large(path):
    (path / "weights.bin").write_bytes(b"x" * 100_000)
def many(path):  # each file fits, the manifest that lists them does not
    for number in range(100):
        (path / str(number)).touch()
for fill in (large, many):
    try:
        Checkpoints(Path({str(checkpoints.folder)!r})).write(100, fill)
    except RunError as error:
        print(error)
""")
    said, trouble = writer.communicate(timeout=300)
    assert [line.startswith("checkpoint of step 100 was not saved:") for line in said.splitlines()] == [True, True], (
        trouble
    )
    assert said.count("File too large") == 2
    assert names(checkpoints) == ["step-000050"]
    assert checkpoints.latest() == (50, checkpoints.folder / "step-000050")


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: flip(path / "model" / "weights.bin"),
        lambda path: (path / "model" / "weights.bin").write_bytes(b""),
        lambda path: (path / "state.json").unlink(),
        lambda path: (path / "manifest.json").unlink(),
        lambda path: (path / "manifest.json").write_text("[]"),
        lambda path: (path / "manifest.json").write_text('{"files": 1}'),
        lambda path: (path / "manifest.json").write_text('{"files": {}}'),
        lambda path: (path / "model" / "modeling.py").write_text("import os"),
        lambda path: (path / "model" / "adapter.bin").symlink_to("/etc/passwd"),
        lambda path: (path / "manifest.json").write_text("[" * 100_000),
    ],
)
def test_a_damaged_checkpoint_is_refused_and_never_replaced_by_another(
    checkpoints: Checkpoints, damage: Callable[[Path], None]
) -> None:
    checkpoints.write(50, filled("a"))
    damage(checkpoints.write(100, filled("b")))
    for look in (checkpoints.latest, lambda: checkpoints.get(100)):
        with pytest.raises(RunError, match=r"step 100, .* is damaged: .*; choose another with --step \(50\)"):
            look()
    assert checkpoints.get(50) == checkpoints.folder / "step-000050"


def test_if_all_are_damaged_there_is_nothing_to_choose(checkpoints: Checkpoints) -> None:
    (checkpoints.write(50, filled("a")) / "state.json").unlink()
    with pytest.raises(RunError, match="there is no other; restore it from a copy"):
        checkpoints.latest()


def test_a_whole_checkpoint_gives_no_warning(checkpoints: Checkpoints) -> None:
    checkpoints.write(50, filled("a"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert checkpoints.latest() is not None


def test_asking_for_a_step_that_is_not_there_lists_those_that_are(checkpoints: Checkpoints) -> None:
    with pytest.raises(RunError, match="there are none"):
        checkpoints.get(7)
    checkpoints.write(50, filled("a"))
    checkpoints.write(100, filled("a"))
    with pytest.raises(RunError, match=r"no checkpoint of step 7 .*there are 50, 100"):
        checkpoints.get(7)


def test_pruning_keeps_the_newest(checkpoints: Checkpoints) -> None:
    for step in (1, 2, 3, 10):
        checkpoints.write(step, filled("a"))
    checkpoints.prune(None)
    assert checkpoints.steps() == [1, 2, 3, 10]
    checkpoints.prune(2)
    assert names(checkpoints) == ["step-000003", "step-000010"]
    checkpoints.prune(5)
    assert checkpoints.steps() == [3, 10]


def test_pruning_removes_what_no_schedule_asked_for_unless_it_must_stay(checkpoints: Checkpoints) -> None:
    for step in (1, 2, 3, 4):
        filled("a")(checkpoints.begin(step))
        checkpoints.commit(step, scheduled=step in (1, 4))
    checkpoints.prune(None, stay=[2])
    assert checkpoints.steps() == [1, 2, 4]
    checkpoints.prune(1, stay=[1])
    assert checkpoints.steps() == [1, 4]
