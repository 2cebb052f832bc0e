"""Getting a policy: what is refused, and in which precision each part of it trains."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import tiny
import torch

from fastslow.base.errors import ModelError
from fastslow.base.world import World
from fastslow.engine.local.trainer import Trainer
from fastslow.models import load
from fastslow.models.load import choose_device, load_policy, load_pretrained, load_to_ask, resolve
from fastslow.recipe import ModelRecipe, Recipe, build_recipe
from fastslow.slow.losses import objective

HERE = {
    "cpu",
    *(["cuda"] if torch.cuda.is_available() else []),
    *(["mps"] if torch.backends.mps.is_available() else []),
}


@pytest.fixture
def folder(tiny_folder: Path, tmp_path: Path) -> Path:
    """A model folder of the test's own, to damage."""
    return Path(shutil.copytree(tiny_folder, tmp_path / "model"))


def test_devices_this_machine_has_not_are_refused() -> None:
    assert choose_device("cpu") == "cpu"
    assert choose_device("auto") in (HERE - {"cpu"} or HERE)
    for device in {"cuda", "mps"} - HERE:
        with pytest.raises(ModelError, match=rf"model\.device={device}.*only .*'cpu'.*model\.device=auto"):
            choose_device(device)


@pytest.mark.parametrize(("said", "threads"), [(None, 1), ("2", 2)])
def test_a_small_model_has_one_thread_unless_the_user_says_otherwise(
    folder: Path, said: str | None, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if said:
        monkeypatch.setenv("OMP_NUM_THREADS", said)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        load_policy(ModelRecipe(name=str(folder), device="cpu"))
        assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("name", ["/no/such/folder", "./no-such-folder", "~/no-such-folder", "a/b/c"])
def test_missing_folders_are_named(name: str) -> None:
    with pytest.raises(
        ModelError, match=f"no model folder '{name}'; give an existing folder, a .gguf file or a hub id"
    ):
        resolve(name)


@pytest.mark.parametrize(
    ("name", "provider"),
    [
        ("openai/gpt-4.1-mini", "openai"),
        ("ollama/llama3", "ollama"),
        ("ollama/llama3:8b", "ollama"),
        ("openrouter/openai/gpt-4.1", "openrouter"),
        ("gpt-4.1-mini", "openai"),
    ],
)
def test_a_model_behind_an_api_is_no_policy(name: str, provider: str) -> None:
    with pytest.raises(
        ModelError, match=rf"API of {provider}: the policy must be open weights.*fastslow\.DigestProposer"
    ):
        load_pretrained(name)


@pytest.mark.parametrize("name", ["no-such/model", "./no-such-folder", "no-such-model"])
def test_other_models_that_are_missing_may_be_open_weights(name: str) -> None:
    with pytest.raises(ModelError) as missing:
        load_pretrained(name)
    assert "API" not in str(missing.value)


def test_missing_gguf_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"no GGUF file '.*gone\.gguf'; give the path of an existing"):
        resolve(str(tmp_path / "gone.gguf"))
    (tmp_path / "folder.gguf").mkdir()
    with pytest.raises(ModelError, match="no GGUF file"):
        resolve(str(tmp_path / "folder.gguf"))


def test_names_that_may_be_on_the_hub_go_there(tiny_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert resolve("owner/name") == "owner/name"
    assert resolve("gpt2") == "gpt2"
    monkeypatch.chdir(tiny_folder.parent)
    assert resolve(tiny_folder.name) == tiny_folder.name  # a folder here wins over the hub


def test_a_folder_without_a_config_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"holds no config\.json; expected a model saved by save_pretrained"):
        resolve(str(tmp_path))


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("model.safetensors", b"\x10\x00\x00\x00\x00\x00\x00\x00{damaged}"),
        ("model.safetensors", None),
        ("config.json", b"{"),
        ("config.json", b'{"model_type": "no-such-model"}'),
        ("tokenizer.json", b"{"),
        ("tokenizer.json", None),
    ],
)
def test_damaged_folders_give_one_clear_error(file: str, content: bytes | None, folder: Path) -> None:
    if content is None:
        (folder / file).unlink()
    else:
        (folder / file).write_bytes(content)
    with pytest.raises(ModelError) as caught:
        load_pretrained(str(folder))
    message = str(caught.value)
    assert message.startswith(f"model '{folder}' cannot be loaded: ")
    assert "\n" not in message


def test_a_hub_model_that_cannot_be_had_says_what_works_offline() -> None:
    with pytest.raises(ModelError, match=r"model 'no-owner/no-model' cannot be loaded: .*works offline"):
        load_pretrained("no-owner/no-model")


def test_padding_falls_back_to_the_end_token(folder: Path) -> None:
    _, with_pad = load_pretrained(str(folder))
    assert (with_pad.pad_token, with_pad.padding_side) == ("<pad>", "left")
    tokenizer = tiny.make_tokenizer()
    tokenizer.pad_token = None
    tokenizer.save_pretrained(folder)
    _, without = load_pretrained(str(folder))
    assert without.pad_token == "<end>"
    assert without.pad_token_id == tokenizer.eos_token_id


def test_the_longest_sequence_is_the_models(tiny_folder: Path) -> None:
    assert load_policy(ModelRecipe(name=str(tiny_folder), device="cpu")).max_length == 256


# Precision ---------------------------------------------------------------------------------------------------------------


def recipe(folder: Path, **model: object) -> Recipe:
    return build_recipe(
        {
            "method": "rl",
            "model": {"name": str(folder), "device": "cpu", **model},
            "task": "star-graph",
            "slow": {"steps": 1, "problems": 1, "group": 2, "microbatch": 2},
            "sampling": {"max_tokens": 4},
        }
    )


def dtypes(trainer: Trainer, trained: bool) -> set[torch.dtype]:
    return {parameter.dtype for parameter in trainer.model.parameters() if parameter.requires_grad == trained}


@pytest.mark.parametrize(
    ("precision", "lora", "frozen", "autocast"),
    [
        ("auto", False, None, False),
        ("fp32", False, None, False),
        ("bf16", False, None, True),
        ("fp32", True, torch.float32, False),
        ("bf16", True, torch.bfloat16, True),
    ],
)
def test_trained_weights_are_fp32_and_a_frozen_base_may_be_bf16(
    precision: str, lora: bool, frozen: torch.dtype | None, autocast: bool, tiny_folder: Path, tmp_path: Path
) -> None:
    setting = recipe(tiny_folder, precision=precision, lora={"rank": 2} if lora else None)
    policy = load_policy(setting.model)
    assert policy.autocast == autocast
    trainer = Trainer(policy, setting, World(), objective(setting.slow))
    assert dtypes(trainer, trained=True) == {torch.float32}
    assert dtypes(trainer, trained=False) == ({frozen} if frozen else set())
    ids = torch.tensor([[3, 4, 5]])
    with torch.no_grad(), trainer.accelerator.autocast():
        hidden = trainer.model.get_decoder().layers[0].mlp.up_proj(torch.zeros(1, 32))
        assert trainer.model(ids).logits.isfinite().all()
    assert hidden.dtype == (torch.bfloat16 if autocast else torch.float32)


def test_a_lora_recipe_reaches_the_adapter(tiny_folder: Path, tmp_path: Path) -> None:
    setting = recipe(tiny_folder, lora={"rank": 3, "alpha": 6, "target_modules": ["q_proj"]})
    trainer = Trainer(load_policy(setting.model), setting, World(), objective(setting.slow))
    shapes = {name: tuple(p.shape) for name, p in trainer.model.named_parameters() if p.requires_grad}
    assert len(shapes) == 4  # two layers, A and B
    assert all("q_proj" in name for name in shapes)
    assert {shape for name, shape in shapes.items() if "lora_A" in name} == {(3, 32)}
    adapter = trainer.model.get_decoder().layers[0].self_attn.q_proj
    assert adapter.scaling["default"] == 6 / 3


@pytest.mark.parametrize(("bf16", "expected"), [(True, torch.bfloat16), (False, torch.float32)])
def test_a_model_to_ask_is_in_its_own_precision_where_the_processor_computes_in_it(
    bf16: bool, expected: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load, "_cpu_computes_in_bf16", lambda: bf16)
    model, _ = load_to_ask("nano", "cpu")
    assert model.dtype == expected
    assert model.device.type == "cpu"
