"""What holds of every report on readings: each row became a reading or is listed."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd

from mycelium.grid.grid import Grid
from mycelium.sense.frame import readings_from_frame
from mycelium.sense.readings import Readings
from mycelium.sense.readings_report import Finding, ReadingsReport, Trouble
from tests.sense.plausible import assert_same


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
