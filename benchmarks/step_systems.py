"""The two trainers of the benchmark, each making the same steps: stock TRL, and fastslow."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from peft import LoraConfig
from transformers import PrinterCallback
from trl import GRPOConfig, GRPOTrainer

from benchmarks.step_clock import Clock
from benchmarks.step_lengths import force_own, force_transformers, force_vllm, release_own
from benchmarks.step_profile import Trace
from benchmarks.step_workload import Workload, random_model, words_as_tokens
from fastslow.base.world import World, wait_for
from fastslow.engine.local.engine import LocalEngine
from fastslow.models.load import Policy, load_policy
from fastslow.recipe import Recipe, build_recipe
from fastslow.records import Completion, Context, Rollout, Sampling, Turn
from fastslow.slow.losses import objective
from fastslow.slow.update import build_update
from fastslow.tasks.base import SYSTEM, Example, Feedback


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
    """Whether activations are recomputed, which is TRL's default, or kept, which is faster while they fit."""
    shape: str | None = None
    """The shape of a model under an adapter, whose random weights are made on the device; None if it is loaded by name."""
    lora: int | None = None
    """Rank of an adapter; None trains all weights."""
    auto: bool = False
    """Whether fastslow fits micro-batches, checkpointing and vLLM's share to the card by itself."""
    ahead: float = 0.0
    """How many steps ahead fastslow begins rollouts, with its own sampler."""

    @property
    def lengths(self) -> list[list[int]]:
        """Tokens of every answer, step by step."""
        return [self.workload.lengths(step) for step in range(len(self.steps))]

    def made(self) -> Any:
        """The model with random weights; None if the model is loaded by name."""
        if self.shape is None:
            return None
        model = random_model(self.shape, self.device, torch.bfloat16 if self.device == "cuda" else torch.float32)
        model.name_or_path = model.config._name_or_path = self.model  # where vLLM and TRL find the config
        return model


def score(ids: Sequence[int]) -> float:
    """A reward that costs nothing and is the same for both."""
    return float(sum(ids) % 2)


def recipe_of(job: Job) -> Recipe:
    load = job.workload
    return build_recipe(
        {
            "method": "rl",
            "model": {
                "name": job.model,
                "device": job.device,
                "lora": job.lora and {"rank": job.lora, "alpha": 2 * job.lora},
                "gradient_checkpointing": "auto" if job.auto else job.checkpointing,
            },
            "task": "given",
            "slow": {
                "steps": len(job.steps),
                "problems": load.problems,
                "group": load.group,
                "microbatch": "auto" if job.auto else load.microbatch,
                "kl": job.kl,
            },
            "sampling": {
                "max_tokens": load.tokens,
                "batch": load.rollouts,
                "ahead": job.ahead,
                "backend": "vllm" if job.vllm else "transformers",
            },
        }
    )


def run_fastslow(job: Job, clock: Clock) -> None:
    """Groups hold all contexts of a problem, as in the method; the update is the trainer's own."""
    recipe = recipe_of(job)
    made = job.made()
    if made is None:
        policy = replace(load_policy(recipe.model), tokenizer=words_as_tokens(job.workload.vocabulary))
    else:
        tokenizer, lora = words_as_tokens(job.workload.vocabulary), recipe.model.lora
        config = lora and LoraConfig(
            "CAUSAL_LM", r=lora.rank, lora_alpha=lora.alpha, target_modules=lora.target_modules
        )
        policy = Policy(made, tokenizer, job.device, job.device == "cuda", config)
    engine = LocalEngine(policy, recipe, job.work / "fastslow", World(), objective(recipe.slow))
    trainer, sampler = engine.trainer, engine.sampler
    end = trainer.eos_token_ids[0]
    trainer.eos_token_ids = [] if job.workload.mean_tokens is None else [end]  # without one, all have the full length
    if job.vllm:
        force_vllm(sampler.vllm.engine.llm, job.lengths)
    clock.wrap(sampler, "sample", "sampling")
    clock.wrap(sampler, "sync", "sync")
    # Rows without the log-probabilities of their sampler are scored too, by some processes only.
    clock.wrap(trainer, "score", lambda *_, everywhere=True: "reference" if everywhere else None)
    with _profiled(trainer, job):
        engine.prepare()
        clock.start()
        if not job.vllm:
            # The first call tries whether the model supports shared prefixes, which forced answers would spoil.
            sampler.sample([[2, 3]], Sampling(1.0, 1.0, 1), seed=0)
            force_own(job.lengths, end)
        begun = Begun(job, sampler, end) if job.ahead else None
        for step, own in enumerate(job.steps):
            sampler.sync()
            if begun:
                prompts, completions = begun.take(recipe.sampling.training(), step)
            else:
                prompts, completions = own, wait_for(engine.sample(own, recipe.sampling.training(), seed=step))
            with clock.phase("grading"):
                rollouts = [
                    _rollout(number, prompt, completion, job.workload, step)
                    for number, (prompt, completion) in enumerate(zip(prompts, completions, strict=True))
                ]
            engine.update(build_update(rollouts, recipe.slow, step + 1)[0])
            clock.on_step_end()
        engine.close()
    release_own()


@dataclass
class _Row:
    """An answer in play."""

    group: int
    prompt: list[int]
    length: int
    ids: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()
    ended: bool = False


class Begun:
    """Groups that are begun before their step, as with `sampling.ahead`: a step takes the first that are complete and waits
    for those of the step before. After the last step's prompts come those of the first again, as if the run had no end."""

    def __init__(self, job: Job, sampler: Any, end: int) -> None:
        self.load, self.sampler, self.end = job.workload, sampler, end
        self.prompts = [prompt for prompts in job.steps for prompt in prompts]
        self.lengths = [length for lengths in job.lengths for length in lengths]
        self.in_play = math.ceil((1 + job.ahead) * self.load.problems)
        self.next, self.rows = 0, list[_Row]()

    def take(self, sampling: Sampling, step: int) -> tuple[list[list[int]], list[Completion]]:
        """Prompts and completions of a step's groups."""
        problems = self.load.problems

        def enough(rows: Sequence[_Row]) -> bool:
            missing, due = {row.group for row in rows}, step * problems
            return len(self.rows) // self.load.group - len(missing) >= problems and min(missing, default=due) >= due

        if not enough([row for row in self.rows if not row.ended]):
            self._begin()
            open_rows = [row for row in self.rows if not row.ended]
            force_own({step: [row.length - len(row.ids) for row in open_rows]}, self.end)
            drawn = self.sampler.sample(
                [[*row.prompt, *row.ids] for row in open_rows],
                sampling,
                step,
                limits=[self.load.tokens - len(row.ids) for row in open_rows],
                enough=lambda unfinished: enough([open_rows[row] for row in unfinished]),
            )
            for row, completion in zip(open_rows, drawn, strict=True):
                row.ids += completion.ids
                row.logprobs += completion.logprobs
                row.ended = completion.ended
        unfinished = {row.group for row in self.rows if not row.ended}
        complete = dict.fromkeys(row.group for row in self.rows if row.group not in unfinished)
        taken = set(list(complete)[:problems])
        rows = [row for row in self.rows if row.group in taken]
        self.rows = [row for row in self.rows if row.group not in taken]
        return [row.prompt for row in rows], [Completion(row.ids, row.logprobs) for row in rows]

    def _begin(self) -> None:
        missing = self.in_play - len(self.rows) // self.load.group
        for group in range(self.next, self.next + missing):
            start = group * self.load.group % len(self.prompts)
            numbers = range(start, start + self.load.group)
            self.rows += [_Row(group, self.prompts[number], self.lengths[number]) for number in numbers]
        self.next += missing


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
        bf16=job.device == "cuda",
        use_cpu=job.device == "cpu",
        gradient_checkpointing=job.checkpointing,
        shuffle_dataset=False,
        save_strategy="no",
        report_to="none",
        logging_steps=1,
        disable_tqdm=True,
        model_init_kwargs={"dtype": "float32"} if job.shape is None else None,
    )
    adapter = job.lora and LoraConfig(
        r=job.lora, lora_alpha=2 * job.lora, target_modules="all-linear", task_type="CAUSAL_LM"
    )
    trainer = GRPOTrainer(
        model=job.made() or job.model,
        peft_config=adapter,
        reward_funcs=lambda completion_ids, **_: [score(ids) for ids in completion_ids],
        args=settings,
        train_dataset=Dataset.from_dict({"prompt": texts}),
        processing_class=words_as_tokens(load.vocabulary),
    )
    clock.wrap(trainer, "_generate_single_turn", "sampling")
    clock.wrap(trainer, "_calculate_rewards", "grading")
    reference = trainer.ref_model
    clock.wrap(
        trainer,
        "_get_per_token_logps_and_entropies",
        lambda model, *_, **__: "reference" if model is reference else None,
    )
    if job.vllm:
        force_vllm(trainer.vllm_generation.llm, job.lengths)
        clock.wrap(trainer.vllm_generation, "sync_weights", "sync")
    else:
        force_transformers(trainer.model, job.lengths, trainer.eos_token_ids[0])
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
