"""Readings that are off by one factor or angle everywhere are used, but not without a word."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from mycelium.grid.grid import Grid
from mycelium.sense.readings_report import Finding, Trouble
from tests.sense.accounted import read
from tests.sense.plausible import bundled_grid, edit, plausible_frame, series


def note(frame: pd.DataFrame, grid: Grid, rows: pd.Series) -> Finding:
    """The one thing worth knowing, which is about these rows; every row is used."""
    _, report = read(frame, grid)
    assert report.used == len(frame)
    found = report.of(Trouble.SCALE)
    assert found and all(finding.used for finding in found) and len(report.findings) == len(found)
    assert set(np.concatenate([finding.rows for finding in found])) == set(np.flatnonzero(rows))
    return found[0]


@pytest.mark.parametrize("feeder", ["lv_town", "ieee13"])
@pytest.mark.parametrize("factor", [0.05, 0.1, 0.5, 0.577, 5.0])
def test_all_voltages_off_by_a_factor(feeder: str, factor: float) -> None:
    grid = bundled_grid(feeder)
    frame = plausible_frame(grid)
    volts = frame["quantity"] == "voltage_v"
    finding = note(edit(frame, volts, value=lambda old: old * factor), grid, volts)
    assert (
        f"about {factor:.2g} of the voltage on record" in finding.says
        and "ratio of the voltage transformers" in finding.says
    )


def test_one_voltage_level_as_on_the_secondary_side() -> None:
    """Instruments at medium voltage that give their 110 V, among meters that give all of it."""
    grid = bundled_grid("lv_town")
    frame = plausible_frame(grid)
    high = frame["element"].isin([f"bus.{name}" for name in grid.bus["name"][grid.bus["base_kv"] > 1]])
    high &= frame["quantity"] == "voltage_v"
    finding = note(edit(frame, high, value=lambda old: old / 100), grid, high)
    assert "0.01 of the voltage on record" in finding.says


def test_what_is_without_supply_or_odd_is_no_factor() -> None:
    grid = bundled_grid("lv_town")
    frame = plausible_frame(grid)
    for odd in (
        frame["element"].isin([f"consumer.{name}" for name in grid.consumer["name"][:30]]),
        frame["element"].str.startswith("bus.m"),
        series(frame, "bus.sub_a", "voltage_v"),
        frame["time"].dt.hour < 11,
    ):
        volts = odd & (frame["quantity"] == "voltage_v")
        for factor in (0.0, 0.05, 0.5):
            assert not read(edit(frame, volts, value=lambda old, f=factor: old * f), grid)[1].findings


@pytest.mark.parametrize("quantity", ["voltage_v", "current_a", "active_power_kw"])
def test_nothing_but_zeros(quantity: str) -> None:
    grid = bundled_grid("lv_town")
    frame = plausible_frame(grid)
    zero = frame["quantity"] == quantity
    assert f"all {quantity} are 0" in note(edit(frame, zero, value=0.0), grid, zero).says


@pytest.mark.parametrize("feeder", ["lv_town", "us_suburb"])
@pytest.mark.parametrize("offset", [30, -90, 47])
def test_all_angles_off_by_the_same(feeder: str, offset: float) -> None:
    grid = bundled_grid(feeder)
    frame = plausible_frame(grid)
    angles = frame["quantity"] == "angle_deg"
    turned = edit(frame, angles, value=lambda old: (old + offset + 180) % 360 - 180)
    finding = note(turned, grid, angles)
    said = int(finding.says.split(" degrees")[0].split()[-1])
    assert abs(said - offset) <= 2


def test_angles_of_load_or_of_a_few_are_no_offset() -> None:
    grid = bundled_grid("lv_town")
    frame = plausible_frame(grid)
    angles = frame["quantity"] == "angle_deg"
    some = angles & frame["element"].str.startswith("bus.sub")
    for which, offset in ((angles, 12), (some, 90)):
        turned = edit(frame, which, value=lambda old, by=offset: (old + by + 180) % 360 - 180)
        assert not read(turned, grid)[1].findings
