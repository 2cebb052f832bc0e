"""The engine behind the Tinker API against a server in memory: gradients, checkpoints, failures, many requests at once."""

from __future__ import annotations

import time
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_engine import END, Numbered, Words
from fake_runs import make_loop, outcome, recipe_of
from fake_service import AFTER, AWAY, BEFORE, FAILURES, HANGS, FakeService, Server

from fastslow.base.errors import RecipeError, RunError
from fastslow.base.world import wait_for
from fastslow.engine.base import Row, Update
from fastslow.engine.tinker import engine as module
from fastslow.engine.tinker.engine import TinkerEngine
from fastslow.engine.tinker.rows import find_reduction
from fastslow.models.chat import ChatFormat
from fastslow.models.tokenizer import Described
from fastslow.recipe import Recipe
from fastslow.records import Completion, Context, Sampling, Turn
from fastslow.rollouts.play import Player
from fastslow.runs import files
from fastslow.runs.folder import RunFolder

SAMPLING = Sampling(1.0, 1.0, 6)
YES, NO = (Words()(word)["input_ids"][0] for word in ("yes", "no"))
PROMPT = (901, 902, 903)


@pytest.fixture(autouse=True)
def _hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAUSE", 0.0)
    monkeypatch.setattr(files, "sync", lambda path: None)


def make_server(**settings: Any) -> Server:
    return Server((YES, NO, END), **settings)


def recipe(**changes: Any) -> Recipe:
    engine = {"kind": "tinker", "base_url": "http://fake", "rank": 4, "reduction": "sum", **changes.pop("engine", {})}
    made = recipe_of(**changes)
    return Recipe.model_validate({**made.model_dump(), "engine": engine})


def make_engine(server: Server, chosen: Recipe | None = None) -> TinkerEngine:
    words = Words()
    words("yes no")
    return TinkerEngine(chosen or recipe(), Described(words, None, (END,)), FakeService(server))  # type: ignore[arg-type]


def make_update(step: int = 1, *, seed: int = 0, age: int = 1) -> Update:
    """Two problems, of which the first has rows of two lengths; ratios of its sampling policy are away from one."""
    draw = np.random.default_rng(seed)
    rows = []
    for advantage, ids in [(1.5, (YES, END)), (-0.5, (NO, NO, YES, END)), (2.0, (YES, NO, END)), (-3.0, (END,))]:
        sampled = tuple((-1.1 + draw.uniform(-1.5, 1.5, len(ids))).tolist())
        rows.append(Row(Turn("system", "", PROMPT, Completion(ids, sampled), ""), advantage, step - age))
    return Update(step, rows)


def by_hand(server: Server, update: Update, values: np.ndarray, cap: float, kl: float) -> np.ndarray:
    """The gradient of the loss, by finite differences of the loss itself."""
    tokens = sum(len(row.turn.completion.ids) for row in update.rows)
    base, now = server.logprobs(np.zeros_like(values)), server.logprobs(values)

    def loss(moved: np.ndarray) -> float:
        logprobs, total = server.logprobs(moved), 0.0
        for row in update.rows:
            for token, sampled in zip(row.turn.completion.ids, row.turn.completion.logprobs, strict=True):
                place = server.place[token]
                fixed = min(np.exp(now[place] - sampled), cap)
                gap = base[place] - logprobs[place]
                estimate = np.exp(logprobs[place] - sampled) * (np.exp(gap) - gap - 1)
                total += -fixed * row.advantage * logprobs[place] + kl * estimate
        return total / tokens

    step = 1e-6
    return np.array([(loss(values + step * each) - loss(values - step * each)) / (2 * step) for each in np.eye(3)])


@pytest.mark.parametrize("reduction", ["sum", "sequence-mean"])
@pytest.mark.parametrize(
    ("kl", "losses"), [(0.0, ("cispo",)), (0.0, ("importance_sampling",)), (0.3, ("importance_sampling",))]
)
def test_an_update_has_the_gradient_of_the_method(reduction: str, kl: float, losses: tuple[str, ...]) -> None:
    server = make_server(reduction=reduction, losses=losses)
    chosen = recipe(slow={"kl": kl, "loss": {"ratio_cap": 1.5}, "learning_rate": 0.3}, engine={"reduction": reduction})
    engine = make_engine(server, chosen)
    engine.prepare()
    engine.update(make_update(1, seed=1))  # so that policy and base differ
    weights = next(iter(server.adapters.values())).values.copy()
    update = make_update(2)
    ratios = np.exp([
        server.logprobs(weights)[server.place[token]] - sampled
        for row in update.rows
        for token, sampled in zip(row.turn.completion.ids, row.turn.completion.logprobs, strict=True)
    ])  # fmt: skip
    assert ratios.min() < 0.7
    assert ratios.max() > 1.5
    numbers = engine.update(update)
    expected = by_hand(server, update, weights, 1.5, kl)
    assert server.gradients[-1] == pytest.approx(expected, abs=1e-7)
    assert numbers["grad_norm"] == pytest.approx(float(np.linalg.norm(expected)), abs=1e-6)
    assert (numbers["kl"] is not None) == bool(kl)
    assert numbers["learning_rate"] == pytest.approx(0.3 * 2 / chosen.slow.warmup_steps)


@pytest.mark.parametrize("reduction", ["sum", "sequence-mean"])
def test_how_a_server_combines_losses_is_measured(reduction: str) -> None:
    server = make_server(reduction=reduction)
    server.place |= {number: number % 3 for number in range(1, 13)}
    assert wait_for(find_reduction(FakeService(server))) == reduction
    server.says_norm = False
    assert wait_for(find_reduction(FakeService(server))) == "sum"


def test_a_server_that_combines_losses_in_another_way_is_refused() -> None:
    server = make_server(reduction="mean of sums")
    server.place |= {number: number % 3 for number in range(1, 13)}
    with pytest.raises(RecipeError, match="combines the losses of tokens in an unknown way"):
        wait_for(find_reduction(FakeService(server)))


def trained(server: Server, chosen: Recipe) -> tuple[np.ndarray, list[Any], TinkerEngine]:
    """Three updates with sampling between them: the weights at the end, and everything that was sampled."""
    engine = make_engine(server, chosen)
    engine.prepare()
    drawn = []
    for step in (1, 2, 3):
        drawn.append(wait_for(engine.sample([PROMPT] * 3, SAMPLING, seed=step)))
        engine.update(make_update(step, seed=step))
    drawn.append(wait_for(engine.sample([PROMPT] * 3, SAMPLING, seed=9)))
    return server.stored[str(engine._published)].values, drawn, engine


@pytest.mark.parametrize("save_every", [1, 2])
@pytest.mark.parametrize("failure", FAILURES)
def test_whatever_fails_when_nothing_is_lost_and_nothing_is_trained_twice(failure: str, save_every: int) -> None:
    """Every request of a run fails once, in every way; the weights and the samples are those of a run without failures."""
    settings = {"slow": {"kl": 0.1, "learning_rate": 0.3}, "engine": {"save_every": save_every, "timeout": 0.2}}
    undisturbed = make_server()
    weights, drawn, _ = trained(undisturbed, recipe(**settings))
    for request in range(2, undisturbed.requests + 1):  # the first creates the adapter: nothing is lost with it
        server = make_server(failures={request: failure})
        found, sampled, engine = trained(server, recipe(**settings))
        assert not server.failures, "it happened"
        assert found.tolist() == weights.tolist(), f"request {request}"
        assert sampled == drawn
        assert engine.retries >= 1 or failure == BEFORE  # nobody notices a restart before the last samples


def test_many_requests_that_find_their_session_lost_start_one_new_session() -> None:
    server = make_server()
    engine = make_engine(server, recipe(slow={"kl": 0.0}))
    engine.prepare()
    engine.update(make_update(1))
    before = wait_for(engine.sample([PROMPT] * 50, SAMPLING, seed=5))
    made = server.adapters_made
    server.restart()
    server.stored = {path: weights for path, weights in server.stored.items() if "/sampler_weights/" not in path}
    assert wait_for(engine.sample([PROMPT] * 50, SAMPLING, seed=5)) == before
    assert engine.service.sessions == 2  # type: ignore[attr-defined]
    assert server.adapters_made == made + 1
    assert engine.recoveries == 1
    assert engine.retries == 50


def test_a_server_that_stays_away_ends_the_run_with_advice() -> None:
    server = make_server(failures=dict.fromkeys(range(2, 99), AWAY))
    engine = make_engine(server)
    engine.prepare()
    with pytest.raises(RunError, match=r"fake://server cannot be used: connection refused; .*--resume"):
        wait_for(engine.sample([PROMPT], SAMPLING, seed=0))
    with pytest.raises(RunError, match="cannot be used"):
        make_engine(make_server(failures={1: AWAY})).prepare()


def test_a_state_that_the_server_no_longer_has_is_named(tmp_path: Path) -> None:
    server = make_server()
    engine = make_engine(server)
    engine.prepare()
    engine.update(make_update(1))
    engine.save(tmp_path)
    server.stored.clear()
    with pytest.raises(RunError, match=r"was saved on fake://server as fake://1/weights/.*cannot be loaded there"):
        make_engine(server).prepare(tmp_path)
    (tmp_path / "tinker.json").unlink()
    with pytest.raises(RunError, match="saved by another engine"):
        make_engine(server).prepare(tmp_path)


def test_old_states_are_deleted_unless_a_checkpoint_refers_to_them(tmp_path: Path) -> None:
    server = make_server()
    engine = make_engine(server, recipe(slow={"kl": 0.0}))
    engine.prepare()
    for step in (1, 2, 3, 4):
        engine.update(make_update(step))
        if step == 2:
            engine.save(tmp_path)
    states = [path for path in server.stored if "/weights/" in path]
    assert [path.split("-")[-2] for path in states] == ["2", "4"]
    assert len(server.stored) == 3  # and the newest published weights


def test_costs_are_on_the_ledger(tmp_path: Path) -> None:
    prices = {"prompt": 1.0, "completion": 10.0, "training": 100.0}
    chosen = recipe(method="rl", engine={"prices": prices}, slow={"kl": 0.1})
    engine = make_engine(make_server(), chosen)
    loop = make_loop(tmp_path / "run", chosen, engine)  # type: ignore[arg-type]
    with loop.record.run:  # type: ignore[union-attr]
        loop.run()
    ledger = loop.state.ledger
    evaluation = ledger["evaluation"]
    assert evaluation.cost == pytest.approx((evaluation.prompt_tokens + 10 * evaluation.completion_tokens) / 1e6)
    slow = ledger["slow"]
    sampled = (slow.prompt_tokens + 10 * slow.completion_tokens) / 1e6
    assert slow.cost > sampled > 0
    # Every row is trained on with a forward pass before, and scored under the base model.
    assert slow.cost - sampled <= (2 * 100 + 1) * (slow.prompt_tokens + slow.completion_tokens) / 1e6 + 1e-9


@pytest.mark.parametrize("method", ["fst", "rl", "gepa"])
def test_a_run_whose_server_restarts_ends_as_an_undisturbed_one(method: str, tmp_path: Path) -> None:
    def played(name: str, server: Server) -> dict[str, Any]:
        chosen = recipe(method=method, slow={"learning_rate": 0.3, "kl": 0.1})
        loop = make_loop(tmp_path / name, chosen, make_engine(server, chosen))  # type: ignore[arg-type]
        with loop.record.run:  # type: ignore[union-attr]
            loop.run()
        return outcome(tmp_path / name)

    undisturbed = make_server()
    expected = played("undisturbed", undisturbed)
    middle = range(20, undisturbed.requests, undisturbed.requests // 5)
    kinds = (BEFORE, AFTER, AWAY)
    server = make_server(failures={number: kinds[place % 3] for place, number in enumerate(middle)})
    found = played("disturbed", server)
    retried = sum(entry["faults"].pop("service", 0) for entry in found["total"].values())
    assert retried >= 2
    for row in (*found["ledger"], *found["cycles"]):
        for entry in row["spent"].values():
            entry["faults"].pop("service", 0)
    assert found == expected


def test_a_killed_run_resumes_to_the_same_result(tmp_path: Path) -> None:
    chosen = recipe(slow={"learning_rate": 0.3, "kl": 0.1})
    server = make_server()
    loop = make_loop(tmp_path / "whole", chosen, make_engine(make_server(), chosen))  # type: ignore[arg-type]
    with loop.record.run:  # type: ignore[union-attr]
        loop.run()

    class Killed(TinkerEngine):
        def update(self, update: Update) -> Any:
            if update.step == 5:
                raise RuntimeError("the power is out")
            return super().update(update)

    first = make_engine(server, chosen)
    first.__class__ = Killed
    loop = make_loop(tmp_path / "cut", chosen, first)  # type: ignore[arg-type]
    with loop.record.run, pytest.raises(RuntimeError, match="the power is out"):  # type: ignore[union-attr]
        loop.run()
    server.restart()
    with RunFolder.open(tmp_path / "cut", lock=True) as opened:
        latest = opened.checkpoints.latest()
        assert latest is not None
        opened.rewind(latest[0])
    loop = make_loop(tmp_path / "cut", chosen, make_engine(server, chosen))  # type: ignore[arg-type]
    with loop.record.run:  # type: ignore[union-attr]
        loop.run(latest[1])
    assert outcome(tmp_path / "cut") == outcome(tmp_path / "whole")


def play_a_thousand(server: Server, seed: int) -> float:
    """The seconds of work that a thousand rollouts took together."""
    task, engine = Numbered(), make_engine(server)
    player = Player(task, engine, ChatFormat(engine.tokenizer))
    pairs = [(example, Context(dict(task.seed_texts))) for example in task.examples("train") * 10]
    started = time.process_time()
    rollouts, _ = player.play(pairs, SAMPLING, policy_step=0, seed=seed)
    assert len(rollouts) == 1000
    return time.process_time() - started


def test_a_thousand_rollouts_are_in_flight() -> None:
    """None of them is answered before all of them are asked."""
    server = make_server(together=1000)
    assert play_a_thousand(server, 1) < 10
    assert server.most == 1000


def test_the_memory_of_a_thousand_rollouts_is_freed() -> None:
    server = make_server()
    play_a_thousand(server, 1)
    tracemalloc.start()
    play_a_thousand(server, 2)
    before = tracemalloc.get_traced_memory()[0]
    play_a_thousand(server, 3)
    after, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert after - before < 2**20
    assert peak < 2**26


def test_a_request_that_never_ends_is_sent_again() -> None:
    server = make_server(failures={2: HANGS})
    engine = make_engine(server, recipe(engine={"timeout": 0.05}))
    engine.prepare()
    assert wait_for(engine.sample([PROMPT], SAMPLING, seed=0))
    assert engine.retries == 1
