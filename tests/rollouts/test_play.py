"""Playing in lockstep: who is asked when, under which text, and what a fault costs."""

from __future__ import annotations

import copy
import os
import threading
from collections.abc import Callable, Generator, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rollout_helpers import COLOURS, PlanAndDo, ScriptedSampler, contexts, problems

from fastslow.errors import RecipeError
from fastslow.records import Completion, Context, Finished, Rollout, Sampling
from fastslow.rollouts.play import KEEP_IT_SHORT, Player
from fastslow.seeds import derive_seed
from fastslow.tasks.base import SYSTEM, Answer, Ask, Example, Feedback, Message, Options, QuestionTask, Split
from fastslow.world import World

SAMPLING = Sampling(1.0, 1.0, 4)


def player(task: Any, sampler: ScriptedSampler, max_length: int | None = None) -> Player:
    return Player(task, sampler, sampler.chat, max_length, World())


def play(task: Any, sampler: ScriptedSampler, pairs: list[tuple[Example, Context]], seed: int = 0) -> list[Rollout]:
    rollouts, timing = player(task, sampler).play(pairs, SAMPLING, policy_step=7, seed=seed)
    assert timing.sampling >= 0
    assert timing.total == timing.sampling + timing.grading
    return rollouts


@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 2)), max_size=8))
def test_all_pending_asks_go_to_the_model_in_one_batch(plan: list[tuple[int, int]]) -> None:
    """Whatever the numbers of turns, call number t holds the t-th ask of every rollout that has one, in order."""
    examples, texts = problems([turns for turns, _ in plan]), contexts(3)
    pairs = [(example, texts[which]) for example, (_, which) in zip(examples, plan, strict=True)]
    sampler = ScriptedSampler()
    rollouts = play(PlanAndDo(), sampler, pairs, seed=11)
    assert len(sampler.calls) == max((turns for turns, _ in plan), default=0)
    for turn, (shown, sampling, seed) in enumerate(sampler.calls):
        expected = []
        for index, (turns, which) in enumerate(plan):
            if turns > turn:
                context = texts[which].texts["plan" if turn % 2 == 0 else "do"]
                said = " ".join([COLOURS[index % 3], *["abcdef"[which]] * turn])
                expected.append(f"<system> {context} <end> <user> {said} <end> <assistant>")
        assert shown == expected
        assert sampling == SAMPLING
        assert seed == derive_seed(11, turn, 0)
    assert [(rollout.example, rollout.context) for rollout in rollouts] == pairs
    assert [len(rollout.turns) for rollout in rollouts] == [turns for turns, _ in plan]


def test_a_rollout_holds_what_was_asked_and_answered() -> None:
    sampler = ScriptedSampler()
    (example,), (context,) = problems([2]), contexts(1)
    (rollout,) = play(PlanAndDo(), sampler, [(example, context)])
    assert (rollout.example, rollout.context, rollout.policy_step) == (example, context, 7)
    assert rollout.feedback == Feedback(0.5, "a a")
    assert (rollout.score, rollout.faults) == (0.5, {})
    plan, do = rollout.turns
    assert (plan.component, plan.question, plan.answer) == ("plan", "red", "a")
    assert (do.component, do.question, do.answer) == ("do", "red a", "a")
    for turn, text in zip(rollout.turns, [sampler.calls[0][0][0], sampler.calls[1][0][0]], strict=True):
        assert sampler.tokenizer.decode(turn.prompt_ids) == text
        assert turn.completion == sampler.completion("a")
    assert rollout.completion_tokens == 4
    assert rollout.prompt_tokens == len(plan.prompt_ids) + len(do.prompt_ids)


class Judged(QuestionTask):
    """Gives what a test wants."""

    def __init__(self, feedback: Feedback) -> None:
        super().__init__(Options())
        self.feedback = feedback

    def examples(self, split: Split) -> Sequence[Example]:
        return problems([1])

    def messages(self, example: Example) -> list[Message]:
        return [{"role": "user", "content": "go"}]

    def grade(self, example: Example, answer: str) -> Feedback:
        return self.feedback


@pytest.mark.parametrize(
    ("words", "given", "told"),
    [
        (3, Feedback(0.0, "wrong"), "wrong"),  # with its end as long as the limit
        (4, Feedback(0.0, "wrong"), f"wrong\n{KEEP_IT_SHORT.format(4)}"),
        (9, Feedback(0.5), KEEP_IT_SHORT.format(4)),
        (9, Feedback(1.0, "right"), "right"),  # nothing to do better
    ],
)
def test_an_answer_that_was_cut_off_is_told_to_be_shorter(words: int, given: Feedback, told: str) -> None:
    context = Context({SYSTEM: "a"})
    (rollout,) = play(Judged(given), ScriptedSampler(rule=lambda prompt: "a " * words), [(problems([1])[0], context)])
    assert rollout.feedback.text == told
    assert rollout.faults == ({"cut_off": 1} if words > 3 else {})


@pytest.mark.parametrize("progress", [-0.1, 1.5, float("nan"), "far"])
def test_progress_out_of_bounds_is_the_graders_fault(progress: Any) -> None:
    pair = (problems([1])[0], Context({SYSTEM: "a"}))
    (rollout,) = play(Judged(Feedback(0.5, progress=progress)), ScriptedSampler(), [pair])
    assert (rollout.score, rollout.faults) == (0.0, {"grader": 1})
    (rollout,) = play(Judged(Feedback(0.5, progress=0.25)), ScriptedSampler(), [pair])
    assert (rollout.progress, rollout.faults) == (0.25, {})


def test_only_the_component_that_was_cut_off_is_told() -> None:
    class Apart(PlanAndDo):
        def play(self, example: Example) -> Generator[Ask, str, Feedback]:
            yield from super().play(example)
            return Feedback(0.0, "wrong", by_component={"plan": "bad plan", "do": "bad deed"})

    sampler = ScriptedSampler(rule=lambda prompt: "a" if "go" in prompt else "a a a a a")  # the doer is brief
    (rollout,) = play(Apart(), sampler, [(problems([2])[0], contexts(1)[0])])
    advice = KEEP_IT_SHORT.format(4)
    assert rollout.feedback.by_component == {"plan": f"bad plan\n{advice}", "do": "bad deed"}
    assert rollout.feedback.text == f"wrong\n{advice}"


def test_the_same_pair_may_come_often() -> None:
    (example,), (context,) = problems([1]), contexts(1)
    rollouts = play(PlanAndDo(), ScriptedSampler(), [(example, context)] * 5)
    assert len(rollouts) == 5
    assert len(set(map(id, rollouts))) == 5


def test_no_pairs_no_rollouts() -> None:
    sampler = ScriptedSampler()
    assert play(PlanAndDo(), sampler, []) == []
    assert sampler.calls == []


def test_a_task_that_asks_nothing_is_graded_without_the_model() -> None:
    sampler = ScriptedSampler()
    rollouts = play(PlanAndDo(), sampler, [(example, contexts(1)[0]) for example in problems([0, 0])])
    assert sampler.calls == []
    assert [rollout.turns for rollout in rollouts] == [(), ()]
    assert [rollout.feedback for rollout in rollouts] == [Feedback(0.0, ""), Feedback(0.0, "")]
    assert [rollout.faults for rollout in rollouts] == [{}, {}]


# Faults ------------------------------------------------------------------------------------------------------------------


class Quiz(QuestionTask):
    """Grades by a function, for one problem only; all others are right."""

    def __init__(self, grade: Callable[[], Any]) -> None:
        self._grade = grade

    def examples(self, split: str) -> list[Example]:
        return []

    def messages(self, example: Example) -> list[Message]:
        return [{"role": "system", "content": "word"}, {"role": "user", "content": "say red"}]

    def grade(self, example: Example, answer: str) -> Feedback:
        return self._grade() if example.id == "odd" else Feedback(1.0, "Right.")


def raises(error: Exception) -> Callable[[], Any]:
    def grade() -> Any:
        raise error

    return grade


ODD: list[tuple[Example, Context]] = [
    (Example(name, {}), Context({SYSTEM: "go"})) for name in ("first", "odd", "third")
]


@pytest.mark.parametrize(
    ("grade", "said"),
    [
        (raises(ValueError("no such page")), "ValueError: no such page"),
        (raises(StopIteration("inside")), "RuntimeError"),  # Python's own rule inside generators
        (raises(RecursionError()), "RecursionError"),
        (lambda: Feedback(float("nan"), "x"), "nan"),
        (lambda: Feedback(float("inf"), "x"), "inf"),
        (lambda: Feedback(1.01, "x"), "1.01"),
        (lambda: Feedback(-0.01, "x"), "-0.01"),
        (lambda: Feedback("good", "x"), "'good'"),  # type: ignore[arg-type]
        (lambda: Feedback(None, "x"), "None"),  # type: ignore[arg-type]
        (lambda: 1.0, "1.0"),
        (lambda: None, "None"),
        (lambda: (1.0, "text"), "(1.0, 'text')"),
    ],
)
def test_a_grader_that_fails_costs_its_own_rollout_only(grade: Callable[[], Any], said: str) -> None:
    first, odd, third = play(Quiz(grade), ScriptedSampler(), ODD)
    assert first.feedback == third.feedback == Feedback(1.0, "Right.")
    assert first.faults == third.faults == {}
    assert odd.score == 0.0
    assert odd.faults == {"grader": 1}
    assert odd.feedback.text.startswith("The grader failed: ")
    assert said in odd.feedback.text
    assert len(odd.turns) == 1  # what the model wrote is kept


def test_wrong_settings_that_show_in_grading_end_the_play() -> None:
    with pytest.raises(RecipeError, match="low and high"):
        play(Quiz(raises(RecipeError("low and high"))), ScriptedSampler(), ODD)


def test_an_answer_is_text_that_knows_its_tokens() -> None:
    heard: list[str] = []

    class Listens(Quiz):
        def grade(self, example: Example, answer: str) -> Feedback:
            heard.append(answer)
            return Feedback(1.0)

    rollouts = play(Listens(raises(ValueError())), ScriptedSampler(), ODD)
    for answer, rollout in zip(heard, rollouts, strict=True):
        assert isinstance(answer, Answer)
        assert answer == rollout.turns[0].answer
        assert type(rollout.turns[0].answer) is str  # it goes into tables and between processes
        assert answer.ids == rollout.turns[0].completion.ids
        assert len(answer.ids) > 0
        assert copy.deepcopy(answer).ids == answer.ids


@pytest.mark.parametrize("score", [0, 1, True, np.float32(0.25), np.float64(0.5), Fraction(1, 3)])
def test_every_real_number_from_0_to_1_is_a_score(score: Any) -> None:
    _, odd, _ = play(Quiz(lambda: Feedback(score, "fine", {"part": "fine"})), ScriptedSampler(), ODD)
    assert odd.feedback == Feedback(float(score), "fine", {"part": "fine"})
    assert type(odd.score) is float  # it goes into JSON and tables
    assert odd.faults == {}


class Careless(Quiz):
    """Goes wrong before the first answer, in a way of its choice."""

    def __init__(self, way: str) -> None:
        super().__init__(lambda: Feedback(0.5))
        self.way = way

    def play(self, example: Example) -> Generator[Ask, str, Feedback]:
        if example.id == "odd" and self.way == "raises when called":
            raise ValueError("unreadable")
        return self._play(example)

    def _play(self, example: Example) -> Generator[Ask, str, Feedback]:
        if example.id == "odd":
            if self.way == "raises before asking":
                raise ValueError("unreadable")
            if self.way == "unknown component":
                yield Ask("nobody", self.messages(example))
            if self.way == "no ask":
                yield "say red"  # type: ignore[misc]
            if self.way == "no text":
                yield Ask(SYSTEM, [{"role": "user", "content": 5}])  # type: ignore[dict-item]
            if self.way == "raises after an answer":
                yield Ask(SYSTEM, self.messages(example))
                raise ValueError("unreadable")
        return (yield from super().play(example))


@pytest.mark.parametrize(
    "way",
    [
        "raises when called",
        "raises before asking",
        "unknown component",
        "no ask",
        "no text",
        "raises after an answer",
    ],
)
def test_a_task_that_fails_on_one_problem_costs_that_rollout_only(way: str) -> None:
    sampler = ScriptedSampler()
    first, odd, third = play(Careless(way), sampler, ODD)
    assert (first.score, third.score) == (1.0, 1.0)
    assert (odd.score, odd.faults) == (0.0, {"grader": 1})
    assert len(odd.turns) == (way == "raises after an answer")
    assert len(sampler.calls) == 1


@pytest.mark.parametrize("spare", [0, -1])
def test_prompts_too_long_for_the_model_are_not_sampled(spare: int) -> None:
    """With room for the longest answer a prompt is sampled, with one token less it is not."""
    sampler = ScriptedSampler()
    short, long = Context({SYSTEM: "go"}), Context({SYSTEM: "go " * 30})
    task = Quiz(lambda: Feedback(1.0))
    needed = len(sampler.chat.prompt(task.messages(ODD[0][0]), long.texts[SYSTEM])) + SAMPLING.max_tokens
    pairs = [(ODD[0][0], short), (ODD[0][0], long), (ODD[0][0], short)]
    rollouts, _ = player(task, sampler, needed + spare).play(pairs, SAMPLING, policy_step=0, seed=0)
    if spare == 0:
        assert [rollout.score for rollout in rollouts] == [1.0, 1.0, 1.0]
        assert len(sampler.calls[0][0]) == 3
        return
    assert [rollout.score for rollout in rollouts] == [1.0, 0.0, 1.0]
    assert len(sampler.calls[0][0]) == 2
    refused = rollouts[1]
    assert refused.faults == {"prompt_too_long": 1}
    assert refused.turns == ()
    assert f"{needed - SAMPLING.max_tokens} tokens" in refused.feedback.text
    assert f"{needed - 1}" in refused.feedback.text


def test_a_conversation_that_grows_too_long_keeps_its_turns() -> None:
    sampler = ScriptedSampler()
    pairs = [(example, contexts(1)[0]) for example in problems([6, 1])]
    free = play(PlanAndDo(), sampler, pairs)[0]
    third = len(free.turns[2].prompt_ids) + SAMPLING.max_tokens
    rollouts, _ = player(PlanAndDo(), ScriptedSampler(), third).play(pairs, SAMPLING, policy_step=0, seed=0)
    assert len(rollouts[0].turns) == 3
    assert rollouts[0].turns == free.turns[:3]
    assert (rollouts[0].score, rollouts[0].faults) == (0.0, {"prompt_too_long": 1})
    assert rollouts[1].score == 1.0


# Seeds -------------------------------------------------------------------------------------------------------------------


def test_every_turn_of_every_play_has_a_seed_of_its_own() -> None:
    seen = []
    for seed in range(5):
        sampler = ScriptedSampler()
        play(PlanAndDo(), sampler, [(example, contexts(1)[0]) for example in problems([4])], seed)
        again = ScriptedSampler()
        play(PlanAndDo(), again, [(example, contexts(1)[0]) for example in problems([4])], seed)
        assert [call[2] for call in sampler.calls] == [call[2] for call in again.calls]
        seen += [call[2] for call in sampler.calls]
    assert len(set(seen)) == 20


parts = st.integers(-100, 100) | st.text(max_size=5)


@settings(deadline=None, max_examples=200)
@given(st.lists(parts, max_size=4), st.lists(parts, max_size=4))
def test_derived_seeds_follow_from_their_parts(first: list[Any], second: list[Any]) -> None:
    assert 0 <= derive_seed(*first) < 2**32
    assert (derive_seed(*first) == derive_seed(*second)) == (first == second)


def test_derived_seeds_never_change() -> None:
    """Runs of yesterday must go on today."""
    import hashlib

    digest = hashlib.sha256(b"(3, 'slow', 12)").hexdigest()
    assert derive_seed(3, "slow", 12) == int(digest[:8], 16)


class Slow(QuestionTask):
    """Graded in threads: each grading waits until a second one has begun, which in one thread it never would."""

    grades_apart = True

    def __init__(self) -> None:
        super().__init__(Options())
        self.together = threading.Barrier(2, timeout=20)
        self.threads: set[str] = set()

    def examples(self, split: Split) -> list[Example]:
        return problems([1] * 4)

    def messages(self, example: Example) -> list[Message]:
        return [{"role": "user", "content": COLOURS[example.data["index"] % 3]}]

    def grade(self, example: Example, answer: str) -> Feedback:
        self.threads.add(threading.current_thread().name)
        self.together.wait()
        if example.data["index"] == 3:
            raise ValueError("no such colour")
        return Feedback(example.data["index"] / 4, answer)


class EarlySampler(ScriptedSampler):
    """Tells of every second completion before it returns, last first, and of nothing else until those are graded."""

    early: bool = True

    def sample(
        self, prompts: Sequence[Sequence[int]], sampling: Sampling, seed: int, finished: Finished | None = None
    ) -> list[Completion]:
        completions = super().sample(prompts, sampling, seed)
        if self.early and finished is not None:
            for number in reversed(range(0, len(prompts), 2)):
                finished(number, completions[number])
        return completions


@pytest.mark.parametrize("early", [True, False])
def test_graders_that_wait_grade_beside_one_another_and_every_answer_once(
    early: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    sampler, task, texts = EarlySampler(), Slow(), contexts(1)[0]
    sampler.early = early
    rollouts = play(task, sampler, [(example, Context({SYSTEM: "a"}, texts.parents)) for example in problems([1] * 4)])
    assert [rollout.score for rollout in rollouts] == [0.0, 0.25, 0.5, 0.0]
    assert [len(rollout.turns) for rollout in rollouts] == [1] * 4
    assert rollouts[3].faults == {"grader": 1}
    assert all(name.startswith("grading") for name in task.threads)


def test_other_graders_stay_in_the_main_thread() -> None:
    """Time limits by signal work nowhere else."""

    class Main(Slow):
        grades_apart = False

        def grade(self, example: Example, answer: str) -> Feedback:
            self.threads.add(threading.current_thread().name)
            return Feedback(0.0, answer)

    task = Main()
    play(task, EarlySampler(), [(example, Context({SYSTEM: "a"})) for example in problems([1] * 4)])
    assert task.threads == {threading.main_thread().name}


def test_a_fault_of_the_settings_reaches_the_main_thread() -> None:
    class Wrong(Slow):
        def grade(self, example: Example, answer: str) -> Feedback:
            raise RecipeError("no such file")

    with pytest.raises(RecipeError, match="no such file"):
        play(Wrong(), EarlySampler(), [(problems([1])[0], Context({SYSTEM: "a"}))])
