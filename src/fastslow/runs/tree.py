"""The contexts of a run on a terminal: a tree with the edits, scores and feedback of each."""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from fastslow.base.text import line_key, number, one_line, printable, scored
from fastslow.runs import files
from fastslow.runs.folder import RunFolder
from fastslow.runs.lineage import Member, ancestry, gather, is_expected
from fastslow.runs.use import Use, uses, verdict

DEEPEST = 8
"""Deeper generations are shown at this depth, so that the tree fits the screen."""
NARROWEST = 20
"""Cells that a line of the tree has at least."""
READABLE = 50
"""Cells of a line of a text, from which its numbers may stand beside it."""
EFFECT = ("effect where it applies", "± deviation", "problems", "kept with it (without)")
"""What is known of a line that the optimizer judges."""
SHOWN_CHANGES = 12
SHOWN_FEEDBACK = 2
FEEDBACK_WIDTH = 240
SHOWN_REJECTED = 8


def show_contexts(run: RunFolder, console: Console, *, full: bool) -> None:
    """Print the tree of contexts and the population of every cycle.

    Without `full` it shows only the ancestors of the last population and the newest rejected proposals, and truncates long
    diffs and feedback.
    """
    with files.understood(run.path):
        cycles = run.cycles()
        if not cycles:
            console.print(Text(f"'{run.path}' has no cycle yet; every rollout so far used the seed text"))
            return
        members = gather(cycles)
        best = next((member for member in members.values() if member.best), None)
        shown = set(members) if full else ancestry(members, (id for id in members if members[id].in_pool))
        console.print(_tree(members, shown, full))
        console.print(_table(cycles))
        _show_rejected(cycles, console, full)
        used, judged = uses(run, best.texts) if best else {}, cycles[-1].get("lines") or []
        if used or judged:
            title = "what each line brings" if judged else "is each line used, is it followed"
            _show_lines(_judged_lines(judged, best, used, full), console, title)
        if said := verdict(used.values(), run.recipe.method):
            console.print(Text(printable(said)))
        if len(shown) < len(members):
            rest = len(members) - len(shown)
            console.print(
                Text(f"hidden contexts without a surviving descendant: {rest}; --full shows them", style="dim")
            )


def _show_rejected(cycles: Iterable[dict[str, Any]], console: Console, full: bool) -> None:
    """Proposals that did not become members, with the reasons; in full also with what they would have changed."""
    found = [rejected for data in cycles for rejected in _rejected(data)]
    alike = [list(group) for _, group in itertools.groupby(found, key=lambda each: (each[0], each[1], each[4]))]
    groups = [[each] for each in found] if full else alike
    shown = groups if full else groups[-SHOWN_REJECTED:]
    tree = Branch(Text(f"rejected proposals: {len(found)}"))
    for (cycle, parent, texts, before, reason), *others in shown:
        origin = f", from {parent}" if parent else ""
        times = f"  ×{1 + len(others)}" if others else ""
        head = Text(f"cycle {cycle}{origin}: {printable(' '.join(reason.split()))}{times}")
        changes = [line for name in texts for line in _diff(name, before.get(name, ""), texts[name])] if full else []
        tree.children.append(Branch(head, changes))
    if found:
        console.print(tree)
    if rest := len(found) - sum(map(len, shown)):
        console.print(Text(f"hidden earlier rejected proposals: {rest}; --full shows them", style="dim"))


def _rejected(data: dict[str, Any]) -> Iterator[tuple[int, str, Mapping[str, str], Mapping[str, str], str]]:
    """Of each proposal that was rejected in a cycle: the cycle, the parent, its texts, the parent's, and the reason."""
    texts = {each["id"]: each["texts"] for each in data["contexts"]}
    for proposal in data.get("rejected", ()):
        parent = proposal["parent"]
        yield data["cycle"], parent, proposal["texts"], texts.get(parent, {}), proposal["reason"]
    for edit in data["edits"]:
        if not edit["accepted"]:
            child, parent = edit["child"], edit["parent"]
            reason = edit.get("reason") or "the cycle ended before it was scored"
            yield data["cycle"], parent, texts.get(child, {}), texts.get(parent, {}), reason


@dataclass
class Branch:
    """A context in the tree: one line about it, then lines with their styles."""

    head: Text
    lines: list[tuple[str, str]] = field(default_factory=list)
    children: list[Branch] = field(default_factory=list)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        """Drawn line by line: rich's own tree takes a minute for thousands of contexts."""
        guides = ("|   ", "+-- ", "`-- ") if options.ascii_only else ("│   ", "├── ", "└── ")
        styles = {name: console.get_style(name) for name in ("none", "dim", "red", "green", "cyan")}

        def drawn(branch: Branch, first: str, rest: str) -> Iterator[Segment]:
            width = max(options.max_width - len(rest), NARROWEST)
            before = first
            for line in console.render_lines(branch.head, options.update(width=width), pad=False):
                yield from (Segment(before, styles["dim"]), *line, Segment.line())
                before = rest
            for text, style in branch.lines:
                for part in _wrapped(text, width):
                    yield from (Segment(before, styles["dim"]), Segment(part, styles[style]), Segment.line())
            for child in branch.children:
                last = child is branch.children[-1]
                yield from drawn(child, rest + guides[1 + last], rest + ("    " if last else guides[0]))

        yield from drawn(self, "", "")


def _wrapped(text: str, width: int) -> Iterator[str]:
    """The text in lines of at most so many cells, broken at spaces where it has some."""
    text = text.expandtabs()
    most = width if text.isascii() else width // 2  # a letter may take two cells
    while len(text) > most and cell_len(text) > width:
        space = text.rfind(" ", 1, most + 1)
        end = space if space > 0 else most
        yield text[:end]
        text = text[end:].removeprefix(" ")
    yield text


def _tree(members: Mapping[str, Member], shown: set[str], full: bool) -> Branch:
    tree = Branch(Text("contexts, by parent"))
    kept = [id for id in members if id in shown]
    children: dict[str | None, list[str]] = {}
    for id in kept:
        children.setdefault(_first_parent(members, id), []).append(id)
    drawn: set[str] = set()
    # A descendant can produce the text of its own ancestor, so not every tree has a root.
    for root in [*children.get(None, ()), *kept]:
        waiting: list[tuple[str, Branch, int]] = [(root, tree, 0)]
        while waiting:
            id, above, depth = waiting.pop()
            if id in drawn:
                continue
            drawn.add(id)
            branch = _branch(members, members[id], full)
            above.children.append(branch)
            below = (branch, depth + 1) if depth < DEEPEST else (above, depth)
            waiting += [(child, *below) for child in reversed(children.get(id, ()))]
    return tree


def _first_parent(members: Mapping[str, Member], id: str) -> str | None:
    return next((parent for parent in members[id].parents if parent in members), None)


def _branch(members: Mapping[str, Member], member: Member, full: bool) -> Branch:
    head = Text.assemble((member.id, "bold" if member.in_pool else "dim bold"), f"  born in cycle {member.born}")
    if member.score is not None:
        head.append(f", {_score(member.score, member.expected, member.drawn)} at step {member.scored_at}")
    if member.parents:
        head.append(f", from {' and '.join(member.parents)}")
    if member.best:
        head.append("  best", style="bold green")
    return Branch(head, [*_changes(members, member, full), *_reasons(member, full)])


def _score(score: float | None, expected: bool, drawn: Sequence[float] | None) -> str:
    return f"expected score {number(score)}" if expected and drawn is None else scored(score, drawn)


def _in_short(each: Mapping[str, Any], expected: bool) -> str:
    """A score in a table; where it is expected, beside the measured mean."""
    if not expected:
        return number(each["score"])
    mean, count = each.get("drawn") or (0.0, 0)
    return number(each["score"]) + (f" ({number(float(mean))} of {count:,})" if count else "")


def _changes(members: Mapping[str, Member], member: Member, full: bool) -> Iterator[tuple[str, str]]:
    """The difference from the parent's text; without a parent, the whole text."""
    parent = _first_parent(members, member.id)
    before = members[parent].texts if parent is not None else {}
    lines = [line for name, text in member.texts.items() for line in _diff(name, before.get(name, ""), text)]
    shown = lines if full else lines[:SHOWN_CHANGES]
    yield from shown
    if len(shown) < len(lines):
        yield f"… {len(lines) - len(shown)} more lines", "dim"


def _diff(component: str, before: str, after: str) -> Iterator[tuple[str, str]]:
    """The lines that were removed and added. Lines are compared as wholes: to compare their letters takes minutes for
    thousands of rewritten contexts."""
    old, new = _lines(before), _lines(after)
    if old == new:
        return
    yield f"[{printable(component)}]", "dim"
    for kind, start, end, first, last in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind != "equal":
            yield from ((f"- {line}", "red") for line in old[start:end])
            yield from ((f"+ {line}", "green") for line in new[first:last])


@cache
def _lines(text: str) -> list[str]:
    return printable(text).splitlines()


def _reasons(member: Member, full: bool) -> Iterator[tuple[str, str]]:
    for edit in member.edits if full else member.edits[:1]:
        if edit.get("after") is None and member.expected:  # its feedback would be the lines again
            yield f"edit of {edit['component']}: the lines that all rollouts so far speak for", "cyan"
            continue
        gain = (
            ""
            if edit.get("after") is None
            else f"{number(edit['before'])} -> {number(edit['after'])} on the minibatch; "
        )
        said = [
            f"edit of {edit['component']}: {gain}{edit.get('reason') or 'accepted'}",
            *filter(str.strip, edit.get("feedback") or []),
        ]
        reason, *feedback = printable("\n".join(" ".join(text.split()) for text in said)).split("\n")
        yield reason, "cyan"
        for line in feedback if full else feedback[:SHOWN_FEEDBACK]:
            yield f"  feedback: {line if full else one_line(line, FEEDBACK_WIDTH)}", "dim"


@dataclass
class Judged:
    """A line with its numbers by name."""

    text: Text
    numbers: dict[str, str]


def _judged_lines(
    judged: Iterable[dict[str, Any]], best: Member | None, used: Mapping[str, Use], full: bool
) -> list[Judged]:
    """The lines of the best text, or all that were judged: how often each was in play and followed, and where the optimizer
    judges lines, what it brings on the problems it is about, and in what share of the answers the grader did not complain."""
    judged = sorted(judged, key=lambda each: -each["effect"])
    written = {line_key(line): line for text in best.texts.values() for line in _lines(text)} if best else {}
    effects = {line_key(each["line"]): each for each in judged}
    counts = {line_key(line): use for line, use in used.items()}
    rest = [key for key in written if key and key not in effects and key in counts]
    found = []
    for key in [*(key for key in effects if full or key in written), *rest]:
        numbers: dict[str, str] = {}
        if used:
            use = counts.get(key)
            shown = (_of(use.in_play, use.written), _of(use.followed, use.about)) if use else ("–", "–")
            numbers |= dict(zip(("in play", "followed"), shown, strict=True))
        if judged:
            cells = _effect_cells(effects[key]) if key in effects else ["–"] * len(EFFECT)
            numbers |= dict(zip(EFFECT, cells, strict=True))
        text = written.get(key) or printable(effects[key]["line"])
        found.append(Judged(Text(text, style="green" if full and key in written else ""), numbers))
    return found


def _show_lines(lines: Sequence[Judged], console: Console, title: str) -> None:
    """Numbers stand beside the lines where there is room for both, else below each line."""
    names = list(lines[0].numbers) if lines else []
    needed = sum(
        2 + max(cell_len(word) for word in [*name.split(), *(each.numbers[name] for each in lines)]) for name in names
    )
    room = console.width - needed - 2
    longest = max((cell_len(each.text.plain) for each in lines), default=0)
    if room >= min(longest, READABLE):
        table = Table(title=title, title_justify="left", box=None, padding=(0, 2, 0, 0))
        table.add_column("line", min_width=min(longest, room), overflow="fold")
        for name in names:
            table.add_column(name, justify="right")
        for each in lines:
            table.add_row(each.text, *each.numbers.values())
        console.print(table)
        return
    console.print(Text(title, style="italic"))
    for each in lines:
        console.print(each.text)
        numbers = ", ".join(f"{name} {cell}" for name, cell in each.numbers.items() if cell != "–")
        console.print(Text(f"    {numbers or 'no numbers yet'}", style="dim"))


def _of(part: int, whole: int) -> str:
    return f"{part} of {whole}" if whole else "–"


def _effect_cells(each: Mapping[str, Any]) -> list[str]:
    kept = f"{each['kept']:.2f} ({each['kept_without']:.2f})" if each.get("kept") is not None else "–"
    return [f"{each['effect']:+.2f}", f"{each['deviation']:.2f}", f"{each['problems']}", kept]


def _table(cycles: Sequence[dict[str, Any]]) -> Table:
    expected = any(is_expected(each, data) for data in cycles for each in data["population"])
    title = "population by cycle" + ("; scores are expected (measured of rollouts)" if expected else "")
    table = Table(title=title, title_justify="left", box=None, padding=(0, 1, 0, 0))
    for name in ("cycle", "policy\nstep", "contexts, best first", "edits\naccepted", "genera-\ntions", "rollouts"):
        table.add_column(name, justify="left" if name.startswith("contexts") else "right")
    for data in cycles:
        best, active = data.get("best"), data.get("active", ())
        population = Text()
        for each in sorted(data["population"], key=lambda each: (each["id"] != best, -(each["score"] or 0.0))):
            marks = ("  best" if each["id"] == best else "") + ("" if each["id"] in active else "  not in use")
            line = f"{each['id']}  {_in_short(each, is_expected(each, data))}{marks}"
            population.append(("\n" if population else "") + line, style="green" if each["id"] == best else "")
        edits = data.get("edits", ())
        spent = sum(entry.get("rollouts", 0) for entry in data.get("spent", {}).values())
        table.add_row(
            str(data["cycle"]),
            str(data["policy_step"]),
            population,
            f"{sum(edit['accepted'] for edit in edits)} of {len(edits)}",
            number(data.get("generations")),
            number(spent),
        )
    return table
