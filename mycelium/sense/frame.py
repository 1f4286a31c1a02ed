"""Readings as a tidy frame, and back: one row per value, in Parquet or CSV.

    grid, *_ = read_opendss(feeder_path("lv_town"))
    readings, report = read_readings("yesterday.csv", grid)
    print(report)

Columns are ``time, element, terminal, phase, quantity, value``; docs/readings.md tells of each.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import numpy as np
import pandas as pd

from mycelium.errors import FeederError
from mycelium.grid.grid import Grid
from mycelium.schema import CHANNELS, HOURS, PHASES
from mycelium.sense.frame_check import Rows, read_values, usable
from mycelium.sense.frame_file import Table, read_table, table_of_frame
from mycelium.sense.frame_hours import Hours, parse_start
from mycelium.sense.frame_names import place_rows
from mycelium.sense.frame_places import Places
from mycelium.sense.readings import Readings
from mycelium.sense.readings_report import Finding, ReadingsReport, Trouble, coverage, element_names, gaps, told


def readings_to_frame(readings: Readings, grid: Grid, start: str | datetime) -> pd.DataFrame:
    """All readings as a tidy frame, hour by hour.

    Args:
        readings: One day.
        grid: The network they were taken in.
        start: First moment of the first hour, a whole hour such as '2026-01-31'.
    """
    begin = pd.Timestamp(parse_start(start).text[0])
    parts = []
    for key, channel in CHANNELS.items():
        hour, row, slot = np.nonzero(readings.seen[key])
        terminal = np.ones(len(row), np.int8)
        if channel.table == "winding":
            terminal = grid.winding["number"].to_numpy()[row]
        phase = np.array([*PHASES, ""] if channel.slots > 1 else [""], dtype=object)
        parts.append(
            pd.DataFrame(
                {
                    "time": hour,
                    "element": pd.array(element_names(grid, channel.table)[row], dtype="str"),
                    "terminal": terminal,
                    "phase": pd.array(phase[slot], dtype="str"),
                    "quantity": pd.array(np.full(len(row), channel.quantity.value, dtype=object), dtype="str"),
                    "value": readings.value[key][hour, row, slot],
                }
            )
        )
    frame = pd.concat(parts, ignore_index=True).sort_values("time", kind="stable", ignore_index=True)
    times = pd.date_range(begin, periods=HOURS, freq="h", unit="us")
    return frame.assign(time=times[frame["time"].to_numpy()])


def write_readings(frame: pd.DataFrame, path: Path) -> None:
    """Write a frame of readings as .parquet or .csv; a killed write leaves no file of that name."""
    path = Path(path)
    part = path.with_name(path.name + ".part")
    if path.suffix.lower() == ".parquet":
        frame.to_parquet(part, index=False)
    elif path.suffix.lower() == ".csv":
        frame.to_csv(part, index=False)
    else:
        raise FeederError(f"{path}: readings are written as .parquet or .csv, not '{path.suffix}'")
    part.replace(path)


def read_readings(path: Path | str, grid: Grid, start: str | datetime | None = None) -> tuple[Readings, ReadingsReport]:
    """Readings of a .parquet or .csv file, and what was made of its rows.

    Args:
        path: The file.
        grid: The network that its elements are of.
        start: First of the 24 hours; needed where the file spans more.

    Raises:
        FeederError: The file as a whole cannot be used.
    """
    return _readings(read_table(Path(path)), grid, start)


def readings_from_frame(
    frame: pd.DataFrame, grid: Grid, start: str | datetime | None = None
) -> tuple[Readings, ReadingsReport]:
    """Readings of a tidy frame, and what was made of its rows; as ``read_readings``."""
    return _readings(table_of_frame(frame), grid, start)


def _readings(table: Table, grid: Grid, start: str | datetime | None) -> tuple[Readings, ReadingsReport]:
    places = Places.of(grid)
    hours = Hours.of(table.columns["time"], table.row, start, table.source)
    place, of_names = place_rows(table.columns, table.row, grid, places)
    value, of_values = read_values(table)
    item = np.flatnonzero((hours.hour >= 0) & (place >= 0) & np.isfinite(value))
    rows, of_rows = usable(Rows(table, item, hours.hour[item], place[item], value[item]), hours, places, grid)
    readings = _fill(rows, places)
    findings = [*_of_table(table), *hours.findings, *of_names, *of_values, *of_rows]
    report = ReadingsReport(
        source=table.source,
        rows_are=table.rows_are,
        rows=len(table.row) + len(table.malformed),
        used=len(rows.item),
        start=hours.start,
        hours_seen=len(np.unique(rows.hour)),
        coverage=coverage(readings, places.possible),
        findings=tuple(sorted(findings, key=lambda finding: finding.used)),
        gaps=gaps(readings, grid),
    )
    return readings, report


def _fill(rows: Rows, places: Places) -> Readings:
    at = rows.place * HOURS + rows.hour
    order = np.argsort(at)
    return Readings(places.layout, at[order].astype(np.int32), rows.value[order].astype(np.float32))


def _of_table(table: Table) -> list[Finding]:
    """What is wrong with the file itself."""
    found = []
    if len(table.malformed):
        says = "expected as many columns as the header has"
        found.append(Finding(Trouble.MALFORMED, "", table.malformed, says, table.examples))
    if table.swallowed:
        says = f"{table.swallowed} lines are within quotation marks, as parts of other rows: one may not be closed"
        found.append(Finding(Trouble.MALFORMED, "", np.zeros(0, np.int64), says, used=True))
    if table.extra:
        says = f"not one of ours, and ignored: {', '.join(told(name) for name in table.extra[:20])}"
        found.append(Finding(Trouble.COLUMN, "", np.zeros(0, np.int64), says, used=True))
    return found
