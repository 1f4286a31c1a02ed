"""Short circuits: what they are, how resistance is drawn, and what they add to the network.

G is the explicit neutral where the faulted equipment has one (conductor 4), else earth. A fault has one resistance R:

* LG: R from the phase to G.            * LL: R between the two phases.
* LLG: R from each phase to G.          * LLL: R from each phase to a common point that floats.
* LLLG: R from each phase to G.

R is drawn octave by octave: the octave uniformly, then uniformly within it, which is close to log-uniform and, unlike
an exponential, has the same bits on every machine. Above 1 kV the ten octaves start at 0.01 ohm (to 10.24 ohm), below
it the seven octaves do (to 1.28 ohm).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
import numpy.typing as npt
import pandas as pd

from mycelium.grid.grid import Grid
from mycelium.grid.wiring import parse_conductors
from mycelium.schema import GROUND, HIDDEN, HIDDEN_MARK, LOW_VOLTAGE_KV, FaultPlace, FaultType

NEUTRAL = 4
LOWEST_R_OHM = 0.01
OCTAVES_MV = 10
OCTAVES_LV = 7
X_RANGE = (0.2, 0.8)

N_PHASES = {FaultType.LG: 1, FaultType.LL: 2, FaultType.LLG: 2, FaultType.LLL: 3, FaultType.LLLG: 3}
GROUNDED = {FaultType.LG, FaultType.LLG, FaultType.LLLG}


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault, present at the last hour of a day.

    Attributes:
        type: LG, LL, LLG, LLL or LLLG.
        place: What kind of equipment it is on.
        element: Row of the bus, line or transformer in its table.
        terminal: Terminal of a transformer (0-based winding), else 0.
        x: Fraction of a line's length from terminal 1, else 0.
        conductors: Faulted conductors at the faulted place; HIDDEN is the own conductor of a hidden-phase service.
        resistance_ohm: R.
    """

    type: FaultType
    place: FaultPlace
    element: int
    terminal: int
    x: float
    conductors: tuple[int, ...]
    resistance_ohm: float


def draw_resistance_ohm(rng: np.random.Generator, base_kv_ln: float) -> float:
    """R for a line-to-neutral voltage base."""
    octaves = OCTAVES_LV if base_kv_ln * np.sqrt(3.0) < LOW_VOLTAGE_KV else OCTAVES_MV
    octave = int(rng.integers(octaves))
    return float(LOWEST_R_OHM * 2**octave * (1.0 + float(rng.random())))


def draw_fraction(rng: np.random.Generator) -> float:
    low, high = X_RANGE
    return low + (high - low) * float(rng.random())


def place_conductors(grid: Grid, place: FaultPlace, element: int, terminal: int) -> tuple[int, ...]:
    """Conductors of the equipment at the place of a fault, phases first, then a neutral if there is one."""
    if place is FaultPlace.BUS:
        found = grid.wiring.conductor[grid.wiring.nodes_at(element)]
    elif place is FaultPlace.LINE:
        found = _terminal_conductors(grid.line, element)
    else:
        winding = int(grid.transformer["first_winding"].iat[element]) + terminal
        # A hidden conductor cannot be on a winding, so its conductors are as on record.
        found = _terminal_conductors(grid.winding, winding)
    distinct = sorted({int(k) for k in found})
    phases = [k for k in distinct if k == HIDDEN or 1 <= k <= 3]
    return tuple(phases + [k for k in distinct if k == NEUTRAL])


def _terminal_conductors(table: pd.DataFrame, row: int) -> npt.NDArray[np.int64]:
    return parse_conductors(table["conductors1"].iloc[[row]])[0]


def place_bus(grid: Grid, place: FaultPlace, element: int, terminal: int) -> int:
    """Bus of a bus or transformer terminal; of terminal 1 of a line."""
    if place is FaultPlace.BUS:
        return element
    if place is FaultPlace.LINE:
        return int(grid.line["bus1"].iat[element])
    winding = int(grid.transformer["first_winding"].iat[element]) + terminal
    return int(grid.winding["bus1"].iat[winding])


def faulted_bus(grid: Grid, fault: Fault) -> int:
    """Bus of a bus or transformer-terminal fault; terminal 1 of a line fault."""
    return place_bus(grid, fault.place, fault.element, fault.terminal)


def legs(fault: Fault, has_neutral: bool) -> list[tuple[int, int, float]]:
    """Resistive connections: conductor, conductor, conductance in S. A floating star is given as its delta."""
    g = 1.0 / fault.resistance_ohm
    if fault.type in GROUNDED:
        ground = NEUTRAL if has_neutral else GROUND
        return [(phase, ground, g) for phase in fault.conductors]
    if fault.type is FaultType.LL:
        return [(fault.conductors[0], fault.conductors[1], g)]
    return [(a, b, g / 3.0) for a, b in combinations(fault.conductors, 2)]


def split_line(grid: Grid, line: int, x: float) -> tuple[Grid, int]:
    """A grid whose line is two sections with an interior bus between them, and the row of that bus.

    The first section takes the line's row, the second is appended. The line's shunt capacitance goes with the length.
    """
    bus, table = grid.bus, grid.line
    bus1 = int(table["bus1"].iat[line])
    hidden = HIDDEN_MARK in str(table["conductors1"].iat[line]).split(".")
    interior = len(bus)
    new_bus = bus.iloc[[bus1]].assign(name=f"{table['name'].iat[line]}#fault", x=np.nan, y=np.nan, hidden=hidden)
    first = table.iloc[[line]].assign(bus2=interior, conductors2=table["conductors1"].iat[line])
    second = table.iloc[[line]].assign(
        name=f"{table['name'].iat[line]}#2", bus1=interior, conductors1=table["conductors1"].iat[line]
    )
    lines = pd.concat([table.iloc[:line], first, table.iloc[line + 1 :], second], ignore_index=True)
    n = int(table["n_conductors"].iat[line])
    sizes = table["n_conductors"].to_numpy().astype(np.int64) ** 2
    start = int(sizes[:line].sum())
    matrices = dict(grid.matrices)
    for name in ("line_r_ohm", "line_x_ohm", "line_c_nf"):
        whole = grid.matrices[name][start : start + n * n]
        packed = np.concatenate([grid.matrices[name], whole * (1.0 - x)])
        packed[start : start + n * n] = whole * x
        matrices[name] = packed
    tables = {**grid.tables, "bus": pd.concat([bus, new_bus], ignore_index=True), "line": lines}
    tables["bus"] = tables["bus"].astype(bus.dtypes.to_dict())
    tables["line"] = tables["line"].astype(table.dtypes.to_dict())
    return replace(grid, tables=tables, matrices=matrices), interior


def feasible_types(n_phases: int) -> Sequence[FaultType]:
    """Types that equipment with this many phases can suffer."""
    return [kind for kind in FaultType if N_PHASES[kind] <= n_phases]
