"""Record variants: other serving transformers and documented ties, and nothing else."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from mycelium.feeders import FEEDERS
from mycelium.grid.communication import communication_links
from mycelium.grid.grid import Grid
from mycelium.grid.nominal_angle import nominal_angle, wrap
from mycelium.grid.position import path_statistics
from mycelium.grid.topology import loops
from mycelium.grid.wiring import parse_conductors
from mycelium.schema import MATRICES, TABLES, TIE_PREFIX
from mycelium.simulate.network import Network
from mycelium.simulate.variant import FEWEST_LOOPS, MOST_MOVED, N_TIES, Variant, make_variant
from tests.simulate.bench import network

WITH_VARIANTS = [name for name in FEEDERS if name != "ieee123"]  # two loops already, and one transformer only


def every_variant(source: Network) -> list[tuple[Variant, Grid]]:
    return [(source.variant(number), source.circuit(number).grid) for number in range(1, source.n_variants)]


def same_grid(a: Grid, b: Grid) -> bool:
    tables = all(a.tables[name].equals(b.tables[name]) for name in TABLES)
    return tables and all(np.array_equal(a.matrices[name], b.matrices[name]) for name in MATRICES)


# ---- all variants ------------------------------------------------------------------------------------------------


def test_variant_zero_is_the_published_network() -> None:
    for feeder in FEEDERS:
        source = network(feeder)
        assert source.variant(0) == Variant(0, (), (), 0)
        assert source.circuit(0) is source.published
    assert network("ieee123").n_variants == 1


@pytest.mark.parametrize("feeder", WITH_VARIANTS)
def test_variants_are_reproducible_and_leave_the_published_network_alone(feeder: str) -> None:
    source = network(feeder)
    before = {name: source.published.grid.tables[name].copy() for name in TABLES}
    made = [variant for variant, _ in every_variant(source)]
    assert len(made) == 4 and all(variant.number == k + 1 for k, variant in enumerate(made))
    grid = source.published.grid
    for variant in made:
        again = make_variant(grid, nominal_angle(grid), variant.number)
        assert again == variant and variant.commands
    assert len({variant.commands for variant in made}) >= 3  # a small network may draw one twice
    for name, table in before.items():
        pd.testing.assert_frame_equal(source.published.grid.tables[name], table)
    assert same_grid(Network(source.source, source.mix).published.grid, grid)


@pytest.mark.parametrize("feeder", WITH_VARIANTS)
def test_a_variant_loses_no_customer_and_no_equipment(feeder: str) -> None:
    source = network(feeder)
    published = source.published.grid
    for variant, grid in every_variant(source):
        for name in ("bus", "consumer", "der", "transformer", "capacitor", "reactor", "substation"):
            assert grid.tables[name]["name"].tolist() == published.tables[name]["name"].tolist(), name
        added = [name for name in grid.line["name"] if name.startswith(TIE_PREFIX)]
        assert [n for n in grid.line["name"] if n not in added] == published.line["name"].tolist()
        assert len(added) == variant.ties
        served = grid.consumer["transformer"].to_numpy()
        assert np.array_equal(served >= 0, published.consumer["transformer"].to_numpy() >= 0)
        assert np.array_equal(grid.consumer["eligible"], published.consumer["eligible"])
        assert source.circuit(variant.number).report.unaccounted() == {}
        live = source.circuit(variant.number).space.connectivity.energised(source.circuit(variant.number).recorded)
        consumer = grid.wiring.nodes_of("consumer", source.circuit(variant.number).recorded.group_phase)
        assert np.all(live[consumer[consumer >= 0]])  # and as recorded, everyone is supplied


# ---- reassignment ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("feeder", ["lv_town", "us_suburb"])
def test_moved_customers_have_another_serving_transformer_and_the_records_follow(feeder: str) -> None:
    source = network(feeder)
    published = source.published.grid
    order = {name: row for row, name in enumerate(published.consumer["name"])}
    links = _downlinks(published)
    moved_in_any: set[str] = set()
    for variant, grid in every_variant(source):
        assert 1 <= len(variant.moved) <= MOST_MOVED + 5 and len(set(variant.moved)) == len(variant.moved)
        moved = np.array([order[name] for name in variant.moved])
        old, new = (g.consumer["transformer"].to_numpy() for g in (published, grid))
        assert np.all(old[moved] != new[moved])
        others = np.setdiff1d(np.arange(len(old)), moved)
        assert np.array_equal(old[others], new[others])  # nobody else moves
        predecessor, now = path_statistics(grid, nominal_angle(grid)).predecessor, _downlinks(grid)
        for row in moved:
            upstream = _upstream(predecessor, int(grid.consumer["bus1"].iat[row]))
            secondary, before = (_secondary(g, int(served[row])) for g, served in ((grid, new), (published, old)))
            assert secondary in upstream and before not in upstream
            assert now[row] == secondary and links[row] == before
        moved_in_any |= set(variant.moved)
    assert len(moved_in_any) > 1


def _secondary(grid: Grid, transformer: int) -> int:
    """Bus of the low-voltage side of a transformer."""
    first, n = (int(grid.transformer[name].iat[transformer]) for name in ("first_winding", "n_windings"))
    return int(grid.winding["bus1"].iat[first + n - 1])


def _upstream(predecessor: np.ndarray, bus: int) -> set[int]:
    """Buses on the way to the substation, the bus itself included."""
    path = set()
    while bus >= 0:
        path.add(bus)
        bus = int(predecessor[bus])
    return path


def _downlinks(grid: Grid) -> dict[int, int]:
    """Bus that each customer's communication link ends at."""
    links = communication_links(grid)
    return dict(zip(links.downlink_consumer.tolist(), links.downlink_bus.tolist(), strict=True))


# ---- ties --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("feeder", FEEDERS)
def test_ties_make_loops_where_there_are_too_few_and_are_flagged(feeder: str) -> None:
    source = network(feeder)
    published = source.published.grid
    assert not published.line["tie"].any()
    for variant, grid in every_variant(source):
        is_tie = grid.line["tie"].to_numpy()
        assert np.array_equal(is_tie, grid.line["name"].str.startswith(TIE_PREFIX).to_numpy())
        if loops(published) >= FEWEST_LOOPS:
            assert variant.ties == 0 and not is_tie.any()
            continue
        assert 1 <= variant.ties == is_tie.sum() <= N_TIES
        assert loops(grid) == loops(published) + variant.ties >= FEWEST_LOOPS
        recorded = source.circuit(variant.number).recorded
        is_open = dict(zip(grid.switches, recorded.switch_open, strict=True))
        assert all(is_open[row] for row in np.flatnonzero(is_tie))  # switches, and normally open
        operable = set(grid.line["name"].iloc[grid.switches]) - set(published.line["name"].iloc[published.switches])
        assert len(operable) >= variant.ties + 2  # with lines of the loops that can be opened instead


@pytest.mark.parametrize("feeder", FEEDERS)
def test_ties_join_equal_voltages_and_every_conductor_that_supply_needs(feeder: str) -> None:
    source = network(feeder)
    for _, grid in every_variant(source):
        nominal = nominal_angle(grid)
        for row in np.flatnonzero(grid.line["tie"].to_numpy()):
            line = grid.line.iloc[row]
            a, b = int(line["bus1"]), int(line["bus2"])
            assert a != b and line["conductors1"] == line["conductors2"]
            assert grid.bus["base_kv"].iat[a] == pytest.approx(grid.bus["base_kv"].iat[b], rel=0.01)
            assert np.all(np.abs(wrap(nominal.angle_rad[a] - nominal.angle_rad[b])) < 0.1)
            carried = set(parse_conductors(pd.Series([line["conductors1"]]))[0].tolist())
            assert {1, 2, 3} <= carried
            for bus in (a, b):  # without a neutral, customers behind the tie would float
                there = {int(c) for c in grid.wiring.conductor[grid.wiring.nodes_at(bus)]}
                assert carried >= there, (
                    f"tie {line['name']} leaves {there - carried} of {grid.bus['name'].iat[bus]} out"
                )


@pytest.mark.parametrize("feeder", ["ieee13", "ieee34", "lv_fourwire"])
def test_a_closed_tie_can_stand_in_for_an_opened_line(feeder: str) -> None:
    source = network(feeder)
    for variant, _ in every_variant(source):
        circuit = source.circuit(variant.number)
        graph, recorded = circuit.space.switch_graph, circuit.recorded.switch_open
        ties = np.flatnonzero(recorded & graph.closable)
        assert any(graph.path(recorded, *(int(part) for part in graph.ends[k])) for k in ties)
