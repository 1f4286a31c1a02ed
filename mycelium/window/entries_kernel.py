"""Compiled: places of readings among a store's columns, and a count of what comes how often."""

from __future__ import annotations

import numba
import numpy as np
import numpy.typing as npt

# Parts of a family's record: readings in the hour, ages added up, entries that have reported so far. [part, hour]
COUNT, AGE, ACTIVE = range(3)


@numba.njit(
    "void(int64[::1], float32[::1], int64, int64, int64, int32[::1], float32[::1])",
    cache=True, nogil=True, error_model="numpy",
)  # fmt: skip
def pick(
    seen: npt.NDArray[np.int64],
    value: npt.NDArray[np.float32],
    slots: int,
    column: int,
    width: int,
    place_out: npt.NDArray[np.int32],
    value_out: npt.NDArray[np.float32],
) -> None:
    """Write place and value of every reading.

    Args:
        seen: Places of the readings in [hour, row, slot], flat. [reading]
        value: All values of the channel, flat. [hour * row * slot]
        slots: Slots of the channel.
        column, width: First column of the channel in its store, and number of columns of the store.
        place_out: Place in [hour, row, column], flat. [reading]
        value_out: [reading]
    """
    per_row = np.uint32(slots)  # whole numbers of 32 bits: a division takes a third of the time
    for k in range(len(seen)):
        at = np.uint32(seen[k])
        entity = at // per_row
        place_out[k] = entity * width + column + (at - entity * per_row)
        value_out[k] = value[seen[k]]


@numba.njit("void(int64[::1], int8[::1], int64[:, ::1])", cache=True, nogil=True, error_model="numpy")
def keep_count(seen: npt.NDArray[np.int64], last: npt.NDArray[np.int8], record: npt.NDArray[np.int64]) -> None:
    """Add a channel's readings to its family's record.

    An entry's age is 0 in an hour with a reading and grows by one in every hour without; before its first reading it
    has none.

    Args:
        seen: Places of the readings in [hour, entry], flat and ascending. [reading]
        last: Room for the hour of each entry's last reading, -1 before any. [entry]
        record: COUNT, AGE and ACTIVE, in place. [3, hour]
    """
    hours, entries = record.shape[1], len(last)
    k = age = active = 0
    for hour in range(hours):
        age += active
        end = (hour + 1) * entries
        first = k
        while k < len(seen) and seen[k] < end:
            entry = seen[k] - hour * entries
            if last[entry] < 0:
                active += 1
            else:
                age -= hour - last[entry]
            last[entry] = hour
            k += 1
        record[COUNT, hour] += k - first
        record[AGE, hour] += age
        record[ACTIVE, hour] += active
