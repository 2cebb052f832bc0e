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


def write(checkpoints: Checkpoints, step: int, text: str) -> Path:
    filled(text)(checkpoints.begin(step))
    return checkpoints.commit(step)


def names(checkpoints: Checkpoints) -> list[str]:
    return sorted(path.name for path in checkpoints.folder.iterdir())


def test_what_was_written_is_found(checkpoints: Checkpoints) -> None:
    assert checkpoints.latest() is None
    assert checkpoints.steps() == []
    write(checkpoints, 50, "a")
    write(checkpoints, 100, "b")
    assert checkpoints.steps() == [50, 100]
    assert checkpoints.latest() == (100, checkpoints.folder / "step-000100")
    assert (checkpoints.get(50) / "model" / "weights.bin").read_bytes() == b"a" * 100


def test_writing_a_step_again_replaces_it(checkpoints: Checkpoints) -> None:
    write(checkpoints, 50, "a")
    write(checkpoints, 50, "b")
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


def test_a_process_killed_in_the_middle_leaves_the_previous_one_the_latest(
    checkpoints: Checkpoints, start: Start
) -> None:
    write(checkpoints, 50, "a")
    writer = start(f"""
from pathlib import Path
from fastslow.runs.checkpoint import Checkpoints
path = Checkpoints(Path({str(checkpoints.folder)!r})).begin(100)
(path / "weights.bin").write_text("half")
print("halfway", flush=True)
input()
""")
    assert writer.stdout is not None
    assert writer.stdout.readline() == "halfway\n"
    os.kill(writer.pid, signal.SIGKILL)
    writer.wait()

    assert names(checkpoints) == [".writing-step-000100", "step-000050"]
    assert checkpoints.latest() == (50, checkpoints.folder / "step-000050")
    write(checkpoints, 100, "c")
    assert checkpoints.steps() == [50, 100]


def test_a_disk_that_refuses_a_write_keeps_the_old_checkpoint(checkpoints: Checkpoints, start: Start) -> None:
    write(checkpoints, 50, "a")
    writer = start(f"""
import resource
from pathlib import Path
from fastslow.base.errors import RunError
from fastslow.runs.checkpoint import Checkpoints
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
checkpoints = Checkpoints(Path({str(checkpoints.folder)!r}))
path = checkpoints.begin(100)
for number in range(100):  # each file fits, the manifest that lists them does not
    (path / str(number)).touch()
try:
    checkpoints.commit(100)
except RunError as error:
    print(error)
""")
    said, trouble = writer.communicate(timeout=300)
    assert said.startswith("checkpoint of step 100 was not saved:"), trouble
    assert "File too large" in said
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
    write(checkpoints, 50, "a")
    damage(write(checkpoints, 100, "b"))
    for look in (checkpoints.latest, lambda: checkpoints.get(100)):
        with pytest.raises(RunError, match=r"step 100, .* is damaged: .*; choose another with --step \(50\)"):
            look()
    assert checkpoints.get(50) == checkpoints.folder / "step-000050"


def test_if_all_are_damaged_there_is_nothing_to_choose(checkpoints: Checkpoints) -> None:
    (write(checkpoints, 50, "a") / "state.json").unlink()
    with pytest.raises(RunError, match="there is no other; restore it from a copy"):
        checkpoints.latest()


def test_a_whole_checkpoint_gives_no_warning(checkpoints: Checkpoints) -> None:
    write(checkpoints, 50, "a")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert checkpoints.latest() is not None


def test_asking_for_a_step_that_is_not_there_lists_those_that_are(checkpoints: Checkpoints) -> None:
    with pytest.raises(RunError, match="there are none"):
        checkpoints.get(7)
    write(checkpoints, 50, "a")
    write(checkpoints, 100, "a")
    with pytest.raises(RunError, match=r"no checkpoint of step 7 .*there are 50, 100"):
        checkpoints.get(7)


def test_pruning_keeps_the_newest(checkpoints: Checkpoints) -> None:
    for step in (1, 2, 3, 10):
        write(checkpoints, step, "a")
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
