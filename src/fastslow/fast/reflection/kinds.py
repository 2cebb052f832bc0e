"""The reflectors that a recipe can name: their options, what they need, and how they are made."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, ClassVar

from pydantic import Field, field_validator

from fastslow.base.errors import RecipeError
from fastslow.base.text import has_credentials
from fastslow.fast.reflection.base import Chat, ChatFailed, Reflector
from fastslow.fast.reflection.chats import COLDEST, LiteLLMChat, LocalChat, PolicyChat, provider_of
from fastslow.fast.reflection.language_model import LanguageModelReflector
from fastslow.fast.reflection.lessons import Lessons
from fastslow.recipe.parts import Part, PartKind
from fastslow.recipe.sections import Seconds, server_place
from fastslow.records import Sampling

if TYPE_CHECKING:
    from fastslow.engine.base import Engine
    from fastslow.models.chat import ChatFormat
    from fastslow.recipe import Recipe


class ReflectorKind(PartKind):
    """A reflector in a recipe."""

    own_model: ClassVar[bool] = False
    """It asks a model other than the policy, which is called once before step 1."""

    @classmethod
    def build(cls, recipe: Recipe, engine: Engine, chat: ChatFormat) -> Reflector:
        """The reflector; `engine` and `chat` are those of the policy."""
        raise NotImplementedError


class OwnModel(ReflectorKind):
    """A reflector that asks a model other than the policy."""

    own_model = True

    @classmethod
    def build(cls, recipe: Recipe, engine: Engine, chat: ChatFormat) -> Reflector:
        return LanguageModelReflector(cls.chat(recipe.fast.reflection, recipe.model.device))

    @classmethod
    def chat(cls, options: Part, device: str) -> Chat:
        """The model that these options name, loaded if it runs in this process."""
        raise NotImplementedError


class ModelOptions(Part):
    temperature: float = Field(default=1.0, ge=0, le=1000)
    """Sampling temperature of the reflection model."""
    max_tokens: int = Field(default=4096, ge=1)
    """Longest answer of the reflection model, in tokens."""


class LocalOptions(ModelOptions):
    model: str = Field(min_length=1)
    """Hub id, folder or `.gguf` file."""


class LiteLLMOptions(ModelOptions):
    model: str = Field(min_length=1)
    """A LiteLLM name such as `openai/gpt-5.2`."""
    base_url: str | None = None
    """Address of an OpenAI-compatible server."""
    timeout: Seconds = 120.0
    """Seconds to wait for one answer."""
    retries: int = Field(default=4, ge=0)
    """Retries after a transient fault, with doubling pauses."""

    @field_validator("base_url")
    @classmethod
    def _an_address(cls, value: str | None) -> str | None:
        if value is not None and has_credentials(value):
            raise ValueError(
                "the address holds a user, a password or a key, which would end up in the run folder; keep them in the "
                "environment (OPENAI_API_KEY, or OPENAI_BASE_URL for an address that holds them)"
            )
        if value is not None:
            server_place(value)
        return value


class LessonsKind(ReflectorKind):
    """Edits with lines of the feedback; no model."""

    @classmethod
    def build(cls, recipe: Recipe, engine: Engine, chat: ChatFormat) -> Reflector:
        return Lessons()


class LiteLLMKind(OwnModel):
    """A model by API."""

    Options = LiteLLMOptions

    @classmethod
    def require(cls, recipe: Recipe) -> None:
        cls.require_model(recipe.fast.reflection)

    @classmethod
    def require_model(cls, options: Part) -> None:
        if options.base_url:
            return
        try:
            provider_of(options.model)
        except ChatFailed as failure:
            raise RecipeError(str(failure)) from None
        import litellm

        needed = litellm.validate_environment(options.model)["missing_keys"]
        if absent := [key for key in needed if key not in os.environ]:
            raise RecipeError(f"{options.model} needs {', '.join(absent)} in the environment")

    @classmethod
    def chat(cls, options: Part, device: str) -> Chat:
        return LiteLLMChat(**options.options)


class LocalKind(OwnModel):
    """A model of its own in this process."""

    Options = LocalOptions

    @classmethod
    def chat(cls, options: Part, device: str) -> Chat:
        from fastslow.models.load import choose_device, load_to_ask  # it imports torch

        model, tokenizer = load_to_ask(options.model, choose_device(device))
        return LocalChat(model, tokenizer, options.temperature, options.max_tokens)


class PolicyKind(ReflectorKind):
    """The model in training."""

    Options = ModelOptions

    @classmethod
    def build(cls, recipe: Recipe, engine: Engine, chat: ChatFormat) -> Reflector:
        options = recipe.fast.reflection
        sampling = Sampling(max(options.temperature, COLDEST), 1.0, options.max_tokens)
        return LanguageModelReflector(PolicyChat(engine, chat, sampling))
