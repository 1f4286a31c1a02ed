"""Targets from a Day: what the model should have said. The only module of this package that sees truth.

Nothing here is an input. Which targets count is decided by masks that are not inputs either; that a target's place
exists is known from the records (``GridFeatures.nominal_valid``), that it counts is not.

*State.* A target per hour, bus and phase that exists and has a nominal angle. A hidden bus has its target in its true
phase's slot, and nowhere else. Neutrals have none. A de-energised node stays in: its magnitude is what the solver gives
(0 V), it is flagged as not live, and its angle, which means nothing, is not scored.

*Switches.* Every line that can be operated. Those with both ends de-energised are flagged; evaluation leaves them out.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from jaxtyping import Bool, Complex64, Complex128, Int8, Int32, Int64

from mycelium.grid.grid import Grid
from mycelium.schema import HIDDEN, FaultPlace, FaultType
from mycelium.simulate.day import Day
from mycelium.window.static import GridFeatures
from mycelium.window.targets_kernel import turned

Complex64s = npt.NDArray[np.complex64]
Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.int8]
Flags = npt.NDArray[np.bool_]

FAULT_CLASSES = ("normal", *(kind.value for kind in FaultType))
CANDIDATES = (FaultPlace.BUS, FaultPlace.LINE, FaultPlace.TRANSFORMER)
NONE = -1
_SLOTS = 4  # three phases, and a last one for what has none


@dataclass(frozen=True, slots=True)
class CaseTargets:
    """Truth of one case, in the order of its grid's rows.

    Attributes:
        state: Voltage on the bus's base, turned back by the nominal angle, of nodes that are targets. [hour, node]
        place: Place of each in [bus, phase], flat. [node]
        live: Whether it is energised. [node]
        phase: Phase slot of every customer in question, else -1. [consumer]
        switch: 1 open, 0 closed, -1 no switch. [line]
        dead_switch: Switches with both ends de-energised. [line]
        tie: Ties that a record variant added; they are scored separately. [line]
        fault_class: Place in ``FAULT_CLASSES``.
        fault_place: Place in ``CANDIDATES``, -1 without a fault.
        fault_row: Row of the faulted bus, line or transformer, -1 without a fault.
    """

    state: Complex64[Complex64s, "hour node"]
    place: Int32[npt.NDArray[np.int32], " node"]
    live: Bool[Flags, " node"]
    phase: Int8[Bytes, " consumer"]
    switch: Int8[Bytes, " line"]
    dead_switch: Bool[Flags, " line"]
    tie: Bool[Flags, " line"]
    fault_class: int
    fault_place: int
    fault_row: int


@dataclass(frozen=True)
class TargetLayout:
    """Where truth goes on one network variant.

    Attributes:
        at: Place of every node in [node, slot], flat; a node without a phase on record is in a last slot. [node]
        counts: Whether the voltage of a node in a slot is a target. [node * slot]
        factor: Turns and scales it there. [node * slot]
        place: Its place in [bus, phase], flat. [node * slot]
        bus: Bus of every node. [node]
        hidden_node, hidden_group: Own conductors of hidden buses, and the group that has their phase. [hidden bus]
        consumer, consumer_group: Customers in question, and their hidden-phase group. [in question]
        n_consumers: Number of customers.
        line_ends: Buses of every line. [end, line]
        switches: Rows of lines that can be operated. [switch]
        tie: Ties that a record variant added. [line]
    """

    at: Int64[Ints, " node"]
    counts: Bool[Flags, " place"]
    factor: Complex128[npt.NDArray[np.complex128], " place"]
    place: Int32[npt.NDArray[np.int32], " place"]
    bus: Int64[Ints, " node"]
    hidden_node: Int64[Ints, " hidden"]
    hidden_group: Int64[Ints, " hidden"]
    consumer: Int64[Ints, " in_question"]
    consumer_group: Int64[Ints, " in_question"]
    n_consumers: int
    line_ends: Int64[Ints, "ends=2 line"]
    switches: Int64[Ints, " switch"]
    tie: Bool[Flags, " line"]

    @staticmethod
    def of(grid: Grid, features: GridFeatures) -> TargetLayout:
        """The layout on a grid, with the nominal angles of its features."""
        wiring = grid.wiring
        phase = (wiring.conductor >= 1) & (wiring.conductor <= 3)
        turn = np.exp(-1j * features.nominal_rad.astype(np.float64)) / (1e3 * grid.bus["base_kv"].to_numpy())[:, None]
        no_slot = ((0, 0), (0, 1))
        hidden_node = np.flatnonzero(wiring.conductor == HIDDEN)
        consumer, line = grid.consumer, grid.line
        in_question = np.flatnonzero(consumer["eligible"])
        return TargetLayout(
            at=np.arange(len(phase)) * _SLOTS + np.where(phase, wiring.conductor - 1, _SLOTS - 1),
            counts=np.pad(features.nominal_valid, no_slot)[wiring.bus].ravel(),
            factor=np.pad(turn, no_slot)[wiring.bus].ravel(),
            place=(wiring.bus[:, None] * 3 + np.arange(_SLOTS)).astype(np.int32).ravel(),
            bus=wiring.bus,
            hidden_node=hidden_node,
            hidden_group=hidden_groups(grid)[wiring.bus[hidden_node]],
            consumer=in_question,
            consumer_group=consumer["group"].to_numpy()[in_question].astype(np.int64),
            n_consumers=len(consumer),
            line_ends=np.stack([line["bus1"].to_numpy(), line["bus2"].to_numpy()]).astype(np.int64),
            switches=grid.switches,
            tie=line["tie"].to_numpy().astype(bool),
        )

    def of_day(self, day: Day) -> CaseTargets:
        """The truth of a day of this grid."""
        at = self.at
        if len(self.hidden_node):
            at = at.copy()
            at[self.hidden_node] = self.hidden_node * _SLOTS + day.group_phase[self.hidden_group]
        node = np.flatnonzero(self.counts[at])
        at = at[node]
        phase = np.full(self.n_consumers, NONE, dtype=np.int8)
        phase[self.consumer] = day.group_phase[self.consumer_group]
        switch = np.full(len(self.tie), NONE, dtype=np.int8)
        switch[self.switches] = day.switch_open
        live = np.zeros(int(self.bus[-1]) + 1, dtype=bool)
        live[self.bus[day.energised]] = True
        fault = day.fault
        return CaseTargets(
            state=turned(day.v, node, self.factor[at]),
            place=self.place[at],
            live=day.energised[node],
            phase=phase,
            switch=switch,
            dead_switch=(switch >= 0) & ~live[self.line_ends].any(axis=0),
            tie=self.tie,
            fault_class=0 if fault is None else FAULT_CLASSES.index(fault.type.value),
            fault_place=NONE if fault is None else CANDIDATES.index(fault.place),
            fault_row=NONE if fault is None else fault.element,
        )


def hidden_groups(grid: Grid) -> Ints:
    """Hidden-phase group of every hidden bus's own conductor, -1 elsewhere. [bus]"""
    group = np.full(len(grid.bus), NONE, dtype=np.int64)
    hidden_bus = grid.wiring.hidden_bus
    for t in grid.wiring.terminals.values():
        at = (t.conductor == HIDDEN) & hidden_bus[t.bus]
        group[t.bus[at]] = t.group[at]
    return group
