"""The truth of a simulated day beside the answers: for demonstrations and tests, never for a model."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from mycelium.grid.grid import Grid
from mycelium.report.answers import NOT_ASKED, Answers
from mycelium.schema import PHASES
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


def magnitude_error(answers: Answers, truth: Targets) -> float:
    """Mean absolute error of voltage magnitudes, p.u., over all targets: at the true phase of a bus whose phase is a
    question, whatever was said of it.
    """
    there = truth.valid.numpy()
    error = np.abs(answers.candidate_v_pu - truth.v_pu.numpy())[:, there]
    return float(error.mean()) if error.size else float("nan")


def true_voltage(truth: Targets, hour: int, bus: int, phase: int) -> str:
    """The voltage of a bus in a phase, in words; where the phase is a question, its only one and which it is."""
    valid = truth.valid[bus]
    if bool(valid[phase]):
        return f"{float(truth.v_pu[hour, bus, phase]):.3f}"
    if int(valid.sum()) != 1:
        return "-"
    own = int(valid.nonzero()[0, 0])
    return f"{float(truth.v_pu[hour, bus, own]):.3f} on {PHASES[own]}"


def compared(answers: Answers, truth: Targets) -> Iterator[tuple[str, str, str]]:
    """The four questions: what was said, and what is true."""
    yield "state", *_state(answers, truth)
    yield from _phases(answers, truth)
    yield "open switches", *_open_switches(answers, truth)
    yield from _fault(answers, truth)


def _state(answers: Answers, truth: Targets) -> tuple[str, str]:
    v_pu = truth.v_pu.numpy()[-1][truth.valid.numpy()]
    lowest = f"{v_pu.min():.3f} p.u." if v_pu.size else "no target"
    if "state" not in answers.asked:
        return NOT_ASKED, lowest
    said = f"{np.nanmin(answers.v_pu[-1]):.3f} p.u. lowest at the last hour"
    return said, f"{lowest}; mean error {magnitude_error(answers, truth):.4f} p.u."


def _phases(answers: Answers, truth: Targets) -> Iterator[tuple[str, str, str]]:
    in_question = int(truth.phase_eligible.sum())
    if "phase" not in answers.asked:
        yield "phases", NOT_ASKED, f"{in_question} in question"
    elif in_question:
        phases = answers.phases
        right = np.array(PHASES)[truth.phase.numpy()[phases.index]] == phases["phase"].to_numpy()
        counts = phases["phase"].value_counts()
        yield "phases", ", ".join(f"{counts.get(p, 0)} on {p}" for p in PHASES), f"{right.sum()} of {len(right)} right"


def _open_switches(answers: Answers, truth: Targets) -> tuple[str, str]:
    if "switch" not in answers.asked:
        return NOT_ASKED, f"{int(truth.switch_open.sum())} open"
    names = answers.switches["switch"].to_numpy()
    said, true = names[answers.switches["open"].to_numpy()], names[truth.switch_open.numpy()[answers.switches.index]]
    return ", ".join(said) or "none likely", ", ".join(true) or "none"


def _fault(answers: Answers, truth: Targets) -> Iterator[tuple[str, str, str]]:
    true, where = FAULT_CLASSES[int(truth.fault_class[0])], int(truth.location[0])
    if "fault" not in answers.asked:
        yield "fault", NOT_ASKED, true
        return
    kind, sure = answers.fault
    yield "fault", f"{kind} ({sure:.0%} sure)", true
    first, true_place = answers.candidates.iloc[0], "none"
    if where >= 0:
        found = answers.candidates.loc[where]
        true_place = f"{found['kind']} {found['name']}, ranked {found['rank']} of {len(answers.candidates)}"
    yield "its place", f"{first['kind']} {first['name']} ({first['p']:.0%})", true_place
