from __future__ import annotations

from itertools import pairwise

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mycelium.grid.topology import (
    BRANCH_KINDS,
    branches,
    depth,
    fed,
    hop_paths,
    hops,
    islands,
    loops,
    on_cycle,
    shortest_paths,
)
from mycelium.schema import ElementKind
from tests.grid.toy import Toy

THREE = "1.2.3.0"


def chain(*names: str) -> Toy:
    toy = Toy()
    for name in names:
        toy.bus(name)
    toy.source(names[0])
    for a, b in pairwise(names):
        toy.line(a, b)
    return toy


def test_branches_of_every_kind_in_order() -> None:
    toy = chain("s", "a")
    toy.line("a", "b", switch=True)
    toy.transformer(("b", "1.0", 7.2, "wye"), ("c", "1.0", 0.12, "wye"), ("c", "0.2", 0.12, "wye"), n_phases=1)
    toy.reactor("b", "d")
    toy.capacitor("d", "e")
    toy.line("e", "e")  # joins nothing
    b = branches(toy.grid())
    kinds = [BRANCH_KINDS[code] for code in b.kind]
    assert kinds == [ElementKind.LINE] * 2 + [
        ElementKind.TRANSFORMER,
        ElementKind.REACTOR,
        ElementKind.CAPACITOR,
    ]
    names = list(toy.bus_row)
    assert [(names[i], names[j]) for i, j in zip(b.bus_from, b.bus_to, strict=True)] == [
        ("s", "a"), ("a", "b"), ("b", "c"), ("b", "d"), ("d", "e"),
    ]  # fmt: skip
    assert b.is_switch.tolist() == [False, True, False, False, False]
    assert b.winding.tolist() == [-1, -1, 1, -1, -1]


def test_three_winding_transformer_reaches_both_secondary_buses() -> None:
    toy = chain("s", "a")
    toy.transformer(("a", THREE, 110.0, "wye"), ("b", THREE, 20.0, "wye"), ("c", THREE, 10.0, "delta"))
    b = branches(toy.grid())
    assert sorted(b.bus_to[b.is_kind(ElementKind.TRANSFORMER)].tolist()) == [toy.bus("b"), toy.bus("c")]
    assert loops(toy.grid()) == 0


def test_switches_count_as_closed() -> None:
    toy = chain("s", "a", "b")
    toy.line("b", "s", switch=True)
    assert loops(toy.grid()) == 1
    assert on_cycle(toy.grid()).all()


def test_parallel_lines_are_a_loop_only_on_the_same_conductors() -> None:
    toy = chain("s", "a")
    for phase in "123":
        toy.line("a", "b", phase)
    assert loops(toy.grid()) == 0
    assert not on_cycle(toy.grid()).any()
    toy.line("b", "a", "2")  # written the other way round
    assert loops(toy.grid()) == 1
    assert on_cycle(toy.grid()).tolist() == [False, True, True, True, True]


def test_partly_shared_conductors_are_a_loop() -> None:
    toy = chain("s", "a")
    toy.line("s", "a", "3")
    assert loops(toy.grid()) == 1


def test_separate_neutral_wire_is_no_loop() -> None:
    toy = chain("s", "a")
    toy.line("s", "a", "4")
    assert loops(toy.grid()) == 0


def test_units_of_a_bank_are_one_edge_and_parallel_transformers_two() -> None:
    toy = chain("s", "a")
    for phase in ("1.2", "2.3", "3.1"):
        toy.transformer(("a", phase, 11.0, "delta"), ("b", f"{phase[0]}.0", 0.23, "wye"), n_phases=1, bank=0)
    assert loops(toy.grid()) == 0
    toy.transformer(("a", THREE, 11.0, "delta"), ("b", THREE, 0.4, "wye"))
    assert loops(toy.grid()) == 1


def test_regulator_and_its_bypass_are_a_loop() -> None:
    toy = chain("s", "a")
    for row, phase in enumerate("123"):
        toy.transformer(("a", f"{phase}.0", 2.4, "wye"), ("b", f"{phase}.0", 2.4, "wye"), n_phases=1, bank=0)
        toy.line("a", "b", phase, switch=True)
        assert loops(toy.grid()) == 1, row


def test_hidden_conductors_are_alike_within_a_group_only() -> None:
    toy = chain("s", "a")
    toy.line("a", "b", "?", group=0)
    toy.line("a", "b", "?", group=1)
    assert loops(toy.grid()) == 0
    toy.line("a", "b", "?", group=1)
    assert loops(toy.grid()) == 1


def test_dead_parts_do_not_count() -> None:
    toy = chain("s", "a")
    toy.line("x", "y")
    toy.line("y", "z")
    toy.line("z", "x")
    grid = toy.grid()
    assert loops(grid) == 0
    assert islands(grid).tolist() == [0, 0, 1, 1, 1]
    assert fed(grid).tolist() == [True, True, False, False, False]
    assert hops(grid).tolist() == [0, 1, -1, -1, -1]
    assert depth(grid) == 1
    assert on_cycle(grid).tolist() == [False, True, True, True]


def test_two_substations_joined_by_a_tie_make_no_loop() -> None:
    toy = chain("s", "a", "t")
    toy.source("t")
    assert loops(toy.grid()) == 0
    paths = hop_paths(toy.grid())
    assert paths.seed.tolist() == [0, 0, 1]  # the bus in the middle goes to the lower row
    assert depth(toy.grid()) == 1


def test_ties_go_to_the_least_handicap() -> None:
    toy = chain("s", "a", "t")
    b = branches(toy.grid())
    seeds = np.array([0, 2])
    for handicap, expected in (([0, 1], 0), ([1, 0], 1)):
        paths = shortest_paths(b, np.ones(2), seeds, np.array(handicap))
        assert paths.seed[1] == expected
        assert paths.distance == pytest.approx([0.0, 1.0, 0.0], abs=1e-12)
        assert paths.predecessor.tolist() == [-1, seeds[expected], -1]


def test_grid_without_branches() -> None:
    toy = Toy()
    toy.source("s")
    grid = toy.grid()
    assert (loops(grid), depth(grid), hops(grid).tolist(), len(on_cycle(grid))) == (0, 0, [0], 0)


@st.composite
def graphs(draw: st.DrawFn) -> tuple[int, list[tuple[int, int]]]:
    n = draw(st.integers(2, 25))
    edge = st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)).filter(lambda e: e[0] != e[1])
    return n, draw(st.lists(edge, max_size=40))


@given(graphs(), st.integers(1, 3))
@settings(max_examples=60, deadline=None)
def test_agrees_with_networkx(graph: tuple[int, list[tuple[int, int]]], n_sources: int) -> None:
    n, edges = graph
    toy = Toy()
    for i in range(n):
        toy.bus(str(i))
    starts = list(range(min(n_sources, n)))
    for i in starts:
        toy.source(str(i))
    for i, j in edges:
        toy.line(str(i), str(j))
    grid = toy.grid()
    reference = nx.MultiGraph(edges)
    reference.add_nodes_from(range(n))
    distance = nx.multi_source_dijkstra_path_length(reference, set(starts))
    assert hops(grid).tolist() == [distance.get(i, -1) for i in range(n)]
    parts = list(nx.connected_components(reference))
    live = [part for part in parts if part & set(starts)]
    assert fed(grid).tolist() == [any(i in part for part in live) for i in range(n)]
    assert len(np.unique(islands(grid))) == len(parts)
    expected = sum(reference.subgraph(p).number_of_edges() - len(p) + 1 for p in live)
    assert loops(grid) == expected
    simple = nx.Graph(edges)
    bridges = {frozenset(e) for e in nx.bridges(simple)} if edges else set()
    cycle = [frozenset(e) not in bridges or reference.number_of_edges(*e) > 1 for e in edges]
    assert on_cycle(grid).tolist() == cycle
