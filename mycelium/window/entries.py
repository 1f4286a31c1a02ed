"""Readings on their way into a window: where they go among a store's columns, and their values in the channel's unit.

A window has few readings and many places for them. So workers hand over *entries*, place and value, and ``psi``
transforms them where the model runs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from jaxtyping import Bool, Float32, Int32, Int64

from mycelium.schema import HOURS
from mycelium.sense.layout import Layout
from mycelium.sense.readings import Readings
from mycelium.window import entries_kernel as kernel
from mycelium.window.columns import FAMILIES, Store, WindowOptions, first, temporal_columns

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


@dataclass(frozen=True, slots=True)
class Route:
    """Where the readings of some places go.

    Attributes:
        place: In the layout. [place]
        store: Of the window.
        column: Place in [entity, column] of the store, flat. [place]
    """

    place: Int64[Ints, " place"]
    store: Store
    column: Int64[Ints, " place"]


def columns_of(options: WindowOptions, store: Store, name: str, row: Ints, slot: Ints) -> Ints:
    """Places in [entity, column] of a quantity's slots, flat. [item]

    Args:
        options: Of the window.
        store: Whose columns.
        name: What the quantity is normalised under; slots follow one another.
        row: Entity. [item]
        slot: Phase, or 3 of an own conductor. [item]
    """
    columns = temporal_columns(options)[store]
    return row * len(columns) + first(columns, name) + slot


@dataclass(frozen=True)
class Routes:
    """Where the readings of every place of a network go; to no store, to one, or to several.

    Attributes:
        layout: The places.
        stores: Stores that receive readings.
        stride: Entities times columns of each. [store]
        pointer: First way of every place, one more at the end. [place + 1]
        store, column: Where a way ends: which of ``stores``, and place in its [entity, column]. [way]
        family: Family of ``columns.FAMILIES`` that a place's readings count to, -1 none. [place]
        head: Row among the readings of the feeder head, -1 none. [place]
        n_head: Number of those rows.
    """

    layout: Layout
    stores: tuple[Store, ...]
    stride: Int64[Ints, " store"]
    pointer: Int64[Ints, " pointers"]
    store: Int64[Ints, " way"]
    column: Int64[Ints, " way"]
    family: Int64[Ints, " place"]
    head: Int64[Ints, " place"]
    n_head: int

    @staticmethod
    def of(layout: Layout, stride: dict[Store, int], ways: list[Route], family: Ints, head: Ints) -> Routes:
        """Sort ways by place.

        Args:
            layout: The places.
            stride: Entities times columns by store.
            ways: In any order.
            family: As in ``Routes``. [place]
            head: Places of the feeder head's readings, ascending.
        """
        stores = tuple(stride)
        place = np.concatenate([way.place for way in ways])
        order = np.argsort(place, kind="stable")
        store = np.concatenate([np.full(len(way.place), stores.index(way.store)) for way in ways])
        head_row = np.full(layout.count, -1)
        head_row[head] = np.arange(len(head))
        return Routes(
            layout,
            stores,
            np.array(list(stride.values()), dtype=np.int64),
            np.searchsorted(place[order], np.arange(layout.count + 1)),
            store[order].astype(np.int64),
            np.concatenate([way.column for way in ways])[order].astype(np.int64),
            family,
            head_row,
            len(head),
        )

    def follow(self, readings: Readings) -> Routed:
        """Bring readings to where they go."""
        count = np.zeros(len(self.stores), dtype=np.int64)
        kernel.count(readings.place, self.pointer, self.store, count)
        ends = np.cumsum(count)
        place, value = np.empty(ends[-1], np.int32), np.empty(ends[-1], np.float32)
        record = np.zeros((len(FAMILIES), kernel.PARTS, HOURS), dtype=np.int64)
        head = np.zeros((self.n_head, HOURS), np.float32)
        head_seen = np.zeros((self.n_head, HOURS), dtype=bool)
        kernel.follow(
            readings.place, readings.reported, self.pointer, self.store, self.column, self.stride, ends - count, place,
            value, self.family, record, self.head, head, head_seen,
        )  # fmt: skip
        parts = [slice(end - n, end) for end, n in zip(ends.tolist(), count.tolist(), strict=True)]
        entries = {store: Entries(place[part], value[part]) for store, part in zip(self.stores, parts, strict=True)}
        return Routed(entries, record, head, head_seen)


@dataclass(frozen=True, slots=True)
class Routed:
    """Readings where they go.

    Attributes:
        entries: By store.
        record: How many readings of each family there were in every hour, and how old the last ones are; parts as
            ``entries_kernel`` numbers them. [family, part, hour]
        head: Readings of the feeder head, 0 where there is none. [head row, hour]
        head_seen: Where there is one. [head row, hour]
    """

    entries: dict[Store, Entries]
    record: Int64[Ints, "family part=3 hour=24"]
    head: Float32[Floats, "head_row hour=24"]
    head_seen: Bool[Flags, "head_row hour=24"]
