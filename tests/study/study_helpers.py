"""Run folders with made-up evaluations: everything a comparison reads, without the training."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fastslow.recipe import build_recipe
from fastslow.runs.folder import RunFolder


def made_run(
    folder: Path,
    rewards: Sequence[float],
    *,
    method: str = "fst",
    seed: int = 0,
    every: int = 10,
    fast: int = 0,
    kl: float | None = 0.01,
    status: str = "finished",
    settings: dict[str, Any] | None = None,
    tokens: bool = True,
) -> Path:
    """A run that was evaluated every so many steps of 32 rollouts; its fast loop has spent `fast` before the first step."""
    recipe = build_recipe(
        {
            "model": "nano",
            "task": {"name": "rulebook", "book": "library"},
            "method": method,
            "seed": seed,
            "slow": {"steps": every * (len(rewards) - 1), "problems": 4, "group": 8, "microbatch": 8},
            **(settings or {}),
        }
    )
    with RunFolder.create(folder, recipe) as run:
        for index, reward in enumerate(rewards):
            step, evolved = index * every, method != "rl" and index > 0
            result = {"mean": reward, "low": max(reward - 0.1, 0), "high": min(reward + 0.1, 1), "k": 1, "problems": 50}
            result |= {"best": reward, "kl": None if kl is None else index * kl}
            under_seed = {**result, "mean": reward / 2, "kl": None if kl is None else 2 * index * kl}
            results = {"seed": under_seed, "best context": result} if evolved else {"seed": result}
            slow, spent = (0 if method == "gepa" else 32 * step), (fast * index if evolved else 0)
            row = {
                "step": step,
                "results": results,
                "seconds": 6.0 * step,
                "rollouts_slow": slow,
                "rollouts_fast": spent,
            }
            run.append("evals", {**row, "rollouts_evaluation": 0} | ({"tokens": 50 * (slow + spent)} if tokens else {}))
        if method != "gepa":
            for step in range(1, every * (len(rewards) - 1) + 1):
                run.append("metrics", {"step": step, "entropy": 1 / (1 + step / 10) + 0.01 * seed})
        if method != "rl":
            run.save_cycle(0, cycle())
        run.set_status(status)
    return folder


def staged_run(folder: Path, rewards: dict[str, list[float]], method: str) -> Path:
    """A run of ten steps on each of some tasks, evaluated on all of them every ten steps; with too few rewards, not to its
    end."""
    stages = {"task": None, "stages": [f"{task}@10" for task in rewards]}
    slow = {"slow": {"problems": 4, "group": 8, "microbatch": 8}}
    length = min(len(values) for values in rewards.values())
    status = "finished" if length == len(rewards) + 1 else "interrupted"
    made_run(folder, [0.0] * length, method=method, status=status, settings=stages | slow)
    rows = [json.loads(line) for line in (folder / "evals.jsonl").read_text().splitlines()]
    for at, row in enumerate(rows):
        for task, values in rewards.items():
            row["results"][f"seed on {task}"] = {**row["results"]["seed"], "mean": values[at]}
    (folder / "evals.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def cycle() -> dict[str, Any]:
    """One cycle that found one better text, with characters that a page must not take for its own."""
    seed = {"id": "aaaa", "texts": {"system": "Answer."}, "parents": [], "born": 0}
    child = {
        "id": "bbbb",
        "texts": {"system": "Answer.\nzorka means <b>reverse</b> & stop"},
        "parents": ["aaaa"],
        "born": 0,
    }
    edit = {
        "child": "bbbb", "parent": "aaaa", "component": "system", "feedback": ["zorka <i>means</i> reverse"],
        "before": 0.0, "after": 1.0, "accepted": True, "score": 0.7, "reason": "",
    }  # fmt: skip
    population = [{**child, "score": 0.7, "scored_at": 0}, {**seed, "score": 0.1, "scored_at": 0}]
    return {
        "cycle": 0, "policy_step": 0, "carried": ["aaaa"], "best": "bbbb", "active": ["bbbb"], "population": population,
        "edits": [edit], "contexts": [seed, child], "generations": 1, "spent": {"fast-score": {"rollouts": 12}},
    }  # fmt: skip
