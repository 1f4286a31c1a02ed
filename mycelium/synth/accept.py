"""The acceptance predicate: convergence, voltages and, where the flag is set, ratings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mycelium.schema import HOURS
from mycelium.synth.diagnosis import HIGH_PU, LOW_PU
from mycelium.synth.model import State


@dataclass(frozen=True)
class Verdict:
    """Whether a network is accepted, and what speaks against it; every reason counts by its first words."""

    reasons: tuple[str, ...]

    @property
    def accepted(self) -> bool:
        return not self.reasons


def accept(a: State, b: State, day: Sequence[State], is_line: np.typing.NDArray[np.bool_], thermal: bool) -> Verdict:
    """Judge the final operating points.

    Args:
        a, b: The snapshots.
        day: The hours solved; fewer than 24 if one did not converge.
        is_line: Which branches are lines and switches. [branch]
        thermal: Whether ratings are enforced.
    """
    reasons = []
    for name, state in (("snapshot A", a), ("snapshot B", b)):
        if not state.converged:
            reasons.append(f"no convergence: {name}")
        elif state.collapsed:
            reasons.append(f"collapsed: {name}")
    if len(day) < HOURS or not all(hour.converged for hour in day):
        reasons.append(f"no convergence: hour {max(len(day) - 1, 0)}")
    if reasons:
        return Verdict(tuple(reasons))
    reasons += [*_voltages(a, b, day)]
    if thermal:
        reasons += [*_ratings(a, b, day, is_line)]
    return Verdict(tuple(reasons))


def _voltages(a: State, b: State, day: Sequence[State]) -> list[str]:
    reasons = []
    if a.live_v_pu.min() < LOW_PU:
        reasons.append(f"low voltage: snapshot A, {a.live_v_pu.min():.4f} p.u.")
    if b.live_v_pu.min() < LOW_PU:
        reasons.append(f"low voltage: snapshot B, {b.live_v_pu.min():.4f} p.u.")
    if b.live_v_pu.max() > HIGH_PU:
        reasons.append(f"high voltage: snapshot B, {b.live_v_pu.max():.4f} p.u.")
    for hour, state in enumerate(day):
        if state.collapsed:
            return [*reasons, f"collapsed: hour {hour}"]
    low, high = min(s.live_v_pu.min() for s in day), max(s.live_v_pu.max() for s in day)
    if low < LOW_PU:
        reasons.append(f"low voltage: day, {low:.4f} p.u.")
    if high > HIGH_PU:
        reasons.append(f"high voltage: day, {high:.4f} p.u.")
    return reasons


def _ratings(a: State, b: State, day: Sequence[State], is_line: np.typing.NDArray[np.bool_]) -> list[str]:
    """Lines and transformers in the snapshots, lines in every hour."""
    reasons = []
    for name, state in (("snapshot A", a), ("snapshot B", b)):
        if state.loading.max() > 1:
            reasons.append(f"overload: {name}, {state.loading.max():.3f} of the rating")
    hourly = max(float(state.loading[is_line].max(initial=0.0)) for state in day)
    if hourly > 1:
        reasons.append(f"overload: day, {hourly:.3f} of the rating")
    return reasons
