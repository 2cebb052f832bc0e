"""Tools and messages as plain text: what the policy is shown, and what of its text is a tool call."""

import json
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastslow.base.errors import TaskError
from fastslow.models.tool_text import read_calls
from fastslow.tasks.adapters.verifiers_env.environment import content_text, plain_messages

TOOL = {"name": "look", "description": "Look it up.", "parameters": {"type": "object", "properties": {}}}


def message(role: str, content: Any = None, *calls: tuple[str, str]) -> Any:
    made = [SimpleNamespace(name=name, arguments=arguments) for name, arguments in calls]
    return SimpleNamespace(role=role, content=content, tool_calls=made or None)


@pytest.mark.parametrize(
    ("text", "rest", "calls", "unreadable"),
    [
        ("no call", "no call", [], 0),
        ('<tool_call>{"name": "a", "arguments": {"x": 1}}</tool_call>', "", [("a", '{"x": 1}')], 0),
        ('so: <tool_call>\n{"name": "a"}\n</tool_call> done', "so:  done", [("a", "{}")], 0),
        ('<tool_call>{"name": "a"}</tool_call><tool_call>{"name": "b"}</tool_call>', "", [("a", "{}"), ("b", "{}")], 0),
        ('<tool_call>{"name": "a", "arguments": {}}', "", [("a", "{}")], 0),  # the end was cut off, but nothing is lost
        ('{"name": "a", "arguments": {}}', '{"name": "a", "arguments": {}}', [], 0),
        ("<tool_call>a</tool_call>", "<tool_call>a</tool_call>", [], 1),
        ('<tool_call>{"name": "a"</tool_call>', '<tool_call>{"name": "a"</tool_call>', [], 1),
        ('<tool_call>{"arguments": {}}</tool_call>', '<tool_call>{"arguments": {}}</tool_call>', [], 1),
        ('<tool_call>{"name": 3}</tool_call>', '<tool_call>{"name": 3}</tool_call>', [], 1),
        ('<tool_call>["a"]</tool_call>', '<tool_call>["a"]</tool_call>', [], 1),
        ('<tool_call>{"name": "a", "arguments": "x"}</tool_call>', None, [], 1),
        ('<tool_call>x</tool_call><tool_call>{"name": "a"}</tool_call>', "<tool_call>x</tool_call>", [("a", "{}")], 1),
        ("<tool_call>" + "[" * 100_000 + "</tool_call>", None, [], 1),
    ],
)
def test_calls_are_read_from_text(text: str, rest: str | None, calls: list[tuple[str, str]], unreadable: int) -> None:
    found = read_calls(text)
    assert found[0] == (text if rest is None else rest)
    assert found[1] == calls
    assert len(found[2]) == unreadable


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=4,
)


@settings(max_examples=50, deadline=None)
@given(st.text(min_size=1), st.dictionaries(st.text(), VALUES), st.text(alphabet="abc \n"))
def test_a_call_that_is_shown_is_read_back(name: str, arguments: dict[str, Any], words: str) -> None:
    call = (name, json.dumps(arguments, ensure_ascii=False))
    (shown,) = plain_messages([message("assistant", words.strip(), call)], [], None)
    rest, calls, unreadable = read_calls(shown["content"])
    if "</tool_call>" not in shown["content"][:-12]:  # JSON does not hide the tag
        assert (rest, calls, unreadable) == (words.strip(), [call], [])


def test_the_context_takes_the_place_of_the_system_message_and_tools_follow_it() -> None:
    conversation = [message("system", "Be good."), message("user", "why")]
    assert plain_messages(conversation, [], "Be good.") == [{"role": "user", "content": "why"}]
    assert plain_messages(conversation, [], None) == [
        {"role": "system", "content": "Be good."},
        {"role": "user", "content": "why"},
    ]
    roles = [shown["role"] for shown in plain_messages(conversation, [TOOL], None)]
    assert roles == ["system", "system", "user"]
    described, question = plain_messages(conversation, [TOOL], "Be good.")
    assert json.dumps(TOOL) in described["content"]
    assert question == {"role": "user", "content": "why"}


def test_results_of_one_turn_come_back_together() -> None:
    conversation = [
        message("user", "go"),
        message("assistant", "", ("a", "{}"), ("b", "not json")),
        message("tool", "one"),
        message("tool", [{"type": "text", "text": "two"}]),
        message("assistant", "so"),
    ]
    shown = plain_messages(conversation, [], None)
    assert [each["role"] for each in shown] == ["user", "assistant", "user", "assistant"]
    assert shown[1]["content"] == (
        '<tool_call>{"name": "a", "arguments": {}}</tool_call>\n<tool_call>{"name": "b", "arguments": "not json"}</tool_call>'
    )
    assert shown[2]["content"] == ("<tool_response>\none\n</tool_response>\n<tool_response>\ntwo\n</tool_response>")


def test_only_text_can_be_shown() -> None:
    assert content_text(None) == ""
    assert content_text([{"type": "text", "text": "a"}, SimpleNamespace(text="b")]) == "a\nb"
    with pytest.raises(TaskError, match=r"a message holds .*image_url.*, but the policy reads text only"):
        content_text([{"type": "image_url", "image_url": {"url": "data:"}}])
