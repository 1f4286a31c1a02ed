"""Powers in a wrong unit: kW that are W or MW; and currents beside them that are kA.

Records have no demand. What a power is held against is, where there is one, the current at the same place, else what
the network can carry. Without a current, too small a power is told from light load only where nearly all of a kind are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mycelium.grid.grid import Grid
from mycelium.schema import LOW_VOLTAGE_KV
from mycelium.sense.frame_currents import (
    KILO,
    OVERLOAD,
    SMALL,
    SPEAK,
    Powers,
    current_units,
    nonzero,
    positive,
    rated_amps,
)
from mycelium.sense.frame_units import (
    FEW,
    MOST,
    NOTED,
    Codes,
    WrongUnit,
    expected_voltage_v,
    largest_of_rows,
    median_over_hours,
    quantile,
)  # fmt: skip

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

_LARGE = 10.0  # times what is expected: nearly all above this are too large
_LARGE_ALIKE = 1.5  # a series above this is taken for wrong too, where nearly all are
_LIGHT = 1.0 / 30.0  # a phase of a feeder head carries at least 2 % of this share of the network's capacity
_CUSTOMER_KVA = (1.0, 50.0)  # peak of a customer below and above 1 kV; hardly any stays below 2 % of it all day
_ABSURD_KW = 1e8


def power_units(grid: Grid, value: Mapping[str, Floats]) -> dict[str, Codes]:
    """Wrong units of powers and currents, per channel. [hour, row, slot]

    Args:
        grid: The network.
        value: Readings per channel, NaN where there is none. [hour, row, slot]
    """
    capacity = capacity_kva(grid)
    powers = {table: Powers.of(table, value) for table in ("consumer", "bus", *SPEAK)}
    low, high, limit = _of_customers(grid, capacity)
    at = grid.consumer["bus1"].to_numpy()
    low_there, high_there = (np.bincount(at, kva, minlength=len(grid.bus)).astype(float) for kva in (low, high))
    total = OVERLOAD * capacity
    everywhere, nowhere = np.full((len(grid.bus), 1), total), np.zeros((1, 1), bool)
    demand = {
        "consumer": _Expected(low[:, None], high[:, None], limit[:, None], total, FEW, nowhere),
        "bus": _Expected(low_there[:, None], high_there[:, None], everywhere, total, FEW, nowhere),
    }
    judged = {table: _judge(powers[table], expected, _peak) for table, expected in demand.items()}
    usable = np.where(judged["consumer"].code == WrongUnit.NONE, value["consumer.active_power_kw"], np.nan)
    head_kw = _expected_at_head(usable, capacity)
    of_branches, currents = _branches(grid, value, powers, capacity, head_kw)
    judged |= of_branches
    in_megawatt = any((verdict.code == WrongUnit.MEGAWATT).any() for verdict in judged.values())
    for table, verdict in judged.items():
        for key in (f"{table}.active_power_kw", f"{table}.reactive_power_kvar"):
            currents[key] = verdict.codes(value[key], in_megawatt)
    return currents


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
    return low, np.maximum(share, low), OVERLOAD * rating


def _expected_at_head(p: Floats, capacity: float) -> float:
    """kW of one phase of a feeder head: a third of what metered customers take, or what the network may carry."""
    usable = np.nan_to_num(p)
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
        measured: Whether a current at the same place says what to expect. [row, slot or 1]
    """

    low: Floats
    high: Floats
    limit: Floats
    total: float
    n_rows: int
    measured: Flags

    def ratios(self, size: Floats) -> tuple[Floats, Floats]:
        """Ratio of a size to the low and to the high guess. [hour, row, slot]"""
        return size / positive(self.low), size / positive(self.high)


@dataclass(frozen=True)
class _Verdict:
    """What was made of the powers of one table.

    Attributes:
        code: Wrong unit of P and Q, which share theirs. [row, slot]
        doubtful: Whether they are as small as in MW, or nothing says. [row, slot]
    """

    code: Codes
    doubtful: Flags

    def codes(self, value: Floats, in_megawatt: bool) -> Codes:
        """Wrong units of P or Q, as others are in MW or not. [hour, row, slot]"""
        code = self.code
        if in_megawatt:
            code = np.where(self.doubtful & (code == WrongUnit.NONE), WrongUnit.MAYBE_MEGAWATT, code)
        found = np.where(np.isfinite(value), code, WrongUnit.NONE).astype(np.int8)
        found[(np.abs(value) > _ABSURD_KW) & ((found == WrongUnit.NONE) | np.isin(found, NOTED))] = WrongUnit.ABSURD
        return found


def _branches(
    grid: Grid, value: Mapping[str, Floats], powers: Mapping[str, Powers], capacity: float, head_kw: float
) -> tuple[dict[str, _Verdict], dict[str, Codes]]:
    """Powers and currents of lines, windings and sources held against each other: of powers per table, of currents
    per channel. [hour, row, slot]

    Args:
        grid: The network.
        value: As in ``power_units``.
        powers: Per table.
        capacity: What the network can carry, kVA.
        head_kw: Guess of a phase's power at a source where there is no current.
    """
    base_kv = {table: positive(volts) / 1e3 for table, volts in expected_voltage_v(grid).items()}
    rated_a = rated_amps(grid, base_kv, capacity)
    codes = current_units(value, powers, base_kv, rated_a)
    total = np.full(1, capacity)
    limit = {"line": total, "substation": total, "winding": grid.winding["rated_kva"].to_numpy()}
    verdicts, measured = {}, {}
    for table, code in codes.items():
        trusted = np.where((code == WrongUnit.NONE) | np.isin(code, NOTED), value[f"{table}.current_a"], np.nan)
        kva = base_kv[table][:, None] * nonzero(trusted)
        guess = (head_kw, capacity / 3.0) if table == "substation" else (np.nan, np.nan)
        low, high = (np.where(np.isfinite(kva), kva, otherwise) for otherwise in guess)
        measured[table] = np.any(np.isfinite(kva), axis=0)
        expected = _Expected(low, high, OVERLOAD * limit[table][:, None], 0.0, SPEAK[table], measured[table])
        verdicts[table] = _judge(powers[table], expected, median_over_hours)
    rated_kva = {table: base_kv[table] * rated_a[table] for table in codes}
    load = {table: median_over_hours(powers[table].size) / rated_kva[table][:, None] for table in codes}
    _blame_currents(verdicts, measured, load, codes)
    found = {}
    for table, code in codes.items():
        code[:, verdicts[table].code == WrongUnit.MISFIT] = WrongUnit.MISFIT
        key = f"{table}.current_a"
        found[key] = np.where(np.isfinite(value[key]), code, WrongUnit.NONE).astype(np.int8)
    return verdicts, found


def _blame_currents(
    verdicts: Mapping[str, _Verdict],
    measured: Mapping[str, Flags],
    load: Mapping[str, Floats],
    codes: Mapping[str, Codes],
) -> None:
    """Take powers that are too large for the currents beside them back where they fit the ratings: these are kA.

    Args:
        verdicts: Of powers, per table; changed.
        measured: Where there is a current beside, per table. [row, slot]
        load: Ratio of a typical power to the rating, per table. [row, slot]
        codes: Wrong units of currents, per table; changed. [hour, row, slot]
    """
    accused = {table: (verdict.code == WrongUnit.WATT) & measured[table] for table, verdict in verdicts.items()}
    typical = [quantile(load[table][accused[table] & np.isfinite(load[table])], 0.5) for table in load]
    known = [ratio for ratio in typical if np.isfinite(ratio)]
    if not known or max(known) > OVERLOAD:  # one export makes one mistake: powers that do not fit somewhere are W
        return
    for table, verdict in verdicts.items():
        fits = ~(load[table] > OVERLOAD)
        codes[table][:, accused[table] & fits] = WrongUnit.KA
        if accused[table].any():
            verdict.code[(verdict.code == WrongUnit.WATT) & fits] = WrongUnit.NONE


def _judge(powers: Powers, expected: _Expected, typical: Callable[[Floats], Floats]) -> _Verdict:
    """Wrong units of the powers of one table.

    Args:
        powers: What is reported.
        expected: What they are held against.
        typical: One number of each series.
    """
    size = powers.size
    to_low, to_high = (typical(ratio) for ratio in expected.ratios(size))
    measured = np.broadcast_to(expected.measured, to_low.shape)
    small = powers.too_small(to_low, measured, expected.n_rows)
    code = np.where(small, WrongUnit.MEGAWATT, WrongUnit.NONE).astype(np.int8)
    code[small & measured & (to_low > KILO)] = WrongUnit.MISFIT
    large = ~(to_high <= _LARGE_ALIKE)  # or nothing says
    if np.nansum(_peak(size)) > expected.total and quantile(largest_of_rows(to_high), 1.0 - MOST) > _LARGE:
        held = to_high[measured & np.isfinite(to_high)]
        if len(held) and np.median(held) < 1.0 / KILO:
            code[large & measured & np.isfinite(to_high)] = WrongUnit.MISFIT
        else:
            code[large] = WrongUnit.WATT
    too_large = (median_over_hours(size) > expected.limit) & (np.isfinite(size).sum(axis=0) >= FEW)
    code[large & too_large] = WrongUnit.WATT
    return _Verdict(code, np.isfinite(size).any(axis=0) & ~(to_low >= SMALL))


def _peak(value: Floats) -> Floats:
    """Largest magnitude of each series, NaN where there is nothing. [row, slot]"""
    size = np.where(np.isfinite(value), np.abs(value), -1.0).max(axis=0, initial=-1.0)
    return np.where(size >= 0, size, np.nan)
