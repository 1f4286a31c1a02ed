"""What all built-in customers share: how tables are written, what drifts by the hour, and the weather."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mycelium.schema import HOURS
from mycelium.simulate.profiles import DAYS_PER_YEAR

RealArray = npt.NDArray[np.floating]  # single precision: half the time, and still finer than any meter

_KNOTS, _CURVES, _CURVE_SEED = 7, 1024, 20_240_502


def hourly(digits: str) -> npt.NDArray[np.int64]:
    """Twenty-four weights from as many digits, the first for midnight, [hour]."""
    if len(digits) != HOURS:
        raise ValueError(f"expected {HOURS} digits, found {len(digits)}: {digits}")
    return np.array([int(digit) for digit in digits])


def _smooth_curves() -> RealArray:
    """Straight lines through uniform values four hours apart, [curve, hour]."""
    rng = np.random.Generator(np.random.PCG64(_CURVE_SEED))
    at = np.linspace(0, _KNOTS - 1, HOURS)
    left = np.minimum(at.astype(np.intp), _KNOTS - 2)
    share = at - left
    values = rng.random((_CURVES, _KNOTS))
    return ((1 - share) * values[:, left] + share * values[:, left + 1]).astype(np.float32)


_SMOOTH = _smooth_curves()


def drift(count: int, rng: np.random.Generator) -> RealArray:
    """Values in [0, 1] that change in the course of hours, [item, hour]."""
    return _SMOOTH[rng.integers(_CURVES, size=count)]


@dataclass(frozen=True, slots=True)
class Climate:
    """Mean temperature of the coldest and warmest day, half the daily swing, homes in ten with cooling."""

    winter_c: float
    summer_c: float
    swing_c: float
    cooled_tenths: int


CLIMATES = (Climate(-7, 20, 5, 4), Climate(2, 21, 5, 6), Climate(8, 19, 4, 2), Climate(9, 30, 7, 9))

_WARMEST_DAY, _WARMEST_HOUR = 202, 15
_DEPARTURE_C = 8.0  # the most a day's mean departs from that of its date
_HEATING_BELOW_C, _COOLING_ABOVE_C = 15.0, 21.0


@dataclass(frozen=True, slots=True)
class Weather:
    """How hard heating and cooling run, as a share of their capacity, each [hour]."""

    heating: RealArray
    cooling: RealArray


def draw_weather(climate: Climate, day_of_year: int, rng: np.random.Generator) -> Weather:
    """The weather of one day, the same for everybody on the feeder."""
    middle, half = (climate.summer_c + climate.winter_c) / 2, (climate.summer_c - climate.winter_c) / 2
    of_date = middle + half * np.cos(2 * np.pi * (day_of_year - _WARMEST_DAY) / DAYS_PER_YEAR)
    departure = _DEPARTURE_C * (2 / 3 * rng.random(3).sum() - 1)  # bell-shaped and bounded
    daily = climate.swing_c * np.cos(2 * np.pi * (np.arange(HOURS) + 0.5 - _WARMEST_HOUR) / HOURS)
    # Buildings answer an hour or two late.
    felt_c = of_date + departure + np.roll(daily, 1)
    coldest = climate.winter_c - climate.swing_c - _DEPARTURE_C / 2
    warmest = climate.summer_c + climate.swing_c + _DEPARTURE_C / 2
    heating = (_HEATING_BELOW_C - felt_c) / (_HEATING_BELOW_C - coldest)
    cooling = (felt_c - _COOLING_ABOVE_C) / (warmest - _COOLING_ABOVE_C)
    return Weather(heating.clip(0, 1).astype(np.float32), cooling.clip(0, 1).astype(np.float32))
