"""Values of a frame's rows: numbers or not, one per place and hour or several, in a unit that can be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pandas as pd

from mycelium.grid.grid import Grid
from mycelium.schema import CHANNELS, HOURS, Quantity
from mycelium.sense.frame_file import Table
from mycelium.sense.frame_hours import Hours, put_back
from mycelium.sense.frame_places import Places
from mycelium.sense.frame_power_units import power_units
from mycelium.sense.frame_units import SAYS, Codes, WrongUnit, angle_units, expected_voltage_v, tap_units, voltage_units
from mycelium.sense.readings_report import Finding, Trouble, gather, told

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]

_MAGNITUDES = (Quantity.VOLTAGE, Quantity.CURRENT)


@dataclass(frozen=True)
class Rows:
    """Rows that name a place and one of the 24 hours.

    Attributes:
        table: The file or frame.
        item: Which of its rows. [row]
        hour: [row]
        place: [row]
        value: [row]
    """

    table: Table
    item: Ints
    hour: Ints
    place: Ints
    value: Floats

    def take(self, which: Flags) -> Rows:
        return Rows(self.table, self.item[which], self.hour[which], self.place[which], self.value[which])

    def finding(
        self, trouble: Trouble, column: str, failed: Flags, cause: Ints, says: str, tell: Callable[[int], str]
    ) -> list[Finding]:
        """A finding about these rows, if there are any."""
        if not failed.any():
            return []
        numbers, examples = gather(failed, cause, self.table.row[self.item], tell)
        return [Finding(trouble, column, numbers, says, examples)]

    def name(self, row: int, *columns: str) -> str:
        """What a row says in these columns, as written."""
        said = (str(self.table.columns[column].iloc[int(self.item[row])]).strip() for column in columns)
        return " ".join(text for text in said if text)


def read_values(table: Table) -> tuple[Floats, list[Finding]]:
    """Numbers of the value column, NaN where there is none [row], and where there is none."""
    column = table.columns["value"]
    dtype = column.dtype
    if pd.api.types.is_numeric_dtype(dtype) and dtype.kind in "iuf":
        value = column.to_numpy(dtype=np.float64, na_value=np.nan)
    else:
        value = pd.to_numeric(column.astype(str), errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
    failed = ~(np.abs(value) <= np.finfo(np.float32).max)
    if not failed.any():
        return value, []
    cause = np.zeros(len(value), np.int64)
    cause[failed] = pd.factorize(column[failed].astype(str))[0]

    def tell(item: int) -> str:
        text = str(column.iloc[item]).strip()
        comma = text.replace(",", "", 1).lstrip("+-").isdigit()
        return f"{told(text)}{': write a decimal point' if comma else ''}" if text else "it is empty"

    numbers, examples = gather(failed, cause, table.row, tell)
    says = "expected a number; leave out rows without a reading"
    return np.where(failed, np.nan, value), [Finding(Trouble.VALUE, "value", numbers, says, examples)]


def usable(rows: Rows, hours: Hours, places: Places, grid: Grid) -> tuple[Rows, list[Finding]]:
    """Rows that become readings, one at most per place and hour, and what is wrong with the others."""
    findings: list[Finding] = []
    magnitude = np.array([channel.quantity in _MAGNITUDES for channel in CHANNELS.values()])
    negative = magnitude[_channel(rows, places)] & (rows.value < 0)
    says = "expected a magnitude, which is not negative"
    findings += rows.finding(
        Trouble.VALUE, "value", negative, rows.place, says, lambda k: f"{rows.name(k, 'element', 'quantity', 'value')}"
    )
    rows, found = _on_the_hour(rows.take(~negative), hours, places)
    findings += found
    rows, found = _once(rows, hours, places)
    findings += found
    rows, found = _in_unit(rows, places, grid)
    return rows, findings + found


def _channel(rows: Rows, places: Places) -> Ints:
    return np.asarray(np.searchsorted(places.layout.start, rows.place, side="right") - 1)


def _on_the_hour(rows: Rows, hours: Hours, places: Places) -> tuple[Rows, list[Finding]]:
    """Without readings off the hour, and those that share an hour with them: which stands for it is not said."""
    off = ~hours.whole[rows.item]
    if not off.any():
        return rows, []
    key = rows.hour * places.layout.count + rows.place
    tainted = np.zeros(HOURS * places.layout.count, bool)
    tainted[key[off]] = True
    failed = tainted[key]
    several = np.bincount(key, minlength=len(tainted))[key] > 1

    def tell(k: int) -> str:
        return rows.name(k, "element", "phase", "quantity", "time")

    says = "expected one reading an hour: average those within an hour (of energies: sum them), at its first moment"
    findings = rows.finding(Trouble.SUB_HOURLY, "time", failed & several, rows.place, says, tell)
    says = "expected times on the hour: the first moment of the hour that the reading stands for"
    findings += rows.finding(Trouble.OFF_HOUR, "time", failed & ~several, rows.place, says, tell)
    return rows.take(~failed), findings


def _once(rows: Rows, hours: Hours, places: Places) -> tuple[Rows, list[Finding]]:
    """The first of rows that say the same; none of those that differ."""
    key = rows.hour * places.layout.count + rows.place
    order = np.arange(len(key))
    first = np.full(HOURS * places.layout.count, -1)
    first[key[::-1]] = order[::-1]
    repeated = order != first[key]
    if not repeated.any():
        return rows, []
    value = rows.value.astype(np.float32)
    clash = np.zeros(len(first), bool)
    clash[key[repeated & (value != value[first[key]])]] = True
    conflict = clash[key]

    def tell(k: int) -> str:
        values = np.unique(rows.value[key == key[k]])
        shown = ", ".join(f"{x:.9g}" for x in values[:3])
        return f"{rows.name(k, 'element', 'phase', 'quantity', 'time')}: {shown}{', ...' if len(values) > 3 else ''}"

    says = "several rows say different values for the same place and hour: which is right is not said, so none is used"
    findings = rows.finding(Trouble.CONFLICT, "value", conflict, key, says, tell)
    findings += rows.finding(
        Trouble.REPEATED, "", repeated & ~conflict, key, "says again what another row says; used once", tell
    )
    clock = put_back(hours, rows.hour, repeated, rows.place)
    return rows.take(~repeated & ~conflict), findings + ([clock] if clock else [])


def _in_unit(rows: Rows, places: Places, grid: Grid) -> tuple[Rows, list[Finding]]:
    """Without readings whose magnitude says that their unit is another one."""
    dense = np.full((HOURS, places.layout.count), np.nan)
    dense[rows.hour, rows.place] = rows.value
    value = places.layout.per_channel(dense)
    wrong = np.concatenate(
        [codes.reshape(HOURS, -1) for codes in _wrong_units(value, grid).values()], axis=1, dtype=np.int8
    )
    code = wrong[rows.hour, rows.place]
    findings = []
    channel = _channel(rows, places)
    series = rows.place - (rows.place - places.layout.start[channel]) % _slots()[channel]
    for unit, says in SAYS.items():
        found = rows.finding(
            Trouble.UNIT, "value", code == unit, series, says, lambda k: rows.name(k, "element", "quantity", "value")
        )
        findings += [replace(finding, used=unit is WrongUnit.OFF_BASE) for finding in found]
    return rows.take((code == WrongUnit.NONE) | (code == WrongUnit.OFF_BASE)), findings


def _slots() -> Ints:
    return np.array([channel.slots for channel in CHANNELS.values()])


def _wrong_units(value: dict[str, Floats], grid: Grid) -> dict[str, Codes]:
    """Wrong units of all readings, in the order of the channels. [hour, row, slot]"""
    found = power_units(grid, value)
    base_v = expected_voltage_v(grid)
    for key, channel in CHANNELS.items():
        if channel.quantity is Quantity.VOLTAGE:
            found[key] = voltage_units(value[key], base_v[channel.table])
        elif channel.quantity is Quantity.ANGLE:
            found[key] = angle_units(value[key], grid)
        elif channel.quantity is Quantity.TAP:
            found[key] = tap_units(value[key])
    return {key: found[key] for key in CHANNELS}
