"""Which 24 hours are read, clock changes, and times that are none or not hourly."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from mycelium.errors import FeederError
from mycelium.grid.grid import Grid
from mycelium.sense.frame import readings_from_frame
from mycelium.sense.readings import Readings
from mycelium.sense.readings_report import Trouble
from tests.sense.accounted import assert_only, read
from tests.sense.plausible import bundled_grid, plausible_frame

FEEDER = "lv_town"
CUSTOMER = "consumer.cust_035"


@pytest.fixture(scope="module")
def grid() -> Grid:
    return bundled_grid(FEEDER)


@pytest.fixture(scope="module")
def frame(grid: Grid) -> pd.DataFrame:
    """A whole day in good order."""
    return plausible_frame(grid)


def customer_day(times: pd.DatetimeIndex | list[object]) -> pd.DataFrame:
    """Three customers that report voltage at these times, another value every time."""
    names = [CUSTOMER, "consumer.cust_004", "consumer.cust_045"]
    rows = [[t, name, 1, "", "voltage_v", 230 + k / 8] for name in names for k, t in enumerate(times)]
    return pd.DataFrame(rows, columns=["time", "element", "terminal", "phase", "quantity", "value"])


def hours_of(readings: Readings) -> list[float]:
    """What the first customer reports, hour by hour, as the number of its timestamp; -1 where nothing."""
    key = "consumer.voltage_v"
    row = int(np.flatnonzero(bundled_grid(FEEDER).consumer["name"] == "cust_035")[0])
    value, seen = readings.value[key][:, row, 0], readings.seen[key][:, row, 0]
    return np.where(seen, (value - 230) * 8, -1).round().astype(int).tolist()


def test_more_than_24_hours_need_a_start(grid: Grid) -> None:
    frame = customer_day(pd.date_range("2026-01-01", periods=60, freq="h"))
    with pytest.raises(FeederError, match=r"2026-01-01 \(24 hours\), 2026-01-02 \(24 hours\), 2026-01-03 \(12 hours\)"):
        readings_from_frame(frame, grid)
    readings, report = read(frame, grid, start="2026-01-02 06:00")
    assert hours_of(readings) == list(range(30, 54))
    assert report.start == "2026-01-02 06:00" and len(report.of(Trouble.OUTSIDE)[0].rows) == 3 * 36
    with pytest.raises(FeederError, match="no readings in the 24 hours from 2027-01-01"):
        readings_from_frame(frame, grid, start="2027-01-01")
    with pytest.raises(FeederError, match="no UTC offset"):
        readings_from_frame(frame, grid, start="2026-01-02T00:00Z")


def test_fewer_hours_are_used_and_the_rest_is_unseen(grid: Grid) -> None:
    readings, report = read(customer_day(pd.date_range("2026-01-01 10:00", periods=5, freq="h")), grid)
    assert hours_of(readings) == [-1] * 10 + [0, 1, 2, 3, 4] + [-1] * 9
    assert report.start == "2026-01-01 00:00" and "5 of 24 hours" in report.of(Trouble.HOURS)[0].says


def test_24_hours_over_midnight_start_with_the_first(grid: Grid) -> None:
    """Exports that name the end of an hour go from 01:00 to 00:00."""
    readings, report = read(customer_day(pd.date_range("2026-01-01 01:00", periods=24, freq="h")), grid)
    assert hours_of(readings) == list(range(24)) and report.start == "2026-01-01 01:00"


BERLIN = {
    23: pd.date_range("2026-03-29", "2026-03-30", freq="h", tz="Europe/Berlin", inclusive="left"),
    25: pd.date_range("2026-10-25", "2026-10-26", freq="h", tz="Europe/Berlin", inclusive="left"),
}


@pytest.mark.parametrize("as_text", [False, True])
def test_a_day_when_clocks_change_with_utc_offsets(as_text: bool, grid: Grid) -> None:
    spring, autumn = (list(times.map(lambda t: t.isoformat())) if as_text else times for times in BERLIN.values())
    readings, report = read(customer_day(spring), grid)
    assert hours_of(readings) == [*range(23), -1]
    assert "forward 1 h, so the day had 23 hours" in report.of(Trouble.CLOCK)[0].says
    with pytest.raises(FeederError, match=r"2026-10-25 \(25 hours; the clock was put back 1 h"):
        readings_from_frame(customer_day(autumn), grid)
    for start, first in (("2026-10-25", 0), ("2026-10-25 01:00", 1)):
        readings, report = read(customer_day(autumn), grid, start=start)
        assert hours_of(readings) == list(range(first, first + 24))
        assert "so the day had 25 hours" in report.of(Trouble.CLOCK)[0].says


def test_a_day_when_clocks_change_without_offsets(grid: Grid) -> None:
    readings, report = read(customer_day(BERLIN[23].tz_localize(None)), grid)
    assert hours_of(readings) == [0, 1, -1, *range(2, 23)]
    assert "02:00 is missing everywhere, as on a day when clocks are put forward" in report.of(Trouble.HOURS)[0].says
    readings, report = read(customer_day(BERLIN[25].tz_localize(None)), grid)
    assert hours_of(readings) == [0, 1, -1, *range(4, 25)]
    assert len(report.of(Trouble.CONFLICT)[0].rows) == 6
    assert "02:00 comes twice" in report.of(Trouble.CLOCK)[0].says


def test_a_gap_of_one_meter_and_a_conflict_at_noon_are_no_clock_change(grid: Grid) -> None:
    frame = customer_day(pd.date_range("2026-01-01", periods=24, freq="h"))
    frame = pd.concat([frame.drop(index=2), frame.iloc[[12, 36]].assign(value=99.0)])
    _, report = read(frame, grid)
    assert not report.of(Trouble.CLOCK) and not report.of(Trouble.HOURS)


@pytest.mark.parametrize("minutes", [15, 30, 5])
def test_readings_more_often_than_hourly_are_not_used(minutes: int, grid: Grid) -> None:
    _, report = read(customer_day(pd.date_range("2026-01-01", "2026-01-01 23:59", freq=f"{minutes}min")), grid)
    assert report.used == 0
    assert "average" in report.of(Trouble.SUB_HOURLY)[0].says


def test_one_meter_off_the_hour_does_not_cost_the_others(grid: Grid) -> None:
    frame = customer_day(pd.date_range("2026-01-01", periods=24, freq="h"))
    off = frame["element"] == CUSTOMER
    frame["time"] = frame["time"].where(~off, frame["time"] + pd.Timedelta(minutes=30))
    assert_only(frame, off, grid, Trouble.OFF_HOUR)


def test_hours_of_half_hour_zones_are_whole(grid: Grid) -> None:
    readings, _ = read(customer_day(pd.date_range("2026-01-01", periods=24, freq="h", tz="Asia/Kolkata")), grid)
    assert hours_of(readings) == list(range(24))


@pytest.mark.parametrize(
    ("time", "advice"),
    [
        ("2026-01-01 24:00", "00:00 of the next day"),
        ("01/02/2026 13:00", "which the month"),
        ("1.2.2026 13:00", "which the month"),
        ("31.01.2026", "write the date as 2026-01-31"),
        ("1/31/2026 13:00", "write the date as 2026-01-31"),
        ("2026/01/31", "write the date as 2026-01-31"),
        ("2026-01-31 00:00:00 Europe/Berlin", "write the UTC offset"),
        ("2026-01-31T13:00+01:00[Europe/Berlin]", "write the UTC offset"),
        ("2026-01-31 01:00 PM", "hours as 00 to 23"),
        ("2026-01-31T00:00+14:99", "no clock has that UTC offset"),
        ("2026-01-31T00:00-15:00", "no clock has that UTC offset"),
        ("13:00", "'13:00'"),
        ("1767225600", "'1767225600'"),
        ("now", "'now'"),
        ("2026-02-30 00:00", "'2026-02-30 00:00'"),
        ("", "''"),
        (5, "'5'"),
        (None, "''"),
    ],
)
def test_a_time_that_is_none(time: object, advice: str, grid: Grid) -> None:
    frame = customer_day([*pd.date_range("2026-01-01", periods=23, freq="h").astype(str), time])
    bad = pd.Series(np.arange(len(frame)) % 24 == 23)
    finding = assert_only(frame, bad, grid, Trouble.TIME)
    assert advice in finding.examples[0]


@pytest.mark.parametrize("time", ["2026-01-31 00:00:00 Europe/Berlin", "31.13.2026", "2026-02-30 00:00", "1.1.2026"])
def test_no_doubt_about_day_and_month_where_there_is_none(time: str, grid: Grid) -> None:
    frame = customer_day([*pd.date_range("2026-01-01", periods=23, freq="h").astype(str), time])
    _, report = read(frame, grid)
    assert "which the month" not in report.of(Trouble.TIME)[0].examples[0]


@pytest.mark.parametrize("as_text", [False, True])
def test_dates_without_a_time_of_day(as_text: bool, grid: Grid) -> None:
    dates = pd.DatetimeIndex(["2026-01-31"] * 24)
    frame = customer_day(list(dates.strftime("%Y-%m-%d")) if as_text else dates)
    _, report = read(frame, grid)
    (finding,) = report.of(Trouble.TIME)
    assert report.used == 0 and len(finding.rows) == len(frame) and "no time of day" in finding.says
    _, report = read(frame.iloc[::24], grid)  # one row each: the hour from midnight
    assert report.used == 3


def test_the_whole_hours_of_half_hour_zones_in_utc(grid: Grid) -> None:
    local = pd.date_range("2026-01-01", periods=24, freq="h", tz="Asia/Kolkata")
    _, report = read(customer_day(local.tz_convert("UTC")), grid)
    assert report.used == 0 and "with its offset, as in 2026-01-31T00:00+05:30" in report.of(Trouble.OFF_HOUR)[0].says
    readings, _ = read(customer_day([time.isoformat() for time in local]), grid)
    assert hours_of(readings) == list(range(24))


def test_times_with_and_without_offset_do_not_mix(grid: Grid) -> None:
    frame = customer_day([*pd.date_range("2026-01-01", periods=23, freq="h").astype(str), "2026-01-01T23:00Z"])
    finding = assert_only(frame, pd.Series(np.arange(len(frame)) % 24 == 23), grid, Trouble.TIME)
    assert "give all or none" in finding.says
