"""Scores of many samples: sums per sample and which sample it is; grouped by network and policy, with intervals.

*Pooled* adds everything up. *Macro* is the mean over networks of their own values, where they have one. Intervals
resample electrical cases: all samples of a case, one per policy, come and go together, and every network keeps its
number of cases. They say how much chance there is in the cases, not in the choice of networks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from mycelium.evaluate.metrics import METRICS, computed
from mycelium.sense.policies import POLICIES
from mycelium.simulate.seeds import generator
from mycelium.window.sample import SampleId

Floats = npt.NDArray[np.float64]

RESAMPLINGS = 1000
ALL = "all"
POOLED, MACRO = "pooled", "macro"
_WIDE = ("ape_bin", "confusion")  # not resampled: what is made of them has no interval


@dataclass(frozen=True)
class Scores:
    """Sums of samples.

    Attributes:
        samples: ``network, seed, number, policy``, one row per sample.
        sums: As ``sums.sums_of``. [sample, ...]
    """

    samples: pd.DataFrame
    sums: Mapping[str, Floats]

    @staticmethod
    def of(samples: Sequence[SampleId], sums: Mapping[str, Floats]) -> Scores:
        rows = [(s.network, s.seed, s.number, s.policy) for s in samples]
        return Scores(pd.DataFrame(rows, columns=["network", "seed", "number", "policy"]), sums)

    @property
    def networks(self) -> list[str]:
        return [str(name) for name in self.samples["network"].unique()]

    @property
    def policies(self) -> list[str]:
        """All, then each that occurs, the seven in their order."""
        there = [str(name) for name in self.samples["policy"].unique()]
        return [ALL, *(name for name in POLICIES if name in there), *(name for name in there if name not in POLICIES)]

    def summed(self, network: str = ALL, policy: str = ALL) -> dict[str, Floats]:
        """Sums over a group."""
        mask = self._mask(network, policy)
        return {name: values[mask].sum(axis=0) for name, values in self.sums.items()}

    def table(self, resamplings: int = RESAMPLINGS) -> pd.DataFrame:
        """All metrics of all groups.

        Columns: ``network`` (pooled, macro or a name), ``policy``, ``metric``, ``value``, bounds of the 95 % interval
        ``low`` and ``high``, ``count`` of what it is a mean of, ``networks`` that contribute.
        """
        rows: list[dict[str, object]] = []
        for policy in self.policies:
            rows += self._of_policy(policy, resamplings)
        return pd.DataFrame(rows)

    def _of_policy(self, policy: str, resamplings: int) -> Iterator[dict[str, object]]:
        """Rows of one policy: pooled, macro, every network."""
        own = {name: self.summed(name, policy) for name in self.networks if self._mask(name, policy).any()}
        values = {name: computed(summed) for name, summed in own.items()}
        pooled_sums = {key: np.sum([summed[key] for summed in own.values()], axis=0) for key in self.sums}
        drawn = {name: self._resampled(name, policy, resamplings) for name in own}
        drawn_pooled = {key: np.sum([d[key] for d in drawn.values()], axis=0) for key in self.sums if key not in _WIDE}
        drawn_values = {name: computed(sums, resampled=True) for name, sums in drawn.items()}
        groups = [
            (POOLED, computed(pooled_sums), computed(drawn_pooled, resampled=True), pooled_sums),
            (MACRO, _mean_of(list(values.values())), _mean_of(list(drawn_values.values())), pooled_sums),
            *((name, values[name], drawn_values[name], own[name]) for name in own),
        ]
        for network, found, intervals, summed in groups:
            for metric, value in found.items():
                low, high = _bounds(intervals.get(metric))
                there = [name for name in own if np.isfinite(values[name][metric])]
                yield {
                    "network": network,
                    "policy": policy,
                    "metric": metric,
                    "value": float(value),
                    "low": low,
                    "high": high,
                    "count": int(summed[METRICS[metric].count]),
                    "networks": len(there) if network in (POOLED, MACRO) else int(network in there),
                }

    def _resampled(self, network: str, policy: str, resamplings: int) -> dict[str, Floats]:
        """Sums of a network with its cases drawn anew. [resampling, ...]"""
        mask = self._mask(network, policy)
        # The same cases are drawn under every policy: what differs between policies is not chance in cases.
        labels = self.samples.loc[self.samples["network"] == network, ["seed", "number"]].apply(tuple, axis=1)
        cases = sorted(set(labels))
        rng = generator("bootstrap", network, len(cases), resamplings)
        times = rng.multinomial(len(cases), np.full(len(cases), 1.0 / len(cases)), size=resamplings).astype(np.float64)
        place = {case: k for k, case in enumerate(cases)}
        which = np.array([place[label] for label in labels[mask[labels.index]]])
        result = {}
        for name, values in self.sums.items():
            if name in _WIDE:
                continue
            per_case = np.zeros((len(cases), *values.shape[1:]))
            np.add.at(per_case, which, values[mask])
            result[name] = np.tensordot(times, per_case, axes=1)
        return result

    def _mask(self, network: str, policy: str) -> npt.NDArray[np.bool_]:
        mask = np.ones(len(self.samples), dtype=bool)
        for column, wanted in (("network", network), ("policy", policy)):
            if wanted != ALL:
                mask &= (self.samples[column] == wanted).to_numpy()
        return mask


def _mean_of(values: list[dict[str, Floats]]) -> dict[str, Floats]:
    """Mean over networks that have a value."""
    result = {}
    for name in values[0]:
        stacked = np.stack([network[name] for network in values])
        there = np.isfinite(stacked)
        number = there.sum(axis=0)
        total = np.where(there, stacked, 0.0).sum(axis=0)
        result[name] = np.where(number > 0, total / np.maximum(number, 1), np.nan)
    return result


def _bounds(drawn: Floats | None) -> tuple[float, float]:
    """Bounds of the 95 % interval; not numbers where there is none."""
    if drawn is None or not np.isfinite(drawn).any():
        return float("nan"), float("nan")
    low, high = np.quantile(drawn[np.isfinite(drawn)], [0.025, 0.975])
    return float(low), float(high)
