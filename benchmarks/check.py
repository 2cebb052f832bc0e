"""What `fastslow check --probe` says of twelve small runs, and what they then spent.

    OMP_NUM_THREADS=1 python -m benchmarks.check [NAME ...] [--cpu] [--json FILE]

Every run and every probe has a process of its own, so that its peak memory is its own. All on the CPU: about five minutes on
an idle core. With `--cpu`, seconds are those of the processor and not of the clock: other programs of the machine do not
change them.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import tempfile
import time
from pathlib import Path
from typing import Any

import fastslow.engine.local.engine  # noqa: F401  the processes are forked from one that has imported torch
from fastslow.launch.estimate import most_tokens, prompt_tokens
from fastslow.launch.probe import KIB, probe
from fastslow.launch.schedule import KINDS, at_most, count_rollouts
from fastslow.launch.start import train
from fastslow.recipe import Recipe, build_recipe
from fastslow.runs.folder import RunFolder
from fastslow.runs.ledger import sum_rows
from fastslow.runs.view import View
from fastslow.tasks.registry import build_task

RULES = {"name": "rulebook", "book": "library", "styles": 0, "shortest": 3, "longest": 4}
SHORT: dict[str, Any] = {
    "model": "nano",
    "task": RULES,
    "slow": {"steps": 12, "problems": 3, "group": 4, "learning_rate": 1e-4, "warmup_steps": 2},
    "fast": {
        "population": 2,
        "cycle": 4,
        "anchors": 6,
        "budget": 30,
        "optimizer": {"name": "gepa", "proposer": "full"},
    },
    "sampling": {"max_tokens": 16},
    "evaluation": {"every": 6, "problems": 16, "k": 1},
}
GEPA = {"name": "gepa", "proposals": 2, "proposer": "full"}
CASES: dict[str, dict[str, Any]] = {
    "fst": {},
    "rl, divergence": {"method": "rl", "evaluation": {"divergence": True, "every": 5}},
    "gepa, every step": {"method": "gepa", "evaluation": {"every": 1}},
    "distill": {"method": "distill"},
    "fst, reuse and from-rollouts": {"fast": {"reuse": True, "rescore": "from-rollouts"}},
    "rl, ahead": {"method": "rl", "sampling": {"ahead": 1.0}},
    "digest": {"fast": {"optimizer": "digest"}},
    "opro, withdraw": {"fast": {"optimizer": "opro"}, "slow": {"withdraw": 0.5}},
    "rescue": {"slow": {"rescue": "retry"}},
    "stages": {"stages": [{**RULES, "steps": 6}, {**RULES, "book": "orchard", "steps": 6}], "task": None},
    "rollout budget": {"rollouts": 200, "slow": {"steps": 400}, "fast": {"optimizer": GEPA}},
    "evoprompt, never evaluated": {"fast": {"optimizer": "evoprompt", "population": 4}, "evaluation": {"every": 0}},
}


def recipe_of(name: str) -> Recipe:
    data = dict(SHORT)
    for key, value in CASES[name].items():
        data[key] = {**data[key], **value} if key in ("slow", "fast", "sampling", "evaluation") else value
    return build_recipe({key: value for key, value in data.items() if value is not None})


def probed(name: str) -> dict[str, Any]:
    recipe = recipe_of(name)
    task = build_task(recipe)
    found = probe(recipe, task)
    counted = count_rollouts(recipe, task)
    bound = most_tokens(recipe, at_most(counted), prompt_tokens(recipe, task))
    spans = {kind: (span.least, span.most) for kind, span in counted.items()}
    return {"counted": spans, "bound": bound, "seconds": found.seconds, "tokens": found.tokens, "memory": found.memory}


class Watch(View):
    """Seconds between the first and the last event."""

    def start(self, *_: Any, **__: Any) -> None:
        self.started = time.perf_counter()

    def finish(self, *_: Any, **__: Any) -> None:
        self.seconds = time.perf_counter() - self.started


def played(name: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        path, view = Path(folder) / "run", Watch()
        train(recipe_of(name), path, view)
        ledger = sum_rows(RunFolder.open(path).rows("ledger"))
    spent = {kind: ledger.total(purposes).rollouts for kind, purposes in KINDS.items()}
    total = ledger.total([purpose for purposes in KINDS.values() for purpose in purposes])
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * KIB
    return {
        "spent": spent,
        "seconds": view.seconds,
        "tokens": total.prompt_tokens + total.completion_tokens,
        "memory": memory,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="of the cases; all by default")
    parser.add_argument("--cpu", action="store_true", help="seconds of the processor, not of the clock")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.cpu:
        time.perf_counter = time.process_time
    context = multiprocessing.get_context("fork")
    found = {}
    head = "run | rollouts, said | spent | tokens, at most | by the probe | spent | seconds, said | taken | MiB, said | used"
    print(f"| {head} |\n|{'---|' * len(head.split('|'))}", flush=True)
    for name in options.names or CASES:
        answers = []
        for work in (probed, played):
            with context.Pool(1) as pool:
                answers.append(pool.apply(work, (name,)))
        said, was = answers
        found[name] = {"said": said, "was": was}
        inside = all(least <= was["spent"][kind] <= most for kind, (least, most) in said["counted"].items())
        rollouts = [sum(span[end] for span in said["counted"].values()) for end in (0, 1)]
        cells = [
            name, _span(rollouts), f"{sum(was['spent'].values()):,}{'' if inside else ' (outside)'}",
            f"{said['bound']:,}", _span(said["tokens"]), f"{was['tokens']:,}", _span(said["seconds"]),
            f"{was['seconds']:.0f}", f"{said['memory'] / 2**20:.0f}", f"{was['memory'] / 2**20:.0f}",
        ]  # fmt: skip
        print(f"| {' | '.join(cells)} |", flush=True)
        if options.json:
            options.json.write_text(json.dumps(found, indent=1))


def _span(ends: Any) -> str:
    least, most = (f"{end:,.0f}" for end in ends)
    return least if least == most else f"{least} to {most}"


if __name__ == "__main__":
    main()
