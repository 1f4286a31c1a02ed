"""Voltages, angles and taps in a wrong unit, told by their magnitude against the records: named, never rescaled.

A wrong unit is a matter of a meter or of an export, not of an hour. So a whole day of a meter has to say so, or nearly
all meters of that kind: a fault, an outage or a bad reading must not look like one.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
import numpy.typing as npt

from mycelium.grid.grid import Grid
from mycelium.grid.nominal_angle import nominal_angle, wrap
from mycelium.schema import Connection

Floats = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int8]


class WrongUnit(IntEnum):
    """What a reading seems to be given in."""

    NONE = 0
    KV = 1
    PER_UNIT = 2
    LINE_TO_LINE = 3
    KA = 4
    WATT = 5
    MEGAWATT = 6
    RADIANS = 7
    POSITION = 8
    ABSURD = 9
    OFF_BASE = 10
    TOO_LARGE = 11
    OVER_RATED = 12
    MISFIT = 13
    MAYBE_MEGAWATT = 14
    MAYBE_TOO_LARGE = 15


SAYS = {
    WrongUnit.KV: "it seems to be in kV; give V",
    WrongUnit.PER_UNIT: "it seems to be per unit; give V",
    WrongUnit.LINE_TO_LINE: "it seems to be line-to-line; give V to ground (for a customer, across its terminals)",
    WrongUnit.KA: "it seems to be in kA; give A",
    WrongUnit.WATT: "it seems to be in W or var; give kW or kvar",
    WrongUnit.MEGAWATT: "it seems to be in MW or Mvar; give kW or kvar",
    WrongUnit.RADIANS: "it seems to be in radians; give degrees",
    WrongUnit.POSITION: "it seems to be a tap position; give the ratio, such as 1.00625",
    WrongUnit.ABSURD: "no reading can be that large here",
    WrongUnit.OFF_BASE: "about 1.73 times the records' voltage: these readings are line-to-line, or the records are",
    WrongUnit.TOO_LARGE: "too large hour by hour, for the power beside it or the rating on record; give A, of the "
    "primary side (it may be in mA, or multiplied by a ratio that was in it already)",
    WrongUnit.OVER_RATED: "hour by hour more than 10 times the rating on record: the current or the rating is wrong",
    WrongUnit.MISFIT: "power and current here contradict each other by a factor that is no kilo: one is wrong, as by "
    "the ratio of an instrument transformer; which is not said, so neither is used",
    WrongUnit.MAYBE_MEGAWATT: "it may be in MW or Mvar, as other powers in this file are, or a light load: look; give "
    "kW or kvar",
    WrongUnit.MAYBE_TOO_LARGE: "it may be too large too, as other currents in this file are; nothing beside it tells",
}
# Worth knowing; the readings are used.
NOTED = (WrongUnit.OFF_BASE, WrongUnit.OVER_RATED, WrongUnit.MAYBE_MEGAWATT, WrongUnit.MAYBE_TOO_LARGE)

FEW = 3  # hours that a series needs to speak for itself
MOST = 0.9  # share of series that speaks for all
_TOO_MANY_BASES = 10.0
_TOO_MANY_DEGREES = 360.0
_TAPS = (0.5, 1.5)  # per unit; regulators stay within 0.8 to 1.2
_POSITIONS = 64  # steps that a regulator may have to either side
_FAR_DEG = 40.0  # an angle this far from nominal is not it


def median_over_hours(value: Floats) -> Floats:
    """Median of each series without NaN, the upper one of two; NaN where there is nothing. [row, slot]"""
    ordered = np.sort(value, axis=0)  # NaN last
    middle = np.minimum(np.isfinite(value).sum(axis=0) // 2, len(value) - 1)
    return np.asarray(np.take_along_axis(ordered, middle[None], axis=0)[0])


def largest_of_rows(value: Floats) -> Floats:
    """Largest slot of each row that has any. ``value`` is [row, slot]"""
    largest = np.where(np.isfinite(value), value, -np.inf).max(axis=1, initial=-np.inf)
    return np.asarray(largest[np.isfinite(largest)])


def quantile(value: Floats, share: float) -> float:
    """Quantile of numbers; NaN where there are none."""
    return float(np.quantile(value, share)) if len(value) else float("nan")


def expected_voltage_v(grid: Grid) -> dict[str, Floats]:
    """Voltage that a reading in V is near: of a bus to ground, of a customer across its terminals. [row]"""
    base = grid.bus["base_kv"].to_numpy() * 1e3
    at = {table: base[grid.tables[table]["bus1"].to_numpy()] for table in ("line", "winding", "substation")}
    wye_of_many = (grid.consumer["connection"] == Connection.WYE) & grid.consumer["n_phases"].isin([2, 3])
    rated = grid.consumer["rated_kv"].to_numpy() * 1e3
    return {"bus": base, **at, "consumer": rated / np.where(wye_of_many, np.sqrt(3.0), 1.0)}


def voltage_units(value: Floats, base_v: Floats) -> Codes:
    """Wrong units of voltages. [hour, row, slot]

    Args:
        value: V, NaN where there is no reading. [hour, row, slot]
        base_v: What is expected. [row]
    """
    base = np.where(base_v > 0, base_v, np.nan)[:, None]
    ratio = np.where(value != 0, value, np.nan) / base
    typical, count = median_over_hours(ratio), np.isfinite(ratio).sum(axis=0)
    found = np.zeros(value.shape, np.int8)
    _, level = np.unique(np.round(base_v, 1), return_inverse=True)
    for unit, factor in ((WrongUnit.KV, np.full_like(base, 1e-3)), (WrongUnit.PER_UNIT, 1.0 / base)):
        alone = (count >= FEW) & _within(typical, factor, 1.3)
        near = np.bincount(level, (_within(typical, factor, 2.0) & (count > 0)).sum(axis=1))
        alike = (near > 0) & (near >= MOST * np.bincount(level, (count > 0).sum(axis=1)))
        found[(alone | alike[level][:, None]) & _within(ratio, factor, 2.0) & (found == 0)] = unit
    # Records may be wrong by this too, zone by zone: so nearly all have to say it.
    line = (count > 0) & _within(typical, np.full_like(base, np.sqrt(3.0)), 1.08)
    unit = WrongUnit.LINE_TO_LINE if line.sum() >= MOST * (count > 0).sum() else WrongUnit.OFF_BASE
    found[line & ((count >= FEW) | (unit is WrongUnit.LINE_TO_LINE)) & (found == 0) & np.isfinite(value)] = unit
    found[(ratio > _TOO_MANY_BASES) & (found == 0)] = WrongUnit.ABSURD
    return found


def _within(value: Floats, centre: Floats, times: float) -> npt.NDArray[np.bool_]:
    return np.asarray((value > centre / times) & (value < centre * times))


def angle_units(value: Floats, grid: Grid) -> Codes:
    """Wrong units of angles. [hour, bus, phase]

    Args:
        value: Degrees, NaN where there is no reading. [hour, bus, phase]
        grid: The network, for nominal angles.
    """
    found = np.where(np.abs(value) > _TOO_MANY_DEGREES, WrongUnit.ABSURD, 0).astype(np.int8)
    if not np.isfinite(value).any():
        return found
    nominal = nominal_angle(grid)
    telling = nominal.valid & (np.abs(nominal.angle_rad) > 1.0) & np.isfinite(value)  # near 0 both units look alike
    far = np.deg2rad(_FAR_DEG)
    radians = telling & (np.abs(wrap(value - nominal.angle_rad)) < far)
    radians &= np.abs(wrap(np.deg2rad(value) - nominal.angle_rad)) > far
    tells, says = telling.sum(axis=(0, 2)), radians.sum(axis=(0, 2))
    of_bus = (says >= FEW) & (says >= MOST * tells)
    everywhere = says.sum() > 0 and says.sum() >= MOST * tells.sum()
    found[(of_bus[:, None] | everywhere) & (np.abs(value) < 2.0 * np.pi)] = WrongUnit.RADIANS
    return found


def tap_units(value: Floats) -> Codes:
    """Taps that are positions: whole numbers, some of which are no ratio. [hour, winding, 1]"""
    none = ~np.isfinite(value)
    no_ratio = ~none & ((value < _TAPS[0]) | (value > _TAPS[1]))
    whole = ~none & (value == np.round(value)) & (np.abs(value) <= _POSITIONS)
    position = whole & (no_ratio & whole).any(axis=0)
    return np.where(position, WrongUnit.POSITION, np.where(no_ratio, WrongUnit.ABSURD, 0)).astype(np.int8)
