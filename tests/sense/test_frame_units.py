"""Readings in a wrong unit are named; faults, outages and odd values are not taken for one."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest

from mycelium.grid.grid import Grid
from mycelium.sense.readings_report import Finding, ReadingsReport, Trouble
from tests.sense.accounted import assert_only, read
from tests.sense.plausible import DAY, bundled_grid, edit, plausible_frame, series

FEEDER = "lv_town"
CUSTOMER = "consumer.cust_035"


@pytest.fixture(scope="module")
def grid() -> Grid:
    return bundled_grid(FEEDER)


@pytest.fixture(scope="module")
def frame(grid: Grid) -> pd.DataFrame:
    """A whole day in good order."""
    return plausible_frame(grid)


def unit_finding(report: ReadingsReport, says: str) -> Finding:
    (finding,) = [found for found in report.of(Trouble.UNIT) if says in found.says]
    return finding


Change = Callable[[pd.Series], pd.Series]
KILO: Change = lambda value: value * 1e-3  # noqa: E731
MILLI: Change = lambda value: value * 1e3  # noqa: E731


@pytest.mark.parametrize("feeder", ["lv_town", "us_suburb", "ieee13"])
@pytest.mark.parametrize(
    ("classes", "quantity", "change", "says"),
    [
        (("bus",), "voltage_v", KILO, "kV"),
        (("consumer",), "voltage_v", KILO, "kV"),
        (("bus", "consumer"), "voltage_v", KILO, "kV"),
        (("bus",), "voltage_v", lambda value: value * 3**0.5, "line-to-line"),
        (("consumer",), "voltage_v", lambda value: value * 3**0.5, "line-to-line"),
        (("consumer",), "active_power_kw", MILLI, "W or var"),
        (("consumer", "bus"), "active_power_kw", MILLI, "W or var"),
        (("consumer",), "active_power_kw", KILO, "MW"),
        (("source",), "active_power_kw", KILO, "MW"),
        (("source",), "active_power_kw", MILLI, "W or var"),
        (("transformer", "line", "source"), "active_power_kw", MILLI, "W or var"),
        (("transformer", "line", "source"), "current_a", KILO, "kA"),
        (("bus",), "angle_deg", np.deg2rad, "radians"),
    ],
)
@pytest.mark.parametrize("hours", [24, 1])
def test_a_column_in_a_wrong_unit(
    feeder: str, classes: tuple[str, ...], quantity: str, change: Change, says: str, hours: int
) -> None:
    """Nearly all rows of it are refused; nothing that is right is."""
    grid = bundled_grid(feeder)
    frame = plausible_frame(grid)
    frame = frame[frame["time"] < pd.Timestamp(DAY) + pd.Timedelta(hours=hours)].reset_index(drop=True)
    wrong = frame["element"].str.partition(".")[0].isin(classes) & (frame["quantity"] == quantity)
    if quantity == "active_power_kw":  # the other power comes from the same export
        wrong |= frame["element"].str.partition(".")[0].isin(classes) & (frame["quantity"] == "reactive_power_kvar")
    _, report = read(edit(frame, wrong, value=change), grid)
    refused = np.unique(np.concatenate([finding.rows for finding in report.of(Trouble.UNIT)]))
    assert set(refused) <= set(np.flatnonzero(wrong))
    assert len(refused) == wrong.sum()
    assert set(unit_finding(report, says).rows) <= set(refused)


def test_per_unit_instead_of_volts(grid: Grid, frame: pd.DataFrame) -> None:
    base = {f"bus.{name}": kv * 1e3 for name, kv in zip(grid.bus["name"], grid.bus["base_kv"], strict=True)}
    wrong = frame["element"].isin(base) & (frame["quantity"] == "voltage_v")
    changed = frame.assign(value=np.where(wrong, frame["value"] / frame["element"].map(base).fillna(1), frame["value"]))
    finding = assert_only(changed, wrong, grid, Trouble.UNIT)
    assert "per unit" in finding.says


@pytest.mark.parametrize(
    ("element", "quantity", "change", "says"),
    [
        ("bus.sub_a", "voltage_v", KILO, "kV"),
        (CUSTOMER, "voltage_v", KILO, "kV"),
        (CUSTOMER, "active_power_kw", MILLI, "W or var"),
        ("bus.sub_a", "angle_deg", np.deg2rad, "radians"),
    ],
)
def test_a_single_meter_in_a_wrong_unit(
    element: str, quantity: str, change: Change, says: str, frame: pd.DataFrame, grid: Grid
) -> None:
    bad = series(frame, element, quantity)
    if quantity == "active_power_kw":
        bad |= series(frame, element, "reactive_power_kvar")
    finding = assert_only(edit(frame, bad, value=change), bad, grid, Trouble.UNIT)
    assert says in finding.says and element in finding.examples[0]


@pytest.mark.parametrize("factor", [0.0, 1e-3, 0.004, 0.2, 1.73])
def test_an_hour_of_odd_voltage_is_no_wrong_unit(factor: float, frame: pd.DataFrame, grid: Grid) -> None:
    """The hour of a fault, or without supply."""
    last = frame["time"] == frame["time"].max()
    odd = last & (frame["quantity"] == "voltage_v") & frame["element"].str.startswith("bus.m")
    assert odd.sum() > 10
    assert read(edit(frame, odd, value=lambda old: old * factor), grid)[1].used == len(frame)


def test_a_dead_street_is_no_wrong_unit(frame: pd.DataFrame, grid: Grid) -> None:
    dead = frame["element"].isin([f"consumer.{name}" for name in grid.consumer["name"][:30]])
    assert read(edit(frame, dead, value=0.0), grid)[1].used == len(frame)


def test_records_with_a_wrong_voltage_base_do_not_cost_the_readings(frame: pd.DataFrame, grid: Grid) -> None:
    """A factor of 1.73 at some buses may as well be the records' fault: said, and used."""
    some = frame["element"].isin(["bus.sub_a", "bus.sub_b"]) & (frame["quantity"] == "voltage_v")
    readings, report = read(edit(frame, some, value=lambda old: old * 3**0.5), grid)
    assert report.used == len(frame) and readings.count == len(frame)
    finding = unit_finding(report, "records")
    assert finding.used and set(finding.rows) == set(np.flatnonzero(some))


def test_tap_positions() -> None:
    grid = bundled_grid("us_suburb")
    frame = plausible_frame(grid)
    bad = series(frame, "transformer.vr_a", "tap_pu")
    positions = np.resize([-3, 0, 1, 2], bad.sum()).astype(float)
    finding = assert_only(edit(frame, bad, value=lambda old: pd.Series(positions, old.index)), bad, grid, Trouble.UNIT)
    assert "tap position" in finding.says


def test_absurd_values(frame: pd.DataFrame, grid: Grid) -> None:
    for element, quantity, value in (
        ("bus.sub_a", "voltage_v", 24e3),
        ("line.ring_3", "current_a", 1e7),
        (CUSTOMER, "active_power_kw", 1e9),
        ("bus.sub_a", "angle_deg", 1000.0),
    ):
        one = series(frame, element, quantity) & (frame["time"] == frame["time"].max())
        finding = assert_only(edit(frame, one, value=value), one, grid, Trouble.UNIT)
        assert "that large" in finding.says
