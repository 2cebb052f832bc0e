"""Errors for the user: what was given, what was expected, what to do. The command line prints only the message."""

import warnings

from fastslow.base.text import without_controls


class FastSlowError(Exception):
    """A mistake in the input or the environment, not a bug in fastslow. Its message has no control characters, whatever it
    quotes, because Python shows it as it is."""

    def __str__(self) -> str:
        return without_controls(super().__str__())


class RecipeError(FastSlowError):
    """The recipe is invalid."""


class TaskError(FastSlowError):
    """A task cannot be found, loaded or played."""


class ModelError(FastSlowError):
    """A model cannot be found or loaded."""


class Diverged(ModelError):
    """A loss, gradient, weight or probability is not a finite number."""


class RunError(FastSlowError):
    """A run folder is missing, in use, damaged or cannot be written."""


class NothingLearnt(RunError):
    """A run was stopped because it cannot learn; it can be resumed."""


class Interrupted(FastSlowError):
    """A run was interrupted from the keyboard; it can be resumed."""


class FastSlowWarning(UserWarning):
    """A problem that does not stop the run."""


def warn(text: str) -> None:
    """Warn as of the code that calls the caller."""
    warnings.warn(text, FastSlowWarning, stacklevel=3)


def cause(error: BaseException) -> str:
    """An exception as one line for the user."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror} ({error.filename})" if error.filename else error.strerror
    if isinstance(error, FastSlowError):
        return str(error)
    if isinstance(error, MemoryError):
        return f"out of memory ({error})" if str(error) else "out of memory"
    return " ".join(f"{type(error).__name__}: {error}".split())
