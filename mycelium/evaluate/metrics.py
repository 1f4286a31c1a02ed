"""Metrics as ratios of sums: the paper's fourteen, and those that say more.

Every metric is a function of summed columns of ``sums``, of any leading shape: one group, or a thousand resamplings of
it. Where there is nothing to divide by it is not a number, and averages over networks leave it out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mycelium.evaluate.sums import APE_BINS_PER_DECADE, APE_DECADES, HOPS

Floats = npt.NDArray[np.float64]
Summed = Mapping[str, Floats]


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric.

    Attributes:
        says: What it is, with its unit.
        of: Computes it.
        count: The column that says of how many.
        lower_is_better: As errors are.
        resampled: Whether it has an interval.
    """

    says: str
    of: Callable[[Summed], Floats]
    count: str
    lower_is_better: bool = False
    resampled: bool = True


def _ratio(above: Floats, below: Floats) -> Floats:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(below > 0, above / below, np.nan)


def _error(says: str, name: str, factor: float = 1.0) -> Metric:
    """Mean of an error over the entries it was counted at."""
    return Metric(says, lambda s: factor * _ratio(s[name], s[f"{name}_n"]), f"{name}_n", lower_is_better=True)


def _share(says: str, name: str, count: str) -> Metric:
    """Share of right answers."""
    return Metric(says, lambda s: _ratio(s[name], s[count]), count)


def _loss(says: str, name: str, count: str) -> Metric:
    """Mean of what should be small."""
    return Metric(says, lambda s: _ratio(s[name], s[count]), count, lower_is_better=True)


def _f1(name: str) -> Callable[[Summed], Floats]:
    return lambda s: _ratio(2 * s[f"{name}_tp"], 2 * s[f"{name}_tp"] + s[f"{name}_fp"] + s[f"{name}_fn"])


def _precision(name: str) -> Callable[[Summed], Floats]:
    return lambda s: _ratio(s[f"{name}_tp"], s[f"{name}_tp"] + s[f"{name}_fp"])


def _recall(name: str) -> Callable[[Summed], Floats]:
    return lambda s: _ratio(s[f"{name}_tp"], s[f"{name}_tp"] + s[f"{name}_fn"])


def _calibration(name: str) -> Callable[[Summed], Floats]:
    """Mean gap between how sure answers were and how often they were right, over bins of confidence."""

    def of(s: Summed) -> Floats:
        gap = np.abs(s[f"{name}_bin_confidence"] - s[f"{name}_bin_right"]).sum(axis=-1)
        return _ratio(gap, s[f"{name}_bin_n"].sum(axis=-1))

    return of


def _quantile(share: float) -> Callable[[Summed], Floats]:
    """Quantile of absolute percentage errors, to the width of a bin (4 %)."""

    def of(s: Summed) -> Floats:
        below = np.cumsum(s["ape_bin"], axis=-1)
        total = below[..., -1]
        place = (below < share * total[..., None]).sum(axis=-1)
        value = 100.0 * 10.0 ** (APE_DECADES[0] + (place + 0.5) / APE_BINS_PER_DECADE)
        return np.where(total > 0, value, np.nan)

    return of


# The fourteen columns of the paper's tables, in its order. Names are short, so that a table of them fits a terminal.
PAPER: dict[str, Metric] = {
    "v_pu": _error("voltage MAE, p.u.", "state"),
    "v_volt": _error("voltage MAE, V", "volts"),
    "angle_deg": _error("angle MAE, degrees", "angle"),
    "mape_pct": _error("voltage MAPE, %", "ape", 100.0),
    "phase": _share("phase accuracy", "phase_right", "phase_n"),
    "switch_precision": Metric("open switch precision", _precision("switch"), "switch_n"),
    "switch_recall": Metric("open switch recall", _recall("switch"), "switch_n"),
    "switch_f1": Metric("open switch F1", _f1("switch"), "switch_n"),
    "detection_f1": Metric("fault detection F1", _f1("detect"), "sample_n"),
    "class5": _share("fault type, of five", "class5_right", "fault_n"),
    "location": _share("place, exact", "location_right", "location_n"),
    **{f"hop{k}": _share(f"place, within {k} hop{'s' * (k > 1)}", f"hop{k}", "location_n") for k in HOPS},
}

MORE: dict[str, Metric] = {
    "live_v_pu": _error("energised MAE, p.u.", "state_live"),
    "dead_v_pu": _error("de-energised MAE, p.u.", "state_dead"),
    "low_v_volt": _error("below 1 kV MAE, V", "volts_low"),
    "medium_v_volt": _error("above 1 kV MAE, V", "volts_medium"),
    "live_mape_pct": _error("energised MAPE, %", "ape_live", 100.0),
    "median_ape_pct": Metric("median voltage error, %", _quantile(0.5), "ape_n", True, resampled=False),
    "p90_ape_pct": Metric("its 90th percentile, %", _quantile(0.9), "ape_n", True, resampled=False),
    "phase_all": _share("phase, no readings too", "phase_all_right", "phase_all_n"),
    "phase_nll": _loss("phase log loss", "phase_nll", "phase_n"),
    "phase_ece": Metric("phase calibration gap", _calibration("phase"), "phase_n", True),
    "tie_f1": Metric("added ties F1", _f1("tie"), "tie_n"),
    "switch_nll": _loss("switch log loss", "switch_nll", "switch_n"),
    "switch_ece": Metric("switch calibration gap", _calibration("switch"), "switch_n", True),
    "class4": _share("type, LLL and LLLG one", "class4_right", "fault_n"),
    "class6": _share("all six fault classes", "class6_right", "sample_n"),
    "equipment": _share("kind of equipment", "equipment_right", "location_n"),
    **{f"incidence{k}": _share(f"place, incidence {k}", f"incidence{k}", "location_n") for k in HOPS},
    "zone": _share("place, zone of reports", "zone_right", "location_n"),
    "zone_chance": _share("the same by chance", "zone_chance", "location_n"),
    "cover90": _share("place in the 90 % set", "cover_right", "location_n"),
    "cover90_size": _loss("size of the 90 % set", "cover_size", "location_n"),
    "mrr": _share("mean reciprocal rank", "reciprocal_rank", "location_n"),
    "searched": _loss("searched before it", "searched", "location_n"),
    "location_nll": _loss("place log loss", "location_nll", "location_n"),
    "fault_nll": _loss("fault log loss", "fault_nll", "sample_n"),
    "fault_ece": Metric("fault calibration gap", _calibration("fault"), "sample_n", True),
}

METRICS = PAPER | MORE


def computed(summed: Summed, resampled: bool = False) -> dict[str, Floats]:
    """All metrics whose task was answered; of resampled sums those that have an interval."""
    return {
        name: metric.of(summed)
        for name, metric in METRICS.items()
        if metric.count in summed and (metric.resampled or not resampled)
    }
