"""Record variants of a network: customers served from another transformer, and ties where there are no loops.

A variant changes what the utility's records say, so it is written as OpenDSS commands after the model's own, and the
whole is imported again: records, positions and communication edges follow by themselves. Variant 0 is the network as
published. A variant is a function of (network, number) only.

* Reassignment: a few services (a service line with its bus, or a customer straight on a main) move to a bus of
  another distribution transformer of the same kind, one of the nearest three by coordinates, by row where there are
  none.
* Ties: where a network has fewer than two loops with all switches closed, "open" would only mean "downstream dead".
  Three normally open ties join three-phase buses far apart along the feeder, each with the impedance of the line at
  its first end, and two lines of each loop become operable. Such variants are marked and scored separately.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from mycelium.grid.dss_script import Command, Script
from mycelium.grid.grid import Grid
from mycelium.grid.nominal_angle import NominalAngle, wrap
from mycelium.grid.primitive import unpack
from mycelium.grid.topology import branches, fed, hop_paths, loops
from mycelium.grid.wiring import parse_conductors
from mycelium.schema import HIDDEN_MARK, TIE_PREFIX, ElementKind
from mycelium.simulate.seeds import generator

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

N_TIES = 3
TIE_DRAWS = 200
LOOP_LENGTHS = (4, 2)  # lines of a tie's loop that can be made operable: the longer first, the shorter if need be
FEWEST_LOOPS = 2
VARIANTS_PER_KIND = 4
NEAREST_TRANSFORMERS = 3
SHARE_MOVED = 0.02
MOST_MOVED = 20


@dataclass(frozen=True, slots=True)
class Variant:
    """One record variant.

    Attributes:
        number: 0 is the network as published.
        commands: OpenDSS commands that make it from the published network.
        moved: Customers served by another transformer than published.
        ties: Number of ties added.
    """

    number: int
    commands: tuple[str, ...]
    moved: tuple[str, ...]
    ties: int


def with_variant(script: Script, variant: Variant) -> Script:
    """The script of a variant."""
    extra = tuple(Command(f"variant {variant.number}", k + 1, text) for k, text in enumerate(variant.commands))
    return replace(script, commands=script.commands + extra)


def n_variants(grid: Grid) -> int:
    """Number of variants of a network, the published one included."""
    return 1 + VARIANTS_PER_KIND * int(_can_reassign(grid) or loops(grid) < FEWEST_LOOPS)


def make_variant(grid: Grid, nominal: NominalAngle, number: int) -> Variant:
    """Variant ``number`` of a published network.

    Args:
        grid: The network as published.
        nominal: Its nominal angles: a tie joins equal angles.
        number: 0 to ``n_variants`` - 1.
    """
    if number == 0:
        return Variant(0, (), (), 0)
    rng = generator(grid.name, "variant", number)
    moves, moved = _reassign(grid, rng) if _can_reassign(grid) else ([], [])
    ties = _ties(grid, nominal, rng) if loops(grid) < FEWEST_LOOPS else []
    return Variant(number, tuple(moves + ties), tuple(moved), sum("new line." in text for text in ties))


def _can_reassign(grid: Grid) -> bool:
    served = grid.consumer["transformer"].to_numpy()
    return len(np.unique(served[served >= 0])) > 1


# ---- reassignment ------------------------------------------------------------------------------------------------


def _reassign(grid: Grid, rng: np.random.Generator) -> tuple[list[str], list[str]]:
    """Commands that move a few services, and the customers that move with them."""
    served = grid.consumer["transformer"].to_numpy()
    candidates = np.flatnonzero(served >= 0)
    rng.shuffle(candidates)
    wanted = min(MOST_MOVED, max(1, round(SHARE_MOVED * len(candidates))))
    commands: list[str] = []
    moved: list[str] = []
    targets = _Targets.of(grid)
    degree = np.bincount(grid.line[["bus1", "bus2"]].to_numpy().ravel(), minlength=len(grid.bus))
    taken: set[int] = set()
    for consumer in candidates:
        if len(moved) >= wanted:
            break
        bus = int(grid.consumer["bus1"].iat[consumer])
        target = targets.draw(int(served[consumer]), str(grid.consumer["conductors1"].iat[consumer]), rng)
        if target < 0 or bus in taken:
            continue
        text = _move_service(grid, int(consumer), bus, target, leaf=bool(degree[bus] == 1))
        if text:
            commands.append(text)
            # Everyone on the moved service bus moves with it.
            with_it = np.flatnonzero(grid.consumer["bus1"].to_numpy() == bus) if "line." in text else [consumer]
            moved += grid.consumer["name"].iloc[with_it].tolist()
            taken.add(bus)
    return commands, moved


def _move_service(grid: Grid, consumer: int, bus: int, target: int, leaf: bool) -> str:
    """Command that ties a customer's service line, or the customer itself, to another bus; empty if it cannot be."""
    name = grid.bus["name"].iat[target]
    if leaf:
        at1, at2 = (np.flatnonzero(grid.line[f"bus{k}"].to_numpy() == bus) for k in (1, 2))
        row, near = (int(at1[0]), 2) if len(at1) else (int(at2[0]), 1)
        conductors = str(grid.line[f"conductors{near}"].iat[row])
        if grid.line["switch"].iat[row] or not _has(grid, target, conductors):
            return ""
        return f"line.{grid.line['name'].iat[row]}.bus{near}={name}.{_as_published(conductors)}"
    conductors = str(grid.consumer["conductors1"].iat[consumer])
    if not _has(grid, target, conductors):
        return ""
    return f"load.{grid.consumer['name'].iat[consumer]}.bus1={name}.{_as_published(conductors)}"


def _as_published(conductors: str) -> str:
    # A hidden conductor lands on phase 1; the case then draws the phase, so the records still do not know it.
    return conductors.replace(HIDDEN_MARK, "1")


def _has(grid: Grid, bus: int, conductors: str) -> bool:
    """Whether a bus has these conductors; a hidden one needs all three phases to choose from."""
    present = {int(k) for k in grid.wiring.conductor[grid.wiring.nodes_at(bus)]}
    wanted = {part for part in conductors.split(".") if part != "0"}
    if HIDDEN_MARK in wanted:
        wanted = (wanted - {HIDDEN_MARK}) | {"1", "2", "3"}
    return all(int(part) in present for part in wanted)


@dataclass(frozen=True)
class _Targets:
    """Buses that a service can move to, by serving transformer.

    Attributes:
        buses: Buses that customers of a transformer hang from.
        near: Transformers nearest to each, of the same number of phases and voltage.
    """

    buses: dict[int, Ints]
    near: dict[int, Ints]

    @staticmethod
    def of(grid: Grid) -> _Targets:
        served = grid.consumer["transformer"].to_numpy().astype(np.int64)
        used = np.unique(served[served >= 0])
        table = grid.transformer
        last = (table["first_winding"] + table["n_windings"] - 1).to_numpy()[used]
        bus = grid.winding["bus1"].to_numpy()[last]
        kind = list(
            zip(
                table["n_phases"].to_numpy()[used],
                table["n_windings"].to_numpy()[used],
                np.round(grid.winding["rated_kv"].to_numpy()[last], 4),
                strict=True,
            )
        )
        place = grid.bus[["x", "y"]].to_numpy()[bus]
        near, buses = {}, {}
        for k, transformer in enumerate(used):
            same = np.array([j for j in range(len(used)) if j != k and kind[j] == kind[k]], dtype=np.int64)
            square = ((place[same] - place[k]) ** 2).sum(axis=1)
            distance = np.where(np.isnan(square), np.abs(same - k), square)
            near[int(transformer)] = used[same[np.argsort(distance, kind="stable")[:NEAREST_TRANSFORMERS]]]
            buses[int(transformer)] = np.array([bus[k]], dtype=np.int64)
        return _Targets(buses, near)

    def draw(self, transformer: int, conductors: str, rng: np.random.Generator) -> int:
        """A bus of one of the nearest transformers, -1 if there is none."""
        near = self.near.get(transformer, np.zeros(0, np.int64))
        if not len(near):
            return -1
        buses = self.buses[int(near[int(rng.integers(len(near)))])]
        return int(buses[int(rng.integers(len(buses)))])


# ---- ties --------------------------------------------------------------------------------------------------------


def _ties(grid: Grid, nominal: NominalAngle, rng: np.random.Generator) -> list[str]:
    """Commands for normally open ties and the switches that go with them."""
    commands: list[str] = []
    candidates = _tie_buses(grid, nominal)
    if len(candidates) < 2:
        return commands
    predecessor, operable = hop_paths(grid).predecessor, _operable_lines(grid)
    used: set[int] = set()
    for shortest in LOOP_LENGTHS:
        for a, b in candidates[rng.integers(len(candidates), size=(TIE_DRAWS, 2))].tolist():
            if len(used) == 2 * N_TIES:
                return commands
            if a == b or {a, b} & used or not _same_voltage(grid, nominal, a, b):
                continue
            loop = _loop_lines(operable, predecessor, a, b)
            tie = _tie_command(grid, f"{TIE_PREFIX}{len(used) // 2 + 1}", a, b)
            if len(loop) < shortest or not tie:
                continue
            used |= {a, b}
            commands += [tie, f"open line.{TIE_PREFIX}{len(used) // 2} 1"]
            for part in (loop[: len(loop) // 2], loop[len(loop) // 2 :]):
                # A close command tells the import that this line can be operated; its impedance stays as published.
                commands.append(f"close line.{grid.line['name'].iat[part[int(rng.integers(len(part)))]]} 1")
    return commands


def _tie_buses(grid: Grid, nominal: NominalAngle) -> Ints:
    """Fed buses with all three phases on a line of three conductors or more, in order."""
    three = np.flatnonzero((grid.line["n_phases"] == 3).to_numpy())
    ends = np.unique(grid.line[["bus1", "bus2"]].to_numpy()[three])
    usable = fed(grid) & nominal.valid.all(axis=1) & ~grid.bus["hidden"].to_numpy()
    return np.asarray(ends[usable[ends]], dtype=np.int64)


def _same_voltage(grid: Grid, nominal: NominalAngle, a: int, b: int) -> bool:
    base = grid.bus["base_kv"].to_numpy()
    return bool(
        abs(base[a] / base[b] - 1.0) < 0.01 and np.all(np.abs(wrap(nominal.angle_rad[a] - nominal.angle_rad[b])) < 0.1)
    )


def _operable_lines(grid: Grid) -> dict[tuple[int, int], int]:
    """Three-phase lines that are no switches yet, by the buses they join."""
    b = branches(grid)
    plain = (grid.line["n_phases"] == 3).to_numpy() & ~grid.line["switch"].to_numpy()
    b = b.take(b.is_kind(ElementKind.LINE))
    b = b.take(plain[b.row])
    low, high = np.minimum(b.bus_from, b.bus_to), np.maximum(b.bus_from, b.bus_to)
    return {(int(i), int(j)): int(row) for i, j, row in zip(low, high, b.row, strict=True)}


def _loop_lines(operable: dict[tuple[int, int], int], predecessor: Ints, a: int, b: int) -> list[int]:
    """Lines of the tree path between two buses that can be made operable, from one bus to the other."""
    up_a, up_b = _upstream(predecessor, a), _upstream(predecessor, b)
    shared = set(up_a) & set(up_b)
    path = [bus for bus in up_a if bus not in shared] + [bus for bus in reversed(up_b) if bus not in shared]
    steps = [(bus, int(predecessor[bus])) for bus in path]
    rows = [operable.get((min(bus, up), max(bus, up)), -1) for bus, up in steps]
    return [row for row in rows if row >= 0]


def _upstream(predecessor: Ints, bus: int) -> list[int]:
    path = [bus]
    while predecessor[path[-1]] >= 0:
        path.append(int(predecessor[path[-1]]))
    return path


def _tie_command(grid: Grid, name: str, a: int, b: int) -> str:
    """A line that joins every conductor of two buses, with the impedance of a line at the first; empty if none has all.

    A neutral is carried too: without it customers behind the tie would float.
    """
    table = grid.line
    wanted = sorted({int(c) for bus in (a, b) for c in grid.wiring.conductor[grid.wiring.nodes_at(bus)]})
    at = (table["bus1"].to_numpy() == a) | (table["bus2"].to_numpy() == a)
    for row in np.flatnonzero(at & (table["n_conductors"] >= len(wanted)).to_numpy()):
        conductors, _ = parse_conductors(table["conductors1"].iloc[[row]])
        if set(wanted) <= set(conductors.tolist()) and all(
            _has(grid, bus, ".".join(map(str, wanted))) for bus in (a, b)
        ):
            return _line_like(grid, int(row), name, (a, b), wanted, conductors)
    return ""


def _line_like(grid: Grid, row: int, name: str, ends: tuple[int, int], wanted: list[int], conductors: Ints) -> str:
    """Command for a line between these conductors of two buses with the impedances of another line."""
    places = [int(np.flatnonzero(conductors == conductor)[0]) for conductor in wanted]
    sizes = grid.line["n_conductors"].to_numpy().astype(np.int64)
    parts = []
    for matrix, key in (("line_r_ohm", "rmatrix"), ("line_x_ohm", "xmatrix"), ("line_c_nf", "cmatrix")):
        block = unpack(grid.matrices[matrix], sizes, np.array([row]))[0][np.ix_(places, places)]
        parts.append(f"{key}=[{' | '.join(' '.join(repr(float(value)) for value in values) for values in block)}]")
    bus1, bus2 = (f"{grid.bus['name'].iat[bus]}.{'.'.join(map(str, wanted))}" for bus in ends)
    amps = float(grid.line["normal_amps"].iat[row])
    return (
        f"new line.{name} phases={len(wanted)} bus1={bus1} bus2={bus2} {' '.join(parts)} length=1 units=none "
        f"normamps={amps!r} emergamps={amps!r}"
    )
