"""Readings: what meters reported, a value or nothing. With the Grid, all that a prior or the model is ever given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
from jaxtyping import Float32, Int32

from mycelium.grid.grid import Grid
from mycelium.schema import CHANNELS, HOURS
from mycelium.sense.layout import Layout
from mycelium.sense.report_kernel import is_sound

Floats = npt.NDArray[np.float32]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Readings:
    """One day of readings of one network: a list of values, as most places have none.

    Attributes:
        layout: Places of the network.
        place: Where each reading stands in [place of the layout, hour], flat; ascending, so none is there twice.
            [reading]
        reported: In the unit of its channel. [reading]
    """

    layout: Layout
    place: Int32[npt.NDArray[np.int32], " reading"]
    reported: Float32[Floats, " reading"]

    def __post_init__(self) -> None:
        if self.place.dtype != np.int32 or self.reported.dtype != np.float32 or self.place.ndim != 1:
            raise ValueError(f"Readings hold {self.place.dtype} and {self.reported.dtype}, not int32 and float32")
        if self.place.shape != self.reported.shape:
            raise ValueError(f"Readings: {len(self.place)} places and {len(self.reported)} values")
        if not is_sound(self.place, self.reported, self.layout.count * HOURS):
            raise ValueError("Readings: a place twice, out of order or out of range, or a value that is not finite")

    @staticmethod
    def of(value: Mapping[str, npt.NDArray[np.floating]], seen: Mapping[str, Flags]) -> Readings:
        """Readings given place by place.

        Args:
            value: Per channel of ``schema.CHANNELS``, in the channel's unit. [hour, row of the channel's table, slot]
            seen: Whether something was reported, likewise.
        """
        sizes = []
        for key, channel in CHANNELS.items():
            there, shape = seen[key], np.shape(seen[key])
            if np.shape(value[key]) != shape or len(shape) != 3 or (shape[0], shape[2]) != (HOURS, channel.slots):
                raise ValueError(f"Readings: channel '{key}' has shapes {np.shape(value[key])} and {shape}")
            if there.dtype != np.bool_:
                raise ValueError(f"Readings: what is seen of channel '{key}' is {there.dtype}, not bool")
            sizes.append(there[0].size)
        layout = Layout(np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64))
        there = np.concatenate([seen[key].reshape(HOURS, -1) for key in CHANNELS], axis=1).T
        values = np.concatenate([value[key].reshape(HOURS, -1) for key in CHANNELS], axis=1).T
        return Readings(layout, np.flatnonzero(there).astype(np.int32), values[there].astype(np.float32))

    @staticmethod
    def none(grid: Grid) -> Readings:
        """Readings with nothing reported."""
        return Readings(Layout.of(grid), np.zeros(0, np.int32), np.zeros(0, np.float32))

    @cached_property
    def value(self) -> Mapping[str, Floats]:
        """Per channel, 0 where nothing was reported. [hour, row of the channel's table, slot]"""
        return self.layout.per_channel(self._dense(self.reported))

    @cached_property
    def seen(self) -> Mapping[str, Flags]:
        """Whether something was reported, likewise."""
        return self.layout.per_channel(self._dense(np.ones(len(self.place), dtype=bool)))

    def _dense(self, values: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
        """Values at their places; to be read only, as the list is what counts. [hour, place]"""
        dense = np.zeros((HOURS, self.layout.count), values.dtype)
        dense.T[np.divmod(self.place, HOURS)] = values
        dense.flags.writeable = False
        return dense

    @property
    def count(self) -> int:
        """Number of values reported."""
        return len(self.place)
