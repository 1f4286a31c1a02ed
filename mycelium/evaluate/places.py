"""How far two pieces of equipment are apart, on the network of the records: switches count as closed."""

from __future__ import annotations

import numpy as np
import torch
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from mycelium.window.columns import OBJECT, Relation, Store, first, temporal_columns
from mycelium.window.window import Window

_BRANCHES = (Relation.LINE, Relation.TRANSFORMER, Relation.REACTOR)
_PHASES_AND_OWN = 4


def bus_steps(window: Window, start: Tensor, end: Tensor, most: int) -> Tensor:
    """Fewest branches between the buses of one candidate and those of another, in each sample. [sample]

    A bus has itself, a branch the buses at its ends; so a branch and its end are 0 apart. ``most + 1`` stands for more.

    Args:
        window: The samples.
        start, end: A candidate each. [sample]
        most: How far to look.
    """
    graph, n = window.graph[Store.BUS], window.n_graphs
    reached, goal = _terminals(window, start), _terminals(window, end)
    steps = torch.full((n,), most + 1, dtype=torch.int64, device=graph.device)
    for step in range(most + 1):
        hit = torch.zeros(n, dtype=torch.bool, device=graph.device)
        hit[graph[reached & goal]] = True
        steps = torch.where(hit & (steps > step), step, steps)
        reached = _grown(window, reached)
    return steps


def _terminals(window: Window, candidate: Tensor) -> Tensor:
    """Buses of one candidate per sample. [bus]"""
    n_bus, n_line = len(window.graph[Store.BUS]), len(window.graph[Store.LINE])
    found = torch.zeros(n_bus, dtype=torch.bool, device=candidate.device)
    found[candidate[candidate < n_bus]] = True
    line = candidate - n_bus
    found[window.edges[Relation.LINE][:, line[(line >= 0) & (line < n_line)]]] = True
    transformer = line - n_line
    owner, edge = window.edges[Relation.OBJECT_EDGE]
    mine = torch.isin(owner, transformer[transformer >= 0])
    found[window.edges[Relation.TRANSFORMER][:, edge[mine]]] = True
    return found


def _grown(window: Window, reached: Tensor) -> Tensor:
    """These buses and their neighbours. [bus]"""
    grown = reached.clone()
    for relation in _BRANCHES:
        one, other = window.edges[relation]
        grown[other[reached[one]]] = True
        grown[one[reached[other]]] = True
    return grown


def zones(window: Window) -> Tensor:
    """A number for every candidate; two have the same if no bus whose voltage was reported at the last hour, when a
    fault is, lies between them. A bus with a report, and a branch between two of them, are zones of their own.
    [candidate]
    """
    seen = _reported(window)
    n = len(seen)
    ends = torch.cat([window.edges[relation] for relation in _BRANCHES], dim=1).cpu().numpy()
    dark = ~seen.cpu().numpy()
    inner = ends[:, dark[ends].all(axis=0)]
    _, label = connected_components(coo_array((np.ones(inner.shape[1]), (inner[0], inner[1])), shape=(n, n)), False)
    of_bus = torch.from_numpy(label.astype(np.int64)).to(seen.device)  # a bus with a report has no inner branch
    n_line, n_object = len(window.graph[Store.LINE]), len(window.graph[OBJECT])
    result = torch.arange(n + n_line + n_object, device=seen.device) + n  # beyond every label
    result[:n] = of_bus
    owner, edge = window.edges[Relation.OBJECT_EDGE]
    for first_row, rows, pair in (
        (n, torch.arange(n_line, device=seen.device), window.edges[Relation.LINE]),
        (n + n_line, owner, window.edges[Relation.TRANSFORMER][:, edge]),
    ):
        for end in pair:
            inside = ~seen[end]
            result[first_row + rows[inside]] = of_bus[end[inside]]
    return result


def _reported(window: Window) -> Tensor:
    """Buses with a voltage reading at the last hour. [bus]"""
    place = first(temporal_columns(window.options)[Store.BUS], "voltage_v")
    return window.temporal[Store.BUS].seen[-1, :, place : place + _PHASES_AND_OWN].any(dim=-1)
