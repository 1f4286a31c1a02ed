"""The processes of one run: one alone, or as many as ``torchrun`` started, one per device.

Gradients and counts are added up, not averaged: every process adds its part of a loss that is already divided by the
counts of the whole global batch. So a process with nothing to do in a step is as good as any other.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

import torch
from torch import Tensor, distributed, nn

from mycelium.errors import FeederError
from mycelium.train.config import DEVICES

_PATIENCE = timedelta(hours=3)  # others wait while the first one computes normalisation constants


@dataclass(frozen=True, slots=True)
class Processes:
    """This process among all.

    Attributes:
        device: Where it computes.
        rank, world: Which of how many.
    """

    device: torch.device
    rank: int = 0
    world: int = 1

    @property
    def first(self) -> bool:
        """Whether it is the one that writes."""
        return self.rank == 0

    def add(self, values: Tensor) -> Tensor:
        """The sum over all processes, in place."""
        if self.world > 1:
            distributed.all_reduce(values)
        return values

    def add_gradients(self, model: nn.Module) -> None:
        """Replace every gradient by its sum over all processes."""
        if self.world == 1:
            return
        gradients = [p.grad for p in model.parameters() if p.grad is not None]
        flat = self.add(torch.cat([gradient.flatten() for gradient in gradients]))
        for gradient, summed in zip(gradients, flat.split([g.numel() for g in gradients]), strict=True):
            gradient.copy_(summed.view_as(gradient))

    def wait(self) -> None:
        """Until all are here."""
        if self.world > 1:
            distributed.barrier()


@contextmanager
def joined(device: str) -> Iterator[Processes]:
    """Take part in what ``torchrun`` started, if it did.

    Args:
        device: "cuda", "cpu", or "auto" for the first that is there.
    """
    if device not in DEVICES:
        raise FeederError(f"device = '{device}'; expected one of {', '.join(DEVICES)}")
    if device == "cuda" and not torch.cuda.is_available():
        raise FeederError("device = 'cuda', but there is none here; use 'auto' or 'cpu'")
    on_cuda = device != "cpu" and torch.cuda.is_available()
    world, rank = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
    mine = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))) if on_cuda else torch.device("cpu")
    if on_cuda:
        torch.cuda.set_device(mine)
    if world > 1:
        distributed.init_process_group("nccl" if on_cuda else "gloo", timeout=_PATIENCE)
    try:
        yield Processes(mine, rank, world)
    finally:
        if world > 1:
            distributed.destroy_process_group()
