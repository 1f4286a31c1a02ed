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
from mycelium.window.entries_kernel import ACTIVE, AGE, COUNT

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


@numba.njit(types.void(_SEEN, types.int64[:, :, ::1], types.int64[:, ::1]), cache=True, nogil=True)
def keep_cadence(there: Flags, row: Ints, record: Ints) -> None:
    """Count the feeder head's own readings as ``entries_kernel.follow`` counts those of other families.

    Args:
        there: Readings of the feeder head. [head row, hour]
        row: Rows of the sources' readings, -1 where there is none. [quantity, source, phase]
        record: COUNT, AGE and ACTIVE. [part, hour]
    """
    for at in row.ravel():
        last = -1
        for h in range(HOURS if at >= 0 else 0):
            if there[at, h]:
                record[COUNT, h] += 1
                last = h
            if last >= 0:
                record[AGE, h] += h - last
                record[ACTIVE, h] += 1


@numba.njit(
    types.void(
        types.float32[:, ::1], _SEEN, types.int64[:, :, ::1], _VALUE, types.int64, types.int64[:, :, ::1],
        types.float64[::1], types.int64, _VALUE, _SEEN, _VALUE, _SEEN, types.float64[::1],
    ),
    cache=True, nogil=True, error_model="numpy",
)  # fmt: skip
def observe(
    head: Floats32,
    head_seen: Flags,
    row: Ints,
    scale: Floats,
    first_tap: int,
    record: Ints,
    possible: Floats,
    own_family: int,
    value: Floats,
    there: Flags,
    current: Floats,
    current_there: Flags,
    summary: Floats,
) -> None:
    """All inputs of a network that come from its feeder head, its taps and the cadence of readings.

    Args:
        head, head_seen: Readings of the feeder head; taps are in the last rows. [head row, hour]
        row: Rows of the sources' voltage, powers and current, -1 where there is none. [quantity, source, phase]
        scale: What a source's readings are divided by. [quantity, source]
        first_tap: Row of the first tap.
        record: Counts of readings, without the head's own, which are added. [family, part, hour]
        possible: Readings that could exist in an hour. [family]
        own_family: The head's family.
        value, there: Receive voltage and powers by phase, taps, and of every family the share of readings present and
            the mean age of the last ones. [column, hour]
        current, current_there: Receive the current by phase. [phase, hour]
        summary: Receives statistics of the window. [column]
    """
    n_head, n_phases, n_families = len(row) - 1, row.shape[2], len(record)
    keep_cadence(head_seen, row[:n_head], record[own_family])
    for q in range(n_head):
        part = slice(q * n_phases, (q + 1) * n_phases)
        mean_over_sources(head, head_seen, row[q], scale[q], value[part], there[part])
        compressed = value[part] - 1.0 if q == 0 else np.arcsinh(value[part] / BASE_POWER_KW)
        statistics(compressed, there[part], summary[q * _N : (q + 1) * _N])
    mean_over_sources(head, head_seen, row[n_head], scale[n_head], current, current_there)
    k, s = n_head * n_phases, n_head * _N
    taps(head[first_tap:], head_seen[first_tap:], value[k : k + 3], there[k : k + 3], summary[s : s + _N + 3])
    k, s = k + 3, s + _N + 3
    for f in range(n_families):
        total = 0
        for h in range(HOURS):
            n, active = record[f, COUNT, h], record[f, ACTIVE, h]
            total += n
            value[k + f, h], there[k + f, h] = min(n / possible[f], 1.0), True
            value[k + n_families + f, h] = record[f, AGE, h] / max(active, 1)
            there[k + n_families + f, h] = active > 0
        summary[s + f] = min(total / (possible[f] * HOURS), 1.0)


@numba.njit(
    types.int64(_VALUE, _SEEN, types.int64[::1], types.int64, types.int32[::1], types.float32[::1]),
    cache=True, nogil=True,
)  # fmt: skip
def listed(
    value: Floats, there: Flags, column: Ints, width: int, place_out: npt.NDArray[np.int32], value_out: Floats32
) -> int:
    """List the entries of the only entity of a store, and say how many there are.

    Args:
        value, there: [column, hour]
        column: Place of each column in the store.
        width: Columns of the store.
        place_out, value_out: Receive place in [hour, column], flat, and value.
    """
    n = 0
    for k in range(len(value)):
        for h in range(HOURS):
            if there[k, h]:
                place_out[n], value_out[n] = h * width + column[k], value[k, h]
                n += 1
    return n
