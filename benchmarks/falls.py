"""What helps a slow loop that falls? RL with learning rates that are too high, and several answers to a noticed fall.

    python -m benchmarks.falls [--seeds 10 … 19] [--steps 80] [--rates 0.03 0.1 0.3]

The policy is a small network that chooses one of ten answers to a problem of 16 features; an unknown linear rule says
which one is right. Supervised learning has taught it that roughly. A step plays 8 problems of 8 rollouts and makes one
AdamW step, after ten of warm-up, with the group advantages of the library. Its `Course` notices falls. The true reward,
over all answers to 512 other problems, is used for the table only:

- `none`: training goes on.
- `slower`: a tenth of the learning rate, from the fallen weights.
- `restore`: the weights of the best checkpoint, at the same learning rate.
- `halved`: the weights of the best checkpoint, and half the learning rate.
- `both`: the weights of the best checkpoint, and a tenth of the learning rate. This is what fastslow does.
"""

from __future__ import annotations

import argparse
import copy
from dataclasses import dataclass
from statistics import fmean, stdev

import numpy as np
import torch

from fastslow.slow.steady import Course, point
from fastslow.slow.update import advantages

ANSWERS = {"none": 1.0, "slower": 0.1, "restore": 1.0, "halved": 0.5, "both": 0.1}
"""With the factor of the learning rate after a fall."""
PROBLEMS, GROUP, FEATURES, CHOICES, HELD_BACK, WARM_UP = 8, 8, 16, 10, 512, 10


@dataclass(frozen=True)
class Outcome:
    peak: float
    last: float
    chosen: float
    """True rewards: the highest, that of the last step, and that of the checkpoint which `export` would take."""
    falls: int


class Bandit:
    """Problems, the rule, and a policy with its optimizer."""

    def __init__(self, seed: int, rate: float) -> None:
        self.rate, self.draw = rate, torch.Generator().manual_seed(seed)
        self.rule = torch.randn(FEATURES, CHOICES, generator=self.draw)
        self.held_back = self.problems(HELD_BACK)
        self.policy = torch.nn.Sequential(torch.nn.Linear(FEATURES, 32), torch.nn.Tanh(), torch.nn.Linear(32, CHOICES))
        for parameter in self.policy.parameters():
            torch.nn.init.normal_(parameter, std=0.3, generator=self.draw)
        self._begin()
        self.optimizer = torch.optim.AdamW(self.policy.parameters(), rate, betas=(0.9, 0.999), weight_decay=0.0)

    def _begin(self) -> None:
        """Supervised learning until the policy is as good as a model that RL begins with."""
        optimizer = torch.optim.AdamW(self.policy.parameters(), 0.01)
        for _ in range(100):
            problems = self.problems(32)
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(self.policy(problems), (problems @ self.rule).argmax(-1)).backward()
            optimizer.step()

    def problems(self, count: int) -> torch.Tensor:
        return torch.randn(count, FEATURES, generator=self.draw)

    def truth(self) -> float:
        with torch.no_grad():
            chances = self.policy(self.held_back).softmax(-1)
        right = (self.held_back @ self.rule).argmax(-1)
        return float(chances[torch.arange(HELD_BACK), right].mean())

    def play(self, step: int, course: Course) -> None:
        """One step of RL, noted in the course."""
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate * min(1.0, step / WARM_UP) * course.rate
        problems = self.problems(PROBLEMS)
        logits = self.policy(problems).log_softmax(-1)
        chosen = torch.multinomial(logits.detach().exp(), GROUP, replacement=True, generator=self.draw)
        rewards = (chosen == (problems @ self.rule).argmax(-1, keepdim=True)).double().numpy()
        groups = np.repeat(np.arange(PROBLEMS), GROUP)
        weights = torch.tensor(advantages(rewards.ravel(), groups, "group").reshape(rewards.shape), dtype=torch.float32)
        self.optimizer.zero_grad()
        (-(weights * logits.gather(1, chosen)).mean()).backward()
        torch.nn.utils.clip_grad_norm_(self.policy.parameters(), 1.0)
        self.optimizer.step()
        course.add(point(step, list(rewards.mean(1))))


def train(seed: int, rate: float, answer: str, steps: int) -> Outcome:
    bandit, course, falls = Bandit(seed, rate), Course(None), 0
    saved, true = {}, {0: bandit.truth()}
    for step in range(1, steps + 1):
        bandit.play(step, course)
        if answer != "none" and course.fall(step):
            falls, slower = falls + 1, course.rate * ANSWERS[answer]
            if answer == "slower":
                course.points, course.peaks = course.points[-1:], ()
            else:
                bandit.policy.load_state_dict(saved[course.best])
                course.restored()
            course.rate = slower
        elif course.improved(step):
            course.keep(step)
            saved[step] = copy.deepcopy(bandit.policy.state_dict())
        true[step] = bandit.truth()
    return Outcome(max(true.values()), true[steps], true[course.chosen(steps)], falls)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(10, 20)))
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--rates", type=float, nargs="+", default=[0.03, 0.1, 0.3])
    options = parser.parse_args()
    torch.set_num_threads(1)
    print("| learning rate | answer | peak | at the end | of the chosen checkpoint | chosen / peak | falls noticed |")
    print("|---|---|---|---|---|---|---|")
    for rate in options.rates:
        for answer in ANSWERS:
            found = [train(seed, rate, answer, options.steps) for seed in options.seeds]
            columns = [[each.peak for each in found], [each.last for each in found], [each.chosen for each in found]]
            shown = " | ".join(f"{fmean(each):.3f} ± {stdev(each) / len(each) ** 0.5:.3f}" for each in columns)
            share, falls = fmean(each.chosen / each.peak for each in found), fmean(each.falls for each in found)
            print(f"| {rate:g} | {answer} | {shown} | {share:.3f} | {falls:.1f} |", flush=True)


if __name__ == "__main__":
    main()
