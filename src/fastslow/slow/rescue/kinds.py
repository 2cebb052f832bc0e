"""Rescue in a recipe: its options, and what it cannot do. Nothing here imports torch."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import Field, field_validator

from fastslow.recipe.parts import REFLECTOR, Part, PartKind, UnreadPart

if TYPE_CHECKING:
    from fastslow.recipe import Recipe


class RetryOptions(Part):
    success: float = Field(default=1.0, gt=0, le=1)
    """A group whose best score is below this gets help. Lower it where a good answer scores less than 1."""
    attempts: int = Field(default=1, ge=1, le=64)
    """Tries of each helper at a group; the one with the highest score counts."""


class TeachersOptions(RetryOptions):
    models: list[Annotated[Part, REFLECTOR]] = Field(min_length=1)
    """The models, weakest first: each is asked only where those before it did not help. A LiteLLM name, the folder of a
    model, or a mapping as in `fast.reflection`: `{kind: local, model: …}`, `{kind: litellm, model: …, base_url: …}`."""
    retry: bool = False
    """The policy itself tries again first, as with `retry`."""

    @field_validator("models", mode="before")
    @classmethod
    def _folders(cls, value: Any) -> Any:
        """A folder of a model is a local one; a name alone is one model."""

        def read(it: Any) -> Any:
            if isinstance(it, str) and (it == "nano" or it.endswith(".gguf") or os.path.isdir(it)):
                return {"kind": "local", "model": it if it == "nano" else str(Path(it).absolute())}
            return it

        return [read(it) for it in (value if isinstance(value, list) else [value])]


class NoRescue(PartKind):
    """No help."""


class Retry(PartKind):
    """The policy's own second try."""

    Options: ClassVar[type[Part]] = RetryOptions

    @classmethod
    def refuse(cls, recipe: Recipe) -> None:
        name = recipe.slow.rescue.name
        if recipe.method == "distill":
            raise ValueError(
                f"slow.rescue={name} joins answers to groups that rewards train, which method=distill does not; set "
                "slow.rescue=none, or method=fst"
            )
        if recipe.slow.feedback != "off":
            raise ValueError(
                f"slow.rescue={name} cannot be combined with slow.feedback={recipe.slow.feedback}: both say what groups "
                "without a success teach; set slow.feedback=off or slow.rescue=none"
            )
        recipe.sampling.refuse_ahead(f"slow.rescue={name}", "which plays a problem again once its group is whole")


class Teachers(Retry):
    """Other models."""

    Options = TeachersOptions

    @classmethod
    def refuse(cls, recipe: Recipe) -> None:
        super().refuse(recipe)
        for part in recipe.slow.rescue.models:
            if not isinstance(part, UnreadPart) and not hasattr(REFLECTOR.registry.find(part.name), "chat"):
                raise ValueError(
                    f"slow.rescue.models names '{part.name}', which is no model of its own that could answer; name a LiteLLM "
                    "model, the folder of a model, or {kind: local, model: …}"
                )
