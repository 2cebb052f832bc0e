"""From messages to tokens: the context goes first in the system message, merged with the task's own, never stacked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from jinja2.exceptions import TemplateError

from fastslow.tasks.base import Message

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

# For base models without a template of their own.
PLAIN_TEMPLATE = (
    "{% for message in messages %}{% if message['role'] == 'assistant' %}{{ message['content'] + eos_token }}"
    "{% else %}{{ message['content'] + '\n\n' }}{% endif %}{% endfor %}"
)


class ChatFormat:
    """How one tokenizer turns messages into a prompt."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, template_arguments: dict[str, Any] | None = None) -> None:
        self.tokenizer = tokenizer
        self.template_arguments = template_arguments or {}
        if tokenizer.chat_template is None:
            # A template is rendered to text and encoded as it is, so a begin token the model expects must stand in it.
            begins = tokenizer.bos_token_id is not None and tokenizer("")["input_ids"][:1] == [tokenizer.bos_token_id]
            tokenizer.chat_template = "{{ bos_token }}" + PLAIN_TEMPLATE if begins else PLAIN_TEMPLATE
        self.system_role = self._accepts_system()
        self._special = frozenset(tokenizer.all_special_ids)

    def _accepts_system(self) -> bool:
        """Some templates refuse the role outright, some drop it without a word."""

        def shown(system: str) -> str:
            messages = [{"role": "system", "content": system}, {"role": "user", "content": "-"}]
            return str(self.tokenizer.apply_chat_template(messages, tokenize=False, **self.template_arguments))

        try:
            return shown("a") != shown("b")
        except TemplateError:
            return False

    def prompt(self, messages: Sequence[Message], context: str) -> list[int]:
        """The prompt's token ids, ready for the model to answer."""
        return self._tokens(merge_context(messages, context, self.system_role))

    def _tokens(self, messages: list[Message]) -> list[int]:
        encoded = self.tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, tokenize=True, return_dict=True, **self.template_arguments
        )
        return list(encoded["input_ids"])

    def answer(self, ids: Sequence[int]) -> str:
        """The text of a completion as it was written, without the end token."""
        # Some tokenizers are set to tidy spaces before punctuation, which changes code and formatted answers.
        return str(self.tokenizer.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False))

    def has_ended(self, ids: Sequence[int]) -> bool:
        """Whether a completion goes up to an end token. A model may know others than the tokenizer's own, all special."""
        return bool(ids) and ids[-1] in self._special

    def count(self, text: str) -> int:
        """Tokens of a bare text."""
        return len(self.tokenizer(text, add_special_tokens=False)["input_ids"])


def merge_context(messages: Sequence[Message], context: str, system_role: bool = True) -> list[Message]:
    """Put the context in front of the messages: one system message, or part of the user's where there is no such role."""
    rest = list(messages)
    parts = [context] if context else []
    while rest and rest[0]["role"] == "system":
        parts.append(rest.pop(0)["content"])
    if not parts:
        return rest
    text = "\n\n".join(parts)
    if not system_role and rest and rest[0]["role"] == "user":
        text = f"{text}\n\n{rest.pop(0)['content']}"
    return [{"role": "system" if system_role else "user", "content": text}, *rest]
