"""What the readouts of all tasks share: their inputs, and the small networks that they are made of.

The paper names functions without saying what they are (f_G, f_SW, f_event, the scorers a). Each is the one network
whose form it does state, that of the heads: a linear map to width d, SiLU, a linear map. Only heads have dropout.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from mycelium.model.config import MyceliumConfig
from mycelium.model.fusion import Encoded
from mycelium.model.segments import graph_mean
from mycelium.window.columns import Store
from mycelium.window.window import Window


@dataclass(frozen=True, slots=True)
class Context:
    """What readouts see of a window.

    Attributes:
        nodes: Final states by kind. [hour, node, width]
        branches: Encoded branches by kind. [hour, branch, width]
        network: Feeder head, mean over buses, and substation, side by side. [hour, network, 3 width]
    """

    nodes: dict[str, Tensor]
    branches: dict[str, Tensor]
    network: Tensor

    @staticmethod
    def of(window: Window, encoded: Encoded, nodes: dict[str, Tensor]) -> Context:
        """From the encoded inputs and the final states."""
        means = [
            graph_mean(nodes[store], window.graph[store], window.n_graphs) for store in (Store.BUS, Store.SUBSTATION)
        ]
        return Context(nodes, encoded.branches, torch.cat([encoded.head, *means], dim=-1))


class ExactLinear(nn.Linear):
    """A linear map that autocast leaves in the precision of its weights: bf16 steps of a voltage are 0.4 %."""

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast(x.device.type, enabled=False):
            return functional.linear(x.to(self.weight.dtype), self.weight, self.bias)


def perceptron(config: MyceliumConfig, n_in: int, n_out: int, dropout: float = 0.0) -> nn.Sequential:
    """A linear map to width d, SiLU, dropout, and an exact linear map."""
    return nn.Sequential(
        nn.Linear(n_in, config.width), nn.SiLU(), nn.Dropout(dropout), ExactLinear(config.width, n_out)
    )


def head(config: MyceliumConfig, n_in: int, n_out: int) -> nn.Sequential:
    """The last part of a readout."""
    return perceptron(config, n_in, n_out, config.dropout)


def attended(score: Tensor, x: Tensor) -> Tensor:
    """Mean over hours, weighted by a softmax of scores.

    Args:
        score: [hour, row, 1]
        x: [hour, row, channel]

    Returns:
        [row, channel]
    """
    return (torch.softmax(score, dim=0) * x).sum(dim=0)
