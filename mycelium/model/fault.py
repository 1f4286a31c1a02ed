"""Fault diagnosis: the last hour against the hours before it, for every candidate and for the network.

Candidates are all buses, lines and transformers. One scorer ranks them together; the classifier takes the network and
the strongest evidence of any candidate, channel by channel.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from mycelium.model.config import MyceliumConfig
from mycelium.model.readout import Context, attended, head, perceptron
from mycelium.model.segments import segment_max
from mycelium.schema import HOURS, FaultType
from mycelium.window.columns import Relation, Store, static_columns
from mycelium.window.window import Window

N_CLASSES = 1 + len(FaultType)  # normal, and the types


class EventReadout(nn.Module):
    """R(x): the last hour x_T beside an attended history r, their difference, and its size, made into one vector.

    Attributes:
        position: Embedding of every hour before the last, for the scorer only. [hour, width]
    """

    def __init__(self, config: MyceliumConfig) -> None:
        super().__init__()
        self.position = nn.Parameter(0.02 * torch.randn(HOURS - 1, config.width))
        self.score = perceptron(config, config.width, 1)
        self.event = perceptron(config, 4 * config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        """[hour, row, width] -> [row, width]"""
        history, last = x[:-1], x[-1]
        before = attended(self.score(history + self.position.to(x.dtype).unsqueeze(1)), history)
        change = last - before
        event: Tensor = self.event(torch.cat([last, before, change, change.abs()], dim=-1))
        return event


class FaultNetwork(nn.Module):
    """The network hour by hour, with summaries of the whole window at the last hour, where a fault is."""

    def __init__(self, config: MyceliumConfig) -> None:
        super().__init__()
        self.sizes = (3 * config.width, len(static_columns(config.window)[Store.SUMMARY]))
        self.first = nn.Linear(sum(self.sizes), config.width)
        self.second = nn.Linear(config.width, config.width)

    def forward(self, network: Tensor, summary: Tensor) -> Tensor:
        """network [hour, network, channel], summary [network, column] -> [hour, network, width]"""
        at_last = functional.pad(summary.to(network.dtype).unsqueeze(0), (0, 0, 0, 0, len(network) - 1, 0))
        sequence: Tensor = self.second(functional.silu(self.first(torch.cat([network, at_last], dim=-1))))
        return sequence


class FaultReadout(nn.Module):
    """Fault class of every network and score of every candidate."""

    def __init__(self, config: MyceliumConfig) -> None:
        super().__init__()
        self.edge = nn.Linear(3 * config.width, config.width)
        self.candidate = EventReadout(config)
        self.network = FaultNetwork(config)
        self.graph = EventReadout(config)
        self.locate = head(config, 2 * config.width, 1)
        self.classify = head(config, 2 * config.width, N_CLASSES)

    def forward(self, window: Window, context: Context) -> dict[str, Tensor]:
        """``fault`` and ``location`` of ``Estimates``."""
        graph = window.candidate_graph
        candidate = self.candidate(self._candidates(window, context))
        network = self.graph(self.network(context.network, window.static[Store.SUMMARY]))
        location = self.locate(torch.cat([candidate, network.index_select(0, graph)], dim=-1))[:, 0]
        evidence = segment_max(candidate, graph, window.n_graphs)
        return {"fault": self.classify(torch.cat([network, evidence], dim=-1)), "location": location}

    def _candidates(self, window: Window, context: Context) -> Tensor:
        """Sequences of all buses, then all lines, then all transformers. [hour, candidate, width]"""
        bus = context.nodes[Store.BUS]
        of_first, of_second, of_branch = self.edge.weight.chunk(3, dim=1)
        # The affine map of [h_i, h_j, e_ij] by its parts: buses are projected before edges gather them.
        ends = [functional.linear(bus, of_first, self.edge.bias), functional.linear(bus, of_second)]
        unit = window.transformer_edge
        edges = {
            Store.LINE: (window.edges[Relation.LINE], context.branches[Store.LINE]),
            Store.TRANSFORMER: (
                window.edges[Relation.TRANSFORMER].index_select(1, unit),
                context.branches[Store.TRANSFORMER].index_select(1, unit),
            ),
        }
        parts = [bus]
        for (first, second), branch in edges.values():
            projected = functional.linear(branch, of_branch)
            parts.append(ends[0].index_select(1, first) + ends[1].index_select(1, second) + projected)
        return torch.cat([part.to(bus.dtype) for part in parts], dim=1)
