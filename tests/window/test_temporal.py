"""Readings become inputs at their place and nowhere else; what was not reported is zero and not seen."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from mycelium.feeders import FEEDERS
from mycelium.grid.grid import Grid
from mycelium.grid.nominal_angle import nominal_angle, wrap
from mycelium.schema import HOURS, OWN
from mycelium.sense.readings import Readings
from mycelium.window.columns import Relation, Store, WindowOptions, names, static_columns, temporal_columns
from mycelium.window.window import Window
from tests.sense.networks import FAULTED, QUIET, bundled
from tests.window.render import case_of, column, report, window_of

OPTIONS = WindowOptions()


def only(window: Window, store: Store) -> tuple[int, int, int, float]:
    """Hour, entity, column and value of the one reading of a store."""
    part = window.temporal[store]
    places = part.seen.nonzero().tolist()
    assert len(places) == 1, f"{len(places)} readings in {store}"
    hour, entity, k = places[0]
    return hour, entity, k, float(part.value[hour, entity, k])


def grid_of(feeder: str) -> Grid:
    return bundled(feeder).published.grid


@pytest.mark.parametrize("slot", [0, 1, 2, OWN])
def test_a_bus_voltage_is_per_unit_of_its_base_minus_one(slot: int) -> None:
    grid = grid_of("lv_town")
    volt = 1e3 * float(grid.bus["base_kv"].iat[20])
    window = window_of(grid, report(grid, ("bus.voltage_v", 7, 20, slot, 1.05 * volt)))
    hour, entity, k, value = only(window, Store.BUS)
    assert (hour, entity) == (7, 20)
    assert (
        names(temporal_columns(OPTIONS)[Store.BUS])[k]
        == ("voltage_v_a", "voltage_v_b", "voltage_v_c", "voltage_v_own")[slot]
    )
    assert value == pytest.approx(0.05, abs=1e-6)
    assert float(window.base_v[20]) == pytest.approx(volt)


def test_an_angle_is_the_wrapped_residual_to_its_nominal_value() -> None:
    grid = grid_of("ieee123")
    nominal = nominal_angle(grid)
    bus, phase = (int(k) for k in np.argwhere(nominal.valid & (np.abs(nominal.angle_rad) > 1.0))[0])
    degrees = np.rad2deg(nominal.angle_rad[bus, phase]) + 2.0 + 360.0
    readings = report(grid, ("bus.angle_deg", 0, bus, phase, degrees))
    _, entity, k, value = only(window_of(grid, readings), Store.BUS)
    assert (entity, k) == (bus, column(OPTIONS, Store.BUS, "angle_deg") + phase)
    assert value == pytest.approx(np.deg2rad(2.0), abs=1e-5)
    plain = window_of(grid, readings, replace(OPTIONS, nominal_angle=False))
    assert only(plain, Store.BUS)[3] == pytest.approx(float(wrap(np.array(np.deg2rad(degrees)))), abs=1e-5)


def test_an_angle_without_a_nominal_one_means_nothing_and_is_left_out() -> None:
    grid = grid_of("ieee123")
    bus, phase = (int(k) for k in np.argwhere(~nominal_angle(grid).valid)[0])
    window = window_of(grid, report(grid, ("bus.angle_deg", 0, bus, phase, 10.0)))
    assert not window.temporal[Store.BUS].seen.any()


def test_currents_are_on_the_rating_and_powers_on_a_kilowatt_with_their_sign() -> None:
    grid = grid_of("ieee123")
    amps = float(grid.line["normal_amps"].iat[4])
    readings = report(grid, ("line.current_a", 3, 4, 1, 2.0 * amps), ("line.active_power_kw", 3, 4, 1, -250.0))
    part = window_of(grid, readings).temporal[Store.LINE]
    k = column(OPTIONS, Store.LINE, "current_a") + 1
    assert float(part.value[3, 4, k]) == pytest.approx(np.arcsinh(2.0), rel=1e-6)
    k = column(OPTIONS, Store.LINE, "active_kw") + 1
    assert float(part.value[3, 4, k]) == pytest.approx(np.arcsinh(-250.0), rel=1e-6)
    assert int(part.seen.sum()) == 2


def test_a_line_without_a_rating_falls_back_to_400_amperes() -> None:
    grid = grid_of("ieee123")
    unrated = grid.line.assign(normal_amps=np.nan, emergency_amps=0.0)
    window = window_of(grid.replace_tables(line=unrated), report(grid, ("line.current_a", 0, 0, 0, 400.0)))
    assert only(window, Store.LINE)[3] == pytest.approx(np.arcsinh(1.0), rel=1e-6)


def test_own_conductors_have_columns_of_their_own_in_every_hidden_reading() -> None:
    case = case_of("lv_town", FAULTED)
    window = case.batch().window()
    hidden = torch.tensor(case.grid.bus["hidden"].to_numpy())
    seen = window.temporal[Store.BUS].seen
    order = names(temporal_columns(OPTIONS)[Store.BUS])
    own = torch.tensor([name.endswith("_own") for name in order])
    assert seen[:, hidden][..., own].any()
    assert not seen[:, hidden][..., ~own].any()
    assert not seen[:, ~hidden][..., own].any()
    in_question = torch.tensor((case.grid.line["group"] >= 0).to_numpy())
    seen = window.temporal[Store.LINE].seen
    own = torch.tensor([name.endswith("_own") for name in names(temporal_columns(OPTIONS)[Store.LINE])])
    assert seen[:, in_question][..., own].any() and not seen[:, in_question][..., ~own].any()


@pytest.mark.parametrize("feeder", FEEDERS)
@pytest.mark.parametrize("policy", ["clean", "observability_ami_medium"])
def test_no_reading_is_lost_and_none_is_invented(feeder: str, policy: str) -> None:
    case = case_of(feeder, QUIET, policy)
    window, readings = case.batch().window(), case.readings
    for store, table in ((Store.BUS, "bus"), (Store.CONSUMER, "consumer"), (Store.LINE, "line")):
        keys = [key for key in readings.seen if key.startswith(f"{table}.")]
        lost = 0
        if store is Store.BUS:
            angles = readings.seen["bus.angle_deg"] & ~nominal_angle(case.grid).valid
            lost = int(angles.sum())
        assert int(window.temporal[store].seen.sum()) + lost == sum(int(readings.seen[key].sum()) for key in keys)
    for part in window.temporal.values():
        assert not part.value[~part.seen].any()
        assert torch.isfinite(part.value).all()


@pytest.mark.parametrize("feeder", ["ieee13", "us_suburb", "lv_fourwire"])
def test_terminals_carry_their_buses_voltage_on_the_phases_they_are_on(feeder: str) -> None:
    case = case_of(feeder, QUIET)
    window = case.batch().window()
    bus, terminal = window.temporal[Store.BUS], window.temporal[Store.TERMINAL]
    at = window.edges[Relation.TERMINAL_BUS][1]
    found = 0
    for winding, text in enumerate(case.grid.winding["conductors1"]):
        on = [slot for slot in range(3) if str(slot + 1) in str(text).split(".")]
        for name in ("voltage_v", "angle_deg"):
            source, target = column(OPTIONS, Store.BUS, name), column(OPTIONS, Store.TERMINAL, name)
            for slot in range(3):
                there = terminal.seen[:, winding, target + slot]
                if slot not in on:
                    assert not there.any()
                    continue
                assert torch.equal(there, bus.seen[:, at[winding], source + slot])
                difference = terminal.value[:, winding, target + slot] - bus.value[:, at[winding], source + slot]
                assert difference.abs().max() < 1e-6
                found += int(there.sum())
    assert found > 0


def test_without_extended_measurements_there_are_no_flows_and_no_terminals() -> None:
    window = case_of("us_suburb", QUIET).batch(replace(OPTIONS, extended=False)).window()
    assert Store.TERMINAL not in window.temporal and Store.POWER_FLOW not in window.temporal
    assert window.temporal[Store.LINE].seen.shape[-1] == 4
    assert torch.equal(window.line_current_seen, window.temporal[Store.LINE].seen.any(dim=-1))


def test_tiers_are_the_best_reading_of_the_window() -> None:
    grid = grid_of("lv_town")
    readings = report(
        grid, ("consumer.voltage_v", 1, 1, 0, 230.0), ("consumer.voltage_v", 2, 2, 0, 230.0),
        ("consumer.active_power_kw", 9, 2, 0, 1.0), ("consumer.active_power_kw", 9, 3, 0, 1.0),
        ("consumer.reactive_power_kvar", 23, 3, 0, 0.2),
    )  # fmt: skip
    window = window_of(grid, readings)
    assert window.static[Store.CONSUMER].argmax(dim=1)[:5].tolist() == [0, 1, 2, 3, 0]
    assert torch.all(window.static[Store.CONSUMER].sum(dim=1) == 1.0)
    assert window.consumer_voltage_seen.nonzero().tolist() == [[1, 1], [2, 2]]


# ---- the network as a whole ----------------------------------------------------------------------------------------


def two_sources(grid: Grid) -> Grid:
    """The same grid with its source twice, at two buses."""
    twice = grid.substation.loc[[0, 0]].reset_index(drop=True)
    twice.loc[1, ["name", "bus1"]] = "second", 5
    return grid.replace_tables(substation=twice)


def test_the_feeder_head_is_the_sources_own_and_the_networks_mean_over_those_that_reported() -> None:
    grid = two_sources(grid_of("ieee123"))
    bus = grid.substation["bus1"].to_numpy()
    volt = 1e3 * grid.bus["base_kv"].to_numpy()[bus]
    readings = report(
        grid,
        ("bus.voltage_v", 0, int(bus[0]), 0, 1.02 * volt[0]), ("bus.voltage_v", 0, int(bus[1]), 0, 1.04 * volt[1]),
        ("substation.active_power_kw", 0, 0, 2, 100.0), ("substation.current_a", 0, 1, 2, 400.0),
    )  # fmt: skip
    window = window_of(grid, readings)
    own, network = window.temporal[Store.SUBSTATION], window.temporal[Store.GRID]
    assert own.value[0, :, 0].tolist() == pytest.approx([0.02, 0.04], abs=1e-6)
    assert float(network.value[0, 0, 0]) == pytest.approx(0.03, abs=1e-6)
    k = column(OPTIONS, Store.GRID, "active_kw") + 2
    assert float(network.value[0, 0, k]) == pytest.approx(np.arcsinh(100.0), rel=1e-6)
    assert float(window.temporal[Store.POWER_FLOW].value[0, 0, 2]) == pytest.approx(np.arcsinh(1.0), rel=1e-6)
    assert int(network.seen[0, 0, :9].sum()) == 2 and not network.seen[1:, 0, :9].any()
    without = window_of(grid, readings, replace(OPTIONS, feeder_head=False))
    assert Store.SUBSTATION not in without.temporal
    assert torch.equal(without.temporal[Store.GRID].value, network.value)


def grid_column(window: Window, name: str) -> tuple[torch.Tensor, torch.Tensor]:
    k = names(temporal_columns(window.options)[Store.GRID]).index(name)
    part = window.temporal[Store.GRID]
    return part.value[:, 0, k], part.seen[:, 0, k]


def summary(window: Window, name: str) -> float:
    k = names(static_columns(window.options)[Store.SUMMARY]).index(name)
    return float(window.static[Store.SUMMARY][0, k])


def test_taps_are_summarised_by_hour_and_over_the_window() -> None:
    grid = grid_of("ieee13")
    one, two = (int(k) for k in grid.regulated[:2])
    rows = [("winding.tap_pu", hour, one, 0, 1.0 if hour < 10 else 1.0125) for hour in range(HOURS)]
    rows += [("winding.tap_pu", hour, two, 0, 0.95) for hour in range(5, HOURS)]
    window = window_of(grid, report(grid, *rows))
    value, seen = grid_column(window, "tap_mean")
    assert seen.all()
    assert value[[0, 7, 20]].tolist() == pytest.approx([0.0, -0.025, -0.01875], abs=1e-6)
    assert grid_column(window, "tap_low")[0][[0, 20]].tolist() == pytest.approx([0.0, -0.05], abs=1e-6)
    assert grid_column(window, "tap_high")[0][[0, 20]].tolist() == pytest.approx([0.0, 0.0125], abs=1e-6)
    assert summary(window, "tap_moves") == pytest.approx(0.5)
    assert summary(window, "tap_range") == pytest.approx(0.00625, abs=1e-6)
    assert summary(window, "tap_low") == pytest.approx(-0.05, abs=1e-6)
    assert summary(window, "taps_seen") == 1.0
    nothing = window_of(grid, Readings.none(grid))
    assert not grid_column(nothing, "tap_mean")[1].any()
    assert summary(nothing, "taps_seen") == 0.0


def test_cadence_is_the_share_present_and_the_hours_since_the_last_reading() -> None:
    grid = grid_of("lv_town")
    rows = [("consumer.voltage_v", hour, 0, 0, 230.0) for hour in (2, 3, 6)]
    rows += [("consumer.voltage_v", 4, 1, 0, 230.0)]
    window = window_of(grid, report(grid, *rows))
    share, always = grid_column(window, "present_consumer_voltage")
    assert always.all()
    expected = np.zeros(HOURS)
    expected[[2, 3, 4, 6]] = 1.0 / len(grid.consumer)
    assert share.tolist() == pytest.approx(expected.tolist())
    age, seen = grid_column(window, "age_h_consumer_voltage")
    assert seen.tolist() == [hour >= 2 for hour in range(HOURS)]
    # Customer 0 is 0 hours old at 2, 3 and 6; customer 1, from hour 4 on, joins the mean.
    assert age[2:9].tolist() == pytest.approx([0.0, 0.0, 0.5, 1.5, 1.0, 2.0, 3.0])
    assert summary(window, "present_consumer_voltage") == pytest.approx(4 / (HOURS * len(grid.consumer)))
    assert not grid_column(window, "age_h_flow")[1].any()


@pytest.mark.parametrize("feeder", FEEDERS)
def test_everything_seen_is_all_that_could_be_seen(feeder: str) -> None:
    """The denominators: under ``clean`` every bus phase and customer reports, and shares reach 1 but never pass it."""
    window = case_of(feeder, QUIET).batch().window()
    for family in ("bus_voltage", "consumer_voltage", "consumer_power", "head"):
        assert torch.allclose(grid_column(window, f"present_{family}")[0], torch.ones(HOURS)), family


def test_statistics_of_the_window_are_those_of_the_head() -> None:
    grid = grid_of("ieee13")
    powers = [100.0, 200.0, 400.0]
    rows = [("substation.active_power_kw", hour, 0, 0, power) for hour, power in zip((0, 1, 23), powers, strict=True)]
    window = window_of(grid, report(grid, *rows))
    psi = np.arcsinh(powers)
    found = [summary(window, f"active_{name}") for name in ("mean", "deviation", "low", "high", "last")]
    assert found == pytest.approx([psi.mean(), psi.std(), psi.min(), psi.max(), psi[-1] - psi.mean()], rel=1e-5)
