"""Files of readings: what spreadsheets and other tools write, and files that are broken."""

from __future__ import annotations

import os
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mycelium.errors import FeederError
from mycelium.grid.grid import Grid
from mycelium.sense.frame import read_readings, readings_from_frame, write_readings
from mycelium.sense.readings_report import Trouble
from tests.sense.accounted import assert_accounted
from tests.sense.plausible import DAY, assert_same, bundled_grid, plausible, plausible_frame

FEEDER = "lv_town"
CUSTOMER = "consumer.cust_035"


@pytest.fixture(scope="module")
def grid() -> Grid:
    return bundled_grid(FEEDER)


@pytest.fixture(scope="module")
def frame(grid: Grid) -> pd.DataFrame:
    """A whole day in good order."""
    return plausible_frame(grid)


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
        ("day.csv", "time,element\n".encode("utf-16-le"), "line 1 is not UTF-8 text but UTF-16"),
        ("day.csv", "time,element\n".encode("utf-16-be"), "line 1 is not UTF-8 text but UTF-16"),
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


@pytest.mark.parametrize("zone", [None, "Europe/Berlin"])
def test_frames_that_pyarrow_holds(zone: str | None, frame: pd.DataFrame, tmp_path: Path, grid: Grid) -> None:
    gaps = frame.assign(time=frame["time"].dt.tz_localize(zone), phase=frame["phase"].where(frame["phase"] != "", None))
    gaps.to_parquet(tmp_path / "day.parquet")
    held = pd.read_parquet(tmp_path / "day.parquet", dtype_backend="pyarrow")
    assert all("pyarrow" in str(dtype) for dtype in held.dtypes)
    readings, report = readings_from_frame(held, grid)
    assert_same(readings, plausible(grid))
    assert not report.findings
    exact = pd.ArrowDtype(pa.decimal128(20, 6))
    assert readings_from_frame(held.assign(value=held["value"].astype(exact)), grid)[1].used == len(frame)
    held.loc[3, "value"] = None
    _, report = readings_from_frame(held, grid)
    assert report.of(Trouble.VALUE)[0].examples == ("row 3: it is empty",)
    lists = pd.Series([[1]] * len(frame), dtype=pd.ArrowDtype(pa.list_(pa.int64())))
    readings, report = readings_from_frame(held.assign(element=lists), grid)
    assert_accounted(readings, report)
    assert report.used == 0


@pytest.mark.parametrize("name", ["fifo.csv", "fifo.parquet"])
def test_a_pipe_is_refused_and_not_waited_for(name: str, tmp_path: Path, grid: Grid) -> None:
    os.mkfifo(tmp_path / name)
    with pytest.raises(FeederError, match=f"{name}: it is no regular file"):
        read_readings(tmp_path / name, grid)


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
