"""How far two pieces of equipment are apart, on the network of the records: switches count as closed."""

from __future__ import annotations

import numpy as np
import torch
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from mycelium.window.columns import OBJECT, Relation, Store
from mycelium.window.window import Window

_BRANCHES = (Relation.LINE, Relation.TRANSFORMER, Relation.REACTOR)


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
    """A number for every candidate; two have the same if nothing that was reported at the last hour, when a fault is,
    lies between them. A bus that reports is a zone of its own; a line whose current or power is metered at its first
    end is cut off there. [candidate]
    """
    reports = _reporting(window)
    metered = _seen(window, Store.LINE)
    n, n_line, n_object = len(reports), len(window.graph[Store.LINE]), len(window.graph[OBJECT])
    inner = [window.edges[relation] for relation in _BRANCHES]
    inner[0] = inner[0][:, ~metered]
    ends = torch.cat(inner, dim=1)
    one, other = ends[:, ~reports[ends].any(dim=0)].cpu().numpy()
    _, label = connected_components(coo_array((np.ones(len(one)), (one, other)), shape=(n, n)), False)
    of_bus = torch.from_numpy(label.astype(np.int64)).to(reports.device)  # a bus that reports has no inner branch
    result = torch.arange(n + n_line + n_object, device=reports.device) + n  # beyond every label
    result[:n] = of_bus
    owner, edge = window.edges[Relation.OBJECT_EDGE]
    line, pair = torch.arange(n_line, device=reports.device), window.edges[Relation.LINE]
    units = window.edges[Relation.TRANSFORMER][:, edge]
    for rows, end, free in (
        (n + line, pair[0], ~metered),
        (n + line, pair[1], torch.ones_like(metered)),
        *((n + n_line + owner, end, torch.ones_like(owner, dtype=torch.bool)) for end in units),
    ):
        inside = ~reports[end] & free
        result[rows[inside]] = of_bus[end[inside]]
    return result


def _reporting(window: Window) -> Tensor:
    """Buses where anything was reported at the last hour: by the bus, a customer, a transformer's terminal or the
    feeder head. [bus]
    """
    reports = _seen(window, Store.BUS)
    for store, relation in (
        (Store.CONSUMER, Relation.SERVICE),
        (Store.TERMINAL, Relation.TERMINAL_BUS),
        (Store.SUBSTATION, Relation.SOURCE),
    ):
        if store in window.temporal:  # optional parts of the inputs
            meter, bus = window.edges[relation]
            reports[bus[_seen(window, store)[meter]]] = True
    return reports


def _seen(window: Window, store: Store) -> Tensor:
    """What has any reading at the last hour. [entity]"""
    return window.temporal[store].seen[-1].any(dim=-1)
