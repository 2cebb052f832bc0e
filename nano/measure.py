"""Measures what nano can do, on problems it never saw.

python nano/measure.py FOLDER [--problems 1000]
"""

from __future__ import annotations

import argparse
import random
import sys
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import torch
from episodes import Difficulty, make_episode
from transformers import AutoModelForCausalLM, AutoTokenizer

import fastslow  # noqa: F401  sets the thread policy before torch is imported

EASY = Difficulty(two_operations=0, styles=(1, 1), noise=(0, 2), codewords=(1, 3), unruled=0)
SETS = {
    "easy, phrasings seen in training": EASY,
    "easy, phrasings never seen": replace(EASY, held_phrasings=True),
    "easy, made-up words never seen": replace(EASY, held_codewords=True),
    "easy, combinations never seen": replace(EASY, held_combinations=True),
    "easy, all three never seen": replace(EASY, held_phrasings=True, held_codewords=True, held_combinations=True),
    "one or two operations, up to three styles, seen": replace(Difficulty(), unruled=0),
    "one or two operations, up to three styles, never seen": replace(Difficulty(), unruled=0, held_phrasings=True),
    "easy, longer lists (7 to 9)": replace(EASY, lengths=(7, 9)),
    "five to eight rules, phrasings never seen": replace(EASY, codewords=(5, 8), held_phrasings=True),
    "generic text instead of the rules": replace(EASY, held_phrasings=True),
}
GENERIC = "Answer the question."


@torch.no_grad()
def accuracy(
    model, tokenizer, difficulty: Difficulty, problems: int, system: str | None = None, seed: int = 1
) -> float:
    draw = random.Random(seed)
    prompts, answers = [], []
    for _ in range(problems):
        episode = make_episode(draw, difficulty, questions=1)
        question, answer = episode.questions[0]
        messages = [{"role": "system", "content": system or episode.system}, {"role": "user", "content": question}]
        prompts.append(tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False))
        answers.append(tokenizer(answer)["input_ids"])
    right = 0
    for start in range(0, problems, 250):
        batch = tokenizer(prompts[start : start + 250], return_tensors="pt", padding=True).to(model.device)
        batch.pop("token_type_ids", None)
        output = model.generate(**batch, max_new_tokens=48, do_sample=False)
        for row, answer in zip(
            output[:, batch["input_ids"].shape[1] :].tolist(), answers[start : start + 250], strict=True
        ):
            right += row[: row.index(2)] == answer if 2 in row else False
    return right / problems


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--problems", type=int, default=1000)
    options = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = AutoModelForCausalLM.from_pretrained(options.folder, dtype=torch.float32).to(device).eval()
    tokenizer = AutoTokenizer.from_pretrained(options.folder, padding_side="left")
    for name, difficulty in SETS.items():
        system = GENERIC if name.startswith("generic") else None
        print(f"{accuracy(model, tokenizer, difficulty, options.problems, system):.3f}  {name}", flush=True)


if __name__ == "__main__":
    main()
