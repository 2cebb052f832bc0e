"""Scoring completions with every distinct beginning computed once, for any trainer that compares rollouts of one prompt."""

from fastslow.prefix.check import unsupported
from fastslow.prefix.logprobs import completion_logprobs

__all__ = ["completion_logprobs", "unsupported"]
