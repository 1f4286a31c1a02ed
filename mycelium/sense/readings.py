"""Readings: what meters reported, a value or nothing. With the Grid, all that a prior or the model is ever given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numba
import numpy as np
import numpy.typing as npt
from numba import types

from mycelium.grid.grid import Grid
from mycelium.schema import CHANNELS, HOURS

Floats = npt.NDArray[np.float32]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Readings:
    """One day of readings of one network.

    Attributes:
        value: Per channel of ``schema.CHANNELS``, in the channel's unit; 0 where nothing was reported.
            [hour, row of the channel's table, slot]
        seen: Whether something was reported, likewise.
    """

    value: Mapping[str, Floats]
    seen: Mapping[str, Flags]

    def __post_init__(self) -> None:
        for key, channel in CHANNELS.items():
            value, seen = self.value.get(key), self.seen.get(key)
            if value is None or seen is None:
                raise ValueError(f"Readings need the channel '{key}'")
            if value.shape != seen.shape or value.shape[0] != HOURS or value.shape[2] != channel.slots:
                raise ValueError(f"Readings: channel '{key}' has shapes {value.shape} and {seen.shape}")
            if value.dtype != np.float32 or seen.dtype != np.bool_:
                raise ValueError(f"Readings: channel '{key}' holds {value.dtype} and {seen.dtype}")
            if not _is_sound(value.reshape(-1), seen.reshape(-1)):
                raise ValueError(f"Readings: channel '{key}' has values where nothing was reported, or not finite ones")

    @staticmethod
    def none(grid: Grid) -> Readings:
        """Readings with nothing reported, to be filled in."""
        shapes = {key: (HOURS, len(grid.tables[c.table]), c.slots) for key, c in CHANNELS.items()}
        return Readings(
            {key: np.zeros(shape, np.float32) for key, shape in shapes.items()},
            {key: np.zeros(shape, bool) for key, shape in shapes.items()},
        )

    @property
    def count(self) -> int:
        """Number of values reported."""
        return sum(int(seen.sum()) for seen in self.seen.values())


@numba.njit(
    types.boolean(types.Array(types.float32, 1, "C", readonly=True), types.Array(types.boolean, 1, "C", readonly=True)),
    cache=True,
    nogil=True,
)
def _is_sound(value: Floats, seen: Flags) -> bool:
    """Whether all values are finite, and 0 where nothing was reported: in one pass, as every sample is checked."""
    bad = False
    for k in range(len(value)):
        x = value[k]
        bad |= (x - x != 0.0) | ((x != 0.0) & (not seen[k]))  # x - x is no zero where x is not finite
    return not bad
