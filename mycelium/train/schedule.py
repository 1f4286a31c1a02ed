"""Learning rate, and when to stop."""

from __future__ import annotations

import math
from dataclasses import dataclass


def cosine(step: int, steps: int, highest: float) -> float:
    """Learning rate of a step: ``highest`` at the first, 0 after the last."""
    return highest * 0.5 * (1.0 + math.cos(math.pi * min(step, steps) / steps))


@dataclass(frozen=True, slots=True)
class Patience:
    """The best validation loss so far, and how long ago it was.

    Attributes:
        best: Lowest so far.
        since: Epochs since then.
    """

    best: float = math.inf
    since: int = 0

    def after(self, loss: float) -> Patience:
        """With one more epoch; a loss that is not a number is no improvement."""
        return Patience(loss, 0) if loss < self.best else Patience(self.best, self.since + 1)

    @property
    def improved(self) -> bool:
        """Whether the last epoch was the best."""
        return self.since == 0 and self.best < math.inf
