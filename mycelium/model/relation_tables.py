"""Index tables of the fused kernels. All are int32 and hold for any number of hours: kernels add the hour's offset.

A *segment* is a (destination, relation) pair with at least one edge. Destinations own consecutive segments, segments
consecutive edges, so that one program sums all that reaches a destination and writes it once, in a fixed order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor

from mycelium.model.relation_units import EdgeList, Units
from mycelium.window.window import Movable

BLOCK = 32  # rows that a program of the fused projection treats together, for some hours each
CHUNK = 128  # units whose share of a weight's gradient one program sums
LIMIT = 16  # most edges that a program runs through one by one; hubs get a program per hour that takes many at once


@dataclass(frozen=True)
class ProjectionTables(Movable):
    """Rows sorted so that neighbours are multiplied by the same weights.

    Attributes:
        order: Packed rows, those with the same roles together. [row]
        block_pairs: First (block, role) pair of every block of rows, one more at the end. [block + 1]
        pair_role: [pair]
        pair_unit: Unit of every row of the pair's block, -1 where it has none in this role. [pair, BLOCK]
        chunks: Role, first and last (exclusive) unit of every chunk; no chunk spans roles. [chunk, 3]
        role_chunks: First chunk of every role, one more at the end. [role + 1]
    """

    order: Tensor
    block_pairs: Tensor
    pair_role: Tensor
    pair_unit: Tensor
    chunks: Tensor
    role_chunks: Tensor

    @property
    def tensors(self) -> list[Tensor]:
        return [self.order, self.block_pairs, self.pair_role, self.pair_unit, self.chunks, self.role_chunks]

    @staticmethod
    def of(row: Tensor, sizes: Sequence[int], n_rows: int) -> ProjectionTables:
        """Tables of units sorted by role, ``sizes`` of each."""
        device = row.device
        n_roles = max(len(sizes), 1)
        role = torch.arange(len(sizes), device=device).repeat_interleave(
            torch.tensor(sizes, dtype=torch.long, device=device), output_size=len(row)
        )
        # Which roles a row has, as bits: rows with the same ones become neighbours. More than 62 roles share bits.
        roles = torch.zeros(n_rows, dtype=torch.long, device=device).index_add_(0, row, 1 << (role % 62))
        order = torch.argsort(roles, stable=True)
        place = torch.empty_like(order)
        place[order] = torch.arange(n_rows, device=device)
        place = place[row]
        pair, pair_of_unit = torch.unique(place // BLOCK * n_roles + role, return_inverse=True)
        pair_unit = torch.full((len(pair), BLOCK), -1, device=device)
        pair_unit[pair_of_unit, place % BLOCK] = torch.arange(len(row), device=device)
        block = torch.arange((n_rows + BLOCK - 1) // BLOCK + 1, device=device)
        chunks, role_chunks = _chunks(sizes)
        return ProjectionTables(
            order.int(),
            torch.searchsorted(pair // n_roles, block).int(),
            (pair % n_roles).int(),
            pair_unit.int(),
            chunks.to(device),
            role_chunks.to(device),
        )


def _chunks(sizes: Sequence[int]) -> tuple[Tensor, Tensor]:
    chunks: list[tuple[int, int, int]] = []
    role_chunks = [0]
    for role, (size, start) in enumerate(zip(sizes, accumulate(sizes, initial=0), strict=False)):
        chunks += [(role, start + k, start + min(k + CHUNK, size)) for k in range(0, size, CHUNK)]
        role_chunks.append(len(chunks))
    return torch.tensor(chunks, dtype=torch.int32).view(-1, 3), torch.tensor(role_chunks, dtype=torch.int32)


@dataclass(frozen=True)
class AttentionTables(Movable):
    """Edges by destination, and by source.

    Attributes:
        target_segments: First segment of every packed node, one more at the end. [node + 1]
        segment_edges: First edge of every segment, one more at the end. [segment + 1]
        segment_query: Unit of the query, -1 of a lone edge. [segment]
        edge_value, edge_key, edge_branch: Units of every edge, -1 where there is none. [edge]
        edge_rival: Place among edges with rivals, -1 of a lone edge. [edge]
        wide_targets: Packed nodes that have a segment of more than LIMIT edges. [wide target]
        source_edges: First outgoing edge of every unit of values, one more at the end. [value + 1]
        source_key: Unit of the same source's key in the same relation, -1 where there is none. [value]
        out_target: Packed destination of every outgoing edge. [edge]
        out_query, out_rival: As ``segment_query`` and ``edge_rival``. [edge]
        wide_sources: Values that more than LIMIT edges carry away. [wide source]
        first_value: Unit of the first value; values are last among units.
        n_queries: Number of queries; queries are first among units.
        n_rivals: Number of edges with rivals.
    """

    target_segments: Tensor
    segment_edges: Tensor
    segment_query: Tensor
    edge_value: Tensor
    edge_key: Tensor
    edge_branch: Tensor
    edge_rival: Tensor
    wide_targets: Tensor
    source_edges: Tensor
    source_key: Tensor
    out_target: Tensor
    out_query: Tensor
    out_rival: Tensor
    wide_sources: Tensor
    first_value: int
    n_queries: int
    n_rivals: int

    @property
    def tensors(self) -> list[Tensor]:
        return [
            self.target_segments, self.segment_edges, self.segment_query, self.edge_value, self.edge_key,
            self.edge_branch, self.edge_rival, self.wide_targets, self.source_edges, self.source_key, self.out_target,
            self.out_query, self.out_rival, self.wide_sources,
        ]  # fmt: skip

    @property
    def sizes(self) -> list[int]:
        return [self.first_value, self.n_queries, self.n_rivals]

    @staticmethod
    def of(edges: EdgeList, units: Units) -> AttentionTables:
        n_queries = sum(units.sizes[: edges.n_relations])
        first_value = sum(units.sizes[: 2 * edges.n_relations])
        value = units.value - first_value
        inward = torch.argsort(units.segment, stable=True)
        outward = torch.argsort(value, stable=True)
        rival = torch.full_like(value, -1)
        several = units.several
        rival[several] = (torch.cumsum(several, 0) - 1)[several]
        query = torch.full_like(units.segment_size, -1)
        query[units.segment] = units.query  # the same of all edges of a segment
        n_values = len(units.row) - first_value
        source_key = value.new_full((n_values,), -1).scatter_reduce(0, value, units.key, "amax")
        nodes = torch.arange(edges.n_nodes + 1, device=value.device)
        target_segments = torch.searchsorted(units.segment_key // max(edges.n_relations, 1), nodes)
        fanout = torch.bincount(value, minlength=n_values)
        wide_segments = units.segment_key[units.segment_size > LIMIT] // max(edges.n_relations, 1)
        return AttentionTables(
            target_segments=target_segments.int(),
            segment_edges=_ends(units.segment_size).int(),
            segment_query=query.int(),
            edge_value=units.value[inward].int(),
            edge_key=units.key[inward].int(),
            edge_branch=edges.branch[inward].int(),
            edge_rival=rival[inward].int(),
            wide_targets=torch.unique(wide_segments).int(),
            source_edges=_ends(fanout).int(),
            source_key=source_key.int(),
            out_target=edges.target[outward].int(),
            out_query=units.query[outward].int(),
            out_rival=rival[outward].int(),
            wide_sources=torch.nonzero(fanout > LIMIT)[:, 0].int(),
            first_value=first_value,
            n_queries=n_queries,
            n_rivals=int(several.sum()),
        )


def _ends(sizes: Tensor) -> Tensor:
    """Running total of sizes, from 0."""
    return torch.cat([sizes.new_zeros(1), torch.cumsum(sizes, 0)])
