"""24-hour days of demand and generation: what the simulator asks for and what every source answers.

Three sources answer the same question. `OwnProfiles` replays the shapes that came with a network,
`FileProfiles` draws from files of the ResStock, ComStock or SMART-DS kind, and `BuiltinProfiles` needs no
data at all. A source that cannot serve everything asked for is given another one, by name, for the rest.

Every number is a multiplier: of a load's nominal kW or kvar, or of a device's rated power. The year is one
of 365 days; in leap years 29 February is left out, so that a day means the same date in every source.

The random generator is asked only for integers and uniform numbers, which are the same bits on every
machine (normal and Poisson draws go through the C library's logarithm, which is not), and what is discrete
in a day, such as its date, is drawn as integers.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

import numpy as np
import numpy.typing as npt

from mycelium.schema import HOURS

DAYS_PER_YEAR = 365
DAYS_PER_WEEK = 7
SATURDAY = 5
NO_SHAPE = -1

SEASONS = ("winter", "spring", "summer", "autumn")
_DAYS_PER_MONTH = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_SEASON_OF_DAY = tuple(
    SEASONS[(month + 1) % 12 // 3] for month, length in enumerate(_DAYS_PER_MONTH) for _ in range(length)
)

FloatArray = npt.NDArray[np.float64]
IndexArray = npt.NDArray[np.intp]


class CustomerClass(IntEnum):
    """The codes that `DayRequest.load_class` holds."""

    RESIDENTIAL = 0
    COMMERCIAL = 1
    INDUSTRIAL = 2


@dataclass(frozen=True, slots=True)
class CalendarDay:
    """A date without a year: day 1 is 1 January, weekday 0 is Monday."""

    day_of_year: int
    weekday: int

    def __post_init__(self) -> None:
        if not 1 <= self.day_of_year <= DAYS_PER_YEAR or not 0 <= self.weekday < DAYS_PER_WEEK:
            raise ValueError(f"not a day of a 365-day year and a weekday 0-6: {self}")

    @property
    def season(self) -> str:
        """Meteorological season of the northern hemisphere; winter starts on 1 December."""
        return _SEASON_OF_DAY[self.day_of_year - 1]

    @classmethod
    def draw(cls, rng: np.random.Generator) -> CalendarDay:
        """A season, then a day within it, and a weekday (the year, which would tie the two, is not drawn)."""
        season = SEASONS[rng.integers(len(SEASONS))]
        days = [day for day, name in enumerate(_SEASON_OF_DAY, start=1) if name == season]
        return cls(days[rng.integers(len(days))], int(rng.integers(DAYS_PER_WEEK)))


@dataclass(frozen=True, slots=True)
class DayRequest:
    """What a day is needed for.

    Attributes
    ----------
    load_class
        `CustomerClass` codes, [load].
    own_shape
        The load's place in the network's own shapes, or `NO_SHAPE`, [load].
    own_pv_shape
        The same for PV sites, [pv]; None where no site has one.
    """

    n_load: int
    load_class: npt.NDArray[np.int8]
    own_shape: npt.NDArray[np.int32]
    pv_count: int = 0
    storage_count: int = 0
    generator_count: int = 0
    own_pv_shape: npt.NDArray[np.int32] | None = None

    def __post_init__(self) -> None:
        if self.load_class.shape != (self.n_load,) or self.own_shape.shape != (self.n_load,):
            raise ValueError(f"load_class and own_shape must have one entry for each of {self.n_load} loads")
        if self.own_pv_shape is not None and self.own_pv_shape.shape != (self.pv_count,):
            raise ValueError(f"own_pv_shape must have one entry for each of {self.pv_count} PV sites")
        if min(self.pv_count, self.storage_count, self.generator_count) < 0:
            raise ValueError("counts of devices cannot be negative")
        if self.n_load and not 0 <= self.load_class.min() <= self.load_class.max() < len(CustomerClass):
            raise ValueError(f"load_class must hold the codes {[int(code) for code in CustomerClass]}")

    def part(self, loads: IndexArray, pv_count: int) -> DayRequest:
        """These loads, this many PV sites, all storage and all generators, without own shapes."""
        none = np.full(len(loads), NO_SHAPE, np.int32)
        return DayRequest(len(loads), self.load_class[loads], none, pv_count, self.storage_count, self.generator_count)


@dataclass(frozen=True, slots=True)
class DayProfile:
    """One day, hour by hour; entry h is the mean over [h, h + 1) of local time.

    Attributes
    ----------
    p_mult, q_mult
        Of the load's nominal kW and kvar, [hour, load]; 1 is the annual peak of built-in and file profiles.
    pv_mult
        Of the rated PV power, [hour, pv].
    storage_mult
        Of the rated power, positive when discharging, [hour, storage].
    generator_mult
        Of the rated power, [hour, generator].
    """

    day_of_year: int
    season: str
    p_mult: FloatArray
    q_mult: FloatArray
    pv_mult: FloatArray
    storage_mult: FloatArray
    generator_mult: FloatArray


class ProfileSource(Protocol):
    """Anything that can fill a day."""

    def day(self, request: DayRequest, rng: np.random.Generator, date: CalendarDay | None = None) -> DayProfile:
        """One day for all of the request, on `date` or on one that is drawn."""
        ...


@dataclass(frozen=True, slots=True)
class PartialDay:
    """The columns of a day that one source has filled; another source fills the others.

    `p_mult` and `q_mult` are [hour, served load] and `pv_mult` is [hour, served site]; `loads` and `sites`
    say which of the request's loads and sites these are.
    """

    loads: IndexArray
    p_mult: FloatArray
    q_mult: FloatArray
    sites: IndexArray
    pv_mult: FloatArray


def complete(
    part: PartialDay, request: DayRequest, rng: np.random.Generator, date: CalendarDay, other: ProfileSource
) -> DayProfile:
    """A whole day on `date`: the columns of `part`, and those of `other` for all that `part` leaves out."""
    loads = np.setdiff1d(np.arange(request.n_load), part.loads, assume_unique=True)
    sites = np.setdiff1d(np.arange(request.pv_count), part.sites, assume_unique=True)
    rest = other.day(request.part(loads, len(sites)), rng, date)
    p_mult, q_mult = np.empty((HOURS, request.n_load)), np.empty((HOURS, request.n_load))
    pv_mult = np.empty((HOURS, request.pv_count))
    p_mult[:, part.loads], p_mult[:, loads] = part.p_mult, rest.p_mult
    q_mult[:, part.loads], q_mult[:, loads] = part.q_mult, rest.q_mult
    pv_mult[:, part.sites], pv_mult[:, sites] = part.pv_mult, rest.pv_mult
    return DayProfile(date.day_of_year, date.season, p_mult, q_mult, pv_mult, rest.storage_mult, rest.generator_mult)
