"""Pretraining: trees whose branches do not see each other, a loss that falls, and a run that can be killed."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pretrain
import pytest
import torch
from episodes import Difficulty
from pretrain import CONFIGS, Trees, make_model, make_tree, tree_logits
from transformers import AutoModelForCausalLM

from fastslow.models.load import dtype_to_ask

SMALL = CONFIGS["small"]


class Killed(Exception):
    """Stands for a machine taken away."""


def watch(monkeypatch: pytest.MonkeyPatch, kill_after: int | None = None) -> list[float]:
    """The loss of every step from here on, until the run is killed."""
    losses: list[float] = []
    original = pretrain.loss_of

    def watched(model: torch.nn.Module, batch: tuple[torch.Tensor, ...]) -> torch.Tensor:
        if len(losses) == kill_after:
            raise Killed
        loss = original(model, batch)
        losses.append(loss.item())
        return loss

    monkeypatch.setattr(pretrain, "loss_of", watched)
    return losses


@torch.no_grad()
def test_a_branch_sees_the_system_message_and_itself_and_nothing_else() -> None:
    torch.manual_seed(0)
    model = make_model(SMALL).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)  # far from the even logits of a fresh model
    branches = 0
    for seed in range(4):
        ids, branch, position, _ = (
            torch.from_numpy(part) for part in make_tree(random.Random(seed), Difficulty(), 256)
        )
        packed = tree_logits(model, ids[None], branch[None], position[None])[0]
        for number in range(1, int(branch.max()) + 1):
            own = (branch == 0) | (branch == number)
            alone = model(input_ids=ids[own][None]).logits[0]
            torch.testing.assert_close(packed[own], alone, atol=1e-4, rtol=1e-4)
            branches += 1
    assert branches > 12
    assert alone.std() > 0.1


def test_only_answers_are_learnt_and_padding_is_nobodys() -> None:
    ids, branch, position, answer = make_tree(random.Random(3), Difficulty(), 256)
    assert not answer[branch <= 0].any()
    assert (ids[branch == -1] == 0).all()
    root = int((branch == 0).sum())
    for number in range(1, branch.max() + 1):
        own = branch == number
        assert position[own].tolist() == list(range(root, root + int(own.sum())))
        start = int(answer[own].argmax())
        assert answer[own][start:].all()
        assert ids[own][start - 1] == pretrain.ASSISTANT
        assert ids[own][-1] == pretrain.END


def test_a_seed_gives_the_same_batches_and_a_restart_others() -> None:
    config = replace(SMALL, batch=2)
    first, again, restarted, other = (
        next(iter(Trees(config, seed, start)))[0] for seed, start in ((0, 0), (0, 0), (0, 20), (1, 0))
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, restarted)
    assert not torch.equal(first, other)


def test_the_learning_rate_rises_stays_and_falls() -> None:
    optimizer = torch.optim.AdamW([torch.zeros(1)])
    rates = []
    for step in range(1000):
        pretrain._set_rate([optimizer], CONFIGS["nano"], step, 1000)
        rates.append(optimizer.param_groups[0]["lr"])
    peak = CONFIGS["nano"].learning_rate
    assert rates[0] == pytest.approx(peak / 200)
    assert rates[199:650] == pytest.approx([peak] * 451)
    assert 0 < rates[999] < peak / 100
    assert rates[650:] == sorted(rates[650:], reverse=True)


def test_a_small_run_learns_on_a_cpu_and_killed_it_goes_on_from_its_last_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if dtype_to_ask("cpu") == torch.float32:  # torch's Muon computes in bf16, which such a processor takes minutes for
        monkeypatch.setattr(torch.Tensor, "bfloat16", torch.Tensor.float)
    with monkeypatch.context() as patch:
        first = watch(patch, kill_after=25)
        with pytest.raises(Killed):
            pretrain.pretrain(SMALL, tmp_path, steps=40, seed=0, workers=0, save_every=20)
    assert "from step 0" in capsys.readouterr().out
    assert [path.name for path in tmp_path.iterdir()] == ["training.pt"]
    (tmp_path / "training.pt.new").write_bytes(b"half a state, from a run killed while it saved")

    second = watch(monkeypatch)
    last = pretrain.pretrain(SMALL, tmp_path, steps=40, seed=0, workers=0, save_every=20)
    printed = capsys.readouterr().out
    assert "from step 20" in printed
    assert "step 40/40" in printed
    assert (len(first), len(second)) == (25, 20)
    assert first[0] > 5  # as good as chance over 380 tokens
    assert second[0] < (first[0] + first[19]) / 2  # it has not begun anew
    assert last == second[-1] < first[0] - 2

    model = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert model.config.num_hidden_layers == SMALL.layers
    assert model.dtype == torch.bfloat16
