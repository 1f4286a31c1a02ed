"""Which nodes are fed: true connectivity, conductor by conductor, through everything that is closed."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from mycelium.grid.grid import Configuration, Grid
from mycelium.grid.wiring import Terminals

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


def energised(grid: Grid, configuration: Configuration) -> Flags:
    """Whether each node is tied to a source. [node]

    A neutral counts as energised where a phase of its bus is. A transformer carries over between all conductors of
    its windings phase by phase: a coil is fed if either end of a coil of the same phase is.
    """
    wiring = grid.wiring
    closed = np.ones(len(grid.line), bool)
    closed[grid.switches[configuration.switch_open]] = False
    pairs = [_across(wiring.terminals["line"], wiring.nodes_of("line", configuration.group_phase), closed)]
    for table in ("reactor", "capacitor"):
        series = grid.tables[table]["series"].to_numpy().astype(bool)
        pairs.append(_across(wiring.terminals[table], wiring.nodes_of(table, configuration.group_phase), series))
    pairs.append(_through_transformers(grid, wiring.nodes_of("winding", configuration.group_phase)))
    n = wiring.n_nodes
    source = wiring.nodes_of("substation", configuration.group_phase)
    source = source[source >= 0]
    edges = np.concatenate([*pairs, np.stack([np.full(len(source), n), source], 1)])
    graph = coo_array((np.ones(len(edges)), (edges[:, 0], edges[:, 1])), shape=(n + 1, n + 1))
    label = connected_components(graph, directed=False)[1]
    live = np.asarray(label[:n] == label[n])
    neutral = wiring.conductor > 3
    live_bus = np.zeros(len(grid.bus), bool)
    live_bus[wiring.bus[live & ~neutral]] = True
    live[neutral] = live_bus[wiring.bus[neutral]]
    return live


def _across(t: Terminals, node: Ints, carries: Flags) -> Ints:
    """Node pairs at the same place of the two terminals of elements that carry. [pair, 2]"""
    first = np.flatnonzero((t.terminal == 0) & carries[t.row])
    second = np.flatnonzero((t.terminal == 1) & carries[t.row])
    if len(first) != len(second):
        raise ValueError("the terminals of a series element differ in their number of conductors")
    pairs = np.stack([node[first], node[second]], axis=1)
    return pairs[(pairs >= 0).all(axis=1)]


def _through_transformers(grid: Grid, node: Ints) -> Ints:
    """Node pairs that share a phase of a transformer. [pair, 2]"""
    t = grid.wiring.terminals["winding"]
    owner = grid.winding["transformer"].to_numpy().astype(np.int64)[t.row]
    n_phases = grid.transformer["n_phases"].to_numpy().astype(np.int64)[owner]
    delta = (grid.winding["connection"] == "delta").to_numpy()[t.row]
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
    return np.stack([rows[:-1, 1], rows[1:, 1]], axis=1)[same]
