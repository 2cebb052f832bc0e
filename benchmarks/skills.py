"""Thirty rules in front of every message, against the three of them that match it, on a simulated policy.

    python -m benchmarks.skills [--seeds 1000:1040] [--optimizer digest] [--grip 6] [--skills 3]

The policy (simulated_handbook.py) follows a rule the less often, the more lines stand in front of the message: with n lines
as `grip` / n. Each seed is another handbook of thirty rules. Printed are exact expected rewards on unseen messages, with 95%
intervals over seeds: of the seed text, of all rules whole and as skills, and of what an optimizer found whole and with
`fast.skills`, after so many rollouts.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from benchmarks.fast_loop import RECIPE, SETTINGS, Setting, open_world, run_one
from benchmarks.simulated_handbook import HandbookDials
from fastslow.study.curves import over_seeds

Rewards = Mapping[str, float]


def compare(seed: int, optimizer: str, whole: Setting, loaded: Setting) -> Rewards:
    """The rewards of one handbook."""
    found: dict[str, float] = {}
    for name, setting in (("whole", whole), ("as skills", loaded)):
        world, _ = open_world(setting.dials, seed)
        found["seed text"] = world.reward(world.seed_text)
        found[f"all rules, {name}"] = world.reward(world.oracle_text)
        for row in run_one(optimizer, setting, seed, RECIPE, False):
            found[f"{optimizer}, {name}, {row['mark']} rollouts"] = row["reward"]
    last = whole.marks[-1]
    found["all rules, difference"] = found["all rules, as skills"] - found["all rules, whole"]
    ends = (found[f"{optimizer}, {name}, {last} rollouts"] for name in ("as skills", "whole"))
    found[f"{optimizer}, difference at {last} rollouts"] = next(ends) - next(ends)
    return found


def table(rewards: Sequence[Rewards]) -> Iterable[str]:
    yield "| text | reward |"
    yield "|---|---|"
    for name in rewards[0]:
        found = over_seeds([each[name] for each in rewards])
        yield f"| {name} | {found.mean:.3f} [{found.low:.3f}, {found.high:.3f}] |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="1000:1040", help="FIRST:END, END not included")
    parser.add_argument("--optimizer", default="digest")
    parser.add_argument("--grip", type=int, default=6)
    parser.add_argument("--skills", type=int, default=3)
    options = parser.parse_args()
    first, end = map(int, options.seeds.split(":"))
    whole, loaded = SETTINGS["thirty-at-once"], SETTINGS["thirty-skills"]
    assert isinstance(whole.dials, HandbookDials)
    assert isinstance(loaded.dials, HandbookDials)
    whole = replace(whole, dials=replace(whole.dials, grip=options.grip))
    loaded = replace(loaded, dials=replace(loaded.dials, grip=options.grip, skills=options.skills))
    rewards = []
    for seed in range(first, end):
        rewards.append(compare(seed, options.optimizer, whole, loaded))
        print(f"seed {seed} is done", flush=True)
    print("\n".join(table(rewards)))


if __name__ == "__main__":
    main()
