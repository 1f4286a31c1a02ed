"""How loads and generators draw current at any voltage: OpenDSS's models, stated and computed by ourselves.

A load of n phases is n equal branches. A wye branch lies between its phase conductor and the load's last conductor
(ground or a neutral), a delta branch between two neighbouring conductors. With m the voltage across a branch, per unit
of its base voltage, and P + jQ the branch's share of demand, a branch draws the current

    I = (P gP(m) - j Q gQ(m)) V / base²,

so that a model is a pair of relative admittances g. Inside the band vmin < m <= vmax they are

    1 constant power        gP = gQ = 1/m²
    2 constant impedance    gP = gQ = 1, at any voltage
    3 motor                 gP = 1/m², gQ = 1
    4 CVR                   gP = m^(cvr_p - 2), gQ = m^(cvr_q - 2)
    5 constant current      gP = gQ = 1/m
    6 fixed Q               gP = gQ = 1/m², with the load's own fixed kvar as Q
    7 fixed X               gP = 1/m², gQ = 1, with the load's own fixed kvar as Q
    8 ZIPV                  g = z + i/m + p/m², times ½ (1 + tanh(500 (m - cutoff))) if cutoff > 0

Above vmax a branch is the impedance that meets its model at vmax: 1/m becomes 1/vmax and 1/m² becomes 1/vmax². At or
below vlow it is its nominal impedance, g = 1. Between vlow and vmin the current is linear in m, from the nominal
impedance's at vlow to the model's at vmin: 1/vmin per unit for 1/m², 1 per unit for 1/m. (3 and 4 use the line of
constant power; ZIPV applies the line to each part.) Models 6 and 7 instead take gP = 1/vmin² there, and as impedance
their fixed kvar at nominal voltage, below vmin and above vmax alike. Some of these jump at vmin or vmax; so do
OpenDSS's.

Generators, PV systems and storage at constant power (their model 1) are such loads with vlow = 0 and negative demand:
constant impedance outside the band.

A load's neutral impedance (rneut, xneut) is not modelled: the engine has it in its system matrix, and takes it out
again as compensation, so that a solution does not depend on it (tested). But the engine gets there slowly or, with a
small impedance, not at all; ``fixed_point.reasons_against`` names such loads.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from mycelium.engine import Engine
from mycelium.grid.grid import Grid
from mycelium.grid.wiring import ragged_ranges
from mycelium.schema import Connection, DerKind
from mycelium.simulate import fixed_point_kernel as kernel

Complex = npt.NDArray[np.complex128]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


class Model(IntEnum):
    """Codes of the voltage dependence, as OpenDSS numbers them."""

    CONSTANT_POWER = kernel.CONSTANT_POWER
    CONSTANT_IMPEDANCE = kernel.CONSTANT_IMPEDANCE
    MOTOR = kernel.MOTOR
    CVR = kernel.CVR
    CONSTANT_CURRENT = kernel.CONSTANT_CURRENT
    FIXED_Q = kernel.FIXED_Q
    FIXED_X = kernel.FIXED_X
    ZIPV = kernel.ZIPV


DER_CLASS = {DerKind.PV: "PVSystem", DerKind.GENERATOR: "Generator", DerKind.STORAGE: "Storage"}


@dataclass(frozen=True)
class LoadModel:
    """Branches of all loads, or of all generators, of a grid.

    Attributes:
        n_loads: Rows of the table (consumer or der).
        n_items: Terminal conductors of the table.
        load: Row of the load a branch belongs to. [branch]
        from_item, to_item: Terminal conductors it lies between. [branch]
        share: Part of the load's power it takes. [branch]
        base_v: Voltage across it at which it takes that power, V. [branch]
        model: Code of ``Model``. [branch]
        parameters: vlow, vmin, vmax in per unit, CVR exponents of P and Q, seven ZIPV coefficients. [branch, 12]
        fixed_kvar: Reactive power of the whole load in models 6 and 7, kvar. [branch]
        sign: 1 where the table's powers are drawn from the network, -1 where they are fed into it.
    """

    n_loads: int
    n_items: int
    load: Ints
    from_item: Ints
    to_item: Ints
    share: Floats
    base_v: Floats
    model: Ints
    parameters: Floats
    fixed_kvar: Floats
    sign: float

    @staticmethod
    def of(engine: Engine, grid: Grid) -> LoadModel:
        """Models of the loads, in the order of the grid's consumers."""
        batch, place = _batch(engine, "Load", grid.consumer["name"].tolist())
        properties = ("VLowpu", "VMinpu", "VMaxpu", "CVRWatts", "CVRVars")
        parameters = np.zeros((len(place), kernel.N_PARAMETERS))
        for column, name in enumerate(properties):
            parameters[:, column] = _read(batch, name, place)
        for row, coefficients in enumerate(_zipv(batch, place)):
            parameters[row, kernel.ZIPV_FIRST : kernel.ZIPV_FIRST + len(coefficients)] = coefficients
        model = _read(batch, "Model", place).astype(np.int64)
        return _branches(grid, "consumer", model, parameters, _read(batch, "kvar", place), 1.0)

    @staticmethod
    def of_ders(engine: Engine, grid: Grid) -> LoadModel:
        """Models of generators, PV systems and storage as constant power, in the order of the grid's ders."""
        parameters = np.zeros((len(grid.der), kernel.N_PARAMETERS))
        for kind, engine_class in DER_CLASS.items():
            rows = np.flatnonzero(grid.der["kind"] == kind)
            batch, place = _batch(engine, engine_class, grid.der["name"].iloc[rows].tolist())
            parameters[rows, kernel.VMIN] = _read(batch, "VMinpu", place)
            parameters[rows, kernel.VMAX] = _read(batch, "VMaxpu", place)
        model = np.full(len(parameters), int(Model.CONSTANT_POWER))
        return _branches(grid, "der", model, parameters, np.zeros(len(parameters)), -1.0)

    @property
    def n_branches(self) -> int:
        return len(self.load)

    def demand(self, p_kw: Floats, q_kvar: Floats) -> tuple[Floats, Floats, Floats]:
        """Powers as the kernels take them, per branch and divided by base², S.

        Args:
            p_kw, q_kvar: At nominal voltage. [hour, load]

        Returns:
            P [branch, hour], Q [branch, hour] and the fixed Q of models 6 and 7 [branch].
        """
        for power in (p_kw, q_kvar):
            if power.ndim != 2 or power.shape[1] != self.n_loads:
                raise ValueError(f"power has shape {power.shape}, expected (hours, {self.n_loads})")
        scale = 1e3 * self.sign * self.share / self.base_v**2
        p, q = (np.ascontiguousarray(power.T[self.load] * scale[:, None]) for power in (p_kw, q_kvar))
        return p, q, self.fixed_kvar * scale

    def terminal_currents(self, v_item: Complex, p_kw: Floats, q_kvar: Floats) -> Complex:
        """Currents from the network into terminal conductors, A. [..., item]

        Args:
            v_item: Voltages of the terminal conductors, 0 at ground, V. [..., item]
            p_kw, q_kvar: Power of each whole load at nominal voltage. [..., load]
        """
        hours = int(np.prod(v_item.shape[:-1]))
        p, q, fixed = self.demand(p_kw.reshape(hours, self.n_loads), q_kvar.reshape(hours, self.n_loads))
        v = to_planes(v_item.reshape(hours, self.n_items))
        return self.currents(v, p, q, fixed).reshape(v_item.shape)

    def currents(self, v_item: Floats, p: Floats, q: Floats, fixed: Floats) -> Complex:
        """Currents from the network into terminal conductors, A. [hour, item]

        Args:
            v_item: Voltages of the terminal conductors, V. [item, 2, hour]
            p, q, fixed: From ``demand``.
        """
        out = np.zeros_like(v_item)
        kernel.add_currents(
            v_item, self.from_item, self.to_item, self.model, self.parameters, self.base_v, p, q, fixed, 1.0, out
        )
        return from_planes(out)


def to_planes(values: Complex) -> Floats:
    """Rows of hours, real and imaginary parts apart, as the kernels want them: [hour, row] to [row, 2, hour]."""
    planes = np.empty((values.shape[1], 2, values.shape[0]))
    planes[:, 0], planes[:, 1] = values.real.T, values.imag.T
    return planes


def from_planes(planes: Floats) -> Complex:
    """The reverse of ``to_planes``: [row, 2, hour] to [hour, row]."""
    values = np.empty((planes.shape[2], planes.shape[0]), dtype=np.complex128)
    values.real, values.imag = planes[:, 0].T, planes[:, 1].T
    return values


def _batch(engine: Engine, engine_class: str, names: list[str]) -> tuple[Any, Ints]:
    """The engine's batch of a class, and the place in it of every name."""
    batch = getattr(engine.alt, engine_class)
    if not names:
        return batch, np.zeros(0, dtype=np.int64)
    found = {str(name).lower(): place for place, name in enumerate(batch.Name)}
    return batch, np.array([found[name] for name in names], dtype=np.int64)


def _read(batch: Any, name: str, place: Ints) -> Floats:
    """A property of the elements at these places of a batch."""
    if not len(place):
        return np.zeros(0)
    values = getattr(batch, name)
    values = values.to_array() if hasattr(values, "to_array") else [float(value) for value in values]
    return np.asarray(values, dtype=np.float64)[place]


def _zipv(batch: Any, place: Ints) -> list[Floats]:
    """ZIPV coefficients of loads, empty where none were given."""
    if not len(place):
        return []
    every = list(batch.ZIPV)
    return [np.asarray(every[k], dtype=np.float64) for k in place]


def _branches(grid: Grid, table: str, model: Ints, parameters: Floats, fixed_kvar: Floats, sign: float) -> LoadModel:
    """One branch per phase of every row of a table; arguments are per row."""
    frame, terminals = grid.tables[table], grid.wiring.terminals[table]
    n_phases = frame["n_phases"].to_numpy().astype(np.int64)
    delta = (frame["connection"] == Connection.DELTA).to_numpy()
    line_to_neutral = ~delta & ((n_phases == 2) | (n_phases == 3))
    base_v = frame["rated_kv"].to_numpy() * 1e3 / np.where(line_to_neutral, np.sqrt(3.0), 1.0)
    load, phase = ragged_ranges(n_phases)
    first = terminals.start[:-1][load]
    n_conductors = np.diff(terminals.start)[load]
    other = np.where(delta[load], (phase + 1) % np.maximum(n_conductors, 1), n_conductors - 1)
    return LoadModel(
        n_loads=len(frame),
        n_items=len(terminals.row),
        load=load,
        from_item=first + phase,
        to_item=first + other,
        share=1.0 / n_phases[load],
        base_v=base_v[load],
        model=model[load],
        parameters=np.ascontiguousarray(parameters[load]),
        fixed_kvar=fixed_kvar[load],
        sign=sign,
    )
