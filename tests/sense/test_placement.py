"""Placement: how many, where, and that nothing but network, policy and records decides it."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
from scipy.stats import chisquare

from mycelium.errors import FeederError
from mycelium.grid.grid import Grid
from mycelium.grid.read_opendss import read_opendss
from mycelium.grid.topology import Branches, branches, sources
from mycelium.sense.k_center import farthest_first
from mycelium.sense.placement import Placement, dt_buses, other_transformers, place, plain_buses
from mycelium.sense.policies import POLICIES, Policy, Strategy
from tests.conftest import ReferenceNetworks
from tests.leaks.rewrite import POSITIONS, read_edited, with_phases, with_positions
from tests.sense.networks import EVERY, WITH_GROUPS, bundled, open_network

DEGRADED = [name for name in POLICIES if name != "clean"]
CLUSTERED = [name for name in POLICIES if POLICIES[name].strategy is Strategy.K_CENTER]
SPREAD = replace(POLICIES["observability_ami_dense"], name="spread")


def graph(grid: Grid) -> nx.Graph:
    """Buses joined by lines, transformers and series elements, whatever the position of switches."""
    joined = nx.Graph()
    joined.add_nodes_from(range(len(grid.bus)))
    joined.add_edges_from(zip(grid.line["bus1"], grid.line["bus2"], strict=True))
    first = grid.transformer["first_winding"].to_numpy()[grid.winding["transformer"].to_numpy()]
    joined.add_edges_from(zip(grid.winding["bus1"].to_numpy()[first], grid.winding["bus1"], strict=True))
    for table in (grid.reactor, grid.capacitor):
        series = table[table["series"]]
        joined.add_edges_from(zip(series["bus1"], series["bus2"], strict=True))
    return joined


def hops(joined: nx.Graph, seeds: set[int]) -> dict[int, int]:
    """Hops of every reached bus to the nearest seed."""
    return dict(nx.multi_source_dijkstra_path_length(joined, seeds, weight=None))


def rows(grid: Grid, table: str, names: tuple[str, ...]) -> np.ndarray:
    """Rows of names."""
    place_of = {name: row for row, name in enumerate(grid.tables[table]["name"])}
    return np.array([place_of[name] for name in names], dtype=np.int64)


# ---- how many ----------------------------------------------------------------------------------------------------


def expected(share: float, pool: int) -> int:
    return min(pool, max(1, round(share * pool)))


@pytest.mark.parametrize("name", EVERY)
def test_coverage_is_that_of_the_policy_on_every_pool(name: str, reference_network: ReferenceNetworks) -> None:
    grid = open_network(name, reference_network).published.grid
    meters, plain = dt_buses(grid), plain_buses(grid)
    head = set(grid.substation["bus1"])
    assert set(meters) | set(plain) | head == set(range(len(grid.bus))) and not set(meters) & set(plain)
    assert not set(plain) & head
    served = np.unique(grid.consumer["transformer"].to_numpy())
    banks = np.unique(grid.transformer["bank"][grid.transformer["distribution"]])
    assert set(served[served >= 0]) <= set(banks)
    assert len(meters) <= len(banks)  # a bank is one; transformers side by side share a bus
    branch = len(grid.line) + len(other_transformers(grid))
    for policy in POLICIES.values():
        placed = place(grid, policy, name)
        assert len(placed.dt_meters) == expected(policy.dt_share, len(meters))
        assert len(placed.buses) == expected(policy.bus_share, len(plain))
        assert len(placed.lines) + len(placed.transformers) == expected(policy.branch_share, branch)
        customers = expected(policy.customer_share, len(grid.consumer))
        assert len(placed.consumers) == customers and set(placed.reactive) <= set(placed.consumers)
        assert len(placed.reactive) == expected(policy.reactive_share, customers)
        assert set(rows(grid, "bus", placed.dt_meters)) <= set(meters)
        assert set(rows(grid, "bus", placed.buses)) <= set(plain)


def test_a_share_of_nothing_places_nothing_and_a_policy_of_ones_own_is_as_good() -> None:
    grid = bundled("us_suburb").published.grid
    mine = Policy("mine", 0.0, 0.5, 0.0, 0.25, 0.0, Strategy.K_CENTER)
    placed = place(grid, mine, "a network")
    assert not placed.buses and not placed.lines and not placed.transformers and not placed.reactive
    assert len(placed.dt_meters) == round(0.5 * len(dt_buses(grid)))
    assert len(placed.consumers) == round(0.25 * len(grid.consumer))


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", ["us_suburb", "ieee13", "smartds", "iowa"])
def test_a_dt_meter_grants_voltage_and_currents_of_its_bus_together(
    name: str, policy: str, reference_network: ReferenceNetworks
) -> None:
    grid = open_network(name, reference_network).published.grid
    placed = place(grid, POLICIES[policy], name)
    sensors = placed.on(grid)
    bus, owner = grid.winding["bus1"].to_numpy(), grid.winding["transformer"].to_numpy()
    low_side = grid.transformer["distribution"].to_numpy()[owner] & (grid.winding["rated_kv"] < 1.0).to_numpy()
    metered = rows(grid, "bus", placed.dt_meters)
    assert sensors.bus[metered].all()
    assert np.array_equal(sensors.winding[low_side], np.isin(bus[low_side], metered))
    other = np.isin(owner, rows(grid, "transformer", placed.transformers)) & (grid.winding["number"] == 1).to_numpy()
    assert np.array_equal(sensors.winding[~low_side], other[~low_side])


@pytest.mark.parametrize("policy", POLICIES)
def test_source_buses_are_seen_under_every_policy(policy: str) -> None:
    for feeder in ("ieee13", "lv_town", "us_suburb"):
        grid = bundled(feeder).published.grid
        placed = place(grid, POLICIES[policy], feeder)
        assert placed.on(grid).bus[sources(grid)].all()
        assert set(np.flatnonzero(placed.on(grid).bus)) == (
            set(sources(grid)) | set(rows(grid, "bus", placed.buses)) | set(rows(grid, "bus", placed.dt_meters))
        )


# ---- where: uniform ----------------------------------------------------------------------------------------------


def test_uniform_placement_chooses_every_element_equally_often() -> None:
    grid = bundled("us_suburb").published.grid
    policy = POLICIES["noisy_missing_dense"]
    draws = 400
    counts = {part: dict.fromkeys(grid.tables[table]["name"], 0) for part, table in
              (("buses", "bus"), ("lines", "line"), ("consumers", "consumer"), ("reactive", "consumer"))}  # fmt: skip
    for k in range(draws):
        placed = place(grid, policy, f"network {k}")
        for part, count in counts.items():
            for name in getattr(placed, part):
                count[name] += 1
    buses = grid.bus["name"].to_numpy()[plain_buses(grid)]
    assert {name for name, n in counts["buses"].items() if n} <= set(buses)
    for part, count in counts.items():
        seen = np.array([count[name] for name in (buses if part == "buses" else count)], dtype=np.float64)
        share = seen.sum() / draws / len(seen)
        # A share drawn without replacement varies by (1 - share) of a multinomial's.
        scaled = seen.mean() + (seen - seen.mean()) / np.sqrt(1.0 - share)
        assert chisquare(scaled).pvalue > 1e-3, part


# ---- where: k-center ---------------------------------------------------------------------------------------------


def _greedy(joined: nx.Graph, seeds: set[int], ordered: list[int], count: int) -> list[int]:
    """k-center the plain way: again and again the farthest candidate, the first of several."""
    chosen: list[int] = []
    for _ in range(count):
        reach = hops(joined, seeds | {ordered[k] for k in chosen})
        free = [k for k in range(len(ordered)) if k not in chosen]
        chosen.append(max(free, key=lambda k: (reach.get(ordered[k], -1), -k)))
    return chosen


@pytest.mark.parametrize("feeder", ["ieee13", "ieee34", "ieee123", "lv_town", "us_suburb"])
@pytest.mark.parametrize("seed", range(3))
def test_sensors_are_those_of_the_plain_greedy_algorithm(feeder: str, seed: int) -> None:
    grid = bundled(feeder).published.grid
    ordered = np.random.default_rng(seed).permutation(np.arange(len(grid.bus)))
    branch_buses = np.random.default_rng(seed).permutation(grid.line["bus1"].to_numpy().astype(np.int64))
    for candidates in (ordered, branch_buses):
        count = min(20, len(candidates))
        chosen = farthest_first(branches(grid), sources(grid), candidates, count)
        assert chosen.tolist() == _greedy(graph(grid), set(sources(grid)), candidates.tolist(), count)


@pytest.mark.parametrize("seed", range(20))
def test_the_radius_is_never_more_than_twice_the_best_possible(seed: int) -> None:
    rng = np.random.default_rng(seed)
    joined = nx.gnm_random_graph(13, int(rng.integers(12, 18)), seed=seed)
    joined = nx.convert_node_labels_to_integers(joined.subgraph(max(nx.connected_components(joined), key=len)))
    ends = np.array(joined.edges, dtype=np.int64)
    kind = np.zeros(len(ends), dtype=np.int8)
    b = Branches(kind, kind.astype(np.int64), kind.astype(np.int64), ends[:, 0], ends[:, 1], kind > 0, len(joined))
    pool = np.arange(1, len(joined))
    for count in (1, 2, 3):
        order = rng.permutation(pool)
        chosen = order[farthest_first(b, np.array([0]), order, count)]
        radius = max(hops(joined, {0, *chosen.tolist()}).values())
        best = min(max(hops(joined, {0, *picked}).values()) for picked in combinations(pool.tolist(), count))
        assert best <= radius <= 2 * best


@pytest.mark.parametrize("policy", CLUSTERED)
@pytest.mark.parametrize("name", EVERY)
def test_dt_meters_come_first_and_plain_sensors_fill_what_they_leave(
    name: str, policy: str, reference_network: ReferenceNetworks
) -> None:
    grid = open_network(name, reference_network).published.grid
    placed = place(grid, POLICIES[policy], name)
    joined, head = graph(grid), set(sources(grid).tolist())
    _assert_spread(joined, head, dt_buses(grid), rows(grid, "bus", placed.dt_meters))
    with_meters = head | set(rows(grid, "bus", placed.dt_meters).tolist())
    _assert_spread(joined, with_meters, plain_buses(grid), rows(grid, "bus", placed.buses))


def _assert_spread(joined: nx.Graph, seeds: set[int], pool: np.ndarray, chosen: np.ndarray) -> None:
    """What any greedy order guarantees: no two sensors, nor sensor and seed, nearer than the radius left."""
    if not len(chosen):
        return
    reach = hops(joined, seeds | set(chosen.tolist()))
    radius = max((reach[bus] for bus in pool.tolist() if bus in reach), default=0)
    everything = sorted(seeds | set(chosen.tolist()))
    for bus in np.random.default_rng(0).permutation(chosen)[:40].tolist():
        away = hops(joined, {bus})
        nearest = min((away[other] for other in everything if other != bus and other in away), default=radius)
        assert nearest >= radius


def test_k_center_leaves_less_distance_than_chance() -> None:
    for feeder in ("ieee123", "lv_town", "us_suburb"):
        grid = bundled(feeder).published.grid
        joined, head = graph(grid), set(sources(grid).tolist())

        def radius(policy: Policy, grid: Grid = grid, joined: nx.Graph = joined, head: set[int] = head) -> int:
            placed = place(grid, policy, "a network")
            seen = head | set(rows(grid, "bus", placed.dt_meters + placed.buses).tolist())
            return max(hops(joined, seen).values())

        by_chance = [radius(replace(SPREAD, name=f"chance {k}", strategy=Strategy.UNIFORM)) for k in range(20)]
        spread = [radius(replace(SPREAD, name=f"spread {k}")) for k in range(5)]
        assert max(spread) <= min(by_chance)


def test_flow_sensors_stand_apart_from_each_other_and_from_the_head() -> None:
    grid = bundled("ieee123").published.grid
    joined, head = graph(grid), set(sources(grid).tolist())
    placed = place(grid, POLICIES["observability_ami_dense"], "a network")
    first = grid.transformer["first_winding"].to_numpy()[rows(grid, "transformer", placed.transformers)]
    at = np.concatenate([
        grid.line["bus1"].to_numpy()[rows(grid, "line", placed.lines)], grid.winding["bus1"].to_numpy()[first]
    ]).astype(np.int64)  # fmt: skip
    assert len(np.unique(at)) == len(at)
    _assert_spread(joined, head, np.unique(grid.line["bus1"].to_numpy()), at)


def test_buses_that_no_source_reaches_come_last() -> None:
    # A path 0 - 1 - 2 - 3 from the source and an island 4 - 5.
    start, end = np.array([0, 1, 2, 4]), np.array([1, 2, 3, 5])
    zeros = np.zeros(4, dtype=np.int64)
    b = Branches(zeros.astype(np.int8), zeros, zeros, start, end, zeros > 0, 6)
    order = np.array([5, 4, 1, 2, 3])
    assert order[farthest_first(b, np.array([0]), order, 5)].tolist() == [3, 1, 2, 5, 4]


# ---- where: smart meters -----------------------------------------------------------------------------------------


def _partly_served(grid: Grid, placed: Placement) -> tuple[int, int]:
    """Areas of distribution transformers with some but not all customers metered, and with any."""
    serving = grid.consumer["transformer"].to_numpy()
    metered = np.zeros(len(serving), bool)
    metered[rows(grid, "consumer", placed.consumers)] = True
    some = {row for row in serving[metered].tolist() if row >= 0}
    part = sum(not metered[serving == row].all() for row in some)
    return part, len(some)


@pytest.mark.parametrize("name", EVERY)
def test_smart_meters_come_area_by_area_or_one_by_one(name: str, reference_network: ReferenceNetworks) -> None:
    grid = open_network(name, reference_network).published.grid
    serving = grid.consumer["transformer"].to_numpy()
    sizes = np.bincount(serving[serving >= 0], minlength=1)
    for policy in DEGRADED:
        placed = place(grid, POLICIES[policy], name)
        part, some = _partly_served(grid, placed)
        if POLICIES[policy].strategy is Strategy.K_CENTER:
            assert part <= 1, policy  # the last area is cut so that the count is met
        elif np.sum(sizes > 3) > 10:
            assert part > 0.5 * min(some, np.sum(sizes > 3)) * (1 - POLICIES[policy].customer_share), policy


def test_every_area_is_as_likely_to_be_rolled_out() -> None:
    grid = bundled("us_suburb").published.grid
    policy = POLICIES["observability_ami_medium"]
    serving = grid.consumer["transformer"].to_numpy()
    served = serving >= 0
    hits = np.zeros(len(grid.consumer))
    draws = 300
    for k in range(draws):
        hits[rows(grid, "consumer", place(grid, policy, f"network {k}").consumers)] += 1
    by_area = np.array([hits[serving == row].mean() for row in np.unique(serving[served])]) / draws
    # About a binomial per area: four standard errors.
    assert np.abs(by_area - policy.customer_share).max() < 4 * np.sqrt(0.25 / draws) + 0.05
    assert by_area.min() > 0.1


# ---- what decides it ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("feeder", WITH_GROUPS)
def test_another_truth_gives_the_same_placement(feeder: str, tmp_path: Path) -> None:
    grid = bundled(feeder).published.grid
    turned = ((bundled(feeder).published.recorded.group_phase + 1) % 3).astype(np.int8)
    names = grid.line["name"].iloc[grid.switches].tolist()
    drawn = dict(zip(names, np.random.default_rng(1).choice(POSITIONS, len(names)).tolist(), strict=True))
    other, _ = read_edited(feeder, tmp_path / "other", with_phases(grid, turned), with_positions(drawn))
    for policy in POLICIES.values():
        assert place(grid, policy, feeder) == place(other, policy, feeder)


def _shuffled(grid: Grid, seed: int) -> Grid:
    """The same records with buses, lines and customers in another order of rows."""
    rng = np.random.default_rng(seed)
    order = {name: rng.permutation(len(grid.tables[name])) for name in ("bus", "line", "consumer")}
    new_row = np.argsort(order["bus"]).astype(np.int32)
    tables = {}
    for name, table in grid.tables.items():
        ends = {column: new_row[table[column].to_numpy()] for column in ("bus1", "bus2") if column in table}
        moved = table.assign(**ends)
        tables[name] = moved.iloc[order[name]].reset_index(drop=True) if name in order else moved
    return replace(grid, tables=tables)


@pytest.mark.parametrize("name", ["ieee123", "lv_town", "us_suburb", "enwl", "smartds"])
def test_the_order_of_rows_does_not_matter(name: str, reference_network: ReferenceNetworks) -> None:
    grid = open_network(name, reference_network).published.grid
    for policy in POLICIES.values():
        assert place(grid, policy, name) == place(_shuffled(grid, 3), policy, name)


def _star(folder: Path, leaves: int) -> Grid:
    """A hub with customers on spokes of their own, all alike but for their names."""
    spokes = [
        f"New Line.l{k:02d} phases=1 bus1=hub.{k % 3 + 1} bus2=house_{k:02d}.{k % 3 + 1} length=1\n"
        f"New Load.c{k:02d} phases=1 bus1=house_{k:02d}.{k % 3 + 1} kV=7.2 kW=1"
        for k in range(leaves)
    ]
    head = ["Clear", "New Circuit.star bus1=head basekv=12.47", "New Line.main bus1=head bus2=hub length=1"]
    (folder / "Master.dss").write_text("\n".join([*head, *spokes, "Set VoltageBases=[12.47]", "CalcVoltageBases"]))
    return read_opendss(folder / "Master.dss")[0]


def test_of_buses_equally_far_away_each_is_as_likely_whatever_its_name(tmp_path: Path) -> None:
    # Names may spell phases: by alphabet, masks would tell them.
    leaves, draws, share = 30, 200, 0.3
    grid = _star(tmp_path, leaves)
    hits = np.zeros(leaves)
    for k in range(draws):
        placed = place(grid, replace(SPREAD, name=f"policy {k}", bus_share=share), "a network")
        hits[[int(name.removeprefix("house_")) for name in placed.buses]] += 1
    drawn = hits.sum() / draws / leaves
    assert drawn == pytest.approx(round(share * (leaves + 1)) / leaves)
    assert chisquare(hits.mean() + (hits - hits.mean()) / np.sqrt(1.0 - drawn)).pvalue > 1e-3


def test_networks_and_policies_of_other_names_are_placed_otherwise() -> None:
    grid = bundled("us_suburb").published.grid
    policy = POLICIES["noisy_missing_medium"]
    one = place(grid, policy, "one")
    assert one == place(grid, policy, "one")
    other, again = place(grid, policy, "other"), place(grid, replace(policy, name="other"), "one")
    assert one.consumers != other.consumers and one.consumers != again.consumers


# ---- kept by name ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", POLICIES)
def test_a_placement_survives_its_file_bit_by_bit(policy: str, tmp_path: Path) -> None:
    grid = bundled("us_suburb").published.grid
    placed = place(grid, POLICIES[policy], "a network")
    placed.save(tmp_path / "one")
    loaded = Placement.load(tmp_path / "one")
    assert loaded == placed
    loaded.save(tmp_path / "two")
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


@pytest.mark.parametrize("content", ["", "[]", '{"format": 1}', '{"format": 9}', "\x00\x01"])
def test_what_is_no_placement_is_refused_by_the_name_of_the_file(content: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text(content)
    with pytest.raises(FeederError, match="file: not a placement"):
        Placement.load(tmp_path / "file")


@pytest.mark.parametrize("policy", ["clean", "observability_ami_dense"])
@pytest.mark.parametrize("feeder", ["lv_town", "us_suburb", "ieee13"])
def test_record_variants_carry_the_published_sensors_and_some_on_added_ties(feeder: str, policy: str) -> None:
    network = bundled(feeder)
    published = network.published.grid
    placed = place(published, POLICIES[policy], feeder)
    before = placed.on(published)
    for number in range(1, network.n_variants):
        grid = network.circuit(number).grid
        now = placed.on(grid)
        tie = grid.line["tie"].to_numpy()
        for table, flags, earlier in (
            ("bus", now.bus, before.bus), ("line", now.line & ~tie, before.line),
            ("consumer", now.consumer, before.consumer), ("consumer", now.reactive, before.reactive),
        ):  # fmt: skip
            names = grid.tables[table]["name"].to_numpy()[flags]
            assert set(names) == set(published.tables[table]["name"].to_numpy()[earlier])
        if policy == "clean":
            assert now.line[tie].all()
        assert now.winding.sum() == before.winding.sum()


def test_a_placement_of_another_network_is_refused_by_the_name_of_an_element() -> None:
    placed = place(bundled("ieee13").published.grid, POLICIES["clean"], "ieee13")
    with pytest.raises(FeederError, match=r"sensor on bus '.+', which '.*lv_town' does not have"):
        placed.on(bundled("lv_town").published.grid)


def test_an_added_tie_is_metered_as_often_as_any_line() -> None:
    """Were it never metered, a switch's silence would say that it is open."""
    policies = [
        Policy(f"own_{k}", bus_share=0.0, dt_share=0.0, branch_share=0.3, customer_share=0.0, reactive_share=0.0)
        for k in range(400)
    ]
    network = bundled("ieee13")
    metered = asked = 0
    for number in range(1, network.n_variants):
        grid = network.circuit(number).grid
        tie = grid.line["tie"].to_numpy()
        for policy in policies:
            metered += int(place(network.published.grid, policy, "ieee13").on(grid).line[tie].sum())
            asked += int(tie.sum())
    assert asked >= 400
    assert abs(metered / asked - 0.3) < 5 * np.sqrt(0.3 * 0.7 / asked)


@pytest.mark.parametrize(
    "wrong",
    [
        {"strategy": "kcenter"}, {"noise": None}, {"bus_share": "0.1"}, {"dt_share": 1.5}, {"customer_share": True},
        {"name": "../../x"}, {"name": ""}, {"name": "x" * 101}, {"branch_share": float("nan")},
    ],
)  # fmt: skip
def test_a_policy_that_makes_no_sense_is_refused_by_name(wrong: dict[str, object]) -> None:
    shares = dict.fromkeys(("bus_share", "dt_share", "branch_share", "customer_share", "reactive_share"), 0.1)
    with pytest.raises(ValueError, match=str(next(iter(wrong)))[:4]):
        Policy(**{"name": "mine", **shares, **wrong})


def test_a_strategy_given_as_text_is_that_strategy() -> None:
    grid = bundled("lv_town").published.grid
    named, text = (
        Policy("mine", 0.3, 0.5, 0.2, 0.4, 0.2, strategy)  # type: ignore[arg-type]
        for strategy in (Strategy.UNIFORM, "uniform")
    )
    assert named == text and place(grid, named, "lv_town") == place(grid, text, "lv_town")
