"""The processes of a run, one alone in this process and two real ones that exchange over gloo, and derived seeds."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from typing import Any

import play_together
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rollout_helpers import PlanAndDo, ScriptedEngine, contexts, problems

from fastslow.base.world import World, derive_seed
from fastslow.rollouts.play import Player


def test_one_process_alone_exchanges_nothing() -> None:
    world = World()
    assert world.main
    assert world.gather("x") == ["x"]
    assert world.largest(3) == 3
    assert world.from_main(lambda: "made") == "made"


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each of two processes saw."""
    out = tmp_path_factory.mktemp("world")
    done = subprocess.run(
        [
            sys.executable,
            *("-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"),
            play_together.__file__,
            str(out),
        ],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},  # the test helpers
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return [
        {**json.loads((out / f"rank-{rank}.json").read_text()), "open": (out / f"open-{rank}").read_text()}
        for rank in range(2)
    ]


def test_two_processes_exchange(reports: list[dict[str, Any]]) -> None:
    assert [(report["rank"], report["size"], report["main"]) for report in reports] == [(0, 2, True), (1, 2, False)]
    for report in reports:
        assert report["gathered"] == ["from 0", "from 1"]
        assert report["largest"] == [3, 1]
        assert report["from_main"] == "made by 0"
    assert [report["made"] for report in reports] == [[0], []]
    assert [report["open"] for report in reports] == ["False", "False"]  # what a process leaves open may abort it


@pytest.mark.parametrize("name", play_together.PLANS)
def test_two_processes_play_what_one_would(name: str, reports: list[dict[str, Any]]) -> None:
    """Answers follow from the prompts alone, so one process gives the same rollouts, and both see all of them in order."""
    turns = play_together.PLANS[name]
    pairs = [(example, contexts(3)[index % 3]) for index, example in enumerate(problems(turns))]
    sampler = ScriptedEngine()
    alone, _ = Player(PlanAndDo(), sampler, sampler.chat).play(pairs, play_together.SAMPLING, policy_step=0, seed=9)
    expected = json.loads(json.dumps([play_together.summary(rollout) for rollout in alone]))
    first, second = (report["plays"][name] for report in reports)
    assert first["rollouts"] == second["rollouts"] == expected
    # Both took part in every call, with as many prompts as the busier of them had.
    shares = [turns[0::2], turns[1::2]]
    longest = max(turns, default=0)
    needed = [max(sum(count > turn for count in share) for share in shares) for turn in range(longest)]
    assert first["calls"] == second["calls"] == needed
    assert first["seeds"]
    assert second["seeds"]


def test_a_signal_to_one_process_stops_both_where_they_meet(reports: list[dict[str, Any]]) -> None:
    assert [report["stopped"] for report in reports] == [["SIGTERM", 0], ["SIGTERM", 1]]


NOISY = """
import asyncio, os, signal, time
from fastslow.base.world import wait_for

async def rollout(number):
    try:
        await asyncio.sleep(0.01)
        if number == 30:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.1)
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        if number % 10 == 0:
            raise RuntimeError("closing failed")
        while number == 7:  # goes on although it is cancelled
            try:
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                if time.monotonic() - started > 1:
                    raise
        raise

async def play():
    left = [asyncio.ensure_future(rollout(number)) for number in range(100, 120)]
    async with asyncio.TaskGroup() as group:
        for number in range(50):
            group.create_task(rollout(number))

signal.signal(signal.SIGINT, signal.default_int_handler)
started = time.monotonic()
try:
    wait_for(play())
except KeyboardInterrupt:
    print("interrupted")
print(wait_for(asyncio.sleep(0, "still works")))
"""


def test_an_interruption_ends_all_coroutines_without_a_word() -> None:
    done = subprocess.run([sys.executable, "-c", NOISY], capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "interrupted\nstill works\n", "")


parts = st.integers(-100, 100) | st.text(max_size=5)


@settings(deadline=None, max_examples=200)
@given(st.lists(parts, max_size=4), st.lists(parts, max_size=4))
def test_derived_seeds_follow_from_their_parts(first: list[Any], second: list[Any]) -> None:
    assert 0 <= derive_seed(*first) < 2**32
    assert (derive_seed(*first) == derive_seed(*second)) == (first == second)


def test_derived_seeds_never_change() -> None:
    """Runs of yesterday must go on today."""
    digest = hashlib.sha256(b"(3, 'slow', 12)").hexdigest()
    assert derive_seed(3, "slow", 12) == int(digest[:8], 16)
