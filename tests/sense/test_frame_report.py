"""Bad readings: every row is used or listed, with its number and what to do."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from mycelium.errors import FeederError
from mycelium.grid.grid import Grid
from mycelium.sense.frame import readings_from_frame
from mycelium.sense.readings_report import Trouble
from tests.sense.accounted import assert_only, read
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
        ("voltage_kv", "did you mean voltage_v? Then give V: multiply by 1000"),
        ("voltage_pu", "did you mean voltage_v? Then multiply by the base"),
        ("active_power_mw", "did you mean active_power_kw? Then give kW: multiply by 1000"),
        ("active_power_w", "did you mean active_power_kw? Then give kW: divide by 1000"),
        ("reactive_power_Mvar", "did you mean reactive_power_kvar? Then give kvar: multiply by 1000"),
        ("Wh", "did you mean active_power_kw? Then give mean kW: of each hour, sum the energies, and divide by 1000"),
        ("angle_rad", "did you mean angle_deg? Then give degrees: multiply by 57.29578"),
        ("current_kA", "did you mean current_a? Then give A: multiply by 1000"),
        ("P", "did you mean active_power_kw?"),
        ("kWh", "did you mean active_power_kw? Then give mean kW: of each hour, sum the energies"),
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


@pytest.mark.parametrize(
    ("value", "advice"),
    [
        ("2,31", ": write a decimal point"),
        ("0,231", ": write a decimal point"),
        ("6,350", ": thousands or decimals? write 6350 or 6.350"),
        ("1,236,350.5", ": write no separators of thousands, and a decimal point"),
        ("6.350,25", ": write no separators of thousands, and a decimal point"),
        ("\uff12\uff13\uff10", ": write digits and signs of plain text (0 to 9, -), and nothing else"),
        ("230 V", "'230 V'"),
        (None, "it is empty"),
    ],
)
def test_how_a_number_would_be_written(value: str | None, advice: str, frame: pd.DataFrame, grid: Grid) -> None:
    bad = series(frame, CUSTOMER, "active_power_kw")
    finding = assert_only(edit(frame, bad, value=value), bad, grid, Trouble.VALUE)
    assert finding.examples[0].endswith(advice)


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


def test_a_conflict_of_two_elements_names_both(frame: pd.DataFrame, grid: Grid) -> None:
    same = frame[series(frame, "bus.sub_a", "voltage_v")].assign(element="transformer.dt_a", terminal=2)
    same["value"] += 1
    _, report = read(pd.concat([frame, same], ignore_index=True), grid)
    finding = report.of(Trouble.CONFLICT)[0]
    assert len(finding.rows) == 2 * len(same)
    assert "bus.sub_a A voltage_v" in finding.examples[0]
    assert "(the same place as transformer.dt_a 2)" in finding.examples[0]


def test_a_missing_phase_is_not_printed(frame: pd.DataFrame, grid: Grid) -> None:
    gaps = frame.assign(phase=frame["phase"].where(frame["phase"] != "", None))
    odd = series(frame, CUSTOMER, "voltage_v")
    twice = pd.concat([gaps, gaps[odd].assign(value=7.0)], ignore_index=True)
    _, report = read(twice, grid)
    assert "nan" not in str(report) and f"{CUSTOMER} voltage_v 2026" in report.of(Trouble.CONFLICT)[0].examples[0]


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
