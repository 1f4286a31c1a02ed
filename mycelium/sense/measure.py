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
from mycelium.schema import CHANNELS, HOURS, OWN
from mycelium.sense import measure_kernel as kernel
from mycelium.sense.layout import Layout
from mycelium.sense.measure_branches import LineMeters, WindingMeters
from mycelium.sense.measure_customers import CustomerMeters
from mycelium.sense.measure_nodes import slots_of
from mycelium.sense.noise import Disturber
from mycelium.sense.placement import Placement
from mycelium.simulate.day import Day

Complex = npt.NDArray[np.complex128]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

DEAD_PU = 1e-3  # below this an instrument finds no phase: the solver's last digits must not look like an angle
DEMAND = ("bus.active_power_kw", "bus.reactive_power_kvar")  # sums of what customers' meters report
SHOWN = tuple(key for key in CHANNELS if key not in DEMAND)  # what an instrument of its own shows


@dataclass(frozen=True)
class Measured:
    """What instruments would show without errors.

    Attributes:
        values: Of the channels in ``SHOWN``, one after the other, each in the order of ``Meters.places``. [entry, hour]
        share: Active and reactive power, kW and kvar, of metered customers conductor by conductor, which demand of
            buses sums up. [2, share, hour]
    """

    values: Float64[Floats, "entry hour=24"]
    share: Float64[Floats, "2 share hour=24"]


@dataclass(frozen=True)
class Meters:
    """All instruments of a placement on one (variant of a) grid.

    Attributes:
        grid: The records.
        placement: Which elements carry sensors.
        layout: Of all places a reading of the grid may have.
        places: Where the readings of each channel go: row of its table times its slots, plus the slot. [entry]
        part: Entries of each channel among all: those of ``SHOWN``, then the demand of buses.
        order: All entries by their place in the layout. [entry]
        place: That place, in the same order. [entry]
        disturber: Draws what the readings suffer.
        used: Nodes whose voltages are read. [used]
        bus_node: Nodes with a voltage reading. [bus entry]
        phasor: Those entries that have an angle reading too. [angle entry]
        dead_v: Magnitude below which there is no angle to read, V. [angle entry]
        lines, windings, customers: Instruments there.
        head_item: Terminal conductors of sources that are metered. [head entry]
        head_node: Their nodes. [head entry]
    """

    grid: Grid
    placement: Placement
    layout: Layout
    places: Mapping[str, Ints]
    part: Mapping[str, slice]
    order: Int64[Ints, " entry"]
    place: Int64[Ints, " entry"]
    disturber: Disturber
    used: Int64[Ints, " used"]
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
        head_node = wiring.find(t.bus[head_item], t.conductor[head_item])
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
        layout = Layout.of(grid)
        part, every = _numbered(layout, places)
        order = np.argsort(every, kind="stable")
        nodes = (bus_node, lines.nodes, windings.nodes, customers.nodes, head_node)
        return Meters(
            grid=grid,
            placement=placement,
            layout=layout,
            places=places,
            part=part,
            order=order,
            place=every[order],
            disturber=Disturber.of(placement.policy.noise, {key: len(places[key]) for key in SHOWN}),
            used=np.unique(np.concatenate(nodes)),
            bus_node=bus_node,
            phasor=phasor,
            dead_v=DEAD_PU * 1e3 * grid.bus["base_kv"].to_numpy()[wiring.bus[angle_node]],
            lines=lines,
            windings=windings,
            customers=customers,
            head_item=head_item,
            head_node=head_node,
        )

    def read(self, day: Day) -> Measured:
        """What all instruments would show on a day of this grid."""
        if day.v.shape != (HOURS, self.grid.wiring.n_nodes):
            raise ValueError(
                f"the day has voltages {day.v.shape}, '{self.grid.name}' needs ({HOURS}, {self.grid.wiring.n_nodes}): "
                f"it belongs to another network or variant"
            )
        customers, v = self.customers, kernel.by_node(day.v, self.used)
        values = np.empty((self.part[SHOWN[-1]].stop, HOURS))
        out = {key: values[self.part[key]] for key in SHOWN}
        kernel.magnitudes(v, self.bus_node, out["bus.voltage_v"])
        self._angles(v, out["bus.voltage_v"], out["bus.angle_deg"])
        self.lines.read(day, v, values[self._block("line")])
        self.windings.read(day, v, values[self._block("winding")])
        share = customers.shares(day, v)
        customers.voltage(day, v, out["consumer.voltage_v"])
        every = np.arange(len(customers.row))
        kernel.sums(share[0], customers.pointer, every, out["consumer.active_power_kw"])
        kernel.sums(share[1], customers.pointer, customers.reactive, out["consumer.reactive_power_kvar"])
        # A Day has currents into the sources; what a source sends goes the other way.
        kernel.source_flows(v, day.source_current, self.head_item, self.head_node, values[self._block("substation")])
        out["winding.tap_pu"][:] = day.tap_pu.T
        return Measured(values, share)

    def _angles(self, v: Complex, volts: Floats, out: Floats) -> None:
        """Voltage angles, degrees; 0 where the conductor is dead. [angle entry, hour] from [node, hour]"""
        phasor = v[self.bus_node[self.phasor]]
        np.arctan2(phasor.imag.copy(), phasor.real.copy(), out=out)  # copies: side by side, it is faster
        np.rad2deg(out, out=out)
        out[volts[self.phasor] < self.dead_v[:, None]] = 0.0

    def _block(self, table: str) -> slice:
        """Entries of a table's current, active and reactive power, which follow one another."""
        return slice(self.part[f"{table}.current_a"].start, self.part[f"{table}.reactive_power_kvar"].stop)


def _numbered(layout: Layout, places: Mapping[str, Ints]) -> tuple[dict[str, slice], Ints]:
    """Entries of every channel among all entries, and the place of each in the layout. [entry]"""
    part, every, first = {}, [], 0
    for key in (*SHOWN, *DEMAND):
        part[key] = slice(first, first + len(places[key]))
        first = part[key].stop
        every.append(layout.part(key).start + places[key])
    return part, np.concatenate(every)
