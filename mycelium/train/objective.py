"""The objective: state, phase, switch and fault losses, as the appendix of the paper writes them.

Every part is an average: a sum over windows, over how much there is to sum. What there is to sum is known from the
targets alone, so it is counted over a whole global batch first (``counts``), on all processes, and every piece of the
batch then adds its sums over those counts (``Objective.loss``). The total is that of the global batch as a whole,
however it is cut into pieces that fit a device.

Where the paper leaves something open: a de-energised node has a magnitude but no angle, so magnitudes and angles are
averaged over their own targets; both averages are the paper's one where every node is energised.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from mycelium.model.estimates import Estimates
from mycelium.model.segments import segment_log_softmax
from mycelium.schema import TASKS
from mycelium.window.columns import Store
from mycelium.window.supervision import Targets
from mycelium.window.targets import FAULT_CLASSES
from mycelium.window.window import Window

# What is summed and counted apart; the task of each.
PARTS = ("magnitude", "angle", "phase", "switch", "fault_class", "location")
TASK_OF = ("state", "state", "phase", "switch", "fault", "fault")
_CLASS, _LOCATION = PARTS.index("fault_class"), PARTS.index("location")


@dataclass(frozen=True, slots=True)
class Objective:
    """What is minimised.

    Attributes:
        frequency: How frequent each of ``targets.FAULT_CLASSES`` is in training; weights are inverse to it.
        tasks: Those that count, with coefficient one each.
        magnitude_scale: Magnitude errors in per unit are multiplied by it.
        angle_scale: Angle errors in radians are multiplied by it.
    """

    frequency: tuple[float, ...]
    tasks: tuple[str, ...] = TASKS
    magnitude_scale: float = 100.0
    angle_scale: float = 10.0

    def __post_init__(self) -> None:
        if len(self.frequency) != len(FAULT_CLASSES) or min(self.frequency) < 0 or not any(self.frequency):
            raise ValueError(f"frequencies {self.frequency}; expected one of each of {', '.join(FAULT_CLASSES)}")
        if not self.tasks or not set(self.tasks) <= set(TASKS):
            raise ValueError(f"tasks {self.tasks}; expected some of {', '.join(TASKS)}")

    def class_weight(self, device: torch.device) -> Tensor:
        """Weight of each fault class, inverse to its frequency; 0 of a class that never occurs. [class]"""
        frequency = torch.tensor(self.frequency, dtype=torch.float64, device=device)
        return torch.where(frequency > 0, frequency.sum() / frequency.clamp(min=1e-12), 0.0)

    def counts(self, targets: Targets, graph: Mapping[str, Tensor]) -> Tensor:
        """How much there is to sum, in float64. [part]

        Args:
            targets: Of some windows.
            graph: Which window an entity belongs to, as in ``Window``.
        """
        bus, consumer, line = (graph[store] for store in (Store.BUS, Store.CONSUMER, Store.LINE))
        n = len(targets.samples)
        return torch.stack(
            [
                _per_window(targets.valid.sum(dim=1), bus, n).gt(0).sum(),
                _per_window(targets.angle_valid.sum(dim=1), bus, n).gt(0).sum(),
                _per_window(targets.phase_observed, consumer, n).gt(0).sum(),
                _per_window(targets.is_switch, line, n).gt(0).sum(),
                self.class_weight(targets.fault_class.device)[targets.fault_class].sum(),
                (targets.location >= 0).sum(),
            ]
        ).to(torch.float64)

    def sums(self, estimates: Estimates, targets: Targets, window: Window) -> Tensor:
        """Every part, summed over windows; float32. [part]"""
        bus, consumer, line = (window.graph[store] for store in (Store.BUS, Store.CONSUMER, Store.LINE))
        n = window.n_graphs
        magnitude = _smooth_l1(self.magnitude_scale * (estimates.v_pu.float() - targets.v_pu))
        angle = _smooth_l1(self.angle_scale * wrap(estimates.angle_rad.float() - targets.angle_rad))
        phase = functional.cross_entropy(
            estimates.phase.float(), targets.phase.clamp(min=0), reduction="none"
        )  # customers that are no question get any class and are left out next
        switch = functional.binary_cross_entropy_with_logits(
            estimates.switch.float(), targets.switch_open.float(), reduction="none"
        )
        log_class = functional.log_softmax(estimates.fault.float(), dim=-1)
        weight = self.class_weight(targets.fault_class.device)[targets.fault_class].float()
        log_place = segment_log_softmax(estimates.location.float(), window.candidate_graph, n)
        return torch.stack(
            [
                _mean_per_window(magnitude, targets.valid, bus, n),
                _mean_per_window(angle, targets.angle_valid, bus, n),
                _mean_per_window(phase, targets.phase_observed, consumer, n),
                _mean_per_window(switch, targets.is_switch, line, n),
                -(weight * log_class.gather(1, targets.fault_class[:, None]).squeeze(1)).sum(),
                -log_place[targets.location[targets.location >= 0]].sum(),
            ]
        )

    def coefficients(self, counts: Tensor) -> Tensor:
        """What multiplies each sum, given the counts of the global batch. [part]"""
        half = torch.tensor([0.5, 0.5, 1.0, 1.0, 1.0, 0.5], dtype=torch.float64, device=counts.device)
        half[_CLASS] = torch.where(counts[_LOCATION] > 0, 0.5, 1.0)
        asked = torch.tensor([task in self.tasks for task in TASK_OF], device=counts.device)
        return torch.where(asked & (counts > 0), half / counts.clamp(min=1e-12), 0.0)

    def loss(
        self, estimates: Estimates, targets: Targets, window: Window, coefficients: Tensor
    ) -> tuple[Tensor, Tensor]:
        """What this part of a global batch adds to the loss, and the same part by part, detached. [], [part]"""
        sums = self.sums(estimates, targets, window)
        # A part that is not asked for must not reach the gradient, not even as 0 times infinity.
        parts = torch.where(coefficients > 0, sums, 0.0) * coefficients.to(sums.dtype)
        return parts.sum(), parts.detach()


def by_task(parts: Tensor) -> dict[str, float]:
    """The four task losses of a detached part-by-part loss."""
    values = parts.tolist()
    return {task: sum(v for v, of in zip(values, TASK_OF, strict=True) if of == task) for task in TASKS}


def wrap(angle: Tensor) -> Tensor:
    """Angles in [-pi, pi]."""
    return torch.remainder(angle + torch.pi, 2.0 * torch.pi) - torch.pi


def _smooth_l1(error: Tensor) -> Tensor:
    return functional.smooth_l1_loss(error, torch.zeros_like(error), reduction="none", beta=1.0)


def _per_window(values: Tensor, graph: Tensor, n: int) -> Tensor:
    """Sum of the entities of each window. values [entity] -> [window]"""
    values = values if values.is_floating_point() else values.to(torch.int64)
    return values.new_zeros(n).index_add(0, graph, values)


def _mean_per_window(loss: Tensor, counts: Tensor, graph: Tensor, n: int) -> Tensor:
    """Mean over the targets of each window that has some, summed over windows.

    Args:
        loss: [hour, bus, phase] or [entity]
        counts: Which targets count: [bus, phase] or [entity], the same at every hour.
        graph: Window of each entity.
        n: Number of windows.
    """
    hours = loss.shape[0] if loss.ndim > counts.ndim else 1
    kept = torch.where(counts, loss, 0.0)
    per_entity = kept.sum(dim=(0, 2)) if loss.ndim == 3 else kept
    number = counts.sum(dim=1) if counts.ndim == 2 else counts
    total, many = _per_window(per_entity, graph, n), hours * _per_window(number, graph, n)
    return (total / many.clamp(min=1)).sum()
