"""Draws docs/lv_town.svg: the bundled town feeder, what its records do not say, and a simulated day with a fault.

Run it with `.venv/bin/python docs/make_picture.py`.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from mycelium.demo import FEEDER, MIX, SEED, describe_fault
from mycelium.feeders import feeder_path
from mycelium.grid.grid import Grid
from mycelium.schema import HOURS
from mycelium.simulate.day import Day
from mycelium.simulate.fault import faulted_bus
from mycelium.simulate.network import Network, NetworkSource

matplotlib.use("svg")
matplotlib.rcParams["svg.hashsalt"] = "mycelium"  # the same bytes every time
import matplotlib.pyplot as plt  # noqa: E402

PHASE_COLOURS = ("#c1440e", "#2a7f62", "#3b5ba9")
GREY = "#8a8a8a"


def draw_records(axes: Axes, grid: Grid, day: Day) -> None:
    """The feeder: mains, services whose phase is a question, switches, transformers, the fault."""
    place = grid.bus[["x", "y"]].to_numpy()
    switch_open = np.zeros(len(grid.line), bool)
    switch_open[grid.switches] = day.switch_open
    for row, line in enumerate(grid.line.itertuples()):
        ends = place[[line.bus1, line.bus2]]
        if np.isnan(ends).any():
            continue
        style = {"color": GREY, "lw": 0.8} if line.group >= 0 else {"color": "#333333", "lw": 2.0}
        if line.switch:
            style = {"color": "#d99a00" if switch_open[row] else "#333333", "lw": 2.4}
            style["linestyle"] = (0, (1.2, 1.2)) if switch_open[row] else "-"
            axes.plot(*ends.mean(axis=0), marker="s", ms=6, mfc="white", mec="#d99a00", mew=1.4, zorder=4)
        axes.plot(ends[:, 0], ends[:, 1], zorder=1, **style)
    hidden = grid.bus["hidden"].to_numpy()
    axes.scatter(*place[hidden].T, s=22, color="white", edgecolor=GREY, zorder=3)
    for x, y in place[hidden]:
        axes.annotate("?", (x, y), ha="center", va="center", fontsize=5, color=GREY, zorder=5)
    first = grid.transformer["first_winding"].to_numpy()
    at = place[grid.winding["bus1"].to_numpy()[first + 1]]
    axes.scatter(*at.T, marker="^", s=80, color="#333333", zorder=4)
    if day.fault is not None:
        axes.plot(*place[faulted_bus(grid, day.fault)], marker="X", ms=12, color="#c1440e", mec="white", zorder=6)
    axes.set_aspect("equal")
    axes.axis("off")
    axes.set_title("What the records say", loc="left", fontsize=10)
    handles = [
        Line2D([], [], color="#333333", lw=2, label="main"),
        Line2D([], [], color=GREY, marker="o", mfc="white", lw=0.8, ms=5, label="service, phase unknown"),
        Line2D([], [], color="#d99a00", marker="s", mfc="white", ls=":", ms=5, label="switch, position unknown"),
        Line2D([], [], color="#333333", marker="^", ls="", label="transformer"),
        Line2D([], [], color="#c1440e", marker="X", ls="", label="fault, to be found"),
    ]
    axes.legend(handles=handles, fontsize=7, loc="upper center", bbox_to_anchor=(0.5, 0.02), ncol=3, frameon=False)


def draw_day(axes: Axes, grid: Grid, day: Day) -> None:
    """The truth: voltage of every low-voltage node by hour, coloured by its true phase."""
    wiring = grid.wiring
    base_kv = grid.bus["base_kv"].to_numpy()[wiring.bus]
    low = (base_kv < 1) & day.energised
    pu = np.abs(day.v) / base_kv / 1e3
    for phase, colour in enumerate(PHASE_COLOURS):
        nodes = np.flatnonzero(low & (wiring.conductor == phase + 1))
        axes.plot(np.arange(HOURS), pu[:, nodes], color=colour, lw=0.5, alpha=0.7)
    axes.set_xlabel("hour", fontsize=8)
    axes.set_ylabel("voltage, p.u.", fontsize=8)
    axes.tick_params(labelsize=7)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title("What the simulator knows", loc="left", fontsize=10)
    if day.fault is not None:
        words = describe_fault(grid, day.fault)
        axes.annotate(
            words, (HOURS - 1, float(pu[-1, low].min())), (HOURS - 4, 0.3), ha="right", va="center", fontsize=7,
            arrowprops={"arrowstyle": "->", "lw": 0.6}, xycoords=("data", "data"), textcoords=("data", "axes fraction"),
        )  # fmt: skip
    handles = [Line2D([], [], color=c, label=f"phase {name}") for name, c in zip("ABC", PHASE_COLOURS, strict=True)]
    axes.legend(handles=handles, fontsize=7, loc="lower left", frameon=False)


def main() -> None:
    network = Network(NetworkSource(feeder_path(FEEDER)), MIX)
    day = network.simulate(SEED, 0)
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.6), width_ratios=(1.25, 1), layout="constrained")
    draw_records(left, network.published.grid, day)
    draw_day(right, network.published.grid, day)
    out = Path(__file__).parent / "lv_town.svg"
    figure.savefig(out, metadata={"Date": None})


if __name__ == "__main__":
    main()
