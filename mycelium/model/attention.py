"""Relation-typed attention: the operator of the backbone's layers.

Within one relation, a destination i weighs what its sources j send by a softmax over its incoming edges, for every head
and hour by itself, and the results of all relations are summed:

    score = q_i · (k_j + e_ij) / √(width of a head)        message = softmax(score) · (v_j + e_ij)

Query, key and value have weights and biases of their own in every relation, e_ij (of branches only) one weight shared
by key and value. There is no weight for the destination itself: the residual connection around the layer is that.

One path of code computes this on any device from index tables (``relation_edges``). On CUDA, fused kernels take over
score, softmax and sum (and, in half precision, the projections); they compute the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from mycelium.model.relation_edges import Messages, Projection, RelationEdges
from mycelium.model.relations import AttentionConfig

_MATRIX_UNIT = (16, 128)  # widths for which the fused projection is made


class RelationAttention(nn.Module):
    """The operator without its surroundings: no normalisation, dropout or residual.

    Attributes:
        weight, bias: Of queries, keys and values. [3, relation, out, in], [3, relation, out]
        branch_weight: Of branches, by relation among those with embeddings. [relation, out, in]
    """

    def __init__(self, config: AttentionConfig) -> None:
        super().__init__()
        self.config = config
        width, n_relations = config.width, len(config.relations)
        self.weight = nn.Parameter(torch.empty(3, n_relations, width, width))
        self.bias = nn.Parameter(torch.empty(3, n_relations, width))
        self.branch_weight = nn.Parameter(torch.empty(len(config.branch_relations), width, width))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """As ``nn.Linear`` draws: uniform within 1/√width."""
        bound = self.config.width**-0.5
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -bound, bound)

    def forward(self, nodes: Mapping[str, Tensor], branches: Tensor, edges: RelationEdges) -> dict[str, Tensor]:
        """Messages that reach every node, 0 where none do.

        Args:
            nodes: States by kind. [time, node, width]
            branches: Embeddings of the kinds of edges in ``config.branches``, side by side; a caller with several
                layers gives them in the precision in which it computes. [time, branch, width]
            edges: Compiled with the same configuration.

        Returns:
            By kind of node. [time, node, width]
        """
        states = [nodes[kind] for kind in self.config.nodes]
        dtype = precision(states[0])
        x = _Pack.apply(dtype, *states)  # type: ignore[no-untyped-call]
        out = (self._by_index if edges.tables is None else self._fused)(x, branches.to(dtype), edges)
        parts = out.split([state.shape[1] for state in states], dim=1)
        return dict(zip(self.config.nodes, parts, strict=True))

    # ---- fused kernels -----------------------------------------------------------------------------------------------

    def _fused(self, x: Tensor, branches: Tensor, edges: RelationEdges) -> Tensor:
        from mycelium.model.attention_fused import attend  # needs Triton, which is where CUDA is

        assert edges.tables is not None
        weight, bias, branch_weight = self._parameters_in(x.dtype)
        unit = _project_fused(x, weight, bias, edges.nodes)
        branch = _project_fused(branches, branch_weight, None, edges.branches)
        out: Tensor = attend(unit, branch, edges.tables.tensors, self.config.heads, *edges.tables.sizes)[0]
        return out

    # ---- index path --------------------------------------------------------------------------------------------------

    def _by_index(self, x: Tensor, branches: Tensor, edges: RelationEdges) -> Tensor:
        weight, bias, branch_weight = self._parameters_in(x.dtype)
        units = _project(x, weight, bias, edges.nodes)
        branch = dict(
            zip(
                self.config.branch_relations,
                _project(branches, branch_weight, None, edges.branches),
                strict=True,
            )
        )
        exact = torch.promote_types(x.dtype, torch.float32)
        out = torch.zeros_like(x, dtype=exact)
        n_relations = len(self.config.relations)
        for k, messages in enumerate(edges.messages):
            query, key, value = units[k::n_relations]
            _add_messages(out, query, key, value, branch.get(k), messages, self.config.heads)
        return out.to(x.dtype)

    def _parameters_in(self, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
        """Weights and biases of node states by role, and weights of branches."""
        return self.weight.flatten(0, 1).to(dtype), self.bias.flatten(0, 1).to(dtype), self.branch_weight.to(dtype)


def precision(states: Tensor) -> torch.dtype:
    """Of matrix products: autocast's where it is on."""
    kind = states.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else states.dtype


def _project_fused(x: Tensor, weight: Tensor, bias: Tensor | None, projection: Projection) -> Tensor:
    """All units of a projection. [time, unit, width]"""
    from mycelium.model.attention_fused import project

    assert projection.tables is not None
    least, most = _MATRIX_UNIT
    if x.dtype.itemsize == 2 and least <= x.shape[-1] <= most:
        result: Tensor = project(x.contiguous(), weight, bias, projection.row, projection.tables.tensors)
        return result
    return torch.cat([x[:, :0], *_project(x, weight, bias, projection)], dim=1)


def _project(x: Tensor, weight: Tensor, bias: Tensor | None, projection: Projection) -> tuple[Tensor, ...]:
    """Units of every role. [time, unit, width]"""
    result: tuple[Tensor, ...] = _Project.apply(x, weight, bias, projection)  # type: ignore[no-untyped-call]
    return result


def _add_messages(
    out: Tensor, query: Tensor, key: Tensor, value: Tensor, branch: Tensor | None, messages: Messages, heads: int
) -> None:
    """Add what one relation sends to its destinations.

    Args:
        out: Added to. [time, node, width]
        query, key, value: Units of the relation. [time, unit, width]
        branch: Of all its edges. [time, edge, width]
        messages: Its edges.
        heads: Attention heads.
    """
    lone = value.index_select(1, messages.lone_value).to(out.dtype)
    if branch is not None:
        lone = lone + branch.index_select(1, messages.lone_branch)
    out.index_add_(1, messages.lone_target, lone)
    if not messages.value.numel():
        return
    keys = key.index_select(1, messages.key).to(out.dtype)
    values = value.index_select(1, messages.value).to(out.dtype)
    if branch is not None:
        embedding = branch.index_select(1, messages.branch)
        keys, values = keys + embedding, values + embedding
    by_head = (heads, out.shape[-1] // heads)
    product = query.index_select(1, messages.query).to(out.dtype) * keys
    score = product.unflatten(-1, by_head).sum(-1) * by_head[1] ** -0.5
    weight = _softmax(score, messages.query, query.shape[1])
    out.index_add_(1, messages.target, (values.unflatten(-1, by_head) * weight.unsqueeze(-1)).flatten(-2))


def _softmax(score: Tensor, group: Tensor, n_groups: int) -> Tensor:
    """Softmax within groups of edges. score [time, edge, head], group [edge]"""
    high = score.new_full((score.shape[0], n_groups, score.shape[2]), -torch.inf)
    places = group.long()[None, :, None].expand_as(score)
    high = high.scatter_reduce(1, places, score.detach(), "amax")
    weight = (score - high.index_select(1, group)).exp()
    total = torch.zeros_like(high).index_add(1, group, weight)
    return weight / total.index_select(1, group)


class _Pack(torch.autograd.Function):
    """States of all kinds side by side, in one precision, in one pass."""

    @staticmethod
    def forward(ctx: Any, dtype: torch.dtype, *states: Tensor) -> Tensor:
        ctx.of = [(state.shape[1], state.dtype) for state in states]
        steps, _, width = states[0].shape
        packed = states[0].new_empty(steps, sum(size for size, _ in ctx.of), width, dtype=dtype)
        for part, state in zip(packed.split([size for size, _ in ctx.of], dim=1), states, strict=True):
            part.copy_(state)
        return packed

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        parts = grad.split([size for size, _ in ctx.of], dim=1)
        return None, *(part.to(dtype) for part, (_, dtype) in zip(parts, ctx.of, strict=True))


class _Project(torch.autograd.Function):
    """Linear maps of chosen rows, role by role; rows are gathered again for the backward pass rather than kept."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, projection: Projection) -> tuple[Tensor, ...]:
        ctx.save_for_backward(x, weight, projection.row)
        ctx.sizes, ctx.biased = projection.sizes, bias is not None
        rows = projection.row.split(projection.sizes)
        return tuple(
            functional.linear(x.index_select(1, row), weight[role], None if bias is None else bias[role])
            for role, row in enumerate(rows)
        )

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, row = ctx.saved_tensors
        grad_x, grad_weight = torch.zeros_like(x), torch.zeros_like(weight)
        grad_bias = weight.new_zeros(weight.shape[:2]) if ctx.biased else None
        for role, (rows, grad) in enumerate(zip(row.split(ctx.sizes), grads, strict=True)):
            if not rows.numel():
                continue
            flat = grad.reshape(-1, grad.shape[-1])
            grad_x.index_add_(1, rows, grad @ weight[role])
            torch.mm(flat.T, x.index_select(1, rows).flatten(0, 1), out=grad_weight[role])
            if grad_bias is not None:
                torch.sum(flat, dim=0, out=grad_bias[role])
        return grad_x, grad_weight, grad_bias, None
