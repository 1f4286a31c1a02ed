"""Nominal angle of every bus and phase, from sources, topology and transformer records alone.

Angles travel as phasors. Lines, series reactors and series capacitors (every switch closed) tie conductors at
the same place of their two terminals, so conductors so tied form a section with one phasor. Across a
transformer the ideal coil equations hold: the voltage over a coil, per rated volt, is the same on every
winding. On the far side the node phasors follow from the coils between them, with ground and neutrals
(conductor 4 and above, unless lines tie it to a phase, as with several circuits on one pole) at zero; a side
with no path to ground gets the solution whose conductors sum to zero. The units of a bank are solved
together.

For balanced sources this is the paper's list of rules: zero shift between windings of one connection, 30
degrees between delta and wye of three phases (by ``delta_lead``), zero or 180 degrees for single-phase
windings and centre-tapped legs, and the reverse when fed from the other side. It differs where those rules
would be wrong: a single-phase unit connected line to line gets the angle of its line-to-line voltage, and
open wye, open delta and four-wire delta banks come out right, of which the rules know nothing.

A section reached over fewer transformers is settled first and keeps its angle. If two transformers settle a
section in the same round and disagree by more than half a clock hour, its angle is nowhere defined and goes
no further. The conductor of a hidden bus takes all three candidates of the known bus it hangs from, which
reveals nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from jaxtyping import Bool, Float64
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from mycelium.grid.grid import Grid
from mycelium.grid.primitive import coil_kv, delta_runs_backwards
from mycelium.grid.topology import Branches
from mycelium.grid.wiring import Terminals
from mycelium.schema import GROUND, HIDDEN, PHASES, Connection, ElementKind

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
Complex = npt.NDArray[np.complex128]

# Vector groups differ by whole clock hours of 30 degrees; less than half an hour is an operating difference.
_CONTRADICTION_RAD = np.pi / 12
_SAME_SHIFT_RAD = 1e-6
_VANISHING = 1e-3  # a phasor below this share of its side's largest has no angle
_SLOTS = len(PHASES)


@dataclass(frozen=True, slots=True)
class NominalAngle:
    """Nominal angles.

    Attributes:
        angle_rad: Angle in [-pi, pi), zero where not valid. [bus, phase]
        valid: Whether the bus has this phase and its angle is defined. [bus, phase]
    """

    angle_rad: Float64[Floats, "bus phase=3"]
    valid: Bool[Flags, "bus phase=3"]


def wrap(x: Floats) -> Floats:
    """The angle in [-pi, pi) that equals x up to whole turns."""
    return np.asarray((x + np.pi) % (2.0 * np.pi) - np.pi)


def nominal_angle(grid: Grid) -> NominalAngle:
    """Propagate the sources' angles through the grid."""
    section, n_sections = _sections(grid)
    phasor = np.full(n_sections, np.nan + 0j)
    _settle(phasor, *_source_phasors(grid, section))
    coils = _Coils.of(grid, section)
    # A lone floating pair is a guess at its common voltage: it waits until nothing else can be settled.
    while any(_settle(phasor, *coils.propose(phasor, lone_pairs)) for lone_pairs in (False, True)):
        pass
    at_bus = phasor[section[:, :_SLOTS]]
    valid = np.isfinite(at_bus) & _present(grid)
    return NominalAngle(np.where(valid, wrap(np.angle(np.where(valid, at_bus, 1.0))), 0.0), valid)


def _settle(phasor: Complex, section: Ints, value: Complex) -> int:
    """Write proposals for unsettled sections, in place; a disputed section becomes infinite.

    Proposals come in order of preference; sections already settled or disputed keep what they have.

    Returns:
        The number of sections settled.
    """
    new = np.isnan(phasor[section])
    section, value = section[new], value[new]
    which, first, member = np.unique(section, return_index=True, return_inverse=True)
    apart = np.abs(np.angle(value * np.conj(value[first[member]])))
    disputed = np.zeros(len(which), dtype=bool)
    np.logical_or.at(disputed, member, apart > _CONTRADICTION_RAD)
    phasor[which] = np.where(disputed, np.inf, value[first])
    return len(which)


def _present(grid: Grid) -> Flags:
    """Whether a bus has a phase; a hidden bus has all three as candidates. [bus, phase]"""
    wiring = grid.wiring
    present = np.zeros((len(grid.bus), _SLOTS), dtype=bool)
    phase = (wiring.conductor >= 1) & (wiring.conductor <= _SLOTS)
    present[wiring.bus[phase], wiring.conductor[phase] - 1] = True
    return present | wiring.hidden_bus[:, None]


def _sections(grid: Grid) -> tuple[Ints, int]:
    """Section of every bus and conductor from 1 on [bus, conductor - 1], and how many there are."""
    width = max(_SLOTS, int(grid.wiring.conductor.max(initial=0)))
    n = len(grid.bus) * width
    pairs = []
    for table in (ElementKind.LINE, ElementKind.REACTOR, ElementKind.CAPACITOR):
        frame = grid.tables[table.value]
        joins = frame["series"].to_numpy() if "series" in frame else np.ones(len(frame), dtype=bool)
        pairs.append(_tied(grid.wiring.terminals[table.value], joins, width))
    start, end = np.concatenate(pairs, axis=1)
    graph = coo_array((np.ones(len(start)), (start, end)), shape=(n, n))
    count, label = connected_components(graph, directed=False)
    return np.asarray(label, dtype=np.int64).reshape(-1, width), int(count)


def _tied(t: Terminals, joins: Flags, width: int) -> Ints:
    """Pairs (bus * width + conductor - 1) that two-terminal elements tie, place by place. [2, pair]

    A hidden conductor ties all three candidates.
    """
    near, far = (np.flatnonzero((t.terminal == k) & joins[t.row]) for k in (0, 1))
    places = int(t.place.max(initial=0)) + 1
    near_key, far_key = (t.row[side] * places + t.place[side] for side in (near, far))
    _, i, j = np.intersect1d(near_key, far_key, assume_unique=True, return_indices=True)
    sides = np.stack([near[i], far[j]])
    hidden = (t.conductor[sides] == HIDDEN).any(axis=0)
    known = (t.conductor[sides] > GROUND).all(axis=0)
    tied = t.bus[sides[:, known]] * width + t.conductor[sides[:, known]] - 1
    candidates = t.bus[sides[:, hidden]][:, :, None] * width + np.arange(_SLOTS)
    return np.concatenate([tied, candidates.reshape(2, -1)], axis=1)


def _is_phase(conductor: Ints) -> Flags:
    return (conductor >= 1) & (conductor <= _SLOTS)


def _source_phasors(grid: Grid, section: Ints) -> tuple[Ints, Complex]:
    """Sections at source terminals and their phasors, kV line to neutral."""
    t = grid.wiring.terminals["substation"]
    chosen = np.flatnonzero((t.terminal == 0) & _is_phase(t.conductor))
    row = t.row[chosen]
    turn = 2.0 * np.pi / grid.substation["n_phases"].to_numpy()[row]
    angle = np.deg2rad(grid.substation["angle_deg"].to_numpy()[row]) - turn * t.place[chosen]
    base_kv = grid.bus["base_kv"].to_numpy()[t.bus[chosen]]
    return section[t.bus[chosen], t.conductor[chosen] - 1], base_kv * np.exp(1j * angle)


@dataclass(frozen=True)
class _Coils:
    """Every coil of every winding, ordered by transformer, phase, winding.

    Attributes:
        link: Coils with one number share one core: transformer and phase. [coil]
        side: Coils with one number belong to one bank and end at one bus. [coil]
        start, end: Sections of the coil's ends, -1 at ground. [coil]
        start_slot, end_slot: Phase slots of the ends, -1 at ground and at neutrals. [coil]
        rated_kv: Rated voltage over the coil. [coil]
        side_section: Sections of each side's phase slots. [side, phase]
    """

    link: Ints
    side: Ints
    start: Ints
    end: Ints
    start_slot: Ints
    end_slot: Ints
    rated_kv: Floats
    side_section: Ints

    @staticmethod
    def of(grid: Grid, section: Ints) -> _Coils:
        owner, number = (grid.winding[name].to_numpy().astype(np.int64) for name in ("transformer", "number"))
        n_phases = grid.transformer["n_phases"].to_numpy().astype(np.int64)[owner]
        winding = np.repeat(np.arange(len(owner)), n_phases)
        phase = np.arange(len(winding)) - np.repeat(np.cumsum(n_phases) - n_phases, n_phases)
        order = np.lexsort((number[winding], phase, owner[winding]))
        winding, phase = winding[order], phase[order]
        t = grid.wiring.terminals["winding"]
        other = _far_place(grid, winding, phase)
        conductor = [t.conductor[t.start[winding] + place] for place in (phase, other)]
        slot = [np.where(c > GROUND, c - 1, -1) for c in conductor]
        bus = grid.winding["bus1"].to_numpy().astype(np.int64)[winding]
        ends = [np.where(s >= 0, section[bus, s], -1) for s in slot]
        bank = grid.transformer["bank"].to_numpy().astype(np.int64)[owner[winding]]
        sides, side = np.unique(bank * max(len(grid.bus), 1) + bus, return_inverse=True)
        return _Coils(
            link=owner[winding] * int(n_phases.max(initial=1)) + phase,
            side=side.astype(np.int64),
            start=ends[0],
            end=ends[1],
            start_slot=np.where(slot[0] < _SLOTS, slot[0], -1),
            end_slot=np.where(slot[1] < _SLOTS, slot[1], -1),
            rated_kv=coil_kv(grid)[winding],
            side_section=section[sides % max(len(grid.bus), 1), :_SLOTS],
        )

    def propose(self, phasor: Complex, lone_pairs: bool) -> tuple[Ints, Complex]:
        """Phasors of unsettled sections that the transformers determine from settled ones. [proposal]

        Args:
            phasor: Phasor of each section, NaN where not settled. [section]
            lone_pairs: Take two floating conductors as opposite.
        """
        emf = self._emf(phasor)
        wanted = np.zeros(len(emf), dtype=bool)
        for section, slot in ((self.start, self.start_slot), (self.end, self.end_slot)):
            wanted |= (slot >= 0) & np.isnan(phasor[section])
        useful = np.zeros(len(self.side_section), dtype=bool)
        useful[self.side[wanted & ~np.isnan(emf)]] = True
        sides = np.flatnonzero(useful)
        value, determined = self._solve(sides, emf, phasor, lone_pairs)
        strong = np.abs(value) > _VANISHING * np.abs(value).max(axis=1, keepdims=True, initial=0.0)
        place, slot = np.nonzero(determined & strong)
        return self.side_section[sides[place], slot], value[place, slot]

    def _emf(self, phasor: Complex) -> Complex:
        """Voltage over each coil, kV, as any settled winding of its core gives it, else NaN. [coil]"""
        over = np.zeros(len(self.link), dtype=np.complex128)
        settled = np.ones(len(self.link), dtype=bool)
        for section, slot, sign in ((self.start, self.start_slot, 1.0), (self.end, self.end_slot, -1.0)):
            finite = (section >= 0) & np.isfinite(phasor[section])
            over += sign * np.where(finite, phasor[section], 0.0)
            settled &= finite | (slot < 0)
        across = np.abs(over) > _VANISHING * self.rated_kv
        known = np.flatnonzero(settled & across)
        links, first = np.unique(self.link[known], return_index=True)
        per_volt = np.full(int(self.link.max(initial=-1)) + 1, np.nan + 0j)
        per_volt[links] = over[known[first]] / self.rated_kv[known[first]]
        return np.asarray(per_volt[self.link] * self.rated_kv)

    def _solve(self, sides: Ints, emf: Complex, phasor: Complex, lone_pairs: bool) -> tuple[Complex, Flags]:
        """Node phasors of some sides from their coils' voltages, and which are determined. [side, phase]

        Least squares on start - end = emf, with settled conductors held; the least-norm solution is the one
        whose floating conductors sum to zero, taken only where all coils of the side are known.
        """
        place = np.full(len(self.side_section), -1)
        place[sides] = np.arange(len(sides))
        at = place[self.side]
        coil = np.flatnonzero((at >= 0) & ~np.isnan(emf))
        complete = np.ones(len(sides), dtype=bool)
        complete[at[(at >= 0) & np.isnan(emf)]] = False
        normal = np.zeros((len(sides), _SLOTS, _SLOTS))
        right = np.zeros((len(sides), _SLOTS), dtype=np.complex128)
        ends = ((self.start_slot[coil], 1.0), (self.end_slot[coil], -1.0))
        for slot, sign in ends:
            real = slot >= 0
            np.add.at(right, (at[coil[real]], slot[real]), sign * emf[coil[real]])
            for other, other_sign in ends:
                both = real & (other >= 0)
                np.add.at(normal, (at[coil[both]], slot[both], other[both]), sign * other_sign)
        touched = np.einsum("sii->si", normal) > 0.0
        held = np.isfinite(phasor[self.side_section[sides]]) & touched
        normal += held[:, :, None] * np.eye(_SLOTS)
        right += np.where(held, phasor[self.side_section[sides]], 0.0)
        distinct, which = np.unique(normal.reshape(-1, _SLOTS * _SLOTS), axis=0, return_inverse=True)
        inverse = np.linalg.pinv(distinct.reshape(-1, _SLOTS, _SLOTS), hermitian=True)
        # 1 where a conductor is tied down, 2/3 where three float together, 1/2 where two do.
        share = np.einsum("mij,mji->mi", inverse, distinct.reshape(-1, _SLOTS, _SLOTS))[which]
        value = np.einsum("sij,sj->si", inverse[which], right)
        return value, touched & ((share > 0.9) | complete[:, None] & (lone_pairs | (share > 0.6)))


def _far_place(grid: Grid, winding: Ints, phase: Ints) -> Ints:
    """Place in its terminal of the far end of each coil, as the engine connects it. [coil]"""
    owner = grid.winding["transformer"].to_numpy()[winding]
    n = grid.transformer["n_phases"].to_numpy().astype(np.int64)[owner]
    delta = (grid.winding["connection"] == Connection.DELTA).to_numpy()[winding] & (n > 1)
    step = np.where(delta_runs_backwards(grid)[owner], -1, 1)
    # A two-phase delta is open: its third corner is the extra conductor.
    return np.asarray(np.where(delta, (phase + step) % np.maximum(n, 3), n))


def transformer_shift(grid: Grid, b: Branches, nominal: NominalAngle) -> Float64[Floats, " branch"]:
    """Phase shift of each transformer branch from winding 1 outwards, radians; else zero. [branch]

    It is the common difference of the nominal angles at the same places of the two terminals (of the only
    phase conductor of each where the places differ, as with reversed polarity). Where places disagree, as
    with the legs of a centre tap, or none is defined, it is zero.
    """
    unit = np.flatnonzero(b.is_kind(ElementKind.TRANSFORMER))
    key = b.row[unit] * b.n_bus + b.bus_to[unit]
    order = np.argsort(key)
    owner, bus = (grid.winding[name].to_numpy().astype(np.int64) for name in ("transformer", "bus1"))
    secondary = np.flatnonzero(grid.winding["number"].to_numpy() > 1)
    wanted = owner[secondary] * b.n_bus + bus[secondary]
    known = np.isin(wanted, key)
    secondary, wanted = secondary[known], wanted[known]
    branch = unit[order[np.searchsorted(key[order], wanted)]]
    difference = _winding_shift(grid, nominal)[secondary]
    defined = ~np.isnan(difference)
    of_branch, value = np.repeat(branch, defined.sum(axis=1)), difference[defined]
    which, first, member = np.unique(of_branch, return_index=True, return_inverse=True)
    agree = np.ones(len(which), dtype=bool)
    np.logical_and.at(agree, member, np.abs(wrap(value - value[first[member]])) < _SAME_SHIFT_RAD)
    result = np.zeros(len(b))
    result[which] = np.where(agree & (np.abs(value[first]) > _SAME_SHIFT_RAD), value[first], 0.0)
    return result


def _winding_shift(grid: Grid, nominal: NominalAngle) -> Floats:
    """Shift of every winding's places against winding 1's, NaN where undefined. [winding, place]"""
    t = grid.wiring.terminals["winding"]
    places = int(t.place.max(initial=0)) + 1
    angle = np.full((len(grid.winding), places), np.nan)
    slot = np.where(_is_phase(t.conductor), t.conductor - 1, 0)
    valid = _is_phase(t.conductor) & nominal.valid[t.bus, slot]
    angle[t.row[valid], t.place[valid]] = nominal.angle_rad[t.bus[valid], slot[valid]]
    owner = grid.winding["transformer"].to_numpy()
    first = angle[grid.transformer["first_winding"].to_numpy()[owner]]
    shift = wrap(angle - first)
    # No common place, one phase conductor each: opposite polarity.
    lone = np.isnan(shift).all(axis=1) & (~np.isnan(angle)).sum(axis=1).astype(bool)
    lone &= ((~np.isnan(angle)).sum(axis=1) == 1) & ((~np.isnan(first)).sum(axis=1) == 1)
    shift[lone, 0] = wrap(np.nansum(angle[lone], axis=1) - np.nansum(first[lone], axis=1))
    return np.asarray(shift)
