"""Playing rollouts: who is asked when, under which text, and what a fault costs."""

from __future__ import annotations

import asyncio
import copy
import sys
import threading
import time
from collections.abc import Callable, Generator, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rollout_helpers import COLOURS, PlanAndDo, ScriptedEngine, contexts, problems

from fastslow.engine.base import Ready
from fastslow.errors import RecipeError
from fastslow.recipe import GradingRecipe
from fastslow.records import Completion, Context, Rollout, Sampling
from fastslow.rollouts.faults import FaultyGrades, GradingError
from fastslow.rollouts.play import KEEP_IT_SHORT, Player
from fastslow.seeds import derive_seed
from fastslow.tasks.base import SYSTEM, Answer, Ask, Example, Feedback, Message, Options, QuestionTask, Split

SAMPLING = Sampling(1.0, 1.0, 4)


def player(task: Any, engine: ScriptedEngine, max_length: int | None = None) -> Player:
    engine.max_length = max_length
    return Player(task, engine, engine.chat)


def play(task: Any, sampler: ScriptedEngine, pairs: list[tuple[Example, Context]], seed: int = 0) -> list[Rollout]:
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
    first, odd, third = play(Quiz(grade), ScriptedEngine(), ODD)
    assert first.feedback == third.feedback == Feedback(1.0, "Right.")
    assert first.faults == third.faults == {}
    assert odd.score == 0.0
    assert odd.faults == {"grader": 1}
    assert odd.feedback == Feedback(0.0)  # a reflector reads the feedback, people read the error
    assert said in odd.error
    assert len(odd.turns) == 1  # what the model wrote is kept


def test_sys_exit_in_a_grader_costs_its_rollout() -> None:
    _, odd, third = play(Quiz(lambda: sys.exit(0)), ScriptedEngine(), ODD)
    assert (odd.faults, third.score) == ({"grader": 1}, 1.0)
    assert odd.error.startswith("SystemExit: 0 (")
    assert odd.error.endswith("test_play.py:" + odd.error.rpartition(":")[2])


@pytest.mark.parametrize("apart", [False, True])
def test_a_grader_that_does_not_return_costs_its_rollout(apart: bool) -> None:
    class Slow(Quiz):
        grades_apart = apart

    limited = Player(Slow(lambda: time.sleep(30)), ScriptedEngine(), ScriptedEngine().chat, GradingRecipe(timeout=0.3))
    started = time.perf_counter()
    (_, odd, third), _ = limited.play(ODD, SAMPLING, policy_step=0, seed=0)
    assert time.perf_counter() - started < 10
    assert (odd.faults, odd.score, third.score) == ({"grader": 1}, 0.0, 1.0)
    assert "more than 0.3 seconds" in odd.error


def test_an_async_grader_that_does_not_return_is_cancelled_and_the_wait_for_answers_is_not_counted() -> None:
    class Waits(Quiz):
        async def rollout(self, example: Example, texts: Any, ask: Any) -> Feedback:
            for _ in range(4):
                await ask(Ask(SYSTEM, self.messages(example)))
            if example.id == "odd":
                await asyncio.sleep(30)
            return Feedback(1.0)

    class Leisurely(ScriptedEngine):
        async def sample(self, *given: Any, **named: Any) -> list[Completion]:
            await asyncio.sleep(0.2)
            return await super().sample(*given, **named)

    engine = Leisurely()
    limited = Player(Waits(raises(ValueError())), engine, engine.chat, GradingRecipe(timeout=0.5))
    (first, odd, third), _ = limited.play(ODD, SAMPLING, policy_step=0, seed=0)
    assert (first.score, odd.score, third.score) == (1.0, 0.0, 1.0)
    assert "more than 0.5 seconds" in odd.error


def test_a_rollout_that_never_stops_asking_is_faulty() -> None:
    class Endless(Quiz):
        def play(self, example: Example) -> Generator[Ask, str, Feedback]:
            while True:
                yield Ask(SYSTEM, self.messages(example))

    engine = ScriptedEngine()
    limited = Player(Endless(raises(ValueError())), engine, engine.chat, GradingRecipe(max_turns=3, faulty=1))
    (odd, *_), _ = limited.play(ODD, SAMPLING, policy_step=0, seed=0)
    assert len(odd.turns) == 3
    assert "more than 3 answers" in odd.error


@given(st.lists(st.booleans(), max_size=60), st.floats(0, 1))
def test_more_faulty_grades_than_the_limit_stop_the_step(failing: list[bool], limit: float) -> None:
    counted = FaultyGrades(limit)
    rollouts = [
        Rollout(Example(str(number), {}), Context({}), 0, (), Feedback(0.0), {"grader": 1} if bad else {}, "why")
        for number, bad in enumerate(failing)
    ]

    def step() -> None:
        counted.count(rollouts)
        counted.end_step()

    if sum(failing) > limit * len(failing):
        first = failing.index(True)
        with pytest.raises(GradingError, match=rf"^{sum(failing)} of {len(failing)} .*problem '{first}': why"):
            step()
    else:
        step()
        step()


def test_wrong_settings_that_show_in_grading_end_the_play() -> None:
    with pytest.raises(RecipeError, match="low and high"):
        play(Quiz(raises(RecipeError("low and high"))), ScriptedEngine(), ODD)


def test_an_answer_is_text_that_knows_its_tokens() -> None:
    heard: list[str] = []

    class Listens(Quiz):
        def grade(self, example: Example, answer: str) -> Feedback:
            heard.append(answer)
            return Feedback(1.0)

    rollouts = play(Listens(raises(ValueError())), ScriptedEngine(), ODD)
    for answer, rollout in zip(heard, rollouts, strict=True):
        assert isinstance(answer, Answer)
        assert answer == rollout.turns[0].answer
        assert type(rollout.turns[0].answer) is str  # it goes into tables and between processes
        assert answer.ids == rollout.turns[0].completion.ids
        assert len(answer.ids) > 0
        assert copy.deepcopy(answer).ids == answer.ids


@pytest.mark.parametrize("score", [0, 1, True, np.float32(0.25), np.float64(0.5), Fraction(1, 3)])
def test_every_real_number_from_0_to_1_is_a_score(score: Any) -> None:
    _, odd, _ = play(Quiz(lambda: Feedback(score, "fine")), ScriptedEngine(), ODD)
    assert odd.feedback == Feedback(float(score), "fine")
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
    sampler = ScriptedEngine()
    first, odd, third = play(Careless(way), sampler, ODD)
    assert (first.score, third.score) == (1.0, 1.0)
    assert (odd.score, odd.faults) == (0.0, {"grader": 1})
    assert len(odd.turns) == (way == "raises after an answer")
    assert len(sampler.calls) == 1


@pytest.mark.parametrize("spare", [0, -1])
def test_prompts_too_long_for_the_model_are_not_sampled(spare: int) -> None:
    """With room for the longest answer a prompt is sampled, with one token less it is not."""
    sampler = ScriptedEngine()
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
    sampler = ScriptedEngine()
    pairs = [(example, contexts(1)[0]) for example in problems([6, 1])]
    free = play(PlanAndDo(), sampler, pairs)[0]
    third = len(free.turns[2].prompt_ids) + SAMPLING.max_tokens
    rollouts, _ = player(PlanAndDo(), ScriptedEngine(), third).play(pairs, SAMPLING, policy_step=0, seed=0)
    assert len(rollouts[0].turns) == 3
    assert rollouts[0].turns == free.turns[:3]
    assert (rollouts[0].score, rollouts[0].faults) == (0.0, {"prompt_too_long": 1})
    assert rollouts[1].score == 1.0


# Seeds -------------------------------------------------------------------------------------------------------------------


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


class EarlyEngine(ScriptedEngine):
    """Tells of every second completion before it returns, last first, and of nothing else until those are graded."""

    early: bool = True

    async def sample(
        self, prompts: Sequence[Sequence[int]], sampling: Sampling, seed: int, ready: Ready | None = None
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


# Engines that take requests one by one -----------------------------------------------------------------------------------


class Server(ScriptedEngine):
    """Answers every request by itself, after a while, and knows how many it had at once."""

    in_flight: bool = True
    flying: int = 0
    most: int = 0

    async def sample(
        self, prompts: Sequence[Sequence[int]], sampling: Sampling, seed: int, ready: Ready | None = None
    ) -> list[Completion]:
        assert len(prompts) == 1
        self.flying += 1
        self.most = max(self.most, self.flying)
        await asyncio.sleep(0.001)
        self.flying -= 1
        return await super().sample(prompts, sampling, seed)


def test_an_engine_with_a_server_behind_it_has_all_rollouts_in_flight() -> None:
    engine = Server(in_flight=True)
    pairs = [(example, contexts(1)[0]) for example in problems([1, 3, 2] * 100)]
    gathered = play(PlanAndDo(), ScriptedEngine(), pairs)
    assert play(PlanAndDo(), engine, pairs) == gathered  # who waits for whom changes nothing
    assert engine.most == 300
    seeds = [seed for _, _, seed in engine.calls]
    assert len(set(seeds)) == len(seeds) == 600


@pytest.mark.parametrize("how", ["thread", "await"])
def test_a_grader_that_blocks_does_not_hold_the_others(how: str) -> None:
    """The first rollout's grader waits until all the others have been graded, which need a second turn for it."""
    left = threading.Semaphore(0)

    class Blocking(PlanAndDo):
        grades_apart = how == "thread"

        def play(self, example: Example) -> Generator[Ask, str, Any]:
            yield Ask("plan", [{"role": "user", "content": "red"}])
            if example.data["index"] == 0:
                if how == "thread":
                    assert all(left.acquire(timeout=20) for _ in range(5))
                    return Feedback(1.0)
                return self.patient()
            yield Ask("do", [{"role": "user", "content": "red"}])
            left.release()
            return Feedback(0.5)

        async def patient(self) -> Feedback:
            deadline = time.monotonic() + 20
            while not all(left.acquire(blocking=False) for _ in range(5)) and time.monotonic() < deadline:
                await asyncio.sleep(0.001)
            return Feedback(1.0)

    rollouts = play(Blocking(), Server(in_flight=True), [(example, contexts(1)[0]) for example in problems([2] * 6)])
    assert [rollout.score for rollout in rollouts] == [1.0, *[0.5] * 5]


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
