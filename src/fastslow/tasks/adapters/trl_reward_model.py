"""Reward models, called like reward functions: one number for a prompt and its completion."""

from __future__ import annotations

from typing import Any

import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer
from trl.trainer.utils import get_config_model_id

from fastslow.base.errors import TaskError
from fastslow.base.text import one_line
from fastslow.models.chat import TextEncoder
from fastslow.models.load import choose_device, dtype_to_ask


class RewardModel:
    """A sequence classification model of one output, by name or as an object, and its tokenizer, read as GRPOTrainer does."""

    def __init__(self, model: Any, tokenizer: Any = None) -> None:
        shown = model if isinstance(model, str) else type(model).__name__
        try:
            if isinstance(model, str):
                device = choose_device("auto")
                dtype = dtype_to_ask(device)
                model = AutoModelForSequenceClassification.from_pretrained(
                    model, num_labels=1, dtype=dtype, trust_remote_code=False
                )
                model.to(device)
            name = get_config_model_id(model.config)
            tokenizer = tokenizer or AutoTokenizer.from_pretrained(name, trust_remote_code=False)
        except Exception as error:  # a damaged file shows as OSError, ValueError, RuntimeError or safetensors' own
            raise TaskError(
                f"reward model '{shown}' cannot be loaded ({type(error).__name__}: {one_line(error)}); expected a sequence "
                "classification model of transformers with its tokenizer, or a function, in a recipe MODULE:FUNCTION"
            ) from error
        if tokenizer.pad_token_id is None:
            tokenizer.pad_token = tokenizer.eos_token
        model.config.get_text_config().pad_token_id = tokenizer.pad_token_id
        self.model, self.tokenizer = model.eval(), tokenizer
        self.__name__ = name.rstrip("/").rpartition("/")[2]

    def __call__(self, *, prompts: list[Any], completions: list[Any], **_: Any) -> list[float]:
        text = TextEncoder(self.tokenizer)
        ids = [
            text.encode(prompt + completion) if isinstance(prompt, str) else text.chat(prompt + completion)
            for prompt, completion in zip(prompts, completions, strict=True)
        ]
        inputs = self.tokenizer.pad(
            {"input_ids": ids}, return_tensors="pt", padding=True, padding_side="right", return_attention_mask=True
        ).to(next(self.model.parameters()).device)
        with torch.inference_mode():
            rewards: list[float] = self.model(**inputs).logits[:, 0].tolist()
        return rewards

    def feedback(self, **_: Any) -> str:
        return f"Answers are judged by the reward model {self.__name__}."
