"""Values of a frame's rows: numbers or not, one per place and hour or several, in a unit that can be."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from mycelium.grid.grid import Grid
from mycelium.schema import CHANNELS, HOURS, Quantity
from mycelium.sense.frame_file import Table, written
from mycelium.sense.frame_hours import Hours, put_back
from mycelium.sense.frame_places import Places
from mycelium.sense.frame_power_units import power_units
from mycelium.sense.frame_scale import scale_notes
from mycelium.sense.frame_units import (
    NOTED,
    SAYS,
    Codes,
    WrongUnit,
    angle_units,
    expected_voltage_v,
    tap_units,
    voltage_units,
)
from mycelium.sense.readings_report import Finding, Trouble, gather, told

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]

_ZONES = (15, 30, 45)  # minutes past the hour in UTC when it strikes in some time zones
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
        said = (written(self.table.columns[column].iloc[int(self.item[row])]) for column in columns)
        return " ".join(text for text in said if text)

    def whole_name(self, row: int) -> str:
        return self.name(row, "element", "phase", "quantity", "time")


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
        text = written(column.iloc[item])
        return f"{told(text)}{_hint(text)}" if text else "it is empty"

    numbers, examples = gather(failed, cause, table.row, tell)
    says = "expected a number; leave out rows without a reading"
    return np.where(failed, np.nan, value), [Finding(Trouble.VALUE, "value", numbers, says, examples)]


def _hint(text: str) -> str:
    """How a number that cannot be read as one would be written."""
    if not text.isascii() and any(sign.isdigit() for sign in text):
        return ": write digits and signs of plain text (0 to 9, -), and nothing else"
    if re.fullmatch(r"[+-]?[1-9][0-9]{0,2},[0-9]{3}", text):
        whole = text.replace(",", "")
        return f": thousands or decimals? write {whole} or {text.replace(',', '.')}"
    if re.fullmatch(r"[+-]?[0-9]*,[0-9]+", text):
        return ": write a decimal point"
    if re.fullmatch(r"[+-]?[0-9]{1,3}(?:[,. '][0-9]{3})+(?:[.,][0-9]*)?", text):
        return ": write no separators of thousands, and a decimal point"
    return ""


def usable(rows: Rows, hours: Hours, places: Places, grid: Grid) -> tuple[Rows, list[Finding]]:
    """Rows that become readings, one at most per place and hour, and what is wrong with the others."""
    findings: list[Finding] = []
    magnitude = np.array([channel.quantity in _MAGNITUDES for channel in CHANNELS.values()])
    negative = magnitude[_channel(rows, places)] & (rows.value < 0)
    says = "expected a magnitude, which is not negative"
    findings += rows.finding(
        Trouble.VALUE, "value", negative, rows.place, says, lambda k: f"{rows.name(k, 'element', 'quantity', 'value')}"
    )
    rows, found = _with_time_of_day(rows.take(~negative), hours)
    findings += found
    rows, found = _on_the_hour(rows, hours, places)
    findings += found
    rows, found = _once(rows, hours, places)
    findings += found
    rows, found = _in_unit(rows, places, grid)
    return rows, findings + found


def _channel(rows: Rows, places: Places) -> Ints:
    return np.asarray(np.searchsorted(places.layout.start, rows.place, side="right") - 1)


def _with_time_of_day(rows: Rows, hours: Hours) -> tuple[Rows, list[Finding]]:
    """No rows at all where many a place say a date and no time: which hour they are of is not said."""
    if not hours.dates_only or len(rows.place) <= 2 * len(np.unique(rows.place)):
        return rows, []
    every = np.ones(len(rows.place), bool)
    says = "no time of day, and several rows for one place: say the hour of each, as in 2026-01-31 13:00"
    return rows.take(~every), rows.finding(Trouble.TIME, "time", every, rows.place, says, rows.whole_name)


def _on_the_hour(rows: Rows, hours: Hours, places: Places) -> tuple[Rows, list[Finding]]:
    """Without readings off the hour, and those that share an hour with them: which stands for it is not said."""
    past = hours.past[rows.item]
    off = past != 0
    if not off.any():
        return rows, []
    key = rows.hour * places.layout.count + rows.place
    tainted = np.zeros(HOURS * places.layout.count, bool)
    tainted[key[off]] = True
    failed = tainted[key]
    several = np.bincount(key, minlength=len(tainted))[key] > 1

    says = "expected one reading an hour: average those within an hour (of energies: sum them), at its first moment"
    findings = rows.finding(Trouble.SUB_HOURLY, "time", failed & several, rows.place, says, rows.whole_name)
    says = "expected times on the hour: the first moment of the hour that the reading stands for"
    zones = np.unique(past // 60_000_000)
    if len(zones) == 1 and zones[0] in _ZONES:
        says += (
            f". All are {zones[0]} minutes past, as hours of a half-hour time zone are in UTC: if so, give "
            "local time with its offset, as in 2026-01-31T00:00+05:30"
        )
    findings += rows.finding(Trouble.OFF_HOUR, "time", failed & ~several, rows.place, says, rows.whole_name)
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
        same = np.flatnonzero(key == key[k])
        values = np.unique(rows.value[same])
        shown = ", ".join(f"{x:.9g}" for x in values[:3])
        names = {rows.name(int(row), "element").lower(): rows.name(int(row), "element", "terminal") for row in same}
        names.pop(rows.name(k, "element").lower())
        also = f" (the same place as {', '.join(names.values())})" if names else ""
        return f"{rows.whole_name(k)}{also}: {shown}{', ...' if len(values) > 3 else ''}"

    says = "several rows say different values for the same place and hour: which is right is not said, so none is used"
    findings = rows.finding(Trouble.CONFLICT, "value", conflict, key, says, tell)
    findings += rows.finding(
        Trouble.REPEATED, "", repeated & ~conflict, key, "says again what another row says; used once", tell
    )
    clock = put_back(hours, rows.hour, repeated, rows.place)
    return rows.take(~repeated & ~conflict), findings + ([clock] if clock else [])


def _in_unit(rows: Rows, places: Places, grid: Grid) -> tuple[Rows, list[Finding]]:
    """Without readings whose magnitude says that their unit is another one; and what is odd about the others."""
    dense = np.full((HOURS, places.layout.count), np.nan)
    dense[rows.hour, rows.place] = rows.value
    everything = places.layout.per_channel(dense)
    wrong = _flat(_wrong_units(everything, grid))
    code = wrong[rows.hour, rows.place]
    findings = []
    channel = _channel(rows, places)
    series = rows.place - (rows.place - places.layout.start[channel]) % _slots()[channel]

    def tell(k: int) -> str:
        return rows.name(k, "element", "quantity", "value")

    for unit, says in SAYS.items():
        found = rows.finding(Trouble.UNIT, "value", code == unit, series, says, tell)
        findings += [replace(finding, used=unit in NOTED) for finding in found]
    in_order = places.layout.per_channel(np.where(wrong == WrongUnit.NONE, dense, np.nan))
    for note in scale_notes(in_order, everything, grid):
        which = {key: note.which.get(key, np.zeros(x.shape, bool)) for key, x in in_order.items()}
        odd = _flat(which)[rows.hour, rows.place]
        found = rows.finding(Trouble.SCALE, "value", odd, series, note.says, tell)
        findings += [replace(finding, used=True) for finding in found]
    return rows.take((code == WrongUnit.NONE) | np.isin(code, NOTED)), findings


def _flat(per_channel: Mapping[str, npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """All places, channel after channel. [hour, place]"""
    return np.concatenate([per_channel[key].reshape(HOURS, -1) for key in CHANNELS], axis=1)


def _slots() -> Ints:
    return np.array([channel.slots for channel in CHANNELS.values()])


def _wrong_units(value: dict[str, Floats], grid: Grid) -> dict[str, Codes]:
    """Wrong units of all readings, per channel. [hour, row, slot]"""
    found = power_units(grid, value)
    base_v = expected_voltage_v(grid)
    for key, channel in CHANNELS.items():
        if channel.quantity is Quantity.VOLTAGE:
            found[key] = voltage_units(value[key], base_v[channel.table])
        elif channel.quantity is Quantity.ANGLE:
            found[key] = angle_units(value[key], grid)
        elif channel.quantity is Quantity.TAP:
            found[key] = tap_units(value[key])
    return found
