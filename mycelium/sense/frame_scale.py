"""What is off by one factor or angle nearly everywhere, or zero everywhere: told, and used all the same.

An odd factor may be a mistake of the records as well as of the readings, so nothing is refused for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mycelium.grid.grid import Grid
from mycelium.grid.nominal_angle import nominal_angle, wrap
from mycelium.schema import CHANNELS, Quantity
from mycelium.sense.frame_units import FEW, MOST, expected_voltage_v, median_over_hours

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

_IN_ORDER = (0.6, 1.4)  # of the records' voltage: the day's median of a place that is supplied
_SAME = 1.1  # factors of voltage levels within this are one
_ALIKE_DEG = 10.0  # angles this near to one offset have it; loads and losses move them by less
_SHIFTED_DEG = 20.0  # an offset above this is none of load
_ZERO = (Quantity.VOLTAGE, Quantity.CURRENT, Quantity.ACTIVE)  # reactive power may well be zero everywhere


@dataclass(frozen=True)
class Note:
    """Something worth knowing about readings that are used.

    Attributes:
        says: What, and what to do.
        which: Readings that it is about, per channel. [hour, row, slot]
    """

    says: str
    which: dict[str, Flags]


def scale_notes(value: Mapping[str, Floats], everything: Mapping[str, Floats], grid: Grid) -> list[Note]:
    """What is worth knowing of readings whose units seem right.

    Args:
        value: Per channel, NaN where there is none. [hour, row, slot]
        everything: Likewise, with those whose unit is wrong.
        grid: The network.
    """
    base_v = expected_voltage_v(grid)
    notes = [
        _voltage_scale(key, value[key], base_v[key.partition(".")[0]])
        for key in ("bus.voltage_v", "consumer.voltage_v")
    ]
    notes.append(_angle_offset(value["bus.angle_deg"], grid))
    notes += [_all_zero(everything, quantity) for quantity in _ZERO]
    return [note for note in notes if note]


def _voltage_scale(key: str, value: Floats, base_v: Floats) -> Note | None:
    """Voltage levels of which nearly all places are far from what the records say, all day.

    A few places alone at their level may be without supply, with what the neighbours induce: these speak only where
    nearly all other places do.
    """
    base = np.where(base_v > 0, base_v, np.nan)[:, None]
    typical = median_over_hours(np.where(value != 0, value, np.nan) / base)
    there = np.isfinite(typical)
    off = there & ~((typical >= _IN_ORDER[0]) & (typical <= _IN_ORDER[1]))
    level_v = np.round(base_v, 1)
    everywhere = off.sum() >= MOST * there.sum()
    factor: dict[float, float] = {}
    rows = np.zeros(len(base_v), bool)
    for volts in np.unique(level_v[off.any(axis=1)]):
        here = level_v == volts
        speaks = everywhere or there[here].any(axis=1).sum() >= FEW
        if speaks and off[here].sum() >= MOST * there[here].sum():
            rows |= here
            factor[volts] = float(np.median(typical[here][off[here]]))
    if not factor:
        return None
    if max(factor.values()) < _SAME * min(factor.values()):
        told = f"{np.median(list(factor.values())):.2g} of the voltage"
    else:
        told = ", ".join(f"{times:.2g} of {volts:.6g} V" for volts, times in factor.items())
    says = (
        f"nearly all are about {told} on record, all day: multiply by the ratio of the voltage "
        "transformers if these are of their secondary side; else look for what scales them, or at the voltage on record"
    )
    return Note(says, {key: np.isfinite(value) & (off & rows[:, None])})


def _angle_offset(value: Floats, grid: Grid) -> Note | None:
    """One offset of nearly all angles to what the records say."""
    there = np.isfinite(value)
    if not there.any():
        return None
    nominal = nominal_angle(grid)
    there &= nominal.valid
    apart = wrap(np.deg2rad(value) - nominal.angle_rad)[there]
    if not len(apart):
        return None
    middle = np.angle(np.exp(1j * apart).mean())
    common = wrap(np.array([middle + np.median(wrap(apart - middle))]))
    offset = float(np.rad2deg(common[0]))
    alike = np.abs(wrap(apart - common)) < np.deg2rad(_ALIKE_DEG)
    if abs(offset) < _SHIFTED_DEG or alike.mean() < MOST:
        return None
    says = (
        f"nearly all are about {offset:+.0f} degrees from what sources and transformers on record make them: "
        "count from the records' reference, or look at the source's angle and at vector groups on record"
    )
    return Note(says, {"bus.angle_deg": there})


def _all_zero(value: Mapping[str, Floats], quantity: Quantity) -> Note | None:
    which = {key: np.isfinite(value[key]) for key, channel in CHANNELS.items() if channel.quantity is quantity}
    if not any(there.any() for there in which.values()) or any(
        np.any(value[key][there]) for key, there in which.items()
    ):
        return None
    return Note(f"all {quantity} are 0: if that is no reading, leave these rows out", which)
