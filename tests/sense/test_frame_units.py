"""Readings in a wrong unit are named; faults, outages and odd values are not taken for one."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest

from mycelium.grid.grid import Grid
from mycelium.sense.frame import readings_to_frame
from mycelium.sense.frame_example import example_readings
from mycelium.sense.readings_report import Finding, ReadingsReport, Trouble
from mycelium.sense.sense import sense
from mycelium.simulate.cases import CaseMix
from tests.sense.accounted import assert_only, read
from tests.sense.networks import bundled, day_of, meters_of
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


# ---- currents and powers -------------------------------------------------------------------------------------------


def is_power(frame: pd.DataFrame) -> pd.Series:
    return frame["quantity"].isin(["active_power_kw", "reactive_power_kvar"])


def at(frame: pd.DataFrame, *classes: str) -> pd.Series:
    return frame["element"].str.partition(".")[0].isin(classes)


@pytest.mark.parametrize("feeder", ["lv_town", "lv_fourwire", "us_suburb", "ieee13"])
@pytest.mark.parametrize("factor", [100, 1000, 10_000])
def test_currents_too_large_for_the_powers_beside_them(feeder: str, factor: float) -> None:
    """The powers are right, so that currents are to blame."""
    grid = bundled_grid(feeder)
    frame = plausible_frame(grid)
    currents = frame["quantity"] == "current_a"
    finding = assert_only(edit(frame, currents, value=lambda old: old * factor), currents, grid, Trouble.UNIT)
    assert "give A" in finding.says and "mA" in finding.says


@pytest.mark.parametrize("feeder", ["lv_town", "us_suburb"])
def test_currents_too_large_for_ratings(feeder: str) -> None:
    grid = bundled_grid(feeder)
    frame = plausible_frame(grid)
    frame = frame[~is_power(frame)].reset_index(drop=True)
    currents = frame["quantity"] == "current_a"
    assert_only(edit(frame, currents, value=lambda old: old * 1e4), currents, grid, Trouble.UNIT)


def test_one_transformer_in_milliamperes(frame: pd.DataFrame, grid: Grid) -> None:
    frame = frame[~is_power(frame)].reset_index(drop=True)
    one = series(frame, "transformer.dt_a", "current_a") & (frame["terminal"] == 2)
    assert_only(edit(frame, one, value=lambda old: old * 1e4), one, grid, Trouble.UNIT)


@pytest.mark.parametrize("powers", ["none", "agree", "deny"])
def test_one_line_far_above_its_rating(powers: str, frame: pd.DataFrame, grid: Grid) -> None:
    """The rating may be what is wrong, unless a power beside it says that it is the current."""
    line = frame["element"] == "line.ring_3"
    currents = series(frame, "line.ring_3", "current_a")
    changed = edit(frame, line if powers == "agree" else currents, value=lambda old: old * 5e3)
    if powers == "none":
        changed = changed[~(line & is_power(frame))].reset_index(drop=True)
        currents = series(changed, "line.ring_3", "current_a")
    if powers == "deny":
        assert_only(changed, currents, grid, Trouble.UNIT)
        return
    _, report = read(changed, grid)
    assert report.used == len(changed)
    finding = unit_finding(report, "more than 10 times the rating")
    assert set(finding.rows) == set(np.flatnonzero(currents))


@pytest.mark.parametrize("amps", [0.0, np.nan, 0.4])
def test_lines_without_a_rating_or_with_one_in_kiloamperes(amps: float, frame: pd.DataFrame, grid: Grid) -> None:
    bare = grid.replace_tables(line=grid.line.assign(normal_amps=amps))
    currents = frame["quantity"] == "current_a"
    loaded = edit(frame, currents & at(frame, "line"), value=lambda old: old * 100)[~is_power(frame)]
    _, report = read(loaded.reset_index(drop=True), bare)
    assert not report.of(Trouble.UNIT), str(report)


@pytest.mark.parametrize("hours", [1, 2, 11])
def test_hours_of_fault_or_overload_are_no_wrong_unit(hours: int, frame: pd.DataFrame, grid: Grid) -> None:
    last = frame["time"] > frame["time"].max() - pd.Timedelta(hours=hours)
    odd = last & (frame["quantity"] == "current_a")
    for kept in (frame, frame[~is_power(frame)]):
        changed = edit(kept, odd[kept.index], value=lambda old: old * 2e4).reset_index(drop=True)
        _, report = read(changed, grid)
        assert report.used == len(changed) and not report.findings, str(report)


def test_power_and_current_that_contradict_each_other(frame: pd.DataFrame, grid: Grid) -> None:
    """A hundredth is no unit: of which of both, nothing says."""
    currents = frame["quantity"] == "current_a"
    both = currents | (is_power(frame) & at(frame, "line", "transformer", "source"))
    finding = assert_only(edit(frame, currents, value=lambda old: old / 100), both, grid, Trouble.UNIT)
    assert "contradict" in finding.says


@pytest.mark.parametrize("feeder", ["lv_town", "us_suburb", "ieee13"])
def test_megawatts_at_a_few_instruments(feeder: str) -> None:
    """A current beside a power tells; of two customers nothing does, but the others' megawatts are a warning."""
    grid = bundled_grid(feeder)
    frame = readings_to_frame(example_readings(grid), grid, DAY)
    changed = edit(frame, is_power(frame), value=lambda old: old * 1e-3)
    finding = assert_only(changed, is_power(frame) & ~at(frame, "consumer"), grid, Trouble.UNIT)
    assert "MW" in finding.says
    _, report = read(changed, grid)
    (warning,) = [found for found in report.of(Trouble.UNIT) if found.used]
    assert "may be in MW" in warning.says
    assert set(warning.rows) == set(np.flatnonzero(is_power(frame) & at(frame, "consumer")))


@pytest.mark.parametrize("feeder", ["lv_town", "us_suburb", "ieee13"])
@pytest.mark.parametrize("factor", [1e-3, 100, 1000])
def test_a_day_with_a_fault_of_which_currents_are_wrong(feeder: str, factor: float) -> None:
    """Loads as they are: light and heavy, dead lines, and the currents of a fault. No power is accused of it."""
    network = bundled(feeder)
    grid = network.published.grid
    day = day_of(network, CaseMix(variant=0.0, fault=1.0))
    for policy in ("clean", "noisy_missing_sparse"):
        frame = readings_to_frame(sense(meters_of(grid, policy), day, 1), grid, DAY)
        currents = (frame["quantity"] == "current_a").to_numpy()
        _, report = read(edit(frame, pd.Series(currents), value=lambda old: old * factor), grid)
        refused = np.zeros(len(frame), bool)
        for finding in report.of(Trouble.UNIT):
            refused[finding.rows] |= not finding.used
        assert not refused[~currents].any(), str(report)
        there = currents & (frame["value"] > 0).to_numpy()
        assert refused[there].mean() > 0.85, str(report)


@pytest.mark.parametrize("feeder", ["lv_town", "us_suburb", "ieee13"])
@pytest.mark.parametrize("change", [KILO, MILLI])
def test_a_day_with_a_fault_of_which_powers_are_wrong(feeder: str, change: Change) -> None:
    network = bundled(feeder)
    grid = network.published.grid
    day = day_of(network, CaseMix(variant=0.0, fault=1.0))
    frame = readings_to_frame(sense(meters_of(grid, "clean"), day, 1), grid, DAY)
    _, report = read(edit(frame, is_power(frame), value=change), grid)
    listed = np.zeros(len(frame), bool)
    for finding in report.of(Trouble.UNIT):
        listed[finding.rows] = True
        assert "MW" in finding.says if change is KILO else "W or var" in finding.says
    assert not listed[~is_power(frame)].any()
    there = (is_power(frame) & (frame["value"].abs() > 1e-3)).to_numpy()
    assert listed[there].mean() > 0.9  # a large customer in MW may as well be a small one
