"""The tokenizer and the length limit of a model, without its weights: a run on a training service needs no torch."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastslow.base.errors import ModelError
from fastslow.base.providers import hosted_by
from fastslow.models import smollm2

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

ADAPTER = "adapter_config.json"
"""The file by which a checkpoint with an adapter is known."""


def resolve(name: str) -> str:
    """The argument of `from_pretrained`: a folder for `nano`, `smollm2`, local models and GGUF files, else the hub id."""
    if name == "nano":
        return str(Path(__file__).parent / "nano")
    if name == smollm2.NAME:
        from fastslow.models.load import convert_gguf

        return str(convert_gguf(smollm2.find(), smollm2.check))
    path = Path(name).expanduser()
    if path.suffix == ".gguf":
        if not path.is_file():
            raise ModelError(f"no GGUF file '{name}'; give the path of an existing .gguf file")
        from fastslow.models.load import convert_gguf

        return str(convert_gguf(path))
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise ModelError(f"folder '{name}' holds no config.json; expected a model saved by save_pretrained")
        return str(path)
    if name.startswith(("/", ".", "~")) or name.count("/") > 1:
        raise ModelError(
            f"no model folder '{name}'; give an existing folder, a .gguf file or a hub id (owner/name){_if_hosted(name)}"
        )
    if not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", name):
        raise ModelError(
            f"model '{name}' is neither a folder, a .gguf file nor a hub id (owner/name){_if_hosted(name)}"
        )
    return name


def context_length(name: str) -> int | None:
    """The longest sequence of the embedded model or of one in a folder, as far as its config says so."""
    folder = Path(__file__).parent / "nano" if name == "nano" else Path(name).expanduser()
    try:
        config = json.loads((folder / "config.json").read_text())
        found = config.get("text_config", config).get("max_position_embeddings")
    except (OSError, ValueError, AttributeError):
        return None
    return found if isinstance(found, int) else None


def read_tokenizer(source: str, *, trust_remote_code: bool) -> PreTrainedTokenizerBase:
    """The tokenizer of a model, with a padding token."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(source, padding_side="left", trust_remote_code=trust_remote_code)
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


@dataclass(frozen=True)
class Described:
    """What is known of a model without its weights."""

    tokenizer: PreTrainedTokenizerBase
    max_length: int | None
    """Maximum sequence length, prompt and completion together, if the config has one."""
    ends: Sequence[int]


def read_config(name: str, *, trust_remote_code: bool) -> Any:
    from transformers import AutoConfig

    source = resolve(name)
    try:
        return AutoConfig.from_pretrained(source, trust_remote_code=trust_remote_code)
    except Exception as error:
        raise not_loaded(name, error) from error


def describe(name: str, *, trust_remote_code: bool) -> Described:
    config = read_config(name, trust_remote_code=trust_remote_code).get_text_config()
    try:
        tokenizer = read_tokenizer(resolve(name), trust_remote_code=trust_remote_code)
    except Exception as error:
        raise not_loaded(name, error) from error
    of_config = getattr(config, "eos_token_id", None)
    ends = {tokenizer.eos_token_id, *(of_config if isinstance(of_config, list) else [of_config])} - {None}
    return Described(tokenizer, getattr(config, "max_position_embeddings", None), tuple(sorted(ends)))


def not_loaded(name: str, error: Exception) -> ModelError:
    reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    return ModelError(
        f"model '{name}' cannot be loaded: {reason} (a hub id needs network or a filled cache; "
        f"a local folder or .gguf file works offline){_if_hosted(name)}"
    )


def _if_hosted(name: str) -> str:
    """What to say where a name looks like one of a model behind an API."""
    provider = None if name.startswith(("/", ".", "~")) or name.endswith(".gguf") else hosted_by(name)
    if provider is None:
        return ""
    return (
        f". If this is a model behind the API of {provider}: the policy must be open weights, because it is trained; for a "
        "model behind an API use fastslow.DigestProposer (docs/gepa.md)"
    )
