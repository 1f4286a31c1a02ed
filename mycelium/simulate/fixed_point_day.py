"""Days solved by the fixed point instead of the engine, where no control acts and the engine, as judge, agrees."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.sparse import coo_array, csc_array

from mycelium.engine import Engine
from mycelium.grid.admittance import Admittance
from mycelium.grid.grid import Configuration, Grid
from mycelium.grid.primitive import line_block, unpack
from mycelium.grid.wiring import parse_conductors
from mycelium.schema import GROUND, HIDDEN, HOURS, ElementKind, FaultPlace
from mycelium.simulate.fault import NEUTRAL, Fault, faulted_bus, legs
from mycelium.simulate.fixed_point import FixedPoint, FixedPointResult, reasons_against
from mycelium.simulate.load_model import LoadModel
from mycelium.simulate.shapes import Demand

Complex = npt.NDArray[np.complex128]
Ints = npt.NDArray[np.int64]

AGREEMENT_PU = 1e-6


def not_valid_because(engine: Engine, grid: Grid) -> list[str]:
    """Why days of this network need the engine; empty if the fixed point will do."""
    reasons = reasons_against(engine, grid)
    if len(grid.der):
        reasons.append("what generators, storage and PV feed in is decided by the engine")
    return reasons


class FixedPointDays:
    """Solves the days of one circuit. The ordering of the factorisation is kept from case to case."""

    def __init__(self, engine: Engine, grid: Grid, recorded: Configuration) -> None:
        self._grid = grid
        self._loads, self._ders = LoadModel.of(engine, grid), LoadModel.of_ders(engine, grid)
        self._admittance = Admittance.of(grid, recorded)
        self._prepared = FixedPoint(self._admittance, self._loads, self._ders)

    def solve(
        self, configuration: Configuration, demand: Demand, fault: Fault | None
    ) -> tuple[FixedPointResult, Complex] | None:
        """All hours and the inside of a faulted line; None where an hour did not converge.

        Returns:
            The result with voltages [hour, node], and voltages inside a faulted line [conductor].
        """
        self._admittance = self._admittance.at(configuration)
        self._prepared = FixedPoint(self._admittance, self._loads, self._ders, like=self._prepared)
        p, q = demand.p_kw.T, demand.q_kvar.T
        none = np.zeros((HOURS, 0))
        if fault is None:
            result = self._prepared.solve(p, q, none, none)
            return (result, np.zeros(0, dtype=np.complex128)) if result.converged.all() else None
        before = self._prepared.solve(p[:-1], q[:-1], none[:-1], none[:-1])
        last, interior = self._faulted_hour(p[-1:], q[-1:], fault)
        if not (before.converged.all() and last.converged.all()):
            return None
        return FixedPointResult(
            v=np.concatenate([before.v, last.v]),
            iterations=np.concatenate([before.iterations, last.iterations]),
            converged=np.concatenate([before.converged, last.converged]),
            load_currents=np.concatenate([before.load_currents, last.load_currents]),
            der_currents=np.concatenate([before.der_currents, last.der_currents]),
        ), interior

    def _faulted_hour(
        self, p: npt.NDArray[np.float64], q: npt.NDArray[np.float64], fault: Fault
    ) -> tuple[FixedPointResult, Complex]:
        none = np.zeros((1, 0))
        if fault.place is FaultPlace.LINE:
            line = FaultedLine.of(self._grid, self._admittance, fault)
            point = FixedPoint(
                self._admittance, self._loads, self._ders, extra=line.change(self._admittance), like=self._prepared
            )
            result = point.solve(p, q, none, none)
            return result, line.interior(result.v[0])
        extra = fault_admittance(self._grid, faulted_bus(self._grid, fault), fault)
        point = FixedPoint(self._admittance, self._loads, self._ders, extra=extra, like=self._prepared)
        return point.solve(p, q, none, none), np.zeros(0, dtype=np.complex128)


@dataclass(frozen=True)
class FaultedLine:
    """Two sections and a fault between them, seen from the line's ends: the interior is linear and eliminated.

    Attributes:
        node: Nodes of the line's terminal conductors, -1 for ground. [2 n]
        reduced: Admittance between the ends with the fault. [2 n, 2 n]
        whole: Admittance of the sound line. [2 n, 2 n]
        inside: Interior voltages per end voltage. [n, 2 n]
    """

    node: Ints
    reduced: Complex
    whole: Complex
    inside: Complex

    @staticmethod
    def of(grid: Grid, admittance: Admittance, fault: Fault) -> FaultedLine:
        row = np.array([fault.element])
        sizes = grid.line["n_conductors"].to_numpy().astype(np.int64)
        n = int(sizes[fault.element])
        r, x, c = (unpack(grid.matrices[name], sizes, row) for name in ("line_r_ohm", "line_x_ohm", "line_c_nf"))
        z = np.asarray(r + 1j * x, dtype=np.complex128)
        first, second = (line_block(z * share, c * share, grid.frequency_hz)[0] for share in _shares(fault))
        conductors = parse_conductors(grid.line["conductors1"].iloc[row])[0]
        middle = first[n:, n:] + second[:n, :n] + _between(conductors, fault)
        to_middle = np.concatenate([first[n:, :n], second[:n, n:]], axis=1)
        from_middle = np.concatenate([first[:n, n:], second[n:, :n]], axis=0)
        ends = np.zeros((2 * n, 2 * n), dtype=np.complex128)
        ends[:n, :n], ends[n:, n:] = first[:n, :n], second[n:, n:]
        inside = -np.linalg.solve(middle, to_middle)
        layout = admittance.layout
        start = layout.first_value[ElementKind.LINE]
        whole = admittance.values[start[fault.element] : start[fault.element + 1]].reshape(2 * n, 2 * n)
        node = admittance.node[layout.rows_of(ElementKind.LINE, fault.element)]
        return FaultedLine(node, ends + from_middle @ inside, whole, inside)

    def change(self, admittance: Admittance) -> csc_array:
        """What the fault changes in Y. [node, node]"""
        real = self.node >= 0
        i, j = np.meshgrid(self.node[real], self.node[real], indexing="ij")
        values = (self.reduced - self.whole)[np.ix_(real, real)]
        n = admittance.grid.wiring.n_nodes
        return csc_array(coo_array((values.ravel(), (i.ravel(), j.ravel())), shape=(n, n)))

    def interior(self, v: Complex) -> Complex:
        """Interior voltages from node voltages, V. [conductor]"""
        return np.asarray(self.inside @ np.where(self.node >= 0, v[self.node], 0.0))


def _shares(fault: Fault) -> tuple[float, float]:
    return fault.x, 1.0 - fault.x


def _between(conductors: Ints, fault: Fault) -> Complex:
    """Admittance of a fault among the conductors inside a line, S. [conductor, conductor]"""
    place = {int(conductor): k for k, conductor in enumerate(conductors)}
    y = np.zeros((len(conductors), len(conductors)), dtype=np.complex128)
    for a, b, siemens in legs(fault, has_neutral=NEUTRAL in place):
        ends = [place[conductor] for conductor in (a, b) if conductor != GROUND]
        for i in ends:
            for j in ends:
                y[i, j] += siemens if i == j else -siemens
    return y


def fault_admittance(grid: Grid, bus: int, fault: Fault) -> csc_array:
    """What a fault at a bus adds to Y. [node, node]"""
    conductors = grid.wiring.conductor[grid.wiring.nodes_at(bus)]
    rows, columns, values = [], [], []
    for a, b, siemens in legs(fault, has_neutral=bool(np.any(conductors == NEUTRAL))):
        ends = [_node(grid, bus, conductor) for conductor in (a, b) if conductor != GROUND]
        for i in ends:
            for j in ends:
                rows.append(i)
                columns.append(j)
                values.append(siemens if i == j else -siemens)
    n = grid.wiring.n_nodes
    return csc_array(coo_array((np.array(values, np.complex128), (rows, columns)), shape=(n, n)))


def _node(grid: Grid, bus: int, conductor: int) -> int:
    node = int(grid.wiring.find(np.array([bus]), np.array([conductor]))[0])
    if node < 0:
        name = grid.bus["name"].iat[bus]
        raise ValueError(f"bus {name} has no conductor {'?' if conductor == HIDDEN else conductor}")
    return node
