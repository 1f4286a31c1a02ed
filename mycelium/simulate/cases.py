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
from mycelium.grid.wiring import Terminals
from mycelium.schema import HIDDEN, FaultPlace
from mycelium.simulate.energised import Connectivity
from mycelium.simulate.fault import (
    N_PHASES,
    NEUTRAL,
    Fault,
    draw_fraction,
    draw_resistance_ohm,
    feasible_types,
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
    """

    variant: float = 0.5
    phase_change: float = 0.5
    keep_supply: float = 0.45
    lose_supply: float = 0.15
    fault: float = 0.5


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
        return SwitchGraph.of(self.grid, self.nominal)

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

    @cached_property
    def fault_targets(self) -> dict[FaultPlace, FaultTargets]:
        """Everything that can be faulted. Switches are left out: a fault inside one is a fault at its bus."""
        wiring, grid = self.grid.wiring, self.grid
        is_phase = (wiring.conductor == HIDDEN) | ((wiring.conductor >= 1) & (wiring.conductor <= 3))
        buses = np.arange(len(grid.bus))
        line_phases = _phases_at_first_terminal(wiring.terminals["line"], len(grid.line))
        lines = np.flatnonzero(~grid.line["switch"].to_numpy())
        zeros = np.zeros_like
        winding = grid.winding
        return {
            FaultPlace.BUS: FaultTargets(
                buses, zeros(buses), buses, np.bincount(wiring.bus[is_phase], minlength=len(buses))
            ),
            FaultPlace.LINE: FaultTargets(
                lines, zeros(lines), grid.line["bus1"].to_numpy().astype(np.int64)[lines], line_phases[lines]
            ),
            FaultPlace.TRANSFORMER: FaultTargets(
                winding["transformer"].to_numpy().astype(np.int64),
                winding["number"].to_numpy().astype(np.int64) - 1,
                winding["bus1"].to_numpy().astype(np.int64),
                _phases_at_first_terminal(wiring.terminals["winding"], len(winding)),
            ),
        }


@dataclass(frozen=True, slots=True)
class FaultTargets:
    """Places of one kind where a fault can be.

    Attributes:
        element, terminal: As in ``Fault``. [target]
        bus: Bus there. [target]
        n_phases: Phases there. [target]
    """

    element: Ints
    terminal: Ints
    bus: Ints
    n_phases: Ints

    def take(self, chosen: Flags) -> FaultTargets:
        return FaultTargets(self.element[chosen], self.terminal[chosen], self.bus[chosen], self.n_phases[chosen])


def _phases_at_first_terminal(t: Terminals, n_rows: int) -> Ints:
    """Number of distinct phase conductors at terminal 1 of every row. [row]"""
    phase = (t.terminal == 0) & ((t.conductor == HIDDEN) | ((t.conductor >= 1) & (t.conductor <= 3)))
    distinct = np.unique(t.row[phase] * 8 + t.conductor[phase] + 1)
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


def draw_fault(space: CaseSpace, live: Flags, network: str, seed: int, number: int, mix: CaseMix) -> Fault | None:
    """Fault of a case: place, then type, then equipment, each uniformly among what is possible and energised."""
    rng = generator(network, "case fault", seed, number)
    if rng.random() >= mix.fault:
        return None
    live_bus = np.zeros(len(space.grid.bus), bool)
    live_bus[space.grid.wiring.bus[live]] = True
    options = {
        place: targets.take((targets.n_phases > 0) & live_bus[targets.bus])
        for place, targets in space.fault_targets.items()
    }
    places = [place for place in FaultPlace if len(options[place].element)]
    if not places:
        return None
    place = places[int(rng.integers(len(places)))]
    types = feasible_types(int(options[place].n_phases.max()))
    kind = types[int(rng.integers(len(types)))]
    able = options[place].take(options[place].n_phases >= N_PHASES[kind])
    k = int(rng.integers(len(able.element)))
    element, terminal, bus = int(able.element[k]), int(able.terminal[k]), int(able.bus[k])
    phases = [c for c in place_conductors(space.grid, place, element, terminal) if c != NEUTRAL]
    chosen = sorted(rng.permutation(len(phases))[: N_PHASES[kind]].tolist())
    x = draw_fraction(rng) if place is FaultPlace.LINE else 0.0
    resistance = draw_resistance_ohm(rng, float(space.grid.bus["base_kv"].iat[bus]))
    return Fault(kind, place, element, terminal, x, tuple(phases[c] for c in chosen), resistance)
