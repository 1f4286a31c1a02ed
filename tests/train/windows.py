"""What tests of training and evaluation share: real windows of bundled feeders, and random answers to them."""

from __future__ import annotations

import functools

import torch

from mycelium.model.estimates import Estimates
from mycelium.schema import HOURS
from mycelium.window.batch import Batch
from mycelium.window.supervision import Targets
from mycelium.window.targets import FAULT_CLASSES
from mycelium.window.window import Window
from tests.sense.networks import DEAD, FAULTED, MOVED, QUIET
from tests.window.render import case_of

# Faulted and sound, with and without customers in question, with switches and without, partly dead.
CASES = (
    ("lv_fourwire", FAULTED, "noisy_missing_sparse"),
    ("lv_fourwire", MOVED, "noisy_missing_medium"),
    ("ieee13", FAULTED, "clean"),
    ("ieee13", QUIET, "observability_ami_dense"),
    ("us_suburb", DEAD, "observability_ami_sparse"),
)
SOUND = CASES[3]


@functools.cache
def batch_of(*cases: tuple[str, object, str]) -> Batch:
    return Batch.of([case_of(*case).part() for case in cases])  # type: ignore[arg-type]


def both(*cases: tuple[str, object, str]) -> tuple[Window, Targets]:
    batch = batch_of(*(cases or CASES))
    return batch.window(), batch.targets()


def random_estimates(window: Window, seed: int = 0) -> Estimates:
    """Answers drawn at random, of a size that reaches both branches of the smooth L1."""
    draw = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=draw)

    n_bus, n_consumer, n_line = (len(window.graph[store]) for store in ("bus", "consumer", "line"))
    return Estimates(
        v_pu=1.0 + 0.02 * normal(HOURS, n_bus, 3),
        angle_rad=0.5 * normal(HOURS, n_bus, 3),
        phase=normal(n_consumer, 3),
        switch=normal(n_line),
        fault=normal(window.n_graphs, len(FAULT_CLASSES)),
        location=normal(len(window.candidate_graph)),
    )


def true_estimates(targets: Targets, window: Window) -> Estimates:
    """Answers that are the truth, sure of it."""
    location = torch.full((len(window.candidate_graph),), -50.0)
    location[targets.location[targets.location >= 0]] = 50.0
    return Estimates(
        v_pu=targets.v_pu.clone(),
        angle_rad=targets.angle_rad.clone(),
        phase=50.0 * torch.nn.functional.one_hot(targets.phase.clamp(min=0), 3).float(),
        switch=torch.where(targets.switch_open, 50.0, -50.0),
        fault=50.0 * torch.nn.functional.one_hot(targets.fault_class, len(FAULT_CLASSES)).float(),
        location=location,
    )
