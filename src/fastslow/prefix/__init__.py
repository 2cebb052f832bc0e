"""Shared beginnings computed once: the tree, training over it, sampling over it, and the probe for both.

    tree.py               shared beginnings, found among token ids, in two layouts
    tree_attention.py     training: log-probabilities of completions over a token tree, and its attention
    sampling.py           sampling: completions of prompts that share contexts and problems
    level_attention.py    its attention
    decode_attention.py   the same for decoding on a GPU, as Triton kernels
    probe.py              whether a model can be trained or sampled this way

Unsupported models fall back to padded batches; `why_not_train` and `why_not_sample` return the reason.
"""

from fastslow.prefix.probe import why_not_sample, why_not_train
from fastslow.prefix.sampling import SharedSampler
from fastslow.prefix.tree_attention import completion_logprobs

__all__ = ["SharedSampler", "completion_logprobs", "why_not_sample", "why_not_train"]
