"""What a window knows of its network as a whole: feeder head, taps, cadence of readings, hour by hour and altogether.

With several sources the network's feeder head is the mean over those that reported.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from jaxtyping import Bool, Float64

from mycelium.schema import HOURS
from mycelium.sense.readings import Readings
from mycelium.window.columns import (
    BASE_POWER_KW,
    FAMILIES,
    STATISTICS,
    Store,
    names,
    static_columns,
    temporal_columns,
)
from mycelium.window.entries import Cadence, Entries, Target, places
from mycelium.window.entries_kernel import ACTIVE, AGE, COUNT
from mycelium.window.normalise import normalised
from mycelium.window.static import GridFeatures

Floats = npt.NDArray[np.float64]
Floats32 = npt.NDArray[np.float32]
Flags = npt.NDArray[np.bool_]

_ACTIVE_KW, _REACTIVE_KVAR = "substation.active_power_kw", "substation.reactive_power_kvar"
_CURRENT_A, _TAP_PU = "substation.current_a", "winding.tap_pu"
_QUANTITIES = ("voltage_v", "active_kw", "reactive_kvar")
_HEAD = FAMILIES.index("head")
_SMALLEST_STEP = 1e-4  # per unit; a tap step is 0.006 or so, a readback in float32 is exact to 1e-7


@dataclass(frozen=True)
class FeederHead:
    """Makes the inputs of substations and networks.

    Attributes:
        features: Of the grid.
        substation: Columns of each quantity; none if the option is off.
        network: Likewise of the network's store.
        current: Columns of the feeder head's current; none without extended measurements.
        cadence_place: Place in [hour, column] of each family's share and age. [what, family, hour]
        possible: Readings that could exist in an hour. [family]
        summary_constants: Middle and spread of the summary's columns. [2, column]
    """

    features: GridFeatures
    substation: Mapping[str, Target]
    network: Mapping[str, Target]
    current: Target | None
    cadence_place: npt.NDArray[np.int32]
    possible: Floats
    summary_constants: Floats

    @staticmethod
    def of(features: GridFeatures) -> FeederHead:
        options = features.options
        columns = temporal_columns(options)[Store.GRID]
        order = names(columns)
        cadence = np.array([[order.index(f"{what}_{family}") for family in FAMILIES] for what in ("present", "age_h")])
        own = _QUANTITIES if options.feeder_head else ()
        summary = static_columns(options)[Store.SUMMARY]
        return FeederHead(
            features,
            {name: Target.of(options, Store.SUBSTATION, name) for name in own},
            {name: Target.of(options, Store.GRID, name) for name in (*_QUANTITIES, "tap")},
            Target.of(options, Store.POWER_FLOW, "current_a") if options.extended else None,
            (cadence[:, :, None] + np.arange(HOURS) * len(columns)).astype(np.int32),
            np.maximum([features.scales.possible[family] for family in FAMILIES], 1).astype(np.float64),
            features.normalisation.of_static(Store.SUMMARY, summary),
        )

    def observe(self, readings: Readings, cadence: Cadence) -> tuple[dict[Store, Entries], Floats32]:
        """Entries of substation, network and feeder-head current, and the window's summary [column].

        Args:
            readings: What was reported.
            cadence: Counts of all families but the head's, which is added.
        """
        scales = self.features.scales
        voltage = readings.value["bus.voltage_v"].take(scales.source_bus, axis=1)[:, :, :3]
        voltage_seen = readings.seen["bus.voltage_v"].take(scales.source_bus, axis=1)[:, :, :3] & scales.source_phase
        head = {
            "voltage_v": (voltage_seen, voltage),
            "active_kw": (readings.seen[_ACTIVE_KW], readings.value[_ACTIVE_KW]),
            "reactive_kvar": (readings.seen[_REACTIVE_KVAR], readings.value[_REACTIVE_KVAR]),
        }
        for seen, _ in head.values():
            cadence.count(_HEAD, places(seen), seen[0].size)
        entries = {}
        if self.substation:
            parts = [_entries(self.substation[name], *reading) for name, reading in head.items()]
            entries[Store.SUBSTATION] = Entries.join(parts)
        head["voltage_v"] = (voltage_seen, voltage / scales.source_v[:, None])
        means = {name: _mean_over_sources(*reading) for name, reading in head.items()}
        taps = _Taps.of(readings)
        parts = [_entries(self.network[name], *reading) for name, reading in (means | {"tap": taps.hourly()}).items()]
        entries[Store.GRID] = Entries.join([*parts, self._cadence(cadence)])
        if self.current is not None:
            current = readings.seen[_CURRENT_A], readings.value[_CURRENT_A]
            entries[Store.POWER_FLOW] = _entries(self.current, *_mean_over_sources(*current))
        return entries, self._summary(means, taps, cadence)

    def _cadence(self, cadence: Cadence) -> Entries:
        """Share of readings present and hours since the last, for every family and hour."""
        count, age, active = (cadence.record[:, part] for part in (COUNT, AGE, ACTIVE))
        value = np.stack([np.minimum(count / self.possible[:, None], 1.0), age / np.maximum(active, 1)])
        there = np.stack([np.ones(active.shape, dtype=bool), active > 0])
        return Entries(self.cadence_place[there], value[there].astype(np.float32))

    def _summary(self, means: Mapping[str, tuple[Flags, Floats32]], taps: _Taps, cadence: Cadence) -> Floats32:
        """Statistics of the whole window, normalised. [column]"""
        seen, per_unit = means["voltage_v"]
        head = [_statistics(seen, per_unit - np.float32(1.0))]
        for name in ("active_kw", "reactive_kvar"):
            seen, power = means[name]
            head.append(_statistics(seen, np.arcsinh(power / np.float32(BASE_POWER_KW))))
        present = cadence.record[:, COUNT].sum(axis=1) / (self.possible * HOURS)
        values = np.concatenate([*head, taps.summary(), np.minimum(present, 1.0)])
        return normalised(values, self.summary_constants, self.features.normalisation.core)


def _entries(target: Target, seen: Flags, value: Floats32) -> Entries:
    return target.entries(places(seen), np.ascontiguousarray(value, np.float32), seen.shape[2])


def _mean_over_sources(seen: Flags, value: Floats32) -> tuple[Flags, Floats32]:
    """Mean of what was reported, from [hour, source, phase]. [hour, 1, phase]"""
    if seen.shape[1] == 1:
        return seen, value
    count = seen.sum(axis=1, keepdims=True)
    total = np.where(seen, value, 0.0).sum(axis=1, keepdims=True, dtype=np.float64)
    return count > 0, (total / np.maximum(count, 1)).astype(np.float32)


def _statistics(seen: Flags, value: npt.NDArray[np.floating]) -> Floats:
    """Mean, deviation, lowest, highest, and the last hour's mean minus the whole mean; zeros without readings."""
    values = value[seen].astype(np.float64)
    if not len(values):
        return np.zeros(len(STATISTICS))
    mean = values.sum() / len(values)
    deviation = np.sqrt(np.square(values - mean).sum() / len(values))
    last = value[-1][seen[-1]]
    change = last.sum(dtype=np.float64) / len(last) - mean if len(last) else 0.0
    return np.array([mean, deviation, values.min(), values.max(), change])


@dataclass(frozen=True, slots=True)
class _Taps:
    """Taps read back, per unit; only of windings that reported at all.

    Attributes:
        seen, value: What was reported, value 1 where nothing was. [hour, winding]
    """

    seen: Bool[Flags, "hour winding"]
    value: Float64[Floats, "hour winding"]

    @staticmethod
    def of(readings: Readings) -> _Taps:
        seen = readings.seen[_TAP_PU][:, :, 0]
        rows = np.flatnonzero(seen.any(axis=0))
        seen = seen[:, rows]
        value = readings.value[_TAP_PU][:, rows, 0].astype(np.float64)
        return _Taps(seen, np.where(seen, value, 1.0))

    def _extremes(self, axis: int) -> tuple[Floats, Floats]:
        low = np.where(self.seen, self.value, np.inf).min(axis=axis, initial=np.inf)
        high = np.where(self.seen, self.value, -np.inf).max(axis=axis, initial=-np.inf)
        return np.asarray(low), np.asarray(high)

    def hourly(self) -> tuple[Flags, Floats32]:
        """Mean, lowest and highest of every hour. [hour, 1, 3]"""
        there = np.asarray(self.seen.any(axis=1))
        deviation = np.where(self.seen, self.value - 1.0, 0.0).sum(axis=1)
        mean = 1.0 + deviation / np.maximum(self.seen.sum(axis=1), 1)
        value = np.where(there, np.stack([mean, *self._extremes(axis=1)]), 1.0).T
        return np.repeat(there[:, None, None], 3, axis=2), value[:, None].astype(np.float32)

    def summary(self) -> Floats:
        """Statistics of deviations from 1, moves and range per winding, and that there is any."""
        if not self.seen.size:
            return np.zeros(len(STATISTICS) + 3)
        both = self.seen[1:] & self.seen[:-1]
        moves = np.sum(both & (np.abs(np.diff(self.value, axis=0)) > _SMALLEST_STEP))
        low, high = self._extremes(axis=0)
        extra = [moves / self.seen.shape[1], float((high - low).mean()), 1.0]
        return np.concatenate([_statistics(self.seen, self.value - 1.0), extra])
