"""GGUF files: a tiny real one written here, and a whole one where the environment names it."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from tiny_gguf import make_llama, write_gguf
from transformers import AutoModelForCausalLM, AutoTokenizer

from fastslow.base.errors import ModelError
from fastslow.engine.local.generate import generate
from fastslow.models.chat import ChatFormat
from fastslow.models.load import convert_gguf, load_policy, load_pretrained, resolve
from fastslow.recipe import ModelRecipe
from fastslow.records import Sampling

IDS = torch.tensor([[5, 9, 20, 33, 7]])


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "fastslow" / "gguf"


def near(embedding: NDArray[np.float32], distance: float) -> NDArray[np.float32]:
    """Another matrix at this relative distance."""
    noise = np.random.default_rng(0).standard_normal(embedding.shape)
    return (embedding + noise * distance * np.linalg.norm(embedding) / np.linalg.norm(noise)).astype(np.float32)


def test_a_file_becomes_a_plain_folder_that_computes_the_same(cache: Path, tmp_path: Path) -> None:
    model = make_llama()
    file = write_gguf(tmp_path / "tiny.gguf", model, model.lm_head.weight.detach().numpy())
    folder = Path(resolve(str(file)))
    assert folder.parent == cache
    assert (folder / "config.json").is_file()
    assert "quantization" not in (folder / "config.json").read_text()
    loaded, tokenizer = load_pretrained(str(file), dtype=torch.float32)
    with torch.no_grad():
        torch.testing.assert_close(loaded(IDS).logits, model(IDS).logits, atol=1e-6, rtol=1e-6)
    assert loaded.lm_head.weight is not loaded.model.embed_tokens.weight  # two different matrices stay two
    assert tokenizer.eos_token == tokenizer.pad_token == "<end>"
    assert tokenizer.decode(tokenizer("hello, you")["input_ids"]) == "hello, you"
    # Standard tools read the folder with no word about GGUF.
    plain = AutoModelForCausalLM.from_pretrained(folder)
    torch.testing.assert_close(plain(IDS).logits, model(IDS).logits, atol=1e-6, rtol=1e-6)
    assert AutoTokenizer.from_pretrained(folder)("hello")["input_ids"] == tokenizer("hello")["input_ids"]


def test_a_file_without_a_head_shares_the_embedding(cache: Path, tmp_path: Path) -> None:
    model = make_llama()
    loaded, _ = load_pretrained(str(write_gguf(tmp_path / "tiny.gguf", model, None)), dtype=torch.float32)
    assert loaded.lm_head.weight is loaded.model.embed_tokens.weight
    assert loaded.config.tie_word_embeddings
    torch.testing.assert_close(loaded.lm_head.weight, model.model.embed_tokens.weight)


@pytest.mark.parametrize(("distance", "one"), [(0.01, True), (0.09, True), (0.2, False)])
def test_head_and_embedding_that_nearly_agree_are_one_matrix(
    distance: float, one: bool, cache: Path, tmp_path: Path
) -> None:
    """The same matrix quantized twice must be trained as one, else it drifts apart; the head's copy is the finer."""
    model = make_llama()
    head = near(model.model.embed_tokens.weight.detach().numpy(), distance)
    loaded, _ = load_pretrained(str(write_gguf(tmp_path / "tiny.gguf", model, head)), dtype=torch.float32)
    assert (loaded.lm_head.weight is loaded.model.embed_tokens.weight) == one
    torch.testing.assert_close(loaded.lm_head.weight.detach(), torch.tensor(head))
    if not one:
        torch.testing.assert_close(loaded.model.embed_tokens.weight, model.model.embed_tokens.weight)


def test_a_file_is_converted_once_and_again_when_it_changes(cache: Path, tmp_path: Path) -> None:
    model = make_llama()
    file = write_gguf(tmp_path / "tiny.gguf", model, None)
    first = convert_gguf(file)
    written = (first / "model.safetensors").stat().st_mtime_ns
    assert convert_gguf(file) == first
    assert (first / "model.safetensors").stat().st_mtime_ns == written
    other = write_gguf(file, model, near(model.model.embed_tokens.weight.detach().numpy(), 0.5))
    second = convert_gguf(other)
    assert second != first
    assert sorted(path.name for path in cache.iterdir()) == sorted([first.name, second.name])  # nothing half-made


def test_a_file_that_is_no_gguf_is_refused_and_leaves_nothing(cache: Path, tmp_path: Path) -> None:
    file = tmp_path / "noise.gguf"
    file.write_bytes(b"not a model" * 100)
    with pytest.raises(ModelError, match=r"noise\.gguf' cannot be read as a GGUF model"):
        resolve(str(file))
    assert list(cache.iterdir()) == []


@pytest.mark.skipif("FASTSLOW_TEST_GGUF" not in os.environ, reason="FASTSLOW_TEST_GGUF names no .gguf chat model")
def test_a_whole_model_answers_in_english() -> None:
    file = Path(os.environ["FASTSLOW_TEST_GGUF"])
    policy = load_policy(ModelRecipe(name=str(file), device="cpu"))
    model = policy.model
    assert (model.lm_head.weight is model.model.embed_tokens.weight) == model.config.tie_word_embeddings
    chat = ChatFormat(policy.tokenizer)
    prompt = chat.prompt([{"role": "user", "content": "What is the capital of France?"}], "Answer in one sentence.")
    torch.manual_seed(0)
    completions = generate(
        model,
        [prompt] * 4,
        Sampling(0.6, 0.95, 40),
        pad_id=policy.tokenizer.pad_token_id,
        eos_ids=[policy.tokenizer.eos_token_id],
        batch=4,
    )
    answers = [chat.answer(completion.ids) for completion in completions]
    print(answers)
    assert sum("capital of France is Paris" in answer for answer in answers) >= 2
    assert all(completion.ids[-1] == policy.tokenizer.eos_token_id for completion in completions)
