"""Where buses are drawn: by their coordinates where most have some, else as a tree from the source."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from mycelium.grid.grid import Grid
from mycelium.grid.topology import branches, hop_paths

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

_ENOUGH = 0.5  # share of buses with coordinates of their own
_OFFSET = 0.012  # of the drawing, between a bus without coordinates and the neighbour it is put beside


def positions(grid: Grid) -> Floats:
    """Places of buses in a square from 0 to 1, y upwards. [bus, xy]"""
    place = grid.bus[["x", "y"]].to_numpy(dtype=np.float64)
    known = np.isfinite(place).all(axis=1)
    spread = np.ptp(place[known], axis=0).max() if known.any() else 0.0
    if known.mean() < _ENOUGH or spread <= 0.0:
        return _tree(grid)
    scaled = (place - place[known].min(axis=0)) / spread
    return _beside_neighbours(grid, scaled, known)


def _beside_neighbours(grid: Grid, place: Floats, known: npt.NDArray[np.bool_]) -> Floats:
    """Every bus without coordinates beside the nearest one that has some, each in a direction of its own."""
    b = branches(grid)
    place, placed = place.copy(), known.copy()
    turn = 2.399963 * np.arange(len(place))  # the golden angle: neighbours never share a direction
    aside = _OFFSET * np.stack([np.cos(turn), np.sin(turn)], axis=1)
    while True:
        pairs = np.concatenate([np.stack([b.bus_from, b.bus_to]), np.stack([b.bus_to, b.bus_from])], axis=1)
        start, end = pairs[:, placed[pairs[0]] & ~placed[pairs[1]]]
        if not len(end):
            break
        end, first = np.unique(end, return_index=True)
        place[end] = place[start[first]] + aside[end]
        placed[end] = True
    place[~placed] = (0.0, 0.0)  # tied to nothing that has a place
    return place


def _tree(grid: Grid) -> Floats:
    """Hops from the source to the right; leaves side by side, and every other bus in the middle of what it feeds."""
    paths = hop_paths(grid)
    n = len(grid.bus)
    feeds: list[list[int]] = [[] for _ in range(n)]
    roots: list[int] = []
    for bus, before in enumerate(paths.predecessor.tolist()):
        (feeds[before] if before >= 0 else roots).append(bus)
    depth = np.where(np.isfinite(paths.distance), paths.distance, 0.0)
    height = np.zeros(n)
    leaves = 0
    waiting = [(root, False) for root in reversed(roots)]
    while waiting:  # no recursion: feeders are deep
        bus, done = waiting.pop()
        if done:
            height[bus] = np.mean(height[feeds[bus]])
        elif feeds[bus]:
            waiting.append((bus, True))
            waiting += [(child, False) for child in reversed(feeds[bus])]
        else:
            height[bus], leaves = leaves, leaves + 1
    return np.stack([depth / max(depth.max(initial=0.0), 1.0), height / max(leaves - 1, 1)], axis=1)
