"""Compiled: readings to their places among a store's columns, and a count of what comes how often."""

from __future__ import annotations

import numba
import numpy as np
import numpy.typing as npt
from numba import types

from mycelium.schema import HOURS

Ints = npt.NDArray[np.int64]
Places = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float32]
Flags = npt.NDArray[np.bool_]

# Parts of a family's record: readings in the hour, ages added up, entries that have reported so far. [part, hour]
COUNT, AGE, ACTIVE = range(3)
PARTS = 3

_PLACE = types.Array(types.int32, 1, "C", readonly=True)
_VALUE = types.Array(types.float32, 1, "C", readonly=True)
_I = types.int64[::1]


@numba.njit(inline="always")
def end_of(place: Places, k: int, bound: int) -> int:
    """The first reading from ``k`` on whose place is not below a bound, at most a day's away."""
    if k + HOURS <= len(place) and place[k + HOURS - 1] < bound:
        return k + HOURS
    while k < len(place) and place[k] < bound:
        k += 1
    return k


@numba.njit(types.void(_PLACE, _I, _I, _I), cache=True, nogil=True, error_model="numpy")
def count(place: Places, pointer: Ints, store: Ints, total: Ints) -> None:
    """Count the readings that come to each store.

    Args:
        place: Of the readings in [place, hour], flat. [reading]
        pointer, store: As in ``Routes``.
        total: Receives their number. [store]
    """
    k = 0
    while k < len(place):
        at, begin = place[k] // HOURS, k
        k = end_of(place, k, (at + 1) * HOURS)
        for way in range(pointer[at], pointer[at + 1]):
            total[store[way]] += k - begin


@numba.njit(types.void(_PLACE, types.int64, types.int64, types.int64[:, ::1]), cache=True, nogil=True)
def keep(place: Places, begin: int, end: int, record: Ints) -> None:
    """Add the readings of one place to its family's record.

    Its age is 0 in an hour with a reading and grows by one in every hour without; before its first reading it has none.

    Args:
        place: In [place, hour], flat and ascending. [reading]
        begin, end: Which readings are of this one place.
        record: COUNT, AGE and ACTIVE. [part, hour]
    """
    for j in range(begin, end):
        hour = place[j] % HOURS
        record[COUNT, hour] += 1
        for h in range(hour, place[j + 1] % HOURS if j + 1 < end else HOURS):
            record[AGE, h] += h - hour
            record[ACTIVE, h] += 1


@numba.njit(
    types.void(
        _PLACE, _VALUE, _I, _I, _I, _I, _I, types.int32[::1], types.float32[::1], _I, types.int64[:, :, ::1], _I,
        types.float32[:, ::1], types.boolean[:, ::1],
    ),
    cache=True, nogil=True, error_model="numpy",
)  # fmt: skip
def follow(
    place: Places,
    value: Floats,
    pointer: Ints,
    store: Ints,
    column: Ints,
    stride: Ints,
    room: Ints,
    place_out: Places,
    value_out: Floats,
    family: Ints,
    record: Ints,
    head_row: Ints,
    head: Floats,
    head_seen: Flags,
) -> None:
    """Write place and value of every reading where it goes, and count it.

    Args:
        place: Of the readings in [place, hour], flat and ascending. [reading]
        value: [reading]
        pointer, store, column, stride, family: As in ``Routes``.
        room: Where each store's readings begin in what is written; moves on. [store]
        place_out: Receives places in [hour, entity, column] of the store, flat. [written]
        value_out: Receives values. [written]
        record: Receives counts. [family, part, hour]
        head_row: As ``Routes.head``.
        head, head_seen: Receive the feeder head's readings. [head row, hour]
    """
    complete = np.zeros(len(record), np.int64)  # places that report in every hour
    k = 0
    while k < len(place):
        at = place[k] // HOURS
        first, begin = at * HOURS, k
        k = end_of(place, k, first + HOURS)
        for way in range(pointer[at], pointer[at + 1]):
            s = store[way]
            n, apart, start = room[s], np.int32(stride[s]), np.int32(column[way])
            if k - begin == HOURS:  # as a rule; so many are written at once
                for h in range(HOURS):
                    place_out[n + h] = np.int32(h) * apart + start
                for h in range(HOURS):
                    value_out[n + h] = value[begin + h]
            else:
                for j in range(k - begin):
                    place_out[n + j] = (place[begin + j] - np.int32(first)) * apart + start
                    value_out[n + j] = value[begin + j]
            room[s] += k - begin
        if family[at] >= 0:
            if k - begin == HOURS:
                complete[family[at]] += 1
            else:
                keep(place, begin, k, record[family[at]])
        if head_row[at] >= 0:
            for j in range(begin, k):
                head[head_row[at], place[j] - first] = value[j]
                head_seen[head_row[at], place[j] - first] = True
    for f in range(len(record)):
        record[f, COUNT] += complete[f]
        record[f, ACTIVE] += complete[f]
