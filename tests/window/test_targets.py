"""Targets are the Day's own numbers, at their place, and count where they should."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from mycelium.feeders import FEEDERS
from mycelium.grid.grid import Grid
from mycelium.grid.nominal_angle import nominal_angle, wrap
from mycelium.schema import HOURS, FaultPlace, FaultType
from mycelium.sense.readings import Readings
from mycelium.simulate.cases import CaseMix
from mycelium.simulate.day import Day
from mycelium.window.columns import Store, WindowOptions
from mycelium.window.targets import FAULT_CLASSES, hidden_groups
from tests.sense.networks import DEAD, FAULTED, MOVED, QUIET, WITH_GROUPS, bundled, day_of
from tests.window.render import Case, both, case_of


def phasors(grid: Grid, day: Day) -> np.ndarray:
    """Voltages of every bus and phase, V, of hidden buses in their true slot; else NaN. [hour, bus, phase]"""
    wiring = grid.wiring
    found = np.full((HOURS, len(grid.bus), 3), np.nan + 0j)
    groups = hidden_groups(grid)
    for node, (bus, conductor) in enumerate(zip(wiring.bus, wiring.conductor, strict=True)):
        slot = int(day.group_phase[groups[bus]]) if conductor < 0 else int(conductor) - 1
        if 0 <= slot < 3:
            found[:, bus, slot] = day.v[:, node]
    return found


@pytest.mark.parametrize("feeder", FEEDERS)
@pytest.mark.parametrize("angles", [True, False])
def test_voltages_are_the_days_and_angles_come_back(feeder: str, angles: bool) -> None:
    case = case_of(feeder, QUIET)
    window, targets = both(case, WindowOptions(nominal_angle=angles))
    true = phasors(case.grid, case.day)
    base = 1e3 * case.grid.bus["base_kv"].to_numpy()[:, None]
    valid = targets.valid.numpy()
    np.testing.assert_allclose(targets.v_pu.numpy()[:, valid], (np.abs(true) / base)[:, valid], atol=3e-7)
    absolute = wrap(targets.angle_rad.numpy().astype(np.float64) + window.nominal_rad.numpy())
    apart = np.abs(wrap(absolute - np.angle(true)))
    counts = targets.angle_valid.numpy()
    assert apart[:, counts].max() < 1e-5
    if angles:
        assert np.abs(targets.angle_rad.numpy()[:, counts]).max() < 0.6


@pytest.mark.parametrize("feeder", FEEDERS)
def test_what_counts_is_every_phase_with_a_nominal_angle_and_of_a_hidden_bus_the_true_one(feeder: str) -> None:
    case = case_of(feeder, MOVED)
    window, targets = both(case)
    hidden = case.grid.bus["hidden"].to_numpy()
    true = np.isfinite(phasors(case.grid, case.day)[0])
    nominal = nominal_angle(case.grid).valid
    assert np.array_equal(targets.valid.numpy(), true & nominal)
    assert np.array_equal(targets.valid.numpy()[~hidden], window.nominal_valid.numpy()[~hidden])
    assert np.all(targets.valid.numpy()[hidden].sum(axis=1) == 1)
    assert np.all(window.nominal_valid.numpy()[hidden])
    assert not targets.v_pu.numpy()[:, ~targets.valid.numpy()].any()
    assert not targets.angle_rad.numpy()[:, ~targets.valid.numpy()].any()


@pytest.mark.parametrize("feeder", ["ieee123", "lv_town", "us_suburb"])
def test_a_dead_bus_stays_a_target_without_an_angle_and_is_flagged(feeder: str) -> None:
    case = case_of(feeder, DEAD)
    _, targets = both(case)
    live = np.zeros((len(case.grid.bus), 3), dtype=bool)
    wiring = case.grid.wiring
    for node in np.flatnonzero(case.day.energised):
        if 1 <= wiring.conductor[node] <= 3:
            live[wiring.bus[node], wiring.conductor[node] - 1] = True
    known = ~case.grid.bus["hidden"].to_numpy()
    dead = targets.valid.numpy() & ~targets.live.numpy()
    assert dead.any()
    assert np.array_equal(
        targets.live.numpy()[known] & targets.valid.numpy()[known], live[known] & targets.valid.numpy()[known]
    )
    assert targets.v_pu.numpy()[:, dead].max() < 1e-3
    assert not targets.angle_rad.numpy()[:, dead].any()
    assert not (targets.angle_valid.numpy() & dead).any()


@pytest.mark.parametrize("feeder", WITH_GROUPS)
def test_phases_are_those_of_eligible_customers_and_only_metered_ones_are_observed(feeder: str) -> None:
    case = case_of(feeder, MOVED, "noisy_missing_dense")
    _, targets = both(case)
    consumer = case.grid.consumer
    eligible = consumer["eligible"].to_numpy()
    assert np.array_equal(targets.phase_eligible.numpy(), eligible)
    expected = case.day.group_phase[consumer["group"].to_numpy()[eligible]]
    assert np.array_equal(targets.phase.numpy()[eligible], expected)
    metered = case.readings.seen["consumer.voltage_v"].any(axis=(0, 2))
    assert np.array_equal(targets.phase_observed.numpy(), eligible & metered)
    assert targets.applicable[0].tolist() == [True, True, bool(len(case.grid.switches)), True]


def test_one_voltage_reading_of_the_day_makes_a_customer_observed() -> None:
    case = case_of("lv_town", MOVED)
    seen = {key: flags.copy() for key, flags in case.readings.seen.items()}
    value = {key: numbers.copy() for key, numbers in case.readings.value.items()}
    seen["consumer.voltage_v"][:] = False
    value["consumer.voltage_v"][:] = 0.0
    row = int(np.flatnonzero(case.grid.consumer["eligible"].to_numpy())[3])
    seen["consumer.voltage_v"][17, row] = True
    value["consumer.voltage_v"][17, row] = 229.0
    _, targets = both(Case(case.grid, case.day, Readings.of(value, seen)))
    assert targets.phase_observed.nonzero().ravel().tolist() == [row]


@pytest.mark.parametrize("feeder", ["ieee123", "lv_town", "us_suburb", "lv_fourwire"])
@pytest.mark.parametrize("mix", [MOVED, DEAD])
def test_switches_have_their_true_position_and_dead_ones_are_flagged(feeder: str, mix: CaseMix) -> None:
    case = case_of(feeder, mix)
    _, targets = both(case)
    grid, day = case.grid, case.day
    assert targets.is_switch.nonzero().ravel().tolist() == grid.switches.tolist()
    assert np.array_equal(targets.switch_open.numpy()[grid.switches], day.switch_open)
    assert not targets.switch_open[~targets.is_switch].any()
    live = np.bincount(grid.wiring.bus[day.energised], minlength=len(grid.bus)) > 0
    for row in range(len(grid.line)):
        both_dead = not live[grid.line["bus1"].iat[row]] and not live[grid.line["bus2"].iat[row]]
        assert bool(targets.dead_switch[row]) == (row in grid.switches and both_dead)
    assert not targets.tie.any()


def test_ties_of_a_record_variant_are_marked() -> None:
    network = bundled("ieee34")
    for number in range(20):
        case = network.draw(3, number, CaseMix(variant=1.0, fault=0.0, lose_supply=0.0))
        grid = network.circuit(case.variant).grid
        if grid.line["tie"].any():
            break
    day = network.circuit(case.variant).solve(case)
    quiet = case_of("ieee34", QUIET)
    _, targets = both(Case(grid, day, type(quiet.readings).none(grid)))
    assert targets.tie.numpy().tolist() == grid.line["tie"].tolist()
    assert targets.is_switch[targets.tie].all()


@pytest.mark.parametrize("feeder", ["ieee13", "lv_town", "us_suburb"])
def test_a_fault_is_its_class_and_its_equipment_among_the_candidates(feeder: str) -> None:
    network = bundled(feeder)
    grid = network.published.grid
    names = [("bus", name) for name in grid.bus["name"]]
    names += [(table, name) for table in ("line", "transformer") for name in grid.tables[table]["name"]]
    places = set()
    for first in range(0, 60, 3):
        day = day_of(network, FAULTED, first)
        assert day.fault is not None
        quiet = case_of(feeder, QUIET)
        window, targets = both(Case(grid, day, quiet.readings))
        table = {FaultPlace.BUS: "bus", FaultPlace.LINE: "line", FaultPlace.TRANSFORMER: "transformer"}[day.fault.place]
        found = names[int(targets.location[0])]
        assert found == (table, grid.tables[table]["name"].iat[day.fault.element])
        assert FAULT_CLASSES[int(targets.fault_class[0])] == day.fault.type
        assert len(window.candidate_graph) == len(names)
        places.add(day.fault.place)
    assert places == set(FaultPlace)
    assert ("normal", *(kind.value for kind in FaultType)) == FAULT_CLASSES
    _, targets = both(case_of(feeder, QUIET))
    assert targets.location.tolist() == [-1] and targets.fault_class.tolist() == [0]


def test_real_readings_have_no_targets() -> None:
    features, sample = case_of("ieee13", QUIET).part()
    batch = type(case_of("ieee13", QUIET).batch()).of([(features, replace(sample, targets=None))])
    assert batch.window().n_buses == len(case_of("ieee13", QUIET).grid.bus)
    with pytest.raises(ValueError, match="no truth"):
        batch.targets()


def test_line_edges_stand_for_line_candidates_and_transformers_have_one_edge_each() -> None:
    case = case_of("us_suburb", QUIET)
    window, _ = both(case)
    assert torch.equal(window.transformer_edge, torch.arange(len(case.grid.transformer)))
    assert len(window.graph[Store.LINE]) == len(case.grid.line)
