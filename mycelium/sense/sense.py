"""Sensing: the readings of a day under a policy. The one arrow from truth to what the model is given.

Which readings there are is decided by grid, placement and sample before the day is looked at; a dead bus reports its
zero volts.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from mycelium.schema import CHANNELS, HOURS
from mycelium.sense.measure import DEMAND, Measured, Meters
from mycelium.sense.noise import Disturbance
from mycelium.sense.readings import Readings
from mycelium.sense.report_kernel import demand, report
from mycelium.simulate.day import Day

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]


def sense(meters: Meters, day: Day, *sample: str | int) -> Readings:
    """What meters reported of a day.

    Args:
        meters: Instruments on the day's grid; their placement's policy says what readings suffer.
        day: The truth.
        sample: Names and numbers that errors and losses are drawn from, besides network and policy: any day sensed with
            the same sample loses the same readings.
    """
    placement = meters.placement
    disturbance = meters.disturber.draw(placement.network, placement.policy.name, *sample)
    measured = meters.read(day)
    reported, arrives = demand_of_buses(meters, measured, disturbance)
    exact = np.concatenate([measured.values, reported]) if len(reported) else measured.values
    place, value = np.empty(exact.size, np.int32), np.empty(exact.size, np.float32)
    count = report(
        exact, disturbance.error, disturbance.kept, arrives, meters.disturber.is_angle, meters.order, meters.place,
        place, value,
    )  # fmt: skip
    return Readings(meters.layout, place[:count], value[:count])


def demand_of_buses(meters: Meters, measured: Measured, disturbance: Disturbance) -> tuple[Floats, Flags]:
    """Demand of buses as their customers' meters have it, and where all of these arrived. [entry, hour]

    Args:
        meters: Instruments.
        measured: What they show without errors.
        disturbance: What their readings suffer.
    """
    customers = meters.customers
    sums = customers.active_demand, customers.reactive_demand
    ends = np.cumsum([0, *(len(of.row) for of in sums)])
    reported, arrives = np.empty((ends[-1], HOURS)), np.empty((ends[-1], HOURS), dtype=bool)
    for k, (key, of) in enumerate(zip(DEMAND, sums, strict=True)):
        part, meter = slice(ends[k], ends[k + 1]), meters.part[f"consumer.{CHANNELS[key].quantity.value}"]
        demand(
            measured.share[k], disturbance.error[meter], disturbance.kept[meter], of.pointer, of.share, of.meter,
            reported[part], arrives[part],
        )  # fmt: skip
    return reported, arrives
