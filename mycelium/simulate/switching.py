"""Coordinated switching: moves that keep everyone supplied, and moves that on purpose do not.

The network is contracted, conductor by conductor, to what stays joined with every switch open. Between these parts only
switches remain, so a loop or a bridge is found on a small graph.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from mycelium.grid.grid import Grid
from mycelium.grid.nominal_angle import NominalAngle, wrap
from mycelium.schema import PHASES
from mycelium.simulate.energised import Connectivity

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

LEAST_LEFT = 0.1  # share of supplied nodes that opening one switch must leave: a dead feeder is no sample
_SAME_ANGLE_RAD = 0.1
_TRIES = 32


class Switching(StrEnum):
    NONE = "none"
    KEEP = "keep"  # supply is kept
    LOSE = "lose"  # some part loses supply


@dataclass(frozen=True)
class SwitchGraph:
    """Parts joined by switches, conductor by conductor: a single-phase tie cannot stand in for three phases.

    Attributes:
        ends: Parts at the two ends of every conductor of every switch. [conductor, 2]
        switch: Switch of every conductor. [conductor]
        fed: Parts with a source. [part]
        size: Nodes of every part. [part]
        closable: Whether closing a switch joins equal voltages, so that an engineer would. [switch]
    """

    ends: Ints
    switch: Ints
    fed: Flags
    size: Ints
    closable: Flags

    @staticmethod
    def of(grid: Grid, connectivity: Connectivity, nominal: NominalAngle) -> SwitchGraph:
        pair, part = connectivity.switch_pair, connectivity.part
        phase = ((pair >= 0) & (grid.wiring.conductor[pair] <= len(PHASES))).all(axis=1)  # supply is a matter of phases
        fed = np.zeros(int(part.max()) + 1, bool)
        fed[part[-1]] = True
        size = np.bincount(part[:-1][grid.wiring.conductor <= len(PHASES)], minlength=len(fed))
        line = grid.line.iloc[grid.switches]
        bus = line[["bus1", "bus2"]].to_numpy().astype(np.int64)
        base = grid.bus["base_kv"].to_numpy()[bus]
        same_base = np.abs(base[:, 0] / base[:, 1] - 1.0) < 0.01
        both = nominal.valid[bus[:, 0]] & nominal.valid[bus[:, 1]]
        apart = np.abs(wrap(nominal.angle_rad[bus[:, 0]] - nominal.angle_rad[bus[:, 1]])) > _SAME_ANGLE_RAD
        same_conductors = (line["conductors1"] == line["conductors2"]).to_numpy()
        closable = np.asarray(same_base & ~(both & apart).any(axis=1) & same_conductors)
        return SwitchGraph(part[pair[phase]], connectivity.switch_row[phase], fed, size, closable)

    def supplied(self, is_open: Flags) -> Flags:
        """Parts that some source reaches. [part]"""
        n = len(self.fed)
        ends = self.ends[~is_open[self.switch]]
        graph = coo_array((np.ones(len(ends), np.int8), (ends[:, 0], ends[:, 1])), shape=(n, n))
        label = connected_components(graph, directed=False)[1]
        return np.asarray(np.isin(label, label[self.fed]))

    def path(self, is_open: Flags, start: int, goal: int) -> list[int]:
        """Closed switches of a shortest path between two parts; empty if there is none or they are the same."""
        neighbours: dict[int, list[tuple[int, int]]] = {}
        for k in np.flatnonzero(~is_open[self.switch]):
            (a, b), switch = self.ends[k].tolist(), int(self.switch[k])
            neighbours.setdefault(a, []).append((b, switch))
            neighbours.setdefault(b, []).append((a, switch))
        came: dict[int, tuple[int, int]] = {start: (-1, -1)}
        queue = deque([start])
        while queue and goal not in came:
            here = queue.popleft()
            for other, switch in neighbours.get(here, ()):
                if other not in came:
                    came[other] = (here, switch)
                    queue.append(other)
        switches = []
        while goal in came and goal != start:
            goal, switch = came[goal]
            switches.append(switch)
        return switches

    def keep(self, is_open: Flags, rng: np.random.Generator) -> Flags:
        """Close one open switch and open another on the loop it makes, or open one on a loop that is closed now."""
        before = self.supplied(is_open)
        tie = np.flatnonzero(is_open & self.closable & self._between_supplied(before))
        rng.shuffle(tie)
        for switch in tie[:_TRIES]:
            first = int(np.flatnonzero(self.switch == switch)[0])
            loop = np.array(self.path(is_open, *(int(part) for part in self.ends[first])), dtype=np.int64)
            rng.shuffle(loop)
            for other in loop[:_TRIES]:
                result = is_open.copy()
                result[switch], result[other] = False, True
                if np.array_equal(self.supplied(result), before):
                    return result
        return self._open_one(is_open, rng, keeps=True)

    def lose(self, is_open: Flags, rng: np.random.Generator) -> Flags:
        """Open a switch without which some part, but not nearly everything, is not supplied."""
        return self._open_one(is_open, rng, keeps=False)

    def _between_supplied(self, supplied: Flags) -> Flags:
        """Switches between parts that are all supplied. [switch]"""
        n = len(self.closable)
        dead = ~supplied[self.ends].all(axis=1)
        there = np.bincount(self.switch, minlength=n) > 0
        return np.asarray(there & (np.bincount(self.switch, dead, n) == 0))

    def _open_one(self, is_open: Flags, rng: np.random.Generator, keeps: bool) -> Flags:
        """Open the first closed switch, in random order, that does or does not keep supply; none if there is none."""
        before = self.supplied(is_open)
        closed = np.flatnonzero(~is_open & self._between_supplied(before))
        rng.shuffle(closed)
        for switch in closed[: 2 * _TRIES]:
            result = is_open.copy()
            result[switch] = True
            after = self.supplied(result)
            left = self.size[after].sum() >= LEAST_LEFT * self.size[before].sum()
            if np.array_equal(after, before) if keeps else left and not np.array_equal(after, before):
                return result
        return is_open


def draw_positions(
    graph: SwitchGraph, recorded: Flags, switching: Switching, rng: np.random.Generator
) -> tuple[Flags, Switching]:
    """Positions of a case, and what the moves came to (NONE where the network admits none)."""
    is_open = recorded
    if switching is Switching.NONE or not len(recorded):
        return is_open, Switching.NONE
    for _ in range(int(rng.integers(1, 4))):
        is_open = graph.keep(is_open, rng)
    if switching is Switching.LOSE:
        is_open = graph.lose(is_open, rng)
    if np.array_equal(is_open, recorded):
        return is_open, Switching.NONE
    lost = np.any(graph.supplied(recorded) & ~graph.supplied(is_open))
    return is_open, Switching.LOSE if lost else Switching.KEEP
