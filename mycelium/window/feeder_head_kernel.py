"""Compiled: the feeder head's means and statistics, of a few dozen numbers each: as array operations they take longer
than all else that a window needs."""

from __future__ import annotations

import math

import numba
import numpy as np
import numpy.typing as npt
from numba import types

from mycelium.schema import HOURS
from mycelium.window.columns import BASE_POWER_KW, STATISTICS

Floats = npt.NDArray[np.float64]
Floats32 = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

_SMALLEST_STEP = 1e-4  # per unit; a tap step is 0.006 or so, a readback in float32 is exact to 1e-7
_N = len(STATISTICS)
_SEEN = types.boolean[:, ::1]
_VALUE = types.float64[:, ::1]


@numba.njit(
    types.void(types.float32[:, ::1], _SEEN, types.int64[:, ::1], types.float64[::1], _VALUE, _SEEN),
    cache=True, nogil=True, error_model="numpy",
)  # fmt: skip
def mean_over_sources(reading: Floats32, there: Flags, row: Ints, scale: Floats, mean: Floats, seen: Flags) -> None:
    """Means over the sources that reported.

    Args:
        reading, there: Readings of the feeder head. [head row, hour]
        row: Their rows, -1 where a source has no such phase. [source, phase]
        scale: What a source's readings are divided by. [source]
        mean, seen: Receive them. [phase, hour]
    """
    for phase in range(row.shape[1]):
        for h in range(HOURS):
            total, n = 0.0, 0
            for source in range(len(row)):
                at = row[source, phase]
                if at >= 0 and there[at, h]:
                    total += reading[at, h] / scale[source]
                    n += 1
            mean[phase, h] = total / n if n else 0.0
            seen[phase, h] = n > 0


@numba.njit(types.void(_VALUE, _SEEN, types.float64[::1]), cache=True, nogil=True, error_model="numpy")
def statistics(value: Floats, seen: Flags, out: Floats) -> None:
    """Mean, deviation, lowest, highest, and the last hour's mean minus the whole mean; zeros without readings.

    Args:
        value, seen: [row, hour]
        out: Receives them. [statistic]
    """
    out[:] = 0.0
    total, n, low, high = 0.0, 0, math.inf, -math.inf
    last, n_last = 0.0, 0
    for k in range(len(value)):
        for h in range(HOURS):
            if seen[k, h]:
                x = value[k, h]
                total, n, low, high = total + x, n + 1, min(low, x), max(high, x)
                if h == HOURS - 1:
                    last, n_last = last + x, n_last + 1
    if not n:
        return
    mean, square = total / n, 0.0
    for k in range(len(value)):
        for h in range(HOURS):
            if seen[k, h]:
                square += (value[k, h] - mean) ** 2
    out[0], out[1], out[2], out[3] = mean, math.sqrt(square / n), low, high
    out[4] = last / n_last - mean if n_last else 0.0


@numba.njit(types.void(_VALUE), cache=True, nogil=True, error_model="numpy")
def compress(power: Floats) -> None:
    """Powers, kW or kvar, as the window's summary takes them, in place."""
    for k in range(len(power)):
        for h in range(HOURS):
            power[k, h] = math.asinh(power[k, h] / BASE_POWER_KW)


@numba.njit(
    types.void(types.float32[:, ::1], _SEEN, _VALUE, _SEEN, types.float64[::1]),
    cache=True, nogil=True, error_model="numpy",
)  # fmt: skip
def taps(tap: Floats32, there: Flags, hourly: Floats, seen: Flags, summary: Floats) -> None:
    """Taps read back, hour by hour and over the window.

    Args:
        tap, there: Per unit. [winding, hour]
        hourly, seen: Receive mean, lowest and highest of every hour. [3, hour]
        summary: Receives statistics of deviations from 1, changes per winding, mean range of a winding, and whether
            any was read back. [statistic + 3]
    """
    for h in range(HOURS):
        total, n, low, high = 0.0, 0, math.inf, -math.inf
        for w in range(len(tap)):
            if there[w, h]:
                x = float(tap[w, h])
                total, n, low, high = total + x - 1.0, n + 1, min(low, x), max(high, x)
        seen[:, h] = n > 0
        if n:
            hourly[0, h], hourly[1, h], hourly[2, h] = 1.0 + total / n, low, high
        else:
            hourly[:, h] = 1.0
    summary[:] = 0.0
    reporting, moves, ranges = 0, 0, 0.0
    deviation = np.empty(tap.shape)
    for w in range(len(tap)):
        low, high = math.inf, -math.inf
        for h in range(HOURS):
            x = float(tap[w, h])
            deviation[w, h] = x - 1.0
            if there[w, h]:
                low, high = min(low, x), max(high, x)
                if h and there[w, h - 1] and abs(x - float(tap[w, h - 1])) > _SMALLEST_STEP:
                    moves += 1
        if high >= low:
            reporting += 1
            ranges += high - low
    if reporting:
        statistics(deviation, there, summary[:_N])
        summary[_N], summary[_N + 1], summary[_N + 2] = moves / reporting, ranges / reporting, 1.0
