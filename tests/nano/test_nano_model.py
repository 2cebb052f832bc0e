"""The shipped model: small enough to be packaged, found from anywhere, and it does what the text in front of it says."""

from __future__ import annotations

import fnmatch
import tomllib
from dataclasses import replace
from importlib import resources
from pathlib import Path

import measure
import pytest
import torch
from transformers import LlamaForCausalLM

from fastslow.models.load import Policy, load_policy, resolve
from fastslow.recipe import ModelRecipe

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "src" / "fastslow" / "models" / "nano"


@pytest.fixture(scope="module")
def nano() -> Policy:
    policy = load_policy(ModelRecipe(name="nano", device="cpu", precision="fp32"))
    policy.model.eval()
    return policy


def test_it_is_a_small_llama_in_standard_files(nano: Policy) -> None:
    assert isinstance(nano.model, LlamaForCausalLM)
    assert nano.model.config.architectures == ["LlamaForCausalLM"]
    assert nano.model.num_parameters() <= 8_000_000
    assert {parameter.dtype for parameter in nano.model.parameters()} == {torch.float32}
    assert nano.model.config.vocab_size == len(nano.tokenizer)
    assert nano.max_length == 1024
    assert nano.tokenizer.padding_side == "left"
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) <= 16_000_000


def test_it_is_found_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "nano").mkdir()  # as in this repository, where nano/ holds the scripts
    monkeypatch.chdir(tmp_path)
    assert Path(resolve("nano")).samefile(FOLDER)


def test_it_is_packaged() -> None:
    assert resources.files("fastslow").joinpath("models", "nano", "model.safetensors").is_file()
    packaged = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]["fastslow"]
    for path in FOLDER.iterdir():
        name = path.relative_to(ROOT / "src" / "fastslow").as_posix()
        assert any(fnmatch.fnmatch(name, pattern) for pattern in packaged), name


def test_it_follows_rules_in_phrasings_it_never_saw(nano: Policy) -> None:
    assert measure.accuracy(nano.model, nano.tokenizer, measure.NEW, problems=120) >= 0.75


def test_without_the_rules_it_can_only_guess(nano: Policy) -> None:
    assert measure.accuracy(nano.model, nano.tokenizer, measure.NEW, problems=120, system=measure.GENERIC) <= 0.1


def test_its_skill_for_long_lists_fades_out(nano: Policy) -> None:
    """Partial skill is what training can raise: neither all nor nothing."""
    long = replace(measure.EASY, lengths=(11, 11))
    assert 0.3 < measure.accuracy(nano.model, nano.tokenizer, long, problems=120) < 0.8
