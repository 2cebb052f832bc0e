"""Tasks mixed into one stream keep their shares, their problems and their own grading."""

import asyncio
from collections import Counter
from collections.abc import Generator, Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastslow.tasks.base import Ask, Example, Feedback, Options, Split, Task
from fastslow.tasks.stages import Mixture, Part


class Echo(Task):
    """Asks each of its components in turn and accepts the task's own word."""

    def __init__(self, word: str, size: int, texts: Mapping[str, str] | None = None, held_out: int = 2) -> None:
        super().__init__(Options())
        self.word = word
        self.sizes: dict[Split, int] = {"train": size, "validation": held_out, "test": 0}
        self.texts = texts or {"system": "Answer the question."}

    @property
    def seed_texts(self) -> Mapping[str, str]:
        return self.texts

    def examples(self, split: Split) -> Sequence[Example]:
        return [Example(f"{split}/{number}", {"number": number}) for number in range(self.sizes[split])]

    def play(self, example: Example) -> Generator[Ask, str, Feedback]:
        answers = []
        for component in self.texts:
            answers.append((yield Ask(component, [{"role": "user", "content": f"{self.word} {example.id}"}])))
        return Feedback(float(set(answers) == {self.word}), example.id)


def play(task: Task, example: Example, answer: str) -> tuple[list[Ask], Feedback]:
    asks: list[Ask] = []

    async def ask(asked: Ask) -> str:
        asks.append(asked)
        return answer

    return asks, asyncio.run(task.rollout(example, task.seed_texts, ask))


def part_of(example: Example) -> str:
    return example.id.split("/")[0]


@given(
    sizes=st.lists(st.integers(1, 30), min_size=1, max_size=4),
    weights=st.lists(st.integers(1, 8), min_size=4, max_size=4),
)
def test_every_stretch_of_the_training_stream_keeps_the_weights(sizes: list[int], weights: list[int]) -> None:
    parts = [Part(f"t{place}", weights[place] / 4, Echo("x", size)) for place, size in enumerate(sizes)]
    stream = list(Mixture(parts).examples("train"))
    total = sum(part.weight for part in parts)
    counts: Counter[str] = Counter()
    for position, example in enumerate(stream, 1):
        counts[part_of(example)] += 1
        for part in parts:
            assert abs(counts[part.name] - position * part.weight / total) < len(parts) + 1
    for part, size in zip(parts, sizes, strict=True):
        own = {example.id.split("@")[0] for example in stream if part_of(example) == part.name}
        assert own == {f"{part.name}/train/{number}" for number in range(size)}
    assert len({example.id for example in stream}) == len(stream)


def test_the_longest_lasting_task_goes_round_once_and_later_visits_of_the_others_have_ids_of_their_own() -> None:
    stream = list(Mixture([Part("long", 2, Echo("a", 6)), Part("short", 1, Echo("b", 2))]).examples("train"))
    assert [example.id for example in stream] == [
        "long/train/0",
        "short/train/0",
        "long/train/1",
        "long/train/2",
        "short/train/1",
        "long/train/3",
        "long/train/4",
        "short/train/0@2",
        "long/train/5",
    ]
    assert stream[1].data == stream[7].data == {"number": 0}


def test_held_out_problems_come_once_each() -> None:
    parts = [Part("a", 5, Echo("a", 50, held_out=1)), Part("b", 1, Echo("b", 50, held_out=4))]
    mixture = Mixture(parts)
    names = [example.id for example in mixture.examples("validation")]
    assert sorted(names) == ["a/validation/0", *(f"b/validation/{number}" for number in range(4))]
    assert len(mixture.examples("test")) == 0
    assert list(mixture.examples("train")) == list(mixture.examples("train"))


def test_the_same_task_twice_gets_two_names() -> None:
    mixture = Mixture([Part("dataset", 1, Echo("a", 2)), Part("dataset", 1, Echo("b", 2))])
    assert [example.id for example in mixture.examples("train")[:2]] == ["dataset/train/0", "dataset-2/train/0"]


@pytest.mark.parametrize("word", ["a", "b"])
def test_each_problem_is_played_and_graded_by_its_own_task(word: str) -> None:
    program = {"plan": "Plan.", "solve": "Solve."}
    mixture = Mixture([Part("a", 1, Echo("a", 1)), Part("b", 1, Echo("b", 1, program))])
    example = next(example for example in mixture.examples("train") if part_of(example) == word)
    asks, feedback = play(mixture, example, word)
    assert feedback == Feedback(1.0, "train/0")
    assert [ask.component for ask in asks] == (["system"] if word == "a" else ["plan", "solve"])
    assert asks[0].messages == [{"role": "user", "content": f"{word} train/0"}]


@pytest.mark.parametrize(
    ("texts", "merged"),
    [
        ([{"system": "Think."}, {"system": "Think."}], {"system": "Think."}),
        ([{"system": "Think."}, {"system": "Look."}, {"system": "Think."}], {"system": "Answer the question."}),
        (
            [{"system": "Think."}, {"plan": "Plan.", "solve": "Solve."}],
            {"system": "Think.", "plan": "Plan.", "solve": "Solve."},
        ),
    ],
)
def test_components_are_shared_by_name(texts: list[dict[str, str]], merged: dict[str, str]) -> None:
    mixture = Mixture([Part(f"t{place}", 1, Echo("x", 1, each)) for place, each in enumerate(texts)])
    assert dict(mixture.seed_texts) == merged
