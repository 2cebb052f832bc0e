"""`fastslow check`: what a recipe would spend and what it lacks, before anything is spent."""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from fake_engine import FakeEngine, Numbered
from fake_runs import recipe_of, run
from helpers import fastslow
from lengthy_engine import LengthyEngine
from rich.console import Console
from safetensors.torch import save_file
from tiny import make_tokenizer

from fastslow.base.errors import FastSlowError
from fastslow.engine.kind import Finding
from fastslow.engine.local.estimate import _count_weights
from fastslow.launch.estimate import check
from fastslow.launch.schedule import KINDS, Span, count_rollouts
from fastslow.launch.start import train
from fastslow.recipe import LoraRecipe, build_recipe, make_recipe
from fastslow.runs.view import make_view
from fastslow.tasks.stages import Stage, Stages

TWO = {"population": 2, "cycle": 2, "anchors": 3, "minibatch": 2, "samples": 2, "optimizer": {"proposer": "full"}}
RECIPES: dict[str, tuple[str, dict[str, Any]]] = {
    "rl": ("rl", {"evaluation": {"divergence": True, "k": 3}}),
    "rl, evaluated at the ends": ("rl", {"evaluation": {"every": 100}}),
    "rl, never evaluated": ("rl", {"evaluation": {"every": 0}}),
    "rl with a budget": ("rl", {"rollouts": 21, "slow": {"steps": 400}}),
    "rl ahead": ("rl", {"sampling": {"ahead": 0.5}}),
    "more validation problems wanted than there are": ("rl", {"evaluation": {"problems": 200, "k": 4}}),
    "fst": ("fst", {"evaluation": {"divergence": True}}),
    "fst with samples": ("fst", {"fast": TWO}),
    "fst without a search": ("fst", {"fast": {"budget": 0}}),
    "fst with a budget": ("fst", {"rollouts": 70, "slow": {"steps": 400}}),
    "fst, reused": ("fst", {"fast": {"reuse": True, "budget": 30}}),
    "fst, scored from rollouts": ("fst", {"fast": {"rescore": "from-rollouts"}}),
    "fst, both, adaptive": ("fst", {"fast": {"rescore": "from-rollouts", "reuse": True, "adaptive": True}}),
    "fst, withdrawn": ("fst", {"slow": {"withdraw": 0.5}}),
    "fst ahead": ("fst", {"sampling": {"ahead": 1.0}, "slow": {"steps": 7}}),
    "fst by digest": ("fst", {"fast": {"optimizer": "digest"}}),
    "fst by ape": ("fst", {"fast": {"optimizer": "ape", "budget": 20}}),
    "gepa": ("gepa", {"evaluation": {"divergence": True, "every": 1}}),
    "gepa, several at once": ("gepa", {"fast": {"optimizer": {"name": "gepa", "proposals": 3}}}),
    "distill": ("distill", {}),
}


@pytest.mark.parametrize("problems", [3, 100])
@pytest.mark.parametrize("name", RECIPES)
def test_a_run_spends_what_was_counted(name: str, problems: int, tmp_path: Path) -> None:
    method, changes = RECIPES[name]
    recipe, task = recipe_of(method, **changes), Numbered(problems)
    counted = count_rollouts(recipe, task)
    loop, _ = run(tmp_path / "run", recipe, LengthyEngine() if "ahead" in name else FakeEngine(), task=task)
    spent = {kind: loop.state.ledger.total(purposes).rollouts for kind, purposes in KINDS.items()}
    assert all(counted[kind].least <= spent[kind] <= counted[kind].most for kind in KINDS), (spent, counted)
    for kind in EXACT[method] if "budget" not in name and "reuse" not in name and "both" not in name else ():
        assert counted[kind] == Span(spent[kind], spent[kind])
    if method == "rl":
        assert all(counted[kind] == Span(spent[kind], spent[kind]) for kind in KINDS)


EXACT = {"rl": ["slow", "evaluation"], "fst": ["slow", "rescue"], "gepa": ["slow"], "distill": ["slow", "rescue"]}


def test_stages_are_evaluated_on_every_task(tmp_path: Path) -> None:
    stages = Stages([Stage("few", 2, Numbered(3)), Stage("many", 3, Numbered(40))])
    recipe = recipe_of("rl", evaluation={"problems": 5, "divergence": True})
    counted = count_rollouts(recipe, stages)
    loop, _ = run(tmp_path / "run", recipe, FakeEngine(), task=stages)
    for kind, purposes in KINDS.items():
        spent = loop.state.ledger.total(purposes).rollouts
        assert counted[kind] == Span(spent, spent)


def found(**changes: Any) -> dict[str, Finding]:
    data = {"model": "nano", "task": {"name": "rulebook", "book": "library"}, "sampling": {"max_tokens": 32}, **changes}
    return {finding.what: finding for finding in check(build_recipe(data))}


def warned(rows: int, folder: Path, answer: str = "the", **changes: Any) -> list[str]:
    folder.mkdir(exist_ok=True)
    asked = [{"question": f"say a b c : {number}", "answer": answer} for number in range(rows)]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in asked))
    task = {"name": "dataset", "path": str(folder / "rows.jsonl"), **changes.pop("task", {})}
    data = {"model": "nano", "task": task, "sampling": {"max_tokens": 32}, **changes}
    return [finding.found for finding in check(build_recipe(data)) if finding.warning or finding.missing]


def test_a_friend_would_say_it(tmp_path: Path) -> None:
    few = "\n".join(warned(3, tmp_path))
    assert "measured on 1 validation problem with score 0.5 may as well have 0.05 or 0.95" in few
    assert "there is 1 to train on" in few
    assert "scores on 1 problem: " in few
    assert warned(600, tmp_path) == []
    (group,) = warned(600, tmp_path, slow={"group": 2}, fast={"population": 2})
    assert group.startswith("2 rollouts share the problem")
    assert "82% of such groups have equal rewards" in group
    (long,) = warned(600, tmp_path, answer="the " * 40)
    assert "up to 40 tokens, more than sampling.max_tokens=32" in long
    (none,) = warned(600, tmp_path, task={"holdout": 0})
    assert none.startswith("there are no problems to evaluate on")


def test_runs_that_are_warm_up_or_evaluation_for_the_most_part_are_said(tmp_path: Path) -> None:
    slow = {"steps": 20, "problems": 8, "group": 8}  # 1,280 rollouts
    rl = {"method": "rl", "slow": slow, "evaluation": {"every": 10, "problems": 60}}  # 3 × 60 × 4
    assert warned(600, tmp_path, **rl) == []
    (warm,) = warned(600, tmp_path, **{**rl, "slow": {**slow, "warmup_steps": 11}})
    assert "hardly move: there are at most 20 updates, and the first 11 are warm-up" in warm
    (much,) = warned(600, tmp_path, **{**rl, "evaluation": {"every": 4, "problems": 60}})
    assert much.startswith("evaluation plays more rollouts (1,440) than training")


def test_rollouts_that_cannot_be_spent_are_said(tmp_path: Path) -> None:
    slow = {"steps": 6, "problems": 4, "group": 4, "warmup_steps": 1}
    rl = {"method": "rl", "slow": slow, "evaluation": {"every": 0}}
    (said,) = warned(600, tmp_path, rollouts=400, **rl)
    assert (
        said
        == "rollouts=400 cannot be spent: slow.steps=6 ends the run after at most 96; raise slow.steps to spend them"
    )
    assert warned(600, tmp_path, rollouts=96, **rl) == []
    out = io.StringIO()
    small = {"slow": {"steps": 1, "problems": 2, "group": 2}, "sampling": {"max_tokens": 4}, "evaluation": {"every": 0}}
    recipe = build_recipe({"model": "nano", "task": "rulebook", "method": "rl", "rollouts": 21, **small})
    train(recipe, tmp_path / "run", make_view(Console(file=out, width=200)))
    assert "rollouts=21 cannot be spent: slow.steps=1 ends the run after at most 4" in out.getvalue()


def test_nano_says_what_it_is_for_and_its_limits_fit(tmp_path: Path) -> None:
    rows = [{"question": f"Name the capital of France, {number}", "answer": "Paris"} for number in range(600)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    task = {"name": "dataset", "path": str(tmp_path / "rows.jsonl")}
    recipe = build_recipe({"model": "nano", "task": task})
    (said,) = [finding.found for finding in check(recipe) if finding.warning or finding.missing]
    assert said.startswith("nano is for trying fastslow")
    assert "'capital'" in said
    (tmp_path / "sums.jsonl").write_text(
        "".join(json.dumps({"question": f"What is {n} + 8?", "answer": str(n + 8)}) + "\n" for n in range(600))
    )
    sums = build_recipe({"model": "nano", "task": {"name": "dataset", "path": str(tmp_path / "sums.jsonl")}})
    (said,) = [finding.found for finding in check(sums) if finding.warning or finding.missing]  # it knows every word
    assert "only learnt questions like 'zorka : a b c', and these are others ('What is 0 + 8?')" in said
    assert (recipe.sampling.max_tokens, recipe.fast.max_tokens) == (256, 512)
    assert not [
        each for each in check(build_recipe({"model": "nano", "task": "rulebook"})) if each.warning or each.missing
    ]
    base = {"task": task, "sampling": {"max_tokens": 4096}}  # as a library's own defaults
    assert make_recipe({"model": "nano"}, base).sampling.max_tokens == 256
    assert make_recipe({"model": "nano", "sampling": {"max_tokens": 900}}, base).sampling.max_tokens == 900
    assert make_recipe({"model": "owner/name"}, base).sampling.max_tokens == 4096


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


def test_a_card_that_is_named_fits_or_does_with_an_adapter(eight: Path) -> None:
    settings = build_recipe({"model": {"name": str(eight)}, "task": "rulebook", "sampling": {"max_tokens": 1024}})

    def said(card: str, **model: Any) -> str:
        changed = settings.model_copy(update={"model": settings.model.model_copy(update=model)})
        return {each.what: each.found for each in check(changed, card=card)}["card"]

    assert said("H100").startswith("one of 80 GB: no, calculated; with model.lora.rank=32: yes, updates need up to ")
    assert said("80GB", lora=LoraRecipe(rank=8)).startswith("one of 80 GB: yes, calculated: updates need up to ")
    assert said("8").startswith("one of 8 GB: no, calculated; the run does not fit")
    assert said("400").startswith("one of 400 GB: yes, calculated: ")
    for wrong in ("h1000", "0", "a card"):
        with pytest.raises(FastSlowError, match=f"--card {wrong}: give its memory in GB, as in --card 80, or one of"):
            said(wrong)


def test_frozen_weights_are_counted_in_the_precision_of_a_gpu(eight: Path) -> None:
    lora = {"name": str(eight), "lora": {"rank": 32}}
    assert found(model=lora)["memory"].found.startswith(
        "15.26 GiB for 8,190,735,360 weights (frozen weights in bf16, as"
    )
    fp32 = found(model={**lora, "device": "cpu"})["memory"].found
    assert fp32.startswith("30.51 GiB for 8,190,735,360 weights (frozen weights in fp32; an adapter")


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
