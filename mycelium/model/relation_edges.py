"""Edges of a batch, compiled for attention: once, for all layers and all hours.

Node states of all kinds are *packed* side by side, [time, node, width], in the order of the configuration; so are
embeddings of branches, [time, branch, width]. A layer multiplies only rows that take part:

* *value* of every source of a relation, *branch* of every edge that has an embedding;
* *key* and *query* only where a destination has several incoming edges of one relation. The softmax over a single edge
  is 1 whatever its score, so neither is needed there, and their gradients are exactly zero. Feeders are nearly radial:
  this is the common case.

One such (row, weight) pair is a *unit*; units are sorted by weight (*role*), then by row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor

from mycelium.model.relation_tables import AttentionTables, ProjectionTables
from mycelium.model.relation_units import EdgeList, Units
from mycelium.model.relations import AttentionConfig
from mycelium.window.window import Movable


@dataclass(frozen=True)
class Messages(Movable):
    """Edges of one directed relation, by places among the relation's own units.

    Attributes:
        lone_value, lone_branch: Source and edge of messages that are a destination's only one. [lone]
        lone_target: Their packed destinations. [lone]
        value, key, query, branch: Source (twice), destination and edge of all others. [rival]
        target: Their packed destinations. [rival]
    """

    lone_value: Tensor
    lone_branch: Tensor
    lone_target: Tensor
    value: Tensor
    key: Tensor
    query: Tensor
    branch: Tensor
    target: Tensor


@dataclass(frozen=True)
class Projection(Movable):
    """Which packed rows are multiplied by which weights.

    Attributes:
        row: Packed row of every unit. [unit]
        sizes: Number of units of every role.
        tables: What fused kernels need; None on the index path.
    """

    row: Tensor
    sizes: tuple[int, ...]
    tables: ProjectionTables | None

    @staticmethod
    def of(row: Tensor, sizes: Sequence[int], n_rows: int, fused: bool) -> Projection:
        tables = ProjectionTables.of(row, sizes, n_rows) if fused else None
        return Projection(row.int(), tuple(sizes), tables)


@dataclass(frozen=True)
class RelationEdges(Movable):
    """Edges of a batch.

    Attributes:
        nodes: Projections of node states; role = 3 groups (query, key, value) of all relations.
        branches: Projections of branch embeddings; role = relation among those with embeddings.
        messages: By relation; empty where fused kernels run.
        tables: What fused kernels need; None on the index path.
    """

    nodes: Projection
    branches: Projection
    messages: tuple[Messages, ...]
    tables: AttentionTables | None

    @staticmethod
    def compile(
        config: AttentionConfig,
        counts: Mapping[str, int],
        edges: Mapping[str, Tensor],
        *,
        fused: bool | None = None,
    ) -> RelationEdges:
        """Compile edges, on the device where they are.

        Args:
            config: Of the layers that will use them.
            counts: Number of nodes of every kind.
            edges: End points by kind of edge, source to target. [2, edge]
            fused: For fused kernels, or else for the index path. By default, fused for CUDA.
        """
        flat = EdgeList.of(config, counts, edges)
        units = Units.of(flat)
        if fused is None:
            fused = flat.source.is_cuda
        branch_row, branch_sizes = _branch_units(config, edges, flat.source.device)
        n_branches = sum(edges[kind].shape[1] for kind in config.branches)
        return RelationEdges(
            Projection.of(units.row, units.sizes, flat.n_nodes, fused),
            Projection.of(branch_row, branch_sizes, n_branches, fused),
            () if fused else tuple(_messages(flat, units, relation) for relation in range(flat.n_relations)),
            AttentionTables.of(flat, units) if fused else None,
        )


def _branch_units(
    config: AttentionConfig, edges: Mapping[str, Tensor], device: torch.device
) -> tuple[Tensor, tuple[int, ...]]:
    """Packed branch of every unit, and units of every relation with embeddings."""
    sizes = {kind: edges[kind].shape[1] for kind in config.branches}
    first = dict(zip(sizes, accumulate(sizes.values(), initial=0), strict=False))
    kinds = [config.relations[k].kind for k in config.branch_relations]
    rows = [torch.arange(first[kind], first[kind] + sizes[kind], device=device) for kind in kinds]
    empty = torch.zeros(0, dtype=torch.long, device=device)
    return torch.cat([empty, *rows]), tuple(sizes[kind] for kind in kinds)


def _messages(flat: EdgeList, units: Units, relation: int) -> Messages:
    """Edges of one relation for the index path."""
    start = sum(flat.sizes[:relation])
    here = slice(start, start + flat.sizes[relation])
    first = list(accumulate(units.sizes, initial=0))
    query, key, value = (
        part[here] - first[group * flat.n_relations + relation]
        for group, part in enumerate((units.query, units.key, units.value))
    )
    several = units.several[here]
    edge = torch.arange(flat.sizes[relation], device=value.device)
    target = flat.target[here]
    lone = ~several
    return Messages(
        lone_value=value[lone].int(),
        lone_branch=edge[lone].int(),
        lone_target=target[lone].int(),
        value=value[several].int(),
        key=key[several].int(),
        query=query[several].int(),
        branch=edge[several].int(),
        target=target[several].int(),
    )
