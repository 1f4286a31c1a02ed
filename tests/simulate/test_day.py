"""Days: currents balance with what a Day itself holds, and it holds what the engine found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest

from mycelium.errors import FeederError
from mycelium.feeders import FEEDERS
from mycelium.grid.admittance import Admittance
from mycelium.grid.check import ENGINE_CLASS, LIVE_PU, terminal_currents
from mycelium.grid.grid import Grid
from mycelium.schema import HOURS, ElementKind, FaultPlace, FaultType
from mycelium.simulate.circuit import Circuit
from mycelium.simulate.day import Day
from mycelium.simulate.fault import GROUNDED, N_PHASES
from mycelium.simulate.fixed_point_day import fault_admittance
from mycelium.simulate.network import Network, NetworkSource
from tests.simulate.bench import (
    ARRAYS,
    EVERYTHING,
    LAST,
    PUBLISHED,
    Complex,
    case_of,
    days,
    fault_at,
    fault_current,
    imbalance,
    imbalances,
    network,
    passive_feeder,
    per_unit,
    scene,
)

SEED = 7


# ---- balance -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("feeder", FEEDERS)
def test_currents_balance_at_every_node_and_hour_of_drawn_days(feeder: str) -> None:
    for grid, day in days(network(feeder), SEED, 3):
        assert imbalances(grid, day).max() < 1e-6, f"case {day.number}"


@pytest.mark.parametrize("place", list(FaultPlace))
@pytest.mark.parametrize("feeder", ["ieee13", "lv_town", "lv_fourwire", "us_suburb"])
def test_currents_balance_at_the_last_hour_of_every_kind_of_fault(feeder: str, place: FaultPlace) -> None:
    circuit = network(feeder).published
    for pick, kind in enumerate(FaultType):
        fault = fault_at(circuit, kind, place, pick + 2)
        assert fault is not None
        day = circuit.solve(case_of(circuit, fault))
        assert imbalance(circuit.grid, day, LAST) < 1e-6, f"{fault}"
        assert imbalance(circuit.grid, day, LAST - 1) < 1e-6, f"{fault}"


@pytest.mark.parametrize("feeder", ["ieee34", "lv_town", "lv_fourwire", "us_suburb"])
def test_the_sections_of_a_faulted_line_balance_with_the_fault_inside(feeder: str) -> None:
    circuit = network(feeder).published
    for pick, kind in enumerate(FaultType):
        fault = fault_at(circuit, kind, FaultPlace.LINE, 3 * pick + 1, resistance_ohm=0.1, x=0.7)
        assert fault is not None
        day = circuit.solve(case_of(circuit, fault))
        s = scene(circuit.grid, day, LAST)
        line, last = s.admittance.layout, len(s.grid.line) - 1
        current = s.admittance.currents(s.v)
        first, second = (line.rows_of(ElementKind.LINE, row) for row in (fault.element, last))
        n = len(first) // 2
        node = s.admittance.node[first[n:]]
        assert np.array_equal(node, s.admittance.node[second[:n]])  # both meet at the inside, in the same order
        into_fault = fault_admittance(s.grid, s.bus, fault) @ s.v
        balance = current[first[n:]] + current[second[:n]] + into_fault[node]
        assert np.abs(balance).max() < 1e-6 * np.abs(into_fault).max(), f"{fault}"
        assert np.abs(into_fault).max() > 1.0


@pytest.mark.parametrize("feeder", FEEDERS)
def test_the_currents_of_sources_balance_with_all_others(feeder: str) -> None:
    # At a source's own nodes its Norton current dwarfs what it really sends: there this is the sharper balance.
    for grid, day in days(network(feeder), SEED, 2):
        source = grid.wiring.nodes_of("substation", day.group_phase)
        for hour in (0, 12, LAST - 1):
            s = scene(grid, day, hour)
            rows = s.admittance.layout.first_row[ElementKind.SUBSTATION]
            inside = np.arange(s.admittance.layout.n_rows) < rows[0]
            branch = s.admittance.currents(s.v)
            total = np.zeros(len(s.v), dtype=np.complex128)
            kept = inside & (s.admittance.node >= 0)
            np.add.at(total, s.admittance.node[kept], branch[kept])
            for node, current in [*s.injections, (source, day.source_current[hour])]:
                np.add.at(total, node[node >= 0], current[node >= 0])
            at_source = np.unique(source[source >= 0])
            # What rounding of voltages makes in the stiffest source (IEEE feeders: 1e-4 ohm).
            admittance = s.admittance.sources.admittance
            floor = 1e-12 * np.abs(admittance).max() * np.abs(s.v[at_source]).max()
            sent = np.abs(day.source_current[hour]).max()
            assert np.abs(total[at_source]).max() < 1e-6 * max(sent, 1.0) + floor, f"case {day.number}, hour {hour}"


# ---- against the engine ------------------------------------------------------------------------------------------


@dataclass
class Witness:
    """Reads the engine after each hour, element by element, before a fault is taken away again.

    Attributes:
        currents: Terminal currents of every class at every hour.
        halves: Currents into both ends of a faulted line at the last hour.
        taps, steps: Of every hour, through the classic interface.
    """

    circuit: Circuit
    day_fault_line: int = -1
    currents: list[dict[str, Complex]] = field(default_factory=list)
    halves: Complex = field(default_factory=lambda: np.zeros(0, np.complex128))
    taps: list[list[float]] = field(default_factory=list)
    steps: list[list[int]] = field(default_factory=list)

    def wrap(self, solve_hour: Callable[[int], object]) -> Callable[[int], object]:
        def spy(hour: int) -> object:
            result = solve_hour(hour)
            self.read(hour)
            return result

        return spy

    def read(self, hour: int) -> None:
        engine, grid = self.circuit.engine, self.circuit.grid
        found = {}
        for kind, name in ENGINE_CLASS.items():
            found[name] = terminal_currents(engine, name, grid.tables[kind.value]["name"].tolist())
        self.currents.append(found)
        active = engine.dss.ActiveCircuit
        if hour == LAST and self.day_fault_line >= 0:
            n = int(grid.line["n_conductors"].iat[self.day_fault_line])
            names = [f"mycelium_fault_{n}a", f"mycelium_fault_{n}b"]
            a, b = terminal_currents(engine, "Line", names).reshape(2, 2 * n)
            self.halves = np.concatenate([a[:n], b[n:]])
        winding = grid.winding.iloc[grid.regulated]
        names = grid.transformer["name"].to_numpy()[winding["transformer"].to_numpy()]
        taps = []
        for name, number in zip(names, winding["number"], strict=True):
            active.Transformers.Name = name
            active.Transformers.Wdg = int(number)
            taps.append(float(active.Transformers.Tap))
        self.taps.append(taps)
        steps = []
        for name in grid.capacitor["name"]:
            active.Capacitors.Name = name
            steps.append(int(np.sum(np.array(active.Capacitors.States) > 0)))
        self.steps.append(steps)


def _watched(circuit: Circuit, solve: Callable[[], Day], fault_line: int, monkeypatch: pytest.MonkeyPatch) -> Witness:
    witness = Witness(circuit, fault_line)
    with monkeypatch.context() as patch:
        patch.setattr(circuit, "_solve_hour", witness.wrap(circuit._solve_hour))
        witness.day = solve()  # type: ignore[attr-defined]
    return witness


@pytest.mark.parametrize("feeder", FEEDERS)
def test_a_day_of_the_engine_holds_what_the_engine_found(feeder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    source = network(feeder, PUBLISHED)
    circuit = source.published
    line_fault = fault_at(circuit, FaultType.LG, FaultPlace.LINE, 5)
    assert line_fault is not None
    case = source.draw(SEED, 1)
    for chosen, row in ((case_of(circuit, line_fault), line_fault.element), (case, -1)):
        if chosen is case and case.fault is not None and case.fault.place is FaultPlace.LINE:
            row = case.fault.element
        circuit.demand.set(chosen.profile)
        seen = _watched(circuit, lambda chosen=chosen: circuit.solve_by_engine(chosen), row, monkeypatch)
        _assert_engine_agrees(circuit.grid, seen.day, seen)  # type: ignore[attr-defined]


def _assert_engine_agrees(grid: Grid, day: Day, seen: Witness) -> None:
    ours = day.branch_currents(grid)
    layout = Admittance.of(grid, day.configuration(0)).layout
    for hour in range(HOURS):
        for kind, name in ENGINE_CLASS.items():
            theirs = seen.currents[hour][name]
            rows = slice(layout.first_row[kind][0], layout.first_row[kind][-1])
            mine = day.source_current[hour] if kind is ElementKind.SUBSTATION else ours[hour, rows].copy()
            if kind is ElementKind.LINE and hour == LAST and seen.day_fault_line >= 0:
                at = layout.rows_of(kind, seen.day_fault_line) - rows.start
                assert np.abs(mine[at] - seen.halves).max() < 1e-6 * max(1.0, float(np.abs(seen.halves).max()))
                theirs = theirs.copy()
                mine[at], theirs[at] = 0.0, 0.0  # the whole line is out of service while its sections stand in
            if not len(theirs):
                continue
            # Stiff elements (switches, sources) turn the last digits of voltages into currents.
            scale = max(1.0, float(np.abs(theirs).max()))
            assert np.abs(mine - theirs).max() < 1e-5 * scale, f"case {day.number}, hour {hour}: {name}"
    assert np.array_equal(day.tap_pu, np.array(seen.taps).reshape(HOURS, -1))
    assert np.array_equal(day.capacitor_steps, np.array(seen.steps).reshape(HOURS, -1))


def test_regulators_and_capacitors_do_move_within_a_day_and_stay_put_at_the_last_hour() -> None:
    moved_taps = moved_steps = 0
    for grid, day in days(network("us_suburb"), SEED, 6):
        assert day.tap_pu.shape == (HOURS, len(grid.regulated))
        moved_taps += int(np.any(np.diff(day.tap_pu, axis=0)))
        moved_steps += int(np.any(np.diff(day.capacitor_steps, axis=0)))
        # With or without a fault: a tap that stands still says nothing about one.
        assert np.array_equal(day.tap_pu[LAST], day.tap_pu[LAST - 1])
        assert np.array_equal(day.capacitor_steps[LAST], day.capacitor_steps[LAST - 1])
        low, high = (grid.winding[name].to_numpy()[grid.regulated] for name in ("min_tap_pu", "max_tap_pu"))
        assert np.all((day.tap_pu >= low - 1e-9) & (day.tap_pu <= high + 1e-9))
    assert moved_taps and moved_steps


# ---- switches and supply -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("feeder", ["ieee123", "lv_town", "us_suburb"])
def test_an_open_switch_carries_nothing_at_all(feeder: str) -> None:
    some_open = 0
    for grid, day in days(network(feeder), SEED, 4):
        currents = day.branch_currents(grid)
        layout = Admittance.of(grid, day.configuration(0)).layout
        for row, is_open in zip(grid.switches, day.switch_open, strict=True):
            if is_open:
                assert not np.any(currents[:, layout.rows_of(ElementKind.LINE, int(row))])
                some_open += 1
    assert some_open


@pytest.mark.parametrize("feeder", FEEDERS)
def test_what_is_energised_has_voltage_and_what_is_not_has_none(feeder: str) -> None:
    some_dead = 0
    source = network(feeder, replace(EVERYTHING, variant=0.1, keep_supply=0.2, lose_supply=0.6))
    for grid, day in days(source, SEED, 5):
        pu = np.abs(per_unit(grid, day.v))
        phase = grid.wiring.conductor <= 3  # a neutral is near earth whether energised or not
        assert pu[:, ~day.energised].max(initial=0.0) < LIVE_PU, f"case {day.number}: a dead node has voltage"
        sound = pu[: HOURS if day.fault is None else LAST, day.energised & phase]
        assert sound.min() > LIVE_PU, f"case {day.number}: a live node has none"
        assert np.array_equal(
            source.circuit(day.variant).space.connectivity.energised(day.configuration(0)), day.energised
        )
        some_dead += int(not day.energised.all())
    assert some_dead or not len(source.published.grid.switches)


# ---- the record --------------------------------------------------------------------------------------------------


def test_a_day_is_saved_and_loaded_exactly(tmp_path: Path) -> None:
    source = network("lv_town")
    faults = set()
    for k, (_, day) in enumerate(days(source, SEED, 6)):
        path = tmp_path / f"{k}.npz"
        day.save(path)
        again = Day.load(path)
        for name in ARRAYS:
            a, b = getattr(day, name), getattr(again, name)
            assert a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes(), name
        for name in ("fault", "network", "seed", "number", "variant", "day_of_year", "solver"):
            assert getattr(day, name) == getattr(again, name)
        faults.add(None if day.fault is None else day.fault.place)
        once_more = tmp_path / "again.npz"
        again.save(once_more)
        assert once_more.read_bytes() == path.read_bytes()
    assert len(faults) > 1
    assert sorted(p.suffix for p in tmp_path.iterdir()) == [".npz"] * 7  # no part is left behind


def test_what_is_no_day_is_refused_by_name(tmp_path: Path) -> None:
    grid = tmp_path / "grid.npz"
    network("ieee13").published.grid.save(grid)
    broken = tmp_path / "broken.npz"
    broken.write_bytes(b"PK\x03\x04 not a day")
    for path in (grid, broken, tmp_path / "missing.npz"):
        with pytest.raises(FeederError, match=path.name):
            Day.load(path)


def test_only_a_line_fault_has_an_inside() -> None:
    circuit = network("ieee13").published
    for place in FaultPlace:
        fault = fault_at(circuit, FaultType.LL, place, 1)
        day = circuit.solve(case_of(circuit, fault))
        if place is FaultPlace.LINE:
            assert fault is not None
            assert len(day.v_interior) == circuit.grid.line["n_conductors"].iat[fault.element]
            cut, v = day.split(circuit.grid)
            assert len(cut.bus) == len(circuit.grid.bus) + 1 and len(v) == cut.wiring.n_nodes
        else:
            assert not len(day.v_interior)
            with pytest.raises(ValueError, match="only a line fault"):
                day.split(circuit.grid)


@pytest.mark.parametrize("kind", list(FaultType))
def test_only_faulted_conductors_lose_current(kind: FaultType, tmp_path: Path) -> None:
    circuit = Network(NetworkSource(passive_feeder("lv_town", tmp_path)), EVERYTHING).published
    for place in FaultPlace:
        fault = fault_at(circuit, kind, place, 1, resistance_ohm=0.02)
        assert fault is not None
        day = circuit.solve(case_of(circuit, fault))
        current = {conductor: abs(value) for conductor, value in fault_current(circuit.grid, day).items()}
        assert len(fault.conductors) == N_PHASES[kind]
        others = (value for conductor, value in current.items() if conductor not in fault.conductors)
        least = min(current[conductor] for conductor in fault.conductors)
        assert least > 50.0 and max(others, default=0.0) < 1e-5 * least, f"{place}: {current}"
        total = sum(fault_current(circuit.grid, day)[conductor] for conductor in fault.conductors)
        if kind not in GROUNDED:
            assert abs(total) < 1e-5 * least  # what goes in at one phase comes out at another
