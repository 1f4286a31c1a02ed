"""Service areas: demand-weighted clustering, with more clusters where capacity, reach or voltage drop fail.

Lloyd's iteration with demand as weight. A cluster of single-phase customers only is eligible for a centre-tapped
transformer: its customers hang from it by straight drops. Customers of all other clusters belong to the transformer
that is nearest along the streets. A cluster that fails a check is split across its longer axis, so that the count
grows where it must, and only there.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse.csgraph import dijkstra
from scipy.spatial import cKDTree

from mycelium.synth.customers import Customers
from mycelium.synth.geography import Flags, Floats, Ints
from mycelium.synth.territory import Territory

_LLOYD_STEPS = 5
_ROUNDS = 14
_NO_SITE = -9999  # what the engine of shortest paths says of a node that nothing reaches


@dataclass(frozen=True, slots=True)
class Rules:
    """What a service area must keep to.

    Attributes:
        centre_tapped: Whether areas of single-phase customers only get a centre-tapped transformer.
        customers_per_transformer, customers_per_three_phase: Aimed at; they give the first number of clusters.
        own_transformers: Three-phase customers are clustered apart from the others.
        largest_single_kva, largest_three_kva: Most nominal demand that a transformer may have.
        drop_reach_m, street_reach_m: Longest drop from a centre tap; longest way along the street.
        drop_pu_per_kw_m: Voltage drop of a drop line, per kW and metre.
        street_pu_per_kw_m: Voltage drop along the street, per kW and metre.
        most_drop_pu: Largest estimated voltage drop.
        coincidence: Of customers of one transformer, as a planner takes it.
    """

    centre_tapped: bool
    customers_per_transformer: float
    customers_per_three_phase: float
    own_transformers: bool
    largest_single_kva: float
    largest_three_kva: float
    drop_reach_m: float
    street_reach_m: float
    drop_pu_per_kw_m: float
    street_pu_per_kw_m: float
    most_drop_pu: float
    coincidence: float


@dataclass(frozen=True)
class Areas:
    """Service areas; each has at least one customer.

    Attributes:
        of_customer: Area of each customer. [customer]
        site: Street node of the transformer. [area]
        centre_tapped: Whether it is a centre-tapped one. [area]
        toward: For every street node the next one on the way to its three-phase transformer, negative at it and
            where there is none. [street node]
        rounds: How often clusters had to be split.
    """

    of_customer: Ints
    site: Ints
    centre_tapped: Flags
    toward: Ints
    rounds: int


def cluster_customers(territory: Territory, customers: Customers, rules: Rules, rng: np.random.Generator) -> Areas:
    """Areas that keep to the rules as far as splitting helps."""
    apart = rules.own_transformers and rules.centre_tapped
    groups = [~customers.three_phase, customers.three_phase] if apart else [np.ones(len(customers.kw), bool)]
    centres = np.concatenate([_first_centres(customers, group, rules, rng) for group in groups])
    owner = np.concatenate([np.full(len(c), k) for k, c in enumerate(_counted(customers, groups, rules))])
    street = cKDTree(territory.streets.xy_m)
    rounds = 0
    while True:
        label = _lloyd(customers, groups, centres, owner)
        areas = _areas(territory, customers, rules, label, street, rounds)
        failing = _failing(territory, customers, rules, areas)
        rounds += 1
        if rounds > _ROUNDS or not failing.any():
            return areas
        centres, owner = _split(customers, areas, failing, groups)


def _counted(customers: Customers, groups: list[Flags], rules: Rules) -> list[Ints]:
    """One entry per first centre of each group."""
    return [np.arange(_first_count(customers, group, rules)) for group in groups]


def _first_count(customers: Customers, group: Flags, rules: Rules) -> int:
    """Number of clusters to begin with, 0 for a group without customers."""
    n = int(group.sum())
    three = int((group & customers.three_phase).sum())
    single_only = rules.centre_tapped and three < n
    per = rules.customers_per_transformer if single_only else rules.customers_per_three_phase
    return min(max(round(n / per), 1), n)


def _first_centres(customers: Customers, group: Flags, rules: Rules, rng: np.random.Generator) -> Floats:
    """Places of customers drawn by demand, not the same one twice. [cluster, 2]"""
    count = _first_count(customers, group, rules)
    members = np.flatnonzero(group)
    if not count:
        return np.zeros((0, 2))
    # The largest of u ** (1 / weight) are a draw without replacement by weight.
    keys = rng.random(len(members)) ** (customers.kva[members].mean() / customers.kva[members])
    return customers.xy_m[members[np.sort(np.argsort(-keys, kind="stable")[:count])]]


def _lloyd(customers: Customers, groups: list[Flags], centres: Floats, owner: Ints) -> Ints:
    """Cluster of every customer after some steps of Lloyd's iteration, within each group. [customer]"""
    label = np.zeros(len(customers.kw), dtype=np.int64)
    weight = customers.kva
    centres = centres.copy()
    for step in range(_LLOYD_STEPS):
        for k, group in enumerate(groups):
            own = np.flatnonzero(owner == k)
            if len(own):
                label[group] = own[cKDTree(centres[own]).query(customers.xy_m[group])[1]]
        if step < _LLOYD_STEPS - 1:
            total = np.bincount(label, weight, len(centres))
            held = total > 0
            for axis in range(2):
                moment = np.bincount(label, weight * customers.xy_m[:, axis], len(centres))
                centres[held, axis] = moment[held] / total[held]
    return label


def _areas(
    territory: Territory, customers: Customers, rules: Rules, label: Ints, street: cKDTree, rounds: int
) -> Areas:
    """Sites beside the centroids; customers of three-phase areas go to the nearest site along the streets."""
    _, label = np.unique(label, return_inverse=True)
    n = int(label.max()) + 1
    weight = customers.kva
    total = np.bincount(label, weight, n)
    centroid = np.stack([np.bincount(label, weight * customers.xy_m[:, k], n) / total for k in range(2)], axis=1)
    site = street.query(centroid)[1].astype(np.int64)
    eligible = (np.bincount(label, customers.three_phase, n) == 0) & rules.centre_tapped
    toward = np.full(len(territory.streets.xy_m), -1, dtype=np.int64)
    routed = np.flatnonzero(~eligible)
    if len(routed):
        _, towards, source = dijkstra(
            territory.streets.graph, directed=False, indices=np.unique(site[routed]), min_only=True,
            return_predecessors=True,
        )  # fmt: skip
        toward = towards.astype(np.int64)
        of_site = np.full(len(toward), -1, dtype=np.int64)
        of_site[site[routed[::-1]]] = routed[::-1]
        moved = ~eligible[label]
        label = np.where(moved, of_site[source[territory.access]], label)
    kept, label = np.unique(label, return_inverse=True)
    return Areas(label.astype(np.int64), site[kept], eligible[kept], toward, rounds)


def _failing(territory: Territory, customers: Customers, rules: Rules, areas: Areas) -> Flags:
    """Areas of several customers that fail capacity, reach or the estimated voltage drop. [area]"""
    n = len(areas.site)
    label = areas.of_customer
    size = np.bincount(label, minlength=n)
    demand_kva = np.bincount(label, customers.kva, n)
    way_m = service_way_m(territory, customers, areas)
    farthest_m = np.zeros(n)
    np.maximum.at(farthest_m, label, way_m)
    kw_m = np.bincount(label, customers.kw * way_m, n)
    worst_drop = np.zeros(n)
    np.maximum.at(worst_drop, label, rules.drop_pu_per_kw_m * customers.kw * way_m)
    # Along a street the drop at the far end is about that of all demand at its mean distance, over two directions.
    street_drop = rules.street_pu_per_kw_m * rules.coincidence * kw_m / 2
    tapped = areas.centre_tapped
    capacity = demand_kva > np.where(tapped, rules.largest_single_kva, rules.largest_three_kva)
    reach = farthest_m > np.where(tapped, rules.drop_reach_m, rules.street_reach_m)
    drop = np.where(tapped, worst_drop, street_drop) > rules.most_drop_pu
    return np.asarray((capacity | reach | drop) & (size > 1))


def service_way_m(territory: Territory, customers: Customers, areas: Areas) -> Floats:
    """Way from each customer's transformer: straight from a centre tap, along the street from others. [customer]"""
    site_xy = territory.streets.xy_m[areas.site]
    straight = np.hypot(*(customers.xy_m - site_xy[areas.of_customer]).T)
    tapped = areas.centre_tapped[areas.of_customer]
    if tapped.all():
        return np.asarray(straight)
    along = dijkstra(
        territory.streets.graph, directed=False, indices=np.unique(areas.site[~areas.centre_tapped]), min_only=True
    )
    away = np.hypot(*(customers.xy_m - territory.streets.xy_m[territory.access]).T)
    return np.asarray(np.where(tapped, straight, along[territory.access] + away), dtype=np.float64)


def _split(customers: Customers, areas: Areas, failing: Flags, groups: list[Flags]) -> tuple[Floats, Ints]:
    """Centres for the next round: two in the place of each failing one, along its longer axis."""
    n = len(areas.site)
    label, weight = areas.of_customer, customers.kva
    total = np.bincount(label, weight, n)
    mean = np.stack([np.bincount(label, weight * customers.xy_m[:, k], n) / total for k in range(2)], axis=1)
    off = customers.xy_m - mean[label]
    xx, yy, xy = (np.bincount(label, weight * off[:, a] * off[:, b], n) / total for a, b in ((0, 0), (1, 1), (0, 1)))
    angle = 0.5 * np.arctan2(2 * xy, xx - yy)
    axis = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    spread = np.sqrt(np.maximum(xx * axis[:, 0] ** 2 + yy * axis[:, 1] ** 2 + 2 * xy * axis[:, 0] * axis[:, 1], 1.0))
    first = np.zeros(n, dtype=np.int64)
    for k, group in enumerate(groups):
        first[label[group]] = k
    step = (0.8 * spread)[:, None] * axis
    centres = np.concatenate([mean[~failing], (mean + step)[failing], (mean - step)[failing]])
    return centres, np.concatenate([first[~failing], first[failing], first[failing]])
