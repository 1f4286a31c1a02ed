"""Inputs from Readings: what was reported, transformed and normalised, and nothing where nothing was.

A window has few readings and many places for them. So what is made here are *entries*, place and value; ``batch`` puts
them into arrays [hour, entity, column], on the device where the model runs.

Voltages go in on their base, minus 1; angles as residual to the nominal angle, radians (a reading where none is defined
is left out); currents on the rating and powers on 1 kW, both through asinh. A transformer terminal's voltage and angle
are its bus's readings on the phases it is on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from jaxtyping import Float32

from mycelium.sense.readings import Readings
from mycelium.window.columns import BASE_POWER_KW, FAMILIES, Store, static_columns, temporal_columns
from mycelium.window.feeder_head import FeederHead
from mycelium.window.inputs import NO_ANGLES, Cadence, Entries, Input, places
from mycelium.window.normalise import Fit
from mycelium.window.static import GridFeatures

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Observed:
    """All inputs of a window that come from Readings.

    Attributes:
        entries: By store of ``columns.temporal_columns``.
        summary: Of the whole window, normalised. [column]
    """

    entries: Mapping[Store, Entries]
    summary: Float32[npt.NDArray[np.float32], " column"]


@dataclass(frozen=True, slots=True)
class _Channel:
    """A channel whose rows are a store's entities.

    Attributes:
        key: Name in ``schema.CHANNELS``.
        store: Where its readings go.
        family: What they count as: place in ``columns.FAMILIES``.
        target: Columns and transformation.
    """

    key: str
    store: Store
    family: int
    target: Input


@dataclass(frozen=True)
class Observer:
    """Turns readings of one network variant into inputs.

    Attributes:
        features: Of the grid.
        channels: What goes straight into its columns.
        terminal: Voltage and angle of transformer terminals, by channel; none without extended measurements.
        head: Feeder head and network.
    """

    features: GridFeatures
    channels: tuple[_Channel, ...]
    terminal: Mapping[str, Input]
    head: FeederHead

    @staticmethod
    def of(features: GridFeatures) -> Observer:
        scales, extended = features.scales, features.options.extended
        winding = scales.bus_v[scales.winding_bus]
        terminal = {}
        if extended:
            angle = np.where(scales.winding_phase, scales.angle_rad[scales.winding_bus], np.nan)
            terminal["bus.voltage_v"] = Input.of(features, Store.TERMINAL, "voltage_v", winding)
            terminal["bus.angle_deg"] = Input.of(features, Store.TERMINAL, "angle_deg", winding, angle)
        return Observer(features, tuple(_channels(features)), terminal, FeederHead.of(features))

    def observe(self, readings: Readings) -> Observed:
        """The inputs of one window."""
        parts: dict[Store, list[Entries]] = {store: [] for store in temporal_columns(self.features.options)}
        cadence = Cadence.start()
        for channel in self.channels:
            seen, value = readings.seen[channel.key], readings.value[channel.key]
            at = places(seen)
            cadence.count(channel.family, at, seen.shape[1] * seen.shape[2])
            if len(at):
                parts[channel.store].append(channel.target.entries(at, value, seen.shape[2]))
        scales = self.features.scales
        for key, target in self.terminal.items():
            seen = readings.seen[key].take(scales.winding_bus, axis=1)[:, :, :3] & scales.winding_phase
            at = places(seen)
            if len(at):
                value = np.ascontiguousarray(readings.value[key].take(scales.winding_bus, axis=1)[:, :, :3])
                parts[Store.TERMINAL].append(target.entries(at, value, 3))
        head, summary = self.head.observe(readings, cadence)
        return Observed({store: head.get(store) or Entries.join(part) for store, part in parts.items()}, summary)


def _channels(features: GridFeatures) -> list[_Channel]:
    scales = features.scales
    kilowatt = {
        Store.BUS: np.full(len(scales.bus_v), BASE_POWER_KW),
        Store.CONSUMER: np.full(len(scales.consumer_v), BASE_POWER_KW),
        Store.LINE: np.full(len(scales.line_a), BASE_POWER_KW),
        Store.TERMINAL: np.full(len(scales.winding_a), BASE_POWER_KW),
    }
    result = []

    def add(key: str, store: Store, name: str, family: str, base: Floats, nominal_rad: Floats = NO_ANGLES) -> None:
        result.append(_Channel(key, store, FAMILIES.index(family), Input.of(features, store, name, base, nominal_rad)))

    def add_power(table: str, store: Store, family: str) -> None:
        add(f"{table}.active_power_kw", store, "active_kw", family, kilowatt[store])
        add(f"{table}.reactive_power_kvar", store, "reactive_kvar", family, kilowatt[store])

    add("bus.voltage_v", Store.BUS, "voltage_v", "bus_voltage", scales.bus_v)
    add("bus.angle_deg", Store.BUS, "angle_deg", "bus_voltage", scales.bus_v, scales.angle_rad)
    add_power("bus", Store.BUS, "bus_power")
    add("consumer.voltage_v", Store.CONSUMER, "voltage_v", "consumer_voltage", scales.consumer_v)
    add_power("consumer", Store.CONSUMER, "consumer_power")
    add("line.current_a", Store.LINE, "current_a", "current", scales.line_a)
    if features.options.extended:
        add_power("line", Store.LINE, "flow")
        add("winding.current_a", Store.TERMINAL, "current_a", "current", scales.winding_a)
        add_power("winding", Store.TERMINAL, "flow")
    return result


def fit_temporal(fit: Fit, observer: Observer, readings: Readings) -> None:
    """Add a sample's readings to normalisation constants; the observer's features hold all columns, not normalised."""
    observed = observer.observe(readings)
    options = observer.features.options
    for store, columns in temporal_columns(options).items():
        entries = observed.entries[store]
        fit.add_temporal(store, columns, entries.place % len(columns), entries.value)
    fit.add_static(Store.SUMMARY, static_columns(options)[Store.SUMMARY], observed.summary[None])
