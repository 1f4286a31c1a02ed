"""B and Y: what flows follows from node voltages.

``branch`` is B: currents into every terminal conductor, I = B V. ``nodal`` is Y, the sum of B's rows at each node.
Both are functions of (Grid, Configuration). ``at`` gives them for another configuration; only the rows of elements
whose tap, steps, position or phase differ are computed again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
from jaxtyping import Complex128, Float64, Int64
from scipy.sparse import coo_array, csc_array, csr_array

from mycelium.grid import primitive
from mycelium.grid.grid import Configuration, Grid
from mycelium.grid.sources import Sources
from mycelium.grid.wiring import Terminals
from mycelium.schema import ElementKind

Complex = npt.NDArray[np.complex128]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

_TABLE = {kind: "winding" if kind is ElementKind.TRANSFORMER else kind.value for kind in ElementKind}


@dataclass(frozen=True)
class Layout:
    """Where each element's rows and values lie; the same for every configuration of a grid.

    Attributes:
        first_row: First row of B of each element, one more at the end, per kind. [element + 1]
        first_value: First value of each element, one more at the end, per kind. [element + 1]
        row, column: Row of B of each value, and the row whose node is its column. [value]
        n_rows: Rows of B.
    """

    first_row: dict[ElementKind, Ints]
    first_value: dict[ElementKind, Ints]
    row: Int64[Ints, " value"]
    column: Int64[Ints, " value"]
    n_rows: int

    @staticmethod
    def of(grid: Grid) -> Layout:
        first_row: dict[ElementKind, Ints] = {}
        first_value: dict[ElementKind, Ints] = {}
        rows, columns = [], []
        row_at = value_at = 0
        for kind in ElementKind:
            start = _element_start(grid, kind)
            sizes = np.diff(start)
            first_row[kind] = row_at + start
            first_value[kind] = value_at + np.concatenate([[0], np.cumsum(sizes**2)]).astype(np.int64)
            element = np.repeat(np.arange(len(sizes)), sizes**2)
            inner = np.arange(len(element)) - (first_value[kind][:-1] - value_at)[element]
            size = sizes[element]
            rows.append(first_row[kind][:-1][element] + inner // np.maximum(size, 1))
            columns.append(first_row[kind][:-1][element] + inner % np.maximum(size, 1))
            row_at, value_at = int(first_row[kind][-1]), int(first_value[kind][-1])
        return Layout(first_row, first_value, np.concatenate(rows), np.concatenate(columns), row_at)

    def rows_of(self, kind: ElementKind, element: int) -> Int64[Ints, " row"]:
        """Rows of B of one element, terminal by terminal."""
        return np.arange(self.first_row[kind][element], self.first_row[kind][element + 1])


def _element_start(grid: Grid, kind: ElementKind) -> Ints:
    """First terminal item of each element, one more at the end. [element + 1]"""
    start = grid.wiring.terminals[_TABLE[kind]].start
    if kind is not ElementKind.TRANSFORMER:
        return start
    first = np.append(grid.transformer["first_winding"].to_numpy().astype(np.int64), len(grid.winding))
    return np.asarray(start[first])


@dataclass(frozen=True)
class Admittance:
    """B and Y of a grid in one configuration.

    Attributes:
        grid, configuration: What it is a function of.
        layout: Where elements lie.
        values: Primitive admittances, element by element. [value]
        node: Node of each row of B, -1 for ground. [row]
        sources: The sources, as Norton equivalents.
    """

    grid: Grid
    configuration: Configuration
    layout: Layout
    values: Complex128[Complex, " value"]
    node: Int64[Ints, " row"]
    sources: Sources

    @staticmethod
    def of(grid: Grid, configuration: Configuration) -> Admittance:
        configuration.check(grid)
        layout = Layout.of(grid)
        values = np.zeros(len(layout.row), dtype=np.complex128)
        result = Admittance(grid, configuration, layout, values, _row_nodes(grid, configuration), Sources.of(grid))
        for kind in ElementKind:
            result._fill(values, kind, np.arange(len(layout.first_row[kind]) - 1), configuration)
        return result

    def at(self, configuration: Configuration) -> Admittance:
        """The same grid in another configuration."""
        configuration.check(self.grid)
        old = self.configuration
        values = self.values.copy()
        switched = self.grid.switches[configuration.switch_open != old.switch_open]
        moved = self.grid.regulated[configuration.tap_pu != old.tap_pu]
        transformers = np.unique(self.grid.winding["transformer"].to_numpy()[moved]).astype(np.int64)
        stepped = np.flatnonzero(configuration.capacitor_steps != old.capacitor_steps)
        for kind, elements in (
            (ElementKind.LINE, switched),
            (ElementKind.TRANSFORMER, transformers),
            (ElementKind.CAPACITOR, stepped),
        ):
            self._fill(values, kind, elements, configuration)
        same_phases = np.array_equal(configuration.group_phase, old.group_phase)
        node = self.node if same_phases else _row_nodes(self.grid, configuration)
        return replace(self, configuration=configuration, values=values, node=node)

    def _fill(self, values: Complex, kind: ElementKind, elements: Ints, configuration: Configuration) -> None:
        """Compute the primitives of these elements into ``values``."""
        first = self.layout.first_value[kind]
        for rows, block in _primitives(self.grid, kind, elements, configuration):
            values[first[rows][:, None] + np.arange(block[0].size)] = block.reshape(len(rows), -1)
        if kind is ElementKind.LINE:
            for row in np.intersect1d(self.grid.switches[configuration.switch_open], elements):
                values[first[row] : first[row + 1]] = 0.0  # an open switch contributes nothing

    @cached_property
    def branch(self) -> csr_array:
        """B [row, node]: currents into every terminal conductor are B V, A."""
        column = self.node[self.layout.column]
        real = column >= 0
        shape = (self.layout.n_rows, self.grid.wiring.n_nodes)
        counts = np.bincount(self.layout.row[real], minlength=shape[0])
        pointer = np.concatenate([[0], np.cumsum(counts)])
        # Values lie row by row already; two conductors on one node stay two entries, which a product does not mind.
        return csr_array((self.values[real], column[real], pointer), shape=shape)

    @cached_property
    def nodal(self) -> csc_array:
        """Y [node, node], sources included."""
        row, column = self.node[self.layout.row], self.node[self.layout.column]
        real = (row >= 0) & (column >= 0)
        n = self.grid.wiring.n_nodes
        return csc_array(coo_array((self.values[real], (row[real], column[real])), shape=(n, n)))

    def currents(self, voltages: Complex128[Complex, "*batch node"]) -> Complex128[Complex, "*batch row"]:
        """Currents into every terminal conductor, A. [..., row] from node voltages [..., node], V."""
        flat = voltages.reshape(-1, voltages.shape[-1])
        return np.asarray((self.branch @ flat.T).T).reshape(*voltages.shape[:-1], self.layout.n_rows)

    def source_currents(self) -> Complex128[Complex, " node"]:
        """Norton currents of all sources into the nodes, A. [node]"""
        return self.sources.injected()


def _row_nodes(grid: Grid, configuration: Configuration) -> Ints:
    return np.concatenate([grid.wiring.nodes_of(_TABLE[kind], configuration.group_phase) for kind in ElementKind])


def winding_taps(grid: Grid, configuration: Configuration) -> Float64[Floats, " winding"]:
    """Tap of every winding: fixed ones from the records, regulated ones from the configuration. [winding]"""
    taps = grid.winding["tap_pu"].to_numpy().astype(np.float64).copy()
    taps[grid.regulated] = configuration.tap_pu
    return np.asarray(taps)


def _primitives(
    grid: Grid, kind: ElementKind, elements: Ints, configuration: Configuration
) -> Iterator[tuple[Ints, Complex]]:
    if not len(elements):
        return
    match kind:
        case ElementKind.LINE:
            yield from primitive.line_primitives(grid, elements)
        case ElementKind.TRANSFORMER:
            yield from primitive.transformer_primitives(grid, elements, winding_taps(grid, configuration))
        case ElementKind.REACTOR:
            yield from primitive.reactor_primitives(grid, elements)
        case ElementKind.CAPACITOR:
            yield from primitive.capacitor_primitives(grid, elements, configuration.capacitor_steps)
        case ElementKind.SUBSTATION:
            yield from primitive.source_primitives(grid, elements)


def terminals_of(grid: Grid, kind: ElementKind) -> Terminals:
    """Terminal conductors behind the rows of a kind; a transformer's are those of its windings in order."""
    return grid.wiring.terminals[_TABLE[kind]]
