"""Days of readings made up within what instruments show, everywhere a feeder can have them."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
import pandas as pd

from mycelium.feeders import feeder_path
from mycelium.grid.grid import Grid
from mycelium.grid.nominal_angle import nominal_angle
from mycelium.grid.read_opendss import read_opendss
from mycelium.schema import CHANNELS, HOURS, LOW_VOLTAGE_KV, Quantity
from mycelium.sense.frame import readings_to_frame
from mycelium.sense.frame_places import possible_readings
from mycelium.sense.frame_units import expected_voltage_v
from mycelium.sense.readings import Readings

DAY = "2026-01-31"


@functools.cache
def bundled_grid(name: str) -> Grid:
    grid, *_ = read_opendss(feeder_path(name))
    return grid


def plausible(grid: Grid, seed: int = 0, share: float = 1.0) -> Readings:
    """Readings at this share of the places and hours: near nominal, 1 A everywhere, customers of 3 or 100 kW."""
    rng = np.random.default_rng(seed)
    none = Readings.none(grid)
    value, there = {key: x.copy() for key, x in none.value.items()}, {key: x.copy() for key, x in none.seen.items()}
    volts, angle = expected_voltage_v(grid), np.rad2deg(nominal_angle(grid).angle_rad)
    for key, possible in possible_readings(grid).items():
        table, quantity = CHANNELS[key].table, CHANNELS[key].quantity
        row, slot = np.nonzero(possible)
        if quantity is Quantity.ANGLE:
            typical = angle[row, slot]
        elif quantity is Quantity.VOLTAGE:
            typical = volts[table][row]
        elif quantity in (Quantity.ACTIVE, Quantity.REACTIVE):
            demand = np.where(grid.consumer["rated_kv"] < LOW_VOLTAGE_KV, 3.0, 100.0)
            if table == "consumer":
                typical = demand[row]
            elif table == "bus":
                typical = np.bincount(grid.consumer["bus1"], demand, minlength=len(grid.bus))[row]
            else:
                typical = volts[table][row] / 1e3
            typical = typical if quantity is Quantity.ACTIVE else 0.4 * typical
        else:
            typical = np.ones(len(row))
        values = typical * rng.uniform(0.94, 1.06, (HOURS, len(row)))
        seen = rng.uniform(size=values.shape) < share
        value[key][:, row, slot] = np.where(seen, values, 0.0)
        there[key][:, row, slot] = seen
    return Readings.of(value, there)


def plausible_frame(grid: Grid, seed: int = 0, share: float = 1.0) -> pd.DataFrame:
    return readings_to_frame(plausible(grid, seed, share), grid, DAY)


def series(frame: pd.DataFrame, element: str, quantity: str, phase: str | None = None) -> pd.Series:
    """Which rows are of one element's quantity."""
    which = (frame["element"] == element) & (frame["quantity"] == quantity)
    return which if phase is None else which & (frame["phase"] == phase)


def edit(frame: pd.DataFrame, which: pd.Series, **columns: object) -> pd.DataFrame:
    """A copy with columns of some rows replaced; a function gets the old values."""
    changed = frame.copy()
    for column, value in columns.items():
        old = changed.loc[which, column]
        new = value(old) if isinstance(value, Callable) else pd.Series([value] * len(old), index=old.index)
        if new.dtype != changed[column].dtype:
            changed[column] = changed[column].astype(object)
        changed.loc[which, column] = new
    return changed


def assert_same(one: Readings, other: Readings) -> None:
    """Equal to the last bit."""
    for key in CHANNELS:
        np.testing.assert_array_equal(one.seen[key], other.seen[key], err_msg=key)
        np.testing.assert_array_equal(one.value[key], other.value[key], err_msg=key)
