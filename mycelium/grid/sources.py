"""Sources as Norton equivalents: what they send follows from the voltages at their terminals."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from jaxtyping import Complex128, Int64
from scipy.linalg import block_diag

from mycelium.grid import primitive
from mycelium.grid.grid import Grid

Complex = npt.NDArray[np.complex128]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Sources:
    """All sources of a grid.

    Attributes:
        node: Node of each terminal conductor, -1 for ground. [item]
        admittance: Their primitive admittances. [item, item]
        norton: Currents they would send out of each terminal conductor into a short circuit, A. [item]
        n_nodes: Nodes of the grid.
    """

    node: Int64[Ints, " item"]
    admittance: Complex128[Complex, "item item"]
    norton: Complex128[Complex, " item"]
    n_nodes: int

    @staticmethod
    def of(grid: Grid) -> Sources:
        # A source is on known conductors: no phase of a group can matter.
        node = grid.wiring.nodes_of("substation", np.zeros(grid.n_groups, dtype=np.int8))
        blocks, norton = [], []
        for row in range(len(grid.substation)):
            y = np.linalg.inv(primitive.source_impedance(grid, row))
            into = y @ primitive.source_voltages(grid, row)
            blocks.append(primitive.two_terminal(y[None])[0])
            norton += [into, -into]
        return Sources(node, block_diag(*blocks), np.concatenate(norton), grid.wiring.n_nodes)

    def currents(self, v: Complex128[Complex, "*batch node"]) -> Complex128[Complex, "*batch item"]:
        """Currents into the sources' terminal conductors, A. [..., item] from node voltages [..., node], V."""
        at = np.where(self.node >= 0, v[..., self.node], 0.0)
        return np.asarray(at @ self.admittance.T - self.norton)

    def injected(self) -> Complex128[Complex, " node"]:
        """Norton currents of all sources into the nodes, A. [node]"""
        result = np.zeros(self.n_nodes, dtype=np.complex128)
        np.add.at(result, self.node[self.node >= 0], self.norton[self.node >= 0])
        return result
