"""The two trainers of the benchmark, each making the same steps: stock TRL, and fastslow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import PrinterCallback
from trl import GRPOConfig, GRPOTrainer

from benchmarks.step_clock import Clock
from benchmarks.step_profile import Trace
from benchmarks.step_workload import Workload, words_as_tokens
from fastslow.concurrency import wait_for
from fastslow.engine.local.engine import LocalEngine
from fastslow.models.load import load_policy
from fastslow.recipe import Recipe, build_recipe
from fastslow.records import Completion, Context, Rollout, Turn
from fastslow.slow.update import build_update
from fastslow.tasks.base import SYSTEM, Example, Feedback
from fastslow.world import World


@dataclass(frozen=True)
class Job:
    """What both make: steps on these prompts, one for every rollout."""

    model: str
    device: str
    workload: Workload
    steps: Sequence[list[list[int]]]
    kl: float
    vllm: bool
    vllm_memory: float
    """The share of the card that vLLM may take."""
    work: Path
    profile: Path | None
    """Where it is written what the last step spends its time on."""
    checkpointing: bool
    """Whether stock TRL recomputes activations, which is its default, or keeps them, which is faster while they fit."""


def score(ids: Sequence[int]) -> float:
    """A reward that costs nothing and is the same for both."""
    return float(sum(ids) % 2)


def recipe_of(job: Job) -> Recipe:
    load = job.workload
    return build_recipe(
        {
            "method": "rl",
            "model": {"name": job.model, "device": job.device},
            "task": "given",
            "slow": {
                "steps": len(job.steps),
                "problems": load.problems,
                "group": load.group,
                "microbatch": load.microbatch,
                "kl": job.kl,
                "drop_zero_variance": False,
            },
            "sampling": {
                "max_tokens": load.tokens,
                "batch": load.rollouts,
                "backend": "vllm" if job.vllm else "transformers",
                "vllm_memory": job.vllm_memory,
            },
        }
    )


def run_fastslow(job: Job, clock: Clock) -> None:
    """Groups hold all contexts of a problem, as in the method; the update is the trainer's own."""
    recipe = recipe_of(job)
    policy = replace(load_policy(recipe.model), tokenizer=words_as_tokens(job.workload.vocabulary))
    engine = LocalEngine(policy, recipe, job.work / "fastslow", World())
    trainer, sampler = engine.trainer, engine.sampler
    trainer.eos_token_ids = []  # so that every completion has the full length
    if job.vllm:
        trainer.vllm_generation.generation_kwargs = {"ignore_eos": True}
    clock.wrap(sampler, "sample", "sampling")
    clock.wrap(sampler, "sync", "sync")
    clock.wrap(trainer, "_reference_logprobs", "reference")
    trainer.add_callback(clock)
    with _profiled(trainer, job):
        engine.prepare()
        for step, prompts in enumerate(job.steps):
            sampler.sync()
            completions = wait_for(engine.sample(prompts, recipe.sampling.training(), seed=step))
            with clock.phase("grading"):
                rollouts = [
                    _rollout(number, prompt, completion, job.workload, step)
                    for number, (prompt, completion) in enumerate(zip(prompts, completions, strict=True))
                ]
            engine.update(build_update(rollouts, recipe.slow, step + 1))
        engine.close()


def _rollout(number: int, prompt: list[int], completion: Completion, load: Workload, step: int) -> Rollout:
    context = Context({SYSTEM: f"context {number % load.group * load.contexts // load.group}"})
    turn = Turn(SYSTEM, "", prompt, completion, "")
    feedback = Feedback(score(completion.ids), "")
    return Rollout(Example(str(number // load.group), {}), context, step, (turn,), feedback)


def run_trl(job: Job, clock: Clock) -> None:
    """The same prompts, those of one problem and context as a group: stock TRL knows no other groups."""
    load = job.workload
    each = load.group // load.contexts
    texts = [" ".join(f"t{token}" for token in prompt) for prompts in job.steps for prompt in prompts[::each]]
    settings = GRPOConfig(
        output_dir=str(job.work / "trl"),
        per_device_train_batch_size=load.microbatch,
        gradient_accumulation_steps=load.rollouts // load.microbatch,
        num_generations=each,
        max_steps=len(job.steps),
        max_completion_length=load.tokens,
        learning_rate=1e-6,
        lr_scheduler_type="constant",
        loss_type="cispo",
        epsilon_high=4.0,
        beta=job.kl,
        use_vllm=job.vllm,
        vllm_mode="colocate",
        vllm_gpu_memory_utilization=job.vllm_memory,
        generation_kwargs={"ignore_eos": True} if job.vllm else {"min_new_tokens": load.tokens},
        bf16=job.device == "cuda",
        use_cpu=job.device == "cpu",
        gradient_checkpointing=job.checkpointing,
        shuffle_dataset=False,
        save_strategy="no",
        report_to="none",
        logging_steps=1,
        disable_tqdm=True,
        model_init_kwargs={"dtype": "float32"},
    )
    trainer = GRPOTrainer(
        model=job.model,
        reward_funcs=lambda completion_ids, **_: [score(ids) for ids in completion_ids],
        args=settings,
        train_dataset=Dataset.from_dict({"prompt": texts}),
        processing_class=words_as_tokens(load.vocabulary),
    )
    clock.wrap(trainer, "_generate_single_turn", "sampling")
    clock.wrap(trainer, "_calculate_rewards", "grading")
    reference = trainer.ref_model
    clock.wrap(
        trainer, "_get_per_token_logps_and_entropies", lambda model, *_: "reference" if model is reference else None
    )
    if job.vllm:
        clock.wrap(trainer.vllm_generation, "sync_weights", "sync")
    trainer.remove_callback(PrinterCallback)
    trainer.add_callback(clock)
    with _profiled(trainer, job):
        trainer.train()


@contextmanager
def _profiled(trainer: Any, job: Job) -> Iterator[None]:
    if job.profile is None:
        yield
        return
    trace = Trace(trainer, len(job.steps) - 1)
    yield
    job.profile.write_text(trace.words() + "\n")


SYSTEMS: dict[str, Any] = {
    "trl": (run_trl, False, "TRL, transformers"),
    "fastslow": (run_fastslow, False, "fastslow, transformers"),
    "trl-vllm": (run_trl, True, "TRL, vLLM"),
    "fastslow-vllm": (run_fastslow, True, "fastslow, vLLM"),
}
"""By name: how it runs, whether with vLLM, and what a person calls it."""


def out_of_memory(error: BaseException) -> bool:
    return isinstance(error, torch.OutOfMemoryError | MemoryError)
