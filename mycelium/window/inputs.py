"""Where a quantity's readings go among a store's columns, and how they are transformed on the way."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from jaxtyping import Float32, Int32, Int64

from mycelium.schema import HOURS
from mycelium.window.columns import FAMILIES, Psi, Store, first, temporal_columns
from mycelium.window.static import GridFeatures
from mycelium.window.temporal_kernel import ASINH, DEVIATION, RESIDUAL, keep_count, transform

Floats = npt.NDArray[np.float64]
Floats32 = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

_MODE = {Psi.DEVIATION: DEVIATION, Psi.RESIDUAL: RESIDUAL, Psi.ASINH: ASINH}
NO_ANGLES: Floats = np.zeros((0, 0))


@dataclass(frozen=True, slots=True)
class Entries:
    """Readings of one store.

    Attributes:
        place: Place in [hour, entity, column], flat; no place twice. [reading]
        value: Transformed and normalised. [reading]
    """

    place: Int32[npt.NDArray[np.int32], " reading"]
    value: Float32[Floats32, " reading"]

    @staticmethod
    def join(parts: list[Entries]) -> Entries:
        if not parts:
            return Entries(np.zeros(0, np.int32), np.zeros(0, np.float32))
        return Entries(np.concatenate([part.place for part in parts]), np.concatenate([part.value for part in parts]))


@dataclass(frozen=True, slots=True)
class Input:
    """Columns of one quantity: its phases, and its own conductor where it has one.

    Attributes:
        mode: Transformation, as the kernel numbers them.
        column, width: First column, and number of columns of the store.
        middle, spread, core: Normalisation.
        base: Base of each entity's readings. [entity]
        nominal_rad: Of an angle, NaN where not defined. [entity, phase]
    """

    mode: int
    column: int
    width: int
    middle: float
    spread: float
    core: float
    base: Floats
    nominal_rad: Floats

    @staticmethod
    def of(features: GridFeatures, store: Store, name: str, base: Floats, nominal_rad: Floats = NO_ANGLES) -> Input:
        """The input of a store that is normalised under this name."""
        columns = temporal_columns(features.options)[store]
        column = first(columns, name)
        middle, spread = features.normalisation.of_temporal(store, columns[column : column + 1])[:, 0].tolist()
        mode = _MODE[columns[column].psi]
        core = features.normalisation.core
        return Input(mode, column, len(columns), middle, spread, core, base, np.ascontiguousarray(nominal_rad))

    def entries(self, seen: Ints, value: Floats32, slots: int) -> Entries:
        """Transform readings.

        Args:
            seen: Their places in [hour, entity, slot], flat. [reading]
            value: All values, zeros included. [hour, entity, slot]
            slots: Number of slots.
        """
        if self.mode == RESIDUAL:
            # Without a nominal angle a residual means nothing.
            seen = seen[np.isfinite(self.nominal_rad.ravel()[seen % self.nominal_rad.size])]
        place, out = np.empty(len(seen), np.int32), np.empty(len(seen), np.float32)
        transform(
            seen, value.reshape(-1), slots, self.mode, self.base, self.nominal_rad, self.middle, self.spread, self.core,
            self.column, self.width, place, out,
        )  # fmt: skip
        return Entries(place, out)


@dataclass(frozen=True, slots=True)
class Cadence:
    """How many readings of each family there were in every hour, and how old the last ones are.

    Attributes:
        record: Parts as ``temporal_kernel`` numbers them, families in the order of ``columns.FAMILIES``.
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


def places(seen: Flags) -> Ints:
    """Where something is seen, flat and ascending. [reading]"""
    return np.asarray(seen.reshape(-1).nonzero()[0])
