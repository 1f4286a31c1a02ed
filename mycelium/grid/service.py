"""Which distribution transformer serves a customer, and which low-voltage zones have a three-phase supply.

A distribution transformer (DT) steps from above to below 1 kV; a bank of single-phase units on the same buses
is one DT, named by its first unit. A zone is what lines and series elements join around a DT's secondary
without passing a transformer. Nothing here depends on hidden phases, so the importer may ask before it hides
them.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

from mycelium.grid.grid import Grid
from mycelium.grid.position import branch_impedance_pu, electrical_length_pu
from mycelium.grid.topology import branches, components, shortest_paths
from mycelium.grid.wiring import parse_conductors, ragged_ranges
from mycelium.schema import LOW_VOLTAGE_KV, ElementKind

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


def secondary_windings(grid: Grid) -> Ints:
    """Rows of the low-voltage windings of distribution transformers, in order. [secondary]"""
    low = grid.winding["rated_kv"].to_numpy() < LOW_VOLTAGE_KV
    return np.flatnonzero(low & _of_distribution(grid))


def primary_windings(grid: Grid) -> Ints:
    """Row of the first medium-voltage winding of each distribution transformer, in order. [DT unit]"""
    high = np.flatnonzero((grid.winding["rated_kv"].to_numpy() >= LOW_VOLTAGE_KV) & _of_distribution(grid))
    _, first = np.unique(grid.winding["transformer"].to_numpy()[high], return_index=True)
    return np.asarray(high[first], dtype=np.int64)


def _of_distribution(grid: Grid) -> Flags:
    return np.asarray(grid.transformer["distribution"].to_numpy()[grid.winding["transformer"].to_numpy()], dtype=bool)


def lv_zone(grid: Grid) -> Ints:
    """Low-voltage zone of every bus, numbered in order of their first bus, -1 outside. [bus]"""
    label = _sections(grid)
    seats = np.unique(label[_bus(grid, secondary_windings(grid))])
    place = np.minimum(np.searchsorted(seats, label), max(len(seats) - 1, 0))
    return np.where(np.isin(label, seats), place, -1)


def _sections(grid: Grid) -> Ints:
    """Component of every bus over everything but transformers. [bus]"""
    b = branches(grid)
    return components(b.take(~b.is_kind(ElementKind.TRANSFORMER)))


def _bus(grid: Grid, windings: Ints) -> Ints:
    return np.asarray(grid.winding["bus1"].to_numpy()[windings], dtype=np.int64)


def three_phase_zone(grid: Grid) -> npt.NDArray[np.bool_]:
    """Buses of zones of which some DT has a secondary on all three phases. [bus]

    The secondaries of a bank's units count together. A low-voltage model that starts at its transformer's secondary
    has a source there instead: a three-phase low-voltage source counts as such a secondary.
    """
    section = _sections(grid)
    winding = secondary_windings(grid)
    bank = grid.transformer["bank"].to_numpy()[grid.winding["transformer"].to_numpy()[winding]]
    conductor, count = parse_conductors(grid.winding["conductors1"].iloc[winding])
    item, _ = ragged_ranges(count)
    phase = (conductor >= 1) & (conductor <= 3)
    wires = pd.DataFrame(
        {"section": section[_bus(grid, winding)][item], "bank": bank[item], "conductor": conductor}
    )[phase]  # fmt: skip
    present = wires.groupby(["section", "bank"])["conductor"].nunique()
    full = present.index.get_level_values("section")[(present == 3).to_numpy()].to_numpy()
    source = grid.substation
    low = ((source["base_kv"] < LOW_VOLTAGE_KV) & (source["n_phases"] >= 3)).to_numpy()
    fed = section[source["bus1"].to_numpy().astype(np.int64)[low]]
    return np.asarray(np.isin(section, np.concatenate([full, fed])))


def serving_transformer(grid: Grid) -> npt.NDArray[np.int32]:
    """Row of the DT (first unit of a bank) that serves each customer, -1 where none does. [consumer]

    It is the one at the least electrical distance within the customer's zone; ties go to the lower row.
    """
    b = branches(grid)
    b = b.take(~b.is_kind(ElementKind.TRANSFORMER))
    winding = secondary_windings(grid)
    seeds = _bus(grid, winding)
    weight = electrical_length_pu(*branch_impedance_pu(grid, b))
    nearest = shortest_paths(b, weight, seeds, _rank_within(components(b)[seeds])).seed
    seed = nearest[grid.consumer["bus1"].to_numpy()]
    owner = grid.winding["transformer"].to_numpy()[winding]
    served = np.append(grid.transformer["bank"].to_numpy()[owner], -1)  # seed -1 picks the last
    return np.asarray(served[seed], dtype=np.int32)


def _rank_within(label: Ints) -> Ints:
    """Place of each item among those of its label, in order."""
    order = np.argsort(label, kind="stable")
    _, first, count = np.unique(label[order], return_index=True, return_counts=True)
    rank = np.empty(len(label), dtype=np.int64)
    rank[order] = np.arange(len(label)) - np.repeat(first, count)
    return rank
