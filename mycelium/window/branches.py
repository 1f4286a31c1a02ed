"""Branches as edges of a window: transformer edges, phases of terminals, impedance matrices by phase."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from jaxtyping import Bool, Int64

from mycelium.grid.grid import Grid
from mycelium.grid.wiring import parse_conductors, ragged_ranges
from mycelium.schema import HIDDEN, PHASES

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class TransformerEdges:
    """Edges of the transformer relation: for every transformer, winding 1 to winding 2, in order of the table, and then
    winding 1 to any winding 3 that is on another bus than the first two. So every transformer has an edge (its first
    one stands for it among the candidates for a fault) and a centre tap has just one.

    Attributes:
        transformer: Row of the transformer. [edge]
        first, other: Rows of winding 1 and of the winding at the far end. [edge]
    """

    transformer: Int64[Ints, " edge"]
    first: Int64[Ints, " edge"]
    other: Int64[Ints, " edge"]


def transformer_edges(grid: Grid) -> TransformerEdges:
    """The transformer relation of a grid."""
    first = grid.transformer["first_winding"].to_numpy().astype(np.int64)
    bus = grid.winding["bus1"].to_numpy()
    rows = np.arange(len(first))
    third = rows[grid.transformer["n_windings"].to_numpy() > 2]
    apart = (bus[first[third] + 2] != bus[first[third] + 1]) & (bus[first[third] + 2] != bus[first[third]])
    third = third[apart]
    transformer = np.concatenate([rows, third])
    other = np.concatenate([first + 1, first[third] + 2])
    return TransformerEdges(transformer, first[transformer], other)


def phase_slots(grid: Grid, table: str, terminal: int) -> Bool[npt.NDArray[np.bool_], "row phase=3"]:
    """Which phases a terminal is on by the records; a hidden conductor is on none. [row, phase]"""
    t = grid.wiring.terminals[table]
    at = (t.terminal == terminal) & (t.conductor >= 1) & (t.conductor <= len(PHASES))
    result = np.zeros((len(grid.tables[table]), len(PHASES)), dtype=bool)
    result[t.row[at], t.conductor[at] - 1] = True
    return result


def line_matrix(grid: Grid) -> dict[str, Floats]:
    """Entries of the phase impedance matrix of every line, ohm, 0 where it lacks a phase. [line]

    A hidden conductor's own impedance stands at all three places of the diagonal, which says nothing of its phase.
    """
    size = grid.line["n_conductors"].to_numpy().astype(np.int64)
    conductor, count = parse_conductors(grid.line["conductors1"])
    line, place = ragged_ranges(count)
    n_slots = len(PHASES)
    at = np.full((len(grid.line), n_slots), -1, dtype=np.int64)  # place of each phase among the line's conductors
    phase = (conductor >= 1) & (conductor <= n_slots)
    at[line[phase], conductor[phase] - 1] = place[phase]
    hidden = conductor == HIDDEN
    at[line[hidden]] = place[hidden][:, None]
    only_diagonal = np.zeros(len(grid.line), dtype=bool)
    only_diagonal[line[hidden]] = True
    start = np.cumsum(size**2) - size**2
    result = {}
    for part in ("r", "x"):
        packed = grid.matrices[f"line_{part}_ohm"]
        for i, j in ((0, 0), (1, 1), (2, 2), (0, 1), (1, 2), (2, 0)):
            there = (at[:, i] >= 0) & (at[:, j] >= 0) & ((i == j) | ~only_diagonal)
            values = np.zeros(len(grid.line))
            values[there] = packed[(start + at[:, i] * size + at[:, j])[there]]
            result[f"{part}_{'abc'[i]}{'abc'[j]}_ohm"] = values
    return result
