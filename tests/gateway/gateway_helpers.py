"""A tokenizer that writes most texts in several ways, so that whoever renders an answer again gets other tokens; and policies
that answer at random or by a rule."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from transformers import PreTrainedTokenizerFast

from fastslow.gateway.rendering import Rendering, rendering_of
from fastslow.gateway.session import Session, Wanted
from fastslow.models.chat import ChatFormat
from fastslow.tasks.base import Answer, Ask

PLAIN = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
TOOLS = (
    "{% if tools %}<|im_start|>system\n{% for tool in tools %}{{ tool | tojson }}\n{% endfor %}<|im_end|>\n{% endif %}"
    "{% for m in messages %}<|im_start|>{{ 'user' if m['role'] == 'tool' else m['role'] }}\n"
    "{% if m['role'] == 'tool' %}<tool_response>\n{{ m['content'] }}\n</tool_response>{% else %}{{ m['content'] }}{% endif %}"
    "{% for call in m['tool_calls'] or [] %}\n<tool_call>\n"
    '{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}\n'
    "</tool_call>{% endfor %}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
THOUGHTS = TOOLS.replace("{{ m['content'] }}{% endif %}", "{{ m['content'].split('</think>')[-1] }}{% endif %}")
"""Drops the thoughts of earlier answers, as the templates of reasoning models do."""
MARKUP = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
PAIRS = [(a, b) for a in "eatoinsr" for b in "eatoinsr"]
UNSURE = (
    *("tea", "ratio", "no", "<think>", "</think>", " ", "\n", "x", '"', "ä", "</tool_call>"),
    *('<tool_call>{"name": "look", "arguments": {"at": "tea"}}</tool_call>', "<|im_end|>", "<|im_start|>user\n"),
)


def make_tokenizer(template: str = TOOLS, name: str = "") -> PreTrainedTokenizerFast:
    letters = sorted(ByteLevel.alphabet())
    vocabulary = {token: number for number, token in enumerate([*letters, *(a + b for a, b in PAIRS)])}
    backend = Tokenizer(BPE(vocabulary, PAIRS))
    backend.pre_tokenizer, backend.decoder = ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token="<|im_end|>", pad_token="<|endoftext|>", unk_token=None
    )
    tokenizer.add_special_tokens({"additional_special_tokens": MARKUP})
    plain = ["<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"]
    tokenizer.add_tokens([AddedToken(each, special=False) for each in plain])
    tokenizer.chat_template = template
    tokenizer.name_or_path = name
    return tokenizer


def unlikely_tokens(tokenizer: Any, text: str, draw: random.Random) -> list[int]:
    """Tokens of a text that are often not those that the tokenizer makes of it."""
    ids: list[int] = []
    while text:
        special = next((each for each in tokenizer.get_added_vocab() if text.startswith(each)), None)
        length = len(special) if special else draw.choice((1, 1, 2, 5))
        ids += tokenizer(text[:length], add_special_tokens=False)["input_ids"]
        text = text[length:]
    return ids


@dataclass
class Drawing:
    """A policy that says anything, and remembers what it was asked and what it said."""

    tokenizer: Any
    draw: random.Random
    said: list[tuple[Ask, tuple[int, ...]]] = field(default_factory=list)

    async def __call__(self, asked: Ask, wanted: Wanted) -> Answer:
        text = "".join(self.draw.choices(UNSURE[:12], k=self.draw.randrange(6)))
        ids = unlikely_tokens(self.tokenizer, text, self.draw)
        if self.draw.random() < 0.8:  # else it is truncated
            ids.append(self.tokenizer.convert_tokens_to_ids("<|im_end|>"))
        self.said.append((asked, tuple(ids)))
        return Answer(ChatFormat(self.tokenizer).answer(ids), tuple(ids), [-0.5] * len(ids))


def make_session(tokenizer: Any, sample: Any, texts: Mapping[str, str] | None = None, **settings: Any) -> Session:
    chat = ChatFormat(tokenizer)
    rendering: Rendering = rendering_of(chat)
    return Session(rendering, texts or {"system": "be brief"}, sample, chat.has_ended, **settings)


TOOL = {"name": "look", "description": "looks at a thing", "parameters": {"type": "object", "properties": {}}}


def call_text(**arguments: Any) -> str:
    return f"<tool_call>{json.dumps({'name': 'look', 'arguments': arguments})}</tool_call>"


def answers_of(tokenizer: Any, rule: Callable[[str], str]) -> Any:
    """A policy that answers by a rule on the text of its prompt."""

    async def sample(asked: Ask, wanted: Wanted) -> Answer:
        text = rule(tokenizer.decode(list(asked.ids or ())))
        ids = [*tokenizer(text, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]
        kept = ChatFormat(tokenizer).kept(ids, asked.limit, asked.stop)
        return Answer(ChatFormat(tokenizer).answer(ids[:kept]), ids[:kept], [-0.25] * kept)

    return sample


def messages_of(*pairs: tuple[str, str]) -> Sequence[dict[str, Any]]:
    return [{"role": role, "content": content} for role, content in pairs]
