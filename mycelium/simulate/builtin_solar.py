"""Built-in photovoltaic output: pvlib's clear sky on a tilted plane, times clouds.

The clear sky is tabulated once per latitude, for a grid of tilts and azimuths and for every tenth day of
the year, so that drawing a day only looks up rows. Hours are local solar time at the site. Clouds have one
course for the whole feeder, and each site departs from it a little.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from mycelium.schema import HOURS
from mycelium.simulate.builtin_common import RealArray
from mycelium.simulate.profiles import DAYS_PER_YEAR

LATITUDES_DEG = (25, 30, 35, 40, 45, 50, 55, 60)
TILTS_DEG = (5, 15, 25, 35, 45)
AZIMUTHS_DEG = (90, 120, 150, 180, 210, 240, 270)
DAY_STEP = 10
_DAYS = np.arange(1, DAYS_PER_YEAR + 1, DAY_STEP)
_SAMPLES_PER_HOUR = 4
_LINKE_TURBIDITY = 3.0  # clean air; a constant keeps pvlib from reading its map of the world
_DERATE = 0.9  # inverter, wiring, soiling and heat together


@dataclass(frozen=True, slots=True)
class Sky:
    """A kind of day: its share in tenths, mean clearness, how much it changes, and how sites differ."""

    tenths: int
    clearness: float
    change: float
    spread: float


SKIES = (Sky(4, 0.97, 0.06, 0.04), Sky(4, 0.72, 0.55, 0.30), Sky(2, 0.25, 0.25, 0.10))
_SKY_OF_TENTH = [sky for sky in SKIES for _ in range(sky.tenths)]
_PERSISTENCE = 0.6  # of clearness from hour to hour


@lru_cache(maxsize=len(LATITUDES_DEG))
def clear_sky(latitude_deg: int) -> RealArray:
    """Clear-sky output per unit of rated power at a latitude, [tilt, azimuth, day // DAY_STEP, hour]."""
    import pandas as pd
    import pvlib

    minutes = (np.arange(HOURS * _SAMPLES_PER_HOUR) + 0.5) * 60 / _SAMPLES_PER_HOUR
    since_new_year = ((_DAYS[:, None] - 1) * 1440 + minutes).ravel()
    # Any year does, and the meridian of Greenwich makes universal time the mean solar time of the site.
    times = pd.DatetimeIndex(pd.Timestamp(2023, 1, 1, tz="UTC") + pd.to_timedelta(since_new_year, unit="min"))
    sun = pvlib.solarposition.get_solarposition(times, latitude_deg, 0.0)
    up = np.asarray(sun["apparent_zenith"]) < 90
    zenith, azimuth = np.asarray(sun["apparent_zenith"])[up], np.asarray(sun["azimuth"])[up]
    day_of_year = np.repeat(_DAYS, HOURS * _SAMPLES_PER_HOUR)[up]
    extra = np.asarray(pvlib.irradiance.get_extra_radiation(day_of_year))
    airmass = pvlib.atmosphere.get_relative_airmass(zenith)
    sky = pvlib.clearsky.ineichen(zenith, airmass, _LINKE_TURBIDITY, dni_extra=extra)
    output = np.zeros((len(TILTS_DEG), len(AZIMUTHS_DEG), len(times)))
    for t, tilt in enumerate(TILTS_DEG):
        for a, facing in enumerate(AZIMUTHS_DEG):
            plane = pvlib.irradiance.get_total_irradiance(
                tilt,
                facing,
                zenith,
                azimuth,
                sky["dni"],
                sky["ghi"],
                sky["dhi"],
                dni_extra=extra,
                model="haydavies",
            )
            output[t, a, up] = (plane["poa_global"] / 1000 * _DERATE).clip(0, 1)
    shape = (len(TILTS_DEG), len(AZIMUTHS_DEG), len(_DAYS), HOURS, _SAMPLES_PER_HOUR)
    hourly: RealArray = output.reshape(shape).mean(axis=-1).astype(np.float32)
    return hourly


def solar_day(count: int, latitude_deg: int, day_of_year: int, rng: np.random.Generator) -> RealArray:
    """Output per unit of rated power of sites of all orientations, [site, hour]."""
    sky = _SKY_OF_TENTH[rng.integers(len(_SKY_OF_TENTH))]
    jolts = rng.random(HOURS) - 0.5
    departure = np.empty(HOURS)
    level = jolts[0]
    for hour in range(HOURS):
        level = _PERSISTENCE * level + jolts[hour]
        departure[hour] = level
    tilt = rng.integers(len(TILTS_DEG), size=count)
    azimuth = rng.integers(len(AZIMUTHS_DEG), size=count)
    soiling = 0.88 + 0.12 * rng.random((count, 1), dtype=np.float32)
    local = rng.random((count, HOURS), dtype=np.float32) - 0.5
    clearness = sky.clearness + sky.change * departure.astype(np.float32) + sky.spread * local
    clear = clear_sky(latitude_deg)[tilt, azimuth, (day_of_year - 1) // DAY_STEP]
    clouded: RealArray = clear * soiling * clearness.clip(0.05, 1.0)
    return clouded
