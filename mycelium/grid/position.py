"""Electrical distance and the nine positional descriptors of a bus.

Everything is on the structural graph with all switches closed, so no switch position is used. Impedances are
per unit on 1 MVA and the local voltage base, line to line; a transformer's are its short-circuit values on
its own rating, carried to 1 MVA. Reactances enter by magnitude: a series capacitor is a distance too.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from jaxtyping import Bool, Float64, Int64

from mycelium.grid.grid import Grid
from mycelium.grid.nominal_angle import NominalAngle, transformer_shift
from mycelium.grid.primitive import reactor_sizes
from mycelium.grid.topology import (
    BRANCH_KINDS,
    Branches,
    branches,
    bus_pairs,
    lightest,
    shortest_paths,
    sources,
)
from mycelium.schema import ElementKind

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

R_SCALE_PU = 0.66
X_SCALE_PU = 0.54
HOP_SCALE = 57.0
N_DESCRIPTORS = 9

_BASE_MVA = 1.0
_SHORTEST_PU = 1e-12  # keeps zero-impedance branches from tying with no branch at all


@dataclass(frozen=True, slots=True)
class PathStatistics:
    """What lies between a bus and its substation along the electrically shortest path; zeros without one.

    Attributes:
        reached: Whether there is a path. [bus]
        substation: Row of the nearest substation, -1 where none. [bus]
        predecessor: Bus before it on the path, -1 at the substation's bus. [bus]
        branch: Index into ``topology.branches`` of the branch from the predecessor, -1 where none. [bus]
        distance_pu: Sum of branch impedance magnitudes. [bus]
        hops: Number of branches. [bus]
        r_pu: Accumulated resistance. [bus]
        x_pu: Accumulated reactance. [bus]
        transformers: Number of transformers. [bus]
        shift_rad: Accumulated phase shift. [bus]
        shifts: Number of transformers with a shift. [bus]
    """

    reached: Bool[npt.NDArray[np.bool_], " bus"]
    substation: Int64[Ints, " bus"]
    predecessor: Int64[Ints, " bus"]
    branch: Int64[Ints, " bus"]
    distance_pu: Float64[Floats, " bus"]
    hops: Int64[Ints, " bus"]
    r_pu: Float64[Floats, " bus"]
    x_pu: Float64[Floats, " bus"]
    transformers: Int64[Ints, " bus"]
    shift_rad: Float64[Floats, " bus"]
    shifts: Int64[Ints, " bus"]


def position(grid: Grid, nominal: NominalAngle) -> tuple[Float64[Floats, "bus descriptor=9"], PathStatistics]:
    """The nine descriptors of the paper [bus, descriptor], and the path statistics behind them.

    The order is hops / 57, log(1 + hops), log(1 + R / R0), log(1 + X / X0), log(1 + transformers), log of the
    voltage base over the substation's, sine and cosine of the phase shift, log(1 + shifting transformers). A
    bus no substation reaches has zero path statistics and a voltage ratio of 1.
    """
    s = path_statistics(grid, nominal)
    base = grid.bus["base_kv"].to_numpy()
    own_source = sources(grid)[np.maximum(s.substation, 0)] if len(grid.substation) else np.zeros(len(base), np.int64)
    ratio = np.where(s.reached, base / base[own_source], 1.0)
    descriptors = [
        s.hops / HOP_SCALE,
        np.log1p(s.hops),
        np.log1p(s.r_pu / R_SCALE_PU),
        np.log1p(s.x_pu / X_SCALE_PU),
        np.log1p(s.transformers),
        np.log(ratio),
        np.sin(s.shift_rad),
        np.cos(s.shift_rad),
        np.log1p(s.shifts),
    ]
    return np.stack(descriptors, axis=1), s


def path_statistics(grid: Grid, nominal: NominalAngle) -> PathStatistics:
    """Follow every bus's electrically shortest path to its nearest substation (ties by row)."""
    b = branches(grid)
    r, x = branch_impedance_pu(grid, b)
    weight = electrical_length_pu(r, x)
    seeds = sources(grid)
    paths = shortest_paths(b, weight, seeds, np.arange(len(seeds)))
    branch = _branch_to(b, weight, paths.predecessor)
    stepped = branch >= 0
    shift = transformer_shift(grid, b, nominal)
    # A shift is defined from winding 1 outwards; walking the other way negates it.
    sign = np.where(b.bus_to[branch] == np.arange(b.n_bus), 1.0, -1.0)
    own = np.stack(
        [
            np.ones(b.n_bus),
            r[branch],
            x[branch],
            b.is_kind(ElementKind.TRANSFORMER)[branch],
            sign * shift[branch],
            np.abs(shift[branch]) > 0.0,
        ]
    )
    hops, r_sum, x_sum, transformers, shift_sum, shifts = accumulate(np.where(stepped, own, 0.0), paths.predecessor)
    reached = np.isfinite(paths.distance)
    return PathStatistics(
        reached=reached,
        substation=paths.seed,
        predecessor=paths.predecessor,
        branch=branch,
        distance_pu=np.where(reached, paths.distance, 0.0),
        hops=hops.astype(np.int64),
        r_pu=r_sum,
        x_pu=x_sum,
        transformers=transformers.astype(np.int64),
        shift_rad=shift_sum,
        shifts=shifts.astype(np.int64),
    )


def _branch_to(b: Branches, weight: Floats, predecessor: Ints) -> Ints:
    """The branch from its predecessor to each bus (the lightest, ties by order), -1 where none. [bus]"""
    pairs, _ = bus_pairs(b)
    chosen = lightest(b, weight)
    bus = np.flatnonzero(predecessor >= 0)
    low, high = np.minimum(bus, predecessor[bus]), np.maximum(bus, predecessor[bus])
    place = np.searchsorted(pairs[:, 0] * b.n_bus + pairs[:, 1], low * b.n_bus + high)
    result = np.full(b.n_bus, -1, dtype=np.int64)
    result[bus] = chosen[place]
    return result


def accumulate(own: Float64[Floats, "value bus"], predecessor: Int64[Ints, " bus"]) -> Float64[Floats, "value bus"]:
    """Sum each bus's own values over its path, itself included, in a number of rounds logarithmic in depth.

    Args:
        own: Values of each bus's last step. [value, bus]
        predecessor: Bus before each bus, -1 at the start of a path. [bus]
    """
    n = len(predecessor)
    total = np.concatenate([own, np.zeros((len(own), 1))], axis=1)
    jump = np.append(np.where(predecessor >= 0, predecessor, n), n)  # the extra bus n adds nothing and stays put
    while np.any(jump < n):
        total = total + total[:, jump]
        jump = jump[jump]
    return total[:, :n]


def electrical_length_pu(
    r_pu: Float64[Floats, " branch"], x_pu: Float64[Floats, " branch"]
) -> Float64[Floats, " branch"]:
    """Impedance magnitude of each branch, never quite zero. [branch]"""
    return np.maximum(np.hypot(r_pu, x_pu), _SHORTEST_PU)


def branch_impedance_pu(grid: Grid, b: Branches) -> tuple[Float64[Floats, " branch"], Float64[Floats, " branch"]]:
    """Resistance and reactance magnitude of every branch, per unit on 1 MVA. [branch]"""
    base_kv = np.sqrt(3.0) * grid.bus["base_kv"].to_numpy()[b.bus_from]
    per_ohm = _BASE_MVA / base_kv**2
    r, x = np.zeros(len(b)), np.zeros(len(b))
    for kind, values in (
        (ElementKind.LINE, _line_ohm(grid)),
        (ElementKind.REACTOR, _reactor_ohm(grid)),
        (ElementKind.CAPACITOR, _capacitor_ohm(grid)),
    ):
        mine = b.is_kind(kind)
        r[mine], x[mine] = (np.abs(part[b.row[mine]]) * per_ohm[mine] for part in values)
    unit = b.is_kind(ElementKind.TRANSFORMER)
    r[unit], x[unit] = _transformer_pu(grid, b.row[unit], b.winding[unit])
    unknown = np.flatnonzero(~np.isfinite(r + x))
    if len(unknown):
        kind, row = BRANCH_KINDS[b.kind[unknown[0]]], b.row[unknown[0]]
        raise ValueError(f"{kind} {grid.tables[kind.value]['name'].iloc[row]} has no finite impedance per unit")
    return r, x


def _line_ohm(grid: Grid) -> tuple[Floats, Floats]:
    return grid.line["r1_ohm"].to_numpy(), grid.line["x1_ohm"].to_numpy()


def _capacitor_ohm(grid: Grid) -> tuple[Floats, Floats]:
    steps = np.maximum(grid.capacitor["steps"].to_numpy().astype(np.float64), 1.0)
    farad = grid.capacitor["step_uf"].to_numpy() * 1e-6
    with np.errstate(divide="ignore"):  # a capacitor of no capacitance is refused by the caller
        reactance = grid.capacitor["filter_x_ohm"].to_numpy() - 1.0 / (2.0 * np.pi * grid.frequency_hz * farad)
    return grid.capacitor["filter_r_ohm"].to_numpy() / steps, reactance / steps


def _reactor_ohm(grid: Grid) -> tuple[Floats, Floats]:
    """Own values; where only a matrix is given, those of the first phase's own admittance. [reactor]"""
    size = reactor_sizes(grid) ** 2
    first = np.cumsum(size) - size
    y = grid.matrices["reactor_g_siemens"][first] + 1j * grid.matrices["reactor_b_siemens"][first]
    r, x = grid.reactor["r_ohm"].to_numpy(), grid.reactor["x_ohm"].to_numpy()
    given = np.isfinite(r) & np.isfinite(x)
    z = 1.0 / np.where(given, 1.0, y)
    return np.where(given, r, z.real), np.where(given, x, z.imag)


def _transformer_pu(grid: Grid, row: Ints, winding: Ints) -> tuple[Floats, Floats]:
    """Short-circuit values between winding 1 and another winding, on winding 1's rating carried to 1 MVA."""
    first = grid.transformer["first_winding"].to_numpy()[row]
    number = grid.winding["number"].to_numpy()[winding]
    r_pct = grid.winding["r_pct"].to_numpy()
    reactances = grid.transformer[["x12_pct", "x13_pct"]].to_numpy()
    per_pct = _BASE_MVA / (grid.winding["rated_kva"].to_numpy()[first] / 1000.0) / 100.0
    x_pct = reactances[row, np.clip(number - 2, 0, 1)]
    return (r_pct[first] + r_pct[winding]) * per_pct, np.abs(x_pct) * per_pct
