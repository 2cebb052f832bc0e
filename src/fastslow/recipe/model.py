"""What a run is: one typed, validated model.

The defaults are the published settings of the method; a field's docstring is its documentation everywhere
(`docs/recipe.md` is generated from this file).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator

from fastslow.recipe.optimizer import check_optimizer
from fastslow.records import Sampling

Method = Literal["fst", "rl", "gepa", "distill"]
Optimizer = Literal[
    "gepa", "digest", "ape", "opro", "evoprompt", "promptbreeder", "textgrad", "reflexion", "ace", "mipro", "dspy-gepa"
]
Loss = Literal["cispo", "grpo", "dr_grpo", "dapo", "gspo"]


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True, frozen=True, allow_inf_nan=False)


class ModelRecipe(Section):
    """The policy."""

    name: str
    """Hub id, local folder, `.gguf` file, or the embedded `nano`. `model: NAME` alone is short for this."""
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """Where to run; `auto` takes a GPU when there is one."""
    precision: Literal["auto", "bf16", "fp32"] = "auto"
    """`bf16` trains fp32 master weights under bf16 autocast (with LoRA: a frozen bf16 base); `auto` is that on a GPU that
    has it, fp32 elsewhere."""
    lora: LoraRecipe | None = None
    """Train a low-rank adapter instead of all weights."""
    gradient_checkpointing: bool = False
    """Recompute activations in the backward pass: less memory, about a fifth slower."""
    trust_remote_code: bool = False
    """Allow models that ship their own Python code."""


class LoraRecipe(Section):
    """A LoRA adapter."""

    rank: int = Field(default=32, ge=1)
    """Rank of the update."""
    alpha: int = Field(default=64, ge=1)
    """Scale of the update, relative to the rank."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Dropout on the adapter's input."""
    target_modules: str | list[str] = "all-linear"
    """Which layers are adapted."""


class TaskByName(BaseModel):
    """A task by name; every other key is an option of that task (`fastslow tasks NAME` lists them)."""

    model_config = ConfigDict(extra="allow", use_attribute_docstrings=True, frozen=True, allow_inf_nan=False)

    name: str
    """A task from `fastslow tasks`. `task: NAME` alone is short for this."""

    @property
    def options(self) -> dict[str, Any]:
        return dict(self.model_extra or {})


class TaskRecipe(TaskByName):
    """The task of a run, or one of several that share its stream."""

    weight: float = Field(default=1.0, gt=0)
    """Share of the training stream when there are several tasks."""


class StageRecipe(TaskByName):
    """A task that has the stream to itself for a while."""

    name: str
    """A task from `fastslow tasks`; its options stand beside it, as under `task`."""
    steps: int = Field(ge=1)
    """Slow steps of the stage."""


class SlowRecipe(Section):
    """The slow loop: RL on the weights."""

    steps: int = Field(default=500, ge=1)
    """Optimizer steps of the run; with stages, the sum of theirs."""
    problems: int = Field(default=32, ge=1)
    """Problems per step."""
    group: int = Field(default=8, ge=2)
    """G: rollouts per problem; all of them form one group."""
    microbatch: int = Field(default=8, ge=1)
    """Rollouts per device and backward pass; changes memory and speed, not the result. The more, the more they share."""
    shared_prefix: bool = True
    """Compute what the rollouts of a microbatch begin with together (context, problem, earlier turns) once, without padding;
    changes memory and speed, not the result. A model that cannot says so, once, and goes without."""
    loss: Loss = "cispo"
    """The policy loss; all but `cispo` are TRL's, with TRL's own aggregation."""
    ratio_cap: float = Field(default=4.0, gt=0)
    """CISPO: importance ratios are cut at this value (verl's clip_high = 3.0 is 1 + 3)."""
    clip: float = Field(default=0.2, gt=0)
    """Clipping range of the other losses."""
    baseline: Literal["problem", "prompt"] = "problem"
    """Advantages against all G rollouts of a problem, or only those that share a context."""
    std: Literal["group", "batch", "none"] = "group"
    """Divide advantages by the standard deviation of the group, of the batch, or not at all."""
    aggregation: Literal["prompt", "token"] = "prompt"
    """CISPO: mean over each problem's tokens and then over problems, or over all tokens of the batch."""
    drop_zero_variance: bool = True
    """Leave groups whose rewards are all equal out of the update (they are not refilled)."""
    kl: float = Field(default=1e-3, ge=0)
    """Coefficient of the KL penalty to the base model; 0 loads no reference model. `distill` has no such penalty."""
    learning_rate: float = Field(default=1e-6, gt=0)
    """AdamW's learning rate after warm-up; constant from there."""
    warmup_steps: int = Field(default=10, ge=0)
    """Steps of linear warm-up."""
    betas: tuple[float, float] = (0.9, 0.999)
    """AdamW's betas."""
    weight_decay: float = Field(default=0.0, ge=0)
    """AdamW's weight decay."""
    max_grad_norm: float = Field(default=1.0, gt=0)
    """Gradient norm is cut at this value."""


class ReflectionRecipe(Section):
    """Who reads the feedback and edits a context."""

    kind: Literal["lessons", "litellm", "local", "policy"] = "lessons"
    """`lessons` edits with lines of the feedback and needs no model; `litellm` calls a model by API; `local` loads one;
    `policy` asks the model in training. `reflection: NAME` alone is short: a kind, or else a LiteLLM name. Under another
    `fast.optimizer` the same model writes what that one wants; with `lessons` it works on lines by itself."""
    model: str | None = None
    """`litellm`: a LiteLLM name such as `openai/gpt-5.2`; `local`: hub id, folder or `.gguf` file."""
    base_url: str | None = None
    """`litellm`: address of an OpenAI-compatible server."""
    temperature: float = Field(default=1.0, ge=0)
    """Sampling temperature of the reflection model."""
    max_tokens: int = Field(default=4096, ge=1)
    """Longest answer of the reflection model."""
    timeout: float = Field(default=120.0, gt=0)
    """`litellm`: seconds to wait for one answer."""
    retries: int = Field(default=4, ge=0)
    """`litellm`: further tries after a transient fault, with doubling pauses."""

    @model_validator(mode="after")
    def _has_model(self) -> ReflectionRecipe:
        if self.kind in ("litellm", "local") and not self.model:
            raise ValueError(f"reflection kind '{self.kind}' needs a model: set fast.reflection.model=NAME")
        if self.kind in ("lessons", "policy") and self.model:
            raise ValueError(
                f"reflection kind '{self.kind}' loads no model, but model is '{self.model}'; "
                "set fast.reflection.kind=litellm or local, or leave the model out"
            )
        return self


class FastRecipe(Section):
    """The fast loop: GEPA, or another optimizer, on the contexts."""

    optimizer: Optimizer = "gepa"
    """How new texts are found (docs/optimizers.md): `gepa`, the method's own, or in the manner of another."""
    population: int = Field(default=8, ge=1)
    """K: contexts kept; must divide slow.group."""
    cycle: int = Field(default=6, ge=1)
    """T: slow steps per cycle; their problems are the cycle's look-ahead."""
    anchors: int = Field(default=192, ge=1)
    """Problems of the look-ahead that contexts are scored on."""
    budget: int = Field(default=960, ge=0)
    """Rollouts a cycle may spend on new contexts; `gepa` finishes the generation in which they run out. Re-scoring the
    carried population comes on top and is shown apart."""
    minibatch: int = Field(default=3, ge=1)
    """Problems a parent and its child are compared on before the child is scored on all anchors."""
    proposals: int = Field(default=1, ge=1)
    """`gepa`, `opro`: children proposed per generation; more fill a GPU better."""
    samples: int = Field(default=1, ge=1)
    """Rollouts averaged into one score; more keep lucky contexts off the front."""
    proposer: Literal["light", "full"] = "light"
    """`gepa`: `light` may only make incremental edits to the parent, `full` may rewrite it."""
    max_tokens: int = Field(default=1024, ge=1)
    """Token budget of one context text; longer proposals are refused."""
    seed_text: str | dict[str, str] | None = None
    """Replaces the task's seed text (a text, or one per component)."""
    reflection: ReflectionRecipe = ReflectionRecipe()
    """Who proposes edits."""
    feedback: bool = True
    """Show reflection what the grader said; `false` leaves only scores."""
    rescore: Literal["all", "front", "from-rollouts", "never"] = "all"
    """How carried contexts get scores under the new weights: `all` or only the `front` are played on the anchors,
    `from-rollouts` takes the slow loop's rollouts of the last cycle, `never` trusts old scores."""
    race: bool = False
    """Score a child on a quarter and a half of the anchors first, and no further once it is too far behind."""
    paired: bool = False
    """Draw a child's minibatch with its parent's random numbers, so that an edit that changes nothing gains nothing."""
    reuse: bool = False
    """Train on the cycle's own scoring rollouts where a group asks for their problem and context."""
    reuse_age: int | None = Field(default=None, ge=0)
    """The most steps between drawing a rollout and training on it; at the end of a cycle all are dropped."""
    adaptive: bool = False
    """Spend less of the budget while no child is found that beats the population, all of it again when reward changes."""
    overlap: bool = False
    """Ask for edits while the model trains, a generation's side by side; for the reflectors `lessons` and `litellm`."""

    @field_validator("reflection", mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        return long_reflection(value) if isinstance(value, str) else value


def long_stage(name: str) -> dict[str, Any]:
    task, _, steps = name.rpartition("@")
    if not task or not steps.isdecimal():
        raise ValueError(f"'{name}' is not NAME@STEPS, as in rulebook@200; to give options: {{name: …, steps: …, …}}")
    return {"name": task, "steps": int(steps)}


def long_reflection(name: str) -> dict[str, str]:
    kinds = get_args(ReflectionRecipe.model_fields["kind"].annotation)
    return {"kind": name} if name in kinds else {"kind": "litellm", "model": name}


class SamplingRecipe(Section):
    """How rollouts are drawn in both loops."""

    backend: Literal["transformers", "continuous", "vllm", "vllm-server"] = "transformers"
    """transformers with what prompts share computed once, its continuous batching, vLLM in this process, or a running vLLM
    server."""
    temperature: float = Field(default=1.0, gt=0)
    """Temperature of training rollouts."""
    top_p: float = Field(default=1.0, gt=0, le=1)
    """Nucleus of training rollouts; below 1 the sampled policy is not the trained one."""
    max_tokens: int = Field(default=1024, ge=1)
    """Longest completion."""
    batch: int = Field(default=256, ge=1)
    """Sequences sampled together by the `transformers` backend; changes memory and speed."""
    chat: dict[str, Any] = {}
    """Extra arguments of the chat template, such as `enable_thinking: false`."""
    vllm_memory: float = Field(default=0.3, gt=0, le=1)
    """`vllm`: share of GPU memory it may take."""
    vllm_sleep: bool = False
    """`vllm`: give that memory back while weights are updated; waking it costs time in every step."""
    vllm_server: str | None = None
    """`vllm-server`: its address."""

    def training(self) -> Sampling:
        return Sampling(self.temperature, self.top_p, self.max_tokens)


class EvaluationRecipe(Section):
    """Measuring on held-out problems."""

    every: int = Field(default=25, ge=0)
    """Evaluate every this many steps, at the start and at the end; 0 never. With frozen weights only after a cycle."""
    problems: int = Field(default=200, ge=1)
    """Validation problems used; with stages, of every task."""
    k: int = Field(default=4, ge=1)
    """Rollouts per problem: mean@k and best@k."""
    temperature: float = Field(default=0.6, gt=0)
    """Temperature of evaluation rollouts."""
    top_p: float = Field(default=0.95, gt=0, le=1)
    """Nucleus of evaluation rollouts."""
    divergence: bool = False
    """Also measure the KL from the base model, on rollouts of their own drawn at temperature 1."""

    def sampling(self, max_tokens: int) -> Sampling:
        return Sampling(self.temperature, self.top_p, max_tokens)


class OutputRecipe(Section):
    """What a run leaves behind."""

    folder: str | None = None
    """The run folder; by default `runs/RECIPE-METHOD-seedN`, after METHOD the optimizer if it is not `gepa`."""
    checkpoint_every: int = Field(default=50, ge=1)
    """Steps between checkpoints; the last step always makes one."""
    keep_checkpoints: int | None = Field(default=None, ge=1)
    """Keep only this many of the newest checkpoints; all when not set."""
    save_rollouts: bool = True
    """Keep every training rollout's text, score and feedback as parquet."""
    report_to: list[str] = []
    """Trackers: trackio, wandb, tensorboard, mlflow."""


class Recipe(Section):
    """Everything needed to run again."""

    method: Method = "fst"
    """`fst` runs both loops, `rl` only the slow one under the seed text, `gepa` only the fast one on frozen weights,
    whichever `fast.optimizer` it is. `distill` runs both, but the weights learn, under the seed text, from the same model
    under the contexts in place of rewards."""
    model: ModelRecipe
    """The policy."""
    task: TaskRecipe | list[TaskRecipe] | None = None
    """The task, or several that share the stream. Required unless there are stages."""
    stages: list[StageRecipe] = []
    """Continual learning: tasks one after the other in place of `task`, as in `stages: [hover@200, codeio@200]`, where
    `NAME@STEPS` is short for `{name: NAME, steps: STEPS}`. Weights, optimizer and contexts go on across a boundary, and the
    look-ahead of a cycle is the next problems of the stream there as everywhere, those of the next stage among them. Every
    task is evaluated throughout and at the end of each stage: `LABEL on TASK` in `evals.jsonl`, the current one as ever."""
    slow: SlowRecipe = Field(default=SlowRecipe(), validate_default=True)
    """The slow loop."""
    fast: FastRecipe = FastRecipe()
    """The fast loop."""
    sampling: SamplingRecipe = SamplingRecipe()
    """Rollouts."""
    evaluation: EvaluationRecipe = EvaluationRecipe()
    """Evaluation."""
    output: OutputRecipe = OutputRecipe()
    """The run folder."""
    rollouts: int | None = Field(default=None, ge=1)
    """End the run once both loops together have spent this many rollouts (evaluation not counted), if `slow.steps` has not
    ended it before."""
    seed: int = 0
    """Everything random follows from this number."""

    @field_validator("model", mode="before")
    @classmethod
    def _model_name(cls, value: Any) -> Any:
        return {"name": value} if isinstance(value, str) else value

    @field_validator("task", mode="before")
    @classmethod
    def _task_name(cls, value: Any) -> Any:
        if isinstance(value, list):
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

    @property
    def tasks(self) -> Sequence[TaskByName]:
        """Every task of the run."""
        if self.stages or self.task is None:
            return self.stages
        return self.task if isinstance(self.task, list) else [self.task]

    @model_validator(mode="after")
    def _adds_up(self) -> Recipe:
        self._tasks_add_up()
        group, population = self.slow.group, self.fast.population
        if self.method in ("fst", "distill"):
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
        if self.method != "rl":
            check_optimizer(self.fast, self.method, self.fast.cycle * self.slow.problems)
        rollouts = self.slow.problems * group
        if rollouts % self.slow.microbatch:
            raise ValueError(
                f"slow.microbatch={self.slow.microbatch} does not divide the {rollouts} rollouts of a step "
                f"(slow.problems={self.slow.problems} × slow.group={group}); choose a divisor of {rollouts}"
            )
        if self.evaluation.divergence and not self.slow.kl and self.model.lora is None and self.method != "gepa":
            raise ValueError(
                "evaluation.divergence compares with the base model, which slow.kl=0 does not load; set slow.kl above 0"
            )
        reflector = self.fast.reflection.kind
        if self.fast.overlap and reflector not in ("lessons", "litellm"):
            raise ValueError(
                f"fast.overlap asks for edits while the model trains, but the reflector '{reflector}' shares the model, or "
                "its random numbers, with training; set fast.reflection to lessons or a LiteLLM name, or fast.overlap=false"
            )
        return self

    def _tasks_add_up(self) -> None:
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


ModelRecipe.model_rebuild()
