"""Powers and currents in a wrong unit: kW that are W or MW, A that are kA.

Records have no demand. What a power is held against is, where there is one, the current at the same place, else what
the network can carry. Too small a power is told from light load only where nearly all readings of a kind are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mycelium.grid.grid import Grid
from mycelium.schema import LOW_VOLTAGE_KV
from mycelium.sense.frame_units import FEW, MOST, Codes, WrongUnit, expected_voltage_v, median_over_hours

Floats = npt.NDArray[np.float64]

# A ratio to what is expected is near 1, or a thousand times that or less where the unit is wrong.
_SMALL, _LARGE = 0.02, 10.0
_LARGE_ALIKE = 1.5  # a series above this is taken for wrong too, where nearly all are
_OVERLOAD = 2.0  # nothing takes this many times the rating hour by hour
_LIGHT = 1.0 / 30.0  # a phase of a feeder head carries at least 2 % of this share of the network's capacity
_CUSTOMER_KVA = (1.0, 50.0)  # peak of a customer below and above 1 kV; hardly any stays below 2 % of it all day
_TINY_A = 1.0  # nearly all currents below this are kA, if powers beside them are a thousand times too large
_NOTHING = 1e-6  # kVA, A
_ABSURD_A, _ABSURD_KW = 1e6, 1e8


def power_units(grid: Grid, value: Mapping[str, Floats]) -> dict[str, Codes]:
    """Wrong units of powers and currents, per channel. [hour, row, slot]

    Args:
        grid: The network.
        value: Readings per channel, NaN where there is none. [hour, row, slot]
    """
    capacity = capacity_kva(grid)
    low, high, limit = _of_customers(grid, capacity)
    at = grid.consumer["bus1"].to_numpy()
    low_there, high_there = (np.bincount(at, kva, minlength=len(grid.bus)).astype(float) for kva in (low, high))
    total = _OVERLOAD * capacity
    everywhere = np.full((len(grid.bus), 1), total)
    demand = _Expected(low[:, None], high[:, None], limit[:, None], total, FEW)
    found = _judge("consumer", value, demand, _peak)
    found |= _judge("bus", value, _Expected(low_there[:, None], high_there[:, None], everywhere, total, FEW), _peak)

    head_kw = _expected_at_head(value["consumer.active_power_kw"], found["consumer.active_power_kw"], capacity)
    base_v = expected_voltage_v(grid)
    ratings = {
        "line": np.full(len(grid.line), capacity),
        "winding": grid.winding["rated_kva"].to_numpy(),
        "substation": np.full(len(grid.substation), capacity),
    }
    for table, rating in ratings.items():
        guess = (head_kw, capacity / 3.0) if table == "substation" else (np.nan, np.nan)
        found |= _branches(table, value, base_v[table], rating, guess)
    return found


def capacity_kva(grid: Grid) -> float:
    """What the network can carry: its largest transformer, or all that serve customers, or else a source's lines."""
    if len(grid.transformer):
        kva = grid.winding["rated_kva"].to_numpy()[grid.transformer["first_winding"].to_numpy()]
        return float(max(kva.max(), kva[grid.transformer["distribution"].to_numpy()].sum()))
    amps = grid.line["normal_amps"].to_numpy()
    base_kv = grid.bus["base_kv"].to_numpy()[grid.line["bus1"].to_numpy()]
    carried = 3.0 * (amps * base_kv)[np.isfinite(amps) & (amps > 0)]
    return float(carried.max()) * max(len(grid.substation), 1) if len(carried) else float("nan")


def _of_customers(grid: Grid, capacity: float) -> tuple[Floats, Floats, Floats]:
    """What customers take at most: a low and a high guess, and what none exceeds. [customer] each

    The high guess is a share of the serving transformer, or of the network's capacity where there is none.
    """
    kva = grid.winding["rated_kva"].to_numpy()[grid.transformer["first_winding"].to_numpy()]
    bank = grid.transformer["bank"].to_numpy()
    serving = grid.consumer["transformer"].to_numpy()
    served = serving >= 0
    rating = np.full(len(serving), capacity)
    rating[served] = np.bincount(bank, kva, minlength=len(bank))[bank[serving[served]]]
    n_alike = np.bincount(serving + 1)[serving + 1] if len(serving) else np.zeros(0)
    share = rating / np.maximum(n_alike, 1)
    low_voltage = grid.consumer["rated_kv"].to_numpy() < LOW_VOLTAGE_KV
    low = np.where(low_voltage, *_CUSTOMER_KVA)
    return low, np.maximum(share, low), _OVERLOAD * rating


def _expected_at_head(p: Floats, wrong: Codes, capacity: float) -> float:
    """kW of one phase of a feeder head: a third of what metered customers take, or what the network may carry."""
    usable = np.where(np.isfinite(p) & (wrong == 0), p, 0.0)
    if usable.any():
        return float(np.median(usable.sum(axis=(1, 2))) / 3.0)
    return capacity * _LIGHT


@dataclass(frozen=True)
class _Expected:
    """What powers of one table are held against, kVA.

    Attributes:
        low, high: Guesses of what they are near; 0 or NaN where nothing says. [(hour,) row, slot or 1]
        limit: What no series exceeds. [row, slot or 1]
        total: What all together must exceed to be too large: metered customers may all be large ones.
        n_rows: How many rows it takes to speak for all: a customer or two may take nothing.
    """

    low: Floats
    high: Floats
    limit: Floats
    total: float
    n_rows: int

    def ratios(self, size: Floats) -> tuple[Floats, Floats]:
        """Ratio of a size to the low and to the high guess. [hour, row, slot]"""
        return size / np.where(self.low > 0, self.low, np.nan), size / np.where(self.high > 0, self.high, np.nan)


def _branches(
    table: str, value: Mapping[str, Floats], base_v: Floats, rating_kva: Floats, otherwise_kva: tuple[float, float]
) -> dict[str, Codes]:
    """Wrong units of powers and currents of one table of branches, held against each other. [hour, row, slot]

    Args:
        table: line, winding or substation.
        value: As in ``power_units``.
        base_v: Voltage of a conductor to ground. [row]
        rating_kva: [row]
        otherwise_kva: A low and a high guess of a phase's power where there is no current.
    """
    current = value[f"{table}.current_a"]
    kva = base_v[:, None] / 1e3 * _nonzero(current)
    low, high = (np.where(np.isfinite(kva), kva, guess) for guess in otherwise_kva)
    n_rows = 1 if table == "substation" else FEW  # the records' voltage of a few lines may be wrong
    found = _judge(table, value, _Expected(low, high, _OVERLOAD * rating_kva[:, None], 0.0, n_rows), median_over_hours)
    codes = np.where(current > _ABSURD_A, WrongUnit.ABSURD, 0).astype(np.int8)
    # Amperes a thousand times too small make powers look large.
    small = np.isfinite(current) & (_quantile(_peak(current), MOST) < _TINY_A)
    if small.any() and any((powers == WrongUnit.WATT).any() for powers in found.values()):
        codes[small] = WrongUnit.KA
        for powers in found.values():
            powers[powers == WrongUnit.WATT] = WrongUnit.NONE
    return {**found, f"{table}.current_a": codes}


def _judge(
    table: str, value: Mapping[str, Floats], expected: _Expected, typical: Callable[[Floats], Floats]
) -> dict[str, Codes]:
    """Wrong units of P and Q of one table, which share theirs. [hour, row, slot]

    Args:
        table: Where.
        value: As in ``power_units``.
        expected: What apparent powers are held against.
        typical: One number of each series.
    """
    keys = f"{table}.active_power_kw", f"{table}.reactive_power_kvar"
    p, q = (value[key] for key in keys)
    has_p, has_q = np.isfinite(p), np.isfinite(q)
    size = _nonzero(np.hypot(np.where(has_p, p, 0.0), np.where(has_q, q, 0.0)))
    to_low, to_high = (typical(ratio) for ratio in expected.ratios(size))
    # A line that only charges what is behind it has reactive power alone: there a small P says nothing.
    telling = has_p.any(axis=0) & (has_q.any(axis=0) | (table != "line"))
    to_low = np.where(telling, to_low, np.nan)
    code = np.zeros(p.shape, np.int8)
    if np.isfinite(to_low).any(axis=1).sum() >= expected.n_rows and _quantile(to_low, MOST) < _SMALL:
        code[:, to_low < _SMALL] = WrongUnit.MEGAWATT
    large = ~(to_high <= _LARGE_ALIKE)  # or nothing says
    if np.nansum(_peak(size)) > expected.total and _quantile(to_high, 1.0 - MOST) > _LARGE:
        code[:, large] = WrongUnit.WATT
    too_large = (median_over_hours(size) > expected.limit) & (np.isfinite(size).sum(axis=0) >= FEW)
    code[:, large & too_large] = WrongUnit.WATT
    found = {}
    for key in keys:
        found[key] = np.where(np.isfinite(value[key]), code, 0).astype(np.int8)
        found[key][(np.abs(value[key]) > _ABSURD_KW) & (found[key] == 0)] = WrongUnit.ABSURD
    return found


def _quantile(value: Floats, share: float) -> float:
    """Quantile over rows of the largest slot; NaN where there is nothing. ``value`` is [row, slot]"""
    largest = np.where(np.isfinite(value), value, -np.inf).max(axis=1, initial=-np.inf)
    largest = largest[np.isfinite(largest)]
    return float(np.quantile(largest, share)) if len(largest) else float("nan")


def _peak(value: Floats) -> Floats:
    """Largest magnitude of each series, NaN where there is nothing. [row, slot]"""
    size = np.where(np.isfinite(value), np.abs(value), -1.0).max(axis=0, initial=-1.0)
    return np.where(size >= 0, size, np.nan)


def _nonzero(value: Floats) -> Floats:
    """The value, NaN where it is nothing in any unit."""
    return np.where(np.abs(value) > _NOTHING, value, np.nan)
