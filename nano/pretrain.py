"""Pretrains nano: a Llama that does what the text in front of it says. Seeded, restartable.

    python nano/pretrain.py --out FOLDER [--steps 7325] [--config small]

On one GPU in minutes; `--config small` runs on a CPU in a test. Started again with the same folder, it goes on from its
last `training.pt`, with episodes it has not drawn before.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import fastslow  # noqa: F401 - before torch: fastslow sets its thread policy

sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
import torch
import universe as u
from episodes import Difficulty, make_episode
from tokenizer import make_tokenizer, vocabulary
from torch.utils.data import DataLoader, IterableDataset, get_worker_info
from transformers import LlamaConfig, LlamaForCausalLM


@dataclass(frozen=True)
class Config:
    """The size of a model and how it is trained; the defaults are nano's."""

    layers: int = 8
    width: int = 256
    heads: int = 4
    inner: int = 704
    batch: int = 512
    """Trees in a step."""
    length: int = 256
    """Tokens of a tree; questions that do not fit are left out."""
    learning_rate: float = 5e-3
    warmup: int = 200
    """Steps until the learning rate is reached."""
    decay: float = 0.35
    """Share of the steps, the last ones, in which it falls to zero."""


CONFIGS = {
    "nano": Config(),
    "small": Config(layers=2, width=64, heads=2, inner=128, batch=16, length=192, learning_rate=1e-2, warmup=5),
}
END, SYSTEM, USER, ASSISTANT = 2, 3, 4, 5
_IDS = {word: index for index, word in enumerate(vocabulary())}
_CODES = {
    first + second: [_IDS[first], _IDS[f"##{second}"]] for first in u.SYLLABLES_FIRST for second in u.SYLLABLES_SECOND
}


def encode(text: str) -> list[int]:
    """What the tokenizer gives for texts of the universe, by look-up; a test holds the two against each other."""
    ids: list[int] = []
    for word in text.replace(".", " .").split():
        if word in _CODES:
            ids += _CODES[word]
        else:
            ids.append(_IDS[word])
    return ids


def make_tree(draw: random.Random, difficulty: Difficulty, length: int) -> tuple[np.ndarray, ...]:
    """One packed tree: token ids, branch (0 the system message, −1 padding), positions, and which tokens are answers."""
    episode = make_episode(draw, difficulty, questions=12)
    ids = [SYSTEM, *encode(episode.system), END]
    branch, position, answer = [0] * len(ids), list(range(len(ids))), [False] * len(ids)
    root = len(ids)
    for number, (question, reply) in enumerate(episode.questions, start=1):
        ask = [USER, *encode(question), END, ASSISTANT]
        tell = [*encode(reply), END]
        size = len(ask) + len(tell)
        if len(ids) + size > length:
            break
        ids += ask + tell
        branch += [number] * size
        position += range(root, root + size)
        answer += [False] * len(ask) + [True] * len(tell)
    padding = length - len(ids)
    return (
        np.array(ids + [0] * padding, np.int64),
        np.array(branch + [-1] * padding, np.int64),
        np.array(position + [0] * padding, np.int64),
        np.array(answer + [False] * padding),
    )


class Trees(IterableDataset[tuple[torch.Tensor, ...]]):
    """Batches of trees, one stream for each worker; a stream starts anew at every restart."""

    def __init__(self, config: Config, seed: int, start: int) -> None:
        self.config, self.seed, self.start = config, seed, start

    def __iter__(self) -> Iterator[tuple[torch.Tensor, ...]]:
        worker = get_worker_info()
        draw = random.Random(f"{self.seed}/{self.start}/{worker.id if worker else 0}")
        while True:
            trees = [make_tree(draw, Difficulty(), self.config.length) for _ in range(self.config.batch)]
            yield tuple(torch.from_numpy(np.stack(column)) for column in zip(*trees, strict=True))


def make_model(config: Config) -> LlamaForCausalLM:
    """A Llama with random weights."""
    tokenizer = make_tokenizer()
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=config.width,
            intermediate_size=config.inner,
            num_hidden_layers=config.layers,
            num_attention_heads=config.heads,
            num_key_value_heads=config.heads,
            max_position_embeddings=1024,
            tie_word_embeddings=True,
            pad_token_id=tokenizer.pad_token_id,
            eos_token_id=tokenizer.eos_token_id,
            bos_token_id=None,
        )
    )


def tree_logits(
    model: torch.nn.Module, ids: torch.Tensor, branch: torch.Tensor, position: torch.Tensor
) -> torch.Tensor:
    """Logits over packed trees; each branch sees the system message and itself."""
    causal = torch.ones(ids.shape[1], ids.shape[1], dtype=torch.bool, device=ids.device).tril()
    visible = (branch[:, :, None] == branch[:, None, :]) | (branch[:, None, :] == 0)
    logits: torch.Tensor = model(
        input_ids=ids, attention_mask=(visible & causal)[:, None], position_ids=position
    ).logits
    return logits


def loss_of(model: torch.nn.Module, batch: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """Cross-entropy of the answers' tokens."""
    ids, branch, position, answer = batch
    logits = tree_logits(model, ids, branch, position)
    targets = torch.where(answer[:, 1:], ids[:, 1:], -100)
    return torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1).float(), targets.flatten(), ignore_index=-100)


def make_optimizers(model: LlamaForCausalLM, rate: float) -> list[torch.optim.Optimizer]:
    """Muon for the matrices inside, AdamW for embedding and norms."""
    matrices = [p for name, p in model.named_parameters() if p.ndim == 2 and "embed" not in name]
    others = [p for name, p in model.named_parameters() if p.ndim != 2 or "embed" in name]
    return [
        torch.optim.Muon(matrices, lr=rate, weight_decay=0.01, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(others, lr=rate, betas=(0.9, 0.98), weight_decay=0.0),
    ]


def pretrain(
    config: Config, out: Path, steps: int, seed: int, workers: int, minutes: float | None = None, save_every: int = 2000
) -> float:
    """Train, save and return the last loss; `minutes` sets the number of steps from the speed of the first 300."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(seed)
    torch.set_float32_matmul_precision("high")
    model = make_model(config).to(device)
    optimizers = make_optimizers(model, config.learning_rate)
    out.mkdir(parents=True, exist_ok=True)
    start = _load_state(out, model, optimizers, device)
    print(f"{model.num_parameters() / 1e6:.2f}M weights, {device}, from step {start}", flush=True)
    forward = torch.compile(loss_of, dynamic=False) if device == "cuda" else loss_of
    batches = _batches(config, seed, start, workers, device)
    began, compiling, loss = time.time(), 0.0, torch.zeros(())
    step = start
    while step < steps:
        if minutes is not None and step - start == 300:
            steps = start + int(300 * (minutes * 60 - 20) / (time.time() - began - compiling))
            print(f"--steps {steps}", flush=True)
        _set_rate(optimizers, config, step, steps)
        batch = tuple(tensor.to(device, non_blocking=True) for tensor in next(batches))
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            loss = forward(model, batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        if step == start:
            loss.item()
            compiling = time.time() - began
        step += 1
        if step % 100 == 0 or step == steps:
            spent = time.time() - began
            rate = (step - start) / spent
            print(f"step {step}/{steps} loss {loss.item():.4f} {rate:.1f} steps/s {spent:.0f} s", flush=True)
        if step % save_every == 0:
            _save_state(out, model, optimizers, step)
    model.to(torch.bfloat16).save_pretrained(out)
    make_tokenizer().save_pretrained(out)
    return loss.item()


def _batches(config: Config, seed: int, start: int, workers: int, device: str) -> Iterator[tuple[torch.Tensor, ...]]:
    return iter(
        DataLoader(
            Trees(config, seed, start),
            batch_size=None,
            num_workers=workers,
            prefetch_factor=4 if workers else None,
            pin_memory=device == "cuda",
        )
    )


def _set_rate(optimizers: list[torch.optim.Optimizer], config: Config, step: int, steps: int) -> None:
    """Up in a line, level, and down to zero in a line."""
    scale = min(1.0, (step + 1) / config.warmup, (1 - step / steps) / config.decay)
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = config.learning_rate * scale


def _load_state(out: Path, model: LlamaForCausalLM, optimizers: list[torch.optim.Optimizer], device: str) -> int:
    """The step to go on from: where the last state was saved, or 0."""
    file = out / "training.pt"
    if not file.exists():
        return 0
    state: dict[str, Any] = torch.load(file, map_location=device, weights_only=True)
    model.load_state_dict(state["model"])
    for optimizer, saved in zip(optimizers, state["optimizers"], strict=True):
        optimizer.load_state_dict(saved)
    return int(state["step"])


def _save_state(out: Path, model: LlamaForCausalLM, optimizers: list[torch.optim.Optimizer], step: int) -> None:
    """Written aside, then renamed into place: a run killed meanwhile still has the state before."""
    aside = out / "training.pt.new"
    optimizer_states = [optimizer.state_dict() for optimizer in optimizers]
    torch.save({"model": model.state_dict(), "optimizers": optimizer_states, "step": step}, aside)
    aside.replace(out / "training.pt")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=7325)
    parser.add_argument("--config", choices=CONFIGS, default="nano")
    parser.add_argument("--minutes", type=float, help="as many steps as fit into this time")
    parser.add_argument("--learning-rate", type=float)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=7)
    options = parser.parse_args()
    config = CONFIGS[options.config]
    if options.learning_rate:
        config = replace(config, learning_rate=options.learning_rate)
    pretrain(config, options.out, options.steps, options.seed, options.workers, options.minutes)


if __name__ == "__main__":
    main()
