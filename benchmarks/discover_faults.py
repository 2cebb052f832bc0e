"""A search in which almost everything fails: is every evaluation counted, and nothing announced that does not hold?

    python -m benchmarks.discover_faults [--evaluations 10000] [--workers 4] [--kills 3] [--seed 0]

A scripted policy writes candidates of many kinds (`KINDS`), and the evaluator does what they say: it raises, crashes, hangs,
writes without end, needs too much memory, returns NaN, infinity or other types, reads the clock, draws at random, or writes a
file and counts what is in it. A few are honest. The search is killed with SIGKILL several times and resumed, and a second one
is not; both must leave the same. Every check that fails is printed, and the exit status is then 1.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from rich.console import Console

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from fake_engine import END, FakeEngine

from fastslow.discover.task import Discover, DiscoverOptions
from fastslow.fast.reflection.lessons import Lessons
from fastslow.loop import Loop
from fastslow.models.chat import ChatFormat
from fastslow.recipe import Recipe, build_recipe
from fastslow.records import Completion
from fastslow.rollouts.play import Player
from fastslow.runs.folder import RunFolder
from fastslow.runs.view import PlainView

PROBLEM = '''"""Do what the candidate says."""
import os, random, time
goal = "maximize"
seed = "honest 0 0"
suffix = ".txt"
seconds = 1
megabytes = 512
prompt = "{parent}"


def evaluate(candidate):
    kind, number, _ = candidate.split()
    if kind == "honest":
        return int(number) / 1000, "fine"
    if kind == "raises":
        raise ValueError("no")
    if kind == "crashes":
        os.abort()
    if kind == "leaves":
        os._exit(0)
    if kind == "hangs":
        time.sleep(3600)
    if kind == "works":
        while True:
            pass
    if kind == "writes":
        while True:
            print("x" * 100000)
    if kind == "hoards":
        hoard = [bytearray(10**7) for _ in range(10**6)]
    if kind == "clock":
        return time.time(), "the later the better"
    if kind == "draws":
        return 1000 + random.SystemRandom().random(), "luck"
    if kind == "counts":  # what it has written before must be gone
        with open("count", "a+") as file:
            file.write("x")
            return 2.0 * file.tell() if file.tell() > 1 else 0.0
    return {"nan": float("nan"), "inf": float("inf"), "minus": -float("inf"), "text": "9999", "true": True, "none": None,
            "set": {1}, "list": [9999], "three": (9999, "a", "b"), "huge": 10**400, "long": "x" * 10**6,
            "words": (0.5, "x" * 10**6), "object": object()}[kind]
'''
KINDS = {
    **dict.fromkeys(("raises", "crashes", "leaves", "nan", "inf", "minus", "text", "true", "none", "set", "list"), 20),
    **dict.fromkeys(("three", "huge", "long", "words", "object", "clock", "draws", "counts"), 20),
    **dict.fromkeys(("hangs", "works", "writes", "hoards"), 1),
    "honest": 160,
    "again": 20,
    "nothing": 10,
}
"""What the policy writes, and how often; `again` is the candidate that it was shown."""


class Careless(FakeEngine):
    """Writes candidates of all kinds."""

    def _completion(self, text: str, draw: random.Random) -> Completion:
        kind = draw.choices(list(KINDS), list(KINDS.values()))[0]
        number = int(1000 * draw.random() ** 3)
        words = f"{kind} {number} {draw.randrange(10**6)}"
        words = {"again": " ".join(text.split()[-3:]), "nothing": ""}.get(kind, words)
        ids = (*self.tokenizer(words)["input_ids"], END)
        return Completion(ids, (-0.5,) * len(ids))


def recipe_of(seed: int, evaluations: int) -> Recipe:
    return build_recipe(
        {
            "model": "none",
            "task": "given",
            "seed": seed,
            "slow": {
                "steps": 10**6,
                "problems": 8,
                "group": 8,
                "microbatch": 8,
                "advantage": "entropic",
                "patience": None,
            },
            "fast": {"population": 2, "cycle": 5, "anchors": 8, "budget": 32, "minibatch": 2},
            "evaluation": {"every": 0},
            "output": {"checkpoint_every": 1, "keep_checkpoints": 2, "save_rollouts": False},
        }
    )


def search(folder: Path, seed: int, evaluations: int, workers: int) -> None:
    """Begin a search, or resume it, and write what it says beside its folder."""
    (folder.parent / "problem.py").write_text(PROBLEM)
    options = DiscoverOptions(path=str(folder.parent / "problem.py"), evaluations=evaluations, workers=workers)
    task, engine, recipe = Discover(options), Careless(), recipe_of(seed, evaluations)
    latest = None
    if (folder / "run.json").exists():
        with RunFolder.open(folder, lock=True) as opened:
            latest = opened.checkpoints.latest()
            opened.rewind(latest[0] if latest else -1)
        run = RunFolder.open(folder, lock=True)
    else:
        run = RunFolder.create(folder, recipe)
    with (folder.parent / f"{folder.name}.log").open("a") as log, run:
        view = PlainView(Console(file=log, width=300))
        player = Player(task, engine, ChatFormat(engine.tokenizer))
        Loop(recipe, player, task.seed_texts, Lessons(), folder, run, view).run(latest[1] if latest else None)


def in_process(folder: Path, options: argparse.Namespace, kills: int) -> None:
    """Run a search in a process, which is killed so many times, and resumed."""
    context, draw = get_context("spawn"), random.Random(options.seed)
    while True:
        arguments = (folder, options.seed, options.evaluations, options.workers)
        process = context.Process(target=search, args=arguments)
        process.start()
        if kills:
            share = draw.uniform(0.05, 0.8) * options.evaluations  # killed once it has this many evaluations
            log = folder / "candidates.jsonl"
            while process.is_alive() and not (log.exists() and log.read_text().count('"text"') > share):
                time.sleep(0.05)
            time.sleep(draw.uniform(0, 1))
            if process.is_alive() and process.pid:
                os.kill(process.pid, signal.SIGKILL)
                kills -= 1
        process.join()
        if process.exitcode == 0:
            return
        if process.exitcode != -signal.SIGKILL:
            raise SystemExit(f"a search ended with {process.exitcode}; see {folder}.log")


def problems_of(folder: Path, evaluations: int) -> list[str]:
    """What is wrong with what a search has left."""
    rows = RunFolder.open(folder).rows("candidates")
    evaluated, announced = [row for row in rows if "text" in row], [row for row in rows if "announced" in row]
    wrong = []
    if [row["number"] for row in evaluated] != list(range(1, len(evaluated) + 1)):
        wrong.append("evaluations are lost, or counted twice")
    if len(evaluated) < evaluations:
        wrong.append(f"only {len(evaluated)} evaluations")
    if len({row["id"] for row in evaluated}) < len(evaluated):
        wrong.append("a candidate was evaluated twice")
    for row in evaluated:
        kind, number, _ = row["text"].split()
        if (row["score"] is not None) != (kind in ("honest", "counts", "words")):
            wrong.append(f"{kind} has the score {row['score']} ({row['reason']})")
        if kind == "honest" and row["score"] != int(number) / 1000:
            wrong.append(f"an honest {number} scores {row['score']}")
        if kind == "counts" and row["score"] != 0:
            wrong.append("a file of another evaluation was there")
    scores = {row["number"]: row["score"] for row in evaluated}
    for row in announced:
        if row["announced"] != scores[row["number"]]:
            wrong.append(f"evaluation {row['number']} is announced with {row['announced']}")
    honest = max(score for score in scores.values() if score is not None)
    best = RunFolder.open(folder).read_json("best.json") or {}
    if best.get("score") != honest:
        wrong.append(f"the best is {best.get('score')}, and the best honest candidate scores {honest}")
    return sorted(Counter(wrong))


def left(folder: Path) -> list[Any]:
    """What a search has found, without what the clock and chance decided; it must not depend on being killed."""
    rows = RunFolder.open(folder).rows("candidates")
    kept = [{key: row.get(key) for key in ("number", "id", "score", "reason", "parent", "announced")} for row in rows]
    return [*kept, (folder / "best.json").read_text()]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--evaluations", type=int, default=10_000)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        started = time.monotonic()
        folder, whole = Path(work) / "killed", Path(work) / "whole"
        in_process(folder, options, options.kills)
        wrong = problems_of(folder, options.evaluations)
        if options.kills:
            in_process(whole, options, 0)
            wrong += ["a search that was killed and resumed found something else"] * (left(folder) != left(whole))
        rows = [row for row in RunFolder.open(folder).rows("candidates") if "text" in row]
        reasons = Counter(row["reason"] or "valid" for row in rows)
        announced = sum("announced" in row for row in RunFolder.open(folder).rows("candidates"))
        print(f"{len(rows)} evaluations: {dict(reasons.most_common())}; {announced} announced")
        print(
            f"{options.kills} times killed and resumed; {time.monotonic() - started:.0f} s with the search that was not"
        )
        for each in wrong:
            print(f"WRONG: {each}")
    print("all checks pass" if not wrong else f"{len(wrong)} checks fail")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
