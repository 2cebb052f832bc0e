"""What tests, compilers and validators report, as lines that a person could have said of an answer.

Left out are what stands beside the message: where in a file it was, what passed, how many failed, where to read more, and the
headings above. A difference becomes "expected 'X', got 'Y'", JSON and XML a line for each message, a row of a table its name
and its words, and a name over an indented message its lead.
"""

from __future__ import annotations

import ast
import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from xml.etree import ElementTree

from fastslow.fast.digest.classes import LEFT_OUT

MOST_LINES, LONGEST_LINE = 4096, 4000
"""Lines of a feedback that are read, and characters from which one is taken as it is."""

SHORT_LINE = 3
"""Words of a line that may have become the one below it, where nothing says so."""

_WHERE = (
    "loc", "path", "field", "location", "instancepath", "pointer", "property", "name", "criterion", "rule", "check",
)  # fmt: skip
_WHAT = (
    "message", "msg", "error", "errors", "detail", "details", "feedback", "reason", "reasons", "hint", "hints", "comment",
    "comments", "explanation", "issue", "issues", "problem", "problems", "messages", "description", "text",
)  # fmt: skip
_EXPECTED, _GIVEN = ("expected", "want", "wanted"), ("got", "given", "actual", "received", "found", "value", "input")
"""What the keys of a report in JSON or XML are called."""
_PASS = ("passed", "pass", "ok", "met", "satisfied", "success")
_OUTCOMES, _UNREAD = ("failure", "error", "skipped"), ("system-out", "system-err", "properties")
"""Elements of a report in XML that are of what is around them, and that tell nothing."""

_SOURCE = re.compile(r"\s*File \".*\", line \d+")
_FRAME = re.compile(
    r"\s*Traceback \(most recent|\s*(?:For|See) further information\b"
    r"|\s+at [^()]+\([^()]*\)(?: in \S+)?(?: \d+)?\s*$|\s+at \S+:\d+\s*$|\s*\.\.\. \d+ more\s*$"
    r"|\s+\d+: \w[\w:<>]*\s*$|\s*(?:-->\s)?[\w./\\-]*[./\\][\w-]+:\d+(?::\d+)?(?: \+0x\w+)?\s*$"
    r"|\s*>?\s*\d+ \|(?:\s|$)|\s+\|\s*$"
)
_UNDERLINED = re.compile(r"^[\s|]*(?:-+\s+)?(?:~*\^[\^~-]*|~~+)(?:\s+|$)")
"""What stands below a line of source, perhaps before words about it."""
_WHEN = re.compile(r"^\s*\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:Z|[+-]\d\d:?\d\d)?\]?\s+")
_PLACE = re.compile(r"^\s*(?:[\w./\\-]+\.\w+:\d+(?::\d+)?:\s+|\d+:\d+:?\s+(?=(?:error|warning)\b))")
_VALIDATED = re.compile(
    r"\s\[type=\w+(?:, input_value=.*, input_type=\w+)?\]\s*$|(?:\s\(|\t)\d+(?:\.\d+)?\s?m?s\)?\s*$"
)
_PASSED = re.compile(
    r"\s*(?:[-*•]\s)?(?:\[[xX]\]|[✓✔☑✅]|\[?PASS(?:ED)?\b|ok \d)|.*(?:\sPASS(?:ED)?(?:\s+\[\s*\d+%\])?|\.\.\. ok)\s*$"
    r"|FAILED \S+::\S+ - |\S+ [.FEsxX]+\s+\[\s*\d+%\]\s*$"
)
_OUTCOME = re.compile(
    r"(?i)(?<=[\w'\"”’)\]`])\s*(?::|\?|\s[-–—]|\s(?=[(\[]))\s*[(\[]?"
    r"(?:(?P<good>true|yes|pass(?:ed)?|ok|met|satisfied)|false|no|fail(?:ed|s)?|not met|violated)[)\]]?[.!]?\s*$"
)
"""What became of a check, behind its name."""
_HEADERS = re.compile(r"\AHTTP/[\d.]+ \d+[^\n]*\n(?:[\w-]+:[^\n]*\n)*\s*")
_BEGUN = re.compile(r"(?m)(?:^|(?<=:\s))(?=\{\s*[\"']|\[\s*[\"'{])")
_TELLING = re.compile(r"(?i)[\"'](?:message|msg|errors?|violations?|issues?|details?|feedback|reason)[\"']\s*:")
"""Where a report in JSON, or as Python writes it, begins in a text, and what it has; an answer that is quoted has it not."""
_DECODER, MOST_REPORTS = json.JSONDecoder(), 32
_FENCE = re.compile(r"^[ \t]*```[\w-]*[ \t]*$", re.MULTILINE)
_DECLARED = re.compile(r"^\s*<\?xml[^>]*\?>")
_HEADING = re.compile(
    r"\s*(?:#{1,6}\s.*|(\*\*|__)[^*_]+(?:(?::\1|\1:?)\s*\(?\d+(?:\.\d+)?\s?/\s?\d+\)?|:\1|\1:)|([=_*~-])\2{2,}\s.*\s\2{3,})\s*$"
)
_MARKS = re.compile(r"(?<![\w/.])(\d+(?:\.\d+)?)\s?/\s?(\d+)(?![\w/])")
"""Points out of those that there are."""
_POINTS = re.compile(r"(?<=:)\s*(\d+(?:\.\d+)?)\s?/\s?(\d+)\s+[-–—|:](?=\s+\S)")
_LAST_POINTS = re.compile(r"(?::\s|\s\()(\d+(?:\.\d+)?)\s?/\s?(\d+)\)?\s*$")
"""Points between what they are for and a comment, and those behind a rule."""
_COUNTED = re.compile(
    r"\W*(?:found )?(?:\d+ of )?\d+ (?:validation |type |unit )?"
    r"(?:errors?|problems?|failures?|warnings?|failed|passed|(?:tests?|checks?)(?: failed| passed)?)(?: for \w+)?"
    r"(?:[\W\d]+(?:in|and|s|ms|seconds?|errors?|warnings?|passed|failed|skipped|found)\b)*\W*$"
)
_PATH = re.compile(r"^\s*\$?[\w.\[\]/-]+:(?=\s)")
_INDEX = re.compile(r"(?<=[\[./])\d+(?=[\]./:])")
"""Which element of a list a path leads to: $.orders[3].date, orders.3.date, /orders/3/date."""
_NAME = re.compile(r"[\w.\[\]$/-]{1,60}")


def told(feedback: str) -> list[str]:
    """The lines that tell what was wrong; those that tell what passed, and headings, only where there are no others."""
    named = ""
    source: str | None = None
    found: list[str] = []
    beside: list[str] = []
    lines = compared(list(itertools.islice(_lines(feedback), MOST_LINES)))
    signed = {line[:1] for line in lines} >= {"+", "-"}
    for line, below in itertools.zip_longest(lines, lines[1:], fillvalue=""):
        if _SOURCE.match(line):
            source = ""
            continue
        if source is not None:
            if line.startswith("    "):
                source = source or line.strip()
                continue
            if source and not re.match(r"\S+: ", line):  # an error without a message: where it was tells more
                found.append(source)
            source = None
        if len(line) > LONGEST_LINE:
            found.append(line)
            continue
        shown = _WHEN.sub("", _UNDERLINED.sub("", line))
        if shown.strip() and not (_FRAME.match(shown) or _COUNTED.match(shown) or _UNDERLINED.match(below)):
            message = _VALIDATED.sub("", _PLACE.sub("", shown))
            message = _PATH.sub(lambda path: _INDEX.sub(LEFT_OUT, path[0]), message)
            if named and message[:1].isspace():
                message = f"{_INDEX.sub(LEFT_OUT, found.pop() + ':')} {message.strip()}"
            message, aside = _judged(message)
            aside = aside or (signed and message.startswith("+"))
            named = message if not aside and _NAME.fullmatch(message) else ""
            (beside if aside else found).append(message)
    return found or beside


def _judged(message: str) -> tuple[str, bool]:
    """A message without what became of it, and whether it tells what passed, or heads others."""
    if _PASSED.match(message) or _HEADING.match(message) or has_full_marks(message):
        return message, True
    if outcome := _OUTCOME.search(message):
        return (message, True) if outcome["good"] else (message[: outcome.start()], False)
    if points := _LAST_POINTS.search(message):
        rule = message[: points.start()]
        if rule.count(" ") > 1 and ":" not in rule and "/" not in rule:  # more than a name
            return (message, True) if points[1] == points[2] else (rule, False)
    return _POINTS.sub("", message), False


def has_full_marks(text: str) -> bool:
    """Whether it begins or ends with points, or comments on them, all that there are."""
    if (points := _POINTS.search(text)) and points[1] == points[2]:
        return True
    marks = list(itertools.islice(_MARKS.finditer(text), 2))
    if len(marks) != 1 or marks[0][1] != marks[0][2] or marks[0][1] == "1":
        return False
    return not any(map(str.isalnum, text[: marks[0].start()])) or not any(map(str.isalnum, text[marks[0].end() :]))


def _lines(feedback: str) -> Iterator[str]:
    """The lines of a feedback, what is fenced in it read like the rest."""
    for part in _FENCE.split(_HEADERS.sub("", feedback)):
        report = _of_json(part) if part.lstrip()[:1] in ("{", "[") else _of_xml(part)
        yield from _of_text(part) if report is None else report


def _of_text(text: str) -> Iterator[str]:
    """The lines of a text, and the messages of the reports in JSON that stand in it."""
    start = 0
    for begun in itertools.islice(_BEGUN.finditer(text), MOST_REPORTS):
        found, end = _written(text, begun.end())
        if begun.end() >= start and _tells(found, text[begun.end() : end]):
            yield from _of_tables(text[start : begun.end()].splitlines())
            yield from (line for each in _messages(found) for line in each.splitlines())
            start = end
    yield from _of_tables(text[start:].splitlines())


def _written(text: str, begin: int) -> tuple[Any, int]:
    """What stands there in JSON, or as Python writes it up to the end of the line, and where it ends."""
    try:
        return _DECODER.raw_decode(text, begin)
    except (ValueError, RecursionError):
        line = text[begin : begin + LONGEST_LINE].partition("\n")[0].rstrip(" .\r")
    try:
        return ast.literal_eval(line), begin + len(line)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return None, begin


def _tells(found: Any, text: str) -> bool:
    """Whether it is a report: it has a message, or is a list of sentences."""
    if isinstance(found, list) and not any(isinstance(each, dict) for each in found):
        return bool(found) and all(isinstance(each, str) and len(each.split()) > 1 for each in found)
    return found is not None and _TELLING.search(text) is not None


def _of_tables(lines: Sequence[str]) -> Iterator[str]:
    """The lines, and of each row of a table its name and its words."""
    for place, line in enumerate(lines):
        row = line.strip()
        if not (len(row) > 2 and row[0] == row[-1] == "|"):
            yield line
        elif not any(map(_is_rule, lines[place : place + 2])):
            name, *cells = [cell.strip() for cell in row.strip("|").split("|")]
            words = [cell for cell in cells if any(map(str.isalpha, cell))]
            if words and not any(_PASSED.match(cell) or has_full_marks(cell) for cell in cells):
                yield f"{name}: {'; '.join(words)}"


def compared(lines: Sequence[str]) -> list[str]:
    """The lines with those of a difference put together: what was expected, and what was given instead."""
    headed = any(line.startswith("--- ") for line in lines) and any(line.startswith("+++ ") for line in lines)
    expected_last = any(re.match(r"\+\+\+ .*expect", line, re.IGNORECASE) for line in lines)
    found: list[str] = []
    within = False
    for line in lines:
        before = found[-1] if found else ""
        if headed and line.startswith(("--- ", "+++ ", "@@ ")):
            within = line.startswith("@@ ")
            continue
        if within and line[:1] == " ":  # what both have
            continue
        within = within and line[:1] in ("+", "-", "\\")
        if line[:1] == "+" and before[:1] == "-":
            one, other = before[1:].strip(), line[1:].strip()
            name = re.match(r"[^:=]*[:=] ?", one)
            same = name[0] if name and other.startswith(name[0]) else ""
            if not (headed or same or len(one.split()) <= SHORT_LINE):  # what was bad and what was good
                found.append(line)
                continue
            values = [each.removeprefix(same) for each in ((other, one) if expected_last else (one, other))]
            found[-1] = f"{same}expected '{values[0]}', got '{values[1]}'"
        else:
            found.append(line)
    return found


def _is_rule(line: str) -> bool:
    """Whether it is what stands below the head of a table."""
    return "|" in line and "-" in line and set(line) <= set("|-: ")


def _of_json(text: str) -> list[str] | None:
    """A line for each message of a report in JSON; None where it is none."""
    try:
        found = list(_messages(json.loads(text)))
    except (ValueError, RecursionError):
        return None
    return [line for each in found for line in each.splitlines()]


def _of_xml(text: str) -> list[str] | None:
    """The same for XML; what defines entities is not read."""
    if text.lstrip()[:1] != "<" or "<!DOCTYPE" in text:
        return None
    try:
        found = list(_elements(ElementTree.fromstring(f"<report>{_DECLARED.sub('', text)}</report>")))
    except (ElementTree.ParseError, ValueError, RecursionError):
        return None
    return [line for each in found for line in each.splitlines()]


def _elements(element: ElementTree.Element, name: str = "") -> Iterator[str]:
    if element.tag in _UNREAD:
        return
    given = {key.casefold(): value for key, value in element.attrib.items()}
    if any((child.tail or "").strip() for child in element):  # text with marks in it
        yield "".join(element.itertext())
        return
    what = _first(given, {}, _WHAT) or (element.text or "").strip()
    where = _first(given, {}, _WHERE) or (
        name if element.tag.casefold() in (*_WHAT, *_OUTCOMES, "report") else element.tag
    )
    if what:
        yield f"{where}: {what}" if where else what
    for child in element:
        yield from _elements(child, where)


def _messages(found: Any, name: str = "") -> Iterator[str]:
    match found:
        case str():
            yield f"{name}: {found}" if name else found
        case list():
            for each in found:
                yield from _messages(each, name)
        case dict():
            keys = {str(key).casefold(): key for key in found}
            what, wanted, given = (_first(found, keys, names) for names in (_WHAT, _EXPECTED, _GIVEN))
            where = _first(found, keys, _WHERE) or name
            if where and any(found.get(keys.get(each)) is True for each in _PASS):
                return
            if not (what and where) and not wanted:
                for key, value in found.items():
                    told_of = str(key).casefold() in _WHAT
                    if told_of or not what or not isinstance(value, str):
                        yield from _messages(value, name if told_of else str(key))
                return
            told = [what, wanted and f"expected '{wanted}'", given and f"got '{given}'"]
            yield (f"{where}: " if where else "") + ", ".join(each for each in told if each)


def _first(found: Mapping[str, Any], keys: Mapping[str, str], names: Sequence[str]) -> str:
    """The first of these entries that is a plain value, or a path of them, as text."""
    for name in names:
        value = found.get(keys.get(name, name))
        if isinstance(value, list) and name in _WHERE:
            return ".".join(str(each) for each in value)
        if isinstance(value, (str, int, float)) and not isinstance(value, bool):
            return str(value)
    return ""
