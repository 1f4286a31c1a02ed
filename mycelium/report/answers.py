"""What a model says of one day of one feeder, in the words of its records: tidy tables with a confidence each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch

from mycelium.grid.grid import Grid
from mycelium.model.estimates import Estimates
from mycelium.schema import HIDDEN, HOURS, PHASES
from mycelium.window.targets import CANDIDATES, FAULT_CLASSES, hidden_groups

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Answers:
    """Answers of one day.

    Attributes:
        v_pu, angle_deg: Of every phase there is, else NaN; angles relative to nominal. A bus whose phase is a question
            has them in the slot of its likeliest one. [hour, bus, phase]
        phases: ``customer, bus, phase, confidence, A, B, C`` of every customer in question.
        switches: ``switch, from, to, open, confidence, p_open``.
        faults: ``fault, p`` of every class.
        candidates: ``rank, kind, name, row, p`` of all equipment, likeliest place of a fault first.
    """

    v_pu: Floats
    angle_deg: Floats
    phases: pd.DataFrame
    switches: pd.DataFrame
    faults: pd.DataFrame
    candidates: pd.DataFrame

    @staticmethod
    def of(grid: Grid, estimates: Estimates) -> Answers:
        """In the records' words.

        Args:
            grid: The records.
            estimates: Of a window of this feeder alone.
        """
        there = _slots(grid, torch.softmax(estimates.phase.double(), dim=-1).numpy())
        return Answers(
            np.where(there, estimates.v_pu.double().numpy(), np.nan),
            np.where(there, np.rad2deg(estimates.angle_rad.double().numpy()), np.nan),
            _phases(grid, estimates),
            _switches(grid, estimates),
            pd.DataFrame({"fault": FAULT_CLASSES, "p": torch.softmax(estimates.fault[0].double(), dim=-1).numpy()}),
            _candidates(grid, estimates),
        )

    @property
    def fault(self) -> tuple[str, float]:
        """The likeliest class and how sure."""
        best = self.faults.loc[self.faults["p"].idxmax()]
        return str(best["fault"]), float(best["p"])

    def voltages(self, grid: Grid) -> pd.DataFrame:
        """``hour, bus, phase, v_pu, angle_deg``, one row per value."""
        hour, bus, phase = np.nonzero(np.isfinite(self.v_pu))
        return pd.DataFrame(
            {
                "hour": hour,
                "bus": grid.bus["name"].to_numpy()[bus],
                "phase": np.array(PHASES)[phase],
                "v_pu": self.v_pu[hour, bus, phase],
                "angle_deg": self.angle_deg[hour, bus, phase],
            }
        )


def _slots(grid: Grid, p_phase: Floats) -> npt.NDArray[np.bool_]:
    """Phases of every bus: as recorded, or the likeliest of the customers that hang from it. [hour, bus, phase]"""
    wiring = grid.wiring
    there = np.zeros((len(grid.bus), len(PHASES)), dtype=bool)
    known = (wiring.conductor >= 1) & (wiring.conductor <= len(PHASES))
    there[wiring.bus[known], wiring.conductor[known] - 1] = True
    votes = np.zeros((grid.n_groups + 1, len(PHASES)))  # the last row is of no group
    customer = np.flatnonzero(grid.consumer["eligible"].to_numpy())
    np.add.at(votes, grid.consumer["group"].to_numpy()[customer], np.log(p_phase[customer] + 1e-12))
    hidden = wiring.bus[wiring.conductor == HIDDEN]
    there[hidden, votes[hidden_groups(grid)[hidden]].argmax(axis=1)] = True
    return np.broadcast_to(there, (HOURS, *there.shape))


def _phases(grid: Grid, estimates: Estimates) -> pd.DataFrame:
    consumer = grid.consumer
    rows = np.flatnonzero(consumer["eligible"].to_numpy())
    p = torch.softmax(estimates.phase.double(), dim=-1).numpy()[rows]
    found = pd.DataFrame(
        {
            "customer": consumer["name"].to_numpy()[rows],
            "bus": grid.bus["name"].to_numpy()[consumer["bus1"].to_numpy()[rows]],
            "phase": np.array(PHASES)[p.argmax(axis=1)],
            "confidence": p.max(axis=1) if len(rows) else np.zeros(0),
        },
        index=rows,
    )
    return found.assign(**{name: p[:, k] for k, name in enumerate(PHASES)})


def _switches(grid: Grid, estimates: Estimates) -> pd.DataFrame:
    rows, name = grid.switches, grid.bus["name"].to_numpy()
    p_open = torch.sigmoid(estimates.switch.double()).numpy()[rows]
    return pd.DataFrame(
        {
            "switch": grid.line["name"].to_numpy()[rows],
            "from": name[grid.line["bus1"].to_numpy()[rows]],
            "to": name[grid.line["bus2"].to_numpy()[rows]],
            "open": p_open > 0.5,
            "confidence": np.maximum(p_open, 1.0 - p_open),
            "p_open": p_open,
        },
        index=rows,
    )


def _candidates(grid: Grid, estimates: Estimates) -> pd.DataFrame:
    tables = [grid.tables[kind.value] for kind in CANDIDATES]
    found = pd.DataFrame(
        {
            "kind": np.repeat([kind.value for kind in CANDIDATES], [len(table) for table in tables]),
            "name": np.concatenate([table["name"].to_numpy(dtype=object) for table in tables]),
            "row": np.concatenate([np.arange(len(table)) for table in tables]),
            "p": torch.softmax(estimates.location.double(), dim=0).numpy(),
        }
    )
    found = found.sort_values("p", ascending=False, kind="stable")
    return found.assign(rank=np.arange(1, len(found) + 1))
