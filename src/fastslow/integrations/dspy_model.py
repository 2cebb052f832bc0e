"""The trained model of a run as a dspy LM."""

from __future__ import annotations

import threading
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar
from weakref import WeakValueDictionary

from fastslow.base.errors import TaskError
from fastslow.fast.reflection.chats import COLDEST
from fastslow.launch.assembly import AtStep, open_snapshot
from fastslow.launch.results import Run
from fastslow.models.chat import ChatFormat
from fastslow.records import Sampling
from fastslow.tasks.adapters.dspy_program import DSPyMessage, Request, Response, Usage, as_messages, dspy


def dspy_lm(run: str | Path | Run, step: AtStep = None, *, trust: bool = False) -> dspy.LM:
    """The model of a run's best checkpoint (`Run.load_model`), of a step or of the "last", for dspy programs.

        program.set_lm(fastslow.dspy_lm("runs/mine"))

    Answers are sampled as in the run's evaluations; `lm.copy(temperature=0.0)` changes that. The model is loaded at the first
    call and answers one call at a time. A program with this LM is saved with the run's folder, and loaded with
    `program.load(path, allow_unsafe_lm_state=True)`.
    """
    snapshot = open_snapshot(Path(run), step)
    recipe, folder = snapshot.run.recipe, snapshot.run.path.resolve()
    return dspy.LM(
        f"fastslow/{folder.name}",
        engine=TrainedModel(str(folder), snapshot.step, trust),
        temperature=recipe.evaluation.temperature,
        top_p=recipe.evaluation.top_p,
        max_tokens=recipe.sampling.max_tokens,
        cache=False,  # the cache would outlive these weights
        num_retries=0,
    )


class TrainedModel:
    """An engine of dspy's over the weights of a run."""

    _loaded_from: ClassVar[WeakValueDictionary[tuple[str, int], TrainedModel]] = WeakValueDictionary()
    """Those that were loaded with a program: its predictors, which are loaded one by one, share the weights."""

    def __init__(self, folder: str, step: int, trust: bool = False) -> None:
        self.folder, self.step, self.trust = folder, step, trust
        self._busy = threading.Lock()

    def complete(self, request: Request) -> Response:
        """Answer one request of text."""
        from fastslow.engine.local.generate import generate
        from fastslow.models.load import end_tokens

        config = request.config
        with self._busy:
            model, chat = self._loaded
            prompt = chat.prompt(as_messages(request), "")
            room = self._room(model, len(prompt))
            most = room if config.max_tokens is None else min(config.max_tokens, room)
            temperature = 1.0 if config.temperature is None else config.temperature
            sampling = Sampling(
                max(temperature, COLDEST), 1.0 if config.top_p is None else config.top_p, max_tokens=most
            )
            ends, pad = end_tokens(model, chat.tokenizer), chat.tokenizer.pad_token_id
            (completion,) = generate(model, [prompt], sampling, pad_id=pad, eos_ids=ends, batch=1)
        return Response(
            id=None,
            model=request.model,
            message=DSPyMessage.assistant(chat.answer(completion.ids)),
            finish_reason="stop" if chat.has_ended(completion.ids) else "length",
            usage=Usage(input_tokens=len(prompt), output_tokens=len(completion.ids)),
        )

    @cached_property
    def _loaded(self) -> tuple[Any, ChatFormat]:
        run = Run(self.folder)
        model, tokenizer = run.load_model(self.step, trust=self.trust)
        return model, ChatFormat(tokenizer, run.recipe.sampling.chat_template_kwargs)

    def _room(self, model: Any, prompt: int) -> int:
        longest = getattr(model.config.get_text_config(), "max_position_embeddings", None)
        most = Run(self.folder).recipe.sampling.max_tokens if longest is None else longest - prompt
        if most < 1:
            raise TaskError(f"the prompt has {prompt} tokens, and the model of '{self.folder}' holds {longest}")
        return most

    def dump_state(self) -> dict[str, Any]:
        """What dspy saves of it: where the run is. Whether it is trusted is decided anew where it is loaded."""
        return {"folder": self.folder, "step": self.step}

    @classmethod
    def load_state(cls, state: dict[str, Any]) -> TrainedModel:
        place = (state["folder"], state["step"])
        engine = cls._loaded_from.get(place) or cls(*place)
        cls._loaded_from[place] = engine
        return engine

    def __deepcopy__(self, memo: Any) -> TrainedModel:
        """Copies of a program share the loaded weights."""
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return TrainedModel, (self.folder, self.step)
