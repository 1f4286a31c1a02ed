"""The built-in source: demand, sun, storage and generators from a generator of random numbers and no data.

One place and one weather hold for everything on a day. Customers are drawn anew every day: a load has a
class, not a history. `annual` follows the same customers through a year.

A reactive multiplier equal to the active one means the load's nominal power factor. It is lower while heaters
run, higher for motors and for what stands by.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from mycelium.schema import HOURS
from mycelium.simulate.builtin_business import COMMERCE, INDUSTRY, Businesses
from mycelium.simulate.builtin_common import CLIMATES, Climate, Weather, draw_weather, drift, hourly
from mycelium.simulate.builtin_residential import Homes, draw_homes, home_day
from mycelium.simulate.builtin_solar import LATITUDES_DEG, solar_day
from mycelium.simulate.profiles import (
    DAYS_PER_WEEK,
    DAYS_PER_YEAR,
    CalendarDay,
    CustomerClass,
    DayProfile,
    DayRequest,
    FloatArray,
    IndexArray,
)

ROUND_TRIP_EFFICIENCY = 0.85  # energy given back by storage over energy taken

# Running hours in ninths of the drawn level: around the clock, with the working day, for the evening peak.
_RUNS = np.stack(
    [
        hourly("999999999999999999999999"),
        hourly("222225899999999987522222"),
        hourly("000000133200000159999400"),
    ]
)


class BuiltinProfiles:
    """Days that need no data."""

    def day(self, request: DayRequest, rng: np.random.Generator, date: CalendarDay | None = None) -> DayProfile:
        """One day on `date`, or on one that is drawn."""
        date = CalendarDay.draw(rng) if date is None else date
        climate = CLIMATES[rng.integers(len(CLIMATES))]
        latitude_deg = LATITUDES_DEG[rng.integers(len(LATITUDES_DEG))]
        customers = _Customers(request.load_class, climate, rng)
        weather = draw_weather(climate, date.day_of_year, rng)
        p_mult, q_mult = np.empty((2, HOURS, request.n_load))
        customers.fill(p_mult, q_mult, date, weather, rng)
        pv_mult = np.empty((HOURS, request.pv_count))
        if request.pv_count:
            pv_mult[:] = solar_day(request.pv_count, latitude_deg, date.day_of_year, rng).T
        storage_mult = storage_day(request.storage_count, rng)
        generator_mult = generator_day(request.generator_count, rng)
        return DayProfile(date.day_of_year, date.season, p_mult, q_mult, pv_mult, storage_mult, generator_mult)

    def annual(
        self, load_class: npt.NDArray[np.int8], rng: np.random.Generator
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
        """Active and reactive multipliers of the same customers through a year, each [hour of year, load]."""
        climate = CLIMATES[rng.integers(len(CLIMATES))]
        first_weekday = int(rng.integers(DAYS_PER_WEEK))
        customers = _Customers(load_class, climate, rng)
        p_mult, q_mult = np.empty((2, DAYS_PER_YEAR, HOURS, len(load_class)), np.float32)
        for day in range(DAYS_PER_YEAR):
            date = CalendarDay(day + 1, (first_weekday + day) % DAYS_PER_WEEK)
            customers.fill(p_mult[day], q_mult[day], date, draw_weather(climate, day + 1, rng), rng)
        year = (DAYS_PER_YEAR * HOURS, len(load_class))
        return p_mult.reshape(year), q_mult.reshape(year)


class _Customers:
    """The customers of a feeder, by class."""

    def __init__(self, load_class: npt.NDArray[np.int8], climate: Climate, rng: np.random.Generator) -> None:
        self._at: list[IndexArray] = [np.flatnonzero(load_class == code) for code in CustomerClass]
        homes, shops, plants = (len(at) for at in self._at)
        self._homes: Homes = draw_homes(homes, climate.cooled_tenths, rng)
        self._shops: Businesses = COMMERCE.draw(shops, rng)
        self._plants: Businesses = INDUSTRY.draw(plants, rng)

    def fill(
        self,
        p_mult: npt.NDArray[np.floating],
        q_mult: npt.NDArray[np.floating],
        date: CalendarDay,
        weather: Weather,
        rng: np.random.Generator,
    ) -> None:
        """Write one day of every customer into two arrays [hour, load]."""
        days = (
            home_day(self._homes, date, weather, rng),
            COMMERCE.day(self._shops, date, weather, rng),
            INDUSTRY.day(self._plants, date, weather, rng),
        )
        for at, (p, q) in zip(self._at, days, strict=True):
            p_mult[:, at], q_mult[:, at] = p.T, q.T


def storage_day(count: int, rng: np.random.Generator) -> FloatArray:
    """Charging around midday and giving back in the evening what is left of it, [hour, storage]."""
    u = rng.random((5, count))
    charge_start_h, charge_h, charge_level = 8.5 + 3 * u[0], 2.5 + 2.5 * u[1], 0.4 + 0.6 * u[2]
    discharge_start_h, discharge_h = 17 + 2.5 * u[3], charge_h * (0.9 + 0.5 * u[4])
    discharge_level = ROUND_TRIP_EFFICIENCY * charge_level * charge_h / discharge_h
    charging = charge_level * _window(charge_start_h, charge_h)
    net: FloatArray = discharge_level * _window(discharge_start_h, discharge_h) - charging
    return net


def _window(start_h: FloatArray, length_h: FloatArray) -> FloatArray:
    """Share of each hour within the window, which may run past midnight, [hour, device]."""
    hours = np.arange(2 * HOURS)[:, None]
    share: FloatArray = (np.minimum(hours + 1, start_h + length_h) - np.maximum(hours, start_h)).clip(min=0.0)
    return share[:HOURS] + share[HOURS:]


def generator_day(count: int, rng: np.random.Generator) -> FloatArray:
    """Base, daytime or evening running at a level that drifts a little, [hour, generator]."""
    runs = _RUNS[rng.integers(len(_RUNS), size=count)] / 9
    level = 0.5 + 0.4 * rng.random((count, 1))
    return np.ascontiguousarray((runs * level * (0.9 + 0.2 * drift(count, rng))).T)
