"""Features of a Grid say what the records say, and miss nothing of the graph."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mycelium.feeders import FEEDERS
from mycelium.grid.communication import communication_links
from mycelium.grid.grid import Grid
from mycelium.grid.position import N_DESCRIPTORS
from mycelium.grid.primitive import unpack
from mycelium.schema import HIDDEN_MARK
from mycelium.window.branches import line_matrix, transformer_edges
from mycelium.window.columns import ENDS, OBJECT, Communication, Relation, Store, WindowOptions
from mycelium.window.normalise import Normalisation
from mycelium.window.static import GridFeatures, static_names
from tests.sense.networks import bundled

PLAIN = Normalisation.identity()
ALL = WindowOptions.everything()


def features_of(grid: Grid, options: WindowOptions = ALL) -> GridFeatures:
    return GridFeatures.of(grid, options, PLAIN)


def column(features: GridFeatures, store: Store, name: str) -> np.ndarray:
    return features.static[store][:, static_names(features.options, store).index(name)]


@pytest.mark.parametrize("feeder", FEEDERS)
def test_every_row_of_every_table_is_there_once(feeder: str) -> None:
    grid = bundled(feeder).published.grid
    features = features_of(grid)
    for store in (Store.BUS, Store.SUBSTATION, Store.CAPACITOR, Store.DER, Store.LINE, Store.REACTOR):
        assert len(features.static[store]) == features.counts[store] == len(grid.tables[store.value])
    assert features.counts[Store.TERMINAL] == len(grid.winding)
    assert features.counts[OBJECT] == len(grid.transformer)
    for relation, ends in features.edges.items():
        for end, kind in zip(ends, ENDS[relation], strict=True):
            assert np.all((end >= 0) & (end < features.counts[kind])), relation
    assert all(np.all(np.isfinite(values)) for values in features.static.values())
    assert np.array_equal(features.edges[Relation.SERVICE][1], grid.consumer["bus1"])
    assert np.array_equal(features.edges[Relation.LINE], grid.line[["bus1", "bus2"]].to_numpy().T)


@pytest.mark.parametrize("feeder", FEEDERS)
def test_transformers_have_one_edge_each_first_and_reach_every_bus_of_theirs(feeder: str) -> None:
    grid = bundled(feeder).published.grid
    edges, ends = transformer_edges(grid), features_of(grid).edges[Relation.TRANSFORMER]
    n = len(grid.transformer)
    assert np.array_equal(edges.transformer[:n], np.arange(n))
    for row in range(n):
        windings = grid.winding[grid.winding["transformer"] == row]
        assert set(ends[:, edges.transformer == row].ravel()) == set(windings["bus1"])
    # A centre tap has both its low-voltage windings on one bus, and one edge.
    three = grid.transformer["n_windings"].to_numpy() == 3
    assert len(edges.transformer) == n or not np.all(three)


def test_an_edge_of_a_third_winding_on_a_bus_of_its_own() -> None:
    grid = bundled("us_suburb").published.grid
    first = grid.transformer["first_winding"].to_numpy()[grid.transformer["n_windings"].to_numpy() == 3]
    moved = grid.winding.copy()
    other = int(np.setdiff1d(np.arange(len(grid.bus)), moved["bus1"])[0])
    moved.loc[first[0] + 2, "bus1"] = other
    edges = transformer_edges(grid.replace_tables(winding=moved))
    assert len(edges.transformer) == len(grid.transformer) + 1
    assert moved["bus1"].iat[edges.other[-1]] == other
    assert edges.first[-1] == first[0]


def test_decades_are_logarithmic_and_missing_is_zero_with_a_flag() -> None:
    grid = bundled("ieee13").published.grid
    unknown = grid.line.copy()
    unknown.loc[0, "length_km"] = np.nan
    features = features_of(grid.replace_tables(line=unknown))
    length = grid.line["length_km"].to_numpy()
    known = np.isfinite(length) & (np.arange(len(length)) > 0)
    found = 1e-3 * np.sinh(column(features, Store.LINE, "length_km").astype(np.float64))
    np.testing.assert_allclose(found[known], length[known], rtol=1e-5)
    assert known.any() and not np.any(found[~known])
    assert column(features, Store.LINE, "no_length").tolist() == (~known).astype(float).tolist()


def test_coordinates_fill_the_unit_square_and_unknown_ones_are_flagged() -> None:
    grid = bundled("ieee123").published.grid
    features = features_of(grid)
    located = column(features, Store.BUS, "located") > 0
    x, y = column(features, Store.BUS, "x"), column(features, Store.BUS, "y")
    assert located.any()
    assert max(np.ptp(x[located]), np.ptp(y[located])) == pytest.approx(2.0, abs=1e-5)
    assert np.abs(np.concatenate([x, y])).max() <= 1.0 + 1e-6
    assert not np.any(x[~located]) and not np.any(y[~located])
    # Moved and scaled, it is the same network.
    elsewhere = grid.replace_tables(bus=grid.bus.assign(x=3.0 * grid.bus["x"] + 1e3, y=3.0 * grid.bus["y"] - 5.0))
    again = features_of(elsewhere)
    np.testing.assert_allclose(features.static[Store.BUS], again.static[Store.BUS], atol=1e-5)


def test_legs_are_the_secondaries_of_centre_taps() -> None:
    grid = bundled("us_suburb").published.grid
    features = features_of(grid)
    three = grid.transformer["n_windings"].to_numpy() == 3
    first = grid.transformer["first_winding"].to_numpy()[three]
    assert features.legs[grid.winding["bus1"].to_numpy()[first + 1]].all()
    assert not features.legs[grid.winding["bus1"].to_numpy()[first]].any()
    apart = features.nominal_rad[features.legs, 0] - features.nominal_rad[features.legs, 1]
    np.testing.assert_allclose(np.abs(apart), np.pi, atol=1e-5)
    assert not features_of(bundled("lv_town").published.grid).legs.any()


@pytest.mark.parametrize("feeder", ["ieee13", "lv_town", "lv_fourwire"])
def test_impedance_matrices_stand_at_their_phases(feeder: str) -> None:
    grid = bundled(feeder).published.grid
    entries = line_matrix(grid)
    size = grid.line["n_conductors"].to_numpy().astype(np.int64)
    for row, text in enumerate(grid.line["conductors1"]):
        matrix = unpack(grid.matrices["line_x_ohm"], size, np.array([row]))[0]
        place = {part: k for k, part in enumerate(str(text).split("."))}
        for i, j in ((0, 0), (1, 1), (2, 2), (0, 1), (1, 2), (2, 0)):
            name = f"x_{'abc'[i]}{'abc'[j]}_ohm"
            if HIDDEN_MARK in place:
                expected = matrix[place[HIDDEN_MARK], place[HIDDEN_MARK]] if i == j else 0.0
            else:
                a, b = place.get(str(i + 1)), place.get(str(j + 1))
                expected = 0.0 if a is None or b is None else matrix[a, b]
            assert entries[name][row] == expected


def test_communication_is_a_choice_and_the_phase_readout_keeps_its_links() -> None:
    grid = bundled("lv_town").published.grid
    links = communication_links(grid)
    by_choice = {choice: features_of(grid, replace(ALL, communication=choice)) for choice in Communication}
    for relation, start, end in (
        (Relation.UPLINK, links.uplink_substation, links.uplink_bus),
        (Relation.DOWNLINK, links.downlink_consumer, links.downlink_bus),
    ):
        assert by_choice[Communication.NONE].edges[relation].shape == (2, 0)
        assert np.array_equal(by_choice[Communication.LINKS].edges[relation], [start, end])
        random = by_choice[Communication.RANDOM].edges[relation]
        assert random.shape == (2, len(start)) and not np.array_equal(random, [start, end])
    for features in by_choice.values():
        assert np.array_equal(features.edges[Relation.PHASE_HEAD], [links.downlink_consumer, links.downlink_bus])
    assert features_of(grid, replace(ALL, phase_head=False)).edges[Relation.PHASE_HEAD].shape == (2, 0)
    again = features_of(grid, replace(ALL, communication=Communication.RANDOM))
    assert np.array_equal(again.edges[Relation.DOWNLINK], by_choice[Communication.RANDOM].edges[Relation.DOWNLINK])


def test_position_and_nominal_angle_can_be_left_out() -> None:
    grid = bundled("ieee123").published.grid
    assert features_of(grid).position.shape == (len(grid.bus), N_DESCRIPTORS)
    assert features_of(grid, replace(ALL, position=False)).position.shape == (len(grid.bus), 0)
    without = features_of(grid, replace(ALL, nominal_angle=False))
    assert not np.any(without.nominal_rad)
    # Which targets exist stays the same, so that ablations compare.
    assert np.array_equal(without.nominal_valid, features_of(grid).nominal_valid)


def test_a_shunt_reactor_is_an_edge_to_itself_and_a_series_capacitor_hangs_on_both_buses() -> None:
    grid = bundled("lv_fourwire").published.grid
    ends = features_of(grid).edges[Relation.REACTOR]
    assert not grid.reactor["series"].any() and np.array_equal(ends[0], ends[1])
    grid = bundled("ieee13").published.grid
    series = grid.capacitor.copy()
    series.loc[0, ["series", "bus2"]] = True, 3
    ends = features_of(grid.replace_tables(capacitor=series)).edges[Relation.CAPACITOR]
    assert ends[:, ends[0] == 0].tolist() == [[0, 0], [int(series["bus1"].iat[0]), 3]]


def test_voltage_bases_of_customers_are_those_across_their_terminals() -> None:
    grid = bundled("ieee13").published.grid
    consumer = grid.consumer
    base = features_of(grid).base[Store.CONSUMER][:, 0]
    for row in range(len(consumer)):
        kv, n = float(consumer["rated_kv"].iat[row]), int(consumer["n_phases"].iat[row])
        wye = consumer["connection"].iat[row] == "wye" and n > 1
        assert base[row] == pytest.approx(1e3 * kv / (np.sqrt(3.0) if wye else 1.0))
