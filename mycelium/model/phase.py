"""Phase attribution: what a customer, its bus and the network look like over the day, weighed hour by hour.

Hours without a reading of the customer's voltage take part: messages bring what others measured. Whether there is one
tells the scorer how far to trust the hour.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from mycelium.model.config import MyceliumConfig
from mycelium.model.readout import Context, attended, head, perceptron
from mycelium.window.columns import Relation, Store
from mycelium.window.window import Window

N_PHASES = 3


class PhaseReadout(nn.Module):
    """Logits of phases A, B, C of every customer."""

    def __init__(self, config: MyceliumConfig) -> None:
        super().__init__()
        self.linked = config.window.phase_head
        n_context = (4 if self.linked else 3) * config.width
        self.network = perceptron(config, 3 * config.width, config.width)
        self.score = perceptron(config, n_context + 1, 1)
        self.project = nn.Linear(n_context, config.width)
        self.head = head(config, config.width, N_PHASES)

    def forward(self, window: Window, context: Context) -> dict[str, Tensor]:
        """``phase`` of ``Estimates``."""
        x = self._context(window, context)
        seen = window.consumer_voltage_seen.to(x.dtype).unsqueeze(-1)
        # Weights sum to 1, so the mean of affine projections is the projection of the mean: once instead of 24 times.
        return {"phase": self.head(self.project(attended(self.score(torch.cat([x, seen], dim=-1)), x)))}

    def _context(self, window: Window, context: Context) -> Tensor:
        """Customer, attached bus, network, and with links the serving transformer's bus. [hour, consumer, channel]"""
        consumer, bus = context.nodes[Store.CONSUMER], context.nodes[Store.BUS]
        network = self.network(context.network).to(consumer.dtype)
        parts = [
            consumer,
            _linked(bus, window.edges[Relation.SERVICE], consumer.shape[1]),
            network.index_select(1, window.graph[Store.CONSUMER]),
        ]
        if self.linked:
            parts.append(_linked(bus, window.edges[Relation.PHASE_HEAD], consumer.shape[1]))
        return torch.cat(parts, dim=-1)


def _linked(bus: Tensor, edges: Tensor, n_consumers: int) -> Tensor:
    """State of the bus that each customer's edge leads to, 0 without one. [hour, consumer, channel]"""
    nowhere = bus.shape[1]
    place = torch.full((n_consumers,), nowhere, dtype=edges.dtype, device=edges.device)
    place[edges[0]] = edges[1]
    return functional.pad(bus, (0, 0, 0, 1)).index_select(1, place)
