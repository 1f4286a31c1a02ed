"""Measuring: from the truth of a day to what every placed instrument would show, without errors.

All of it follows from node voltages (and the currents of customers and sources that a Day holds), in float64; only
what is reported is cast. ``Meters`` is prepared once per grid variant and placement. Where a reading goes (element and
slot) is a function of these two alone; a day decides values, never places.

A hidden bus, and a line with a hidden conductor, is read in slot OWN and nowhere else: a scalar, never an angle.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from jaxtyping import Float64, Int64

from mycelium.grid.grid import Grid
from mycelium.schema import CHANNELS, HOURS, OWN, Quantity
from mycelium.sense import measure_kernel as kernel
from mycelium.sense.measure_branches import LineMeters, WindingMeters
from mycelium.sense.measure_customers import CustomerMeters
from mycelium.sense.measure_nodes import slots_of
from mycelium.sense.placement import Placement
from mycelium.simulate.day import Day

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

DEAD_PU = 1e-3  # below this an instrument finds no phase: the solver's last digits must not look like an angle


@dataclass(frozen=True)
class Measured:
    """What instruments would show without errors.

    Attributes:
        values: Per channel but the demand of buses, in the order of ``Meters.places``. [hour, entry]
        share_kw, share_kvar: Power of metered customers conductor by conductor, which demand of buses sums up.
            [hour, share]
    """

    values: Mapping[str, Floats]
    share_kw: Float64[Floats, "hour=24 share"]
    share_kvar: Float64[Floats, "hour=24 share"]


@dataclass(frozen=True)
class Meters:
    """All instruments of a placement on one (variant of a) grid.

    Attributes:
        grid: The records.
        placement: Which elements carry sensors.
        places: Where the readings of each channel go: row of its table times its slots, plus the slot. [entry]
        bus_node: Nodes with a voltage reading. [entry]
        phasor: Those entries that have an angle reading too. [angle entry]
        dead_v: Magnitude below which there is no angle to read, V. [angle entry]
        lines, windings, customers: Instruments there.
        head_item: Terminal conductors of sources that are metered. [entry]
        head_node: Their nodes. [entry]
    """

    grid: Grid
    placement: Placement
    places: Mapping[str, Ints]
    bus_node: Int64[Ints, " bus_entry"]
    phasor: Int64[Ints, " angle_entry"]
    dead_v: Float64[Floats, " angle_entry"]
    lines: LineMeters
    windings: WindingMeters
    customers: CustomerMeters
    head_item: Int64[Ints, " head_entry"]
    head_node: Int64[Ints, " head_entry"]

    @staticmethod
    def of(grid: Grid, placement: Placement) -> Meters:
        """Prepare all instruments.

        Args:
            grid: Records of the days to be measured, published or a variant.
            placement: Which elements carry sensors; its policy says what readings suffer.
        """
        sensors, wiring = placement.on(grid), grid.wiring
        slot = slots_of(wiring.conductor)
        bus_node = np.flatnonzero(sensors.bus[wiring.bus] & (slot >= 0))
        phasor = np.flatnonzero(slot[bus_node] != OWN)
        angle_node = bus_node[phasor]
        lines, windings = LineMeters.of(grid, sensors.line), WindingMeters.of(grid, sensors.winding)
        customers = CustomerMeters.of(grid, sensors.consumer, sensors.reactive)
        active, reactive = customers.active_demand, customers.reactive_demand
        t = wiring.terminals["substation"]
        head_item = np.flatnonzero((t.terminal == 0) & (slots_of(t.conductor) >= 0))
        scalar = np.zeros(max(len(customers.row), len(grid.regulated)), dtype=np.int64)
        at = {  # rows and slots of every kind of instrument
            "bus.voltage_v": (wiring.bus[bus_node], slot[bus_node]),
            "bus.angle_deg": (wiring.bus[angle_node], slot[angle_node]),
            "bus.active_power_kw": (active.row, active.slot),
            "bus.reactive_power_kvar": (reactive.row, reactive.slot),
            "line": (lines.row, lines.slot),
            "winding": (windings.row, windings.slot),
            "consumer": (customers.row, scalar[: len(customers.row)]),
            "consumer.reactive_power_kvar": (customers.row[customers.reactive], scalar[: len(customers.reactive)]),
            "substation": (t.row[head_item], slots_of(t.conductor[head_item])),
            "winding.tap_pu": (grid.regulated, scalar[: len(grid.regulated)]),
        }
        places = {}
        for key, channel in CHANNELS.items():
            row, slots = at[key] if key in at else at[channel.table]
            places[key] = row * channel.slots + slots
        return Meters(
            grid=grid,
            placement=placement,
            places=places,
            bus_node=bus_node,
            phasor=phasor,
            dead_v=DEAD_PU * 1e3 * grid.bus["base_kv"].to_numpy()[wiring.bus[angle_node]],
            lines=lines,
            windings=windings,
            customers=customers,
            head_item=head_item,
            head_node=wiring.find(t.bus[head_item], t.conductor[head_item]),
        )

    def read(self, day: Day) -> Measured:
        """What all instruments would show on a day of this grid."""
        if day.v.shape != (HOURS, self.grid.wiring.n_nodes):
            raise ValueError(
                f"the day has voltages {day.v.shape}, '{self.grid.name}' needs ({HOURS}, {self.grid.wiring.n_nodes}): "
                f"it belongs to another network or variant"
            )
        customers = self.customers
        share_kw, share_kvar = customers.shares(day)
        volts = kernel.magnitudes(day.v, self.bus_node)
        values = {
            "bus.voltage_v": volts,
            "bus.angle_deg": self._angles(day, volts),
            "consumer.voltage_v": customers.voltage(day),
            "consumer.active_power_kw": customers.power(share_kw),
            "consumer.reactive_power_kvar": customers.power(share_kvar)[:, customers.reactive],
            "winding.tap_pu": day.tap_pu,
        }
        for table, flows in (
            ("line", self.lines.read(day)),
            ("winding", self.windings.read(day)),
            ("substation", self._heads(day)),
        ):
            for quantity, measured in zip((Quantity.CURRENT, Quantity.ACTIVE, Quantity.REACTIVE), flows, strict=True):
                values[f"{table}.{quantity.value}"] = measured
        return Measured(values, share_kw, share_kvar)

    def _angles(self, day: Day, volts: Floats) -> Floats:
        """Voltage angles, degrees; 0 where the conductor is dead. [hour, angle entry]"""
        v = day.v[:, self.bus_node[self.phasor]]
        return np.where(volts[:, self.phasor] < self.dead_v, 0.0, np.rad2deg(np.arctan2(v.imag, v.real)))

    def _heads(self, day: Day) -> Float64[Floats, "3 hour head_entry"]:
        """Current magnitudes at sources, A, and powers from them into the network, kW and kvar. [3, hour, entry]"""
        # A Day has currents into the sources; what a source sends goes the other way.
        current = np.ascontiguousarray(day.source_current[:, self.head_item])
        return kernel.flows(day.v, self.head_node, current, -1.0)
