"""What holds of every fast optimizer: its budget, its ledger, its eyes, its failures and that it can be repeated."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zlib
from collections import Counter
from pathlib import Path

import pytest
from cycle_helpers import PARTS, Scripted, Stage, evolve, knows_rule, one_cycle, pool_of, problems
from optimizer_helpers import (
    HINT,
    OTHERS,
    OWN,
    READERS,
    SCALAR_ONLY,
    Watched,
    advice,
    each,
    half,
    scripted,
    without_chaff,
)

from fastslow.base.world import World
from fastslow.fast.optimizers.base import PATIENCE, Cycle, Optimizer
from fastslow.fast.pool import Pool
from fastslow.fast.reflection import Attempt, ChatFailed, LanguageModelReflector, Lessons, TextRequest, Usage
from fastslow.recipe import FastRecipe
from fastslow.recipe.parts import OPTIMIZER
from fastslow.records import Rollout

ANCHORS = problems(12)


def flat(cycle: Cycle) -> tuple:
    texts = [dict(context.texts) for context in cycle.contexts]
    return cycle.pool.to_dict(), [vars(edit) for edit in cycle.edits], texts, cycle.generations, cycle.faults


def test_every_choice_of_a_recipe_is_an_optimizer() -> None:
    for name in OPTIMIZER.registry.built_in:
        assert FastRecipe(optimizer=name).optimizer.name == name
    assert set(SCALAR_ONLY + READERS) == set(OTHERS)


# Finding ---------------------------------------------------------------------------------------------------------------


@each(*READERS)
@pytest.mark.parametrize("seed", [0, 1])
def test_readers_of_feedback_find_the_rules_in_it(optimizer: str, seed: int) -> None:
    stage = Stage(knows_rule)
    found = evolve(stage, Lessons(), pool_of("Answer."), ANCHORS, budget=200, optimizer=optimizer, seed=seed)
    assert found.pool.best.mean == 1.0
    assert set(found.pool.best.context.texts["system"].splitlines()) == {"Answer.", "rule 0", "rule 1", "rule 2"}


@each(*SCALAR_ONLY)
@pytest.mark.parametrize("seed", [0, 1])
def test_by_scores_alone_good_advice_is_found(optimizer: str, seed: int) -> None:
    found = evolve(Stage(advice), Lessons(), pool_of("Answer."), ANCHORS, budget=400, optimizer=optimizer, seed=seed)
    assert found.pool.best.mean >= 0.25 if optimizer == "mipro" else found.pool.best.mean >= 0.75


@each("opro", "evoprompt", "promptbreeder")
@pytest.mark.parametrize("seed", [0, 1])
def test_by_scores_alone_the_lines_of_the_population_are_sorted_out(optimizer: str, seed: int) -> None:
    """Each carried text has one good line and one bad one; together, without the bad ones, they would be perfect."""
    pool = pool_of("A\nrule 0\nbad 0", "A\nrule 1\nbad 1", "A\nrule 2\nbad 2")
    stage = Stage(without_chaff)
    found = evolve(stage, Lessons(), pool, ANCHORS, budget=600, optimizer=optimizer, seed=seed)
    assert found.pool.best.mean >= 1 / 3  # each of them scores 2/9: a third of the problems, less a third


@each(*OTHERS)
def test_with_a_model_its_answers_become_contexts(optimizer: str) -> None:
    reflector, chat = scripted()
    found = evolve(Stage(half), reflector, pool_of("Answer."), ANCHORS, budget=90, optimizer=optimizer)
    new = [edit for edit in found.edits if edit.accepted]
    assert new
    contexts = {context.id: context for context in found.contexts}
    assert all("Idea" in contexts[edit.child].texts["system"] for edit in new)
    assert reflector.usage.calls == len(chat.heard) > 0
    assert not found.faults


# Seeing ----------------------------------------------------------------------------------------------------------------


@each(*SCALAR_ONLY)
def test_who_learns_from_scores_alone_never_sees_a_word_of_the_feedback(
    optimizer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched, (reflector, chat) = Watched(), scripted()
    attempt, given = Optimizer.attempt, list[Attempt | None]()

    def remembered(self: Optimizer, rollout: Rollout, component: str) -> Attempt | None:
        given.append(attempt(self, rollout, component))
        return given[-1]

    monkeypatch.setattr(Optimizer, "attempt", remembered)
    for proposer in (watched, reflector):
        found = evolve(Stage(half), proposer, pool_of("Answer.", "Think."), ANCHORS, optimizer=optimizer)
        assert found.edits
        assert not any(edit.feedback for edit in found.edits)
        assert not any(HINT.search(text) for context in found.contexts for text in context.texts.values())
    assert watched.requests
    assert {each.feedback for each in given if each} <= {""}
    seen = [*(request.prompt for request, _ in watched.requests), *(text for _, text in watched.requests), *chat.heard]
    assert not any(HINT.search(text) for text in seen)


@each(*READERS)
def test_readers_are_shown_question_answer_and_feedback(optimizer: str) -> None:
    reflector, chat = scripted()
    found = evolve(Stage(half), reflector, pool_of("Answer."), ANCHORS, optimizer=optimizer)
    assert found.edits
    shown = [heard for heard in chat.heard if HINT.search(heard)]
    assert shown
    assert all("question problem-" in heard and "answer of system" in heard for heard in shown)


# Budget ----------------------------------------------------------------------------------------------------------------


@each(*OTHERS)
@pytest.mark.parametrize(
    ("budget", "samples", "minibatch"), [(18, 1, 3), (36, 2, 3), (61, 1, 5), (100, 1, 20), (151, 2, 3)]
)
def test_the_budget_is_never_exceeded(optimizer: str, budget: int, samples: int, minibatch: int) -> None:
    stage = Stage(half)
    pool = pool_of("A", "B")
    found = evolve(
        stage,
        Lessons(),
        pool,
        ANCHORS,
        budget=budget,
        samples=samples,
        minibatch=minibatch,
        proposals=3,
        optimizer=optimizer,
    )
    assert stage.fast <= budget
    assert stage.booked["rescore"] == 2 * len(ANCHORS) * samples
    assert set(stage.booked) <= {"rescore", "fast-minibatch", "fast-score"}
    scored = sum(edit.accepted for edit in found.edits)
    assert stage.booked["fast-score"] == scored * len(ANCHORS) * samples
    if minibatch < len(ANCHORS):  # otherwise two minibatches and a score take more than the budget
        assert scored > 0


@each(*OTHERS)
def test_every_score_is_of_this_policy_on_every_anchor_and_was_played(optimizer: str) -> None:
    stage = Stage(half)
    stage.policy_step = 5
    found = evolve(stage, Lessons(), pool_of("A", "B"), ANCHORS, budget=150, optimizer=optimizer)
    played = Counter(pair for purpose, _, pairs in stage.calls for pair in pairs if purpose != "fast-minibatch")
    for member in found.pool.members:
        assert member.scored_at == 5
        assert member.scores == {example.id: half(member.context.texts, example) for example in ANCHORS}
        assert all(played[member.context.id, example.id] == 1 for example in ANCHORS)
    seeds = [seed for _, seed, _ in stage.calls]
    assert len(set(seeds)) == len(seeds)  # no two batches draw the same numbers
    assert found.generations > 0


@each(*OTHERS)
def test_a_budget_of_nothing_only_scores_anew(optimizer: str) -> None:
    stage, watched = Stage(knows_rule), Watched()
    found = evolve(stage, watched, pool_of("A", "B\nrule 0"), ANCHORS, budget=0, optimizer=optimizer)
    assert stage.booked == {"rescore": 24}
    assert not watched.requests
    assert [member.context.texts["system"] for member in found.pool.members] == ["B\nrule 0", "A"]


@each(*OTHERS)
def test_a_context_that_solves_every_anchor_leaves_nothing_to_spend_on(optimizer: str) -> None:
    stage = Stage(lambda texts, example: float(texts["system"] == "B"))
    found = evolve(stage, Lessons(), pool_of("A", "B"), ANCHORS, optimizer=optimizer)
    assert stage.fast == 0
    assert found.pool.best.context.texts["system"] == "B"


# Proposals -------------------------------------------------------------------------------------------------------------


@each(*OTHERS)
def test_contexts_are_new_and_keep_to_their_token_budget(optimizer: str) -> None:
    found = evolve(Stage(half), Lessons(), pool_of("Answer."), ANCHORS, budget=200, max_tokens=14, optimizer=optimizer)
    assert len(found.contexts) > 2
    assert len({context.id for context in found.contexts}) == len(found.contexts)
    assert max(len(text.split()) for context in found.contexts for text in context.texts.values()) <= 14
    assert all(context.texts["system"].strip() for context in found.contexts)


@each(*OTHERS)
def test_components_take_turns_and_an_edit_touches_its_own(optimizer: str) -> None:
    stage = Stage(knows_rule, ("plan", "solve"))
    pool = pool_of({"plan": "Plan.", "solve": "Solve."})
    found = evolve(stage, Lessons(), pool, PARTS, budget=400, optimizer=optimizer)
    contexts = {context.id: context for context in found.contexts}
    touched = set()
    for edit in found.edits:
        child, parent = contexts[edit.child].texts, contexts[edit.parent].texts
        changed = [name for name in child if child[name] != parent[name]]
        assert ", ".join(changed) == edit.component
        touched |= set(changed)
    assert touched == {"plan", "solve"}


# Failing ---------------------------------------------------------------------------------------------------------------


def away(messages: list[dict[str, str]], seed: int) -> None:
    raise ChatFailed("the server is away")


def refused(messages: list[dict[str, str]], seed: int) -> None:
    raise ChatFailed("the key is refused", permanent=True)


@each(*OTHERS)
@pytest.mark.parametrize("chat", [away, refused])
def test_a_model_that_fails_ends_the_cycle_not_the_run(optimizer: str, chat) -> None:
    stage = Stage(half)
    found = evolve(stage, LanguageModelReflector(chat), pool_of("A", "B"), ANCHORS, budget=10_000, optimizer=optimizer)
    assert {member.context.texts["system"] for member in found.pool.members} == {"A", "B"}
    assert not found.edits
    assert 1 <= found.faults.pop("reflection_failed") <= (3 if chat is refused else 2 * PATIENCE)
    assert not found.faults
    assert stage.booked["fast-score"] == 0


class Broken(Lessons):
    def write(self, request: TextRequest, seed: int) -> str:
        raise ZeroDivisionError("a bug")


@each(*OWN)
def test_a_proposer_that_breaks_is_a_failure_that_is_told(optimizer: str) -> None:
    found = evolve(Stage(half), Broken(), pool_of("A"), ANCHORS, optimizer=optimizer)
    assert found.faults["reflection_failed"] >= PATIENCE
    assert not found.edits


@each(*OTHERS)
def test_a_failure_while_playing_is_not_hidden(optimizer: str) -> None:
    stage = Stage(knows_rule)

    def play(pairs, purpose, seed):
        if purpose != "rescore":
            raise RuntimeError("out of memory")
        return Stage.play(stage, pairs, purpose, seed)

    stage.play = play  # type: ignore[method-assign]
    with pytest.raises(RuntimeError, match="out of memory"):
        evolve(stage, Lessons(), pool_of("A"), ANCHORS, optimizer=optimizer)


# Repeating -------------------------------------------------------------------------------------------------------------


def cycles(optimizer: str, seed: int = 0, stored: bool = False) -> tuple[list[tuple], list]:
    """Two cycles, one after the other; with `stored`, the population lies on a disk in between."""
    stage, pool = Stage(knows_rule), pool_of("Answer.", "Think.")
    found = []
    for cycle in range(2):
        anchors = problems(12, kinds=6) if cycle else ANCHORS
        one = evolve(stage, Lessons(), pool, anchors, budget=60, cycle=cycle, seed=seed + cycle, optimizer=optimizer)
        pool = Pool.from_dict(json.loads(json.dumps(one.pool.to_dict()))) if stored else one.pool
        found.append(flat(one))
    return found, stage.calls


@each(*OTHERS)
def test_the_same_seed_gives_the_same_cycles_and_another_seed_others(optimizer: str) -> None:
    assert cycles(optimizer) == cycles(optimizer)
    assert cycles(optimizer) != cycles(optimizer, seed=7)


@each(*OTHERS)
def test_what_an_optimizer_keeps_survives_the_disk(optimizer: str) -> None:
    """A run that was interrupted between two cycles goes on as if it had not been."""
    assert cycles(optimizer, stored=True) == cycles(optimizer)


class Main(World):
    """The process whose proposer writes; what it sends to the others is written down."""

    def __init__(self) -> None:
        super().__init__(0, 2)
        self.sent: list = []

    def from_main(self, make):
        self.sent.append(make())
        return self.sent[-1]


class Other(World):
    """A process that hears what was sent and asks no proposer."""

    def __init__(self, sent: list) -> None:
        super().__init__(1, 2)
        self.sent = iter(sent)

    def from_main(self, make):
        return next(self.sent)


@each(*OTHERS)
def test_other_processes_follow_the_main_one_without_a_proposer_of_their_own(optimizer: str) -> None:
    main = Main()
    outcomes = []
    # DSPy's are asked in another way where there is a model, on every process alike.
    idle = Lessons() if optimizer in ("mipro", "dspy-gepa") else LanguageModelReflector(refused)
    for world, reflector in ((main, Lessons()), (Other(main.sent), idle)):
        stage = Stage(knows_rule)
        recipe = FastRecipe(optimizer=optimizer, population=4, budget=120)
        pool = pool_of("Answer.", "Think.")
        found = one_cycle(recipe, reflector, stage.play, pool, ANCHORS, seed=3, world=world)
        outcomes.append((flat(found), stage.calls))
    assert main.sent
    assert outcomes[0] == outcomes[1]


def fingerprint() -> int:
    return zlib.crc32(repr([cycles(name) for name in OWN]).encode())


def test_all_processes_take_the_same_decisions() -> None:
    """Strings hash differently in every process; what is played must not follow from that."""
    here = Path(__file__).parent
    path = os.pathsep.join([str(here), str(here.parent), str(here.parents[1]), os.environ.get("PYTHONPATH", "")])
    other = subprocess.run(
        [sys.executable, "-c", "import test_every_optimizer as t; print(t.fingerprint())"],
        env={**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": "1"},
        stdout=subprocess.PIPE,
        timeout=300,
        check=True,
    )
    assert int(other.stdout) == fingerprint()


def test_an_optimizer_is_loaded_when_it_is_asked_for() -> None:
    """gepa's own tests hand it reflectors that can write nothing else."""
    assert OPTIMIZER.registry.find("gepa").__name__ == "Gepa"
    found = evolve(
        Stage(knows_rule), Scripted(lambda request: f"{request.text}\nrule 0"), pool_of("A"), ANCHORS, budget=20
    )
    assert found.edits


def test_what_a_reflector_is_asked_without_a_model_costs_nothing() -> None:
    watched = Watched()
    evolve(Stage(half), watched, pool_of("A"), ANCHORS, optimizer="opro")
    assert watched.usage == Usage(seconds=watched.usage.seconds)
