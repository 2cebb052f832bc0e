"""The sections of a recipe, each with what its own settings say of each other; a field's docstring is its documentation."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import ConfigDict, Discriminator, Field, Tag, field_validator, model_validator

from fastslow.base.text import has_credentials
from fastslow.recipe.parts import LARGEST, LOSS, OPTIMIZER, REFLECTOR, RESCUE, Checked, Part, Section
from fastslow.records import Sampling

MOST_ROLLOUTS = 10**6
"""Rollouts of one step, which is held in memory."""
Temperature = Annotated[float, Field(ge=1e-6, le=1000)]
"""Much colder, a logit divided by it is no finite number; sampling is greedy and uniform long before these."""
Seconds = Annotated[float, Field(ge=1e-3, le=1e6)]
"""A limit of time; a clock cannot count to much larger ones."""


class LoraRecipe(Section):
    """A LoRA adapter."""

    rank: int = Field(default=32, ge=1, le=4096)
    """Rank of the update."""
    alpha: int = Field(default=64, ge=1)
    """Scale of the update, relative to the rank."""
    target_modules: str | list[str] = "all-linear"
    """Which layers are adapted."""


class ModelRecipe(Section):
    """The policy."""

    name: str = Field(max_length=4096)
    """Hub id, local folder, `.gguf` file, the embedded `nano`, or `smollm2` (docs/own-task.md). `model: NAME` alone is short
    for this."""
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """Where to run; `auto` takes a GPU when there is one."""
    precision: Literal["auto", "bf16", "fp32"] = "auto"
    """`bf16` trains fp32 master weights under bf16 autocast (with LoRA: a frozen bf16 base); `auto` is that on a GPU that
    has it, fp32 elsewhere."""
    lora: LoraRecipe | None = None
    """Train a low-rank adapter instead of all weights."""
    gradient_checkpointing: bool | Literal["auto"] = "auto"
    """Recompute activations in the backward pass: needs less memory and is about a fifth slower. `auto` does it on a GPU when
    they do not fit (docs/scale.md); it does not where `slow.microbatch` is a number, and not on a CPU."""
    trust_remote_code: bool = False
    """Allow models that ship their own Python code."""


class PricesRecipe(Section):
    """What a training service charges, in dollars for a million tokens; the ledger then shows costs."""

    prompt: float = Field(default=0.0, ge=0)
    """Prompt tokens: of rollouts, and of completions that are scored under the base model."""
    completion: float = Field(default=0.0, ge=0)
    """Sampled tokens."""
    training: float = Field(default=0.0, ge=0)
    """Tokens of an update, prompts included; an update with a KL penalty needs a forward pass more and counts twice."""


class TaskByName(Checked):
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
    """A task that supplies the whole stream for a number of steps."""

    name: str
    """A task from `fastslow tasks`; every other key is an option of that task, as under `task`."""
    steps: int = Field(ge=1, le=LARGEST)
    """Slow steps of the stage."""


class SlowRecipe(Section):
    """The slow loop: RL on the weights."""

    steps: int = Field(default=500, ge=1)
    """Optimizer steps of the run; with stages, the sum of theirs."""
    problems: int = Field(default=32, ge=1)
    """Problems per step."""
    group: int = Field(default=8, ge=2)
    """G: rollouts per problem; all of them form one group."""
    microbatch: Literal["auto"] | Annotated[int, Field(ge=1)] = "auto"
    """What passes through the model at a time in an update; changes memory and speed, not the result. `auto` takes as many
    tokens as fit a GPU's free memory, and 8 rollouts elsewhere. A number is the rollouts per device and backward pass."""
    shared_prefix: bool = True
    """Compute what the rollouts of a microbatch begin with together (context, problem, earlier turns) once, without padding;
    changes memory and speed, not the result. Unsupported models warn once and fall back to padded batches."""
    loss: Annotated[Part, LOSS] = Field(default=LOSS.default, validate_default=True)
    """The policy loss, a name or `{name: …}` with its options; `module:Name` and `file.py:Name` are functions of your own
    (docs/extending.md)."""
    baseline: Literal["problem", "prompt"] = "problem"
    """What a rollout's reward is compared with: `problem` takes all G rollouts of the problem, `prompt` only those of them
    that share the context."""
    std: Literal["group", "batch", "none"] = "group"
    """Divide advantages by the standard deviation of the group, of the batch, or not at all."""
    advantage: Literal["mean", "best", "entropic", "rank", "none"] = "mean"
    """What the advantage of a rollout seeks (docs/discover.md): `mean` a higher mean reward, as `std` says; the others the
    highest reward of a group, for one problem whose best answer counts: `best` rewards only the best rollout, by its lead,
    `entropic` weighs rollouts by the exponential of their rewards, `rank` by their ranks. `none` trains nothing: it samples
    with frozen weights."""
    credit: Literal["rollout", "turns", "states"] = "rollout"
    """What the turns of a rollout are trained with: `rollout` is its advantage; `turns` compares the rewards from a turn on
    with those of the same turn of the group's other rollouts; `states` adds to the rollout's advantage what the rewards from
    a turn on differ by from those of the group's turns in an equal state (docs/agents.md)."""
    discount: float = Field(default=1.0, ge=0, le=1)
    """With a `credit` by turns or states: what the reward of the next turn counts, as a factor."""
    kl: float = Field(default=1e-3, ge=0, le=1000)
    """Coefficient of the KL penalty to the base model. Its estimate (k3 times the importance ratio) is averaged over the
    update as the tokens of the chosen loss are (docs/method.md), so another loss may need another coefficient; 0 loads no
    reference model. `distill` has no such penalty."""
    feedback: Literal["off", "rank", "distil"] = "off"
    """What the weights learn from the grader's words (docs/method.md). `rank`: in a group of equal rewards, rollouts that got
    further by the words get a gradient, as long as words predict rewards. `distil`: rollouts that failed are distilled from
    the policy that has read what was said of them."""
    learning_rate: float = Field(default=1e-6, gt=0, le=1e6)
    """AdamW's learning rate; constant after warm-up."""
    warmup_steps: int = Field(default=10, ge=0)
    """Steps of linear warm-up: the first step has 1/N of the learning rate, step N all of it."""
    rescue: Annotated[Part, RESCUE] = Field(default=RESCUE.default, validate_default=True)
    """Help for groups in which nobody succeeded (docs/rescue.md), a name or `{name: …}` with its options: `retry` asks the
    policy again with its answer and the grader's words, `teachers` asks other models. An answer that scores higher than the
    whole group joins it and is trained under the prompt without help."""
    withdraw: float = Field(default=0.0, ge=0, le=1)
    """Share of each group's rollouts that are sampled under the seed text in place of an evolved one, so that the weights
    take over what the text says. It grows evenly from 0 at the first step to this value at the last (docs/rescue.md)."""

    @field_validator("feedback", mode="before")
    @classmethod
    def _off(cls, value: Any) -> Any:
        return "off" if value is False else value  # as YAML reads it

    patience: int | None = Field(default=50, ge=1)
    """Stop when no group has had different rewards for so many steps; with `fst` also for five cycles in which no new text
    was kept. The run can be resumed; null never stops it. `gepa` and `distill` do not need different rewards."""

    @model_validator(mode="after")
    def _one_step(self) -> SlowRecipe:
        by_rollout = self.feedback != "off" or self.rescue.name != RESCUE.default or self.advantage != "mean"
        if self.credit != "rollout" and by_rollout:
            raise ValueError(
                f"slow.credit={self.credit} gives advantages to turns, and slow.feedback, slow.rescue and slow.advantage to "
                "rollouts; set credit to rollout, or leave the others at their defaults"
            )
        rollouts = self.problems * self.group
        if rollouts > MOST_ROLLOUTS:
            raise ValueError(
                f"slow.problems={self.problems} × slow.group={self.group} are {rollouts:,} rollouts a step; expected at most "
                f"{MOST_ROLLOUTS:,}"
            )
        if self.microbatch != "auto" and rollouts % self.microbatch:
            raise ValueError(
                f"slow.microbatch={self.microbatch} does not divide the {rollouts} rollouts of a step "
                f"(slow.problems={self.problems} × slow.group={self.group}); choose a divisor of {rollouts}, or auto"
            )
        return self


class FastRecipe(Section):
    """The fast loop: GEPA, or another optimizer, on the contexts."""

    optimizer: Annotated[Part, OPTIMIZER] = Field(default=OPTIMIZER.default, validate_default=True)
    """How new texts are found (docs/optimizers.md), a name or `{name: …}` with its options: `gepa` is the published
    method's, the others follow other papers; `module:Name` and `file.py:Name` are classes of your own."""
    population: int = Field(default=8, ge=1)
    """K: contexts kept; must divide slow.group. Where it is not given and 8 does not, it is the largest number below that
    does."""
    cycle: int = Field(default=6, ge=1)
    """T: slow steps per cycle; their problems are the cycle's look-ahead."""
    anchors: int = Field(default=192, ge=1)
    """Problems of the look-ahead that contexts are scored on."""
    budget: int = Field(default=960, ge=0)
    """Rollouts a cycle may spend on new contexts; `gepa` finishes the generation in which they run out. Re-scoring the
    carried population is not part of it and is booked separately."""
    minibatch: int = Field(default=3, ge=1)
    """Problems a parent and its child are compared on before the child is scored on all anchors."""
    samples: int = Field(default=1, ge=1)
    """Rollouts averaged into one score; more of them keep lucky contexts off the Pareto front."""
    max_tokens: int = Field(default=1024, ge=1)
    """Token budget of one context text; longer proposals are rejected. The default is less where that is more than half of
    the context of `nano` or of a model in a folder."""
    seed_text: str | dict[str, str] | None = None
    """Replaces the task's seed text: one text, or one per component."""
    skills: int | None = Field(default=None, ge=1)
    """Show a question only so many of the lines that begin with `- ` in a text, those that match it best, beside all other
    lines (docs/skills.md); null shows whole texts."""
    reflection: Annotated[Part, REFLECTOR] = Field(default=REFLECTOR.default, validate_default=True)
    """What reads the feedback and proposes edits, a kind or `{kind: …}` with its options: `lessons` edits with lines of the
    feedback and needs no model; `litellm` calls a model by API; `local` loads one; `policy` asks the model in training. A
    name that is no kind is a LiteLLM name. Every `fast.optimizer` asks this model with prompts of its own; with `lessons` it
    edits lines without a model. `module:Name` and `file.py:Name` are classes of your own."""
    feedback: bool = True
    """Show the grader's feedback to the optimizer; `false` leaves only scores."""
    rescore: Literal["all", "from-rollouts"] = "all"
    """How carried contexts are scored under the new weights: `all` plays all of them on the anchors, `from-rollouts` takes
    the slow loop's rollouts of the last cycle."""
    reuse: bool = False
    """Train on the cycle's scoring rollouts whenever a group needs their problem and context; at the end of the cycle the
    rest is dropped."""
    adaptive: bool = False
    """Spend less of the budget while no child beats the population, and all of it again when reward changes."""


class VllmServers(Section):
    """Running vLLM servers that sample."""

    vllm: list[str] = Field(min_length=1)
    """Addresses of `vllm serve`, as in `{vllm: [http://a:8000, http://b:8000]}`; they get each step's LoRA adapter as a path
    in the run folder (docs/scale.md). A key is read from VLLM_API_KEY. Can be changed on resume."""

    @field_validator("vllm")
    @classmethod
    def _addresses(cls, value: list[str]) -> list[str]:
        if any(has_credentials(address) for address in value):
            raise ValueError("an address holds a user, a password or a key; set VLLM_API_KEY in the environment")
        if odd := [address for address in value if "?" in address or "#" in address]:
            raise ValueError(f"expected addresses that start with http:// or https:// and name a host, not '{odd[0]}'")
        plain = [address.rstrip("/").removesuffix("/v1") for address in value]
        if len({server_place(address) for address in plain}) < len(plain):
            raise ValueError("an address stands there twice; name each server once")
        return plain


def server_place(address: str) -> tuple[str, str, int, str]:
    """Scheme, host, port and path of a server; a ValueError if the address is not that of one."""
    try:
        parts = urlsplit(address)
        host, port = parts.hostname or "", parts.port
        host.encode("idna")
        if not address.isprintable():
            raise ValueError("it has characters that cannot be printed")
    except ValueError as error:
        raise ValueError(f"'{address}' is not an address ({error}); expected one such as http://host:8000") from None
    if parts.scheme not in ("http", "https") or not host:
        raise ValueError(f"expected addresses that start with http:// or https:// and name a host, not '{address}'")
    return parts.scheme, host, port or (443 if parts.scheme == "https" else 80), parts.path


def _form_of_backend(value: Any) -> str:
    return "VllmServers" if isinstance(value, dict | VllmServers) else "str"


class SamplingRecipe(Section):
    """How rollouts are drawn in both loops."""

    backend: Annotated[
        Annotated[Literal["auto", "transformers", "vllm"], Tag("str")] | Annotated[VllmServers, Tag("VllmServers")],
        Discriminator(_form_of_backend),
    ] = "auto"
    """`transformers` computes what prompts share once; `vllm` runs vLLM in this process; `{vllm: [http://a:8000, …]}` asks
    running vLLM servers; `auto` is `vllm` where the package and a CUDA GPU are there and it is faster (docs/scale.md), else
    `transformers`."""
    temperature: Temperature = 1.0
    """Temperature of training rollouts."""
    top_p: float = Field(default=1.0, gt=0, le=1)
    """Nucleus of training rollouts; below 1 the sampled policy differs from the trained one."""
    max_tokens: int = Field(default=1024, ge=1)
    """Longest completion; longer ones are truncated. The default is less where that is more than a quarter of the context of
    `nano` or of a model in a folder."""
    batch: int = Field(default=256, ge=1)
    """Sequences sampled together by the `transformers` backend; changes memory and speed. Fewer where their keys and values
    would not fit a GPU's free memory; with `ahead`, 1 + `ahead` times as many. With `ahead` it also changes, as free memory
    does, which answers are continued in which step: a run resumed with another is as valid, but not the same."""
    ahead: float = Field(default=0.0, ge=0, le=100)
    """How many steps ahead rollouts are begun; 0.5 begins half of the next step's problems. A step is then trained as soon as
    `slow.problems` groups are complete, and unfinished answers are continued in a later step, under the new weights; groups
    older than one step more than `ahead`, rounded up, are waited for. 0 waits for the longest answer of every step
    (docs/rollouts.md)."""
    chat_template_kwargs: dict[str, Any] = Field(default={})
    """Extra arguments of the chat template, such as `enable_thinking: false`."""

    def refuse_ahead(self, setting: str, reason: str) -> None:
        """Raise where `ahead` is used beside a setting that rules it out."""
        if self.ahead:
            raise ValueError(
                f"sampling.ahead={self.ahead:g} cannot be combined with {setting}, {reason}; set sampling.ahead=0, or change "
                "the other"
            )

    def training(self) -> Sampling:
        return Sampling(self.temperature, self.top_p, self.max_tokens)


class GradingRecipe(Section):
    """Limits of graders, tools and environments, which are other people's code."""

    faulty: float = Field(default=0.2, ge=0, le=1)
    """Share of a step's rollouts whose grades may be faulty because the task's code failed; more stop the run. Each scores 0,
    is counted, and is shown to no reflector."""
    timeout: Seconds = 300.0
    """Seconds that a grader, or the task between two turns, may take; after that the grade is faulty."""
    max_turns: int = Field(default=100, ge=1)
    """Model calls of one rollout; a rollout that asks for more is faulty."""


class EvaluationRecipe(Section):
    """Measuring on held-out problems."""

    every: int = Field(default=25, ge=0)
    """Evaluate every so many steps, at the start and at the end; 0 turns it off. With frozen weights only after a cycle."""
    problems: int = Field(default=200, ge=1)
    """Validation problems used; with stages, of every task."""
    k: int = Field(default=4, ge=1)
    """Rollouts per problem: mean@k and best@k."""
    temperature: Temperature = 0.6
    """Temperature of evaluation rollouts."""
    top_p: float = Field(default=0.95, gt=0, le=1)
    """Nucleus of evaluation rollouts."""
    divergence: bool = False
    """Also measure the KL from the base model, on separate rollouts that are sampled as in training."""

    def sampling(self, max_tokens: int) -> Sampling:
        return Sampling(self.temperature, self.top_p, max_tokens)


class OutputRecipe(Section):
    """What a run leaves behind."""

    folder: str | None = None
    """The run folder; by default `runs/RECIPE-METHOD-seedN`, with the optimizer after METHOD if it is not `gepa`."""
    checkpoint_every: int = Field(default=50, ge=1)
    """Steps between checkpoints. The last step makes one too, and so do the best training reward so far, an orderly stop and
    every five minutes without one; those are removed after the next, but for the best two."""
    keep_checkpoints: int | None = Field(default=None, ge=1)
    """Keep only this many of the newest checkpoints, and the best two by training reward; all when not set."""
    save_rollouts: bool = True
    """Save the text, score and feedback of every rollout as parquet, those of evaluations too."""
    report_to: list[str] = Field(default=[])
    """Trackers: trackio, wandb, tensorboard, mlflow."""
