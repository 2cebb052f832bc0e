"""Playing rollouts whose asks are gathered into batches: who is asked when, under which text, graded where."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Generator, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rollout_helpers import COLOURS, SAMPLING, PlanAndDo, ScriptedEngine, contexts, play, problems

from fastslow.base.errors import RecipeError
from fastslow.base.world import derive_seed
from fastslow.records import Completion, Context, Ready, Rollout, Sampling
from fastslow.rollouts.play import KEEP_IT_SHORT
from fastslow.tasks.base import SYSTEM, Ask, Example, Feedback, Message, Options, QuestionTask, Split


@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 2)), max_size=8))
def test_all_pending_asks_go_to_the_model_in_one_batch(plan: list[tuple[int, int]]) -> None:
    """Whatever the numbers of turns, call number t holds the t-th ask of every rollout that has one, in order."""
    examples, texts = problems([turns for turns, _ in plan]), contexts(3)
    pairs = [(example, texts[which]) for example, (_, which) in zip(examples, plan, strict=True)]
    sampler = ScriptedEngine()
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
    sampler = ScriptedEngine()
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
def test_feedback_on_a_truncated_answer_says_so(words: int, given: Feedback, told: str) -> None:
    context = Context({SYSTEM: "a"})
    (rollout,) = play(Judged(given), ScriptedEngine(rule=lambda prompt: "a " * words), [(problems([1])[0], context)])
    assert rollout.feedback.text == told
    assert rollout.faults == ({"truncated": 1} if words > 3 else {})


@pytest.mark.parametrize("progress", [-0.1, 1.5, float("nan"), "far"])
def test_progress_out_of_bounds_is_the_graders_fault(progress: Any) -> None:
    pair = (problems([1])[0], Context({SYSTEM: "a"}))
    (rollout,) = play(Judged(Feedback(0.5, progress=progress)), ScriptedEngine(), [pair])
    assert (rollout.score, rollout.faults) == (0.0, {"grader": 1})
    (rollout,) = play(Judged(Feedback(0.5, progress=0.25)), ScriptedEngine(), [pair])
    assert (rollout.progress, rollout.faults) == (0.25, {})


def test_only_feedback_on_the_truncated_component_says_so() -> None:
    class Apart(PlanAndDo):
        def play(self, example: Example) -> Generator[Ask, str, Feedback]:
            yield from super().play(example)
            return Feedback(0.0, "wrong", by_component={"plan": "bad plan", "do": "bad deed"})

    sampler = ScriptedEngine(rule=lambda prompt: "a" if "go" in prompt else "a a a a a")  # the doer is brief
    (rollout,) = play(Apart(), sampler, [(problems([2])[0], contexts(1)[0])])
    advice = KEEP_IT_SHORT.format(4)
    assert rollout.feedback.by_component == {"plan": f"bad plan\n{advice}", "do": "bad deed"}
    assert rollout.feedback.text == f"wrong\n{advice}"


def test_a_rollout_is_truncated_once_however_many_of_its_answers_are() -> None:
    sampler = ScriptedEngine(rule=lambda prompt: "a a a a a")
    (rollout,) = play(PlanAndDo(), sampler, [(problems([3])[0], contexts(1)[0])])
    assert len(rollout.turns) > 2
    assert rollout.faults == {"truncated": 1}


def test_the_same_pair_may_come_often() -> None:
    (example,), (context,) = problems([1]), contexts(1)
    rollouts = play(PlanAndDo(), ScriptedEngine(), [(example, context)] * 5)
    assert len(rollouts) == 5
    assert len(set(map(id, rollouts))) == 5


def test_no_pairs_no_rollouts() -> None:
    sampler = ScriptedEngine()
    assert play(PlanAndDo(), sampler, []) == []
    assert sampler.calls == []


def test_a_task_that_asks_nothing_is_graded_without_the_model() -> None:
    sampler = ScriptedEngine()
    rollouts = play(PlanAndDo(), sampler, [(example, contexts(1)[0]) for example in problems([0, 0])])
    assert sampler.calls == []
    assert [rollout.turns for rollout in rollouts] == [(), ()]
    assert [rollout.feedback for rollout in rollouts] == [Feedback(0.0, ""), Feedback(0.0, "")]
    assert [rollout.faults for rollout in rollouts] == [{}, {}]


def test_every_turn_of_every_play_has_a_seed_of_its_own() -> None:
    seen = []
    for seed in range(5):
        sampler = ScriptedEngine()
        play(PlanAndDo(), sampler, [(example, contexts(1)[0]) for example in problems([4])], seed)
        again = ScriptedEngine()
        play(PlanAndDo(), again, [(example, contexts(1)[0]) for example in problems([4])], seed)
        assert [call[2] for call in sampler.calls] == [call[2] for call in again.calls]
        seen += [call[2] for call in sampler.calls]
    assert len(set(seen)) == 20


class Slow(QuestionTask):
    """Graded in threads: each grading waits until a second one has begun, which in one thread it never would."""

    grades_apart = True

    def __init__(self) -> None:
        super().__init__(Options())
        self.together = threading.Barrier(2, timeout=60)
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


class EarlyEngine(ScriptedEngine):
    """Tells of every second completion before it returns, last first, and of nothing else until those are graded."""

    early: bool = True

    async def sample(
        self, prompts: Sequence[Sequence[int]], sampling: Sampling, seed: int, *, ready: Ready | None = None, **_: Any
    ) -> list[Completion]:
        completions = await super().sample(prompts, sampling, seed)
        if self.early and ready is not None:
            for number in reversed(range(0, len(prompts), 2)):
                ready(number, completions[number])
        return completions


@pytest.mark.parametrize("early", [True, False])
def test_graders_that_wait_grade_beside_one_another_and_every_answer_once(early: bool) -> None:
    sampler, task, texts = EarlyEngine(), Slow(), contexts(1)[0]
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
    play(task, EarlyEngine(), [(example, Context({SYSTEM: "a"})) for example in problems([1] * 4)])
    assert task.threads == {threading.main_thread().name}


def test_a_fault_of_the_settings_reaches_the_main_thread() -> None:
    class Wrong(Slow):
        def grade(self, example: Example, answer: str) -> Feedback:
            raise RecipeError("no such file")

    with pytest.raises(RecipeError, match="no such file"):
        play(Wrong(), EarlyEngine(), [(problems([1])[0], Context({SYSTEM: "a"}))])


def test_it_plays_where_an_event_loop_is_running_already() -> None:
    """As in a notebook."""

    async def cell() -> list[Rollout]:
        return play(PlanAndDo(), ScriptedEngine(), [(example, contexts(1)[0]) for example in problems([1, 2])])

    assert [len(rollout.turns) for rollout in asyncio.run(cell())] == [1, 2]


def test_an_interrupted_play_leaves_nothing_running() -> None:
    class Interrupted(ScriptedEngine):
        async def sample(self, *arguments: Any, **named: Any) -> list[Completion]:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        play(PlanAndDo(), Interrupted(), [(example, contexts(1)[0]) for example in problems([1, 2])])
    assert len(play(PlanAndDo(), ScriptedEngine(), [(problems([1])[0], contexts(1)[0])])) == 1
