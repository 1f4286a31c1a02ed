"""Greedy k-center: every next sensor goes where the nearest sensor is farthest away, counted in hops.

No choice of as many sensors has less than half the radius of this one. A new sensor only shortens distances around
itself: its search stops where another sensor is as near. Distances never grow, so that a candidate which waits at a
distance that is no longer true only has to wait again, further back.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush

import numba
import numpy as np
import numpy.typing as npt
from numba import int64

from mycelium.grid.topology import Branches

Ints = npt.NDArray[np.int64]


def farthest_first(b: Branches, seeds: Ints, candidates: Ints, count: int) -> Ints:
    """Indices of the chosen candidates, in the order of choice. [chosen]

    Of candidates equally far away the first one is taken. What no seed reaches comes last, in the candidates' order.

    Args:
        b: What buses are joined by.
        seeds: Buses that have a sensor already. [seed]
        candidates: Buses where one can go; several may be alike. [candidate]
        count: How many.
    """
    start, end = np.concatenate([b.bus_from, b.bus_to]), np.concatenate([b.bus_to, b.bus_from])
    order = np.argsort(start, kind="stable")
    pointer = np.concatenate([[0], np.cumsum(np.bincount(start, minlength=b.n_bus))]).astype(np.int64)
    return np.asarray(_farthest_first(pointer, end[order], seeds, candidates, min(count, len(candidates))))


_INTS = int64[::1]


@numba.njit((_INTS, _INTS, int64, _INTS, _INTS), cache=True, nogil=True)
def _spread(pointer: Ints, neighbour: Ints, bus: int, hops: Ints, queue: Ints) -> None:
    """Shorten the hops of all that is nearer to this bus than to any sensor so far."""
    hops[bus] = 0
    queue[0] = bus
    first, last = 0, 1
    while first < last:
        here = queue[first]
        first += 1
        for k in range(pointer[here], pointer[here + 1]):
            there = neighbour[k]
            if hops[there] > hops[here] + 1:
                hops[there] = hops[here] + 1
                queue[last] = there
                last += 1


@numba.njit(int64[::1](_INTS, _INTS, _INTS, _INTS, int64), cache=True, nogil=True)
def _farthest_first(pointer: Ints, neighbour: Ints, seeds: Ints, candidates: Ints, count: int) -> Ints:
    n = len(pointer) - 1
    hops = np.full(n, n)  # no path is as long
    queue = np.empty(n, np.int64)
    for seed in seeds:
        _spread(pointer, neighbour, seed, hops, queue)
    hops[hops == n] = -1
    size = len(candidates)
    waiting = [(n - hops[candidates[k]]) * size + k for k in range(size)]  # the farthest first, then the first
    heapify(waiting)
    chosen = np.empty(count, np.int64)
    found = 0
    while found < count:
        ticket = heappop(waiting)
        k = ticket % size
        bus = candidates[k]
        if ticket != (n - hops[bus]) * size + k:
            heappush(waiting, (n - hops[bus]) * size + k)
            continue
        if hops[bus] > 0:
            _spread(pointer, neighbour, bus, hops, queue)
        chosen[found] = k
        found += 1
    return chosen
