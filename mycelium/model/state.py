"""State estimation: causal dilated convolutions over the hours of every bus, then voltages.

The convolutions see this hour and those before. Magnitudes are 1 + a/100 per unit, angles relative to nominal ones
π tanh(b). The second leg of a centre tap is opposite to the first.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from mycelium.model.config import MyceliumConfig
from mycelium.model.estimates import wrap
from mycelium.model.readout import Context, ExactLinear
from mycelium.model.segments import widened
from mycelium.window.columns import Store
from mycelium.window.window import Window

KERNEL = 3
N_PHASES = 3


class CausalConvolution(nn.Module):
    """A residual block: LN(z + Dropout(SiLU(b + Σ_q W_q z[t - q dilation]))), zeros before the first hour.

    Attributes:
        taps: W_q, as linear maps; the first has the bias.
    """

    def __init__(self, config: MyceliumConfig, dilation: int) -> None:
        super().__init__()
        self.dilation = dilation
        self.taps = nn.ModuleList([nn.Linear(config.width, config.width, bias=q == 0) for q in range(KERNEL)])
        self.dropout = nn.Dropout(config.dropout)
        self.norm = nn.LayerNorm(config.width)
        self._reset_parameters()

    def _reset_parameters(self) -> None:
        """As ``nn.Conv1d`` draws: an output has KERNEL times as many inputs as one tap."""
        for parameter in (parameter for tap in self.taps for parameter in tap.parameters()):
            nn.init.uniform_(parameter, *(sign * (KERNEL * self.norm.normalized_shape[0]) ** -0.5 for sign in (-1, 1)))

    def forward(self, z: Tensor) -> Tensor:
        """[hour, bus, width] -> [hour, bus, width]"""
        result = widened(self.taps[0](z))
        for q, tap in enumerate(self.taps):
            lag = q * self.dilation
            if 0 < lag < len(z):
                result = result + functional.pad(widened(tap(z[:-lag])), (0, 0, 0, 0, lag, 0))
        refined: Tensor = self.norm(z + self.dropout(functional.silu(result)))
        return refined


class StateReadout(nn.Module):
    """Voltage magnitudes and angles."""

    def __init__(self, config: MyceliumConfig) -> None:
        super().__init__()
        self.refine = nn.Sequential(*(CausalConvolution(config, dilation) for dilation in config.dilations))
        self.output = ExactLinear(config.width, 2 * N_PHASES)
        nn.init.zeros_(self.output.weight)  # the first answer is the nominal voltage everywhere
        nn.init.zeros_(self.output.bias)

    def forward(self, window: Window, context: Context) -> dict[str, Tensor]:
        """``v_pu`` and ``angle_rad`` of ``Estimates``."""
        magnitude, angle = self.output(self.refine(context.nodes[Store.BUS])).split(N_PHASES, dim=-1)
        return {"v_pu": 1.0 + magnitude / 100.0, "angle_rad": _opposite_legs(math.pi * torch.tanh(angle), window)}


def _opposite_legs(angle_rad: Tensor, window: Window) -> Tensor:
    """Residual angles in which slot 1 of a centre tap is opposite to slot 0, both with their nominal angles."""
    first, second, third = angle_rad.unbind(dim=-1)
    nominal = window.nominal_rad.to(angle_rad.dtype)
    opposite = wrap(nominal[:, 0] + first + math.pi - nominal[:, 1])
    return torch.stack([first, torch.where(window.legs, opposite, second), third], dim=-1)
