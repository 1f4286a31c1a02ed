"""Three-phase service areas: low-voltage mains along the shortest way on the streets, all areas at once."""

from __future__ import annotations

import numpy as np
from scipy.sparse.csgraph import dijkstra

from mycelium.synth.cluster import Areas
from mycelium.synth.forest import Forest, contract, grow
from mycelium.synth.territory import Territory


def route_mains(territory: Territory, areas: Areas, span_m: float) -> Forest:
    """Mains of all three-phase areas, a tree for each from its transformer to where its customers are.

    Two transformers at one street node share a root.
    """
    routed = np.flatnonzero(~areas.centre_tapped)
    ends = territory.access[~areas.centre_tapped[areas.of_customer]]
    if not len(routed):
        return Forest(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))
    xy = territory.streets.xy_m
    step = np.hypot(*(xy - xy[np.maximum(areas.toward, 0)]).T)
    distance = dijkstra(territory.streets.graph, directed=False, indices=np.unique(areas.site[routed]), min_only=True)
    forest = grow(areas.toward, step, ends, distance)
    served = np.zeros(len(xy), bool)
    served[ends] = True
    return contract(forest, served[forest.node], span_m)
