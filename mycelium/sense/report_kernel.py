"""Compiled: from what instruments show to what arrives, and whether that is sound."""

from __future__ import annotations

import numba
import numpy as np
import numpy.typing as npt
from numba import types

from mycelium.schema import HOURS

Floats = npt.NDArray[np.float64]
Floats32 = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

_K = types.Array(types.int64, 1, "C", readonly=True)
_X = types.Array(types.float64, 2, "C", readonly=True)
_ERROR = types.Array(types.float32, 2, "A", readonly=True)
_KEPT = types.Array(types.boolean, 2, "A", readonly=True)


@numba.njit(
    types.int64(
        _X, _ERROR, _KEPT, _KEPT, types.boolean[::1], _K, _K, types.int32[::1], types.float32[::1]
    ),
    cache=True, nogil=True, error_model="numpy",
)  # fmt: skip
def report(
    exact: Floats,
    error: Floats32,
    kept: Flags,
    demand_kept: Flags,
    is_angle: Flags,
    order: Ints,
    place: Ints,
    at: npt.NDArray[np.int32],
    value: Floats32,
) -> int:
    """Write what arrives, and say how much that is.

    Args:
        exact: Without errors, but the demand of buses, which comes last, with those of its meters. [entry, hour]
        error, kept: Of all entries but demand. [entry, hour]
        demand_kept: Of the demand of buses. [demand entry, hour]
        is_angle: The error is added, within a full turn, rather than relative. [entry]
        order: Entries by place. [entry]
        place: Where they stand, in this order. [entry]
        at: Receives places in [place, hour], flat and ascending; room for all that could arrive. [reading]
        value: Receives values. [reading]
    """
    shown, k = len(kept), 0
    for rank in range(len(order)):
        e, row, first = order[rank], exact[order[rank]], np.int32(place[rank] * HOURS)
        # What is lost is written too, and written over by the next one.
        if e >= shown:
            for h in range(len(row)):
                at[k], value[k] = first + h, row[h]
                k += demand_kept[e - shown, h]
        elif is_angle[e]:
            for h in range(len(row)):
                x = row[h] + error[e, h]
                at[k], value[k] = first + h, x - 360.0 * (x > 180.0) + 360.0 * (x <= -180.0)
                k += kept[e, h]
        else:
            for h in range(len(row)):
                at[k], value[k] = first + h, row[h] * (1.0 + error[e, h])
                k += kept[e, h]
    return k


@numba.njit(
    types.void(_X, _ERROR, _KEPT, _K, _K, _K, types.float64[:, ::1], types.boolean[:, ::1]),
    cache=True, nogil=True, error_model="numpy",
)  # fmt: skip
def demand(
    share: Floats, error: Floats32, kept: Flags, pointer: Ints, member: Ints, meter: Ints, out: Floats, arrives: Flags
) -> None:
    """Demand of buses as their customers' meters have it, and where the readings of all of these arrived.

    Args:
        share: True powers conductor by conductor. [share, hour]
        error, kept: Of each customer's reading. [meter, hour]
        pointer: First member of every sum, one more at the end. [entry + 1]
        member, meter: Shares of every sum, and the meters that they are read by. [member]
        out, arrives: Receive them. [entry, hour]
    """
    for e in range(len(pointer) - 1):
        out[e] = 0.0
        arrives[e] = True
        for k in range(pointer[e], pointer[e + 1]):
            for h in range(HOURS):
                out[e, h] += share[member[k], h] * (1.0 + error[meter[k], h])
                arrives[e, h] &= kept[meter[k], h]


@numba.njit(
    types.boolean(
        types.Array(types.int32, 1, "C", readonly=True), types.Array(types.float32, 1, "C", readonly=True), types.int64
    ),
    cache=True, nogil=True,
)  # fmt: skip
def is_sound(place: npt.NDArray[np.int32], value: Floats32, end: int) -> bool:
    """Whether places ascend within [0, end) and values are finite: in one pass, as every sample is checked."""
    bad = len(place) > 0 and (place[0] < 0 or place[-1] >= end)
    for k in range(len(place)):
        bad |= value[k] - value[k] != 0.0  # no zero where it is not finite
    for k in range(1, len(place)):
        bad |= place[k] <= place[k - 1]
    return not bad
