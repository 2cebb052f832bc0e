"""Scoring completions with every distinct beginning computed once, for any trainer that compares rollouts of one prompt."""

from fastslow.shared_prefix.check import unsupported
from fastslow.shared_prefix.logprobs import completion_logprobs

__all__ = ["completion_logprobs", "unsupported"]
