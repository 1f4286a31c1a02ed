"""Territory, service areas, mains, the medium-voltage tree, phases and sizes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse.csgraph import dijkstra, minimum_spanning_tree

from mycelium.synth.cluster import Areas, Rules, cluster_customers, service_way_m
from mycelium.synth.customers import Customers
from mycelium.synth.forest import Forest, contract
from mycelium.synth.geography import Buildings, Geography, Streets, subdivide
from mycelium.synth.phases import assign_phases
from mycelium.synth.sizing import coincidence, size_lines
from mycelium.synth.steiner import steiner_tree
from mycelium.synth.territory import NoTerritory, Territory, sample_territory
from mycelium.synth.three_phase_area import route_mains
from mycelium.synth.town import Pattern, TownPlan, build_town
from tests.synth.bench import AMERICA, EUROPE, made, proposal

RULES = Rules(
    centre_tapped=True, customers_per_transformer=6, customers_per_three_phase=40, own_transformers=False,
    largest_single_kva=60, largest_three_kva=500, drop_reach_m=70, street_reach_m=400, drop_pu_per_kw_m=1e-5,
    street_pu_per_kw_m=6e-7, most_drop_pu=0.04, coincidence=0.6,
)  # fmt: skip


def town_of(n: int, three_phase: float, seed: int = 0) -> tuple[Territory, Customers]:
    rng = np.random.default_rng(seed)
    territory = sample_territory(build_town(TownPlan(Pattern.ORGANIC, 120, 22, 0.8, 0.1), n, rng), n, rng)
    count = len(territory.access)
    kw = rng.uniform(2, 9, count)
    customers = Customers(
        territory.buildings.xy_m, rng.random(count) < three_phase, kw, 0.2 * kw, np.zeros(count), np.zeros(count),
        np.zeros(count, int), np.ones(count),
    )  # fmt: skip
    return territory, customers


def areas_of(rules: Rules, three_phase: float = 0.0, n: int = 300) -> tuple[Territory, Customers, Areas]:
    territory, customers = town_of(n, three_phase)
    return territory, customers, cluster_customers(territory, customers, rules, np.random.default_rng(1))


# ---- territory -----------------------------------------------------------------------------------------------------


def test_only_streets_that_the_head_reaches_are_kept() -> None:
    two = subdivide(Streets(np.array([[0.0, 0], [300, 0], [0, 5000], [300, 5000]]), np.array([[0, 1], [2, 3]])))
    xy = np.array([[50.0, 10], [100, 10], [150, 10], [200, 5010], [250, 5010], [100, 5010]])
    place = Geography("two", two, Buildings(xy, np.full(6, 100.0), np.zeros(6, bool)), "")
    for seed in range(5):
        found = sample_territory(place, 6, np.random.default_rng(seed))
        assert len(found.buildings.xy_m) == 3  # those of one village
        assert np.ptp(found.streets.xy_m[:, 1]) == 0
        assert np.all(np.isfinite(dijkstra(found.streets.graph, directed=False, indices=found.head)))


def test_the_nearest_buildings_are_served() -> None:
    territory, _ = town_of(200, 0.0)
    everyone, _ = town_of(200, 0.0)
    some = sample_territory(
        Geography("part", territory.streets, everyone.buildings, ""), 50, np.random.default_rng(5)
    )  # fmt: skip
    out_m = dijkstra(some.streets.graph, directed=False, indices=some.head)
    assert len(some.access) == 50
    served = {tuple(xy) for xy in some.buildings.xy_m}
    head = some.streets.xy_m[some.head]
    left = np.array([xy for xy in everyone.buildings.xy_m if tuple(xy) not in served])
    assert out_m[some.access].max() + 120 >= np.hypot(*(left - head).T).min()


def test_a_place_without_buildings_is_said() -> None:
    streets = subdivide(Streets(np.array([[0.0, 0], [300, 0]]), np.array([[0, 1]])))
    nobody = Buildings(np.zeros((0, 2)), np.zeros(0), np.zeros(0, bool))
    with pytest.raises(NoTerritory, match="nowhere: 0 buildings"):
        sample_territory(Geography("nowhere", streets, nobody, ""), 10, np.random.default_rng(0))


# ---- service areas -------------------------------------------------------------------------------------------------


def test_every_customer_has_one_area_and_the_first_count_is_the_sampled_one() -> None:
    loose = replace(RULES, largest_single_kva=1e9, drop_reach_m=1e9, drop_pu_per_kw_m=0)
    _, customers, areas = areas_of(loose)
    assert areas.rounds == 0
    assert len(areas.site) == pytest.approx(len(customers.kw) / 6, abs=1)
    assert set(areas.of_customer) == set(range(len(areas.site)))


@pytest.mark.parametrize("rule", ["largest_single_kva", "drop_reach_m", "drop_pu_per_kw_m"])
def test_clusters_grow_until_capacity_reach_and_drop_are_kept(rule: str) -> None:
    loose = replace(RULES, largest_single_kva=1e9, drop_reach_m=1e9, drop_pu_per_kw_m=0)
    tight = {"largest_single_kva": 25.0, "drop_reach_m": 30.0, "drop_pu_per_kw_m": 0.04 / (5 * 30)}[rule]
    territory, customers, areas = areas_of(replace(loose, **{rule: tight}))
    assert len(areas.site) > len(areas_of(loose)[2].site)
    kva = np.bincount(areas.of_customer, customers.kva)
    way = service_way_m(territory, customers, areas)
    several = np.bincount(areas.of_customer) > 1
    if rule == "largest_single_kva":
        assert kva[several].max() <= tight
    elif rule == "drop_reach_m":
        assert way[several[areas.of_customer]].max() <= tight
    else:
        assert (tight * customers.kw * way)[several[areas.of_customer]].max() <= 0.04


def test_a_three_phase_customer_makes_its_cluster_a_three_phase_area() -> None:
    _, customers, areas = areas_of(RULES, three_phase=0.1)
    with_three = np.bincount(areas.of_customer, customers.three_phase) > 0
    assert areas.centre_tapped.any() and not areas.centre_tapped.all()
    assert not np.any(areas.centre_tapped & with_three)
    _, _, european = areas_of(replace(RULES, centre_tapped=False))
    assert not european.centre_tapped.any()


def test_transformers_are_near_the_demand_weighted_centre() -> None:
    territory, customers, areas = areas_of(RULES)
    site = territory.streets.xy_m[areas.site]
    weight = customers.kva
    total = np.bincount(areas.of_customer, weight)
    centre = np.stack([np.bincount(areas.of_customer, weight * customers.xy_m[:, k]) / total for k in (0, 1)], 1)
    off = np.hypot(*(site - centre).T)
    others = np.hypot(*(territory.streets.xy_m[:, None] - centre[None]).transpose(2, 0, 1)).min(axis=0)
    assert np.allclose(off, others)


def test_mains_are_shortest_ways_on_the_streets() -> None:
    territory, _, areas = areas_of(replace(RULES, centre_tapped=False, customers_per_three_phase=60))
    mains = route_mains(territory, areas, 1e9)
    shortest = dijkstra(territory.streets.graph, directed=False, indices=np.unique(areas.site), min_only=True)
    assert np.allclose(mains.distance_m, shortest[mains.node], atol=1e-6)
    assert set(territory.access) <= set(mains.node)


# ---- trees ---------------------------------------------------------------------------------------------------------


def test_the_tree_reaches_all_and_is_at_most_twice_the_optimum() -> None:
    territory, _ = town_of(400, 0.0)
    rng = np.random.default_rng(3)
    ends = rng.choice(len(territory.streets.xy_m), 25, replace=False)
    tree = steiner_tree(territory.streets, territory.head, ends, 1e9)
    assert set(ends) | {territory.head} <= set(tree.node)
    assert np.sum(tree.parent < 0) == 1 and tree.node[0] == territory.head
    # The minimum spanning tree of the metric closure is at most twice the best Steiner tree, and this one is no longer.
    both = np.append(ends, territory.head)
    closure = dijkstra(territory.streets.graph, directed=False, indices=both)[:, both]
    assert tree.length_m.sum() <= minimum_spanning_tree(closure).sum() * (1 + 1e-9)


def test_contraction_keeps_lengths_ends_and_spans() -> None:
    n = 12
    chain = Forest(np.arange(n), np.arange(-1, n - 1), np.append(0.0, np.full(n - 1, 10.0)))
    keep = np.zeros(n, bool)
    keep[5] = True
    short = contract(chain, keep, 35.0)
    assert short.length_m.sum() == chain.length_m.sum() and short.length_m.max() <= 35.0
    assert {0, 5, 11} <= set(short.node) and len(short.node) < n
    assert np.all(short.parent < np.arange(len(short.node)))


# ---- phases and sizes ----------------------------------------------------------------------------------------------


def test_laterals_have_one_phase_and_phases_are_balanced() -> None:
    territory, customers, areas = areas_of(replace(RULES, own_transformers=True), three_phase=0.02, n=900)
    feeder = steiner_tree(territory.streets, territory.head, areas.site, 60)
    plan = assign_phases(feeder, areas, customers, 300.0, 0.0, np.random.default_rng(0))
    count = plan.node.sum(axis=1)
    assert set(count) == {1, 3}
    inner = feeder.parent >= 0
    assert np.all(plan.node[inner] <= plan.node[feeder.parent[inner]])  # a phase comes from somewhere
    place = feeder.place(len(territory.streets.xy_m))[areas.site]
    tapped = areas.centre_tapped
    assert np.all(plan.node[place[tapped], plan.area[tapped]])
    assert np.all(count[place[~tapped]] == 3)
    kva = np.bincount(areas.of_customer, customers.kva)
    by_phase = np.bincount(plan.area[tapped], kva[tapped], 3)
    assert by_phase.max() - by_phase.min() <= kva[tapped].max() + 300.0


def test_customers_of_european_areas_are_balanced_but_for_the_chance_asked_for() -> None:
    territory, customers, areas = areas_of(replace(RULES, centre_tapped=False))
    feeder = steiner_tree(territory.streets, territory.head, areas.site, 60)

    def spread(imbalance: float) -> float:
        plan = assign_phases(feeder, areas, customers, 300.0, imbalance, np.random.default_rng(0))
        assert np.all(plan.node) and set(plan.customer) == {0, 1, 2}
        sums = np.zeros((len(areas.site), 3))
        np.add.at(sums, (areas.of_customer, plan.customer), customers.kva)
        return float(np.mean(sums.max(axis=1) / sums.mean(axis=1)))

    assert spread(0.0) < 1.1 < spread(1.0)


def test_lines_carry_what_is_downstream() -> None:
    """Every line's rating covers its coincident demand on its most loaded phase."""
    for region in (AMERICA, EUROPE):
        parameters, found = proposal(region, 300)
        design = found.design
        feeders = design.feeders_of()
        flow: dict[str, np.ndarray] = {}
        count: dict[str, int] = {}
        units = {unit.bus2: unit for unit in design.units.values()}
        for load in design.loads.values():
            share = np.zeros(3)
            unit = units.get(f"t{load.area}")
            at = unit.conductors if unit is not None and len(unit.conductors) == 1 else load.conductors
            share[[c - 1 for c in at]] = load.kw / len(at)
            for branch in design.path(load.bus, feeders):
                flow[branch.name] = flow.get(branch.name, np.zeros(3)) + share
                count[branch.name] = count.get(branch.name, 0) + 1
        mv_lines = [line for line in design.lines.values() if line.name.startswith("mv_") and line.name in flow]
        assert mv_lines
        for line in mv_lines:
            kv = design.buses[line.bus2].base_kv / 3**0.5
            amps = flow[line.name].max() * coincidence(np.array(count[line.name])) / kv
            assert line.rated_a * parameters.line_utilisation >= 0.99 * amps


def test_more_drop_than_the_budget_makes_larger_lines() -> None:
    ladder = sorted(
        {row.ampacity_a: row for row in made(EUROPE).proposal.options.stock.lv[3]}.values(), key=lambda r: r.ampacity_a
    )  # type: ignore[union-attr]
    chain = Forest(np.arange(6), np.arange(-1, 5), np.append(0.0, np.full(5, 80.0)))
    kw = np.outer(np.arange(6, 0, -1), np.ones(3)) * 4.0
    phases = np.full(6, 3)
    generous = size_lines(chain, kw, phases, {3: ladder}, 0.23, 1.0, 1.0)
    strict = size_lines(chain, kw, phases, {3: ladder}, 0.23, 1.0, 0.002)
    assert len(ladder) > 1 and strict.step.sum() > generous.step.sum()
    assert strict.drop_pu.max() < generous.drop_pu.max()
