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

NOT_ASKED = "not asked"  # of a model without a readout for it


@dataclass(frozen=True)
class Answers:
    """Answers of one day; tables of tasks that the model has no readout for are empty.

    Attributes:
        asked: Tasks that the model answered (``schema.TASKS``).
        v_pu, angle_deg: Of every phase there is, else NaN; angles are absolute. A bus whose phase is a question has
            them in the slot of its likeliest one, in all three if phases were not asked. [hour, bus, phase]
        candidate_v_pu: Magnitudes with all three candidates of such a bus, whichever is likeliest. [hour, bus, phase]
        phases: ``customer, bus, phase, confidence, A, B, C`` of every customer in question.
        switches: ``switch, from, to, open, confidence, p_open``.
        faults: ``fault, p`` of every class.
        candidates: ``rank, kind, name, row, p`` of all equipment, likeliest place of a fault first.
    """

    asked: frozenset[str]
    v_pu: Floats
    angle_deg: Floats
    candidate_v_pu: Floats
    phases: pd.DataFrame
    switches: pd.DataFrame
    faults: pd.DataFrame
    candidates: pd.DataFrame

    @staticmethod
    def of(grid: Grid, estimates: Estimates) -> Answers:
        """In the records' words.

        Args:
            grid: The records.
            estimates: As ``Mycelium.estimate`` gives them for these records.
        """
        estimates = estimates.to("cpu")
        asked = _asked(grid, estimates)
        there = _slots(grid, torch.softmax(estimates.phase.double(), dim=-1).numpy() if "phase" in asked else None)
        v_pu, angle_deg = estimates.v_pu.double().numpy(), np.rad2deg(estimates.angle_rad.double().numpy())
        return Answers(
            asked,
            np.where(there, v_pu, np.nan),
            np.where(there, angle_deg, np.nan),
            v_pu,
            _of(asked, "phase", _phases(grid, estimates)),
            _of(asked, "switch", _switches(grid, estimates)),
            _of(asked, "fault", _faults(estimates)),
            _of(asked, "fault", _candidates(grid, estimates)),
        )

    @property
    def fault(self) -> tuple[str, float]:
        """The likeliest class and how sure; only if it was asked."""
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


def _asked(grid: Grid, estimates: Estimates) -> frozenset[str]:
    """Tasks with any answer: those of others are not numbers (``Estimates``)."""
    of_task = {
        "state": estimates.v_pu,
        "phase": estimates.phase,
        "switch": estimates.switch[torch.from_numpy(grid.switches)],
        "fault": estimates.fault,
    }
    return frozenset(task for task, told in of_task.items() if not told.numel() or bool(told.isfinite().any()))


def _of(asked: frozenset[str], task: str, table: pd.DataFrame) -> pd.DataFrame:
    """The table of a task, without rows if it was not asked."""
    return table if task in asked else table.iloc[:0]


def _slots(grid: Grid, p_phase: Floats | None) -> npt.NDArray[np.bool_]:
    """Phases of every bus: as recorded, or the likeliest of the customers that hang from it; all if there is no
    answer to that. [hour, bus, phase]
    """
    wiring = grid.wiring
    there = np.zeros((len(grid.bus), len(PHASES)), dtype=bool)
    known = (wiring.conductor >= 1) & (wiring.conductor <= len(PHASES))
    there[wiring.bus[known], wiring.conductor[known] - 1] = True
    hidden = wiring.bus[wiring.conductor == HIDDEN]
    if p_phase is None:
        there[hidden] = True
    else:
        votes = np.zeros((grid.n_groups + 1, len(PHASES)))  # the last row is of no group
        customer = np.flatnonzero(grid.consumer["eligible"].to_numpy())
        np.add.at(votes, grid.consumer["group"].to_numpy()[customer], np.log(p_phase[customer] + 1e-12))
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


def _faults(estimates: Estimates) -> pd.DataFrame:
    return pd.DataFrame({"fault": FAULT_CLASSES, "p": torch.softmax(estimates.fault[0].double(), dim=-1).numpy()})


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
