"""Sorting runs into arms."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from study_helpers import made_run

from fastslow.base.errors import FastSlowError, RunError
from fastslow.recipe import build_recipe
from fastslow.runs.folder import RunFolder
from fastslow.study.arms import MORE_COLOURS, gather
from fastslow.study.report import described


def test_runs_that_differ_in_their_seed_alone_are_one_arm(tmp_path: Path) -> None:
    folders = [
        made_run(tmp_path / "b", [0.1, 0.3], method="rl", seed=1),
        made_run(tmp_path / "a", [0.1, 0.2, 0.5], method="rl", seed=0),  # of another length: the same arm
        made_run(tmp_path / "c", [0.1, 0.6], seed=0),
    ]
    arms, remarks = gather(folders)
    assert [(arm.label, list(arm.curves)) for arm in arms] == [("FST", [0]), ("RL only", [0, 1])]
    assert arms[1].curves[0].rewards == (0.1, 0.2, 0.5)
    assert arms[1].folders == {0: tmp_path / "a", 1: tmp_path / "b"}
    assert remarks == []
    assert arms[0].entropies[0][0] == (1, pytest.approx(1 / 1.1))


def test_what_fits_a_run_to_a_machine_makes_no_arm(tmp_path: Path) -> None:
    other = {
        "slow": {"steps": 10, "problems": 4, "group": 8, "microbatch": 16},
        "model": {"name": "nano", "gradient_checkpointing": True},
        "sampling": {"backend": "transformers"},
        "evaluation": {"divergence": False},
    }
    folders = [
        made_run(tmp_path / "a", [0.1, 0.3], method="rl"),
        made_run(tmp_path / "b", [0.1, 0.4], method="rl", seed=1, settings=other, kl=None),
    ]
    (arm,), remarks = gather(folders)
    assert list(arm.curves) == [0, 1]
    assert remarks == []


def test_arms_of_one_method_are_named_by_what_differs(tmp_path: Path) -> None:
    settings = {"fast": {"population": 2}, "sampling": {"max_tokens": 64}}
    folders = [
        made_run(tmp_path / "a", [0.1, 0.3]),
        made_run(tmp_path / "b", [0.1, 0.4], settings=settings),
        made_run(tmp_path / "c", [0.1, 0.3], method="rl"),
    ]
    arms, _ = gather(folders)
    assert [arm.label for arm in arms] == [
        "FST (fast.population=8, sampling.max_tokens=256)",
        "FST (fast.population=2, sampling.max_tokens=64)",
        "RL only",
    ]
    assert [arm.variant for arm in arms] == [0, 1, 0]
    assert arms[0].look.colour == arms[1].look.colour
    alone, _ = gather(folders[:2])
    assert alone[0].look.colour == arms[0].look.colour  # no other method to be told from
    assert alone[1].look.colour == MORE_COLOURS[0]


def test_arms_that_differ_in_much_are_named_by_what_tells_them_apart(tmp_path: Path) -> None:
    digest = {"fast": {"optimizer": "digest", "population": 2, "cycle": 2}}
    arms, remarks = gather(
        [made_run(tmp_path / "a", [0.1, 0.3]), made_run(tmp_path / "b", [0.1, 0.4], settings=digest)]
    )
    assert [arm.label for arm in arms] == ["FST (gepa)", "FST (digest)"]
    assert remarks[1] == "FST (digest) has, besides: fast.population=2, fast.cycle=2"


def test_the_names_of_arms_command_no_terminal(tmp_path: Path) -> None:
    settings = {"fast": {"seed_text": "\x1b[2J$x"}}
    arms, _ = gather([made_run(tmp_path / "a", [0.1, 0.3]), made_run(tmp_path / "b", [0.1, 0.4], settings=settings)])
    assert [arm.label for arm in arms] == ["FST (fast.seed_text=None)", "FST (fast.seed_text=\ufffd[2J$x)"]


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"task": {"name": "rulebook", "book": "harbour"}}, "task.book is library .* and harbour"),
        ({"task": "star-graph"}, "task.name is rulebook"),
        ({"evaluation": {"k": 8}}, "evaluation.k is 4 .* and 8"),
        ({"task": None, "stages": ["rulebook@20"], "slow": {"problems": 4, "microbatch": 8}}, "task"),
    ],
)
def test_rewards_of_another_task_or_measure_are_not_compared(settings: dict, key: str, tmp_path: Path) -> None:
    folders = [made_run(tmp_path / "a", [0.1, 0.3]), made_run(tmp_path / "b", [0.1, 0.3], settings=settings)]
    with pytest.raises(FastSlowError, match=f"are not comparable: {key}"):
        gather(folders)


def test_arms_that_begin_from_different_models_are_named_by_them(tmp_path: Path) -> None:
    same = {"sampling": {"max_tokens": 64}, "fast": {"max_tokens": 64}}  # else they follow the model
    other = {"model": "after-fst", **same}
    folders = [
        made_run(tmp_path / "a", [0.1, 0.3], method="rl", settings=same),
        made_run(tmp_path / "b", [0.1, 0.4], method="rl", settings=other),
        made_run(tmp_path / "c", [0.1, 0.5], settings=other),  # the only FST, and named all the same
    ]
    arms, remarks = gather(folders)
    assert [arm.label for arm in arms] == [
        "FST from after-fst",
        "RL only from nano",
        "RL only from after-fst",
    ]
    assert remarks == ["the runs start from 2 models (after-fst, nano); KL is from each run's own model"]
    assert "models after-fst, nano;" in described(arms)


def test_an_unfinished_run_is_shown_and_an_empty_one_skipped(tmp_path: Path) -> None:
    recipe = build_recipe({"model": "nano", "task": {"name": "rulebook", "book": "library"}})
    RunFolder.create(tmp_path / "empty", recipe).close()
    arms, remarks = gather([made_run(tmp_path / "a", [0.1, 0.3], status="interrupted"), tmp_path / "empty"])
    assert remarks == [
        f"'{tmp_path / 'empty'}' has no evaluations yet and was skipped",
        "FST, seed 0: not finished (interrupted); shown up to step 10 of 10",
    ]
    assert len(arms) == 1
    with pytest.raises(RunError, match="none of the runs has an evaluation"):
        gather([tmp_path / "empty"])


def test_the_same_run_twice_is_one_and_a_repeated_seed_is_refused(tmp_path: Path) -> None:
    first, second = made_run(tmp_path / "a", [0.1, 0.3]), made_run(tmp_path / "b", [0.1, 0.3])
    assert len(gather([first, first])[0][0].curves) == 1
    with pytest.raises(FastSlowError, match="do not differ in any setting that FST uses"):
        gather([first, second])


def test_settings_that_a_method_does_not_use_make_no_other_arm(tmp_path: Path) -> None:
    slow = {"problems": 4, "group": 8, "microbatch": 8}
    other = {"fast": {"reuse": True}, "slow": {**slow, "learning_rate": 1e-3}}
    for method, used in (("rl", "slow.learning_rate"), ("gepa", "fast.reuse"), ("fst", "")):
        both = [
            made_run(tmp_path / f"{method}-0", [0.1, 0.3], method=method),
            made_run(tmp_path / f"{method}-1", [0.1, 0.3], method=method, seed=1, settings=other),
        ]
        labels = [arm.label for arm in gather(both)[0]]
        assert len(labels) == 2
        assert all(used in label for label in labels)
        assert method == "fst" or not any("," in label for label in labels)
    alike = made_run(tmp_path / "alike", [0.1, 0.4], method="rl", seed=1, settings={"fast": {"reuse": True}})
    assert [arm.label for arm in gather([tmp_path / "rl-0", alike])[0]] == ["RL only"]


def test_a_removed_setting_still_tells_stored_arms_apart(tmp_path: Path) -> None:
    even, chosen = made_run(tmp_path / "even", [0.1, 0.3]), made_run(tmp_path / "chosen", [0.1, 0.4])
    stored = yaml.safe_load((chosen / "recipe.yaml").read_text())
    stored["slow"] |= {"allocation": "informative"}
    (chosen / "recipe.yaml").write_text(yaml.safe_dump(stored))
    labels = [arm.label for arm in gather([even, chosen])[0]]
    assert labels == ["FST (slow.allocation=even)", "FST (slow.allocation=informative)"]


def test_runs_are_truncated_at_so_many_rollouts(tmp_path: Path) -> None:
    run = made_run(tmp_path / "a", [0.1, 0.3, 0.2, 0.6], fast=100)  # steps of 32 rollouts, evaluated every ten
    whole, part = gather([run])[0][0], gather([run], 840)[0][0]
    assert whole.curves[0].rollouts == (0, 420, 840, 1260)
    assert part.curves[0].rollouts == (0, 420, 840)
    assert part.curves[0].rewards == (0.1, 0.3, 0.2)
    assert part.curves[0].kls == whole.curves[0].kls[:3]
    assert [step for step, _ in part.entropies[0]] == [step for step, _ in whole.entropies[0] if step <= 20]
    assert gather([run], 839)[0][0].curves[0].rewards == (0.1, 0.3)
    late = made_run(tmp_path / "late", [0.1, 0.3], seed=1)
    (late / "evals.jsonl").write_text((late / "evals.jsonl").read_text().splitlines()[-1] + "\n")
    with pytest.raises(FastSlowError, match="late' has no evaluation within 100 rollouts"):
        gather([run, late], 100)


def test_logs_that_are_truncated_are_remarked_on(tmp_path: Path) -> None:
    whole, cut, short = (made_run(tmp_path / name, [0.1, 0.3], seed=seed) for seed, name in enumerate("abc"))
    with (cut / "metrics.jsonl").open("a") as file:
        file.write('{"step": 11, "rew')
    rows = (short / "metrics.jsonl").read_text().splitlines()
    (short / "metrics.jsonl").write_text("\n".join(rows[:3]) + "\n")
    state = json.loads((short / "run.json").read_text())
    (short / "run.json").write_text(json.dumps({**state, "status": "finished", "steps": len(rows)}))
    remarks = " ".join(gather([whole, cut, short])[1])
    assert f"'{cut / 'metrics.jsonl'}' ends in the middle of a line" in remarks
    assert f"'{short / 'metrics.jsonl'}' ends at step" in remarks
    assert str(whole) not in remarks


def test_a_run_without_updates_lacks_no_rows_of_steps(tmp_path: Path) -> None:
    frozen = made_run(tmp_path / "gepa", [0.1, 0.3], method="gepa", fast=100)
    state = json.loads((frozen / "run.json").read_text())
    (frozen / "run.json").write_text(json.dumps({**state, "status": "finished", "steps": 10}))
    assert gather([frozen])[1] == []
