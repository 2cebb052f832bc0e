"""The stream of training problems."""

from __future__ import annotations

from functools import partial

from hypothesis import given, settings
from hypothesis import strategies as st

from fastslow.base.world import derive_seed
from fastslow.fast.memory import RolloutCache
from fastslow.recipe import build_recipe
from fastslow.records import Context, Rollout
from fastslow.slow.stream import InPlay, StagedStream, Stream, open_stream, shared
from fastslow.tasks.base import Example, Feedback, Message, Options, QuestionTask, Split
from fastslow.tasks.stages import Stage, Stages


def examples(count: int) -> list[Example]:
    return [Example(f"problem-{index}", {}) for index in range(count)]


sizes = st.integers(1, 30)
seeds = st.integers(0, 2**32)


@settings(deadline=None, max_examples=100)
@given(sizes, seeds, st.integers(0, 5))
def test_every_pass_holds_every_problem_once(size: int, seed: int, epoch: int) -> None:
    taken = Stream(examples(size), seed).take(epoch * size, size)
    assert sorted(taken, key=lambda example: example.id) == sorted(examples(size), key=lambda example: example.id)


@settings(deadline=None, max_examples=100)
@given(sizes, seeds, st.lists(st.integers(0, 20), max_size=6), st.integers(0, 50), st.randoms(use_true_random=False))
def test_any_split_into_takes_gives_the_same_problems(
    size: int, seed: int, counts: list[int], start: int, order: object
) -> None:
    """One take, many takes, takes out of order, a stream made anew for each: a position always holds the same problem."""
    whole = Stream(examples(size), seed).take(start, sum(counts))
    starts = [start + sum(counts[:index]) for index in range(len(counts))]
    places = list(zip(starts, counts, strict=True))
    stream = Stream(examples(size), seed)
    assert [example for place in places for example in stream.take(*place)] == whole
    fresh = [example for place in places for example in Stream(examples(size), seed).take(*place)]
    assert fresh == whole
    shuffled = list(places)
    order.shuffle(shuffled)  # type: ignore[attr-defined]
    by_place = {place: stream.take(*place) for place in shuffled}
    assert [example for place in places for example in by_place[place]] == whole


def test_passes_and_seeds_have_orders_of_their_own() -> None:
    size = 20
    orders = [
        tuple(example.id for example in Stream(examples(size), seed).take(epoch * size, size))
        for seed in range(5)
        for epoch in range(5)
    ]
    assert len(set(orders)) == len(orders)


def test_every_problem_comes_everywhere() -> None:
    """Over many seeds each problem is first about equally often: 2,000 draws over 4, five standard deviations."""
    first = [Stream(examples(4), seed).take(0, 1)[0].id for seed in range(2000)]
    for example in examples(4):
        assert abs(first.count(example.id) - 500) < 5 * (2000 * 0.25 * 0.75) ** 0.5


# Stages ------------------------------------------------------------------------------------------------------------------


class Numbers(QuestionTask):
    """As many training problems as it is told."""

    def __init__(self, size: int) -> None:
        super().__init__(Options())
        self.size = size

    def examples(self, split: Split) -> list[Example]:
        return examples(self.size) if split == "train" else []

    def messages(self, example: Example) -> list[Message]:
        return [{"role": "user", "content": example.id}]

    def grade(self, example: Example, answer: str) -> Feedback:
        return Feedback(0.0)


@settings(deadline=None, max_examples=100)
@given(
    st.lists(sizes, min_size=1, max_size=3),
    st.lists(st.tuples(st.integers(0, 2), st.integers(1, 4)), min_size=1, max_size=5),
    st.integers(1, 5),
    seeds,
    st.integers(0, 30),
    st.integers(0, 40),
)
def test_stages_follow_one_another_and_each_task_goes_on_where_it_was(
    counts: list[int], order: list[tuple[int, int]], problems: int, seed: int, start: int, count: int
) -> None:
    tasks = [Numbers(size) for size in counts]
    stages = Stages([Stage(f"t{place % len(tasks)}", steps, tasks[place % len(tasks)]) for place, steps in order])
    # Written out: every stage deals the next problems of its own task's stream, the last one on and on.
    own = {stage.name: Stream(stage.task.examples("train"), derive_seed(seed, stage.name)) for stage in stages.stages}
    dealt: dict[str, int] = dict.fromkeys(own, 0)
    expected: list[Example] = []
    for stage in [*stages.stages, Stage(stages.stages[-1].name, 20, stages.stages[-1].task)]:
        many = stage.steps * problems
        expected += own[stage.name].take(dealt[stage.name], many)
        dealt[stage.name] += many
    length = max(0, min(count, len(expected) - start))
    taken = open_stream(stages, problems, seed).take(start, length)
    assert taken == expected[start : start + length]
    assert StagedStream(stages, problems, seed).take(start + length // 2, 1) == expected[start + length // 2 :][:1]


def test_a_task_without_stages_has_a_plain_stream() -> None:
    assert open_stream(Numbers(9), 4, 5).take(3, 20) == Stream(examples(9), 5).take(3, 20)


# Groups ------------------------------------------------------------------------------------------------------------------


@given(data=st.data(), group=st.integers(1, 24))
@settings(deadline=None, max_examples=50)
def test_every_group_holds_exactly_its_share_of_each_context(data: st.DataObject, group: int) -> None:
    count = data.draw(st.sampled_from([k for k in range(1, group + 1) if group % k == 0]))
    contexts = [Context({"system": str(index)}) for index in range(count)]
    rows = [context.id for context in shared(contexts, group)]
    assert {identifier: rows.count(identifier) for identifier in rows} == {c.id: group // count for c in contexts}


def test_a_step_plays_the_next_problems_under_every_context_and_leaves_nothing_in_play() -> None:
    slow = {"problems": 3, "group": 4, "steps": 9}
    recipe = build_recipe({"model": "nano", "task": "star-graph", "slow": slow, "fast": {"population": 2}})
    contexts = [Context({"system": text}) for text in ("one", "two")]
    in_play, stream, cache = InPlay(recipe), Stream(examples(20), 0), RolloutCache()
    for step in range(2):
        pending = in_play.begin(stream, contexts, partial(cache.begin, step=step), step, horizon=9)
        assert in_play.settled is None
        for each in pending:
            each.rollout = Rollout(each.example, each.context, step, (), Feedback(0.0))
        groups = in_play.take()
        assert [group.example for group in groups] == stream.take(3 * step, 3)
        assert [[contexts.index(r.context) for r in group.rollouts] for group in groups] == [[0, 0, 1, 1]] * 3
        assert not in_play.groups
