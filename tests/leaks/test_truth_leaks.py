"""Switch positions, regulator taps and faults written into a model leave no trace in its Grid."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mycelium.feeders import feeder_path
from mycelium.grid.grid import Configuration, Grid
from mycelium.grid.read_opendss import read_opendss
from tests.leaks.bits import assert_same, derived, differing, recorded
from tests.leaks.rewrite import CLOSED, POSITIONS, read_edited, with_line, with_positions, with_steps, with_taps

WITH_SWITCHES = ["ieee123", "lv_town", "lv_fourwire", "us_suburb"]
WITH_REGULATORS = ["ieee13", "ieee34", "ieee37", "ieee123"]


def _published(feeder: str) -> tuple[Grid, Configuration]:
    grid, configuration, _ = read_opendss(feeder_path(feeder))
    return grid, configuration


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("feeder", WITH_SWITCHES)
def test_other_switch_positions_change_no_bit(feeder: str, seed: int, tmp_path: Path) -> None:
    grid, _ = _published(feeder)
    names = grid.line["name"].iloc[grid.switches].tolist()
    drawn = dict(zip(names, np.random.default_rng(seed).choice(POSITIONS, len(names)).tolist(), strict=True))
    other, configuration = read_edited(feeder, tmp_path / "other", with_positions(drawn))
    assert configuration.switch_open.tolist() == [drawn[name] != CLOSED for name in names]
    assert_same(grid, other, tmp_path)


@pytest.mark.parametrize("position", POSITIONS)
@pytest.mark.parametrize("feeder", WITH_SWITCHES)
def test_all_switches_in_one_position_change_no_bit(feeder: str, position: str, tmp_path: Path) -> None:
    grid, _ = _published(feeder)
    names = grid.line["name"].iloc[grid.switches].tolist()
    other, configuration = read_edited(feeder, tmp_path / "other", with_positions(dict.fromkeys(names, position)))
    assert np.all(configuration.switch_open == (position != CLOSED))
    assert_same(grid, other, tmp_path)


@pytest.mark.parametrize("feeder", WITH_REGULATORS)
def test_other_regulator_taps_change_no_bit(feeder: str, tmp_path: Path) -> None:
    grid, before = _published(feeder)
    other, after = read_edited(feeder, tmp_path / "other", with_taps(0.95))
    assert len(grid.regulated) and not np.array_equal(before.tap_pu, after.tap_pu)
    assert_same(grid, other, tmp_path)


def test_other_capacitor_steps_change_the_recorded_initial_step_alone(tmp_path: Path) -> None:
    grid, _ = _published("us_suburb")
    other, _ = read_edited("us_suburb", tmp_path / "other", with_steps("0 0 0"))
    assert differing(recorded(grid), recorded(other)) == ["capacitor.initial_steps"]
    assert not differing(derived(grid), derived(other))


@pytest.mark.parametrize("feeder", ["ieee13", "lv_town"])
def test_a_fault_in_the_model_changes_no_bit(feeder: str, tmp_path: Path) -> None:
    grid, _ = _published(feeder)
    bus = str(grid.bus["name"].iat[len(grid.bus) // 2])
    fault = f"New Fault.f1 bus1={bus}.1 phases=1 r=0.01"
    other, _ = read_edited(feeder, tmp_path / "other", lambda line: line, with_line("CalcVoltageBases", fault))
    text = "".join(path.read_text() for path in (tmp_path / "other").glob("*.dss"))
    assert "Fault.f1" in text, "the fault was not written"
    assert_same(grid, other, tmp_path)
