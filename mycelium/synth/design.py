"""The proposed network (G, c): its elements as rows, by name, and the tree they form.

An element is a frozen row; a repair puts another row in its place. ``bus1`` of a branch is the side of the source.
Conductors follow OpenDSS: 1, 2, 3 are phases, on a centre-tapped secondary 1 and 2 are the legs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from mycelium.synth.library_rows import CapacitorSetting, Conductor, RegulatorSetting, TransformerType

Conductors = tuple[int, ...]
THREE_PHASES: Conductors = (1, 2, 3)
LEGS: Conductors = (1, 2)
ROOT_3 = 3.0**0.5


class LineRole(StrEnum):
    """What a line is for."""

    FEEDER = "feeder"  # medium voltage
    MAIN = "main"  # low voltage along the street
    SERVICE = "service"  # to a customer
    TIE = "tie"  # up to an open switch


class UnitRole(StrEnum):
    """What a transformer is for."""

    SUBSTATION = "substation"
    THREE_PHASE = "three_phase"
    CENTRE_TAPPED = "centre_tapped"


class InverterMode(StrEnum):
    """How the inverter of a PV system sets its reactive power."""

    UNITY = "unity"
    FIXED_PF = "fixed_pf"
    VOLT_VAR = "volt_var"


@dataclass(frozen=True, slots=True)
class Bus:
    """A bus.

    Attributes:
        base_kv: Nominal voltage, line-to-line (of the legs of a centre tap: root 3 times the voltage to neutral).
        area: Number of its service area; -1 at medium voltage.
    """

    name: str
    x_m: float
    y_m: float
    base_kv: float
    area: int


@dataclass(frozen=True, slots=True)
class Line:
    """A line of one or more parallel circuits of a type."""

    name: str
    bus1: str
    bus2: str
    conductors: Conductors
    role: LineRole
    type: Conductor
    length_m: float
    parallel: int = 1

    @property
    def rated_a(self) -> float:
        return self.type.ampacity_a * self.parallel


@dataclass(frozen=True, slots=True)
class Switch:
    """A switch between two buses: a closed one separates a section, an open one is the end of a tie."""

    name: str
    bus1: str
    bus2: str
    conductors: Conductors
    is_open: bool
    rated_a: float


@dataclass(frozen=True, slots=True)
class Unit:
    """A transformer. ``tap`` is that of its primary, per unit: below 1 it raises the secondary."""

    name: str
    bus1: str
    bus2: str
    conductors: Conductors
    role: UnitRole
    type: TransformerType
    kva: float
    kv1: float
    kv2: float
    tap: float = 1.0


@dataclass(frozen=True, slots=True)
class Regulator:
    """A bank of single-phase regulators, one per phase, each with its control."""

    name: str
    bus1: str
    bus2: str
    conductors: Conductors
    setting: RegulatorSetting
    kv: float
    kva: float
    target_pu: float


@dataclass(frozen=True, slots=True)
class Capacitor:
    """A shunt capacitor at medium voltage; its control watches the voltage, or there is none."""

    name: str
    bus: str
    conductors: Conductors
    kv: float
    kvar: float
    setting: CapacitorSetting | None


@dataclass(frozen=True, slots=True)
class Load:
    """A customer with nominal demand; ``customer`` is its row in the customers."""

    name: str
    bus: str
    conductors: Conductors
    kv: float
    kw: float
    kvar: float
    customer: int
    area: int


@dataclass(frozen=True, slots=True)
class Pv:
    """A rooftop PV system. ``limit_pct`` of the rated power is the most it may deliver."""

    name: str
    bus: str
    conductors: Conductors
    kv: float
    kw: float
    kva: float
    mode: InverterMode
    pf: float
    customer: int
    limit_pct: float = 100.0


Branch = Line | Switch | Unit | Regulator
Element = Branch | Capacitor | Load | Pv


@dataclass(frozen=True, slots=True)
class SourceBus:
    """Where the network begins."""

    bus: str
    kv: float
    pu: float
    short_circuit_mva: float


@dataclass
class Design:
    """Everything of a proposed network, by name.

    Attributes:
        frequency_hz: Base frequency.
        source: Its source.
        buses, lines, switches, units, regulators, capacitors, loads, pvs: Rows by name, in order of making.
    """

    name: str
    frequency_hz: float
    source: SourceBus
    buses: dict[str, Bus] = field(default_factory=dict)
    lines: dict[str, Line] = field(default_factory=dict)
    switches: dict[str, Switch] = field(default_factory=dict)
    units: dict[str, Unit] = field(default_factory=dict)
    regulators: dict[str, Regulator] = field(default_factory=dict)
    capacitors: dict[str, Capacitor] = field(default_factory=dict)
    loads: dict[str, Load] = field(default_factory=dict)
    pvs: dict[str, Pv] = field(default_factory=dict)

    def put(self, element: Element) -> None:
        """Add an element, or put it in the place of the one of its name."""
        self._table(element)[element.name] = element

    def find(self, element: Element) -> Element | None:
        """The element that has its name now, None where there is none."""
        return self._table(element).get(element.name)

    def _table(self, element: Element) -> dict[str, Element]:
        tables: dict[type, Any] = {
            Line: self.lines, Switch: self.switches, Unit: self.units, Regulator: self.regulators,
            Capacitor: self.capacitors, Load: self.loads, Pv: self.pvs,
        }  # fmt: skip
        found: dict[str, Element] = tables[type(element)]
        return found

    def branches(self) -> Iterator[Branch]:
        """Everything with two ends."""
        yield from self.units.values()
        yield from self.regulators.values()
        yield from self.lines.values()
        yield from self.switches.values()

    def elements(self) -> Iterator[Element]:
        """Everything, in the order in which it is written."""
        yield from self.branches()
        yield from self.capacitors.values()
        yield from self.loads.values()
        yield from self.pvs.values()

    def feeders_of(self) -> dict[str, Branch]:
        """The branch that feeds each bus; an open switch feeds none, of parallel units the first counts."""
        found: dict[str, Branch] = {}
        for branch in self.branches():
            if not (isinstance(branch, Switch) and branch.is_open):
                found.setdefault(branch.bus2, branch)
        return found

    def path(self, bus: str, feeders: dict[str, Branch]) -> Iterator[Branch]:
        """Branches from a bus up to the source."""
        while bus in feeders:
            branch = feeders[bus]
            yield branch
            bus = branch.bus1
