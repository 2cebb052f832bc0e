"""`fastslow check`: what a recipe would spend and what it lacks, before anything is spent."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from fake_engine import FakeEngine
from fake_runs import recipe_of, run
from helpers import fastslow
from safetensors.torch import save_file
from tiny import make_tokenizer

from fastslow.engine.kind import Finding
from fastslow.engine.local.estimate import _count_weights
from fastslow.launch.estimate import check, count_rollouts
from fastslow.recipe import build_recipe
from fastslow.runs.ledger import FAST


@pytest.mark.parametrize("method", ["fst", "rl", "gepa"])
def test_a_run_spends_about_what_was_counted(method: str, tmp_path: Path) -> None:
    recipe = recipe_of(method, evaluation={"divergence": method != "gepa"})
    counted = count_rollouts(recipe)
    loop, _ = run(tmp_path / "run", recipe, FakeEngine())
    ledger = loop.state.ledger
    assert ledger["slow"].rollouts == counted.slow
    # gepa finishes the generation in which its budget runs out.
    assert 0.5 * counted.fast <= ledger.total(FAST).rollouts <= 1.5 * counted.fast
    assert 0.5 * counted.evaluation <= ledger["evaluation"].rollouts <= counted.evaluation


def test_a_rollout_budget_is_the_most(tmp_path: Path) -> None:
    recipe = recipe_of("rl", rollouts=10, slow={"steps": 400})
    counted = count_rollouts(recipe)
    assert counted.slow == 10
    loop, _ = run(tmp_path / "run", recipe, FakeEngine())
    played = loop.state.ledger["evaluation"].rollouts
    assert played <= counted.evaluation <= 2 * played


def found(**changes: Any) -> dict[str, Finding]:
    data = {"model": "nano", "task": {"name": "rulebook", "book": "library"}, "sampling": {"max_tokens": 32}, **changes}
    return {finding.what: finding for finding in check(build_recipe(data))}


def test_a_local_run_needs_memory() -> None:
    lines = found()
    assert not any(finding.missing for finding in lines.values())
    # Of fp32 weights: themselves, gradients, two moments, and the base model for the KL penalty.
    assert "for 6,540,288 weights" in lines["memory"].found
    assert lines["memory"].found.startswith("0.12 GiB")
    assert found(slow={"kl": 0})["memory"].found.startswith("0.10 GiB")
    assert "cost" not in lines


EIGHT = {
    "model_type": "qwen3", "vocab_size": 151936, "hidden_size": 4096, "intermediate_size": 12288, "num_hidden_layers": 36,
    "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 40960,
    "tie_word_embeddings": False,
}  # fmt: skip


@pytest.fixture
def eight(tmp_path: Path) -> Path:
    """A folder with the config of Qwen3-8B's shape and no weights."""
    make_tokenizer().save_pretrained(tmp_path / "eight")
    (tmp_path / "eight" / "config.json").write_text(json.dumps(EIGHT))
    return tmp_path / "eight"


def test_eight_billion_weights_on_a_card_of_80_gb(eight: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long = {"sampling": {"max_tokens": 4096}, "fast": {"max_tokens": 2000}}
    lora = {"name": str(eight), "lora": {"rank": 32}}
    lines = found(model=lora, **long)
    assert "for 8,190,735,360 weights" in lines["memory"].found
    assert "this machine has none; a card of 40 GB fits" in lines["GPU"].found
    monkeypatch.setattr("fastslow.engine.local.estimate._card", lambda: (79 * 2**30, "a card"))
    lines = found(model=lora, **long)
    assert re.search(r"up to 36 GiB with micro-batches of 32,768 tokens, activations recomputed", lines["GPU"].found)
    assert re.search(r"sampling up to 7\d GiB with 256 completions at a time", lines["GPU"].found)
    lines = found(model=lora, sampling={"max_tokens": 128, "ahead": 1.0}, fast=long["fast"])
    assert re.search(r"with 512 completions at a time", lines["GPU"].found)
    assert "with micro-batches of 8 rollouts" in found(model=lora, slow={"microbatch": 8})["GPU"].found
    everything = found(model={"name": str(eight)}, **long)["GPU"]
    assert everything.missing
    assert "the run does not fit" in everything.found
    monkeypatch.setattr("fastslow.engine.local.estimate.find_spec", lambda name: True)
    with_vllm = found(model=lora, sampling={"backend": "vllm", "max_tokens": 4096}, fast={"max_tokens": 2000})
    assert re.search(r"vLLM takes \d\d GiB of them", with_vllm["GPU"].found)
    few = {"model": lora, "fast": {"max_tokens": 1000}}
    padded = found(slow={"microbatch": 4, "shared_prefix": False}, **few)["GPU"].found
    shared = found(slow={"microbatch": 4}, **few)["GPU"].found
    assert gib(padded) > 1.5 * gib(shared)  # every row has a context of its own


def gib(line: str) -> float:
    """What updates need at most."""
    match = re.search(r"updates need up to (\d+) GiB", line)
    assert match, line
    return float(match[1])


def test_servers_sample_elsewhere(eight: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastslow.engine.local.estimate._card", lambda: (22 * 2**30, "a card"))
    model, slow = {"name": str(eight), "lora": {"rank": 32}}, {"microbatch": "auto"}
    assert found(model=model, slow=slow)["GPU"].missing  # no room for the own sampler
    servers = {"backend": {"vllm": ["http://127.0.0.1:9"]}, "max_tokens": 32}
    there = found(model=model, slow=slow, sampling=servers)["GPU"]
    assert not there.missing
    assert there.found.endswith("the servers sample")


def test_weights_are_those_that_transformers_loads(tmp_path: Path) -> None:
    assert _count_weights(tmp_path) is None
    for part in ("model-00001-of-00002", "model-00002-of-00002", "consolidated"):
        save_file({"weight": torch.zeros(3, 5)}, tmp_path / f"{part}.safetensors")
    assert _count_weights(tmp_path) == 30
    for content in (b"version https://git-lfs.github.com/spec/v1\n", b""):
        (tmp_path / "model-00002-of-00002.safetensors").write_bytes(content)
        assert _count_weights(tmp_path) is None


def test_a_run_on_a_service_has_a_cost_and_needs_the_server() -> None:
    engine = {
        "kind": "tinker",
        "base_url": "http://127.0.0.1:9",
        "prices": {"prompt": 1, "completion": 2, "training": 3},
    }
    settings: dict[str, Any] = {"method": "rl", "evaluation": {"every": 0}, "slow": {"steps": 10, "kl": 0}}
    lines = found(engine=engine, **settings)
    assert lines["server"].missing
    assert "no server answers at engine.base_url=http://127.0.0.1:9" in lines["server"].found
    prompt = float(lines["tokens"].found.split()[2])
    total, sampled, trained = (float(word.strip("$:")) for word in lines["cost"].found.split() if word.startswith("$"))
    assert sampled == pytest.approx(2560 * (prompt + 2 * 32) / 1e6, abs=0.01)
    assert trained == pytest.approx(2560 * 3 * (prompt + 32) / 1e6, abs=0.01)
    assert total == pytest.approx(sampled + trained, abs=0.011)
    assert "unknown" in found(engine={**engine, "prices": None}, **settings)["cost"].found


def test_what_is_missing_is_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    assert found(fast={"reflection": "openai/gpt-5.2"})["reflection"].found == (
        "openai/gpt-5.2 needs OPENAI_API_KEY in the environment"
    )
    misspelt = found(fast={"reflection": "lesson"})["reflection"]
    assert misspelt.missing
    assert "'lesson' names no provider LiteLLM knows; did you mean 'lessons'?" in misspelt.found
    assert "no model folder './none'" in found(model="./none")["task and model"].found
    assert "does not fit the model's 1024" in found(sampling={"max_tokens": 1020})["task and model"].found


def test_the_command_says_it_all_in_one_table(tmp_path: Path) -> None:
    file = tmp_path / "recipe.yaml"
    file.write_text("{model: nano, task: rulebook, sampling: {max_tokens: 32}}")
    done = fastslow("check", file)
    assert done.returncode == 0, done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines() if line[:1].strip()][-1] == "nothing"
    done = fastslow("check", file, "model=./none")
    assert done.returncode == 2
    assert done.stderr.startswith("error: task and model: no model folder './none'")


def test_a_sampler_that_is_not_installed_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastslow.engine.local.estimate.find_spec", lambda name: None)
    monkeypatch.delitem(sys.modules, "vllm", raising=False)
    recipe = build_recipe({"model": "nano", "task": "rulebook", "sampling": {"backend": "vllm", "max_tokens": 32}})
    (lacking,) = [finding for finding in check(recipe) if finding.missing]
    assert "fastslow[vllm]" in lacking.found
