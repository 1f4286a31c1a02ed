"""Which phases each lateral, transformer and customer is on.

Medium voltage has three phases wherever a three-phase transformer or more demand than a lateral may have lies
downstream; what hangs from there on one phase is a lateral. Laterals, the largest first, go to the phase with the
least demand, and so do single-phase customers of a three-phase area; but for a sampled share whose phase is left to
chance, as it is where nobody keeps records.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mycelium.synth.cluster import Areas
from mycelium.synth.customers import Customers
from mycelium.synth.forest import Forest
from mycelium.synth.geography import Flags, Floats, Ints

_UNSET = -1


@dataclass(frozen=True)
class PhasePlan:
    """Phases 0, 1, 2 of everything.

    Attributes:
        node: Phases present at each node of the medium-voltage tree. [tree node, 3]
        area: Phase of each centre-tapped area, -1 where there are three. [area]
        customer: Phase of each single-phase customer of a three-phase area, else -1. [customer]
    """

    node: Flags
    area: Ints
    customer: Ints


def assign_phases(
    feeder: Forest,
    areas: Areas,
    customers: Customers,
    lateral_kva: float,
    imbalance: float,
    rng: np.random.Generator,
) -> PhasePlan:
    """Phases of nodes, areas and customers.

    Args:
        lateral_kva: Most nominal demand on a single-phase lateral.
        imbalance: Share of laterals and single-phase customers whose phase is left to chance.
    """
    place = feeder.place(int(max(feeder.node.max(), areas.site.max())) + 1)[areas.site]
    area_kva = np.bincount(areas.of_customer, customers.kva, len(areas.site))
    at_node = np.bincount(place, area_kva, len(feeder.node))
    three_at = np.bincount(place, ~areas.centre_tapped, len(feeder.node))
    below_kva = feeder.downstream(at_node)
    three = (feeder.downstream(three_at) > 0) | (below_kva > lateral_kva) | (feeder.parent < 0)
    if not areas.centre_tapped.any():
        three[:] = True
    lateral = _laterals(feeder, three)
    n_laterals = int(lateral.max()) + 1
    # A centre-tapped area at a three-phase node is an item of its own.
    alone = areas.centre_tapped & (lateral[place] < 0)
    item_kva = np.concatenate([np.bincount(lateral[lateral >= 0], at_node[lateral >= 0], n_laterals), area_kva[alone]])
    phase = _balanced(item_kva, imbalance, rng)
    area_phase = np.full(len(areas.site), _UNSET, dtype=np.int64)
    area_phase[alone] = phase[n_laterals:]
    along = areas.centre_tapped & ~alone
    area_phase[along] = phase[lateral[place[along]]]
    node = np.repeat(three[:, None], 3, axis=1)
    on_lateral = np.flatnonzero(lateral >= 0)
    node[on_lateral, phase[lateral[on_lateral]]] = True
    return PhasePlan(node, area_phase, _customer_phases(areas, customers, imbalance, rng))


def _laterals(feeder: Forest, three: Flags) -> Ints:
    """Number of the single-phase lateral that each node is on, -1 on three phases. [tree node]"""
    lateral = np.full(len(three), _UNSET, dtype=np.int64)
    count = 0
    for k in range(len(three)):
        if three[k]:
            continue
        if three[feeder.parent[k]]:
            lateral[k] = count
            count += 1
        else:
            lateral[k] = lateral[feeder.parent[k]]
    return lateral


def _balanced(kva: Floats, imbalance: float, rng: np.random.Generator) -> Ints:
    """Each item to the phase with the least so far, the largest item first, but for a share left to chance. [item]"""
    chance, by_chance = rng.random(len(kva)) < imbalance, rng.integers(3, size=len(kva))
    phase = np.zeros(len(kva), dtype=np.int64)
    load = np.zeros(3)
    for k in np.argsort(-kva, kind="stable"):
        phase[k] = by_chance[k] if chance[k] else int(np.argmin(load))
        load[phase[k]] += kva[k]
    return phase


def _customer_phases(areas: Areas, customers: Customers, imbalance: float, rng: np.random.Generator) -> Ints:
    n = len(customers.kw)
    phase = np.full(n, _UNSET, dtype=np.int64)
    asked = ~customers.three_phase & ~areas.centre_tapped[areas.of_customer]
    chance = rng.random(n) < imbalance
    by_chance = rng.integers(3, size=n)
    load = np.zeros((len(areas.site), 3))
    for k in np.flatnonzero(asked)[np.argsort(-customers.kva[asked], kind="stable")]:
        own = load[areas.of_customer[k]]
        phase[k] = by_chance[k] if chance[k] else int(np.argmin(own))
        own[phase[k]] += customers.kva[k]
    return phase
