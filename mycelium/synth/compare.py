"""Synthetic against reference feeders: two-sample statistics, a discriminator, and a page of Markdown about both."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.stats import ks_2samp, mannwhitneyu

from mycelium.synth.compare_discriminator import FEWEST, Discrimination, discriminate
from mycelium.synth.library_build import LEFT_OUT
from mycelium.synth.library_rows import Region
from mycelium.synth.statistics import COMPARED

FEWEST_VALUES = 5  # of each kind, for a statistic to be worth its name
WIDE = 0.3  # a Kolmogorov-Smirnov distance from which a gap is named
SIGNIFICANT = 0.01
TITLES = {Region.NORTH_AMERICA: "North American", Region.EUROPE: "European"}


@dataclass(frozen=True, slots=True)
class TwoSample:
    """One fact of synthetic and reference feeders.

    Attributes:
        fact: One of ``COMPARED``.
        n_synthetic, n_reference: Feeders that have it.
        synthetic, reference: 10th, 50th and 90th percentile.
        ks: Kolmogorov-Smirnov distance: the largest difference of the two distributions.
        p_value: Of that distance, if both were one distribution.
        larger: Chance that a synthetic feeder has more of it than a reference (ties count half).
    """

    fact: str
    n_synthetic: int
    n_reference: int
    synthetic: tuple[float, float, float]
    reference: tuple[float, float, float]
    ks: float
    p_value: float
    larger: float

    @property
    def gap(self) -> str:
        """The gap in words; empty if there is none worth naming."""
        if self.ks < WIDE or self.p_value > SIGNIFICANT:
            return ""
        more = "higher" if self.larger > 0.6 else "lower" if self.larger < 0.4 else "spread otherwise"
        medians = f"median {_number(self.synthetic[1])}, references {_number(self.reference[1])}"
        return f"{COMPARED[self.fact]}: {more} ({medians}; KS {self.ks:.2f})"


@dataclass(frozen=True, slots=True)
class Comparison:
    """Synthetic against reference feeders of one region.

    Attributes:
        region: Which.
        facts: Every fact that enough feeders of both kinds have.
        silent: Facts that too few of either kind have.
        discrimination: Per classifier; empty with too few feeders.
    """

    region: Region
    facts: tuple[TwoSample, ...]
    silent: tuple[str, ...]
    discrimination: tuple[Discrimination, ...]


def compare(synthetic: pd.DataFrame, reference: pd.DataFrame) -> tuple[Comparison, ...]:
    """Compare region by region, where there are synthetic feeders."""
    result = []
    for region in Region:
        ours, theirs = (table[table["region"] == region.value] for table in (synthetic, reference))
        if not len(ours):
            continue
        facts = {fact: _two_sample(fact, ours[fact], theirs[fact]) for fact in COMPARED}
        known = tuple(found for found in facts.values() if found is not None)
        silent = tuple(fact for fact, found in facts.items() if found is None)
        result.append(Comparison(region, known, silent, discriminate(ours, theirs)))
    return tuple(result)


def _two_sample(fact: str, synthetic: pd.Series, reference: pd.Series) -> TwoSample | None:
    ours, theirs = (values.dropna().to_numpy(dtype=np.float64) for values in (synthetic, reference))
    if min(len(ours), len(theirs)) < FEWEST_VALUES:
        return None
    test = ks_2samp(ours, theirs, method="asymp")
    larger = mannwhitneyu(ours, theirs, method="asymptotic").statistic / (len(ours) * len(theirs))
    middle = _percentiles(ours), _percentiles(theirs)
    return TwoSample(fact, len(ours), len(theirs), *middle, float(test.statistic), float(test.pvalue), float(larger))


def _percentiles(values: npt.NDArray[np.float64]) -> tuple[float, float, float]:
    low, middle, high = np.quantile(values, [0.1, 0.5, 0.9])
    return float(low), float(middle), float(high)


def markdown(comparisons: tuple[Comparison, ...], figure: str) -> str:
    """A page for people: tables, gaps and AUCs.

    Args:
        comparisons: Per region.
        figure: Path of the picture, as the page links to it.
    """
    left_out = "; ".join(f"{family} ({why})" for family, why in LEFT_OUT.items())
    lines = [
        "# Synthetic feeders against the training references",
        "",
        "Made by `mycelium synth compare RUN --out DIR`; the references' facts by `mycelium synth facts`. Peak: of a",
        "synthetic feeder snapshot A, each load at its coincident demand; of a reference the hour of the largest total",
        "of its load shapes, or its demand as given where it has none. No sun and no storage in either.",
        "",
        "One value per feeder; 10th, **50th**, 90th percentile. *KS*: Kolmogorov-Smirnov distance, 0 for one and the",
        "same distribution, 1 for disjoint ones, with its p-value. *larger*: chance that a synthetic feeder has more",
        f"than a reference. References left out: {left_out}.",
        "",
        f"![Distributions of synthetic and reference feeders]({figure})",
        "",
    ]
    for comparison in comparisons:
        lines += [*_section(comparison), ""]
    return "\n".join(lines)


def _section(comparison: Comparison) -> Iterator[str]:
    yield f"## {TITLES[comparison.region]} feeders"
    yield ""
    yield "| fact | synthetic | n | references | n | KS | p | larger |"
    yield "|---|---|---:|---|---:|---:|---:|---:|"
    for found in comparison.facts:
        ours, theirs = (_spread(values) for values in (found.synthetic, found.reference))
        test = f"{found.ks:.2f} | {found.p_value:.1g} | {found.larger:.2f}"
        yield f"| {COMPARED[found.fact]} | {ours} | {found.n_synthetic} | {theirs} | {found.n_reference} | {test} |"
    yield ""
    gaps = [found.gap for found in comparison.facts if found.gap]
    yield f"Gaps (KS ≥ {WIDE}, p ≤ {SIGNIFICANT}): " + ("; ".join(gaps) if gaps else "none") + "."
    if comparison.silent:
        names = ", ".join(COMPARED[fact] for fact in comparison.silent)
        yield f"Not compared, for want of feeders that say: {names}."
    yield ""
    if comparison.discrimination:
        yield (
            "A discriminator trained on these facts tells synthetic from reference feeders with an AUC of "
            + (", ".join(f"{d.auc:.3f} ± {d.spread:.3f} ({d.classifier})" for d in comparison.discrimination))
            + " (five folds; 0.5 would be chance)."
        )
    else:
        yield f"No discriminator: it needs {FEWEST} feeders of each kind."


def _spread(values: tuple[float, float, float]) -> str:
    low, middle, high = map(_number, values)
    return f"{low} **{middle}** {high}"


def _number(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"
