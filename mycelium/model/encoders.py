"""Typed encoders: from the columns of a window to states of width d, for every hour.

A static column is the same at every hour, so its part of the first linear map is computed once per entity; the result
is that of the columns side by side.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from mycelium.schema import HOURS
from mycelium.window.window import Measured


class Encoder(nn.Module):
    """Two linear maps with a SiLU between them, then LayerNorm."""

    def __init__(self, n_static: int, n_temporal: int, width: int) -> None:
        """Prepare.

        Args:
            n_static: Static columns.
            n_temporal: Temporal columns; each brings its mask.
            width: Of the states.
        """
        super().__init__()
        self.sizes = (n_static, 2 * n_temporal)
        self.first = nn.Linear(sum(self.sizes), width)
        self.second = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, static: Tensor, temporal: Sequence[Measured]) -> Tensor:
        """States [hour, entity, width].

        Args:
            static: [entity, static column]
            temporal: Readings; several stores' follow each other.
        """
        from_static, from_temporal = self.first.weight.split(self.sizes, dim=1)
        hidden = functional.linear(static, from_static, self.first.bias).unsqueeze(0)
        if temporal:
            readings = torch.cat([side for part in temporal for side in _masked(part)], dim=-1)
            hidden = hidden + functional.linear(readings, from_temporal)
        state: Tensor = self.norm(self.second(functional.silu(hidden)))
        return state.expand(HOURS, -1, -1)


def _masked(readings: Measured) -> tuple[Tensor, Tensor]:
    """Values, whatever stands where nothing was seen replaced by 0, and their mask."""
    return torch.where(readings.seen, readings.value, 0.0), readings.seen.to(readings.value.dtype)


class PositionEncoder(nn.Module):
    """The positional descriptors of a bus, embedded by a small network and LayerNorm."""

    def __init__(self, n_descriptors: int, width: int) -> None:
        super().__init__()
        self.first = nn.Linear(n_descriptors, width)
        self.second = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, descriptors: Tensor) -> Tensor:
        """[bus, descriptor] -> [bus, width]"""
        embedded: Tensor = self.norm(self.second(functional.silu(self.first(descriptors))))
        return embedded
