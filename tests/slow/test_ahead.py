"""Groups that are begun before their step: whole runs of the loop on an engine of pure Python with short and long answers."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_engine import END
from fake_runs import GROUP, PROBLEMS, T, outcome, recipe_of, resume, run
from hypothesis import given, settings
from hypothesis import strategies as st
from lengthy_engine import LengthyEngine, LongIsRight, updates_of

from fastslow.engine.base import Update
from fastslow.fast.memory import RolloutCache
from fastslow.loop import Loop
from fastslow.models.chat import ChatFormat
from fastslow.recipe import Recipe
from fastslow.records import Context, Example, Sampling
from fastslow.rollouts.play import Player
from fastslow.runs import files
from fastslow.slow.stream import InPlay, Stream
from fastslow.tasks.base import Message
from fastslow.tasks.stages import Stage, Stages

STEPS = 6
SETTINGS = [0.5, 1.0, 1.5, 2.0]


@pytest.fixture(autouse=True)
def _no_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here is about power cuts."""
    monkeypatch.setattr(files, "sync", lambda path: None)


@pytest.fixture(autouse=True)
def _all_rows(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups whose rewards are equal are kept, so that updates have all rows."""
    if "learns" not in request.node.name:
        monkeypatch.setattr("fastslow.slow.update.informative", lambda rewards, _: np.ones(rewards.shape, dtype=bool))


def recipe(method: str = "rl", ahead: float = 1.0, **changes: Any) -> Recipe:
    slow = {"steps": STEPS, **changes.pop("slow", {})}
    sampling = {"ahead": ahead, "max_tokens": 20}
    return recipe_of(method, slow=slow, sampling=sampling, evaluation={"every": 0}, **changes)


def run_of(folder: Path, chosen: Recipe, **engine: float) -> tuple[Loop, LengthyEngine]:
    made = LengthyEngine(**engine)
    loop, _ = run(folder, chosen, made, task=LongIsRight())
    return loop, made


def problems_of(engine: LengthyEngine, update: Update) -> list[str]:
    return [engine.tokenizer.decode(row.turn.prompt_ids).split()[-1] for row in update.rows]


def stream_of(loop: Loop, steps: int = STEPS) -> list[str]:
    return [example.id for example in loop.stream.take(0, steps * PROBLEMS)]


@pytest.mark.parametrize("ahead", SETTINGS)
@pytest.mark.parametrize("method", ["rl", "fst"])
def test_every_group_is_trained_once_and_whole_and_none_is_too_old(method: str, ahead: float, tmp_path: Path) -> None:
    loop, engine = run_of(tmp_path / "run", recipe(method, ahead))
    most = math.ceil(ahead) + 1
    trained, ages = [], Counter[int]()
    for update in updates_of(engine):
        problems = problems_of(engine, update)
        assert len(problems) == PROBLEMS * GROUP
        for start in range(0, len(problems), GROUP):
            assert len(set(problems[start : start + GROUP])) == 1
            trained.append(problems[start])
        for row in update.rows:
            completion = row.turn.completion
            assert completion.ids[-1] == END or len(completion.ids) == 20
            assert len(completion.ids) == len(completion.logprobs) == len(completion.steps)
            assert list(completion.steps) == sorted(completion.steps)
            assert row.policy_step <= completion.steps[0] <= completion.steps[-1] < update.step
            assert update.step - 1 - row.policy_step <= most
            ages.update(update.step - 1 - step for step in completion.steps)
    assert sorted(trained) == sorted(stream_of(loop))
    assert max(ages) > 0  # else nothing is tested here
    rows = loop.record.run.rows("metrics")
    shown = Counter[int]()
    for row in rows:
        shown.update({int(step): tokens for step, tokens in row["ages"].items()})
        total = sum(row["ages"].values())
        assert row["staleness"] == sum(int(step) * tokens for step, tokens in row["ages"].items()) / total
    assert shown == ages
    assert rows[-1]["in_play"] == 0
    extra = math.ceil(ahead * PROBLEMS)
    assert rows[0]["in_play"] == (extra if method == "rl" else min(extra, (T - 1) * PROBLEMS))


def test_it_decodes_less_than_waiting_does(tmp_path: Path) -> None:
    decoded = {}
    for ahead in (0.0, 1.0, 2.0):
        _, engine = run_of(tmp_path / str(ahead), recipe(ahead=ahead, slow={"steps": 20, "problems": 4}))
        decoded[ahead] = sum(engine.decoded)
    assert decoded[2.0] < 0.6 * decoded[0.0]
    assert decoded[2.0] < decoded[1.0] < 0.75 * decoded[0.0]


@pytest.mark.parametrize("method", ["rl", "fst"])
@pytest.mark.parametrize("budget", [None, 20, 45])
def test_every_rollout_is_booked_once_and_nothing_is_left_at_the_end(
    budget: int | None, method: str, tmp_path: Path
) -> None:
    """Whether the steps or the rollouts end the run."""
    loop, engine = run_of(tmp_path / "run", recipe(method, 2.0, **({"rollouts": budget} if budget else {})))
    entry, total = loop.state.ledger["slow"], loop.state.ledger.total()
    assert not loop.state.in_play.groups
    assert (
        entry.rollouts == sum(len(update.rows) for update in updates_of(engine)) == loop.state.step * PROBLEMS * GROUP
    )
    assert total.completion_tokens == engine.tokens
    if budget:
        spent = loop.state.ledger.training_rollouts
        assert spent >= budget
        if method == "rl":  # a cycle may spend more than is left
            assert spent < budget + PROBLEMS * GROUP


def test_contexts_belong_to_the_cycle_that_trains_under_them(tmp_path: Path) -> None:
    loop, engine = run_of(tmp_path / "run", recipe("fst", 2.0))
    assert len({tuple(data["active"]) for data in loop.record.run.cycles()}) > 1
    for update in updates_of(engine):
        begun = {row.policy_step for row in update.rows}
        assert min(begun) >= (update.step - 1) // T * T  # nothing was begun in an earlier cycle


@pytest.mark.parametrize(("method", "ahead", "first"), [("rl", 1.0, 2), ("rl", 2.0, 4), ("fst", 1.0, 4)])
def test_every_stage_trains_on_all_of_its_own_task(method: str, ahead: float, first: int, tmp_path: Path) -> None:
    class Other(LongIsRight):
        def messages(self, example: Example) -> list[Message]:
            return [{"role": "user", "content": f"other {example.id}"}]

    stages = Stages([Stage("one", first, LongIsRight()), Stage("two", STEPS - first, Other())])
    slow = {"problems": 6, "group": 2, "microbatch": 2}
    engine = LengthyEngine(weight=-1.0)
    chosen = recipe(method, ahead, slow=slow, seed=3, **({"fast": {"cycle": STEPS}} if method == "fst" else {}))
    loop, _ = run(tmp_path / "run", chosen, engine, task=stages)
    rows = loop.record.run.rows("metrics")
    trained: list[str] = []
    for row, update in zip(rows, updates_of(engine), strict=True):
        texts = [engine.tokenizer.decode(each.turn.prompt_ids) for each in update.rows]
        assert {"two" if " other " in text else "one" for text in texts} == {row["stage"]}
        trained += [text.split()[-1] for text in texts[::2]]
    assert [row["stage"] for row in rows] == ["one"] * first + ["two"] * (STEPS - first)
    order = [example.id.rpartition("/")[2] for example in loop.stream.take(0, STEPS * 6)]
    for start, end in ((0, first * 6), (first * 6, STEPS * 6)):
        assert sorted(trained[start:end]) == sorted(order[start:end])
    assert rows[0]["in_play"] > 0 == rows[first - 1]["in_play"]


@pytest.mark.parametrize("method", ["rl", "fst"])
@pytest.mark.parametrize("ahead", [0.5, 2.0])
def test_an_interrupted_run_ends_as_if_left_alone(method: str, ahead: float, tmp_path: Path) -> None:
    chosen = recipe(method, ahead, output={"checkpoint_every": 1})
    _, alone = run_of(tmp_path / "alone", chosen, rate=20.0)
    for fails_at in (2, 4, 6):
        engine = LengthyEngine(rate=20.0)
        engine.fails_at = fails_at
        folder = tmp_path / str(fails_at)
        with pytest.raises(RuntimeError, match="power"):
            run(folder, chosen, engine, task=LongIsRight())
        resumed = LengthyEngine(rate=20.0)
        resume(folder, chosen, resumed, LongIsRight())
        assert outcome(folder) == outcome(tmp_path / "alone")
        assert resumed.weight == alone.weight != 0
        assert updates_of(resumed) == updates_of(alone)[fails_at - 1 :]


def test_reused_rollouts_are_claimed_when_their_group_is_begun(tmp_path: Path) -> None:
    fast = {"reuse": True, "cycle": 3, "anchors": 6, "budget": 24}
    loop, engine = run_of(tmp_path / "run", recipe("fst", 1.0, fast=fast))
    entry = loop.state.ledger["slow"]
    assert entry.reused > 0
    assert entry.rollouts + entry.reused == STEPS * PROBLEMS * GROUP
    assert loop.state.ledger.total().completion_tokens == engine.tokens
    for update in updates_of(engine):
        assert all(update.step - 1 - row.policy_step <= 2 for row in update.rows)


# Bias ----------------------------------------------------------------------------------------------------------------


def long_share(engine: LengthyEngine) -> tuple[float, int]:
    rows = [row for update in updates_of(engine) for row in update.rows]
    return sum(row.turn.completion.ids[0] == engine.ids["long"] for row in rows) / len(rows), len(rows)


@pytest.mark.parametrize("ahead", [0.0, *SETTINGS])
def test_long_answers_are_trained_on_as_often_as_they_are_drawn(ahead: float, tmp_path: Path) -> None:
    """With weights that stay the same, one answer in five is long; the share among trained ones is that, up to chance."""
    chosen = recipe(ahead=ahead, slow={"steps": 100, "problems": 4, "group": 4}, output={"checkpoint_every": 100})
    weight = math.log(0.2 / 0.8)
    _, engine = run_of(tmp_path / "run", chosen, weight=weight)
    share, count = long_share(engine)
    assert count == 1600
    assert abs(share - 0.2) < 3 * math.sqrt(0.2 * 0.8 / count)


def test_a_policy_whose_right_answers_are_long_learns_as_fast_as_with_waiting(tmp_path: Path) -> None:
    """Training on whatever is finished first would teach short answers. Both ways are run with four seeds."""

    def learnt(ahead: float) -> list[float]:
        ends = []
        for seed in range(4):
            slow = {"steps": 40, "problems": 4, "group": 4}
            chosen = recipe(ahead=ahead, slow=slow, seed=seed, output={"checkpoint_every": 100})
            _, engine = run_of(tmp_path / f"{ahead}-{seed}", chosen, weight=-1.5, rate=1.5)
            ends.append(engine.long)
        return ends

    waiting, ahead = learnt(0.0), learnt(1.0)
    mean = [sum(ends) / len(ends) for ends in (waiting, ahead)]
    assert mean[0] > 0.5  # from 0.18
    assert mean[1] > mean[0] - 0.1


class Measured(LengthyEngine):
    """Answers every problem with as many words as it is said to need."""

    def __init__(self, needs: dict[str, int]) -> None:
        super().__init__()
        self.needs = needs

    def _token(self, tokens: Sequence[int], draw: random.Random) -> tuple[int, float]:
        words = self.tokenizer.decode(tokens).split()
        problem = next(word for word in reversed(words) if word != "and")
        ended = words.count("and") == self.needs[problem]
        return END if ended else self.ids["and"], 0.0


@settings(max_examples=50, deadline=None)
@given(
    problems=st.integers(1, 4),
    ahead=st.sampled_from([0.25, 0.5, 1.0, 1.5, 3.0]),
    late=st.integers(0, 3),
    cycle=st.integers(1, 9),
    lengths=st.lists(st.sampled_from([0, 1, 2, 3, 15]), min_size=48, max_size=48),
)
def test_any_lengths(problems: int, ahead: float, late: int, cycle: int, lengths: list[int]) -> None:
    """Never fewer groups than a step needs, each trained once and in time, and as many in play as the rule says."""
    slow = {"problems": problems, "group": 2, "steps": 12, "microbatch": 1}
    queue = InPlay(recipe(ahead=ahead, slow=slow))
    queue.late = late
    task = LongIsRight()
    engine = Measured({f"train-{number}": length for number, length in enumerate(lengths)})
    player = Player(task, engine, ChatFormat(engine.tokenizer))
    stream, contexts, cache = (
        Stream(task.examples("train")[:48], seed=0),
        [Context(dict(task.seed_texts))],
        RolloutCache(),
    )
    order = [example.id for example in stream.take(0, 12 * problems)]
    trained: list[str] = []
    for step in range(12):
        horizon = min(12, (step // cycle + 1) * cycle)
        before, unfinished = len(queue.groups), [place for place, each in queue.groups.items() if each.unfinished]
        due = (step + 1 - late) * problems
        enough = before - len(unfinished) >= problems and all(place >= due for place in unfinished)
        pending = queue.begin(stream, contexts, partial(cache.begin, step=step), step, horizon)
        most = min(problems + queue.extra, (horizon - step) * problems)
        assert len(queue.groups) == (before if enough else most)
        player.advance(pending, Sampling(max_tokens=20), seed=step, step=step, until=queue.settled)
        taken = queue.take()
        assert len(taken) == problems
        for group in taken:
            assert len(group.rollouts) == 2
            assert all(rollout.completion_tokens == engine.needs[group.example.id] + 1 for rollout in group.rollouts)
            assert step - group.members[0].begun <= math.ceil(ahead) + late
            assert step <= order.index(group.example.id) // problems + late
        trained += [group.example.id for group in taken]
    assert sorted(trained) == sorted(order)
    assert not queue.groups
