"""What a run is: one typed, validated model.

The defaults are the published settings of the method; a field's docstring is its documentation everywhere
(`docs/recipe.md` is generated from this file and sections.py).
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from fastslow.base.text import has_credentials
from fastslow.recipe.parts import ENGINE, RESCUE, SLOTS, Part, Section, UnreadPart
from fastslow.recipe.sections import (
    EvaluationRecipe,
    FastRecipe,
    GradingRecipe,
    ModelRecipe,
    OutputRecipe,
    PricesRecipe,
    SamplingRecipe,
    SlowRecipe,
    StageRecipe,
    TaskByName,
    TaskRecipe,
)

Method = Literal["fst", "rl", "gepa", "distill"]


class Recipe(Section):
    """Everything needed to run again."""

    method: Method = "fst"
    """`fst` runs both loops, `rl` only the slow one under the seed text, `gepa` only the fast one on frozen weights, with
    any `fast.optimizer`. `distill` runs both, but the weights do not learn from rewards: the model under the seed text is
    distilled from the same model under the contexts."""
    model: ModelRecipe
    """The policy."""
    task: TaskRecipe | list[TaskRecipe] | None = None
    """The task, or several that share the stream. Required unless there are stages."""
    stages: list[StageRecipe] = Field(default=[])
    """Continual learning: tasks one after the other in place of `task`, as in `stages: [hover@200, codeio@200]`, where
    `NAME@STEPS` is short for `{name: NAME, steps: STEPS}`. Weights, optimizer and contexts are carried across a boundary,
    and the look-ahead of a cycle may reach into the next stage. Every task is evaluated throughout and at the end of each
    stage, as `LABEL on TASK` in `evals.jsonl`; the current task is also evaluated as `LABEL`."""
    engine: Annotated[Part, ENGINE] = Field(default=ENGINE.default, validate_default=True)
    """What samples and trains the policy, a kind or `{kind: …}` with its options: `local` is the processes of the run,
    `tinker` a server of the Tinker API, the hosted one, SkyRL's, or another (docs/scale.md), with the key in TINKER_API_KEY;
    `module:Name` and `file.py:Name` are classes of your own."""
    slow: SlowRecipe = Field(default_factory=SlowRecipe, validate_default=True)
    """The slow loop."""
    fast: FastRecipe = Field(default_factory=FastRecipe)
    """The fast loop."""
    sampling: SamplingRecipe = SamplingRecipe()
    """Rollouts."""
    grading: GradingRecipe = GradingRecipe()
    """Limits of graders and turns."""
    evaluation: EvaluationRecipe = EvaluationRecipe()
    """Evaluation."""
    output: OutputRecipe = OutputRecipe()
    """The run folder."""
    rollouts: int | None = Field(default=None, ge=1)
    """Rollout budget of both loops together, evaluation not counted: the run ends with the step or cycle that spends the last
    of it, or earlier after `slow.steps`."""
    seed: int = Field(default=0, ge=0)
    """Everything random follows from this number."""

    @field_validator("model", "task", mode="before")
    @classmethod
    def _by_name(cls, value: Any, info: ValidationInfo) -> Any:
        if isinstance(value, list) and info.field_name == "task":
            return [{"name": item} if isinstance(item, str) else item for item in value]
        return {"name": value} if isinstance(value, str) else value

    @field_validator("stages", mode="before")
    @classmethod
    def _stage_names(cls, value: Any) -> Any:
        items = value if isinstance(value, list) else []
        return [long_stage(item) if isinstance(item, str) else item for item in items] or value

    @field_validator("slow")
    @classmethod
    def _steps_of_stages(cls, slow: SlowRecipe, info: ValidationInfo) -> SlowRecipe:
        stages = info.data.get("stages")
        if not stages or "steps" in slow.model_fields_set:
            return slow
        return slow.model_copy(update={"steps": sum(stage.steps for stage in stages)})

    @field_validator("fast")
    @classmethod
    def _population_of_group(cls, fast: FastRecipe, info: ValidationInfo) -> FastRecipe:
        """Unless it is given, the population is one that divides the group."""
        slow, method = info.data.get("slow"), info.data.get("method")
        if slow is None or method not in ("fst", "distill") or "population" in fast.model_fields_set:
            return fast
        if slow.group % fast.population == 0:
            return fast
        largest = slow.group // 2 if slow.baseline == "prompt" else slow.group
        fitting = [k for k in range(2, min(fast.population, largest) + 1) if slow.group % k == 0]
        return fast.model_copy(update={"population": fitting[-1]}) if fitting else fast

    @property
    def tasks(self) -> Sequence[TaskByName]:
        """Every task of the run."""
        if self.stages or self.task is None:
            return self.stages
        return self.task if isinstance(self.task, list) else [self.task]

    @property
    def teaches(self) -> bool:
        """Whether the policy is compared with a teacher, its own weights at the start of a cycle."""
        return self.method == "distill" or (self.method != "gepa" and self.slow.feedback == "distil")

    def parts(self) -> Iterator[tuple[str, Part]]:
        """The parts that are chosen by name, by their keys."""
        for key in SLOTS:
            part: Any = functools.reduce(getattr, key.split("."), self)
            yield key, part
            for inner in part.options.get("models") or () if key == RESCUE.key else ():
                yield f"{key}.models", inner

    @property
    def prices(self) -> PricesRecipe | None:
        """What the engine charges, if it is a service with known prices."""
        found: PricesRecipe | None = self.engine.options.get("prices")
        return found

    @model_validator(mode="after")
    def _fits_together(self) -> Recipe:
        """What settings of different sections say of each other; what a part cannot do, its class refuses."""
        self._check_tasks()
        if self.method in ("fst", "distill"):
            self._check_population()
        if self.slow.withdraw and self.method in ("rl", "distill"):
            raise ValueError(
                f"slow.withdraw={self.slow.withdraw:g} takes evolved texts away, and method={self.method} samples under the "
                "seed text only; set slow.withdraw=0, or method=fst"
            )
        if self.method == "distill":
            self.sampling.refuse_ahead("method=distill", "which trains on answers of the present weights only")
            if self.slow.credit != "rollout":
                raise ValueError(
                    f"slow.credit={self.slow.credit} cannot be combined with method=distill, whose weights learn from "
                    "teachers, not from rewards; set slow.credit=rollout"
                )
            if self.slow.feedback != "off":
                raise ValueError(
                    f"slow.feedback={self.slow.feedback} cannot be combined with method=distill, whose weights learn from "
                    "the contexts alone; set slow.feedback=off, or method=fst or rl"
                )
        unused = {"rl": "fast.", "gepa": "slow."}.get(self.method, " ")
        for key, part in self.parts():
            if key in SLOTS and not isinstance(part, UnreadPart) and not key.startswith(unused):
                refuse = getattr(SLOTS[key].registry.find(part.name), "refuse", None)
                if refuse is not None:
                    refuse(self)
        return self

    def _check_tasks(self) -> None:
        if self.task == []:
            raise ValueError("task is an empty list; name at least one task")
        if self.task is None and not self.stages:
            raise ValueError("the recipe has no 'task'; add it (task: …)")
        if self.task is not None and self.stages:
            raise ValueError("task and stages both say what to train on; keep one of them")
        steps = sum(stage.steps for stage in self.stages)
        if self.stages and self.slow.steps != steps:
            raise ValueError(
                f"slow.steps={self.slow.steps}, but the steps of the stages add up to {steps}; leave slow.steps out, or "
                "change the stages"
            )
        # A recipe is stored in the run folder, in the exported card and in reports: no place for keys.
        for task in self.tasks:
            if has_credentials(repr(task.options)):
                raise ValueError(
                    f"an option of task '{task.name}' holds a credential; keep it in the environment, where the task's code "
                    "can read it"
                )

    def _check_population(self) -> None:
        group, population = self.slow.group, self.fast.population
        if group % population:
            right = [k for k in range(1, group + 1) if group % k == 0]
            raise ValueError(
                f"fast.population={population} does not divide slow.group={group}: every context gets the same number "
                f"of rollouts in a group; set fast.population to one of {right}"
            )
        if self.method == "fst" and self.slow.baseline == "prompt" and group // population < 2:
            raise ValueError(
                f"slow.baseline=prompt compares rollouts that share a context, but slow.group={group} over "
                f"fast.population={population} leaves one each; raise slow.group or lower fast.population"
            )


def long_stage(name: str) -> dict[str, Any]:
    task, _, steps = name.rpartition("@")
    if not task or not steps.isdecimal():
        raise ValueError(f"'{name}' is not NAME@STEPS, as in rulebook@200; to give options: {{name: …, steps: …, …}}")
    return {"name": task, "steps": int(steps)}
