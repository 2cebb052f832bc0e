"""Started by torch.distributed.run: one update of each setting; every process leaves its microbatches and weights."""

from __future__ import annotations

import os
import sys
from pathlib import Path

os.environ.setdefault("CI", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import fastslow  # noqa: F401, I001  sets the thread policy before torch is imported
import torch
from slow_helpers import SETTINGS, one_update
from fastslow.base.world import World


def main(model: str, folder: str) -> None:
    torch.set_num_threads(1)
    world = World.launched(cpu=True)
    found = {name: one_update(Path(model), world, **slow) for name, slow in SETTINGS.items()}
    torch.save(found, Path(folder) / f"process-{world.rank}.pt")


if __name__ == "__main__":
    main(*sys.argv[1:])
