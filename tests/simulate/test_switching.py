"""Coordinated switching: what keeps supply, what loses it, and which ties an engineer would close."""

from __future__ import annotations

from dataclasses import replace

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mycelium.feeders import FEEDERS
from mycelium.grid.nominal_angle import nominal_angle, wrap
from mycelium.simulate.cases import CaseMix, draw_configuration
from mycelium.simulate.circuit import Circuit
from mycelium.simulate.switching import SwitchGraph, Switching, draw_positions
from tests.simulate.bench import network

WITH_SWITCHES = ["ieee123", "lv_town", "lv_fourwire", "us_suburb"]


# ---- small graphs ------------------------------------------------------------------------------------------------


@st.composite
def switch_graphs(draw: st.DrawFn) -> tuple[SwitchGraph, np.ndarray]:
    """Parts joined by switches in any way, at least one of them fed, and positions."""
    n = draw(st.integers(2, 8))
    part = st.integers(0, n - 1)
    ends = draw(st.lists(st.tuples(part, part), min_size=1, max_size=14))
    fed = np.zeros(n, bool)
    fed[draw(st.lists(part, min_size=1, max_size=2))] = True
    closable = draw(st.lists(st.booleans(), min_size=len(ends), max_size=len(ends)))
    is_open = draw(st.lists(st.booleans(), min_size=len(ends), max_size=len(ends)))
    n_switches = len(ends)
    graph = SwitchGraph(np.array(ends, np.int64), np.arange(n_switches), fed, np.ones(n, np.int64), np.array(closable))
    return graph, np.array(is_open)


def closed_graph(graph: SwitchGraph, is_open: np.ndarray) -> nx.MultiGraph:
    g = nx.MultiGraph()
    g.add_nodes_from(range(len(graph.fed)))
    g.add_edges_from((int(a), int(b), int(k)) for k, (a, b) in enumerate(graph.ends) if not is_open[k])
    return g


def supplied(graph: SwitchGraph, is_open: np.ndarray) -> np.ndarray:
    """The slow way."""
    result = np.zeros(len(graph.fed), bool)
    for component in nx.connected_components(closed_graph(graph, is_open)):
        result[list(component)] = bool(graph.fed[list(component)].any())
    return result


@given(switch_graphs())
@settings(max_examples=150, deadline=None, derandomize=True)
def test_supplied_parts_are_those_joined_to_a_source(drawn: tuple[SwitchGraph, np.ndarray]) -> None:
    graph, is_open = drawn
    assert np.array_equal(graph.supplied(is_open), supplied(graph, is_open))


@given(switch_graphs(), st.data())
@settings(max_examples=150, deadline=None, derandomize=True)
def test_a_path_is_a_shortest_chain_of_closed_switches(
    drawn: tuple[SwitchGraph, np.ndarray], data: st.DataObject
) -> None:
    graph, is_open = drawn
    start, goal = (data.draw(st.integers(0, len(graph.fed) - 1)) for _ in range(2))
    path = graph.path(is_open, start, goal)
    g = closed_graph(graph, is_open)
    if start == goal or not nx.has_path(g, start, goal):
        assert path == []
        return
    assert len(path) == nx.shortest_path_length(g, start, goal) == len(set(path))
    chain = nx.MultiGraph([tuple(map(int, graph.ends[k])) for k in path])
    assert not is_open[path].any() and nx.has_path(chain, start, goal)


@given(switch_graphs(), st.integers(0, 10))
@settings(max_examples=200, deadline=None, derandomize=True)
def test_keeping_keeps_every_part_and_losing_loses_one(drawn: tuple[SwitchGraph, np.ndarray], seed: int) -> None:
    graph, is_open = drawn
    before = is_open.copy()
    rng = np.random.default_rng(seed)
    kept, lost = graph.keep(is_open, rng), graph.lose(is_open, rng)
    assert np.array_equal(is_open, before)  # positions are not changed in place
    assert np.array_equal(supplied(graph, kept), supplied(graph, is_open))
    closed = is_open & ~kept
    assert closed.sum() <= 1 and np.all(graph.closable[closed])
    assert (kept & ~is_open).sum() in (closed.sum(), 1)
    changed = lost != is_open
    if changed.any():
        assert changed.sum() == 1 and lost[changed].all()
        assert np.any(supplied(graph, is_open) & ~supplied(graph, lost))
    else:  # there was nothing to lose: no closed switch is a bridge
        for k in np.flatnonzero(~is_open):
            without = is_open.copy()
            without[k] = True
            assert np.array_equal(supplied(graph, without), supplied(graph, is_open))


@given(switch_graphs(), st.sampled_from(list(Switching)), st.integers(0, 10))
@settings(max_examples=200, deadline=None, derandomize=True)
def test_what_moves_came_to_is_what_is_said(
    drawn: tuple[SwitchGraph, np.ndarray], wanted: Switching, seed: int
) -> None:
    graph, recorded = drawn
    is_open, said = draw_positions(graph, recorded, wanted, np.random.default_rng(seed))
    lost = np.any(supplied(graph, recorded) & ~supplied(graph, is_open))
    if np.array_equal(is_open, recorded):
        assert said is Switching.NONE
    else:
        assert said is (Switching.LOSE if lost else Switching.KEEP)
    if wanted is not Switching.LOSE:
        assert not lost
    if wanted is Switching.NONE:
        assert said is Switching.NONE


# ---- feeders -----------------------------------------------------------------------------------------------------


def drawn_positions(circuit: Circuit, mix: CaseMix, count: int) -> list[tuple[np.ndarray, Switching, np.ndarray]]:
    """Positions, what they came to, and the nodes that are energised then."""
    found = []
    for number in range(count):
        configuration, _, switching = draw_configuration(circuit.space, "switching", 5, number, mix)
        live = circuit.space.connectivity.energised(replace(configuration, group_phase=circuit.recorded.group_phase))
        found.append((configuration.switch_open, switching, live))
    return found


@pytest.mark.parametrize("feeder", WITH_SWITCHES)
def test_keeping_keeps_every_node_supplied_and_losing_loses_some(feeder: str) -> None:
    circuit = network(feeder).published
    before = circuit.space.connectivity.energised(circuit.recorded)
    phase = circuit.grid.wiring.conductor <= 3
    for wanted, mix in (
        (Switching.KEEP, CaseMix(keep_supply=1.0, lose_supply=0.0)),
        (Switching.LOSE, CaseMix(keep_supply=0.0, lose_supply=1.0)),
    ):
        seen = 0
        for is_open, said, live in drawn_positions(circuit, mix, 40):
            if said is Switching.NONE:
                assert np.array_equal(is_open, circuit.recorded.switch_open)
                continue
            seen += int(said is wanted)
            lost = circuit.grid.wiring.bus[before & phase & ~live]
            names = sorted(set(circuit.grid.bus["name"].iloc[lost]))
            if said is Switching.KEEP:
                assert not names, f"'keep' leaves conductors of {names[:5]} without supply"
            else:
                assert names
        assert seen > 20


@pytest.mark.parametrize("feeder", FEEDERS)
def test_only_ties_between_equal_voltages_are_closed(feeder: str) -> None:
    circuit = network(feeder).published
    grid, recorded = circuit.grid, circuit.recorded.switch_open
    nominal = nominal_angle(grid)
    mix = CaseMix(keep_supply=0.7, lose_supply=0.3)
    closed: set[int] = set()
    for is_open, _, _ in drawn_positions(circuit, mix, 40):
        closed |= set(np.flatnonzero(recorded & ~is_open).tolist())
    for k in closed:
        line = grid.line.iloc[grid.switches[k]]
        a, b = int(line["bus1"]), int(line["bus2"])
        assert grid.bus["base_kv"].iat[a] == pytest.approx(grid.bus["base_kv"].iat[b], rel=0.01)
        both = nominal.valid[a] & nominal.valid[b]
        assert np.all(np.abs(wrap(nominal.angle_rad[a] - nominal.angle_rad[b]))[both] < 0.1)
        assert line["conductors1"] == line["conductors2"]
    assert bool(closed) == (feeder in WITH_SWITCHES)


def test_a_tie_between_other_phases_or_voltages_is_never_closed() -> None:
    circuit = network("lv_town").published
    graph, grid, connectivity = circuit.space.switch_graph, circuit.grid, circuit.space.connectivity
    tie = int(np.flatnonzero(circuit.recorded.switch_open)[0])
    row = int(grid.switches[tie])
    assert graph.closable[tie]
    line = grid.line.copy()
    line.loc[row, "conductors2"] = "2.3.1"  # rolled: A would meet B
    rolled = SwitchGraph.of(grid.replace_tables(line=line), connectivity, circuit.space.nominal)
    assert not rolled.closable[tie]
    bus = grid.bus.copy()
    bus.loc[int(line["bus1"].iat[row]), "base_kv"] *= 1.05
    other = SwitchGraph.of(grid.replace_tables(bus=bus), connectivity, circuit.space.nominal)
    assert not other.closable[tie]
    turned = replace(circuit.space.nominal, angle_rad=circuit.space.nominal.angle_rad.copy())
    turned.angle_rad[int(line["bus1"].iat[row])] += np.pi / 6
    assert not SwitchGraph.of(grid, connectivity, turned).closable[tie]


@pytest.mark.parametrize("feeder", WITH_SWITCHES)
def test_a_loop_is_made_by_closing_a_tie_and_opened_elsewhere(feeder: str) -> None:
    # A kept radial network stays radial: as many switches open after a move as before, or one more.
    circuit = network(feeder).published
    graph, recorded = circuit.space.switch_graph, circuit.recorded.switch_open
    moved = set()
    for seed in range(30):
        after = graph.keep(recorded, np.random.default_rng(seed))
        assert after.sum() - recorded.sum() in (0, 1)
        moved.add(tuple(np.flatnonzero(after != recorded)))
    assert len(moved) > (2 if len(recorded) > 2 else 0)
