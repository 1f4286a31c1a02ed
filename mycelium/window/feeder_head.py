"""What a window knows of its network as a whole: feeder head, taps, cadence of readings, hour by hour and altogether.

With several sources the network's feeder head is the mean over those that reported.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from jaxtyping import Float64, Int64

from mycelium.schema import CHANNELS, HOURS, PHASES
from mycelium.sense.layout import Layout
from mycelium.window import feeder_head_kernel as kernel
from mycelium.window.columns import FAMILIES, Store, WindowOptions, names, static_columns, temporal_columns
from mycelium.window.entries import Entries, Route, Routed, columns_of
from mycelium.window.normalise import normalised
from mycelium.window.static import GridFeatures

Floats = npt.NDArray[np.float64]
Floats32 = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

# Of a source: quantity as the window's columns have it, and the channel it is read in.
_QUANTITIES = {
    "voltage_v": "bus.voltage_v",
    "active_kw": "substation.active_power_kw",
    "reactive_kvar": "substation.reactive_power_kvar",
    "current_a": "substation.current_a",
}
_OF_HEAD = 3  # quantities of them that are columns of substations and networks
_VOLTAGE = 0
_TAP_PU = "winding.tap_pu"
_HEAD = FAMILIES.index("head")


@dataclass(frozen=True)
class HeadPlaces:
    """Where the readings of sources and taps stand.

    Attributes:
        place: Of every quantity of a source, -1 where it has no such phase. [quantity, source, phase]
        tap: Of the windings' taps. [winding]
        every: All of them, ascending. [head row]
    """

    place: Int64[Ints, "quantity source phase=3"]
    tap: Int64[Ints, " winding"]
    every: Int64[Ints, " head_row"]

    @staticmethod
    def of(features: GridFeatures, layout: Layout) -> HeadPlaces:
        scales, phase = features.scales, np.arange(len(PHASES))
        place = []
        for key in _QUANTITIES.values():
            row = scales.source_bus if key == "bus.voltage_v" else np.arange(len(scales.source_bus))
            place.append(layout.part(key).start + row[:, None] * CHANNELS[key].slots + phase)
        at = np.stack(place)
        at[_VOLTAGE] = np.where(scales.source_phase, at[_VOLTAGE], -1)
        part = layout.part(_TAP_PU)
        tap = np.arange(part.start, part.stop)
        return HeadPlaces(at, tap, np.unique(np.concatenate([at[at >= 0], tap])))

    def rows(self) -> Int64[Ints, "quantity source phase=3"]:
        """Rows of the sources' readings among all, -1 where there is none. [quantity, source, phase]"""
        return np.where(self.place >= 0, np.searchsorted(self.every, self.place), -1)

    def ways(self, options: WindowOptions) -> list[Route]:
        """Readings of sources as inputs of the substations."""
        found = []
        for name, place in zip(list(_QUANTITIES)[:_OF_HEAD], self.place, strict=False):
            source, phase = np.nonzero(place >= 0)
            column = columns_of(options, Store.SUBSTATION, name, source, phase)
            found.append(Route(place[source, phase], Store.SUBSTATION, column))
        return found


@dataclass(frozen=True)
class FeederHead:
    """Makes the inputs of networks.

    Attributes:
        features: Of the grid.
        row: Rows of the sources' readings, -1 where there is none. [quantity, source, phase]
        first_tap: Row of the first tap; the others follow, and nothing else.
        scale: What a source's readings are divided by. [quantity, source]
        column: Columns of the network: of the head's quantities and taps in turn, then of every family's share and age.
        width: Number of columns of the network.
        current: Columns of the feeder head's current; None without extended measurements.
        possible: Readings that could exist in an hour. [family]
        summary_constants: Middle and spread of the summary's columns. [2, column]
    """

    features: GridFeatures
    row: Int64[Ints, "quantity source phase=3"]
    first_tap: int
    scale: Float64[Floats, "quantity source"]
    column: Int64[Ints, " column"]
    width: int
    current: Int64[Ints, " phase"] | None
    possible: Floats
    summary_constants: Floats

    @staticmethod
    def of(features: GridFeatures, places: HeadPlaces) -> FeederHead:
        options, scales = features.options, features.scales
        columns, zero, phase = temporal_columns(options)[Store.GRID], np.zeros(3, np.int64), np.arange(3)
        order = names(columns)
        own = [columns_of(options, Store.GRID, name, zero, phase) for name in (*list(_QUANTITIES)[:_OF_HEAD], "tap")]
        cadence = [order.index(f"{what}_{family}") for what in ("present", "age_h") for family in FAMILIES]
        scale = np.ones((len(_QUANTITIES), len(scales.source_bus)))
        scale[_VOLTAGE] = scales.source_v
        n_taps = len(places.tap)
        if not np.array_equal(places.every[len(places.every) - n_taps :], places.tap):
            raise ValueError("taps must stand last in the layout")
        return FeederHead(
            features,
            places.rows(),
            len(places.every) - n_taps,
            scale,
            np.concatenate([*own, cadence]),
            len(columns),
            columns_of(options, Store.POWER_FLOW, "current_a", zero, phase) if options.extended else None,
            np.maximum([scales.possible[family] for family in FAMILIES], 1).astype(np.float64),
            features.normalisation.of_static(Store.SUMMARY, static_columns(options)[Store.SUMMARY]),
        )

    def observe(self, routed: Routed) -> tuple[dict[Store, Entries], Floats32]:
        """Entries of network and feeder-head current, and the window's summary [column].

        Args:
            routed: Readings; to the counts of other families the head's are added.
        """
        n, n_phases = len(self.column), len(PHASES)
        value, there = np.empty((n, HOURS)), np.empty((n, HOURS), dtype=bool)
        current, current_there = np.empty((n_phases, HOURS)), np.empty((n_phases, HOURS), dtype=bool)
        summary = np.empty(self.summary_constants.shape[1])
        kernel.observe(
            routed.head, routed.head_seen, self.row, self.scale, self.first_tap, routed.record, self.possible, _HEAD,
            value, there, current, current_there, summary,
        )  # fmt: skip
        entries = {Store.GRID: _entries(value, there, self.column, self.width)}
        if self.current is not None:
            entries[Store.POWER_FLOW] = _entries(current, current_there, self.current, n_phases)
        return entries, normalised(summary, self.summary_constants, self.features.normalisation.core)


def _entries(value: Floats, there: Flags, column: Ints, width: int) -> Entries:
    """Entries of the only entity of a store, from columns [column, hour]."""
    place, reported = np.empty(value.size, np.int32), np.empty(value.size, np.float32)
    n = kernel.listed(value, there, column, width, place, reported)
    return Entries(place[:n], reported[:n])
