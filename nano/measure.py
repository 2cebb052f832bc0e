"""Measures what nano can do, on problems it never saw: greedy answers that must be right to the last token.

python nano/measure.py FOLDER [--problems 1000] [--seed 1]
"""

from __future__ import annotations

import argparse
import random
import sys
from dataclasses import replace
from pathlib import Path

from fastslow.evaluation.measure import interval  # before torch: fastslow sets its thread policy

sys.path.insert(0, str(Path(__file__).parent))

import torch
from episodes import Difficulty, make_episode
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from fastslow.models.load import load_pretrained

ANY = replace(Difficulty(), unruled=0, longer=0)
"""As in pretraining, without the questions that can only be guessed and the few long lists."""
PLAIN = replace(ANY, exceptions=0, priorities=0)
EASY = replace(PLAIN, operations=(1,), styles=(1, 1), noise=(0, 2), codewords=(1, 3))
"""One operation and one format rule."""
NEW = replace(EASY, held_phrasings=True)
SETS = {
    "easy, phrasings seen in training": EASY,
    "easy, phrasings never seen": NEW,
    "easy, made-up words never seen": replace(EASY, held_codewords=True),
    "easy, operation never seen with this style": replace(EASY, held_combinations=True),
    "easy, all three never seen": replace(NEW, held_codewords=True, held_combinations=True),
    "two operations never seen in a row": replace(EASY, operations=(0, 1), styles=(0, 0), held_combinations=True),
    "three operations, as never in training": replace(EASY, operations=(0, 0, 1)),
    "as in training, phrasings seen": ANY,
    "as in training, phrasings never seen": replace(ANY, held_phrasings=True),
    "an exception to every word and style": replace(EASY, exceptions=1),
    "an exception to every word and style, phrasings never seen": replace(NEW, exceptions=1),
    "two rules that disagree": replace(EASY, codewords=(1, 1), priorities=1),
    "two rules that disagree, phrasings never seen": replace(NEW, codewords=(1, 1), priorities=1),
    "five to eight words, phrasings never seen": replace(NEW, codewords=(5, 8)),
    **{f"easy, lists of {length}": replace(EASY, lengths=(length, length)) for length in range(6, 13)},
    "generic text instead of the rules": NEW,
}
GENERIC = "Answer the question."
BATCH = 250


@torch.no_grad()
def accuracy(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    difficulty: Difficulty,
    problems: int,
    system: str | None = None,
    seed: int = 1,
) -> float:
    """The share of problems answered exactly, under their own rules or under `system` in place of them."""
    draw = random.Random(seed)
    prompts, answers = [], []
    for _ in range(problems):
        episode = make_episode(draw, difficulty, questions=1)
        question, answer = episode.questions[0]
        messages = [{"role": "system", "content": system or episode.system}, {"role": "user", "content": question}]
        prompts.append(tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False))
        answers.append([*tokenizer(answer)["input_ids"], tokenizer.eos_token_id])
    right = 0
    for start in range(0, problems, BATCH):
        expected = answers[start : start + BATCH]
        batch = tokenizer(
            prompts[start : start + BATCH], return_tensors="pt", padding=True, return_token_type_ids=False
        ).to(model.device)
        room = max(map(len, expected))  # what has not ended by then is wrong
        output = model.generate(**batch, max_new_tokens=room, do_sample=False)
        given = output[:, batch["input_ids"].shape[1] :].tolist()
        right += sum(row[: len(answer)] == answer for row, answer in zip(given, expected, strict=True))
    return right / problems


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", help="a folder that pretraining saved, or nano for the shipped model")
    parser.add_argument("--problems", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    model, tokenizer = load_pretrained(options.folder, dtype=torch.float32)
    model.to("cuda" if torch.cuda.is_available() else "cpu").eval()
    print("| problems | right | 95% interval |\n|---|---|---|", flush=True)
    for name, difficulty in SETS.items():
        system = GENERIC if name.startswith("generic") else None
        share = accuracy(model, tokenizer, difficulty, options.problems, system, options.seed)
        low, high = interval(share, options.problems)
        print(f"| {name} | {share:.1%} | {low:.1%} to {high:.1%} |", flush=True)


if __name__ == "__main__":
    main()
