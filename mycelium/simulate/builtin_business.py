"""Built-in commercial and industrial customers: plateaus with opening hours, and shifts.

A business follows the schedule of its kind, moved by its own opening time; between closing and opening only
its base load is left. Air conditioning follows the weather while somebody is in. Industry follows shifts,
in steps.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mycelium.schema import HOURS
from mycelium.simulate.builtin_common import RealArray, Weather, drift, hourly
from mycelium.simulate.profiles import SATURDAY, CalendarDay, IndexArray


@dataclass(frozen=True, slots=True)
class Kind:
    """How many businesses in twenty, shares of base load and of air conditioning in the peak, and schedules.

    A schedule is in ninths of full use.
    """

    name: str
    twentieths: int
    base: float
    air: float
    weekday: str
    saturday: str
    sunday: str


_EARLIEST_H = 2  # opening times spread this far to both sides
_IDLE, _FULL = "0" * HOURS, "9" * HOURS
_SHOP, _GROCER, _GUESTS = "000000013789999999987310", "000013578999999999998610", "654456899887776668998876"
_THREE_SHIFTS, _NIGHT = "888888899998999889998998", "999999620000000000048999"
COMMERCIAL = (
    Kind("office", 6, 0.22, 0.28, "000000148999898998631000", "000000012333332210000000", _IDLE),
    Kind("shop", 5, 0.20, 0.25, _SHOP, _SHOP, "000000000257888875200000"),
    Kind(
        "food",
        4,
        0.25,
        0.22,
        "100000012457995447999763",
        "200000001247996557999986",
        "200000001258997547998752",
    ),
    Kind("school", 2, 0.15, 0.25, "000000159999998742110000", _IDLE, _IDLE),
    Kind("grocer", 2, 0.50, 0.18, _GROCER, _GROCER, "000001357899999998752000"),
    Kind("hotel or hospital", 1, 0.35, 0.25, _GUESTS, _GUESTS, _GUESTS),
)
INDUSTRIAL = (
    Kind("one shift", 7, 0.14, 0.05, "000000599969999730000000", _IDLE, _IDLE),
    Kind("two shifts", 5, 0.18, 0.05, "100000699998999889998995", "000000699998987000000000", _IDLE),
    Kind("three shifts", 4, 0.22, 0.04, _THREE_SHIFTS, _THREE_SHIFTS, "776666666665000000000059"),
    Kind("continuous", 2, 0.45, 0.04, _FULL, _FULL, _FULL),
    Kind("by night", 2, 0.20, 0.03, _NIGHT, "999999620000000000000000", "000000000000000000048999"),
)


@dataclass(frozen=True, slots=True)
class Businesses:
    """What stays the same in a business from day to day, [business, 1], but [business] for the first two.

    A business opens `opens_h - _EARLIEST_H` hours later than its kind, and a share of an hour more.
    """

    kind: IndexArray
    opens_h: npt.NDArray[np.int64]
    opens_share: RealArray
    base: RealArray
    air: RealArray
    heated: RealArray
    motors: RealArray


class Trade:
    """Customers of one table of kinds.

    Parameters
    ----------
    steps_h
        How long production keeps a level.
    unevenness
        How far the level falls from step to step, of full use.
    quiet
        How far a slack day stays below the busiest.
    """

    def __init__(self, kinds: tuple[Kind, ...], steps_h: int, unevenness: float, quiet: float) -> None:
        schedule = (
            np.array(
                [[hourly(day) for day in (kind.weekday, kind.saturday, kind.sunday)] for kind in kinds],
                np.float32,
            )
            / 9
        )
        shifts = range(-_EARLIEST_H, _EARLIEST_H + 1)
        self._moved = np.stack([np.roll(schedule, shift, axis=-1) for shift in shifts])
        self._kind_of_twentieth = np.repeat(np.arange(len(kinds)), [kind.twentieths for kind in kinds])
        self._base = np.array([[kind.base] for kind in kinds], np.float32)
        self._air = np.array([[kind.air] for kind in kinds], np.float32)
        self._steps_h = steps_h
        self._unevenness = unevenness
        self._quiet = quiet

    def draw(self, count: int, rng: np.random.Generator) -> Businesses:
        """Businesses of all kinds."""
        kind = self._kind_of_twentieth[rng.integers(len(self._kind_of_twentieth), size=count)]
        u = rng.random((5, count, 1), dtype=np.float32)
        base, air = self._base[kind] * (0.6 + 0.8 * u[1]), self._air[kind] * (0.4 + 1.2 * u[2])
        opens_h = rng.integers(2 * _EARLIEST_H, size=count)
        return Businesses(kind, opens_h, u[0], base, air, u[3] * u[3], 0.2 + 0.3 * u[4])

    def day(
        self, businesses: Businesses, date: CalendarDay, weather: Weather, rng: np.random.Generator
    ) -> tuple[RealArray, RealArray]:
        """Active and reactive multipliers of one day, each [business, hour]."""
        count = len(businesses.kind)
        use = self._use(businesses, max(date.weekday - SATURDAY + 1, 0))
        level = 1 - self._quiet * rng.random((count, 1), dtype=np.float32)
        uneven = np.repeat(rng.random((count, HOURS // self._steps_h), dtype=np.float32), self._steps_h, axis=1)
        running = (1 - businesses.base - businesses.air) * level * use * (1 - self._unevenness * uneven)
        air = (weather.heating * businesses.heated + weather.cooling) * (0.2 + 0.8 * use) * businesses.air
        settled = 0.94 + 0.06 * drift(count, rng)
        p = (businesses.base + running + air) * settled
        # A motor draws its magnetising power whatever it carries, so the power factor falls with the load.
        magnetising = businesses.motors * level * use
        q = 0.9 * businesses.base + magnetising + (1 - businesses.motors) * running + 1.2 * air
        return np.minimum(p, 1), q * (0.85 + 0.15 * drift(count, rng))

    def _use(self, businesses: Businesses, day: int) -> RealArray:
        """The schedules, each moved by its customer's own opening time, [business, hour]."""
        moved = self._moved[:, :, day]
        before, after = (
            moved[businesses.opens_h, businesses.kind],
            moved[businesses.opens_h + 1, businesses.kind],
        )
        return before + businesses.opens_share * (after - before)


COMMERCE = Trade(COMMERCIAL, steps_h=1, unevenness=0.08, quiet=0.45)
INDUSTRY = Trade(INDUSTRIAL, steps_h=3, unevenness=0.35, quiet=0.3)
