"""What was played and what the grader said, kept from cycle to cycle; `read` makes statements of it.

A grader often says two things in one line: what was wrong with this answer, and the rule. So its lines are kept as *parts*
(sentences, and what stands before a colon), and parts that were always said together are one statement. As more is heard,
statements come apart where the grader joins the same rule to other words.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from fastslow.base.errors import RunError
from fastslow.fast.digest.classes import LEFT_OUT, QUOTED, Variant, cut, generalized, states_something
from fastslow.fast.digest.examples import is_right, naming
from fastslow.fast.digest.facts import approvals, cases, facts, refusals, verdicts
from fastslow.fast.digest.journal import Journal, Row, Said, component_of, key_of
from fastslow.fast.digest.reading import label_words, parts_of_texts
from fastslow.fast.digest.topics import Topics, restatements, word_list, words_of

MOST_ROWS = 1500
"""Rollouts that are kept from cycle to cycle, the latest; of what was said earlier, the latest `LAST_SAID` of each part."""
LAST_SAID = 2
MOST_LED = 4
"""Statements that share what stands before their colon, up to which it is part of them."""
MOST_STATEMENTS = 2000
"""Statements that are weighed: those of the texts, then those made of most problems, of these the latest."""
LEAST_BEGUN, MOST_ALIKE, MOST_LEFT_OUT = 12, 16, 2
"""Characters that a part begins with, as do at most so many others, before the first of so few quotations that it lacks."""
FIELDS = {"keys", "words", "labels", "parts", "declared", "examples", "rows"}
"""What a transcript is saved as."""

_QUOTED = re.compile(QUOTED)


@dataclass(frozen=True)
class Graded:
    """One rollout: the parts of its context and, by line, the parts of what the grader said."""

    problem: str
    parts: frozenset[str]
    tokens: int
    """How much longer the context is than the base text."""
    score: float
    cycle: int
    said: tuple[tuple[str, ...], ...] = ()
    again: tuple[str, ...] | None = None
    """What was said of the answer that was tried again, if one was: nothing is learnt of lines then."""


@dataclass
class Classes:
    """What was said, by class."""

    of: dict[str, str]
    """By part: the key of its class, which is its own where its values are part of it."""
    parts: dict[str, Said]
    lines: list[list[list[str]]]
    """For every rollout, the classes of the parts of each line."""


class Transcript:
    """All graded rollouts, and the lines that somebody else than the grader wrote."""

    def __init__(self) -> None:
        self.rows: list[Graded] = []
        self.parts: dict[str, Said] = {}
        self.words: dict[str, frozenset[str]] = {}
        """The words of every problem's question."""
        self.labels: set[str] = set()
        """Words of answers so short that they may be labels."""
        self.declared: dict[str, tuple[str, frozenset[str]]] = {}
        """By key: a line that the grader did not say, and the parts that it stands for."""
        self.examples: dict[str, str] = {}
        """By key: the problem that an example in a text shows the answer to."""
        self._read_at = -1
        self._known: tuple[Classes, dict[tuple[str, ...], Said]]

    def add(self, row: Graded, said: Iterable[Said] = (), question: str = "", answer: str = "") -> None:
        self.rows.append(row)
        if row.problem not in self.words:
            self.words[row.problem] = words_of(question)
        self.labels |= label_words(answer)
        self.parts |= {each.key: each for each in said if each.key not in self.parts}

    def declare(self, key: str, text: str, covers: frozenset[str] = frozenset()) -> None:
        """Enter a line that the grader did not say: one of the text that the run began with, or one that a model wrote."""
        self.declared.setdefault(key, (text, covers))

    def withdraw(self, key: str) -> None:
        """Take back an example."""
        del self.declared[key], self.examples[key]

    def to_data(self) -> dict[str, Any]:
        """As JSON can hold it: keys are written once and referred to by number."""
        rows = self._latest()
        said = {part for row in rows for line in (*row.said, row.again or ()) for part in line}
        covered = {key for _, covers in self.declared.values() for key in covers}
        keys = list(dict.fromkeys([*self.parts, *sorted(said.union(covered, *(row.parts for row in rows)))]))
        number = {key: index for index, key in enumerate(keys)}
        kept = [each for each in self.parts.values() if each.key in said | covered]
        # Of a question only the words that some part has too can matter.
        vocabulary = frozenset().union(*(words_of(each.text) for each in kept))
        return {
            "keys": keys,
            "words": {
                problem: sorted(self.words[problem] & vocabulary)
                for problem in dict.fromkeys(row.problem for row in rows)
            },
            "labels": sorted(self.labels & vocabulary),
            "parts": [[number[each.key], each.text] for each in kept],
            "declared": [
                [key, text, sorted(number[part] for part in covers)] for key, (text, covers) in self.declared.items()
            ],
            "examples": self.examples,
            "rows": [
                [
                    row.problem,
                    sorted(number[part] for part in row.parts),
                    row.tokens,
                    row.score,
                    row.cycle,
                    [[number[part] for part in line] for line in row.said],
                    *([] if row.again is None else [[number[part] for part in row.again]]),
                ]
                for row in rows
            ],
        }

    def forget(self) -> None:
        """Drop evidence that has aged beyond use."""
        self.rows, self._read_at = self._latest(), -1

    def restart(self) -> None:
        """Drop all that was drawn: the program around the texts is another one now."""
        self.rows, self._read_at = [], -1

    def _latest(self) -> list[Graded]:
        """The rows to keep: a line that works is not said any more, and must not be forgotten for it."""
        recent, left = self.rows[-MOST_ROWS:], Counter[str]()
        if len(recent) == len(self.rows):
            return recent
        kept, of = [], self._statements()[0].of
        texts = frozenset().union(*(row.parts for row in recent))
        for row in reversed(self.rows[:-MOST_ROWS]):
            said = {of.get(part, part) for line in row.said for part in line} & texts
            if any(left[part] < LAST_SAID for part in said):
                left.update(said)
                kept.append(row)
        return [*reversed(kept), *recent]

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Transcript:
        if missing := FIELDS - data.keys():
            raise RunError(
                f"the notes of fast.optimizer=digest in this run lack {', '.join(sorted(missing))}: another version of "
                "fastslow wrote them; resume with that version, or start a new run"
            )
        found, keys = cls(), data["keys"]
        found.words = {problem: frozenset(words) for problem, words in data["words"].items()}
        found.labels = set(data["labels"])
        found.parts = {keys[index]: Said(keys[index], text) for index, text in data["parts"]}
        found.declared = {
            key: (text, frozenset(keys[each] for each in covers)) for key, text, covers in data["declared"]
        }
        found.examples = dict(data["examples"])
        found.rows = [
            Graded(
                *(problem, frozenset(keys[each] for each in parts), tokens, score, cycle),
                tuple(tuple(keys[each] for each in line) for line in said),
                tuple(keys[part] for part in again[0]) if again else None,
            )
            for problem, parts, tokens, score, cycle, said, *again in data["rows"]
        ]
        return found

    def read(self) -> Journal:
        """The statements that all of it comes to."""
        classes, statements = self._statements()
        framed = frames(statements.values(), self._labels(Topics(self.words)))
        by_key = {each.key: each for each in statements.values()}
        first = restatements({key: each.text for key, each in by_key.items()}, framed)
        statements = {parts: by_key[first.get(each.key, each.key)] for parts, each in statements.items()}
        made: dict[str, list[frozenset[str]]] = {}
        for parts, each in statements.items():
            made.setdefault(each.key, []).append(frozenset(parts))
        for key, (text, _) in self.declared.items():
            made.setdefault(key, [parts_of_texts({component_of(key): text})])
        of_part = {part: each for parts, each in statements.items() for part in parts}
        journal = Journal()
        journal.words, journal.examples = dict(self.words), frozenset(self.examples)
        journal.right = frozenset(key for key in self.examples if is_right(self.declared[key][0]))
        for key, frame in framed.items():
            journal.frames.setdefault(first.get(key, key), []).append(frame)
        for key, (text, covers) in self.declared.items():
            covered = {classes.of.get(part, part) for part in covers}
            journal.declare(key, text, frozenset(of_part[part].key for part in covered if part in of_part))
        held: dict[frozenset[str], frozenset[str]] = {}
        for row, lines in zip(self.rows, classes.lines, strict=True):
            if row.parts not in held:
                there = row.parts | {classes.of[part] for part in row.parts & classes.of.keys()}
                held[row.parts] = frozenset(key for key, ways in made.items() if any(parts <= there for parts in ways))
            said = dict.fromkeys(of_part[part] for line in lines for part in line if part in of_part)
            keys = tuple(each.key for each in said)
            before = row.again
            if before is not None:
                named = dict.fromkeys(classes.of.get(part, part) for part in before)
                before = tuple(dict.fromkeys(of_part[part].key for part in named if part in of_part))
            journal.add(Row(row.problem, held[row.parts], row.tokens, row.score, row.cycle, keys, before), said)
        self._shown(journal)
        return journal

    def _shown(self, journal: Journal) -> None:
        """An example shows what was said of its problem, what is about the topics of its question, and what names something
        of its answer."""
        topics = Topics(journal.words if self.examples else {})
        named = naming(journal.statements.values(), self.labels) if self.examples else {}
        for key, problem in self.examples.items():
            found = journal.statements[key]
            found.covers |= {
                each.key
                for each in journal.statements.values()
                if component_of(each.key) == component_of(key)
                and (
                    problem in each.problems
                    or problem in topics.matching(topics.shared(words_of(each.text), frozenset(each.problems)))
                )
            }
            for word in words_of(found.text) - self.words.get(problem, frozenset()) if key in journal.right else ():
                found.covers |= named.get(word, frozenset())

    def parts_in(self, keys: Iterable[str]) -> frozenset[str]:
        """The parts of which statements with these keys are made."""
        wanted = set(keys)
        classes, statements = self._statements()
        found = {part for parts, each in statements.items() if each.key in wanted for part in parts}
        return frozenset(part for part in self.parts if classes.of.get(part, part) in found)

    def statements_in(self, lines: Iterable[Sequence[Said]]) -> tuple[str, ...]:
        """The keys of the statements that lines of a feedback make, as far as they are known."""
        classes, statements = self._statements()
        of_part = {part: each.key for parts, each in statements.items() for part in parts}
        found = (of_part.get(classes.of.get(part.key, part.key)) for line in lines for part in line)
        return tuple(dict.fromkeys(key for key in found if key))

    def _classes(self, topics: Topics) -> Classes:
        """What was said with the values of single problems left out."""
        problems: dict[tuple[str, str], Counter[str]] = {}
        for row in self.rows:
            for line in row.said:
                for lead, part in zip(("", *line), line, strict=False):
                    said = lead if lead and self.parts[lead].text.endswith(":") else "", part
                    problems.setdefault(said, Counter())[row.problem] += 1
        texts, empty = generalized(
            [self._cut(said, of, topics) for said, of in problems.items() if not said[0]], problems
        )
        # What follows a lead is alike where its lead is: "orders[0].date:" and "orders[3].date:" are one.
        leads = {part: texts.get(("", part), self.parts[part].text) for _, part in problems}
        follow = [self._cut(said, of, topics, leads.get(said[0], "")) for said, of in problems.items() if said[0]]
        more, hollow = generalized(follow, problems)
        texts, empty = texts | more, empty | hollow
        found = Classes({}, {}, [])
        for pair in problems:
            whole = self.parts[pair[1]]
            classed = _said(component_of(whole.key), texts[pair]) if pair in texts else whole
            lead = leads.get(pair[0], "") if _QUOTED.search(classed.text) else ""
            if pair in empty or not (states_something(f"{lead} {classed.text}") or classed.text.endswith(":")):
                continue
            found.of[whole.key] = classed.key
            found.parts[classed.key] = classed
        times: Counter[str] = Counter()
        for (_, part), of in problems.items():
            times[found.of.get(part, "")] += len(of)
        same = wholes(found.parts, times)
        found.of = {part: same.get(key, key) for part, key in found.of.items()}
        found.parts = {key: part for key, part in found.parts.items() if key not in same}
        for row in self.rows:
            found.lines.append([[found.of[part] for part in line if part in found.of] for line in row.said])
        return found

    def _cut(self, said: tuple[str, str], problems: Mapping[str, int], topics: Topics, lead: str = "") -> Variant:
        def names(word: str) -> bool:
            spelled = word_list(word)
            return all(each in topics.rarity and all(each in self.words[p] for p in problems) for each in spelled)

        part = self.parts[said[1]]
        return cut(said, (component_of(part.key), lead), part.text, names)

    def _statements(self) -> tuple[Classes, dict[tuple[str, ...], Said]]:
        """By the parts it is made of: every statement that may stand in a text; and the classes of all that was said."""
        if self._read_at == len(self.rows):
            return self._known
        topics = Topics(self.words)
        classes = self._classes(topics)
        found: dict[tuple[str, ...], Said] = {}
        problems = {part: Counter[str]() for part in classes.parts}
        rows = {part: set[int]() for part in classes.parts}
        lines = [line for each in classes.lines for line in each]
        led = leads_of(lines, {key for key, part in classes.parts.items() if part.text.endswith(":")})
        for parts in chains(lines):
            text = " ".join(classes.parts[part].text for part in (*led.get(parts[0], ()), *parts))
            if not text.endswith(":") and states_something(text):  # what only leads on to something is no statement
                found[parts] = _said(component_of(parts[0]), text)
        for number, (row, said_of) in enumerate(zip(self.rows, classes.lines, strict=True)):
            for part in itertools.chain(*said_of):
                problems[part][row.problem] += 1
                rows[part].add(number)
        said = problems | {each.key: problems[parts[0]] for parts, each in found.items()}
        framed = frames([*classes.parts.values(), *found.values()], self._labels(topics))
        passed_over = verdicts(said, framed, topics)
        passed_over |= facts({each.key: (each.text, rows[parts[0]]) for parts, each in found.items()})
        right = {number for number, row in enumerate(self.rows) if row.score >= 1}
        wrong = {number for number, row in enumerate(self.rows) if row.score < 1 and row.said}
        made = {each.key: rows[parts[0]] for parts, each in found.items()}
        parts_of = {each.key: frozenset(parts) for parts, each in found.items()}

        def held(key: str) -> set[int]:
            return {number for number in wrong if parts_of[key] <= self.rows[number].parts}

        passed_over |= approvals(made, right, wrong) | refusals(made, wrong, held)
        first = {parts[0]: each.key for parts, each in found.items()}
        spelled = {each.key: each.text for each in found.values()}
        heard = [[[first.get(classes.of.get(part, ""), "") for part in line] for line in row.said] for row in self.rows]
        passed_over |= cases(spelled, heard)
        kept = {parts: each for parts, each in found.items() if each.key not in passed_over}
        if len(kept) > MOST_STATEMENTS:
            texts = frozenset().union(*(row.parts for row in self.rows))
            rank = {parts: (parts[0] in texts, len(problems[parts[0]])) for parts in kept}
            weighed = set(sorted(kept, key=lambda parts: rank[parts])[-MOST_STATEMENTS:])
            kept = {parts: each for parts, each in kept.items() if parts in weighed}
        self._read_at, self._known = len(self.rows), (classes, kept)
        return self._known

    def _labels(self, topics: Topics) -> frozenset[str]:
        """Words of short answers, without those that tell problems apart."""
        return frozenset(self.labels) - topics.rarity.keys()


def _said(component: str, text: str) -> Said:
    return Said(key_of(component, text), text)


def wholes(parts: Mapping[str, Said], times: Mapping[str, int]) -> dict[str, str]:
    """By key of a part in which a quotation of the answer was left out: the one that says the same with it, and was made more
    often. An answer may have what a rule names."""
    begun: dict[tuple[str, str], list[Said]] = {}
    for each in parts.values():
        if LEFT_OUT not in each.text:
            begun.setdefault((component_of(each.key), each.text[:LEAST_BEGUN]), []).append(each)
    found = {}
    for each in parts.values():
        beginning = each.text.partition(LEFT_OUT)[0]
        alike = begun.get((component_of(each.key), beginning[:LEAST_BEGUN]), ())
        lacks = each.text.count(LEFT_OUT)
        if not 0 < lacks <= MOST_LEFT_OUT or len(beginning) < LEAST_BEGUN or len(alike) > MOST_ALIKE:
            continue
        pattern = re.compile(".+".join(map(re.escape, each.text.split(LEFT_OUT))))
        fitting = [other.key for other in alike if pattern.fullmatch(other.text)]
        if len(fitting) == 1 and times[fitting[0]] > times[each.key]:
            found[each.key] = fitting[0]
    return found


def chains(lines: Iterable[Sequence[str]]) -> list[tuple[str, ...]]:
    """Parts that were always said one after the other, put together."""
    times: Counter[str] = Counter()
    joined: Counter[tuple[str, str]] = Counter()
    for line in lines:
        times.update(line)
        joined.update(itertools.pairwise(line))
    after = {one: other for (one, other), count in joined.items() if count == times[one] == times[other]}
    found = []
    for part in times.keys() - after.values():
        chain = [part]
        while chain[-1] in after:
            chain.append(after[chain[-1]])
        found.append(tuple(chain))
    order = {part: place for place, part in enumerate(times)}
    return sorted(found, key=lambda chain: order[chain[0]])


def leads_of(lines: Iterable[Sequence[str]], leads: Set[str]) -> dict[str, tuple[str, ...]]:
    """What stands before a colon, by the part that always follows it, where few others follow it too: "date:" of two rules
    about dates. What many follow says nothing of them."""
    before: dict[str, set[str]] = {}
    after: dict[str, set[str]] = {}
    for line in lines:
        for lead, part in zip(("", *line), line, strict=False):
            before.setdefault(part, set()).add(lead)
            after.setdefault(lead, set()).add(part)
    return {
        part: tuple(found)
        for part, found in before.items()
        if len(found) == 1 and found <= leads and 1 < len(after[next(iter(found))]) <= MOST_LED
    }


def frames(said: Iterable[Said], labels: frozenset[str]) -> dict[str, tuple[str, ...]]:
    """By key, the words of every statement that names a label, with an empty word for each label. Statements with one frame
    say the same but for the labels."""
    found = {}
    for each in said:
        words = word_list(each.text)
        if not labels.isdisjoint(words):
            found[each.key] = (component_of(each.key), *("" if word in labels else word for word in words))
    return found
