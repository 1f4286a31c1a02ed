"""Where a reading can be: which conductors elements have, and what a phase in question forbids."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mycelium.grid.grid import Grid
from mycelium.schema import CHANNELS, HIDDEN, PHASES
from mycelium.sense.layout import Layout

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


def possible_readings(grid: Grid) -> dict[str, Flags]:
    """Where a reading can be, per channel. [row, slot]

    A conductor of unknown phase has slot OWN only: its reading in a phase slot, or its angle, would answer the
    question.
    """
    n_consumers = len(grid.consumer)
    phases = {"consumer": np.ones((n_consumers, len(PHASES)), bool)}  # scalars: [:, :1] of it is used
    hidden = {"consumer": np.zeros(n_consumers, bool)}
    phases["bus"], _ = _conductors(len(grid.bus), grid.wiring.bus, grid.wiring.conductor)
    hidden["bus"] = grid.wiring.hidden_bus
    for table in ("line", "winding", "substation"):
        t = grid.wiring.terminals[table]
        near = t.terminal == 0
        phases[table], hidden[table] = _conductors(len(grid.tables[table]), t.row[near], t.conductor[near])
    found = {}
    for key, channel in CHANNELS.items():
        own = hidden[channel.table][:, None]
        found[key] = np.concatenate([phases[channel.table] & ~own, own], axis=1)[:, : channel.slots]
    found["winding.tap_pu"] = grid.winding["regulated"].to_numpy().astype(bool)[:, None]
    return found


def _conductors(n_rows: int, row: Ints, conductor: Ints) -> tuple[Flags, Flags]:
    """Phases of every row [row, phase], and whether it has a hidden conductor. [row]"""
    phases, hidden = np.zeros((n_rows, len(PHASES)), bool), np.zeros(n_rows, bool)
    is_phase = (conductor >= 1) & (conductor <= len(PHASES))
    phases[row[is_phase], conductor[is_phase] - 1] = True
    hidden[row[conductor == HIDDEN]] = True
    return phases, hidden


@dataclass(frozen=True)
class Places:
    """All places of a grid, and which of them can have a reading.

    Attributes:
        possible: Where a reading can be, per channel. [row, slot]
        layout: How places are numbered.
    """

    possible: dict[str, Flags]
    layout: Layout

    @staticmethod
    def of(grid: Grid) -> Places:
        return Places(possible_readings(grid), Layout.of(grid))
