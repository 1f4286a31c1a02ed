"""Cases: what is drawn for one simulated day, as a function of (network, seed, number) only.

A case holds labels and inputs of the simulation: positions of switches, phases of hidden groups, the day's profiles
and the fault. Everything discrete, and every label, has the same bits on any machine.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from mycelium.grid.grid import Configuration, Grid
from mycelium.grid.nominal_angle import NominalAngle, nominal_angle
from mycelium.schema import HIDDEN, FaultPlace, FaultType
from mycelium.simulate.energised import Connectivity
from mycelium.simulate.fault import (
    N_PHASES,
    NEUTRAL,
    Fault,
    draw_fraction,
    draw_resistance_ohm,
    feasible_types,
    place_bus,
    place_conductors,
)
from mycelium.simulate.profiles import DayProfile
from mycelium.simulate.seeds import generator
from mycelium.simulate.switching import SwitchGraph, Switching, draw_positions

Flags = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]

PUBLISHED_PHASES_DEGENERATE = 6  # this many customers all on one phase is a gap in the data, not a fact


@dataclass(frozen=True, slots=True)
class CaseMix:
    """How often each kind of event is drawn; independent of each other.

    Attributes:
        variant: Share of cases on a record variant, where the network has any.
        phase_change: Share with changed customer phases.
        keep_supply, lose_supply: Shares with coordinated switching.
        fault: Share with a fault at the last hour.
        fault_types: Types that are drawn, where the equipment can suffer them.
    """

    variant: float = 0.5
    phase_change: float = 0.5
    keep_supply: float = 0.45
    lose_supply: float = 0.15
    fault: float = 0.5
    fault_types: tuple[FaultType, ...] = tuple(FaultType)


@dataclass(frozen=True)
class Case:
    """One case.

    Attributes:
        network, seed, number: Which case.
        variant: Record variant.
        configuration: Positions and phases of the day; taps and steps at its start.
        phases_changed: Number of groups not on their recorded phase.
        switching: What the switching came to.
        energised: Whether each node is tied to a source. [node]
        profile: Demand and generation.
        fault: The fault of the last hour.
    """

    network: str
    seed: int
    number: int
    variant: int
    configuration: Configuration
    phases_changed: int
    switching: Switching
    energised: Flags
    profile: DayProfile
    fault: Fault | None


@dataclass(frozen=True)
class CaseSpace:
    """What can be drawn on one (variant of a) network.

    Attributes:
        grid: Its records.
        recorded: Configuration as shipped.
        nominal: Nominal angles.
    """

    grid: Grid
    recorded: Configuration
    nominal: NominalAngle

    @staticmethod
    def of(grid: Grid, recorded: Configuration) -> CaseSpace:
        return CaseSpace(grid, recorded, nominal_angle(grid))

    @cached_property
    def connectivity(self) -> Connectivity:
        return Connectivity.of(self.grid)

    @cached_property
    def switch_graph(self) -> SwitchGraph:
        return SwitchGraph.of(self.grid, self.connectivity, self.nominal)

    @cached_property
    def phase_options(self) -> Flags:
        """Phases that every known bus of a group has. [group, phase]"""
        wiring = self.grid.wiring
        present = np.zeros((len(self.grid.bus), 3), bool)
        phase = (wiring.conductor >= 1) & (wiring.conductor <= 3)
        present[wiring.bus[phase], wiring.conductor[phase] - 1] = True
        options = np.ones((self.grid.n_groups, 3), bool)
        for table in ("line", "consumer", "der"):
            t = wiring.terminals[table]
            at = (t.conductor == HIDDEN) & ~wiring.hidden_bus[t.bus]
            np.logical_and.at(options, t.group[at], present[t.bus[at]])
        return options

    @cached_property
    def phases_are_a_gap(self) -> bool:
        """All customers on one phase in the published model: phases are drawn before use."""
        phase = self.recorded.group_phase
        return len(phase) >= PUBLISHED_PHASES_DEGENERATE and bool(np.all(phase == phase[0]))

    def fault_targets(self, live: Flags, group_phase: npt.NDArray[np.int8]) -> dict[FaultPlace, FaultTargets]:
        """Everything that can be faulted. Switches are left out: a fault inside one is a fault at its bus."""
        wiring, grid = self.grid.wiring, self.grid
        buses, lines = np.arange(len(grid.bus)), np.flatnonzero(~grid.line["switch"].to_numpy())
        winding = grid.winding
        first = {
            table: _live_at_first_terminal(grid, table, live, group_phase, len(grid.tables[table]))
            for table in ("line", "winding")
        }
        at_bus = np.bincount(wiring.bus[live & _is_phase(wiring.conductor)], minlength=len(buses))
        return {
            FaultPlace.BUS: FaultTargets(buses, np.zeros_like(buses), at_bus),
            FaultPlace.LINE: FaultTargets(lines, np.zeros_like(lines), first["line"][lines]),
            FaultPlace.TRANSFORMER: FaultTargets(
                winding["transformer"].to_numpy().astype(np.int64),
                winding["number"].to_numpy().astype(np.int64) - 1,
                first["winding"],
            ),
        }


@dataclass(frozen=True, slots=True)
class FaultTargets:
    """Places of one kind where a fault can be.

    Attributes:
        element, terminal: As in ``Fault``. [target]
        n_phases: Energised phases there. [target]
    """

    element: Ints
    terminal: Ints
    n_phases: Ints

    def take(self, chosen: Flags) -> FaultTargets:
        return FaultTargets(self.element[chosen], self.terminal[chosen], self.n_phases[chosen])


def _is_phase(conductor: Ints) -> Flags:
    return np.asarray((conductor == HIDDEN) | ((conductor >= 1) & (conductor <= 3)))


def _live_at_first_terminal(
    grid: Grid, table: str, live: Flags, group_phase: npt.NDArray[np.int8], n_rows: int
) -> Ints:
    """Number of distinct energised phase conductors at terminal 1 of every row. [row]"""
    t = grid.wiring.terminals[table]
    node = grid.wiring.nodes_of(table, group_phase)
    used = (t.terminal == 0) & _is_phase(t.conductor) & (node >= 0) & live[node]
    distinct = np.unique(t.row[used] * 8 + t.conductor[used] + 1)
    return np.bincount(distinct // 8, minlength=n_rows)


def draw_variant(network: str, seed: int, number: int, n_variants: int, mix: CaseMix) -> int:
    """Record variant of a case."""
    rng = generator(network, "case variant", seed, number)
    if n_variants == 1 or rng.random() >= mix.variant:
        return 0
    return int(rng.integers(1, n_variants))


def draw_configuration(
    space: CaseSpace, network: str, seed: int, number: int, mix: CaseMix
) -> tuple[Configuration, int, Switching]:
    """Configuration of a case, how many groups changed phase, and what the switching came to."""
    rng = generator(network, "case configuration", seed, number)
    u = rng.random(2)
    phase = _draw_phases(space, bool(u[0] < mix.phase_change), rng)
    wanted = Switching.NONE
    if u[1] < mix.lose_supply:
        wanted = Switching.LOSE
    elif u[1] < mix.lose_supply + mix.keep_supply:
        wanted = Switching.KEEP
    recorded = space.recorded
    is_open, switching = draw_positions(space.switch_graph, recorded.switch_open, wanted, rng)
    changed = int(np.sum(phase != recorded.group_phase))
    configuration = Configuration(is_open, phase, recorded.tap_pu, recorded.capacitor_steps)
    return configuration, changed, switching


def _draw_phases(space: CaseSpace, change: bool, rng: np.random.Generator) -> npt.NDArray[np.int8]:
    phase = space.recorded.group_phase.copy()
    if not len(phase):
        return phase
    share = 0.05 + 0.25 * float(rng.random())
    picks, new = rng.random(len(phase)), rng.integers(3, size=len(phase)).astype(np.int8)
    if space.phases_are_a_gap:
        picks[:] = 0.0
    elif not change:
        return phase
    allowed = space.phase_options[np.arange(len(phase)), new]
    return np.where((picks < share) & allowed, new, phase).astype(np.int8)


def draw_fault(
    space: CaseSpace, configuration: Configuration, live: Flags, network: str, seed: int, number: int, mix: CaseMix
) -> Fault | None:
    """Fault of a case: place, then type, then equipment, each uniformly among what is possible and energised."""
    rng = generator(network, "case fault", seed, number)
    if rng.random() >= mix.fault:
        return None
    grid, phase = space.grid, configuration.group_phase
    able = {
        place: targets.take(targets.n_phases >= min(N_PHASES[kind] for kind in mix.fault_types))
        for place, targets in space.fault_targets(live, phase).items()
    }
    places = [place for place in FaultPlace if len(able[place].element)]
    if not places:
        return None
    place = places[int(rng.integers(len(places)))]
    feasible = feasible_types(int(able[place].n_phases.max()))
    types = [kind for kind in mix.fault_types if kind in feasible]
    kind = types[int(rng.integers(len(types)))]
    targets = able[place].take(able[place].n_phases >= N_PHASES[kind])
    k = int(rng.integers(len(targets.element)))
    element, terminal = int(targets.element[k]), int(targets.terminal[k])
    phases = _live_conductors(grid, place, element, terminal, live, phase)
    chosen = sorted(rng.permutation(len(phases))[: N_PHASES[kind]].tolist())
    x = draw_fraction(rng) if place is FaultPlace.LINE else 0.0
    base_kv = float(grid.bus["base_kv"].iat[place_bus(grid, place, element, terminal)])
    conductors = tuple(phases[c] for c in chosen)
    return Fault(kind, place, element, terminal, x, conductors, draw_resistance_ohm(rng, base_kv))


def _live_conductors(
    grid: Grid, place: FaultPlace, element: int, terminal: int, live: Flags, group_phase: npt.NDArray[np.int8]
) -> list[int]:
    """Energised phase conductors of the equipment at the place of a fault."""
    bus = place_bus(grid, place, element, terminal)
    conductors = [c for c in place_conductors(grid, place, element, terminal) if c != NEUTRAL]
    at_bus = conductors
    if place is FaultPlace.LINE and HIDDEN in conductors and not grid.wiring.hidden_bus[bus]:
        at_bus = [int(group_phase[int(grid.line["group"].iat[element])]) + 1]
    node = grid.wiring.find(np.full(len(at_bus), bus), np.array(at_bus, dtype=np.int64))
    return [conductor for conductor, k in zip(conductors, node, strict=True) if k >= 0 and live[k]]
