"""Compiled: transform the readings that are there, and keep count of what comes how often."""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

# How a reading becomes an input; ``temporal`` says where each is used.
DEVIATION, RESIDUAL, ASINH = range(3)

# Rows of a family's record: readings in the hour, ages added up, entries that have reported so far. [3, hour]
COUNT, AGE, ACTIVE = range(3)


def squash(x: Any, core: float) -> Any:
    """Values as they are within ``core``, logarithmic beyond: a dead bus must not swamp all others."""
    size = np.abs(x)
    return np.copysign(np.minimum(size, core) * (1.0 + np.log(np.maximum(size / core, 1.0))), x)


_squash = numba.njit("float64(float64, float64)", cache=True, nogil=True, error_model="numpy")(squash)


@numba.njit(
    "void(int64[::1], float32[::1], int64, int64, float64[::1], float64[:, ::1], float64, float64, float64, "
    "int64, int64, int32[::1], float32[::1])",
    cache=True, nogil=True, error_model="numpy",
)  # fmt: skip
def transform(
    seen: npt.NDArray[np.int64],
    value: npt.NDArray[np.float32],
    slots: int,
    mode: int,
    base: Floats,
    nominal_rad: Floats,
    middle: float,
    spread: float,
    core: float,
    column: int,
    width: int,
    place_out: npt.NDArray[np.int32],
    value_out: npt.NDArray[np.float32],
) -> None:
    """Write place and transformed, normalised value of every reading.

    Args:
        seen: Places of the readings in [hour, row, slot], flat. [reading]
        value: All values of the channel, flat. [hour * row * slot]
        slots: Slots of the channel.
        mode: DEVIATION, RESIDUAL or ASINH.
        base: Base of each row. [row]
        nominal_rad: For RESIDUAL, nominal angle of each row and slot. [row, slot]
        middle, spread, core: Normalisation.
        column, width: First column of the channel in its store, and number of columns of the store.
        place_out: Place in [hour, row, column], flat. [reading]
        value_out: Input. [reading]
    """
    # Whole numbers of 32 bits: a division takes a third of the time.
    rows, per_row = np.uint32(len(base)), np.uint32(slots)
    turn = 2.0 * math.pi
    for k in range(len(seen)):
        at = np.uint32(seen[k])
        entity = at // per_row
        slot = at - entity * per_row
        row = entity % rows
        x: float = np.float64(value[at])
        if mode == RESIDUAL:
            x = math.radians(x) - nominal_rad[row, slot] + math.pi
            x = x - turn * math.floor(x / turn) - math.pi
        else:
            x = x / base[row]
            x = x - 1.0 if mode == DEVIATION else math.asinh(x)
        place_out[k] = entity * width + column + slot
        x = (x - middle) / spread
        value_out[k] = _squash(x, core) if abs(x) > core else x


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
