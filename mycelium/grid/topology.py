"""The structural bus graph: what is joined to what with every switch closed.

Nodes are buses. A branch is a line, a transformer from winding 1 to another winding's bus (a centre-tapped
unit with both legs on one bus is one branch), a series reactor or a series capacitor. An element with both
ends on one bus joins nothing and is no branch. Switch positions are not on record, so nothing here depends on
them.

Counting loops needs a word on parallel branches between the same two buses. They make a loop only where they
carry the same conductor: single-phase lines of one route, or the units of one transformer bank, count as one
edge; two lines on the same conductors, or a regulator and its bypass, count as two.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd
import rustworkx as rx
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import connected_components, dijkstra

from mycelium.grid.grid import Grid
from mycelium.grid.wiring import parse_conductors, ragged_ranges
from mycelium.schema import HIDDEN, ElementKind

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

BRANCH_KINDS = (ElementKind.LINE, ElementKind.TRANSFORMER, ElementKind.REACTOR, ElementKind.CAPACITOR)
_TIE_STEP = 1e-9  # a seed's handicap over the one before it: far below any distance, far above rounding


@dataclass(frozen=True, slots=True)
class Branches:
    """Branches of the structural graph, ordered by kind, then row, then bus.

    Attributes:
        kind: Index into ``BRANCH_KINDS``. [branch]
        row: Row in the table of its kind. [branch]
        winding: For a transformer, row of the first winding at ``bus_to``; else -1. [branch]
        bus_from: Bus of terminal 1, or of winding 1. [branch]
        bus_to: Bus of the other end. [branch]
        is_switch: A line that can be operated. [branch]
        n_bus: Number of buses of the grid.
    """

    kind: npt.NDArray[np.int8]
    row: Ints
    winding: Ints
    bus_from: Ints
    bus_to: Ints
    is_switch: Flags
    n_bus: int

    def __len__(self) -> int:
        return len(self.row)

    def is_kind(self, *kinds: ElementKind) -> Flags:
        """Whether a branch is of one of these kinds. [branch]"""
        return np.isin(self.kind, [BRANCH_KINDS.index(kind) for kind in kinds])

    def take(self, chosen: Flags) -> Branches:
        """Only these branches."""
        return Branches(
            self.kind[chosen],
            self.row[chosen],
            self.winding[chosen],
            self.bus_from[chosen],
            self.bus_to[chosen],
            self.is_switch[chosen],
            self.n_bus,
        )


def branches(grid: Grid) -> Branches:
    """All branches of a grid."""
    reactor = np.flatnonzero(grid.reactor["series"].to_numpy())
    capacitor = np.flatnonzero(grid.capacitor["series"].to_numpy())
    transformer, winding = _secondary_windings(grid)
    rows = [np.arange(len(grid.line)), transformer, reactor, capacitor]
    counts = [len(part) for part in rows]
    first = grid.transformer["first_winding"].to_numpy()[transformer]
    winding_bus = _column(grid, "winding", "bus1")
    ends = [
        (_column(grid, "line", "bus1"), _column(grid, "line", "bus2")),
        (winding_bus[first], winding_bus[winding]),
        (_column(grid, "reactor", "bus1")[reactor], _column(grid, "reactor", "bus2")[reactor]),
        (_column(grid, "capacitor", "bus1")[capacitor], _column(grid, "capacitor", "bus2")[capacitor]),
    ]
    switch = np.zeros(sum(counts), dtype=bool)
    switch[: counts[0]] = grid.line["switch"].to_numpy()
    windings = np.full(sum(counts), -1, dtype=np.int64)
    windings[counts[0] : counts[0] + counts[1]] = winding
    everything = Branches(
        kind=np.repeat(np.arange(len(BRANCH_KINDS), dtype=np.int8), counts),
        row=np.concatenate(rows).astype(np.int64),
        winding=windings,
        bus_from=np.concatenate([start for start, _ in ends]),
        bus_to=np.concatenate([end for _, end in ends]),
        is_switch=switch,
        n_bus=len(grid.bus),
    )
    return everything.take(everything.bus_from != everything.bus_to)


def _column(grid: Grid, table: str, column: str) -> Ints:
    return np.asarray(grid.tables[table][column].to_numpy(), dtype=np.int64)


def _secondary_windings(grid: Grid) -> tuple[Ints, Ints]:
    """Transformer and the first winding of each distinct secondary bus."""
    owner, bus = _column(grid, "winding", "transformer"), _column(grid, "winding", "bus1")
    secondary = np.flatnonzero(grid.winding["number"].to_numpy() > 1)
    keys = owner[secondary] * max(len(grid.bus), 1) + bus[secondary]
    _, first = np.unique(keys, return_index=True)
    return owner[secondary[first]], secondary[first]


def bus_pairs(b: Branches) -> tuple[Ints, Ints]:
    """Distinct bus pairs that branches join.

    Returns:
        Pairs with the lower bus first [pair, 2] and the pair of each branch [branch].
    """
    low, high = np.minimum(b.bus_from, b.bus_to), np.maximum(b.bus_from, b.bus_to)
    keys, pair = np.unique(low * b.n_bus + high, return_inverse=True)
    return np.stack([keys // b.n_bus, keys % b.n_bus], axis=1), pair.astype(np.int64)


def lightest(b: Branches, weight: Floats) -> Ints:
    """The branch of least weight of every bus pair, ties by order of the branches. [pair]"""
    _, pair = bus_pairs(b)
    order = np.lexsort((np.arange(len(b)), weight, pair))
    _, first = np.unique(pair[order], return_index=True)
    return np.asarray(order[first], dtype=np.int64)


def components(b: Branches) -> Ints:
    """Component of every bus, numbered in order of their first bus. [bus]"""
    graph = coo_array((np.ones(len(b)), (b.bus_from, b.bus_to)), shape=(b.n_bus, b.n_bus))
    return np.asarray(connected_components(graph, directed=False)[1], dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Paths:
    """Shortest paths from the nearest of several seed buses.

    Attributes:
        distance: Sum of weights, infinite where no seed is reached. [bus]
        predecessor: Bus before it on its path, -1 at a seed and where no seed is reached. [bus]
        seed: Index of the seed it is reached from, -1 where none. [bus]
    """

    distance: Floats
    predecessor: Ints
    seed: Ints


def shortest_paths(b: Branches, weight: Floats, seeds: Ints, handicap: Ints) -> Paths:
    """Shortest paths from the nearest seed; among equally near ones, from the one with the least handicap.

    Args:
        b: Branches.
        weight: Positive weights. [branch]
        seeds: Buses; several seeds may share one. [seed]
        handicap: Small non-negative integers. [seed]
    """
    n = b.n_bus
    chosen = lightest(b, weight)
    offset = _TIE_STEP * (1.0 + handicap)
    # Each seed is an extra leaf, tied to its bus by an edge as long as its handicap.
    start = np.concatenate([b.bus_from[chosen], n + np.arange(len(seeds))])
    end = np.concatenate([b.bus_to[chosen], seeds])
    size = n + len(seeds)
    graph = csr_array((np.concatenate([weight[chosen], offset]), (start, end)), shape=(size, size))
    if not len(seeds):
        return Paths(np.full(n, np.inf), np.full(n, -1), np.full(n, -1))
    distance, predecessor, source = dijkstra(
        graph, directed=False, indices=n + np.arange(len(seeds)), return_predecessors=True, min_only=True
    )
    reached = np.isfinite(distance[:n])
    seed = np.where(reached, source[:n] - n, -1).astype(np.int64)
    before = np.where(reached & (predecessor[:n] < n), predecessor[:n], -1).astype(np.int64)
    return Paths(np.where(reached, distance[:n] - offset[seed], np.inf), before, seed)


def sources(grid: Grid) -> Ints:
    """Bus of every substation. [substation]"""
    return _column(grid, "substation", "bus1")


def hop_paths(grid: Grid) -> Paths:
    """Paths of fewest branches from the nearest substation (ties by row)."""
    b = branches(grid)
    seeds = sources(grid)
    return shortest_paths(b, np.ones(len(b)), seeds, np.arange(len(seeds)))


def hops(grid: Grid) -> Ints:
    """Number of branches to the nearest substation, -1 where none is reached. [bus]"""
    distance = hop_paths(grid).distance
    return np.where(np.isfinite(distance), np.rint(distance), -1.0).astype(np.int64)


def depth(grid: Grid) -> int:
    """Most hops from the nearest substation to any fed bus."""
    return int(hops(grid).max(initial=0))


def islands(grid: Grid) -> Ints:
    """Island of every bus, numbered in order of their first bus. [bus]"""
    return components(branches(grid))


def fed(grid: Grid) -> Flags:
    """Whether a bus is joined to a substation. [bus]"""
    label = islands(grid)
    return np.isin(label, label[sources(grid)])


def loops(grid: Grid) -> int:
    """Number of independent loops (cyclomatic number) among the fed buses."""
    b = branches(grid)
    label = components(b)
    live_labels = np.unique(label[sources(grid)])
    pairs, _ = bus_pairs(b)
    live_bus = np.isin(label, live_labels)
    edges = int(parallel_edges(grid, b)[live_bus[pairs[:, 0]]].sum())
    return edges - int(live_bus.sum()) + len(live_labels)


def on_cycle(grid: Grid) -> Flags:
    """Whether a branch lies on any loop. [branch]"""
    b = branches(grid)
    pairs, pair = bus_pairs(b)
    graph = rx.PyGraph(multigraph=False)
    graph.add_nodes_from(range(b.n_bus))
    graph.add_edges_from_no_data([(int(low), int(high)) for low, high in pairs])
    found = rx.bridges(graph)
    cut = np.array([(min(edge), max(edge)) for edge in found], dtype=np.int64).reshape(-1, 2)
    bridge = np.isin(pairs[:, 0] * b.n_bus + pairs[:, 1], cut[:, 0] * b.n_bus + cut[:, 1])
    return np.asarray((~bridge | (parallel_edges(grid, b) > 1))[pair])


def parallel_edges(grid: Grid, b: Branches) -> Ints:
    """Most branches between two buses that carry one and the same phase conductor, at least 1. [pair]"""
    pairs, pair = bus_pairs(b)
    texts, group, owner = _conductors_at(grid, b, pairs[pair, 0] == b.bus_from)
    conductor, count = parse_conductors(pd.Series(texts))
    branch, _ = ragged_ranges(count)
    # Hidden conductors are alike only within one group; numbers below HIDDEN tell the groups apart.
    conductor = np.where(conductor == HIDDEN, HIDDEN - 1 - group[branch], conductor)
    phase = (conductor < 0) | ((conductor >= 1) & (conductor <= 3))
    branch, conductor = branch[phase], conductor[phase]
    carried = np.unique(np.stack([pair[branch], conductor, owner[branch]], axis=1), axis=0)
    wires, parallel = np.unique(carried[:, :2], axis=0, return_counts=True)
    result = np.ones(len(pairs), dtype=np.int64)
    np.maximum.at(result, wires[:, 0], parallel)
    return result


def _conductors_at(grid: Grid, b: Branches, at_from: Flags) -> tuple[npt.NDArray[np.object_], Ints, Ints]:
    """Conductors of one end of every branch, its hidden group, and an owner shared by the units of a bank."""
    texts = np.empty(len(b), dtype=object)
    group = np.full(len(b), -1, dtype=np.int64)
    owner = np.arange(len(b))
    for kind in (ElementKind.LINE, ElementKind.REACTOR, ElementKind.CAPACITOR):
        mine = b.is_kind(kind)
        table = grid.tables[kind.value]
        ends = [table[f"conductors{k}"].to_numpy(dtype=object)[b.row[mine]] for k in (1, 2)]
        texts[mine] = np.where(at_from[mine], *ends)
    line = b.is_kind(ElementKind.LINE)
    group[line] = _column(grid, "line", "group")[b.row[line]]
    unit = b.is_kind(ElementKind.TRANSFORMER)
    first = _column(grid, "transformer", "first_winding")[b.row[unit]]
    texts[unit] = grid.winding["conductors1"].to_numpy(dtype=object)[np.where(at_from[unit], first, b.winding[unit])]
    owner[unit] = len(b) + _column(grid, "transformer", "bank")[b.row[unit]]
    return texts, group, owner
