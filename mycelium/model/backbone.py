"""The heterogeneous graph transformer: pre-norm layers of relation-typed attention and feed-forward parts.

Every layer treats every hour by itself; the hours stay apart until the readouts.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from mycelium.model.attention import RelationAttention
from mycelium.model.config import MyceliumConfig
from mycelium.model.pieces import States, in_pieces
from mycelium.model.relation_edges import RelationEdges
from mycelium.window.columns import NODES

KINDS = tuple(store.value for store in NODES)


class FeedForward(nn.Module):
    """LayerNorm, a linear map to more channels, GELU, and back, for one kind of node."""

    def __init__(self, config: MyceliumConfig) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(config.width)
        self.widen = nn.Linear(config.width, config.feedforward)
        self.narrow = nn.Linear(config.feedforward, config.width)
        self.dropout = config.dropout

    def forward(self, state: Tensor) -> Tensor:
        hidden = functional.dropout(functional.gelu(self.widen(self.norm(state))), self.dropout, self.training)
        return functional.dropout(self.narrow(hidden), self.dropout, self.training)


class Layer(nn.Module):
    """Attention and feed-forward part, each with its own normalisation before and one residual path around."""

    def __init__(self, config: MyceliumConfig) -> None:
        super().__init__()
        self.norm = nn.ModuleDict({kind: nn.LayerNorm(config.width) for kind in KINDS})
        self.attention = RelationAttention(config.attention)
        self.feedforward = nn.ModuleDict({kind: FeedForward(config) for kind in KINDS})
        self.dropout = config.dropout

    def forward(self, states: States, branches: Tensor, edges: RelationEdges) -> States:
        messages = self.attention({kind: self.norm[kind](state) for kind, state in states.items()}, branches, edges)
        result = {}
        for kind, state in states.items():
            updated = state + functional.dropout(messages[kind], self.dropout, self.training)
            result[kind] = updated + self.feedforward[kind](updated) if updated.numel() else updated
        return result


class Backbone(nn.Module):
    """All layers, and a last normalisation per kind of node.

    Attributes:
        recompute: Keep only states between layers for the backward pass, and compute the rest again: less memory, a
            third more work.
    """

    def __init__(self, config: MyceliumConfig) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Layer(config) for _ in range(config.layers)])
        self.norm = nn.ModuleDict({kind: nn.LayerNorm(config.width) for kind in KINDS})
        self.recompute = False

    def forward(self, states: States, branches: Tensor, edges: RelationEdges) -> States:
        """Spatially informed states. By kind. [hour, node, width]

        Args:
            states: By kind. [hour, node, width]
            branches: Embeddings of all branches, kinds side by side. [hour, branch, width]
            edges: Compiled for these.
        """
        return in_pieces(lambda states, branches: self._layers(states, branches, edges), states, branches)

    def _layers(self, states: States, branches: Tensor, edges: RelationEdges) -> States:
        for layer in self.layers:
            if self.recompute and torch.is_grad_enabled():
                states = _recomputed(layer, states, branches, edges)
            else:
                states = layer(states, branches, edges)
        return {kind: self.norm[kind](state) for kind, state in states.items()}


def _recomputed(layer: nn.Module, *inputs: Any) -> States:
    result: States = checkpoint(layer, *inputs, use_reentrant=False, preserve_rng_state=True)
    return result
