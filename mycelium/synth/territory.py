"""A feeder's territory: its head on a street, the streets reachable from there, and the buildings near them.

The head is a point beside a building drawn by lot, snapped to the nearest street node. Buildings are taken in order of
their distance from the head along the streets, as many as the feeder is to serve.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse.csgraph import dijkstra
from scipy.spatial import cKDTree

from mycelium.synth.geography import Buildings, Floats, Geography, Ints, Streets

ACCESS_M = 120.0  # a building farther than this from any street node is not served
_BEYOND = 1.1  # streets are kept somewhat farther out than the last building, for detours and ties
FEWEST = 3


class NoTerritory(Exception):
    """The place has too few buildings for a feeder; the message says how many."""


@dataclass(frozen=True)
class Territory:
    """What a feeder may use and whom it is to serve.

    Attributes:
        streets: All reachable from the head.
        head: Street node of the feeder head.
        buildings: To be served.
        access: Street node nearest to each building. [building]
    """

    streets: Streets
    head: int
    buildings: Buildings
    access: Ints


def sample_territory(place: Geography, n_customers: int, rng: np.random.Generator) -> Territory:
    """A head somewhere in the place, and the buildings nearest to it."""
    at, away_m = _access(place)
    near = np.flatnonzero(away_m <= ACCESS_M)
    if len(near) < FEWEST:
        raise NoTerritory(f"{place.name}: {len(near)} buildings within {ACCESS_M:.0f} m of a street")
    beside = place.buildings.xy_m[near[rng.integers(len(near))]]
    head = int(cKDTree(place.streets.xy_m).query(beside + 60 * (rng.random(2) - 0.5))[1])
    out_m = dijkstra(place.streets.graph, directed=False, indices=head)
    distance_m = out_m[at] + away_m
    order = np.lexsort((np.arange(len(at)), distance_m))
    chosen = order[np.isfinite(distance_m[order]) & (away_m[order] <= ACCESS_M)][:n_customers]
    if len(chosen) < FEWEST:
        raise NoTerritory(f"{place.name}: {len(chosen)} buildings can be reached from the head")
    keep = out_m <= _BEYOND * distance_m[chosen].max() + 2 * ACCESS_M
    number = np.cumsum(keep) - 1
    chosen = np.sort(chosen)
    return Territory(
        place.streets.part(keep), int(number[head]), place.buildings.part(chosen), number[at[chosen]].astype(np.int64)
    )


def _access(place: Geography) -> tuple[Ints, Floats]:
    """Nearest street node of every building, and its distance. [building], [building]"""
    if not len(place.buildings.xy_m):
        return np.zeros(0, np.int64), np.zeros(0)
    away_m, at = cKDTree(place.streets.xy_m).query(place.buildings.xy_m)
    return at.astype(np.int64), np.asarray(away_m, dtype=np.float64)
