"""The medium-voltage tree: an approximate Steiner tree (Mehlhorn 1988) of head and transformers in the streets."""

from __future__ import annotations

import numpy as np
import rustworkx as rx
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order

from mycelium.synth.forest import Forest, contract, grow
from mycelium.synth.geography import Ints, Streets


def steiner_tree(streets: Streets, head: int, terminals: Ints, span_m: float) -> Forest:
    """The tree, rooted at the head.

    Args:
        terminals: Street nodes to reach.
        span_m: Longest line section that is not cut in two.
    """
    ends = np.unique(np.append(terminals, head))
    if len(ends) == 1:
        return Forest(ends, np.array([-1]), np.zeros(1))
    edges = _tree_edges(streets, ends)
    n = len(streets.xy_m)
    length = np.hypot(*(streets.xy_m[edges[:, 0]] - streets.xy_m[edges[:, 1]]).T)
    matrix = csr_array((np.maximum(length, 1e-3), (edges[:, 0], edges[:, 1])), shape=(n, n))
    order, before = breadth_first_order(matrix, head, directed=False, return_predecessors=True)
    toward = np.where(before >= 0, before, -1).astype(np.int64)
    step = np.where(toward >= 0, np.hypot(*(streets.xy_m - streets.xy_m[np.maximum(toward, 0)]).T), 0.0)
    rank = np.zeros(n)
    rank[order] = np.arange(len(order))
    forest = grow(toward, step, ends, rank)
    return contract(forest, np.isin(forest.node, ends), span_m)


def _tree_edges(streets: Streets, ends: Ints) -> Ints:
    """Edges of the Steiner tree as pairs of street nodes. [edge, 2]"""
    graph = rx.PyGraph(multigraph=False)
    graph.add_nodes_from(range(len(streets.xy_m)))
    length = np.maximum(streets.length_m, 1e-3).tolist()
    graph.add_edges_from([(a, b, w) for (a, b), w in zip(streets.edge.tolist(), length, strict=True)])
    tree = rx.steiner_tree(graph, ends.tolist(), float)
    return np.array(sorted(tuple(sorted(pair)) for pair in tree.edge_list()), dtype=np.int64).reshape(-1, 2)
