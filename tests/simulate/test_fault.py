"""Faults: short-circuit currents against theory, and what is drawn."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.stats import chisquare, kstest

from mycelium.grid.admittance import Admittance
from mycelium.grid.grid import Grid
from mycelium.schema import GROUND, HIDDEN, LOW_VOLTAGE_KV, FaultPlace, FaultType
from mycelium.simulate.circuit import Circuit
from mycelium.simulate.fault import (
    GROUNDED,
    LOWEST_R_OHM,
    N_PHASES,
    NEUTRAL,
    OCTAVES_LV,
    OCTAVES_MV,
    X_RANGE,
    Fault,
    draw_fraction,
    draw_resistance_ohm,
    faulted_bus,
    feasible_types,
    legs,
    place_conductors,
    split_line,
)
from mycelium.simulate.seeds import generator
from tests.simulate.bench import (
    LAST,
    LINE_Z0,
    LINE_Z1,
    PUBLISHED,
    SOURCE_Z0,
    SOURCE_Z1,
    TWO_BUS_KV,
    Complex,
    case_of,
    fault_at,
    fault_current,
    network,
    two_bus,
)

BOLTED_OHM = 1e-6
UNLOADED = 1e-6  # share of nominal demand: small against any fault


# ---- short-circuit theory ----------------------------------------------------------------------------------------


def _sequence_currents(kind: FaultType, z1: complex, z0: complex, e: complex, r: float) -> dict[int, complex]:
    """Phase currents of a fault fed by e behind z1, z1 (negative) and z0, from symmetrical components."""
    a = np.exp(2j * np.pi / 3)
    if kind is FaultType.LG:
        return {1: 3 * e / (2 * z1 + z0 + 3 * r)}
    if kind in (FaultType.LLL, FaultType.LLLG):
        i = e / (z1 + r)
        return {1: i, 2: i * a**2, 3: i * a}
    # Phases 2 and 3: the networks of the three sequences seen from phase 1.
    if kind is FaultType.LL:
        i1 = e / (2 * z1 + r)
        return {2: (a**2 - a) * i1, 3: (a - a**2) * i1}
    # LLG with R from each phase to earth: R is in series with every sequence.
    y1, y0 = z1 + r, z0 + r
    i1 = e / (y1 + y1 * y0 / (y1 + y0))
    i2, i0 = -i1 * y0 / (y1 + y0), -i1 * y1 / (y1 + y0)
    return {2: i0 + a**2 * i1 + a * i2, 3: i0 + a * i1 + a**2 * i2}


@pytest.mark.parametrize("kind", list(FaultType))
def test_a_fault_behind_one_line_has_the_current_of_the_textbook(kind: FaultType, tmp_path: Path) -> None:
    circuit = Circuit.open(two_bus(tmp_path))
    phases = {1: (1,), 2: (2, 3), 3: (1, 2, 3)}[N_PHASES[kind]]
    tail = circuit.grid.bus["name"].tolist().index("tail")
    for resistance_ohm in (BOLTED_OHM, 0.5, 8.0):
        at_bus = Fault(kind, FaultPlace.BUS, tail, 0, 0.0, phases, resistance_ohm)
        inside = Fault(kind, FaultPlace.LINE, 0, 0, 0.3, phases, resistance_ohm)
        for fault, x in ((at_bus, 1.0), (inside, 0.3)):
            z1, z0 = SOURCE_Z1 + x * LINE_Z1, SOURCE_Z0 + x * LINE_Z0
            expected = _sequence_currents(kind, z1, z0, TWO_BUS_KV * 1e3 / np.sqrt(3.0), resistance_ohm)
            for solve in (circuit.solve, circuit.solve_by_engine):
                case = case_of(circuit, fault)
                circuit.demand.set(case.profile)
                current = fault_current(circuit.grid, solve(case))
                scale = abs(expected[phases[0]])
                for phase in (1, 2, 3):
                    assert current[phase] == pytest.approx(expected.get(phase, 0.0), abs=1e-3 * scale), f"{fault}"


def test_the_single_line_and_three_phase_currents_worked_out_by_hand(tmp_path: Path) -> None:
    # |E| = 12 470/√3 = 7 199.6 V. At the far end Z1 = 1.64 + j4.58 = 4.865 ohm, Z0 = 3.74 + j11.02 ohm.
    # LG: 3 E / (2 Z1 + Z0) = 21 598.7 / |7.02 + j20.18| = 21 598.7 / 21.366 = 1 010.9 A.
    # LLL: E / Z1 = 7 199.6 / 4.8648 = 1 479.9 A.
    circuit = Circuit.open(two_bus(tmp_path))
    tail = circuit.grid.bus["name"].tolist().index("tail")
    for kind, phases, ampere in ((FaultType.LG, (1,), 1010.9), (FaultType.LLL, (1, 2, 3), 1479.9)):
        day = circuit.solve(case_of(circuit, Fault(kind, FaultPlace.BUS, tail, 0, 0.0, phases, BOLTED_OHM)))
        for phase in phases:
            assert abs(fault_current(circuit.grid, day)[phase]) == pytest.approx(ampere, rel=1e-4)


def _thevenin_currents(grid: Grid, admittance: Admittance, bus: int, fault: Fault) -> dict[int, complex]:
    """Fault currents from the open-circuit voltages and the impedances among the faulted conductors."""
    reached = np.flatnonzero(np.abs(admittance.nodal.diagonal()) > 0)
    y = admittance.nodal[reached][:, reached].toarray()
    conductors = list(fault.conductors)
    has_neutral = np.any(grid.wiring.conductor[grid.wiring.nodes_at(bus)] == NEUTRAL)
    if fault.type in GROUNDED and has_neutral:
        conductors.append(NEUTRAL)
    node = grid.wiring.find(np.full(len(conductors), bus), np.array(conductors))
    place = np.searchsorted(reached, node)
    assert np.array_equal(reached[place], node)
    unit = np.zeros((len(reached), len(node)))
    unit[place, np.arange(len(node))] = 1.0
    z = np.linalg.solve(y, unit)[place]
    e = np.linalg.solve(y, admittance.source_currents()[reached])[place]
    return dict(zip(conductors, _into_fault(fault, e, z, has_neutral=bool(has_neutral)), strict=True))


def _into_fault(fault: Fault, e: Complex, z: Complex, has_neutral: bool) -> Complex:
    """Solve e - z i = r i + common, with what the type of fault says of the sum of currents."""
    n, phases = len(e), len(fault.conductors)
    r = fault.resistance_ohm
    # Unknowns: i of every conductor, and the voltage of the point where the phases meet.
    system = np.zeros((n + 1, n + 1), dtype=np.complex128)
    known = np.zeros(n + 1, dtype=np.complex128)
    system[:n, :n] = z
    known[:n] = e
    each = r / 2 if fault.type is FaultType.LL else r
    system[:phases, :phases] += each * np.eye(phases)
    system[:n, n] = 1.0
    if fault.type in GROUNDED and not has_neutral:
        system[n, n] = 1.0  # the point is earth
    else:
        system[n, :n] = 1.0  # what goes in comes out
    return np.asarray(np.linalg.solve(system, known)[:n])


@pytest.mark.parametrize("place", list(FaultPlace))
@pytest.mark.parametrize("feeder", ["ieee13", "lv_town", "lv_fourwire", "us_suburb"])
def test_a_bolted_fault_has_the_current_of_the_network_seen_from_its_place(feeder: str, place: FaultPlace) -> None:
    circuit = network(feeder, PUBLISHED).published
    grid = circuit.grid
    for pick, kind in enumerate(FaultType):
        fault = fault_at(circuit, kind, place, 5 * pick + 1, resistance_ohm=BOLTED_OHM)
        assert fault is not None
        day = circuit.solve(case_of(circuit, fault, scale=UNLOADED))
        seen, bus = grid, faulted_bus(grid, fault)
        if place is FaultPlace.LINE:
            seen, bus = split_line(grid, fault.element, fault.x)
        admittance = Admittance.of(seen, day.configuration(LAST))
        _assert_close(fault, fault_current(grid, day), _thevenin_currents(seen, admittance, bus, fault))


def _assert_close(fault: Fault, found: dict[int, complex], expected: dict[int, complex]) -> None:
    largest = max(abs(value) for value in expected.values())
    assert largest > 10.0, f"{fault}"
    for conductor, current in found.items():
        assert abs(current - expected.get(conductor, 0.0)) < 0.01 * largest, f"{fault}: conductor {conductor}"


@pytest.mark.parametrize("kind", list(FaultType))
def test_more_resistance_means_less_current(kind: FaultType) -> None:
    circuit = network("ieee13", PUBLISHED).published
    largest = []
    for resistance_ohm in (0.01, 0.1, 1.0, 10.0):
        fault = fault_at(circuit, kind, FaultPlace.BUS, 6, resistance_ohm=resistance_ohm)
        assert fault is not None
        current = fault_current(circuit.grid, circuit.solve(case_of(circuit, fault)))
        largest.append(max(abs(value) for value in current.values()))
    assert largest == sorted(largest, reverse=True) and largest[0] > 2 * largest[-1]


# ---- connections -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("has_neutral", [False, True])
@pytest.mark.parametrize("kind", list(FaultType))
def test_legs_are_the_stated_connection(kind: FaultType, has_neutral: bool) -> None:
    conductors = (1, 2, 3)[: N_PHASES[kind]]
    fault = Fault(kind, FaultPlace.BUS, 0, 0, 0.0, conductors, 2.0)
    y = np.zeros((5, 5))
    for a, b, siemens in legs(fault, has_neutral):
        assert siemens > 0 and a != b
        y[[a, b], [a, b]] += siemens
        y[[a, b], [b, a]] -= siemens
    v = np.array([0.0, 10.0, -4.0, 1.0, 0.5])
    current = y @ v
    assert current.sum() == pytest.approx(0.0, abs=1e-12)
    if kind in GROUNDED:
        ground = NEUTRAL if has_neutral else GROUND
        for c in conductors:
            assert current[c] == pytest.approx((v[c] - v[ground]) / 2.0)
    elif kind is FaultType.LL:
        assert current[1] == pytest.approx((v[1] - v[2]) / 2.0)
    else:  # through R to a point that floats at the mean
        for c in conductors:
            assert current[c] == pytest.approx((v[c] - v[list(conductors)].mean()) / 2.0)
    unused = [c for c in (GROUND, 1, 2, 3, NEUTRAL) if not y[c].any()]
    assert (GROUND in unused) == (kind not in GROUNDED or has_neutral)


@pytest.mark.parametrize("feeder", ["lv_town", "lv_fourwire"])
def test_the_sections_of_a_split_line_are_the_line_when_joined(feeder: str) -> None:
    circuit = network(feeder, PUBLISHED).published
    grid = circuit.grid
    whole = Admittance.of(grid, circuit.recorded).nodal.toarray()
    plain = np.flatnonzero(~grid.line["switch"].to_numpy() & (grid.line["c1_nf"] == 0).to_numpy())
    for line in plain[:: len(plain) // 4]:
        cut, interior = split_line(grid, int(line), 0.3)
        y = Admittance.of(cut, circuit.recorded).nodal.toarray()
        inside = np.flatnonzero(cut.wiring.bus == interior)
        outside = cut.wiring.find(grid.wiring.bus, grid.wiring.conductor)
        to_inside = np.linalg.solve(y[np.ix_(inside, inside)], y[np.ix_(inside, outside)])
        reduced = y[np.ix_(outside, outside)] - y[np.ix_(outside, inside)] @ to_inside
        assert np.abs(reduced - whole).max() < 1e-11 * np.abs(whole).max()


# ---- draws -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("base_kv", "octaves"), [(0.24, OCTAVES_LV), (2.4, OCTAVES_MV), (7.2, OCTAVES_MV)])
def test_resistances_are_in_their_range_octave_by_octave(base_kv: float, octaves: int) -> None:
    assert (base_kv * np.sqrt(3.0) < LOW_VOLTAGE_KV) == (octaves == OCTAVES_LV)
    rng = generator("test", "resistance", octaves)
    r = np.array([draw_resistance_ohm(rng, base_kv) for _ in range(4000)])
    assert r.min() >= LOWEST_R_OHM and r.max() < LOWEST_R_OHM * 2**octaves
    octave = np.floor(np.log2(r / LOWEST_R_OHM)).astype(int)
    assert chisquare(np.bincount(octave, minlength=octaves)).pvalue > 0.01
    within = r / (LOWEST_R_OHM * 2.0**octave) - 1.0
    assert kstest(within, "uniform").pvalue > 0.01
    assert LOWEST_R_OHM * 2**octaves == pytest.approx({OCTAVES_LV: 1.28, OCTAVES_MV: 10.24}[octaves])


def test_places_along_a_line_are_uniform_between_a_fifth_and_four_fifths() -> None:
    rng = generator("test", "x")
    x = np.array([draw_fraction(rng) for _ in range(4000)])
    low, high = X_RANGE
    assert (low, high) == (0.2, 0.8)
    assert kstest((x - low) / (high - low), "uniform").pvalue > 0.01


def test_equipment_suffers_only_what_it_has_phases_for() -> None:
    assert feasible_types(0) == []
    assert feasible_types(1) == [FaultType.LG]
    assert feasible_types(2) == [FaultType.LG, FaultType.LL, FaultType.LLG]
    assert set(feasible_types(3)) == set(FaultType)


def test_the_conductors_of_a_place_are_those_of_the_records() -> None:
    grid = network("lv_fourwire", PUBLISHED).published.grid
    bus = grid.bus["name"].tolist()
    assert place_conductors(grid, FaultPlace.BUS, bus.index("p3"), 0) == (1, 2, 3, NEUTRAL)
    assert place_conductors(grid, FaultPlace.BUS, bus.index("h1"), 0) == (HIDDEN, NEUTRAL)
    line = grid.line["name"].tolist()
    assert place_conductors(grid, FaultPlace.LINE, line.index("drop_h1"), 0) == (HIDDEN, NEUTRAL)
    assert place_conductors(grid, FaultPlace.TRANSFORMER, 0, 0) == (1, 2, 3)
    assert place_conductors(grid, FaultPlace.TRANSFORMER, 0, 1) == (1, 2, 3, NEUTRAL)
