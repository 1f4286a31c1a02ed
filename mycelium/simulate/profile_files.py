"""Days drawn from files of annual profiles: ResStock, ComStock, SMART-DS and what looks like them.

A file is a table of profiles, one year long, hourly or every 15 minutes, of 365 or 366 days: an `.npz` with
`names` [profile] and `x` [profile, step], or a `.csv` or `.parquet` whose columns are profiles and whose
rows are steps. Nothing in a file is repaired: what is not such a table is refused with its file, column and
step.
"""

from __future__ import annotations

import csv
import zipfile
import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from mycelium.errors import FeederError
from mycelium.schema import HOURS
from mycelium.simulate.profile_own import daily_means
from mycelium.simulate.profiles import (
    DAYS_PER_YEAR,
    CalendarDay,
    CustomerClass,
    DayProfile,
    DayRequest,
    FloatArray,
    IndexArray,
    PartialDay,
    ProfileSource,
    complete,
)

if TYPE_CHECKING:
    import pandas as pd

YEAR_H = DAYS_PER_YEAR * HOURS
HOURS_PER_STEP = {days * HOURS * per_hour: 1 / per_hour for days in (365, 366) for per_hour in (1, 4)}


@dataclass(frozen=True, slots=True)
class Limits:
    """The values that a quantity may take, and how an error says so."""

    lowest: float
    highest: float
    says: str


ACTIVE = Limits(0, np.inf, "active demand of at least 0 (generation belongs in a PV file)")
REACTIVE = Limits(-np.inf, np.inf, "a finite number")
# Sites exceed their rating at the edge of a cloud, but not by half; what does is in kilowatts.
PV = Limits(0, 1.5, "output of 0 to 1.5 per unit of rated power")


@dataclass(frozen=True, slots=True)
class ProfileTable:
    """The profiles of one file; `x` is [profile, day, hour], hourly means on 365 days without 29 February."""

    path: Path
    names: tuple[str, ...]
    x: npt.NDArray[np.floating]

    @classmethod
    def read(cls, path: Path, limits: Limits) -> ProfileTable:
        """The table in an `.npz`, `.csv` or `.parquet` file."""
        readers = {".npz": _read_npz, ".csv": _read_csv, ".parquet": _read_parquet}
        if path.suffix not in readers:
            raise FeederError(f"{path}: expected a profile file ending in {', '.join(readers)}")
        if not path.is_file():
            raise FeederError(f"{path}: no such profile file")
        names, steps = readers[path.suffix](path)
        _check(path, names, steps, limits)
        hours_per_step = HOURS_PER_STEP[steps.shape[1]]
        if steps.shape[1] == YEAR_H:
            # In the precision of the file: half precision is a quarter of the memory of every worker.
            days = steps.reshape(len(names), DAYS_PER_YEAR, HOURS)
        else:
            rows = [daily_means(row.astype(np.float64), hours_per_step) for row in steps]
            days = np.stack(rows).astype(np.float32)
        return cls(path, names, days)


def _check(path: Path, names: tuple[str, ...], steps: npt.NDArray[np.floating], limits: Limits) -> None:
    """Raise a FeederError for the first thing that makes [profile, step] no year of profiles."""
    if not names:
        raise FeederError(f"{path}: expected at least one profile, found none")
    for name, count in Counter(names).items():
        if count > 1:
            raise FeederError(f"{path}: column {name!r}: expected one column of that name, found {count}")
    if steps.shape[1] not in HOURS_PER_STEP:
        expected = ", ".join(str(count) for count in HOURS_PER_STEP)
        raise FeederError(f"{path}: expected one year ({expected} steps), found {steps.shape[1]} steps")
    good = np.isfinite(steps) & (steps >= limits.lowest) & (steps <= limits.highest)
    if not good.all():
        profile, step = np.argwhere(~good)[0]
        raise FeederError(
            f"{path}: column {names[profile]!r}: expected {limits.says}, found {steps[profile, step]} at step {step}"
        )


def _read_npz(path: Path) -> tuple[tuple[str, ...], npt.NDArray[np.floating]]:
    arrays: dict[str, npt.NDArray[Any]] = {}
    if not zipfile.is_zipfile(path):
        raise FeederError(f"{path}: expected an .npz archive with arrays 'names' and 'x', found another kind of file")
    with np.load(path, allow_pickle=False) as archive:
        for key, dtype in (("names", "text [profile]"), ("x", "floating-point numbers [profile, step]")):
            try:
                arrays[key] = archive[key]
            except KeyError as error:
                raise FeederError(
                    f"{path}: expected an array {key!r} of {dtype}, found only {archive.files}"
                ) from error
            except (ValueError, EOFError, zlib.error, zipfile.BadZipFile) as error:
                # Objects are stored as pickles, and reading a pickle runs code from the file.
                raise FeederError(f"{path}: array {key!r}: expected plain {dtype}, found: {error}") from error
    names, x = arrays["names"], arrays["x"]
    if names.dtype.kind != "U" or names.ndim != 1:
        raise FeederError(f"{path}: array 'names': expected text [profile], found {names.dtype} {names.shape}")
    if x.dtype.kind != "f" or x.ndim != 2 or len(x) != len(names):
        raise FeederError(
            f"{path}: array 'x': expected floating-point numbers [profile, step] of {len(names)} profiles, "
            f"found {x.dtype} {x.shape}"
        )
    return tuple(str(name) for name in names), x


def _read_csv(path: Path) -> tuple[tuple[str, ...], npt.NDArray[np.floating]]:
    import pandas as pd

    try:
        with path.open(newline="", encoding="utf-8") as file:
            names = tuple(next(csv.reader(file), []))
        # The header is read apart, because pandas renames columns that occur twice.
        frame = pd.read_csv(path, header=None, skiprows=1, skip_blank_lines=False)
    except (ValueError, pd.errors.EmptyDataError) as error:
        raise FeederError(f"{path}: expected a table with one column per profile: {error}") from error
    if len(names) != frame.shape[1]:
        raise FeederError(f"{path}: expected {len(names)} columns as in the header, found {frame.shape[1]}")
    return names, _numbers(path, names, frame)


def _read_parquet(path: Path) -> tuple[tuple[str, ...], npt.NDArray[np.floating]]:
    import pandas as pd

    try:
        frame = pd.read_parquet(path)
    except (ValueError, OSError) as error:
        raise FeederError(f"{path}: expected a Parquet table with one column per profile: {error}") from error
    names = tuple(str(name) for name in frame.columns)
    return names, _numbers(path, names, frame)


def _numbers(path: Path, names: tuple[str, ...], frame: pd.DataFrame) -> npt.NDArray[np.floating]:
    """The values of a table whose columns are all numbers, [profile, step]."""
    import pandas as pd

    for i, (name, dtype) in enumerate(zip(names, frame.dtypes, strict=True)):
        if not isinstance(dtype, np.dtype) or dtype.kind not in "fiu":
            cells = frame.iloc[:, i].astype(str)
            step = int(np.argmax(np.isnan(np.asarray(pd.to_numeric(cells, errors="coerce"), np.float64))))
            raise FeederError(
                f"{path}: column {name!r}: expected a number for each step, found {cells.iloc[step]!r} at step {step}"
            )
    return np.ascontiguousarray(frame.to_numpy(np.float64).T)


@dataclass(frozen=True, slots=True)
class DemandFiles:
    """Active and, where there is one, reactive demand of the same customers, in any unit each.

    A customer has the same name in both files, but for `_kw_` and `_kvar_` as SMART-DS writes. Without a
    reactive file reactive power follows active power.
    """

    active: Path
    reactive: Path | None = None


class _Demand:
    """Customers of one kind, each profile per unit of its annual peak."""

    def __init__(self, files: DemandFiles) -> None:
        active = ProfileTable.read(files.active, ACTIVE)
        self.count = len(active.names)
        self._p, self._p_scale = active.x, _per_peak(active)
        self._q, self._q_scale = self._p, self._p_scale
        if files.reactive is not None:
            reactive = ProfileTable.read(files.reactive, REACTIVE)
            rows = _paired(active, reactive)
            self._q, self._q_scale = reactive.x[rows], _per_peak(reactive)[rows]

    def on(self, date: CalendarDay, profile: IndexArray) -> tuple[FloatArray, FloatArray]:
        """Active and reactive multipliers of these profiles on a date, each [load, hour]."""
        day = date.day_of_year - 1
        return self._p[profile, day] * self._p_scale[profile], self._q[profile, day] * self._q_scale[profile]

    def annual(self, profile: IndexArray) -> tuple[FloatArray, FloatArray]:
        """The same for the whole year, each [load, hour of year]."""
        p = self._p[profile].reshape(len(profile), YEAR_H) * self._p_scale[profile]
        return p, self._q[profile].reshape(len(profile), YEAR_H) * self._q_scale[profile]


def _per_peak(table: ProfileTable) -> FloatArray:
    """One over each profile's highest hour of the year, [profile, 1]."""
    peak = np.abs(table.x).max(axis=(1, 2)).astype(np.float64)
    for name in np.array(table.names)[peak == 0]:
        raise FeederError(f"{table.path}: column {str(name)!r}: expected an annual peak above 0, found only zeros")
    scale: FloatArray = 1 / peak[:, None]
    return scale


def _paired(active: ProfileTable, reactive: ProfileTable) -> IndexArray:
    """The row of `reactive` that belongs to each row of `active`."""
    row = {name.replace("_kvar_", "_kw_"): i for i, name in enumerate(reactive.names)}
    if len(row) < len(reactive.names):
        raise FeederError(f"{reactive.path}: expected one column for each customer, found `_kw_` and `_kvar_`")
    known = set(active.names)
    for name in active.names:
        if name not in row:
            raise FeederError(f"{reactive.path}: expected a column for {name!r} of {active.path}, found none")
    for name, i in row.items():
        if name not in known:
            raise FeederError(
                f"{active.path}: expected a column for {reactive.names[i]!r} of {reactive.path}, found none"
            )
    return np.array([row[name] for name in active.names], np.intp)


class FileProfiles:
    """Days of profiles in files; `other` serves what no file is given for, storage and generators.

    Homes take residential profiles, commercial and industrial customers commercial ones, PV sites PV profiles
    (per unit of rated power). All are read on the same date; who takes which profile is drawn every day.
    """

    def __init__(
        self,
        other: ProfileSource,
        residential: DemandFiles | None = None,
        commercial: DemandFiles | None = None,
        pv: Sequence[Path] = (),
    ) -> None:
        self.other = other
        home = None if residential is None else _Demand(residential)
        business = None if commercial is None else _Demand(commercial)
        self._demand = {
            CustomerClass.RESIDENTIAL: home,
            CustomerClass.COMMERCIAL: business,
            CustomerClass.INDUSTRIAL: business,
        }
        self._pv = np.concatenate([ProfileTable.read(path, PV).x for path in pv]) if pv else None

    def day(self, request: DayRequest, rng: np.random.Generator, date: CalendarDay | None = None) -> DayProfile:
        """One day on `date`, or on one that is drawn."""
        date = CalendarDay.draw(rng) if date is None else date
        loads, p, q = [np.arange(0)], [np.empty((0, HOURS))], [np.empty((0, HOURS))]
        for code, demand in self._demand.items():
            if demand is not None:
                at = np.flatnonzero(request.load_class == code)
                active, reactive = demand.on(date, rng.integers(demand.count, size=len(at)))
                loads.append(at)
                p.append(active)
                q.append(reactive)
        sites, pv = np.arange(0), np.empty((0, HOURS))
        if self._pv is not None:
            sites = np.arange(request.pv_count)
            profile = rng.integers(len(self._pv), size=request.pv_count)
            pv = self._pv[profile, date.day_of_year - 1].astype(np.float64)
        part = PartialDay(np.concatenate(loads), np.concatenate(p).T, np.concatenate(q).T, sites, pv.T)
        return complete(part, request, rng, date, self.other)

    def annual(
        self, load_class: npt.NDArray[np.int8], rng: np.random.Generator
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
        """Active and reactive multipliers of the same customers through a year, each [hour of year, load]."""
        p_mult, q_mult = np.empty((2, YEAR_H, len(load_class)), np.float32)
        for code, demand in self._demand.items():
            at = np.flatnonzero(load_class == code)
            if demand is not None:
                p, q = demand.annual(rng.integers(demand.count, size=len(at)))
                p_mult[:, at], q_mult[:, at] = p.T, q.T
            elif len(at):
                raise FeederError(f"no profile file is given for {code.name.lower()} customers")
        return p_mult, q_mult
