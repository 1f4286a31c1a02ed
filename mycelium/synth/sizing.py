"""Sizes of lines and transformers from the demand downstream, phase by phase.

Demand is nominal times a planner's coincidence, which falls with the number of customers. A line is the smallest type
that carries it at the sampled utilisation; then types on the ways with too large an estimated voltage drop grow, the
step that contributes most first, as long as there is a larger one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np

from mycelium.synth.forest import Forest
from mycelium.synth.geography import Floats, Ints
from mycelium.synth.library_rows import Conductor, TransformerType

MV_DROP_PU, LV_DROP_PU = 0.03, 0.035
_TYPES_IN_USE = 5  # a utility stocks few of the line types there are
_TAN_PHI = 0.3
_ROUNDS = 8
_COINCIDENCE = 0.4  # of very many customers


def coincidence(count: Floats) -> Floats:
    """A planner's coincidence of this many customers."""
    return np.asarray(_COINCIDENCE + (1 - _COINCIDENCE) / np.sqrt(np.maximum(count, 1.0)))


def stocked(ladder: Sequence[Conductor], rng: np.random.Generator) -> tuple[Conductor, ...]:
    """Some types of a ladder, the largest always among them."""
    if len(ladder) <= _TYPES_IN_USE:
        return tuple(ladder)
    chosen = rng.choice(len(ladder) - 1, size=_TYPES_IN_USE - 1, replace=False)
    return (*(ladder[k] for k in sorted(chosen.tolist())), ladder[-1])


@dataclass(frozen=True)
class LinePlan:
    """Sizes of the lines above the nodes of a tree, and what drop to expect.

    Attributes:
        step: Place in the ladder of the node's number of phases. [tree node]
        parallel: Circuits side by side. [tree node]
        drop_pu: Estimated voltage drop from the root, largest phase. [tree node]
    """

    step: Ints
    parallel: Ints
    drop_pu: Floats


def size_lines(
    forest: Forest,
    kw: Floats,
    phases: Ints,
    ladders: dict[int, Sequence[Conductor]],
    phase_kv: float,
    utilisation: float,
    budget_pu: float,
) -> LinePlan:
    """Sizes for coincident demand downstream.

    Args:
        kw: Downstream of each node. [tree node, 3]
        phases: Number of phases of the line above each node. [tree node]
        ladders: Line types by number of phases.
        phase_kv: Voltage to neutral.
        utilisation: Share of its rating that a line is planned to carry.
        budget_pu: Voltage drop that should not be passed.
    """
    amps = kw.max(axis=1) * np.hypot(1, _TAN_PHI) / phase_kv / utilisation
    step, parallel = np.zeros((2, len(amps)), dtype=np.int64)
    for n, ladder in ladders.items():
        ratings = np.array([row.ampacity_a for row in ladder])
        own = phases == n
        step[own] = np.minimum(np.searchsorted(ratings, amps[own]), len(ladder) - 1)
        parallel[own] = np.maximum(np.ceil(amps[own] / ratings[step[own]]), 1).astype(np.int64)
    for _ in range(_ROUNDS):
        part = _drop_of_lines(forest, kw, phases, ladders, phase_kv, step, parallel)
        drop = forest.from_root(part).max(axis=1)
        late = drop > budget_pu
        top = np.array([len(ladders[n]) - 1 if n in ladders else 0 for n in range(4)])[phases]
        if not (late & (forest.parent >= 0)).any():
            break
        on_the_way = forest.downstream(late.astype(np.float64)) > 0
        worst = part.max(axis=1)
        grows = on_the_way & (step < top) & (worst > 0.5 * budget_pu * forest.length_m / max(_longest(forest), 1.0))
        if not grows.any():
            break
        step[grows] += 1
    return LinePlan(step, parallel, np.asarray(drop, dtype=np.float64))


def _longest(forest: Forest) -> float:
    return float(forest.distance_m.max(initial=0.0))


def _drop_of_lines(
    forest: Forest, kw: Floats, phases: Ints, ladders: dict[int, Sequence[Conductor]], phase_kv: float, step: Ints,
    parallel: Ints,
) -> Floats:  # fmt: skip
    """Voltage drop of each line by its own impedance, per unit. [tree node, 3]"""
    ohm_per_km = np.zeros(len(step))
    for n, ladder in ladders.items():
        own = phases == n
        table = np.array([_effective_ohm(row) for row in ladder])
        ohm_per_km[own] = table[step[own]]
    ohm = ohm_per_km * forest.length_m / 1e3 / parallel
    return np.asarray(ohm[:, None] * kw / (1e3 * phase_kv**2), dtype=np.float64)


def _effective_ohm(row: Conductor) -> float:
    """Resistance, and reactance as far as it counts at the usual power factor, of one phase with its return."""
    r, x = (2 * row.r1_ohm_per_km + row.r0_ohm_per_km) / 3, (2 * row.x1_ohm_per_km + row.x0_ohm_per_km) / 3
    return r + x * _TAN_PHI


def nearest_unit(
    ladder: Sequence[TransformerType], wanted_kva: float, least_kva: float
) -> tuple[TransformerType, float]:
    """The type whose rating is nearest to the one wanted, by ratio, and not below the least."""
    enough = [row for row in ladder if row.kva >= least_kva]
    if not enough:
        return choose_unit(ladder, least_kva)
    row = min(enough, key=lambda row: abs(np.log(row.kva / wanted_kva)))
    return row, row.kva


def choose_unit(ladder: Sequence[TransformerType], kva: float) -> tuple[TransformerType, float]:
    """The smallest type with this rating, and its rating; beyond the largest, that in multiples."""
    for row in ladder:
        if row.kva >= kva:
            return row, row.kva
    return ladder[-1], ladder[-1].kva * ceil(kva / ladder[-1].kva)


def larger_unit(ladder: Sequence[TransformerType], kva: float) -> tuple[TransformerType, float]:
    """The next larger type."""
    return choose_unit(ladder, 1.001 * kva)
