"""Nodes of terminal conductors in any configuration, prepared once, so that a day only looks up its phases."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from jaxtyping import Int8, Int64

from mycelium.grid.wiring import Terminals, Wiring
from mycelium.schema import HIDDEN, OWN

Ints = npt.NDArray[np.int64]


def slots_of(conductor: Int64[Ints, " item"]) -> Int64[Ints, " item"]:
    """Slot of a reading on each conductor: its phase's, OWN for a hidden one, -1 for neutrals and ground. [item]"""
    phase = np.where((conductor >= 1) & (conductor <= 3), conductor - 1, -1)
    return np.where(conductor == HIDDEN, OWN, phase)


@dataclass(frozen=True)
class ItemNodes:
    """Nodes of some terminal conductors of a table.

    Attributes:
        fixed: Node of every conductor, -1 for ground; of a hidden one at a known bus as if it were at ground. [item]
        moving: Which of them are hidden at a known bus. [moving]
        candidates: Their node on each phase. [moving, phase]
        group: Their hidden-phase group. [moving]
    """

    fixed: Int64[Ints, " item"]
    moving: Int64[Ints, " moving"]
    candidates: Int64[Ints, "moving phase=3"]
    group: Int64[Ints, " moving"]

    @staticmethod
    def of(wiring: Wiring, terminals: Terminals, items: Int64[Ints, " item"]) -> ItemNodes:
        bus, conductor = terminals.bus[items], terminals.conductor[items]
        moving = np.flatnonzero((conductor == HIDDEN) & ~wiring.hidden_bus[bus])
        phases = np.broadcast_to(np.array([1, 2, 3]), (len(moving), 3))
        candidates = wiring.find(np.repeat(bus[moving, None], 3, axis=1), phases)
        return ItemNodes(wiring.find(bus, conductor), moving, candidates, terminals.group[items[moving]])

    @property
    def possible(self) -> Ints:
        """Nodes that any of them can be, on any phase."""
        both = np.concatenate([self.fixed, self.candidates.ravel()])
        return both[both >= 0]

    def at(self, group_phase: Int8[npt.NDArray[np.int8], " group"]) -> Int64[Ints, " item"]:
        """Node of every conductor, -1 for ground. [item]

        Args:
            group_phase: Phase slot of every hidden-phase group. [group]
        """
        if not len(self.moving):
            return self.fixed
        node = self.fixed.copy()
        node[self.moving] = self.candidates[np.arange(len(self.moving)), group_phase[self.group]]
        return node
