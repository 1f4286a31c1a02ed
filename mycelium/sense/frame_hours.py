"""Which of the 24 hours each timestamp is: time zones, clock changes, and readings that are not hourly.

Hours are counted in real time where timestamps have a UTC offset, else by the clock on the wall. A timestamp is the
first moment of its hour.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime

import numpy as np
import numpy.typing as npt
import pandas as pd

from mycelium.errors import FeederError
from mycelium.schema import HOURS
from mycelium.sense.frame_file import Texts
from mycelium.sense.readings_report import Finding, Trouble, gather, told

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

_HOUR = 3_600_000_000  # microseconds, in which all times here are counted
_DAY = 24 * _HOUR
_FARTHEST = 14 * _HOUR  # from UTC that a clock anywhere is
_ISO = (
    r"^((?:19|20|21)[0-9]{2}-[0-9]{2}-[0-9]{2}(?:[T ][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,9})?)?)?)"
    r" ?(Z|[+-][0-9]{2}(?::?[0-5][0-9])?)?$"
)
_EXPECTED = "a time such as 2026-01-31 13:00, or 2026-01-31T13:00+01:00"
_NIGHT = (1, 2, 3)  # hours of the clock at which clocks change
_DAYS_TOLD = 10


@dataclass(frozen=True)
class Stamps:
    """The different timestamps of a column.

    Attributes:
        text: As written. [stamp]
        good: Whether it is a time. [stamp]
        aware: Whether it has a UTC offset. [stamp]
        wall, real: Time on the wall and, where there is an offset, in UTC; the same where there is none. [stamp]
    """

    text: list[str]
    good: Flags
    aware: Flags
    wall: Ints
    real: Ints

    @staticmethod
    def of(column: pd.Series) -> tuple[Stamps, Ints]:
        """The different ones, and which each row has. [row]"""
        if not pd.api.types.is_datetime64_any_dtype(column):
            texts = Texts.of(column)
            return Stamps.parse(texts.text), texts.code
        code, found = pd.factorize(column)
        different = pd.DatetimeIndex(found)  # also of columns as pyarrow has them
        times = different.append(pd.DatetimeIndex([pd.NaT], tz=different.tz))
        text = [str(time) for time in times]
        good = np.asarray((times.year >= 1900) & (times.year < 2200))
        times = times.where(good, pd.NaT)
        wall = _microseconds(times.tz_localize(None))
        real = wall if times.tz is None else _microseconds(times.tz_convert("UTC").tz_localize(None))
        return Stamps(text, good, np.full(len(text), times.tz is not None), wall, real), code.astype(np.int64)

    @staticmethod
    def parse(text: list[str]) -> Stamps:
        parts = pd.Series(text, dtype="str").str.extract(_ISO)
        times = pd.DatetimeIndex(pd.to_datetime(parts[0], format="ISO8601", errors="coerce"))
        offset = np.array([_offset(text) for text in parts[1].fillna("")], np.int64)
        good = np.asarray(times.notna()) & (np.abs(offset) <= _FARTHEST)
        wall = _microseconds(times)
        return Stamps(text, good, parts[1].notna().to_numpy(), wall, wall - offset)


def _microseconds(times: pd.DatetimeIndex) -> Ints:
    """Microseconds since 1970, 0 where there is no time."""
    return np.asarray(np.where(times.isna(), 0, times.as_unit("us").asi8), dtype=np.int64)


def _offset(text: str) -> int:
    """Microseconds that '+01:00', '+0100', '+01' or 'Z' is ahead of UTC."""
    if not text or text == "Z":
        return 0
    digits = text[1:].replace(":", "").ljust(4, "0")
    return (1 if text[0] == "+" else -1) * (int(digits[:2]) * 60 + int(digits[2:])) * 60_000_000


def parse_start(start: str | datetime) -> Stamps:
    """The one time that ``start`` says, which has to be a whole hour."""
    stamp = Stamps.parse([str(start).strip()])
    if not stamp.good[0] or stamp.wall[0] % _HOUR:
        raise FeederError(f"start {told(str(start))}: expected a whole hour such as 2026-01-31 or 2026-01-31 13:00")
    return stamp


@dataclass(frozen=True)
class Hours:
    """Hours of all rows.

    Attributes:
        hour: Which of the 24, -1 where unreadable or outside. [row]
        past: Microseconds past the hour, any where unreadable. [row]
        dates_only: Whether all readable ones within are at 00:00, as dates without a time of day are.
        clock: Hour of the clock at each of the 24, as the first row that has it says, -1 where none does. [hour]
        start: First hour, as the clock said; empty where there is none.
        aware: Whether timestamps have a UTC offset.
        findings: About time.
    """

    hour: Ints
    past: Ints
    dates_only: bool
    clock: Ints
    start: str
    aware: bool
    findings: list[Finding]

    @staticmethod
    def of(column: pd.Series, row: Ints, start: str | datetime | None, source: str) -> Hours:
        """Read the time column.

        Args:
            column: Timestamps. [row]
            row: Numbers of the rows, for people. [row]
            start: First of the 24 hours; if not given, the readings must not span more.
            source: File, for errors.
        """
        stamps, code = Stamps.of(column)
        code = np.where(code < 0, len(stamps.text) - 1, code)
        aware = _mostly_aware(stamps, code)
        fits = stamps.good & (stamps.aware == aware)
        findings = [
            _unreadable(stamps, code, row),
            _refused(Trouble.TIME, ~fits & stamps.good, stamps, code, row, _other_kind(aware)),
        ]
        used = np.zeros(len(fits), bool)
        used[code] = True
        used &= fits
        if not used.any():
            nowhere = np.full(len(code), -1)
            return Hours(nowhere, nowhere, False, np.full(HOURS, -1), "", aware, _some(findings))
        first, wall = _first(stamps, used, aware, start, source)
        hour, rest = (stamps.real - first) // _HOUR, (stamps.real - first) % _HOUR
        inside = fits & (hour >= 0) & (hour < HOURS)
        says = f"outside the 24 hours from {_say(wall)}"
        findings.append(_refused(Trouble.OUTSIDE, fits & ~inside, stamps, code, row, says))
        clock = np.full(HOURS, -1)
        seen = used & inside
        clock[hour[seen]] = stamps.wall[seen] % _DAY // _HOUR
        findings += _hours(stamps, seen, np.unique(hour[seen]), clock, aware)
        dates_only = not np.any(stamps.wall[seen] % _DAY)
        hour = np.where(inside, hour, -1)
        return Hours(hour[code], rest[code], dates_only, clock, _say(wall), aware, _some(findings))


def _some(findings: list[Finding | None]) -> list[Finding]:
    return [finding for finding in findings if finding is not None]


def _mostly_aware(stamps: Stamps, code: Ints) -> bool:
    rows = np.bincount(code, minlength=len(stamps.text))
    return bool(rows[stamps.good & stamps.aware].sum() > rows[stamps.good & ~stamps.aware].sum())


def _other_kind(aware: bool) -> str:
    kinds = ("has a UTC offset, most others have none", "has no UTC offset, most others have one")
    return f"{kinds[aware]}: give all or none"


def _unreadable(stamps: Stamps, code: Ints, row: Ints) -> Finding | None:
    failed = ~stamps.good[code]
    if not failed.any():
        return None

    def tell(item: int) -> str:
        text = stamps.text[code[item]]
        return f"{told(text)}{_advice(text)}"

    rows, examples = gather(failed, code, row, tell)
    return Finding(Trouble.TIME, "time", rows, f"expected {_EXPECTED}", examples)


def _advice(text: str) -> str:
    """How a time that is none may have been meant."""
    if " 24:" in text or "T24:" in text:
        return ": write 00:00 of the next day"
    if re.search(r"[0-9] ?[AaPp]\.?[Mm]\.?$", text):
        return ": write hours as 00 to 23"
    if date := re.match(r"([0-9]{4})[/.]([0-9]{1,2})[/.]([0-9]{1,2})(?![0-9])", text):
        return _date(*(int(part) for part in date.groups()))
    if date := re.match(r"([0-9]{1,2})[/.-]([0-9]{1,2})[/.-]([0-9]{4})(?![0-9])", text):
        one, other, year = (int(part) for part in date.groups())
        if max(one, other) <= 12 and one != other:
            return ": which is the day and which the month is not said"
        return _date(year, min(one, other), max(one, other))
    if re.match(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9:.]+(?:[+-][0-9:]+)? ?\[?[A-Za-z_]+(?:/[A-Za-z_/]+)?\]?$", text):
        return ": write the UTC offset instead of the name of the time zone, as in 2026-01-31T13:00+01:00"
    offset = re.search(r":[0-9:.]+ ?[+-]([0-9]{2}):?([0-9]{2})$", text)
    if offset and (int(offset[1]) * _HOUR > _FARTHEST or int(offset[2]) > 59):
        return ": no clock has that UTC offset"
    return ""


def _date(year: int, month: int, day: int) -> str:
    return f": write the date as {year:04d}-{month:02d}-{day:02d}" if 1 <= month <= 12 and 1 <= day <= 31 else ""


def _refused(trouble: Trouble, which: Flags, stamps: Stamps, code: Ints, row: Ints, says: str) -> Finding | None:
    """Finding of the rows whose stamp is one of these. ``which`` is per stamp."""
    failed = which[code]
    if not failed.any():
        return None
    rows, examples = gather(failed, code, row, lambda item: told(stamps.text[code[item]]))
    return Finding(trouble, "time", rows, says, examples)


def _first(stamps: Stamps, used: Flags, aware: bool, start: str | datetime | None, source: str) -> tuple[int, int]:
    """Real and wall time of the first of the 24 hours."""
    order = np.flatnonzero(used)[np.argsort(stamps.real[used], kind="stable")]
    real, wall = stamps.real[order], stamps.wall[order]
    if start is not None:
        return _asked(parse_start(start), real, wall, aware, source)
    first_wall = int(wall[0] // _HOUR * _HOUR)
    first = int(real[0]) - int(wall[0]) + first_wall
    if real[-1] >= first + _DAY:
        raise FeederError(_too_many(real, wall, source))
    if wall[-1] // _DAY == wall[0] // _DAY:  # part of one day: the whole day
        midnight = first_wall // _DAY * _DAY
        return first - (first_wall - midnight), midnight
    return first, first_wall


def _asked(start: Stamps, real: Ints, wall: Ints, aware: bool, source: str) -> tuple[int, int]:
    """The first hour as asked for, which must have readings after it."""
    begin, first = int(start.wall[0]), int(start.real[0])
    if start.aware[0] and not aware:
        raise FeederError(f"{source}: times have no UTC offset, so start '{start.text[0]}' must have none either")
    if aware and not start.aware[0]:  # as the clock on the wall said then
        next_one = min(int(np.searchsorted(wall, begin)), len(wall) - 1)
        first = begin - int(wall[next_one] - real[next_one])
    if not np.any((real >= first) & (real < first + _DAY)):
        raise FeederError(
            f"{source}: no readings in the 24 hours from {_say(begin)}; days with readings: {_days(real, wall)}"
        )
    return first, begin


def _too_many(real: Ints, wall: Ints, source: str) -> str:
    example = np.datetime_as_string(_day_of(wall[:1]))[0]
    return (
        f"{source}: readings from {_say(int(wall[0]))} to {_say(int(wall[-1]))}, more than the 24 consecutive hours "
        f"that are read at once; say where these start (--start {example}, in Python start='{example}'); "
        f"days with readings: {_days(real, wall)}"
    )


def _day_of(wall: Ints) -> npt.NDArray[np.datetime64]:
    return wall.astype("datetime64[us]").astype("datetime64[D]")


def _days(real: Ints, wall: Ints) -> str:
    """Days of the clock with their number of hours; 23 and 25 are named."""
    days, member = np.unique(_day_of(wall), return_inverse=True)
    told_days = []
    for k, day in enumerate(days[:_DAYS_TOLD]):
        of_day = member.ravel() == k
        count = len(np.unique(real[of_day] // _HOUR))
        changed = _clock_change(real[of_day], wall[of_day])
        why = f"; {changed}" if changed else ""
        told_days.append(f"{day} ({count} hour{'' if count == 1 else 's'}{why})")
    more = f" and {len(days) - _DAYS_TOLD} more days" if len(days) > _DAYS_TOLD else ""
    return ", ".join(told_days) + more


def _say(wall: int) -> str:
    return str(np.datetime64(wall, "us").astype("datetime64[m]")).replace("T", " ")


def _hours(stamps: Stamps, seen: Flags, hours: Ints, clock: Ints, aware: bool) -> list[Finding | None]:
    """What is worth knowing about the hours: those without any reading, and a clock change among them."""
    found: list[Finding | None] = []
    nothing = np.zeros(0, np.int64)
    changed = _clock_change(stamps.real[seen], stamps.wall[seen])
    if changed:
        says = f"{changed}; the 24 hours are consecutive in real time"
        found.append(Finding(Trouble.CLOCK, "time", nothing, says, used=True))
    missing = np.setdiff1d(np.arange(HOURS), hours)
    if not len(missing):
        return found
    says = f"{len(hours)} of 24 hours have readings; the others stay unseen"
    if not aware and len(missing) == 1 and 0 < missing[0] < HOURS - 1:
        before = int(clock[missing[0] - 1])
        if (before + 1) % 24 in _NIGHT:
            says += (
                f"; {before + 1:02d}:00 is missing everywhere, as on a day when clocks are put forward: if so, the "
                "hours after it are one too late; timestamps with a UTC offset would say"
            )
    found.append(Finding(Trouble.HOURS, "time", nothing, says, used=True))
    return found


def _clock_change(real: Ints, wall: Ints) -> str:
    """What was done to the clock between the first and the last of these times; empty if nothing."""
    first, last = int(np.argmin(real)), int(np.argmax(real))
    ahead = int((wall[last] - real[last]) - (wall[first] - real[first]))
    way = "forward" if ahead > 0 else "back"
    return (
        f"the clock was put {way} {abs(ahead) / _HOUR:g} h, so the day had {24 - ahead / _HOUR:g} hours"
        if ahead
        else ""
    )


def put_back(hours: Hours, hour: Ints, repeated: Flags, place: Ints) -> Finding | None:
    """Whether rows that come twice do so because clocks were put back: nearly all in one hour of the night.

    Args:
        hours: Of all rows.
        hour: Hour of each row that is used or comes twice. [item]
        repeated: Whether it is a repetition. [item]
        place: What it reads. [item]
    """
    if hours.aware or not repeated.any():
        return None
    count = np.bincount(hour[repeated], minlength=HOURS)
    worst = int(np.argmax(count))
    at = hour == worst
    in_night = int(hours.clock[worst]) in _NIGHT
    several = len(np.unique(place[at & repeated])) * 2 > len(np.unique(place[at]))
    if not in_night or not several or count[worst] * 10 < 9 * count.sum():
        return None
    says = (
        f"{hours.clock[worst]:02d}:00 comes twice, as on a day when clocks are put back (25 hours): readings that "
        "differ are not used, and the hours after it are one too early; timestamps with a UTC offset would tell"
    )
    return Finding(Trouble.CLOCK, "time", np.zeros(0, np.int64), says, used=True)
