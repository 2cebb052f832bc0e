"""LiteLLM, imported without a word to the network, and the providers of hosted models that it knows."""

from __future__ import annotations

import os
from typing import Any


def quiet_litellm() -> Any:
    # Prices come with the package; without this the import fetches them from the network and complains when it cannot.
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    import litellm

    litellm.suppress_debug_info = True
    return litellm


def hosted_by(model: str) -> str | None:
    """The provider that a model's name begins with, or that has a model of this name; None where there is none."""
    litellm = quiet_litellm()
    first, slash, _ = model.partition("/")
    if slash:
        return first if first in {getattr(known, "value", known) for known in litellm.provider_list} else None
    try:
        return str(litellm.get_llm_provider(model)[1])
    except litellm.BadRequestError:
        return None
