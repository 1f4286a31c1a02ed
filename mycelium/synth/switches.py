"""Sectionalising switches and normally open ties.

A tie joins two buses of the same voltage that are near each other and far apart along the tree, so that closing it
makes a long loop. Every loop gets a closed switch, so that there is something to open. Feeders get as many ties as the
sampled number per switch says, and at least ``FEWEST_TIES`` where there is room: switch positions are only a question
where there are loops.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.spatial import cKDTree

from mycelium.synth.construct import Stock
from mycelium.synth.design import Branch, Bus, Design, Line, LineRole, Switch
from mycelium.synth.geography import Ints
from mycelium.synth.parameters import Parameters

FEWEST_TIES = 3
_NEIGHBOURS = 8
_CANDIDATES = 400  # compared with each other in full
_DETOUR = 1.3  # streets over straight distance
_SHORT_M = 40.0  # among ties shorter than this length does not count
_MOST_SWITCHES = 60
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


def add_switches(design: Design, parameters: Parameters, stock: Stock, rng: np.random.Generator) -> None:
    """Put switches and ties into a design."""
    feeder_km = sum(line.length_m for line in design.lines.values() if line.role is LineRole.FEEDER) / 1e3
    wanted = int(min(np.ceil(feeder_km / parameters.mv_km_per_switch), _MOST_SWITCHES))
    n_ties = max(round(parameters.ties_per_switch * wanted), FEWEST_TIES + int(rng.integers(4)))
    ties = _choose_ties(design, n_ties, rng)
    sections = _sections(design, ties, wanted, rng)
    for k, tie in enumerate(ties):
        _add_tie(design, k, tie, stock)
    for k, name in enumerate(sections):
        _add_switch(design, k, design.lines[name])


# ---- ties --------------------------------------------------------------------------------------------------------


def _choose_ties(design: Design, count: int, rng: np.random.Generator) -> list[Tie]:
    """Ties at medium voltage, and at low voltage where there are too few or, by lot, besides."""
    feeders = design.feeders_of()
    medium = _best(design, feeders, LineRole.FEEDER, count, rng)
    if any(line.role is LineRole.MAIN for line in design.lines.values()):
        more = max(count - len(medium), int(rng.integers(0, 3)))
        return medium + _best(design, feeders, LineRole.MAIN, more, rng)
    return medium


def _best(
    design: Design, feeders: dict[str, Branch], role: LineRole, count: int, rng: np.random.Generator
) -> list[Tie]:
    """The ties with the longest loops for their length, no two at one bus."""
    buses = _open_to_ties(design, role)
    if len(buses) < 3 or not count:
        return []
    chosen: list[Tie] = []
    used: set[str] = set()
    for tie in sorted(_candidates(design, feeders, buses, rng), key=_worth, reverse=True):
        if len(chosen) == count:
            break
        if tie.bus1 not in used and tie.bus2 not in used:
            chosen.append(tie)
            used |= {tie.bus1, tie.bus2}
    return chosen


def _worth(tie: Tie) -> tuple[float, str]:
    return len(tie.loop) / max(tie.length_m, _SHORT_M), tie.bus1


def _open_to_ties(design: Design, role: LineRole) -> list[str]:
    """Buses at the lower end of a line of this role, in order."""
    return [line.bus2 for line in design.lines.values() if line.role is role]


def _candidates(design: Design, feeders: dict[str, Branch], buses: list[str], rng: np.random.Generator) -> list[Tie]:
    xy = np.array([(design.buses[bus].x_m, design.buses[bus].y_m) for bus in buses])
    away, other = cKDTree(xy).query(xy, k=min(_NEIGHBOURS, len(buses)))
    first = np.repeat(np.arange(len(buses)), other.shape[1])
    pairs = np.stack([first, other.ravel()], axis=1)
    keep = pairs[:, 0] < pairs[:, 1]
    pairs, length = pairs[keep], _DETOUR * away.ravel()[keep]
    pick: Ints = np.sort(rng.permutation(len(pairs))[:_CANDIDATES])
    found = []
    for (a, b), metres in zip(pairs[pick].tolist(), length[pick].tolist(), strict=True):
        loop = _loop(buses[a], buses[b], design, feeders)
        if len(loop) >= 3 and _common(feeders[buses[a]], feeders[buses[b]]):
            found.append(Tie(buses[a], buses[b], round(max(metres, 3.0), 2), tuple(loop)))
    return found


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
    ladder = (stock.mv if base.area < 0 else stock.lv).get(len(conductors))
    like = next(
        branch for branch in (first, second) if isinstance(branch, Line) and len(branch.conductors) == len(conductors)
    ) if ladder is None else None  # fmt: skip
    row = ladder[-1] if ladder is not None else like.type  # type: ignore[union-attr]
    bus = f"tie_{k}"
    design.buses[bus] = Bus(bus, round(end.x_m + 2, 2), round(end.y_m - 2, 2), base.base_kv, base.area)
    design.put(Line(f"tie_line_{k}", tie.bus1, bus, conductors, LineRole.TIE, row, tie.length_m))
    design.put(Switch(f"tie_{k}", bus, tie.bus2, conductors, True, _rating(row.ampacity_a)))


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
