"""What is energised, against a slow and simple account of the same: one graph node per conductor, walked in Python."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import networkx as nx
import numpy as np
import pytest

from mycelium.feeders import FEEDERS
from mycelium.grid.grid import Configuration, Grid
from mycelium.schema import GROUND, HIDDEN_MARK, Connection
from mycelium.simulate.circuit import Circuit
from mycelium.simulate.energised import Connectivity
from tests.grid.toy import Toy
from tests.simulate.bench import network

Node = tuple[int, str]  # bus row, and conductor as written in the tables
SOURCE: Node = (-1, "source")


def _conductors(text: str) -> list[str]:
    return [part for part in text.split(".") if part]


def _at(grid: Grid, bus: int, conductor: str, group: int, configuration: Configuration) -> Node | None:
    """Where a conductor is tied to; None is earth."""
    if conductor == str(GROUND):
        return None
    if conductor == HIDDEN_MARK and not grid.bus["hidden"].iat[bus]:
        return bus, str(int(configuration.group_phase[group]) + 1)
    return bus, conductor


def reference(grid: Grid, configuration: Configuration) -> dict[Node, bool]:
    """Whether each node is fed: closed conductors join nodes, transformers join the ends of coils of one phase."""
    g = nx.Graph()
    g.add_node(SOURCE)
    is_open = dict(zip(grid.switches.tolist(), configuration.switch_open.tolist(), strict=True))

    def join(a: Node | None, b: Node | None) -> None:
        if a is not None and b is not None:
            g.add_edge(a, b)

    for table in ("line", "reactor", "capacitor"):
        for row, record in enumerate(grid.tables[table].itertuples()):
            ends = [
                [_at(grid, bus, c, getattr(record, "group", -1), configuration) for c in _conductors(text)]
                for bus, text in ((record.bus1, record.conductors1), (record.bus2, record.conductors2))
            ]
            g.add_nodes_from(node for end in ends for node in end if node is not None)
            carries = not is_open.get(row, False) if table == "line" else bool(record.series)
            for a, b in zip(*ends, strict=True) if carries else ():
                join(a, b)
    for record in grid.substation.itertuples():
        for c in _conductors(record.conductors1):
            join(SOURCE, _at(grid, record.bus1, c, -1, configuration))
    _join_transformers(grid, configuration, join)
    for table in ("consumer", "der"):
        for record in grid.tables[table].itertuples():
            nodes = [_at(grid, record.bus1, c, record.group, configuration) for c in _conductors(record.conductors1)]
            g.add_nodes_from(node for node in nodes if node is not None)
    fed = nx.node_connected_component(g, SOURCE)
    live = {node: node in fed for node in g if node != SOURCE}
    live_bus = {bus for (bus, c), on in live.items() if on and (c == HIDDEN_MARK or int(c) <= 3)}
    return {(bus, c): bus in live_bus if c != HIDDEN_MARK and int(c) > 3 else on for (bus, c), on in live.items()}


def _join_transformers(grid: Grid, configuration: Configuration, join: object) -> None:
    for transformer in grid.transformer.itertuples():
        windings = grid.winding.iloc[transformer.first_winding : transformer.first_winding + transformer.n_windings]
        n = transformer.n_phases
        for phase in range(n):
            ends = []
            for winding in windings.itertuples():
                nodes = [_at(grid, winding.bus1, c, -1, configuration) for c in _conductors(winding.conductors1)]
                ends.append(nodes[phase])
                if winding.connection == Connection.DELTA and n >= 3:
                    ends.append(nodes[(phase + 1) % n])
                elif n < 3:
                    ends.append(nodes[n])  # the far end of a coil between two phases, or its neutral
            found = [end for end in ends if end is not None]
            for a, b in pairwise(found):
                join(a, b)  # type: ignore[operator]


def random_configuration(circuit: Circuit, rng: np.random.Generator) -> Configuration:
    """Any positions and any phases that exist, as recorded otherwise."""
    recorded, options = circuit.recorded, circuit.space.phase_options
    phase = np.array([rng.choice(np.flatnonzero(row)) for row in options], np.int8).reshape(-1)
    share = rng.random()
    return replace(recorded, switch_open=rng.random(len(recorded.switch_open)) < share, group_phase=phase)


def assert_agrees(grid: Grid, configuration: Configuration, live: np.ndarray) -> None:
    expected = reference(grid, configuration)
    assert len(expected) == len(live) == grid.wiring.n_nodes
    for node, on in enumerate(live):
        number = int(grid.wiring.conductor[node])
        key = int(grid.wiring.bus[node]), HIDDEN_MARK if number < 0 else str(number)
        assert expected[key] == on, f"{grid.bus['name'].iat[key[0]]}.{key[1]}: expected {expected[key]}"


@pytest.mark.parametrize("feeder", FEEDERS)
def test_energised_nodes_are_those_of_a_walk_through_the_conductors(feeder: str) -> None:
    circuit = network(feeder).published
    connectivity, rng = circuit.space.connectivity, np.random.default_rng(3)
    shares = []
    for _ in range(8):
        configuration = random_configuration(circuit, rng)
        live = connectivity.energised(configuration)
        assert_agrees(circuit.grid, configuration, live)
        shares.append(live.mean())
    assert len(set(shares)) > 1 or len(circuit.grid.switches) < 2
    assert_agrees(circuit.grid, circuit.recorded, connectivity.energised(circuit.recorded))


def test_nothing_is_energised_behind_open_switches_and_all_of_it_is_when_closed() -> None:
    circuit = network("lv_town").published
    recorded = circuit.recorded
    open_all = replace(recorded, switch_open=np.ones_like(recorded.switch_open))
    closed_all = replace(recorded, switch_open=np.zeros_like(recorded.switch_open))
    connectivity = circuit.space.connectivity
    some, every = (connectivity.energised(c) for c in (open_all, closed_all))
    assert every.all() and 0 < some.sum() < len(some)
    assert np.all(connectivity.energised(recorded) >= some)


def toy_configuration(grid: Grid, open_switches: list[int]) -> Configuration:
    is_open = np.isin(np.arange(len(grid.switches)), open_switches)
    return Configuration(is_open, np.zeros(0, np.int8), np.zeros(0), np.zeros(0, np.int16))


def live_nodes(grid: Grid, configuration: Configuration) -> set[str]:
    live = Connectivity.of(grid).energised(configuration)
    assert_agrees(grid, configuration, live)
    bus = grid.bus["name"].to_numpy()[grid.wiring.bus]
    return {f"{name}.{conductor}" for name, conductor in zip(bus[live], grid.wiring.conductor[live], strict=True)}


def test_a_phase_is_dead_alone_where_only_it_is_cut() -> None:
    toy = Toy()
    toy.source("s")
    toy.line("s", "a", "1.2.3", switch=True)
    toy.line("s", "a", "1", switch=True)  # a single-phase tie cannot stand in for the switch beside it
    toy.line("a", "b", "1.2.3")
    grid = toy.grid()
    source = {"s.1", "s.2", "s.3"}
    behind = {f"{bus}.{phase}" for bus in "ab" for phase in (1, 2, 3)}
    assert live_nodes(grid, toy_configuration(grid, [])) == source | behind
    assert live_nodes(grid, toy_configuration(grid, [0])) == source | {"a.1", "b.1"}
    assert live_nodes(grid, toy_configuration(grid, [0, 1])) == source


def test_a_transformer_carries_phase_by_phase_and_a_delta_joins_its_corners() -> None:
    for connection, expected in (("wye", {"c.1"}), ("delta", {"c.1", "c.2", "c.3"})):
        toy = Toy()
        toy.source("s")
        toy.line("s", "a", "1")
        conductors = "1.2.3.0"
        toy.transformer(("a", conductors, 11.0, connection), ("c", conductors, 0.4, "wye"))
        grid = toy.grid()
        live = live_nodes(grid, toy_configuration(grid, []))
        assert {name for name in live if name.startswith("c")} == expected
