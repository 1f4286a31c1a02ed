"""What readings suffer on their way: errors, and loss. Drawn from placement and sample alone; no truth comes in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mycelium.schema import CHANNELS
from mycelium.sense.policies import Noise
from mycelium.simulate.seeds import generator

Errors = npt.NDArray[np.float32]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Disturbance:
    """Errors and losses of one sample's readings, each on its own.

    Attributes:
        error: Per channel, relative to the value, but of an angle in degrees. [hour, entry]
        kept: Per channel, whether a reading arrives. [hour, entry]
    """

    error: Mapping[str, Errors]
    kept: Mapping[str, Flags]


def disturb(noise: Noise, entries: Mapping[str, int], hours: int, *sample: str | int) -> Disturbance:
    """Draw errors and losses.

    Args:
        noise: How large and how frequent they are.
        entries: Number of readings per hour of every channel.
        hours: How many.
        sample: What the draw depends on.
    """
    counts = np.array(list(entries.values()))
    quantities = [CHANNELS[key].quantity for key in entries]
    sigma, missing = (
        np.repeat(np.array([of(quantity) for quantity in quantities], dtype=np.float32), counts)
        for of in (noise.sigma, noise.missing)
    )
    shape = (hours, int(counts.sum()))
    kept: Flags = np.broadcast_to(np.bool_(True), shape)
    error: Errors = np.broadcast_to(np.float32(0.0), shape)
    # Two streams, so that the size of errors cannot decide what is lost.
    if np.any(missing):
        kept = generator("sense", "loss", *sample).random(shape, dtype=np.float32) >= missing
    if np.any(sigma):
        error = generator("sense", "error", *sample).standard_normal(shape, dtype=np.float32) * sigma
    ends = np.cumsum(counts)
    part = {key: slice(end - count, end) for key, end, count in zip(entries, ends, counts, strict=True)}
    return Disturbance(
        {key: error[:, place] for key, place in part.items()}, {key: kept[:, place] for key, place in part.items()}
    )
