"""Seeds."""

from __future__ import annotations

import hashlib


def derive_seed(*parts: object) -> int:
    """A separate seed for each random decision, so that none depends on earlier draws."""
    return int.from_bytes(hashlib.sha256(repr(parts).encode("utf-8", "backslashreplace")).digest()[:4])
