"""`digest` that evolves only the prompts of a harness, or only its code, to compare with both.

fastslow train examples/invoices/recipe.yaml fast.optimizer=benchmarks.harness_arms:CodeOnly [method=gepa]
"""

from __future__ import annotations

from fastslow.fast.evaluator import Evaluator
from fastslow.fast.optimizers.digest import Digest
from fastslow.fast.pool import Pool
from fastslow.fast.reflection import Reflector


class PromptOnly(Digest):
    def open(self, evaluator: Evaluator, reflector: Reflector, carried: Pool) -> None:
        super().open(evaluator, reflector, carried)
        self.evolving = self.components


class CodeOnly(Digest):
    def open(self, evaluator: Evaluator, reflector: Reflector, carried: Pool) -> None:
        super().open(evaluator, reflector, carried)
        self.components = []
