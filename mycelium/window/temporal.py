"""Inputs from Readings: what was reported, at its place, and nothing where nothing was.

Entries hold values as reported; ``psi`` says how they are transformed. A transformer terminal's voltage and angle are
its bus's readings on the phases it is on. An angle where no nominal angle is defined has no meaning and is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from jaxtyping import Bool, Float32

from mycelium.sense.readings import Readings
from mycelium.window.columns import FAMILIES, Store, temporal_columns
from mycelium.window.entries import Cadence, Entries, Target, places
from mycelium.window.feeder_head import FeederHead
from mycelium.window.static import GridFeatures

Flags = npt.NDArray[np.bool_]

_VOLTAGE_V, _ANGLE_DEG = "bus.voltage_v", "bus.angle_deg"
# Channels whose rows are a store's entities: name, store, quantity there, family.
_DIRECT = (
    (_VOLTAGE_V, Store.BUS, "voltage_v", "bus_voltage"),
    (_ANGLE_DEG, Store.BUS, "angle_deg", "bus_voltage"),
    ("bus.active_power_kw", Store.BUS, "active_kw", "bus_power"),
    ("bus.reactive_power_kvar", Store.BUS, "reactive_kvar", "bus_power"),
    ("consumer.voltage_v", Store.CONSUMER, "voltage_v", "consumer_voltage"),
    ("consumer.active_power_kw", Store.CONSUMER, "active_kw", "consumer_power"),
    ("consumer.reactive_power_kvar", Store.CONSUMER, "reactive_kvar", "consumer_power"),
    ("line.current_a", Store.LINE, "current_a", "current"),
)
_DIRECT_EXTENDED = (
    ("line.active_power_kw", Store.LINE, "active_kw", "flow"),
    ("line.reactive_power_kvar", Store.LINE, "reactive_kvar", "flow"),
    ("winding.current_a", Store.TERMINAL, "current_a", "current"),
    ("winding.active_power_kw", Store.TERMINAL, "active_kw", "flow"),
    ("winding.reactive_power_kvar", Store.TERMINAL, "reactive_kvar", "flow"),
)


@dataclass(frozen=True, slots=True)
class Observed:
    """All inputs of a window that come from Readings.

    Attributes:
        entries: By store of ``columns.temporal_columns``.
        summary: Of the whole window, normalised. [column]
    """

    entries: Mapping[Store, Entries]
    summary: Float32[npt.NDArray[np.float32], " column"]


@dataclass(frozen=True)
class Observer:
    """Turns readings of one network variant into inputs.

    Attributes:
        features: Of the grid.
        direct: Channels whose rows are a store's entities: name, store, columns, place of the family.
        terminal: Columns of voltage and angle at transformer terminals, by channel; none without extended measurements.
        no_angle: Places of [bus, phase], flat, without a nominal angle. [bus * phase]
        terminal_angle: Phases of terminals with a nominal angle. [winding, phase]
        head: Feeder head and network.
    """

    features: GridFeatures
    direct: tuple[tuple[str, Store, Target, int], ...]
    terminal: Mapping[str, Target]
    no_angle: Bool[Flags, " place"]
    terminal_angle: Bool[Flags, "winding phase=3"]
    head: FeederHead

    @staticmethod
    def of(features: GridFeatures) -> Observer:
        options, scales = features.options, features.scales
        direct = _DIRECT + (_DIRECT_EXTENDED if options.extended else ())
        terminal = {_VOLTAGE_V: "voltage_v", _ANGLE_DEG: "angle_deg"} if options.extended else {}
        return Observer(
            features,
            tuple((key, store, Target.of(options, store, name), FAMILIES.index(f)) for key, store, name, f in direct),
            {key: Target.of(options, Store.TERMINAL, name) for key, name in terminal.items()},
            ~features.nominal_valid.reshape(-1),
            scales.winding_phase & features.nominal_valid[scales.winding_bus],
            FeederHead.of(features),
        )

    def observe(self, readings: Readings) -> Observed:
        """The inputs of one window."""
        parts: dict[Store, list[Entries]] = {store: [] for store in temporal_columns(self.features.options)}
        cadence = Cadence.start()
        for key, store, target, family in self.direct:
            seen = readings.seen[key]
            at = places(seen)
            cadence.count(family, at, seen.shape[1] * seen.shape[2])
            if key == _ANGLE_DEG and len(at) and self.no_angle.any():
                at = at[~self.no_angle[at % len(self.no_angle)]]
            if len(at):
                parts[store].append(target.entries(at, readings.value[key], seen.shape[2]))
        scales = self.features.scales
        for key, target in self.terminal.items():
            phases = self.terminal_angle if key == _ANGLE_DEG else scales.winding_phase
            at = places(readings.seen[key].take(scales.winding_bus, axis=1)[:, :, :3] & phases)
            if len(at):
                value = np.ascontiguousarray(readings.value[key].take(scales.winding_bus, axis=1)[:, :, :3])
                parts[Store.TERMINAL].append(target.entries(at, value, 3))
        head, summary = self.head.observe(readings, cadence)
        return Observed({store: head.get(store) or Entries.join(part) for store, part in parts.items()}, summary)
