"""Bad readings: every row is used or listed, with its number and what to do, and nothing ends in a traceback."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mycelium.errors import FeederError
from mycelium.grid.grid import Grid
from mycelium.sense.frame import read_readings, readings_from_frame, write_readings
from mycelium.sense.readings import Readings
from mycelium.sense.readings_report import Finding, ReadingsReport, Trouble
from tests.sense.plausible import DAY, assert_same, bundled_grid, edit, plausible, plausible_frame, series

FEEDER = "lv_town"
CUSTOMER = "consumer.cust_035"


@pytest.fixture(scope="module")
def grid() -> Grid:
    return bundled_grid(FEEDER)


@pytest.fixture(scope="module")
def frame(grid: Grid) -> pd.DataFrame:
    """A whole day in good order."""
    return plausible_frame(grid)


def read(frame: pd.DataFrame, grid: Grid, **options: str) -> tuple[Readings, ReadingsReport]:
    """Read it; what holds of every report is checked on the way."""
    readings, report = readings_from_frame(frame, grid, **options)
    assert_accounted(readings, report)
    return readings, report


def assert_accounted(readings: Readings, report: ReadingsReport) -> None:
    """Every row became a reading or is listed as not used."""
    refused = [finding.rows for finding in report.findings if not finding.used]
    listed = len(np.unique(np.concatenate(refused))) if refused else 0
    assert report.used == readings.count == sum(c.values for c in report.coverage)
    assert report.rows == report.used + listed
    assert json.loads(json.dumps(report.as_dict(), allow_nan=False))["not_used"] == listed
    assert str(report)


def assert_only(frame: pd.DataFrame, bad: pd.Series, grid: Grid, trouble: Trouble) -> Finding:
    """Exactly these rows are in this trouble, and the others are used as if the bad ones were not there."""
    readings, report = read(frame, grid)
    (finding,) = [found for found in report.of(trouble) if not found.used]
    np.testing.assert_array_equal(np.sort(finding.rows), np.flatnonzero(bad))
    without, _ = readings_from_frame(frame[~bad], grid)
    assert_same(readings, without)
    assert report.used == (~bad).sum()
    return finding


# ---- names ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("element", "advice"),
    [
        ("consumer.cust_35", "closest is consumer.cust_035"),
        ("load.cust_0035", "closest is consumer.cust_035"),
        ("cust_035", "write consumer.cust_035"),
        ("costumer.cust_035", "did you mean consumer?"),
        ("capacitor.c1", "no class with readings"),
        ("bus.zzzzzzzz", "nothing like it among 66"),
        ("", "has no class"),
        ("x" * 100_000, "far longer"),
    ],
)
def test_an_unknown_element_is_named_with_the_closest_known_one(
    element: str, advice: str, frame: pd.DataFrame, grid: Grid
) -> None:
    bad = series(frame, CUSTOMER, "voltage_v")
    finding = assert_only(edit(frame, bad, element=element), bad, grid, Trouble.ELEMENT)
    assert len(finding.examples) == 1 and advice in finding.examples[0]
    assert f"row {finding.rows[0]} and 23 more" in finding.examples[0]
    assert len(finding.examples[0]) < 300


def test_a_name_of_several_classes_gets_them_all() -> None:
    grid = bundled_grid("ieee13")  # bus 634 and, here, a customer called so
    grid = grid.replace_tables(consumer=grid.consumer.assign(name=["634", *grid.consumer["name"][1:]]))
    frame = pd.DataFrame([[DAY, "634", 1, "A", "voltage_v", 270.0]], columns=list(plausible_frame(grid).columns))
    _, report = read(frame, grid)
    assert "bus.634 or consumer.634" in report.of(Trouble.ELEMENT)[0].examples[0]


@pytest.mark.parametrize(
    ("quantity", "advice"),
    [
        ("voltage", "did you mean voltage_v?"),
        ("voltage_kv", "did you mean voltage_v?"),
        ("P", "did you mean active_power_kw?"),
        ("kWh", "did you mean active_power_kw?"),
        ("temperature_c", "'temperature_c'"),
        ("current_a", "current_a of a consumer, which has voltage_v, active_power_kw, reactive_power_kvar"),
        ("tap_pu", "tap_pu of a consumer"),
    ],
)
def test_an_unknown_or_misplaced_quantity(quantity: str, advice: str, frame: pd.DataFrame, grid: Grid) -> None:
    bad = series(frame, CUSTOMER, "voltage_v")
    finding = assert_only(edit(frame, bad, quantity=quantity), bad, grid, Trouble.QUANTITY)
    assert advice in finding.examples[0]


@pytest.mark.parametrize(
    ("element", "quantity", "terminal", "advice"),
    [
        ("transformer.dt_a", "current_a", 3, "windings 1 to 2"),
        ("transformer.dt_a", "current_a", "", "windings 1 to 2"),
        ("transformer.dt_a", "current_a", "secondary", "'secondary'"),
        ("line.ring_3", "current_a", 2, "line.ring_3: '2'"),
        (CUSTOMER, "voltage_v", 2, "'2'"),
    ],
)
def test_a_wrong_terminal(
    element: str, quantity: str, terminal: object, advice: str, frame: pd.DataFrame, grid: Grid
) -> None:
    bad = series(frame, element, quantity)
    finding = assert_only(edit(frame, bad, terminal=terminal), bad, grid, Trouble.TERMINAL)
    assert advice in finding.examples[0]


def test_a_tap_that_no_regulator_moves() -> None:
    grid = bundled_grid("us_suburb")
    frame = plausible_frame(grid)
    bad = series(frame, "transformer.vr_a", "tap_pu")
    finding = assert_only(edit(frame, bad, terminal=1), bad, grid, Trouble.TERMINAL)
    assert "only of 2" in finding.examples[0]


@pytest.mark.parametrize(
    ("feeder", "element", "quantity", "phase", "advice"),
    [
        ("ieee13", "bus.645", "voltage_v", "A", "it has B, C"),
        ("ieee13", "line.west_645", "current_a", "A", "it has B, C"),
        ("us_suburb", "source.source", "current_a", "", "it has A, B, C"),
        ("us_suburb", "transformer.vr_a", "current_a", "B", "it has A"),
        ("us_suburb", "consumer.h20_z", "voltage_v", "A", "leave it empty"),
        ("us_suburb", "bus.h10", "voltage_v", "N", "it has A, B"),
        ("us_suburb", "bus.h10", "voltage_v", "1", "it has A, B"),
        ("us_suburb", "bus.h10", "angle_deg", "", "it has A, B"),
    ],
)
def test_an_impossible_phase(feeder: str, element: str, quantity: str, phase: str, advice: str) -> None:
    grid = bundled_grid(feeder)
    frame = plausible_frame(grid)
    bad = series(frame, element, quantity)
    finding = assert_only(edit(frame, bad, phase=phase), bad, grid, Trouble.PHASE)
    assert finding.examples[0].endswith(advice) and element in finding.examples[0]


def test_a_voltage_at_a_transformer_has_the_phases_of_the_transformer() -> None:
    """The unit of a bank does not see the bank's other phases, though its bus has them."""
    grid = bundled_grid("us_suburb")
    row = [DAY, "transformer.vr_a", 1, "B", "voltage_v", 7200.0]
    _, report = read(pd.DataFrame([row], columns=list(plausible_frame(grid).columns)), grid)
    assert report.of(Trouble.PHASE)[0].examples[0].endswith("it has A")


def test_an_angle_where_the_phase_is_in_question(frame: pd.DataFrame, grid: Grid) -> None:
    bad = series(frame, "bus.svc_015", "voltage_v")
    for phase in ("", "A"):
        finding = assert_only(
            edit(frame, bad, quantity="angle_deg", phase=phase, value=-119.0), bad, grid, Trouble.HIDDEN
        )
        assert "bus.svc_015" in finding.examples[0] and "no angle" in finding.says


# ---- values --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["", "n/a", "NaN", "inf", "-Infinity", "1e39", "2,31", "0x10", "1_0", None, True])
def test_a_value_that_is_no_number(value: object, frame: pd.DataFrame, grid: Grid) -> None:
    bad = series(frame, CUSTOMER, "active_power_kw")
    finding = assert_only(edit(frame, bad, value=value), bad, grid, Trouble.VALUE)
    assert ("decimal point" in finding.examples[0]) == (value == "2,31")


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_number_that_is_none(value: float, frame: pd.DataFrame, grid: Grid) -> None:
    bad = series(frame, CUSTOMER, "active_power_kw")
    changed = frame.assign(value=frame["value"].where(~bad, value))
    assert changed["value"].dtype == np.float32
    assert_only(changed, bad, grid, Trouble.VALUE)


def test_negative_magnitudes_are_refused_and_negative_powers_are_not(frame: pd.DataFrame, grid: Grid) -> None:
    for element, quantity in ((CUSTOMER, "voltage_v"), ("line.ring_3", "current_a")):
        bad = series(frame, element, quantity)
        finding = assert_only(edit(frame, bad, value=lambda old: -old), bad, grid, Trouble.VALUE)
        assert "not negative" in finding.says
    exported = edit(frame, series(frame, CUSTOMER, "active_power_kw"), value=lambda old: -old)
    assert read(exported, grid)[1].used == len(frame)


# ---- units ---------------------------------------------------------------------------------------------------------


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


# ---- rows ----------------------------------------------------------------------------------------------------------


def test_repeated_rows_are_used_once(frame: pd.DataFrame, grid: Grid) -> None:
    both = pd.concat([frame, frame.iloc[100:130]], ignore_index=True)
    readings, report = read(both, grid)
    assert_same(readings, plausible(grid))
    np.testing.assert_array_equal(report.of(Trouble.REPEATED)[0].rows, np.arange(len(frame), len(frame) + 30))


def test_of_conflicting_rows_none_is_used(frame: pd.DataFrame, grid: Grid) -> None:
    again = frame.iloc[100:102].assign(value=lambda rows: rows["value"] * 1.01)
    both = pd.concat([frame, again, again.iloc[:1]], ignore_index=True)
    n = len(frame)
    finding = assert_only(both, pd.Series(both.index.isin([100, 101, n, n + 1, n + 2])), grid, Trouble.CONFLICT)
    assert "row 100 and 2 more" in finding.examples[0] and "row 101 and 1 more" in finding.examples[1]


def test_a_transformer_and_its_bus_are_one_place(frame: pd.DataFrame, grid: Grid) -> None:
    same = frame[series(frame, "bus.sub_a", "voltage_v")].assign(element="transformer.dt_a", terminal=2)
    _, report = read(pd.concat([frame, same], ignore_index=True), grid)
    assert len(report.of(Trouble.REPEATED)[0].rows) == len(same)


def test_gaps_are_counted_per_element_and_are_no_error(frame: pd.DataFrame, grid: Grid) -> None:
    hour = frame["time"].dt.hour
    gone = series(frame, CUSTOMER, "voltage_v") & hour.isin([3, 4, 9])
    gone |= series(frame, "bus.sub_a", "voltage_v", "B") & (hour == 3)
    _, report = read(frame[~gone], grid)
    told = [(gap.element, gap.quantity, gap.hours) for gap in report.gaps]
    assert told == [(CUSTOMER, "voltage_v", 3), ("bus.sub_a", "voltage_v", 1)]
    assert not report.findings and report.used == (~gone).sum()


def test_coverage_counts_elements(frame: pd.DataFrame, grid: Grid) -> None:
    few = frame["element"].isin([f"consumer.{name}" for name in grid.consumer["name"][:12]])
    _, report = read(frame[few & (frame["quantity"] == "voltage_v")], grid)
    assert "12 of 49 customers have voltage" in {str(coverage) for coverage in report.coverage}
    assert "12 of 49 customers have voltage" in " ".join(str(report).split())


def test_extra_columns_are_named_and_missing_ones_are_an_error(frame: pd.DataFrame, grid: Grid) -> None:
    readings, report = read(frame.assign(meter="x", Note=1), grid)
    assert_same(readings, plausible(grid))
    assert "'meter', 'Note'" in report.of(Trouble.COLUMN)[0].says
    with pytest.raises(FeederError, match="missing columns: phase, value"):
        readings_from_frame(frame.drop(columns=["phase", "value"]), grid)
    with pytest.raises(FeederError, match="twice: value"):
        readings_from_frame(frame.assign(Value=1), grid)
    with pytest.raises(FeederError, match="no rows"):
        readings_from_frame(frame.iloc[:0], grid)


def test_several_troubles_in_one_row_are_all_told(frame: pd.DataFrame, grid: Grid) -> None:
    one = pd.Series(np.arange(len(frame)) == 7)
    _, report = read(edit(frame, one, element="bus.nowhere", quantity="weight", value="heavy", time="yesterday"), grid)
    for trouble in (Trouble.ELEMENT, Trouble.QUANTITY, Trouble.VALUE, Trouble.TIME):
        assert report.of(trouble)[0].rows.tolist() == [7]


# ---- hours ---------------------------------------------------------------------------------------------------------


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


def test_times_with_and_without_offset_do_not_mix(grid: Grid) -> None:
    frame = customer_day([*pd.date_range("2026-01-01", periods=23, freq="h").astype(str), "2026-01-01T23:00Z"])
    finding = assert_only(frame, pd.Series(np.arange(len(frame)) % 24 == 23), grid, Trouble.TIME)
    assert "give all or none" in finding.says


# ---- files ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def csv_lines(frame: pd.DataFrame, tmp_path: Path) -> list[str]:
    """Header and the rows of 24 hours of one customer, as lines of a CSV file."""
    write_readings(frame[frame["element"] == CUSTOMER], tmp_path / "good.csv")
    return (tmp_path / "good.csv").read_text(encoding="utf-8").splitlines()


def test_row_numbers_are_those_of_the_file(csv_lines: list[str], tmp_path: Path, grid: Grid) -> None:
    lines = [*csv_lines[:5], "", "a,b", csv_lines[5].replace("cust_035", "cust_999"), "1,2,3,4,5,6,7", *csv_lines[6:]]
    (tmp_path / "day.csv").write_text("\n".join([*lines, "", ""]))
    readings, report = read_readings(tmp_path / "day.csv", grid)
    assert_accounted(readings, report)
    assert report.of(Trouble.MALFORMED)[0].rows.tolist() == [7, 9]
    assert "row 7: 2 columns, not 6: 'a,b'" in report.of(Trouble.MALFORMED)[0].examples
    assert report.of(Trouble.ELEMENT)[0].rows.tolist() == [8]
    assert report.used == len(csv_lines) - 2


@pytest.mark.parametrize("delimiter", [";", "\t"])
@pytest.mark.parametrize("ending", ["\r\n", "\n", "\r"])
def test_what_spreadsheets_write(delimiter: str, ending: str, csv_lines: list[str], tmp_path: Path, grid: Grid) -> None:
    header, *rows = csv_lines
    text = ending.join([header.title(), *(",".join(f'"{cell}"' for cell in row.split(",")) for row in rows)])
    (tmp_path / "day.CSV").write_bytes(b"\xef\xbb\xbf" + text.replace(",", delimiter).encode())
    readings, report = read_readings(tmp_path / "day.CSV", grid)
    assert report.used == len(rows) and not report.findings
    assert_same(readings, read_readings(tmp_path / "good.csv", grid)[0])


def test_a_quotation_mark_that_is_not_closed_is_told(csv_lines: list[str], tmp_path: Path, grid: Grid) -> None:
    lines = [f"{csv_lines[0]},note", *(f"{line},fine" for line in csv_lines[1:])]
    lines[10] = lines[10].replace("fine", '"fine')
    (tmp_path / "day.csv").write_text("\n".join(lines))
    _, report = read_readings(tmp_path / "day.csv", grid)
    assert report.used == 10
    assert f"{len(lines) - 11} lines are within quotation marks" in report.of(Trouble.MALFORMED)[0].says
    lines[10] = lines[10].replace('"fine', "fine").replace("consumer", '"consumer')
    (tmp_path / "day.csv").write_text("\n".join(lines))
    _, report = read_readings(tmp_path / "day.csv", grid)
    assert report.used < 10 and report.of(Trouble.MALFORMED)


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("day.csv", b"", "empty"),
        ("day.csv", b"time,element,terminal,phase,quantity,value\n", "no rows"),
        ("day.csv", b"time,element,terminal,phase,quantity,value", "no rows"),
        ("day.csv", b"\n\n\n", "missing columns"),
        ("day.csv", b"when,what\n1,2\n", "missing columns: time, element, .*; it has 'when', 'what'"),
        ("day.csv", "time,element".encode("utf-16"), "line 1 is not UTF-8"),
        ("day.csv", b"time,element,terminal,phase,quantity,value\n1,\xe9,1,A,x,1\n", "line 2 is not UTF-8"),
        ("day.parquet", b"", "not a readable parquet file"),
        ("day.parquet", b"PAR1 no, it is not PAR1", "not a readable parquet file"),
        ("day.txt", b"time", "from .csv or .parquet"),
    ],
)
def test_a_file_that_cannot_be_used_is_an_error_that_names_it(
    name: str, content: bytes, says: str, tmp_path: Path, grid: Grid
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(FeederError, match=f"{name}: .*{says}"):
        read_readings(tmp_path / name, grid)


def test_a_file_that_is_not_there(tmp_path: Path, grid: Grid) -> None:
    with pytest.raises(FeederError, match=r"none\.csv: cannot be read \(No such file"):
        read_readings(tmp_path / "none.csv", grid)
    (tmp_path / "folder.parquet").mkdir()
    with pytest.raises(FeederError, match=r"folder\.parquet: "):
        read_readings(tmp_path / "folder.parquet", grid)


def test_parquet_with_odd_types(frame: pd.DataFrame, tmp_path: Path, grid: Grid) -> None:
    """Categories, 64-bit and missing numbers, time zones, lists: as other tools write them."""
    odd = frame.assign(
        element=frame["element"].astype("category"),
        terminal=frame["terminal"].astype("Int64"),
        phase=frame["phase"].where(frame["phase"] != "", None),
        value=frame["value"].astype("float64"),
        time=frame["time"].dt.tz_localize("Asia/Kolkata"),
        extra=[[1, 2]] * len(frame),
    )
    odd.to_parquet(tmp_path / "day.parquet")
    readings, report = read_readings(tmp_path / "day.parquet", grid)
    assert_same(readings, plausible(grid))
    assert "'extra'" in report.of(Trouble.COLUMN)[0].says
    frame.assign(element=[[1, 2]] * len(frame)).to_parquet(tmp_path / "lists.parquet")
    _, report = read_readings(tmp_path / "lists.parquet", grid)
    assert report.used == 0 and len(report.of(Trouble.ELEMENT)[0].rows) == len(frame)


# ---- anything ------------------------------------------------------------------------------------------------------


TOKENS = [
    b"", b",", b";", b'"', b"\n", b"\r\n", b"\x00", b"\xff", b"\xef\xbb\xbf", b"NaN", b"-1e999", b"0.23", b"A", b"?",
    b"bus.", b"2026-01-31T02:00:00+01:00", b"2026-01-31 02:15:00", b"9999-12-31", "٢".encode(), b"voltage_v", b"'",
    b"consumer.cust_004", b"transformer.dt_a", b"angle_deg", b"time", b"1" * 400, b"\t", b"=1+1", b"[red]x[/red]",
]  # fmt: skip
EDIT = st.tuples(st.sampled_from(["insert", "delete", "replace", "repeat"]), st.floats(0, 1), st.integers(0, 60),
                 st.sampled_from(TOKENS) | st.binary(max_size=6))  # fmt: skip


@pytest.fixture(scope="module")
def small_csv(tmp_path_factory: pytest.TempPathFactory, frame: pd.DataFrame) -> tuple[bytes, Path]:
    """A few hours of a few elements of every class."""
    path = tmp_path_factory.mktemp("fuzz") / "day.csv"
    few = frame["element"].isin([CUSTOMER, "bus.sub_a", "bus.svc_015", "line.ring_3", "transformer.dt_a"])
    write_readings(frame[few & (frame["time"].dt.hour < 3)], path)
    return path.read_bytes(), path


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(edits=st.lists(EDIT, min_size=1, max_size=6), start=st.sampled_from([None, DAY, "2026-01-31 02:00"]))
def test_no_corruption_of_a_file_ends_in_a_traceback(
    edits: list[tuple[str, float, int, bytes]], start: str | None, small_csv: tuple[bytes, Path], grid: Grid
) -> None:
    content, path = small_csv
    for what, where, length, token in edits:
        at = int(where * len(content))
        before, cut, after = content[:at], content[at : at + length], content[at + length :]
        content = {
            "insert": before + token + cut + after,
            "delete": before + after,
            "replace": before + token + after,
            "repeat": before + cut * 3 + after,
        }[what]
    path.write_bytes(content)
    try:
        readings, report = read_readings(path, grid, start)
    except FeederError as error:
        assert str(error)
    else:
        assert_accounted(readings, report)


CELL = st.none() | st.integers() | st.floats() | st.text(max_size=8) | st.booleans() | st.dates() | st.datetimes()


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_no_frame_ends_in_a_traceback(data: st.DataObject, frame: pd.DataFrame, grid: Grid) -> None:
    few = frame.iloc[:: len(frame) // 40].astype(object)
    for _ in range(data.draw(st.integers(1, 12))):
        row, column = data.draw(st.integers(0, len(few) - 1)), data.draw(st.integers(0, 5))
        few.iat[row, column] = data.draw(CELL)
    try:
        readings, report = readings_from_frame(few, grid)
    except FeederError as error:
        assert str(error)
    else:
        assert_accounted(readings, report)
