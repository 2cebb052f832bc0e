"""Check the installation: what a run would use, what is missing, and a small run as a self-test."""

from __future__ import annotations

import math
import os
import platform
import tempfile
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from threading import Thread
from typing import Literal
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import torch
from packaging.requirements import Requirement
from rich.console import Console

from fastslow.base.errors import FastSlowWarning
from fastslow.engine.local.estimate import LARGE, LONG, vllm_installed
from fastslow.launch.start import train
from fastslow.models.kernels import FAMILIES, kernels_installed
from fastslow.models.load import choose_device
from fastslow.recipe import load_recipe
from fastslow.runs.folder import RunFolder
from fastslow.runs.view import make_view
from fastslow.sandbox.runner import SandboxError, protections
from fastslow.study.quickstart import RECIPE

State = Literal["good", "absent", "wrong"]
USES = {
    "vllm": "sampling.backend=vllm, or auto with long answers of large models that have no fused kernels",
    "kernels": "fused norms, rotary positions and SwiGLU on a CUDA GPU",
    "tinker": "engine.kind=tinker",
    "agents": "the task agent, fastslow serve",
    "tasks": "codeio, math, hover, reasoning-gym",
    "dspy": "DSPy programs, fast.optimizer=mipro",
    "verifiers": "verifiers environments",
    "trackers": "output.report_to=[trackio, tensorboard]",
}
"""Extras of the package, and the features that need them."""
KEYS = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "OPENROUTER_API_KEY", "AZURE_API_KEY")
"""API keys of common reflection models; LiteLLM supports many more."""
HUB_PATIENCE = 5.0
"""Seconds that the model hub has to answer."""
SELF_TEST = (
    *("slow.steps=2", "slow.problems=4", "slow.group=4", "slow.microbatch=16", "slow.warmup_steps=0"),
    *("fast.population=2", "fast.cycle=2", "fast.anchors=4", "fast.budget=16", "fast.minibatch=2"),
    *("evaluation.problems=4", "evaluation.every=2", "output.checkpoint_every=2"),
)
"""Both loops, an evaluation and a checkpoint, as small as possible."""


@dataclass(frozen=True)
class Diagnosis:
    what: str
    found: str
    state: State = "good"
    advice: str = ""


def findings() -> Iterator[Diagnosis]:
    """What is installed, what a run would use and what is missing."""
    yield from _machine()
    yield from _packages()
    yield from _extras()
    yield from _environment()


def _machine() -> Iterator[Diagnosis]:
    yield Diagnosis("Python", f"{platform.python_version()} on {platform.system()} {platform.machine()}")
    device = choose_device("auto")
    if device == "cuda":
        for index in range(torch.cuda.device_count()):
            free, total = torch.cuda.mem_get_info(index)
            precision = "bf16" if torch.cuda.is_bf16_supported() else "fp32 only"
            found = (
                f"{torch.cuda.get_device_name(index)}, {free / 2**30:.0f} of {total / 2**30:.0f} GiB free, {precision}"
            )
            crowded = "" if free > 0.8 * total else "other processes use its memory"
            yield Diagnosis(f"GPU {index}", found, advice=crowded)
        uses = "fp32 weights, bf16 compute; shared prefixes by FlexAttention"
    else:
        seen = "no GPU that torch can use" if device == "cpu" else device
        built = "" if torch.version.cuda or device != "cpu" else f"torch {torch.__version__} was built without CUDA"
        yield Diagnosis("GPU", seen, "absent" if device == "cpu" else "good", built)
        uses = "fp32; shared prefixes by ordinary attention"
    yield Diagnosis("a run uses", f"{device}: {uses}")
    yield Diagnosis("sampling.backend=auto", _sampler(device))
    yield Diagnosis("fused kernels", _kernels(device))


def _sampler(device: str) -> str:
    if device == "cuda" and vllm_installed():
        large = f"models of {LARGE / 1e9:g} billion weights or more with sampling.max_tokens of {LONG} or more"
        unless = " unless they have fused kernels" if kernels_installed() else ""
        return f"vllm for {large}{unless}, transformers for others"
    return "transformers: " + ("no CUDA GPU is used" if vllm_installed() else "the package vllm is not installed")


def _kernels(device: str) -> str:
    if device == "cuda" and kernels_installed():
        return f"fused for {', '.join(FAMILIES)}, none for others"
    return "none: " + ("no CUDA GPU is used" if kernels_installed() else "the package liger-kernel is not installed")


def _packages() -> Iterator[Diagnosis]:
    """The required packages; installed ones are listed only where their version matters."""
    for requirement in _requirements(None):
        try:
            version = metadata.version(requirement.name)
        except metadata.PackageNotFoundError:
            yield Diagnosis(requirement.name, "missing", "wrong", f"pip install '{requirement}'")
            continue
        fits = requirement.specifier.contains(version, prereleases=True)
        advice = "" if fits else f"pip install '{requirement}'"
        if not fits or requirement.name in ("torch", "transformers", "trl", "gepa"):
            yield Diagnosis(requirement.name, version, "good" if fits else "wrong", advice)


def _extras() -> Iterator[Diagnosis]:
    for extra, use in USES.items():
        needed = _requirements(extra)
        if not needed:
            continue
        missing = [each.name for each in needed if find_spec(each.name.replace("-", "_")) is None]
        if missing:
            yield Diagnosis(extra, f"no {', '.join(missing)}", "absent", f"for {use}: pip install 'fastslow[{extra}]'")
        else:
            yield Diagnosis(extra, ", ".join(f"{each.name} {metadata.version(each.name)}" for each in needed))


def _environment() -> Iterator[Diagnosis]:
    set_keys = [key for key in KEYS if os.environ.get(key)]
    if set_keys:
        yield Diagnosis("reflection API", ", ".join(set_keys))
    else:
        advice = "set one for fast.reflection=openai/…; lessons, the policy and local models need none"
        yield Diagnosis("reflection API", "no API key in the environment", "absent", advice)
    yield _hub()
    try:
        yield Diagnosis("sandbox for code", ", ".join(protections().layers) or "time and memory limits only")
    except SandboxError as error:
        yield Diagnosis("sandbox for code", str(error).partition(";")[0], "absent")


def _hub() -> Diagnosis:
    """Whether the hub answers."""
    from huggingface_hub import constants

    cache = os.environ.get("HF_HOME") or "~/.cache/huggingface"
    if constants.HF_HUB_OFFLINE:
        return Diagnosis("model hub", f"offline by HF_HUB_OFFLINE, cache {cache}")
    if _answers(constants.ENDPOINT):
        return Diagnosis("model hub", f"{constants.ENDPOINT} answers, cache {cache}")
    advice = "only folders, .gguf files, nano and models in the cache can be loaded"
    return Diagnosis("model hub", f"{constants.ENDPOINT} cannot be reached, cache {cache}", "absent", advice)


def _answers(address: str) -> bool:
    """Whether a server answers in time, in whatever way. A name may be looked up for longer than any limit on a socket."""
    found: list[bool] = []

    def ask() -> None:
        try:
            with urlopen(Request(address, method="HEAD"), timeout=HUB_PATIENCE):
                found.append(True)
        except HTTPError:
            found.append(True)
        except (OSError, ValueError):
            found.append(False)

    asking = Thread(target=ask, daemon=True)
    asking.start()
    asking.join(HUB_PATIENCE)
    return bool(found and found[0])


def _requirements(extra: str | None) -> list[Requirement]:
    """The requirements of the package or of one of its extras; empty if the package is not installed."""
    try:
        found = [Requirement(text) for text in metadata.requires("fastslow") or []]
    except metadata.PackageNotFoundError:
        return []
    if extra is None:
        return [each for each in found if each.marker is None]
    return [each for each in found if each.marker is not None and each.marker.evaluate({"extra": extra})]


def self_test() -> Diagnosis:
    """Two steps of both loops with the embedded model, on the device that a run would use."""
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", FastSlowWarning)
        try:
            run = RunFolder.open(
                train(load_recipe(RECIPE, SELF_TEST), Path(folder) / "run", make_view(Console(quiet=True)))
            )
        except Exception as error:  # a run would fail in the same way
            return Diagnosis("self-test", "failed", "wrong", f"{type(error).__name__}: {error}")
        last = run.rows("metrics")[-1]
    messages = [str(warning.message) for warning in caught if issubclass(warning.category, FastSlowWarning)]
    loss = last.get("loss") or 0.0  # None if every group has zero variance, so that nothing is trained
    if not math.isfinite(loss):
        return Diagnosis("self-test", "failed", "wrong", f"the loss is {loss}")
    rollouts = last["rollouts_slow"] + last["rollouts_fast"] + last["rollouts_evaluation"]
    found = (
        f"{last['step']} steps and a cycle of the fast loop, {rollouts} rollouts, {time.perf_counter() - started:.0f} s"
    )
    return Diagnosis("self-test", "; ".join([found, *messages]))
