r"""Star graphs: a source with many arms of equal length, one of which ends at the goal. Name the path to it.

Easy to state, hard to learn by reward alone: the right first step can only be found by tracing back from the goal; a
model that does not do that guesses one arm out of `degree`, then still has to follow it without a slip.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from pydantic import Field, model_validator

from fastslow.base.text import one_line
from fastslow.tasks.base import Example, Feedback, Message, Options, Split
from fastslow.tasks.data import GeneratedTask, draw_for
from fastslow.tasks.reading import Reading, has_box, last_boxed

FORM = r" Write it inside \boxed{} as the nodes in the order they are visited, source and goal included, separated by commas."

# The general half of the feedback. Each is a whole sentence that holds for every problem, so that it can be lifted into
# a context as it stands; what is true of one problem only goes on lines of its own. None has three words in a row from the
# question, which `lessons` takes for a quotation.
# The form is shown, not only named: a small model that never writes a box on request sometimes does when it sees one.
WRITE_A_BOX = (
    r"End the answer with the whole path in a box, with commas between the nodes, written like this: \boxed{4, 17, 9}."
)
CLOSE_THE_BOX = r"Close \boxed{} right after the last node of the path."
ONLY_NUMBERS = r"Put nothing but node numbers and commas inside \boxed{}."
START_AT_SOURCE = "Begin the path with the source."
SOURCE_FIRST = "Write the path forwards, with its source first and its goal last."
REACH_GOAL = "Name every node on the way and do not stop before the goal."
STOP_AT_GOAL = "End the path at the goal and write no node after it."
NO_REPEATS = "Never visit a node twice."
FOLLOW_EDGES = "Step from one node to the next only when the two are listed together as an edge."
TRACE_BACK = (
    "Trace the edges from the goal back to the source first, because only one neighbour of the source leads to it."
)

# Every fact has words of its question in it: a line that is the same for all problems would look like a rule, and one that
# quotes its problem does not (see `lessons`).
READING = Reading(
    last_boxed,
    has_box,
    missing=(r"The answer has no \boxed{} with %s.", WRITE_A_BOX),
    unclosed=(r"The last \boxed{ of the answer is never closed, so %s cannot be read.", CLOSE_THE_BOX),
    empty=(r"The last \boxed{} of the answer is empty instead of holding %s.", WRITE_A_BOX),
)


class StarGraphOptions(Options):
    degree: int = 25
    """Arms of the source; one leads to the goal, the others are decoys of the same length."""
    path: int = 20
    """Nodes on the path from the source to the goal, both included."""
    nodes: int = Field(default=500, le=10**9)
    """Node names are drawn without replacement from 0 up to, not including, this number."""
    form_told: bool = True
    """Whether the question says how the answer must be written. If not, only the grader does, and a context has to."""
    train: int = Field(default=10_000, ge=0)
    """Training problems."""
    validation: int = Field(default=200, ge=0)
    """Validation problems."""
    test: int = Field(default=200, ge=0)
    """Test problems."""
    seed: int = 0
    """Another seed makes other graphs."""

    @model_validator(mode="after")
    def _fits(self) -> StarGraphOptions:
        if self.degree < 2:
            raise ValueError(f"degree={self.degree} leaves nothing to choose between; set degree to 2 or more")
        if self.path < 2:
            raise ValueError(f"path={self.path} has no step from source to goal; set path to 2 or more")
        needed = 1 + self.degree * (self.path - 1)
        if needed > self.nodes:
            raise ValueError(
                f"degree={self.degree} arms with path={self.path} need {needed} nodes (1 + degree × (path − 1)), "
                f"but there are only nodes={self.nodes}; set nodes to {needed} or more, or lower degree or path"
            )
        return self


class StarGraph(GeneratedTask):
    """Find the path from the source of a star graph to its goal."""

    Options = StarGraphOptions
    options: StarGraphOptions

    def _example(self, split: Split, index: int) -> Example:
        options = self.options
        # A generator of its own per problem, seeded by text (hashed the same in every process), keeps a problem the same
        # whatever the sizes of the splits and whichever others were made before it.
        generator = random.Random(f"star-graph/{options.seed}/{split}/{index}")
        name = f"star-graph-{options.degree}-{options.path}-{options.nodes}-s{options.seed}/{split}/{index}"
        return draw_for(split, lambda: Example(name, _draw(options, generator)), self.messages)

    def messages(self, example: Example) -> list[Message]:
        graph = example.data
        edges = ", ".join(f"{a}-{b}" for a, b in graph["edges"])
        question = (
            f"These are the edges of an undirected graph, each written as the two nodes it joins:\n{edges}\n\n"
            f"Find the path from the source {graph['source']} to the goal {graph['goal']}."
        )
        return [{"role": "user", "content": question + (FORM if self.options.form_told else "")}]

    def grade(self, example: Example, answer: str) -> Feedback:
        graph = example.data
        path, faults = _read_path(answer, graph)
        if faults:
            return Feedback(0.0, "\n".join(faults))
        if faults := _compare(path, graph):
            return Feedback(0.0, "\n".join(faults), progress=(1 + _right_nodes(path, graph)) / (2 + len(graph["path"])))
        return Feedback(
            1.0, f"Correct: this is the path from the source {graph['source']} to the goal {graph['goal']}."
        )


def _draw(options: StarGraphOptions, generator: random.Random) -> dict[str, Any]:
    steps = options.path - 1
    source, *rest = generator.sample(range(options.nodes), 1 + options.degree * steps)
    arms = [[source, *rest[start : start + steps]] for start in range(0, len(rest), steps)]
    gold = arms[0]
    edges = [pair for arm in arms for pair in pairwise(arm)]
    generator.shuffle(edges)
    shown = [(a, b) if generator.random() < 0.5 else (b, a) for a, b in edges]
    return {"edges": shown, "source": source, "goal": gold[-1], "path": gold}


def _read_path(answer: str, graph: Mapping[str, Any]) -> tuple[list[int], list[str]]:
    """The nodes in the last box, or what keeps them from being read."""
    wanted = f"the path from the source {graph['source']} to the goal {graph['goal']}"
    box, faults = READING.read(answer, wanted)
    if faults:
        return [], faults
    for item in box.split(","):
        # Bounded, because Python refuses to convert numbers of thousands of digits, which a looping model does write.
        if not re.fullmatch(r"[0-9]{1,18}", item.strip()):
            fault = f"'{one_line(item, 40)}' in the box for {wanted} is not a node number."
            return [], [fault, ONLY_NUMBERS, WRITE_A_BOX]
    return [int(item) for item in box.split(",")], []


def _compare(path: list[int], graph: Mapping[str, Any]) -> list[str]:
    """What is wrong where the path first leaves the right one, and what would have been right there."""
    gold, source, goal = graph["path"], graph["source"], graph["goal"]
    if path == gold:
        return []
    if path == gold[::-1]:
        return [f"The path runs from the goal {goal} to the source {source}.", SOURCE_FIRST]
    if path[0] != source:
        return [f"The path starts at {path[0]} and not at the source {source}.", START_AT_SOURCE]
    return _first_wrong_step(_right_nodes(path, graph), path, graph)


def _right_nodes(path: list[int], graph: Mapping[str, Any]) -> int:
    """How many nodes the path has in common with the right one before it leaves it."""
    gold = graph["path"]
    return next((i for i, (a, b) in enumerate(zip(path, gold, strict=False)) if a != b), min(len(path), len(gold)))


def _first_wrong_step(step: int, path: list[int], graph: Mapping[str, Any]) -> list[str]:
    gold, goal = graph["path"], graph["goal"]
    here = path[step - 1]
    if step == len(gold):
        return [f"The path reaches the goal {goal} and then goes on to {path[step]}.", STOP_AT_GOAL]
    right = gold[step]
    if step == len(path):
        return [f"The path ends at {here} instead of the goal {goal}: from {here} it goes on to {right}.", REACH_GOAL]
    there = path[step]
    taken = f"Step {step} on the way to the goal {goal} goes from {here}"
    if there in path[:step]:
        return [f"{taken} back to {there}, already visited: it must go to {right}.", NO_REPEATS]
    if all({a, b} != {here, there} for a, b in graph["edges"]):
        return [f"{taken} to {there}, but no edge joins them: it must go to {right}.", FOLLOW_EDGES, TRACE_BACK]
    # Only the source has a neighbour that is new, joined by an edge and still wrong.
    fault = f"The first step goes from {here} to {there}, whose arm does not lead to the goal {goal}: it must go to {right}."
    return [fault, TRACE_BACK]
