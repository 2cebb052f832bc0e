"""How much faster a LoRA adapter is sampled inside the weights than beside them.

python benchmarks/adapter.py [--model nano] [--rows 128] [--tokens 64] [--repeats 3]
"""

from __future__ import annotations

import argparse
import time
from contextlib import nullcontext
from statistics import median

import torch
from peft import get_peft_model

from fastslow.engine.local.sampler import merged
from fastslow.models.load import load_policy
from fastslow.prefix.sampling import SharedSampler
from fastslow.recipe import LoraRecipe, ModelRecipe
from fastslow.records import Sampling


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="nano")
    parser.add_argument("--rows", type=int, default=128)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    policy = load_policy(ModelRecipe(name=options.model, lora=LoraRecipe()))
    model = get_peft_model(policy.model.to(policy.device), policy.lora).eval()
    # No row ends early: the model has no such token.
    sampler = SharedSampler(model, [-1], Sampling(1.0, 1.0, options.tokens))
    prompts = [[1 + row % 16, *range(5, 69)] for row in range(options.rows)]
    seconds: dict[str, list[float]] = {"beside": [], "inside": []}
    for repeat in range(1 + options.repeats):  # the first is to warm up
        for place, taken in seconds.items():
            start = time.perf_counter()
            with (
                merged(model) if place == "inside" else nullcontext(),
                torch.autocast(policy.device, torch.bfloat16, enabled=policy.autocast),
            ):
                sampler.sample(prompts, seed=repeat, batch=options.rows)
            if repeat:
                taken.append(time.perf_counter() - start)
    beside, inside = (median(seconds[place]) for place in ("beside", "inside"))
    print(f"{options.rows} rows of {options.tokens} tokens on {policy.device}: beside the weights {beside:.2f} s, inside "
          f"{inside:.2f} s, {beside / inside:.1f} times faster")  # fmt: skip


if __name__ == "__main__":
    main()
