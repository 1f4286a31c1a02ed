"""Readings on their way into a window: where they go among a store's columns, and their values in the channel's unit.

A window has few readings and many places for them. So workers hand over *entries*, place and value, and ``psi``
transforms them where the model runs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from jaxtyping import Float32, Int32, Int64

from mycelium.schema import HOURS
from mycelium.window.columns import FAMILIES, Store, WindowOptions, first, temporal_columns
from mycelium.window.entries_kernel import keep_count, pick

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Entries:
    """Readings of one store.

    Attributes:
        place: Place in [hour, entity, column], flat; no place twice. [reading]
        value: As reported, in the unit of the channel. [reading]
    """

    place: Int32[npt.NDArray[np.int32], " reading"]
    value: Float32[Floats, " reading"]

    @staticmethod
    def join(parts: list[Entries]) -> Entries:
        if not parts:
            return Entries(np.zeros(0, np.int32), np.zeros(0, np.float32))
        return Entries(np.concatenate([part.place for part in parts]), np.concatenate([part.value for part in parts]))


@dataclass(frozen=True, slots=True)
class Target:
    """Columns of one quantity: its phases, and its own conductor where it has one.

    Attributes:
        column: First column.
        width: Number of columns of the store.
    """

    column: int
    width: int

    @staticmethod
    def of(options: WindowOptions, store: Store, name: str) -> Target:
        """The columns of a store that are normalised under this name."""
        columns = temporal_columns(options)[store]
        return Target(first(columns, name), len(columns))

    def entries(self, seen: Ints, value: Floats, slots: int) -> Entries:
        """Readings as entries.

        Args:
            seen: Their places in [hour, entity, slot], flat. [reading]
            value: All values, zeros included. [hour, entity, slot]
            slots: Number of slots.
        """
        place, out = np.empty(len(seen), np.int32), np.empty(len(seen), np.float32)
        pick(seen, value.reshape(-1), slots, self.column, self.width, place, out)
        return Entries(place, out)


def places(seen: Flags) -> Ints:
    """Where something is seen, flat and ascending. [reading]"""
    return np.asarray(seen.reshape(-1).nonzero()[0])


@dataclass(frozen=True, slots=True)
class Cadence:
    """How many readings of each family there were in every hour, and how old the last ones are.

    Attributes:
        record: Parts as ``entries_kernel`` numbers them, families in the order of ``columns.FAMILIES``.
            [family, part, hour]
    """

    record: Int64[Ints, "family part=3 hour=24"]

    @staticmethod
    def start() -> Cadence:
        return Cadence(np.zeros((len(FAMILIES), 3, HOURS), np.int64))

    def count(self, family: int, seen: Ints, entries: int) -> None:
        """Add readings of a family at these places of [hour, entry], flat and ascending."""
        if len(seen):
            keep_count(seen, np.full(entries, -1, np.int8), self.record[family])
