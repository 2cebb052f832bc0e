"""Fitting a run to a GPU's memory, played on a CPU: the free memory is a number that the tests give."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from slow_helpers import REWARDS, SETTINGS, make_recipe, make_rollouts, make_trainer, make_update, one_update, weights
from test_update_distribution import expected_rows, rows_in

from fastslow.base.errors import FastSlowWarning
from fastslow.base.world import World
from fastslow.engine.base import Update
from fastslow.engine.local import fit, sampler, trainer
from fastslow.engine.local.batch import unpadded
from fastslow.engine.local.sampler import halving
from fastslow.models.load import load_policy
from fastslow.models.memory import Footprint
from fastslow.prefix.sampling import _Decoding
from fastslow.prefix.tree import token_tree
from fastslow.records import Completion, Sampling


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Pretends that there is a GPU, with micro-batches of so many tokens."""

    def pretend(tokens: int, *, checkpointing: bool = False) -> None:
        monkeypatch.setattr(fit, "free_memory", lambda device: 2**30)
        monkeypatch.setattr(Footprint, "microbatch", lambda *_: (tokens, checkpointing))

    return pretend


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("name", SETTINGS)
def test_the_update_does_not_depend_on_the_tokens_of_a_microbatch(
    name: str, shared: bool, card: Any, tiny_folder: Path, tmp_path: Path
) -> None:
    settings = {**SETTINGS[name], "shared_prefix": shared}
    reference = one_update(tiny_folder, World(), **settings, microbatch=16)
    numbers = []
    for tokens in (1, 60, 10**6):
        card(tokens)
        found = one_update(tiny_folder, World(), **settings, microbatch="auto")
        numbers.append(len(found["microbatches"]))
        rows, fillers = rows_in(found["microbatches"])
        assert (rows, fillers) == (expected_rows(name, tiny_folder), 0)
        for key, value in reference["weights"].items():
            torch.testing.assert_close(found["weights"][key], value, atol=1e-6, rtol=1e-5)
        for key in {"loss", "kl", "entropy", "sampler_mismatch"} & set(reference["logs"]):
            assert found["logs"][key] == pytest.approx(reference["logs"][key], abs=1e-5), key
    losses = 2 if name == "feedback" else 1  # rows of the policy loss and of the distillation are apart
    assert numbers[0] == rows.total() > numbers[1] > numbers[2] == losses


def test_a_microbatch_is_a_tree_of_at_most_so_many_tokens(card: Any, tiny_folder: Path, tmp_path: Path) -> None:
    card(40)
    found = one_update(tiny_folder, World(), microbatch="auto")
    for inputs in found["microbatches"]:
        assert len(token_tree(*unpadded(inputs, "prompt", "completion"))) <= 40


def test_a_step_without_rows_is_one_filler(card: Any, tiny_folder: Path, tmp_path: Path) -> None:
    card(40)
    made = make_trainer(make_recipe(tiny_folder, microbatch="auto"))
    made.prepare()
    before = weights(made)
    assert made.step(Update(1, []))["grad_norm"] == 0
    assert all(torch.equal(value, before[key]) for key, value in weights(made).items())


@pytest.mark.parametrize("lora", [None, {"rank": 4}])
def test_checkpointing_changes_nothing(lora: Any, card: Any, tiny_folder: Path, tmp_path: Path) -> None:
    card(40, checkpointing=True)
    kept = one_update(tiny_folder, World(), lora=lora, kl=0.1, microbatch=16)
    found = one_update(tiny_folder, World(), lora=lora, kl=0.1, microbatch="auto")
    for key, value in kept["weights"].items():
        torch.testing.assert_close(found["weights"][key], value, atol=1e-6, rtol=1e-5)


def test_a_wish_is_kept(card: Any, tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    card(40)
    asked = []
    monkeypatch.setattr(
        Footprint, "microbatch", lambda self, free, longest, wish: asked.append(wish) or (40, bool(wish))
    )
    for wish in (True, False, "auto"):
        recipe = make_recipe(tiny_folder, microbatch="auto")
        model = recipe.model.model_copy(update={"gradient_checkpointing": wish})
        update = make_update(recipe, make_rollouts(REWARDS))
        made = make_trainer(recipe.model_copy(update={"model": model}))
        made.prepare()
        made.step(update)
        assert made.model.is_gradient_checkpointing == (wish is True)
    assert asked == [True, False, None]


def test_out_of_memory_halves_the_microbatches(
    card: Any, tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until they fit; then activations are recomputed; the update is the same."""
    reference = one_update(tiny_folder, World(), kl=0.1, microbatch=16)
    score, most = trainer.Trainer.loss, [100]

    def small(self: Any, inputs: Any, *more: Any) -> Any:
        loss = score(self, inputs, *more)  # the error comes late, when there are metrics and gradients
        tokens = int(inputs["prompt_mask"].sum() + inputs["completion_mask"].sum())
        if tokens > most[0] and not self.model.is_gradient_checkpointing:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return loss

    monkeypatch.setattr(trainer.Trainer, "loss", small)
    monkeypatch.setattr(fit, "LEAST_TOKENS", 8)
    card(400)
    with pytest.warns(FastSlowWarning, match="micro-batches of 400 tokens; continuing with 200"):
        found = one_update(tiny_folder, World(), kl=0.1, microbatch="auto")
    for key, value in reference["weights"].items():
        torch.testing.assert_close(found["weights"][key], value, atol=1e-6, rtol=1e-5)
    for name in ("loss", "kl", "entropy", "sampler_mismatch"):
        assert found["logs"][name] == pytest.approx(reference["logs"][name], abs=1e-5), name
    most[0] = 0
    with pytest.warns(FastSlowWarning, match="continuing with gradient checkpointing"):
        found = one_update(tiny_folder, World(), kl=0.1, microbatch="auto")
    for key, value in reference["weights"].items():
        torch.testing.assert_close(found["weights"][key], value, atol=1e-6, rtol=1e-5)


def test_what_never_fits_is_an_error(card: Any, tiny_folder: Path, tmp_path: Path, monkeypatch: Any) -> None:
    def full(*_: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr(trainer.Trainer, "loss", full)
    card(40)
    made = make_trainer(make_recipe(tiny_folder, microbatch="auto"))
    made.prepare()
    update = make_update(make_recipe(tiny_folder), make_rollouts(REWARDS))
    with pytest.raises(torch.OutOfMemoryError), pytest.warns(FastSlowWarning):
        made.step(update)


def test_the_number_follows_from_the_free_memory(tiny_folder: Path, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(fit, "free_memory", lambda device: 2**30)
    made = make_trainer(make_recipe(tiny_folder, microbatch="auto"))
    made.prepare()
    made.step(make_update(make_recipe(tiny_folder), make_rollouts(REWARDS)))
    assert made.fit is not None
    assert made.fit.needed is not None
    spent = made.fit.tokens * made.fit.needed.token_bytes(made.fit.checkpointing)  # type: ignore[operator]
    assert 0.4 * 2**30 - made.fit.needed.head < spent < 2**30


def test_without_a_gpu_auto_is_eight_rollouts_or_what_divides(tiny_folder: Path) -> None:
    assert fit.rows_of(make_recipe(tiny_folder, microbatch="auto"), 1) == 8
    assert fit.rows_of(make_recipe(tiny_folder, microbatch="auto"), 4) == 4
    assert fit.rows_of(make_recipe(tiny_folder, microbatch="auto", problems=3, group=4), 1) == 6
    assert fit.rows_of(make_recipe(tiny_folder, microbatch=16), 1) == 16
    assert not fit.by_tokens(make_recipe(tiny_folder, microbatch="auto"), "cpu")


def test_without_a_card_vllm_gets_a_fixed_share(tiny_folder: Path) -> None:
    recipe = make_recipe(tiny_folder)
    assert fit.vllm_share(recipe, load_policy(recipe.model)) == 0.3


@pytest.mark.parametrize("until", [False, True])
def test_sampling_goes_on_in_smaller_batches(
    until: bool, tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A card that is full after three steps of more than two rows; some rows have ended by then."""
    recipe = make_recipe(tiny_folder)
    policy_sampler = sampler.PolicySampler(make_trainer(recipe), recipe.sampling)
    policy_sampler.trainer.eos_token_ids = list(range(6))
    prompts, sampling, seen = [[4, 5, 6], [4, 7]] * 6, Sampling(3.0, 1.0, 12), {}

    def sample() -> list[Completion]:
        seen.clear()

        def report(row: int, completion: Completion) -> None:
            assert row not in seen
            seen[row] = completion

        if not until:
            return policy_sampler.sample(prompts, sampling, 0, ready=report)
        found = policy_sampler.sample(prompts, sampling, 0, limits=[12] * 12, enough=lambda _: False, ready=report)
        assert all(completion.ended for completion in found)
        return found

    def limited(decoding: _Decoding) -> None:
        if decoding.drawn == 3 and len(decoding.rows) > 2:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        step(decoding)

    expected, step = sample(), _Decoding._step
    assert min(len(completion.ids) for completion in expected) < 3
    monkeypatch.setattr(_Decoding, "_step", limited)
    with pytest.warns(FastSlowWarning, match=r"continuing with \d+ sequences at a time") as warned:
        found = sample()
    sizes = [int(str(each.message).split()[-5]) for each in warned if each.category is FastSlowWarning]
    assert sizes == [256 >> place for place in range(1, len(sizes) + 1)]
    assert sizes[-1] in (2, 4)
    assert [completion.ids for completion in found] == [completion.ids for completion in expected]
    assert found == [seen[row] for row in range(12)]


def test_a_row_that_does_not_fit_alone_is_an_error() -> None:
    def sample(batch: int, report: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory.")

    with pytest.warns(FastSlowWarning, match="continuing with 1 "), pytest.raises(torch.OutOfMemoryError):
        halving(sample, 3)


def test_the_batch_is_what_keys_and_values_leave_room_for(tiny_folder: Path, tmp_path: Path, monkeypatch: Any) -> None:
    made = make_trainer(make_recipe(tiny_folder))
    policy_sampler = sampler.PolicySampler(made, make_recipe(tiny_folder).sampling)
    sampling = make_recipe(tiny_folder).sampling.training()
    prompts = [[1, 2, 3]] * 4
    assert policy_sampler._fitting(made.model, prompts, sampling, 256)[0] == 256
    monkeypatch.setattr(sampler, "free_memory", lambda device: 2**27)
    rows, room = policy_sampler._fitting(made.model, prompts, sampling.__class__(1.0, 1.0, 10**5), 256)
    assert 1 < rows < 256
    assert rows * 512 <= room < rows * 10**5
    sizes: list[int] = []
    monkeypatch.setattr(sampler, "generate", lambda *_, batch, **__: sizes.append(batch))
    policy_sampler.shares = False  # then no row can be set aside: all may have their full length
    policy_sampler.sample(prompts, sampling.__class__(1.0, 1.0, 10**4), seed=0)
    assert sizes == [max(1, room // 10**4)]
    assert sizes[0] < rows
