"""Smart meters: voltage across a customer's terminals and its power, and what its bus's demand comes to.

A customer's power is the sum of its conductors' shares, each counted against the customer's neutral if it has one. The
demand of a bus on a phase is the sum of the shares that its customers take there. A bus has no meter of its own: its
demand is known where every customer on record there is metered, from these meters' readings, errors included.
Customers whose phase is in question are left out of it, but for those of a hidden bus, whose one conductor they share.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from jaxtyping import Float64, Int64

from mycelium.grid.grid import Grid
from mycelium.grid.wiring import ragged_ranges
from mycelium.schema import GROUND, OWN, Connection
from mycelium.sense import measure_kernel as kernel
from mycelium.sense.measure_nodes import ItemNodes, slots_of
from mycelium.simulate.day import Day

Complex = npt.NDArray[np.complex128]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

_FIRST_NEUTRAL = 4


@dataclass(frozen=True)
class BusDemand:
    """Demand of buses on single conductors, as sums of customers' shares.

    Attributes:
        row, slot: Bus and slot, ordered. [entry]
        pointer: First member of every entry, one more at the end. [entry + 1]
        share: Members: indices of shares. [member]
        meter: Entry of each member's customer among the readings of its kind of power. [member]
    """

    row: Int64[Ints, " entry"]
    slot: Int64[Ints, " entry"]
    pointer: Int64[Ints, " pointers"]
    share: Int64[Ints, " member"]
    meter: Int64[Ints, " member"]


@dataclass(frozen=True)
class CustomerMeters:
    """All smart meters.

    Attributes:
        row: Customer of every meter. [meter]
        reactive: Meters that report reactive power too. [reactive meter]
        node: Nodes of the customers' conductors that power counts on. [share]
        reference: Nodes of their neutrals, -1 for ground. [share]
        item: These conductors among all customers'. [share]
        pointer: First share of every meter, one more at the end. [meter + 1]
        branch_start, branch_end: Nodes between which the customers' voltages are. [branch]
        branch_pointer: First branch of every meter, one more at the end. [meter + 1]
        active_demand, reactive_demand: Demand of buses.
    """

    row: Int64[Ints, " meter"]
    reactive: Int64[Ints, " reactive"]
    node: ItemNodes
    reference: Int64[Ints, " share"]
    item: Int64[Ints, " share"]
    pointer: Int64[Ints, " pointers"]
    branch_start: ItemNodes
    branch_end: ItemNodes
    branch_pointer: Int64[Ints, " pointers"]
    active_demand: BusDemand
    reactive_demand: BusDemand

    @staticmethod
    def of(grid: Grid, metered: Flags, reports_reactive: Flags) -> CustomerMeters:
        """Prepare.

        Args:
            grid: The records.
            metered: Customers with a smart meter. [consumer]
            reports_reactive: Those of them that report reactive power. [consumer]
        """
        wiring, t = grid.wiring, grid.wiring.terminals["consumer"]
        row = np.flatnonzero(metered)
        neutral = t.start[1:] - 1  # of a wye; a customer between phases or to ground has none
        neutral = np.where(t.conductor[neutral] >= _FIRST_NEUTRAL, neutral, -1)
        counted = metered[t.row] & (t.conductor != GROUND) & (np.arange(len(t.row)) != neutral[t.row])
        item = np.flatnonzero(counted)
        owner = t.row[item]
        node_of = wiring.find(t.bus, t.conductor)
        start, end, branches = _branches(grid, row)
        return CustomerMeters(
            row=row,
            reactive=np.flatnonzero(reports_reactive[row]),
            node=ItemNodes.of(wiring, t, item),
            reference=np.where(neutral[owner] >= 0, node_of[neutral[owner]], -1),
            item=item,
            pointer=np.searchsorted(owner, np.append(row, len(grid.consumer))),
            branch_start=ItemNodes.of(wiring, t, start),
            branch_end=ItemNodes.of(wiring, t, end),
            branch_pointer=np.concatenate([[0], np.cumsum(branches)]).astype(np.int64),
            active_demand=_bus_demand(grid, item, metered),
            reactive_demand=_bus_demand(grid, item, reports_reactive),
        )

    @property
    def nodes(self) -> Ints:
        """Nodes whose voltages are read, on whichever phase."""
        own = (nodes.possible for nodes in (self.node, self.branch_start, self.branch_end))
        return np.concatenate([*own, self.reference[self.reference >= 0]])

    def voltage(self, day: Day, v: Complex, out: Floats) -> None:
        """Mean magnitude across each metered customer's terminals, V, from voltages [node, hour]. [meter, hour]"""
        start, end = (nodes.at(day.group_phase) for nodes in (self.branch_start, self.branch_end))
        kernel.across(v, self.branch_pointer, start, end, out)

    def shares(self, day: Day, v: Complex) -> Float64[Floats, "2 share hour"]:
        """Power of metered customers conductor by conductor, kW and kvar. [2, share, hour]; voltages [node, hour]"""
        return kernel.shares(v, self.node.at(day.group_phase), self.reference, day.consumer_current, self.item)


def _branches(grid: Grid, row: Ints) -> tuple[Ints, Ints, Ints]:
    """Conductors between which customers' branches lie, and the number of branches of each.

    Branches of a wye lie between a phase and the last conductor, those of a delta between neighbouring conductors.
    """
    start = grid.wiring.terminals["consumer"].start
    n_phases = grid.consumer["n_phases"].to_numpy().astype(np.int64)[row]
    delta = (grid.consumer["connection"] == Connection.DELTA).to_numpy()[row]
    customer, phase = ragged_ranges(n_phases)
    n_conductors = np.diff(start)[row][customer]
    other = np.where(delta[customer], (phase + 1) % n_conductors, n_conductors - 1)
    first = start[row][customer]
    return first + phase, first + other, n_phases


def _bus_demand(grid: Grid, item: Ints, reports: Flags) -> BusDemand:
    """Demand of the buses whose customers on record all report a kind of power.

    Args:
        grid: The records.
        item: Conductors of the shares. [share]
        reports: Customers that report it. [consumer]
    """
    t, hidden_bus = grid.wiring.terminals["consumer"], grid.wiring.hidden_bus
    at, slot = t.bus[item], slots_of(t.conductor[item])
    in_question = (grid.consumer["group"] >= 0).to_numpy()
    bus = grid.consumer["bus1"].to_numpy().astype(np.int64)
    complete = np.ones(len(grid.bus), dtype=bool)
    np.logical_and.at(complete, bus, reports | (in_question & ~hidden_bus[bus]))
    member = (slot >= 0) & ((slot != OWN) | hidden_bus[at]) & complete[at]
    share = np.flatnonzero(member)
    key = at[share] * (OWN + 1) + slot[share]
    order = np.argsort(key, kind="stable")
    entry, first = np.unique(key[order], return_index=True)
    share = share[order]
    meter = np.cumsum(reports)[t.row[item[share]]] - 1
    return BusDemand(entry // (OWN + 1), entry % (OWN + 1), np.append(first, len(share)).astype(np.int64), share, meter)
