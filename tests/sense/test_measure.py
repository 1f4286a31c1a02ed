"""What instruments show is what the engine finds: currents, powers and voltages of elements, hour by hour."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pytest

from mycelium.grid.check import element_slices
from mycelium.grid.grid import Grid
from mycelium.grid.primitive import source_impedance, source_voltages
from mycelium.schema import HOURS, OWN, FaultPlace
from mycelium.sense.measure import SHOWN, Measured, Meters
from mycelium.simulate.cases import Case
from mycelium.simulate.circuit import Circuit, Rejection
from mycelium.simulate.day import Day
from mycelium.simulate.network import Network
from tests.conftest import ReferenceNetworks
from tests.sense.networks import (
    DEAD,
    EVERY,
    FAULTED,
    MOVED,
    QUIET,
    bundled,
    day_of,
    meters_of,
    open_network,
    shown,
    total,
)  # fmt: skip
from tests.simulate.bench import ARRAYS

Complex = npt.NDArray[np.complex128]
Floats = npt.NDArray[np.float64]

TOLERANCE = 1e-5
PHASES = 3


def slots(conductors: str) -> list[int]:
    """Slot of every conductor of a terminal as written in the records, -1 for none."""
    return [OWN if part == "?" else int(part) - 1 if part in "123" else -1 for part in conductors.split(".")]


@dataclass
class Witness:
    """Reads the engine after each hour, through its own element currents, powers and voltages.

    Attributes:
        seen: Per hour and class: place of every element by name, where its values start, and the values.
    """

    circuit: Circuit
    seen: list[dict[str, tuple[dict[str, int], npt.NDArray[np.int64], Complex, Complex, Complex]]] = field(
        default_factory=list
    )

    def wrap(self, solve_hour: Callable[[int], object]) -> Callable[[int], object]:
        def spy(hour: int) -> object:
            result = solve_hour(hour)
            found = {}
            for kind in ("Line", "Transformer", "Load", "Vsource"):
                batch = getattr(self.circuit.engine.alt, kind)
                if len(batch):
                    values = (batch.Currents(), batch.Powers(), batch.Voltages())
                    found[kind] = (*element_slices(batch), *(np.asarray(x, np.complex128) for x in values))
            self.seen.append(found)
            return result

        return spy

    def values(self, hour: int, kind: str, name: str) -> tuple[Complex, Complex, Complex]:
        """Terminal currents, powers and voltages of an element, conductor by conductor."""
        place, start, *values = self.seen[hour][kind]
        part = slice(start[place[name]], start[place[name] + 1])
        current, power, voltage = (x[part] for x in values)
        return current, power, voltage


def watched(network: Network, case: Case, monkeypatch: pytest.MonkeyPatch) -> tuple[Day, Witness]:
    """A day solved by the engine, and what the engine said of it."""
    circuit = network.circuit(case.variant)
    witness = Witness(circuit)
    circuit.demand.set(case.profile)
    with monkeypatch.context() as patch:
        patch.setattr(circuit, "_solve_hour", witness.wrap(circuit._solve_hour))
        return circuit.solve_by_engine(case), witness


def cases(network: Network) -> list[Case]:
    """A quiet day, switching with phase changes, lost supply, and a fault inside a line."""
    found = []
    for mix in (QUIET, MOVED, DEAD):
        found.append(network.draw(5, day_of(network, mix).number, mix))
    for number in range(200):
        case = network.draw(5, number, FAULTED)
        if case.fault is not None and case.fault.place is FaultPlace.LINE:
            found.append(case)
            break
    return found


def dense(meters: Meters, key: str, values: Floats, n_slots: int) -> Floats:
    """Values in their places, NaN elsewhere. [hour, row, slot]"""
    table = key.split(".")[0]
    full = np.full((HOURS, len(meters.grid.tables[table]) * n_slots), np.nan)
    full[:, meters.places[key]] = values
    return full.reshape(HOURS, -1, n_slots)


def flows(meters: Meters, measured: Measured, table: str, n_slots: int) -> tuple[Floats, Complex]:
    """Current magnitudes, A, and complex powers, kVA, in their places. [hour, row, slot]"""
    amps, kw, kvar = (
        dense(meters, key, shown(meters, measured, key), n_slots)
        for key in (f"{table}.current_a", f"{table}.active_power_kw", f"{table}.reactive_power_kvar")
    )
    return amps, kw + 1j * kvar


def by_engine(
    grid: Grid, witness: Witness, table: str, names: Callable[[int, int], tuple[str, str, int]], n_slots: int
) -> tuple[Floats, Complex]:
    """The same from the engine.

    Args:
        grid: The records.
        witness: What the engine said.
        table: With column ``conductors1``.
        names: Class, element and first conductor of a row at an hour.
        n_slots: Slots of the table's readings.
    """
    n = len(grid.tables[table])
    current, power = np.zeros((2, HOURS, n, n_slots), np.complex128)
    present = np.zeros((n, n_slots), bool)
    for row, conductors in enumerate(grid.tables[table]["conductors1"]):
        for hour in range(HOURS):
            kind, name, first = names(hour, row)
            i, s, _ = witness.values(hour, kind, name)
            for k, slot in enumerate(slots(conductors)):
                if slot >= 0:
                    current[hour, row, slot] += i[first + k]
                    power[hour, row, slot] += s[first + k]
                    present[row, slot] = True
    return np.where(present, np.abs(current), np.nan), np.where(present, power, np.nan)


def close(ours: Floats | Complex, theirs: Floats | Complex, scale: Floats | float) -> bool:
    """Present in the same places, and within the tolerance of a scale [row]."""
    assert np.array_equal(np.isnan(ours), np.isnan(theirs))
    bound = TOLERANCE * np.broadcast_to(np.asarray(scale, np.float64), ours.shape[1:2])
    bound = bound.reshape(1, -1, *([1] * (ours.ndim - 2)))
    return bool(np.all(np.nan_to_num(np.abs(ours - theirs)) <= bound))


@pytest.mark.parametrize("name", EVERY)
def test_instruments_show_what_the_engine_finds(
    name: str, reference_network: ReferenceNetworks, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = open_network(name, reference_network)
    grid = network.published.grid
    meters = meters_of(grid, "clean")
    compared = 0
    for case in cases(network):
        try:
            day, witness = watched(network, case, monkeypatch)
        except Rejection:
            continue
        compared += 1
        measured = meters.read(day)
        _assert_lines(grid, day, witness, meters, measured)
        _assert_windings(grid, witness, meters, measured)
        _assert_customers(grid, witness, meters, measured)
        _assert_heads(grid, witness, meters, measured)
        _assert_buses(grid, day, meters, measured)
    assert compared >= 2


def _assert_lines(grid: Grid, day: Day, witness: Witness, meters: Meters, measured: Measured) -> None:
    split = day.fault.element if day.fault is not None and day.fault.place is FaultPlace.LINE else -1

    def names(hour: int, row: int) -> tuple[str, str, int]:
        if row == split and hour == HOURS - 1:  # sections stand in for it
            return "Line", f"mycelium_fault_{grid.line['n_conductors'].iat[row]}a", 0
        return "Line", grid.line["name"].iat[row], 0

    amps, power = flows(meters, measured, "line", OWN + 1)
    engine_amps, engine_power = by_engine(grid, witness, "line", names, OWN + 1)
    rated = grid.line["normal_amps"].to_numpy()
    kv = grid.bus["base_kv"].to_numpy()[grid.line["bus1"]]
    assert close(amps, engine_amps, rated)
    assert close(power, engine_power, rated * kv)
    if split >= 0:
        assert np.nanmax(amps[-1, split]) > 1.0  # the fault does draw a current through this terminal


def _assert_windings(grid: Grid, witness: Witness, meters: Meters, measured: Measured) -> None:
    owner, number = (grid.winding[name].to_numpy() for name in ("transformer", "number"))
    per_winding = grid.transformer["n_phases"].to_numpy() + 1

    def names(hour: int, row: int) -> tuple[str, str, int]:
        del hour
        k = int(owner[row])
        return "Transformer", grid.transformer["name"].iat[k], int((number[row] - 1) * per_winding[k])

    amps, power = flows(meters, measured, "winding", PHASES)
    engine_amps, engine_power = by_engine(grid, witness, "winding", names, PHASES)
    metered = ~np.isnan(amps).all(axis=(0, 2))  # secondaries of distribution transformers, winding 1 of others
    engine_amps[:, ~metered], engine_power[:, ~metered] = np.nan, np.nan
    kva = grid.winding["rated_kva"].to_numpy()
    kv = grid.bus["base_kv"].to_numpy()[grid.winding["bus1"]]
    assert close(amps, engine_amps, kva / kv)
    assert close(power, engine_power, kva)
    is_dt = grid.transformer["distribution"].to_numpy()[owner]
    low = grid.winding["rated_kv"].to_numpy() < 1.0
    assert np.array_equal(metered, np.where(is_dt, low, number == 1))


def _assert_customers(grid: Grid, witness: Witness, meters: Meters, measured: Measured) -> None:
    n = len(grid.consumer)
    power, volts = np.zeros((HOURS, n), np.complex128), np.zeros((HOURS, n))
    for row, (name, connection, phases) in enumerate(
        zip(grid.consumer["name"], grid.consumer["connection"], grid.consumer["n_phases"], strict=True)
    ):
        for hour in range(HOURS):
            _, s, v = witness.values(hour, "Load", name)
            power[hour, row] = s.sum()
            if connection == "wye":
                volts[hour, row] = np.abs(v[:phases] - v[-1]).mean()
            else:
                pairs = {1: [(0, 1)], 2: [(0, 1), (1, 2)], 3: [(0, 1), (1, 2), (2, 0)]}[phases]
                volts[hour, row] = np.mean([abs(v[a] - v[b]) for a, b in pairs])
    ours = shown(meters, measured, "consumer.active_power_kw") + 1j * shown(
        meters, measured, "consumer.reactive_power_kvar"
    )
    assert close(ours, power, np.maximum(np.abs(power).max(axis=0), 1e-3))
    assert close(shown(meters, measured, "consumer.voltage_v"), volts, 1e3 * grid.consumer["rated_kv"].to_numpy())
    _assert_demand(grid, witness, meters, measured)


def _assert_demand(grid: Grid, witness: Witness, meters: Meters, measured: Measured) -> None:
    """Demand of buses: customers on record by phase, those of a hidden bus on its own conductor."""
    demand = np.zeros((HOURS, len(grid.bus), OWN + 1), np.complex128)
    present = np.zeros((len(grid.bus), OWN + 1), bool)
    consumer = grid.consumer
    for name, bus, conductors in zip(consumer["name"], consumer["bus1"], consumer["conductors1"], strict=True):
        if "?" in conductors and not grid.bus["hidden"].iat[bus]:
            continue
        neutral = -1 if conductors.split(".")[-1] not in "0123?" else 0
        for hour in range(HOURS):
            i, _, v = witness.values(hour, "Load", name)
            reference = v[-1] if neutral else 0.0
            for k, slot in enumerate(slots(conductors)):
                if slot >= 0:
                    demand[hour, bus, slot] += 1e-3 * (v[k] - reference) * np.conj(i[k])
                    present[bus, slot] = True
    customers = meters.customers
    for share, part, entries, key in (
        (measured.share[0], demand.real, customers.active_demand, "bus.active_power_kw"),
        (measured.share[1], demand.imag, customers.reactive_demand, "bus.reactive_power_kvar"),
    ):
        ours = dense(meters, key, total(entries, share), OWN + 1)
        theirs = np.where(present, part, np.nan)
        assert close(ours, theirs, np.maximum(np.nanmax(np.abs(demand), axis=(0, 2)), 1e-3))


def _assert_heads(grid: Grid, witness: Witness, meters: Meters, measured: Measured) -> None:
    amps, power = flows(meters, measured, "substation", PHASES)
    engine_amps, engine_power = by_engine(
        grid, witness, "substation", lambda hour, row: ("Vsource", grid.substation["name"].iat[row], 0), PHASES
    )
    # What rounding of voltages makes in the stiffest source (dsuite: 16 MS), in the engine and here.
    stiff = [np.abs(np.linalg.inv(source_impedance(grid, row))).max() for row in range(len(grid.substation))]
    volts = np.array([np.abs(source_voltages(grid, row)).max() for row in range(len(grid.substation))])
    floor = 1e-15 * np.array(stiff) * volts / TOLERANCE
    assert close(amps, engine_amps, np.nanmax(engine_amps, axis=(0, 2)) + floor)
    assert close(power, -engine_power, np.nanmax(np.abs(engine_power), axis=(0, 2)) + floor * volts)  # sent, not taken


def _assert_buses(grid: Grid, day: Day, meters: Meters, measured: Measured) -> None:
    volts = dense(meters, "bus.voltage_v", shown(meters, measured, "bus.voltage_v"), OWN + 1)
    angle = dense(meters, "bus.angle_deg", shown(meters, measured, "bus.angle_deg"), PHASES)
    assert np.array_equal(shown(meters, measured, "winding.tap_pu"), day.tap_pu)
    for node, (bus, conductor) in enumerate(zip(grid.wiring.bus, grid.wiring.conductor, strict=True)):
        if conductor > PHASES:
            continue
        slot = OWN if conductor < 0 else int(conductor) - 1
        v = day.v[:, node]
        np.testing.assert_allclose(volts[:, bus, slot], np.abs(v), rtol=1e-12)
        if slot == OWN:
            assert np.isnan(angle[:, bus]).all()
            continue
        live = np.abs(v) >= grid.bus["base_kv"].iat[bus]  # a thousandth of the base
        off = np.exp(1j * np.deg2rad(angle[live, bus, slot])) - v[live] / np.abs(v[live])
        assert np.abs(off).max(initial=0.0) < 1e-12
        assert not np.any(angle[~live, bus, slot])


@pytest.mark.parametrize("policy", ["noisy_missing_sparse", "observability_ami_dense"])
@pytest.mark.parametrize("feeder", ["ieee34", "lv_fourwire", "us_suburb"])
def test_an_instrument_shows_the_same_whatever_else_is_metered(feeder: str, policy: str) -> None:
    network = bundled(feeder)
    every, some = (meters_of(network.published.grid, name) for name in ("clean", policy))
    for mix in (MOVED, FAULTED):
        day = day_of(network, mix)
        full, part = every.read(day), some.read(day)
        for key in SHOWN:
            order = np.argsort(every.places[key])
            at = order[np.searchsorted(every.places[key][order], some.places[key])]
            assert np.array_equal(every.places[key][at], some.places[key])
            assert np.array_equal(shown(every, full, key)[:, at], shown(some, part, key)), key


def test_taps_and_steps_moved_in_the_days_that_were_compared() -> None:
    taps = [np.any(np.diff(day_of(bundled(name), QUIET).tap_pu, axis=0)) for name in ("ieee13", "ieee34", "ieee123")]
    steps = [np.any(np.diff(day_of(bundled("us_suburb"), mix).capacitor_steps, axis=0)) for mix in (QUIET, MOVED)]
    assert any(taps) and any(steps)


def test_a_line_that_is_open_shows_no_current_at_all() -> None:
    network = bundled("ieee123")
    grid = network.published.grid
    meters, day = meters_of(grid, "clean"), day_of(network, MOVED)
    amps, power = flows(meters, meters.read(day), "line", OWN + 1)
    is_open = grid.switches[day.switch_open]
    assert len(is_open)
    assert not np.any(np.nan_to_num(amps[:, is_open])) and not np.any(np.nan_to_num(power[:, is_open]))


def test_a_dead_bus_shows_no_volts_and_no_angle() -> None:
    network = bundled("lv_town")
    grid, day = network.published.grid, day_of(network, DEAD)
    meters = meters_of(grid, "clean")
    measured = meters.read(day)
    volts = dense(meters, "bus.voltage_v", shown(meters, measured, "bus.voltage_v"), OWN + 1)
    angle = dense(meters, "bus.angle_deg", shown(meters, measured, "bus.angle_deg"), PHASES)
    dead = np.setdiff1d(np.arange(len(grid.bus)), grid.wiring.bus[day.energised])
    assert len(dead)
    assert np.nanmax(volts[:, dead]) < 1e-3 * 230.0
    assert not np.any(np.nan_to_num(angle[:, dead]))


def test_a_day_in_read_only_memory_is_measured_like_any_other() -> None:
    network = bundled("us_suburb")
    meters, day = meters_of(network.published.grid, "clean"), day_of(network, FAULTED)
    mapped = replace(day, **{name: _read_only(getattr(day, name)) for name in ARRAYS})
    one, other = meters.read(day), meters.read(mapped)
    assert np.array_equal(one.values, other.values) and np.array_equal(one.share, other.share)


def _read_only(values: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
    copy = values.copy()
    copy.flags.writeable = False
    return copy


def test_a_day_of_another_variant_is_refused() -> None:
    network = bundled("ieee13")
    with pytest.raises(ValueError, match="another network or variant"):
        meters_of(network.published.grid, "clean").read(day_of(bundled("lv_town"), QUIET))
