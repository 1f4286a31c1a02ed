"""Sectionalising switches and normally open ties.

A tie joins two buses of the same voltage that are near each other along the streets and far apart along the tree, so
that closing it makes a long loop: it follows streets that the tree leaves out, or, where there are none, goes straight
across. Every loop gets a closed switch, so that there is something to open. Feeders get as many ties as the
sampled number per switch says, and at least ``FEWEST_TIES`` where there is room: switch positions are only a question
where there are loops.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.sparse.csgraph import dijkstra
from scipy.spatial import cKDTree

from mycelium.synth.construct import Layout, Stock
from mycelium.synth.design import Branch, Bus, Design, Line, LineRole, Switch
from mycelium.synth.forest import Forest
from mycelium.synth.geography import Floats, Ints, Streets
from mycelium.synth.library_rows import Conductor
from mycelium.synth.parameters import Parameters

FEWEST_TIES = 3
_NEIGHBOURS = 8
_CANDIDATES = 400  # compared with each other in full
_DETOUR = 1.3  # streets over straight distance
_SHORT_M = 40.0  # among ties shorter than this length does not count
_MOST_SWITCHES = 60
_SHORTEST_LOOP = 3  # branches besides the tie
_RATINGS_A = (400.0, 630.0, 1250.0, 2500.0)


@dataclass(frozen=True, slots=True)
class Tie:
    """A possible tie.

    Attributes:
        bus1, bus2: Its ends.
        length_m: Of its line.
        loop: Branches that it makes a loop with.
    """

    bus1: str
    bus2: str
    length_m: float
    loop: tuple[str, ...]


def add_switches(
    design: Design, layout: Layout, parameters: Parameters, stock: Stock, rng: np.random.Generator
) -> None:
    """Put switches and ties into a design."""
    feeder_km = sum(line.length_m for line in design.lines.values() if line.role is LineRole.FEEDER) / 1e3
    wanted = int(min(np.ceil(feeder_km / parameters.mv_km_per_switch), _MOST_SWITCHES))
    n_ties = max(round(parameters.ties_per_switch * wanted), FEWEST_TIES + int(rng.integers(4)))
    ties = _choose_ties(design, layout, n_ties, rng)
    sections = _sections(design, ties, wanted, rng)
    for k, tie in enumerate(ties):
        _add_tie(design, k, tie, stock)
    for k, name in enumerate(sections):
        _add_switch(design, k, design.lines[name])


# ---- ties --------------------------------------------------------------------------------------------------------


def _choose_ties(design: Design, layout: Layout, count: int, rng: np.random.Generator) -> list[Tie]:
    """Ties at medium voltage, and at low voltage where there are too few or, by lot, besides."""
    medium = _best(design, layout, layout.feeder, LineRole.FEEDER, count, rng)
    more = max(count - len(medium), int(rng.integers(0, 3)))
    return medium + _best(design, layout, layout.mains, LineRole.MAIN, more, rng)


def _best(
    design: Design, layout: Layout, forest: Forest, role: LineRole, count: int, rng: np.random.Generator
) -> list[Tie]:
    """The ties with the longest loops for their length, no two at one bus; those that follow streets first."""
    at_node = _buses(design, forest, role)
    chosen: list[Tie] = []
    if len(at_node) < 3 or not count:
        return chosen
    feeders = design.feeders_of()
    used: set[str] = set()
    streets = layout.territory.streets
    for pairs, length_m in (_by_street(streets, np.array(list(at_node))), _across(streets, np.array(list(at_node)))):
        pick: Ints = np.sort(rng.permutation(len(pairs))[:_CANDIDATES])
        found = []
        for (a, b), metres in zip(pairs[pick].tolist(), length_m[pick].tolist(), strict=True):
            tie = _tie(design, feeders, at_node[a], at_node[b], metres)
            if tie is not None:
                found.append(tie)
        for tie in sorted(found, key=_worth, reverse=True):
            if len(chosen) < count and tie.bus1 not in used and tie.bus2 not in used:
                chosen.append(tie)
                used |= {tie.bus1, tie.bus2}
    return chosen


def _buses(design: Design, forest: Forest, role: LineRole) -> dict[int, str]:
    """The bus at each street node of a tree that is the lower end of a line."""
    letter = {LineRole.FEEDER: "m", LineRole.MAIN: "s"}[role]
    return {int(node): f"{letter}{k}" for k, node in enumerate(forest.node) if f"{letter}{k}" in design.buses and k > 0}


def _by_street(streets: Streets, nodes: Ints) -> tuple[Ints, Floats]:
    """Pairs of nodes whose shares of the streets touch, and the way between them. [pair, 2], [pair]"""
    away, _, source = dijkstra(streets.graph, directed=False, indices=nodes, min_only=True, return_predecessors=True)
    a, b = streets.edge.T
    length = away[a] + streets.length_m + away[b]
    ends = np.sort(np.stack([source[a], source[b]], axis=1), axis=1)
    apart = np.flatnonzero((ends[:, 0] != ends[:, 1]) & (ends[:, 0] >= 0) & np.isfinite(length))
    order = apart[np.lexsort((length[apart], ends[apart, 1], ends[apart, 0]))]
    _, first = np.unique(ends[order], axis=0, return_index=True)
    return ends[order[first]].astype(np.int64), length[order[first]]


def _across(streets: Streets, nodes: Ints) -> tuple[Ints, Floats]:
    """Pairs of nodes near each other as the crow flies, and a way with detours. [pair, 2], [pair]"""
    away, other = cKDTree(streets.xy_m[nodes]).query(streets.xy_m[nodes], k=min(_NEIGHBOURS, len(nodes)))
    first = np.repeat(np.arange(len(nodes)), other.shape[1])
    pairs = np.stack([first, other.ravel()], axis=1)
    keep = pairs[:, 0] < pairs[:, 1]
    return nodes[pairs[keep]], _DETOUR * away.ravel()[keep]


def _tie(design: Design, feeders: dict[str, Branch], a: str, b: str, metres: float) -> Tie | None:
    """A tie between two buses, None if they share no phase or are next to each other."""
    if not _common(feeders[a], feeders[b]):
        return None
    loop = _loop(a, b, design, feeders)
    return Tie(a, b, round(max(metres, 3.0), 2), tuple(loop)) if len(loop) >= _SHORTEST_LOOP else None


def _worth(tie: Tie) -> tuple[float, str]:
    return len(tie.loop) / max(tie.length_m, _SHORT_M), tie.bus1


def _loop(a: str, b: str, design: Design, feeders: dict[str, Branch]) -> list[str]:
    """Names of the branches between two buses along the tree."""
    up = [branch.name for branch in design.path(a, feeders)]
    down = [branch.name for branch in design.path(b, feeders)]
    while up and down and up[-1] == down[-1]:
        up.pop()
        down.pop()
    return up + down


def _common(first: Branch, second: Branch) -> tuple[int, ...]:
    """Phases that two branches share."""
    return tuple(c for c in first.conductors if c in second.conductors)


def _add_tie(design: Design, k: int, tie: Tie, stock: Stock) -> None:
    """A line from the first bus, and an open switch between its end and the second."""
    feeders = design.feeders_of()
    first, second = feeders[tie.bus1], feeders[tie.bus2]
    conductors = _common(first, second)
    base = design.buses[tie.bus1]
    end = design.buses[tie.bus2]
    row = _type_of_tie(first, second, stock, base.area >= 0, len(conductors))
    bus = f"tie_{k}"
    design.buses[bus] = Bus(bus, round(end.x_m + 2, 2), round(end.y_m - 2, 2), base.base_kv, base.area)
    design.put(Line(f"tie_line_{k}", tie.bus1, bus, conductors, LineRole.TIE, row, tie.length_m))
    design.put(Switch(f"tie_{k}", bus, tie.bus2, conductors, True, _rating(row.ampacity_a)))


def _type_of_tie(first: Branch, second: Branch, stock: Stock, low: bool, n_phases: int) -> Conductor:
    """The heavier line type of the two ends; where neither has so few phases, the smallest that there is."""
    ends = [branch.type for branch in (first, second) if isinstance(branch, Line) and branch.type.n_phases == n_phases]
    if ends:
        return max(ends, key=lambda row: row.ampacity_a)
    return (stock.lv if low else stock.mv)[n_phases][0]


# ---- sections ----------------------------------------------------------------------------------------------------


def _sections(design: Design, ties: list[Tie], wanted: int, rng: np.random.Generator) -> list[str]:
    """Lines that get a switch: one in the loop of each tie, then others by lot, at medium voltage."""
    chosen: list[str] = []
    for tie in ties:
        lines = [name for name in tie.loop if name in design.lines]
        if lines and not set(lines) & set(chosen):
            chosen.append(lines[int(rng.integers(len(lines)))])
    others = [line.name for line in design.lines.values() if line.role is LineRole.FEEDER and line.name not in chosen]
    more = max(wanted - len(chosen), 0)
    return chosen + [others[k] for k in sorted(rng.permutation(len(others))[:more].tolist())]


def _add_switch(design: Design, k: int, line: Line) -> None:
    """A closed switch at the head of a line."""
    before, after = design.buses[line.bus1], design.buses[line.bus2]
    bus = f"x{k}"
    x, y = before.x_m + 0.1 * (after.x_m - before.x_m), before.y_m + 0.1 * (after.y_m - before.y_m)
    design.buses[bus] = Bus(bus, round(x, 2), round(y, 2), after.base_kv, after.area)
    design.put(replace(line, bus1=bus))
    design.put(Switch(f"switch_{k}", line.bus1, bus, line.conductors, False, _rating(line.rated_a)))


def _rating(amps: float) -> float:
    """The smallest standard rating for a line."""
    return next((rating for rating in _RATINGS_A if rating >= amps), float(np.ceil(amps / 1000) * 1000))
