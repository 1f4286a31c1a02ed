"""Compiled loops of measuring: what instruments would show, entry by entry, from node voltages and currents.

Hours of one entry lie side by side, so that the innermost loops run over them. Ground is node -1, at zero volts. Arrays
of a Day may be read-only (days in a memory map are). Complex numbers are written out: sums then run in one fixed order,
that of the terminal conductors, whichever phase a hidden conductor is on.
"""

from __future__ import annotations

import math

import numba
import numpy as np
import numpy.typing as npt
from numba import types

Complex = npt.NDArray[np.complex128]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

_DAY = types.Array(types.complex128, 2, "C", readonly=True)
_V = types.complex128[:, ::1]
_Y = types.Array(types.complex128, 1, "C", readonly=True)
_K = types.Array(types.int64, 1, "C", readonly=True)
_OUT = types.float64[:, ::1]
_KILO = 1e-3
_TOGETHER = 8  # nodes turned at a time: two cache lines of an hour


@numba.njit(_V(_DAY, _K), cache=True, nogil=True)
def by_node(v: Complex, used: Ints) -> Complex:
    """Voltages with the hours of a node side by side. [node, hour]

    Args:
        v: Of all nodes, V. [hour, node]
        used: Nodes to be filled in, ascending; the others hold anything. [used]
    """
    hours = len(v)
    out = np.empty((v.shape[1], hours), np.complex128)
    for first in range(0, len(used), _TOGETHER):
        for h in range(hours):
            for k in range(first, min(first + _TOGETHER, len(used))):
                out[used[k], h] = v[h, used[k]]
    return out


@numba.njit(types.void(_V, _K, _OUT), cache=True, nogil=True, error_model="numpy")
def magnitudes(v: Complex, node: Ints, out: Floats) -> None:
    """Voltage magnitudes to ground, V. [entry, hour]"""
    for e in range(len(node)):
        x, row = v[node[e]], out[e]
        for h in range(len(x)):
            row[h] = math.sqrt(x[h].real * x[h].real + x[h].imag * x[h].imag)


@numba.njit(inline="always")
def _flow(re: Floats, im: Floats, x: Complex, scale: float, out: Floats, e: int, n: int) -> None:
    """Current magnitude, A, and powers, kW and kvar, of entry ``e`` of ``n``, in three blocks of ``out``."""
    amps, kw, kvar = out[e], out[n + e], out[2 * n + e]
    for h in range(len(x)):
        amps[h] = math.sqrt(re[h] * re[h] + im[h] * im[h])
        kw[h] = scale * (x[h].real * re[h] + x[h].imag * im[h])
        kvar[h] = scale * (x[h].imag * re[h] - x[h].real * im[h])


@numba.njit(types.void(_V, _K, _K, _Y, _K, types.boolean[::1], _OUT), cache=True, nogil=True, error_model="numpy")
def flows(v: Complex, pointer: Ints, node: Ints, y: Complex, own: Ints, dead: Flags, out: Floats) -> None:
    """Rows of B times voltages, and the powers they carry.

    Args:
        v: Node voltages, V. [node, hour]
        pointer: First value of every entry, one more at the end. [entry + 1]
        node, y: Node and admittance of every value. [value]
        own: Node that an entry's power is counted at. [entry]
        dead: Entries without any current. [entry]
        out: Receives magnitudes, A, powers, kW, and reactive powers, kvar, one block after the other. [3 entry, hour]
    """
    n, hours = len(own), v.shape[1]
    re, im = np.empty(hours), np.empty(hours)
    for e in range(n):
        re[:] = 0.0
        im[:] = 0.0
        if not dead[e]:
            for k in range(pointer[e], pointer[e + 1]):
                a, x = y[k], v[node[k]]
                for h in range(hours):
                    re[h] += a.real * x[h].real - a.imag * x[h].imag
                    im[h] += a.real * x[h].imag + a.imag * x[h].real
        _flow(re, im, v[own[e]], _KILO, out, e, n)


@numba.njit(types.void(_V, _K, _K, _Y, _Y, _K, _K, _OUT, _K, _OUT), cache=True, nogil=True, error_model="numpy")
def tapped_flows(
    v: Complex,
    pointer: Ints,
    node: Ints,
    turns: Complex,
    fixed: Complex,
    column: Ints,
    row: Ints,
    tap: Floats,
    own: Ints,
    out: Floats,
) -> None:
    """As ``flows``, with admittances that follow the taps of an hour: turns / (tap of row x tap of column) + fixed.

    Args:
        v, pointer, node, own, out: As in ``flows``.
        turns, fixed: What taps scale, and what they do not. [value]
        column: Winding of every value's column. [value]
        row: Winding of every entry. [entry]
        tap: Per unit. [winding, hour]
    """
    n, hours = len(own), v.shape[1]
    re, im = np.empty(hours), np.empty(hours)
    for e in range(n):
        re[:] = 0.0
        im[:] = 0.0
        for k in range(pointer[e], pointer[e + 1]):
            x, mine, other = v[node[k]], tap[row[e]], tap[column[k]]
            for h in range(hours):
                scale = 1.0 / (mine[h] * other[h])
                a, b = turns[k].real * scale + fixed[k].real, turns[k].imag * scale + fixed[k].imag
                re[h] += a * x[h].real - b * x[h].imag
                im[h] += a * x[h].imag + b * x[h].real
        _flow(re, im, v[own[e]], _KILO, out, e, n)


@numba.njit(types.void(_V, _DAY, _K, _K, _OUT), cache=True, nogil=True, error_model="numpy")
def source_flows(v: Complex, current: Complex, item: Ints, node: Ints, out: Floats) -> None:
    """Current magnitudes and powers from sources into the network, as ``flows``.

    Args:
        v: Node voltages, V. [node, hour]
        current: Into the sources, A. [hour, item]
        item, node: Conductor of every entry among the sources', and its node. [entry]
        out: As in ``flows``.
    """
    n, hours = len(item), v.shape[1]
    re, im = np.empty(hours), np.empty(hours)
    for e in range(n):
        for h in range(hours):
            re[h], im[h] = current[h, item[e]].real, current[h, item[e]].imag
        _flow(re, im, v[node[e]], -_KILO, out, e, n)


@numba.njit(types.float64[:, :, ::1](_V, _K, _K, _DAY, _K), cache=True, nogil=True, error_model="numpy")
def shares(v: Complex, node: Ints, reference: Ints, current: Complex, item: Ints) -> Floats:
    """Active power, kW, and reactive power, kvar, into single conductors of customers. [2, share, hour]

    Args:
        v: Node voltages, V. [node, hour]
        node: Of the conductor. [share]
        reference: Node of the customer's neutral, against which its power counts. [share]
        current: Of all customers' terminal conductors, A. [hour, item]
        item: The conductor. [share]
    """
    hours = v.shape[1]
    out = np.empty((2, len(node), hours))
    for s in range(len(node)):
        kw, kvar = out[0, s], out[1, s]
        for h in range(hours):
            x, i = v[node[s], h], current[h, item[s]]
            if reference[s] >= 0:
                x -= v[reference[s], h]
            kw[h] = _KILO * (x.real * i.real + x.imag * i.imag)
            kvar[h] = _KILO * (x.imag * i.real - x.real * i.imag)
    return out


@numba.njit(types.void(_V, _K, _K, _K, _OUT), cache=True, nogil=True, error_model="numpy")
def across(v: Complex, pointer: Ints, start: Ints, end: Ints, out: Floats) -> None:
    """Mean voltage magnitude across the branches of each customer, V. [customer, hour]

    Args:
        v: Node voltages, V. [node, hour]
        pointer: First branch of every customer, one more at the end. [customer + 1]
        start, end: Nodes a branch lies between. [branch]
        out: Receives them.
    """
    for c in range(len(pointer) - 1):
        for h in range(v.shape[1]):
            total = 0.0
            for k in range(pointer[c], pointer[c + 1]):
                x = v[start[k], h] if start[k] >= 0 else 0j
                if end[k] >= 0:
                    x -= v[end[k], h]
                total += math.sqrt(x.real * x.real + x.imag * x.imag)
            out[c, h] = total / (pointer[c + 1] - pointer[c])


@numba.njit(types.void(types.float64[:, ::1], _K, _K, _OUT), cache=True, nogil=True, error_model="numpy")
def sums(values: Floats, pointer: Ints, which: Ints, out: Floats) -> None:
    """Sums of neighbouring rows. [sum, hour]

    Args:
        values: [row, hour]
        pointer: First row of every sum there could be, one more at the end. [sum there could be + 1]
        which: Sums that are wanted. [sum]
        out: Receives them.
    """
    for s in range(len(which)):
        total = out[s]
        total[:] = 0.0
        for k in range(pointer[which[s]], pointer[which[s] + 1]):
            for h in range(values.shape[1]):
                total[h] += values[k, h]
