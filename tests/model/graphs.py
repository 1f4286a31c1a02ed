"""Random heterogeneous graphs, and PyTorch Geometric's layer with the weights of ours."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import torch
from torch import Tensor

from mycelium.model.attention import RelationAttention
from mycelium.model.relations import AttentionConfig, DirectedRelation
from mycelium.window.columns import ENDS

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # it uses torch.jit.script when imported
    from torch_geometric.nn import HeteroConv, TransformerConv

EdgeType = tuple[str, str, str]


@dataclass
class Graph:
    """One batch.

    Attributes:
        counts: Nodes by kind.
        edges: End points by kind of edge, source to target. [2, edge]
    """

    counts: dict[str, int]
    edges: dict[str, Tensor]

    def states(self, config: AttentionConfig, steps: int, dtype: torch.dtype = torch.float32) -> dict[str, Tensor]:
        return {
            kind: torch.randn(steps, self.counts[kind], config.width, dtype=dtype, requires_grad=True)
            for kind in config.nodes
        }

    def branches(self, config: AttentionConfig, steps: int, dtype: torch.dtype = torch.float32) -> dict[str, Tensor]:
        return {
            kind: torch.randn(steps, self.edges[kind].shape[1], config.width, dtype=dtype, requires_grad=True)
            for kind in config.branches
        }


def random_graph(config: AttentionConfig, counts: dict[str, int], n_edges: dict[str, int]) -> Graph:
    """Edges between any two nodes: with multi-edges, self loops, hubs and isolated nodes."""
    edges = {}
    for kind in {relation.kind: None for relation in config.relations}:
        source, target = (str(end) for end in ENDS[kind])  # type: ignore[index]
        size = n_edges.get(kind, 0) if counts[source] and counts[target] else 0
        edges[kind] = torch.stack(
            [torch.randint(max(counts[end], 1), (size,), dtype=torch.int32) for end in (source, target)]
        )
    return Graph(counts, edges)


def union(parts: list[Graph], config: AttentionConfig) -> Graph:
    """Disjoint union."""
    counts = {kind: sum(part.counts[kind] for part in parts) for kind in config.nodes}
    edges = {}
    for relation in config.relations:
        if relation.reverse:
            continue
        shifted, offset = [], torch.zeros(2, 1, dtype=torch.int32)
        for part in parts:
            shifted.append(part.edges[relation.kind] + offset)
            offset = offset + torch.tensor([[part.counts[relation.source]], [part.counts[relation.target]]]).int()
        edges[relation.kind] = torch.cat(shifted, dim=1)
    return Graph(counts, edges)


def edge_type(relation: DirectedRelation) -> EdgeType:
    return relation.source, f"{'rev_' if relation.reverse else ''}{relation.kind}", relation.target


def edge_index(relation: DirectedRelation, graph: Graph, steps: int) -> Tensor:
    """Edges of all hours, as disjoint copies of the graph. [2, hour x edge]"""
    listed = graph.edges[relation.kind].long()
    pair = listed.flip(0) if relation.reverse else listed
    size = torch.tensor([[graph.counts[relation.source]], [graph.counts[relation.target]]])
    return torch.cat([pair + step * size for step in range(steps)], dim=1)


def literal_layer(layer: RelationAttention) -> HeteroConv:
    """PyTorch Geometric's HeteroConv of one TransformerConv per directed relation, with the same weights."""
    config = layer.config
    convolutions = {}
    for k, relation in enumerate(config.relations):
        conv = TransformerConv(
            (config.width, config.width),
            config.width // config.heads,
            heads=config.heads,
            root_weight=False,
            edge_dim=config.width if relation.branch else None,
        )
        with torch.no_grad():
            for group, part in enumerate((conv.lin_query, conv.lin_key, conv.lin_value)):
                part.weight.copy_(layer.weight[group, k])
                part.bias.copy_(layer.bias[group, k])
            if relation.branch:
                conv.lin_edge.weight.copy_(layer.branch_weight[config.branch_relations.index(k)])
        convolutions[edge_type(relation)] = conv
    return HeteroConv(convolutions, aggr="sum").to(layer.weight.dtype)


def run_literal(
    conv: HeteroConv, graph: Graph, config: AttentionConfig, nodes: dict[str, Tensor], branches: dict[str, Tensor]
) -> dict[str, Tensor]:
    """The literal layer's messages, 0 where a kind of node gets none. [hour, node, channel]"""
    steps = len(nodes[config.nodes[0]])
    flat = {kind: state.flatten(0, 1) for kind, state in nodes.items()}
    index = {edge_type(relation): edge_index(relation, graph, steps) for relation in config.relations}
    attributes = {
        edge_type(relation): branches[relation.kind].flatten(0, 1) for relation in config.relations if relation.branch
    }
    out = conv(flat, index, edge_attr_dict=attributes)
    return {kind: out.get(kind, torch.zeros_like(flat[kind])).view_as(nodes[kind]) for kind in config.nodes}


def literal_gradients(conv: HeteroConv, layer: RelationAttention) -> dict[str, Tensor]:
    """Gradients of the literal layer's weights, in the arrangement of ours; 0 where it has none."""
    config = layer.config
    result = {name: torch.zeros_like(value) for name, value in layer.named_parameters()}
    for k, relation in enumerate(config.relations):
        part = conv.convs[edge_type(relation)]
        for group, linear in enumerate((part.lin_query, part.lin_key, part.lin_value)):
            if linear.weight.grad is not None:
                result["weight"][group, k] = linear.weight.grad
                result["bias"][group, k] = linear.bias.grad
        if relation.branch and part.lin_edge.weight.grad is not None:
            result["branch_weight"][config.branch_relations.index(k)] = part.lin_edge.weight.grad
    return result
