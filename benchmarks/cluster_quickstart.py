"""The quickstart's FST and RL through SkyRL's server on a CPU, beside the same through the local engine.

    make test-cluster    # sets SkyRL up
    PYTHONPATH=.:tests/cluster python -m benchmarks.cluster_quickstart run --skyrl .skyrl/bin/python --seeds 500 501 502
    PYTHONPATH=.:tests/cluster python -m benchmarks.cluster_quickstart report

The server trains an adapter and chooses its alpha, so the local engine gets an adapter of the same rank and alpha; both have
the same learning rate, problems, group sizes and budgets. The report has the last evaluations, with 95% intervals over seeds.
Runs that are finished are kept, and interrupted ones are resumed.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from skyrl_server import SkyRL, nano_in_fp32

from fastslow.recipe import Recipe, load_recipe
from fastslow.study.curves import over_seeds, read_curve
from fastslow.study.quickstart import RECIPE
from fastslow.study.training import train_or_resume

RANK, ALPHA, LEARNING_RATE = 32, 32, 1.5e-3
"""Alpha is SkyRL's. The rate was chosen with the local engine and seed 300."""
METHODS = ("fst", "rl")


def build(method: str, seed: int, model: Path, address: str | None) -> Recipe:
    settings = [f"method={method}", f"seed={seed}", f"model={model}", f"slow.learning_rate={LEARNING_RATE}"]
    settings += ["slow.steps=24", "fast.cycle=8", "evaluation.every=6", "evaluation.divergence=false"]
    if address is None:
        settings += ["model.device=cpu", f"model.lora.rank={RANK}", f"model.lora.alpha={ALPHA}"]
    else:
        settings += [f"engine={{kind: tinker, base_url: '{address}', rank: {RANK}, reduction: sequence-mean}}"]
    return load_recipe(RECIPE, settings)


def run(options: argparse.Namespace) -> None:
    options.out.mkdir(parents=True, exist_ok=True)
    model = options.out / "server" / "nano"
    server = SkyRL(options.skyrl, model.parent, rank=RANK, at_once=16) if "skyrl" in options.engines else None
    if server:
        server.start()
    elif not model.exists():
        nano_in_fp32(model)
    try:
        for seed in options.seeds:
            for method in options.methods:
                for engine in options.engines:
                    address = server.address if server and engine == "skyrl" else None
                    recipe = build(method, seed, model.resolve(), address)
                    train_or_resume(recipe, options.out / f"{engine}-{method}-{seed}")
    finally:
        if server:
            server.kill()


def report(options: argparse.Namespace) -> None:
    print("| method | engine | reward at the end, by seed | mean and 95% interval |\n|---|---|---|---|")
    for method in options.methods:
        for engine in ("local", "skyrl"):
            rewards = [read_curve(path).rewards[-1] for path in sorted(options.out.glob(f"{engine}-{method}-*"))]
            if rewards:
                each = ", ".join(f"{reward:.2f}" for reward in rewards)
                print(f"| {method} | {engine} | {each} | {over_seeds(rewards, 0, 1).words()} |")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("run", "report"))
    parser.add_argument("--skyrl", default=".skyrl/bin/python", help="the Python of SkyRL's environment")
    parser.add_argument("--engines", nargs="+", default=["local", "skyrl"])
    parser.add_argument("--methods", nargs="+", default=METHODS)
    parser.add_argument("--seeds", type=int, nargs="+", default=[500, 501, 502])
    parser.add_argument("--out", type=Path, default=Path("runs/cluster-quickstart"))
    options = parser.parse_args(arguments)
    {"run": run, "report": report}[options.what](options)


if __name__ == "__main__":
    main()
