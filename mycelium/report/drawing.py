"""Pictures of the report as inline SVG: the feeder, and voltages by hour."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
import numpy.typing as npt

from mycelium.grid.grid import Grid
from mycelium.grid.topology import branches
from mycelium.report.answers import NOT_ASKED, Answers
from mycelium.report.layout import positions
from mycelium.window.targets import CANDIDATES

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

WIDTH, HEIGHT, MARGIN = 900.0, 620.0, 24.0
_RANKED = 5  # candidates drawn


def feeder_svg(grid: Grid, answers: Answers, observed: Flags, true_place: int | None = None) -> str:
    """The feeder: lines, switches as they are said to be, buses coloured by a script, likeliest places of a fault.

    Args:
        grid: The records.
        answers: What was said.
        observed: Buses with a voltage reading. [bus]
        true_place: The candidate that has the fault, if that is known.
    """
    place = _scaled(positions(grid))
    parts = [f'<svg id="feeder" viewBox="0 0 {WIDTH:.0f} {HEIGHT:.0f}" role="img" aria-label="The feeder">']
    parts += _branches(grid, place)
    names = grid.bus["name"].to_numpy()
    radius = float(np.clip(60.0 / np.sqrt(max(len(place), 1)), 1.5, 6.0))
    for k, (x, y) in enumerate(place):
        kind = "seen" if observed[k] else "inferred"
        parts.append(
            f'<circle class="bus {kind}" cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}"><title>{escape(str(names[k]))}'
            "</title></circle>"
        )
    parts += _switches(grid, answers, place)  # on top of the buses, which would hide short ones
    for bus in grid.substation["bus1"].to_numpy():
        x, y = place[bus]
        parts.append(f'<rect class="source" x="{x - 7:.1f}" y="{y - 7:.1f}" width="14" height="14"/>')
    if "fault" in answers.asked and answers.fault[0] != "normal":
        for row in answers.candidates.head(_RANKED).itertuples():
            x, y = _middle(grid, place, str(row.kind), int(row.row))
            parts.append(
                f'<g class="candidate"><circle cx="{x:.1f}" cy="{y:.1f}" r="10"/>'
                f'<text x="{x + 12:.1f}" y="{y - 8:.1f}">{row.rank}</text>'
                f"<title>{escape(f'{row.rank}. {row.kind} {row.name}: {row.p:.0%}')}</title></g>"
            )
    if true_place is not None:
        x, y = _middle(grid, place, *_candidate(grid, true_place))
        parts.append(
            f'<path class="truth" d="M{x - 9:.1f} {y - 9:.1f}l18 18m0 -18l-18 18"><title>true place</title></path>'
        )
    return "".join([*parts, "</svg>"])


def _scaled(place: Floats) -> Floats:
    """Places on the canvas, y downwards, proportions kept. [bus, xy]"""
    low, size = place.min(axis=0), np.maximum(np.ptp(place, axis=0), 1e-9)
    scale = min((WIDTH - 2 * MARGIN) / size[0], (HEIGHT - 2 * MARGIN) / size[1])
    moved = (place - low) * scale
    free = np.array([WIDTH, HEIGHT]) - 2 * MARGIN - size * scale
    moved = moved + MARGIN + np.maximum(free, 0.0) / 2.0
    return np.asarray(np.stack([moved[:, 0], HEIGHT - moved[:, 1]], axis=1))


def _candidate(grid: Grid, place: int) -> tuple[str, int]:
    """Kind and row of a candidate for a fault."""
    for kind in CANDIDATES:
        if place < len(grid.tables[kind.value]):
            return kind.value, place
        place -= len(grid.tables[kind.value])
    raise IndexError("no such candidate")


def _branches(grid: Grid, place: Floats) -> list[str]:
    """Lines and transformers, one path each."""
    b = branches(grid)
    parts = []
    for kind, mark in ((0, "line"), (1, "transformer"), (2, "line"), (3, "line")):
        own = np.flatnonzero((b.kind == kind) & ~b.is_switch)
        d = "".join(
            f"M{place[i][0]:.1f} {place[i][1]:.1f}L{place[j][0]:.1f} {place[j][1]:.1f}"
            for i, j in zip(b.bus_from[own], b.bus_to[own], strict=True)
        )
        if d:
            parts.append(f'<path class="{mark}" d="{d}"/>')
    return parts


def _switches(grid: Grid, answers: Answers, place: Floats) -> list[str]:
    """Switches with what is said of them, if anything is."""
    said = {int(row.Index): row for row in answers.switches.itertuples()}
    parts = []
    for line in grid.switches.tolist():
        ends = place[[grid.line["bus1"].iat[line], grid.line["bus2"].iat[line]]]
        (x1, y1), (x2, y2) = ends
        x, y = ends.mean(axis=0)
        name = grid.line["name"].iat[line]
        state, words = "unasked", NOT_ASKED
        if line in said:
            state = "open" if said[line].open else "closed"
            words = f"{state}, open with {said[line].p_open:.0%}"
        parts.append(
            f'<g class="switch {state}"><line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'
            f'<rect x="{x - 4:.1f}" y="{y - 4:.1f}" width="8" height="8"/>'
            f"<title>{escape(f'{name}: {words}')}</title></g>"
        )
    return parts


def _middle(grid: Grid, place: Floats, kind: str, row: int) -> tuple[float, float]:
    """Where a piece of equipment is drawn."""
    if kind == "bus":
        at = place[row]
    elif kind == "line":
        at = place[[grid.line["bus1"].iat[row], grid.line["bus2"].iat[row]]].mean(axis=0)
    else:
        mine = grid.winding["transformer"].to_numpy() == row
        at = place[grid.winding["bus1"].to_numpy()[mine]].mean(axis=0)
    return float(at[0]), float(at[1])


@dataclass(frozen=True, slots=True)
class Band:
    """A line of the chart of voltages.

    Attributes:
        name, colour: Of the line.
        v_pu: Its values. [hour]
        dashed: Of the truth: without its name.
    """

    name: str
    colour: str
    v_pu: Floats
    dashed: bool = False


def voltages_svg(bands: Sequence[Band]) -> str:
    """Voltages by hour, a line each."""
    low = min(0.9, *(float(band.v_pu.min()) for band in bands))
    high = max(1.1, *(float(band.v_pu.max()) for band in bands))
    width, height, left, bottom = 900.0, 220.0, 46.0, 24.0

    def at(hour: int, value: float) -> tuple[float, float]:
        share = (value - low) / max(high - low, 1e-9)
        return left + hour * (width - left - 90.0) / 23.0, (height - bottom) - float(np.clip(share, 0, 1)) * (
            height - bottom - 12.0
        )

    parts = [f'<svg viewBox="0 0 {width:.0f} {height:.0f}" role="img" aria-label="Voltages by hour">']
    for value in np.linspace(low, high, 5):
        _, y = at(0, float(value))
        parts.append(f'<line class="grid" x1="{left}" y1="{y:.1f}" x2="{width - 90:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{left - 6:.1f}" y="{y + 4:.1f}" text-anchor="end">{value:.2f}</text>')
    parts += [
        f'<text x="{at(h, low)[0]:.1f}" y="{height - 6:.1f}" text-anchor="middle">{h}</text>' for h in range(0, 24, 3)
    ]
    for band in bands:
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in (at(h, float(v)) for h, v in enumerate(band.v_pu)))
        dash = ' class="true" stroke-dasharray="5 4" stroke-opacity="0.7"' if band.dashed else ""
        parts.append(f'<polyline points="{points}" fill="none" stroke="{band.colour}" stroke-width="2"{dash}/>')
    above = -np.inf
    named = [band for band in bands if not band.dashed]
    for band in sorted(named, key=lambda band: -float(band.v_pu[-1])):
        x, y = at(23, float(band.v_pu[-1]))
        above = max(y, above + 12.0)  # names of lines that meet stand below each other
        parts.append(f'<text x="{x + 6:.1f}" y="{above + 4:.1f}" fill="{band.colour}">{escape(band.name)}</text>')
    return "".join([*parts, "</svg>"])
