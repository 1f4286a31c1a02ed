"""Figures about a corpus, as in the paper: traits of its networks, kinds of its cases, reasons of rejections."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mycelium.corpus.catalogue import Split
from mycelium.corpus.stats import TRAITS, CorpusStats

COLOURS = {
    Split.TRAIN: "#8fa3bf",
    Split.VALIDATION: "#5f7f5f",
    Split.TEST: "#c9a227",
    Split.BENCHMARK: "#c1440e",
}
_LINEAR = {"loops"}  # starts at 0
_ENDINGS = ("svg", "png")


def draw_figures(stats: CorpusStats, traits: pd.DataFrame, folder: Path) -> list[Path]:
    """Write all figures, each as SVG and PNG."""
    folder.mkdir(parents=True, exist_ok=True)
    figures = {"networks": _networks(traits), "kinds": _kinds(stats.kinds)}
    if len(stats.reasons):
        figures["rejections"] = _rejections(stats.reasons)
    written = []
    for name, figure in figures.items():
        for ending in _ENDINGS:
            written.append(folder / f"{name}.{ending}")
            figure.savefig(written[-1], dpi=150)
    return written


def _networks(traits: pd.DataFrame) -> Figure:
    figure = Figure(figsize=(9.0, 6.4), layout="constrained")
    panels = figure.subplots(2, 2).ravel()
    for axes, (name, title) in zip(panels, TRAITS.items(), strict=True):
        _histogram(axes, traits, name)
        axes.set_xlabel(title)
        axes.set_ylabel("networks")
    handles, names = panels[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside upper center", ncols=len(handles), frameon=False)
    return figure


def _histogram(axes: Axes, traits: pd.DataFrame, name: str) -> None:
    """Networks of each split, stacked; the benchmark's also as marks below the axis, medians as dashed lines."""
    values = traits[name].dropna()
    if not len(values):
        return
    positive = values[values > 0]
    if name in _LINEAR:
        axes.set_xscale("symlog", linthresh=1.0)
        edges = np.concatenate([[-0.5, 0.5], np.geomspace(1.0, max(2.0, values.max() + 1.0), 18)])
    else:
        axes.set_xscale("log")
        edges = np.geomspace(positive.min(), positive.max() * 1.001, 25)
    splits = [split for split in Split if (traits["split"] == split).any()]
    groups = [values[traits["split"].loc[values.index] == split] for split in splits]
    axes.hist(
        groups,
        edges.tolist(),
        stacked=True,
        color=[COLOURS[s] for s in splits],
        label=[str(s) for s in splits],
        linewidth=0,
    )
    benchmark = values[traits["split"].loc[values.index] == Split.BENCHMARK]
    rest = values.drop(benchmark.index)
    for part, colour in ((rest, "#444444"), (benchmark, COLOURS[Split.BENCHMARK])):
        if len(part):
            axes.axvline(float(part.median()), color=colour, ls="--", lw=1.2)
    low = axes.get_ylim()[1] * -0.04
    axes.plot(benchmark, np.full(len(benchmark), low), "|", color=COLOURS[Split.BENCHMARK], ms=7, mew=0.8)
    axes.set_ylim(bottom=2 * low)


def _kinds(kinds: pd.DataFrame) -> Figure:
    figure = Figure(figsize=(9.0, 4.6), layout="constrained")
    axes = figure.subplots()
    left = np.zeros(kinds.shape[1])
    for split in kinds.index:
        count = kinds.loc[split].to_numpy(dtype=float)
        axes.barh(kinds.columns, count, left=left, color=COLOURS[Split(split)], label=split)
        left += count
    axes.invert_yaxis()
    axes.set_xlabel("cases")
    axes.legend(frameon=False)
    return figure


def _rejections(reasons: pd.DataFrame) -> Figure:
    figure = Figure(figsize=(9.0, 1.2 + 0.35 * len(reasons)), layout="constrained")
    axes = figure.subplots()
    bars = axes.barh([_short(reason) for reason in reasons.index], reasons["cases"], color=COLOURS[Split.BENCHMARK])
    axes.bar_label(bars, [f"{row.cases} on {row.networks} networks" for row in reasons.itertuples()], padding=3)
    axes.invert_yaxis()
    axes.margins(x=0.25)
    axes.set_xlabel("rejected cases")
    return figure


def _short(text: str, most: int = 70) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
