"""What a recipe would spend, and what it lacks, before anything is spent: for `fastslow check`.

Rollouts are counted from the recipe: a search may end early, a step may reuse rollouts, and gepa finishes the generation in
which its budget runs out. Prompts are measured on the first training problems under the seed text, one turn each; evolved
contexts make them longer. Completions count with the most tokens that they may have.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

from safetensors import SafetensorError, safe_open

from fastslow.base.errors import FastSlowError
from fastslow.engine.local.choice import Choice, choose, own_kernels, vllm_installed
from fastslow.fast.optimizers import find_optimizer
from fastslow.fast.reflection import ChatFailed
from fastslow.fast.reflection.litellm_chat import provider_of
from fastslow.launch.assembly import CHECKED_EXAMPLES, check_lengths, check_packages, choose_seed_texts
from fastslow.models.memory import GIB, PREFILL, Footprint, Shape, answers_that_fit
from fastslow.models.tokenizer import describe, read_config, resolve
from fastslow.recipe import Recipe, VllmServers
from fastslow.recipe.checks import READS_ROLLOUTS
from fastslow.rollouts.chat import ChatFormat
from fastslow.runs.trackers import check_trackers
from fastslow.tasks import Task
from fastslow.tasks.registry import build_task
from fastslow.tasks.scripted import scripted_rollout

CARDS = (16, 24, 40, 48, 80, 96, 141, 192)
"""Memory of usual GPUs, in GB."""
MEMORY_OF_CARD = 0.98
"""Share of that which a process can use."""
TOO_LARGE = (
    "the run does not fit with answers of full length; leave slow.microbatch and model.gradient_checkpointing on auto, train "
    "an adapter (model.lora.rank=16), set slow.kl=0, lower sampling.max_tokens, or use a smaller model or several GPUs"
)


@dataclass(frozen=True)
class Rollouts:
    """Rollouts of a whole run by purpose."""

    slow: int
    fast: int
    evaluation: int

    @property
    def total(self) -> int:
        return self.slow + self.fast + self.evaluation


@dataclass(frozen=True)
class Finding:
    """A line of the check; `missing` if the run cannot start because of it."""

    what: str
    found: str
    missing: bool = False


def count_rollouts(recipe: Recipe) -> Rollouts:
    slow, fast, evaluation = recipe.slow, recipe.fast, recipe.evaluation
    contexts = 1 if recipe.method == "rl" else 2
    cycles = 0 if recipe.method == "rl" else math.ceil(slow.steps / fast.cycle)
    anchors = min(fast.anchors, fast.cycle * slow.problems) * fast.samples
    rescored = 0
    if cycles and fast.rescore == "all" and fast.optimizer not in READS_ROLLOUTS:
        rescored = anchors * (1 + (cycles - 1) * fast.population)  # the first cycle has the seed text only
    played = 0 if recipe.method == "gepa" else slow.steps * slow.problems * slow.group
    searched = cycles * fast.budget + rescored
    share = 1.0
    if recipe.rollouts is not None:  # the run ends in the step in which they are spent
        share = min(1.0, recipe.rollouts / max(1, played + searched))
        played, searched = math.ceil(played * share), math.ceil(searched * share)
    often = 1 + math.ceil(share * slow.steps / evaluation.every) if evaluation.every else 0
    measured = often * contexts * evaluation.problems * (evaluation.k + evaluation.divergence)
    return Rollouts(played, searched, measured)


def check(recipe: Recipe) -> Iterator[Finding]:
    """Problems, rollouts, tokens, memory or cost, and what is missing."""
    yield from _missing("trackers", lambda: check_trackers(recipe.output.report_to))
    if recipe.method != "rl":
        yield from _missing("optimizer", lambda: find_optimizer(recipe.fast.optimizer))
        yield from _reflection_key(recipe)
    rollouts = count_rollouts(recipe)
    try:
        task = build_task(recipe)
        prompt = _prompt_tokens(recipe, task)
    except FastSlowError as error:
        yield Finding("task and model", str(error), missing=True)
        return
    trained, held_out = len(task.examples("train")), len(task.examples("validation"))
    yield Finding("problems", f"{trained:,} to train on, {held_out:,} for validation")
    yield Finding(
        "rollouts",
        f"about {rollouts.total:,}: {rollouts.slow:,} slow, {rollouts.fast:,} fast, {rollouts.evaluation:,} evaluation",
    )
    completion = recipe.sampling.max_tokens
    longest = f", and up to {recipe.fast.max_tokens:,} more under evolved contexts" if recipe.method != "rl" else ""
    yield Finding(
        "tokens",
        f"prompts of {prompt:.0f} on average under the seed text{longest}; completions of at most {completion:,}; together "
        f"{rollouts.total * (prompt + completion):,.0f} with the seed text and completions of full length",
    )
    if recipe.engine.kind == "tinker":
        yield _cost(recipe, rollouts, prompt)
        yield from _missing(
            "server", lambda: _connect(recipe), f"{recipe.engine.base_url or 'the hosted service'} has the model"
        )
    else:
        yield from _missing("packages", lambda: check_packages(recipe))
        yield from _sampler(recipe, task)
        yield from _memory(recipe, prompt)


def _missing(what: str, needed: Callable[[], object], good: str = "") -> Iterator[Finding]:
    try:
        needed()
    except FastSlowError as error:
        yield Finding(what, str(error), missing=True)
    else:
        if good:
            yield Finding(what, good)


def _connect(recipe: Recipe) -> None:
    from fastslow.engine.tinker.sdk import connect

    connect(recipe).close()


def _sampler(recipe: Recipe, task: Task) -> Iterator[Finding]:
    """What samples, and why; vLLM servers are asked what they serve, which prompts must fit."""
    backend = recipe.sampling.backend
    if isinstance(backend, VllmServers):
        from fastslow.engine.local.servers import connect

        try:
            connected = connect(recipe)
        except FastSlowError as error:
            yield Finding("sampler", str(error), missing=True)
            return
        for server in connected.servers:
            found = f"{server.address} serves {server.model}, {server.max_length:,} tokens, with vLLM {server.version}"
            yield Finding("sampler", found)
        yield from _missing("task and servers", lambda: _prompt_tokens(recipe, task, connected.max_length))
    elif backend == "auto":
        choice = _choice(recipe)
        yield Finding("sampler", f"{choice.backend}: {choice.why}")
    else:
        yield Finding("sampler", f"{backend}: set in the recipe")


def _choice(recipe: Recipe) -> Choice:
    """torch is imported only where its GPU matters."""
    if not vllm_installed():
        return choose(recipe.sampling, None, None)
    import torch
    from transformers import AutoModelForCausalLM

    from fastslow.models.load import choose_device

    name, trust = recipe.model.name, recipe.model.trust_remote_code
    device = choose_device(recipe.model.device)
    if device != "cuda":
        return choose(recipe.sampling, None, None)
    config, card = read_config(name, trust_remote_code=trust), torch.cuda.get_device_properties(0).total_memory
    weights = _weights(recipe, Shape.of(config))
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, trust_remote_code=trust)
    return choose(recipe.sampling, weights, card, own_kernels(recipe.model, device, model))


def _reflection_key(recipe: Recipe) -> Iterator[Finding]:
    reflection = recipe.fast.reflection
    if reflection.kind != "litellm" or reflection.base_url:
        return
    try:
        provider_of(str(reflection.model))
    except ChatFailed as failure:
        yield Finding("reflection", str(failure), missing=True)
        return
    import litellm

    absent = [
        key for key in litellm.validate_environment(str(reflection.model))["missing_keys"] if key not in os.environ
    ]
    if absent:
        yield Finding("reflection", f"{reflection.model} needs {', '.join(absent)} in the environment", missing=True)


def _prompt_tokens(recipe: Recipe, task: Task, most: int | None = None) -> float:
    """Mean length of the first prompts; raises if one does not fit the model, or the `most` tokens that its servers take."""
    model = describe(recipe.model.name, trust_remote_code=recipe.model.trust_remote_code)
    chat = ChatFormat(model.tokenizer, recipe.sampling.chat_template_kwargs)
    texts = choose_seed_texts(task, recipe.fast.seed_text)
    check_lengths(task, chat, texts, recipe.sampling.max_tokens, most or model.max_length)
    asked = [scripted_rollout(task, example, texts=texts).asks for example in task.examples("train")[:CHECKED_EXAMPLES]]
    lengths = [len(chat.prompt(asks[0].messages, asks[0].context(texts))) for asks in asked if asks]
    return mean(lengths) if lengths else 0.0


def _cost(recipe: Recipe, rollouts: Rollouts, prompt: float) -> Finding:
    prices = recipe.engine.prices
    if prices is None:
        return Finding("cost", "unknown: set engine.prices to what the service charges")
    completion = recipe.sampling.max_tokens
    sampled = rollouts.total * (prices.prompt * prompt + prices.completion * completion)
    passes = 2 * prices.training + prices.prompt if recipe.slow.kl else prices.training
    trained = rollouts.slow * (prompt + completion) * passes
    return Finding(
        "cost",
        f"about ${(sampled + trained) / 1e6:,.2f}: ${sampled / 1e6:,.2f} to sample, ${trained / 1e6:,.2f} to train, "
        "with the seed text and completions of full length, without the reflection model",
    )


def _memory(recipe: Recipe, prompt: float) -> Iterator[Finding]:
    """Weights, gradients and Adam's two moments; a copy of the base model if there is a KL penalty without an adapter. On a
    GPU also what depends on the tokens."""
    shape = Shape.of(read_config(recipe.model.name, trust_remote_code=recipe.model.trust_remote_code))
    weights = _weights(recipe, shape)
    if weights is None:
        yield Finding("memory", "unknown: the model is not in a local folder of safetensors, and its shape is unusual")
        return
    if recipe.method == "gepa":
        needed, parts = 4 * weights, "weights"
    elif recipe.model.lora is not None:
        needed, parts = 4 * weights, "frozen weights in fp32, half in bf16; an adapter adds little"
    else:
        needed = (16 + (4 if recipe.slow.kl else 0)) * weights
        parts = "weights, gradients, optimizer" + (", base model" if recipe.slow.kl else "")
    yield Finding("memory", f"{needed / 2**30:,.2f} GiB for {weights:,} weights ({parts}), without activations")
    if (
        shape
        and recipe.method != "gepa"
        and recipe.model.device in ("auto", "cuda")
        and recipe.model.precision != "fp32"
    ):
        yield _on_gpu(recipe, shape, weights, prompt)


def _on_gpu(recipe: Recipe, shape: Shape, weights: int, prompt: float) -> Finding:
    """What fits this machine's card, or the smallest of usual ones; calculated with contexts and answers of full length."""
    card, name = _card()
    if card is not None:
        found = _plan(recipe, shape, weights, prompt, card)
        return Finding("GPU", f"on {name}, calculated: {found or TOO_LARGE}", missing=found is None and _fitted(recipe))
    for size in CARDS:
        if found := _plan(recipe, shape, weights, prompt, int(MEMORY_OF_CARD * size * 10**9)):
            return Finding("GPU", f"this machine has none; a card of {size} GB fits, calculated: {found}")
    return Finding("GPU", f"this machine has none; on a card of {CARDS[-1]} GB, calculated: {TOO_LARGE}")


def _fitted(recipe: Recipe) -> bool:
    """Whether the run chooses everything by itself: what it cannot fit then does not fit."""
    return recipe.slow.microbatch == "auto" and recipe.model.gradient_checkpointing is not False


def _card() -> tuple[int | None, str]:
    """Memory and name of this machine's GPU."""
    import torch

    if not torch.cuda.is_available():
        return None, ""
    size = torch.cuda.get_device_properties(0).total_memory
    return size, f"{torch.cuda.get_device_name(0)} ({size / GIB:.0f} GiB)"


def _plan(recipe: Recipe, shape: Shape, weights: int, prompt: float, card: int) -> str | None:
    """How a run fits a card with this many bytes; None if it does not."""
    slow, sampling, lora = recipe.slow, recipe.sampling, recipe.model.lora
    trained = shape.adapter_weights(lora.rank) if lora else weights
    rank, distilled = (lora.rank if lora else None), recipe.method == "distill"
    penalty = bool(slow.kl) and not distilled
    reference = lora is None and (penalty or recipe.evaluation.divergence)
    needed = Footprint(shape, weights, trained, rank, bf16=True, reference=reference, distilled=distilled)
    evolved = 0 if recipe.method == "rl" else recipe.fast.max_tokens
    longest = round(prompt) + evolved + sampling.max_tokens
    rollouts = slow.problems * slow.group
    vllm = 0
    if sampling.backend == "vllm" or (sampling.backend == "auto" and _choice(recipe).backend == "vllm"):
        vllm = round(needed.vllm_share(card, card, rollouts, sampling.max_tokens) * card)
    free = card - vllm - (needed.fixed - needed.head)
    wish = None if recipe.model.gradient_checkpointing == "auto" else recipe.model.gradient_checkpointing
    if free < 0:
        return None
    if slow.microbatch == "auto":
        tokens, checkpointing = needed.microbatch(free, longest, wish)
        each = f"micro-batches of {tokens:,} tokens"
        tokens = max(tokens, longest)  # a row is never divided
    else:
        shared = evolved if slow.shared_prefix else 0  # by all rows, and so computed once
        tokens, checkpointing = shared + slow.microbatch * (longest - shared), wish is True
        each = f"micro-batches of {slow.microbatch} rollouts"
    update = needed.update_bytes(tokens, checkpointing) + vllm
    if update > card:
        return None
    kept = "recomputed" if checkpointing else "kept"
    words = f"updates need up to {update / GIB:.0f} GiB with {each}, activations {kept}"
    if vllm:
        return words + f"; vLLM takes {vllm / GIB:.0f} GiB of them"
    if isinstance(sampling.backend, VllmServers):
        return words + "; the servers sample"
    contexts = 1 if recipe.method == "rl" else recipe.fast.population
    in_play, problems = (math.ceil((1 + sampling.ahead) * each) for each in (rollouts, slow.problems))
    prompts = min(in_play, contexts * problems) * round(prompt)
    free = max(card - needed.sampling_bytes(0, 0, 0) + PREFILL, 0)
    most = min(math.ceil((1 + sampling.ahead) * sampling.batch), in_play)
    rows, answers = answers_that_fit(shape, 2, free, contexts * evolved, prompts / in_play, most, sampling.max_tokens)
    sampled = needed.sampling_bytes(rows, contexts * evolved + prompts * rows // in_play, answers)
    if sampled > card:
        return None
    return words + f"; sampling up to {sampled / GIB:.0f} GiB with {rows} completions at a time"


def _weights(recipe: Recipe, shape: Shape | None) -> int | None:
    """Weights of the model, from its files or else from its shape."""
    return _count_weights(Path(resolve(recipe.model.name))) or (shape.weights if shape else None)


def _count_weights(folder: Path) -> int | None:
    """From the headers of the files that transformers loads, None if they cannot be read; a weight that two layers share is
    stored once."""
    total = 0
    for path in sorted(folder.glob("model*.safetensors")) if folder.is_dir() else []:
        try:
            with safe_open(path, "numpy") as file:
                total += sum(math.prod(file.get_slice(name).get_shape()) for name in file.keys())  # noqa: SIM118
        except (SafetensorError, OSError):
            return None
    return total or None
