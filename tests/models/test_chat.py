"""From messages to tokens and back."""

from __future__ import annotations

import copy

import pytest
import tiny
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerFast

from fastslow.models.chat import ChatFormat, merge_context
from fastslow.tasks.base import Message

REFUSES = "{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
IGNORES = (
    "{% for message in messages %}{% if message['role'] != 'system' %}"
    "<{{ message['role'] }}> {{ message['content'] }} <end> {% endif %}{% endfor %}<assistant>"
)
SYSTEM: Message = {"role": "system", "content": "the word ."}
USER: Message = {"role": "user", "content": "say red"}

texts = st.text(max_size=12)
messages = st.lists(
    st.fixed_dictionaries({"role": st.sampled_from(["system", "user", "assistant"]), "content": texts}), max_size=5
)


def shown(format: ChatFormat, asked: list[Message], context: str) -> str:
    return str(format.tokenizer.decode(format.prompt(asked, context)))


@settings(deadline=None, max_examples=300)
@given(messages, texts, st.booleans())
def test_merging_loses_nothing_and_never_stacks(asked: list[Message], context: str, system_role: bool) -> None:
    before = copy.deepcopy(asked)
    merged = merge_context(asked, context, system_role)
    assert asked == before
    assert "\n\n".join(message["content"] for message in merged) == "\n\n".join(
        [*([context] if context else []), *(message["content"] for message in asked)]
    )
    opening = [message["role"] for message in merged]
    if system_role:
        assert opening[:2] != ["system", "system"]
        if context:
            assert merged[0]["role"] == "system"
            assert merged[0]["content"].startswith(context)
    else:
        assert opening[:1] != ["system"]
        if context:
            assert merged[0]["role"] == "user"
    # What comes after the opening is untouched.
    leading = next((i for i, message in enumerate(asked) if message["role"] != "system"), len(asked))
    rest = asked[leading:]
    assert merged[len(merged) - len(rest) + 1 :] == rest[1:]


def test_the_context_comes_first_in_one_system_message() -> None:
    format = ChatFormat(tiny.make_tokenizer())
    assert format.system_role
    assert shown(format, [USER], "go") == "<system> go <end> <user> say red <end> <assistant>"
    assert shown(format, [SYSTEM, USER], "go") == "<system> go the word . <end> <user> say red <end> <assistant>"
    assert shown(format, [SYSTEM, USER], "") == "<system> the word . <end> <user> say red <end> <assistant>"
    assert shown(format, [USER], "") == "<user> say red <end> <assistant>"


@pytest.mark.parametrize("template", [REFUSES + tiny.TEMPLATE, IGNORES], ids=["refuses", "ignores"])
def test_where_there_is_no_system_role_the_user_says_it(template: str) -> None:
    tokenizer = tiny.make_tokenizer()
    tokenizer.chat_template = template
    format = ChatFormat(tokenizer)
    assert not format.system_role
    assert shown(format, [SYSTEM, USER], "go") == "<user> go the word . say red <end> <assistant>"
    assert shown(format, [SYSTEM], "go") == "<user> go the word . <end> <assistant>"
    assert shown(format, [USER], "") == "<user> say red <end> <assistant>"


def test_template_arguments_reach_the_template() -> None:
    tokenizer = tiny.make_tokenizer()
    tokenizer.chat_template = "{% if thinking %}wait {% endif %}" + tiny.TEMPLATE
    asked = [USER]
    assert shown(ChatFormat(tokenizer, {"thinking": True}), asked, "") == "wait <user> say red <end> <assistant>"
    assert shown(ChatFormat(tokenizer, {"thinking": False}), asked, "") == "<user> say red <end> <assistant>"


def test_a_tokenizer_without_a_template_reads_plain_text() -> None:
    tokenizer = tiny.make_tokenizer()
    tokenizer.chat_template = None
    format = ChatFormat(tokenizer)
    conversation = [SYSTEM, USER, {"role": "assistant", "content": "red"}, {"role": "user", "content": "say blue"}]
    rendered = tokenizer.apply_chat_template(merge_context(conversation, "go"), tokenize=False)
    assert rendered == "go\n\nthe word .\n\nsay red\n\nred<end>say blue\n\n"
    assert shown(format, [SYSTEM, USER], "go") == "go the word . say red"


def with_begin(adds: bool) -> PreTrainedTokenizerFast:
    tokenizer = tiny.make_tokenizer()
    tokenizer.add_special_tokens({"bos_token": "<begin>"})
    if adds:
        place = [("<begin>", tokenizer.bos_token_id)]
        tokenizer.backend_tokenizer.post_processor = TemplateProcessing(single="<begin> $A", special_tokens=place)
    return tokenizer


@pytest.mark.parametrize("adds", [True, False])
def test_plain_text_begins_as_the_tokenizer_begins_it(adds: bool) -> None:
    """Base models that were trained with a begin token need it; others must not get one."""
    tokenizer = with_begin(adds)
    expected = tokenizer("go say red")["input_ids"]
    assert (expected[0] == tokenizer.bos_token_id) == adds
    tokenizer.chat_template = None
    assert ChatFormat(tokenizer).prompt([USER], "go") == expected


@settings(deadline=None, max_examples=100)
@given(st.lists(st.sampled_from(tiny.WORDS), max_size=12), st.booleans())
def test_answers_come_back_as_they_were_written(words: list[str], ended: bool) -> None:
    tokenizer = tiny.make_tokenizer()
    tokenizer.clean_up_tokenization_spaces = True  # as Llama 3's is set; it would glue full stops to the word before
    format = ChatFormat(tokenizer)
    text = " ".join(words)
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    assert format.answer([*ids, tokenizer.eos_token_id] if ended else ids) == text
    assert format.count(text) == len(words)


def test_counting_adds_no_special_tokens() -> None:
    assert ChatFormat(with_begin(adds=True)).count("go go") == 2
