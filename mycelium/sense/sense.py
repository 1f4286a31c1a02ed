"""Sensing: the readings of a day under a policy. The one arrow from truth to what the model is given.

Which readings there are is decided by grid, placement and sample before the day is looked at; a dead bus reports its
zero volts.
"""

from __future__ import annotations

import numba
import numpy as np
import numpy.typing as npt
from numba import types

from mycelium.schema import CHANNELS, HOURS, Quantity
from mycelium.sense.measure import Measured, Meters
from mycelium.sense.noise import Disturbance, disturb
from mycelium.sense.readings import Readings
from mycelium.simulate.day import Day

Floats = npt.NDArray[np.float64]
Reported = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

_DEMAND = ("bus.active_power_kw", "bus.reactive_power_kvar")  # sums of what customers' meters report


def sense(meters: Meters, day: Day, *sample: str | int) -> Readings:
    """What meters reported of a day.

    Args:
        meters: Instruments on the day's grid; their placement's policy says what readings suffer.
        day: The truth.
        sample: Names and numbers that errors and losses are drawn from, besides network and policy: any day sensed with
            the same sample loses the same readings.
    """
    policy, network = meters.placement.policy, meters.placement.network
    entries = {key: len(places) for key, places in meters.places.items() if key not in _DEMAND}
    disturbance = disturb(policy.noise, entries, HOURS, network, policy.name, *sample)
    measured = meters.read(day)
    value: dict[str, Reported] = {}
    seen: dict[str, Flags] = {}
    for key, channel in CHANNELS.items():
        if key in _DEMAND:
            exact, kept = _demand(meters, measured, disturbance, channel.quantity)
            error = np.broadcast_to(np.float32(0.0), exact.shape)
        else:
            exact, error, kept = measured.values[key], disturbance.error[key], disturbance.kept[key]
        size = len(meters.grid.tables[channel.table]) * channel.slots
        reported, arrived = np.zeros((HOURS, size), np.float32), np.zeros((HOURS, size), bool)
        _report(exact, error, channel.quantity is Quantity.ANGLE, kept, meters.places[key], reported, arrived)
        shape = (HOURS, -1, channel.slots)
        value[key], seen[key] = reported.reshape(shape), arrived.reshape(shape)
    return Readings(value, seen)


def _demand(meters: Meters, measured: Measured, disturbance: Disturbance, quantity: Quantity) -> tuple[Floats, Flags]:
    """Demand of buses as their customers' meters have it, and where all of these arrived. [hour, entry]"""
    customers, key = meters.customers, f"consumer.{quantity.value}"
    active = quantity is Quantity.ACTIVE
    demand = customers.active_demand if active else customers.reactive_demand
    share = measured.share_kw if active else measured.share_kvar
    return demand.reported(share, disturbance.error[key]), demand.arrives(disturbance.kept[key])


@numba.njit(
    types.void(
        types.Array(types.float64, 2, "A", readonly=True),
        types.Array(types.float32, 2, "A", readonly=True),
        types.boolean,
        types.Array(types.boolean, 2, "A", readonly=True),
        types.Array(types.int64, 1, "C", readonly=True),
        types.float32[:, ::1],
        types.boolean[:, ::1],
    ),
    cache=True,
    nogil=True,
)
def _report(
    exact: Floats, error: Reported, is_angle: bool, kept: Flags, places: Ints, reported: Reported, arrived: Flags
) -> None:
    """Write the values that arrive, with their errors, where they belong.

    Args:
        exact, error, kept: [hour, entry]
        is_angle: The error is added, within a full turn, rather than relative.
        places: [entry]
        reported, arrived: Receive them. [hour, place]
    """
    for h in range(len(exact)):
        for e in range(len(places)):
            if not kept[h, e]:
                continue
            x = exact[h, e]
            if is_angle:
                x += error[h, e]
                if x > 180.0:
                    x -= 360.0
                elif x <= -180.0:
                    x += 360.0
            else:
                x *= 1.0 + error[h, e]
            reported[h, places[e]] = x
            arrived[h, places[e]] = True
