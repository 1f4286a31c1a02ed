"""Built-in homes: a base load, appliances used one at a time, electric heating and cooling.

Appliance use is simulated event by event, to the minute, once per process and into a table of home-days:
for each kind of home, kind of day and season, many days of hourly energy. A drawn day takes one row for
each home, scales it, and adds base load and heat to the weather of that day. Homes therefore never repeat
within a feeder, and no event is simulated while a case is drawn.

Figures are round numbers of the kind that end-use surveys report, tuned so that a year of hourly demand is
like that of the SMART-DS homes in load factor, in coincidence and in the time of the peak.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from mycelium.schema import HOURS
from mycelium.simulate.builtin_common import RealArray, Weather, drift, hourly
from mycelium.simulate.profiles import DAYS_PER_YEAR, SATURDAY, SEASONS, CalendarDay, FloatArray, IndexArray

DAYS_PER_KIND = 256  # home-days in the table for each kind of home, kind of day and season
TABLE_SEED = 20_240_501


# How likely somebody is up and at home, by hour: [habit][weekday, weekend]. Integers, so that the hour of an
# event is drawn from exact sums.
OUT_BY_DAY, HOME_BY_DAY, LATE = range(3)
_PRESENCE = (
    (hourly("100012786211112347999852"), hourly("210000136899888778999964")),
    (hourly("100001467777876678999852"), hourly("210000246888887778999863")),
    (hourly("632100012468876545678988"), hourly("753210001358888777889998")),
)


@dataclass(frozen=True, slots=True)
class Appliance:
    """How often (chances a day, and percent that each is taken), how strong, how long and when it runs."""

    chances: int
    percent: int
    kw: tuple[float, float]
    minutes: tuple[int, int]
    preferred: npt.NDArray[np.int64]


_KETTLE = Appliance(5, 70, (1.0, 2.4), (3, 9), hourly("100013985435534445543321"))
_COOKER = Appliance(3, 55, (0.8, 2.2), (15, 60), hourly("000001242113542237984210"))
_DISHES = Appliance(1, 55, (0.9, 1.6), (40, 80), hourly("100000123322355322369975"))
_WASHER = Appliance(1, 50, (0.5, 1.1), (50, 90), hourly("000001245676554455543210"))
_DRYER = Appliance(1, 35, (1.4, 2.6), (35, 70), hourly("000001135677665556654321"))
_SCREEN = Appliance(4, 65, (0.08, 0.30), (60, 210), hourly("210000112222333345789985"))
_CHORES = Appliance(1, 50, (0.8, 1.6), (15, 40), hourly("000000013676554544321000"))
_WATER = Appliance(6, 70, (2.0, 3.6), (10, 35), hourly("110014985432222335787643"))
_CAR = Appliance(1, 65, (3.3, 7.2), (60, 280), hourly("432110000111122358999876"))
_COMMON = (_KETTLE, _COOKER, _DISHES, _WASHER, _DRYER, _SCREEN, _CHORES)


@dataclass(frozen=True, slots=True)
class HomeKind:
    """A habit, extra appliances, homes in twenty, and how many in ten of these heat with electricity."""

    habit: int
    extra: tuple[Appliance, ...]
    twentieths: int
    heated_tenths: int


HOME_KINDS = (
    HomeKind(OUT_BY_DAY, (), 5, 2),
    HomeKind(OUT_BY_DAY, (_WATER,), 3, 8),
    HomeKind(HOME_BY_DAY, (), 3, 2),
    HomeKind(HOME_BY_DAY, (_WATER,), 3, 8),
    HomeKind(LATE, (), 2, 2),
    HomeKind(LATE, (_WATER,), 2, 8),
    HomeKind(OUT_BY_DAY, (_CAR,), 1, 4),
    HomeKind(HOME_BY_DAY, (_WATER, _CAR), 1, 8),
)
_KIND_OF_TWENTIETH = np.repeat(np.arange(len(HOME_KINDS)), [kind.twentieths for kind in HOME_KINDS])
_HEATED_TENTHS = np.array([kind.heated_tenths for kind in HOME_KINDS])

# Share of the hour in which lights are wanted, in ninths, by season.
_DARK = (
    hourly("999999974100000127999999"),
    hourly("999999740000000000279999"),
    hourly("999997400000000000027999"),
    hourly("999999962000000005999999"),
)

# Reactive over active power, in multiples of the load's nominal ratio: motors above 1, heaters below.
_Q_BASE, _Q_COOLING = 1.25, 1.3


@dataclass(frozen=True, slots=True)
class ApplianceTable:
    """Appliance and lighting demand of simulated home-days.

    Attributes
    ----------
    kw
        [kind of home, weekday or weekend, season, home-day, hour].
    presence
        Share of the household that is up and at home, [kind of home, weekday or weekend, hour].
    annual_peak_kw
        The highest hour to be expected in a year of such days, [kind of home].
    """

    kw: RealArray
    presence: RealArray
    annual_peak_kw: RealArray


@lru_cache(maxsize=1)
def appliance_table() -> ApplianceTable:
    """The table, simulated from a fixed seed when first asked for."""
    rng = np.random.Generator(np.random.PCG64(TABLE_SEED))
    shape = (len(HOME_KINDS), 2, len(SEASONS), DAYS_PER_KIND, HOURS)
    kw = np.empty(shape, np.float32)
    presence = np.empty((len(HOME_KINDS), 2, HOURS), np.float32)
    for k, kind in enumerate(HOME_KINDS):
        for weekend, present in enumerate(_PRESENCE[kind.habit]):
            presence[k, weekend] = present / 9
            days = len(SEASONS) * DAYS_PER_KIND
            used = sum(_run(appliance, present, days, rng) for appliance in (*_COMMON, *kind.extra))
            lights_kw = 0.08 + 0.32 * rng.random((len(SEASONS), DAYS_PER_KIND, 1))
            lit = np.stack(_DARK)[:, None, :] * present / 81
            kw[k, weekend] = np.reshape(used, shape[2:]) + lights_kw * lit
    daily_peaks = kw.max(axis=-1).reshape(len(HOME_KINDS), -1)
    annual_peak_kw = np.quantile(daily_peaks, 1 - 1 / DAYS_PER_YEAR, axis=1)
    return ApplianceTable(kw, presence, annual_peak_kw.astype(np.float32))


def _run(appliance: Appliance, present: npt.NDArray[np.int64], days: int, rng: np.random.Generator) -> FloatArray:
    """Hourly energy of one appliance on each of these days, in kWh, [day, hour]."""
    weights = np.cumsum(present * appliance.preferred)
    size = (days, appliance.chances)
    taken = rng.integers(100, size=size) < appliance.percent
    hour = np.searchsorted(weights, rng.integers(weights[-1], size=size), side="right")
    start_h = hour + rng.integers(60, size=size) / 60
    end_h = start_h + rng.integers(appliance.minutes[0], appliance.minutes[1] + 1, size=size) / 60
    low, high = appliance.kw
    kw = np.where(taken, low + (high - low) * rng.random(size), 0.0)
    # Two days, the second folded onto the first: what runs past midnight counts early on the same day.
    edges_h = np.arange(2 * HOURS)
    overlap_h = np.minimum(end_h[..., None], edges_h + 1) - np.maximum(start_h[..., None], edges_h)
    energy: FloatArray = (kw[..., None] * overlap_h.clip(min=0.0)).sum(axis=1)
    return energy[:, :HOURS] + energy[:, HOURS:]


@dataclass(frozen=True, slots=True)
class Homes:
    """What stays the same in a home from day to day; every array is [home, 1] but `kind`, which is [home]."""

    kind: IndexArray
    base_kw: RealArray
    scale: RealArray
    heating_kw: RealArray
    cooling_kw: RealArray
    appliance_q: RealArray
    heating_q: RealArray
    peak_kw: RealArray


def draw_homes(count: int, cooled_tenths: int, rng: np.random.Generator) -> Homes:
    """Homes of a place where `cooled_tenths` in ten have cooling."""
    kind = _KIND_OF_TWENTIETH[rng.integers(len(_KIND_OF_TWENTIETH), size=count)]
    heated = rng.integers(10, size=count) < _HEATED_TENTHS[kind]
    cooled = rng.integers(10, size=count) < cooled_tenths
    u = rng.random((6, count, 1), dtype=np.float32)
    base_kw = 0.12 + 0.75 * u[0] * u[0]
    scale = 0.5 + 0.7 * u[1]
    heating_kw = np.where(heated[:, None], 1.5 + 4.5 * u[2], 0.0).astype(np.float32)
    cooling_kw = np.where(cooled[:, None], 1.0 + 2.0 * u[3], 0.0).astype(np.float32)
    # The coldest hours and the busiest evening rarely meet.
    appliances_kw = scale * appliance_table().annual_peak_kw[kind][:, None]
    peak_kw = base_kw + 0.85 * (appliances_kw + np.maximum(heating_kw, cooling_kw))
    return Homes(kind, base_kw, scale, heating_kw, cooling_kw, 0.5 + 0.5 * u[4], 0.1 + 1.0 * u[5], peak_kw)


def home_day(
    homes: Homes, date: CalendarDay, weather: Weather, rng: np.random.Generator
) -> tuple[RealArray, RealArray]:
    """Active and reactive multipliers of one day, each [home, hour]."""
    table = appliance_table()
    count = len(homes.kind)
    weekend = int(date.weekday >= SATURDAY)
    row = rng.integers(DAYS_PER_KIND, size=count)
    appliances = table.kw[homes.kind, weekend, SEASONS.index(date.season), row] * homes.scale
    base = homes.base_kw * (0.8 + 0.4 * rng.random((count, HOURS), dtype=np.float32))
    # Thermostats cycle, and are set back at night and while nobody is in.
    setting = 0.65 + 0.35 * table.presence[:, weekend][homes.kind]
    cycling = setting * (0.75 + 0.5 * rng.random((count, HOURS), dtype=np.float32))
    heating = np.minimum(weather.heating * cycling, 1) * homes.heating_kw
    cooling = np.minimum(weather.cooling * cycling, 1) * homes.cooling_kw
    p = base + appliances + heating + cooling
    q = _Q_BASE * base + homes.appliance_q * appliances + homes.heating_q * heating + _Q_COOLING * cooling
    # A home's nominal kW is its annual peak by definition: the few hours above the estimate of it are cut.
    return np.minimum(p / homes.peak_kw, 1), q * (0.9 + 0.2 * drift(count, rng)) / homes.peak_kw
