"""From messages to tokens: the context starts the system message, merged with the task's own into one, and text is data.

No special token ever arises from what a context, a row, an answer or a proposal says. A tokenizer reads the text of a special
token, such as `<|im_end|>`, as that token wherever it stands, so a text could end its own turn and write the next one. Here
only the chat template's own special tokens count. In all other text they are encoded as the characters they are written with.
Text without them is encoded as the tokenizer does it.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from functools import cache
from typing import TYPE_CHECKING, Any

from jinja2.exceptions import TemplateError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Message = Mapping[str, str]
# For base models without a template of their own.
PLAIN_TEMPLATE = (
    "{% for message in messages %}{% if message['role'] == 'assistant' %}{{ message['content'] + eos_token }}"
    "{% else %}{{ message['content'] + '\n\n' }}{% endif %}{% endfor %}"
)
_THOUGHTS = ("<think>", "</think>")
"""Models write these themselves, and templates read them in answers."""


_TOOLS = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")
"""Tasks with tools write these into their messages, and models into their answers."""


class ChatFormat:
    """How one tokenizer turns messages into a prompt."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, template_arguments: dict[str, Any] | None = None) -> None:
        self.tokenizer = tokenizer
        self.template_arguments = template_arguments or {}
        if tokenizer.chat_template is None:
            # The rendered template is encoded without special tokens, so it must contain a BOS token that the model expects.
            bos = tokenizer.bos_token_id
            needs_bos = bos is not None and tokenizer("")["input_ids"][:1] == [bos]
            tokenizer.chat_template = "{{ bos_token }}" + PLAIN_TEMPLATE if needs_bos else PLAIN_TEMPLATE
        self.system_role = self._accepts_system()
        self._special = frozenset(tokenizer.all_special_ids)
        self._text = TextEncoder(tokenizer)

    def _accepts_system(self) -> bool:
        """Whether the template uses the system role: some raise an error, some drop it silently."""

        def rendered(system: str) -> str:
            messages = [{"role": "system", "content": system}, {"role": "user", "content": "-"}]
            return str(self.tokenizer.apply_chat_template(messages, tokenize=False, **self.template_arguments))

        try:
            return rendered("a") != rendered("b")
        except TemplateError:
            return False

    def prompt(self, messages: Sequence[Message], context: str) -> list[int]:
        """The prompt's token ids, with the generation prompt."""
        merged = merge_context(messages, context, self.system_role)
        return self._text.chat(merged, add_generation_prompt=True, **self.template_arguments)

    def answer(self, ids: Sequence[int]) -> str:
        """The exact text of a completion, without the end token."""
        # Some tokenizers clean up spaces before punctuation by default, which changes code and formatted answers.
        return str(self.tokenizer.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False))

    def has_ended(self, ids: Sequence[int]) -> bool:
        """Whether a completion ends with an end token: any special token, since models can have several."""
        return bool(ids) and ids[-1] in self._special

    def kept(self, ids: Sequence[int], limit: int | None, stop: Sequence[str]) -> int:
        """How many tokens of a completion remain if it ends after `limit` of them, or with the first of the `stop` texts."""
        most = len(ids) if limit is None else min(limit, len(ids))

        def stopped(count: int) -> bool:
            text = self.answer(ids[:count])
            return any(each in text for each in stop)

        return bisect.bisect_left(range(most), True, key=stopped) if stop else most

    def count(self, text: str) -> int:
        """Number of tokens of a text, without special tokens."""
        return len(self._text.encode(text))


def merge_context(messages: Sequence[Message], context: str, system_role: bool = True) -> list[Message]:
    """Put the context first: in one system message, or in the user message if the template has no system role."""
    first = next((place for place, each in enumerate(messages) if each["role"] != "system"), len(messages))
    parts = [*filter(None, [context]), *(each["content"] for each in messages[:first])]
    rest = list(messages[first:])
    if not parts:
        return rest
    text = "\n\n".join(parts)
    if not system_role and rest and rest[0]["role"] == "user":
        text = f"{text}\n\n{rest.pop(0)['content']}"
    return [{"role": "system" if system_role else "user", "content": text}, *rest]


class TextEncoder:
    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self.tokenizer = tokenizer
        self._of_template: str | None = None

    def encode(self, text: str) -> list[int]:
        """The tokens of a text, none of them special."""
        tokens = cache(self._tokens)  # a text may hold the same token very often
        return [token for part in self._cut(whole(text)) for token in tokens(part)]

    def chat(self, messages: Sequence[Mapping[str, Any]], **template: Any) -> list[int]:
        """The tokens of messages in the chat template; only the template's own special tokens are special."""
        given = replace_texts({"messages": messages, **template}, whole)
        texts = texts_of(given)
        if not any(map(self._markup.search, texts)):
            messages = given.pop("messages")
            encoded = self.tokenizer.apply_chat_template(messages, tokenize=True, return_dict=True, **given)
            return list(encoded["input_ids"])
        return self._marked(given, texts)

    def following(self, messages: Sequence[Mapping[str, Any]], place: int, **template: Any) -> list[int] | None:
        """The tokens that the template writes after the content of the message at `place`; None if it does not show that
        content, or shows it twice."""
        given = replace_texts({"messages": messages, **template}, whole)
        texts = texts_of(given)
        gap = _unused(texts)
        given["messages"][place]["content"] = gap
        return self._marked(given, [*texts, gap], gap)

    def _marked(self, given: dict[str, Any], texts: Sequence[str], gap: str = "") -> Any:
        """The template with a mark in place of every special token's text; with a `gap`, what stands after it."""
        mark = _unused(texts)
        found: list[str] = []

        def take(match: re.Match[str]) -> str:
            found.append(match[0])
            return f"{mark}{len(found) - 1}{mark}"

        marked = replace_texts(given, lambda text: self._markup.sub(take, text))
        rendered = str(self.tokenizer.apply_chat_template(marked.pop("messages"), tokenize=False, **marked))
        if gap:
            if rendered.count(gap) != 1:
                return None
            rendered = rendered.partition(gap)[2]
        encode, tokens = cache(self.encode), cache(self._tokens)
        ids: list[int] = []
        # A template may drop a text, or show it twice: every mark says which text it stands for.
        for place, part in enumerate(rendered.split(mark)):
            ids += encode(found[int(part)]) if place % 2 else tokens(part)
        return ids

    def defused(self, text: str) -> str:
        """The text with a space inside every special token's text: for templates that others will encode."""
        return self._markup.sub(_spaced, text)

    def _tokens(self, text: str) -> list[int]:
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"]) if text else []

    def _cut(self, text: str) -> list[str]:
        """The text in parts, cut inside every special token's text; one of a single character is dropped."""
        parts, start = list[str](), 0
        while match := self._markup.search(text, start):
            parts.append(text[start : match.start() + (len(match[0]) > 1)])
            start = match.start() + 1
        return [*parts, text[start:]]

    @property
    def _markup(self) -> re.Pattern[str]:
        """The special tokens, and those that the chat template builds turns with, special or not."""
        template = str(getattr(self.tokenizer, "chat_template", None) or "")
        if self._of_template != template:
            added = getattr(self.tokenizer, "added_tokens_decoder", {}).values()
            special = [str(token.content) for token in added if token.special]
            special += [str(token) for token in getattr(self.tokenizer, "all_special_tokens", ())]
            others = [str(token.content) for token in added]
            built_with = [word for word in others if word in template or re.fullmatch(r"<\|.*\|>", word)]
            words = {word for word in (*special, *built_with) if word and not word.isspace()} - {*_THOUGHTS, *_TOOLS}
            longest_first = sorted(words, key=lambda word: (-len(word), word))
            self._pattern = re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")
            self._of_template = template
        return self._pattern


_COMMON = re.compile(
    r"<\|[^|<>\s]{1,40}\|>|</?s>|<(?:bos|eos|pad|unk)>|<(?:start|end)_of_turn>|\[/?INST\]|<</?SYS>>|<｜[^｜<>]{1,40}｜>"
)
"""Special tokens of well-known models."""


def defused_for_servers(text: str) -> str:
    """The text with a space inside the special tokens of well-known models: a server has a tokenizer of its own."""
    return _COMMON.sub(_spaced, text)


def _spaced(match: re.Match[str]) -> str:
    return f"{match[0][0]} {match[0][1:]}"


def replace_texts(data: Any, change: Callable[[str], str]) -> Any:
    """A copy of nested lists and mappings with every text changed, keys too."""
    if isinstance(data, str):
        return change(data)
    if isinstance(data, Mapping):
        return {replace_texts(key, change): replace_texts(value, change) for key, value in data.items()}
    return [replace_texts(each, change) for each in data] if isinstance(data, list | tuple) else data


def texts_of(data: Any) -> list[str]:
    """Every text of nested lists and mappings, keys too."""
    if isinstance(data, str):
        return [data]
    parts = [*data, *data.values()] if isinstance(data, Mapping) else data if isinstance(data, list) else ()
    return [text for part in parts for text in texts_of(part)]


def _unused(texts: Sequence[str]) -> str:
    """A character of the private use area that is in none of the texts."""
    taken = set().union(*texts)
    return next(chr(code) for code in range(0xF0000, 0x110000) if chr(code) not in taken)


speaking: ContextVar[ChatFormat | None] = ContextVar("speaking", default=None)
"""The chat format of the policy that answers the current rollout; None where answers are given instead of sampled."""


def whole(text: str) -> str:
    """The text with U+FFFD in place of lone surrogates, which tokenizers refuse."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
