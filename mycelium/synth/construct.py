"""From customers, areas and trees to a proposed network: buses, lines, transformers, loads and PV systems."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from mycelium.synth.cluster import Areas
from mycelium.synth.customers import MODES, Customers
from mycelium.synth.design import (
    LEGS,
    ROOT_3,
    THREE_PHASES,
    Bus,
    Conductors,
    Design,
    Line,
    LineRole,
    Load,
    Pv,
    SourceBus,
    Unit,
    UnitRole,
)
from mycelium.synth.forest import Forest
from mycelium.synth.geography import Floats, Ints
from mycelium.synth.library import Library
from mycelium.synth.library_rows import Conductor, Construction, Level, Region, Role, TransformerType
from mycelium.synth.parameters import Parameters
from mycelium.synth.phases import PhasePlan
from mycelium.synth.sizing import (
    LV_DROP_PU,
    MV_DROP_PU,
    LinePlan,
    choose_unit,
    coincidence,
    nearest_unit,
    size_lines,
    stocked,
)
from mycelium.synth.territory import Territory

_HIGH_KV = {Region.NORTH_AMERICA: (69.0, 115.0, 138.0), Region.EUROPE: (33.0, 66.0, 110.0)}
# Medium voltages that a planner goes on to where the convention's cannot carry the demand.
_MV_CLASSES = {Region.NORTH_AMERICA: (4.16, 12.47, 13.2, 24.9, 34.5), Region.EUROPE: (6.6, 10.0, 11.0, 20.0, 33.0)}
_MOST_MV_DROP_PU = 0.05
_SHORTEST_SERVICE_M = 4.0
_SAME_VOLTAGE = 0.02
_SOURCE_AT_MV, _MOST_KVA_AT_MV = 0.15, 5000.0  # how often the substation is left out, and below which demand
_SUBSTATION_LOADING = 0.6
_ALONE = 3  # a feeder of at most this many transformers begins at medium voltage


@dataclass(frozen=True)
class Stock:
    """What may be built with: line and transformer types that repairs go on to use.

    Attributes:
        mv, lv: Line types by number of phases.
        single, three, substation: Transformer types.
    """

    mv: dict[int, Sequence[Conductor]]
    lv: dict[int, Sequence[Conductor]]
    single: Sequence[TransformerType]
    three: Sequence[TransformerType]
    substation: Sequence[TransformerType]

    @staticmethod
    def draw(library: Library, parameters: Parameters, rng: np.random.Generator) -> Stock:
        convention = parameters.convention

        def lines(level: Level, n: int, construction: Construction | None) -> Sequence[Conductor]:
            ladder = library.conductor_ladder(convention, level, n, construction)
            return stocked(ladder, rng)

        tapped = convention.centre_tapped
        lv_phases = (1, 2, 3) if tapped else (1, 3)
        return Stock(
            mv={n: lines(Level.MEDIUM, n, parameters.construction) for n in ((1, 3) if tapped else (3,))},
            # Few sources have single-phase cables or wires at low voltage: any will do.
            lv={n: lines(Level.LOW, n, None if n == 1 else parameters.lv_construction) for n in lv_phases},
            single=library.transformer_ladder(convention, Role.DISTRIBUTION, 1, True) if tapped else (),
            three=[
                _earthed(row, convention.region) for row in library.transformer_ladder(convention, Role.DISTRIBUTION, 3)
            ],
            substation=[
                _earthed(row, Region.EUROPE) for row in library.transformer_ladder(convention, Role.SUBSTATION, 3)
            ],
        )


def _earthed(row: TransformerType, region: Region) -> TransformerType:
    """A type with an earthed star below, as loads and laterals to neutral need it; in Europe it is a Dyn."""
    return replace(row, primary_delta=row.primary_delta or region is Region.EUROPE, secondary_delta=False)


@dataclass(frozen=True)
class Layout:
    """Where everything lies, before it has a size."""

    territory: Territory
    customers: Customers
    areas: Areas
    mains: Forest
    feeder: Forest
    phases: PhasePlan


@dataclass
class Builder:
    """Puts a design together.

    Attributes:
        feeder_plan: Sizes of the medium-voltage lines, for those who place switches and controls.
        mv_kv: Medium voltage chosen.
    """

    layout: Layout
    parameters: Parameters
    stock: Stock
    design: Design = field(init=False)
    mv_kv: float = 0.0
    feeder_plan: LinePlan = field(init=False)
    lv_kv: Floats = field(init=False)
    main_area: Ints = field(init=False)
    main_place: Ints = field(init=False)

    def build(self, name: str, rng: np.random.Generator) -> Design:
        """The network without switches, ties, capacitors and regulators."""
        self._choose_mv()
        self._head(name, rng)
        self._medium_voltage()
        self._areas()
        self._customers()
        return self.design

    # ---- medium voltage --------------------------------------------------------------------------------------

    def _choose_mv(self) -> None:
        """The convention's voltage, or the next class that carries the demand within the drop to be expected."""
        convention = self.parameters.convention
        classes = [kv for kv in _MV_CLASSES[convention.region] if kv > 1.05 * convention.mv_kv]
        for mv_kv in (convention.mv_kv, *classes):
            self.mv_kv = mv_kv
            self.feeder_plan = self._size_feeder(mv_kv)
            if self.feeder_plan.drop_pu.max() <= _MOST_MV_DROP_PU and self.feeder_plan.parallel.max() <= 2:
                break

    def _size_feeder(self, mv_kv: float) -> LinePlan:
        layout = self.layout
        kw = layout.feeder.downstream(self._mv_demand())
        count = layout.feeder.downstream(np.bincount(self._area_place(), self._area_sizes(), len(layout.feeder.node)))
        kw *= coincidence(count)[:, None]
        phases = layout.phases.node.sum(axis=1)
        utilisation = self.parameters.line_utilisation
        return size_lines(layout.feeder, kw, phases, dict(self.stock.mv), mv_kv / ROOT_3, utilisation, MV_DROP_PU)

    def _area_place(self) -> Ints:
        """Medium-voltage tree node of each area. [area]"""
        layout = self.layout
        return layout.feeder.place(len(layout.territory.streets.xy_m))[layout.areas.site]

    def _area_sizes(self) -> Floats:
        """Customers of each area. [area]"""
        return np.bincount(self.layout.areas.of_customer, minlength=len(self.layout.areas.site)).astype(np.float64)

    def _mv_demand(self) -> Floats:
        """Nominal demand of the areas at each medium-voltage node, by phase, kW. [tree node, 3]"""
        layout = self.layout
        area_kw = np.bincount(layout.areas.of_customer, layout.customers.kw, len(layout.areas.site))
        share = np.full((len(area_kw), 3), 1 / 3)
        tapped = layout.phases.area >= 0
        share[tapped] = np.eye(3)[layout.phases.area[tapped]]
        demand = np.zeros((len(layout.feeder.node), 3))
        np.add.at(demand, self._area_place(), area_kw[:, None] * share)
        return demand

    def _head(self, name: str, rng: np.random.Generator) -> None:
        """Source and substation; a small feeder may begin at medium voltage."""
        convention, parameters = self.parameters.convention, self.parameters
        kva = float(self.layout.customers.kva.sum() * coincidence(np.array(len(self.layout.customers.kw))))
        x, y = self._street_xy(int(self.layout.territory.head))
        u = rng.random(3).tolist()
        alone = len(self.layout.areas.site) <= _ALONE
        at_mv = alone or (u[0] < _SOURCE_AT_MV and kva <= _MOST_KVA_AT_MV)
        stiffness = 1e-3 * kva * (30 + 60 * u[1])  # the grid above is so many times as strong as the demand
        base = self.mv_kv
        if at_mv:
            source = SourceBus("m0", base, round(parameters.source_pu, 3), round(60 + stiffness, 1))
            self.design = Design(name, convention.frequency_hz, source)
        else:
            high = _HIGH_KV[convention.region]
            high_kv = high[int(u[2] * len(high))]
            source = SourceBus("hv", high_kv, 1.0, round(800 + 3 * stiffness, 1))
            self.design = Design(name, convention.frequency_hz, source)
            self._bus("hv", x - 15, y + 15, high_kv, -1)
            kind, rating = choose_unit(self.stock.substation, kva / _SUBSTATION_LOADING)
            # The set-point at the head, within the steps of the tap changer.
            tap = round(1 - round((parameters.source_pu - 1) / 0.00625) * 0.00625, 5)
            self.design.put(
                Unit("substation_1", "hv", "m0", THREE_PHASES, UnitRole.SUBSTATION, kind, rating, high_kv, base, tap)
            )
        self._bus("m0", x, y, base, -1)

    def _medium_voltage(self) -> None:
        feeder, plan, node_phases = self.layout.feeder, self.feeder_plan, self.layout.phases.node
        for k in range(1, len(feeder.node)):
            self._bus(f"m{k}", *self._street_xy(int(feeder.node[k])), self.mv_kv, -1)
            conductors = tuple(int(c) + 1 for c in np.flatnonzero(node_phases[k]))
            row = self.stock.mv[len(conductors)][plan.step[k]]
            self.design.put(
                Line(
                    f"mv_{k}", f"m{feeder.parent[k]}", f"m{k}", conductors, LineRole.FEEDER, row,
                    _length(feeder.length_m[k]), int(plan.parallel[k]),
                )
            )  # fmt: skip

    # ---- service areas ---------------------------------------------------------------------------------------

    def _areas(self) -> None:
        layout = self.layout
        areas, customers = layout.areas, layout.customers
        place = self._area_place()
        kva = np.bincount(areas.of_customer, customers.kva, len(areas.site))
        coincident = kva * coincidence(self._area_sizes())
        single = np.bincount(areas.of_customer, ~customers.three_phase, len(areas.site))
        self.lv_kv = np.zeros(len(areas.site))
        for a in range(len(areas.site)):
            # Demand records are mostly peaks of a whole region, so that utilisation is one of coincident demand.
            sizes = float(coincident[a]) / self.parameters.utilisation, float(coincident[a])
            x, y = self._street_xy(int(areas.site[a]))
            if areas.centre_tapped[a]:
                self._centre_tapped(a, int(place[a]), sizes, x, y)
            else:
                self.lv_kv[a] = self._three_phase_kv(single[a] > 0)
                kind, rating = nearest_unit(self.stock.three, *sizes)
                self._bus(f"t{a}", x + 3, y + 3, self.lv_kv[a], a)
                unit = Unit(
                    f"dt_{a}", f"m{place[a]}", f"t{a}", THREE_PHASES, UnitRole.THREE_PHASE, kind, rating, self.mv_kv,
                    float(self.lv_kv[a]),
                )  # fmt: skip
                self.design.put(unit)
        self._mains()

    def _centre_tapped(self, a: int, node: int, sizes: tuple[float, float], x: float, y: float) -> None:
        kind, rating = nearest_unit(self.stock.single, *sizes)
        kv2 = self.parameters.convention.lv_single_kv
        self.lv_kv[a] = kv2 / 2 * ROOT_3
        self._bus(f"t{a}", x + 3, y + 3, float(self.lv_kv[a]), a)
        phase = int(self.layout.phases.area[a]) + 1
        unit = Unit(
            f"dt_{a}", f"m{node}", f"t{a}", (phase,), UnitRole.CENTRE_TAPPED, kind, rating, self.mv_kv / ROOT_3, kv2
        )
        self.design.put(unit)

    def _three_phase_kv(self, has_single: bool) -> float:
        """Homes behind a three-phase unit of a centre-tapped country need the voltage of a leg to neutral.

        What is called 208 V is root 3 times 120 V exactly: two bases that are nearly the same would be mixed up.
        """
        convention = self.parameters.convention
        if not convention.centre_tapped:
            return convention.lv_three_kv
        leg_kv = convention.lv_single_kv / 2 * ROOT_3
        same = abs(convention.lv_three_kv / leg_kv - 1) < _SAME_VOLTAGE
        return leg_kv if has_single or same else convention.lv_three_kv

    def _mains(self) -> None:
        mains, areas, customers = self.layout.mains, self.layout.areas, self.layout.customers
        if not len(mains.node):
            return
        routed = ~areas.centre_tapped
        of_site = np.full(len(self.layout.territory.streets.xy_m), -1, dtype=np.int64)
        of_site[areas.site[routed]] = np.flatnonzero(routed)
        self.main_area = _area_of_nodes(mains, of_site)
        self.main_place = mains.place(len(of_site))
        own = routed[areas.of_customer]
        at = self.main_place[self.layout.territory.access]
        kw, count = np.zeros((len(mains.node), 3)), np.zeros(len(mains.node))
        share = np.full((len(customers.kw), 3), 1 / 3)
        single = self.layout.phases.customer >= 0
        share[single] = np.eye(3)[self.layout.phases.customer[single]]
        np.add.at(kw, at[own], (customers.kw[:, None] * share)[own])
        np.add.at(count, at[own], 1.0)
        kw = mains.downstream(kw) * coincidence(mains.downstream(count))[:, None]
        phases = np.full(len(mains.node), 3)
        kv = float(np.median(self.lv_kv[routed])) / ROOT_3
        ladders = {3: self.stock.lv[3]}
        plan = size_lines(mains, kw, phases, ladders, kv, self.parameters.line_utilisation, LV_DROP_PU)
        for k in np.flatnonzero(mains.parent >= 0):
            a = int(self.main_area[k])
            self._bus(f"s{k}", *self._street_xy(int(mains.node[k])), float(self.lv_kv[a]), a)
            line = Line(
                f"main_{k}", self._main_bus(int(mains.parent[k])), f"s{k}", THREE_PHASES, LineRole.MAIN,
                self.stock.lv[3][plan.step[k]], _length(mains.length_m[k]), int(plan.parallel[k]),
            )  # fmt: skip
            self.design.put(line)

    def _main_bus(self, k: int) -> str:
        return f"s{k}" if self.layout.mains.parent[k] >= 0 else f"t{self.main_area[k]}"

    # ---- customers -------------------------------------------------------------------------------------------

    def _customers(self) -> None:
        layout, customers = self.layout, self.layout.customers
        areas, access = layout.areas, layout.territory.access
        for i in range(len(customers.kw)):
            a = int(areas.of_customer[i])
            x, y = customers.xy_m[i]
            if areas.centre_tapped[a]:
                bus, conductors, n, kv = f"t{a}", LEGS, 2, self.parameters.convention.lv_single_kv
                from_xy = layout.territory.streets.xy_m[areas.site[a]]
            else:
                bus = self._main_bus(int(self.main_place[access[i]]))
                from_xy = layout.territory.streets.xy_m[access[i]]
                phase = int(layout.phases.customer[i])
                conductors = THREE_PHASES if phase < 0 else (phase + 1,)
                n, kv = len(conductors), float(self.lv_kv[a]) / (1.0 if phase < 0 else ROOT_3)
            self._bus(f"c{i}", float(x), float(y), float(self.lv_kv[a]), a)
            away_m = max(float(np.hypot(x - from_xy[0], y - from_xy[1])), _SHORTEST_SERVICE_M)
            row, parallel = self._service_type(n, float(customers.kva[i]), kv, len(conductors) == 3)
            self.design.put(
                Line(f"service_{i}", bus, f"c{i}", conductors, LineRole.SERVICE, row, _length(away_m), parallel)
            )
            self._load_and_pv(i, a, conductors, kv)

    def _service_type(self, n: int, kva: float, kv: float, three_phase: bool) -> tuple[Conductor, int]:
        """A service carries the customer's whole nominal demand."""
        amps = kva / (kv * (ROOT_3 if three_phase else 1.0)) / 0.8
        ladder = self.stock.lv[n]
        for row in ladder:
            if row.ampacity_a >= amps:
                return row, 1
        return ladder[-1], int(np.ceil(amps / ladder[-1].ampacity_a))

    def _load_and_pv(self, i: int, a: int, conductors: Conductors, kv: float) -> None:
        customers = self.layout.customers
        kw, kvar = float(customers.kw[i]), float(customers.kvar[i])
        self.design.put(Load(f"load_{i}", f"c{i}", conductors, round(kv, 6), kw, kvar, i, a))
        if customers.pv_kw[i] > 0:
            mode, pf = MODES[int(customers.pv_mode[i])], float(customers.pv_pf[i])
            pv_kw, pv_kva = float(customers.pv_kw[i]), float(customers.pv_kva[i])
            self.design.put(Pv(f"pv_{i}", f"c{i}", conductors, round(kv, 6), pv_kw, pv_kva, mode, pf, i))

    # ---- places ----------------------------------------------------------------------------------------------

    def _street_xy(self, node: int) -> tuple[float, float]:
        x, y = self.layout.territory.streets.xy_m[node]
        return float(x), float(y)

    def _bus(self, name: str, x: float, y: float, base_kv: float, area: int) -> None:
        self.design.buses[name] = Bus(name, round(x, 2), round(y, 2), round(base_kv, 6), area)


def _length(metres: float) -> float:
    return round(max(float(metres), 1.0), 2)


def _area_of_nodes(mains: Forest, of_site: Ints) -> Ints:
    """Area of each node of the mains: that of its root. [tree node]"""
    area = np.zeros(len(mains.node), dtype=np.int64)
    for k in range(len(mains.node)):
        parent = mains.parent[k]
        area[k] = of_site[mains.node[k]] if parent < 0 else area[parent]
    return area


def bus_count(layout: Layout) -> int:
    """Buses of the network that a layout gives, before switches and controls add some."""
    mains = int(np.sum(layout.mains.parent >= 0))
    return len(layout.feeder.node) + len(layout.areas.site) + mains + len(layout.customers.kw) + 1
