"""Transformation and normalisation of readings (the paper's psi), on the device where the model runs."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from mycelium.window.columns import Columns, Psi, Store
from mycelium.window.normalise import Normalisation

_MODE = {Psi.FLAG: 0, Psi.PLAIN: 0, Psi.DEVIATION: 1, Psi.RESIDUAL: 2, Psi.ASINH: 3}


@dataclass(frozen=True, slots=True)
class ColumnTable:
    """How the columns of a store are transformed.

    Attributes:
        mode: As ``_MODE`` numbers them. [column]
        middle, spread: Normalisation. [column]
        core: What lies beyond so many spreads is compressed. []
    """

    mode: Tensor
    middle: Tensor
    spread: Tensor
    core: Tensor

    @staticmethod
    def of(store: Store, columns: Columns, normalisation: Normalisation) -> ColumnTable:
        middle, spread = torch.from_numpy(normalisation.of_temporal(store, columns)).to(torch.float32).unbind(0)
        mode = torch.tensor([_MODE[column.psi] for column in columns])
        return ColumnTable(mode, middle, spread, torch.tensor(normalisation.core, dtype=torch.float32))


def transform(place: Tensor, value: Tensor, base: Tensor, table: ColumnTable) -> Tensor:
    """Inputs from readings. [reading]

    Args:
        place: Place in [hour, entity, column], flat. [reading]
        value: In the channel's unit. [reading]
        base: What a reading is divided by; of an angle, the nominal angle in radians. [entity, column]
        table: Of the store.
    """
    column = place % base.shape[1]
    own_base, mode = base.reshape(-1)[place % base.numel()], table.mode[column]
    ratio = value / own_base
    residual = torch.remainder(torch.deg2rad(value) - own_base + math.pi, 2.0 * math.pi) - math.pi
    out = torch.where(mode == _MODE[Psi.DEVIATION], ratio - 1.0, value)
    out = torch.where(mode == _MODE[Psi.RESIDUAL], residual, out)
    out = torch.where(mode == _MODE[Psi.ASINH], _asinh(ratio), out)
    out = (out - table.middle[column]) / table.spread[column]
    size = out.abs()
    squashed = torch.minimum(size, table.core) * (1.0 + torch.log((size / table.core).clamp(min=1.0)))
    return torch.copysign(squashed, out)


def _asinh(x: Tensor) -> Tensor:
    """asinh to rounding; on a processor torch's own takes five times as long."""
    size = x.abs()
    return torch.copysign(torch.log1p(size + size * size / (1.0 + torch.sqrt(1.0 + size * size))), x)
