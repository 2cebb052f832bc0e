"""From single cases to their class: statements that are alike but for the values of single problems become one.

A grader names what the problem at hand has: "parcel 4711 goes to amber", "date: expected '2026-03-07', got '7 March'".
Numbers, quoted values and names of the question are *values*. Statements with the same words around them are of one *frame*.
Where most of them were made of one problem each, the values that vary are left out, or replaced by the form that they have in
common; what says nothing without them is no rule.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from fastslow.fast.digest.topics import word_list

VARIANTS = 4
"""A sentence that is said with this many different values in it may be about single problems."""
SELDOM = 2
"""Problems that one variant of it is made of at the most; what is said of more is a rule with a number in it."""
MANY = 8
"""Variants from which a sentence is about single problems, of however many each is made, if their questions have its values:
a rule for some of these values would not be said with so many. For other values that many allow one problem more."""
FEW = 3
"""A value that one in this many variants shares is part of the rule."""
LEFT_OUT = "…"
Said = tuple[str, str]
"""The key of a part, after that of the one before it where that leads on to it."""

# No alternative reads on beyond the place where the next quotation could begin, so that all of a text is read once.
OPENING, CLOSING = "\"'“`„«「", "\"'”`“»」"
QUOTED = (
    r"\"[^\"]*+\"|„[^„“”]*+[“”]|“[^“”]*+”|«[^«»]*+»|「[^「」]*+」|`[^`]*+`"
    r"|(?<!\w)'(?:[^']|(?<=\w)'(?=\w))*+'(?!\w)"
)
_NAME = r"\b[A-Z](?:[\w-]|'(?!s\b))*"
_VALUE = re.compile(
    rf"({QUOTED}|\b(?=[a-fx]*\d)(?:0x)?[0-9a-f]{{8,}}(?:-[0-9a-f]{{4,}})*\b|(?<!\w)[-+]?\d[\d.,:/%-]*(?:T\d[\d.:]*Z?)?(?<![.,:])"
    r"|(?<=\bexpected )(?P<wanted>[^\s,;]+)(?=[,;]? (?:but )?(?:got|found|not|was|received|instead)\b)"
    rf"|(?<!^)(?<![.:!?]\s){_NAME}(?:\s(?:&\s)?{_NAME})*|{_NAME})"
)
_WORD = re.compile(r"\w+")
_EXPECTED = re.compile(r"(?i)\b(?:expect|want)(?:ed)?\b")
EMPTY = frozenset(
    re.findall(
        r"\w+",
        """a an the this that these those it its is are was were be been being to of in on at by for from with and or but not
        no as you your i we they he she must should shall will would can could may do does did have has had here there so than
        then wrong right correct incorrect false true error failed fail passed pass expected got given answer answered value
        result output well done good bad great yes ok okay instead rather go goes went one score points try again sorry
        returned assertionerror assertion assert test tests ran failure failures check checks
        total overall grade rating verdict assessment question fine excellent perfect f s""",
    )
)
"""Words that state no rule by themselves."""


@dataclass(frozen=True)
class Variant:
    """A statement cut at its values."""

    key: Said
    frame: tuple[str, ...]
    values: tuple[str, ...]
    owned: tuple[bool, ...] = ()
    """Which of them the problems have."""

    @property
    def own(self) -> bool:
        """Whether the problems have all of them that are left."""
        left = [own for own, value in zip(self.owned, self.values, strict=True) if LEFT_OUT not in value]
        return bool(left) and all(left)


def states_something(text: str) -> bool:
    """Whether anything but a verdict is left of a statement without its values. What has no Latin words is trusted."""
    words = [word for word in word_list(text) if not word.isdigit()]
    return not words or any(word not in EMPTY and f"{word}s" not in EMPTY for word in words)


def cut(said: Said, before: tuple[str, ...], text: str, names: Callable[[str], bool]) -> Variant:
    """Cut what was said at its values. `before` is what it follows; `names` says whether a word is one that
    the problems it was said of have, and few others."""
    frame, values, literal, end = [""], [], "", 0
    for match in _VALUE.finditer(text):
        value = match[0]
        if value[0].isupper() and not match["wanted"] and not names(value):
            continue
        literal += text[end : match.start()]
        frame.append(literal)
        values.append(value)
        literal, end = "", match.end()
    frame.append(literal + text[end:])
    frame[0] = "\n".join(before)
    owned = (any(map(names, _WORD.findall(value))) for value in values)
    return Variant(said, tuple(frame), tuple(values), tuple(owned))


def generalized(
    variants: Iterable[Variant], problems: Mapping[Said, Mapping[str, int]]
) -> tuple[dict[Said, str], frozenset[Said]]:
    """By key, the text of the class for statements about single problems; and the keys of those that say nothing without
    their values. `problems` has, by key, how often a statement was made of each problem."""
    families: dict[tuple[str, ...], list[Variant]] = {}
    for each in variants:
        if each.values:
            families.setdefault(each.frame, []).append(each)
    texts: dict[Said, str] = {}
    empty: set[Said] = set()
    for frame, members in families.items():
        own = sum(each.own for each in members) >= MANY and not _is_looked_up(frame, families)
        most = max(SELDOM, len(members) // MANY)
        single = [each for each in members if len(problems[each.key]) <= most or (own and each.own)]
        shorter = [each for each in members if any(LEFT_OUT in value for value in each.values)][:VARIANTS]
        texts |= {each.key: _joined(frame, [less]) for each in single if (less := _without(each, shorter))}
        if len(members) < VARIANTS or 2 * len(single) <= len(members):
            continue
        for group in _groups(single):
            if len(frozenset().union(*(problems[each.key] for each in group))) < 2:
                continue
            text = _joined(frame, group)
            if states_something(text.replace(LEFT_OUT, " ")) and _has_content(frame, text):
                texts |= {each.key: text for each in group}
            else:
                empty |= {each.key for each in group}
    return texts, frozenset(empty)


def _is_looked_up(frame: tuple[str, ...], families: Mapping[tuple[str, ...], Sequence[Variant]]) -> bool:
    """Whether the values decide what is right: a sentence that differs in a word or two is said with others of them, and with
    none of these."""
    words, named = word_list(" ".join(frame[1:])), {each.values for each in families[frame]}
    for other, members in families.items():
        like = len(other) == len(frame) and other[0] == frame[0] and other != frame
        if not like or named & {each.values for each in members}:
            continue
        others = word_list(" ".join(other[1:]))
        same_length = len(others) == len(words) and any(each.own for each in members)
        if same_length and sum(a != b for a, b in zip(words, others, strict=True)) <= min(2, len(words) // 3):
            return True
    return False


def _without(one: Variant, shorter: Sequence[Variant]) -> Variant | None:
    """The same statement with a value left out, if it is among these."""
    for each in shorter:
        pairs = list(zip(each.values, one.values, strict=True))
        if each is not one and all(LEFT_OUT in less or less == value for less, value in pairs):
            return each
    return None


def _groups(members: Sequence[Variant]) -> list[list[Variant]]:
    """Variants that share the values that few of them differ in, of which those that fewest differ in come first. What one
    problem has is shared if it tells something else; and where it is told of what a value was expected, that is of one case,
    or of all."""
    lead = members[0].frame[0].partition("\n")[2]
    literals = itertools.accumulate(members[0].frame[1:-1])
    places = [place for place, before in enumerate(literals) if not _EXPECTED.search(lead + before, 1)]
    distinct = {place: len({each.values[place] for each in members}) for place in places}
    groups = [0] * len(members)
    for place in sorted(places, key=distinct.__getitem__):
        if FEW * distinct[place] > len(members) or not (distinct[place] == 1 or _tells(members, place)):
            continue
        finer = list(zip(groups, (each.values[place] for each in members), strict=True))
        number = {pair: index for index, pair in enumerate(dict.fromkeys(finer))}
        if FEW * len(number) <= len(members):
            groups = [number[pair] for pair in finer]
    found: dict[int, list[Variant]] = {}
    for each, group in zip(members, groups, strict=True):
        found.setdefault(group, []).append(each)
    return list(found.values())


def _tells(members: Sequence[Variant], place: int) -> bool:
    """Whether a value is not the problems' own, or the rest is more alike among variants that share it."""
    if 2 * sum(each.owned[place] for each in members) <= len(members):
        return True
    sharing: dict[str, list[Variant]] = {}
    for each in members:
        without = replace(each, values=(*each.values[:place], LEFT_OUT, *each.values[place + 1 :]))
        sharing.setdefault(each.values[place], []).append(without)
    several = [group for group in sharing.values() if len(group) >= FEW]
    whole = _joined(members[0].frame, list(itertools.chain(*sharing.values())))
    return 2 * sum(_joined(members[0].frame, group) != whole for group in several) > len(several)


def _joined(frame: tuple[str, ...], group: Sequence[Variant]) -> str:
    """The sentence with the values that the group shares; others are left out, or described."""
    columns = list(zip(*(each.values for each in group), strict=True))
    text, described = frame[1], False
    for place, literal in enumerate(frame[2:]):
        values = columns[place]
        common, times = Counter(values).most_common(1)[0]
        if times == len(values):
            shown = common
        else:  # what was wanted comes first
            rest = [] if described else [value for column in columns[place + 1 :] for value in column]
            shown, described = _described(values, rest), True
        text += shown + literal
    return text


def _has_content(frame: tuple[str, ...], text: str) -> bool:
    """A value that ends a short sentence was all it had to say, unless it stayed or its form is told."""
    literal = "".join(frame[1:])
    told = len(text.replace(LEFT_OUT, "").strip("'\"`. ")) > len(literal.strip("'\"`. "))
    lead = frame[0].partition("\n")[2]
    own, before = (len([word for word in word_list(each) if word not in EMPTY]) for each in (literal, lead))
    return told or own >= 2 or (own == 1 and before > 0)


def _described(values: Sequence[str], others: Sequence[str]) -> str:
    """What values have in common that others do not, in quotation marks where they were quoted; else a mark that something
    was left out."""
    if form := _form([_bare(each) for each in values], [_bare(each) for each in others]):
        return f"({form})"
    return LEFT_OUT if _bare(values[0]) == values[0] else f"{values[0][0]}{LEFT_OUT}{values[0][-1]}"


def _bare(value: str) -> str:
    return value[1:-1] if len(value) > 1 and not value[0].isalnum() and value[0] not in "+-" else value


FORMS: tuple[tuple[str, Callable[[str], bool]], ...] = (
    ("in capital letters", lambda value: value.isupper() and sum(map(str.isalpha, value)) > 1),
    ("in lower case", lambda value: value.islower() and sum(map(str.isalpha, value)) > 1),
    ("with two decimals", lambda value: re.fullmatch(r"[-+]?[\d,' ]*\d\.\d\d", value) is not None),
    ("digits only", str.isdigit),
    ("without spaces", lambda value: " " not in value),
)
LEAST_VALUES = 3
"""Different values from which a common form is read."""


def _form(values: Sequence[str], others: Sequence[str]) -> str:
    """A form that all of the values have and most of the others do not: a pattern of digits and signs, a property of the
    spelling, or a common beginning or end."""
    if len(set(values)) < LEAST_VALUES or not others:
        return ""
    found = []
    patterns = {re.sub(r"\d", "0", value) for value in values}
    if len(patterns) == 1 and not any(re.sub(r"\d", "0", value) in patterns for value in others):
        pattern = patterns.pop()
        if re.search(r"[^\w\s]", pattern) and not re.search(r"[^\W\d_]{2}", pattern):
            return f"in the form {pattern}, 0 for any digit"
    for name, holds in FORMS:
        if all(map(holds, values)) and 2 * sum(map(holds, others)) < len(others):
            found.append(name)
    for name, of in (("beginning with", _start), ("ending in", _end)):
        affix = of(values)
        if affix and not affix.isdigit() and 2 * sum(of([value, affix]) == affix for value in others) < len(others):
            found.append(f'{name} "{affix}"')
    return ", ".join(found[:2])


def _start(values: Sequence[str]) -> str:
    first, last = min(values), max(values)
    size = next(
        (place for place, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last))
    )
    return first[:size]


def _end(values: Sequence[str]) -> str:
    return _start([value[::-1] for value in values])[::-1]
