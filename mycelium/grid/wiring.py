"""Which node every terminal conductor is tied to.

A node is a (bus, conductor) pair. A hidden bus has one node of its own for its unknown conductor; where a hidden
conductor meets a bus with known conductors, the Configuration says which of them it is tied to.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd
from jaxtyping import Bool, Int8, Int64

from mycelium.schema import GROUND, HIDDEN, HIDDEN_MARK, ElementKind

Ints = npt.NDArray[np.int64]
_KEYS_PER_BUS = 64  # conductor numbers of a bus stay below this

# Every table with terminals, and the number of terminals of a row.
TERMINALS = {"line": 2, "winding": 1, "reactor": 2, "capacitor": 2, "substation": 2, "consumer": 1, "der": 1}


def parse_conductors(texts: pd.Series) -> tuple[Int64[Ints, " item"], Int64[Ints, " row"]]:
    """Conductor numbers of a column of texts such as '1.2.3.0' or '?.4', and how many each row has.

    Returns:
        Flat conductor numbers and counts [row].
    """
    codes, unique = pd.factorize(texts)
    parsed = [
        np.array(
            [HIDDEN if part == HIDDEN_MARK else int(part) for part in str(text).split(".") if part], dtype=np.int64
        )
        for text in unique
    ]
    if not len(codes):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    counts = np.array([len(numbers) for numbers in parsed], dtype=np.int64)[codes]
    return np.concatenate([parsed[code] for code in codes]), counts


def ragged_ranges(counts: Int64[Ints, " row"]) -> tuple[Int64[Ints, " item"], Int64[Ints, " item"]]:
    """Row index and place within the row of every item of a ragged array with these counts."""
    rows = np.repeat(np.arange(len(counts)), counts)
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]]) if len(counts) else np.zeros(0, np.int64)
    return rows, np.arange(len(rows)) - starts[rows]


@dataclass(frozen=True)
class Terminals:
    """All terminal conductors of one table, ordered by row, terminal, conductor.

    Attributes:
        row, terminal, place: Table row, terminal (0-based) and place in the terminal. [item]
        bus, conductor: What it is tied to. [item]
        group: Hidden-phase group if the conductor is hidden, else -1. [item]
        start: First item of each row, one more at the end. [row + 1]
    """

    row: Int64[Ints, " item"]
    terminal: Int64[Ints, " item"]
    place: Int64[Ints, " item"]
    bus: Int64[Ints, " item"]
    conductor: Int64[Ints, " item"]
    group: Int64[Ints, " item"]
    start: Int64[Ints, " starts"]

    @staticmethod
    def of(table: pd.DataFrame, n_terminals: int) -> Terminals:
        parts = []
        for terminal in range(n_terminals):
            conductors, counts = parse_conductors(table[f"conductors{terminal + 1}"])
            rows, place = ragged_ranges(counts)
            bus = table[f"bus{terminal + 1}"].to_numpy().astype(np.int64)[rows]
            parts.append(np.stack([rows, np.full(len(rows), terminal), place, bus, conductors]))
        items = np.concatenate(parts, axis=1)
        items = items[:, np.lexsort((items[2], items[1], items[0]))]
        row, terminal_, place, bus, conductor = items
        group = table["group"].to_numpy().astype(np.int64)[row] if "group" in table else np.full(len(row), -1)
        group = np.where(conductor == HIDDEN, group, -1)
        start = np.searchsorted(row, np.arange(len(table) + 1))
        return Terminals(row, terminal_, place, bus, conductor, group, start)


@dataclass(frozen=True)
class Wiring:
    """Nodes of a grid, and the terminals of every table.

    Attributes:
        bus, conductor: Of each node, ordered by bus, then conductor (a hidden own conductor first). [node]
        terminals: Terminal conductors per table.
        hidden_bus: Buses with an own conductor of unknown phase. [bus]
    """

    bus: Int64[Ints, " node"]
    conductor: Int64[Ints, " node"]
    terminals: Mapping[str, Terminals]
    hidden_bus: Bool[npt.NDArray[np.bool_], " bus"]

    @staticmethod
    def of(tables: Mapping[str, pd.DataFrame]) -> Wiring:
        hidden = tables["bus"]["hidden"].to_numpy().astype(bool)
        terminals = {name: Terminals.of(tables[name], count) for name, count in TERMINALS.items()}
        bus = np.concatenate([t.bus for t in terminals.values()])
        conductor = np.concatenate([t.conductor for t in terminals.values()])
        real = (conductor != GROUND) & ((conductor != HIDDEN) | hidden[bus]) & (bus >= 0)
        keys = np.unique(_key(bus[real], conductor[real]))
        return Wiring(keys // _KEYS_PER_BUS, keys % _KEYS_PER_BUS - 1, terminals, hidden)

    @property
    def n_nodes(self) -> int:
        return len(self.bus)

    def find(self, bus: Int64[Ints, "*pair"], conductor: Int64[Ints, "*pair"]) -> Int64[Ints, "*pair"]:
        """Node of each (bus, conductor), -1 for ground and for pairs that do not exist."""
        keys = _key(self.bus, self.conductor)
        wanted = _key(np.asarray(bus), np.asarray(conductor))
        place = np.minimum(np.searchsorted(keys, wanted), max(len(keys) - 1, 0))
        found = (keys[place] == wanted) & (np.asarray(conductor) != GROUND)
        return np.where(found, place, -1)

    def nodes_of(self, table: str, group_phase: Int8[npt.NDArray[np.int8], " group"]) -> Int64[Ints, " item"]:
        """Node of every terminal conductor of a table, -1 for ground. [item]

        Args:
            table: One of ``TERMINALS``.
            group_phase: Phase slot of every hidden-phase group. [group]
        """
        t = self.terminals[table]
        at_known_bus = (t.conductor == HIDDEN) & ~self.hidden_bus[t.bus]
        conductor = t.conductor.copy()
        conductor[at_known_bus] = group_phase[t.group[at_known_bus]].astype(np.int64) + 1
        node = self.find(t.bus, conductor)
        lost = (node < 0) & (conductor != GROUND)
        if np.any(lost):
            first = int(np.flatnonzero(lost)[0])
            raise ValueError(
                f"{table} row {t.row[first]}: conductor {conductor[first]} does not exist at bus row {t.bus[first]}"
            )
        return node

    def nodes_at(self, bus: int) -> Int64[Ints, " node"]:
        """Nodes of one bus."""
        low, high = np.searchsorted(self.bus, [bus, bus + 1])
        return np.arange(low, high)


def _key(bus: Ints, conductor: Ints) -> Ints:
    return np.asarray(bus * _KEYS_PER_BUS + conductor + 1, dtype=np.int64)


def admittance_tables() -> tuple[str, ...]:
    """Tables whose rows have a primitive admittance, in the order of ElementKind."""
    names = {ElementKind.TRANSFORMER: "winding"}
    return tuple(names.get(kind, kind.value) for kind in ElementKind)
