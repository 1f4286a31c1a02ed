"""Where a reading can be: which conductors elements have, and what a phase in question forbids."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mycelium.grid.grid import Grid
from mycelium.schema import CHANNELS, HIDDEN, HOURS, PHASES

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

_SLOTS = np.array([channel.slots for channel in CHANNELS.values()])


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
    """All places of a grid, numbered through: channel after channel, each [row, slot].

    Attributes:
        possible: Where a reading can be, per channel. [row, slot]
        start: First place of each channel, in the order of ``CHANNELS``, and the end. [channel + 1]
    """

    possible: dict[str, Flags]
    start: Ints

    @staticmethod
    def of(grid: Grid) -> Places:
        possible = possible_readings(grid)
        return Places(possible, np.concatenate([[0], np.cumsum([possible[key].size for key in CHANNELS])]))

    @property
    def count(self) -> int:
        return int(self.start[-1])

    def number(self, channel: Ints, row: Ints, slot: Ints) -> Ints:
        """Number of each place. [item]"""
        return np.asarray(self.start[channel] + row * _SLOTS[channel] + slot)

    def per_channel(self, values: npt.NDArray[Any]) -> dict[str, npt.NDArray[Any]]:
        """Views of [hour, place] per channel. [hour, row, slot]"""
        return {
            key: values[:, start:end].reshape(HOURS, *self.possible[key].shape)
            for key, start, end in zip(CHANNELS, self.start[:-1], self.start[1:], strict=True)
        }
