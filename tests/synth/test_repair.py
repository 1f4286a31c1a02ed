"""Every row of the repair table: what triggers it, what it changes, how often at most, and what it leaves alone."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from mycelium.synth import repair as schedule
from mycelium.synth import repair_actions as act
from mycelium.synth.design import Capacitor, InverterMode, Line, Pv, Unit, UnitRole
from mycelium.synth.diagnosis import HIGH_PU, LOW_PU, Diagnosis
from mycelium.synth.equipment import sound
from mycelium.synth.library import Library
from mycelium.synth.model import Model, Solver, State
from mycelium.synth.repair import Repairs
from tests.synth.bench import AMERICA, EUROPE, model_of, proposal

LOW_ORDER = ("rebalance", "tap up", "add", "reinforce", "larger transformer")


def repaired(
    model: Model, options: act.Options, thermal: bool = False, with_day: bool = False
) -> tuple[Repairs, Counter[tuple[str, str]]]:
    repairs = Repairs(model, options, thermal)
    repairs.snapshots()
    if with_day:
        repairs.day()
    return repairs, Counter((record["trigger"], record["operation"]) for record in repairs.history)


def low_model(number: int = 0, demand: float = 4.0) -> tuple[Model, act.Options]:
    _, found = proposal(EUROPE, 250, number)
    return model_of(found, demand), found.options


def high_model(above_pu: float = 0.01) -> tuple[Model, act.Options]:
    """Photovoltaics on every third roof or so, made larger until snapshot B is this far beyond the limit."""
    number = next(k for k in range(20) if len(proposal(EUROPE, 200, k, pv=1.0)[1].design.pvs) > 25)
    for pv_kw in (10.0, 15.0, 22.0, 33.0, 50.0, 75.0):
        _, found = proposal(EUROPE, 200, number, pv=1.0)
        model = model_of(found, pv_kw=pv_kw)
        if Diagnosis.of(model, with_day=False).worst_high_pu > HIGH_PU + above_pu:
            return model, found.options
    raise AssertionError("no amount of sun makes this network's voltage high")


def test_nothing_is_done_to_a_healthy_network() -> None:
    _, found = proposal(AMERICA, 60)
    model = model_of(found, demand=0.05)
    before = dict(model.design.lines), dict(model.design.units)
    repairs, _ = repaired(model, found.options, thermal=True)
    assert not repairs.history and (model.design.lines, model.design.units) == before


def test_low_voltage_is_repaired_in_ordered_passes_within_their_limits() -> None:
    model, options = low_model()
    repairs, done = repaired(model, options)
    low = [record["operation"] for record in repairs.history if record["trigger"] == "low snapshot voltage"]
    assert low, "the network was meant to be too weak"
    places = [next(k for k, word in enumerate(LOW_ORDER) if op.startswith(word)) for op in low]
    last_tap = places[-1] == 1  # one more step of the taps at the end, when the rest is done
    ordered = places[:-1] if last_tap else places
    assert ordered == sorted(ordered)
    assert done["low snapshot voltage", "reinforce"] <= 4
    assert done["low snapshot voltage", "larger transformer"] <= 2
    first, last = repairs.history[0]["before"], repairs.history[-1]["after"]
    assert last["lowest_pu"] > first["lowest_pu"]


def test_a_hopeless_network_stops_at_the_limits() -> None:
    model, options = low_model(demand=14.0)
    repairs, done = repaired(model, options)
    if not repairs.found.converged:
        pytest.skip("does not solve at all")
    assert done["low snapshot voltage", "reinforce"] == 4
    assert repairs.found.worst_low_pu < LOW_PU


def test_snapshots_are_repaired_beyond_the_limits() -> None:
    """A network between the limit and the headroom is repaired too."""
    assert schedule.SNAPSHOT_LOW_PU > LOW_PU and schedule.SNAPSHOT_HIGH_PU < HIGH_PU and schedule.SNAPSHOT_LOADING < 1
    model, options = low_model(demand=0.2)
    for demand in np.linspace(0.5, 6, 60):
        _, found = proposal(EUROPE, 250, 0)
        model = model_of(found, float(demand))
        lowest = Diagnosis.of(model, with_day=False).worst_low_pu
        if lowest < schedule.SNAPSHOT_LOW_PU:
            break
    assert LOW_PU <= lowest < schedule.SNAPSHOT_LOW_PU
    repairs, _ = repaired(model, options)
    assert repairs.history and repairs.found.worst_low_pu >= schedule.SNAPSHOT_LOW_PU


def test_high_voltage_is_repaired_by_inverters_taps_lines_and_curtailment() -> None:
    model, options = high_model()
    repairs, _ = repaired(model, options)
    rounds = [r for r in repairs.history if r["trigger"] == "high snapshot voltage"]
    assert 1 <= len(rounds) <= 5
    assert {r["operation"] for r in rounds} <= {"volt-var control", "tap down", "reinforce", "curtail"}
    assert rounds[-1]["after"]["highest_pu"] < rounds[0]["before"]["highest_pu"]
    limits = {pv.limit_pct for pv in model.design.pvs.values()}
    assert limits <= {round(100 * 0.8**k, 4) for k in range(6)}


def test_curtailing_takes_a_fifth() -> None:
    model, _ = high_model()
    pvs = list(model.design.pvs.values())
    edits = act.curtail(model.design, [pvs[0].bus])
    assert {pv.name for pv in edits} >= {pvs[0].name}
    assert all(isinstance(pv, Pv) and pv.limit_pct == 80.0 for pv in edits)
    before = Diagnosis.of(model, with_day=False)
    model.edit(act.curtail(model.design, [model.design.source.bus]))
    b = model.snapshot_b()
    powers = -sum(complex(p).real for pv in model._engine.alt.PVSystem for p in pv.Powers())
    assert powers == pytest.approx(0.8 * sum(pv.kw for pv in model.design.pvs.values()), rel=0.02)
    assert b.v_pu.max() < before.worst_high_pu


@pytest.mark.parametrize("region", [AMERICA, EUROPE])
def test_volt_var_lowers_a_high_voltage(region: object) -> None:
    """Behind centre taps as well, where an inverter on one phase would see half its voltage."""
    _, found = proposal(region, 120, 1, pv=1.0)  # type: ignore[arg-type]
    model = model_of(found, demand=0.2, pv_kw=15.0)
    design = model.design
    model.edit([replace(pv, mode=InverterMode.UNITY) for pv in design.pvs.values()])
    without = model.snapshot_b()
    model.edit(act.volt_var(design, [design.source.bus]))
    assert all(pv.mode is InverterMode.VOLT_VAR for pv in design.pvs.values())
    with_control = model.snapshot_b()
    assert without.v_pu.max() > 1.03
    assert with_control.converged and with_control.v_pu.max() < without.v_pu.max() - 1e-3


def test_taps_go_back_only_where_low_voltage_permits() -> None:
    model, _ = high_model()
    found = Diagnosis.of(model, with_day=False)
    high = act.high_buses(found, HIGH_PU)
    moved = act.tap_down(model.design, found, high, found.worst_low_pu - 0.05)
    assert moved and all(unit.tap > model.design.units[unit.name].tap for unit in moved if isinstance(unit, Unit))
    assert not act.tap_down(model.design, found, high, found.worst_low_pu)  # no room at all
    assert not act.tap_up(model.design, found, high, found.worst_low_pu)


def test_overloads_are_repaired_only_when_ratings_are_enforced() -> None:
    for thermal in (False, True):
        _, found = proposal(AMERICA, 150, 2)
        model = model_of(found, demand=4.0)
        assert Diagnosis.of(model, with_day=False).worst_loading > 1
        _, done = repaired(model, found.options, thermal)
        count = sum(n for (trigger, _), n in done.items() if trigger == "snapshot overload")
        assert count == 0 if not thermal else 1 <= count <= 3
        if thermal:
            assert Diagnosis.of(model, with_day=False).worst_loading <= 1


def test_relief_by_kind() -> None:
    _, found = proposal(AMERICA, 150, 2)
    design = found.design
    line, service = next(iter(design.lines)), list(design.lines)[-1]
    units = {unit.role: unit for unit in design.units.values()}
    switch = next(iter(design.switches))
    loading = {line: 1.5, service: 0.5, switch: 1.2, **{unit.name: 1.3 for unit in units.values()}}
    bad = replace(Diagnosis(_ok(), _ok()), loading=loading)
    edits = {element.name: element for element in act.relieve(design, bad, 1.0, found.options.stock)}
    assert service not in edits
    assert edits[line].parallel == 2  # type: ignore[union-attr]
    assert edits[switch].rated_a >= 1.2 * design.switches[switch].rated_a  # type: ignore[union-attr]
    for role, unit in units.items():
        if role is UnitRole.SUBSTATION:
            assert f"substation_{sum(u.role is role for u in design.units.values()) + 1}" in edits
        else:
            assert edits[unit.name].kva >= 1.3 * unit.kva  # type: ignore[union-attr]


def _ok() -> State:
    return State(True, np.ones(1), np.ones(1))


def test_a_regulator_is_put_into_the_way() -> None:
    _, found = proposal(AMERICA, 400, 2)
    model = model_of(found)
    options = replace(found.options, regulator=sound(Library.builtin().regulators[0]))
    repairs = Repairs(model, options, False)
    design = model.design
    below = dict.fromkeys(design.buses, 0.97)
    repairs.found = replace(repairs.found, lowest_pu=below)
    edits = repairs._new_regulator(0.98)
    assert len(edits) == 2
    bank, line = edits
    assert isinstance(line, Line) and line.bus1 == bank.bus2  # type: ignore[union-attr]
    model.edit(edits)
    a = model.snapshot_a()
    assert a.converged
    behind = [v for bus, v in zip(model.node_bus, a.v_pu, strict=True) if bus == bank.bus2]  # type: ignore[union-attr]
    assert np.mean(behind) == pytest.approx(bank.target_pu, abs=bank.setting.band_pu)  # type: ignore[union-attr]


def test_capacitors_are_added_only_where_the_convention_has_them() -> None:
    model, options = low_model()
    found = Diagnosis.of(model, with_day=False)
    assert not act.add_capacitor(model.design, found, replace(options, capacitor=False), 2.0)
    edits = act.add_capacitor(model.design, found, replace(options, capacitor=True), 2.0)
    assert len(edits) == 1 and isinstance(edits[0], Capacitor)
    before = model.snapshot_a().v_pu.mean()
    model.edit(edits)
    assert model.snapshot_a().v_pu.mean() > before


def test_rebalancing_moves_a_customer_with_its_service_and_roof() -> None:
    _, found = proposal(EUROPE, 200, 1, pv=1.0)
    design = found.design
    one_phase = [load for load in design.loads.values() if len(load.conductors) == 1]
    for load in one_phase:  # everybody on phase A
        design.loads[load.name] = replace(load, conductors=(1,))
        for line in list(design.lines.values()):
            if line.bus2 == load.bus:
                design.lines[line.name] = replace(line, conductors=(1,))
        for pv in list(design.pvs.values()):
            if pv.bus == load.bus:
                design.pvs[pv.name] = replace(pv, conductors=(1,))
    model = model_of(found)
    model.edit(act.rebalance_customers(design, list(design.buses)))
    by_bus = {line.bus2: line.conductors for line in design.lines.values()}
    assert all(by_bus[load.bus] == load.conductors for load in design.loads.values())
    assert all(by_bus[pv.bus] == pv.conductors for pv in design.pvs.values())
    for area in {load.area for load in one_phase}:
        members = [design.loads[x.name] for x in one_phase if x.area == area]
        sums = [sum(x.kw for x in members if x.conductors == (c,)) for c in (1, 2, 3)]
        assert max(sums) - min(sums) <= max(x.kw for x in members) + 1e-6
    assert model.snapshot_a().converged


def test_the_day_is_repaired_within_its_limits_and_profiles_stay() -> None:
    model, options = high_model(0.02)
    shapes = model.inputs.shapes.p.copy(), model.inputs.shapes.pv.copy()
    share = model.inputs.demand_lambda
    repairs = Repairs(model, options, False)
    repairs.day()  # as if the snapshots had seen nothing
    done = Counter(record["trigger"] for record in repairs.history)
    assert done["low voltage in the day"] <= 2 and done["high voltage in the day"] <= 8
    assert done["high voltage in the day"] >= 1
    assert all(record["stage"] == "day" for record in repairs.history)
    assert len(repairs.found.day) == 24  # snapshots and the whole day are solved again after each
    assert np.array_equal(model.inputs.shapes.p, shapes[0]) and np.array_equal(model.inputs.shapes.pv, shapes[1])
    assert model.inputs.demand_lambda == share


def test_edits_are_what_a_fresh_compile_of_the_text_gives() -> None:
    """Editing in the engine and writing the files are the same thing."""
    model, options = low_model()
    repairs, _ = repaired(model, options, thermal=True)
    assert repairs.history
    edited = model.snapshot_a()
    names = list(model.node_bus)
    fresh = Model(Solver(), model.design, model.inputs)
    again = fresh.snapshot_a()
    order = {(bus, int(c)): v for bus, c, v in zip(fresh.node_bus, fresh.node_conductor, again.v_pu, strict=True)}
    for bus, conductor, v in zip(names, model.node_conductor, edited.v_pu, strict=True):
        assert order[bus, int(conductor)] == pytest.approx(v, abs=1e-6)


def test_a_repair_without_solution_is_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the engine cannot solve is undone, written down as such, and not tried again."""
    model, options = high_model()
    repairs = Repairs(model, options, False)
    design = model.design
    model.edit([replace(pv, mode=InverterMode.UNITY) for pv in design.pvs.values()])
    before, b = dict(design.pvs), model.snapshot_b()
    dead = State(False, np.zeros(0), np.zeros(0))
    monkeypatch.setattr(Repairs, "solve", lambda self: setattr(self, "found", Diagnosis(dead, dead)))
    edits = act.volt_var(design, list(design.buses))
    assert edits and repairs._apply("high snapshot voltage", "volt-var control", 1, edits)
    assert repairs.history[-1]["undone"] and not repairs.history[-1]["after"]["converged"]
    assert design.pvs == before and repairs.found.converged
    assert repairs._first([("volt-var control", lambda: act.volt_var(design, list(design.buses)))]) == ("nothing", [])
    # Inverters that go into a control and out of it again leave nothing behind.
    model.edit([replace(pv, mode=InverterMode.VOLT_VAR) for pv in design.pvs.values()])
    model.snapshot_b()
    model.edit(list(before.values()))
    assert model.snapshot_b().v_pu == pytest.approx(b.v_pu, abs=1e-3)


def test_an_inverter_under_control_can_change_its_phase() -> None:
    """Its control is told: else it goes on with nodes that are no longer there."""
    number = next(k for k in range(20) if len(proposal(EUROPE, 200, k, pv=1.0)[1].design.pvs) > 25)
    _, found = proposal(EUROPE, 200, number, pv=1.0)
    model = model_of(found)
    design = model.design
    model.edit([replace(pv, mode=InverterMode.VOLT_VAR) for pv in design.pvs.values()])
    model.snapshot_b()
    services = {line.bus2: line for line in design.lines.values()}
    loads = {load.bus: load for load in design.loads.values()}
    moved = [pv for pv in design.pvs.values() if len(pv.conductors) == 1]
    turn = {1: (2,), 2: (3,), 3: (1,)}
    for group in (moved, [loads[pv.bus] for pv in moved], [services[pv.bus] for pv in moved]):
        model.edit([replace(element, conductors=turn[element.conductors[0]]) for element in group])
    edited = model.snapshot_b()
    fresh = Model(Solver(), design, model.inputs).snapshot_b()
    assert len(edited.v_pu) == len(fresh.v_pu)
    assert np.sort(edited.v_pu) == pytest.approx(np.sort(fresh.v_pu), abs=2e-3)
