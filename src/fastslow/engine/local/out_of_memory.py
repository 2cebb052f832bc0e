"""Explain out-of-memory errors: of a GPU with the phase they occurred in, and the setting to change."""

from __future__ import annotations

import errno
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fastslow.base.errors import RunError
from fastslow.recipe import Recipe, resuming

HERE = "fastslow.engine.local"
PHASES = {
    "sampling": (f"{HERE}.sampler", f"{HERE}.generate", "fastslow.rollouts", "trl.generation", "vllm"),
    "updating": (f"{HERE}.trainer", f"{HERE}.batch", f"{HERE}.distill", "trl", "torch.optim"),
    "measuring the divergence": (f"{HERE}.scoring",),
}
"""Modules of each phase; the first match counts."""


@contextmanager
def explained(recipe: Recipe, folder: Path) -> Iterator[None]:
    """Turn an out-of-memory error into a `RunError` that says what to change."""
    try:
        yield
    except RuntimeError as error:
        if not of_gpu(error):
            raise
        phase = _phase(error)
        advice = "; or ".join(_advice(phase, recipe))
        again = f"resume with `{resuming(recipe, folder, 'KEY=VALUE')}`"
        started = (folder / "run.json").exists()
        raise RunError(f"out of GPU memory while {phase}: {advice}" + (f" ({again})" if started else "")) from error
    except (MemoryError, OSError, ImportError, SystemError) as error:
        if not _of_machine(error):
            raise
        traceback.clear_frames(error.__traceback__)  # what they hold is needed to say so
        again = f"; then resume with `{resuming(recipe, folder)}`" if (folder / "run.json").exists() else ""
        raise RunError(f"out of memory: free some, or raise the limit of the process{again}") from None


@contextmanager
def refused(advice: str) -> Iterator[None]:
    """Turn a GPU's out-of-memory error into a `RunError` with this advice; for commands other than a run."""
    try:
        yield
    except RuntimeError as error:
        if said := of_command(error, advice):
            raise RunError(said) from error
        raise


def of_command(error: Exception, advice: str) -> str | None:
    """What to say of a GPU's out-of-memory error outside a run; None for another error."""
    return f"out of GPU memory while {_phase(error)}: {advice}" if of_gpu(error) else None


def _of_machine(error: MemoryError | OSError | ImportError | SystemError) -> bool:
    """Whether memory ran out. A library that does not fit is reported as one that cannot be imported, or as code
    that failed without an exception."""
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    return isinstance(error, MemoryError) or any(
        words in str(error) for words in ("failed to map segment", "cannot allocate memory", "without exception set")
    )


def of_gpu(error: Exception) -> bool:
    """Whether it is torch's error, which is known by its name: mistakes are reported before torch is imported."""
    return type(error).__name__ == "OutOfMemoryError"


def _phase(error: BaseException) -> str:
    """The phase of the innermost stack frame that belongs to one."""
    names = [frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_tb(error.__traceback__)]
    for name in reversed(names):
        for phase, packages in PHASES.items():
            if any(name == package or name.startswith(f"{package}.") for package in packages):
                return phase
    return "loading"


def _advice(phase: str, recipe: Recipe) -> Iterator[str]:
    slow, sampling, model = recipe.slow, recipe.sampling, recipe.model
    vllm = sampling.backend == "vllm" or (sampling.backend == "auto" and "vllm" in sys.modules)
    if phase == "sampling" and not vllm:
        yield _halved("sampling.batch", sampling.batch)
    elif phase == "sampling":
        yield "sample without vLLM, which shares the card with the trainer (sampling.backend=transformers)"
    elif phase == "updating":
        if slow.microbatch == "auto":
            yield "set slow.microbatch to a small number of rollouts, such as 1 (the update stays the same)"
        else:
            yield _halved("slow.microbatch", slow.microbatch) + " (the update stays the same), or set it to auto"
        if model.gradient_checkpointing is not True:
            yield "set model.gradient_checkpointing=true (slower, much less memory)"
    if phase != "sampling" and vllm:
        yield "sample without vLLM (sampling.backend=transformers), or on other cards (sampling.backend={vllm: …})"
    if model.lora is None:
        yield "train an adapter instead of all weights, in a new run (model.lora.rank=16)"
    yield "use a smaller model, or a lower sampling.max_tokens, in a new run"


def _halved(key: str, value: int) -> str:
    return f"lower {key}={value} to {value // 2}" if value > 1 else f"{key} is 1 already"
