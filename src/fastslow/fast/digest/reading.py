"""What a grader said of an answer, as the parts of its lines: sentences, and what stands before a colon.

What stands there of this one answer or problem is left out: lines and values of the answer, quotations of the question, and
what test runners, compilers and validators say beside their message.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Container, Mapping, Sequence

from fastslow.fast.digest.classes import CLOSING, LEFT_OUT, OPENING, QUOTED
from fastslow.fast.digest.journal import Said, key_of
from fastslow.fast.digest.reports import has_full_marks, told
from fastslow.fast.digest.topics import word_list

MOST_SAID, LONGEST_PART = 32, 1000
"""Parts of one feedback that are read, and their characters: a longer one is no rule."""
LONGEST_LABEL = 3
"""Words of an answer that may be one of a few labels."""
LONG_QUOTATION = 4
"""Words of the question that a grader quotes to say which problem it means."""
FEWEST_COPIED = 3
"""Words of the answer that a part of a line is when it only repeats it."""
MOST_COPIES = 32
"""Lines of an answer that a line of the feedback may repeat."""
LEAST_QUOTED, LONGEST_ANSWER = 4, 20_000
"""Characters of the answer that are a quotation, and of an answer that is looked through for quotations."""
MOST_MARKS, NEAR = 16, 16
"""Quotation marks of a line that may begin or end one, and the characters before it that may say that it was wanted."""

BRACED = "\ue000"
"""Stands for each character between braces: what JSON quotes there is no quotation."""

FULL_LINE = 40
"""Characters of a line from which its sentence may go on in the next."""

_BROKEN, _ENDED = re.compile(r"[a-z,]$"), re.compile(r"[.!?](?:\s|$)")
_BETWEEN_PARTS = re.compile(
    r"(?<=[.!?;:؟।])\s+|(?<=[。！？；])\s*+(?=\S)|(?<=\S)\s++(?=(?:\(\d{1,2}\)|•)\s)|(?<=\S)\s++(?=[–—]\s)"
)
_QUOTED = re.compile(QUOTED)
_OPENING = re.compile(rf"(?<!\w)[{OPENING}]")
_CLOSED = dict(zip(OPENING, CLOSING, strict=True))
_SEVERAL = re.compile(r"\W")
"""A single word may be a label that a rule names."""
_WANTED = re.compile(r"(?i)\b(?:expected|should|must|want|wanted|needs?)\b")
_GIVEN = re.compile(
    r"(?i)(\b(?:got|not|instead of|rather than|given|gave|received|found|was|were|wrote|but)(?::| to| the| a)* )"
    r"(?!(?:of|in|on|at|by|for|from|with|as|be|is|are|it|its|this|that|one|any|all|and|or)\b)"
    rf"({QUOTED}|[^\s{OPENING}.,;:]+(?:[.:/-]\w+)*)"
)
"""What may be a value of the answer: it stands after a word that tells what was given."""
_BOXED = re.compile(r"\\boxed\{([^{}]*)\}")


def label_words(answer: str) -> frozenset[str]:
    """The words of what an answer comes to, if these are so few that it may be a label: what is boxed, else what stands after
    the last colon of the last line."""
    boxed = _BOXED.findall(answer)
    lines = answer.strip().splitlines() or [""]
    words = word_list(boxed[-1] if boxed else lines[-1].rpartition(":")[2])
    return frozenset(words) if len(words) <= LONGEST_LABEL else frozenset()


def read_feedback(
    component: str, feedback: str, answer: str, question: str = "", known: Container[str] = frozenset()
) -> list[list[Said]]:
    """The parts of each line of a feedback, each where it first stands, but for what leads on to others. Lines and parts of
    the answer are passed over; what is quoted of the answer concerns that answer alone, and what is quoted of the question
    says which problem is meant: both are left out, but of parts with these keys, which were said of other answers; an answer
    that repeats its prompt has them too."""
    parts_of_answer = [each for each in answer.splitlines()[:MOST_COPIES] if len(each.split()) >= FEWEST_COPIED]
    copies = sorted({" ".join(each.split()) for each in (question, answer, *parts_of_answer)}, key=len)
    copies = [each for each in reversed(copies) if len(each) <= LONGEST_PART and _SEVERAL.search(each)]
    for each in (answer.strip(), question.strip()):
        if len(each) <= LONGEST_ANSWER and "\n" in each:
            feedback = feedback.replace(each, LEFT_OUT)
    answer, question = _plain(answer), _plain(question)
    seen: set[str] = set()
    lines = []
    for whole in _led(told(feedback)):
        found = []
        if len(seen) >= MOST_SAID:
            break
        said = parts_of(component, whole)
        old = all(part.key in known for part in said)
        if not old and " " in (plain := _plain(whole)) and plain in answer:
            continue
        line = _unquoting(_without_copies(whole, copies), answer[:LONGEST_ANSWER])
        line = _outside_braces(_GIVEN, lambda given: given[1] + _without_answer(given[2], answer), line)
        parts = parts_of(component, _outside_braces(_QUOTED, lambda quoted: _shortened(quoted[0], question), line))
        if old:
            parts = said
        elif len(said) == len(parts):
            parts = [one if one.key in known else other for one, other in zip(said, parts, strict=True)]
        parts = [part for part in parts if part.key in known or not _is_of(part.text, answer)]
        parts = [part for part in parts if not has_full_marks(part.text)]
        if all(part.key in seen for part in parts):
            continue
        for part in parts:
            if len(seen) >= MOST_SAID or len(part.text) > LONGEST_PART:
                continue
            if part.key not in seen or part.text.endswith(":"):  # what leads on to something new
                found.append(part)
            seen.add(part.key)
        if found:
            lines.append(found)
    return lines


def _led(told_of: Sequence[str]) -> list[str]:
    """The lines, with one put behind the line above it if that leads on to it: it is indented behind a colon, or the sentence
    was broken where the line is full."""
    found: list[str] = []
    full = max([FULL_LINE, *map(len, told_of)])
    for above, line, below in zip(["", *told_of], told_of, [*told_of[1:], ""], strict=False):
        led = above.endswith(":") and line[:1].isspace()
        next_word = len(line.partition(" ")[0])
        broken = len(above) + next_word >= full and _BROKEN.search(above) and not line[:1].isupper()
        if led or (broken and _ENDED.search(f"{line} {below}")):
            found[-1] += f" {line.strip()}"
        else:
            found.append(line)
    return found


def _without_copies(line: str, copies: Sequence[str]) -> str:
    """A line without the answer, one of its lines or the question, where they stand in it without quotation marks."""
    for each in copies if len(line) <= LONGEST_PART else ():
        if each in (spaced := " ".join(line.split())):
            line = re.sub(rf"(?<![\w{OPENING}]){re.escape(each)}(?!\w)", LEFT_OUT, spaced)
    return line


def _is_of(text: str, answer: str) -> bool:
    """Whether some words are the answer's own."""
    plain = _plain(text)
    whole = LEFT_OUT not in plain and not plain.endswith(":")
    return whole and plain.count(" ") >= FEWEST_COPIED - 1 and plain in answer


def _unquoting(line: str, answer: str) -> str:
    """A line without what it quotes of the answer, which may have quotation marks in it, and be cut short. What was wanted
    instead stays."""
    found, start = "", 0
    solid = _joined(answer) if "{" in line else ""
    for opening in itertools.islice(_OPENING.finditer(without_braces(line)), MOST_MARKS):
        begin, closing = opening.end(), _CLOSED[opening[0]]
        if begin <= start or _WANTED.search(line, max(0, begin - NEAR), begin):
            continue
        shut = re.finditer(rf"(?<=\S){closing}(?!\w)", line[begin : begin + LONGEST_PART])
        for end in reversed([begin + each.start() for each in itertools.islice(shut, MOST_MARKS)]):
            words = _plain(line[begin:end].strip(".… "))
            known = words in answer or ("{" in words and _joined(words) in solid)
            if len(words) >= LEAST_QUOTED and _SEVERAL.search(words) and known:
                found += f"{line[start:begin]}{LEFT_OUT}{closing}"
                start = end + 1
                break
    return found + line[start:]


def _joined(text: str) -> str:
    """A text without spaces: JSON is written with more or fewer of them."""
    return "".join(text.split())


def _outside_braces(pattern: re.Pattern[str], change: Callable[[re.Match[str]], str], line: str) -> str:
    """A line in which what is matched outside of braces is changed."""
    masked = without_braces(line)
    return pattern.sub(lambda match: match[0] if masked[match.start()] == BRACED else change(match), line)


def _without_answer(value: str, answer: str) -> str:
    """A value that the answer has is left out."""
    quoted = _QUOTED.fullmatch(value) is not None
    words = _unquoted(value) if quoted else _plain(value)
    if " " in words or words not in answer or not re.search(rf"(?<!\w){re.escape(words)}(?!\w)", answer):
        return value
    return f"{value[0]}{LEFT_OUT}{value[-1]}" if quoted else LEFT_OUT


def _shortened(quoted: str, question: str) -> str:
    """A quotation, without its words if they are many and stand in the question."""
    words = _unquoted(quoted)
    return (
        f"{quoted[0]}{LEFT_OUT}{quoted[-1]}" if words.count(" ") >= LONG_QUOTATION - 1 and words in question else quoted
    )


def _unquoted(quoted: str) -> str:
    return _plain(quoted[1:-1].rstrip(".… "))


def _plain(text: str) -> str:
    return " ".join(text.casefold().replace("\\n", " ").split())


def parts_of(component: str, line: str) -> list[Said]:
    """The parts of a line: sentences, and what stands before a colon or a dash. A number before the first is no part."""
    pieces: list[str] = []
    lead: list[str] = []
    line = line.strip()
    # What is quoted, or stands in braces, stays whole.
    masked = without_braces(_QUOTED.sub(lambda quoted: "x" * len(quoted[0]), line))
    cuts = [0, *itertools.chain(*(between.span() for between in _BETWEEN_PARTS.finditer(masked))), len(line)]
    for start, end in zip(cuts[::2], cuts[1::2], strict=True):
        piece = line[start:end]
        if any(letter.isalpha() for letter in piece):
            pieces.append(" ".join([*lead, piece]))
            lead = []
        else:
            lead.append(piece)
    rest = " ".join(lead).strip()
    if rest and pieces:
        pieces[-1] += f" {rest}"
    elif any(letter.isalnum() for letter in rest):
        pieces = [rest]
    return [Said(key_of(component, piece), piece) for piece in pieces]


def without_braces(line: str) -> str:
    """A line of the same length, without what stands in the outermost braces."""
    if "{" not in line:
        return line
    opened: list[int] = []
    found = list(line)
    for place, letter in enumerate(line):
        if letter == "{":
            opened.append(place)
        elif letter == "}" and opened:
            start = opened.pop()
            if not opened:
                found[start : place + 1] = BRACED * (place + 1 - start)
    return "".join(found)


def parts_of_texts(texts: Mapping[str, str]) -> frozenset[str]:
    """The keys of all parts of a context."""
    return frozenset(
        part.key
        for component, text in texts.items()
        for line in text.splitlines()
        for part in parts_of(component, line)
    )
