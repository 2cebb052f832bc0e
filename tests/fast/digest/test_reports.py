"""Reports of tests, compilers and validators: the lines that tell what was wrong, and none beside them."""

from __future__ import annotations

import json

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastslow.fast.digest.reports import told

PYTEST = """\
    def test_total(answer):
>       assert answer["total"] == 12
E       AssertionError: assert 11 == 12

test_answer_17.py:9: AssertionError
1 failed, 3 passed in 0.05s"""
GCC = (
    "main.c:3:7: error: expected ';' before 'return'\nsrc/a.c:12: warning: unused variable 'n'\n2 errors and 1 warning"
)
ESLINT = "/home/run/a.js\n  14:9  error  Missing semicolon  semi\n\n✖ 1 problem (1 error, 0 warnings)"
DIFF = '--- want\n+++ got\n@@ -3,3 +3,3 @@\n   "id": 12,\n-  "unit": "kg"\n+  "unit": "kilo"\n   "name": "Ada"\nMind units.'

FENCED = ["Here it is:", "units: name it", "Round it."]
TABLE = """\
| Criterion | Points | Comment |
|:---|---:|---|
| Units | 1/5 | name each unit |
| Form | 2 | Use a list. | no headings |
| Tone | 5/5 | polite |
| Names | PASS | all there |
| **Total** | 8 | |"""
PYTHON = """\
Traceback (most recent call last):
  File "run.py", line 9, in <module>
    main(row)
    ~~~~^^^^^
  File "a.py", line 3, in main
    assert unit(row)
           ^^^^^^^^^
ValueError: no unit"""
JAVA = """\
Exception in thread "main" AssertionError: name the unit
\tat org.Run.main(Run.java:77)
    at read (/srv/run.js:7:12)
    at /srv/run.js:9:1
Caused by: no unit at (row 3)
\t... 12 more"""

RUST = """\
error[E0308]: mismatched types
 --> src/main.rs:2:20
  |
2 |     let unit: u32 = "kg";
  |               ---   ^^^^ expected `u32`, found `&str`
  |"""
SQL = """\
ERROR:  column "unit" does not exist
LINE 1: SELECT unit FROM rows;
               ^
HINT:  Name the column "units"."""
HTTP = """\
HTTP/1.1 422 Unprocessable Entity
content-type: application/json

{"error": {"code": 7, "status": "INVALID", "message": "name the unit"}}"""
GO = "panic: name the unit\n\t/app/check.go:20 +0x1d5\n/app/main.go:12"


@pytest.mark.parametrize(
    ("feedback", "lines"),
    [
        ("Wrong.\nUse kg.", ["Wrong.", "Use kg."]),
        (PYTEST, [*PYTEST.splitlines()[:3], "AssertionError"]),
        (GCC, ["error: expected ';' before 'return'", "warning: unused variable 'n'"]),
        (ESLINT, ["/home/run/a.js", "error  Missing semicolon  semi"]),
        (DIFF, ['"unit": expected \'"kg"\', got \'"kilo"\'', "Mind units."]),
        ('Traceback (most recent call last):\n  File "a.py", line 3, in f\nKeyError: 4', ["KeyError: 4"]),
        (
            "$.orders[3].date: too late\n/orders/12/date: too late",
            ["$.orders[…].date: too late", "/orders/…/date: too late"],
        ),
        ("orders.3.date\n  too late", ["orders.….date: too late"]),
        ("rows[0] is the header: skip it", ["rows[0] is the header: skip it"]),
        ("✓ header\n✗ total: round it\n[x] tax\n- [ ] date", ["✗ total: round it", "- [ ] date"]),
        ("test_a PASSED [ 50%]\ntest_b FAILED [100%]\nok 3 - names\nline ... ok", ["test_b FAILED [100%]"]),
        ("✓ the header names the quarter", ["✓ the header names the quarter"]),
        (
            "Pass the list as a tuple.\n2 failed attempts lock it.",
            ["Pass the list as a tuple.", "2 failed attempts lock it."],
        ),
        ("3 of 7 checks passed in 0.1 s\nRound it.", ["Round it."]),
        ("14:30 is the last hour to call.", ["14:30 is the last hour to call."]),
        ("{a} is no list", ["{a} is no list"]),
        ("See main.c:3:7: it is short.", ["See main.c:3:7: it is short."]),
        ("a.c:3:7:  \n [type=x]\nRound it.", ["", "", "Round it."]),
        ('{"score": 0, "ok": false}', []),
        ('<suite><case name="a"/></suite>', []),
        ("[" * 100_000, ["[" * 100_000]),
        (TABLE, ["Units: name each unit", "Form: Use a list.; no headings"]),
        ("a | b\n|x|\n||", ["a | b", "||"]),
        ("## Review\n**Weak:**\n__Strong__:\n# of rows is odd\n**Name the unit.**", ["**Name the unit.**"]),
        ("## Name the unit.", ["## Name the unit."]),
        ("5/5 for tone\n2/5 for form: no list\nUnits (3/3)\nTotal: 5/8", ["2/5 for form: no list", "Total: 5/8"]),
        (
            "Print at 1/1.\nDue 5/5/2026\nPay 3/3 of it\nTone: 4/4; form: 1/4",
            ["Print at 1/1.", "Due 5/5/2026", "Pay 3/3 of it", "Tone: 4/4; form: 1/4"],
        ),
        (
            'Here it is:\n```json\n{"units": {"reason": "name it"}}\n```\nRound it.',
            FENCED,
        ),
        ("Here it is:\n  ```\nunits: name it\n```\nRound it.", FENCED),
        (PYTHON, ["ValueError: no unit"]),
        (PYTHON.replace("ValueError: no unit", "AssertionError"), ["assert unit(row)", "AssertionError"]),
        (JAVA, ['Exception in thread "main" AssertionError: name the unit', "Caused by: no unit at (row 3)"]),
        ("Look here:\n    at the unit\n    at row:3", ["Look here:", "    at the unit"]),
        (RUST, ["error[E0308]: mismatched types", "expected `u32`, found `&str`"]),
        (SQL, ['ERROR:  column "unit" does not exist', 'HINT:  Name the column "units".']),
        (HTTP, ["name the unit"]),
        ('400 Bad Request: {"error": "name the unit"}\nNo row.', ["400 Bad Request: ", "name the unit", "No row."]),
        ('You wrote: {"unit": "kg"}', ['You wrote: {"unit": "kg"}']),
        (GO, ["panic: name the unit"]),
        ("   at Acme.Run(String[] args) in /app/Run.cs:line 4\nName it.", ["Name it."]),
        ("2026-03-01 12:30:05,123 ERROR name it\n[2026-03-01T12:30:05Z] Round it.", ["ERROR name it", "Round it."]),
        ("Tone: 2/5 - be kind\nForm: 5/5 - good\nRatio: 1/2", ["Tone: be kind", "Ratio: 1/2"]),
        ("**Tone** (2/5)\nBe kind.\n**Score:** 2/5", ["Be kind."]),
        ("==== short summary ====\nFAILED a.py::b - Name...\na.py .F. [100%]\nName it.", ["Name it."]),
        ("FAILED a.py::b - name it", ["FAILED a.py::b - name it"]),
        ("Name it: FAIL\nRound it: PASS\nUse 'kg' - not met.\nShort? Yes.", ["Name it", "Use 'kg'"]),
        ("[FAIL] Name it.\n[PASS] Round it.", ["[FAIL] Name it."]),
        ("Name the unit: 1/5\nRound the sum (2/2)\nUse no 'kg' (0/2)", ["Name the unit", "Use no 'kg'"]),
        ("- Name the unit of each.\n+ Round the sum at once.", ["- Name the unit of each."]),
        ("- kg\n+ kilo", ["expected 'kg', got 'kilo'"]),
        ("Errors: ['Name it.', \"Don't guess.\"]", ["Errors: ", "Name it.", "Don't guess."]),
        ("{'score': 0, 'violations': ['Name it.']}", ["violations: Name it."]),
        ("must be one of: ['kg', 'lb']\n['kg'", ["must be one of: ['kg', 'lb']", "['kg'"]),
        ("5/5\n  polite", ["  polite"]),
        ("a ^ b is not 2 ~~ c", ["a ^ b is not 2 ~~ c"]),
        ("Name it.\nPASSED\n  in time", ["Name it.", "  in time"]),
    ],
)
def test_only_what_tells_what_was_wrong_is_left(feedback: str, lines: list[str]) -> None:
    assert told(feedback) == lines


@pytest.mark.parametrize(
    ("found", "lines"),
    [
        ({"feedback": "Round it.", "score": 0.0}, ["Round it."]),
        ({"errors": [{"field": "total", "message": "round it", "value": 1.25}]}, ["total: round it, got '1.25'"]),
        ({"detail": [{"loc": ["body", "orders", 3, "due"], "msg": "no date"}]}, ["body.orders.….due: no date"]),
        (
            {"errors": {"due": ["no date", "too late"], "tax": "missing"}},
            ["due: no date", "due: too late", "tax: missing"],
        ),
        ([{"path": "a", "expected": 3, "actual": 4}], ["a: expected '3', got '4'"]),
        (["One.", {"hints": ["Two.\nThree."]}], ["One.", "Two.", "Three."]),
        (
            {"criteria": [{"name": "Units", "passed": False, "comment": "none"}, {"name": "Tone", "passed": True}]},
            ["Units: none"],
        ),
        ({"passed": True, "comment": "Short."}, ["Short."]),
        ({"errors": [{"code": "E7", "message": "Name it."}]}, ["Name it."]),
    ],
)
def test_json_becomes_a_line_for_each_message(found: object, lines: list[str]) -> None:
    assert told(json.dumps(found)) == lines


JUNIT = """\
<?xml version="1.0" encoding="utf-8"?>
<testsuite name="answers" tests="3">
  <properties><property name="host" value="a"/></properties>
  <testcase classname="a.b" name="test_unit" time="0.1">
    <failure message="name the unit" type="AssertionError">a.py:3: AssertionError</failure>
  </testcase>
  <testcase classname="a.b" name="test_form"><error>use a list
no headings</error><system-out>row 3</system-out></testcase>
  <testcase classname="a.b" name="test_tone" time="0.1"/>
</testsuite>"""


@pytest.mark.parametrize(
    ("feedback", "lines"),
    [
        (JUNIT, ["test_unit: name the unit", "test_form: use a list", "no headings"]),
        ("<score>0</score><feedback>Name the unit.</feedback>", ["score: 0", "Name the unit."]),
        ("<p>Name <b>each</b> unit.</p>", ["Name each unit."]),
        ("<row> must be closed", ["<row> must be closed"]),
        ('<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>', ['<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>']),
        ("<a>" * 5000 + "b" + "</a>" * 5000, ["<a>" * 5000 + "b" + "</a>" * 5000]),
    ],
)
def test_xml_becomes_a_line_for_each_message(feedback: str, lines: list[str]) -> None:
    assert told(feedback) == lines


class Order(pydantic.BaseModel):
    quantity: int
    prices: list[float]


def test_what_pydantic_says_is_read_alike_as_text_and_as_json() -> None:
    with pytest.raises(pydantic.ValidationError) as found:
        Order.model_validate({"quantity": "many", "prices": [1, "two"]})
    whole = "Input should be a valid integer, unable to parse string as an integer"
    part = "Input should be a valid number, unable to parse string as a number"
    assert told(str(found.value)) == [f"quantity: {whole}", f"prices.…: {part}"]
    assert told(found.value.json(include_url=False)) == [
        f"quantity: {whole}, got 'many'",
        f"prices.…: {part}, got 'two'",
    ]


@given(st.text("ab1.:[]$/ \n\t-+@{\"'✓✗|#*`<>"))
def test_any_text_is_read(feedback: str) -> None:
    assert all("\n" not in line for line in told(feedback))


def test_a_long_line_is_read_in_linear_time() -> None:
    for part in (" at a.b", " at (", "| ", "1/1 ", "** ", "# ", "    a ", " 1: a::"):
        told(part * 500 + "x")
