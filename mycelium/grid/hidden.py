"""Where phase attribution is a question, and what the records may then say.

In a low-voltage zone with a three-phase supply, a single-phase customer's phase is a question. Its conductor number,
and that of its service line and service bus, would answer it. So these conductors are replaced by one mark, '?', and
what moves together becomes a *group*: the service lines and buses tied to each other and everything on them. A
customer straight on a three-phase bus is a group of its own, and so is a single-phase generator there: to share one
with a customer on its phase would tell that customer from the bus's others.

The order of rows must not answer it either. Published models list customers as A, B, C, A, B, C, ..., or all of A
first, and open switches last. So lines, customers, generators and buses lie in an order drawn by lot: a hash of the
name, salted with the names of the network's customers, so that a name's place in one network says nothing in another.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from mycelium.grid.grid import Grid
from mycelium.grid.import_report import ImportReport
from mycelium.grid.wiring import TERMINALS, Terminals
from mycelium.schema import HIDDEN_MARK, Connection

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

_PHASE_TABLES = ("line", "winding", "reactor", "capacitor", "substation", "consumer", "der")


def lot(names: Iterable[str], salt: Iterable[str]) -> Ints:
    """Order of rows by lot: the row that comes first, second, ... [row]

    Args:
        names: Of the rows, in any order.
        salt: Names of the network's customers, in any order.
    """
    seed = hashlib.sha256("\n".join(sorted(salt)).encode()).digest()
    drawn = [hashlib.sha256(seed + name.encode()).digest() for name in names]
    return np.array(sorted(range(len(drawn)), key=drawn.__getitem__), dtype=np.int64)


def _draw_buses(grid: Grid, zone: Flags) -> tuple[Grid, Flags]:
    """The grid and the zone with the buses in an order drawn by lot.

    The engine lists buses as enabled elements first name them: one that only an open, disabled switch names is last.
    """
    order = lot(grid.bus["name"], grid.consumer["name"])
    place = np.empty(len(order), dtype=np.int32)
    place[order] = np.arange(len(order), dtype=np.int32)
    tables = {"bus": grid.bus.iloc[order].reset_index(drop=True)}
    for name, n_terminals in TERMINALS.items():
        ends = {f"bus{k + 1}": place[grid.tables[name][f"bus{k + 1}"].to_numpy()] for k in range(n_terminals)}
        tables[name] = grid.tables[name].assign(**ends)
    return grid.replace_tables(**tables), zone[order]


@dataclass(frozen=True, slots=True)
class _Single:
    """Rows of a table with exactly one phase conductor at every terminal.

    Attributes:
        one: Whether the row is such. [row]
        phase: Its conductor at each terminal, 0 where there is none. [row, terminal]
        bus: Its bus at each terminal. [row, terminal]
    """

    one: Flags
    phase: Ints
    bus: Ints


def _single(table: pd.DataFrame, terminals: Terminals, n_terminals: int) -> _Single:
    is_phase = (terminals.conductor >= 1) & (terminals.conductor <= 3)
    count = np.zeros((len(table), n_terminals), dtype=np.int64)
    phase = np.zeros((len(table), n_terminals), dtype=np.int64)
    bus = np.stack([table[f"bus{k + 1}"].to_numpy().astype(np.int64) for k in range(n_terminals)], axis=1)
    np.add.at(count, (terminals.row[is_phase], terminals.terminal[is_phase]), 1)
    np.maximum.at(phase, (terminals.row[is_phase], terminals.terminal[is_phase]), terminals.conductor[is_phase])
    return _Single((count == 1).all(axis=1), phase, bus)


def hide_phases(grid: Grid, zone: Flags, report: ImportReport) -> tuple[Grid, npt.NDArray[np.int8]]:
    """Replace conductor numbers that would give a customer's phase away, and draw the order of the buses by lot.

    Args:
        grid: Grid with all conductors on record.
        zone: Buses in low-voltage zones with a three-phase supply. [bus]
        report: Receives what could not be hidden.

    Returns:
        The grid with '?' conductors, eligible customers and groups, and the true phase slot of each group. [group]
    """
    grid, zone = _draw_buses(grid, zone)
    wiring = grid.wiring
    line = _single(grid.line, wiring.terminals["line"], 2)
    consumer = _single(grid.consumer, wiring.terminals["consumer"], 1)
    der = _single(grid.der, wiring.terminals["der"], 1)
    hidden_bus = _hidden_buses(grid, zone, line)
    touches = hidden_bus[line.bus].any(axis=1) if len(grid.line) else np.zeros(0, bool)
    hidden_line = line.one & touches
    hidden_bus, hidden_line = _drop_contradictions(grid, line, hidden_bus, hidden_line, report)
    wye = (grid.consumer["connection"] == Connection.WYE).to_numpy() & (grid.consumer["n_phases"] == 1).to_numpy()
    at = consumer.bus[:, 0]
    eligible = consumer.one & wye & zone[at]
    moved_der = der.one & (grid.der["n_phases"] == 1).to_numpy() & zone[der.bus[:, 0]]
    groups = _Groups.build(hidden_bus, line, hidden_line, consumer, eligible, der, moved_der)
    tables = {
        "bus": grid.bus.assign(hidden=hidden_bus),
        "line": _mark(grid.line, hidden_line, 2).assign(group=groups.line.astype(np.int32)),
        "consumer": _mark(grid.consumer, groups.consumer >= 0, 1).assign(
            eligible=eligible, group=groups.consumer.astype(np.int32)
        ),
        "der": _mark(grid.der, groups.der >= 0, 1).assign(group=groups.der.astype(np.int32)),
    }
    return grid.replace_tables(**tables), groups.phase


def _hidden_buses(grid: Grid, zone: Flags, line: _Single) -> Flags:
    """Buses of a zone with one phase conductor in all, touched by nothing but lines, customers and generators."""
    wiring = grid.wiring
    n_bus = len(grid.bus)
    present = np.zeros((n_bus, 4), bool)
    fixed = np.zeros(n_bus, bool)
    for name in _PHASE_TABLES:
        t = wiring.terminals[name]
        is_phase = (t.conductor >= 1) & (t.conductor <= 3)
        present[t.bus[is_phase], t.conductor[is_phase]] = True
        if name not in ("line", "consumer", "der"):
            fixed[t.bus[is_phase]] = True
    several = ~line.one
    for k in range(2):
        fixed[line.bus[several, k]] = True
    return np.asarray(zone & ~fixed & (present[:, 1:].sum(axis=1) == 1))


def _drop_contradictions(
    grid: Grid, line: _Single, hidden_bus: Flags, hidden_line: Flags, report: ImportReport
) -> tuple[Flags, Flags]:
    """A connected set of hidden buses must hang from known buses by one phase; else its conductors stay on record."""
    label = _components(hidden_bus, line, hidden_line)
    known_end = hidden_line[:, None] & ~hidden_bus[line.bus]
    rows, ends = np.nonzero(known_end)
    inner = np.where(hidden_bus[line.bus[rows, 0]], line.bus[rows, 0], line.bus[rows, 1])
    frame = pd.DataFrame({"label": label[inner], "phase": line.phase[rows, ends]})
    phases = frame.groupby("label")["phase"].nunique()
    consistent = np.zeros(label.max() + 2, bool)
    consistent[phases.index[phases == 1].to_numpy()] = True
    keep = hidden_bus & consistent[label]
    dropped = np.flatnonzero(hidden_bus & ~keep)
    report.approximate(
        "bus",
        grid.bus["name"].iloc[dropped].tolist(),
        "single-phase service not tied to a known bus by exactly one phase: its phase stays on record",
    )
    return keep, hidden_line & keep[line.bus].any(axis=1)


def _components(hidden_bus: Flags, line: _Single, hidden_line: Flags) -> Ints:
    """Component of every bus over hidden lines between hidden buses. [bus]"""
    inner = hidden_line & hidden_bus[line.bus].all(axis=1)
    n = len(hidden_bus)
    edges = line.bus[inner]
    graph = coo_array((np.ones(len(edges)), (edges[:, 0], edges[:, 1])), shape=(n, n))
    return np.asarray(connected_components(graph, directed=False)[1], dtype=np.int64)


@dataclass(frozen=True, slots=True)
class _Groups:
    """Group of each row (-1 none) and the phase slot of each group."""

    line: Ints
    consumer: Ints
    der: Ints
    phase: npt.NDArray[np.int8]

    @staticmethod
    def build(
        hidden_bus: Flags, line: _Single, hidden_line: Flags, consumer: _Single, eligible: Flags, der: _Single,
        moved_der: Flags,
    ) -> _Groups:  # fmt: skip
        label = _components(hidden_bus, line, hidden_line)
        phase: list[int] = []
        known = hidden_line[:, None] & ~hidden_bus[line.bus]
        of_component = np.full(label.max() + 2, -1)
        rows, ends = np.nonzero(known)
        for row, end in zip(rows, ends, strict=True):
            component = label[line.bus[row, 1 - end]]
            if of_component[component] < 0:
                of_component[component] = len(phase)
                phase.append(int(line.phase[row, end]) - 1)
        bus_group = np.where(hidden_bus, of_component[label], -1)
        line_group = np.where(hidden_line, bus_group[line.bus].max(axis=1, initial=-1), -1)
        consumer_group = np.where(consumer.one, bus_group[consumer.bus[:, 0]], -1)
        der_group = np.where(der.one, bus_group[der.bus[:, 0]], -1)
        for row in np.flatnonzero(eligible & (consumer_group < 0)):
            consumer_group[row] = len(phase)
            phase.append(int(consumer.phase[row, 0]) - 1)
        for row in np.flatnonzero(moved_der & (der_group < 0)):
            der_group[row] = len(phase)
            phase.append(int(der.phase[row, 0]) - 1)
        return _Groups(line_group, consumer_group, der_group, np.array(phase, dtype=np.int8))


def _mark(table: pd.DataFrame, rows: Flags, n_terminals: int) -> pd.DataFrame:
    """The table with phase conductors of these rows written '?'."""
    changed = {}
    for k in range(1, n_terminals + 1):
        texts = table[f"conductors{k}"].to_numpy(dtype=object).copy()
        for row in np.flatnonzero(rows):
            parts = [HIDDEN_MARK if part in ("1", "2", "3") else part for part in texts[row].split(".")]
            texts[row] = ".".join(parts)
        changed[f"conductors{k}"] = pd.array(texts, dtype="str")
    return table.assign(**changed)
