r"""Star graphs are built as the paper says, and every way to get the path wrong is told apart."""

import re
from collections import Counter, deque
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from fastslow.fast.reflection import Attempt, Request
from fastslow.fast.reflection.lessons import new_lessons
from fastslow.tasks.base import Ask, Example
from fastslow.tasks.families import star_graph
from fastslow.tasks.families.star_graph import StarGraph, StarGraphOptions
from fastslow.tasks.scripted import scripted_rollout

PATH = "the path from the source 1 to the goal 4"
SMALL = StarGraph(StarGraphOptions(degree=3, path=4, nodes=30, train=40, validation=20, test=20))

# Source 1, goal 4 over 1-2-3-4; decoys 1-5-6-7 and 1-8-9-10.
GRAPH = Example(
    "hand-made",
    {
        "edges": [(2, 1), (2, 3), (4, 3), (5, 1), (5, 6), (7, 6), (8, 1), (8, 9), (9, 10)],
        "source": 1,
        "goal": 4,
        "path": [1, 2, 3, 4],
    },
)


@st.composite
def shapes(draw: st.DrawFn) -> StarGraphOptions:
    degree, path = draw(st.integers(2, 9)), draw(st.integers(2, 9))
    nodes = 1 + degree * (path - 1) + draw(st.integers(0, 40))
    return StarGraphOptions(degree=degree, path=path, nodes=nodes, seed=draw(st.integers(0, 10**6)))


def search(edges: Iterable[tuple[int, int]], source: int, goal: int) -> list[list[int]]:
    """Every simple path, breadth first: written apart from the construction, to check it."""
    found, queue = [], deque([[source]])
    while queue:
        path = queue.popleft()
        if path[-1] == goal:
            found.append(path)
            continue
        ends = [b if a == path[-1] else a for a, b in edges if path[-1] in (a, b)]
        queue.extend([*path, end] for end in ends if end not in path)
    return found


@settings(max_examples=60, deadline=None)
@given(options=shapes(), index=st.integers(0, 9_999))
def test_a_graph_is_a_star_with_one_path_to_the_goal(options: StarGraphOptions, index: int) -> None:
    graph = StarGraph(options).examples("train")[index].data
    edges, source, goal = graph["edges"], graph["source"], graph["goal"]
    assert search(edges, source, goal) == [graph["path"]]
    assert len(graph["path"]) == options.path
    counts = Counter(node for edge in edges for node in edge)
    assert len(counts) == 1 + options.degree * (options.path - 1) == len(edges) + 1
    assert all(0 <= node < options.nodes for node in counts)
    leaves = [node for node, count in counts.items() if count == 1]
    assert counts[source] == options.degree == len(leaves)
    assert goal in leaves
    assert all(count <= 2 for node, count in counts.items() if node != source)
    assert {len(search(edges, source, leaf)[0]) for leaf in leaves} == {options.path}


def test_the_published_size_is_the_default() -> None:
    task = StarGraph(StarGraphOptions())
    assert [len(task.examples(split)) for split in ("train", "validation", "test")] == [10_000, 200, 200]
    example = task.examples("train")[17]
    assert example.id == "star-graph-25-20-500-s0/train/17"
    assert len(example.data["edges"]) == 25 * 19


def test_problems_are_the_same_every_time_and_whatever_the_size_of_the_split() -> None:
    larger = StarGraph(SMALL.options.model_copy(update={"train": 1_000}))
    assert list(SMALL.examples("train")) == list(SMALL.examples("train"))
    assert larger.examples("train")[:40] == list(SMALL.examples("train"))
    assert SMALL.examples("train")[-1] == SMALL.examples("train")[39]


def test_a_problem_never_changes_between_versions() -> None:
    graph = StarGraph(StarGraphOptions(degree=2, path=3, nodes=9)).examples("train")[0].data
    assert graph == {"edges": [(0, 3), (3, 4), (2, 6), (0, 6)], "source": 0, "goal": 2, "path": [0, 6, 2]}


def test_splits_and_seeds_share_no_problem() -> None:
    other = StarGraph(SMALL.options.model_copy(update={"seed": 1}))
    pools = [SMALL.examples("train"), SMALL.examples("validation"), SMALL.examples("test"), other.examples("train")]
    everything = [example for pool in pools for example in pool]
    assert len({example.id for example in everything}) == len(everything)
    assert len({str(example.data) for example in everything}) == len(everything)


def test_edges_are_shuffled_and_turned_around() -> None:
    first_edge_is_gold = forward = edges = 0
    for example in SMALL.examples("train"):
        gold = set(zip(example.data["path"], example.data["path"][1:], strict=False))
        first_edge_is_gold += not gold.isdisjoint({example.data["edges"][0], example.data["edges"][0][::-1]})
        forward += sum(edge in gold for edge in example.data["edges"])
        edges += len(gold)
    assert 5 < first_edge_is_gold < 25  # a third of 40 by chance
    assert 0.3 < forward / edges < 0.7


def test_the_question_shows_every_edge_source_goal_and_form_of_the_answer() -> None:
    [message] = SMALL.messages(GRAPH)
    assert message["role"] == "user"
    assert "2-1, 2-3, 4-3, 5-1" in message["content"]
    assert "from the source 1 to the goal 4" in message["content"]
    assert r"\boxed{}" in message["content"]
    assert "commas" in message["content"]


def test_the_form_of_the_answer_can_be_left_to_the_grader_alone() -> None:
    untold = StarGraph(SMALL.options.model_copy(update={"form_told": False}))
    [told], [message] = SMALL.messages(GRAPH), untold.messages(GRAPH)
    assert told["content"].startswith(message["content"])
    assert "boxed" not in message["content"]
    assert message["content"].endswith("from the source 1 to the goal 4.")
    assert untold.grade(GRAPH, "1, 2, 3, 4").text.endswith(star_graph.WRITE_A_BOX)
    assert untold.grade(GRAPH, r"\boxed{1, 2, 3, 4}").score == 1


@pytest.mark.parametrize(
    "answer",
    [
        r"\boxed{1,2,3,4}",
        r"It is \boxed{ 1, 2 ,3," + "\n" + r"4 }.",
        r"First \boxed{1,5,6,7}, no: \boxed{1,2,3,4}",
        r"\boxed {1,2,3,4} and that is it }",
        r"\boxed{01,2,3,4}",
        r"\boxed{1,2} or rather \boxed{" + "\n1,\n2,\n3,\n4\n}",
    ],
)
def test_the_gold_path_in_the_last_box_scores_one(answer: str) -> None:
    feedback = SMALL.grade(GRAPH, answer)
    assert feedback.score == 1
    assert feedback.text == "Correct: this is the path from the source 1 to the goal 4."


@pytest.mark.parametrize(
    ("answer", "fact", "advice"),
    [
        (
            "1,2,3,4",
            r"The answer has no \boxed{} with the path from the source 1 to the goal 4.",
            star_graph.WRITE_A_BOX,
        ),
        ("", r"The answer has no \boxed{} with the path from the source 1 to the goal 4.", star_graph.WRITE_A_BOX),
        (
            r"\boxed{1,2,3,4} or \boxed{1,2",
            r"The last \boxed{ of the answer is never closed, so the path from the source 1 to the goal 4 cannot be read.",
            star_graph.CLOSE_THE_BOX,
        ),
        (
            r"\boxed{ }",
            r"The last \boxed{} of the answer is empty instead of holding the path from the source 1 to the goal 4.",
            star_graph.WRITE_A_BOX,
        ),
        (
            r"\boxed{1,2,3,4}, as said in \boxed{}",
            r"The last \boxed{} of the answer is empty instead of holding the path from the source 1 to the goal 4.",
            star_graph.WRITE_A_BOX,
        ),
        (
            r"\boxed{1 -> 2 -> 3 -> 4}",
            f"'1 -> 2 -> 3 -> 4' in the box for {PATH} is not a node number.",
            star_graph.ONLY_NUMBERS,
        ),
        (r"\boxed{1 2 3 4}", f"'1 2 3 4' in the box for {PATH} is not a node number.", star_graph.ONLY_NUMBERS),
        (
            r"\boxed{\text{1,2,3,4}}",
            rf"'\text{{1' in the box for {PATH} is not a node number.",
            star_graph.ONLY_NUMBERS,
        ),
        (r"\boxed{1,2,3,4,}", f"'' in the box for {PATH} is not a node number.", star_graph.ONLY_NUMBERS),
        (r"\boxed{1,2,3,-4}", f"'-4' in the box for {PATH} is not a node number.", star_graph.ONLY_NUMBERS),
        (r"\boxed{1,2,3,４}", f"'４' in the box for {PATH} is not a node number.", star_graph.ONLY_NUMBERS),
        (
            r"\boxed{" + "1" * 9_999 + "}",
            f"'{'1' * 39}…' in the box for {PATH} is not a node number.",
            star_graph.ONLY_NUMBERS,
        ),
        (r"\boxed{2,3,4}", "The path starts at 2 and not at the source 1.", star_graph.START_AT_SOURCE),
        (r"\boxed{4,3,2,1}", "The path runs from the goal 4 to the source 1.", star_graph.SOURCE_FIRST),
        (r"\boxed{1,2}", "The path ends at 2 instead of the goal 4: from 2 it goes on to 3.", star_graph.REACH_GOAL),
        (r"\boxed{1.0,2,3,4}", f"'1.0' in the box for {PATH} is not a node number.", star_graph.ONLY_NUMBERS),
        (r"\boxed{[1,2,3,4]}", f"'[1' in the box for {PATH} is not a node number.", star_graph.ONLY_NUMBERS),
        (r"\boxed{1-2,2-3,3-4}", f"'1-2' in the box for {PATH} is not a node number.", star_graph.ONLY_NUMBERS),
        (r"\boxed{1;2;3;4}", f"'1;2;3;4' in the box for {PATH} is not a node number.", star_graph.ONLY_NUMBERS),
        (r"\boxed{,1,2,3,4}", f"'' in the box for {PATH} is not a node number.", star_graph.ONLY_NUMBERS),
        (r"\boxed{4}", "The path starts at 4 and not at the source 1.", star_graph.START_AT_SOURCE),
        (r"\boxed{7,6,5,1}", "The path starts at 7 and not at the source 1.", star_graph.START_AT_SOURCE),
        (r"\boxed{1,2,3}", "The path ends at 3 instead of the goal 4: from 3 it goes on to 4.", star_graph.REACH_GOAL),
        (r"\boxed{1,2,3,4,4}", "The path reaches the goal 4 and then goes on to 4.", star_graph.STOP_AT_GOAL),
        (
            r"\boxed{1,8,9,4}",
            "The first step goes from 1 to 8, whose arm does not lead to the goal 4: it must go to 2.",
            star_graph.TRACE_BACK,
        ),
        (
            r"\boxed{1,2,6,4}",
            "Step 2 on the way to the goal 4 goes from 2 to 6, but no edge joins them: it must go to 3.",
            star_graph.FOLLOW_EDGES,
        ),
        (r"\boxed{1}", "The path ends at 1 instead of the goal 4: from 1 it goes on to 2.", star_graph.REACH_GOAL),
        (r"\boxed{1,2,3,4,3}", "The path reaches the goal 4 and then goes on to 3.", star_graph.STOP_AT_GOAL),
        (
            r"\boxed{1,2,1,2,3,4}",
            "Step 2 on the way to the goal 4 goes from 2 back to 1, already visited: it must go to 3.",
            star_graph.NO_REPEATS,
        ),
        (
            r"\boxed{1,1,2,3,4}",
            "Step 1 on the way to the goal 4 goes from 1 back to 1, already visited: it must go to 2.",
            star_graph.NO_REPEATS,
        ),
        (
            r"\boxed{1,2,4}",
            "Step 2 on the way to the goal 4 goes from 2 to 4, but no edge joins them: it must go to 3.",
            star_graph.FOLLOW_EDGES,
        ),
        (
            r"\boxed{1,99,4}",
            "Step 1 on the way to the goal 4 goes from 1 to 99, but no edge joins them: it must go to 2.",
            star_graph.FOLLOW_EDGES,
        ),
        (
            r"\boxed{1,5,6,7}",
            "The first step goes from 1 to 5, whose arm does not lead to the goal 4: it must go to 2.",
            star_graph.TRACE_BACK,
        ),
    ],
)
def test_feedback_names_the_fault_and_on_another_line_the_rule(answer: str, fact: str, advice: str) -> None:
    feedback = SMALL.grade(GRAPH, answer)
    lines = feedback.text.split("\n")
    assert feedback.score == 0
    assert lines[0] == fact
    assert lines[1] == advice
    # That is how `lessons` knows the rule among them.
    attempt = Attempt(SMALL.messages(GRAPH)[0]["content"], answer, feedback.text, feedback.score)
    weights = new_lessons(Request("system", "", [attempt], "full", 200, len, 0))
    assert weights[fact] < weights[advice] == 1


@pytest.mark.parametrize(
    ("answer", "progress"),
    [
        ("1, 2, 3, 4", 0),
        (r"\boxed{1, 2", 0),
        (r"\boxed{one}", 0),
        (r"\boxed{4, 3, 2, 1}", 1 / 6),  # a readable path, none of it right
        (r"\boxed{1, 5, 6, 7}", 2 / 6),
        (r"\boxed{1, 2, 3}", 4 / 6),
        (r"\boxed{1, 2, 3, 4, 5}", 5 / 6),
    ],
)
def test_progress_is_a_box_and_the_right_nodes_in_it(answer: str, progress: float) -> None:
    assert SMALL.grade(GRAPH, answer).progress == pytest.approx(progress)


@given(
    answer=st.lists(st.sampled_from(["\\boxed{", "}", "{", ",", "1", "2", "3", "4", "5", "99", " ", "x"])).map("".join)
)
def test_any_answer_is_graded_and_only_the_gold_path_scores(answer: str) -> None:
    feedback = SMALL.grade(GRAPH, answer)
    assert feedback.score == (
        answer.replace(" ", "").split("\\boxed{")[-1].startswith("1,2,3,4}") and "\\boxed{" in answer
    )
    assert feedback.text


@settings(max_examples=60, deadline=None)
@given(options=shapes(), index=st.integers(0, 9_999), data=st.data())
def test_the_path_of_any_graph_scores_one_and_feedback_never_gives_it_away(
    options: StarGraphOptions, index: int, data: st.DataObject
) -> None:
    """At most one node of it is told, the one after the last right step."""
    task = StarGraph(options)
    example = task.examples("train")[index]
    gold = example.data["path"]
    assert task.grade(example, f"So \\boxed{{{', '.join(map(str, gold))}}}").score == 1
    kept = data.draw(st.integers(0, len(gold) - 1))
    wrong = gold[:kept] + data.draw(st.lists(st.sampled_from(sorted({*gold, options.nodes})), max_size=3))
    if wrong == gold or not wrong:
        return
    feedback = task.grade(example, f"\\boxed{{{', '.join(map(str, wrong))}}}")
    assert feedback.score == 0
    told = {int(number) for number in re.findall(r"[0-9]+", re.sub(r"^Step [0-9]+", "", feedback.text))}
    new = set(gold) - set(wrong) - {example.data["source"], example.data["goal"]}
    assert len(told & new) <= 1


@given(path=st.lists(st.integers(1, 11), min_size=1, max_size=7))
def test_advice_never_speaks_of_one_problem(path: list[int]) -> None:
    _, *advice = SMALL.grade(GRAPH, f"\\boxed{{{','.join(map(str, path))}}}").text.split("\n")
    assert not any(character.isdigit() for line in advice for character in line)
    assert all(line.endswith(".") and line.count(". ") == 0 for line in advice)


def test_a_problem_is_one_question_to_the_system_component() -> None:
    played = scripted_rollout(SMALL, GRAPH, [r"\boxed{1,2,3,4}"])
    assert list(played.asks) == [Ask("system", SMALL.messages(GRAPH))]
    assert played.feedback is not None
    assert played.feedback.score == 1
    assert dict(SMALL.seed_texts) == {"system": "Answer the question."}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"degree": 25, "path": 21, "nodes": 500}, "need 501 nodes .* set nodes to 501 or more"),
        ({"degree": 1}, "degree=1 leaves nothing to choose between; set degree to 2 or more"),
        ({"path": 1}, "path=1 has no step from source to goal; set path to 2 or more"),
        ({"train": -1}, "greater than or equal to 0"),
    ],
)
def test_impossible_graphs_are_refused_with_what_to_change(options: dict[str, int], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        StarGraphOptions(**options)


def test_the_tightest_graph_that_fits_is_allowed() -> None:
    graph = StarGraph(StarGraphOptions(degree=2, path=2, nodes=3)).examples("test")[0].data
    assert sorted({node for edge in graph["edges"] for node in edge}) == [0, 1, 2]
