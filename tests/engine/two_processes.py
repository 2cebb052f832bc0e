"""One update of each setting on several processes; each of them leaves its microbatches and weights."""

from __future__ import annotations

from pathlib import Path

import torch
from slow_helpers import SETTINGS, one_update

from fastslow.base.world import World


def main(model: Path, folder: Path) -> None:
    torch.set_num_threads(1)
    world = World.launched(cpu=True)
    found = {name: one_update(model, world, **slow) for name, slow in SETTINGS.items()}
    torch.save(found, folder / f"process-{world.rank}.pt")
