"""What tests of simulated days share: days and faults made by hand, and the currents that must balance."""

from __future__ import annotations

import functools
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from mycelium.feeders import feeder_path
from mycelium.grid.admittance import Admittance
from mycelium.grid.check import kirchhoff_ratio
from mycelium.grid.grid import Configuration, Grid
from mycelium.schema import HOURS, DerKind, FaultPlace, FaultType
from mycelium.simulate.cases import Case, CaseMix
from mycelium.simulate.circuit import Circuit, Rejection
from mycelium.simulate.day import Day
from mycelium.simulate.fault import N_PHASES, NEUTRAL, Fault, faulted_bus, place_conductors
from mycelium.simulate.fixed_point_day import fault_admittance
from mycelium.simulate.network import Network, NetworkSource
from mycelium.simulate.profiles import DayProfile
from mycelium.simulate.switching import Switching

Complex = npt.NDArray[np.complex128]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

LAST = HOURS - 1
EVERYTHING = CaseMix(variant=0.5, phase_change=0.7, keep_supply=0.5, lose_supply=0.2, fault=0.7)
PUBLISHED = replace(EVERYTHING, variant=0.0)
ARRAYS = (
    "v", "v_interior", "tap_pu", "capacitor_steps", "consumer_current", "der_current", "source_current",
    "energised", "switch_open", "group_phase",
)  # fmt: skip

# Sequence impedances of source and line, ohm: faults on it can be worked out by hand.
SOURCE_Z1, SOURCE_Z0 = 0.4 + 2.1j, 0.9 + 3.3j
LINE_Z1, LINE_Z0 = 1.24 + 2.48j, 2.84 + 7.72j
TWO_BUS_KV = 12.47

_ACTIVE = re.compile(r"\s*new\s+(regcontrol|capcontrol|invcontrol|pvsystem|storage|generator)\.", re.IGNORECASE)


@functools.cache
def network(feeder: str, mix: CaseMix = EVERYTHING) -> Network:
    """A bundled feeder, compiled once for all tests: its days cannot depend on what was simulated before."""
    return Network(NetworkSource(feeder_path(feeder)), mix)


def passive_feeder(feeder: str, folder: Path) -> Path:
    """Master of a copy of a bundled feeder without anything that acts or generates: the fixed point is valid on it."""
    target = folder / feeder
    shutil.copytree(feeder_path(feeder).parent, target)
    for path in target.glob("*.dss"):
        kept = [line for line in path.read_text().splitlines() if not _ACTIVE.match(line)]
        path.write_text("\n".join(kept) + "\n")
    return target / "Master.dss"


def two_bus(folder: Path, kw: float = 1e-3, customers: int = 1) -> Path:
    """Master of a source, a line and customers of constant power at any voltage: too much demand has no solution."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [
        "Clear",
        "Set DefaultBaseFrequency=60",
        f"New Circuit.two_bus bus1=head basekv={TWO_BUS_KV} pu=1 angle=0 phases=3 R1={SOURCE_Z1.real} "
        f"X1={SOURCE_Z1.imag} R0={SOURCE_Z0.real} X0={SOURCE_Z0.imag}",
        f"New Line.feeder phases=3 bus1=head.1.2.3 bus2=tail.1.2.3 r1={LINE_Z1.real} x1={LINE_Z1.imag} "
        f"r0={LINE_Z0.real} x0={LINE_Z0.imag} c1=0 c0=0 length=1",
        *(
            f"New Load.c{k} phases=3 bus1=tail.1.2.3 conn=wye model=1 kV={TWO_BUS_KV} kW={kw / max(customers, 1)} "
            "pf=0.9 vminpu=0.001 vlowpu=0.0001"
            for k in range(customers)
        ),
        f"Set VoltageBases=[{TWO_BUS_KV}]",
        "CalcVoltageBases",
    ]
    master = folder / "Master.dss"
    master.write_text("\n".join(lines) + "\n")
    return master


def as_bytes(day: Day) -> bytes:
    """Everything a day holds."""
    facts = (day.fault, day.network, day.seed, day.number, day.variant, day.day_of_year, day.solver)
    arrays = [np.ascontiguousarray(getattr(day, name)) for name in ARRAYS]
    return repr((facts, [(a.dtype.str, a.shape) for a in arrays])).encode() + b"".join(a.tobytes() for a in arrays)


def outcome(source: Network, seed: int, number: int) -> bytes:
    """A day's bytes, or the reason there is none."""
    try:
        return as_bytes(source.simulate(seed, number))
    except Rejection as reason:
        return f"rejected: {reason}".encode()


def days(source: Network, seed: int, count: int) -> Iterator[tuple[Grid, Day]]:
    """The first ``count`` days that are no rejections, each with the records it belongs to."""
    found = 0
    for number in range(3 * count):
        try:
            day = source.simulate(seed, number)
        except Rejection:
            continue
        yield source.circuit(day.variant).grid, day
        found += 1
        if found == count:
            return
    raise AssertionError(f"{source.name}: most of {3 * count} cases were rejected")


def flat_day(circuit: Circuit, scale: float = 1.0) -> DayProfile:
    """Nominal demand times ``scale`` all day, generators at rest."""
    count = {kind: int(np.sum(circuit.demand.der_kind == kind)) for kind in DerKind}
    demand = np.full((HOURS, len(circuit.grid.consumer)), scale)
    rest = {kind: np.zeros((HOURS, n)) for kind, n in count.items()}
    return DayProfile(1, "winter", demand, demand, rest[DerKind.PV], rest[DerKind.STORAGE], rest[DerKind.GENERATOR])


def case_of(
    circuit: Circuit,
    fault: Fault | None = None,
    configuration: Configuration | None = None,
    scale: float = 1.0,
) -> Case:
    """A case made by hand on a circuit, with flat demand."""
    configuration = configuration if configuration is not None else circuit.recorded
    return Case(
        network=circuit.grid.name,
        seed=0,
        number=0,
        variant=0,
        configuration=configuration,
        phases_changed=int(np.sum(configuration.group_phase != circuit.recorded.group_phase)),
        switching=Switching.NONE,
        energised=circuit.space.connectivity.energised(configuration),
        profile=flat_day(circuit, scale),
        fault=fault,
    )


def fault_at(
    circuit: Circuit, kind: FaultType, place: FaultPlace, pick: int = 0, resistance_ohm: float = 0.05, x: float = 0.35
) -> Fault | None:
    """A fault of this type on the ``pick``-th equipment that can have it and is supplied as recorded, else None."""
    space = circuit.space
    live = space.connectivity.energised(circuit.recorded)
    targets = space.fault_targets(live, circuit.recorded.group_phase)[place]
    able = targets.take(targets.n_phases >= N_PHASES[kind])
    if not len(able.element):
        return None
    k = pick % len(able.element)
    element, terminal = int(able.element[k]), int(able.terminal[k])
    phases = [c for c in place_conductors(circuit.grid, place, element, terminal) if c != NEUTRAL]
    chosen = tuple(np.roll(phases, pick)[: N_PHASES[kind]].tolist())
    return Fault(
        kind, place, element, terminal, x if place is FaultPlace.LINE else 0.0, tuple(sorted(chosen)), resistance_ohm
    )


# ---- currents ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Scene:
    """One hour of a day, with the inside of a faulted line where there is one.

    Attributes:
        grid, admittance: The network of that hour.
        v: Node voltages, V. [node]
        injections: Nodes, and currents from them into loads and generators, A.
        bus: The faulted bus (of ``grid``), -1 without a fault.
    """

    grid: Grid
    admittance: Admittance
    v: Complex
    injections: list[tuple[Ints, Complex]]
    bus: int


def scene(grid: Grid, day: Day, hour: int) -> Scene:
    """An hour of a day."""
    v, bus = day.v[hour], -1
    if hour == LAST and day.fault is not None:
        if day.fault.place is FaultPlace.LINE:
            bus = len(grid.bus)
            grid, v = day.split(grid)
        else:
            bus = faulted_bus(grid, day.fault)
    return Scene(grid, Admittance.of(grid, day.configuration(hour)), v, injected(grid, day, hour), bus)


def injected(grid: Grid, day: Day, hour: int) -> list[tuple[Ints, Complex]]:
    """Nodes, and currents from them into loads and generators as the day holds them, A."""
    return [
        (grid.wiring.nodes_of("consumer", day.group_phase), day.consumer_current[hour]),
        (grid.wiring.nodes_of("der", day.group_phase), day.der_current[hour]),
    ]


def imbalance(grid: Grid, day: Day, hour: int) -> float:
    """Largest Kirchhoff ratio of an hour, the fault's own currents included."""
    s = scene(grid, day, hour)
    injections = list(s.injections)
    if s.bus >= 0:
        assert day.fault is not None
        injections.append((np.arange(len(s.v)), fault_admittance(s.grid, s.bus, day.fault) @ s.v))
    return kirchhoff_ratio(s.admittance, s.v, injections)[0]


def imbalances(grid: Grid, day: Day) -> Floats:
    """The same for every hour. [hour]"""
    result = np.full(HOURS, np.nan)
    for hours, admittance in day.admittances(grid):
        for hour in hours:
            injections = injected(grid, day, hour)
            result[hour] = kirchhoff_ratio(admittance, day.v[hour], injections)[0]
    result[LAST] = imbalance(grid, day, LAST)
    return result


def fault_current(grid: Grid, day: Day) -> dict[int, complex]:
    """What the network sends into the fault, by conductor, A: what is missing in the balance of everything else."""
    s = scene(grid, day, LAST)
    missing = s.admittance.source_currents() - s.admittance.nodal @ s.v
    for node, current in s.injections:
        np.subtract.at(missing, node[node >= 0], current[node >= 0])
    return {int(s.grid.wiring.conductor[node]): complex(missing[node]) for node in s.grid.wiring.nodes_at(s.bus)}


def per_unit(grid: Grid, v: Complex) -> Complex:
    """Voltages over the base of their bus. [..., node]"""
    return np.asarray(v / (1e3 * grid.bus["base_kv"].to_numpy()[grid.wiring.bus]))
