"""Inputs of a window as states: nodes, branches and the feeder head, with transformer terminals fused into them.

A transformer is measured at its terminals. Their encodings are averaged into the bus that each is at, and into one
object per transformer, which joins the embeddings of the transformer's edges. Feeder-head readings enter the
substation's node, and by an encoder of their own the network's representation.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from mycelium.grid.position import N_DESCRIPTORS
from mycelium.model.config import MyceliumConfig
from mycelium.model.encoders import Encoder, PositionEncoder
from mycelium.model.segments import segment_mean
from mycelium.window.columns import BRANCHES, NODES, OBJECT, Relation, Store, static_columns, temporal_columns
from mycelium.window.window import Measured, Window


@dataclass(frozen=True, slots=True)
class Encoded:
    """A window as states.

    Attributes:
        nodes: By kind. [hour, node, width]
        branches: By kind. [hour, branch, width]
        head: Of each network's feeder head. [hour, network, width]
    """

    nodes: dict[str, Tensor]
    branches: dict[str, Tensor]
    head: Tensor


class Encoders(nn.Module):
    """One encoder per kind of node, branch and auxiliary store."""

    def __init__(self, config: MyceliumConfig) -> None:
        super().__init__()
        static, temporal = static_columns(config.window), temporal_columns(config.window)
        self._temporal = tuple(temporal)

        def encoder(store: Store, extra: int = 0) -> Encoder:
            return Encoder(len(static.get(store, ())) + extra, len(temporal.get(store, ())), config.width)

        self.position = PositionEncoder(N_DESCRIPTORS, config.position) if config.window.position else None
        self.node = nn.ModuleDict(
            {
                store.value: encoder(store, config.position * (self.position is not None and store is Store.BUS))
                for store in NODES
            }
        )
        self.branch = nn.ModuleDict({store.value: encoder(store) for store in BRANCHES})
        self._head = tuple(store for store in (Store.GRID, Store.POWER_FLOW) if store in temporal)
        self.head = Encoder(0, sum(len(temporal[store]) for store in self._head), config.width)
        extended = config.window.extended
        self.terminal = encoder(Store.TERMINAL) if extended else None
        self.to_bus = nn.Linear(config.width, config.width) if extended else None
        self.to_branch = nn.Linear(config.width, config.width) if extended else None

    def forward(self, window: Window) -> Encoded:
        nodes = {
            store.value: self.node[store.value](self._static(window, store), self._readings(window, store))
            for store in NODES
        }
        branches = {
            store.value: self.branch[store.value](window.static[store], self._readings(window, store))
            for store in BRANCHES
        }
        empty = window.base_v.new_zeros(window.n_graphs, 0)
        head = self.head(empty, [window.temporal[store] for store in self._head])
        if self.terminal is not None:
            self._fuse_terminals(window, nodes, branches)
        return Encoded(nodes, branches, head)

    def _static(self, window: Window, store: Store) -> Tensor:
        columns = window.static[store]
        if store is Store.BUS and self.position is not None:
            return torch.cat([columns, self.position(window.position)], dim=-1)
        return columns

    def _readings(self, window: Window, store: Store) -> list[Measured]:
        return [window.temporal[store]] if store in self._temporal else []

    def _fuse_terminals(self, window: Window, nodes: dict[str, Tensor], branches: dict[str, Tensor]) -> None:
        """Add what transformers measure at their terminals to buses and to transformer edges."""
        assert self.terminal is not None and self.to_bus is not None and self.to_branch is not None
        terminal = self.terminal(window.static[Store.TERMINAL], [window.temporal[Store.TERMINAL]])
        source, bus = window.edges[Relation.TERMINAL_BUS]
        at_bus = segment_mean(self.to_bus(terminal).index_select(1, source), bus, nodes[Store.BUS].shape[1])
        nodes[Store.BUS] = nodes[Store.BUS] + at_bus
        source, owner = window.edges[Relation.TERMINAL_OBJECT]
        objects = segment_mean(self.to_branch(terminal).index_select(1, source), owner, len(window.graph[OBJECT]))
        unit, edge = window.edges[Relation.OBJECT_EDGE]
        of_edge = torch.empty_like(unit)
        of_edge[edge] = unit
        branches[Store.TRANSFORMER] = branches[Store.TRANSFORMER] + objects.index_select(1, of_edge)
