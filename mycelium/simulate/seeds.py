"""Random generators that depend on names and numbers only, so that a draw is the same on any machine."""

from __future__ import annotations

import hashlib

import numpy as np


def generator(*parts: str | int) -> np.random.Generator:
    """A generator for this tuple of names and numbers."""
    digest = hashlib.sha256("\x1f".join(str(part) for part in parts).encode()).digest()
    words = [int.from_bytes(digest[k : k + 4], "little") for k in range(0, 32, 4)]
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(words)))
