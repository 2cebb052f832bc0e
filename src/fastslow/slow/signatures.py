"""The options of the policy losses."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

RatioCap = Annotated[
    float,
    Field(
        gt=0,
        description="Importance ratios are clipped at this value (verl's `clip_high` of 3.0 is 1 + 3 = 4 here).",
    ),
]
Aggregation = Annotated[
    Literal["problem", "token"],
    Field(
        description="Also of `method: distill`: `problem` averages over the tokens of each problem and then over problems, "
        "`token` over all tokens of the batch."
    ),
]
Clip = Annotated[float, Field(gt=0, description="Clipping range of the importance ratio around 1.")]


def cispo(batch: Any, *, ratio_cap: RatioCap = 4.0, aggregation: Aggregation = "problem") -> None: ...


def grpo(batch: Any, *, clip: Clip = 0.2) -> None: ...


def dr_grpo(batch: Any, *, clip: Clip = 0.2) -> None: ...


def dapo(batch: Any, *, clip: Clip = 0.2) -> None: ...


def gspo(batch: Any, *, clip: Clip = 0.2) -> None: ...
