"""FST-distill: the loss against closed forms, its gradient against plain PyTorch and finite differences, its memory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import rel_entr, softmax
from slow_helpers import (
    GROUP,
    REWARDS,
    make_recipe,
    make_rollouts,
    make_trainer,
    make_update,
    make_updates,
    weights,
    weights_after,
)
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import (
    AutoModelForCausalLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    GraniteConfig,
    GraniteForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
)

from fastslow.base.errors import ModelError
from fastslow.engine.base import Row, Update
from fastslow.engine.local import hidden
from fastslow.engine.local.distill import Teacher, chunked_reverse_kl, reverse_kl
from fastslow.engine.local.hidden import check_halves, hidden_states, output_head
from fastslow.engine.local.trainer import Trainer
from fastslow.slow.update import build_distillation

logits = st.lists(st.floats(-20, 20), min_size=5, max_size=5)


@settings(deadline=None)
@given(logits, logits)
def test_the_loss_of_a_token_is_the_reverse_kl_and_its_slope_is_known(
    student: list[float], teacher: list[float]
) -> None:
    """d KL / d z = p ⊙ (log p − log q − KL)."""
    z = torch.tensor([student], dtype=torch.float64, requires_grad=True)
    kl = reverse_kl(z, torch.tensor([teacher], dtype=torch.float64))
    kl.sum().backward()
    p, q = softmax(student), softmax(teacher)
    expected = rel_entr(p, q).sum()
    assert kl.item() == pytest.approx(expected, rel=1e-9, abs=1e-12)
    slope = rel_entr(p, q) - p * expected
    np.testing.assert_allclose(z.grad[0].numpy(), slope, rtol=1e-7, atol=1e-10)


def two_heads(width: int = 6, vocabulary: int = 50) -> tuple[torch.nn.Linear, torch.nn.Linear]:
    torch.manual_seed(0)
    return torch.nn.Linear(width, vocabulary).double(), torch.nn.Linear(width, vocabulary).double()


@pytest.mark.parametrize("chunk", [1, 3, 7, 100])
def test_chunks_change_nothing(chunk: int) -> None:
    student, teacher = two_heads()
    h, t = (torch.randn(7, 6, dtype=torch.float64) for _ in range(2))
    scale = torch.linspace(0.1, 2, 7, dtype=torch.float64)

    def gradients(values: torch.Tensor, hidden: torch.Tensor) -> list[torch.Tensor]:
        return list(torch.autograd.grad((values * scale).sum(), [hidden, student.weight, student.bias]))

    whole = h.clone().requires_grad_()
    direct = reverse_kl(student(whole), teacher(t).detach())
    split = h.clone().requires_grad_()
    found, entropy = chunked_reverse_kl(split, t, student, teacher, chunk)
    torch.testing.assert_close(found, direct)
    p = torch.softmax(student(h), -1).detach()
    torch.testing.assert_close(entropy, -(p * p.log()).sum(-1))
    for ours, theirs in zip(gradients(found, split), gradients(direct, whole), strict=True):
        torch.testing.assert_close(ours, theirs)
    assert teacher.weight.grad is None


class _Largest(TorchDispatchMode):
    """Remembers the largest tensor that any operation made."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        sizes = [leaf.numel() for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]
        self.numbers = max([self.numbers, *sizes])
        return result


def test_neither_pass_makes_more_than_a_chunk_of_logits() -> None:
    student, teacher = two_heads(width=4, vocabulary=300)
    h = torch.randn(64, 4, dtype=torch.float64, requires_grad=True)
    with _Largest() as largest:
        kl, _ = chunked_reverse_kl(h, torch.randn(64, 4, dtype=torch.float64), student, teacher, chunk=5)
        kl.sum().backward()
    assert largest.numbers == 300 * 5
    assert h.grad is not None


# One update --------------------------------------------------------------------------------------------------------------


def oracle(student: Any, teacher: Any, update: Update, group_of: Sequence[int], temperature: float) -> torch.Tensor:
    """Mean over problems of the mean over their tokens of KL(student ‖ teacher), one sequence at a time, no padding."""
    problems: dict[int, list[torch.Tensor]] = {}
    for row, problem in zip(update.rows, group_of, strict=True):
        written = list(row.turn.completion.ids)

        def log_probabilities(model: Any, prompt: Sequence[int], written: list[int] = written) -> torch.Tensor:
            ids = torch.tensor([[*prompt, *written]])
            return torch.log_softmax(model(input_ids=ids).logits[0, len(prompt) - 1 : -1] / temperature, dim=-1)

        log_p = log_probabilities(student, row.turn.prompt_ids)
        with torch.no_grad():
            log_q = log_probabilities(teacher, row.teacher_prompt)
        problems.setdefault(problem, []).append((log_p.exp() * (log_p - log_q)).sum(-1))
    return torch.stack([torch.cat(tokens).mean() for tokens in problems.values()]).mean()


def problems_of(update: Update, rollouts: Sequence[Any]) -> list[int]:
    """The problem of every row."""
    home = {id(turn): index // GROUP for index, rollout in enumerate(rollouts) for turn in rollout.turns}
    return [home[id(row.turn)] for row in update.rows]


def moved(trainer: Trainer, seed: int = 1) -> None:
    """Move the student away from its teacher."""
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in trainer.model.parameters():
            if parameter.requires_grad:
                parameter.add_(torch.randn(parameter.shape, generator=draw), alpha=0.05)


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize(("lora", "temperature"), [(None, 1.0), (None, 0.7), ({"rank": 4, "alpha": 8}, 1.0)])
def test_the_gradient_is_that_of_the_mean_kl_from_the_frozen_teacher(
    lora: dict[str, Any] | None,
    temperature: float,
    shared: bool,
    tiny_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hidden, "CHUNK_NUMBERS", 25 * 4)  # four tokens at a time
    recipe = make_recipe(
        tiny_folder, method="distill", lora=lora, temperature=temperature, microbatch=8, shared_prefix=shared
    )
    rollouts = make_rollouts(REWARDS, turns=[1 + index % 2 for index in range(16)])
    update = make_update(recipe, rollouts)
    trainer = make_trainer(recipe, [update])
    assert trainer.teacher is not None
    moved(trainer, seed=0)
    trainer.teacher.freeze()
    teacher = make_trainer(recipe).model
    teacher.load_state_dict(trainer.model.state_dict())
    moved(trainer)
    student = make_trainer(recipe).model
    student.load_state_dict(trainer.model.state_dict())
    student.eval()
    teacher.eval()
    loss = oracle(student, teacher, update, problems_of(update, rollouts), temperature)
    loss.backward()
    before = weights(trainer)
    after = weights_after(trainer)
    expected = {name: value.grad for name, value in student.named_parameters() if value.requires_grad}
    assert max(value.abs().max() for value in expected.values()) > 1e-3
    for name, value in expected.items():
        torch.testing.assert_close(before[name] - after[name], value, atol=2e-6, rtol=1e-4)
    assert trainer.last_logs["loss"] == pytest.approx(loss.item(), rel=1e-4, abs=1e-4)
    # All of the trained weights are copied, and no others.
    assert set(trainer.teacher.copies) == set(expected)
    assert trainer.shared_prefix == shared


def test_what_rows_begin_with_together_goes_through_the_model_once(tiny_folder: Path, tmp_path: Path) -> None:
    recipe = make_recipe(tiny_folder, method="distill", microbatch=8)
    update = make_update(recipe, make_rollouts(REWARDS))
    trainer = make_trainer(recipe, [update])
    assert trainer.teacher is not None
    trainer.teacher.freeze()
    assert trainer.shares(trainer.model)
    seen = []
    trainer.model.base_model.register_forward_pre_hook(
        lambda module, arguments, named: seen.append(named["input_ids"].numel()), with_kwargs=True
    )
    make_updates(trainer, [update])
    # Two microbatches; in each a teacher, whose prompts all differ, and a student. A row's last token predicts nothing.
    rows = sorted(update.rows, key=lambda row: row.turn.prompt_ids)
    for (taught, own), half in zip((seen[:2], seen[2:]), (rows[:8], rows[8:]), strict=True):
        written = sum(len(row.turn.completion.ids) - 1 for row in half)
        prompts = {row.turn.prompt_ids for row in half}
        twins = sum(sum(row.turn.prompt_ids == prompt for row in half) - 1 for prompt in prompts)
        assert own <= written + sum(map(len, prompts)) + twins
        assert own < taught <= written + sum(len(row.teacher_prompt) for row in half)


def test_the_gradient_is_the_slope_of_the_loss(tiny_folder: Path, tmp_path: Path) -> None:
    """Finite differences along each weight's own gradient, in double precision."""
    recipe = make_recipe(tiny_folder, method="distill", microbatch=8)
    rollouts = make_rollouts(REWARDS)
    update = make_update(recipe, rollouts)
    trainer = make_trainer(recipe, [update])
    assert trainer.teacher is not None
    trainer.teacher.freeze()
    before = weights(trainer)
    after = weights_after(trainer)
    student, teacher = (AutoModelForCausalLM.from_pretrained(tiny_folder, dtype=torch.float64) for _ in range(2))
    step = 5e-3  # not smaller: the model's norms compute in float32 whatever the weights are
    for name in ("lm_head.weight", "model.layers.0.self_attn.v_proj.weight", "model.layers.1.mlp.down_proj.weight"):
        found = (before[name] - after[name]).double()
        parameter, losses = student.get_parameter(name), []
        with torch.no_grad():
            for change in (step, -2 * step):
                parameter += change * found / found.norm()
                losses.append(oracle(student, teacher, update, problems_of(update, rollouts), 1.0).item())
            parameter += step * found / found.norm()
        assert (losses[0] - losses[1]) / (2 * step) == pytest.approx(found.norm().item(), rel=5e-3)


def test_rewards_do_not_reach_the_weights_and_no_group_is_dropped(tiny_folder: Path, tmp_path: Path) -> None:
    recipe = make_recipe(tiny_folder, method="distill")
    results, shares = [], []
    for rewards in (REWARDS, [0.0] * 16):
        rollouts = make_rollouts(rewards)
        update = make_update(recipe, rollouts)
        assert len(update.rows) == 15  # all but the one without a teacher
        trainer = make_trainer(recipe, [update])
        assert trainer.teacher is not None
        trainer.teacher.freeze()
        results.append(weights_after(trainer))
        shares.append(build_distillation(rollouts, [None] * 16, recipe.slow, 1)[1].zero_variance)
    assert all(torch.equal(results[0][name], results[1][name]) for name in results[0])
    assert shares == [0.25, 1.0]


def test_a_student_that_is_its_teacher_learns_nothing(tiny_folder: Path, tmp_path: Path) -> None:
    recipe = make_recipe(tiny_folder, method="distill")
    rollouts = make_rollouts(REWARDS, turns=2)
    prompts = [[turn.prompt_ids for turn in rollout.turns] for rollout in rollouts]
    trainer = make_trainer(recipe, [build_distillation(rollouts, prompts, recipe.slow, 1)[0]])
    assert trainer.teacher is not None
    trainer.teacher.freeze()
    before = weights(trainer)
    after = weights_after(trainer)
    assert trainer.last_logs["distillation"] == pytest.approx(0, abs=1e-6)
    assert all(torch.allclose(before[name], after[name], atol=1e-5) for name in before)


def test_tokens_count_alike_over_the_batch_where_the_recipe_says_so(tiny_folder: Path) -> None:
    rollouts = make_rollouts(REWARDS)
    recipe = make_recipe(tiny_folder, method="distill", aggregation="token")
    assert {row.advantage for row in make_update(recipe, rollouts).rows} == {1.0}


def test_without_rows_the_weights_stay(tiny_folder: Path, tmp_path: Path) -> None:
    recipe = make_recipe(tiny_folder, method="distill")
    rollouts = make_rollouts(REWARDS)
    trainer = make_trainer(recipe, [build_distillation(rollouts, [None] * 16, recipe.slow, 1)[0]])
    assert trainer.teacher is not None
    trainer.teacher.freeze()
    before = weights(trainer)
    after = weights_after(trainer)
    assert all(torch.equal(before[name], after[name]) for name in before)


# The teacher -------------------------------------------------------------------------------------------------------------


def test_a_saved_teacher_comes_back_and_a_new_one_takes_no_more_memory(tmp_path: Path) -> None:
    model = tiny.make_model(tiny.make_tokenizer())
    teacher = Teacher(model)
    teacher.freeze()
    addresses = {name: copy.data_ptr() for name, copy in teacher.copies.items()}
    row = [[3]], [[4, 5, 6]], False
    before = teacher.hidden(*row)
    teacher.save(tmp_path)
    with torch.no_grad():
        model.lm_head.weight.add_(1.0)
        model.model.layers[0].mlp.up_proj.weight.mul_(1.5)
    torch.testing.assert_close(teacher.hidden(*row), before)
    teacher.freeze()
    assert {name: copy.data_ptr() for name, copy in teacher.copies.items()} == addresses
    assert not torch.allclose(teacher.hidden(*row), before)
    again = Teacher(model)
    again.load(tmp_path)
    torch.testing.assert_close(again.hidden(*row), before)
    again.load(tmp_path / "nowhere")
    assert model.training


def test_tied_embeddings_are_frozen_at_both_ends() -> None:
    tokenizer = tiny.make_tokenizer()
    model = tiny.make_model(tokenizer, tie_word_embeddings=True)
    teacher = Teacher(model)
    teacher.freeze()
    assert "lm_head.weight" not in teacher.copies
    with torch.no_grad():
        expected = model(torch.tensor([[3, 4, 5]])).logits[0]
        model.model.embed_tokens.weight.mul_(2.0)
        found = teacher.head(1.0)(teacher.hidden([[3]], [[4, 5, 6]], False))
    torch.testing.assert_close(found, expected)


SMALL = {
    "vocab_size": 40, "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
    "num_key_value_heads": 2, "head_dim": 8, "pad_token_id": 0, "bos_token_id": None, "eos_token_id": 2,
}  # fmt: skip


@pytest.mark.parametrize(
    "model",
    [
        lambda: Gemma2ForCausalLM(Gemma2Config(**SMALL, final_logit_softcapping=0.05)),
        lambda: GraniteForCausalLM(GraniteConfig(**SMALL, logits_scaling=4.0)),
    ],
    ids=["capped", "scaled"],
)
def test_what_an_architecture_does_after_its_head_is_kept(model: Any) -> None:
    torch.manual_seed(0)
    built = model().eval()
    check_halves(built)
    ids = torch.tensor([[3, 4, 5]])
    with torch.no_grad(), hidden_states(built) as caught:
        expected = built(ids).logits
        torch.testing.assert_close(output_head(built, temperature=2.0)(caught[0]), expected / 2, atol=1e-5, rtol=1e-4)


def test_a_head_of_another_kind_is_refused() -> None:
    class Louder(LlamaForCausalLM):
        def forward(self, *args: Any, **kwargs: Any) -> Any:
            output = super().forward(*args, **kwargs)
            output.logits = 3 * output.logits
            return output

    torch.manual_seed(0)
    model = Louder(LlamaConfig(**SMALL))
    with pytest.raises(ModelError, match="the logits of a Louder are not its output layer applied"):
        check_halves(model)


def test_a_row_of_another_method_has_no_teacher() -> None:
    assert Row(make_rollouts([1.0])[0].turns[0], 1.0, 0).teacher_prompt == ()
