"""Help for groups that failed: who is asked, what joins a group, what it is trained with, and what is booked."""

from __future__ import annotations

import contextlib
import json
import math
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from fake_engine import END, FakeEngine, Numbered
from fake_runs import GROUP, PROBLEMS, STEPS, make_loop, outcome, recipe_of, resume, run

from fastslow.base.errors import RecipeError
from fastslow.engine.base import Update
from fastslow.fast.reflection import ChatFailed, Reply
from fastslow.records import Example, Feedback
from fastslow.rollouts.play import FAULT
from fastslow.runs import files
from fastslow.slow.rescue import play
from fastslow.slow.rescue.accounts import Account

EPSILON = 1e-4


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "sync", lambda path: None)


class Learner(FakeEngine):
    """Right only after the grader's words about its own answer; every token has another log-probability then."""

    def _completion(self, text: str, draw: Any) -> Any:
        right = "An earlier answer" in text and "say yes" in text
        ids = (*self.tokenizer("yes" if right else "no")["input_ids"], END)
        return type(super()._completion(text, draw))(ids, (-0.25 if right else -0.5,) * len(ids))


@dataclass
class Scripted:
    """A teacher that says the same every time."""

    says: str = "yes"
    error: Exception | None = None
    heard: list[list[dict[str, str]]] = field(default_factory=list)
    truncated: bool = False

    def __call__(self, messages: list[dict[str, str]], seed: int) -> Reply:
        self.heard.append(messages)
        if self.error:
            raise self.error
        return Reply(self.says, 11, 3, 0.5, truncated=self.truncated)


def rescuing(name: str = "retry", method: str = "rl", **options: Any) -> Any:
    return recipe_of(method, slow={"rescue": {"name": name, **options}}, output={"save_rollouts": True})


def taught(**options: Any) -> Any:
    return rescuing("teachers", models=options.pop("models", ["openai/small"]), **options)


def updates_of(engine: FakeEngine) -> list[Update]:
    return [what for kind, what in engine.events if kind == "update"]


@pytest.fixture
def nothing_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(play, "HELD", 0.0)


def advantages(scores: list[float]) -> list[float]:
    mean = sum(scores) / len(scores)
    std = math.sqrt(sum((score - mean) ** 2 for score in scores) / (len(scores) - 1))
    return [(score - mean) / (std + EPSILON) for score in scores]


@pytest.mark.usefixtures("nothing_held")
def test_a_second_try_joins_its_group_under_the_prompt_without_help(tmp_path: Path) -> None:
    loop, engine = run(tmp_path / "run", rescuing(), Learner(0.0))
    failed, joined = advantages([0.0] * GROUP + [1.0])[0], advantages([0.0] * GROUP + [1.0])[-1]
    for update in updates_of(engine):
        helped = [row for row in update.rows if row.helped]
        own = [row for row in update.rows if not row.helped]
        assert (len(own), len(helped)) == (PROBLEMS * GROUP, PROBLEMS)
        assert [row.advantage for row in own] == pytest.approx([failed] * len(own))
        assert [row.advantage for row in helped] == pytest.approx([joined] * len(helped))
        prompts = {tuple(row.turn.prompt_ids) for row in own}
        for row in helped:
            assert tuple(row.turn.prompt_ids) in prompts  # the same question, without a word of help
            assert "earlier" not in engine.tokenizer.decode(row.turn.prompt_ids)
            assert row.turn.answer == "yes"
            assert set(row.turn.completion.logprobs) == {-0.25}  # those under the prompt with help
        # The rows of a group have equal factors: a mean over its tokens, then over problems.
        assert {round(row.scale, 9) for row in update.rows} == {1.0}
    rows = loop.record.run.rows("metrics")
    assert [row["reward"] for row in rows] == [0.0] * STEPS  # of the policy's own rollouts
    assert [row["zero_variance"] for row in rows] == [0.0] * STEPS  # but every group has a gradient
    assert rows[0]["rescue"] == {
        **{"failed": PROBLEMS, "rescued": PROBLEMS, "held": 0},
        "helpers": {"retry": {**Account(PROBLEMS, PROBLEMS, PROBLEMS).summary()}},
    }


@pytest.mark.usefixtures("nothing_held")
def test_rescue_has_a_purpose_of_its_own_in_the_ledger_and_in_saved_rollouts(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    loop, _ = run(tmp_path / "run", rescuing(), Learner(0.0))
    ledger = loop.state.ledger
    assert ledger["slow"].rollouts == STEPS * PROBLEMS * GROUP
    tries, probes = STEPS * PROBLEMS, (STEPS - 3) * PROBLEMS * 2
    assert ledger["rescue"].rollouts == ledger["rescue"].calls == tries + probes
    assert ledger["rescue"].prompt_tokens > 0 < ledger["rescue"].completion_tokens
    assert ledger.training_rollouts == ledger["slow"].rollouts + ledger["rescue"].rollouts
    last = loop.record.run.rows("metrics")[-1]
    assert last["rollouts_slow"] == ledger.training_rollouts
    saved = pq.read_table(tmp_path / "run" / "rollouts" / "step-000001.parquet").to_pylist()
    assert [row["purpose"] for row in saved] == ["slow"] * PROBLEMS * GROUP + ["rescue"] * PROBLEMS
    assert [row["score"] for row in saved] == [0.0] * PROBLEMS * GROUP + [1.0] * PROBLEMS


def test_nothing_changes_where_nothing_is_rescued(tmp_path: Path) -> None:
    """A group with a success gets no help; without a success, a try that scores no more joins nothing."""
    plain, engine = run(tmp_path / "plain", recipe_of("rl"))
    helped, other = run(tmp_path / "helped", taught(models=["openai/useless"]), teachers={"useless": Scripted("no")})
    assert updates_of(other) == updates_of(engine)
    for before, after in zip(plain.record.run.rows("metrics"), helped.record.run.rows("metrics"), strict=True):
        assert after.pop("rescue")["rescued"] == 0
        kept = [key for key in before if key not in ("seconds", "phases", "rollouts_slow")]
        assert {key: after[key] for key in kept} == {key: before[key] for key in kept}
    solved = FakeEngine(1.0)
    run(tmp_path / "solved", rescuing(), solved)
    assert not any("earlier answer" in text for kind, texts in solved.events if kind == "sample" for text in texts)


@pytest.mark.usefixtures("nothing_held")
def test_a_teachers_text_in_the_policys_tokens(tmp_path: Path) -> None:
    teacher = Scripted()
    loop, engine = run(tmp_path / "run", taught(), FakeEngine(-1.0), teachers={"small": teacher})
    words = {(*tuple(engine.tokenizer("yes")["input_ids"]), END)}
    for update in updates_of(engine):
        right = [row for row in update.rows if row.turn.answer == "yes"]
        assert len(right) == PROBLEMS
        assert {tuple(row.turn.completion.ids) for row in right} == words  # with the end token that the policy writes
        assert all(math.isnan(value) for row in right for value in row.turn.completion.logprobs)
        assert not any(row.helped for row in update.rows)
        assert {tuple(row.turn.prompt_ids) for row in right} <= {
            tuple(row.turn.prompt_ids) for row in update.rows if row.turn.answer == "no"
        }
    assert teacher.heard[0][0] == {"role": "system", "content": "answer"}  # what the policy reads
    calls = STEPS * PROBLEMS
    spent, probes = loop.state.ledger["rescue"], (STEPS - 3) * PROBLEMS * 2
    assert (spent.rollouts, spent.calls) == (calls + probes, calls + probes)
    assert spent.cost == calls * 0.5
    assert spent.prompt_tokens >= calls * 11


@dataclass
class Slow(Scripted):
    """Answers when as many calls are under way as it waits for, or after a while."""

    meet: threading.Barrier = field(default_factory=lambda: threading.Barrier(2, timeout=0.05))
    met: int = 0

    def __call__(self, messages: list[dict[str, str]], seed: int) -> Reply:
        with contextlib.suppress(threading.BrokenBarrierError):
            self.meet.wait()
            self.met += 1
        self.meet.reset()
        return super().__call__(messages, seed)


class Served(Slow):
    concurrent = True


def test_a_served_teacher_answers_together_and_a_local_one_by_one(tmp_path: Path) -> None:
    local = Slow()
    run(tmp_path / "local", taught(), FakeEngine(-1.0), teachers={"small": local})
    assert local.met == 0 < len(local.heard)
    served = Served(meet=threading.Barrier(PROBLEMS, timeout=60))
    run(tmp_path / "served", taught(), FakeEngine(-1.0), teachers={"small": served})
    assert served.met == len(served.heard) == STEPS * PROBLEMS


def test_a_truncated_text_has_no_end_token(tmp_path: Path) -> None:
    teacher = Scripted(truncated=True)
    _loop, engine = run(tmp_path / "run", taught(), FakeEngine(-1.0), teachers={"small": teacher})
    right = [
        row.turn.completion.ids for update in updates_of(engine) for row in update.rows if row.turn.answer == "yes"
    ]
    assert right
    assert all(ids[-1] != END for ids in right)


@pytest.mark.usefixtures("nothing_held")
def test_the_weakest_is_asked_first_and_the_next_only_where_it_fails(tmp_path: Path) -> None:
    weak, strong = Scripted("no"), Scripted("yes")
    loop, _ = run(
        tmp_path / "run", taught(models=["a/weak", "b/strong"], retry=True), FakeEngine(-1.0),
        teachers={"weak": weak, "strong": strong},
    )  # fmt: skip
    of = loop.state.rescue.of
    assert list(of) == ["retry", "weak", "strong"]
    assert {name: (each.tried, each.solved) for name, each in of.items()} == {
        "retry": (STEPS * PROBLEMS, 0),
        "weak": (STEPS * PROBLEMS, 0),
        "strong": (STEPS * PROBLEMS, STEPS * PROBLEMS),
    }
    able = Scripted("yes")
    _, _second = run(
        tmp_path / "other", taught(models=["a/able", "b/strong"]), FakeEngine(-1.0),
        teachers={"able": able, "strong": (idle := Scripted())},
    )  # fmt: skip
    assert len(able.heard) == STEPS * PROBLEMS
    assert idle.heard == []


def test_several_attempts_and_what_counts_as_a_success(tmp_path: Path) -> None:
    teacher = Scripted("no")
    run(tmp_path / "run", taught(attempts=3), FakeEngine(-1.0), teachers={"small": teacher})
    assert len(teacher.heard) == 3 * STEPS * PROBLEMS


@pytest.mark.parametrize("method", ["rl", "fst"])
def test_resuming_gives_the_same_run(method: str, tmp_path: Path) -> None:
    recipe = rescuing("teachers", method, models=["openai/small"], retry=True)

    class Sometimes(Scripted):
        def __call__(self, messages: list[dict[str, str]], seed: int) -> Reply:
            return Reply("yes" if seed % 3 == 0 else "no", 11, 3, 0.5)

    def teachers() -> dict[str, Any]:
        return {"small": Sometimes()}

    whole, _ = run(tmp_path / "whole", recipe, FakeEngine(-0.2), teachers=teachers())
    engine = FakeEngine(-0.2)
    engine.fails_at = 5
    loop = make_loop(tmp_path / "cut", recipe, engine, teachers=teachers())
    with pytest.raises(RuntimeError), loop.record.run:
        loop.run()
    resumed, _ = resume(tmp_path / "cut", recipe, FakeEngine(-0.2), teachers=teachers())
    assert whole.state.rescue.of["small"].tried
    assert outcome(tmp_path / "cut") == outcome(tmp_path / "whole")
    assert resumed.state.rescue.to_dict() == whole.state.rescue.to_dict()


def test_a_held_back_group_is_not_trained_on_and_is_tried_again_like_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(play, "HELD", 1.0)
    loop, engine = run(tmp_path / "run", rescuing(), Learner(0.0))
    assert [len(update.rows) for update in updates_of(engine)] == [0] * STEPS
    account = loop.state.rescue.of["retry"]
    assert (account.solved, account.trained) == (STEPS * PROBLEMS, 0)
    assert (account.held, account.taught) == ([0.0] * (STEPS - 3) * PROBLEMS, [])
    assert len(loop.state.rescue.due) == 3 * PROBLEMS  # of the last steps


def test_a_teacher_that_cannot_be_asked_is_dropped_and_one_that_stumbles_is_not(tmp_path: Path) -> None:
    gone = Scripted(error=ChatFailed("the key is refused", permanent=True))
    busy, cut = Scripted(error=ChatFailed("try later")), Scripted(error=ConnectionError("reset"))
    loop, _engine = run(
        tmp_path / "run", taught(models=["a/gone", "b/busy", "c/cut"]), FakeEngine(-1.0),
        teachers={"gone": gone, "busy": busy, "cut": cut},
    )  # fmt: skip
    of = loop.state.rescue.of
    assert of["gone"].dropped == "it cannot be asked: the key is refused"
    assert [of[name].tried for name in ("gone", "busy", "cut")] == [PROBLEMS, STEPS * PROBLEMS, STEPS * PROBLEMS]
    assert not of["busy"].dropped
    assert not of["cut"].dropped
    assert loop.state.ledger["rescue"].faults == {"teacher": PROBLEMS + 2 * STEPS * PROBLEMS}
    assert "gone is not asked any more" in loop.record.view.console.file.getvalue()


def test_a_fault_of_the_grader_is_not_a_teachers(tmp_path: Path) -> None:
    class Breaks(Numbered):
        def grade(self, example: Example, answer: str) -> Feedback:
            if answer == "yes":
                raise ValueError("no such answer")
            return super().grade(example, answer)

    recipe = recipe_of("rl", slow={"rescue": {"name": "teachers", "models": ["openai/small"]}, "steps": 1})
    loop, _ = run(tmp_path / "run", recipe, FakeEngine(-1.0), task=Breaks(), teachers={"small": Scripted()})
    assert loop.state.ledger["rescue"].faults == {FAULT: PROBLEMS}


def test_a_run_that_is_stopped_waits_for_no_teacher(tmp_path: Path) -> None:
    ended, waited = threading.Event(), list[bool]()

    class Stopped(Served):
        def __call__(self, messages: list[dict[str, str]], seed: int) -> Reply:
            if self.meet.wait() == 0:
                raise KeyboardInterrupt
            waited.append(not ended.wait(10))
            return Reply("yes")

    teacher = Stopped(meet=threading.Barrier(PROBLEMS, timeout=60))
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "run", taught(), FakeEngine(-1.0), teachers={"small": teacher})
    ended.set()
    assert True not in waited


@pytest.mark.parametrize(
    ("recipe", "said"),
    [
        ({"method": "distill"}, "slow.rescue=retry joins answers to groups .* method=distill does not"),
        ({"sampling": {"ahead": 1.0}}, "sampling.ahead=1 cannot be combined with slow.rescue=retry"),
        ({"engine": "tinker"}, "engine.kind=tinker cannot train on slow.rescue=retry"),
        ({"feedback": "rank"}, "slow.rescue=retry cannot be combined with slow.feedback=rank"),
        ({"rescue": {"name": "teachers"}}, "models"),
        ({"rescue": {"name": "teachers", "models": ["lessons"]}}, "names 'lessons', which is no model of its own"),
        ({"rescue": {"name": "teachers", "models": ["policy"]}}, "names 'policy', which is no model of its own"),
        ({"rescue": {"name": "retry", "success": 0}}, "success"),
        ({"rescue": {"name": "retry", "success": 1.5}}, "success"),
        ({"rescue": "again"}, "there is no rescue 'again'; .*none, retry, teachers"),
    ],
)
def test_what_cannot_be_rescued_is_refused_in_one_line(recipe: dict[str, Any], said: str) -> None:
    from fastslow.recipe import build_recipe

    data = {"method": "rl", "model": "none", "task": "given", **recipe}
    data["slow"] = {"rescue": data.pop("rescue", "retry"), "feedback": data.pop("feedback", "off")}
    with pytest.raises(RecipeError, match=said) as refused:
        build_recipe(data)
    assert "\n" not in str(refused.value)


def test_the_state_of_a_run_without_rescue_says_nothing_of_it(tmp_path: Path) -> None:
    loop, _ = run(tmp_path / "run", recipe_of("rl"))
    state = json.loads((sorted((tmp_path / "run" / "checkpoints").glob("step-*"))[-1] / "state.json").read_text())
    assert "rescue" not in state
    assert not any("rescue" in row for row in loop.record.run.rows("metrics"))
