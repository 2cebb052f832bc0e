"""nano's tokenizer: whole words of the universe, letters and digits, and pieces of letters for everything else.

All printable ASCII can be read, in lower case; other characters, and words of more than 100 characters, are `<unk>`.
"""

from __future__ import annotations

import re

import phrases as p
import universe as u
from tokenizers import Tokenizer
from tokenizers.decoders import WordPiece as WordPieceDecoder
from tokenizers.models import WordPiece
from tokenizers.normalizers import Lowercase
from tokenizers.pre_tokenizers import BertPreTokenizer
from transformers import PreTrainedTokenizerFast

SPECIALS = ("<pad>", "<unk>", "<end>", "<system>", "<user>", "<assistant>")
TEMPLATE = (
    "{% for message in messages %}<{{ message['role'] }}>{{ message['content'] }}<end>{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


def vocabulary() -> list[str]:
    """Every token, in the order of the ids: the shipped weights depend on it."""
    ways = [*u.SLOTS.values(), p.NOISE, p.FILLERS, u.ANIMALS, tuple(u.ALPHABETS)]
    for said in (u.SEEN, u.HELD):
        ways += [*said.operations.values(), *said.styles.values(), said.sentences, said.links]
    for both in (p.EXCEPTIONS, p.SPARED, *p.PRIORITIES.values()):
        ways += both
    ways += [(style.called, style.one) for style in u.STYLES]
    texts = [text for texts in ways for text in texts]
    words = sorted({word for text in texts for word in re.findall(r"[a-z]+", re.sub(r"\{\w+\}", "", text))})
    marks = [*".,:;!?'\"()[]*|<>-/+=&%$#@_~^`\\{}"]
    pieces = [*u.LETTERS, *u.DIGITS, *(f"##{character}" for character in u.LETTERS + u.DIGITS)]
    syllables = [*u.SYLLABLES_FIRST, *(f"##{syllable}" for syllable in u.SYLLABLES_SECOND)]
    return list(dict.fromkeys([*SPECIALS, *words, *marks, *pieces, *syllables]))


def make_tokenizer() -> PreTrainedTokenizerFast:
    """The tokenizer that is shipped with the weights."""
    backend = Tokenizer(WordPiece({word: index for index, word in enumerate(vocabulary())}, unk_token="<unk>"))
    backend.normalizer = Lowercase()
    backend.pre_tokenizer = BertPreTokenizer()
    backend.decoder = WordPieceDecoder(prefix="##", cleanup=False)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token="<pad>",
        unk_token="<unk>",
        eos_token="<end>",
        additional_special_tokens=["<system>", "<user>", "<assistant>"],
        padding_side="left",
        model_max_length=1024,
    )
    tokenizer.chat_template = TEMPLATE
    return tokenizer
