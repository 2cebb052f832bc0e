"""Contexts withdrawn during RL: which rollouts lose theirs, how their share grows, and where it is shown."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from fake_engine import FakeEngine
from fake_runs import GROUP, PROBLEMS, STEPS, make_loop, outcome, recipe_of, resume, run

from fastslow.base.errors import RecipeError
from fastslow.records import Context, Example
from fastslow.rollouts.rounds import Pending
from fastslow.runs import files
from fastslow.slow.stream import InPlay, Stream, shared, withdrawn


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "sync", lambda path: None)


@pytest.mark.parametrize("kinds", [1, 2, 4, 8])
def test_contexts_lose_rollouts_in_turn_their_last_ones_first(kinds: int) -> None:
    contexts, plain = [Context({"prompt": str(number)}) for number in range(kinds)], Context({"prompt": "seed"})
    group = shared(contexts, 8)
    for first in range(3):
        for count in range(9):
            found = withdrawn(group, kinds, plain, count, first)
            left = Counter(each.id for each in found)
            assert left[plain.id] == count
            shares = [left[context.id] for context in contexts]
            assert max(shares) - min(shares) <= 1
            lost = [number for number, share in enumerate(shares) if share == min(shares)]
            if count % kinds:  # those that lost one more follow each other, from the group's own place on
                assert lost == sorted((first + number) % kinds for number in range(count % kinds))
            for number, context in enumerate(contexts):
                seats = [seat for seat, each in enumerate(found) if each is context]
                assert seats == list(range(number * 8 // kinds, number * 8 // kinds + shares[number]))


def test_the_share_grows_evenly_from_nothing_to_all_of_it() -> None:
    in_play = InPlay(recipe_of("fst", slow={"withdraw": 0.5, "steps": 9, "group": 8, "microbatch": "auto"}))
    counts = [in_play.withdrawn(step * PROBLEMS) for step in range(9)]
    assert counts == [0, 1, 1, 2, 2, 3, 3, 4, 4]
    assert [in_play.withdrawn(step * PROBLEMS + 1) for step in range(9)] == counts  # all groups of a step alike


def sampled(engine: FakeEngine) -> list[list[str]]:
    found, last = [], []
    for kind, what in engine.events:
        if kind == "sample":
            last = what
        elif kind == "update":
            found.append(last)
    return found


def test_withdrawn_rollouts_are_sampled_and_booked_under_the_seed_text(tmp_path: Path) -> None:
    loop, engine = run(tmp_path / "run", recipe_of("fst", slow={"withdraw": 1.0}))
    rows = loop.record.run.rows("metrics")
    texts = sampled(engine)
    assert all("<system> answer <user>" in text for text in texts[-1])  # the last step: all of them
    assert rows[-1]["withdrawn"] == 1.0
    assert rows[-1]["reward_with_text"] is None
    assert rows[-1]["reward_without_text"] == rows[-1]["reward"]
    for row, prompts in zip(rows, texts, strict=True):
        plain = ["<system> answer <user>" in text for text in prompts]
        assert row["withdrawn"] == sum(plain) / (PROBLEMS * GROUP)
    middle = rows[2]
    with_text, without = middle["reward_with_text"], middle["reward_without_text"]
    share = middle["withdrawn"]
    assert 0 < share < 1
    assert middle["reward"] == pytest.approx((1 - share) * with_text + share * without)
    ledger = loop.state.ledger
    assert ledger["withdrawn"].rollouts == round(sum(row["withdrawn"] for row in rows) * PROBLEMS * GROUP)
    assert ledger["slow"].rollouts + ledger["withdrawn"].rollouts == STEPS * PROBLEMS * GROUP
    assert rows[-1]["rollouts_slow"] == STEPS * PROBLEMS * GROUP


def test_zero_is_the_run_of_today(tmp_path: Path) -> None:
    loop, _ = run(tmp_path / "run", recipe_of("fst"))
    assert not {"withdrawn", "reward_without_text"} & set(loop.record.run.rows("metrics")[0])
    assert loop.state.ledger["withdrawn"].rollouts == 0


@pytest.mark.parametrize("fast", [{}, {"rescore": "from-rollouts"}, {"reuse": True}, {"adaptive": True}])
def test_resuming_gives_the_same_run(fast: dict[str, Any], tmp_path: Path) -> None:
    recipe = recipe_of("fst", slow={"withdraw": 0.75}, fast=fast)
    run(tmp_path / "whole", recipe)
    engine = FakeEngine()
    engine.fails_at = 5
    loop = make_loop(tmp_path / "cut", recipe, engine)
    with pytest.raises(RuntimeError), loop.record.run:
        loop.run()
    resume(tmp_path / "cut", recipe)
    assert outcome(tmp_path / "cut") == outcome(tmp_path / "whole")


@pytest.mark.parametrize("method", ["rl", "distill"])
def test_methods_without_evolved_texts_in_rollouts_refuse_it(method: str) -> None:
    with pytest.raises(RecipeError, match=f"slow.withdraw=0.5 takes evolved texts away, and method={method}"):
        recipe_of(method, slow={"withdraw": 0.5})


def test_a_group_that_is_begun_ahead_has_the_share_of_its_own_step() -> None:
    in_play = InPlay(recipe_of("fst", slow={"withdraw": 1.0}, sampling={"ahead": 1.0}))
    stream = Stream([Example(str(number), {}) for number in range(20)], 0)
    contexts, plain = [Context({"prompt": "a"}), Context({"prompt": "b"})], Context({"prompt": "seed"})
    in_play.begin(stream, contexts, lambda pairs: [Pending(*pair, 2) for pair in pairs], 2, STEPS, plain)
    counts = {
        position: sum(member.context == plain for member in group.members) for position, group in in_play.groups.items()
    }
    assert counts == {4: 2, 5: 2, 6: 3, 7: 3}
