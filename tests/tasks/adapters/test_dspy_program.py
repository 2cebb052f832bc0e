"""DSPy programs as tasks, compared with what plain dspy does with the same program and the same answers."""

from __future__ import annotations

import asyncio
import pickle
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import dspy
import numpy as np
import pytest
import tiny
from dspy.utils.exceptions import AdapterParseError
from dspy_programs import RULES, SEED, Bare, Engine, TurnAndShift, by_halves, expected, letters, plain_lm
from hypothesis import given, settings
from hypothesis import strategies as st

import fastslow
from fastslow.base.errors import TaskError
from fastslow.base.world import World
from fastslow.models.chat import ChatFormat
from fastslow.records import Completion, Context, Sampling
from fastslow.rollouts.play import Player
from fastslow.tasks.adapters.dspy_program import UNNAMED, DSPyTask
from fastslow.tasks.base import Ask, Feedback, Options, Split, Task
from fastslow.tasks.scripted import scripted_rollout
from fastslow.tasks.stages import Mixture, Part, refuse_contamination

ONE = letters(1)
TEXTS = {"turn": "Turn it.\nLast comes first.", "shift": "Shift it.\n  - by one\n  - to the left"}


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    yield
    assert not [thread for thread in threading.enumerate() if thread.name == "a rollout's program"]


def task_of(program: Any = None, metric: Any = by_halves, examples: Sequence[Any] = ONE) -> DSPyTask:
    return DSPyTask(program or TurnAndShift(), metric, examples)


def playing(task: Task, answers: Sequence[str], texts: Any = None, place: int = 0) -> tuple[list[Ask], Feedback]:
    """The asks of one rollout and its feedback, the answers being given in turn."""
    played = scripted_rollout(task, task.examples("train")[place], answers, texts)
    assert played.feedback is not None, f"asked more than {len(answers)} times: {played.asks[-1]}"
    return list(played.asks), played.feedback


def field(name: str, value: str) -> str:
    return f"[[ ## {name} ## ]]\n{value}\n\n[[ ## completed ## ]]"


def right(example: Any = ONE[0]) -> list[str]:
    turned, answer = expected(example.letters)
    return [field("turned", turned), field("answer", answer)]


class Returns:
    """A metric that returns, or raises, what it is told."""

    def __init__(self, returned: Any, about: Any = None) -> None:
        self.returned, self.about = returned, about
        self.calls: list[tuple[Any, ...]] = []

    def __call__(self, gold: Any, pred: Any, trace: Any, pred_name: Any, pred_trace: Any) -> Any:
        self.calls.append((gold, pred, trace, pred_name, pred_trace))
        returned = self.returned if pred_name is None or self.about is None else self.about
        if isinstance(returned, Exception):
            raise returned
        return returned


# What the model reads --------------------------------------------------------------------------------------------------


def test_predictors_are_the_components_and_their_instructions_the_texts() -> None:
    assert fastslow.DSPyTask is DSPyTask
    assert task_of().seed_texts == {"turn": SEED, "shift": SEED}

    class Nested(dspy.Module):
        def __init__(self) -> None:
            super().__init__()
            self.think = dspy.ChainOfThought(dspy.Signature("a -> b", "Think."))
            self.hops = [dspy.Predict(dspy.Signature("b -> c", f"Hop {hop}.")) for hop in range(2)]

    assert task_of(Nested()).seed_texts == {"think.predict": "Think.", "hops[0]": "Hop 0.", "hops[1]": "Hop 1."}
    assert task_of(dspy.Predict("a -> b")).seed_texts == {"self": "Given the fields `a`, produce the fields `b`."}


CHAT = "[[ ## {0} ## ]]\nx\n\n[[ ## completed ## ]]"


@pytest.mark.parametrize(
    ("adapter", "form"),
    [
        (None, CHAT),
        (dspy.ChatAdapter(), CHAT),
        (dspy.JSONAdapter(), '{{"{0}": "x"}}'),
        (dspy.XMLAdapter(), "<{0}>x</{0}>"),
        (Bare(), "x"),
    ],
    ids=["none", "chat", "json", "xml", "bare"],
)
def test_the_model_reads_what_plain_dspy_sends_under_the_same_instructions(adapter: Any, form: str) -> None:
    """To the letter: the finished program must say the same to the trained weights."""
    program = TurnAndShift()
    for name, predictor in program.named_predictors():
        predictor.signature = predictor.signature.with_instructions(TEXTS[name])
    answers = [form.format("turned"), form.format("answer")]
    engine = Engine(lambda messages: answers[len(engine.seen) - 1])
    with dspy.context(adapter=adapter):
        with dspy.context(lm=plain_lm(engine)):
            program(**ONE[0].inputs())
        asks, _ = playing(task_of(), answers, TEXTS)
    assert [ask.component for ask in asks] == ["turn", "shift"]
    assert [list(ask.messages) for ask in asks] == engine.seen
    for ask in asks:
        instructions = TEXTS[ask.component].splitlines()[0]
        assert "\n".join(message["content"] for message in ask.messages).count(instructions) == 1
        assert ask.complete
        assert ask.context(TEXTS) == ""
        assert instructions not in ask.question


def test_the_question_is_the_inputs_and_the_form_without_the_instructions() -> None:
    asks, _ = playing(task_of(), right(), TEXTS)
    assert asks[0].question.startswith(f"[[ ## question ## ]]\nzorka : {ONE[0].letters}\n")
    assert "starting with the field `[[ ## turned ## ]]`" in asks[0].question


def test_demonstrations_are_shown_and_the_users_program_stays_as_it_was() -> None:
    program = TurnAndShift()
    program.turn.demos = [dspy.Example(question="zorka : a b", turned="b a")]
    asks, _ = playing(task_of(program), right(), TEXTS)
    assert [message["role"] for message in asks[0].messages] == ["system", "user", "assistant", "user"]
    assert "zorka : a b" in asks[0].messages[1]["content"]
    assert program.turn.signature.instructions == SEED
    assert not [key for key in vars(program.turn) if "component" in key]


# Playing is running the program ----------------------------------------------------------------------------------------


class Answers(dspy.Module):
    """Asks for a number once or twice, as it comes out."""

    def __init__(self) -> None:
        super().__init__()
        self.guess = dspy.Predict("hint: str -> number: int")
        self.check = dspy.ChainOfThought("number: int -> verdict: bool")

    def forward(self, hint: str) -> dspy.Prediction:
        number = self.guess(hint=hint).number
        if number < 0:
            return dspy.Prediction(number=number, verdict=None)
        return dspy.Prediction(number=number, verdict=self.check(number=number).verdict)


def closeness(gold: Any, pred: Any, trace: Any = None, pred_name: Any = None, pred_trace: Any = None) -> float:
    return 1 / (1 + abs(pred.number)) if pred.verdict is not False else 0.0


written_answers = st.one_of(
    st.integers(-3, 3).map(lambda number: field("number", str(number))),
    st.integers(-3, 3).map(lambda number: f'{{"number": {number}}}'),
    st.booleans().map(lambda verdict: f"[[ ## reasoning ## ]]\nhm\n\n{field('verdict', str(verdict))}"),
    st.booleans().map(lambda verdict: f'{{"reasoning": "hm", "verdict": {str(verdict).lower()}}}'),
    st.sampled_from(["", " ", "7", field("number", "many"), "[[ ## reasoning ## ]]\nhm", "{", "[]"]),
    st.text(max_size=20),
)


@settings(deadline=None, max_examples=60)
@given(st.lists(written_answers, min_size=4, max_size=4))
def test_playing_equals_plain_dspy_given_the_same_answers(answers: list[str]) -> None:
    """The same calls in the same words, the same prediction, the same score; what dspy cannot read scores 0."""
    gold = dspy.Example(hint="small").with_inputs("hint")
    rest = iter(answers)
    engine = Engine(lambda messages: next(rest))
    seen: list[Any] = []

    def remembering(*arguments: Any) -> float:
        seen.append(arguments[1])
        return closeness(*arguments)

    try:
        with dspy.context(lm=plain_lm(engine)):
            prediction = Answers()(hint="small")
        score, predictions = closeness(gold, prediction), [prediction]
    except AdapterParseError:
        score, predictions = 0.0, []
    asks, feedback = playing(task_of(Answers(), remembering, [gold]), answers[: len(engine.seen)])
    assert [list(ask.messages) for ask in asks] == engine.seen
    assert feedback.score == score
    assert [each.toDict() for each in seen[:1]] == [each.toDict() for each in predictions]


def test_the_fallback_of_the_chat_adapter_asks_the_same_component_again() -> None:
    asks, feedback = playing(task_of(), ["no fields", '{"turned": "b a"}', right()[1]])
    assert [ask.component for ask in asks] == ["turn", "turn", "shift"]
    assert "JSON" in asks[1].messages[-1]["content"]
    assert feedback.score == 0.5


def test_predictors_keep_no_model_of_their_own_but_the_program_may_call_one() -> None:
    class Helped(TurnAndShift):
        def forward(self, letters: str) -> dspy.Prediction:
            with dspy.context(lm=plain_lm(helper)):
                turned = self.turn(question=letters).turned
            return dspy.Prediction(turned=turned, answer=self.shift(question=turned).answer)

    helper, other = Engine(lambda messages: right()[0]), Engine(lambda messages: "nobody asks")
    program = Helped()
    program.shift.lm = plain_lm(other)
    asks, feedback = playing(task_of(program), right()[1:])
    assert [ask.component for ask in asks] == ["shift"]
    assert feedback.score == 1
    assert len(helper.seen) == 1
    assert not other.seen
    assert program.shift.lm is not None


def test_copies_that_a_program_makes_of_its_predictors_keep_their_names() -> None:
    tried = dspy.BestOfN(
        dspy.Predict("letters -> turned"), N=3, reward_fn=lambda args, pred: len(pred.turned), threshold=3
    )
    metric = Returns(0.0, dspy.Prediction(score=0.0, feedback="Longer."))
    answers = [field("turned", text) for text in ("a", "bb", "ccc")]
    asks, feedback = playing(task_of(tried, metric), answers)
    assert [ask.component for ask in asks] == ["module"] * 3
    assert metric.calls[0][1].turned == "ccc"
    assert feedback.by_component == {"module": "Longer."}


def test_several_answers_to_one_call_are_several_asks() -> None:
    program = dspy.Predict("letters -> turned", n=3)
    metric = Returns(1.0)
    asks, _ = playing(task_of(program, metric), [field("turned", text) for text in "abc"])
    assert len(asks) == 3
    assert metric.calls[0][1].completions.turned == ["a", "b", "c"]


def test_calls_of_no_named_predictor_are_played_too() -> None:
    class Loose(TurnAndShift):
        def forward(self, letters: str) -> dspy.Prediction:
            turned = dspy.Predict("letters -> turned")(letters=letters).turned
            (answer,) = dspy.settings.lm("Shift it.")
            return dspy.Prediction(turned=turned, answer=answer)

    asks, feedback = playing(task_of(Loose()), [right()[0], expected(ONE[0].letters)[1]])
    assert [ask.component for ask in asks] == [UNNAMED, UNNAMED]
    assert list(asks[1].messages) == [{"role": "user", "content": "Shift it."}]
    assert feedback.score == 1


class Each(dspy.Module):
    def __init__(self) -> None:
        super().__init__()
        self.spell = dspy.Predict("letter -> word")

    def forward(self, letters: str) -> dspy.Prediction:
        calls = [(self.spell, {"letter": letter}) for letter in letters.split()]
        words = dspy.Parallel(num_threads=3, disable_progress_bar=True)(calls)
        return dspy.Prediction(words=[each.word for each in words])


def test_a_program_may_call_from_threads_of_its_own() -> None:
    metric = Returns(1.0)
    task = task_of(Each(), metric)

    async def ask(asked: Ask) -> str:
        letter = asked.messages[-1]["content"].splitlines()[1]
        return field("word", letter * 2)

    asyncio.run(task.rollout(task.examples("train")[0], task.seed_texts, ask))
    assert metric.calls[0][1].words == [letter * 2 for letter in ONE[0].letters.split()]


def test_a_rollout_given_up_halfway_leaves_no_thread() -> None:
    for program in (TurnAndShift(), Each()):
        task = task_of(program, Returns(1.0))
        assert scripted_rollout(task, task.examples("train")[0]).feedback is None
    # Workers of dspy.Parallel end on their own, a moment after their program.
    for thread in threading.enumerate():
        if thread.name.startswith("ThreadPoolExecutor"):
            thread.join(timeout=60)
            assert not thread.is_alive()


def test_text_is_all_a_policy_reads() -> None:
    class Looking(dspy.Module):
        def __init__(self) -> None:
            super().__init__()
            self.look = dspy.Predict("picture: dspy.Image -> word")

        def forward(self, letters: str) -> dspy.Prediction:
            return self.look(picture=dspy.Image(url="data:image/png;base64,iVBORw0KGgo="))

    with pytest.raises(TaskError, match=r"the program raised LMUnsupportedFeatureError: .* reads text only"):
        playing(task_of(Looking()), [])


def test_what_the_program_raises_is_one_error() -> None:
    class Broken(TurnAndShift):
        def forward(self, letters: str) -> dspy.Prediction:
            return dspy.Prediction(answer=int(self.turn(question=letters).turned))

    with pytest.raises(TaskError, match="the program raised ValueError: invalid literal for int"):
        playing(task_of(Broken()), right())


# Feedback --------------------------------------------------------------------------------------------------------------


def test_each_predictor_gets_its_own_words() -> None:
    wrong = [field("turned", "x"), field("answer", "y")]
    _, feedback = playing(task_of(), wrong)
    assert feedback.score == 0
    assert feedback.by_component == RULES
    assert feedback.text == f"Half of it is for {expected(ONE[0].letters)[0]}."


def test_the_metric_is_asked_as_dspy_gepa_asks_it() -> None:
    metric = Returns(0.25)
    playing(task_of(metric=metric), right(), TEXTS)
    (gold, pred, *scoring), (_, _, trace, first, about_first), (_, _, _, second, about_second) = metric.calls
    assert gold is ONE[0]
    assert pred.answer == expected(gold.letters)[1]
    assert scoring == [None, None, None]
    assert (first, second) == ("turn", "shift")
    assert [call[2].toDict() for call in trace] == [{"turned": pred.turned}, {"answer": pred.answer}]
    ((predictor, inputs, output),) = about_first
    assert predictor.signature.instructions == TEXTS["turn"]
    assert inputs == {"question": f"zorka : {gold.letters}"}
    assert output.turned == pred.turned
    assert about_second == [trace[1]]


def test_a_perfect_attempt_is_not_asked_about_again() -> None:
    metric = Returns(1.0, dspy.Prediction(score=1.0, feedback="Never said."))
    _, feedback = playing(task_of(metric=metric), right())
    assert len(metric.calls) == 1
    assert feedback == Feedback(1.0)


@pytest.mark.parametrize(
    ("returned", "score", "text"),
    [
        (0.25, 0.25, ""),
        (True, 1.0, ""),
        (np.float32(0.5), 0.5, ""),
        (np.bool_(False), 0.0, ""),
        (dspy.Prediction(score=0.5, feedback="Write more."), 0.5, "Write more."),
        (dspy.Prediction(score=0.5, feedback=None), 0.5, ""),
        ({"score": 0, "feedback": "Write more."}, 0.0, "Write more."),
    ],
    ids=repr,
)
def test_a_metric_may_answer_in_several_ways(returned: Any, score: float, text: str) -> None:
    _, feedback = playing(task_of(metric=Returns(returned)), right())
    assert feedback.score == score
    assert feedback.text == text
    assert set(feedback.by_component.values()) <= {text}


def test_words_for_one_predictor_only_do_not_reach_the_other() -> None:
    def one_sided(gold: Any, pred: Any, trace: Any, pred_name: Any, pred_trace: Any) -> Any:
        return {"score": 0.5, "feedback": "Turn it round."} if pred_name == "turn" else 0.5

    _, feedback = playing(task_of(metric=one_sided), right())
    assert feedback.text == "turn: Turn it round."
    assert feedback.by_component == {"turn": "Turn it round.", "shift": ""}


def test_a_predictor_that_was_not_called_is_not_asked_about() -> None:
    metric = Returns(0.5, {"score": 0.5, "feedback": "Hm."})
    gold = dspy.Example(hint="small").with_inputs("hint")
    _, feedback = playing(task_of(Answers(), metric, [gold]), [field("number", "-1")])
    assert feedback.by_component == {"guess": "Hm."}


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (ZeroDivisionError("by zero"), "metric 'Returns' raised ZeroDivisionError: by zero"),
        (None, "returned None; expected a score from 0 to 1"),
        (float("nan"), "returned nan"),
        (1.5, "returned 1.5"),
        (dspy.Prediction(feedback="no score"), "expected a score from 0 to 1, alone or as the field `score`"),
    ],
    ids=str,
)
def test_a_metric_that_does_not_score_is_one_error(returned: Any, message: str) -> None:
    with pytest.raises(TaskError, match=message):
        playing(task_of(metric=Returns(returned)), right())


def test_an_answer_that_cannot_be_read_teaches_its_component_the_form() -> None:
    with dspy.context(adapter=dspy.ChatAdapter(use_json_adapter_fallback=False)):
        _, feedback = playing(task_of(), [right()[0], "It is\nunclear."])
    about, advice = feedback.text.splitlines()
    assert feedback.score == 0
    assert about == "The form is wrong: 'It is unclear.' does not give answer as asked for."
    assert advice == (
        "Respond with the corresponding output fields, starting with the field `[[ ## answer ## ]]`, and then ending with "
        "the marker for `[[ ## completed ## ]]`."
    )
    assert feedback.by_component == {"turn": "", "shift": feedback.text}


def test_only_the_fields_that_are_missing_are_named() -> None:
    program = dspy.ChainOfThought("letters -> turned: int")
    with dspy.context(adapter=dspy.ChatAdapter(use_json_adapter_fallback=False)):
        _, feedback = playing(task_of(program), ["[[ ## reasoning ## ]]\nhm"])
    assert "does not give turned as asked for" in feedback.text
    assert "`[[ ## turned ## ]]` (must be formatted as a valid Python int)" in feedback.text


def test_any_adapter_can_be_unreadable() -> None:
    with dspy.context(adapter=Bare()):
        _, feedback = playing(task_of(), [""])
    assert feedback.by_component["turn"].splitlines()[1] == "Write turned in the form that is asked for."


# As a task of a run ----------------------------------------------------------------------------------------------------


def test_problems_have_stable_names_and_travel_between_processes() -> None:
    task = DSPyTask(TurnAndShift(), by_halves, letters(4), letters(3, seed=1), letters(2, seed=2))
    again = DSPyTask(TurnAndShift(), by_halves, letters(4), letters(3, seed=1))
    sizes: dict[Split, int] = {"train": 4, "validation": 3, "test": 2}
    for split, size in sizes.items():
        assert len({example.id for example in task.examples(split)}) == size
    assert [example.id for example in task.examples("train")] == [example.id for example in again.examples("train")]
    travelled = pickle.loads(pickle.dumps(task.examples("train")[0]))
    assert travelled.data["problem"].inputs().toDict() == letters(4)[0].toDict()


def test_without_a_valset_the_trainset_is_evaluated_on() -> None:
    task = task_of(examples=letters(3))
    assert [each.data for each in task.examples("validation")] == [each.data for each in task.examples("train")]
    refuse_contamination(task)


PAIRS = [dspy.Example(a=n, b=-n, label="x").with_inputs("a", "b") for n in range(5)]
TURNED = dspy.Example(label="y", b=-2, a=2).with_inputs("b", "a")  # inputs of PAIRS[2] in another order


@pytest.mark.parametrize(
    ("split", "held_out"),
    [
        ("validation", {"valset": [PAIRS[3], TURNED]}),
        ("test", {"valset": PAIRS[3:4], "testset": [TURNED]}),
        ("test", {"valset": None, "testset": [TURNED]}),
    ],
)
def test_what_is_trained_on_is_refused_where_it_is_measured_on(split: Split, held_out: dict[str, Any]) -> None:
    def check(trainset: Sequence[dspy.Example]) -> None:
        refuse_contamination(DSPyTask(dspy.Predict("a, b -> label"), by_halves, trainset, **held_out))

    check(PAIRS[:2])
    with pytest.raises(
        TaskError, match=rf"shows the model the same as {split} problem '\w+' \('{{'a': 2, 'b': -2}}'\)"
    ):
        check(PAIRS[:3])


class WordEngine:
    """Answers each prompt with what it asks for, in tokens of a tiny tokenizer; wrong where the text says so."""

    world, in_flight, retries = World(), False, 0

    def __init__(self, max_length: int | None = None) -> None:
        self.max_length = max_length
        self.tokenizer = tiny.make_tokenizer([*"abcdefghijklmnopqrstuvwxyz", ":", "zorka", "blimo", "badly", "answer"])
        self.batches: list[int] = []

    async def sample(
        self, prompts: Sequence[Sequence[int]], sampling: Sampling, seed: int, **_: object
    ) -> list[Completion]:
        self.batches.append(len(prompts))
        return [self._completion(self.tokenizer.decode(list(prompt))) for prompt in prompts]

    def _completion(self, prompt: str) -> Completion:
        system, _, question = prompt.partition("<user>")
        word, _, *items = question.replace("<end>", "").replace("<assistant>", "").split()
        done = items[::-1] if word == "zorka" else items[1:] + items[:1]
        said = "a" if "badly" in system else " ".join(done)
        ids = [*self.tokenizer(said, add_special_tokens=False)["input_ids"], self.tokenizer.eos_token_id]
        return Completion(tuple(ids), tuple(-0.5 for _ in ids))


def played(task: Task, contexts: Sequence[Context], max_length: int | None = None) -> tuple[list[Any], WordEngine]:
    sampler = WordEngine(max_length)
    player = Player(task, sampler, ChatFormat(sampler.tokenizer))
    pairs = [(example, context) for example in task.examples("train") for context in contexts]
    with dspy.context(adapter=Bare()):
        rollouts, _ = player.play(pairs, Sampling(max_tokens=8), policy_step=0, seed=0)
    return rollouts, sampler


CONTEXTS = [
    Context({"turn": "answer", "shift": "answer"}),
    Context({"turn": "answer", "shift": "answer badly"}),
    Context({"turn": "answer badly", "shift": "answer badly"}),
]


def test_many_rollouts_play_at_once_each_under_its_own_context() -> None:
    rollouts, sampler = played(task_of(examples=letters(20)), CONTEXTS)
    assert sampler.batches == [60, 60]
    assert [rollout.score for rollout in rollouts] == [1.0, 0.5, 0.0] * 20
    for rollout in rollouts:
        assert [turn.component for turn in rollout.turns] == ["turn", "shift"]
        for turn in rollout.turns:
            prompt = sampler.tokenizer.decode(turn.prompt_ids)
            text = rollout.context.texts[turn.component]
            assert prompt == f"<system> {text} <end> <user> {turn.question} <end> <assistant>"
    assert not any(rollout.faults for rollout in rollouts)


def test_a_mixture_hands_the_texts_on() -> None:
    class Other(Task):
        seed_texts = {"system": "answer"}  # noqa: RUF012

        def examples(self, split: Split) -> list[Any]:
            return [fastslow.Example("one", {})]

        def play(self, example: Any) -> Any:
            yield Ask("system", [{"role": "user", "content": "zorka : a b"}])
            return Feedback(1.0)

    task = Mixture([Part("program", 1.0, task_of()), Part("other", 1.0, Other(Options()))])
    assert task.seed_texts == {"turn": SEED, "shift": SEED, "system": "answer"}
    rollouts, _ = played(task, [Context({**context.texts, "system": "answer"}) for context in CONTEXTS])
    assert sorted(rollout.score for rollout in rollouts) == [0.0, 0.5, 1.0, 1.0, 1.0, 1.0]


def test_a_prompt_that_does_not_fit_ends_the_rollout_and_its_thread() -> None:
    rollouts, _ = played(task_of(), CONTEXTS[:1], max_length=15)
    assert rollouts[0].faults == {"prompt_too_long": 1}


def test_a_failing_program_or_metric_costs_its_rollout_only() -> None:
    def picky(gold: Any, pred: Any, trace: Any, pred_name: Any, pred_trace: Any) -> float:
        if gold.letters == ONE[0].letters:
            raise RuntimeError("not this one")
        return 1.0

    rollouts, _ = played(task_of(metric=picky, examples=letters(3)), CONTEXTS[:1])
    assert [rollout.score for rollout in rollouts] == [0.0, 1.0, 1.0]
    assert rollouts[0].faults == {"grader": 1}
    assert "metric 'picky' raised RuntimeError: not this one" in rollouts[0].error


# Mistakes --------------------------------------------------------------------------------------------------------------


class Empty(dspy.Module):
    pass


class Named(dspy.Module):
    def __init__(self) -> None:
        super().__init__()
        self.system = dspy.Predict("a -> b")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"program": "a -> b"}, "program is 'a -> b'; expected a dspy.Module"),
        ({"program": Empty()}, "program Empty has no predictors"),
        ({"program": Named()}, "program Named has a predictor named 'system'; give it another name"),
        (
            {"metric": lambda gold, pred, trace=None: 1.0},
            r"with \(gold, pred, trace, pred_name, pred_trace\): too many",
        ),
        ({"metric": 7}, "metric 7 cannot be called"),
        ({"examples": []}, "trainset is empty"),
        ({"examples": [*ONE, {"letters": "a b"}]}, r"trainset\[1\] is {'letters': 'a b'}; expected a dspy.Example"),
        ({"examples": [dspy.Example(letters="a b")]}, r"trainset\[0\] does not say which .* call \.with_inputs"),
    ],
)
def test_mistakes_are_named_before_anything_is_played(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(TaskError, match=message):
        task_of(**arguments)


def test_without_dspy_the_line_to_type_is_named_and_the_rest_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "fastslow.tasks.adapters.dspy_program")
    monkeypatch.setitem(sys.modules, "dspy", None)
    with pytest.raises(TaskError, match=r"pip install 'fastslow\[dspy\]'"):
        _ = fastslow.DSPyTask
    assert "DSPyTask" not in fastslow.__all__
