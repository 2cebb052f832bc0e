"""Rollouts that are set aside and played on, of tasks of several kinds, against rollouts that are played at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from rollout_helpers import PlanAndDo, ScriptedEngine, contexts, player, problems, wait_in_time

from fastslow.base.errors import RecipeError
from fastslow.records import Completion, Enough, Example, Feedback, Ready, Rollout, Sampling
from fastslow.rollouts import play
from fastslow.rollouts.rounds import Pending
from fastslow.tasks.adapters.foreign import run_in_thread
from fastslow.tasks.base import Ask, Asking

SAMPLING = Sampling(1.0, 1.0, 9)
WORDS = ["red", "green", "blue", "go", "wait", "stop"]


@pytest.fixture(autouse=True)
def _in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rollouts that wait for each other forever fail."""
    monkeypatch.setattr(play, "wait_for", wait_in_time)


def wordy(prompt: str) -> str:
    """An answer whose length and words depend on the whole prompt."""
    number = sum(map(ord, prompt))
    return " ".join(WORDS[(number + place) % len(WORDS)] for place in range(number % 11))


@dataclass
class Spelling(ScriptedEngine):
    """Writes its answers word by word, and continues those that a prompt ends with."""

    rule: Callable[[str], str] = wordy
    pausable: bool = True
    drawn: int = 0
    stops: int = 0

    async def sample(
        self,
        prompts: Sequence[Sequence[int]],
        sampling: Sampling,
        seed: int,
        *,
        limits: Sequence[int] | None = None,
        enough: Enough | None = None,
        ready: Ready | None = None,
    ) -> list[Completion]:
        limits = limits or [sampling.max_tokens] * len(prompts)
        rests = [self._rest(prompt)[:limit] for prompt, limit in zip(prompts, limits, strict=True)]
        left, steps = list(range(len(prompts))), 0
        while left:
            steps, before = steps + 1, left
            left = [row for row in left if len(rests[row]) > steps]
            for row in set(before) - set(left):
                if ready:
                    ready(row, _completion(rests[row]))
                    await asyncio.sleep(0)
            if enough and len(left) < len(before) and enough(left):
                self.stops += bool(left)
                break
        drawn = [_completion(rest[:steps], row not in left) for row, rest in enumerate(rests)]
        self.drawn += sum(len(completion.ids) for completion in drawn)
        return drawn

    def _rest(self, prompt: Sequence[int]) -> list[int]:
        """The tokens of the answer that the prompt does not have yet."""
        text = str(self.tokenizer.decode(list(prompt)))
        asked, _, said = text.rpartition("<assistant>")
        return list(self.completion(self.rule(asked)).ids)[len(said.split()) :]


def _completion(ids: Sequence[int], ended: bool = True) -> Completion:
    return Completion(tuple(ids), tuple(-float(place) for place in range(len(ids))), ended=ended)


class Together(PlanAndDo):
    """Asks for two answers at the same time, and for a third that depends on both."""

    async def rollout(self, example: Example, texts: Mapping[str, str], ask: Asking) -> Feedback:
        asks = [
            Ask("plan", [{"role": "user", "content": word + " red" * example.data["index"]}]) for word in ("a", "b")
        ]
        said = await asyncio.gather(*map(ask, asks))
        last = await ask(Ask("do", [{"role": "user", "content": " ".join(map(str, said))}]))
        return Feedback(len(set(last.split())) / 10)


class Program(PlanAndDo):
    """Calls the model like a function, in a thread."""

    async def rollout(self, example: Example, texts: Mapping[str, str], ask: Asking) -> Feedback:
        def program(say: Callable[[Ask], str]) -> Feedback:
            first = say(Ask("plan", [{"role": "user", "content": "a" + " red" * example.data["index"]}]))
            return Feedback(len(say(Ask("do", [{"role": "user", "content": first}])).split()) / 10)

        return await run_in_thread(program, ask)


class Apart(PlanAndDo):
    grades_apart = True


TASKS = {"turns": PlanAndDo, "together": Together, "thread": Program, "apart": Apart}


def pairs() -> list[Any]:
    turns, texts = [1, 3, 2, 0, 5, 1, 4, 2, 3, 1], contexts(2)
    return [(example, texts[place % 2]) for place, example in enumerate(problems(turns))]


def untimed(rollout: Rollout) -> Rollout:
    """Without who drew which token."""
    turns = tuple(replace(turn, completion=Completion(turn.completion.ids, ())) for turn in rollout.turns)
    return replace(rollout, policy_step=0, turns=turns)


@pytest.mark.parametrize("at_once", [1, 3, 10])
@pytest.mark.parametrize("task", TASKS)
def test_rollouts_that_were_set_aside_end_like_the_others(task: str, at_once: int) -> None:
    engine, waiting = Spelling(), Spelling()
    expected, _ = player(TASKS[task](), waiting).play(pairs(), SAMPLING, policy_step=0, seed=0)
    attempts = [Pending(*pair, begun=0) for pair in pairs()]
    steps = 0
    while left := [attempt for attempt in attempts if attempt.rollout is None]:
        needed = min(at_once, len(left))

        def settled(rollouts: Collection[int], left: int = len(left), needed: int = needed) -> bool:
            return left - len(set(rollouts)) >= needed

        player(TASKS[task](), engine).advance(left, SAMPLING, until=settled, step=steps, seed=steps)
        assert sum(attempt.rollout is not None for attempt in left) >= needed
        steps += 1
    rollouts = [attempt.rollout for attempt in attempts if attempt.rollout]
    assert list(map(untimed, rollouts)) == list(map(untimed, expected))
    assert any(turn.completion.ids for rollout in rollouts for turn in rollout.turns)
    # No token was drawn twice, and each knows its step.
    assert engine.drawn == sum(rollout.completion_tokens for rollout in rollouts)
    drawn = [turn.completion for rollout in rollouts for turn in rollout.turns]
    assert all(len(each.steps) == len(each.logprobs) == len(each.ids) for each in drawn)
    assert all(list(each.steps) == sorted(each.steps) for each in drawn)
    if at_once < 10:
        assert engine.stops
        assert any(len(set(each.steps)) > 1 for each in drawn)


def test_an_environment_that_changed_is_answered_anew() -> None:
    class Clock(PlanAndDo):
        """Its second question differs from one call to the next."""

        calls = 0

        def play(self, example: Example) -> Generator[Ask, str, Feedback]:
            first = yield Ask("plan", [{"role": "user", "content": "red"}])
            Clock.calls += 1
            second = yield Ask("do", [{"role": "user", "content": f"{first} {'wait ' * Clock.calls}"}])
            return Feedback(0.5, f"{first}|{second}")

    engine = Spelling(rule=lambda prompt: "go go" if "wait" not in prompt else "stop " * (3 + prompt.count("wait")))
    held = [Pending(problems([2])[0], contexts(1)[0], begun=0) for _ in range(2)]
    player(Clock(), engine).advance(held, SAMPLING, until=lambda rollouts: len(set(rollouts)) < 2, step=0, seed=0)
    left = [each for each in held if each.rollout is None]
    assert len(left) == 1
    player(Clock(), engine).advance(left, SAMPLING, until=lambda rollouts: not rollouts, step=1, seed=1)
    (rollout,) = [each.rollout for each in left if each.rollout]
    first, second = rollout.turns
    assert set(first.completion.steps) == {0}
    assert set(second.completion.steps) == {1}  # another question than the one that was begun
    assert rollout.feedback.text == f"{first.answer}|{second.answer}"


def test_faults_stay_with_their_rollout_and_wrong_settings_stop_all() -> None:
    class Failing(PlanAndDo):
        def play(self, example: Example) -> Generator[Ask, str, Feedback]:
            yield Ask("plan", [{"role": "user", "content": "red"}])
            if example.data["index"] == 0:
                raise ValueError("out of order")
            if example.data["index"] == 1:
                raise RecipeError("wrong settings")
            return Feedback(1.0)

    def attempts(*chosen: int) -> list[Pending]:
        return [Pending(problems([1] * 3)[index], contexts(1)[0], begun=4) for index in chosen]

    made = attempts(0, 2)
    player(Failing(), Spelling()).advance(made, SAMPLING, until=lambda rollouts: not rollouts, step=5, seed=0)
    assert not any(attempt.reused for attempt in made)
    faulty, right = (attempt.rollout for attempt in made)
    assert faulty is not None
    assert right is not None
    assert "out of order" in faulty.error
    assert (faulty.score, right.score, right.policy_step) == (0.0, 1.0, 4)
    assert set(right.turns[0].completion.steps) == {5}
    with pytest.raises(RecipeError, match="wrong settings"):
        player(Failing(), Spelling()).advance(attempts(1, 2), SAMPLING, until=lambda _: False, step=0, seed=0)


def test_an_error_of_the_engine_is_raised_as_it_is() -> None:
    class Broken(Spelling):
        async def sample(self, *_: Any, **__: Any) -> list[Completion]:
            raise MemoryError("no more")

    made = [Pending(*pair, begun=0) for pair in pairs()]
    with pytest.raises(MemoryError, match="no more"):
        player(PlanAndDo(), Broken()).advance(made, SAMPLING, until=lambda _: False, step=0, seed=0)


# Several asks at once -------------------------------------------------------------------------------------------------


def question(text: str) -> Ask:
    return Ask("plan", [{"role": "user", "content": text}])


def begun(count: int) -> list[Pending]:
    return [Pending(example, contexts(1)[0], begun=0) for example in problems([1] * count)]


def one_more(attempts: Sequence[Pending]) -> Callable[[Collection[int]], bool]:
    """Playing may stop when one of these has ended."""
    return lambda rollouts: len(set(rollouts)) < len(attempts)


@dataclass
class InTurn(Spelling):
    """Begins answers with these words in turn, and ends them after so many words of the kind."""

    words: list[str] = field(default_factory=list)

    def _rest(self, prompt: Sequence[int]) -> list[int]:
        said = str(self.tokenizer.decode(list(prompt))).rpartition("<assistant>")[2].split()
        word = said[0] if said else self.words.pop(0)
        answer = " ".join([word] * {"red": 6, "green": 3, "blue": 1}[word])
        return list(self.completion(answer).ids)[len(said) :]


class Twice(PlanAndDo):
    """Asks the same twice at once."""

    async def rollout(self, example: Example, texts: Mapping[str, str], ask: Asking) -> Feedback:
        said = await asyncio.gather(ask(question("go")), ask(question("go")))
        return Feedback(0.5, " ".join(text.split()[0] for text in said))


class TwiceAndAgain(PlanAndDo):
    """Asks the same twice at once, and again after the first answer."""

    async def rollout(self, example: Example, texts: Mapping[str, str], ask: Asking) -> Feedback:
        async def both() -> list[str]:
            return [await ask(question("go")), await ask(question("go"))]

        (first, again), second = await asyncio.gather(both(), ask(question("go")))
        return Feedback(0.5, " ".join(text.split()[0] for text in (first, second, again)))


@pytest.mark.parametrize(
    ("task", "words", "said"),
    [
        (Twice, "red blue blue blue", "red blue"),
        (Twice, "red green blue blue", "red green"),
        (Twice, "blue red blue blue", "blue red"),
        (TwiceAndAgain, "blue red blue blue green blue", "blue red green"),
        (TwiceAndAgain, "red blue blue blue blue green", "red blue green"),
    ],
)
def test_equal_prompts_keep_the_order_of_their_answers(task: type[PlanAndDo], words: str, said: str) -> None:
    """The first rollout is set aside, because one of its answers is long."""
    engine, made = InTurn(words=words.split()), begun(2)
    player(task(), engine).advance(made, SAMPLING, until=one_more(made), step=0, seed=0)
    assert made[0].rollout is None
    assert made[1].rollout is not None
    player(task(), engine).advance(made[:1], SAMPLING, until=one_more(made[:1]), step=1, seed=1)
    assert made[0].rollout is not None
    assert made[0].rollout.feedback.text == said
    assert engine.drawn == sum(each.rollout.completion_tokens for each in made if each.rollout)


class OneFails(PlanAndDo):
    """Grades with 0 what cannot be read, without waiting for the other answer; that one is followed by a further ask."""

    async def rollout(self, example: Example, texts: Mapping[str, str], ask: Asking) -> Feedback:
        async def one(word: str) -> str:
            said = await ask(question(word + " red" * example.data["index"]))
            if word == "a":
                raise ValueError
            return await ask(question(said))

        try:
            await asyncio.gather(one("a"), one("b"))
        except ValueError:
            return Feedback(0.0)
        return Feedback(1.0)


class TakesTheFirst(PlanAndDo):
    """Needs one of two answers."""

    async def rollout(self, example: Example, texts: Mapping[str, str], ask: Asking) -> Feedback:
        both = [asyncio.ensure_future(ask(question(word + " red" * example.data["index"]))) for word in "ab"]
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        return Feedback(0.5)


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("task", [OneFails, TakesTheFirst])
def test_a_rollout_may_end_while_an_answer_of_its_own_is_unfinished(
    task: type[PlanAndDo], apart: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answers of the last rollout are short, so that sampling stops before the others have their second one."""
    monkeypatch.setattr(task, "grades_apart", apart)
    engine = Spelling(rule=lambda prompt: "go" if "<user> a" in prompt or "red red" in prompt else "wait " * 6)
    made = begun(3)
    while left := [each for each in made if each.rollout is None]:
        player(task(), engine).advance(left, SAMPLING, until=one_more(left), step=0, seed=0)
    assert [each.rollout.error for each in made if each.rollout] == [""] * 3
    assert not any(each.drawn for each in made)


class Stubborn(PlanAndDo):
    """Catches everything, also that it is cancelled, and asks again."""

    async def rollout(self, example: Example, texts: Mapping[str, str], ask: Asking) -> Feedback:
        for _ in range(3):
            try:
                said = await ask(question("a" if example.data["index"] else "b"))
            except:  # noqa: E722
                continue
            if said == "stop":
                raise RecipeError("wrong settings")
            return Feedback(0.5, said)
        return Feedback(0.0)


def test_a_task_that_does_not_let_itself_be_cancelled_is_set_aside() -> None:
    engine, made = Spelling(rule=lambda prompt: "go" if "<user> a" in prompt else "wait " * 6), begun(2)
    player(Stubborn(), engine).advance(made, SAMPLING, until=one_more(made), step=0, seed=0)
    assert made[0].rollout is None
    assert [len(each.completion.ids) for each in made[0].drawn] == [2]
    player(Stubborn(), engine).advance(made[:1], SAMPLING, until=one_more(made[:1]), step=1, seed=1)
    assert made[0].rollout is not None
    assert made[0].rollout.feedback.text.split() == ["wait"] * 6


def test_a_task_that_does_not_let_itself_be_cancelled_does_not_delay_an_error() -> None:
    engine = Spelling(rule=lambda prompt: "stop" if "<user> a" in prompt else "wait " * 6)
    with pytest.raises(RecipeError, match="wrong settings"):
        player(Stubborn(), engine).advance(made := begun(2), SAMPLING, until=one_more(made), step=0, seed=0)


def test_tokens_of_an_answer_that_is_not_asked_for_again_in_a_step_are_kept() -> None:
    """The first rollout asks `c` after `a` and a tool, beside `b`; in the second step the tool does not return in time."""

    class Chain(PlanAndDo):
        waits = 0.0

        async def rollout(self, example: Example, texts: Mapping[str, str], ask: Asking) -> Feedback:
            async def chain() -> None:
                await ask(question("a"))
                await asyncio.sleep(self.waits)
                await ask(question("c"))

            if example.data["index"] == 0:
                await asyncio.gather(chain(), ask(question("b")))
            for turn in range(example.data["index"]):
                await ask(question("d" + " red" * turn))
            return Feedback(0.5)

    engine = Spelling(rule=lambda prompt: "go " * (8 if "<user> b" in prompt or "<user> c" in prompt else 1))
    task, made = Chain(), [each for index, each in enumerate(begun(4)) if index != 1]
    kept = []
    for step, waits in enumerate((0.0, 3600.0, 0.0)):
        task.waits, left = waits, [each for each in made if each.rollout is None]
        player(task, engine).advance(left, SAMPLING, until=one_more(left), step=step, seed=step)
        kept.append([(len(each.completion.ids), each.completion.ended) for each in made[0].drawn])
    assert [[ended for _, ended in each] for each in kept] == [[True, False, False]] * 2 + [[]]
    assert kept[0][2] == kept[1][2] != (0, False)
    rollouts = [each.rollout for each in made if each.rollout]
    assert len(rollouts) == 3
    assert engine.drawn == sum(rollout.completion_tokens for rollout in rollouts)
