from __future__ import annotations

import json
import math
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from helpers import save_checkpoint
from run_helpers import Start, make_rollout

from fastslow.base.errors import RunError
from fastslow.recipe import Recipe, build_recipe
from fastslow.runs import files
from fastslow.runs.folder import RunFolder
from fastslow.runs.rollout_files import PIECES

HOLD = """
import sys
from fastslow.runs.folder import RunFolder
run = RunFolder.open({path!r}, lock=True)
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def run(tmp_path: Path, recipe: Recipe) -> RunFolder:
    return RunFolder.create(tmp_path / "run", recipe)


def test_created_folder_says_what_made_it_and_gives_the_recipe_back(run: RunFolder, recipe: Recipe) -> None:
    about = run.read_json("run.json")
    assert about is not None
    assert (about["status"], about["seed"]) == ("running", 7)
    assert set(about["versions"]) == {"python", "fastslow", "torch", "transformers", "trl", "gepa"}
    assert about["versions"]["gepa"] == "0.1.4"
    assert RunFolder.open(run.path).recipe == recipe


def test_status_is_updated_in_place(run: RunFolder) -> None:
    run.set_status("finished", steps=20)
    about = run.read_json("run.json")
    assert about is not None
    assert (about["status"], about["steps"], about["seed"]) == ("finished", 20, 7)


def test_tags_are_added_and_removed_while_the_run_trains(run: RunFolder) -> None:
    reader = RunFolder.open(run.path)
    assert reader.tags == []
    assert reader.tag(["seed/7", "baseline"]) == ["baseline", "seed/7"]
    assert reader.tag(["baseline"], ["seed/7", "unknown"]) == ["baseline"]
    assert run.tags == ["baseline"]
    for bad in ("", "two words", "x" * 41, "<b>"):
        with pytest.raises(RunError, match="cannot be a tag; expected up to 40 letters"):
            reader.tag([bad])
    assert run.tags == ["baseline"]


def test_a_folder_with_a_run_is_not_overwritten(run: RunFolder, recipe: Recipe) -> None:
    run.close()
    with pytest.raises(RunError, match=r"already holds a run.*--resume .*output\.folder"):
        RunFolder.create(run.path, recipe)
    # The refusal must not keep the folder locked.
    RunFolder.open(run.path, lock=True).close()


def test_a_recipe_of_the_users_is_not_overwritten(tmp_path: Path, recipe: Recipe) -> None:
    (tmp_path / "recipe.yaml").write_text("mine")
    with pytest.raises(RunError, match=r"recipe\.yaml"):
        RunFolder.create(tmp_path, recipe)
    assert (tmp_path / "recipe.yaml").read_text() == "mine"


def test_a_path_that_cannot_be_made_is_explained(tmp_path: Path, recipe: Recipe) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match="is not a folder"):
        RunFolder.create(tmp_path / "file" / "run", recipe)


def test_opening_says_what_is_missing(tmp_path: Path, run: RunFolder) -> None:
    with pytest.raises(RunError, match="no run folder"):
        RunFolder.open(tmp_path / "nowhere")
    with pytest.raises(RunError, match=r"no run\.json"):
        RunFolder.open(tmp_path)
    (run.path / "recipe.yaml").unlink()
    with pytest.raises(RunError, match=r"no recipe\.yaml"):
        RunFolder.open(run.path)


def test_second_process_is_refused_by_the_pid_until_the_first_is_killed(run: RunFolder, start: Start) -> None:
    run.close()
    holder = start(HOLD.format(path=str(run.path)))
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    with pytest.raises(RunError, match=f"in use by process {holder.pid}"):
        RunFolder.open(run.path, lock=True)
    RunFolder.open(run.path).rows("metrics")  # reading needs no lock

    os.kill(holder.pid, signal.SIGKILL)
    holder.wait()
    with RunFolder.open(run.path, lock=True):
        assert (run.path / "lock").read_text() == str(os.getpid())


def test_lock_ends_with_the_object(run: RunFolder) -> None:
    path = run.path
    with pytest.raises(RunError, match=str(os.getpid())):
        RunFolder.open(path, lock=True)
    run.close()
    with RunFolder.open(path, lock=True), pytest.raises(RunError):
        RunFolder.open(path, lock=True)
    RunFolder.open(path, lock=True).close()


def test_a_forked_worker_that_outlives_the_run_does_not_keep_the_lock(run: RunFolder, start: Start) -> None:
    run.close()
    # The worker speaks, not the run: only once fork has returned in it has it let go of what it inherited.
    worker = "import os, time\nif not os.fork():\n    print(os.getpid(), flush=True)\n    time.sleep(60)\n"
    holder = start(HOLD.format(path=str(run.path)).replace('print("held", flush=True)\n', worker))
    assert holder.stdout is not None
    child = int(holder.stdout.readline())
    try:
        with pytest.raises(RunError, match=f"in use by process {holder.pid}"):
            RunFolder.open(run.path, lock=True)
        os.kill(holder.pid, signal.SIGKILL)
        holder.wait()
        os.kill(child, 0)
        RunFolder.open(run.path, lock=True).close()
    finally:
        os.kill(child, signal.SIGKILL)


def test_rows_come_back_with_null_for_what_json_cannot_say(run: RunFolder) -> None:
    import numpy as np

    assert run.rows("metrics") == []
    run.append("metrics", {"step": 1, "reward": math.nan, "parts": [math.inf, 0.5], "norm": np.float32(0.25)})
    run.append("metrics", {"step": 2, "text": "zwölf \ud800"})
    assert run.rows("metrics") == [
        {"step": 1, "reward": None, "parts": [None, 0.5], "norm": 0.25},
        {"step": 2, "text": "zwölf \ud800"},
    ]


@pytest.mark.parametrize("torn", [b'{"step": 3, "rew', b'{"step": 3}', b"\xc3"])
def test_a_torn_last_line_is_passed_over_and_the_next_row_is_whole(run: RunFolder, torn: bytes) -> None:
    run.append("metrics", {"step": 1})
    with (run.path / "metrics.jsonl").open("ab") as file:
        file.write(torn)
    assert run.rows("metrics") == [{"step": 1}]
    run.append("metrics", {"step": 2})
    assert run.rows("metrics") == [{"step": 1}, {"step": 2}]


def test_what_is_missing_at_the_end_of_the_logs_is_said(run: RunFolder) -> None:
    assert run.truncated() == []
    for step in (1, 2):
        run.append("metrics", {"step": step})
    run.set_status("finished", steps=2)
    assert run.truncated() == []
    run.set_status("finished", steps=3)
    (said,) = run.truncated()
    assert said.endswith("metrics.jsonl' ends at step 2, but the run made 3 steps")
    with (run.path / "evals.jsonl").open("w") as file:
        file.write('{"step": 0}\n{"st')
    assert run.truncated()[0].endswith("evals.jsonl' ends in the middle of a line, which was skipped")


def test_a_damaged_line_in_the_middle_is_named(run: RunFolder) -> None:
    (run.path / "evals.jsonl").write_text('{"step": 1}\nbroken\n{"step": 2}\n')
    with pytest.raises(RunError, match="line 2 of"):
        run.rows("evals")
    with pytest.raises(RunError, match="line 2 of"):
        run.rewind(5)  # the row of the line is not to be had again
    run.rewind(1)
    assert run.rows("evals") == [{"step": 1}]


def test_a_checkpoint_that_was_saved_and_is_gone_is_missed(run: RunFolder) -> None:
    assert run.latest_checkpoint() is None
    for step in (2, 4):
        path = save_checkpoint(run.checkpoints, step)
        run.set_status("running", checkpoint=step)
    assert run.latest_checkpoint() == (4, path)
    shutil.rmtree(path)
    with pytest.raises(RunError, match=r"step 4, which is missing; .* --step \(2\)"):
        run.latest_checkpoint()
    shutil.rmtree(run.checkpoints.folder)
    for step in (1, 4):
        run.set_status("running", checkpoint=step)
        with pytest.raises(RunError, match=rf"step {step}, which is missing; .* start a new run"):
            run.latest_checkpoint()


def test_the_best_checkpoint_is_chosen_and_missed_where_the_last_is_not_asked_for(run: RunFolder) -> None:
    assert run.chosen_checkpoint() is None
    paths = {step: save_checkpoint(run.checkpoints, step) for step in (2, 4, 6)}
    assert run.chosen_checkpoint() == (6, paths[6]), "none was found to be better"
    for best in (6, 2, 4):
        run.set_status("running", best=best)
        assert run.chosen_checkpoint() == (best, paths[best])
        assert run.chosen_checkpoint(last=True) == (6, paths[6])
    shutil.rmtree(paths[4])
    for best in (4, "2", [4], 2.0, 10**50):
        run.set_status("running", best=best)
        with pytest.raises(RunError, match=r"as its best, which is missing; .* choose another with --step \(2, 6\)"):
            run.chosen_checkpoint()
        assert run.chosen_checkpoint(last=True) == (6, paths[6])


def test_rewind_says_how_many_steps_are_lost(run: RunFolder) -> None:
    assert run.rewind(-1) == 0
    for step in (1, 2, 3):
        run.append("metrics", {"step": step})
    assert run.rewind(3) == 0
    assert run.rewind(1) == 2
    assert run.rewind(-1) == 1


def test_rewind_forgets_what_came_after_the_step(run: RunFolder) -> None:
    for step in range(6):
        run.append("metrics", {"step": step})
        run.save_rollouts(step, [make_rollout()])
        save_checkpoint(run.checkpoints, step)
    run.append("evals", {"step": 0})
    run.append("evals", {"step": 5})
    run.save_cycle(1, {"cycle": 1})
    with (run.path / "metrics.jsonl").open("ab") as file:
        file.write(b'{"st')
    run.checkpoints.begin(9)
    (run.path / ".writing-run.json").touch()

    run.rewind(3)

    assert [row["step"] for row in run.rows("metrics")] == [0, 1, 2, 3]
    assert (run.path / "metrics.jsonl").read_bytes().endswith(b"\n")
    assert [row["step"] for row in run.rows("evals")] == [0]
    assert sorted(path.name for path in (run.path / "rollouts").iterdir()) == [
        f"step-{n:06d}.parquet" for n in range(4)
    ]
    assert run.checkpoints.steps() == [0, 1, 2, 3]
    assert run.cycle(1) == {"cycle": 1}
    assert list(run.path.rglob(".*")) == []

    run.rewind(-1)
    assert (run.rows("metrics"), run.rows("evals"), run.checkpoints.steps()) == ([], [], [])


def test_rollouts_are_kept_as_a_table(run: RunFolder) -> None:
    rollouts = [make_rollout("a", 1.0), make_rollout("b", 0.0, turns=2, feedback="not \ud800")]
    run.rollout_writer.decode = lambda ids: f"<{ids[0]}>"
    run.save_rollouts(12, rollouts, ["slow", "fast-score"], [0.5, None])
    table = pq.read_table(run.path / "rollouts/step-000012.parquet")
    assert json.loads(table.schema.metadata[PIECES]) == {"4": "<4>", "5": "<5>"}
    row = table.to_pylist()[1]
    assert [[round(float(number), 2) for number in turn] for turn in row.pop("logprobs")] == [[-0.1, -0.2]] * 2
    assert row == {
        "example": "b",
        "context": rollouts[1].context.id,
        "policy_step": 4,
        "score": 0.0,
        "faults": ["grader"],
        "feedback": "not \\ud800",
        "error": "",
        "components": ["system", "system"],
        "questions": ["a question", "a question"],
        "answers": ["an answer", "an answer"],
        "tokens": [[4, 5], [4, 5]],
        "advantage": None,
        "prompt_tokens": 6,
        "completion_tokens": 4,
        "purpose": "fast-score",
    }
    run.save_rollouts(13, [])
    assert pq.read_table(run.path / "rollouts/step-000013.parquet").num_rows == 0


def test_rewind_forgets_evaluations_after_the_step(run: RunFolder) -> None:
    for step in (0, 2, 4):
        run.save_rollouts(step, [make_rollout("a", 1.0)], of="evaluation")
    run.rewind(2)
    assert sorted(path.name for path in (run.path / "rollouts").glob("evaluation-*")) == [
        "evaluation-000000.parquet",
        "evaluation-000002.parquet",
    ]


def test_cycles_come_back_in_order(run: RunFolder) -> None:
    for cycle in (10, 2, 0):
        run.save_cycle(cycle, {"cycle": cycle, "score": math.nan})
    assert run.cycle(10) == {"cycle": 10, "score": None}
    assert run.cycle(3) is None
    assert [data["cycle"] for data in run.cycles()] == [0, 2, 10]
    (run.path / "contexts" / "cycle-0002.json").write_text("{")
    with pytest.raises(RunError, match=r"cycle-0002\.json"):
        run.cycles()


def test_full_disk_is_explained_and_leaves_what_was_there(run: RunFolder) -> None:
    """A file size limit makes the kernel refuse real writes in the middle, as a full disk does."""
    run.append("metrics", {"step": 1})
    run.write_json("ledger.json", {"spent": 1})
    run.save_rollouts(1, [make_rollout()])
    run.close()
    code = f"""
import resource
from fastslow.base.errors import RunError
from fastslow.runs import files
from fastslow.runs.folder import RunFolder
from run_helpers import make_rollout
run = RunFolder.open({str(run.path)!r}, lock=True)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
for write in (
    lambda: run.append("metrics", {{"step": 2, "text": "x" * 2000}}),
    lambda: run.write_json("ledger.json", {{"text": "x" * 2000}}),
    lambda: run.save_rollouts(1, [make_rollout(str(n)) for n in range(999)]),
):
    try:
        write()
    except RunError as error:
        print(error)
"""
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=Path(__file__).parent, capture_output=True, text=True, check=True
    )
    said = result.stdout.splitlines()
    assert [name in line for name, line in zip(("metrics", "ledger", "step-000001"), said, strict=True)] == [True] * 3
    assert all("File too large" in line for line in said)
    assert (run.path / "metrics.jsonl").read_text() == '{"step": 1}\n'
    assert run.read_json("ledger.json") == {"spent": 1}
    assert pq.read_table(run.path / "rollouts/step-000001.parquet").num_rows == 1
    assert list(run.path.rglob(".*")) == []


def test_a_run_that_was_killed_before_it_had_begun_is_started_again(tmp_path: Path) -> None:
    """The lock and the recipe are there, run.json is not; a recipe alone may be somebody's."""
    recipe = build_recipe({"model": "nano", "task": "given"})
    RunFolder.create(tmp_path / "run", recipe).close()
    (tmp_path / "run" / "run.json").unlink()
    RunFolder.create(tmp_path / "run", recipe).close()
    (tmp_path / "run" / "run.json").unlink()
    (tmp_path / "run" / "lock").unlink()
    with pytest.raises(RunError, match=r"holds recipe\.yaml, which a new run would write"):
        RunFolder.create(tmp_path / "run", recipe)


@pytest.mark.parametrize(
    "name",
    [
        *("metrics.jsonl", "evals.jsonl", "ledger.jsonl", "candidates.jsonl", "ledger.json", "recipe.yaml"),
        *("rollouts/step-000001.parquet", "contexts/cycle-0000.json", "checkpoints/step-000002/weights"),
    ],
)
def test_a_folder_with_somebody_elses_files_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_text("precious")
    recipe = build_recipe({"model": "nano", "task": "given"})
    with pytest.raises(RunError, match=rf"holds {name.partition('/')[0]}, which a new run would write; move it away"):
        RunFolder.create(tmp_path, recipe)
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == [Path(name).name]
    assert (tmp_path / name).read_text() == "precious"


def test_a_path_of_thousands_of_folders_is_refused(tmp_path: Path) -> None:
    deep = tmp_path / ("a/" * 2000)
    with pytest.raises(RunError, match="cannot be the path of a run folder"):
        RunFolder.create(deep, build_recipe({"model": "nano", "task": "given"}))
    assert not list(tmp_path.iterdir())


def test_what_could_be_read_without_end_is_no_file(tmp_path: Path) -> None:
    for name in ("pipe", "device"):
        place = tmp_path / name
        if name == "pipe":
            os.mkfifo(place)
        else:
            place.symlink_to("/dev/zero")
        for read in (files.read_json, files.read_packed, files.read_rows, files.read_table):
            with pytest.raises(RunError, match=rf"{name}' cannot be read.*it is no file"):
                read(place)
        assert not files.has_partial_line(place)
