"""Shared beginnings computed once: the tree, training over it, sampling over it, and the probe for both.

Unsupported models fall back to padded batches; `why_not_train` and `why_not_sample` return the reason.
docs/shared-prefix.md says what each file does.
"""

from fastslow.prefix.probe import why_not_sample, why_not_train
from fastslow.prefix.sampling import SharedSampler
from fastslow.prefix.tree_attention import completion_logprobs

__all__ = ["SharedSampler", "completion_logprobs", "why_not_sample", "why_not_train"]
