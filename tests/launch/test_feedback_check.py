"""`fastslow check --feedback`: closed forms on the engine of pure Python, and the command on the embedded model."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from fake_engine import END, FakeEngine, Numbered
from fake_runs import recipe_of

from fastslow.commands.app import main
from fastslow.engine.base import TokenScores
from fastslow.launch import feedback
from fastslow.launch.assembly import Parts
from fastslow.launch.feedback import FeedbackCheck, _gain, _rate, _ratio, _spread, check_feedback
from fastslow.models.chat import ChatFormat
from fastslow.records import Completion, Context, Example, Feedback, Rollout, Turn
from fastslow.rollouts.play import Player

GROUP = 8


class Policy(FakeEngine):
    """Right in `plain` of the first tries and in `after` of those after the words, which make wrong tokens less likely."""

    def __init__(self, plain: float, after: float) -> None:
        super().__init__()
        self.plain, self.after = plain, after

    def _completion(self, text: str, draw: Any) -> Completion:
        right = draw.random() < (self.after if "An earlier answer" in text else self.plain)
        ids = (*self.tokenizer("yes" if right else "no")["input_ids"], END)
        return Completion(ids, (-0.5,) * len(ids))

    def score(self, turns: Sequence[Turn]) -> list[TokenScores]:
        def each(turn: Turn) -> float:
            read = "grader said" in self.tokenizer.decode(turn.prompt_ids)
            return (-0.5 if turn.answer == "yes" else -2.0) if read else -1.0

        return [TokenScores((each(turn),) * len(turn.completion.ids), (), None) for turn in turns]


def checked(
    monkeypatch: pytest.MonkeyPatch, plain: float, after: float, task: Any = None, **slow: Any
) -> FeedbackCheck:
    engine = Policy(plain, after)
    task = task or Numbered()
    parts = Parts(task, engine, Player(task, engine, ChatFormat(engine.tokenizer)), task.seed_texts)
    monkeypatch.setattr(feedback, "assemble", lambda *_: parts)
    return check_feedback(recipe_of("rl", slow={"group": GROUP, "microbatch": "auto", **slow}))


def advice(found: FeedbackCheck) -> dict[str, str]:
    return {channel.name: channel.advice for channel in found.channels}


def test_a_second_try_that_helps_is_told_from_one_that_hurts(monkeypatch: pytest.MonkeyPatch) -> None:
    helps = checked(monkeypatch, plain=0.1, after=0.9)
    assert advice(helps)["rescue"] == "yes"
    assert helps.groups["groups"] == 128 / GROUP
    assert helps.after_words.count == helps.plain.count == 64
    hurts = checked(monkeypatch, plain=0.25, after=0.02)
    assert advice(hurts)["rescue"] == "no"
    (said,) = [each.found for each in hurts.findings() if each.what == "rescue"]
    assert said.startswith("not here: a second try after the words succeeds in 0.0")
    assert f"a plain one in {hurts.plain}" in said


def test_a_plain_second_try_is_the_rest_of_the_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the others of a group did is an unbiased estimate: the policy's rate, not that of groups that failed."""
    found = checked(monkeypatch, plain=0.3, after=0.3)
    assert found.plain.low <= 0.3 <= found.plain.high
    assert found.gain.low <= 0 <= found.gain.high
    assert advice(found)["rescue"] in ("no", "unclear")


def test_groups_and_words_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    never = checked(monkeypatch, plain=0.0, after=0.0)
    assert (never.groups["equal"], never.groups["all_failed"], never.groups["nobody"]) == (1, 1, 1)
    assert (never.words["failures"], never.words["differ"]) == (1, 0)  # the grader says the same to all
    assert advice(never) == {"rank": "no", "rescue": "no", "distil": "unclear"}
    assert never.gain.low < 0 < never.gain.high  # no certainty from rates that are both 0
    always = checked(monkeypatch, plain=1.0, after=1.0)
    assert (always.groups["all_solved"], always.groups["nobody"]) == (1, 0)
    assert (always.words["failures"], always.after_words.mean) == (None, None)
    assert set(advice(always).values()) == {"no"}


class Graded(Numbered):
    """Half a point for any answer, and other words every time."""

    def __init__(self) -> None:
        super().__init__()
        self.said = 0

    def grade(self, example: Example, answer: str) -> Feedback:
        self.said += 1
        return Feedback(0.5, f"remark {self.said % 5}")


def test_graded_rewards_words_that_differ_and_what_counts_as_success(monkeypatch: pytest.MonkeyPatch) -> None:
    found = checked(monkeypatch, 0.5, 0.5, Graded())
    assert (found.groups["between"], found.groups["nobody"]) == (1, 1)
    assert advice(found)["rank"] == "unclear"
    lower = checked(monkeypatch, 0.5, 0.5, Graded(), rescue={"name": "retry", "success": 0.5})
    assert lower.groups["nobody"] == 0
    assert [each.found for each in lower.findings() if each.what == "rescue"] == [
        "not here: in every group somebody succeeds"
    ]


def test_the_gap_of_the_reader_is_a_mean_over_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    found = checked(monkeypatch, plain=0.5, after=0.5)
    assert (found.gap_failed.mean, found.gap_solved.mean) == (pytest.approx(-1.0), pytest.approx(0.5))
    assert advice(found)["distil"] == "yes"


def test_the_interval_counts_problems_not_rollouts() -> None:
    values = [(number, float(number % 2)) for number in range(8) for _ in range(10)]
    ten, one = _ratio(values, [1] * 80), _ratio(values[::10], [1] * 8)
    assert (ten.mean, ten.low, ten.high) == pytest.approx((one.mean, one.low, one.high))
    # One value a problem: the t interval of a mean.
    assert one.high - 0.5 == pytest.approx(2.364624 * (8 / 7 * 0.25) ** 0.5 / 8**0.5)
    uneven = _ratio([(0, 3.0), (1, 2.0)], [3, 1])
    assert uneven.mean == pytest.approx(5 / 4)
    assert _ratio([(0, 1.0), (0, 2.0)], [1, 1]).mean is None  # of one problem nothing is known


def test_second_tries_are_spread_over_the_groups() -> None:
    def rollout(name: str) -> Rollout:
        return Rollout(Example(name, {}), Context({}), 0, (), Feedback(0.0))

    groups = [[rollout("a")] * 5, [], [rollout("b")] * 2]
    assert [number for number, _ in _spread(groups, 4)] == [0, 0, 2, 2]
    assert len(_spread(groups, 100)) == 7
    assert _rate([], []).mean is None
    assert _gain(_rate([], []), _rate([], []), []).mean is None


def test_the_command_on_the_embedded_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    monkeypatch.setattr(feedback, "ROLLOUTS", 16)
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(
        "{method: rl, model: nano, task: {name: rulebook, book: library}, slow: {steps: 1, problems: 2, group: 4, kl: 0}, "
        "sampling: {max_tokens: 24}}"
    )
    monkeypatch.setattr("sys.argv", ["fastslow", "check", str(recipe), "--feedback", "--json"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code in (0, None)
    found = json.loads(capsys.readouterr().out)
    assert found["ready"] is True
    assert [channel["name"] for channel in found["feedback"]["channels"]] == ["rank", "rescue", "distil"]
    assert found["feedback"]["spent"]["slow"]["rollouts"] == 16
    assert {"groups", "words", "rank", "rescue", "distil", "spent"} <= {each["what"] for each in found["findings"]}
