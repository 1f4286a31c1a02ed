"""A small example of readings: what a file for a feeder looks like."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from mycelium.grid.grid import Grid
from mycelium.grid.nominal_angle import nominal_angle
from mycelium.grid.service import secondary_windings
from mycelium.schema import CHANNELS, HOURS, LOW_VOLTAGE_KV, Channel, Quantity
from mycelium.sense.frame_places import possible_readings
from mycelium.sense.frame_units import expected_voltage_v
from mycelium.sense.readings import Readings

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

_AMPS = 10.0
_CUSTOMER_KW = 1.0, 50.0  # below and above 1 kV
_KVAR_PER_KW = 0.3


def example_readings(grid: Grid) -> Readings:
    """A day of readings at a few elements, all at nominal voltage with the same current: no simulation, no truth."""
    shapes = {key: (HOURS, len(grid.tables[channel.table]), channel.slots) for key, channel in CHANNELS.items()}
    value = {key: np.zeros(shape) for key, shape in shapes.items()}
    seen = {key: np.zeros(shape, dtype=bool) for key, shape in shapes.items()}
    possible, chosen = possible_readings(grid), _elements(grid)
    for key, channel in CHANNELS.items():
        row, slot = np.nonzero(possible[key])
        here = np.isin(row, chosen[channel.table])
        # The demand of a bus is what its customers report together; the example leaves it out.
        if channel.table == "bus" and channel.quantity in (Quantity.ACTIVE, Quantity.REACTIVE):
            continue
        row, slot = row[here], slot[here]
        value[key][:, row, slot] = _nominal(grid, channel, row, slot)
        seen[key][:, row, slot] = True
    return Readings.of(value, seen)


def _elements(grid: Grid) -> dict[str, Ints]:
    """Rows of the elements that report: sources, a transformer's secondary, and one or two of each other kind."""
    secondary = secondary_windings(grid)[:1]
    winding = np.concatenate([secondary, grid.regulated[:1]])
    hidden_bus, hidden_line = grid.bus["hidden"].to_numpy(), grid.line["group"].to_numpy() >= 0
    at = [grid.substation["bus1"], grid.winding["bus1"].iloc[secondary], np.flatnonzero(hidden_bus)[:1]]
    return {
        "bus": np.concatenate(at).astype(np.int64),
        "line": np.concatenate([np.flatnonzero(~hidden_line)[:1], np.flatnonzero(hidden_line)[:1]]),
        "winding": winding,
        "consumer": np.arange(len(grid.consumer))[:2],
        "substation": np.arange(len(grid.substation)),
    }


def _nominal(grid: Grid, channel: Channel, row: Ints, slot: Ints) -> Floats:
    """Values of a channel at these places. [place]"""
    volts = expected_voltage_v(grid)[channel.table][row]
    if channel.quantity is Quantity.VOLTAGE:
        return volts
    if channel.quantity is Quantity.ANGLE:
        return np.rad2deg(nominal_angle(grid).angle_rad[row, slot])
    if channel.quantity is Quantity.CURRENT:
        return np.full(len(row), _AMPS)
    if channel.quantity is Quantity.TAP:
        return np.ones(len(row))
    kw = volts * _AMPS / 1e3
    if channel.table == "consumer":
        kw = np.where(grid.consumer["rated_kv"].to_numpy()[row] < LOW_VOLTAGE_KV, *_CUSTOMER_KW)
    return kw if channel.quantity is Quantity.ACTIVE else _KVAR_PER_KW * kw
