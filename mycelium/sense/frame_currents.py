"""Currents in a wrong unit: told by the rating of what carries them, and by the powers beside them.

Apparent power over voltage and current is 1 where all are right. Where it is far from that, either the powers are wrong
or the currents; the rating says which.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mycelium.grid.grid import Grid
from mycelium.schema import Quantity
from mycelium.sense.frame_units import FEW, MOST, Codes, WrongUnit, largest_of_rows, median_over_hours, quantile

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

# Tables of branches, and rows that it takes to speak for all: on record, the voltage of a few may be wrong.
SPEAK = {"line": FEW, "winding": FEW, "substation": 1}
SMALL = 0.02  # of what is expected: a power below this all day is too small, if nearly all are
KILO = 1.0 / 300.0  # below this share a factor of a thousand is in it: a share above 0.3 in kW
OVERLOAD = 2.0  # nothing takes this many times the rating hour by hour
_FAR = 10.0  # times the rating: not even with a rating that is half of the true one, and overloaded
_AGREES = 0.1  # of what the current says: a power above this confirms it
_RATING_A = 10.0  # no conductor is rated less: below, it is a place-holder or in kA
_NOTHING = 1e-6  # kVA, A
_ABSURD_A = 1e6


def nonzero(value: Floats) -> Floats:
    """The value, NaN where it is nothing in any unit."""
    return np.where(np.abs(value) > _NOTHING, value, np.nan)


@dataclass(frozen=True)
class Powers:
    """Apparent powers of one table.

    Attributes:
        size: kVA of what is there of P and Q, NaN where there is nothing. [hour, row, slot]
        both: Whether P and Q are reported. [row, slot]
        telling: Whether too small a size says something. [row, slot]
    """

    size: Floats
    both: Flags
    telling: Flags

    @staticmethod
    def of(table: str, value: Mapping[str, Floats]) -> Powers:
        p, q = (value[f"{table}.{quantity}"] for quantity in (Quantity.ACTIVE, Quantity.REACTIVE))
        has_p, has_q = np.isfinite(p), np.isfinite(q)
        size = nonzero(np.hypot(np.where(has_p, p, 0.0), np.where(has_q, q, 0.0)))
        active: Flags = np.any(has_p, axis=0)
        both: Flags = active & np.any(has_q, axis=0)
        # A line that only charges what is behind it has reactive power alone: there a small P says nothing.
        return Powers(size, both, both if table == "line" else active)

    def too_small(self, ratio: Floats, measured: Flags, n_rows: int) -> Flags:
        """Series that are far below what is expected of them. [row, slot]

        Args:
            ratio: Of a typical size to what is expected, NaN where nothing says. [row, slot]
            measured: Whether a current beside says what to expect. [row, slot]
            n_rows: Rows that it takes to speak for all.
        """
        ratio = np.where(self.telling, ratio, np.nan)
        alike = np.isfinite(ratio).any(axis=1).sum() >= n_rows and quantile(largest_of_rows(ratio), MOST) < SMALL
        # No voltage on record is wrong by as much as a kilo: a day of one instrument says it by itself.
        alone = measured & self.both & (np.isfinite(self.size).sum(axis=0) >= FEW) & (ratio < KILO)
        return np.asarray(alone | (ratio < SMALL) if alike else alone)


def rated_amps(grid: Grid, base_kv: Mapping[str, Floats], capacity_kva: float) -> dict[str, Floats]:
    """Current that a conductor may carry all day, per table of branches; NaN where nothing says. [row]

    Args:
        grid: The network.
        base_kv: Voltage of a conductor to ground, per table. [row]
        capacity_kva: What the network can carry; it rates sources, and lines that have no rating.
    """
    amps = grid.line["normal_amps"].to_numpy()
    kva, kv = (grid.winding[column].to_numpy() for column in ("rated_kva", "rated_kv"))
    n = grid.transformer["n_phases"].to_numpy()[grid.winding["transformer"].to_numpy()]
    coil_kv = positive(kv / np.where(n > 1, np.sqrt(3.0), 1.0))
    return {
        "line": np.where(amps >= _RATING_A, amps, capacity_kva / 3.0 / base_kv["line"]),
        "winding": positive(kva) / n / coil_kv,
        "substation": capacity_kva / 3.0 / base_kv["substation"],
    }


def positive(value: Floats) -> Floats:
    return np.where(value > 0, value, np.nan)


@dataclass(frozen=True)
class _Currents:
    """Currents of one table of branches, and what they are held against.

    Attributes:
        value: A. [hour, row, slot]
        all_day: Whether there are enough to speak for themselves. [row, slot]
        loading: Ratio to the rating: of the median, as some hours of fault or overload are no wrong unit. [row, slot]
        power: Ratio of the power beside it to what the current says, NaN where there is none. [row, slot]
        weak: Whether that is little, and says something. [row, slot]
        small: Whether it is far too small. [row, slot]
    """

    value: Floats
    all_day: Flags
    loading: Floats
    power: Floats
    weak: Flags
    small: Flags

    @staticmethod
    def of(table: str, current: Floats, powers: Powers, base_kv: Floats, rated_a: Floats) -> _Currents:
        loading = median_over_hours(current) / rated_a[:, None]
        power = median_over_hours(powers.size / (base_kv[:, None] * nonzero(current)))
        small = powers.too_small(power, np.isfinite(power), SPEAK[table])
        return _Currents(
            current, np.isfinite(current).sum(axis=0) >= FEW, loading, power, powers.telling & (power < SMALL), small
        )

    @property
    def to_blame(self) -> bool:
        """Whether these are too large, rather than the powers beside them too small."""
        return quantile(self.loading[self.small & np.isfinite(self.loading)], 0.5) > OVERLOAD

    def codes(self, blamed: bool, most_far: bool, sure: bool) -> Codes:
        """Which are too large. [hour, row, slot]

        Args:
            blamed: Whether currents are to blame where powers are too small.
            most_far: Whether most currents of the file are far above ratings.
            sure: Whether the ratings are.
        """
        far = self.loading > _FAR
        denied, confirmed = self.power < _AGREES, self.power >= _AGREES
        wrong = far & ~confirmed & (most_far | (self.all_day & (denied | sure)))
        doubtful = (blamed or most_far) & ~confirmed & (self.loading > 0)
        code = np.where(doubtful, WrongUnit.MAYBE_TOO_LARGE, WrongUnit.NONE)
        code = np.where(far & self.all_day, WrongUnit.OVER_RATED, code)
        code = np.where(wrong | (self.weak & blamed), WrongUnit.TOO_LARGE, code)
        absurd = (self.value > _ABSURD_A) & (code != WrongUnit.TOO_LARGE)
        codes = np.where(absurd, WrongUnit.ABSURD, np.where(np.isfinite(self.value), code, WrongUnit.NONE))
        return codes.astype(np.int8)


def current_units(
    value: Mapping[str, Floats],
    powers: Mapping[str, Powers],
    base_kv: Mapping[str, Floats],
    rated_a: Mapping[str, Floats],
) -> dict[str, Codes]:
    """Currents that are too large, per table of branches. [hour, row, slot]

    Args:
        value: Readings per channel, NaN where there is none. [hour, row, slot]
        powers: Per table.
        base_kv: Voltage of a conductor to ground, per table. [row]
        rated_a: Rated current, per table. [row]
    """
    found = {t: _Currents.of(t, value[f"{t}.current_a"], powers[t], base_kv[t], rated_a[t]) for t in SPEAK}
    # One export makes one mistake: where it is the currents at lines, it is not the powers at transformers.
    blamed = any(currents.to_blame for currents in found.values())
    loading = np.concatenate([largest_of_rows(currents.loading) for currents in found.values()])
    most_far = len(loading) >= FEW and quantile(loading, 0.5) > _FAR
    # The rating of a line may be wrong by itself; on a transformer's rests its impedance.
    return {table: currents.codes(blamed, most_far, table == "winding") for table, currents in found.items()}
