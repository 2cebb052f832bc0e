"""From messages to tokens: the context starts the system message, merged with the task's own into one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from jinja2.exceptions import TemplateError

from fastslow.models.encode import TextEncoder
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

    def count(self, text: str) -> int:
        """Number of tokens of a text, without special tokens."""
        return len(self._text.encode(text))


def merge_context(messages: Sequence[Message], context: str, system_role: bool = True) -> list[Message]:
    """Put the context first: in one system message, or in the user message if the template has no system role."""
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
