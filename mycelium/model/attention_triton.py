"""Score, softmax and sum of relation-typed attention in one pass over the edges, on the GPU.

One program treats one destination (or source) at some hours: edges are the same at every hour, so all rows of its tile
go the same way. Hubs (more than LIMIT edges) have programs of their own, whose rows are edges at one hour instead.
Every output is written once, by one program, in a fixed order: results are the same bits in every run.

No ``tl.dot`` is used: sums are float32, whatever the inputs are. ``test_attention_fused.py`` checks kernels against the
index path in Triton's interpreter, and that they compile for a GPU; ``benchmarks/attention.py`` checks them on one.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language import constexpr

# Hours that a program treats together, edges that a program of a hub does, and warps of either.
TIMES, LANES = 8, 32
WARPS, WIDE_WARPS = 1, 4


@triton.jit
def _at(pointer, row, HEADS: constexpr, DIM: constexpr):
    """Addresses of rows of [row, head, channel]. row [tile] -> [tile, head, channel]"""
    head = tl.arange(0, HEADS)[None, :, None] * DIM
    return pointer + row.to(tl.int64)[:, None, None] * (HEADS * DIM) + head + tl.arange(0, DIM)[None, None, :]


@triton.jit
def _read(pointer, row, mask, HEADS: constexpr, DIM: constexpr):
    """Rows in float32, 0 where masked. [tile, head, channel]"""
    return tl.load(_at(pointer, row, HEADS, DIM), mask=mask[:, None, None], other=0.0).to(tl.float32)


@triton.jit
def _write(pointer, row, mask, value, HEADS: constexpr, DIM: constexpr):
    tl.store(_at(pointer, row, HEADS, DIM), value.to(pointer.dtype.element_ty), mask=mask[:, None, None])


@triton.jit
def _scalars(pointer, row, HEADS: constexpr):
    """Addresses of rows of [row, head]. row [tile] -> [tile, head]"""
    return pointer + row.to(tl.int64)[:, None] * HEADS + tl.arange(0, HEADS)[None, :]


@triton.jit
def _total(value, WIDE: constexpr):
    """In a hub's program, the sum over its lanes in every lane; else the value."""
    if WIDE:
        value = tl.broadcast_to(tl.sum(value, axis=0)[None], value.shape)
    return value


@triton.jit
def _mine(size, LIMIT: constexpr, WIDE: constexpr):
    """Whether so many edges are for programs of this kind."""
    if WIDE:
        return size > LIMIT
    return size <= LIMIT


@triton.jit
def _place(listed, steps, TILE: constexpr, WIDE: constexpr):
    """Which node (or source) a program treats, at which hours, with which lanes; rows that exist, and that write."""
    lane = tl.arange(0, TILE)
    if WIDE:
        place = tl.load(listed + tl.program_id(0))
        time = tl.zeros([TILE], tl.int32) + tl.program_id(1)
        there = lane < TILE
        writes = lane == 0
    else:
        place = tl.program_id(0)
        time = tl.program_id(1) * TILE + lane
        lane = lane * 0
        there = time < steps
        writes = there
    return place, time, lane, there, writes


# Sizes differ from batch to batch: no kernel is compiled anew for them.
_SIZES = ["steps", "n_nodes", "n_units", "n_branches", "n_queries"]


@triton.jit(do_not_specialize=_SIZES)
def attend_forward(
    unit, branch, out, lse,
    target_segments, segment_edges, segment_query, edge_value, edge_key, edge_branch, wide_targets,
    steps, n_nodes, n_units, n_branches, n_queries, scale,
    HEADS: constexpr, DIM: constexpr, TILE: constexpr, LIMIT: constexpr, WIDE: constexpr,
):  # fmt: skip
    """Messages summed over relations, and log-sum-exp of the scores of every query.

    Args:
        unit, branch: Projections. [time, unit, width], [time, branch unit, width]
        out: Written; hubs' programs add to it. [time, node, width]
        lse: Written. [time, query, head]
    """
    STEP: constexpr = TILE if WIDE else 1
    node, time, lane, there, writes = _place(wide_targets, steps, TILE, WIDE)
    total = tl.zeros([TILE, HEADS, DIM], tl.float32)
    for segment in range(tl.load(target_segments + node), tl.load(target_segments + node + 1)):
        start = tl.load(segment_edges + segment)
        end = tl.load(segment_edges + segment + 1)
        query = tl.load(segment_query + segment)
        if _mine(end - start, LIMIT, WIDE):
            if query < 0:  # a lone edge: its weight is 1
                total += _read(unit, time * n_units + tl.load(edge_value + start), there, HEADS, DIM)
                lone = tl.load(edge_branch + start)
                total += _read(branch, time * n_branches + lone, there & (lone >= 0), HEADS, DIM)
            else:
                q = _read(unit, time * n_units + query, there, HEADS, DIM) * scale
                high = tl.full([TILE, HEADS], float("-inf"), tl.float32)
                mass = tl.zeros([TILE, HEADS], tl.float32)
                mean = tl.zeros([TILE, HEADS, DIM], tl.float32)
                for first in range(start, end, STEP):
                    edge = first + lane
                    on = there & (edge < end)
                    edge_unit = tl.load(edge_branch + edge, mask=on, other=-1)
                    key = tl.load(edge_key + edge, mask=on, other=0)
                    value = tl.load(edge_value + edge, mask=on, other=0)
                    e = _read(branch, time * n_branches + edge_unit, edge_unit >= 0, HEADS, DIM)
                    k = _read(unit, time * n_units + key, on, HEADS, DIM) + e
                    v = _read(unit, time * n_units + value, on, HEADS, DIM) + e
                    score = tl.where(on[:, None], tl.sum(q * k, axis=2), float("-inf"))
                    top = tl.maximum(high, score)
                    base = tl.where(top == float("-inf"), 0.0, top)
                    weight = tl.exp(score - base)
                    keep = tl.exp(high - base)
                    mass = mass * keep + weight
                    mean = mean * keep[:, :, None] + weight[:, :, None] * v
                    high = top
                if WIDE:
                    top = tl.broadcast_to(tl.max(high, axis=0)[None], high.shape)
                    keep = tl.exp(high - top)
                    mass = _total(mass * keep, WIDE)
                    mean = _total(mean * keep[:, :, None], WIDE)
                    high = top
                mass = tl.where(there[:, None], mass, 1.0)
                total += mean / mass[:, :, None]
                row = time * n_queries + query
                tl.store(_scalars(lse, row, HEADS), high + tl.log(mass), mask=writes[:, None])
    row = time * n_nodes + node
    if WIDE:
        total += _read(out, row, there, HEADS, DIM)
    _write(out, row, writes, total, HEADS, DIM)


@triton.jit(do_not_specialize=_SIZES)
def attend_backward_targets(
    grad, unit, branch, lse, grad_unit, grad_branch, weights, slopes,
    target_segments, segment_edges, segment_query, edge_value, edge_key, edge_branch, edge_rival, wide_targets,
    steps, n_nodes, n_units, n_branches, n_queries, scale,
    HEADS: constexpr, DIM: constexpr, TILE: constexpr, LIMIT: constexpr, WIDE: constexpr,
):  # fmt: skip
    """Gradients of queries and of branches; for the sources, softmax weights and gradients of scores.

    Args:
        grad: Of the output. [time, node, width]
        grad_unit, grad_branch: Written: queries, and all branches. As ``unit`` and ``branch``.
        weights, slopes: Written. [edge with rivals, time, head]
    """
    STEP: constexpr = TILE if WIDE else 1
    node, time, lane, there, writes = _place(wide_targets, steps, TILE, WIDE)
    g = _read(grad, time * n_nodes + node, there, HEADS, DIM)
    for segment in range(tl.load(target_segments + node), tl.load(target_segments + node + 1)):
        start = tl.load(segment_edges + segment)
        end = tl.load(segment_edges + segment + 1)
        query = tl.load(segment_query + segment)
        if _mine(end - start, LIMIT, WIDE):
            if query < 0:
                lone = tl.load(edge_branch + start)
                _write(grad_branch, time * n_branches + lone, there & (lone >= 0), g, HEADS, DIM)
            else:
                q = _read(unit, time * n_units + query, there, HEADS, DIM) * scale
                row = time * n_queries + query
                norm = tl.load(_scalars(lse, row, HEADS), mask=there[:, None], other=0.0)
                mean = tl.zeros([TILE, HEADS], tl.float32)
                for first in range(start, end, STEP):
                    edge = first + lane
                    on = there & (edge < end)
                    edge_unit = tl.load(edge_branch + edge, mask=on, other=-1)
                    key = tl.load(edge_key + edge, mask=on, other=0)
                    value = tl.load(edge_value + edge, mask=on, other=0)
                    e = _read(branch, time * n_branches + edge_unit, edge_unit >= 0, HEADS, DIM)
                    k = _read(unit, time * n_units + key, on, HEADS, DIM) + e
                    v = _read(unit, time * n_units + value, on, HEADS, DIM) + e
                    score = tl.where(on[:, None], tl.sum(q * k, axis=2), float("-inf"))
                    weight = tl.exp(score - norm)
                    mean += weight * tl.sum(g * v, axis=2)
                mean = _total(mean, WIDE)
                grad_q = tl.zeros([TILE, HEADS, DIM], tl.float32)
                for first in range(start, end, STEP):  # what the first loop read is still in the cache
                    edge = first + lane
                    on = there & (edge < end)
                    edge_unit = tl.load(edge_branch + edge, mask=on, other=-1)
                    key = tl.load(edge_key + edge, mask=on, other=0)
                    value = tl.load(edge_value + edge, mask=on, other=0)
                    e = _read(branch, time * n_branches + edge_unit, edge_unit >= 0, HEADS, DIM)
                    k = _read(unit, time * n_units + key, on, HEADS, DIM) + e
                    v = _read(unit, time * n_units + value, on, HEADS, DIM) + e
                    score = tl.where(on[:, None], tl.sum(q * k, axis=2), float("-inf"))
                    weight = tl.exp(score - norm)
                    slope = weight * (tl.sum(g * v, axis=2) - mean)
                    grad_q += slope[:, :, None] * k
                    grad_e = weight[:, :, None] * g + slope[:, :, None] * q
                    _write(grad_branch, time * n_branches + edge_unit, edge_unit >= 0, grad_e, HEADS, DIM)
                    rival = tl.load(edge_rival + edge, mask=on, other=0)
                    tl.store(_scalars(weights, rival * steps + time, HEADS), weight, mask=on[:, None])
                    tl.store(_scalars(slopes, rival * steps + time, HEADS), slope, mask=on[:, None])
                grad_q = _total(grad_q, WIDE) * scale
                _write(grad_unit, time * n_units + query, writes, grad_q, HEADS, DIM)


@triton.jit(do_not_specialize=["steps", "n_nodes", "n_units", "first_value"])
def attend_backward_sources(
    grad, unit, weights, slopes, grad_unit,
    source_edges, source_key, out_target, out_query, out_rival, wide_sources,
    steps, n_nodes, n_units, first_value, scale,
    HEADS: constexpr, DIM: constexpr, TILE: constexpr, LIMIT: constexpr, WIDE: constexpr,
):  # fmt: skip
    """Gradients of values and keys: what all destinations of a source send back.

    Args:
        grad_unit: Written: values and keys.
        weights, slopes: Of edges with rivals; a lone edge has weight 1 and slope 0. [edge with rivals, time, head]
    """
    STEP: constexpr = TILE if WIDE else 1
    source, time, lane, there, writes = _place(wide_sources, steps, TILE, WIDE)
    start = tl.load(source_edges + source)
    end = tl.load(source_edges + source + 1)
    if _mine(end - start, LIMIT, WIDE):
        grad_v = tl.zeros([TILE, HEADS, DIM], tl.float32)
        grad_k = tl.zeros([TILE, HEADS, DIM], tl.float32)
        for first in range(start, end, STEP):
            edge = first + lane
            on = there & (edge < end)
            target = tl.load(out_target + edge, mask=on, other=0)
            rival = tl.load(out_rival + edge, mask=on, other=-1)
            query = tl.load(out_query + edge, mask=on, other=0)
            several = rival >= 0
            g = _read(grad, time * n_nodes + target, on, HEADS, DIM)
            row = rival * steps + time
            weight = tl.load(_scalars(weights, row, HEADS), mask=several[:, None], other=1.0)
            slope = tl.load(_scalars(slopes, row, HEADS), mask=several[:, None], other=0.0)
            q = _read(unit, time * n_units + query, several, HEADS, DIM)
            grad_v += weight[:, :, None] * g
            grad_k += slope[:, :, None] * q
        grad_v = _total(grad_v, WIDE)
        grad_k = _total(grad_k, WIDE) * scale
        _write(grad_unit, time * n_units + first_value + source, writes, grad_v, HEADS, DIM)
        key = tl.load(source_key + source)
        _write(grad_unit, time * n_units + key, writes & (key >= 0), grad_k, HEADS, DIM)
