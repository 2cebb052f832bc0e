"""Whether two versions of the code draw the same: runs a fixed set of recipes, and compares what two versions made of it.

    python benchmarks/same_draws.py run FOLDER [CASE ...]      with PYTHONPATH=CHECKOUT/src for another version
    python benchmarks/same_draws.py compare BEFORE AFTER

Compared bit for bit, apart from seconds: metrics, evaluations, contexts, ledger, saved rollouts and the weights of the last
checkpoint. Everything runs on the CPU with `nano`: five minutes for the quickstart on two cores, ten for the others.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from safetensors.numpy import load_file

SHORT = [
    "slow.steps=8",
    "fast.cycle=4",
    "fast.budget=80",
    "fast.anchors=12",
    "evaluation.every=4",
    "evaluation.problems=16",
]
SHORT += ["output.checkpoint_every=4", "output.save_rollouts=true"]
RULES = {"name": "rulebook", "styles": 0, "shortest": 11, "longest": 12}
STAGES = [{**RULES, "book": book, "steps": 3} for book in ("library", "orchard", "harbour")]
CASES: dict[str, list[str]] = {
    "saving": [
        *SHORT,
        "slow.steps=12",
        "fast.reuse=true",
        "fast.rescore=from-rollouts",
    ],
    "adaptive": [*SHORT, "fast.adaptive=true", "fast.reuse=true", "fast.samples=2"],
    "distill": [*SHORT, "method=distill"],
    "stages": [*SHORT, "task=null", f"stages={json.dumps(STAGES)}", "slow.steps=9"],
    "lora": [*SHORT, "model.lora={rank: 8}", "slow.learning_rate=1e-3"],
    "policy": [*SHORT, "slow.steps=4", "fast.reflection={kind: policy, max_tokens: 64}"],
    "grpo": [*SHORT, "method=rl", "slow.loss=grpo", "slow.microbatch=16", "slow.shared_prefix=false", "slow.std=batch"],
    "evoprompt": [*SHORT, "fast.optimizer=evoprompt", "method=gepa"],
    "processes": [*SHORT, "slow.microbatch=16"],
}
UNEQUAL = {"seconds", "phases", "started", "versions", "memory"}
RENAMED = {"cut_off": "truncated"}
"""Names in run folders of before and of now."""


def run(folder: Path, chosen: list[str]) -> None:
    import fastslow

    recipe = Path(fastslow.__file__).with_name("quickstart.yaml")
    recipe = recipe if recipe.exists() else next(Path(fastslow.__file__).parent.rglob("quickstart.yaml"))
    for name in chosen or ["quickstart", *CASES]:
        launcher = [sys.executable, "-m"]
        if name == "quickstart":
            command = [*launcher, "fastslow", "quickstart", "--out", str(folder / name)]
        else:
            if name == "processes":
                launcher += ["accelerate.commands.launch", "--cpu", "--num_processes", "2", "-m"]
            command = [*launcher, "fastslow", "train", str(recipe), *CASES[name], f"output.folder={folder / name}"]
        print(name, flush=True)
        with (folder / f"{name}.log").open("w") as log:
            environment = {**os.environ, "OMP_NUM_THREADS": "1"}
            subprocess.run(command, stdout=log, stderr=log, env=environment, check=False)


def plain(value: Any) -> Any:
    """Without what may differ, and under today's names."""
    if isinstance(value, dict):
        return {RENAMED.get(key, key): plain(inner) for key, inner in value.items() if key not in UNEQUAL}
    return [plain(inner) for inner in value] if isinstance(value, list) else value


def contents(run: Path) -> dict[str, Any]:
    """Everything in a run folder that two versions should agree on, by what it is."""
    found: dict[str, Any] = {}
    for log in ("metrics", "evals", "ledger"):
        path = run / f"{log}.jsonl"
        found[log] = [plain(json.loads(line)) for line in path.read_text().splitlines()] if path.exists() else []
    for path in [*sorted(run.glob("contexts/*.json")), run / "ledger.json"]:
        found[path.name] = plain(json.loads(path.read_text()))
    for path in sorted(run.glob("rollouts/*.parquet")):
        found[path.name] = pq.read_table(path).to_pylist()
    for path in sorted(run.glob("checkpoints/step-*/*.safetensors")):
        found[f"{path.parent.name}/{path.name}"] = {key: value.tobytes() for key, value in load_file(path).items()}
    return found


def compare(before: Path, after: Path) -> int:
    """Print a line a run; the number of runs that differ."""
    differing = 0
    for path in sorted(before.rglob("run.json")):
        name = path.parent.relative_to(before)
        if not (after / name / "run.json").exists():
            print(f"{name}: missing")
            differing += 1
            continue
        mine, theirs = contents(path.parent), contents(after / name)
        different = [key for key in {**mine, **theirs} if mine.get(key) != theirs.get(key)]
        differing += bool(different)
        counted = (
            f"{len(mine['metrics'])} steps, {len(mine)} files, weights of {sum('/' in key for key in mine)} checkpoints"
        )
        print(f"{name}: {'DIFFERENT: ' + ', '.join(different) if different else 'the same'} ({counted})")
    return differing


if __name__ == "__main__":
    verb, *arguments = sys.argv[1:]
    if verb == "run":
        target = Path(arguments[0]).resolve()
        target.mkdir(parents=True, exist_ok=True)
        run(target, arguments[1:])
    else:
        sys.exit(bool(compare(Path(arguments[0]), Path(arguments[1]))))
