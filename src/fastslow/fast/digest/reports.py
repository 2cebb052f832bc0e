"""What tests, compilers and validators report, as lines that a person could have said of an answer.

Left out are what stands beside the message: where in a file it was, what passed, how many failed, where to read more. A
difference becomes "expected 'X', got 'Y'", JSON a line for each message, and a name over an indented message its lead.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fastslow.fast.digest.classes import LEFT_OUT

MOST_LINES, LONGEST_LINE = 4096, 4000
"""Lines of a feedback that are read, and characters from which one is taken as it is."""

_WHERE = ("loc", "path", "field", "location", "instancepath", "pointer", "property")
_WHAT = (
    "message", "msg", "error", "errors", "detail", "details", "feedback", "reason", "reasons", "hint", "hints", "comment",
    "comments", "explanation", "issue", "issues", "problem", "problems", "messages", "description", "text",
)  # fmt: skip
_EXPECTED, _GIVEN = ("expected", "want", "wanted"), ("got", "given", "actual", "received", "found", "value", "input")
"""What the keys of a report in JSON are called."""

_FRAME = re.compile(r"\s*File \".*\", line \d+|\s*Traceback \(most recent|\s*(?:For|See) further information\b")
_PLACE = re.compile(r"^\s*(?:[\w./\\-]+\.\w+:\d+(?::\d+)?:\s+|\d+:\d+:?\s+(?=(?:error|warning)\b))")
_VALIDATED = re.compile(r"\s\[type=\w+(?:, input_value=.*, input_type=\w+)?\]\s*$")
_PASSED = re.compile(
    r"\s*(?:[-*•]\s)?(?:\[[xX]\]|[✓✔☑✅]|PASS(?:ED)?\b|ok \d)|.*(?:\sPASS(?:ED)?(?:\s+\[\s*\d+%\])?|\.\.\. ok)\s*$"
)
_COUNTED = re.compile(
    r"\W*(?:\d+ of )?\d+ (?:validation |type |unit )?"
    r"(?:errors?|problems?|failures?|warnings?|failed|passed|(?:tests?|checks?)(?: failed| passed)?)(?: for \w+)?"
    r"(?:[\W\d]+(?:in|and|s|ms|seconds?|errors?|warnings?|passed|failed|skipped|found)\b)*\W*$"
)
_PATH = re.compile(r"^\s*\$?[\w.\[\]/-]+:(?=\s)")
_INDEX = re.compile(r"(?<=[\[./])\d+(?=[\]./:])")
"""Which element of a list a path leads to: $.orders[3].date, orders.3.date, /orders/3/date."""
_NAME = re.compile(r"[\w.\[\]$/-]{1,60}")


def told(feedback: str) -> list[str]:
    """The lines that tell what was wrong; those that tell what passed only where there are no others."""
    lines = compared(list(_of_json(feedback)) or feedback.splitlines()[:MOST_LINES])
    named = ""
    found: list[str] = []
    passed: list[str] = []
    for line in lines:
        if len(line) > LONGEST_LINE:
            found.append(line)
        elif line.strip() and not _FRAME.match(line) and not _COUNTED.match(line):
            message = _VALIDATED.sub("", _PLACE.sub("", line))
            message = _PATH.sub(lambda path: _INDEX.sub(LEFT_OUT, path[0]), message)
            if named and message[:1].isspace():
                message = f"{_INDEX.sub(LEFT_OUT, found.pop() + ':')} {message.strip()}"
            named = message if _NAME.fullmatch(message) else ""
            (passed if _PASSED.match(message) else found).append(message)
    return found or passed


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
            values = [each.removeprefix(same) for each in ((other, one) if expected_last else (one, other))]
            found[-1] = f"{same}expected '{values[0]}', got '{values[1]}'"
        else:
            found.append(line)
    return found


def _of_json(feedback: str) -> Iterator[str]:
    """A line for each message of a report in JSON; nothing where it is none."""
    if feedback.lstrip()[:1] not in ("{", "["):
        return
    try:
        found = json.loads(feedback)
    except (ValueError, RecursionError):
        return
    for line in _messages(found):
        yield from line.splitlines()


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
            if not (what and where) and not wanted:
                for key, value in found.items():
                    yield from _messages(value, name if str(key).casefold() in _WHAT else str(key))
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
