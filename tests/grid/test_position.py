from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mycelium.grid.nominal_angle import nominal_angle
from mycelium.grid.position import PathStatistics, branch_impedance_pu, path_statistics, position
from mycelium.grid.topology import branches
from tests.grid.toy import Toy

ROOT3 = np.sqrt(3.0)


def statistics(toy: Toy) -> PathStatistics:
    grid = toy.grid()
    return path_statistics(grid, nominal_angle(grid))


def dyn_feeder() -> Toy:
    """s -line- p -Dyn- l -line- c, 10 kV to 0.4 kV."""
    toy = Toy()
    toy.bus("s", 10.0 / ROOT3)
    toy.bus("p", 10.0 / ROOT3)
    toy.bus("l", 0.4 / ROOT3)
    toy.bus("c", 0.4 / ROOT3)
    toy.source("s")
    toy.line("s", "p", r1_ohm=3.0, x1_ohm=4.0)
    toy.transformer(
        ("p", "1.2.3.0", 10.0, "delta"),
        ("l", "1.2.3.0", 0.4, "wye"),
        kva=250.0,
        r_pct=0.5,
        x_pct=(4.0, 0.0, 0.0),
    )
    toy.line("l", "c", r1_ohm=0.016, x1_ohm=0.008)
    return toy


def test_descriptors_by_hand() -> None:
    grid = dyn_feeder().grid()
    found, s = position(grid, nominal_angle(grid))
    # z_base is 100 ohm at 10 kV and 0.16 ohm at 0.4 kV; 1 % and 4 % on 250 kVA are 0.04 and 0.16 on 1 MVA.
    r, x = 0.03 + 0.04 + 0.1, 0.04 + 0.16 + 0.05
    assert s.r_pu == pytest.approx([0.0, 0.03, 0.07, r])
    assert s.x_pu == pytest.approx([0.0, 0.04, 0.2, x])
    assert s.distance_pu == pytest.approx(np.cumsum([0, 0.05, np.hypot(0.04, 0.16), np.hypot(0.1, 0.05)]))
    assert s.predecessor.tolist() == [-1, 0, 1, 2]
    assert s.branch.tolist() == [-1, 0, 2, 1]  # lines come before transformers
    expected = [
        3 / 57, np.log(4), np.log(1 + r / 0.66), np.log(1 + x / 0.54), np.log(2), np.log(0.4 / 10.0),
        np.sin(-np.pi / 6), np.cos(np.pi / 6), np.log(2),
    ]  # fmt: skip
    assert found[3] == pytest.approx(expected)
    assert found[0] == pytest.approx([0, 0, 0, 0, 0, 0, 0, 1, 0])


def test_fed_from_the_other_side_the_shift_is_negated() -> None:
    toy = dyn_feeder()
    toy.rows["substation"][0] |= {"bus1": toy.bus_row["c"], "base_kv": 0.4}
    s = statistics(toy)
    assert np.rad2deg(s.shift_rad) == pytest.approx([30.0, 30.0, 0.0, 0.0])
    assert s.hops.tolist() == [3, 2, 1, 0]
    grid = toy.grid()
    assert position(grid, nominal_angle(grid))[0][0, 5] == pytest.approx(np.log(10.0 / 0.4))


def test_shifts_add_up_and_zero_shifts_do_not_count() -> None:
    toy = Toy()
    toy.source("s")
    toy.transformer(("s", "1.2.3.0", 110.0, "wye"), ("a", "1.2.3.0", 20.0, "delta"))
    toy.transformer(("a", "1.2.3.0", 20.0, "delta"), ("b", "1.2.3.0", 20.0, "delta"))
    toy.transformer(("b", "1.2.3.0", 20.0, "delta"), ("c", "1.2.3.0", 0.4, "wye"))
    toy.transformer(("c", "1.0", 0.23, "wye"), ("d", "0.1", 0.23, "wye"), n_phases=1)
    s = statistics(toy)
    assert np.cos(s.shift_rad) == pytest.approx(np.cos(np.deg2rad([0, -30, -30, -60, 120])))
    assert np.sin(s.shift_rad) == pytest.approx(np.sin(np.deg2rad([0, -30, -30, -60, 120])))
    assert s.shifts.tolist() == [0, 1, 1, 2, 3]
    assert s.transformers.tolist() == [0, 1, 2, 3, 4]


def test_centre_tap_has_no_scalar_shift() -> None:
    toy = Toy()
    toy.source("s")
    toy.transformer(("s", "2.0", 7.2, "wye"), ("c", "1.0", 0.12, "wye"), ("c", "0.2", 0.12, "wye"), n_phases=1)
    s = statistics(toy)
    assert (s.shift_rad[1], s.shifts[1], s.transformers[1]) == (0.0, 0, 1)


def test_three_windings_use_their_own_reactances() -> None:
    toy = Toy()
    toy.source("s")
    windings = [("s", "1.2.3.0", 110.0, "wye"), ("a", "1.2.3.0", 20.0, "wye"), ("b", "1.2.3.0", 10.0, "wye")]
    toy.transformer(*windings, kva=40_000.0, r_pct=0.2, x_pct=(8.0, 12.0, 5.0))
    s = statistics(toy)
    assert s.r_pu == pytest.approx([0.0, 1e-4, 1e-4])
    assert s.x_pu == pytest.approx([0.0, 0.002, 0.003])


def test_series_reactors_and_capacitors() -> None:
    toy = Toy(frequency_hz=50.0)
    for bus in "sabcd":
        toy.bus(bus, 10.0 / ROOT3)
    toy.source("s")
    toy.reactor("s", "a", r_ohm=1.0, x_ohm=2.0)
    toy.reactor("a", "b", "1.2.3", y=1.0 / (3.0 + 4.0j))
    toy.capacitor("b", "c", step_uf=1e6 / (2 * np.pi * 50.0 * 10.0), steps=2)  # 10 ohm a step
    toy.reactor("c", "d", "1")
    grid = toy.grid()
    r, x = branch_impedance_pu(grid, branches(grid))
    assert r == pytest.approx([0.01, 0.03, 0.001, 0.0])
    assert x == pytest.approx([0.02, 0.04, 0.01, 0.05])  # the capacitor's by magnitude


def test_impedance_must_be_finite() -> None:
    toy = dyn_feeder()
    toy.line("c", "d", r1_ohm=float("nan"))
    with pytest.raises(ValueError, match="line line2 has no finite impedance"):
        statistics(toy)


def test_the_lightest_parallel_branch_counts_and_ties_go_to_the_lower_row() -> None:
    toy = dyn_feeder()
    toy.line("p", "s", r1_ohm=0.3, x1_ohm=0.4)
    toy.line("s", "p", r1_ohm=0.3, x1_ohm=0.4)
    s = statistics(toy)
    assert s.branch[1] == 2
    assert (s.r_pu[1], s.x_pu[1]) == pytest.approx((0.003, 0.004))


def test_the_path_is_shortest_by_impedance_not_by_hops() -> None:
    toy = dyn_feeder()
    toy.bus("q", 10.0 / ROOT3)
    toy.line("s", "q", r1_ohm=0.1, x1_ohm=0.0)
    toy.line("q", "p", r1_ohm=0.1, x1_ohm=0.0)
    assert statistics(toy).hops.tolist() == [0, 2, 3, 4, 1]


def test_zero_impedance_branches_are_walked() -> None:
    toy = dyn_feeder()
    toy.line("c", "d", r1_ohm=0.0, x1_ohm=0.0, switch=True)
    s = statistics(toy)
    assert s.hops[-1] == 4
    assert s.distance_pu[-1] == pytest.approx(s.distance_pu[-2], abs=1e-9)


def test_unreached_buses_have_zero_statistics() -> None:
    toy = dyn_feeder()
    toy.line("x", "y")
    grid = toy.grid()
    found, s = position(grid, nominal_angle(grid))
    for row in (toy.bus_row["x"], toy.bus_row["y"]):
        assert found[row].tolist() == [0, 0, 0, 0, 0, 0, 0, 1, 0]
        assert (s.reached[row], s.substation[row], s.distance_pu[row]) == (False, -1, 0.0)


def test_each_bus_belongs_to_its_nearest_substation() -> None:
    toy = dyn_feeder()
    toy.bus("t", 0.4 / ROOT3)
    toy.source("t")
    toy.line("t", "c", r1_ohm=0.016, x1_ohm=0.008)
    grid = toy.grid()
    found, s = position(grid, nominal_angle(grid))
    assert s.substation.tolist() == [0, 0, 0, 1, 1]
    assert found[toy.bus_row["c"], 5] == pytest.approx(0.0)


@st.composite
def networks(draw: st.DrawFn) -> tuple[list[tuple[int, int, float]], int]:
    n = draw(st.integers(2, 40))
    parents = [draw(st.integers(0, i - 1)) for i in range(1, n)]
    ohm = st.floats(0.01, 10.0)
    tree = [(i + 1, parent, draw(ohm)) for i, parent in enumerate(parents)]
    extra = draw(st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1), ohm), max_size=8))
    return tree + [edge for edge in extra if edge[0] != edge[1]], n


@given(networks())
@settings(max_examples=60, deadline=None)
def test_agrees_with_networkx(network: tuple[list[tuple[int, int, float]], int]) -> None:
    edges, n = network
    toy = Toy()
    for i in range(n):
        toy.bus(str(i), 1.0 / ROOT3)
    toy.source("0")
    for i, j, ohm in edges:
        toy.line(str(i), str(j), r1_ohm=ohm, x1_ohm=0.0)
    s = statistics(toy)
    graph = nx.MultiGraph()
    graph.add_weighted_edges_from(edges)
    distance = nx.single_source_dijkstra_path_length(graph, 0)
    assert s.distance_pu == pytest.approx([distance[i] for i in range(n)])
    assert s.r_pu == pytest.approx(s.distance_pu, abs=1e-9)
    walked = np.zeros(n, dtype=np.int64)
    for bus in range(n):
        at = bus
        while s.predecessor[at] >= 0:
            at, walked[bus] = s.predecessor[at], walked[bus] + 1
        assert at == 0
    assert np.array_equal(walked, s.hops)


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=20, deadline=None)
def test_bus_order_does_not_matter(seed: int) -> None:
    order = np.random.default_rng(seed).permutation(4)
    toy = dyn_feeder()
    plain = dyn_feeder().grid()
    row = np.argsort(order)  # new row of each old bus
    toy.rows["bus"] = [toy.rows["bus"][i] for i in order]
    for table in ("substation", "line", "winding"):
        for element in toy.rows[table]:
            element |= {key: int(row[element[key]]) for key in ("bus1", "bus2") if key in element}
    moved = toy.grid()
    expected, _ = position(plain, nominal_angle(plain))
    found, _ = position(moved, nominal_angle(moved))
    assert found[row] == pytest.approx(expected)
