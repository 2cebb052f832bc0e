"""HoVer's keyword index on made-up passages: time and memory to build it, memory to use it, queries a second.

    python benchmarks/hover_index.py [--passages 100000] [--queries 1000] [--words 70]

Words are drawn as natural language has them, a few very often and most hardly ever. Building and searching are each measured
in a process of their own, less what the process takes before it begins.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from itertools import accumulate
from pathlib import Path

VOCABULARY = 200_000
RESULTS = 10


def words(count: int, draw: random.Random) -> list[str]:
    """By Zipf's law, over made-up words."""
    if not hasattr(words, "weights"):
        words.weights = list(accumulate(1 / rank for rank in range(1, VOCABULARY + 1)))  # type: ignore[attr-defined]
    chosen = draw.choices(range(VOCABULARY), cum_weights=words.weights, k=count)  # type: ignore[attr-defined]
    return [f"w{number:x}" for number in chosen]


def write_passages(path: Path, count: int, length: int = 70, seed: int = 0) -> list[str]:
    """A file of passages; their titles, each of which only one passage has."""
    draw = random.Random(seed)
    titles = [f"t{number:x} {' '.join(words(1, draw))}" for number in range(count)]
    with path.open("w") as file:
        for title in titles:
            file.write(json.dumps({"title": title, "text": " ".join(words(length, draw))}) + "\n")
    return titles


def megabytes() -> float:
    """The most memory this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(path: Path, queries: int) -> dict[str, float]:
    """Open the passages, which builds the index where there is none, and search them."""
    import bm25s  # noqa: F401  before the clock starts

    from fastslow.tasks.families.hover import Passages

    before, started = megabytes(), time.perf_counter()
    passages = Passages(str(path))
    opened = time.perf_counter() - started
    draw = random.Random(1)
    asked = [" ".join(words(15, draw)) for _ in range(queries)]
    started, used = time.perf_counter(), time.process_time()
    found = sum(len(passages.search(query, RESULTS)) for query in asked)
    return {
        "opened": opened,
        "megabytes": megabytes() - before,
        "searching": time.perf_counter() - started,
        "working": time.process_time() - used,
        "found": found,
    }


def in_a_process(path: Path, queries: int, cache: Path) -> dict[str, float]:
    command = [sys.executable, __file__, "--measure", str(path), "--queries", str(queries)]
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--passages", type=int, default=100_000)
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--words", type=int, default=70, help="words of a passage")
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(options.measure, options.queries)))
        return
    with tempfile.TemporaryDirectory() as work:
        path, cache = Path(work) / "passages.jsonl", Path(work) / "cache"
        write_passages(path, options.passages, options.words)
        built = in_a_process(path, 0, cache)
        used = in_a_process(path, options.queries, cache)
        size = sum(file.stat().st_size for file in cache.rglob("*") if file.is_file()) / 2**20
        print(f"{options.passages:,} passages of {options.words} words, {path.stat().st_size / 2**20:.0f} MB, "
              f"{len(os.sched_getaffinity(0))} cores")  # fmt: skip
    print(f"build   {built['opened']:8.1f} s   {built['megabytes']:8.0f} MB of memory at most, {size:.0f} MB on disk")
    print(
        f"open    {used['opened']:8.2f} s   {used['megabytes']:8.0f} MB of memory at most, with {options.queries} searches"
    )
    print(
        f"search  {options.queries / used['searching']:8.0f} queries of 15 words a second, {RESULTS} passages each; "
        f"{1000 * used['working'] / options.queries:.1f} ms of one core each"
    )


if __name__ == "__main__":
    main()
