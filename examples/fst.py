"""Fast-Slow Training in one file: the method with torch and transformers alone, to be read beside the paper.

    Φ ← {seed text}
    for every cycle of T steps:
        look ahead at the problems of the next T steps
        Φ ← evolve(Φ) on them, under the present weights                    the fast loop: texts learn from the grader's words
        T times: G rollouts of each problem, G/K under each text; one update   the slow loop: weights learn from the rewards

`python examples/fst.py` trains nano, a model of 6.5 million weights, on a hidden rulebook, in minutes on a CPU. Only the
model and the task come from fastslow.

What the library does beyond this: several components and turns, other losses, baselines and optimizers, reflection models
(here a text is edited with lines of the feedback), reuse of rollouts, shared prefixes, vLLM, adapters, several GPUs, a
ledger, resume. Its update from the same rollouts is the same one (tests/test_fst_example.py).
"""

from __future__ import annotations

import argparse
import copy
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from fastslow.models.tokenizer import resolve
from fastslow.tasks.families.rulebook.task import Rulebook, RulebookOptions

STEPS, T = 12, 6  # steps of the run, and of a cycle (paper: 500, 6)
P, G, K = 8, 8, 4  # problems a step, rollouts a problem, texts kept (paper: 32, 8, 8)
ANCHORS, BUDGET, MINIBATCH = 24, 160, 6  # of the fast loop (paper: 192, 960, 3)
LEARNING_RATE, WARMUP = 1.5e-4, 2  # nano is small and learns fast (paper: 1e-6, 10)
RATIO_CAP = 4.0  # the paper's clip_high of 3 in verl's terms: the ratio is capped at 1 + 3
KL = 1e-3  # coefficient of the KL penalty to the base model
EPSILON = 1e-4  # added to the standard deviation of a group, as in TRL
MAX_TOKENS = 32


@dataclass
class Rollout:
    """One attempt at a problem under a text: what the model read and wrote, and what the grader said."""

    problem: Any
    text: str
    prompt: list[int]
    completion: list[int]
    logprobs: list[float]
    """Of the sampled tokens, under the policy that sampled them."""
    score: float = 0.0
    feedback: str = ""


@dataclass
class Candidate:
    """A text of the pool, with its score on each anchor under the present weights."""

    text: str
    scores: dict[str, float] = field(default_factory=dict)

    @property
    def mean(self) -> float:
        return sum(self.scores.values()) / max(len(self.scores), 1)


class Policy:
    """The model, its tokenizer and the task: plays rollouts."""

    def __init__(self, name: str = "nano", seed: int = 0) -> None:
        self.tokenizer = AutoTokenizer.from_pretrained(resolve(name), padding_side="left")
        self.model = AutoModelForCausalLM.from_pretrained(resolve(name), dtype=torch.float32).eval()
        self.base = copy.deepcopy(self.model).requires_grad_(False)
        self.task = Rulebook(RulebookOptions(book="library", styles=0, told=2, shortest=11, longest=12))
        self.rollouts = 0
        torch.manual_seed(seed)

    @torch.no_grad()
    def play(self, pairs: Sequence[tuple[Any, str]], temperature: float = 1.0, top_p: float = 1.0) -> list[Rollout]:
        """One rollout for each problem and text. The text is the system message."""
        chats = [[{"role": "system", "content": text}, *self.task.messages(problem)] for problem, text in pairs]
        batch = self.tokenizer.apply_chat_template(
            chats, add_generation_prompt=True, padding=True, return_tensors="pt", return_dict=True
        )
        drawn = self.model.generate(
            **batch, do_sample=True, temperature=temperature, top_p=top_p, top_k=0, max_new_tokens=MAX_TOKENS,
            output_logits=True, return_dict_in_generate=True, pad_token_id=self.tokenizer.pad_token_id,
        )  # fmt: skip
        width = batch["input_ids"].shape[1]
        written = drawn.sequences[:, width:]
        logits = torch.stack(drawn.logits, dim=1) / temperature
        logprobs = logits.log_softmax(-1).gather(-1, written[..., None]).squeeze(-1)
        self.rollouts += len(pairs)
        return [self._graded(*pair, batch, row, written[row], logprobs[row]) for row, pair in enumerate(pairs)]

    def _graded(
        self, problem: Any, text: str, batch: Any, row: int, ids: torch.Tensor, logprobs: torch.Tensor
    ) -> Rollout:
        ended = (ids == self.tokenizer.eos_token_id).nonzero()
        length = int(ended[0]) + 1 if len(ended) else len(ids)  # the end token is trained too
        prompt = batch["input_ids"][row][batch["attention_mask"][row].bool()].tolist()
        answer = self.tokenizer.decode(ids[:length], skip_special_tokens=True)
        said = self.task.grade(problem, answer)
        return Rollout(problem, text, prompt, ids[:length].tolist(), logprobs[:length].tolist(), said.score, said.text)


# The slow loop -------------------------------------------------------------------------------------------------------------


def advantages(scores: Sequence[float]) -> list[float]:
    """(r − mean) / (std + ε) over all G rollouts of a problem, its texts mixed."""
    rewards = torch.tensor(scores, dtype=torch.float64)
    return ((rewards - rewards.mean()) / (rewards.std() + EPSILON)).tolist()


def completion_logprobs(model: Any, rollouts: Sequence[Rollout]) -> list[torch.Tensor]:
    """The log-probability of every token of every completion."""
    rows = [torch.tensor(rollout.prompt + rollout.completion) for rollout in rollouts]
    ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
    mask = torch.nn.utils.rnn.pad_sequence([torch.ones_like(row) for row in rows], batch_first=True)
    logprobs = model(input_ids=ids, attention_mask=mask).logits[:, :-1].log_softmax(-1)
    taken = logprobs.gather(-1, ids[:, 1:, None]).squeeze(-1)
    starts = [len(rollout.prompt) - 1 for rollout in rollouts]
    return [row[start : start + len(r.completion)] for row, start, r in zip(taken, starts, rollouts, strict=True)]


def loss_of(model: Any, base: Any, groups: Sequence[Sequence[Rollout]]) -> torch.Tensor | None:
    """CISPO: −sg(min(ρ, cap)) · A · log π, a mean over the tokens of each problem and then over problems, plus a KL penalty,
    a mean over all tokens. Groups whose rewards are all equal have no gradient and are left out; None if all are."""
    varied = [group for group in groups if len({rollout.score for rollout in group}) > 1]
    if not varied:
        return None
    rollouts = [rollout for group in varied for rollout in group]
    weights = []
    for group in varied:
        tokens = sum(len(rollout.completion) for rollout in group)
        weights += [each / (tokens * len(varied)) for each in advantages([rollout.score for rollout in group])]
    policy = completion_logprobs(model, rollouts)
    with torch.no_grad():
        reference = completion_logprobs(base, rollouts)
    everything = sum(len(rollout.completion) for rollout in rollouts)
    loss = torch.zeros(())
    for rollout, weight, new, anchor in zip(rollouts, weights, policy, reference, strict=True):
        ratio = (new - torch.tensor(rollout.logprobs)).exp()
        loss = loss - (ratio.detach().clamp(max=RATIO_CAP) * weight * new).sum()
        apart = anchor - new
        penalty = (apart.exp() - apart - 1) * ratio  # k3; times the ratio its gradient is that of the KL
        loss = loss + KL * penalty.sum() / everything
    return loss


class Trainer:
    """AdamW with linear warm-up, then constant; the gradient norm is clipped at 1."""

    def __init__(self, policy: Policy, learning_rate: float = LEARNING_RATE, warmup: int = WARMUP) -> None:
        self.policy = policy
        self.optimizer = torch.optim.AdamW(policy.model.parameters(), lr=learning_rate, weight_decay=0.0)
        self.schedule = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda done: min(1.0, (done + 1) / warmup))

    def update(self, groups: Sequence[Sequence[Rollout]]) -> None:
        loss = loss_of(self.policy.model, self.policy.base, groups)
        if loss is not None:
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.policy.model.parameters(), 1.0)
            self.optimizer.step()
            self.optimizer.zero_grad()
        self.schedule.step()


# The fast loop -------------------------------------------------------------------------------------------------------------


def evolve(policy: Policy, pool: Sequence[Candidate], anchors: Sequence[Any], chance: random.Random) -> list[Candidate]:
    """One cycle of GEPA: propose edits of good texts from what the grader said, keep those that score, return the best K."""
    found = [
        score(policy, candidate.text, anchors) for candidate in pool
    ]  # a score belongs to the policy that earned it
    began = policy.rollouts
    while policy.rollouts - began < BUDGET and max(candidate.mean for candidate in found) < 1:
        wins = front_wins(found)
        parent = chance.choices(found, wins)[0]
        batch = chance.sample(list(anchors), MINIBATCH)
        before = policy.play([(problem, parent.text) for problem in batch])
        text = reflect(parent.text, before, chance)
        if text is None or text in [candidate.text for candidate in found]:
            continue
        after = policy.play([(problem, text) for problem in batch])
        if sum(rollout.score for rollout in after) > sum(rollout.score for rollout in before):
            found.append(score(policy, text, anchors))
    wins = front_wins(found)
    best = max(found, key=lambda candidate: candidate.mean)
    ranked = sorted(zip(found, wins, strict=True), key=lambda pair: (pair[0] is best, pair[1] > 0, pair[0].mean))
    return sorted((candidate for candidate, _ in ranked[-K:]), key=lambda candidate: -candidate.mean)


def score(policy: Policy, text: str, anchors: Sequence[Any]) -> Candidate:
    rollouts = policy.play([(problem, text) for problem in anchors])
    return Candidate(text, {rollout.problem.id: rollout.score for rollout in rollouts})


def front_wins(candidates: Sequence[Candidate]) -> list[int]:
    """On how many anchors each text is best, for texts that no other covers: the per-problem Pareto front."""
    best = {problem: max(each.scores[problem] for each in candidates) for problem in candidates[0].scores}
    won = [{problem for problem, top in best.items() if each.scores[problem] == top} for each in candidates]
    front = list(range(len(candidates)))
    for index in sorted(front, key=lambda place: candidates[place].mean):  # the worst leaves first
        others = set().union(*(won[place] for place in front if place != index))
        if won[index] <= others and len(front) > 1:
            front.remove(index)
    return [len(won[index]) if index in front else 0 for index in range(len(candidates))]


def reflect(text: str, rollouts: Sequence[Rollout], chance: random.Random) -> str | None:
    """An edit of a text from the feedback on failed attempts. In place of an LLM that reads them, this adds lines of the
    feedback: those that are said of several problems first, because they are likely to be rules. None if nothing is new."""
    known = text.splitlines()
    said = Counter(line for rollout in rollouts if rollout.score < 1 for line in set(rollout.feedback.splitlines()))
    new = {line: count**2 for line, count in sorted(said.items()) if line not in known}
    if not new:
        return None
    lines = chance.choices(list(new), list(new.values()), k=chance.randint(1, 3))
    return "\n".join([*known, *dict.fromkeys(lines)])


# Both ----------------------------------------------------------------------------------------------------------------------


def composed(problem: Any, pool: Sequence[Candidate]) -> list[tuple[Any, str]]:
    """The G rollouts of a problem: as many under each text, of the largest number of texts that divides G."""
    count = max(number for number in range(1, len(pool) + 1) if G % number == 0)
    return [(problem, candidate.text) for candidate in pool[:count] for _ in range(G // count)]


def evaluate(policy: Policy, text: str, problems: int = 64) -> float:
    """Mean reward on validation problems, at temperature 0.6 and top-p 0.95."""
    before = policy.rollouts
    played = policy.play([(problem, text) for problem in policy.task.examples("validation")[:problems]], 0.6, 0.95)
    policy.rollouts = before
    return sum(rollout.score for rollout in played) / len(played)


def train(policy: Policy, method: str = "fst", steps: int = STEPS, seed: int = 0) -> list[Candidate]:
    """Fast-Slow Training; `rl` skips the fast loop, `gepa` the slow one."""
    chance, trainer = random.Random(seed), Trainer(policy)
    stream = list(policy.task.examples("train"))
    chance.shuffle(stream)
    pool = [Candidate(policy.task.seed_text)]
    for step in range(steps):
        if method != "rl" and step % T == 0:
            ahead = stream[step * P : (step + T) * P]
            pool = evolve(policy, pool, ahead[:ANCHORS], chance)
        if method != "gepa":
            problems = stream[step * P : (step + 1) * P]
            rollouts = policy.play([pair for problem in problems for pair in composed(problem, pool)])
            groups = [rollouts[place * G : (place + 1) * G] for place in range(P)]
            trainer.update(groups)
            reward = sum(rollout.score for rollout in rollouts) / len(rollouts)
            print(f"step {step + 1}/{steps}: reward {reward:.3f}, {policy.rollouts} rollouts")
    return pool


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Fast-Slow Training in one file.")
    parser.add_argument("--method", choices=["fst", "rl", "gepa"], default="fst")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    learner = Policy(seed=options.seed)
    start = evaluate(learner, learner.task.seed_text)
    texts = train(learner, options.method, options.steps, options.seed)
    print(
        f"validation reward: {start:.3f} before, {evaluate(learner, texts[0].text):.3f} after {learner.rollouts} rollouts"
    )
    print(f"the text it reads now:\n{texts[0].text}")
