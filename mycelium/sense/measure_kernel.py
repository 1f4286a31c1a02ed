"""Compiled loops of measuring: what instruments would show, hour by hour, from node voltages and currents.

Ground is node -1, at zero volts. Arrays may be read-only (days in a memory map are). Complex numbers are written out:
sums then run in one fixed order, that of the terminal conductors, whichever phase a hidden conductor is on.
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

_V = types.Array(types.complex128, 2, "C", readonly=True)
_Y = types.Array(types.complex128, 1, "C", readonly=True)
_K = types.Array(types.int64, 1, "C", readonly=True)
_T = types.Array(types.float64, 2, "A", readonly=True)
_KILO = 1e-3


@numba.njit(types.float64[:, ::1](_V, _K), cache=True, nogil=True)
def magnitudes(v: Complex, node: Ints) -> Floats:
    """Voltage magnitudes to ground, V. [hour, entry]"""
    out = np.empty((len(v), len(node)))
    for h in range(len(v)):
        for e in range(len(node)):
            x = v[h, node[e]]
            out[h, e] = math.sqrt(x.real * x.real + x.imag * x.imag)
    return out


@numba.njit(types.complex128[:, ::1](_V, _K, _K, _Y), cache=True, nogil=True)
def currents(v: Complex, pointer: Ints, node: Ints, y: Complex) -> Complex:
    """Rows of B times voltages, A. [hour, entry]

    Args:
        v: Node voltages, V. [hour, node]
        pointer: First value of every entry, one more at the end. [entry + 1]
        node, y: Node and admittance of every value. [value]
    """
    n, hours = len(pointer) - 1, len(v)
    out = np.empty((hours, n), np.complex128)
    # Hours of one node side by side, filled when it is first met: so the innermost loop runs over them.
    day, met = np.empty((v.shape[1], hours), np.complex128), np.zeros(v.shape[1], np.bool_)
    re, im = np.empty(hours), np.empty(hours)
    for e in range(n):
        re[:] = 0.0
        im[:] = 0.0
        for k in range(pointer[e], pointer[e + 1]):
            a, x = y[k], day[node[k]]
            if not met[node[k]]:
                met[node[k]] = True
                for h in range(hours):
                    x[h] = v[h, node[k]]
            for h in range(hours):
                re[h] += a.real * x[h].real - a.imag * x[h].imag
                im[h] += a.real * x[h].imag + a.imag * x[h].real
        for h in range(hours):
            out[h, e] = complex(re[h], im[h])
    return out


@numba.njit(types.float64[:, :, ::1](_V, _K, _V, types.float64), cache=True, nogil=True)
def flows(v: Complex, node: Ints, current: Complex, sign: float) -> Floats:
    """Current magnitudes, A, active powers, kW, and reactive powers, kvar. [3, hour, entry]

    Args:
        v: Node voltages, V. [hour, node]
        node: Of every entry. [entry]
        current: A. [hour, entry]
        sign: 1 for powers in the direction of the current.
    """
    out = np.empty((3, len(current), len(node)))
    scale = sign * _KILO
    for h in range(len(current)):
        for e in range(len(node)):
            x, i = v[h, node[e]], current[h, e]
            out[0, h, e] = math.sqrt(i.real * i.real + i.imag * i.imag)
            out[1, h, e] = scale * (x.real * i.real + x.imag * i.imag)
            out[2, h, e] = scale * (x.imag * i.real - x.real * i.imag)
    return out


@numba.njit(types.float64[:, :, ::1](_V, _K, _K, _V, _K), cache=True, nogil=True)
def shares(v: Complex, node: Ints, reference: Ints, current: Complex, item: Ints) -> Floats:
    """Active power, kW, and reactive power, kvar, into single conductors of customers. [2, hour, share]

    Args:
        v: Node voltages, V. [hour, node]
        node: Of the conductor. [share]
        reference: Node of the customer's neutral, against which its power counts. [share]
        current: Of all customers' terminal conductors, A. [hour, item]
        item: The conductor. [share]
    """
    out = np.empty((2, len(v), len(node)))
    for h in range(len(v)):
        for s in range(len(node)):
            x, i = v[h, node[s]], current[h, item[s]]
            if reference[s] >= 0:
                x -= v[h, reference[s]]
            out[0, h, s] = _KILO * (x.real * i.real + x.imag * i.imag)
            out[1, h, s] = _KILO * (x.imag * i.real - x.real * i.imag)
    return out


@numba.njit(types.float64[:, ::1](_V, _K, _K, _K), cache=True, nogil=True)
def across(v: Complex, pointer: Ints, start: Ints, end: Ints) -> Floats:
    """Mean voltage magnitude across the branches of each customer, V. [hour, customer]

    Args:
        v: Node voltages, V. [hour, node]
        pointer: First branch of every customer, one more at the end. [customer + 1]
        start, end: Nodes a branch lies between. [branch]
    """
    n = len(pointer) - 1
    out = np.empty((len(v), n))
    for h in range(len(v)):
        for c in range(n):
            total = 0.0
            for k in range(pointer[c], pointer[c + 1]):
                x = v[h, start[k]] if start[k] >= 0 else 0j
                if end[k] >= 0:
                    x -= v[h, end[k]]
                total += math.sqrt(x.real * x.real + x.imag * x.imag)
            out[h, c] = total / (pointer[c + 1] - pointer[c])
    return out


@numba.njit(types.float64[:, ::1](_T, _K, _K), cache=True, nogil=True)
def sums(values: Floats, pointer: Ints, member: Ints) -> Floats:
    """Sums of chosen columns. [hour, sum]

    Args:
        values: [hour, column]
        pointer: First member of every sum, one more at the end. [sum + 1]
        member: Columns. [member]
    """
    n = len(pointer) - 1
    out = np.empty((len(values), n))
    for h in range(len(values)):
        for s in range(n):
            total = 0.0
            for k in range(pointer[s], pointer[s + 1]):
                total += values[h, member[k]]
            out[h, s] = total
    return out
