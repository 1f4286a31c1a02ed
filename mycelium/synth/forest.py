"""Rooted trees along streets, and what is summed up along them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mycelium.synth.geography import Floats, Ints


@dataclass(frozen=True)
class Forest:
    """Rooted trees; a parent comes before its children.

    Attributes:
        node: Street node. [tree node]
        parent: Tree node above, -1 at a root. [tree node]
        length_m: Way to the parent, 0 at a root. [tree node]
    """

    node: Ints
    parent: Ints
    length_m: Floats

    def place(self, n_nodes: int) -> Ints:
        """Tree node of every street node, -1 outside. [street node]"""
        found = np.full(n_nodes, -1, dtype=np.int64)
        found[self.node] = np.arange(len(self.node))
        return found

    def downstream(self, values: npt.NDArray[Any]) -> Floats:
        """Sums over the subtree of each node. [tree node, ...]"""
        total: Floats = values.astype(np.float64)
        for k in range(len(self.parent) - 1, 0, -1):
            if self.parent[k] >= 0:
                total[self.parent[k]] += total[k]
        return total

    def from_root(self, values: npt.NDArray[Any]) -> Floats:
        """Sums from the root down to each node, its own value included. [tree node, ...]"""
        total: Floats = values.astype(np.float64)
        for k in range(len(self.parent)):
            if self.parent[k] >= 0:
                total[k] += total[self.parent[k]]
        return total

    @property
    def distance_m(self) -> Floats:
        """From the root. [tree node]"""
        return self.from_root(self.length_m)


def grow(toward: Ints, length_m: Floats, ends: Iterable[int], order_m: Floats) -> Forest:
    """The union of the ways from some street nodes to their roots.

    Args:
        toward: Next street node on the way, negative at a root. [street node]
        length_m: Length of that step. [street node]
        ends: Where ways begin.
        order_m: Distance from the root, by which nodes are numbered. [street node]
    """
    used: set[int] = set()
    for end in ends:
        node = int(end)
        while node >= 0 and node not in used:
            used.add(node)
            node = int(toward[node])
    nodes = np.array(sorted(used), dtype=np.int64)
    nodes = nodes[np.lexsort((nodes, order_m[nodes]))]
    place = np.full(len(toward) + 1, -1, dtype=np.int64)
    place[nodes] = np.arange(len(nodes))
    up = toward[nodes]
    parent = np.where(up >= 0, place[np.maximum(up, -1)], -1)
    return Forest(nodes, parent, np.where(parent >= 0, length_m[nodes], 0.0))


def contract(forest: Forest, keep: npt.NDArray[np.bool_], span_m: float) -> Forest:
    """Without the nodes in the middle of a way, unless the span would become longer than this.

    Args:
        keep: Nodes that stay whatever happens. [tree node]
    """
    n = len(forest.node)
    children = np.bincount(forest.parent[forest.parent >= 0], minlength=n)
    stays = keep | (forest.parent < 0) | (children != 1)
    parent, length = forest.parent.copy(), forest.length_m.copy()
    # From the leaves up, so that each node is already joined to the lowest one that stays below it.
    only_child = np.full(n, -1, dtype=np.int64)
    inner = forest.parent >= 0
    only_child[forest.parent[inner]] = np.flatnonzero(inner)
    for k in range(n - 1, -1, -1):
        if stays[k]:
            continue
        child = only_child[k]
        if length[k] + length[child] > span_m:
            stays[k] = True
            continue
        parent[child], length[child] = parent[k], length[k] + length[child]
        only_child[parent[k]] = child
    number = np.cumsum(stays) - 1
    up = parent[stays]
    return Forest(forest.node[stays], np.where(up >= 0, number[np.maximum(up, 0)], -1), length[stays])
