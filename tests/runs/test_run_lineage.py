from __future__ import annotations

import io
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from rich.text import Text

from fastslow.recipe import Recipe
from fastslow.runs.folder import RunFolder
from fastslow.runs.lineage import Node, ancestry, read_contexts
from fastslow.runs.tree import Branch, show_contexts


def record(id: str, text: str, parents: list[str], born: int, *, score: float, at: int) -> dict[str, Any]:
    return {
        "id": id,
        "texts": {"system": text},
        "parents": parents,
        "born": born,
        "score": score,
        "wins": 1,
        "front": True,
        "scored_at": at,
    }


def edit(child: str, parent: str, accepted: bool = True, **extra: Any) -> dict[str, Any]:
    return {
        "child": child,
        "parent": parent,
        "component": "system",
        "accepted": accepted,
        "before": 0.0,
        "after": 1.0,
        "score": 0.4,
        "feedback": ["the path [3] stops early", " "],
        "reason": "added a lesson",
    } | extra


def cycle(
    number: int,
    best: str,
    population: list[dict[str, Any]],
    edits: list[dict[str, Any]],
    *,
    carried: list[str] | None = None,
    others: list[dict[str, Any]] | None = None,
) -> dict[str, Any]:
    return {
        "carried": carried or [],
        "contexts": [*population, *(others or [])],
        "cycle": number,
        "policy_step": number * 6,
        "anchors": ["a", "b"],
        "best": best,
        "active": [best],
        "population": population,
        "edits": edits,
        "spent": {"fast-score": {"rollouts": 900}, "fast-minibatch": {"rollouts": 60}},
        "generations": 4,
        "faults": {},
    }


CYCLES = [
    cycle(
        0,
        "child",
        [
            record("seed", "Answer.", [], 0, score=0.1, at=0),
            record("child", "Answer.\nThink.", ["seed"], 0, score=0.5, at=0),
        ],
        [edit("child", "seed"), edit("aside", "seed"), edit("never", "seed", accepted=False)],
        carried=["seed"],
        others=[
            record("aside", "Answer aside.", ["seed"], 0, score=0.0, at=0),
            record("never", "Never.", ["seed"], 0, score=0.0, at=0),
        ],
    ),
    cycle(
        1,
        "late",
        [record("late", "Answer in a box.\nThink.", ["lost"], 1, score=0.75, at=6)],
        [edit("lost", "child", feedback=["no box"]), edit("late", "lost", feedback=["x" * 500, "two", "three"])],
        carried=["seed", "child"],
        others=[record("lost", "Answer.\nThink.\nSlowly.", ["child"], 1, score=0.4, at=6)],
    ),
]


@pytest.fixture
def run(tmp_path: Path, recipe: Recipe) -> RunFolder:
    run = RunFolder.create(tmp_path / "run", recipe)
    for data in CYCLES:
        run.save_cycle(data["cycle"], data)
    return run


def shown(run: RunFolder, *, full: bool, width: int = 120) -> str:
    file = io.StringIO()
    show_contexts(run, Console(file=file, width=width), full=full)
    return file.getvalue()


def test_the_tree_follows_parents_through_earlier_cycles(run: RunFolder) -> None:
    lines = shown(run, full=False).splitlines()
    heads = {
        id: next((number, line.index(id)) for number, line in enumerate(lines) if f" {id}  born" in line)
        for id in ("seed", "child", "lost", "late")
    }
    rows, depths = zip(*heads.values(), strict=True)
    assert list(rows) == sorted(rows)
    assert list(depths) == sorted(set(depths))


def test_the_tree_is_indented_eight_times_and_then_no_further(run: RunFolder) -> None:
    names = ["late", *(f"line-{number:02d}" for number in range(1, 13))]
    for number, (parent, child) in enumerate(pairwise(names), 2):
        member = record(child, f"text {number}", [parent], number, score=0.5, at=9)
        run.save_cycle(number, cycle(number, child, [member], [edit(child, parent)], carried=[parent]))
    lines = shown(run, full=True).splitlines()
    columns = [next(line.index(name) for line in lines if f" {name}  born" in line) for name in names]
    steps = [after - before for before, after in pairwise(columns)]
    assert steps == [4] * 5 + [0] * 7  # three are above the first of them


def test_each_context_says_what_changed_why_and_how_it_scored(run: RunFolder) -> None:
    text = shown(run, full=False)
    assert "late  born in cycle 1, score 0.750 at step 6, from lost  best" in text
    assert "child  born in cycle 0, score 0.500 at step 0, from seed" in text
    assert "+ Think." in text
    assert "edit of system: 0.000 -> 1.000 on the minibatch; added a lesson" in text
    assert "feedback: the path [3] stops early" in text
    wide = shown(run, full=False, width=1000).splitlines()
    assert "feedback:" not in {line.strip(" │") for line in wide}, "blank ones are passed over"
    # A parent that was dropped inside the cycle is still known by its text.
    assert "lost  born in cycle 1, score 0.400 at step 6, from child" in text
    assert "- Slowly." in text
    assert "- Answer." in text
    assert "+ Answer in a box." in text


def test_short_form_leaves_out_dead_ends_and_long_feedback(run: RunFolder) -> None:
    short, full = shown(run, full=False), shown(run, full=True)
    assert "aside" not in short
    assert "hidden contexts without a surviving descendant: 1;" in short
    assert "aside  born in cycle 0" in full
    assert "never" not in full.split("population by cycle")[0]
    assert short.count("x") < 300 < full.count("x")
    assert "feedback: three" in full
    assert "feedback: three" not in short


def test_rejected_proposals_are_shown_with_their_reasons(tmp_path: Path, recipe: Recipe) -> None:
    seed = record("seed", "Answer.", [], 0, score=0.1, at=0)
    others = [record(name, f"Answer {name}.", ["seed"], 0, score=0.0, at=0) for name in ("worse", "late")]
    edits = [
        edit("worse", "seed", accepted=False, reason="0.00 on the minibatch is not above its parent's 0.50"),
        edit("late", "seed", accepted=False, reason="", after=None),
    ]
    data = cycle(0, "seed", [seed], edits, carried=["seed"], others=others)
    long = [
        {"parent": "seed", "texts": {"system": "Answer.\nLong."}, "reason": f"too long: {n} tokens"} for n in range(9)
    ]
    data["rejected"] = [*long, {"parent": "", "texts": {}, "reason": "no proposal: the server\nis down"}]
    run = RunFolder.create(tmp_path / "run", recipe)
    run.save_cycle(0, data)
    short, full = shown(run, full=False), shown(run, full=True)
    for text in (short, full):
        assert "rejected proposals: 12" in text
        assert "cycle 0: no proposal: the server is down" in text
        assert "cycle 0, from seed: 0.00 on the minibatch is not above its parent's 0.50" in text
        assert "cycle 0, from seed: the cycle ended before it was scored" in text
    assert "hidden earlier rejected proposals: 4; --full shows them" in short
    assert "too long: 0 tokens" not in short
    assert full.count("too long:") == full.count("+ Long.") == 9
    assert "+ Answer worse." in full
    assert "+ Answer worse." not in short


def test_guides_lead_past_a_branch_to_the_next() -> None:
    leaf = Branch(Text("leaf"), [("a line", "none")])
    tree = Branch(
        Text("root"), children=[Branch(Text("first"), children=[leaf]), Branch(Text("last"), children=[leaf])]
    )
    console = Console(file=io.StringIO(), width=60)
    console.print(tree)
    assert console.file.getvalue().splitlines() == [  # type: ignore[attr-defined]
        *("root", "├── first", "│   └── leaf", "│       a line"),
        *("└── last", "    └── leaf", "        a line"),
    ]


def test_the_table_has_a_row_for_every_cycle(run: RunFolder) -> None:
    table = shown(run, full=False).split("population by cycle")[1]
    assert "child  0.500  best" in table
    assert "seed  0.100  not in use" in table
    assert "2 of 3" in table
    assert "960" in table


def test_lines_that_were_judged_are_listed_with_what_they_bring(tmp_path: Path, recipe: Recipe) -> None:
    run = RunFolder.create(tmp_path / "run", recipe)
    text = "Answer.\nPut it in a box."
    judged = [
        {"component": "system", "line": line, "problems": 7, "effect": effect, "deviation": 0.1}
        for line, effect in (("Put it in a box.", 0.31), ("Never mind.", -0.2))
    ]
    entry = cycle(0, "best", [record("best", text, [], 0, score=0.5, at=0)], [])
    run.write_json("contexts/cycle-0000.json", {**entry, "lines": judged})
    short, full = (shown(run, full=each).split("what each line brings")[1] for each in (False, True))
    assert "Put it in a box." in short
    assert "+0.31" in short
    assert "Never mind." not in short
    assert "-0.20" in full


@pytest.mark.parametrize("width", [80, 200])
def test_a_line_is_whole_whatever_the_width(width: int, tmp_path: Path, recipe: Recipe) -> None:
    run = RunFolder.create(tmp_path / "run", recipe)
    line = "Messages about invoices, refunds or receipts go to the billing desk."
    judged = {"component": "system", "line": line, "problems": 7, "effect": 0.31, "deviation": 0.12, "kept": 0.9}
    entry = cycle(0, "best", [record("best", f"Answer.\n{line}", [], 0, score=0.5, at=0)], [])
    run.write_json("contexts/cycle-0000.json", {**entry, "lines": [judged | {"kept_without": 0.2}]})
    lines = shown(run, full=False, width=width).split("what each line brings")[1].splitlines()
    place = next(number for number, each in enumerate(lines) if line in each)
    numbers = " ".join(" ".join(lines[place : place + 3]).split())
    assert "+0.31" in numbers
    assert "0.90 (0.20)" in numbers
    assert max(map(len, lines)) <= width


def test_expected_scores_are_called_so_and_stand_beside_measured_ones(tmp_path: Path, recipe: Recipe) -> None:
    run = RunFolder.create(tmp_path / "run", recipe)
    best = {**record("best", "Answer.\nIn a box.", ["seed"], 0, score=0.055, at=0), "drawn": [0.0, 36]}
    new = {**record("new", "Answer.\nIn two boxes.", ["seed"], 0, score=0.04, at=0), "drawn": [0.0, 0]}
    told = edit("best", "seed", after=None, score=0.055, feedback=["In a box."], reason="")
    run.save_cycle(0, cycle(0, "best", [best, new], [told], carried=["best"]))
    text = shown(run, full=False)
    assert "expected score 0.055, measured 0.000 in 36 rollouts at step 0" in text
    assert "expected score 0.040, not played in this cycle at step 0" in text
    assert "0.055 (0.000 of 36)  best" in text
    assert "scores are expected (measured of rollouts)" in text
    assert "edit of system: the lines that all rollouts so far speak for" in text
    assert "on the minibatch" not in text
    assert "feedback:" not in text, "these would be the lines again"
    found = next(each for each in read_contexts(run) if each.id == "best").to_dict()
    assert (found["expected"], found["drawn"]) == (True, (0.0, 36))


def test_rejections_for_one_reason_are_counted(tmp_path: Path, recipe: Recipe) -> None:
    run = RunFolder.create(tmp_path / "run", recipe)
    others = [record(f"c{number}", f"Answer {number}.", ["best"], 0, score=0.0, at=0) for number in range(20)]
    edits = [edit(each["id"], "best", False, reason="a comparison, not kept") for each in others]
    run.save_cycle(0, cycle(0, "best", [record("best", "Answer.", [], 0, score=0.5, at=0)], edits, others=others))
    short, full = (shown(run, full=each).split("rejected proposals: 20")[1] for each in (False, True))
    assert short.count("a comparison, not kept") == 1
    assert "a comparison, not kept  ×20" in short
    assert full.count("a comparison, not kept") == 20


def test_an_edit_without_a_minibatch_has_no_gain_on_one(tmp_path: Path, recipe: Recipe) -> None:
    run = RunFolder.create(tmp_path / "run", recipe)
    told = edit("child", "seed", after=None, reason="")
    run.save_cycle(0, cycle(0, "child", [record("child", "Answer.", ["seed"], 0, score=0.5, at=0)], [told]))
    assert "edit of system: accepted" in shown(run, full=False)


def test_colours_tell_added_from_removed(run: RunFolder) -> None:
    console = Console(
        file=io.StringIO(), width=120, force_terminal=True, color_system="standard", record=True, _environ={}
    )
    show_contexts(run, console, full=True)
    styled = console.export_text(styles=True)
    assert "\x1b[32m+ Answer in a box." in styled
    assert "\x1b[31m- Answer." in styled


def test_a_long_line_of_descent_stays_readable(tmp_path: Path, recipe: Recipe) -> None:
    run = RunFolder.create(tmp_path / "long", recipe)
    for number in range(60):
        parents = [f"c{number - 1:03d}"] if number else []
        member = record(f"c{number:03d}", f"Answer {number}.", parents, number, score=0.5, at=number)
        run.save_cycle(number, cycle(number, member["id"], [member], []))
    heads = [line for line in shown(run, full=False, width=100).splitlines() if " born in cycle " in line]
    assert [head.split(" born")[0].split()[-1] for head in heads] == [f"c{number:03d}" for number in range(60)]


def test_a_family_without_a_first_ancestor_is_drawn_once(tmp_path: Path, recipe: Recipe) -> None:
    run = RunFolder.create(tmp_path / "round", recipe)
    members = [record("aa", "A", ["bb"], 0, score=0.1, at=0), record("bb", "B", ["aa"], 0, score=0.2, at=0)]
    run.save_cycle(0, cycle(0, "bb", members, []))
    text = shown(run, full=True)
    assert text.count("aa  born") == text.count("bb  born") == 1


def test_ancestors_are_found_once_and_those_unknown_are_left_out() -> None:
    parents = {"a": ["lost"], "b": ["a"], "c": ["a", "b"], "x": ["y"], "y": ["x"]}
    known = {key: Node(key, {}, found, 0) for key, found in parents.items()}
    assert ancestry(known, ["c", "gone"]) == {"a", "b", "c"}
    assert ancestry(known, ["x"]) == {"x", "y"}


def test_a_run_without_cycles_says_so(tmp_path: Path, recipe: Recipe) -> None:
    assert "has no cycle yet" in " ".join(shown(RunFolder.create(tmp_path / "new", recipe), full=False).split())
