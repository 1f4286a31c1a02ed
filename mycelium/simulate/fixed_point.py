"""Batched fixed-point power flow for days on which no control acts.

Every hour of a day solves Y V = I(sources) - I(loads at V) - I(generators at V) by iterating on V, with one
factorisation of Y for all of them; sources are Norton equivalents inside Y. Y has no part of the loads in it, so it
serves any demand.

Nodes that no source reaches through the nonzero entries of Y are dead: 0 V exactly, and not in the matrix. A load
between a live and a dead node (a neutral that only loads share, say) makes what is dead depend on the load itself: such
loads are named as ``stranded``, and no hour is called converged.

Nodes that are reached, but that nothing ties to ground (behind a delta winding without the engine's ``ppm_antifloat``),
have no voltage of their own: elimination loses their last pivot to rounding. A tiny conductance then holds that one
node at ground (``floating``). No current flows in it, so voltage differences are right, and as the engine has them; the
engine's own common voltage there is rounding.

Load models that jump at vmin or vmax (CVR, as on the EPRI feeders) can give an hour two solutions, each exact, where a
load's voltage is near the jump; the engine may then find the other one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.sparse import coo_array, csc_array, csr_array

from mycelium.engine import Engine
from mycelium.grid.admittance import Admittance
from mycelium.grid.grid import Grid
from mycelium.schema import Connection, DerKind, ElementKind
from mycelium.simulate import fixed_point_factor as factor
from mycelium.simulate import fixed_point_kernel as kernel
from mycelium.simulate.load_model import DER_CLASS, LoadModel, Model

Complex = npt.NDArray[np.complex128]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

TOLERANCE = 1e-9
MAX_ITERATIONS = 100

# Engine classes whose elements act on their own within a day, and elements that the Grid has no model of.
_CONTROLS = (
    "RegControl", "CapControl", "InvControl", "ExpControl", "StorageController", "GenDispatcher", "UPFCControl",
    "ESPVLControl",
)  # fmt: skip
_NOT_MODELLED = (
    "Isource", "VCCS", "UPFC", "VSConverter", "IndMach012", "AutoTrans", "GICLine", "GICsource", "GICTransformer",
    "Generic5", "WindGen", "Equivalent",
)  # fmt: skip
_INVERTERS = ("PVSystem", "Storage")


@dataclass(frozen=True)
class FixedPointResult:
    """A solved day.

    Attributes:
        v: Node voltages, V. [hour, node]
        iterations: Iterations until converged, 0 where not. [hour]
        converged: Whether the voltage change fell below the tolerance and the hour can be trusted. [hour]
        load_currents: Currents from the network into the terminal conductors of consumers, A. [hour, item]
        der_currents: The same for ders, A. [hour, item]
    """

    v: Complex
    iterations: Ints
    converged: Flags
    load_currents: Complex
    der_currents: Complex


@dataclass(frozen=True)
class _Pattern:
    """What depends on structure alone: which nodes are solved, in which order, and where the factors have entries.

    Attributes:
        node: Live nodes. [live node]
        pointer, column: Pattern of the matrix of live nodes, by rows. [live node + 1], [entry]
        passive: Live nodes without a load or generator. [live node]
        order, place: Live node of every place, and back. [place], [live node]
        n_first: Places that do not take part in the iteration.
        lower, lower_column, upper, upper_column: Patterns of the factors, by rows.
    """

    node: Ints
    pointer: Ints
    column: Ints
    passive: Flags
    order: Ints
    place: Ints
    n_first: int
    lower: Ints
    lower_column: Ints
    upper: Ints
    upper_column: Ints

    @staticmethod
    def of(node: Ints, pointer: Ints, column: Ints, passive: Flags) -> _Pattern:
        row = np.repeat(np.arange(len(node)), np.diff(pointer))
        off = row != column
        counts = np.bincount(row[off], minlength=len(node))
        order, n_first, start, count, pool = factor.eliminate(
            np.concatenate([[0], np.cumsum(counts)]), column[off], passive, factor.FILL_PER_EDGE
        )
        place, *factors = factor.factor_pattern(order, start, count, pool)
        return _Pattern(node, pointer, column, passive, order, place, n_first, *factors)

    def fits(self, node: Ints, pointer: Ints, column: Ints, passive: Flags) -> bool:
        return (
            np.array_equal(self.node, node)
            and np.array_equal(self.pointer, pointer)
            and np.array_equal(self.column, column)
            and np.array_equal(self.passive, passive)
        )


class FixedPoint:
    """A network prepared for solving any number of days in one configuration.

    Attributes:
        admittance: The network.
        loads, ders: Models of its consumers and ders.
        dead: Nodes that no source reaches. [node]
        floating: Nodes held at ground by a tiny conductance, one for each part that nothing else ties to it.
        stranded: Names of loads and generators between a live and a dead node.
    """

    _pattern: _Pattern

    def __init__(
        self,
        admittance: Admittance,
        loads: LoadModel,
        ders: LoadModel,
        extra: csc_array | None = None,
        like: FixedPoint | None = None,
    ) -> None:
        """Factorise.

        Args:
            admittance: B and Y of the network.
            loads: Model of its consumers.
            ders: Model of its ders.
            extra: Admittances to add to Y, such as those of a fault, S. [node, node]
            like: Prepared for the same grid: where the pattern is the same, ordering is taken over from it.
        """
        self.admittance, self.loads, self.ders = admittance, loads, ders
        self._connect(like, _sum(admittance.nodal, extra))
        self._attach()

    def _connect(self, like: FixedPoint | None, nodal: csc_array) -> None:
        """Find the live nodes, order and factorise them."""
        grid, phases = self.admittance.grid, self.admittance.configuration.group_phase
        self._load_node = grid.wiring.nodes_of("consumer", phases)
        self._der_node = grid.wiring.nodes_of("der", phases)
        sources = self.admittance.layout.first_row[ElementKind.SUBSTATION]
        source_node = self.admittance.node[sources[0] : sources[-1]]
        rows = _by_rows(nodal)
        pointer, column = rows.indptr.astype(np.int64), rows.indices.astype(np.int64)
        self.dead = ~factor.reached(pointer, column, rows.data, source_node[source_node >= 0])
        node = np.flatnonzero(~self.dead)
        if len(node) < len(self.dead):
            rows = rows[node][:, node]
            pointer, column = rows.indptr.astype(np.int64), rows.indices.astype(np.int64)
        active = np.zeros(len(self.dead) + 1, dtype=bool)  # ground, -1, is the last
        active[self._load_node], active[self._der_node] = True, True
        key = (node, pointer, column, ~active[node])
        pattern = like._pattern if like is not None and like._pattern.fits(*key) else _Pattern.of(*key)
        self._pattern = pattern
        self._below, self._above, self._inverse, floating = factor.factorise(
            pointer, column, rows.data, pattern.order, pattern.place,
            pattern.lower, pattern.lower_column, pattern.upper, pattern.upper_column,
        )  # fmt: skip
        self.floating = node[pattern.order[floating]]

    def _attach(self) -> None:
        """Eliminate the sources, and tie loads and ders to the rows that iterate."""
        pattern, grid = self._pattern, self.admittance.grid
        solved = pattern.node[pattern.order]
        first = pattern.n_first
        b = self.admittance.source_currents()[solved]
        factor.forward_one(first, pattern.lower, pattern.lower_column, self._below, b)
        self._passive, self._base = b[:first].copy(), b[first:].copy()
        self._per_base = 1.0 / (1e3 * grid.bus["base_kv"].to_numpy()[grid.wiring.bus[solved[first:]]])
        row = np.full(len(self.dead) + 1, len(self._base))  # ground and dead nodes share the last row, at 0 V
        row[solved[first:]] = np.arange(len(self._base))
        self._load_row, self._der_row = row[self._load_node], row[self._der_node]
        self.stranded = [
            *grid.consumer["name"].iloc[self._stranded(self.loads, self._load_node)],
            *grid.der["name"].iloc[self._stranded(self.ders, self._der_node)],
        ]
        parts = ((self.loads, self._load_row), (self.ders, self._der_row))
        self._start = np.concatenate([rows[model.from_item] for model, rows in parts])
        self._end = np.concatenate([rows[model.to_item] for model, rows in parts])
        self._model = np.concatenate([self.loads.model, self.ders.model])
        self._parameters = np.concatenate([self.loads.parameters, self.ders.parameters])
        self._base_v = np.concatenate([self.loads.base_v, self.ders.base_v])
        no_load = np.zeros((len(self._base) + 1, 2, 1))
        nothing = np.zeros((self.loads.n_branches + self.ders.n_branches, 1))
        self._iterate(no_load, nothing, nothing, np.zeros(len(nothing)), np.inf, 1)
        self._no_load = no_load

    def _stranded(self, model: LoadModel, node: Ints) -> Ints:
        """Rows of loads with a branch between a live and a dead node."""
        dead, live = np.append(self.dead, False)[node], np.append(~self.dead, False)[node]  # ground is neither
        start, end = model.from_item, model.to_item
        return np.unique(model.load[(live[start] & dead[end]) | (dead[start] & live[end])])

    def _iterate(self, v: Floats, p: Floats, q: Floats, fixed: Floats, tolerance: float, max_iterations: int) -> Ints:
        """Iterate on v in place: all hours, then those that are left when most have converged."""
        n_hours = v.shape[2]
        needed = self._iterate_hours(v, p, q, fixed, tolerance, max_iterations, n_hours // 3)
        left = np.flatnonzero(needed == 0)
        if len(left) and len(left) <= n_hours // 3:
            done = int(needed.max())
            rest = np.ascontiguousarray(v[:, :, left])
            more = self._iterate_hours(
                rest, np.ascontiguousarray(p[:, left]), np.ascontiguousarray(q[:, left]), fixed,
                tolerance, max_iterations - done, 0,
            )  # fmt: skip
            v[:, :, left] = rest
            needed[left] = np.where(more > 0, done + more, 0)
        return needed

    def _iterate_hours(
        self, v: Floats, p: Floats, q: Floats, fixed: Floats, tolerance: float, max_iterations: int, few: int
    ) -> Ints:
        pattern = self._pattern
        return kernel.iterate(
            v, self._base, pattern.n_first,
            pattern.lower, pattern.lower_column, self._below,
            pattern.upper, pattern.upper_column, self._above, self._inverse,
            self._start, self._end, self._model, self._parameters, self._base_v, p, q, fixed,
            self._per_base, tolerance, max_iterations, few,
        )  # fmt: skip

    def solve(
        self,
        p_kw: Floats,
        q_kvar: Floats,
        der_p_kw: Floats,
        der_q_kvar: Floats,
        tolerance: float = TOLERANCE,
        max_iterations: int = MAX_ITERATIONS,
    ) -> FixedPointResult:
        """Solve all hours at once, starting from the network without loads.

        Args:
            p_kw, q_kvar: Power of each load at nominal voltage. [hour, load]
            der_p_kw, der_q_kvar: Power each der feeds into the network. [hour, der]
            tolerance: Largest voltage change of an iteration, per unit, at which an hour has converged. It is looked
                at where loads and generators are: all other voltages are linear in these.
            max_iterations: After these, what has not converged is reported as such.
        """
        p, q, fixed = self.loads.demand(p_kw, q_kvar)
        der_p, der_q, der_fixed = self.ders.demand(der_p_kw, der_q_kvar)
        pattern, n_hours = self._pattern, len(p_kw)
        v = np.repeat(self._no_load, n_hours, axis=2)
        iterations = self._iterate(
            v, np.concatenate([p, der_p]), np.concatenate([q, der_q]), np.concatenate([fixed, der_fixed]),
            tolerance, max_iterations,
        )  # fmt: skip
        everywhere = np.zeros((n_hours, len(self.dead)), dtype=np.complex128)
        kernel.recover(
            v, self._passive, pattern.node[pattern.order], pattern.upper, pattern.upper_column,
            self._above, self._inverse, everywhere,
        )  # fmt: skip
        return FixedPointResult(
            v=everywhere,
            iterations=iterations,
            converged=(iterations > 0) & np.isfinite(v.sum(axis=(0, 1))) & (not self.stranded),
            load_currents=self.loads.currents(v[self._load_row], p, q, fixed),
            der_currents=self.ders.currents(v[self._der_row], der_p, der_q, der_fixed),
        )


def _sum(nodal: csc_array, extra: csc_array | None) -> csc_array:
    """Both added up; entries that are zero stay in the pattern, so that it is the same whatever is open."""
    if extra is None:
        return nodal
    parts = [(matrix.data, matrix.indices, _columns(matrix)) for matrix in (nodal, extra)]
    data, row, column = (np.concatenate(items) for items in zip(*parts, strict=True))
    return csc_array(coo_array((data, (row, column)), shape=nodal.shape))


def _by_rows(nodal: csc_array) -> csr_array:
    """The matrix by rows, with zeros put in where the pattern is not symmetric."""
    rows = csr_array(nodal)
    if np.array_equal(rows.indptr, nodal.indptr) and np.array_equal(rows.indices, nodal.indices):
        return rows
    row, column = nodal.indices, _columns(nodal)
    data = np.concatenate([nodal.data, np.zeros_like(nodal.data)])
    both = (np.concatenate([row, column]), np.concatenate([column, row]))
    return csr_array(coo_array((data, both), shape=nodal.shape))


def _columns(matrix: csc_array) -> Ints:
    """Column of every entry."""
    return np.repeat(np.arange(matrix.shape[1]), np.diff(matrix.indptr))


def reasons_against(engine: Engine, grid: Grid, controls_frozen: bool = False) -> list[str]:
    """Why the fixed point would not be a solution of this circuit; empty where it is.

    Powers of generators, PV systems and storage are taken as given at their terminals, so what decides them (shapes,
    efficiency and temperature curves, dispatch, state of charge) is no reason; how they follow the voltage is.

    Args:
        engine: The compiled circuit.
        grid: Its Grid.
        controls_frozen: Nothing acts: taps, steps and set-points stay where they are.
    """
    present = {str(name).lower(): str(name) for name in engine.dss.Classes}
    reasons = []
    for group, what in ((_CONTROLS, "acts during the day"), (_NOT_MODELLED, "is not modelled")):
        if group is _CONTROLS and controls_frozen:
            continue
        for engine_class in group:
            members = _enabled(engine, engine_class) if engine_class.lower() in present else []
            reasons += [f"{engine_class}.{name} {what}" for name in members]
    return reasons + _load_reasons(engine, grid) + _der_reasons(engine, grid)


def _enabled(engine: Engine, engine_class: str) -> list[str]:
    circuit = engine.dss.ActiveCircuit
    engine.dss.SetActiveClass(engine_class)
    names = [str(name).lower() for name in circuit.ActiveClass.AllNames if str(name).lower() != "none"]
    enabled = []
    for name in names:
        circuit.SetActiveElement(f"{engine_class}.{name}")
        if circuit.ActiveCktElement.Enabled:
            enabled.append(name)
    return enabled


def _load_reasons(engine: Engine, grid: Grid) -> list[str]:
    loads = LoadModel.of(engine, grid)
    names = grid.consumer["name"].to_numpy()
    known = np.isin(loads.model, [int(code) for code in Model])
    unset = (loads.model == Model.ZIPV) & ~loads.parameters[:, kernel.ZIPV_FIRST :].any(axis=1)
    reasons = [f"load.{names[row]} has a model without parameters" for row in np.unique(loads.load[unset | ~known])]
    items = grid.wiring.terminals["consumer"]
    on_neutral = (items.conductor[items.start[1:] - 1] > 0) & (grid.consumer["connection"] == Connection.WYE).to_numpy()
    for row in np.flatnonzero(on_neutral):
        if engine.alt.Load[names[row]].RNeut >= 0:
            reasons.append(f"load.{names[row]} has a neutral impedance beside its neutral conductor")
    return reasons


def _der_reasons(engine: Engine, grid: Grid) -> list[str]:
    reasons = []
    for row, name in enumerate(grid.der["name"]):
        engine_class = DER_CLASS[DerKind(grid.der["kind"].iat[row])]
        device = getattr(engine.alt, engine_class)[name]
        full = f"{engine_class}.{name}"
        if int(device.Model) != Model.CONSTANT_POWER:
            reasons.append(f"{full} is not at constant power")
        if grid.der["n_phases"].iat[row] == 1 and grid.der["connection"].iat[row] == Connection.DELTA:
            reasons.append(f"{full} is single-phase delta, which OpenDSS scales by a third outside its voltage band")
        if engine_class in _INVERTERS and (bool(device.LimitCurrent) or bool(device.Balanced)):
            reasons.append(f"{full} limits or balances its current")
    return reasons
