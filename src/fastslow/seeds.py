"""Where random numbers come from."""

from __future__ import annotations

import hashlib


def derive_seed(*parts: object) -> int:
    """A seed of its own for every random decision, so that none depends on what was drawn before it."""
    return int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:4])
