"""nano's tokenizer: the shipped one is the one the scripts make, and pretraining's look-up gives the same ids."""

from __future__ import annotations

import json
import random
import string
from dataclasses import replace

import pytest
import universe as u
from episodes import Difficulty, make_episode
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from pretrain import ASSISTANT, END, SYSTEM, USER, encode, make_tree
from tokenizer import SPECIALS, make_tokenizer, vocabulary
from transformers import AutoTokenizer

from fastslow.models.load import resolve

SHIPPED = AutoTokenizer.from_pretrained(resolve("nano"))
HELD = Difficulty(held_phrasings=True, held_codewords=True)


def test_the_shipped_tokenizer_is_the_one_the_script_makes() -> None:
    made = make_tokenizer()
    shipped, expected = (json.loads(tokenizer.backend_tokenizer.to_str()) for tokenizer in (SHIPPED, made))
    for tokenizer in (shipped, expected):  # set by use: how the last call padded and cut
        tokenizer.pop("padding")
        tokenizer.pop("truncation")
    assert shipped == expected
    assert SHIPPED.chat_template == made.chat_template
    assert SHIPPED.special_tokens_map == made.special_tokens_map
    assert SHIPPED.padding_side == "left"
    assert SHIPPED.model_max_length == 1024


def test_ids_are_positions_in_the_vocabulary() -> None:
    assert SHIPPED.convert_tokens_to_ids(vocabulary()) == list(range(len(SHIPPED)))
    assert tuple(SPECIALS.index(token) for token in ("<end>", "<system>", "<user>", "<assistant>")) == (
        END,
        SYSTEM,
        USER,
        ASSISTANT,
    )


@pytest.mark.parametrize("difficulty", [Difficulty(), HELD, replace(HELD, lengths=(7, 24), codewords=(5, 8))])
def test_pretraining_reads_texts_as_the_tokenizer_does(difficulty: Difficulty) -> None:
    draw = random.Random(21)
    for _ in range(100):
        episode = make_episode(draw, difficulty, questions=2)
        for text in (episode.system, *(text for pair in episode.questions for text in pair)):
            assert encode(text) == SHIPPED(text)["input_ids"]
        for _, answer in episode.questions:
            assert SHIPPED.decode(encode(answer)) == answer


def test_a_tree_is_what_the_chat_template_writes() -> None:
    for seed in range(20):
        episode = make_episode(random.Random(seed), Difficulty(), questions=12)
        ids, branch, _, answer = make_tree(random.Random(seed), Difficulty(), 256)
        for number, (question, reply) in enumerate(episode.questions[: branch.max()], start=1):
            chat = [
                {"role": "system", "content": episode.system},
                {"role": "user", "content": question},
                {"role": "assistant", "content": reply},
            ]
            text = SHIPPED.apply_chat_template(chat, tokenize=False)
            asked = SHIPPED.apply_chat_template(chat[:2], tokenize=False, add_generation_prompt=True)
            assert [*ids[branch == 0], *ids[branch == number]] == SHIPPED(text)["input_ids"]
            assert [*ids[(branch == number) & answer]] == SHIPPED(text.removeprefix(asked))["input_ids"]


def test_made_up_words_are_two_pieces() -> None:
    for word in [*u.codewords(held=False), *u.codewords(held=True)]:
        first, second = SHIPPED.tokenize(word)
        assert first + second.removeprefix("##") == word
        assert second.startswith("##")


@settings(max_examples=300, deadline=None)
@given(text=st.text(string.printable, max_size=100))
def test_any_printable_text_is_read_without_the_unknown_token(text: str) -> None:
    assume(not any(token in text.lower() for token in SPECIALS))  # which stand for themselves
    ids = SHIPPED(text)["input_ids"]
    assert SHIPPED.unk_token_id not in ids
    spelled = "".join(token.removeprefix("##") for token in SHIPPED.convert_ids_to_tokens(ids))
    assert spelled == "".join(text.lower().split())


def test_what_cannot_be_read_is_one_unknown_token() -> None:
    assert SHIPPED.tokenize("zorka é means") == ["zor", "##ka", "<unk>", "means"]
    assert SHIPPED.tokenize("x" * 101) == ["<unk>"]
    assert "<unk>" not in SHIPPED.tokenize("x" * 100)
