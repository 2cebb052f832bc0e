"""How quick the board is over a long run, and what it costs a run that trains.

    python -m benchmarks.board open    --folder /tmp/long      # 2,000 steps, 500,000 rollouts: time to open, filter, memory
    python -m benchmarks.board viewers --folder /tmp/short     # steps of a run with and without 20 viewers, in turns

The long run is written once and used again. Viewers do what the page does: they hold a stream of events and fetch the curves
whenever something changed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx
import numpy as np
import psutil

from fastslow.recipe import load_recipe
from fastslow.records import Completion, Context, Example, Feedback, Rollout, Turn
from fastslow.runs.folder import RunFolder

RECIPE = Path(__file__).parent.parent / "src" / "fastslow" / "study" / "quickstart.yaml"
STEPS, GROUPS, GROUP, CONTEXTS, CYCLE = 2000, 25, 10, 5, 10
WORDS = [
    *("the", "list", "first", "item", "last", "order", "reverse", "add", "take"),
    *("even", "odd", "answer", "sum"),
]


def write_long_run(folder: Path, steps: int = STEPS) -> None:
    """A run folder as training writes it, with made-up numbers."""
    draw = random.Random(0)
    run = RunFolder.create(folder, load_recipe(RECIPE, [f"slow.steps={steps}", "output.save_rollouts=true"]))
    run.rollout_writer.decode = lambda ids: " " + WORDS[ids[0] % len(WORDS)]
    contexts = [Context({"system": "Answer the question."})]
    spent = {"rollouts_slow": 0, "rollouts_fast": 0, "rollouts_evaluation": 0}
    problems = [Example(f"problem/{number}", {}) for number in range(5000)]
    run.write_json("contexts/seed.json", {"id": contexts[0].id, "texts": dict(contexts[0].texts)})
    for step in range(1, steps + 1):
        cycle = (step - 1) // CYCLE
        if (step - 1) % CYCLE == 0:
            contexts = _evolve(run, cycle, step - 1, contexts, problems, draw)
            spent["rollouts_fast"] += 200
        rollouts = [
            _rollout(problems[(step * GROUPS + group) % len(problems)], contexts[place % len(contexts)], step, draw)
            for group in range(GROUPS)
            for place in range(GROUP)
        ]
        spent["rollouts_slow"] += len(rollouts)
        run.save_rollouts(step, rollouts, advantages=[draw.gauss(0, 1) for _ in rollouts])
        reward = float(np.mean([rollout.score for rollout in rollouts]))
        numbers = {name: draw.random() for name in ("kl", "entropy", "grad_norm", "truncated", "zero_variance")}
        phases = {name: draw.random() * 3 for name in ("sampling", "grading", "update")}
        run.append(
            "metrics",
            {
                **{"step": step, "cycle": cycle, "reward": reward, "response_length": 40.0, "contexts": CONTEXTS},
                **{"rewards": {context.id: reward for context in contexts}, "seconds": sum(phases.values())},
                **{"phases": phases, **numbers, **spent},
            },
        )
        entry = {"rollouts": 250, "prompt_tokens": 25000, "completion_tokens": 10000, "seconds": 5.0, "cost": 0.0}
        run.append("ledger", {"step": step, "cycle": cycle, "spent": {"slow": entry}})
        if step % 20 == 0:
            result = {"mean": reward, "low": reward - 0.05, "high": reward + 0.05, "kl": step / steps}
            run.append("evals", {"step": step, "results": {"best context": result}, "tokens": step * 35000, **spent})
    run.set_status("finished", steps=steps)
    run.close()


def _evolve(
    run: RunFolder, cycle: int, step: int, contexts: list[Context], problems: list[Example], draw: random.Random
) -> list[Context]:
    parent = draw.choice(contexts)
    child = Context(
        {"system": f"{parent.texts['system']}\nRule {cycle}: {' '.join(draw.choices(WORDS, k=8))}."[-900:]},
        (parent.id,),
        cycle,
    )
    kept = [*contexts, child][-CONTEXTS:]
    anchors = draw.sample(problems, 100)
    records = [
        {
            **{"id": context.id, "texts": dict(context.texts), "parents": list(context.parents), "born": context.born},
            **{"score": draw.random(), "wins": 3, "front": True, "scored_at": step},
            "scores": {example.id: float(draw.random() < 0.5) for example in anchors},
        }
        for context in kept
    ]
    edit = {
        "child": child.id,
        "parent": parent.id,
        "component": "system",
        "feedback": ["Take the first item."],
        "before": 0.2,
    }
    edit |= {"after": 0.6, "accepted": True, "score": 0.5, "reason": "", "minibatch": []}
    run.save_cycle(
        cycle,
        {
            **{"cycle": cycle, "policy_step": step, "carried": [], "anchors": [], "best": kept[-1].id, "active": []},
            **{"population": records, "edits": [edit], "contexts": [], "spent": {"fast-score": {"rollouts": 200}}},
        },
    )
    return kept


def _rollout(example: Example, context: Context, step: int, draw: random.Random) -> Rollout:
    score = float(draw.random() < step / STEPS)
    ids = [draw.randrange(len(WORDS)) for _ in range(40)]
    answer = "".join(f" {WORDS[token]}" for token in ids)
    completion = Completion(ids, [-draw.random()] * len(ids))
    turn = Turn("system", f"Put the items of {example.id} in order, by the rules above.", [1] * 100, completion, answer)
    feedback = "Right." if score else "The first item is wrong.\nTake the first item last."
    return Rollout(
        example, context, step - 1, [turn], Feedback(score, feedback), {} if draw.random() < 0.9 else {"truncated": 1}
    )


class Server:
    """`fastslow board` in a process of its own."""

    def __init__(self, folder: Path) -> None:
        self.started = time.perf_counter()
        command = [sys.executable, "-m", "fastslow", "board", str(folder), "--port", "0"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.url = next(line for line in self.process.stdout if "http" in line).split()[-1]

    def memory(self) -> float:
        return psutil.Process(self.process.pid).memory_info().rss / 1e6

    def seconds(self) -> float:
        """Processor time so far."""
        times = psutil.Process(self.process.pid).cpu_times()
        return times.user + times.system

    def close(self) -> None:
        self.process.terminate()
        self.process.wait()


def measure_opening(folder: Path) -> dict[str, Any]:
    if not (folder / "run.json").exists():
        write_long_run(folder)
    server = Server(folder)
    try:
        with httpx.Client(base_url=server.url, timeout=60) as client:

            def timed(path: str, **params: Any) -> tuple[float, Any]:
                started = time.perf_counter()
                answer = client.get(path, params={"run": folder.name, **params})
                took = time.perf_counter() - started
                answer.raise_for_status()
                return round(took, 3), answer

            found: dict[str, Any] = {"server starts (s)": None, "page (s)": timed("/")[0]}
            found["server starts (s)"] = round(time.perf_counter() - server.started, 2)
            found["memory after start (MB)"] = round(server.memory())
            for view in ("runs", "curves", "spending", "text"):
                took, answer = timed(f"/api/{view}")
                found[f"{view} (s)"] = took
                found[f"{view} (kB)"] = round(len(answer.content) / 1e3)
            found["first page of rollouts (s)"] = timed("/api/rollouts")[0]
            started = time.perf_counter()
            while (state := timed("/api/rollouts")[1].json())["indexed"] < state["files"]:
                time.sleep(0.2)
            found["all rollouts indexed after (s)"] = round(time.perf_counter() - started, 2)
            found["rollouts"] = state["all"]
            asks: dict[str, dict[str, Any]] = {
                "by step": {"from": 900, "to": 905},
                "by problem": {"problem": "problem/123"},
                "by score and fault": {"low": 1, "fault": "truncated"},
                "sorted by advantage": {"sort": "advantage"},
                "in the middle": {"offset": 250_000},
            }
            for name, params in asks.items():
                found[f"{name} (s)"] = statistics.median(timed("/api/rollouts", **params)[0] for _ in range(5))
            started = time.perf_counter()
            while (searched := timed("/api/rollouts", words="answer")[1].json())["indexed"] < searched["files"]:
                time.sleep(0.2)
            found["all texts read for a first search after (s)"] = round(time.perf_counter() - started, 2)
            for words in ("answer", "nobody wrote this"):
                took = statistics.median(timed("/api/rollouts", words=words)[0] for _ in range(5))
                found[f"search for '{words}' (s)"] = took
            row = state["rows"][0]
            found["one rollout (s)"] = timed("/api/rollout", file=row["file"], row=row["row"])[0]
            found["memory at the end (MB)"] = round(server.memory())
        found |= _in_browser(server.url)
        return found
    finally:
        server.close()


def _in_browser(url: str) -> dict[str, Any]:
    """Seconds until Chromium has drawn the views, where playwright and Chromium are there."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        found = {}
        for view, drawn in {
            "curves": ".u-over",
            "rollouts": ".list .row",
            "text": ".tree button",
            "spending": ".u-over",
        }.items():
            page.goto("about:blank")
            started = time.perf_counter()
            page.goto(f"{url}#/{view}")
            page.wait_for_selector(drawn)
            found[f"browser shows {view} (s)"] = round(time.perf_counter() - started, 2)
        page.goto("about:blank")
        page.goto(f"{url}#/rollouts")
        page.wait_for_selector(".list .row")
        found["slowest frame while scrolling (ms)"] = page.evaluate(SCROLL)
        browser.close()
    return found


SCROLL = """async () => {
  const view = document.querySelector(".window");
  let slowest = 0, last = performance.now();
  for (let frame = 0; frame < 120; frame += 1) {
    view.scrollTop += 400;
    await new Promise(requestAnimationFrame);
    const now = performance.now();
    if (frame > 5) slowest = Math.max(slowest, now - last);
    last = now;
  }
  return Math.round(slowest);
}"""


async def watch(port: int, run: str, fetched: list[float]) -> None:
    """One viewer, until it is cancelled. It does little beyond reading: a real one runs on another machine."""
    path = f"/api/curves?{urlencode({'run': run})}"
    events, asking = await asyncio.open_connection("127.0.0.1", port)
    answers, fetching = await asyncio.open_connection("127.0.0.1", port)
    try:
        asking.write(b"GET /api/events HTTP/1.1\r\nhost: localhost\r\n\r\n")
        async for line in events:
            if line.startswith(b"event: change"):
                fetching.write(f"GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
                head = await answers.readuntil(b"\r\n\r\n")
                await answers.readexactly(int(head.lower().partition(b"content-length:")[2].split()[0]))
                fetched.append(time.perf_counter())
    finally:
        asking.close()
        fetching.close()


def measure_viewers(folder: Path, viewers: int, rounds: int, steps: int) -> dict[str, Any]:
    """Train, and let the viewers come and go every `steps` steps; the board runs all the time, as with --board."""
    settings = [f"output.folder={folder}", "method=rl", f"slow.steps={2 * rounds * steps + 4}", "evaluation.every=0"]
    settings += ["output.checkpoint_every=100000", "output.save_rollouts=true"]
    settings += ["slow.learning_rate=1e-12"]  # so that all steps have about the same work
    printed = folder.with_suffix(".log")  # a pipe that nobody reads would fill, and stop the run
    with printed.open("w") as output:
        training = subprocess.Popen(
            [sys.executable, "-m", "fastslow", "train", str(RECIPE), "--board", *settings], stdout=output
        )
    while not (shown := re.search(r"http\S+", printed.read_text())):
        time.sleep(0.3)
    url = shown[0]
    port = int(url.rstrip("/").rpartition(":")[2])
    board = next(child for child in psutil.Process(training.pid).children() if "board" in child.cmdline())
    took: dict[bool, list[float]] = {False: [], True: []}  # a turn's median step, without the step of the change
    busy: dict[bool, float] = {False: 0.0, True: 0.0}
    lasted: dict[bool, float] = {False: 0.0, True: 0.0}
    waited: dict[bool, list[float]] = {False: [], True: []}  # a turn's share in which the run waited for a processor
    fetched: list[float] = []

    async def phase(seen: bool, first: int) -> None:
        started, used, waiting = time.perf_counter(), _processor(board), _waited(training.pid)
        watching = [asyncio.create_task(watch(port, folder.name, fetched)) for _ in range(viewers if seen else 0)]
        while len(rows := _rows(folder)) < first + steps and training.poll() is None:
            await asyncio.sleep(0.3)
        busy[seen] += _processor(board) - used
        seconds = time.perf_counter() - started
        lasted[seen] += seconds
        waited[seen].append((_waited(training.pid) - waiting) / seconds)
        for task in watching:
            task.cancel()
        await asyncio.gather(*watching, return_exceptions=True)
        took[seen].append(statistics.median(row["seconds"] for row in rows[first + 1 : first + steps]))

    for turn in range(2 * rounds):
        asyncio.run(phase(turn % 2 == 1, 4 + turn * steps))
    training.wait()
    ratios = np.log(took[True]) - np.log(took[False])  # of each round, whose two turns follow one another
    delays = np.subtract(waited[True], waited[False])
    drawn = np.random.default_rng(0).integers(rounds, size=(10_000, rounds))
    return {
        "viewers": viewers,
        "fetches": len(fetched),
        "rounds, steps of a turn": [rounds, steps - 1],
        "the board's share of a processor (%)": [round(100 * busy[seen] / lasted[seen], 2) for seen in (False, True)],
        "median seconds a step without, with": [round(statistics.median(took[seen]), 3) for seen in (False, True)],
        "slower by (%)": _interval(np.expm1(ratios.mean()), np.expm1(ratios[drawn].mean(axis=1))),
        "waiting for a processor without, with (%)": [
            round(100 * float(np.mean(waited[seen])), 2) for seen in (False, True)
        ],
        "more of it with viewers (%)": _interval(delays.mean(), delays[drawn].mean(axis=1)),
    }


def _interval(found: float, drawn: Any) -> str:
    """A share in percent with its 95% interval."""
    low, high = np.quantile(drawn, (0.025, 0.975))
    return f"{100 * found:.2f} [{100 * low:.2f}, {100 * high:.2f}]"


def _waited(process: int) -> float:
    """Seconds in which threads of a process could have run and had no processor (Linux)."""
    threads = Path(f"/proc/{process}/task").glob("*/schedstat")
    return sum(int(thread.read_text().split()[1]) for thread in threads) / 1e9


def _processor(process: psutil.Process) -> float:
    times = process.cpu_times() if process.is_running() and process.status() != psutil.STATUS_ZOMBIE else None
    return times.user + times.system if times else 0.0


def _rows(folder: Path) -> list[dict[str, Any]]:
    path = folder / "metrics.jsonl"
    return [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]] if path.exists() else []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("open", "viewers"))
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--viewers", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--steps", type=int, default=6)
    given = parser.parse_args()
    found = (
        measure_opening(given.folder)
        if given.what == "open"
        else measure_viewers(given.folder, given.viewers, given.rounds, given.steps)
    )
    for name, value in found.items():
        print(f"{name:44} {value}")


if __name__ == "__main__":
    main()
