"""Makes the quickstart's model, a Llama of 0.1M weights that looks words up in its instructions, in a minute or two on a CPU.

It is trained from nothing on one skill: the system message holds lines such as `red means stop.` in any number and order, the
user names two words, and the answer is what the instructions say each of them means. Where they say nothing it guesses. So
what the words mean in the quickstart's task is not in its weights; at first only the text can tell it.

    python make_model.py FOLDER
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

import torch
from tokenizers import Regex, Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Split
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

import fastslow  # noqa: F401  sets the thread policy before torch is imported

KEYS = ["red", "green", "blue", "amber", "white", "black", "violet", "silver"]
VALUES = ["stop", "go", "wait", "turn", "rise", "fall", "hold", "run"]
SPECIALS = ["<pad>", "<unk>", "<end>", "<system>", "<user>", "<assistant>"]
TEMPLATE = (
    "{% for message in messages %}<{{ message['role'] }}> {{ message['content'] }} <end> {% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


def make_tokenizer() -> PreTrainedTokenizerFast:
    """Words are tokens, and so is each whole rule: a model this small need not learn to read grammar first."""
    rules = [f"{key} means {value}" for key in KEYS for value in VALUES]
    backend = Tokenizer(WordLevel({word: i for i, word in enumerate([*SPECIALS, *KEYS, *VALUES, *rules])}, "<unk>"))
    backend.pre_tokenizer = Split(Regex(r"\w+ means \w+|<\w+>|\w+"), "removed", invert=True)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="<pad>", unk_token="<unk>", eos_token="<end>", padding_side="left"
    )
    tokenizer.chat_template = TEMPLATE
    return tokenizer


def make_episode(draw: random.Random) -> tuple[str, str]:
    """A prompt and its answer. Now and then a word is asked that the instructions do not mention."""
    meanings = {key: draw.choice(VALUES) for key in draw.sample(KEYS, draw.randint(0, len(KEYS)))}
    rules = [f"{key} means {value}." for key, value in meanings.items()]
    preface = ["word"] * draw.randint(0, 6)
    asked = [draw.choice(list(meanings) if meanings and draw.random() < 0.9 else KEYS) for _ in range(2)]
    answer = [meanings.get(key) or draw.choice(VALUES) for key in asked]
    prompt = f"<system> {' '.join(preface + rules)} <end> <user> {' '.join(asked)} <end> <assistant>"
    return prompt, f"{' '.join(answer)} <end>"


def make_batch(tokenizer: PreTrainedTokenizerFast, draw: random.Random, size: int) -> dict[str, torch.Tensor]:
    episodes = [make_episode(draw) for _ in range(size)]
    prompts = tokenizer([prompt for prompt, _ in episodes])["input_ids"]
    answers = tokenizer([answer for _, answer in episodes])["input_ids"]
    width = max(len(prompt) + len(answer) for prompt, answer in zip(prompts, answers, strict=True))
    ids = torch.zeros(size, width, dtype=torch.long)
    labels = torch.full((size, width), -100)
    for row, (prompt, answer) in enumerate(zip(prompts, answers, strict=True)):
        both = torch.tensor(prompt + answer)
        ids[row, : len(both)] = both
        labels[row, len(prompt) : len(both)] = both[len(prompt) :]
    return {"input_ids": ids, "attention_mask": (ids != 0).long(), "labels": labels}


def make_model(folder: Path, steps: int = 3000, seed: int = 0) -> None:
    torch.manual_seed(seed)
    draw = random.Random(seed)
    tokenizer = make_tokenizer()
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=128,
        tie_word_embeddings=True,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
    )
    model = LlamaForCausalLM(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.98), weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=3e-3, total_steps=steps, pct_start=0.05)
    for step in range(1, steps + 1):
        loss = model(**make_batch(tokenizer, draw, 64)).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 250 == 0:
            print(f"step {step}/{steps}, loss {loss.item():.3f}", flush=True)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python make_model.py FOLDER")
    make_model(Path(sys.argv[1]))
