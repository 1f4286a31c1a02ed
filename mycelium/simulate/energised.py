"""Which nodes are fed: true connectivity, conductor by conductor, through everything that is closed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from jaxtyping import Bool, Int64
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from mycelium.grid.grid import Configuration, Grid
from mycelium.grid.wiring import Terminals
from mycelium.schema import HIDDEN, Connection

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Connectivity:
    """A grid contracted to what stays tied together in every configuration.

    A neutral counts as energised where a phase of its bus is. A transformer carries over between all conductors of
    its windings phase by phase: a coil is fed if either end of a coil of the same phase is.

    Attributes:
        grid: The records.
        part: Part of each node; the last entry is the sources' part. [node + 1]
        switch_row: Switch of each conductor pair of a switch. [pair]
        switch_pair: Nodes it joins. [pair, 2]
        hidden_item: Line terminal items that land on a phase of a known bus, with the item across. [item, 2]
    """

    grid: Grid
    part: Int64[Ints, " parts"]
    switch_row: Int64[Ints, " pair"]
    switch_pair: Int64[Ints, "pair ends=2"]
    hidden_item: Int64[Ints, "item ends=2"]

    @staticmethod
    def of(grid: Grid) -> Connectivity:
        wiring = grid.wiring
        any_phase = np.zeros(grid.n_groups, dtype=np.int8)
        line, node = wiring.terminals["line"], wiring.nodes_of("line", any_phase)
        first, second = np.flatnonzero(line.terminal == 0), np.flatnonzero(line.terminal == 1)
        if len(first) != len(second):
            raise ValueError("the terminals of a line differ in their number of conductors")
        chosen = (line.conductor == HIDDEN) & ~wiring.hidden_bus[line.bus]
        moves = chosen[first] | chosen[second]
        switch = grid.line["switch"].to_numpy()[line.row[first]]
        pairs = np.stack([node[first], node[second]], axis=1)
        fixed = [pairs[~moves & ~switch]]
        for table in ("reactor", "capacitor"):
            series = grid.tables[table]["series"].to_numpy().astype(bool)
            fixed.append(_across(wiring.terminals[table], wiring.nodes_of(table, any_phase), series))
        fixed.append(_through_transformers(grid, wiring.nodes_of("winding", any_phase)))
        n = wiring.n_nodes
        source = wiring.nodes_of("substation", any_phase)
        fixed.append(np.stack([np.full(len(source), n), source], axis=1))
        operated = switch & ~moves
        place = np.full(len(grid.line), -1)
        place[grid.switches] = np.arange(len(grid.switches))
        return Connectivity(
            grid,
            _label(np.concatenate(fixed), n + 1),
            place[line.row[first[operated]]],
            pairs[operated],
            np.stack([first[moves], second[moves]], axis=1),
        )

    def energised(self, configuration: Configuration) -> Bool[Flags, " node"]:
        """Whether each node is tied to a source. [node]"""
        closed = ~configuration.switch_open[self.switch_row]
        node = self.grid.wiring.nodes_of("line", configuration.group_phase) if len(self.hidden_item) else None
        joined = [self.switch_pair[closed]]
        if node is not None:
            joined.append(node[self.hidden_item])
        pairs = np.concatenate(joined)
        pairs = self.part[pairs[(pairs >= 0).all(axis=1)]]
        label = _label(pairs, int(self.part.max()) + 1)[self.part]
        live = np.asarray(label[:-1] == label[-1])
        wiring = self.grid.wiring
        neutral = wiring.conductor > 3
        if np.any(neutral):
            live_bus = np.zeros(len(self.grid.bus), bool)
            live_bus[wiring.bus[live & ~neutral]] = True
            live[neutral] = live_bus[wiring.bus[neutral]]
        return live


def _label(pairs: Ints, n: int) -> Ints:
    """Component of each of n nodes; pairs with ground are ignored. [node]"""
    pairs = pairs[(pairs >= 0).all(axis=1)]
    graph = coo_array((np.ones(len(pairs), np.int8), (pairs[:, 0], pairs[:, 1])), shape=(n, n))
    return np.asarray(connected_components(graph, directed=False)[1], dtype=np.int64)


def _across(t: Terminals, node: Ints, carries: Flags) -> Ints:
    """Node pairs at the same place of the two terminals of elements that carry. [pair, 2]"""
    first = np.flatnonzero((t.terminal == 0) & carries[t.row])
    second = np.flatnonzero((t.terminal == 1) & carries[t.row])
    return np.stack([node[first], node[second]], axis=1)


def _through_transformers(grid: Grid, node: Ints) -> Ints:
    """Node pairs that share a phase of a transformer. [pair, 2]"""
    t = grid.wiring.terminals["winding"]
    owner = grid.winding["transformer"].to_numpy().astype(np.int64)[t.row]
    n_phases = grid.transformer["n_phases"].to_numpy().astype(np.int64)[owner]
    delta = (grid.winding["connection"] == Connection.DELTA).to_numpy()[t.row]
    items = []
    for shift in (0, 1, -1):
        # Conductor k is an end of coil k; in a delta of three it ends a neighbouring coil too, whichever way it runs.
        ends = (t.place < n_phases) & (node >= 0) & ((shift == 0) | (delta & (n_phases >= 3)))
        coil = (t.place + shift) % np.maximum(n_phases, 1)
        items.append(np.stack([owner * 8 + coil, node], 1)[ends])
    single = (n_phases < 3) & (t.place == n_phases) & (node >= 0)  # the far end of a coil between two phases
    items.append(np.stack([owner * 8, node], 1)[single])
    rows = np.concatenate(items)
    rows = rows[np.lexsort((rows[:, 1], rows[:, 0]))]
    same = rows[1:, 0] == rows[:-1, 0]
    return np.asarray(np.stack([rows[:-1, 1], rows[1:, 1]], axis=1)[same])
