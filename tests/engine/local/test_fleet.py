"""Sampling with vLLM servers, over real HTTP: log-probabilities, adapters, deaths, restarts, and what is refused at first."""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
from fake_vllm import FakeVllm
from helpers import local_engine, together
from slow_helpers import make_recipe
from test_engine_contract import PROMPTS, sample, update
from test_sharded_run import FSDP2

from fastslow.concurrency import wait_for
from fastslow.engine.local import servers as servers_module
from fastslow.engine.local.engine import LocalEngine
from fastslow.engine.local.servers import Servers
from fastslow.errors import RecipeError, RunError
from fastslow.estimate import check
from fastslow.recipe import Recipe, build_recipe, dump_recipe
from fastslow.records import Sampling, Turn
from fastslow.start import resume, train

Start = Callable[..., FakeVllm]


def save_model(folder: Path, seed: int = 0) -> Path:
    """A tiny model whose answers depend on its weights: its logits are far apart."""
    tokenizer, model = tiny.make_tokenizer(), tiny.make_model(tiny.make_tokenizer(), seed)
    with torch.no_grad():
        model.lm_head.weight *= 20
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("model"))


@pytest.fixture
def start(model: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Starts servers, of the model unless told otherwise."""
    monkeypatch.setattr(servers_module, "PAUSE", 0.02)
    started: list[FakeVllm] = []

    def one(folder: Path = model, **settings: Any) -> FakeVllm:
        started.append(FakeVllm(folder, **settings))
        return started[-1]

    yield one
    for each in started:
        each.kill()


def recipe_of(folder: Path, *fakes: FakeVllm, **changes: Any) -> Recipe:
    data = make_recipe(folder, lora={"rank": 4, "alpha": 8}, steps=3, learning_rate=0.05, kl=0.1).model_dump()
    data["sampling"] |= {"backend": {"vllm": [fake.address for fake in fakes]}, **changes.pop("sampling", {})}
    return build_recipe({**data, "engine": {"timeout": 120.0}, **changes})


@pytest.fixture
def fleet(start: Start, model: Path, tmp_path: Path) -> Iterator[tuple[LocalEngine, FakeVllm, FakeVllm]]:
    """An engine that is ready to train, and its two servers."""
    first, second = start(), start()
    engine = local_engine(recipe_of(model, first, second), tmp_path / "run")
    engine.prepare()
    yield engine, first, second
    engine.close()


def test_servers_sample_what_was_trained(fleet: tuple[LocalEngine, FakeVllm, FakeVllm]) -> None:
    engine, first, second = fleet
    before = sample(engine)
    for step in (1, 2):
        numbers = engine.update(update(engine, step))
        assert numbers["sampler_mismatch"] == pytest.approx(0, abs=1e-5)
        assert (numbers["sync_seconds"] or 0) > 0
    after = sample(engine)
    assert after != before
    turns = [Turn("system", "", tuple(prompt), drawn, "") for prompt, drawn in zip(PROMPTS, after, strict=True)]
    for turn, scores in zip(turns, engine.score(turns), strict=True):
        assert turn.completion.logprobs == pytest.approx(scores.policy, abs=1e-4)
    assert first.told == second.told  # three versions, the first before the run
    assert len(set(first.told)) == 3
    assert list(first.adapters) == first.told[1:]  # the version before stays for requests that still run
    assert abs(first.asked.count(first.told[2]) - second.asked.count(first.told[2])) <= 1  # balanced


def test_answers_are_in_order_whichever_server_gives_them(fleet: tuple[LocalEngine, FakeVllm, FakeVllm]) -> None:
    engine, first, _ = fleet
    sampling = Sampling(0.7, 0.9, 6)
    expected = wait_for(engine.sample(PROMPTS * 8, sampling, 3))
    early: dict[int, Any] = {}
    first.failures = [500, 503]
    drawn = wait_for(engine.sample(PROMPTS * 8, sampling, 3, early.__setitem__))
    assert drawn == expected
    assert [early[number] for number in range(len(drawn))] == drawn


def test_all_requests_of_a_step_are_in_flight(fleet: tuple[LocalEngine, FakeVllm, FakeVllm]) -> None:
    engine, first, second = fleet
    wait_for(engine.sample(PROMPTS * 16, Sampling(1.0, 1.0, 12), 0))
    assert first.most > 8
    assert second.most > 8


def test_a_busy_server_is_asked_again_and_does_not_count_as_dead(start: Start, model: Path, tmp_path: Path) -> None:
    only = start()
    engine = local_engine(recipe_of(model, only), tmp_path / "run")
    only.failures = [429, 429, 429]
    assert len(sample(engine)) == len(PROMPTS)
    assert engine.retries == 3
    assert engine.notes["servers"][only.address] == {"answered": 4, "failed": 3, "died": 0}
    engine.close()


def test_a_restarted_server_gets_the_adapter_before_it_serves(fleet: tuple[LocalEngine, FakeVllm, FakeVllm]) -> None:
    engine, first, second = fleet
    expected = sample(engine)
    first.kill()
    first.start()  # at once: no request has noticed
    assert sample(engine) == expected
    assert list(first.adapters) == [second.told[-1]]
    assert engine.retries >= 1
    second.kill()
    assert sample(engine) == expected
    engine.update(update(engine, 1))  # a version that the dead one does not get
    second.start()
    asyncio.run(asyncio.sleep(0.1))
    for seed in range(4):
        sample(engine, seed)
    assert list(second.adapters) == [first.told[-1]]
    assert engine.notes["servers"][second.address]["died"] == 1
    assert set(second.asked[-2:]) == {first.told[-1]}


def test_a_server_that_returns_with_another_model_is_left_out(
    fleet: tuple[LocalEngine, FakeVllm, FakeVllm], tmp_path: Path
) -> None:
    engine, first, _ = fleet
    first.kill()
    sample(engine)
    first.model = str(save_model(tmp_path / "other", seed=1))
    first.start()
    server = engine.fleet.servers.servers[0]  # type: ignore[union-attr]
    asked, deadline = len(first.asked), time.monotonic() + 60
    while "now serves" not in server.problem and time.monotonic() < deadline:
        asyncio.run(asyncio.sleep(0.1))
        sample(engine)
    assert "now serves" in server.problem
    assert len(first.asked) == asked


def test_an_answer_by_another_version_is_refused(fleet: tuple[LocalEngine, FakeVllm, FakeVllm]) -> None:
    engine, first, _ = fleet
    first.adapters.clear()
    first.checks_names = False  # VLLM_SKIP_MODEL_NAME_VALIDATION: it would serve the base model
    with pytest.raises(RunError, match=f"{first.address} refused a request: .*it answered as"):
        sample(engine)


# Before the run -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"lora": False}, r"does not load the adapter .*Not Found.*--enable-lora --max-lora-rank 8"),
        ({"max_rank": 2}, r"LoRA rank 4 is greater than max_lora_rank 2.*--max-lora-rank 8"),
        ({"max_length": 12}, r"serves sequences of 12 tokens, but sampling.max_tokens=12; start it with a larger"),
        ({"mode": "raw_logprobs"}, r"before temperature and top_p, but sampling.temperature=0.7.*processed_logprobs"),
    ],
)
def test_a_server_that_was_started_wrong_is_refused(
    settings: dict[str, Any], expected: str, start: Start, model: Path, tmp_path: Path
) -> None:
    recipe = recipe_of(model, start(), start(**settings), sampling={"temperature": 0.7})
    with pytest.raises(RecipeError, match=expected) as refused:
        local_engine(recipe, tmp_path / "run")
    assert "\n" not in str(refused.value)
    assert not list((tmp_path / "run").glob("*"))


def test_log_probabilities_without_temperature_do_where_there_is_none(
    start: Start, model: Path, tmp_path: Path
) -> None:
    engine = local_engine(recipe_of(model, start(mode="raw_logprobs")), tmp_path / "run")
    assert engine.in_flight
    engine.close()


def test_another_model_is_refused_by_its_numbers(start: Start, model: Path, tmp_path: Path) -> None:
    other = start(save_model(tmp_path / "other", seed=1))
    with pytest.raises(RecipeError, match=r"whose log-probabilities differ from those of model.name=.* by \d"):
        local_engine(recipe_of(model, start(), other), tmp_path / "run")
    copied = start(shutil.copytree(model, tmp_path / "copy"))  # the same weights under another name
    local_engine(recipe_of(model, copied), tmp_path / "run").close()


def test_a_folder_that_a_server_cannot_read_is_refused(
    start: Start, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = start()
    monkeypatch.setattr(elsewhere, "_load", lambda body: (404, {"error": {"message": "No adapter found"}}))
    with pytest.raises(RecipeError, match=r"No adapter found.*put output.folder where it can read"):
        local_engine(recipe_of(model, elsewhere), tmp_path / "run")


def test_a_longer_prompt_than_servers_take_is_too_long(start: Start, model: Path, tmp_path: Path) -> None:
    engine = local_engine(recipe_of(model, start(), start(max_length=100)), tmp_path / "run")
    assert engine.max_length == 100
    engine.close()


def test_frozen_weights_need_no_adapter(start: Start, model: Path, tmp_path: Path) -> None:
    server = start(lora=False)
    engine = local_engine(
        recipe_of(model, server, method="gepa", model={"name": str(model)}, fast={"population": 1}), tmp_path / "run"
    )
    assert len(sample(engine)) == len(PROMPTS)
    assert set(server.asked) == {server.model}
    engine.close()


def test_check_asks_the_servers(start: Start, model: Path) -> None:
    first, second = start(), start()
    task = {"name": "rulebook", "book": "library"}
    recipe = recipe_of(model, first, second, task=task, sampling={"max_tokens": 8})
    lines = [finding.found for finding in check(recipe) if finding.what == "sampler"]
    assert lines[0] == f"{first.address} serves {model}, 256 tokens, with vLLM 0.24.0"
    second.kill()
    (missing,) = [finding for finding in check(recipe) if finding.missing]
    assert f"no vLLM server answers at {second.address}" in missing.found


# Whole runs ---------------------------------------------------------------------------------------------------------------


def run_recipe(model: Path, grader: str, *fakes: FakeVllm, timeout: float = 120.0) -> Recipe:
    return build_recipe(
        {
            "model": {"name": str(model), "device": "cpu", "lora": {"rank": 4}},
            "task": {
                "name": "dataset",
                "path": str(Path(grader.rpartition(":")[0]).with_name("rows.jsonl")),
                "grader": grader,
            },
            "engine": {"timeout": timeout},
            "slow": {"steps": 4, "problems": 2, "group": 4, "microbatch": 8, "learning_rate": 0.01, "warmup_steps": 0},
            "fast": {"population": 2, "cycle": 2, "anchors": 2, "budget": 8, "minibatch": 2},
            "sampling": {"max_tokens": 6, "backend": {"vllm": [fake.address for fake in fakes]}},
            "evaluation": {"every": 0},
            "output": {"checkpoint_every": 1},
        }
    )


@pytest.fixture
def grader(tmp_path: Path) -> str:
    """Pays for different words, on eight problems."""
    rows = [json.dumps({"question": f"say {word}", "answer": word}) for word in tiny.WORDS[:12]]
    (tmp_path / "rows.jsonl").write_text("\n".join(rows) + "\n")
    (tmp_path / "words.py").write_text(
        "def grade(answer, row):\n    words = answer.split()\n    return len(set(words)) / 8, 'say more words'\n"
    )
    return f"{tmp_path / 'words.py'}:grade"


def test_a_run_ends_as_planned_when_a_server_dies(start: Start, model: Path, grader: str, tmp_path: Path) -> None:
    first, second = start(), start(dies_after=20)
    run = train(run_recipe(model, grader, first, second), tmp_path / "run")
    told = json.loads((run / "run.json").read_text())
    assert (told["status"], told["steps"]) == ("finished", 4)
    counts = told["sampler"]["servers"]
    assert counts[second.address]["died"] == 1
    assert counts[second.address]["failed"] >= 1
    assert counts[second.address]["answered"] > 0
    assert counts[first.address]["answered"] > counts[second.address]["answered"]
    ledger = json.loads((run / "ledger.json").read_text())
    calls = sum(entry["calls"] for purpose, entry in ledger.items() if purpose != "reflection")
    assert sum(each["answered"] for each in counts.values()) == calls
    assert sum(entry["faults"].get("service", 0) for entry in ledger.values()) == sum(
        each["failed"] for each in counts.values()
    )
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert all(row["sampler_mismatch"] < 1e-4 for row in rows if row["sampler_mismatch"] is not None)
    assert not list(run.glob("fastslow-*"))  # the adapters were for the servers


def test_a_run_without_servers_ends_with_one_line_and_resumes_with_others(
    start: Start, model: Path, grader: str, tmp_path: Path
) -> None:
    only = start(dies_after=40)
    recipe = run_recipe(model, grader, only, timeout=8.0)
    with pytest.raises(RunError, match=r"no vLLM server has answered for 8 seconds .*--resume") as ended:
        train(recipe, tmp_path / "run")
    assert "\n" not in str(ended.value)
    told = json.loads((tmp_path / "run" / "run.json").read_text())
    saved = told["checkpoint"]
    assert told["status"] == "failed"
    assert 0 < saved < 4
    other = start()
    resume(tmp_path / "run", overrides=[f"sampling.backend.vllm=['{other.address}']"])
    told = json.loads((tmp_path / "run" / "run.json").read_text())
    assert (told["status"], told["steps"]) == ("finished", 4)
    steps = [int(name.split("-")[2]) for name in other.told]
    assert steps == [0, *range(saved, 5)]  # before the checkpoint is restored, and after that every step


def test_a_server_that_is_not_there_leaves_no_folder(start: Start, model: Path, grader: str, tmp_path: Path) -> None:
    gone = start()
    gone.kill()
    with pytest.raises(RecipeError, match="no vLLM server answers at"):
        train(run_recipe(model, grader, gone), tmp_path / "run")
    other = start(save_model(tmp_path / "other", seed=1))
    with pytest.raises(RecipeError, match="start it with the same model"):
        train(run_recipe(model, grader, other), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_hundreds_of_requests_wait_at_once(start: Start, model: Path) -> None:
    """They cost the client little: the fake's model answers one after the other."""
    server = start()
    servers = Servers([server.address], timeout=60)

    async def many() -> None:
        await servers.describe(4)
        await asyncio.gather(*(servers.complete([4, 5], Sampling(1.0, 1.0, 1), seed, [2]) for seed in range(300)))

    wait_for(many())
    assert servers.tally()[server.address] == {"answered": 300, "failed": 0, "died": 0}


def test_two_processes_send_their_own_requests(start: Start, model: Path, grader: str, tmp_path: Path) -> None:
    first, second = start(), start()
    (tmp_path / "recipe.yaml").write_text(dump_recipe(run_recipe(model, grader, first, second)))
    command = ["train", tmp_path / "recipe.yaml", "slow.microbatch=4", f"output.folder={tmp_path / 'run'}"]
    (ended,) = together(command, folder=tmp_path / "notes", **FSDP2)
    assert [each.code for each in ended] == [0, 0], ended
    told = json.loads((tmp_path / "run" / "run.json").read_text())
    ledger = json.loads((tmp_path / "run" / "ledger.json").read_text())
    assert told["status"] == "finished"
    calls = sum(entry["calls"] for purpose, entry in ledger.items() if purpose != "reflection")
    assert sum(each["answered"] for each in told["sampler"]["servers"].values()) == calls
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert all(row["sampler_mismatch"] < 1e-4 for row in rows if row["sampler_mismatch"] is not None)
    assert not list((tmp_path / "run").glob("fastslow-*"))
