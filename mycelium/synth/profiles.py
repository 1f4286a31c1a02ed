"""Operating profiles: who follows which building, the day, and the coincidence of each transformer's customers.

Homes stand for ResStock and businesses for ComStock: single-phase customers follow homes, three-phase ones businesses.
Both come from files of annual profiles where they are given, else from the built-in ones. A reference year holds a
few hundred buildings in one weather; its first day is a Monday.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from scipy.sparse import csr_array

from mycelium.schema import HOURS
from mycelium.simulate.builtin_business import COMMERCE
from mycelium.simulate.builtin_common import CLIMATES, RealArray, draw_weather
from mycelium.simulate.builtin_residential import draw_homes, home_day
from mycelium.simulate.builtin_solar import solar_day
from mycelium.simulate.profile_files import ACTIVE, PV, YEAR_H, ProfileTable
from mycelium.simulate.profiles import DAYS_PER_WEEK, DAYS_PER_YEAR, CalendarDay
from mycelium.simulate.seeds import generator
from mycelium.synth.geography import Flags, Floats, Ints

HOMES, BUSINESSES = 400, 120
_AREAS_AT_ONCE = 256  # so that a feeder of many transformers does not need 8,760 numbers for each of them at a time


@dataclass(frozen=True, slots=True)
class ProfileFiles:
    """Files of annual profiles, see ``simulate.profile_files``; what is not given is built in.

    Attributes:
        residential, commercial: Active demand, kW.
        pv: Output per unit of rated power; one file per solar region.
    """

    residential: Path | None = None
    commercial: Path | None = None
    pv: tuple[Path, ...] = ()


@dataclass(frozen=True)
class ReferenceYear:
    """Buildings of one climate through a year.

    Attributes:
        kw: Active demand. [building, hour of year]
        q_pu: Reactive demand per unit of its annual peak. [building, hour of year]
        peak_kw: Annual peak. [building]
        homes: The first so many buildings are homes, the others businesses.
    """

    kw: RealArray
    q_pu: RealArray
    peak_kw: Floats
    homes: int


@lru_cache(maxsize=len(CLIMATES))
def reference_year(climate: int, files: ProfileFiles) -> ReferenceYear:
    """The buildings of a climate group; the same in every process."""
    built_in = _built_in_year(climate)
    if files.residential is None and files.commercial is None:
        return built_in
    n = built_in.homes
    parts = [
        _of_file(path, built_in.q_pu[own]) if path is not None else (built_in.kw[own], built_in.q_pu[own])
        for path, own in ((files.residential, slice(0, n)), (files.commercial, slice(n, None)))
    ]
    kw, q_pu = (np.concatenate([part[k] for part in parts]) for k in range(2))
    return ReferenceYear(kw, q_pu, kw.max(axis=1).astype(np.float64), len(parts[0][0]))


def _of_file(path: Path, q_pu: RealArray) -> tuple[RealArray, RealArray]:
    """Active profiles of a file; reactive ones are the built-in ones in turn, as those files have none."""
    table = ProfileTable.read(path, ACTIVE)
    kw = table.x.reshape(len(table.names), YEAR_H).astype(np.float32)
    return kw, q_pu[np.arange(len(kw)) % len(q_pu)]


def _built_in_year(climate: int) -> ReferenceYear:
    rng = generator("synth reference year", climate)
    place = CLIMATES[climate]
    homes = draw_homes(HOMES, place.cooled_tenths, rng)
    businesses = COMMERCE.draw(BUSINESSES, rng)
    # A business has no size of its own in the built-in profiles: from a kiosk to a department store.
    size_kw = (8 * 2 ** (6 * rng.random((BUSINESSES, 1)))).astype(np.float32)
    p, q = np.empty((2, HOMES + BUSINESSES, DAYS_PER_YEAR, HOURS), dtype=np.float32)
    for day in range(DAYS_PER_YEAR):
        date = date_of(day + 1)
        weather = draw_weather(place, date.day_of_year, rng)
        home = home_day(homes, date, weather, rng)
        business = COMMERCE.day(businesses, date, weather, rng)
        p[:HOMES, day], q[:HOMES, day] = home[0] * homes.peak_kw, home[1]
        p[HOMES:, day], q[HOMES:, day] = business[0] * size_kw, business[1]
    kw, kvar = p.reshape(len(p), YEAR_H), q.reshape(len(q), YEAR_H)
    return ReferenceYear(kw, kvar / np.abs(kvar).max(axis=1, keepdims=True), kw.max(axis=1).astype(np.float64), HOMES)


def date_of(day_of_year: int) -> CalendarDay:
    """A day of the reference year."""
    return CalendarDay(day_of_year, (day_of_year - 1) % DAYS_PER_WEEK)


def match_buildings(kw: Floats, three_phase: Flags, year: ReferenceYear, rng: np.random.Generator) -> Ints:
    """A building for every customer of its class: those drawn, by annual peak, to customers by nominal demand.

    Returns:
        Row in the reference year. [customer]
    """
    building = np.zeros(len(kw), dtype=np.int64)
    pools = ((~three_phase, 0, year.homes), (three_phase, year.homes, len(year.peak_kw)))
    for who, first, end in pools:
        members = np.flatnonzero(who)
        drawn = rng.integers(first, end, size=len(members))
        drawn = drawn[np.argsort(year.peak_kw[drawn], kind="stable")]
        building[members[np.argsort(kw[members], kind="stable")]] = drawn
    return building


def coincidence_factors(kw: Floats, area: Ints, building: Ints, year: ReferenceYear) -> Floats:
    """Highest demand of each area over all 8,760 hours, per unit of its nominal demand (η_c). [area]

    Args:
        kw: Nominal demand. [customer]
        area: Service area. [customer]
        building: Reference building. [customer]
    """
    n = int(area.max()) + 1
    share = csr_array((kw / year.peak_kw[building], (area, building)), shape=(n, len(year.peak_kw)))
    peak = np.zeros(n)
    for first in range(0, n, _AREAS_AT_ONCE):
        some = slice(first, min(first + _AREAS_AT_ONCE, n))
        peak[some] = (share[some] @ year.kw).max(axis=1)
    return np.asarray(peak / np.bincount(area, kw, n), dtype=np.float64)


@dataclass(frozen=True)
class DayShapes:
    """The 24-hour window, per unit of nominal demand and of PV rating.

    Attributes:
        p, q: [customer, hour]
        pv: [PV system, hour]
    """

    p: Floats
    q: Floats
    pv: Floats


def day_shapes(
    building: Ints, year: ReferenceYear, day_of_year: int, n_pv: int, latitude_deg: int, files: ProfileFiles,
    rng: np.random.Generator,
) -> DayShapes:  # fmt: skip
    """The common date for all customers, and the sun of the sampled region on that date."""
    hours = slice((day_of_year - 1) * HOURS, day_of_year * HOURS)
    p = year.kw[building, hours] / year.peak_kw[building, None]
    q = year.q_pu[building, hours]
    if files.pv:
        table = ProfileTable.read(files.pv[int(rng.integers(len(files.pv)))], PV)
        site = table.x[rng.integers(len(table.names), size=n_pv), day_of_year - 1]
    else:
        site = solar_day(n_pv, latitude_deg, day_of_year, rng)
    # Five digits are what the files hold; the network is solved with what is in them.
    return DayShapes(*(_digits(values) for values in (p, q, np.clip(site, 0, 1))))


def _digits(values: RealArray) -> Floats:
    return np.asarray(np.round(values.astype(np.float64), 5), dtype=np.float64)
