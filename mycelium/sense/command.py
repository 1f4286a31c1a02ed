"""``mycelium readings``: look at a file of readings before using it."""

from __future__ import annotations

import json as json_module
import sys
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter
from rich.console import Console

from mycelium.errors import FeederError
from mycelium.feeders import FEEDERS, feeder_path

app = App(name="readings", help="Meter readings of a day: check a file, or see what one looks like.")

Root = Annotated[Path | None, Parameter(help="Folder that bounds what the model may read; else the master's own.")]
_EXAMPLE_DAY = "2026-01-31"


@app.command
def check(
    feeder: str,
    readings: Path,
    *,
    root: Root = None,
    start: str | None = None,
    json: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Say which rows of a file of readings can be used, what they cover, and what is wrong with the others.

    Args:
        feeder: Main file of the OpenDSS model, or the name of a bundled feeder.
        readings: A .csv or .parquet file with the columns time, element, terminal, phase, quantity, value.
        start: First of the 24 hours, such as 2026-01-31 or "2026-01-31 06:00"; needed where the file spans more.
        json: Print one JSON object instead of tables.
    """
    from mycelium.grid.read_opendss import read_opendss
    from mycelium.sense.frame import read_readings

    grid, *_ = read_opendss(_master(feeder), root)
    _, report = read_readings(readings, grid, start)
    if json:
        print(json_module.dumps(report.as_dict(), indent=1, allow_nan=False))
    else:
        Console().print(report)
    if not report.used:
        sys.exit(1)


@app.command
def template(feeder: str, out: Path, *, root: Root = None) -> None:
    """Write a small file of readings to see the format: a few elements of the feeder, every value a nominal one.

    Args:
        feeder: Main file of the OpenDSS model, or the name of a bundled feeder.
        out: A .csv or .parquet file that does not exist yet.
    """
    from mycelium.grid.read_opendss import read_opendss
    from mycelium.sense.frame import readings_to_frame, write_readings
    from mycelium.sense.frame_example import example_readings

    if out.exists():
        raise FeederError(f"{out}: there is such a file already; name another one")
    grid, *_ = read_opendss(_master(feeder), root)
    frame = readings_to_frame(example_readings(grid), grid, _EXAMPLE_DAY)
    write_readings(frame, out)
    Console(soft_wrap=True).print(f"{out}: {len(frame)} rows with made-up values at a few elements of {grid.name}")


def _master(feeder: str) -> Path:
    """A bundled feeder's main file, unless there is a file of that name."""
    return feeder_path(feeder) if feeder in FEEDERS and not Path(feeder).is_file() else Path(feeder)
