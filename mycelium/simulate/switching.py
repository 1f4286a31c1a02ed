"""Coordinated switching: moves that keep everyone supplied, and moves that on purpose do not.

The network is contracted to what stays joined with every switch open. Between these parts only switches remain, so a
loop or a bridge is found on a small graph.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from mycelium.grid.grid import Grid
from mycelium.grid.nominal_angle import NominalAngle, wrap
from mycelium.grid.topology import branches, components, sources

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

_SAME_ANGLE_RAD = 0.1


class Switching(StrEnum):
    NONE = "none"
    KEEP = "keep"  # supply is kept
    LOSE = "lose"  # some part loses supply


@dataclass(frozen=True)
class SwitchGraph:
    """Parts joined by switches.

    Attributes:
        ends: Parts at the two ends of every switch. [switch, 2]
        fed: Parts with a source. [part]
        closable: Whether closing it joins equal voltages, so that an engineer would. [switch]
    """

    ends: Ints
    fed: Flags
    closable: Flags

    @staticmethod
    def of(grid: Grid, nominal: NominalAngle) -> SwitchGraph:
        b = branches(grid)
        part = components(b.take(~b.is_switch))
        line = grid.line.iloc[grid.switches]
        bus = line[["bus1", "bus2"]].to_numpy().astype(np.int64)
        fed = np.zeros(int(part.max()) + 1 if len(part) else 0, bool)
        fed[part[sources(grid)]] = True
        base = grid.bus["base_kv"].to_numpy()[bus]
        same_base = np.abs(base[:, 0] / base[:, 1] - 1.0) < 0.01
        both = nominal.valid[bus[:, 0]] & nominal.valid[bus[:, 1]]
        apart = np.abs(wrap(nominal.angle_rad[bus[:, 0]] - nominal.angle_rad[bus[:, 1]])) > _SAME_ANGLE_RAD
        same_conductors = (line["conductors1"] == line["conductors2"]).to_numpy()
        return SwitchGraph(part[bus], fed, np.asarray(same_base & ~(both & apart).any(axis=1) & same_conductors))

    def supplied(self, is_open: Flags) -> Flags:
        """Parts that some source reaches. [part]"""
        reached = self.fed.copy()
        queue = deque(int(part) for part in np.flatnonzero(reached))
        neighbours = self._neighbours(is_open)
        while queue:
            for other, _ in neighbours.get(queue.popleft(), ()):
                if not reached[other]:
                    reached[other] = True
                    queue.append(other)
        return reached

    def _neighbours(self, is_open: Flags) -> dict[int, list[tuple[int, int]]]:
        """Closed switches at each part: (other part, switch)."""
        found: dict[int, list[tuple[int, int]]] = {}
        for switch in np.flatnonzero(~is_open):
            a, b = (int(part) for part in self.ends[switch])
            found.setdefault(a, []).append((b, int(switch)))
            found.setdefault(b, []).append((a, int(switch)))
        return found

    def path(self, is_open: Flags, start: int, goal: int) -> list[int]:
        """Closed switches of a shortest path between two parts; empty if there is none or they are the same."""
        neighbours = self._neighbours(is_open)
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
        supplied = self.supplied(is_open)
        both_fed = supplied[self.ends].all(axis=1)
        tie = np.flatnonzero(is_open & self.closable & both_fed)
        rng.shuffle(tie)
        for switch in tie:
            loop = self.path(is_open, *(int(part) for part in self.ends[switch]))
            if loop:
                result = is_open.copy()
                result[switch] = False
                result[loop[int(rng.integers(len(loop)))]] = True
                return result
        return self._open_one(is_open, rng, keeps=True)

    def lose(self, is_open: Flags, rng: np.random.Generator) -> Flags:
        """Open a switch without which some part is not supplied."""
        return self._open_one(is_open, rng, keeps=False)

    def _open_one(self, is_open: Flags, rng: np.random.Generator, keeps: bool) -> Flags:
        """Open the first closed switch, in random order, that does or does not keep supply; none if there is none."""
        before = self.supplied(is_open)
        closed = np.flatnonzero(~is_open & before[self.ends].all(axis=1))
        rng.shuffle(closed)
        for switch in closed[:64]:
            result = is_open.copy()
            result[switch] = True
            if bool(np.array_equal(self.supplied(result), before)) == keeps:
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
