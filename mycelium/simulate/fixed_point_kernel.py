"""Compiled kernels: currents of load branches, and the fixed-point iteration for many hours at once.

Values lie side by side as planes [row, 2, hour], real parts then imaginary parts. The innermost loops run over
contiguous hours, with selections instead of conditions and divisions by IEEE rules (error_model), so that they become
vector instructions. Everything runs in one thread in a fixed order: results are the same bits every time.

All that ``iterate`` calls is in this file, because numba's cache of a function does not see changes in other files.
"""

from __future__ import annotations

import math

import numba
import numpy as np
import numpy.typing as npt

Complex = npt.NDArray[np.complex128]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

# Codes of the voltage dependence, as OpenDSS numbers them; ``load_model`` states what they mean.
CONSTANT_POWER, CONSTANT_IMPEDANCE, MOTOR, CVR, CONSTANT_CURRENT, FIXED_Q, FIXED_X, ZIPV = range(1, 9)
# Columns of the parameters of a branch.
VLOW, VMIN, VMAX, CVR_P, CVR_Q, ZIPV_FIRST = range(6)
N_PARAMETERS = ZIPV_FIRST + 7

SLOW = 0.3  # an hour whose step shrinks to no less than this part of the one before is accelerated
_DEPTH = 8  # earlier iterates in a mixture
_SAMPLED_ROWS = 256  # rows whose residuals decide its weights: slow directions are few, so few rows tell them apart
_RIDGE = 1e-12

_CUTOFF_SLOPE = 500.0
_LOG = tuple(1.0 / (2 * k + 1) for k in range(8))  # artanh(z) / z in powers of z²
_EXP = tuple(1.0 / math.factorial(k) for k in range(10))

_planes = "float64[:, :, ::1]"
_kept = "float64[:, :, :, ::1]"
_table = "float64[:, ::1]"
_reals = "float64[::1]"
_ints = "int64[::1]"
_complex = "complex128[::1]"
_bools = "boolean[::1]"


@numba.njit("float64(float64, float64)", cache=True, fastmath=False, nogil=True, error_model="numpy")
def _power(m: float, exponent: float) -> float:
    """m ** exponent for m in [½, 2] and exponents of up to 2, to 1e-14: unlike the C library's, it vectorises.

    The exponential of the logarithm of the fourth root, both by series, to the sixteenth power.
    """
    root: float = np.sqrt(np.sqrt(m))
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
    f"void({_reals}, {_reals}, {_reals}, {_reals}, {_bools}, {_bools})",
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


@numba.njit(f"boolean({_reals})", cache=True, nogil=True)
def _in_series(parameters: Floats) -> bool:
    """Whether ``_power`` holds everywhere between vmin and vmax of a CVR branch."""
    exponent = max(abs(parameters[CVR_P] - 2.0), abs(parameters[CVR_Q] - 2.0))
    return bool(parameters[VMIN] >= 0.5 and parameters[VMAX] <= 2.0 and exponent <= 2.0)


@numba.njit(
    f"void({_reals}, int64, {_reals}, {_reals}, {_reals}, float64, {_table}, {_bools}, {_bools}, {_reals}, {_reals})",
    cache=True, fastmath=False, nogil=True, error_model="numpy",
)  # fmt: skip
def _admittance(
    m: Floats, model: int, parameters: Floats, p: Floats, q: Floats, fixed: float,
    work: Floats, low: Flags, inside: Flags, g: Floats, b: Floats,
) -> None:  # fmt: skip
    """Conductance P gP(m) and susceptance -Q gQ(m) of one branch, in the unit of p, q and fixed. [hour]"""
    power, current = work[0], work[1]
    _lines(m, parameters, power, current, low, inside)
    if model == CONSTANT_IMPEDANCE:
        for h in range(len(m)):
            g[h], b[h] = p[h], -q[h]
    elif model == MOTOR:
        for h in range(len(m)):
            g[h], b[h] = p[h] * power[h], -q[h] * (1.0 if inside[h] else power[h])
    elif model == CVR:
        of_p, of_q = parameters[CVR_P] - 2.0, parameters[CVR_Q] - 2.0
        for h in range(len(m)):
            current[h] = m[h] if inside[h] else 1.0
        if _in_series(parameters):
            for h in range(len(m)):
                g[h], b[h] = _power(current[h], of_p), _power(current[h], of_q)
        else:
            for h in range(len(m)):
                g[h], b[h] = current[h] ** of_p, current[h] ** of_q
        for h in range(len(m)):
            g[h], b[h] = p[h] * (g[h] if inside[h] else power[h]), -q[h] * (b[h] if inside[h] else power[h])
    elif model == CONSTANT_CURRENT:
        for h in range(len(m)):
            g[h], b[h] = p[h] * current[h], -q[h] * current[h]
    elif model in (FIXED_Q, FIXED_X):
        vmin = parameters[VMIN]
        for h in range(len(m)):
            between = (m[h] <= vmin) & (not low[h])
            g[h] = p[h] * (1.0 / (vmin * vmin) if between else power[h])
            constant_q = inside[h] & (model == FIXED_Q)
            b[h] = -q[h] if low[h] else -fixed * (power[h] if constant_q else 1.0)
    elif model == ZIPV:
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
    f"void({_planes}, {_ints}, {_ints}, {_ints}, {_table}, {_reals}, {_table}, {_table}, {_reals}, float64, {_planes})",
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
    work = np.empty((9, n_hours))
    dr, di, g, b, m, real, imag = work[2], work[3], work[4], work[5], work[6], work[7], work[8]
    low, inside = np.empty(n_hours, dtype=np.bool_), np.empty(n_hours, dtype=np.bool_)
    for branch in range(len(start)):
        i, j = start[branch], end[branch]
        per_volt = 1.0 / (base_v[branch] * base_v[branch])
        bottom = max(parameters[branch, VLOW], parameters[branch, VMIN]) ** 2
        vmax, below, above = parameters[branch, VMAX], 0, 0
        for h in range(n_hours):
            dr[h] = v[i, 0, h] - v[j, 0, h]
        for h in range(n_hours):
            di[h] = v[i, 1, h] - v[j, 1, h]
        for h in range(n_hours):
            m[h] = (dr[h] * dr[h] + di[h] * di[h]) * per_volt
        for h in range(n_hours):
            below += m[h] <= bottom
        for h in range(n_hours):
            above += m[h] > vmax * vmax
        # The two most common models above vmin, in loops that touch few arrays: those become vector instructions.
        if below == 0 and vmax > 0.0 and model[branch] == CONSTANT_POWER:
            for h in range(n_hours):
                g[h] = 1.0 / (m[h] if m[h] < vmax * vmax else vmax * vmax)
            for h in range(n_hours):
                b[h] = -q[branch, h] * g[h]
            for h in range(n_hours):
                g[h] *= p[branch, h]
        elif below == 0 and model[branch] == CVR and _in_series(parameters[branch]):
            of_p, of_q, top = parameters[branch, CVR_P] - 2.0, parameters[branch, CVR_Q] - 2.0, 1.0 / (vmax * vmax)
            for h in range(n_hours):
                m[h] = np.sqrt(m[h])
            for h in range(n_hours):
                real[h] = m[h] if m[h] < vmax else vmax
            for h in range(n_hours):
                g[h] = p[branch, h] * _power(real[h], of_p)
            for h in range(n_hours):
                b[h] = -q[branch, h] * _power(real[h], of_q)
            if above:
                for h in range(n_hours):
                    if m[h] > vmax:
                        g[h], b[h] = p[branch, h] * top, -q[branch, h] * top
        else:
            for h in range(n_hours):
                m[h] = np.sqrt(m[h])
            _admittance(
                m, model[branch], parameters[branch], p[branch], q[branch], fixed[branch], work, low, inside, g, b
            )
        for h in range(n_hours):
            real[h] = sign * (g[h] * dr[h] - b[h] * di[h])
        for h in range(n_hours):
            imag[h] = sign * (g[h] * di[h] + b[h] * dr[h])
        for h in range(n_hours):
            out[i, 0, h] += real[h]
        for h in range(n_hours):
            out[i, 1, h] += imag[h]
        for h in range(n_hours):
            out[j, 0, h] -= real[h]
        for h in range(n_hours):
            out[j, 1, h] -= imag[h]


@numba.njit(
    f"void({_planes}, int64, int64, {_ints}, {_ints}, {_complex})", cache=True, fastmath=False, nogil=True
)  # fmt: skip
def _forward(b: Floats, first: int, n_rows: int, lower: Ints, lower_column: Ints, below: Complex) -> None:
    """Solve the block of L from row and column ``first`` on, in place. b is [row - first, 2, hour]."""
    n_hours = b.shape[2]
    for i in range(n_rows):
        for k in range(lower[first + i], lower[first + i + 1]):
            j = lower_column[k] - first
            if j < 0:
                continue
            real, imag = below[k].real, below[k].imag
            for h in range(n_hours):
                b[i, 0, h] -= real * b[j, 0, h] - imag * b[j, 1, h]
                b[i, 1, h] -= real * b[j, 1, h] + imag * b[j, 0, h]


@numba.njit(f"void({_planes}, {_planes}, int64, {_reals}, {_table})", cache=True, fastmath=False, nogil=True)
def _keep_residual(old: Floats, new: Floats, stride: int, per_base: Floats, residual: Floats) -> None:
    """Keep (new - old) / base of every ``stride``-th row. residual is [value, hour]."""
    for i in range(len(residual) // 2):
        row = i * stride
        for part in range(2):
            for h in range(residual.shape[1]):
                residual[2 * i + part, h] = per_base[row] * (new[row, part, h] - old[row, part, h])


@numba.njit(f"void({_planes}, {_planes})", cache=True, fastmath=False, nogil=True)
def _copy(source: Floats, out: Floats) -> None:
    for row in range(len(out)):
        for part in range(2):
            for h in range(out.shape[2]):
                out[row, part, h] = source[row, part, h]


@numba.njit(
    f"void({_planes}, {_planes}, {_planes}, int64, {_ints}, {_ints}, {_complex}, {_complex}, {_reals}, {_reals})",
    cache=True, fastmath=False, nogil=True,
)  # fmt: skip
def _backward(
    b: Floats, old: Floats, new: Floats, first: int, upper: Ints, upper_column: Ints, above: Complex,
    inverse: Complex, per_base: Floats, change: Floats,
) -> None:  # fmt: skip
    """Solve the block of U from row ``first`` on; ``change`` is the largest |new - old| / base, squared. [hour]"""
    n_hours = b.shape[2]
    for h in range(n_hours):
        change[h] = 0.0
    for i in range(len(per_base) - 1, -1, -1):
        for k in range(upper[first + i], upper[first + i + 1]):
            j = upper_column[k] - first
            real, imag = above[k].real, above[k].imag
            for h in range(n_hours):
                b[i, 0, h] -= real * new[j, 0, h] - imag * new[j, 1, h]
                b[i, 1, h] -= real * new[j, 1, h] + imag * new[j, 0, h]
        real, imag, scale = inverse[first + i].real, inverse[first + i].imag, per_base[i] * per_base[i]
        for h in range(n_hours):
            new[i, 0, h] = real * b[i, 0, h] - imag * b[i, 1, h]
            new[i, 1, h] = real * b[i, 1, h] + imag * b[i, 0, h]
            step_real, step_imag = new[i, 0, h] - old[i, 0, h], new[i, 1, h] - old[i, 1, h]
            change[h] = max(change[h], (step_real * step_real + step_imag * step_imag) * scale)


@numba.njit(
    f"{_planes}({_planes}, int64, int64)", cache=True, fastmath=False, nogil=True
)  # fmt: skip
def _gram(residual: Floats, slot: int, n_slots: int) -> Floats:
    """Products of the differences d[i] between the last residual and others, and, in the last row, with it itself.

    residual is [slot, value, hour]; the result, lower triangle only, is [n_slots + 1, n_slots, hour].
    """
    n_hours = residual.shape[2]
    gram, difference = np.zeros((n_slots + 1, n_slots, n_hours)), np.empty((n_slots + 1, n_hours))
    for k in range(residual.shape[1]):
        for h in range(n_hours):
            difference[n_slots, h] = residual[slot, k, h]
            for i in range(n_slots):
                difference[i, h] = residual[slot, k, h] - residual[i, k, h]
        for i in range(n_slots + 1):
            for j in range(min(i + 1, n_slots)):
                for h in range(n_hours):
                    gram[i, j, h] += difference[i, h] * difference[j, h]
    return gram


@numba.njit(
    f"void({_planes}, int64, {_table})", cache=True, fastmath=False, nogil=True, error_model="numpy"
)  # fmt: skip
def _weights(gram: Floats, hour: int, weight: Floats) -> None:
    """Anderson's weights of an hour: the differences' best fit to the last residual.

    The normal equations are scaled, and solved by Cholesky in place; a ridge carries directions that repeat.
    weight is [slot, hour].
    """
    n, h = gram.shape[1], hour
    size = np.ones(n)
    for i in range(n):
        if gram[i, i, h] > 0.0:
            size[i] = np.sqrt(gram[i, i, h])
    for i in range(n):
        for j in range(i + 1):
            value = gram[i, j, h] / (size[i] * size[j]) + (_RIDGE if i == j else 0.0)
            for k in range(j):
                value -= gram[i, k, h] * gram[j, k, h]
            gram[i, j, h] = np.sqrt(max(value, _RIDGE)) if i == j else value / gram[j, j, h]
        value = gram[n, i, h] / size[i]
        for k in range(i):
            value -= gram[i, k, h] * weight[k, h]
        weight[i, h] = value / gram[i, i, h]
    for i in range(n - 1, -1, -1):
        for k in range(i + 1, n):
            weight[i, h] -= gram[k, i, h] * weight[k, h]
        weight[i, h] /= gram[i, i, h]
    for i in range(n):
        weight[i, h] /= size[i]


@numba.njit(
    f"void({_kept}, {_planes}, int64, int64, {_bools}, {_planes})", cache=True, fastmath=False, nogil=True
)  # fmt: skip
def _mixture(kept: Floats, residual: Floats, slot: int, n_slots: int, slow: Flags, out: Floats) -> None:
    """Where to go on from: the mixture of kept iterates in slow hours, the last iterate in others.

    kept is [slot, row + 1, 2, hour], residual [slot, value, hour], slow [hour], out [row + 1, 2, hour].
    """
    gram, weight = _gram(residual, slot, n_slots), np.zeros((n_slots, len(slow)))
    for h in range(len(slow)):
        if slow[h]:
            _weights(gram, h, weight)
    for row in range(len(out)):
        for part in range(2):
            for h in range(len(slow)):
                out[row, part, h] = kept[slot, row, part, h]
            for i in range(n_slots):
                for h in range(len(slow)):
                    out[row, part, h] -= weight[i, h] * (kept[slot, row, part, h] - kept[i, row, part, h])


@numba.njit(
    f"{_ints}({_planes}, {_complex}, int64, {_ints}, {_ints}, {_complex}, {_ints}, {_ints}, {_complex}, {_complex}, "
    f"{_ints}, {_ints}, {_ints}, {_table}, {_reals}, {_table}, {_table}, {_reals}, "
    f"{_reals}, float64, int64, int64)",
    cache=True, fastmath=False, nogil=True,
)  # fmt: skip
def iterate(
    v: Floats, base: Complex, first: int,
    lower: Ints, lower_column: Ints, below: Complex, upper: Ints, upper_column: Ints, above: Complex, inverse: Complex,
    start: Ints, end: Ints, model: Ints, parameters: Floats, base_v: Floats, p: Floats, q: Floats, fixed: Floats,
    per_base: Floats, tolerance: float, max_iterations: int, few: int,
) -> Ints:  # fmt: skip
    """Fixed-point iteration on the nodes from place ``first`` on, with Anderson acceleration where it is slow.

    An hour whose step is more than ``SLOW`` of the one before goes on from a mixture of its last iterates: slow
    convergence, and divergence at heavy load, become convergence to the same solution.

    Args:
        v: Start and result; the last row is ground and stays 0, V. [row + 1, 2, hour]
        base: Right-hand side without loads, passive nodes eliminated. [row]
        lower ... inverse: Factors, of all places.
        start, end: Rows of v a branch lies between. [branch]
        model ... fixed: Branches, as ``add_currents`` takes them.
        per_base: One over the base voltage of each row, 1/V. [row]
        tolerance: Largest |step| / base at which an hour has converged.
        few: Stop when no more hours than this are left: alone they go on faster.

    Returns:
        Iterations after which each hour had converged, 0 where it has not.
    """
    n_rows, n_hours = len(base), v.shape[2]
    b, mixed, kept = np.zeros(v.shape), np.zeros(v.shape), np.empty((_DEPTH + 1, n_rows + 1, 2, n_hours))
    for i in range(_DEPTH + 1):
        for h in range(n_hours):
            kept[i, n_rows, 0, h] = kept[i, n_rows, 1, h] = 0.0
    stride = max(1, n_rows // _SAMPLED_ROWS)
    residual = np.empty((_DEPTH + 1, 2 * ((n_rows + stride - 1) // stride), n_hours))
    change, before = np.zeros(n_hours), np.zeros(n_hours)
    slow, needed = np.zeros(n_hours, dtype=np.bool_), np.zeros(n_hours, dtype=np.int64)
    old, slot, n_slots, limit = v, 0, 0, 2  # mixtures need more iterates than plain steps
    for iteration in range(1, max_iterations + 1):
        slot = n_slots if n_slots < limit else (slot + 1) % limit
        n_slots = max(n_slots, slot + 1)
        for i in range(n_rows):
            for h in range(n_hours):
                b[i, 0, h], b[i, 1, h] = base[i].real, base[i].imag
        add_currents(old, start, end, model, parameters, base_v, p, q, fixed, -1.0, b)
        _forward(b, first, n_rows, lower, lower_column, below)
        new = kept[slot]
        _backward(b, old, new, first, upper, upper_column, above, inverse, per_base, change)
        _keep_residual(old, new, stride, per_base, residual[slot])
        n_waiting, n_slow = 0, 0
        for h in range(n_hours):
            done = change[h] <= tolerance * tolerance
            needed[h] = 0 if not done else (needed[h] if needed[h] > 0 else iteration)
            slow[h] = iteration > 1 and not done and change[h] > SLOW * SLOW * before[h]
            before[h] = change[h]
            n_waiting += not done
            n_slow += slow[h]
        old = new
        if n_waiting <= few:
            break
        if n_slow > 0:
            limit, old = _DEPTH + 1, mixed
            _mixture(kept, residual, slot, n_slots, slow, mixed)
    _copy(kept[slot], v)
    return needed


@numba.njit(
    f"void({_planes}, {_complex}, {_ints}, {_ints}, {_ints}, {_complex}, {_complex}, complex128[:, ::1])",
    cache=True, fastmath=False, nogil=True,
)  # fmt: skip
def recover(
    v: Floats, y: Complex, order: Ints, upper: Ints, upper_column: Ints, above: Complex, inverse: Complex, out: Complex
) -> None:
    """Voltages of all nodes from those that took part in the iteration.

    Args:
        v: From ``iterate``. [row + 1, 2, hour]
        y: Right-hand side of the passive places after elimination. [passive place]
        order: Node of every place. [place]
        upper, upper_column, above, inverse: Factors.
        out: Receives the voltages, V. [hour, node]
    """
    n_first, n_hours = len(y), v.shape[2]
    passive = np.empty((n_first, 2, n_hours))
    for i in range(n_first - 1, -1, -1):
        for h in range(n_hours):
            passive[i, 0, h], passive[i, 1, h] = y[i].real, y[i].imag
        for k in range(upper[i], upper[i + 1]):
            j, real, imag = upper_column[k], above[k].real, above[k].imag
            if j < n_first:
                for h in range(n_hours):
                    passive[i, 0, h] -= real * passive[j, 0, h] - imag * passive[j, 1, h]
                    passive[i, 1, h] -= real * passive[j, 1, h] + imag * passive[j, 0, h]
            else:
                j -= n_first
                for h in range(n_hours):
                    passive[i, 0, h] -= real * v[j, 0, h] - imag * v[j, 1, h]
                    passive[i, 1, h] -= real * v[j, 1, h] + imag * v[j, 0, h]
        real, imag = inverse[i].real, inverse[i].imag
        for h in range(n_hours):
            new_real = real * passive[i, 0, h] - imag * passive[i, 1, h]
            passive[i, 1, h] = real * passive[i, 1, h] + imag * passive[i, 0, h]
            passive[i, 0, h] = new_real
            out[h, order[i]] = complex(passive[i, 0, h], passive[i, 1, h])
    for i in range(n_first, len(order)):
        for h in range(n_hours):
            out[h, order[i]] = complex(v[i - n_first, 0, h], v[i - n_first, 1, h])
