"""Which products of a node's state and a weight a batch's edges need, each once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor

from mycelium.model.relations import AttentionConfig


@dataclass(frozen=True, slots=True)
class EdgeList:
    """Edges of all relations, one after the other.

    Attributes:
        source, target: Packed nodes. [edge]
        relation: [edge]
        branch: Unit of the embedding's projection, -1 where there is none. [edge]
        sizes: Edges of every relation.
        n_nodes: Packed nodes.
    """

    source: Tensor
    target: Tensor
    relation: Tensor
    branch: Tensor
    sizes: tuple[int, ...]
    n_nodes: int

    @property
    def n_relations(self) -> int:
        return len(self.sizes)

    @staticmethod
    def of(config: AttentionConfig, counts: Mapping[str, int], edges: Mapping[str, Tensor]) -> EdgeList:
        first = dict(zip(config.nodes, accumulate((counts[node] for node in config.nodes), initial=0), strict=False))
        ends, branch, n_branch_units = [], [], 0
        for relation in config.relations:
            listed = edges[relation.kind].long()
            pair = listed.flip(0) if relation.reverse else listed
            ends.append(pair + pair.new_tensor([[first[relation.source]], [first[relation.target]]]))
            unit = torch.arange(pair.shape[1], device=pair.device)
            branch.append(unit + n_branch_units if relation.branch else torch.full_like(unit, -1))
            n_branch_units += pair.shape[1] if relation.branch else 0
        sizes = tuple(pair.shape[1] for pair in ends)
        source, target = torch.cat(ends, dim=1)
        relation_of = torch.arange(len(sizes), device=source.device).repeat_interleave(
            torch.tensor(sizes, device=source.device), output_size=sum(sizes)
        )
        n_nodes = sum(counts[node] for node in config.nodes)
        return EdgeList(source, target, relation_of, torch.cat(branch), sizes, n_nodes)


@dataclass(frozen=True, slots=True)
class Units:
    """Units of node states.

    Attributes:
        row: Packed node. [unit]
        sizes: Units of every role.
        value, key, query: Units of every edge; key and query are -1 where it is its destination's only one. [edge]
        segment: Place of (destination, relation) of every edge among all such pairs with an edge. [edge]
        segment_key: Destination times number of relations plus relation, ascending. [segment]
        segment_size: Edges. [segment]
    """

    row: Tensor
    sizes: tuple[int, ...]
    value: Tensor
    key: Tensor
    query: Tensor
    segment: Tensor
    segment_key: Tensor
    segment_size: Tensor

    @property
    def several(self) -> Tensor:
        """Edges with rivals: others of the same relation to the same destination. [edge]"""
        return self.query >= 0

    @staticmethod
    def of(flat: EdgeList) -> Units:
        segment_key, segment, segment_size = torch.unique(
            flat.target * flat.n_relations + flat.relation, return_inverse=True, return_counts=True
        )
        several = segment_size[segment] > 1
        base = flat.relation * flat.n_nodes
        query, query_unit = torch.unique((base + flat.target)[several], return_inverse=True)
        key, key_unit = torch.unique((base + flat.source)[several], return_inverse=True)
        value, value_unit = torch.unique(base + flat.source, return_inverse=True)
        keys = torch.cat([query, key + flat.n_relations * flat.n_nodes, value + 2 * flat.n_relations * flat.n_nodes])
        sizes = torch.bincount(keys // max(flat.n_nodes, 1), minlength=3 * flat.n_relations)
        query_of, key_of = torch.full_like(flat.source, -1), torch.full_like(flat.source, -1)
        query_of[several] = query_unit
        key_of[several] = key_unit + len(query)
        return Units(
            row=keys % max(flat.n_nodes, 1),
            sizes=tuple(sizes.tolist()),
            value=value_unit + len(query) + len(key),
            key=key_of,
            query=query_of,
            segment=segment,
            segment_key=segment_key,
            segment_size=segment_size,
        )
