"""Whole runs in which prompts, code and weights change together."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from fake_runs import make_loop, outcome, recipe_of, resume, run
from harness_tasks import CALCULATES, CRASHES, SEED, Copies, Products, Scripted
from rich.console import Console

from fastslow.base.errors import RecipeError, TaskError
from fastslow.fast.pool import Member, Pool
from fastslow.fast.reflection import LanguageModelReflector
from fastslow.launch.assembly import check_components, choose_seed_texts
from fastslow.recipe import Recipe
from fastslow.records import Context
from fastslow.runs.folder import RunFolder
from fastslow.runs.view import PlainView
from fastslow.tasks.harness import HARNESS

NO_ARGUMENTS = "def solve(problem):\n    return 1\n"
EDIT = '<<<<<<< SEARCH\n    return "nothing"\n=======\n    return "none"\n>>>>>>> REPLACE'


def recipe(**changes: Any) -> Recipe:
    fast = {"budget": 48, "anchors": 4, "optimizer": {"name": "gepa", "proposer": "light"}} | changes.pop("fast", {})
    return recipe_of(**{"fast": fast, **changes})


def reflector(*codes: str) -> LanguageModelReflector:
    return LanguageModelReflector(Scripted(codes))


@pytest.fixture(scope="module")
def evolved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any, Any, Scripted]:
    folder, chosen = tmp_path_factory.mktemp("harness") / "run", reflector(NO_ARGUMENTS, CRASHES, CALCULATES, EDIT)
    loop, engine = run(folder, recipe(), Copies(), chosen, Products())
    return folder, loop, engine, chosen.chat  # type: ignore[return-value]


def test_code_evolves_and_the_weights_train_on_its_asks(evolved: tuple[Path, Any, Any, Scripted]) -> None:
    _, loop, engine, _ = evolved
    best = loop.state.pool.best
    assert best.context.texts[HARNESS] == CALCULATES.strip()
    assert best.mean >= 0.75
    updates = [update for event, update in engine.events if event == "update"]
    rows = [row for update in updates for row in update.rows]
    assert {row.turn.component for row in rows} == {"system"}


def test_broken_code_is_refused_before_a_rollout_and_its_reason_is_shown(
    evolved: tuple[Path, Any, Any, Scripted],
) -> None:
    folder, _, _, chat = evolved
    (first, *_) = RunFolder.open(folder).cycles()
    (refused,) = first["rejected"]
    assert first["faults"] == {"proposal_broken": 1}
    assert refused["texts"] == {HARNESS: CRASHES.strip()}
    assert refused["reason"].endswith("line 3 (`return numbers[7]`): IndexError: list index out of range")
    played = {edit["child"] for edit in first["edits"]}
    assert refused["parent"] not in played
    assert "These revisions were refused" not in chat.asked[0]
    assert refused["reason"] in chat.asked[2]
    assert CRASHES.strip() in chat.asked[2]


def test_every_rollout_and_answer_is_on_the_ledger(evolved: tuple[Path, Any, Any, Scripted]) -> None:
    _, loop, engine, _ = evolved
    sampled = [text for event, texts in engine.events if event == "sample" for text in texts]
    ledger = loop.state.ledger
    assert ledger.total().calls - ledger["reflection"].calls == len(sampled)
    assert ledger["reflection"].calls >= 3


@pytest.mark.parametrize(("optimizer", "fails_at"), [("gepa", 2), ("digest", 3)])
def test_a_killed_run_resumes_to_the_same_result(tmp_path: Path, optimizer: str, fails_at: int) -> None:
    chosen = recipe(
        fast={"optimizer": {"name": optimizer}},
        slow={"steps": 3},
        output={"checkpoint_every": 1, "save_rollouts": False},
    )

    def codes() -> LanguageModelReflector:
        return LanguageModelReflector(ByPrompt())

    run(tmp_path / "whole", chosen, Copies(), codes(), Products())
    engine = Copies()
    engine.fails_at = fails_at
    with pytest.raises(RuntimeError, match="power"):
        run(tmp_path / "killed", chosen, engine, codes(), Products())
    resume_with(tmp_path / "killed", chosen, codes())
    assert outcome(tmp_path / "killed") == outcome(tmp_path / "whole")
    assert any(
        HARNESS in edit["component"] for cycle in RunFolder.open(tmp_path / "whole").cycles() for edit in cycle["edits"]
    )


class ByPrompt(Scripted):
    """Answers by what it is asked alone, so that a resumed run hears the same."""

    def __init__(self) -> None:
        super().__init__([CALCULATES, EDIT, SEED + "\n# once\n"])

    def __call__(self, messages: list[dict[str, str]], seed: int) -> Any:
        self.asked = [""] * (seed % 3)
        return super().__call__(messages, seed)


def resume_with(folder: Path, chosen: Recipe, codes: LanguageModelReflector) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fake_runs.Lessons", lambda: codes)
        resume(folder, chosen, Copies(), Products())


def test_a_groups_contexts_may_have_different_harnesses(tmp_path: Path) -> None:
    loop = make_loop(tmp_path / "run", recipe(), Copies(), reflector(CALCULATES), Products())
    pair = [Context({"system": "Write.", HARNESS: code}) for code in (SEED, CALCULATES)]
    loop.state.pool = Pool(tuple(Member(each, {"train-0": 0.5}, 0) for each in pair))
    with loop.record.run:  # type: ignore[union-attr]
        groups, sampled = loop._play()
    assert len(groups) == 2
    for group in groups:
        by_code = {
            code: [each for each in group.rollouts if each.context.texts[HARNESS] == code]
            for code in (SEED, CALCULATES)
        }
        assert [len(each) for each in by_code.values()] == [2, 2]
        assert all(each.score == 0 for each in by_code[SEED])
        assert any(each.score == 1 for each in by_code[CALCULATES])
    update, _ = loop._update(groups, [])
    assert len(update.rows) >= sum(len(each.turns) for each in sampled)  # every ask of every rollout is trained on


@pytest.mark.parametrize("optimizer", ["gepa", "digest"])
def test_without_a_model_prompts_evolve_and_code_stays(tmp_path: Path, optimizer: str) -> None:
    said, chosen = io.StringIO(), recipe(fast={"optimizer": {"name": optimizer}}, slow={"steps": 2})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fake_runs.PlainView", lambda console: PlainView(Console(file=said, width=200)))
        loop, _ = run(tmp_path / "run", chosen, Copies(), None, Products())
    assert said.getvalue().count("without a reflection model no code is written: harness stays as it is") == 1
    edits = [edit for cycle in RunFolder.open(tmp_path / "run").cycles() for edit in cycle["edits"]]
    assert edits
    assert {edit["component"] for edit in edits} == {"system"}
    assert {member.context.texts[HARNESS] for member in loop.state.pool.members} == {SEED}


def test_digest_takes_better_code_and_forgets_what_was_drawn_before(tmp_path: Path) -> None:
    chosen = recipe(
        fast={"optimizer": {"name": "digest"}, "budget": 64, "anchors": 8}, slow={"steps": 4, "problems": 4}
    )
    loop, _ = run(tmp_path / "run", chosen, Copies(), reflector(CRASHES, CALCULATES), Products())
    assert {member.context.texts[HARNESS] for member in loop.state.pool.members} == {CALCULATES.strip()}
    first = RunFolder.open(tmp_path / "run").cycles()[0]
    (edit,) = [each for each in first["edits"] if each["component"] == HARNESS]
    assert edit["accepted"]
    assert edit["before"] == 0.0
    assert first["faults"]["proposal_broken"] == 1
    assert loop.state.pool.best.mean > 0.5


def test_digest_plays_several_proposals_of_code_beside_the_present_one(tmp_path: Path) -> None:
    chosen = recipe(
        fast={"optimizer": {"name": "digest"}, "budget": 64, "anchors": 8}, slow={"steps": 4, "problems": 4}
    )
    worse = [f"{SEED}# {number}\n" for number in range(2)]
    run(tmp_path / "run", chosen, Copies(), reflector(*worse, CALCULATES), Products())
    first = RunFolder.open(tmp_path / "run").cycles()[0]
    edits = [each for each in first["edits"] if each["component"] == HARNESS]
    assert [each["accepted"] for each in edits] == [False, False, True]
    assert first["spent"]["fast-minibatch"]["rollouts"] == 4 * 8  # the present code once, and each proposal


def test_what_cannot_evolve_is_said_before_the_model_is_loaded() -> None:
    task = Products()
    with pytest.raises(
        RecipeError, match=r"fast\.optimizer=opro writes prompts only, and the task's component 'harness' is code"
    ):
        check_components(recipe(fast={"optimizer": {"name": "opro"}}), task, task.seed_texts)
    with pytest.raises(TaskError, match="'harness' starts from cannot run: the code defines no function solve"):
        check_components(recipe(), task, {**task.seed_texts, HARNESS: "x = 1"})
    assert choose_seed_texts(task, "Other.") == {"system": "Other.", HARNESS: SEED}
