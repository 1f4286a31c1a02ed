"""Fused kernels as operators that autograd and ``torch.compile`` know. Imported where CUDA is: it needs Triton."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from mycelium.model import attention_triton as attention
from mycelium.model import projection_triton as projection
from mycelium.model.relation_tables import BLOCK, LIMIT


def _blocks(size: int, step: int) -> int:
    return (size + step - 1) // step


# ---- projections -------------------------------------------------------------------------------------------------


@torch.library.custom_op("mycelium::project", mutates_args=())
def project(x: Tensor, weight: Tensor, bias: Tensor | None, row: Tensor, tables: list[Tensor]) -> Tensor:
    """Rows times weights, plus biases.

    Args:
        x: Contiguous, in half precision. [time, row, width]
        weight, bias: [role, out, in], [role, out]
        row: Row of every unit. [unit]
        tables: ``ProjectionTables.tensors``.

    Returns:
        [time, unit, width]
    """
    order, block_pairs, pair_role, pair_unit = tables[:4]
    steps, n_rows, width = x.shape
    y = x.new_empty(steps, len(row), width)
    grid = (len(block_pairs) - 1, _blocks(steps, projection.TIMES))
    if len(row):
        with torch.cuda.device_of(x):
            projection.project_forward[grid](
                x, weight, weight if bias is None else bias, y, order, block_pairs, pair_role, pair_unit,
                steps, n_rows, len(row),
                WIDTH=width, BLOCK=BLOCK, TIMES=projection.TIMES, BIAS=bias is not None,
                num_warps=projection.WARPS, num_stages=projection.STAGES,
            )  # fmt: skip
    return y


@torch.library.custom_op("mycelium::project_backward", mutates_args=())
def project_backward(
    grad: Tensor, x: Tensor, weight: Tensor, row: Tensor, tables: list[Tensor]
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of rows, weights and biases; the latter two in float32."""
    order, block_pairs, pair_role, pair_unit, chunks, role_chunks = tables
    steps, n_rows, width = x.shape
    grad_x = torch.empty_like(x)
    partial = x.new_empty(len(chunks), width + 1, width, dtype=torch.float32)
    total = x.new_zeros(len(weight), width + 1, width, dtype=torch.float32)
    size = (width + 1) * width
    with torch.cuda.device_of(x):
        if n_rows:
            projection.project_backward_rows[(len(block_pairs) - 1, _blocks(steps, projection.TIMES))](
                grad, weight, grad_x, order, block_pairs, pair_role, pair_unit, steps, n_rows, len(row),
                WIDTH=width, BLOCK=BLOCK, TIMES=projection.TIMES,
                num_warps=projection.WARPS, num_stages=projection.STAGES,
            )  # fmt: skip
        if len(chunks):
            projection.project_backward_weights[(len(chunks),)](
                grad, x, partial, row, chunks, steps, n_rows, len(row),
                WIDTH=width, PART=projection.PART, num_warps=projection.WARPS, num_stages=projection.STAGES,
            )  # fmt: skip
            projection.add_chunks[(len(weight), _blocks(size, projection.REDUCE))](
                partial, total, role_chunks, SIZE=size, BLOCK=projection.REDUCE, PARTS=8,
            )  # fmt: skip
    return grad_x, total[:, :width].clone(), total[:, width].clone()


@project.register_fake
def _(x: Tensor, weight: Tensor, bias: Tensor | None, row: Tensor, tables: list[Tensor]) -> Tensor:
    return x.new_empty(x.shape[0], row.shape[0], x.shape[2])


@project_backward.register_fake
def _(grad: Tensor, x: Tensor, weight: Tensor, row: Tensor, tables: list[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    sums = torch.float32
    return torch.empty_like(x), torch.empty_like(weight, dtype=sums), weight.new_empty(weight.shape[:2], dtype=sums)


def _keep_projection(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, weight, bias, row, tables = inputs
    ctx.biased = bias is not None
    ctx.save_for_backward(x, weight, row, *tables)


def _return_projection(ctx: Any, grad: Tensor) -> tuple[Tensor | list[None] | None, ...]:
    x, weight, row, *tables = ctx.saved_tensors
    grad_x, grad_weight, grad_bias = project_backward(grad.contiguous(), x, weight, row, tables)
    biased = grad_bias.to(weight.dtype) if ctx.biased else None
    return grad_x, grad_weight.to(weight.dtype), biased, None, [None] * len(tables)


project.register_autograd(_return_projection, setup_context=_keep_projection)


# ---- attention ---------------------------------------------------------------------------------------------------


@torch.library.custom_op("mycelium::attend", mutates_args=())
def attend(
    unit: Tensor, branch: Tensor, tables: list[Tensor], heads: int, first_value: int, n_queries: int, n_rivals: int
) -> tuple[Tensor, Tensor]:
    """Messages, weighted and summed.

    Args:
        unit, branch: Projections, contiguous. [time, unit, width], [time, branch unit, width]
        tables: ``AttentionTables.tensors``.
        heads: Attention heads.
        first_value, n_queries, n_rivals: ``AttentionTables.sizes``.

    Returns:
        Messages [time, node, width]; log-sum-exp of scores [time, query, head].
    """
    steps, n_units, width = unit.shape
    n_nodes = len(tables[0]) - 1
    out = unit.new_empty(steps, n_nodes, width)
    lse = unit.new_empty(steps, n_queries, heads, dtype=torch.float32)
    sizes = (steps, n_nodes, n_units, branch.shape[1], n_queries, (width // heads) ** -0.5)
    listed = (*tables[:6], tables[7])
    with torch.cuda.device_of(unit):
        for wide, grid, options in _launches(n_nodes, tables[7], steps):
            attention.attend_forward[grid](
                unit, branch, out, lse, *listed, *sizes, HEADS=heads, DIM=width // heads, WIDE=wide, **options
            )
    return out, lse


@torch.library.custom_op("mycelium::attend_backward", mutates_args=())
def attend_backward(
    grad: Tensor, unit: Tensor, branch: Tensor, lse: Tensor, tables: list[Tensor], first_value: int, n_rivals: int
) -> tuple[Tensor, Tensor]:
    """Gradients of both projections."""
    steps, n_units, width = unit.shape
    n_queries, heads = lse.shape[1:]
    n_nodes, scale = len(tables[0]) - 1, (width // heads) ** -0.5
    grad_unit, grad_branch = torch.empty_like(unit), torch.empty_like(branch)
    weights, slopes = lse.new_empty(2, n_rivals, steps, heads)
    sizes = (steps, n_nodes, n_units, branch.shape[1], n_queries, scale)
    with torch.cuda.device_of(unit):
        for wide, grid, options in _launches(n_nodes, tables[7], steps):
            attention.attend_backward_targets[grid](
                grad, unit, branch, lse, grad_unit, grad_branch, weights, slopes, *tables[:8], *sizes,
                HEADS=heads, DIM=width // heads, WIDE=wide, **options,
            )  # fmt: skip
        for wide, grid, options in _launches(len(tables[8]) - 1, tables[13], steps):
            attention.attend_backward_sources[grid](
                grad, unit, weights, slopes, grad_unit, *tables[8:],
                steps, n_nodes, n_units, first_value, scale,
                HEADS=heads, DIM=width // heads, WIDE=wide, **options,
            )  # fmt: skip
    return grad_unit, grad_branch


def _launches(size: int, wide: Tensor, steps: int) -> Iterator[tuple[bool, tuple[int, int], dict[str, int]]]:
    """For all nodes (or sources), then for hubs among them: whether wide, grid, and options."""
    if size:
        grid = (size, _blocks(steps, attention.TIMES))
        yield False, grid, {"TILE": attention.TIMES, "LIMIT": LIMIT, "num_warps": attention.WARPS}
    if len(wide):
        options = {"TILE": attention.LANES, "LIMIT": LIMIT, "num_warps": attention.WIDE_WARPS}
        yield True, (len(wide), steps), options


@attend.register_fake
def _(
    unit: Tensor, branch: Tensor, tables: list[Tensor], heads: int, first_value: int, n_queries: int, n_rivals: int
) -> tuple[Tensor, Tensor]:
    steps, _, width = unit.shape
    out = unit.new_empty(steps, tables[0].shape[0] - 1, width)
    return out, unit.new_empty(steps, n_queries, heads, dtype=torch.float32)


@attend_backward.register_fake
def _(
    grad: Tensor, unit: Tensor, branch: Tensor, lse: Tensor, tables: list[Tensor], first_value: int, n_rivals: int
) -> tuple[Tensor, Tensor]:
    return torch.empty_like(unit), torch.empty_like(branch)


def _keep_attention(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    unit, branch, tables, _, ctx.first_value, _, ctx.n_rivals = inputs
    ctx.save_for_backward(unit, branch, output[1], *tables)


def _return_attention(ctx: Any, grad: Tensor, _: Tensor | None) -> tuple[Tensor | list[None] | None, ...]:
    unit, branch, lse, *tables = ctx.saved_tensors
    grads = attend_backward(grad.contiguous(), unit, branch, lse, tables, ctx.first_value, ctx.n_rivals)
    return *grads, [None] * len(tables), None, None, None, None


attend.register_autograd(_return_attention, setup_context=_keep_attention)
