"""The truth of a simulated day beside the answers: for demonstrations and tests, never for a model."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from mycelium.grid.grid import Grid
from mycelium.report.answers import Answers
from mycelium.sense.readings import Readings
from mycelium.simulate.day import Day
from mycelium.window.batch import Batch
from mycelium.window.columns import WindowOptions
from mycelium.window.normalise import Normalisation
from mycelium.window.sample import Sample, SampleId
from mycelium.window.static import GridFeatures
from mycelium.window.supervision import Targets
from mycelium.window.targets import FAULT_CLASSES, TargetLayout
from mycelium.window.temporal import Observer


def true_targets(grid: Grid, day: Day) -> Targets:
    """What the model should have said of a day."""
    features = GridFeatures.of(grid, WindowOptions(), Normalisation.identity())
    unseen = Observer.of(features).observe(Readings.none(grid))
    sample = Sample(SampleId(day.network), unseen, TargetLayout.of(grid, features).of_day(day))
    return Batch.of([(features, sample)]).targets()


def compared(answers: Answers, truth: Targets) -> Iterator[tuple[str, str, str]]:
    """The four questions: what was said, and what is true."""
    there = truth.valid.numpy() & np.isfinite(answers.v_pu)
    error = np.abs(answers.v_pu - truth.v_pu.numpy())[there]
    yield "state", f"{np.nanmin(answers.v_pu[-1]):.3f} p.u. lowest at the last hour", (
        f"{truth.v_pu.numpy()[-1][there[-1]].min():.3f} p.u.; mean error {error.mean():.4f} p.u."
    )  # fmt: skip
    phases = answers.phases
    if len(phases):
        right = np.array(["A", "B", "C"])[truth.phase.numpy()[phases.index]] == phases["phase"].to_numpy()
        counts = phases["phase"].value_counts()
        yield "phases", ", ".join(f"{counts.get(p, 0)} on {p}" for p in "ABC"), f"{right.sum()} of {len(right)} right"
    opened = truth.switch_open.numpy()[answers.switches.index]
    said = answers.switches["switch"].to_numpy()[answers.switches["open"].to_numpy()]
    true = answers.switches["switch"].to_numpy()[opened]
    yield "open switches", ", ".join(said) or "none", ", ".join(true) or "none"
    kind, sure = answers.fault
    yield "fault", f"{kind} ({sure:.0%} sure)", FAULT_CLASSES[int(truth.fault_class[0])]
    first = answers.candidates.iloc[0]
    where = int(truth.location[0])
    true_place = "none"
    if where >= 0:
        found = answers.candidates.loc[where]
        true_place = f"{found['kind']} {found['name']}, ranked {found['rank']} of {len(answers.candidates)}"
    yield "its place", f"{first['kind']} {first['name']} ({first['p']:.0%})", true_place
