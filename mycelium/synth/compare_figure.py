"""One page: the distribution of every compared fact, synthetic over reference, region by region."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mycelium.synth.compare import FEWEST_VALUES, TITLES
from mycelium.synth.library_rows import Region
from mycelium.synth.statistics import COMPARED

_COLOURS = {"reference": "#8fa3bf", "synthetic": "#c1440e"}
_LOGARITHMIC = {"buses", "depth", "customers_per_transformer", "r_over_x", "phase_imbalance"}
_COLUMNS = 5


def draw_comparison(synthetic: pd.DataFrame, reference: pd.DataFrame, path: Path) -> None:
    """Draw empirical distribution functions: the largest vertical distance of two is their KS statistic."""
    regions = [region for region in Region if (synthetic["region"] == region.value).any()]
    rows = -(-len(COMPARED) // _COLUMNS)
    figure = Figure(figsize=(2.7 * _COLUMNS, 2.4 * rows * len(regions) + 0.5), layout="constrained")
    parts = figure.subfigures(len(regions), 1, squeeze=False).ravel()
    for part, region in zip(parts, regions, strict=True):
        ours, theirs = (table[table["region"] == region.value] for table in (synthetic, reference))
        part.suptitle(f"{TITLES[region]}: {len(ours)} synthetic, {len(theirs)} reference feeders", fontsize=10)
        panels = part.subplots(rows, _COLUMNS).ravel()
        for axes, (fact, title) in zip(panels, COMPARED.items(), strict=False):
            for kind, table in (("reference", theirs), ("synthetic", ours)):
                _steps(axes, table[fact].dropna().to_numpy(dtype=np.float64), kind)
            if fact in _LOGARITHMIC:
                axes.set_xscale("log")
            elif fact == "loops":  # starts at 0
                axes.set_xscale("symlog", linthresh=1.0)
            axes.set_title(title, fontsize=8)
            axes.tick_params(labelsize=7)
            axes.set_ylim(0.0, 1.0)
        for axes in panels[len(COMPARED) :]:
            axes.set_axis_off()
        panels[0].legend(frameon=False, fontsize=7)
    figure.savefig(path, dpi=150)


def _steps(axes: Axes, values: npt.NDArray[np.float64], kind: str) -> None:
    if len(values) >= FEWEST_VALUES:
        label = f"{kind} ({len(values)})"
        axes.ecdf(values, color=_COLOURS[kind], lw=1.6, label=label)
