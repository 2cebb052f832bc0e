"""An agent trained on a real model, and its policy served afterwards at the same address."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from fake_vllm import FakeVllm
from forked import fork, type_in
from helpers import outcome

from fastslow.base.errors import RecipeError, RunError
from fastslow.gateway.session import Session, Wanted
from fastslow.launch import start
from fastslow.launch.assembly import open_policy
from fastslow.launch.serve import serve_run, session_of
from fastslow.recipe import load_recipe
from fastslow.runs.board.views import Views
from fastslow.runs.folder import RunFolder

AGENT = """
def agent(problem, client):
    messages = [{"role": "system", "content": "say the word"}, {"role": "user", "content": problem["question"]}]
    for _ in range(2):
        answer = client.chat.completions.create(model="gpt", messages=messages).choices[0].message
        messages += [answer, {"role": "user", "content": "go"}]
    return len(set((answer.content or "").split())) / 8, "say the word red"
"""


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory, tiny_folder: Path) -> Path:
    folder = tmp_path_factory.mktemp("agent")
    (folder / "rows.jsonl").write_text("".join(json.dumps({"question": f"say {word}"}) + "\n" for word in "abcdef"))
    (folder / "agent.py").write_text(AGENT)
    settings = {
        "model": {"name": str(tiny_folder), "device": "cpu"},
        "task": {"name": "agent", "path": "rows.jsonl", "agent": "agent.py:agent"},
        "slow": {"steps": 2, "problems": 2, "group": 4, "microbatch": 4},
        "fast": {"population": 2, "cycle": 1, "anchors": 2, "budget": 4},
        "sampling": {"max_tokens": 8},
        "evaluation": {"problems": 2, "k": 1},
        "output": {"checkpoint_every": 1},
        "seed": 1,
    }
    (folder / "recipe.yaml").write_text(json.dumps(settings))
    return folder / "recipe.yaml"


@pytest.fixture(scope="module")
def trained(recipe: Path) -> Path:
    return start.train(load_recipe(recipe), recipe.parent / "run")


def test_an_agent_is_trained_on_a_real_model(trained: Path) -> None:
    opened = RunFolder.open(trained)
    assert opened.read_json("contexts/seed.json")["texts"] == {"system": "say the word"}
    rows = opened.rows("metrics")
    assert len(rows) == 2
    assert all(row["sampler_mismatch"] < 0.01 for row in rows)  # the tokens and log-probabilities are those sampled
    assert max(row["grad_norm"] for row in rows) > 0


def test_an_agent_is_trained_where_servers_sample(recipe: Path, tiny_folder: Path, tmp_path: Path) -> None:
    server = FakeVllm(tiny_folder)
    changes = [f"sampling.backend={{vllm: ['{server.address}']}}", "model.lora={rank: 4}"]
    try:
        opened = RunFolder.open(start.train(load_recipe(recipe, changes), tmp_path / "run"))
        session = session_of(*open_policy(opened.path, servers=[server.address]))
        count = len(server.asked)
        asyncio.run(session.answers(Wanted("policy", [{"role": "user", "content": "say a"}])))
        assert len(server.asked) == count + 1
        assert "fastslow" in server.asked[-1]  # the adapter, not the base model
        with pytest.raises(RecipeError, match="nowhere"):
            open_policy(opened.path, servers=["nowhere"])
    finally:
        server.kill()
    rows = opened.rows("metrics")
    assert len(rows) == 2
    assert all(row["sampler_mismatch"] < 0.01 for row in rows)
    assert max(row["grad_norm"] for row in rows) > 0
    assert len(set(server.asked)) > 1  # the base model, and adapters


def test_an_episode_is_shown_turn_by_turn(trained: Path) -> None:
    views = next(iter(Views([trained]).find().values()))
    shown = json.loads(views.rollout("step-000001", 0))
    assert len(shown["turns"]) == 2
    assert shown["turns"][0]["question"].splitlines()[-1].startswith("say ")
    assert shown["turns"][1]["question"] == "go"
    assert shown["feedback"].startswith("say the word red")


def test_a_run_of_an_agent_that_is_killed_resumes_to_the_same_result(recipe: Path, trained: Path) -> None:
    folder = recipe.parent / "killed"
    given = ["train", recipe, f"output.folder={folder}"]
    process = fork(type_in, given, environment={}, output=os.devnull)
    metrics = folder / "metrics.jsonl"
    while process.is_alive() and (not metrics.exists() or not metrics.read_text()):
        time.sleep(0.002)
    process.kill()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    start.resume(folder)
    assert outcome(folder) == outcome(trained)


def test_the_policy_is_served_with_its_prompt_in_place(trained: Path) -> None:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        url, loaded, sessions = f"http://127.0.0.1:{listening.getsockname()[1]}", threading.Event(), []

        def ready(session: Session) -> None:
            sessions.append(session)
            loaded.set()

        def serve() -> None:
            serve_run(trained, listening, "right", ready=ready)

        threading.Thread(target=serve, daemon=True).start()
        assert loaded.wait(60)
        with httpx.Client(headers={"x-api-key": "right"}, timeout=60) as client:
            question = {
                "messages": [{"role": "system", "content": "say the word"}, {"role": "user", "content": "say a"}]
            }

            def ask(**more: Any) -> Any:
                return client.post(f"{url}/v1/chat/completions", json=question | more).json()

            drawn = [ask(seed=7, temperature=1.0, max_tokens=4, logprobs=True)["choices"][0] for _ in range(2)]
            assert drawn[0] == drawn[1]
            assert len(drawn[0]["logprobs"]["content"]) <= 4
            assert ask(n=3)["usage"]["completion_tokens"] >= 3
            assert (
                client.post(f"{url}/v1/messages", json={"messages": question["messages"]}).json()["type"] == "message"
            )
            assert client.post(f"{url}/v1/chat/completions", headers={"x-api-key": "no"}).status_code == 401
            assert client.get(f"{url}/v1/models").json()["data"][0]["id"] == "policy"
            long = client.post(f"{url}/v1/responses", json={"input": "a " * 1000})
            assert (long.status_code, long.json()["error"]["code"]) == (400, "context_length_exceeded")
    session = sessions[0]
    assert session.own == {"system": "say the word"}
    asked = asyncio.run(_prompt_of(session, question["messages"]))
    assert "<system> " + session.texts["system"] in asked
    assert asked.count("say the word") == session.texts["system"].count("say the word")


async def _prompt_of(session: Session, messages: Any) -> str:
    prompt = session._prompt("system", Wanted("policy", messages))[0].prompt
    return str(session.rendering.chat.tokenizer.decode(list(prompt)))  # type: ignore[attr-defined]


def test_what_is_asked_together_is_sampled_together(trained: Path) -> None:
    session = session_of(*open_policy(trained))
    calls: list[int] = []
    engine = _engine_of(session)
    sample = engine.sample

    async def counted(prompts: Any, *given: Any, **named: Any) -> Any:
        calls.append(len(prompts))
        return await sample(prompts, *given, **named)

    engine.sample = counted

    async def ask() -> None:
        wanted = [Wanted("policy", [{"role": "user", "content": word}]) for word in "abcd"]
        await asyncio.gather(*(session.answers(each) for each in [*wanted, wanted[0]]))

    asyncio.run(ask())
    assert calls == [5]


def _engine_of(session: Session) -> Any:
    cells = dict(zip(session.sample.__code__.co_freevars, session.sample.__closure__ or (), strict=True))  # type: ignore[attr-defined]
    return cells["batches"].cell_contents.engine


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError):
        open_policy(tmp_path)
