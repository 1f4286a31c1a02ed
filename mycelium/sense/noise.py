"""What readings suffer on their way: errors, and loss. Drawn from placement and sample alone; no truth comes in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from jaxtyping import Bool, Float32

from mycelium.schema import CHANNELS, HOURS, Quantity
from mycelium.sense.policies import Noise
from mycelium.simulate.seeds import generator

Errors = npt.NDArray[np.float32]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Disturbance:
    """Errors and losses of one sample's readings, each on its own.

    Attributes:
        error: Relative to the value, but of an angle in degrees. [entry, hour]
        kept: Whether a reading arrives. [entry, hour]
    """

    error: Float32[Errors, "entry hour=24"]
    kept: Bool[Flags, "entry hour=24"]


@dataclass(frozen=True)
class Disturber:
    """Draws errors and losses of the readings of some channels, one channel after the other.

    Attributes:
        sigma: Standard deviation of errors. [entry, 1]
        missing: Probability that a reading is lost. [entry, 1]
        is_angle: Whether errors are added, within a full turn. [entry]
        loses, errs: Whether there are any losses and errors at all.
    """

    sigma: Float32[Errors, "entry 1"]
    missing: Float32[Errors, "entry 1"]
    is_angle: Bool[Flags, " entry"]
    loses: bool
    errs: bool

    @staticmethod
    def of(noise: Noise, entries: Mapping[str, int]) -> Disturber:
        """Prepare.

        Args:
            noise: How large and how frequent errors and losses are.
            entries: Number of readings per hour of every channel.
        """
        quantities = [CHANNELS[key].quantity for key in entries]
        counts = list(entries.values())

        def each(values: list[float]) -> Errors:
            return np.repeat(np.array(values, dtype=np.float32), counts)[:, None]

        sigma = each([noise.sigma(quantity) for quantity in quantities])
        missing = each([noise.missing(quantity) for quantity in quantities])
        is_angle = np.repeat(np.array([quantity is Quantity.ANGLE for quantity in quantities], dtype=bool), counts)
        return Disturber(sigma, missing, is_angle, bool(missing.any()), bool(sigma.any()))

    def draw(self, *sample: str | int) -> Disturbance:
        """Errors and losses of a sample, told by names and numbers."""
        shape = (len(self.sigma), HOURS)
        kept: Flags = np.broadcast_to(np.bool_(True), shape)
        error: Errors = np.broadcast_to(np.float32(0.0), shape)
        rng = generator("sense", *sample)
        if self.loses:  # drawn first, so that the size of errors cannot decide what is lost
            kept = rng.random(shape, dtype=np.float32) >= self.missing
        if self.errs:
            error = _normal(rng, shape)
            error *= self.sigma
        return Disturbance(error, kept)


def _normal(rng: np.random.Generator, shape: tuple[int, int]) -> Errors:
    """Standard normal numbers by the transformation of Box and Muller.

    It works on whole arrays, which takes less time than the generator's own numbers one by one.
    """
    half = -(-shape[0] * shape[1] // 2)
    radius, turn = rng.random((2, half), dtype=np.float32)
    np.sqrt(-2.0 * np.log(1.0 - radius), out=radius)  # 1 - x is never 0
    turn *= np.float32(2.0 * np.pi)
    both = np.concatenate([radius * np.cos(turn), radius * np.sin(turn)])
    return both[: shape[0] * shape[1]].reshape(shape)
