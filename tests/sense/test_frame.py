"""Readings as a tidy frame, and back: nothing changes on the way, and nothing gets in that must not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mycelium.errors import FeederError
from mycelium.feeders import FEEDERS
from mycelium.schema import CHANNELS, HOURS, OWN
from mycelium.sense.frame import read_readings, readings_from_frame, readings_to_frame, write_readings
from mycelium.sense.frame_example import example_readings
from mycelium.sense.frame_places import possible_readings
from mycelium.sense.policies import POLICIES
from mycelium.sense.readings import Readings
from mycelium.sense.readings_report import Trouble
from mycelium.sense.sense import sense
from mycelium.simulate.cases import CaseMix
from tests.sense.networks import QUIET, bundled, day_of, meters_of
from tests.sense.plausible import DAY, assert_same, bundled_grid, edit, plausible, plausible_frame, series

COLUMNS = ["time", "element", "terminal", "phase", "quantity", "value"]


# ---- round trips ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("share", [1.0, 0.3])
@pytest.mark.parametrize("feeder", FEEDERS)
def test_a_frame_gives_the_same_readings_back(feeder: str, share: float, tmp_path: Path) -> None:
    grid = bundled_grid(feeder)
    readings = plausible(grid, seed=3, share=share)
    if share == 1.0:  # every channel that the feeder can have
        assert all(readings.seen[key].any() == places.any() for key, places in possible_readings(grid).items())
    frame = readings_to_frame(readings, grid, DAY)
    assert list(frame.columns) == COLUMNS
    assert len(frame) == readings.count
    back, report = readings_from_frame(frame, grid)
    assert_same(back, readings)
    assert report.used == report.rows == len(frame)
    for suffix in (".csv", ".parquet"):
        write_readings(frame, tmp_path / f"day{suffix}")
        back, report = read_readings(tmp_path / f"day{suffix}", grid)
        assert_same(back, readings)
        assert report.used == len(frame)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["day.csv", "day.parquet"]


@pytest.mark.parametrize("mix", [QUIET, CaseMix(variant=0.0, fault=1.0), CaseMix(variant=0.0, lose_supply=1.0)])
@pytest.mark.parametrize("feeder", ["ieee13", "ieee37", "lv_town", "us_suburb"])
def test_what_instruments_show_comes_back_and_has_no_wrong_unit(feeder: str, mix: CaseMix) -> None:
    """Faults, outages, noise and losses must not look like wrong units."""
    network = bundled(feeder)
    grid = network.published.grid
    day = day_of(network, mix)
    for policy in POLICIES:
        readings = sense(meters_of(grid, policy), day, 1)
        back, report = readings_from_frame(readings_to_frame(readings, grid, DAY), grid)
        assert_same(back, readings)
        assert not [finding for finding in report.findings if not finding.used], str(report)
        assert not report.of(Trouble.UNIT) and not report.of(Trouble.SCALE), str(report)


TAP = st.floats(0.5, 1.5, width=32).filter(lambda x: x not in (0.5, 1.5))
VOLTS = st.floats(100, 300, width=32)
POWER = st.floats(-40, 40, width=32) | st.floats(-(2.0**-10), 2.0**-10, width=32)


@settings(max_examples=60, deadline=None)
@given(st.lists(TAP, min_size=24, max_size=24), st.lists(VOLTS, min_size=24), st.lists(POWER, min_size=24))
def test_any_float32_survives_csv(tmp_path_factory, taps: list[float], volts: list[float], powers: list[float]) -> None:
    grid = bundled_grid("us_suburb")
    none = Readings.none(grid)
    value, seen = {key: x.copy() for key, x in none.value.items()}, {key: x.copy() for key, x in none.seen.items()}
    row = int(np.flatnonzero(np.abs(grid.consumer["rated_kv"] - 0.24) < 0.01)[0])
    for key, at, values in (
        ("winding.tap_pu", grid.regulated[0], taps),
        ("consumer.voltage_v", row, volts),
        ("consumer.active_power_kw", row, powers),
    ):
        value[key][:, at, 0] = values[:HOURS]
        seen[key][:, at, 0] = True
    readings = Readings.of(value, seen)
    path = tmp_path_factory.mktemp("csv") / "day.csv"
    write_readings(readings_to_frame(readings, grid, DAY), path)
    back, _ = read_readings(path, grid)
    assert_same(back, readings)


def test_the_order_of_rows_and_columns_does_not_matter() -> None:
    grid = bundled_grid("lv_town")
    readings = plausible(grid, share=0.5)
    frame = readings_to_frame(readings, grid, DAY).sample(frac=1.0, random_state=1)[COLUMNS[::-1]]
    back, _ = readings_from_frame(frame, grid)
    assert_same(back, readings)


def test_the_frame_is_not_changed() -> None:
    grid = bundled_grid("ieee13")
    frame = plausible_frame(grid)
    before = frame.copy(deep=True)
    readings_from_frame(frame, grid)
    pd.testing.assert_frame_equal(frame, before)


@pytest.mark.parametrize("feeder", FEEDERS)
def test_the_example_is_small_valid_and_has_what_the_feeder_can_report(feeder: str) -> None:
    grid = bundled_grid(feeder)
    example = example_readings(grid)
    frame = readings_to_frame(example, grid, DAY)
    assert len(frame) < 2000
    back, report = readings_from_frame(frame, grid)
    assert_same(back, example)
    assert not report.findings
    bus_demand = {"bus.active_power_kw", "bus.reactive_power_kvar"}
    for key, places in possible_readings(grid).items():
        assert example.seen[key].any() == (places.any() and key not in bus_demand), key


# ---- names ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("element", "terminal", "phase", "quantity", "channel", "table", "name"),
    [
        ("BUS.SUB_A", "", "b", "Voltage_V", "bus.voltage_v", "bus", "sub_a"),
        ("bus.sub_a", 1, "B", "voltage_v", "bus.voltage_v", "bus", "sub_a"),
        ("Transformer.DT_A", 2, "B", "voltage_v", "bus.voltage_v", "bus", "sub_a"),
        ("transformer.dt_a", "2.0", "B", "angle_deg", "bus.angle_deg", "bus", "sub_a"),
        ("source.source", 1, "B", "voltage_v", "bus.voltage_v", "bus", "source11"),
        ("Vsource.Source", "", "B", "angle_deg", "bus.angle_deg", "bus", "source11"),
        ("vsource.source", "", "B", "active_power_kw", "substation.active_power_kw", "substation", "source"),
        (" Line.Ring_3 ", "1", " B", "current_a ", "line.current_a", "line", "ring_3"),
        ("load.cust_035", "", "", "voltage_v", "consumer.voltage_v", "consumer", "cust_035"),
        ("Consumer.Cust_035", 1, None, "active_power_kw", "consumer.active_power_kw", "consumer", "cust_035"),
    ],
)
def test_a_row_finds_its_place(
    element: str, terminal: object, phase: str | None, quantity: str, channel: str, table: str, name: str
) -> None:
    grid = bundled_grid("lv_town")
    frame = pd.DataFrame([[f"{DAY} 07:00", element, terminal, phase, quantity, 150.0]], columns=COLUMNS)
    readings, report = readings_from_frame(frame, grid)
    assert report.used == 1, str(report)
    hour, row, slot = (int(at[0]) for at in np.nonzero(readings.seen[channel]))
    assert (hour, slot) == (7, 1 if CHANNELS[channel].slots > 1 else 0)
    assert grid.tables[table]["name"].iloc[row] == name


def test_a_winding_is_told_by_its_number() -> None:
    grid = bundled_grid("us_suburb")
    centre_tap = int(np.flatnonzero(grid.transformer["n_windings"] == 3)[0])
    name = grid.transformer["name"].iloc[centre_tap]
    rows = [[DAY, f"transformer.{name}", n, phase, "current_a", float(n)] for n, phase in ((2, "A"), (3, "B"))]
    readings, _ = readings_from_frame(pd.DataFrame(rows, columns=COLUMNS), grid)
    first = int(grid.transformer["first_winding"].iloc[centre_tap])
    assert readings.value["winding.current_a"][0, first + 1, 0] == 2.0  # the legs of the secondary are A and B
    assert readings.value["winding.current_a"][0, first + 2, 1] == 3.0
    assert readings.count == 2


# ---- phases in question --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("feeder", ["lv_town", "lv_fourwire"])
def test_hidden_buses_and_lines_have_a_scalar_only(feeder: str) -> None:
    grid = bundled_grid(feeder)
    hidden = grid.bus["hidden"].to_numpy()
    possible = possible_readings(grid)
    assert hidden.any() and not possible["bus.angle_deg"][hidden].any()
    for quantity in ("voltage_v", "active_power_kw", "reactive_power_kvar"):
        assert not possible[f"bus.{quantity}"][hidden][:, :OWN].any()
        np.testing.assert_array_equal(possible[f"bus.{quantity}"][:, OWN], hidden)
    lines = grid.line["group"].to_numpy() >= 0
    for quantity in ("current_a", "active_power_kw", "reactive_power_kvar"):
        assert not possible[f"line.{quantity}"][lines][:, :OWN].any()
        np.testing.assert_array_equal(possible[f"line.{quantity}"][:, OWN], lines)


@pytest.mark.parametrize("phase", ["A", "B", "C"])
def test_a_phase_at_a_place_in_question_is_refused(phase: str) -> None:
    """A meter export that knows the phase would hand the model the answer."""
    grid = bundled_grid("lv_town")
    frame = plausible_frame(grid)
    secret = frame["element"].isin({f"bus.{name}" for name in grid.bus["name"][grid.bus["hidden"]]})
    secret |= frame["element"].isin({f"line.{name}" for name in grid.line["name"][grid.line["group"] >= 0]})
    readings, report = readings_from_frame(edit(frame, secret, phase=phase), grid)
    honest, _ = readings_from_frame(frame[~secret], grid)
    assert_same(readings, honest)
    (finding,) = report.of(Trouble.HIDDEN)
    np.testing.assert_array_equal(finding.rows, np.flatnonzero(secret))


# ---- three lines ---------------------------------------------------------------------------------------------------


def test_the_three_lines_of_the_documentation_work(tmp_path: Path) -> None:
    text = Path("docs/readings.md").read_text(encoding="utf-8")
    code = text.split("```python\n")[1].split("```")[0]
    statements = [line for line in code.splitlines() if line and not line.startswith(("from", "import"))]
    assert len(statements) == 3
    grid = bundled_grid("lv_town")
    write_readings(readings_to_frame(example_readings(grid), grid, DAY), tmp_path / "readings.csv")
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", f"import sys; sys.path.insert(0, {str(Path.cwd())!r})\n{code}"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "2 of 49 customers have voltage" in done.stdout


@pytest.mark.parametrize("name", ["day.xlsx", "day", "day.csv.gz"])
def test_other_suffixes_are_refused_by_name(name: str, tmp_path: Path) -> None:
    grid = bundled_grid("ieee13")
    with pytest.raises(FeederError, match="parquet"):
        write_readings(plausible_frame(grid), tmp_path / name)
    with pytest.raises(FeederError, match="parquet"):
        read_readings(tmp_path / name, grid)


def test_a_start_that_is_no_whole_hour_is_refused() -> None:
    grid = bundled_grid("ieee13")
    for start in ("noon", "2026-01-31 00:30", "31.01.2026", ""):
        with pytest.raises(FeederError, match="whole hour"):
            readings_to_frame(plausible(grid), grid, start)


def test_a_series_is_where_it_says() -> None:
    """The frame itself says what the array holds."""
    grid = bundled_grid("us_suburb")
    readings = plausible(grid, seed=9)
    frame = readings_to_frame(readings, grid, "2026-03-01T00:00+01:00")
    head = frame[series(frame, "source.source", "active_power_kw", "C")]
    np.testing.assert_array_equal(head["value"], readings.value["substation.active_power_kw"][:, 0, 2])
    assert str(head["time"].iloc[5]) == "2026-03-01 05:00:00+01:00"
