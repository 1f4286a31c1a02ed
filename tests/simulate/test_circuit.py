"""Days of a compiled circuit: what came before cannot matter, and two solvers and two ways to write a model agree."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from mycelium.feeders import FEEDERS, feeder_path
from mycelium.grid.grid import Configuration, Grid
from mycelium.grid.read_opendss import read_opendss
from mycelium.schema import HIDDEN_MARK, MATRICES, TABLES, FaultPlace, FaultType
from mycelium.simulate.cases import CaseMix
from mycelium.simulate.circuit import Circuit, Rejection
from mycelium.simulate.day import Day
from mycelium.simulate.network import Network, NetworkSource
from tests.simulate.bench import (
    EVERYTHING,
    PUBLISHED,
    as_bytes,
    case_of,
    fault_at,
    outcome,
    passive_feeder,
    per_unit,
    two_bus,
)

SEED = 20


# ---- order -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("feeder", ["ieee34", "ieee123", "lv_town", "us_suburb"])
def test_a_case_is_the_same_after_any_others_and_alone(feeder: str) -> None:
    # Regulators, ganged and single; capacitor and volt-var controls, storage; services and switches; record variants.
    source = NetworkSource(feeder_path(feeder))
    numbers = range(8)
    one = Network(source, EVERYTHING)
    in_order = [outcome(one, SEED, number) for number in numbers]
    shuffled = np.random.default_rng(1).permutation(8)
    again = {int(number): outcome(one, SEED, int(number)) for number in shuffled}
    assert sum(not result.startswith(b"rejected") for result in in_order) >= 5
    for number in numbers:
        assert again[number] == in_order[number], f"case {number} depends on the cases before it"
        assert outcome(Network(source, EVERYTHING), SEED, number) == in_order[number], f"case {number} alone"


@pytest.mark.parametrize("feeder", ["lv_town", "ieee13"])
def test_the_engine_gives_the_same_day_after_any_others_where_the_fixed_point_is_the_default(
    feeder: str, tmp_path: Path
) -> None:
    source = NetworkSource(passive_feeder(feeder, tmp_path))
    one = Network(source, PUBLISHED)
    assert one.published.fixed_point is not None, one.published.engine_because
    default = {number: outcome(one, SEED, number) for number in range(8)}
    in_order = {number: _by_engine(one, number) for number in range(8)}
    for number in (5, 2, 7, 0, 3, 6, 1, 4):
        assert _by_engine(one, number) == in_order[number]
        assert outcome(one, SEED, number) == default[number]  # the engine's work in between leaves no trace
    for number in (0, 5):
        alone = Network(source, PUBLISHED)
        assert _by_engine(alone, number) == in_order[number]
        assert outcome(Network(source, PUBLISHED), SEED, number) == default[number]


def _by_engine(source: Network, number: int) -> bytes:
    case = source.draw(SEED, number)
    circuit = source.circuit(case.variant)
    circuit.demand.set(case.profile)
    try:
        return as_bytes(circuit.solve_by_engine(case))
    except Rejection as reason:
        return str(reason).encode()


def test_a_day_that_cannot_be_solved_leaves_no_trace(tmp_path: Path) -> None:
    circuit = Circuit.open(two_bus(tmp_path, kw=600.0))
    fault = fault_at(circuit, FaultType.LLG, FaultPlace.LINE, resistance_ohm=20.0)
    case = case_of(circuit, fault)
    for solve in (circuit.solve, circuit.solve_by_engine):
        before = as_bytes(solve(case))
        with pytest.raises(Rejection, match="hour 0: the power flow did not converge"):
            circuit.solve(case_of(circuit, fault, scale=30.0))
        circuit.demand.set(case.profile)
        assert as_bytes(solve(case)) == before


# ---- two solvers -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("feeder", FEEDERS)
def test_the_fixed_point_agrees_with_the_engine_on_every_kind_of_fault(feeder: str, tmp_path: Path) -> None:
    # As shipped, each of these feeders has a regulator or a generator; without them the fixed point serves them all.
    circuit = Circuit.open(passive_feeder(feeder, tmp_path))
    assert circuit.fixed_point is not None, circuit.engine_because
    seen = 0
    for k, (kind, place) in enumerate((kind, place) for kind in FaultType for place in FaultPlace):
        fault = fault_at(circuit, kind, place, pick=k + 1, resistance_ohm=0.02 * 3.0 ** (k % 5), x=0.2 + 0.04 * k)
        if fault is None:
            continue
        seen += 1
        case = case_of(circuit, fault, scale=0.3 + 0.05 * k)
        ours = circuit.solve(case)
        assert ours.solver == "fixed point", f"{fault}: the fixed point did not converge"
        _assert_same_solution(circuit.grid, ours, circuit.solve_by_engine(case), f"{fault}")
    assert seen == 15


@pytest.mark.parametrize("feeder", ["lv_town", "lv_fourwire", "ieee123"])
def test_the_fixed_point_agrees_with_the_engine_on_drawn_cases(feeder: str, tmp_path: Path) -> None:
    source = Network(NetworkSource(passive_feeder(feeder, tmp_path)), PUBLISHED)
    agreed = 0
    for number in range(8):
        case = source.draw(SEED, number)
        circuit = source.circuit(case.variant)
        ours = circuit.solve(case)
        if ours.solver == "fixed point":
            _assert_same_solution(circuit.grid, ours, circuit.solve_by_engine(case), f"case {number}")
            agreed += 1
    assert agreed >= 6


def _assert_same_solution(grid: Grid, ours: Day, theirs: Day, what: str) -> None:
    assert np.abs(per_unit(grid, ours.v - theirs.v)).max() < 1e-6, what
    if len(ours.v_interior):
        assert ours.fault is not None
        base = 1e3 * grid.bus["base_kv"].iat[int(grid.line["bus1"].iat[ours.fault.element])]
        assert np.abs(ours.v_interior - theirs.v_interior).max() < 1e-6 * base, what
    for name in ("consumer_current", "source_current"):
        a, b = getattr(ours, name), getattr(theirs, name)
        assert np.abs(a - b).max() < 1e-6 * max(1.0, float(np.abs(b).max())), f"{what}: {name}"


# ---- two ways to write a model -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("feeder", "number"), [("lv_town", 0), ("lv_town", 1), ("lv_fourwire", 0), ("ieee13", 0)])
def test_an_edited_circuit_equals_a_freshly_written_and_compiled_one(feeder: str, number: int, tmp_path: Path) -> None:
    mix = CaseMix(variant=0.0, phase_change=1.0, keep_supply=1.0, lose_supply=0.0, fault=0.0)
    source = Network(NetworkSource(feeder_path(feeder)), mix)
    circuit = source.published
    drawn = (source.draw(SEED, k) for k in range(100))
    case = next(islice((case for case in drawn if case.phases_changed), number, None))
    changed = np.flatnonzero(case.configuration.group_phase != circuit.recorded.group_phase)
    if len(circuit.grid.switches) > 1:
        assert np.any(case.configuration.switch_open != circuit.recorded.switch_open)
    master = _write_anew(circuit, case.configuration, changed, feeder_path(feeder).parent, tmp_path / "fresh")

    grid, configuration, _ = read_opendss(master)
    _assert_same_grid(grid, circuit.grid)
    _assert_same_configuration(configuration, case.configuration)

    fresh = Circuit.open(master)
    day = fresh.solve(replace(case, configuration=fresh.recorded))
    expected = circuit.solve(case)
    assert np.abs(per_unit(grid, day.v - expected.v)).max() < 1e-7
    assert np.array_equal(day.tap_pu, expected.tap_pu)
    moved = np.abs(per_unit(grid, expected.v - circuit.solve(replace(case, configuration=circuit.recorded)).v)).max()
    assert moved > 1e-4  # the change does show in voltages


def _write_anew(
    circuit: Circuit, configuration: Configuration, changed: np.ndarray, published: Path, folder: Path
) -> Path:
    """A copy of a feeder's files with other phases at changed services, and other positions."""
    shutil.copytree(published, folder)
    new_phase = _renumbered(circuit, configuration, changed)
    switches = set(circuit.grid.line["name"].iloc[circuit.grid.switches])
    for path in folder.glob("*.dss"):
        lines = []
        for line in path.read_text().splitlines():
            named = re.match(r"\s*(new|open)\s+([\w.]+)", line, re.IGNORECASE)
            verb, element = (part.lower() for part in named.groups()) if named else ("", "")
            if verb == "open":
                continue
            if element.removeprefix("line.") in switches:
                line = re.sub(r"\s+enabled=no", "", line)
            if element in new_phase:
                old, new = new_phase[element]
                line = re.sub(rf"(\bbus[12]=[\w-]+)\.{old}\b", rf"\g<1>.{new}", line)
            lines.append(line)
        path.write_text("\n".join(lines) + "\n")
    names = circuit.grid.line["name"].to_numpy()[circuit.grid.switches[configuration.switch_open]]
    with (folder / "Master.dss").open("a") as file:
        file.writelines(f"Open Line.{name} 1\n" for name in names)
    return folder / "Master.dss"


def _renumbered(circuit: Circuit, configuration: Configuration, changed: np.ndarray) -> dict[str, tuple[int, int]]:
    """Old and new conductor number of every element of the changed groups, by its OpenDSS name."""
    found = {}
    classes = {"line": "line", "consumer": "load", "der": "pvsystem"}
    for table, element_class in classes.items():
        frame: pd.DataFrame = circuit.grid.tables[table]
        for name, group in zip(frame["name"], frame["group"], strict=True):
            if group in changed:
                old, new = circuit.recorded.group_phase[group] + 1, configuration.group_phase[group] + 1
                found[f"{element_class}.{name}"] = (int(old), int(new))
    return found


def _assert_same_grid(a: Grid, b: Grid) -> None:
    assert (a.name, a.frequency_hz) == (b.name, b.frequency_hz)
    for table in TABLES:
        pd.testing.assert_frame_equal(a.tables[table], b.tables[table], check_exact=True, obj=table)
    for name in MATRICES:
        assert np.array_equal(a.matrices[name], b.matrices[name]), name
    assert any(HIDDEN_MARK in text for text in a.consumer["conductors1"])


def _assert_same_configuration(a: Configuration, b: Configuration) -> None:
    for name in ("switch_open", "group_phase", "tap_pu", "capacitor_steps"):
        assert np.array_equal(getattr(a, name), getattr(b, name)), name


def test_an_engine_leaves_the_working_folder_alone(tmp_path: Path) -> None:
    """A new context of the engine goes to where the process was when the engine was imported."""
    script = (
        "import os, sys\n"
        "from mycelium.engine import Engine\n"
        "from mycelium.grid.dss_script import read_script\n"
        "from mycelium.feeders import feeder_path\n"
        "os.chdir(sys.argv[1])\n"
        "Engine(read_script(feeder_path('ieee13')))\n"
        "print(os.getcwd())\n"
    )
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=True)
    assert Path(done.stdout.strip()) == tmp_path.resolve()
