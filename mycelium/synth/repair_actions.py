"""Single repairs. Each looks at a diagnosis and says which elements it would put in place; none if it can do nothing.

Buses that are too low or too high are given; what lies on their way to the source is what may be changed. Parallel
lines, taps, ratings, phases of customers, inverters, capacitors and regulators are all that is ever edited.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil

import numpy as np

from mycelium.synth.construct import Stock
from mycelium.synth.design import (
    THREE_PHASES,
    Branch,
    Capacitor,
    Design,
    Element,
    InverterMode,
    Line,
    LineRole,
    Pv,
    Regulator,
    Switch,
    Unit,
    UnitRole,
)
from mycelium.synth.diagnosis import HIGH_PU, LOW_PU, Diagnosis
from mycelium.synth.dss import TAP_STEP
from mycelium.synth.equipment import regulator_kva
from mycelium.synth.library_rows import RegulatorSetting
from mycelium.synth.sizing import larger_unit

LOWEST_TAP, HIGHEST_TAP = 0.95, 1.05
_MOST_PARALLEL = 6
_SUBSTATION_STEP = 0.0125
_TARGET_STEP, _LOWEST_TARGET, _HIGHEST_TARGET = 0.0075, 0.985, 1.035
_SHARE_OF_DROP = 0.7  # a reinforcement takes the lines that make this share of a way's voltage drop
_UNIT_DROP_PU = 0.012  # a transformer with less drop is not what makes a voltage low
_CURTAILED = 0.8
_LEAST_LIMIT_PCT = 5.0
_REGULATE_BELOW_PU = 0.985
_STEPS_KVAR = (50.0, 100.0, 150.0, 300.0, 450.0, 600.0, 900.0, 1200.0)
_HEADROOM_PU = 0.003
_WAYS_TO_SOURCE = 30
_ROOM_FOR_CAPACITOR_PU = 0.015  # that a bank raises the highest voltage by, at most, to be expected


@dataclass(frozen=True)
class Options:
    """What the sampled design may be repaired with.

    Attributes:
        stock: Line and transformer types.
        regulator: Setting of a regulator that is added; None where the convention has none.
        capacitor: Whether capacitors may be added.
    """

    stock: Stock
    regulator: RegulatorSetting | None
    capacitor: bool


# ---- phases ------------------------------------------------------------------------------------------------------


def rebalance_customers(design: Design, buses: Iterable[str]) -> list[Element]:
    """Move single-phase customers of the affected three-phase areas off the phase with the most demand."""
    edits: list[Element] = []
    affected = {design.buses[bus].area for bus in buses} - {-1}
    lines_to = {line.bus2: line for line in design.lines.values() if line.role is LineRole.SERVICE}
    pvs = {pv.bus: pv for pv in design.pvs.values()}
    members = defaultdict(list)
    tapped = {unit.bus2 for unit in design.units.values() if unit.role is UnitRole.CENTRE_TAPPED}
    for load in design.loads.values():
        if load.area in affected and f"t{load.area}" not in tapped and len(load.conductors) == 1:
            members[load.area].append(load)
    for area in sorted(members):
        sums = [sum(load.kw for load in members[area] if load.conductors == (c,)) for c in THREE_PHASES]
        for load in sorted(members[area], key=lambda load: (-load.kw, load.name)):
            here, there = load.conductors[0] - 1, int(np.argmin(sums))
            if sums[here] - sums[there] <= load.kw:
                continue
            sums[here] -= load.kw
            sums[there] += load.kw
            moved = (there + 1,)
            edits += [replace(load, conductors=moved), replace(lines_to[load.bus], conductors=moved)]
            if load.bus in pvs:
                edits.append(replace(pvs[load.bus], conductors=moved))
    return edits


def rebalance_units(design: Design, buses: Iterable[str]) -> list[Element]:
    """Move affected centre-tapped transformers that hang on three phases to the phase with the least demand."""
    feeders = design.feeders_of()
    affected = {design.buses[bus].area for bus in buses} - {-1}
    demand: dict[int, float] = defaultdict(float)
    for load in design.loads.values():
        demand[load.area] += load.kw
    area_of = {unit.name: design.buses[unit.bus2].area for unit in design.units.values()}
    tapped = [unit for unit in design.units.values() if unit.role is UnitRole.CENTRE_TAPPED]
    sums = [sum(demand[area_of[u.name]] for u in tapped if u.conductors == (c,)) for c in THREE_PHASES]
    edits: list[Element] = []
    for unit in sorted(tapped, key=lambda u: (-demand[area_of[u.name]], u.name)):
        above = feeders.get(unit.bus1)
        if area_of[unit.name] not in affected or (above is not None and len(above.conductors) < 3):
            continue
        here, there, kw = unit.conductors[0] - 1, int(np.argmin(sums)), demand[area_of[unit.name]]
        if sums[here] - sums[there] > kw:
            sums[here] -= kw
            sums[there] += kw
            edits.append(replace(unit, conductors=(there + 1,)))
    return edits


# ---- taps --------------------------------------------------------------------------------------------------------


def tap_up(design: Design, found: Diagnosis, low: Iterable[str], high_limit_pu: float) -> list[Element]:
    """Raise the head if medium voltage is low, else the secondaries of low areas, where nothing gets high by it."""
    highest = _by_area(design, found.highest_pu, np.maximum)
    areas = {design.buses[bus].area for bus in low}
    room = high_limit_pu - found.worst_high_pu
    lacking = high_limit_pu if -1 not in areas else LOW_PU + _HEADROOM_PU - found.worst_low_pu
    head = _head(design, min(room - _HEADROOM_PU, max(lacking, _SUBSTATION_STEP)), +1) if -1 in areas else []
    return (
        head
        or _units(design, areas, {a: high_limit_pu - v for a, v in highest.items()}, +1)
        or (_head(design, min(room - _HEADROOM_PU, _SUBSTATION_STEP), +1) if -1 not in areas else [])
    )


def tap_down(design: Design, found: Diagnosis, high: Iterable[str], low_limit_pu: float) -> list[Element]:
    """Lower the head if medium voltage is high, else the secondaries of high areas, where nothing gets low by it."""
    lowest = _by_area(design, found.lowest_pu, np.minimum)
    areas = {design.buses[bus].area for bus in high}
    room = found.worst_low_pu - low_limit_pu
    excess = found.worst_high_pu - HIGH_PU + _HEADROOM_PU
    head = _head(design, min(room - _HEADROOM_PU, max(excess, _SUBSTATION_STEP)), -1) if -1 in areas else []
    return (
        head
        or _units(design, areas, {a: v - low_limit_pu for a, v in lowest.items()}, -1)
        or (_head(design, min(room - _HEADROOM_PU, _SUBSTATION_STEP), -1) if -1 not in areas else [])
    )


def _units(design: Design, areas: set[int], room_pu: dict[int, float], sign: int) -> list[Element]:
    """One tap step for the distribution transformers of some areas that have room for it."""
    edits: list[Element] = []
    for unit in design.units.values():
        area, tap = design.buses[unit.bus2].area, round(unit.tap - sign * TAP_STEP, 5)
        if unit.role is UnitRole.SUBSTATION or area not in areas or not LOWEST_TAP <= tap <= HIGHEST_TAP:
            continue
        if room_pu[area] >= TAP_STEP + _HEADROOM_PU:
            edits.append(replace(unit, tap=tap))
    return edits


def _head(design: Design, change_pu: float, sign: int) -> list[Element]:
    """Move the substation's tap and the regulators' set-points by as many whole steps as there are in a change."""
    change_pu = max(change_pu, 0.0)
    edits: list[Element] = []
    for unit in design.units.values():
        if unit.role is UnitRole.SUBSTATION:
            steps = int(change_pu / _SUBSTATION_STEP + 1e-9)
            tap = round(min(max(unit.tap - sign * steps * _SUBSTATION_STEP, LOWEST_TAP), HIGHEST_TAP), 5)
            if tap != unit.tap:
                edits.append(replace(unit, tap=tap))
    for bank in design.regulators.values():
        steps = int(change_pu / _TARGET_STEP + 1e-9)
        target = round(min(max(bank.target_pu + sign * steps * _TARGET_STEP, _LOWEST_TARGET), _HIGHEST_TARGET), 5)
        if target != bank.target_pu:
            edits.append(replace(bank, target_pu=target))
    return edits


def _by_area(design: Design, values: dict[str, float], worst: np.ufunc) -> dict[int, float]:
    """Worst value of the buses of each area."""
    found: dict[int, float] = {}
    for bus, value in values.items():
        area = design.buses[bus].area
        found[area] = float(worst(found.get(area, value), value))
    return found


# ---- capacitors and regulators -----------------------------------------------------------------------------------


def add_capacitor(design: Design, found: Diagnosis, options: Options, high_limit_pu: float) -> list[Element]:
    """A bank at the lowest three-phase bus at medium voltage, for a third of the reactive demand."""
    if found.worst_high_pu > high_limit_pu - _ROOM_FOR_CAPACITOR_PU:
        return []
    lines = [x for x in design.lines.values() if x.role is LineRole.FEEDER and x.conductors == THREE_PHASES]
    taken = {bank.bus for bank in design.capacitors.values()}
    free = [line for line in lines if line.bus2 not in taken]
    if not options.capacitor or not free:
        return []
    line = min(free, key=lambda line: (found.lowest_pu[line.bus2], line.name))
    wanted = sum(load.kvar for load in design.loads.values()) / 3
    size = max((kvar for kvar in _STEPS_KVAR if kvar <= wanted), default=0.0)
    if not size:
        return []
    kv = design.buses[line.bus2].base_kv
    name = f"capacitor_{len(design.capacitors)}"
    return [Capacitor(name, line.bus2, THREE_PHASES, kv, size, None)]


def regulator_place(design: Design, found: Diagnosis, low: Iterable[str]) -> str | None:
    """The three-phase line at medium voltage on the way to the lowest bus above which voltage is already low."""
    feeders = design.feeders_of()
    bus = min(low, key=lambda bus: (found.lowest_pu[bus], bus))
    for branch in reversed(list(design.path(bus, feeders))):
        is_main = isinstance(branch, Line) and branch.role is LineRole.FEEDER and branch.conductors == THREE_PHASES
        if is_main and found.lowest_pu[branch.bus2] < _REGULATE_BELOW_PU:
            above = feeders.get(branch.bus1)
            return None if isinstance(above, Regulator) else branch.name
    return None


# ---- conductors --------------------------------------------------------------------------------------------------


def reinforce(design: Design, found: Diagnosis, buses: Iterable[str], rising: bool) -> list[Element]:
    """One more parallel circuit on the lines that make most of the voltage difference on the way to some buses."""
    feeders = design.feeders_of()
    values = found.highest_pu if rising else found.lowest_pu
    chosen: dict[str, Line] = {}
    for path in _ways(design, feeders, buses, values, rising):
        drops = [(_difference(branch, values, rising), branch) for branch in path if isinstance(branch, Line)]
        total = sum(drop for drop, _ in drops if drop > 0)
        gone = 0.0
        for drop, line in sorted(drops, key=lambda item: (-item[0], item[1].name)):
            if drop <= 0 or gone >= _SHARE_OF_DROP * total:
                break
            gone += drop
            if line.parallel < _MOST_PARALLEL:
                chosen[line.name] = replace(line, parallel=line.parallel + 1)
    return list(chosen.values())


def _ways(
    design: Design, feeders: dict[str, Branch], buses: Iterable[str], values: dict[str, float], rising: bool
) -> Iterator[list[Branch]]:
    """The way from the worst bus of each area up to its transformer; of the worst areas also from there to the source.

    Ways at medium voltage have most of their length in common, so that the worst few stand for all.
    """
    worst: dict[int, str] = {}
    for bus in sorted(buses, key=lambda bus: (-values[bus] if rising else values[bus], bus)):
        worst.setdefault(design.buses[bus].area, bus)
    for rank, bus in enumerate(worst.values()):
        path: list[Branch] = []
        for branch in design.path(bus, feeders):
            path.append(branch)
            if isinstance(branch, Unit) and rank >= _WAYS_TO_SOURCE:
                break
        yield path


def _difference(branch: Branch, values: dict[str, float], rising: bool) -> float:
    """Voltage lost along a branch, or gained where generation raises it."""
    lost = values.get(branch.bus1, 0.0) - values.get(branch.bus2, 0.0)
    return -lost if rising else lost


def larger_units(design: Design, found: Diagnosis, low: Iterable[str], stock: Stock) -> list[Element]:
    """The next larger type for transformers in the way of low buses with much voltage drop of their own."""
    feeders = design.feeders_of()
    chosen: dict[str, Element] = {}
    for path in _ways(design, feeders, low, found.lowest_pu, rising=False):
        for branch in path:
            if isinstance(branch, Unit) and branch.name not in chosen:
                drop = found.lowest_pu[branch.bus1] / branch.tap - found.lowest_pu[branch.bus2]
                if drop > _UNIT_DROP_PU:
                    chosen[branch.name] = _larger(branch, stock)
    return list(chosen.values())


def _larger(unit: Unit, stock: Stock) -> Unit:
    ladder = {
        UnitRole.SUBSTATION: stock.substation, UnitRole.THREE_PHASE: stock.three, UnitRole.CENTRE_TAPPED: stock.single
    }[unit.role]  # fmt: skip
    kind, kva = larger_unit(ladder, unit.kva)
    return replace(unit, type=kind, kva=kva)


# ---- inverters ---------------------------------------------------------------------------------------------------


def volt_var(design: Design, high: Iterable[str]) -> list[Element]:
    """Volt-var control for the inverters of high areas, of all where medium voltage is high."""
    return [
        replace(pv, mode=InverterMode.VOLT_VAR)
        for pv in _affected(design, high)
        if pv.mode is not InverterMode.VOLT_VAR
    ]


def curtail(design: Design, high: Iterable[str]) -> list[Element]:
    """A fifth off the output limit of the inverters of high areas, of all where medium voltage is high."""
    return [
        replace(pv, limit_pct=round(_CURTAILED * pv.limit_pct, 4))
        for pv in _affected(design, high)
        if pv.limit_pct > _LEAST_LIMIT_PCT
    ]


def _affected(design: Design, buses: Iterable[str]) -> list[Pv]:
    areas = {design.buses[bus].area for bus in buses}
    return [pv for pv in design.pvs.values() if -1 in areas or design.buses[pv.bus].area in areas]


# ---- ratings -----------------------------------------------------------------------------------------------------


def relieve(design: Design, found: Diagnosis, limit: float, stock: Stock) -> list[Element]:
    """What overloads ask for: parallel circuits, larger transformers, further substation units, larger regulators."""
    edits: list[Element] = []
    regulators: dict[str, float] = {}
    substations: list[float] = []
    for name, loading in found.loading.items():
        if loading <= limit:
            continue
        if name in design.lines:
            line = design.lines[name]
            edits.append(replace(line, parallel=ceil(line.parallel * loading / limit)))
        elif name in design.switches:
            edits.append(_wider(design.switches[name], loading / limit))
        elif name in design.units and design.units[name].role is UnitRole.SUBSTATION:
            substations.append(loading)
        elif name in design.units:
            edits.append(_for_loading(design.units[name], loading / limit, stock))
        else:
            bank = name.rpartition("_")[0]
            regulators[bank] = max(regulators.get(bank, 0.0), loading / limit)
    for bank, factor in regulators.items():
        old = design.regulators[bank]
        edits.append(replace(old, kva=regulator_kva(old.kv, 1.1 * factor * old.kva * 3**0.5 / old.kv)))
    if substations:
        units = [unit for unit in design.units.values() if unit.role is UnitRole.SUBSTATION]
        edits.append(replace(units[0], name=f"substation_{len(units) + 1}"))
    return edits


def _wider(switch: Switch, factor: float) -> Switch:
    return replace(switch, rated_a=float(ceil(switch.rated_a * factor / 100) * 100))


def _for_loading(unit: Unit, factor: float, stock: Stock) -> Unit:
    wanted = unit.kva * factor
    while unit.kva < wanted:
        unit = _larger(unit, stock)
    return unit


def low_buses(found: Diagnosis, limit_pu: float) -> Sequence[str]:
    return [bus for bus, v_pu in found.lowest_pu.items() if v_pu < limit_pu]


def high_buses(found: Diagnosis, limit_pu: float) -> Sequence[str]:
    return [bus for bus, v_pu in found.highest_pu.items() if v_pu > limit_pu]
