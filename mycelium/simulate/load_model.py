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
constant impedance outside the band. A load's neutral impedance (rneut, xneut) is not modelled, because the engine,
which has it in its system matrix, takes it out again as compensation: solutions do not depend on it (tested).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from mycelium.engine import Engine
from mycelium.grid.grid import Grid
from mycelium.grid.wiring import ragged_ranges
from mycelium.schema import Connection, DerKind

Complex = npt.NDArray[np.complex128]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


class Model(IntEnum):
    """Codes of the voltage dependence, as OpenDSS numbers them."""

    CONSTANT_POWER = 1
    CONSTANT_IMPEDANCE = 2
    MOTOR = 3
    CVR = 4
    CONSTANT_CURRENT = 5
    FIXED_Q = 6
    FIXED_X = 7
    ZIPV = 8


_POWER, _IMPEDANCE, _MOTOR, _CVR, _CURRENT, _FIXED_Q, _FIXED_X, _ZIPV = (int(model) for model in Model)
# Columns of the parameters of a branch.
VLOW, VMIN, VMAX, CVR_P, CVR_Q, ZIPV_FIRST = range(6)
N_PARAMETERS = ZIPV_FIRST + 7
_CUTOFF_SLOPE = 500.0
_LOG = tuple(1.0 / (2 * k + 1) for k in range(8))  # artanh(z) / z in powers of z²
_EXP = tuple(1.0 / math.factorial(k) for k in range(10))

_DER_CLASS = {DerKind.PV: "PVSystem", DerKind.GENERATOR: "Generator", DerKind.STORAGE: "Storage"}


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
        parameters = np.zeros((len(place), N_PARAMETERS))
        for column, name in enumerate(properties):
            parameters[:, column] = _read(batch, name, place)
        for row, coefficients in enumerate(_zipv(batch, place)):
            parameters[row, ZIPV_FIRST : ZIPV_FIRST + len(coefficients)] = coefficients
        model = _read(batch, "Model", place).astype(np.int64)
        return _branches(grid, "consumer", model, parameters, _read(batch, "kvar", place), 1.0)

    @staticmethod
    def of_ders(engine: Engine, grid: Grid) -> LoadModel:
        """Models of generators, PV systems and storage as constant power, in the order of the grid's ders."""
        parts = []
        for kind, engine_class in _DER_CLASS.items():
            names = grid.der["name"][grid.der["kind"] == kind].tolist()
            batch, place = _batch(engine, engine_class, names)
            parameters = np.zeros((len(place), N_PARAMETERS))
            parameters[:, VMIN] = _read(batch, "VMinpu", place)
            parameters[:, VMAX] = _read(batch, "VMaxpu", place)
            parts.append(parameters)
        parameters = np.concatenate(parts)
        model = np.full(len(parameters), int(Model.CONSTANT_POWER))
        return _branches(grid, "der", model, parameters, np.zeros(len(parameters)), -1.0)

    @property
    def n_branches(self) -> int:
        return len(self.load)

    def demand(self, p_kw: Floats, q_kvar: Floats) -> tuple[Floats, Floats, Floats]:
        """Powers as ``add_currents`` takes them, per branch and divided by base², S.

        Args:
            p_kw, q_kvar: At nominal voltage. [hour, load]

        Returns:
            P [branch, hour], Q [branch, hour] and the fixed Q of models 6 and 7 [branch].
        """
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
        add_currents(
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


def _branches(
    grid: Grid, table: str, model: Ints, parameters: Floats, fixed_kvar: Floats, sign: float
) -> LoadModel:
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


# Kernels. Divisions follow IEEE rules (error_model), conditions are selections, and loops run over contiguous hours:
# so they become vector instructions.
_planes = "float64[:, :, ::1]"
_table = "float64[:, ::1]"
_list = "float64[::1]"
_index = "int64[::1]"
_flags = "boolean[::1]"


@numba.njit("float64(float64, float64)", cache=True, fastmath=False, nogil=True, error_model="numpy")
def _power(m: float, exponent: float) -> float:
    """m ** exponent for m in [½, 2] and exponents of up to 2, to 1e-14: unlike the C library's, it vectorises.

    The exponential of the logarithm of the fourth root, both by series, to the sixteenth power.
    """
    root = np.sqrt(np.sqrt(m))
    z = (root - 1.0) / (root + 1.0)
    s = z * z
    l4 = ((_LOG[7] * s + _LOG[6]) * s + _LOG[5]) * s + _LOG[4]
    y = 0.5 * exponent * z * ((((l4 * s + _LOG[3]) * s + _LOG[2]) * s + _LOG[1]) * s + 1.0)
    e5 = (((_EXP[9] * y + _EXP[8]) * y + _EXP[7]) * y + _EXP[6]) * y + _EXP[5]
    result = ((((e5 * y + _EXP[4]) * y + _EXP[3]) * y + _EXP[2]) * y + 1.0) * y + 1.0
    result *= result
    result *= result
    result *= result
    return result * result


@numba.njit(
    f"void({_list}, {_list}, {_list}, {_list}, {_flags}, {_flags})",
    cache=True, fastmath=False, nogil=True, error_model="numpy",
)  # fmt: skip
def _lines(m: Floats, parameters: Floats, power: Floats, current: Floats, low: Flags, inside: Flags) -> None:
    """What 1/m² and 1/m become at any voltage; at or below vlow both are 1. All arrays are [hour]."""
    vlow, vmin, vmax = parameters[VLOW], parameters[VMIN], parameters[VMAX]
    span = vmin - vlow if vmin > vlow else 1.0
    floor = vmin if vmin > vlow else 1.0
    rise_power, rise_current = (1.0 / floor - vlow) / span, (1.0 - vlow) / span
    top = vmax if vmax != 0.0 else 1.0  # the engine's reading of "no upper limit"
    for h in range(len(m)):
        of_m = 1.0 / m[h]
        below, above = m[h] <= vmin, m[h] > vmax
        low[h] = m[h] <= vlow
        inside[h] = not (low[h] | below | above)
        band_power, band_current = (1.0 / (top * top), 1.0 / top) if above else (of_m * of_m, of_m)
        if below:
            band_power = (vlow + rise_power * (m[h] - vlow)) * of_m
            band_current = (vlow + rise_current * (m[h] - vlow)) * of_m
        power[h] = 1.0 if low[h] else band_power
        current[h] = 1.0 if low[h] else band_current


@numba.njit(
    f"void({_list}, int64, {_list}, {_list}, {_list}, float64, {_table}, {_flags}, {_flags}, {_list}, {_list})",
    cache=True, fastmath=False, nogil=True, error_model="numpy",
)  # fmt: skip
def _admittance(
    m: Floats, model: int, parameters: Floats, p: Floats, q: Floats, fixed: float,
    work: Floats, low: Flags, inside: Flags, g: Floats, b: Floats,
) -> None:  # fmt: skip
    """Conductance P gP(m) and susceptance -Q gQ(m) of one branch, in the unit of p, q and fixed. [hour]"""
    power, current = work[0], work[1]
    _lines(m, parameters, power, current, low, inside)
    if model == _IMPEDANCE:
        for h in range(len(m)):
            g[h], b[h] = p[h], -q[h]
    elif model == _MOTOR:
        for h in range(len(m)):
            g[h], b[h] = p[h] * power[h], -q[h] * (1.0 if inside[h] else power[h])
    elif model == _CVR:
        of_p, of_q = parameters[CVR_P] - 2.0, parameters[CVR_Q] - 2.0
        in_series = parameters[VMIN] >= 0.5 and parameters[VMAX] <= 2.0 and max(abs(of_p), abs(of_q)) <= 2.0
        for h in range(len(m)):
            current[h] = m[h] if inside[h] else 1.0
        if in_series:
            for h in range(len(m)):
                g[h], b[h] = _power(current[h], of_p), _power(current[h], of_q)
        else:
            for h in range(len(m)):
                g[h], b[h] = current[h] ** of_p, current[h] ** of_q
        for h in range(len(m)):
            g[h], b[h] = p[h] * (g[h] if inside[h] else power[h]), -q[h] * (b[h] if inside[h] else power[h])
    elif model == _CURRENT:
        for h in range(len(m)):
            g[h], b[h] = p[h] * current[h], -q[h] * current[h]
    elif model == _FIXED_Q or model == _FIXED_X:
        vmin = parameters[VMIN]
        for h in range(len(m)):
            between = (m[h] <= vmin) & (not low[h])
            g[h] = p[h] * (1.0 / (vmin * vmin) if between else power[h])
            constant_q = inside[h] & (model == _FIXED_Q)
            b[h] = -q[h] if low[h] else -fixed * (power[h] if constant_q else 1.0)
    elif model == _ZIPV:
        z = parameters[ZIPV_FIRST:]
        for h in range(len(m)):
            remains = 1.0 if z[6] <= 0.0 else 0.5 * (1.0 + np.tanh(_CUTOFF_SLOPE * (m[h] - z[6])))
            of_p = remains * (z[0] + z[1] * current[h] + z[2] * power[h])
            of_q = remains * (z[3] + z[4] * current[h] + z[5] * power[h])
            g[h], b[h] = p[h] * (1.0 if low[h] else of_p), -q[h] * (1.0 if low[h] else of_q)
    else:
        for h in range(len(m)):
            g[h], b[h] = p[h] * power[h], -q[h] * power[h]


@numba.njit(
    f"void({_planes}, {_index}, {_index}, {_index}, {_table}, {_list}, {_table}, {_table}, {_list}, float64, {_planes})",
    cache=True, fastmath=False, nogil=True, error_model="numpy",
)  # fmt: skip
def add_currents(
    v: Floats, start: Ints, end: Ints, model: Ints, parameters: Floats, base_v: Floats,
    p: Floats, q: Floats, fixed: Floats, sign: float, out: Floats,
) -> None:  # fmt: skip
    """Add sign times the branch currents to ``out`` at their start, and take them away at their end.

    Args:
        v: Voltages of rows (items or nodes), V. [row, 2, hour]
        start, end: Rows a branch lies between. [branch]
        model, parameters, base_v: As in ``LoadModel``. [branch], [branch, 12], [branch]
        p, q, fixed: From ``LoadModel.demand``. [branch, hour], [branch, hour], [branch]
        sign: 1 for currents out of the rows.
        out: Currents of rows, A. [row, 2, hour]
    """
    n_hours = v.shape[2]
    work = np.empty((7, n_hours))
    dr, di, g, b, m = work[2], work[3], work[4], work[5], work[6]
    low, inside = np.empty(n_hours, dtype=np.bool_), np.empty(n_hours, dtype=np.bool_)
    for branch in range(len(start)):
        i, j = start[branch], end[branch]
        per_volt = 1.0 / (base_v[branch] * base_v[branch])
        bottom = max(parameters[branch, VLOW], parameters[branch, VMIN]) ** 2
        top = parameters[branch, VMAX] ** 2
        elsewhere = 0
        for h in range(n_hours):
            dr[h] = v[i, 0, h] - v[j, 0, h]
            di[h] = v[i, 1, h] - v[j, 1, h]
            m[h] = (dr[h] * dr[h] + di[h] * di[h]) * per_volt
            elsewhere += (m[h] <= bottom) | (m[h] > top)
        if elsewhere or model[branch] != _POWER:
            for h in range(n_hours):
                m[h] = np.sqrt(m[h])
            _admittance(
                m, model[branch], parameters[branch], p[branch], q[branch], fixed[branch], work, low, inside, g, b
            )
        else:  # constant power inside its band, by far the most common
            for h in range(n_hours):
                power = 1.0 / m[h]
                g[h], b[h] = p[branch, h] * power, -q[branch, h] * power
        for h in range(n_hours):
            real = sign * (g[h] * dr[h] - b[h] * di[h])
            imag = sign * (g[h] * di[h] + b[h] * dr[h])
            out[i, 0, h] += real
            out[i, 1, h] += imag
            out[j, 0, h] -= real
            out[j, 1, h] -= imag
