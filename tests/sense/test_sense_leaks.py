"""Readings tell no more than meters would: no phase that is in question, and no truth in what is seen."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mycelium.grid.grid import Grid
from mycelium.schema import CHANNELS, HIDDEN, OWN, FaultPlace
from mycelium.sense.policies import POLICIES
from mycelium.sense.readings import Readings
from mycelium.sense.sense import sense
from mycelium.simulate.day import Day
from tests.conftest import ReferenceNetworks
from tests.sense.networks import (
    DEAD,
    EVERY,
    FAULTED,
    MOVED,
    QUIET,
    WITH_GROUPS,
    bundled,
    day_of,
    line_faulted_at,
    meters_of,
    open_network,
)

QUESTIONED = ["enwl", "four-wire", "dsuite", "four-wire, three-phase customers"]  # reference networks that have groups


def turned(grid: Grid, day: Day, turn: int) -> Day:
    """The same day with every phase in question renamed A to B to C, and voltages where it hangs renamed with it."""
    wiring = grid.wiring
    bus, phase = np.mgrid[: len(grid.bus), 1:4]
    node = wiring.find(bus, phase)
    node = node[np.all(node >= 0, axis=1)]
    v = day.v.copy()
    v[:, np.roll(node, -turn, axis=1)] = day.v[:, node]
    return replace(day, v=v, group_phase=((day.group_phase + turn) % 3).astype(np.int8))


def in_question(grid: Grid) -> dict[str, np.ndarray]:
    """Rows whose readings must not depend on phases."""
    return {
        "bus": np.flatnonzero(grid.bus["hidden"].to_numpy()),
        "line": np.flatnonzero((grid.line["group"] >= 0).to_numpy()),
        "consumer": np.flatnonzero((grid.consumer["group"] >= 0).to_numpy()),
    }


def same_where_in_question(grid: Grid, one: Readings, other: Readings) -> int:
    """Bit-equal at customers in question, their services and hidden buses; how many readings that is."""
    count = 0
    for key, channel in CHANNELS.items():
        assert one.seen[key].tobytes() == other.seen[key].tobytes(), key
        rows = in_question(grid).get(channel.table)
        if rows is not None:
            assert one.value[key][:, rows].tobytes() == other.value[key][:, rows].tobytes(), key
            count += int(one.seen[key][:, rows].sum())
    return count


@pytest.mark.parametrize("turn", [1, 2])
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("feeder", [*WITH_GROUPS, *QUESTIONED])
def test_renaming_phases_changes_no_bit_where_a_phase_is_in_question(
    feeder: str, policy: str, turn: int, reference_network: ReferenceNetworks
) -> None:
    network = open_network(feeder, reference_network)
    grid = network.published.grid
    meters = meters_of(grid, policy)
    for mix in (MOVED, FAULTED):
        day = day_of(network, mix)
        other = turned(grid, day, turn)
        assert not np.array_equal(other.v, day.v)
        one, two = sense(meters, day, 1), sense(meters, other, 1)
        count = same_where_in_question(grid, one, two)
        if policy == "clean":
            assert count > 24 * 3 * len(in_question(grid)["consumer"]) - 1
            volts = "bus.voltage_v"  # the renaming does reach what is on record
            assert one.value[volts].tobytes() != two.value[volts].tobytes()


@pytest.mark.parametrize("feeder", ["lv_town", "lv_fourwire"])
def test_renaming_phases_changes_no_bit_of_a_faulted_service_line(feeder: str) -> None:
    network = bundled(feeder)
    grid = network.published.grid
    services = in_question(grid)["line"]
    day = line_faulted_at(network, services)
    assert day.fault is not None and day.fault.conductors == (HIDDEN,) and day.fault.place is FaultPlace.LINE
    meters = meters_of(grid, "clean")
    one = sense(meters, day, 1)
    assert same_where_in_question(grid, one, sense(meters, turned(grid, day, 1), 1))
    amps = one.value["line.current_a"][:, day.fault.element, OWN]
    assert amps[-1] > 5 * amps[:-1].max()


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", EVERY)
def test_no_reading_of_a_hidden_bus_or_line_is_in_a_phase_slot(
    name: str, policy: str, reference_network: ReferenceNetworks
) -> None:
    grid = open_network(name, reference_network).published.grid
    meters = meters_of(grid, policy)
    hidden = in_question(grid)
    for key, channel in CHANNELS.items():
        row, slot = np.divmod(meters.places[key], channel.slots)
        assert len(np.unique(meters.places[key])) == len(row), key
        if channel.slots != OWN + 1:
            assert not np.isin(row, hidden["bus"]).any() or channel.table != "bus", key
            continue
        own = np.isin(row, hidden[channel.table])
        assert np.array_equal(slot == OWN, own), key


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("feeder", ["ieee123", "lv_town", "us_suburb"])
def test_what_is_seen_does_not_depend_on_the_truth(feeder: str, policy: str) -> None:
    network = bundled(feeder)
    meters = meters_of(network.published.grid, policy)
    days = [day_of(network, mix) for mix in (QUIET, MOVED, FAULTED, DEAD)]
    assert len({day.switch_open.tobytes() + day.v.tobytes() for day in days}) == 4
    first, *others = (sense(meters, day, 9) for day in days)
    for other in others:
        for key in CHANNELS:
            assert first.seen[key].tobytes() == other.seen[key].tobytes(), key


@pytest.mark.parametrize("policy", POLICIES)
def test_dead_buses_report_their_zero_volts(policy: str) -> None:
    network = bundled("us_suburb")
    grid, day = network.published.grid, day_of(network, DEAD)
    meters = meters_of(grid, policy)
    dead = np.zeros(len(grid.bus), bool)
    dead[grid.wiring.bus[~day.energised]] = True
    readings = sense(meters, day, 1)
    row = meters.places["bus.voltage_v"] // CHANNELS["bus.voltage_v"].slots
    kept = 1.0 - meters.placement.policy.noise.voltage_missing
    volts, seen = readings.value["bus.voltage_v"], readings.seen["bus.voltage_v"]
    base = 1e3 * grid.bus["base_kv"].to_numpy()[:, None]
    assert np.all(np.abs(volts[:, dead]) < 1e-3 * base[dead])
    assert np.median((volts / base)[:, ~dead][seen[:, ~dead]]) > 0.8, "those with supply do have volts"
    if policy == "clean":
        assert dead[row].any()
    if dead[row].any():
        assert abs(seen[:, dead].sum() / (24 * dead[row].sum()) - kept) < 0.05


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", ["ieee34", "lv_town", "us_suburb", "four-wire", "iowa"])
def test_heads_source_buses_and_taps_are_seen_under_every_policy(
    name: str, policy: str, reference_network: ReferenceNetworks
) -> None:
    network = open_network(name, reference_network)
    grid, day = network.published.grid, day_of(network, QUIET)
    readings = sense(meters_of(grid, policy), day, 2)
    floor = 0.0 if policy == "clean" else 0.05 + 4 * np.sqrt(0.05 / (24 * 3))
    for key in ("substation.current_a", "substation.active_power_kw", "substation.reactive_power_kvar"):
        assert readings.seen[key].mean() > 1.0 - floor - 1e-9
    source = grid.substation["bus1"].to_numpy()
    assert readings.seen["bus.voltage_v"][:, source, :OWN].mean() > 0.9
    assert readings.seen["bus.angle_deg"][:, source].mean() > 0.9
    assert readings.seen["winding.tap_pu"][:, grid.regulated].all()
    assert readings.seen["winding.tap_pu"].sum() == 24 * len(grid.regulated)


def test_smart_meters_report_scalars_and_reactive_power_only_where_they_can() -> None:
    network = bundled("lv_town")
    grid, day = network.published.grid, day_of(network, QUIET)
    meters = meters_of(grid, "noisy_missing_dense")
    sensors = meters.placement.on(grid)
    readings = sense(meters, day, 1)
    for key, flags in (
        ("consumer.voltage_v", sensors.consumer),
        ("consumer.active_power_kw", sensors.consumer),
        ("consumer.reactive_power_kvar", sensors.reactive),
    ):
        seen = readings.seen[key]
        assert seen.shape[2] == 1
        assert np.array_equal(seen.any(axis=(0, 2)), flags), key
