"""Inputs from Readings: what was reported, at its place, and nothing where nothing was.

Entries hold values as reported; ``psi`` says how they are transformed. A transformer terminal's voltage and angle are
its bus's readings on the phases it is on. An angle where no nominal angle is defined has no meaning and is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from jaxtyping import Float32

from mycelium.schema import CHANNELS, PHASES
from mycelium.sense.layout import Layout
from mycelium.sense.readings import Readings
from mycelium.window.columns import FAMILIES, Store, temporal_columns
from mycelium.window.entries import Entries, Route, Routes, columns_of
from mycelium.window.feeder_head import FeederHead, HeadPlaces
from mycelium.window.static import GridFeatures

Ints = npt.NDArray[np.int64]

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
_TABLES = {"bus": Store.BUS, "line": Store.LINE, "winding": Store.TERMINAL, "consumer": Store.CONSUMER,
           "substation": Store.SUBSTATION}  # fmt: skip


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
        routes: Where readings go.
        head: Feeder head and network.
    """

    routes: Routes
    head: FeederHead

    @staticmethod
    def of(features: GridFeatures) -> Observer:
        options, counts = features.options, features.counts
        layout = Layout.of_rows({table: counts[store] for table, store in _TABLES.items()})
        family = np.full(layout.count, -1)
        ways = []
        for key, store, name, of in _DIRECT + (_DIRECT_EXTENDED if options.extended else ()):
            part = layout.part(key)
            family[part] = FAMILIES.index(of)
            which = np.arange(part.stop - part.start)
            if key == _ANGLE_DEG:
                which = which[features.nominal_valid.ravel()]
            row, slot = np.divmod(which, CHANNELS[key].slots)
            ways.append(Route(part.start + which, store, columns_of(options, store, name, row, slot)))
        if options.extended:
            ways += _terminals(features, layout)
        places = HeadPlaces.of(features, layout)
        if options.feeder_head:
            ways += places.ways(options)
        stride = {store: counts[store] * len(columns) for store, columns in temporal_columns(options).items()}
        routes = Routes.of(layout, stride, ways, family, places.every)
        return Observer(routes, FeederHead.of(features, places))

    def observe(self, readings: Readings) -> Observed:
        """The inputs of one window."""
        if readings.layout != self.routes.layout:
            raise ValueError("these readings belong to a network of another size")
        routed = self.routes.follow(readings)
        head, summary = self.head.observe(routed)
        return Observed(routed.entries | head, summary)


def _terminals(features: GridFeatures, layout: Layout) -> list[Route]:
    """Voltages and angles of buses, as those of the transformer terminals that are there."""
    scales = features.scales
    on = scales.winding_phase
    with_angle = on & features.nominal_valid[scales.winding_bus]
    ways = []
    for key, name, there in ((_VOLTAGE_V, "voltage_v", on), (_ANGLE_DEG, "angle_deg", with_angle)):
        winding, phase = np.nonzero(there)
        place = layout.part(key).start + scales.winding_bus[winding] * CHANNELS[key].slots + phase
        column = columns_of(features.options, Store.TERMINAL, name, winding, phase)
        ways.append(Route(place, Store.TERMINAL, column))
    return ways


assert all(CHANNELS[key].slots >= len(PHASES) for key in (_VOLTAGE_V, _ANGLE_DEG))
