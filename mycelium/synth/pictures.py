"""Pictures of a run: feeders drawn on their streets, voltage profiles, sizes and depths against the references."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from mycelium.synth.compare_facts import read_facts
from mycelium.synth.summary import Summary
from mycelium.synth.write import BUSES, MASTER, STREETS

PAGE, FIGURE = "pictures.html", "pictures.svg"
_SHOWN = 6
_DPI = 110  # of what is drawn as pixels: thousands of lines and points would make the figure too heavy for a page
_COLOURS = {"feeder": "#b2182b", "low": "#2166ac", "tie": "#1b7837", "street": "#cccccc"}
_STYLE: Any = {"svg.hashsalt": "mycelium", "svg.fonttype": "none", "font.size": 8}


def draw_run(found: Summary, run: Path) -> Path:
    """Draw into the run's folder; the path of the figure. A page shows it with the table of feeders."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot as plt

    kept = found.feeders[found.feeders["accepted"]]
    shown = _choose(kept)
    with plt.rc_context(_STYLE):
        figure, axes = plt.subplots(4, 3, figsize=(12, 15), layout="constrained")
        for axis, (_, row) in zip(axes[:2].flat, shown.iterrows(), strict=False):
            _draw_feeder(axis, run / str(row["folder"]), row)
        for axis in axes[:2].flat[len(shown) :]:
            axis.set_axis_off()
        for axis, (_, row) in (
            zip(axes[2], shown.iloc[[0, len(shown) // 2, -1]].iterrows(), strict=False) if len(shown) else ()
        ):
            _draw_profile(axis, run / str(row["folder"]), row)
        if len(kept):
            _draw_distribution(axes[3, 0], kept, "buses", "buses")
            _draw_distribution(axes[3, 1], kept, "depth", "depth (steps from the source)")
        _draw_cost(axes[3, 2], found)
        path = run / FIGURE
        figure.savefig(path, metadata={"Date": None}, dpi=_DPI)
        plt.close(figure)
    _write_page(found, run)
    return path


def _choose(kept: pd.DataFrame) -> pd.DataFrame:
    """Feeders spread evenly over the sizes."""
    ordered = kept.sort_values(["buses", "number"])
    places = np.unique(np.linspace(0, max(len(ordered) - 1, 0), min(_SHOWN, len(ordered))).round().astype(int))
    return ordered.iloc[places]


def _draw_feeder(axis: Any, folder: Path, row: pd.Series) -> None:
    from matplotlib.collections import LineCollection

    streets = json.loads((folder / STREETS).read_text())
    xy, edge = np.array(streets["xy_m"]), np.array(streets["edge"], dtype=int).reshape(-1, 2)
    axis.add_collection(LineCollection(xy[edge], colors=_COLOURS["street"], linewidths=0.8, zorder=-4))
    buses = pd.read_csv(folder / BUSES, index_col="bus")
    lines = _lines(folder, buses)
    for order, (kind, width) in enumerate((("low", 0.4), ("feeder", 1.1), ("tie", 1.1))):
        if lines[kind]:
            style = "dashed" if kind == "tie" else "solid"
            axis.add_collection(
                LineCollection(lines[kind], colors=_COLOURS[kind], linewidths=width, linestyles=style, zorder=order - 3)
            )
    axis.set_rasterization_zorder(0)  # one image for all of them
    axis.autoscale()
    axis.set_aspect("equal")
    axis.set_xticks([])
    axis.set_yticks([])
    axis.set_title(f"{row['number']}: {row['buses']} buses, {row['place']}, {row['family']}")


def _lines(folder: Path, buses: pd.DataFrame) -> dict[str, list[Any]]:
    """Ends of the lines in metres, by kind."""
    place = {str(bus): (x, y) for bus, x, y in zip(buses.index, buses["x_m"], buses["y_m"], strict=True)}
    found: dict[str, list[Any]] = {"feeder": [], "low": [], "tie": []}
    assert (folder / MASTER).is_file()
    for text in (folder / "Lines.dss").read_text().splitlines():
        if not text.startswith("New Line."):
            continue
        words = dict(part.split("=", 1) for part in text.split() if "=" in part)
        ends = [words[key].partition(".")[0] for key in ("bus1", "bus2")]
        name = text.split()[1].removeprefix("Line.")
        kind = "tie" if name.startswith("tie") else "feeder" if name.startswith("mv_") else "low"
        found[kind].append([place[end] for end in ends])
    return found


def _draw_profile(axis: Any, folder: Path, row: pd.Series) -> None:
    buses = pd.read_csv(folder / BUSES)
    km = buses["distance_m"] / 1e3
    axis.scatter(km, buses["peak_lowest_pu"], s=3, color="#2166ac", label="snapshot A, lowest", rasterized=True)
    axis.scatter(km, buses["sunny_highest_pu"], s=3, color="#b2182b", label="snapshot B, highest", rasterized=True)
    for limit in (0.95, 1.05):
        axis.axhline(limit, color="black", linewidth=0.6)
    axis.set_xlabel("line length from the source, km")
    axis.set_ylabel("voltage, p.u.")
    axis.set_title(f"{row['number']}: {row['buses']} buses")
    axis.legend(loc="best", markerscale=3, fontsize=6)


def _draw_distribution(axis: Any, kept: pd.DataFrame, column: str, label: str) -> None:
    """A histogram, and that of the training references."""
    values = kept[column].to_numpy(dtype=float)
    reference = read_facts(None)
    theirs = reference[column].dropna().to_numpy(dtype=float) if column in reference else np.zeros(0)
    both = np.concatenate([values, theirs])
    bins = np.geomspace(max(both.min(), 1), both.max() + 1, 24)
    axis.hist(
        values, bins, weights=np.full(len(values), 1 / len(values)), color="#b2182b", alpha=0.6, label="synthetic"
    )
    if len(theirs):
        axis.hist(
            theirs,
            bins,
            weights=np.full(len(theirs), 1 / len(theirs)),
            histtype="step",
            color="black",
            label="reference",
        )
    axis.set_xscale("log")
    axis.set_xlabel(label)
    axis.set_ylabel("share of feeders")
    axis.legend(fontsize=6)


def _draw_cost(axis: Any, found: Summary) -> None:
    for accepted, colour, label in ((True, "#2166ac", "accepted"), (False, "#b2182b", "rejected")):
        part = found.feeders[(found.feeders["accepted"] == accepted) & (found.feeders["cpu_s"] > 0)]
        part = part[part["buses"] > 0]
        axis.scatter(part["buses"], part["cpu_s"], s=6, color=colour, label=label)
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xlabel("buses")
    axis.set_ylabel("core seconds")
    axis.legend(fontsize=6)


def _write_page(found: Summary, run: Path) -> None:
    """A page of its own: the figure and the table of feeders."""
    from html import escape

    columns = [
        "number",
        "accepted",
        "reason",
        "buses",
        "customers",
        "family",
        "place",
        "ties",
        "photovoltaics",
        "repairs",
    ]
    table = found.feeders[columns].to_html(index=False, border=0)
    svg = (run / FIGURE).read_text()
    thanks = "Streets and buildings of real places: © OpenStreetMap contributors, Overture Maps Foundation; ODbL 1.0"
    page = (
        f"<!doctype html><meta charset='utf-8'><title>{escape(run.name)}</title>"
        "<style>body{font-family:sans-serif;margin:2em}td,th{padding:0 .6em;text-align:right}"
        "svg{max-width:100%}</style>"
        f"<h1>{escape(run.name)}</h1><p>{escape(thanks)}</p>{svg[svg.index('<svg') :]}{table}"
    )
    (run / PAGE).write_text(page, encoding="utf-8")
