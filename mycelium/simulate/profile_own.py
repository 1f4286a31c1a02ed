"""The shapes that came with a network, replayed on a drawn date.

A network's shapes may have any step and any length. Each is turned into whole days of hourly means once:

* steps shorter than an hour are averaged, longer ones are held, and steps that straddle an hour are shared
  by time;
* a shape of a year is read by date, a shorter one of several days is repeated through the year, as OpenDSS
  does, and what is left after its last whole day is not used;
* a shape shorter than a day is repeated until the day is full, so that a single step is a constant.

Shapes are multipliers. Where OpenDSS gives kW (`UseActual`), the caller divides by the load's nominal power
first.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from mycelium.errors import FeederError
from mycelium.schema import HOURS
from mycelium.simulate.profiles import (
    DAYS_PER_YEAR,
    NO_SHAPE,
    CalendarDay,
    DayProfile,
    DayRequest,
    FloatArray,
    PartialDay,
    ProfileSource,
    complete,
)

LEAP_DAY = 31 + 28  # days before 29 February


def daily_means(steps: FloatArray, hours_per_step: float) -> FloatArray:
    """Hourly means of a shape as whole days, [day, hour]."""
    per_hour = round(1 / hours_per_step)
    # A step written as a rounded decimal (0.01667) is taken for the even part of the hour that it means.
    if per_hour and abs(per_hour * hours_per_step - 1) < 1e-3:
        per_day = per_hour * HOURS
        whole = np.resize(steps, max(len(steps) // per_day, 1) * per_day)  # repeats what is shorter
        days = whole.reshape(-1, HOURS, per_hour).mean(axis=2)
    else:
        days = _means_by_time(steps, hours_per_step)
    return np.delete(days, LEAP_DAY, axis=0) if len(days) == DAYS_PER_YEAR + 1 else days


def _means_by_time(steps: FloatArray, hours_per_step: float) -> FloatArray:
    """Hourly means of steps that the hour is no multiple of, over whole days or else one, [day, hour]."""
    length_h = len(steps) * hours_per_step
    whole_days = max(int((length_h + 1e-6) // HOURS), 1)
    periods, within_h = np.divmod(np.arange(whole_days * HOURS + 1), length_h)
    integral = np.concatenate([[0.0], np.cumsum(steps)]) * hours_per_step
    upto = periods * integral[-1] + np.interp(within_h, np.arange(len(integral)) * hours_per_step, integral)
    days: FloatArray = np.diff(upto).reshape(whole_days, HOURS)
    return days


class OwnProfiles:
    """A network's own shapes; `other` serves the loads and sites without one, storage and generators.

    All shapes are read on the same date. Where `q_shapes` has None, reactive power follows the active shape.
    The values are the network's: they are neither scaled nor limited.
    """

    def __init__(
        self,
        p_shapes: Sequence[npt.NDArray[np.floating]],
        q_shapes: Sequence[npt.NDArray[np.floating] | None],
        hours_per_step: Sequence[float],
        other: ProfileSource,
    ) -> None:
        if not len(p_shapes) == len(q_shapes) == len(hours_per_step):
            counts = (len(p_shapes), len(q_shapes), len(hours_per_step))
            raise FeederError(f"own shapes: p, q and hours per step differ in number: {counts}")
        self.other = other
        p_days = [
            _checked(shape, step, f"p shape {i}")
            for i, (shape, step) in enumerate(zip(p_shapes, hours_per_step, strict=True))
        ]
        q_days = [
            p_days[i] if shape is None else _checked(shape, step, f"q shape {i}")
            for i, (shape, step) in enumerate(zip(q_shapes, hours_per_step, strict=True))
        ]
        self._p, self._q = _Days(p_days), _Days(q_days)

    def day(self, request: DayRequest, rng: np.random.Generator, date: CalendarDay | None = None) -> DayProfile:
        """One day on `date`, or on one that is drawn."""
        date = CalendarDay.draw(rng) if date is None else date
        pv_shape = request.own_pv_shape
        if pv_shape is None:
            pv_shape = np.full(request.pv_count, NO_SHAPE, np.int32)
        highest = max(request.own_shape.max(initial=NO_SHAPE), pv_shape.max(initial=NO_SHAPE))
        if highest >= len(self._p.length):
            raise FeederError(f"own shape {highest} is asked for, but there are only {len(self._p.length)}")
        loads, sites = np.flatnonzero(request.own_shape >= 0), np.flatnonzero(pv_shape >= 0)
        part = PartialDay(
            loads,
            self._p.on(date, request.own_shape[loads]),
            self._q.on(date, request.own_shape[loads]),
            sites,
            self._p.on(date, pv_shape[sites]),
        )
        return complete(part, request, rng, date, self.other)


class _Days:
    """Shapes of different numbers of days, one after the other, [day, hour]."""

    def __init__(self, shapes: list[FloatArray]) -> None:
        self.rows = np.concatenate(shapes) if shapes else np.empty((0, HOURS))
        self.length = np.array([len(shape) for shape in shapes], np.intp)
        self.start = np.cumsum(self.length) - self.length

    def on(self, date: CalendarDay, shape: npt.NDArray[np.int32]) -> FloatArray:
        """The day of each of these shapes, [hour, shape]."""
        days: FloatArray = self.rows[self.start[shape] + (date.day_of_year - 1) % self.length[shape]]
        return days.T


def _checked(shape: npt.NDArray[np.floating], hours_per_step: float, name: str) -> FloatArray:
    """The shape's days, [day, hour]; a FeederError where it cannot be a shape."""
    steps = np.asarray(shape, np.float64)
    if steps.ndim != 1 or len(steps) == 0:
        raise FeederError(f"own {name}: expected one value per step, found an array of shape {steps.shape}")
    if not (np.isfinite(hours_per_step) and hours_per_step > 0):
        raise FeederError(f"own {name}: expected a positive number of hours per step, found {hours_per_step}")
    bad = np.flatnonzero(~np.isfinite(steps))
    if len(bad):
        raise FeederError(f"own {name}: expected finite numbers, found {steps[bad[0]]} at step {bad[0]}")
    return daily_means(steps, float(hours_per_step))
