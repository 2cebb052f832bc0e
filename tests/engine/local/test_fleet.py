"""Sampling with vLLM servers, over real HTTP: log-probabilities, adapters, deaths, restarts, and what is refused at first."""

from __future__ import annotations

import asyncio
import io
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
from rich.console import Console
from slow_helpers import make_recipe
from test_engine_contract import PROMPTS, sample, update
from test_sharded_run import FSDP2

from fastslow.base.errors import RecipeError, RunError
from fastslow.base.world import wait_for
from fastslow.engine.local import servers as servers_module
from fastslow.engine.local.engine import LocalEngine
from fastslow.engine.local.servers import Servers
from fastslow.launch.estimate import check
from fastslow.launch.start import resume, train
from fastslow.recipe import Recipe, build_recipe, dump_recipe
from fastslow.records import Sampling, Turn
from fastslow.runs.recorder import Pace
from fastslow.runs.view import PlainView

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
    drawn = wait_for(engine.sample(PROMPTS * 8, sampling, 3, ready=early.__setitem__))
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


def test_a_server_restarted_with_another_model_during_an_update_is_left_out(
    fleet: tuple[LocalEngine, FakeVllm, FakeVllm], tmp_path: Path
) -> None:
    engine, first, _ = fleet
    sample(engine)
    first.kill()
    first.model = str(save_model(tmp_path / "other", seed=1))
    first.start()
    engine.update(update(engine, 1))
    asked = len(first.asked)
    for seed in range(4):
        sample(engine, seed)
        asyncio.run(asyncio.sleep(0.05))  # longer than it rests: it is asked what it serves more than once
    assert len(first.asked) == asked
    assert not first.adapters
    assert "now serves" in engine.fleet.servers.servers[0].problem  # type: ignore[union-attr]


def wrong(**changes: Any) -> Callable[[Any], Any]:
    """An answer whose only choice is changed."""
    return lambda answer: {**answer, "choices": [{**answer["choices"][0], **changes}]}


SPOILT: dict[str, Callable[[Any], Any]] = {
    "a page": lambda _: "<html>a proxy's page</html>",
    "a list": lambda answer: [answer],
    "nothing": lambda _: None,
    "an error with status 200": lambda _: {"error": {"message": "not now"}},
    "deep": lambda _: "[" * 100_000,
    "no choice": lambda answer: {**answer, "choices": []},
    "huge": lambda answer: {**answer, "padding": "x" * 2**22},
    "two choices": lambda answer: {**answer, "choices": answer["choices"] * 2},
    "another version": lambda answer: {**answer, "model": "base"},
    "aborted": wrong(finish_reason="abort"),
    "aborted at once": wrong(finish_reason="abort", token_ids=[], logprobs={"token_logprobs": []}),
    "no ids": wrong(token_ids=None),
    "ids in words": wrong(token_ids=["4"] * 12),
    "negative ids": wrong(token_ids=[-1], logprobs={"token_logprobs": [-1.0]}),
    "unknown ids": wrong(token_ids=[10**6], logprobs={"token_logprobs": [-1.0]}),
    "too many tokens": wrong(token_ids=[4] * 13, logprobs={"token_logprobs": [-1.0] * 13}),
    "fewer log-probabilities": wrong(logprobs={"token_logprobs": []}),
    "an empty log-probability": wrong(token_ids=[4], logprobs={"token_logprobs": [None]}),
    "a positive log-probability": wrong(token_ids=[4], logprobs={"token_logprobs": [0.5]}),
}


def test_what_is_no_answer_of_vllm_goes_to_another_server(fleet: tuple[LocalEngine, FakeVllm, FakeVllm]) -> None:
    engine, first, second = fleet
    expected = sample(engine)
    for name, spoils in SPOILT.items():
        first.spoils = spoils
        assert sample(engine) == expected, name
        server = engine.fleet.servers.servers[0]  # type: ignore[union-attr]
        assert server.problem, name
        server.problem, server.rests_until, server.pause = "", None, servers_module.PAUSE
    assert engine.notes["servers"][first.address]["died"] == len(SPOILT)
    assert engine.notes["servers"][second.address]["failed"] == 0


@pytest.mark.parametrize("name", ["a page", "an empty log-probability", "unknown ids", "aborted"])
def test_before_the_run_it_is_refused(name: str, start: Start, model: Path, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"does not answer a request|whose log-probabilities differ") as refused:
        local_engine(recipe_of(model, start(), start(spoils=SPOILT[name])), tmp_path / "run")
    assert "\n" not in str(refused.value)


def test_a_busy_server_does_not_hold_what_another_can_answer(start: Start, model: Path, tmp_path: Path) -> None:
    busy, free = start(), start()
    engine = local_engine(recipe_of(model, busy, free, engine={"timeout": 20.0}), tmp_path / "run")
    busy.failures = [429] * 10_000
    for seed in range(3):
        assert len(sample(engine, seed)) == len(PROMPTS)
    assert engine.notes["servers"][free.address]["answered"] == 3 * len(PROMPTS)
    engine.close()


@pytest.mark.parametrize("status", [302, 400, 401, 404, 408])
def test_a_refusal_of_one_server_is_not_the_end(status: int, fleet: tuple[LocalEngine, FakeVllm, FakeVllm]) -> None:
    engine, first, second = fleet
    expected = sample(engine)
    first.failures = [status] * 100
    assert sample(engine) == expected
    second.failures = [400] * 100
    first.failures = [400] * 100
    engine.fleet.servers.servers[0].rests_until = None  # type: ignore[union-attr]
    with pytest.raises(RunError, match="refused a request: HTTP 400: not now"):
        sample(engine)


@pytest.mark.parametrize("change", [{"max_length": 64}, {"answer": lambda *_: (404, {"detail": "Not Found"})}])
def test_a_server_that_returns_otherwise_is_left_out(
    change: dict[str, Any], fleet: tuple[LocalEngine, FakeVllm, FakeVllm]
) -> None:
    engine, first, _ = fleet
    expected = sample(engine)
    first.kill()
    sample(engine)
    first.__dict__.update(change)
    first.start()
    asked = len(first.asked)
    for _ in range(4):
        asyncio.run(asyncio.sleep(0.1))
        assert sample(engine) == expected
    assert len(first.asked) == asked


def test_servers_keep_no_adapter(start: Start, model: Path, tmp_path: Path) -> None:
    server = start()
    engine = local_engine(recipe_of(model, server), tmp_path / "run")
    engine.prepare()
    engine.update(update(engine, 1))
    assert len(server.adapters) == 2
    engine.close()
    assert not server.adapters


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


@pytest.mark.parametrize(
    ("addresses", "expected"),
    [
        (["ftp://a"], "start with http:// or https://"),
        (["http://"], "name a host, not 'http:'"),
        (["http:///v1"], "name a host"),
        (["http://a?x=1"], "name a host"),
        (["http://a:99999"], "'http://a:99999' is not an address .Port out of range"),
        (["http://a:b"], "is not an address"),
        (["http://[::1"], "is not an address"),
        (["http://a..b"], "is not an address"),
        (["http://" + "a" * 64], "is not an address"),
        (["http://a:1", "http://A:1/v1/"], "stands there twice"),
        (["http://a", "http://a:80"], "stands there twice"),
    ],
)
def test_what_is_no_address_is_refused(addresses: list[str], expected: str, model: Path) -> None:
    with pytest.raises(RecipeError, match=expected):
        build_recipe({"model": str(model), "task": "rulebook", "sampling": {"backend": {"vllm": addresses}}})


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
    second.max_length = 9  # room for answers, not for the prompts before them
    (missing,) = [finding for finding in check(recipe) if finding.missing]
    assert "does not fit the model's 9" in missing.found
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


def test_a_run_stops_when_its_server_returns_other_log_probabilities(
    start: Start, model: Path, grader: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are right at first. The checkpoint of before is kept, and the run resumes from there with a better server."""

    def shifted(answer: Any) -> Any:
        logprobs = answer["choices"][0]["logprobs"]["token_logprobs"]
        wrong_ones = {"token_logprobs": [each - 1.03 for each in logprobs]}
        return wrong(logprobs=wrong_ones)(answer) if list((tmp_path / "run").glob("metrics.jsonl")) else answer

    monkeypatch.setattr(Pace, "due", lambda self: True)  # as if every step took minutes
    only = start(spoils=shifted)
    recipe = run_recipe(model, grader, only)
    recipe = recipe.model_copy(update={"output": recipe.output.model_copy(update={"checkpoint_every": 9})})
    said = io.StringIO()
    with pytest.raises(RunError, match=r"step 3: .* by 1.03 on average .* explains 0.25; .* resume") as ended:
        train(recipe, tmp_path / "run", PlainView(Console(file=said, width=1000)))
    assert "\n" not in str(ended.value)
    assert "warning: step 2: the sampler's log-probabilities differ from the policy's by 1.03" in said.getvalue()
    told = json.loads((tmp_path / "run" / "run.json").read_text())
    assert (told["status"], told["checkpoint"]) == ("failed", 1)
    only.spoils = lambda answer: answer
    resume(tmp_path / "run")
    assert json.loads((tmp_path / "run" / "run.json").read_text())["status"] == "finished"


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
