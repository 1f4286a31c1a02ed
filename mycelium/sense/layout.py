"""Where readings stand: all places of a network, numbered through, channel after channel, each [row, slot]."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from jaxtyping import Int64

from mycelium.grid.grid import Grid
from mycelium.schema import CHANNELS, HOURS

Ints = npt.NDArray[np.int64]

_SLOTS = np.array([channel.slots for channel in CHANNELS.values()])


@dataclass(frozen=True, eq=False)
class Layout:
    """Places of one network.

    Attributes:
        start: First place of each channel, in the order of ``CHANNELS``, and the number of all. [channel + 1]
    """

    start: Int64[Ints, " channels"]

    @staticmethod
    def of(grid: Grid) -> Layout:
        """The places of a grid's elements."""
        return Layout.of_rows({channel.table: len(grid.tables[channel.table]) for channel in CHANNELS.values()})

    @staticmethod
    def of_rows(rows: Mapping[str, int]) -> Layout:
        """The places of tables with so many rows each."""
        sizes = [rows[channel.table] * channel.slots for channel in CHANNELS.values()]
        return Layout(np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Layout) and np.array_equal(self.start, other.start)

    __hash__ = None  # type: ignore[assignment]  # it holds an array

    @property
    def count(self) -> int:
        """Number of places."""
        return int(self.start[-1])

    def part(self, key: str) -> slice:
        """Places of a channel."""
        k = _NUMBER[key]
        return slice(int(self.start[k]), int(self.start[k + 1]))

    def number(self, channel: Ints, row: Ints, slot: Ints) -> Ints:
        """Number of each place. [item]

        Args:
            channel: Places of the channels in ``CHANNELS``. [item]
            row, slot: In the channel. [item]
        """
        return np.asarray(self.start[channel] + row * _SLOTS[channel] + slot)

    def per_channel(self, values: npt.NDArray[Any]) -> dict[str, npt.NDArray[Any]]:
        """Views of [hour, place] per channel. [hour, row, slot]"""
        return {key: values[:, self.part(key)].reshape(HOURS, -1, c.slots) for key, c in CHANNELS.items()}


_NUMBER = {key: k for k, key in enumerate(CHANNELS)}
