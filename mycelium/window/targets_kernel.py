"""Compiled: voltages as targets."""

from __future__ import annotations

import numba
import numpy as np
import numpy.typing as npt
from numba import types


@numba.njit(
    types.complex64[:, ::1](
        types.Array(types.complex128, 2, "C", readonly=True), types.int64[::1], types.complex128[::1]
    ),
    cache=True, nogil=True, error_model="numpy",
)  # fmt: skip
def turned(
    v: npt.NDArray[np.complex128], node: npt.NDArray[np.int64], factor: npt.NDArray[np.complex128]
) -> npt.NDArray[np.complex64]:
    """Voltages [hour, node] times factors [chosen], of chosen nodes, in one pass. [hour, chosen]"""
    out = np.empty((len(v), len(node)), np.complex64)
    for h in range(len(v)):
        for k in range(len(node)):
            out[h, k] = v[h, node[k]] * factor[k]
    return out
