"""Scoring over a tree against scoring row by row: log-probabilities, entropies and gradients."""

from __future__ import annotations

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from peft import LoraConfig, get_peft_model
from prefix_helpers import MODELS, Rows, assert_same, gradients, make, one_by_one, rows

from fastslow.prefix import completion_logprobs

TEMPERATURE = 0.7


@pytest.fixture(params=list(MODELS), scope="module")
def model(request: pytest.FixtureRequest) -> torch.nn.Module:
    return make(request.param, TEMPERATURE)


def check(model: torch.nn.Module, made: Rows) -> None:
    expected = one_by_one(model, made, TEMPERATURE)
    found = completion_logprobs(model, *made)
    for one, other in zip(found, expected, strict=True):
        assert one is not None
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)
    if any(made[1]):
        assert_same(gradients(model, found), gradients(model, expected))  # type: ignore[arg-type]


@given(made=rows())
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_it_equals_each_row_alone(model: torch.nn.Module, made: Rows) -> None:
    check(model, made)


LONG = (
    [[(7 * place) % 28 for place in range(150)] + [problem] * 9 for problem in (1, 2) for _ in range(3)],
    [[(3 * place + rollout) % 29 for place in range(20 * rollout)] for rollout in range(6)],
)
"""Longer than a block of queries and than a bucket of keys."""


def test_long_prompts(model: torch.nn.Module) -> None:
    check(model, LONG)


@pytest.mark.parametrize("name", ["llama", "gemma3, a sliding layer"])
def test_with_gradient_checkpointing(name: str) -> None:
    model = make(name, TEMPERATURE)
    expected = gradients(model, one_by_one(model, LONG, TEMPERATURE))
    model.gradient_checkpointing_enable()
    model.train()
    assert_same(gradients(model, completion_logprobs(model, *LONG)), expected)  # type: ignore[arg-type]


@pytest.mark.parametrize("checkpointing", [False, True])
def test_with_lora(checkpointing: bool) -> None:
    model = get_peft_model(
        make("qwen3", TEMPERATURE), LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM")
    )
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.normal_(generator=torch.Generator().manual_seed(2))
    expected = one_by_one(model, LONG, TEMPERATURE)
    of_rows = gradients(model, expected)
    assert of_rows
    assert all("lora_" in name for name in of_rows)
    if checkpointing:
        model.gradient_checkpointing_enable()
        model.enable_input_require_grads()
    found = completion_logprobs(model, *LONG)
    torch.testing.assert_close(found[0], expected[0], atol=1e-5, rtol=1e-5)
    assert_same(gradients(model, found), of_rows)  # type: ignore[arg-type]


def test_what_is_shared_goes_through_the_model_once() -> None:
    model = make("llama")
    seen = []
    model.model.embed_tokens.register_forward_hook(lambda _module, inputs, _output: seen.append(inputs[0].shape))
    context, problems = [5] * 50, [[6, 7], [8, 9]]
    prompts = [context + problem for problem in problems for _ in range(4)]
    completion_logprobs(model, prompts, [[rollout, 10, 11] for rollout in range(8)])
    # The context, the problems less their last tokens, and of a rollout all but its last token, after its own copy of the
    # problem's last one.
    assert seen == [(1, 50 + 2 + 8 * 3)]


def test_other_calls_of_the_model_stay_what_they_were() -> None:
    """Tree attention is registered under the usual name: ordinary masks must work as before."""
    model = make("llama")
    ids = torch.tensor([[0, 0, 5, 6, 7], [3, 4, 5, 6, 7]])
    mask = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1]])
    before = model(input_ids=ids, attention_mask=mask).logits
    completion_logprobs(model, [[1, 2]], [[3]])
    assert torch.equal(model(input_ids=ids, attention_mask=mask).logits, before)


def test_nothing_to_score_is_a_zero_with_a_gradient() -> None:
    """So that a process whose share is empty still takes part in the backward pass."""
    model = make("llama")
    logprobs, entropies = completion_logprobs(model, [[1, 2], [3]], [[], []])
    assert logprobs.shape == (2, 0)
    assert entropies is not None
    logprobs.sum().backward()
    assert all(not value.grad.any() for value in model.parameters())
