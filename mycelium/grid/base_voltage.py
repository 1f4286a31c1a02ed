"""Voltage base of every bus, from ratings alone.

The engine finds bases from a solved voltage, which depends on switch positions. Records do not: here every zone
without transformers takes the base of its source or windings, then the nearest of the model's own voltage bases.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from mycelium.grid.grid import Grid
from mycelium.grid.import_report import ImportReport

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

_SNAP = 0.12  # a model base within 12 % of the rating is the one meant


def base_voltages(grid: Grid, bases_ll_kv: Floats, report: ImportReport) -> Floats:
    """Line-to-neutral base of every bus, kV. [bus]"""
    zone = _zones(grid)
    n_zones = int(zone.max()) + 1 if len(zone) else 0
    base = np.full(n_zones, np.nan)
    for table, rated in (("substation", "base_kv"), ("winding", "rated_kv"), ("consumer", "rated_kv")):
        bus = grid.tables[table]["bus1"].to_numpy().astype(np.int64)
        value = grid.tables[table][rated].to_numpy() / _line_to_line(grid, table)
        base = np.where(np.isnan(base), _median(zone[bus], value, n_zones), base)
    unknown = np.flatnonzero(np.isnan(base[zone])) if n_zones else np.zeros(0, np.int64)
    report.approximate("bus", grid.bus["name"].iloc[unknown].tolist(), "no rating tells its voltage base: 1 kV assumed")
    base = np.where(np.isnan(base), 1.0, base)
    return np.asarray(_snap(base, bases_ll_kv / np.sqrt(3.0))[zone])


def _zones(grid: Grid) -> Ints:
    """Component of each bus over lines, series reactors and series capacitors. [bus]"""
    pairs = [grid.line[["bus1", "bus2"]].to_numpy()]
    for table in ("reactor", "capacitor"):
        frame = grid.tables[table]
        pairs.append(frame.loc[frame["series"], ["bus1", "bus2"]].to_numpy())
    edges = np.concatenate(pairs).astype(np.int64).reshape(-1, 2)
    n = len(grid.bus)
    graph = coo_array((np.ones(len(edges)), (edges[:, 0], edges[:, 1])), shape=(n, n))
    return np.asarray(connected_components(graph, directed=False)[1], dtype=np.int64)


def _line_to_line(grid: Grid, table: str) -> Floats:
    """Ratio of the rated voltage to the line-to-neutral base: 1 for one conductor to ground, else sqrt(3)."""
    t = grid.wiring.terminals[table]
    first = (t.terminal == 0) & (t.conductor >= 1) & (t.conductor <= 3)
    count = np.bincount(t.row[first], minlength=len(grid.tables[table]))
    return np.where(count == 1, 1.0, np.sqrt(3.0))


def _median(zone: Ints, value: Floats, n_zones: int) -> Floats:
    """Median value per zone, NaN where there is none. [zone]"""
    result = np.full(n_zones, np.nan)
    order = np.lexsort((value, zone))
    zone, value = zone[order], value[order]
    present, start, count = np.unique(zone, return_index=True, return_counts=True)
    result[present] = value[start + (count - 1) // 2]
    return result


def _snap(base: Floats, offered: Floats) -> Floats:
    offered = offered[offered > 0]
    if not len(offered):
        return base
    nearest = offered[np.argmin(np.abs(np.log(base[:, None] / offered[None, :])), axis=1)]
    return np.where(np.abs(nearest / base - 1.0) <= _SNAP, nearest, base)
