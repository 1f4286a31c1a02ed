"""Whole feeders: the files that are written, what reads them back, loops, and both ends of the range of sizes."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from mycelium.engine import Engine
from mycelium.grid.check import check_physics
from mycelium.grid.dss_script import Command, read_script
from mycelium.grid.read_opendss import read_circuit, read_opendss
from mycelium.grid.topology import loops
from mycelium.schema import HOURS
from mycelium.synth.feeder import Attempt, FeederMaker
from mycelium.synth.library_rows import Region
from mycelium.synth.write import write_attempt
from tests.synth.bench import AMERICA, EUROPE, SEED, made, proposal, read, shop_of

REGIONS = pytest.mark.parametrize("region", [AMERICA, EUROPE])
KEPT_BY_THE_SIMULATOR = {"regcontrol", "capcontrol", "invcontrol"}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[Region, Path]:
    """An accepted feeder of each region, with photovoltaics, written."""
    found = {}
    for region in (AMERICA, EUROPE):
        attempt = next(a for a in (made(region, 200, k) for k in range(6)) if a.verdict.accepted and has_pv(a))
        found[region] = tmp_path_factory.mktemp("feeders") / region
        write_attempt(attempt, found[region], SEED)
    return found


def has_pv(attempt: Attempt) -> bool:
    return attempt.proposal is not None and len(attempt.proposal.design.pvs) > 3


def bytes_of(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@REGIONS
def test_the_files_read_back_without_losses(folders: dict[Region, Path], region: Region) -> None:
    grid, configuration, report = read_opendss(folders[region] / "Master.dss")
    assert not report.approximated and not report.unaccounted()
    lost = [r for r in report.ignored if r.kind not in KEPT_BY_THE_SIMULATOR and not r.what.startswith("clear:")]
    assert not lost
    traits = read(folders[region], "verdict.json")["traits"]
    assert isinstance(traits, dict)
    assert len(grid.bus) == traits["buses"] and len(grid.consumer) == traits["customers"]
    assert grid.bus[["x", "y"]].notna().all().all()
    assert int(configuration.switch_open.sum()) == traits["ties"]
    assert len(grid.switches) == traits["ties"] + traits["switches"]
    assert len(grid.der) == traits["photovoltaics"]


@REGIONS
def test_the_physics_of_the_import_is_right(folders: dict[Region, Path], region: Region) -> None:
    script = read_script(folders[region] / "Master.dss")
    engine = Engine(script)
    grid, configuration, _ = read_circuit(script, engine)
    found = check_physics(engine, grid, configuration)
    assert found.converged
    assert found.primitive_max_rel < 1e-9 and found.current_max_rel < 1e-6 and found.kirchhoff_max_rel < 1e-6


@REGIONS
def test_conventions(folders: dict[Region, Path], region: Region) -> None:
    grid, _, _ = read_opendss(folders[region] / "Master.dss")
    tapped = (grid.transformer["n_windings"] == 3).sum()
    distribution = grid.transformer["distribution"].sum()
    per_unit = len(grid.consumer) / distribution
    if region is AMERICA:
        assert tapped > 0.5 * distribution and per_unit < 15
        legs = grid.winding[
            grid.winding["transformer"].isin(grid.transformer.index[grid.transformer["n_windings"] == 3])
        ]
        assert (legs["rated_kv"] == 0.12).sum() == 2 * tapped
    else:
        assert tapped == 0 and per_unit > 15
        assert grid.consumer["eligible"].sum() > 0.5 * len(grid.consumer)  # phases are a question here


@REGIONS
def test_the_verdict_is_that_of_the_files(folders: dict[Region, Path], region: Region) -> None:
    """The written model, solved anew at the three kinds of operating points, has the voltages of the verdict."""
    folder = folders[region]
    verdict = read(folder, "verdict.json")
    for name, extra in (("snapshot_a", "SnapshotA.dss"), ("snapshot_b", "SnapshotB.dss"), ("hours", None)):
        engine = Engine(read_script(folder / "Master.dss"))
        engine.set_canonical()
        for line in (folder / extra).read_text().splitlines() if extra else ():
            engine.command(line)
        expected = verdict[name] if extra is None else [verdict[name]]
        mode = "daily" if extra is None else "snapshot"
        engine.command(f"set mode={mode} number=1 stepsize=1h controlmode=static")
        assert isinstance(expected, list) and len(expected) in (1, HOURS)
        for state in expected:
            engine.dss.ActiveCircuit.Solution.Solve()
            v_pu = np.asarray(engine.dss.ActiveCircuit.AllBusVmagPu)
            live = v_pu[v_pu > 0.05]
            assert live.min() == pytest.approx(state["lowest_pu"], abs=2e-5)
            assert live.max() == pytest.approx(state["highest_pu"], abs=2e-5)
            assert state["lowest_pu"] >= 0.95 and (name == "snapshot_a" or state["highest_pu"] <= 1.05)


@REGIONS
def test_closing_the_ties_makes_loops_with_something_to_open(folders: dict[Region, Path], region: Region) -> None:
    grid, configuration, _ = read_opendss(folders[region] / "Master.dss")
    side_by_side = grid.transformer["name"].str.startswith("substation").sum() - 1 if len(grid.transformer) else 0
    assert loops(grid) == configuration.switch_open.sum() + max(side_by_side, 0)
    assert configuration.switch_open.sum() >= 3
    _, found = proposal(region, 400)
    design = found.design
    feeders = design.feeders_of()
    for tie in (switch for switch in design.switches.values() if switch.is_open):
        up = [branch.name for branch in design.path(tie.bus1, feeders)]
        down = [branch.name for branch in design.path(tie.bus2, feeders)]
        loop = set(up) ^ set(down)
        assert any(name in design.switches for name in loop), f"nothing to open in the loop of {tie.name}"
        assert set(tie.conductors) <= set(feeders[tie.bus2].conductors)


def test_what_is_sampled_is_written(folders: dict[Region, Path]) -> None:
    sample = read(folders[AMERICA], "sample.json")
    assert {
        "seed",
        "number",
        "demand_lambda",
        "thermal",
        "parameters",
        "convention",
        "geography",
        "coincidence",
    } <= set(sample)
    share, eta = sample["demand_lambda"], sample["coincidence"]
    assert isinstance(share, float) and 0.2 <= share <= 0.4
    assert isinstance(eta, dict) and all(0 < value <= 1 for value in eta.values())
    lines = (folders[AMERICA] / "repairs.jsonl").read_text().splitlines()
    assert len(lines) == read(folders[AMERICA], "verdict.json")["repairs"]
    assert all({"trigger", "operation", "round", "before", "after"} <= set(json.loads(line)) for line in lines)
    buses = pd.read_csv(folders[AMERICA] / "buses.csv")
    assert buses["peak_lowest_pu"].min() >= 0.95 and buses["distance_m"].max() > 0
    assert "invented" in (folders[AMERICA] / "ATTRIBUTION.txt").read_text()


def test_the_folder_holds_no_path_of_this_machine(folders: dict[Region, Path]) -> None:
    for path in folders[EUROPE].iterdir():
        assert str(folders[EUROPE].parent) not in path.read_text()


def test_the_same_seed_gives_the_same_bytes_after_another_feeder(tmp_path: Path) -> None:
    """Whatever the engine solved before."""
    maker = FeederMaker(shop_of(AMERICA, 200, 1.0))
    write_attempt(maker.make(1), tmp_path / "first", SEED)
    maker.make(2)
    write_attempt(maker.make(1), tmp_path / "again", SEED)
    write_attempt(made(AMERICA, 200, 1), tmp_path / "other", SEED)
    assert bytes_of(tmp_path / "first") == bytes_of(tmp_path / "again") == bytes_of(tmp_path / "other")


@pytest.mark.parametrize(("region", "buses"), [(AMERICA, 20), (EUROPE, 20), (EUROPE, 10_000)])
def test_both_ends_of_the_range_of_sizes(region: Region, buses: int) -> None:
    found = made(region, buses, 0, 0.0)
    assert found.proposal is not None and found.outcome is not None
    assert len(found.proposal.design.buses) == pytest.approx(buses, rel=0.2 if buses > 100 else 0.6)
    assert found.outcome.a.converged and len(found.outcome.day) == HOURS


def test_volt_var_of_all_kinds_of_inverters_in_one_network() -> None:
    """Inverters of one, two and three phases: in one control they would make the engine write beyond its arrays."""
    from dataclasses import replace

    from mycelium.synth.design import InverterMode
    from tests.synth.bench import model_of

    number = next(
        k for k in range(30)
        if {1, 2} <= {len(pv.conductors) for pv in proposal(AMERICA, 500, k, pv=1.0)[1].design.pvs.values()}
    )  # fmt: skip
    _, found = proposal(AMERICA, 500, number, pv=1.0)
    for name, pv in found.design.pvs.items():
        found.design.pvs[name] = replace(pv, mode=InverterMode.VOLT_VAR)
    model = model_of(found)
    for state in (model.snapshot_a(), model.snapshot_b()):
        assert state.converged and state.live_v_pu.min() > 0.5 and state.v_pu.max() < 1.3


def test_commands_of_the_model_and_of_the_files_are_the_same(folders: dict[Region, Path]) -> None:
    from mycelium.synth.model import model_text

    attempt = next(a for a in (made(EUROPE, 200, k) for k in range(6)) if a.verdict.accepted and has_pv(a))
    assert attempt.proposal is not None
    parts = model_text(attempt.proposal.design, attempt.proposal.inputs.shapes)
    texts = [text for lines in parts.values() for text in lines]
    commands: tuple[Command, ...] = read_script(folders[EUROPE] / "Master.dss").commands
    assert [command.text.lower() for command in commands] == [text.lower() for text in texts]
