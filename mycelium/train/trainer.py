"""One step of training, and the loss of frozen samples.

A step counts what there is to average over in the global batch (on all processes), lets every piece of the batch add
its part of the loss and its gradient, adds gradients over processes, clips, and moves the weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from mycelium.errors import FeederError
from mycelium.model.mycelium import Mycelium
from mycelium.train.checkpoint import seed_step
from mycelium.train.config import Precision, Scope, TrainConfig
from mycelium.train.feed import Step
from mycelium.train.objective import PARTS, Objective
from mycelium.train.processes import Processes
from mycelium.train.schedule import cosine
from mycelium.window.batch import Batch


@dataclass(frozen=True, slots=True)
class StepResult:
    """What a step came to, over all processes.

    Attributes:
        parts: Loss, part by part. [part]
        gradient_norm: Before clipping.
        samples: Cases that were there.
        stop: Whether any process wants to end here.
    """

    parts: Tensor
    gradient_norm: float
    samples: int
    stop: bool


@dataclass(frozen=True)
class Trainer:
    """What a step needs.

    Attributes:
        config: The run.
        model: On its device.
        optimiser: Of what is trained.
        objective: What is minimised.
        processes: This one among all.
        record: What decides the result (``record_of``); a checkpoint of another one is refused.
    """

    config: TrainConfig
    model: Mycelium
    optimiser: torch.optim.Optimizer
    objective: Objective
    processes: Processes
    record: Mapping[str, Any] = field(repr=False)

    @staticmethod
    def of(
        config: TrainConfig,
        model: Mycelium,
        objective: Objective,
        processes: Processes,
        record: Mapping[str, Any],
    ) -> Trainer:
        """With a fresh optimiser of what is to be trained."""
        if config.finetune is not None and config.finetune.scope is Scope.HEADS:
            model.requires_grad_(False)
        for task, readout in model.readouts.items():  # one that is not asked must not decay either
            readout.requires_grad_(task in objective.tasks)
        model.backbone.recompute = config.hardware.recompute
        model.to(processes.device)
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        optimiser = torch.optim.AdamW(
            trained, lr=config.optimiser.learning_rate, weight_decay=config.optimiser.weight_decay
        )
        return Trainer(config, model, optimiser, objective, processes, record)

    def step(self, step: Step, number: int, stop: bool = False) -> StepResult:
        """One step.

        Args:
            step: This process's pieces, on its device.
            number: Over all epochs, from 0: learning rate and dropout depend on it.
            stop: Whether this process wants to end after it.
        """
        self._begin(number)
        targets = {k: piece.targets() for k, piece in step.pieces.items()}
        device = self.processes.device
        totals = torch.tensor([float(step.samples), float(stop)], dtype=torch.float64, device=device)
        counts = torch.zeros(len(PARTS), dtype=torch.float64, device=device)
        for k, piece in step.pieces.items():
            counts += self.objective.counts(targets[k], piece.graph)
        everywhere = self.processes.add(torch.cat([counts, totals]))
        coefficients = self.objective.coefficients(everywhere[: len(PARTS)])
        parts = torch.zeros(len(PARTS), dtype=torch.float32, device=device)
        for k, piece in step.pieces.items():
            window = piece.window()
            with self._autocast():
                estimates = self.model(window)
            loss, added = self.objective.loss(estimates, targets.pop(k), window, coefficients)
            loss.backward()
            parts += added
        self.processes.add(parts)
        self.processes.add_gradients(self.model)
        norm = torch.nn.utils.clip_grad_norm_(self._trained, self.config.optimiser.clip)
        if not torch.isfinite(norm):
            raise FeederError(
                f"the gradient of step {number + 1} is not a number; the last checkpoint is from before it; lower "
                "learning_rate or train in float32"
            )
        self.optimiser.step()
        return StepResult(parts, float(norm), int(everywhere[-2]), bool(everywhere[-1] > 0))

    @property
    def _trained(self) -> list[Tensor]:
        return list(self.optimiser.param_groups[0]["params"])

    def _begin(self, number: int) -> None:
        """Learning rate, dropout and gradients of a step."""
        settings = self.config.optimiser
        seed_step(self.config.seed, number, self.processes.rank)
        self.optimiser.param_groups[0]["lr"] = cosine(number, settings.steps, settings.learning_rate)
        for parameter in self._trained:  # zeros, not nothing: else what moves would depend on how a batch is shared
            parameter.grad = torch.zeros_like(parameter)
        self.model.train()

    @torch.no_grad()
    def validate(self, batches: Sequence[Batch]) -> Tensor:
        """Loss of frozen samples as if they were one batch, part by part. [part]

        Args:
            batches: This process's, anywhere.
        """
        self.model.eval()
        device = self.processes.device
        counts = torch.zeros(len(PARTS), dtype=torch.float64, device=device)
        sums = torch.zeros(len(PARTS), dtype=torch.float64, device=device)
        for batch in (batch.to(device) for batch in batches):
            window, targets = batch.window(), batch.targets()
            with self._autocast():
                estimates = self.model(window)
            counts += self.objective.counts(targets, batch.graph)
            sums += self.objective.sums(estimates, targets, window)
        coefficients = self.objective.coefficients(self.processes.add(counts))
        return torch.where(coefficients > 0, self.processes.add(sums), 0.0) * coefficients

    def _autocast(self) -> torch.autocast:
        half = self.config.hardware.precision is Precision.BFLOAT16
        return torch.autocast(self.processes.device.type, torch.bfloat16, enabled=half)
