"""Parts of a run that are chosen by name and have options of their own: the loss, the rescue, the optimizer, the reflector,
the engine.

In a recipe a part is a name, or a mapping with the name and the options. The options belong to the part: an engine, optimizer
or reflector is a class with `Options`, a subclass of `Part`; a loss is a function whose keyword-only parameters are options.
`refuse(recipe)` of the class, if it has one, raises a ValueError for what the part cannot do.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import re
import typing
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import (
    BaseModel,
    ConfigDict,
    SerializationInfo,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    create_model,
    field_validator,
)
from pydantic.fields import FieldInfo
from pydantic_core import PydanticSerializationError, core_schema

from fastslow.base.errors import FastSlowError, RecipeError
from fastslow.base.registry import Registry

if TYPE_CHECKING:
    from fastslow.recipe.model import Recipe

LARGEST = 2**32 - 1
"""The largest whole number that a setting may have."""


class Checked(BaseModel):
    """Settings: pydantic takes `true` for the number 1."""

    @field_validator("*", mode="wrap")
    @classmethod
    def _no_truth_for_a_number(cls, value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
        found = handler(value)
        if isinstance(value, bool) and isinstance(found, int | float) and not isinstance(found, bool):
            raise ValueError("expected a number, not true or false")
        return found


class Section(Checked):
    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True, frozen=True, allow_inf_nan=False)

    @field_validator("*", mode="after")
    @classmethod
    def _countable(cls, value: Any) -> Any:
        if isinstance(value, int) and abs(value) > LARGEST:
            raise ValueError(f"expected at most {LARGEST:,}")
        return value

    def model_dump(self, **options: Any) -> dict[str, Any]:
        """What ends a process inside ends it outside too: pydantic wraps it as an error of the recipe."""
        try:
            return super().model_dump(**options)
        except PydanticSerializationError as error:
            if isinstance(error.__cause__, KeyboardInterrupt | SystemExit | MemoryError):
                raise error.__cause__ from None
            raise


class Part(Section):
    """A chosen part; a subclass adds its options as fields."""

    name: str

    @property
    def kind(self) -> str:
        return self.name

    @property
    def options(self) -> dict[str, Any]:
        return {key: value for key, value in self if key != "name"}

    if TYPE_CHECKING:  # the options depend on the part

        def __getattr__(self, name: str) -> Any: ...


class PartKind:
    """What a name of a slot stands for: its options, what it cannot do and what it needs."""

    Options: ClassVar[type[Part]] = Part

    @classmethod
    def refuse(cls, recipe: Recipe) -> None:
        """Raise a ValueError for what the part cannot do."""

    @classmethod
    def require(cls, recipe: Recipe) -> None:
        """Raise if a package or a key is missing."""


class UnreadPart(Part):
    """A part of a stored recipe whose code is not loaded: nobody has said yet that it can be trusted, or it is missing."""

    model_config = ConfigDict(extra="allow")


@dataclass(frozen=True)
class Slot:
    """Where a recipe has a part."""

    key: str
    word: str
    """The key of the part's name: `name` or `kind`."""
    default: str
    registry: Registry
    base: str = ""
    """What the classes of others derive from, as `module:Name`."""

    def long(self, value: str) -> dict[str, str]:
        """The long form of a part that is given by name alone."""
        known = self.key != "fast.reflection" or value in self.registry.built_in or _OBJECT.fullmatch(value)
        if known or value in self.registry.names():
            return {self.word: value}
        return {"kind": "litellm", "model": value}

    def options(self, name: str) -> type[Part]:
        """The options of a part; loads it."""
        found = self.registry.find(name)
        if inspect.isfunction(found) and (loose := _loose(found)):
            raise RecipeError(
                f"{self.registry.described(name)} takes {', '.join(loose)} after the batch without a name; write `*` before "
                f"{loose[0]}: the options of a loss are its keyword-only parameters"
            )
        if self.base and name not in self.registry.built_in:
            module, _, base = self.base.partition(":")
            if not (isinstance(found, type) and issubclass(found, getattr(importlib.import_module(module), base))):
                raise RecipeError(
                    f"{self.registry.described(name)} is no subclass of {module}.{base}; derive it from that"
                )
        options = _of_signature(found) if inspect.isfunction(found) else getattr(found, "Options", Part)
        if not (isinstance(options, type) and issubclass(options, Part)) or not callable(found):
            raise RecipeError(
                f"{self.registry.described(name)} has no options that a recipe can read; expected a class with Options, a "
                "subclass of fastslow.recipe.Part, or for a loss a function"
            )
        return options

    def named(self, value: Any) -> tuple[Any, dict[str, Any]]:
        """The name and the options of a part, in either form."""
        given = self.long(value) if isinstance(value, str) else value
        if not isinstance(given, Mapping):
            raise ValueError(f"expected the name of a part, such as {self.default}, or a mapping with its options")
        options = dict(given)
        name = options.pop("name", self.default) if self.word not in options else options.pop(self.word)
        return name, options

    def read(self, value: Any, info: ValidationInfo) -> Part:
        if isinstance(value, Part):
            return value
        name, options = self.named(value)
        if not isinstance(name, str):
            raise ValueError(f"{self.key}.{self.word}={name!r}: expected a name, such as {self.default}")
        stored = bool(info.context and info.context.get("stored"))
        kind: type[Part] = UnreadPart
        if not (stored and ":" in name):
            try:
                kind = self.options(name)
            except FastSlowError as error:
                if not stored:  # pydantic takes no other characters
                    raise ValueError(str(error).encode("utf-8", "replace").decode()) from None
        return kind.model_validate({**options, "name": name}, context=info.context)

    def current(self, stored: dict[str, Any]) -> dict[str, Any]:
        """The mapping of a stored part, without options that only others of its slot have, as all had before."""
        name = stored.get(self.word) or self.default
        if ":" in str(name):
            return stored
        with suppress(FastSlowError):
            known = {self.word, *self.options(str(name)).model_fields}
            others = {option for _, option, _ in self.known_options()} - known
            return {key: value for key, value in stored.items() if key not in others}
        return stored

    def write(self, part: Part, info: SerializationInfo) -> dict[str, Any]:
        data = part.model_dump(mode=info.mode)
        return {self.word: data.pop("name"), **data}

    def known_options(self) -> Iterator[tuple[str, str, FieldInfo]]:
        """The options of the built-in parts, as (part, option, field); without parts whose packages are missing."""
        for name in self.registry.built_in:
            with suppress(FastSlowError):
                for option, field in self.options(name).model_fields.items():
                    if option != "name":
                        yield name, option, field

    def __get_pydantic_core_schema__(self, _source: Any, _handler: Any) -> core_schema.CoreSchema:
        """For `Annotated[Part, SLOT]`."""
        written = core_schema.plain_serializer_function_ser_schema(self.write, info_arg=True)
        return core_schema.with_info_plain_validator_function(self.read, serialization=written)


_OBJECT = re.compile(r"[\w.]+:[^\W\d]\w*|.*\.py:[^\W\d]\w*")
"""`module:Name` or `file.py:Name`; names of models have colons too, as in `ollama/qwen3:8b`."""


def _loose(function: Any) -> list[str]:
    """The parameters after the first that can be given by position."""
    given = inspect.signature(function).parameters.values()
    return [each.name for each in given if each.kind is each.POSITIONAL_OR_KEYWORD][1:]


@functools.cache
def _of_signature(function: Any) -> type[Part]:
    given = [each for each in inspect.signature(function).parameters.values() if each.kind is each.KEYWORD_ONLY]
    hints = SimpleNamespace(__annotations__={each.name: each.annotation for each in given})
    read = typing.get_type_hints(hints, function.__globals__, include_extras=True)
    fields = {each.name: (read[each.name], ... if each.default is each.empty else each.default) for each in given}
    return create_model(function.__name__, __base__=Part, **fields)  # type: ignore[call-overload]


def _built_in(package: str, names: str) -> dict[str, str]:
    """Where the parts are that come with the library, from `module:Name`, or `name=module:Name` where the two differ."""
    found = (each.rpartition("=") for each in names.split())
    return {name or place.partition(":")[0]: f"fastslow.{package}.{place}" for name, _, place in found}


_LOSSES = {name: f"fastslow.slow.losses:{name}" for name in ("cispo", "grpo", "dr_grpo", "dapo", "gspo")}
_OPTIMIZERS = (
    "gepa:Gepa digest:Digest ape:Ape opro:Opro evoprompt:EvoPrompt promptbreeder:Promptbreeder textgrad:TextGrad "
    "reflexion:Reflexion ace:Ace mipro:Mipro dspy-gepa=dspy_gepa:DSPyGepa"
)
_REFLECTORS = "lessons=kinds:LessonsKind litellm=kinds:LiteLLMKind local=kinds:LocalKind policy=kinds:PolicyKind"
LOSS = Slot("slow.loss", "name", "cispo", Registry("loss", "fastslow.losses", _LOSSES))
OPTIMIZER = Slot(
    *("fast.optimizer", "name", "gepa"),
    Registry("optimizer", "fastslow.optimizers", _built_in("fast.optimizers", _OPTIMIZERS)),
    "fastslow.fast.optimizers.base:Optimizer",
)
REFLECTOR = Slot(
    *("fast.reflection", "kind", "lessons"),
    Registry("reflector", "fastslow.reflectors", _built_in("fast.reflection", _REFLECTORS)),
    "fastslow.fast.reflection.kinds:ReflectorKind",
)
ENGINE = Slot(
    *("engine", "kind", "local"),
    Registry("engine", "fastslow.engines", _built_in("engine", "local:Local tinker:Tinker")),
    "fastslow.engine.kind:EngineKind",
)
RESCUE = Slot(
    *("slow.rescue", "name", "none"),
    Registry(
        "rescue",
        "fastslow.rescues",
        _built_in("slow.rescue", "none=kinds:NoRescue retry=kinds:Retry teachers=kinds:Teachers"),
    ),
    "fastslow.slow.rescue.kinds:Retry",
)
SLOTS = {slot.key: slot for slot in (LOSS, RESCUE, OPTIMIZER, REFLECTOR, ENGINE)}


def set_key(data: dict[str, Any], key: str, value: Any) -> None:
    """Set a dotted key in a recipe that is still a mapping; a short form on the way is expanded."""
    *parents, last = key.split(".")
    target: Any = data
    for depth, name in enumerate(parents, 1):
        inner = target.get(name)
        slot = SLOTS.get(".".join(parents[:depth]))
        if isinstance(inner, str) and (slot or name in ("model", "task")):
            inner = slot.long(inner) if slot else {"name": inner}
        elif inner is None:
            inner = {}
        elif not isinstance(inner, dict):
            raise RecipeError(f"override '{key}={value}': '{name}' holds {inner!r}, which has no keys of its own")
        target[name] = inner
        target = inner
    target[last] = value
