"""What the operating points of a design say: lowest and highest voltage of every bus, and what is overloaded."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from mycelium.synth.model import FLOATING_PU, Model, State

LOW_PU, HIGH_PU = 0.95, 1.05


@dataclass(frozen=True)
class Diagnosis:
    """Solved operating points.

    Attributes:
        a, b: The snapshots.
        day: The hours, where they have been solved.
        lowest_pu: Of the snapshots and hours, live nodes only, by bus.
        highest_pu: Of snapshot B and the hours, by bus; overvoltage at peak demand alone is no reason to reject.
        loading: Of both snapshots, by branch.
    """

    a: State
    b: State
    day: tuple[State, ...] = ()
    lowest_pu: dict[str, float] = field(default_factory=dict)
    highest_pu: dict[str, float] = field(default_factory=dict)
    loading: dict[str, float] = field(default_factory=dict)

    @staticmethod
    def of(model: Model, with_day: bool) -> Diagnosis:
        """Solve both snapshots, and the day if asked for."""
        a, b = model.snapshot_a(), model.snapshot_b()
        day = tuple(model.day()) if with_day and a.converged and b.converged else ()
        if not (a.converged and b.converged and all(hour.converged for hour in day)):
            return Diagnosis(a, b, day)
        low = np.min([np.where(s.v_pu > FLOATING_PU, s.v_pu, np.inf) for s in (a, b, *day)], axis=0)
        high = np.max([s.v_pu for s in (b, *day)], axis=0)
        lowest: dict[str, float] = {}
        highest: dict[str, float] = {}
        for bus, v_low, v_high in zip(model.node_bus, low.tolist(), high.tolist(), strict=True):
            lowest[bus] = min(lowest.get(bus, np.inf), v_low)
            highest[bus] = max(highest.get(bus, 0.0), v_high)
        loading = dict(zip(model.branch_names, np.maximum(a.loading, b.loading).tolist(), strict=True))
        return Diagnosis(a, b, day, lowest, highest, loading)

    @property
    def converged(self) -> bool:
        return self.a.converged and self.b.converged and all(hour.converged for hour in self.day)

    @property
    def worst_low_pu(self) -> float:
        return min(self.lowest_pu.values(), default=0.0)

    @property
    def worst_high_pu(self) -> float:
        return max(self.highest_pu.values(), default=np.inf)

    @property
    def worst_loading(self) -> float:
        return max(self.loading.values(), default=np.inf)

    def summary(self) -> dict[str, float | bool]:
        """For the record of repairs."""
        if not self.converged:
            return {"converged": False}
        return {
            "converged": True,
            "lowest_pu": round(self.worst_low_pu, 5),
            "highest_pu": round(self.worst_high_pu, 5),
            "loading": round(self.worst_loading, 4),
        }
