"""Currents and powers at the metered terminals of lines and transformers: their rows of B, times node voltages.

Only metered rows are built, once per grid and placement. What a day changes in them is cheap: the node a hidden
conductor is tied to, lines that are open (no current at all), regulator taps, and the first section of a faulted line
at the last hour.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from jaxtyping import Complex128, Float64, Int64

from mycelium.grid import primitive
from mycelium.grid.grid import Grid
from mycelium.grid.wiring import Terminals
from mycelium.schema import GROUND, OWN, FaultPlace
from mycelium.sense import measure_kernel as kernel
from mycelium.sense.measure_nodes import ItemNodes, slots_of
from mycelium.simulate.day import Day
from mycelium.simulate.fault import Fault

Complex = npt.NDArray[np.complex128]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Blocks = Iterable[tuple[Ints, Complex]]  # first items of elements of one size, and their primitives


@dataclass(frozen=True)
class _Rows:
    """Rows of B at metered terminals; conductors of one terminal on one phase count together.

    Attributes:
        row, slot: Table row and slot of a reading, ordered. [entry]
        item: Terminal conductor that it is read at. [entry]
        pointer: First value of every entry, one more at the end. [entry + 1]
        column: Terminal conductor whose voltage a value multiplies. [value]
        y: Admittances. [value]
    """

    row: Int64[Ints, " entry"]
    slot: Int64[Ints, " entry"]
    item: Int64[Ints, " entry"]
    pointer: Int64[Ints, " pointers"]
    column: Int64[Ints, " value"]
    y: Complex128[Complex, " value"]

    @staticmethod
    def of(terminals: Terminals, metered: Flags, blocks: Blocks) -> _Rows:
        """Rows of the metered items.

        Args:
            terminals: Terminal conductors of the table.
            metered: Those with an instrument. [item]
            blocks: First item of elements of one size [element], and their primitives [element, item, item].
        """
        slot_of = slots_of(terminals.conductor)
        wanted = metered & (slot_of >= 0)
        items, columns, values = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)], [np.zeros(0, np.complex128)]
        for first, block in blocks:
            inside = first[:, None] + np.arange(block.shape[1])
            element, place = np.nonzero(wanted[inside])
            items.append(np.repeat(inside[element, place], block.shape[1]))
            columns.append(inside[element].ravel())
            values.append(block[element, place].ravel())
        item, column, y = np.concatenate(items), np.concatenate(columns), np.concatenate(values)
        real = terminals.conductor[column] != GROUND
        item, column, y = item[real], column[real], y[real]
        key = terminals.row[item] * (OWN + 1) + slot_of[item]
        order = np.argsort(key, kind="stable")
        entry, first_value = np.unique(key[order], return_index=True)
        pointer = np.append(first_value, len(order)).astype(np.int64)
        own = item[order[first_value]]
        return _Rows(entry // (OWN + 1), entry % (OWN + 1), own, pointer, column[order], y[order])


@dataclass(frozen=True)
class LineMeters:
    """Flow sensors on lines.

    Attributes:
        row, slot: Line and slot of every reading. [entry]
        grid: The records.
        rows: Rows of B with every line closed.
        node, own: Nodes of their values and of the readings' own conductors.
        switch: Place in ``Grid.switches`` of the line of every reading, -1 if it cannot be operated. [entry]
    """

    row: Int64[Ints, " entry"]
    slot: Int64[Ints, " entry"]
    grid: Grid
    rows: _Rows
    node: ItemNodes
    own: ItemNodes
    switch: Int64[Ints, " entry"]

    @staticmethod
    def of(grid: Grid, metered: Flags) -> LineMeters:
        """Prepare.

        Args:
            grid: The records.
            metered: Lines with a sensor. [line]
        """
        t = grid.wiring.terminals["line"]
        primitives = primitive.line_primitives(grid, np.flatnonzero(metered))
        blocks = ((t.start[part], block) for part, block in primitives)
        rows = _Rows.of(t, metered[t.row] & (t.terminal == 0), blocks)
        switch = np.full(len(grid.line), -1)
        switch[grid.switches] = np.arange(len(grid.switches))
        node, own = (ItemNodes.of(grid.wiring, t, items) for items in (rows.column, rows.item))
        return LineMeters(rows.row, rows.slot, grid, rows, node, own, switch[rows.row])

    @property
    def nodes(self) -> Ints:
        """Nodes whose voltages are read, on whichever phase."""
        return np.concatenate([self.node.possible, self.own.possible])

    def read(self, day: Day, v: Complex, out: Floats) -> None:
        """Current magnitudes, A, and powers into terminal 1, kW and kvar, one block after the other.

        Args:
            day: The truth.
            v: Its voltages. [node, hour]
            out: Receives them. [3 entry, hour]
        """
        node, own = self.node.at(day.group_phase), self.own.at(day.group_phase)
        kernel.flows(v, self.rows.pointer, node, self.rows.y, own, self._is_open(day), out)
        if day.fault is not None and day.fault.place is FaultPlace.LINE:
            self._put_first_section(out, v, day, day.fault)

    def _is_open(self, day: Day) -> Flags:
        """Whether the line of a reading is open all day. [entry]"""
        if not len(day.switch_open):
            return np.zeros(len(self.row), dtype=bool)
        return np.asarray((self.switch >= 0) & day.switch_open[self.switch])

    def _put_first_section(self, out: Floats, v: Complex, day: Day, fault: Fault) -> None:
        """At the last hour, terminal 1 of the faulted line is that of its first section."""
        entries = np.flatnonzero(self.row == fault.element)
        if not len(entries):
            return
        t, sizes = self.grid.wiring.terminals["line"], self.grid.line["n_conductors"].to_numpy().astype(np.int64)
        n, line = int(sizes[fault.element]), np.array([fault.element])
        r, x, c = (
            primitive.unpack(self.grid.matrices[name], sizes, line)
            for name in ("line_r_ohm", "line_x_ohm", "line_c_nf")
        )
        z = np.asarray(r + 1j * x, dtype=np.complex128)
        section = primitive.line_block(z * fault.x, c * fault.x, self.grid.frequency_hz)[0]
        items = t.start[fault.element] + np.arange(n)
        node = ItemNodes.of(self.grid.wiring, t, items).at(day.group_phase)
        volts = np.where(node >= 0, day.v[-1, node], 0.0)
        into = section[:n] @ np.concatenate([volts, day.v_interior])
        slot = slots_of(t.conductor[items])
        current = np.array([into[slot == self.slot[entry]].sum() for entry in entries])
        power = v[self.own.at(day.group_phase)[entries], -1] * current.conj() / 1e3
        for block, values in enumerate((np.abs(current), power.real, power.imag)):
            out[block * len(self.row) + entries, -1] = values


@dataclass(frozen=True)
class WindingMeters:
    """Meters at windings: of distribution transformers, and of others with a flow sensor.

    A tap scales what its winding's turns carry: y = turns / (tap of the row x tap of the column) + fixed.

    Attributes:
        row, slot: Winding and slot of every reading, those of regulated transformers last. [entry]
        plain: Rows of B of transformers without a regulated winding.
        turns: Rows of B of the others at tap 1, without what no tap scales.
        fixed: The latter. [value]
        turns_winding: Windings of the values' columns. [value]
        node, turns_node: Nodes of the values of ``plain`` and ``turns``. [value]
        own: Nodes of the readings' own conductors. [entry]
        tap_pu: Taps, where no regulator moves them. [winding]
        regulated: Windings whose taps a Day holds. [regulated]
    """

    row: Int64[Ints, " entry"]
    slot: Int64[Ints, " entry"]
    plain: _Rows
    turns: _Rows
    fixed: Complex128[Complex, " turns_value"]
    turns_winding: Int64[Ints, " turns_value"]
    node: Int64[Ints, " plain_value"]
    turns_node: Int64[Ints, " turns_value"]
    own: Int64[Ints, " entry"]
    tap_pu: Float64[Floats, " winding"]
    regulated: Int64[Ints, " regulated"]

    @staticmethod
    def of(grid: Grid, metered: Flags) -> WindingMeters:
        """Prepare.

        Args:
            grid: The records.
            metered: Windings with a meter. [winding]
        """
        t, owner = grid.wiring.terminals["winding"], grid.winding["transformer"].to_numpy()
        first = t.start[grid.transformer["first_winding"].to_numpy().astype(np.int64)]
        used, moved = (np.bincount(owner[which], minlength=len(first)) > 0 for which in (metered, grid.regulated))
        tap_pu = grid.winding["tap_pu"].to_numpy().astype(np.float64)

        def rows(transformers: Flags, taps: Floats) -> _Rows:
            primitives = primitive.transformer_primitives(grid, np.flatnonzero(used & transformers), taps)
            return _Rows.of(t, metered[t.row], ((first[part], block) for part, block in primitives))

        plain = rows(~moved, tap_pu)
        one, two = (rows(moved, np.full(len(tap_pu), tap)) for tap in (1.0, 2.0))
        turns = (one.y - two.y) / (1.0 - 1.0 / 4.0)
        node = grid.wiring.find(t.bus, t.conductor)  # no winding has a hidden conductor
        return WindingMeters(
            row=np.concatenate([plain.row, one.row]),
            slot=np.concatenate([plain.slot, one.slot]),
            plain=plain,
            turns=replace(one, y=turns),
            fixed=one.y - turns,
            turns_winding=t.row[one.column],
            node=node[plain.column],
            turns_node=node[one.column],
            own=node[np.concatenate([plain.item, one.item])],
            tap_pu=tap_pu,
            regulated=grid.regulated,
        )

    @property
    def nodes(self) -> Ints:
        """Nodes whose voltages are read."""
        return np.concatenate([self.node, self.turns_node, self.own])

    def read(self, day: Day, v: Complex, out: Floats) -> None:
        """Current magnitudes, A, and powers into the windings, kW and kvar, one block after the other.

        Args:
            day: The truth.
            v: Its voltages. [node, hour]
            out: Receives them. [3 entry, hour]
        """
        n, n_plain, hours = len(self.row), len(self.plain.row), out.shape[1]
        own = np.split(self.own, [n_plain])
        plain = out if n_plain == n else np.empty((3 * n_plain, hours))
        closed = np.zeros(n_plain, dtype=bool)
        kernel.flows(v, self.plain.pointer, self.node, self.plain.y, own[0], closed, plain)
        if n_plain == n:
            return
        tap = np.repeat(self.tap_pu[:, None], hours, axis=1)
        tap[self.regulated] = day.tap_pu.T
        tapped = np.empty((3 * (n - n_plain), hours))
        turns = self.turns
        kernel.tapped_flows(
            v, turns.pointer, self.turns_node, turns.y, self.fixed, self.turns_winding, turns.row, tap, own[1], tapped
        )
        blocks = out.reshape(3, n, hours)
        blocks[:, :n_plain], blocks[:, n_plain:] = plain.reshape(3, -1, hours), tapped.reshape(3, -1, hours)
