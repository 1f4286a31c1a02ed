"""Products of chosen rows and chosen weights, gathered, multiplied and put in place by one kernel for all roles.

Rows are sorted so that those of a block are multiplied by the same weights (``relation_tables``). A program holds a
block of rows at some hours, runs through the block's roles, and reads or writes every row of the states once.
Half precision in, float32 sums. Float32 is left to cuBLAS: without tensor cores, it is faster at that.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language import constexpr

TIMES = 4  # hours of a program's rows; with BLOCK rows at each, a tile of the matrix unit
PART = 64  # rows that enter a weight's gradient at a time
WARPS, STAGES = 8, 3
REDUCE = 1024


_SIZES = ["steps", "n_rows", "n_units"]  # differ from batch to batch: no kernel is compiled anew for them


@triton.jit
def _address(pointer, row, WIDTH: constexpr):
    """Addresses of rows. row [tile] -> [tile, channel]"""
    return pointer + row.to(tl.int64)[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :]


@triton.jit
def _rows(order, n_rows, steps, BLOCK: constexpr, TIMES: constexpr):
    """Place in the block, hour and packed row of every row of a program's tile, and whether it exists. [tile]"""
    tile = tl.arange(0, BLOCK * TIMES)
    place = tile % BLOCK
    time = tl.program_id(1) * TIMES + tile // BLOCK
    there = (tl.program_id(0) * BLOCK + place < n_rows) & (time < steps)
    row = tl.load(order + tl.program_id(0) * BLOCK + place, mask=there, other=0)
    return place, time, row, there


@triton.jit(do_not_specialize=_SIZES)
def project_forward(
    x, weight, bias, y, order, block_pairs, pair_role, pair_unit, steps, n_rows, n_units,
    WIDTH: constexpr, BLOCK: constexpr, TIMES: constexpr, BIAS: constexpr,
):  # fmt: skip
    """Units from rows.

    Args:
        x: [time, row, width]
        weight, bias: [role, out, in], [role, out]
        y: Written. [time, unit, width]
    """
    place, time, row, there = _rows(order, n_rows, steps, BLOCK, TIMES)
    block = tl.program_id(0)
    channel = tl.arange(0, WIDTH)
    states = tl.load(_address(x, time * n_rows + row, WIDTH), mask=there[:, None], other=0.0)
    for pair in range(tl.load(block_pairs + block), tl.load(block_pairs + block + 1)):
        role = tl.load(pair_role + pair)
        unit = tl.load(pair_unit + pair * BLOCK + place)
        # Transposed: [in, out]
        w = tl.load(weight + role * (WIDTH * WIDTH) + channel[None, :] * WIDTH + channel[:, None])
        product = tl.dot(states, w, input_precision="ieee")
        if BIAS:
            product += tl.load(bias + role * WIDTH + channel).to(tl.float32)[None, :]
        mask = (there & (unit >= 0))[:, None]
        tl.store(_address(y, time * n_units + unit, WIDTH), product.to(y.dtype.element_ty), mask=mask)


@triton.jit(do_not_specialize=_SIZES)
def project_backward_rows(
    grad, weight, grad_x, order, block_pairs, pair_role, pair_unit, steps, n_rows, n_units,
    WIDTH: constexpr, BLOCK: constexpr, TIMES: constexpr,
):  # fmt: skip
    """Gradient of rows: what all their units send back; 0 of a row without units.

    Args:
        grad: Of units. [time, unit, width]
        grad_x: Written. [time, row, width]
    """
    place, time, row, there = _rows(order, n_rows, steps, BLOCK, TIMES)
    block = tl.program_id(0)
    channel = tl.arange(0, WIDTH)
    total = tl.zeros([BLOCK * TIMES, WIDTH], tl.float32)
    for pair in range(tl.load(block_pairs + block), tl.load(block_pairs + block + 1)):
        role = tl.load(pair_role + pair)
        unit = tl.load(pair_unit + pair * BLOCK + place)
        mask = (there & (unit >= 0))[:, None]
        g = tl.load(_address(grad, time * n_units + unit, WIDTH), mask=mask, other=0.0)
        w = tl.load(weight + role * (WIDTH * WIDTH) + channel[:, None] * WIDTH + channel[None, :])
        total = tl.dot(g, w, total, input_precision="ieee")
    tl.store(_address(grad_x, time * n_rows + row, WIDTH), total.to(grad_x.dtype.element_ty), mask=there[:, None])


@triton.jit(do_not_specialize=_SIZES)
def project_backward_weights(
    grad, x, partial, unit_row, chunks, steps, n_rows, n_units,
    WIDTH: constexpr, PART: constexpr,
):  # fmt: skip
    """One chunk's share of a weight's gradient, and of its bias's as one more row.

    Args:
        partial: Written. [chunk, out + 1, in]
    """
    chunk = tl.program_id(0)
    first = tl.load(chunks + 3 * chunk + 1)
    last = tl.load(chunks + 3 * chunk + 2)
    n_parts = (last - first + PART - 1) // PART
    channel = tl.arange(0, WIDTH)
    total = tl.zeros([WIDTH, WIDTH], tl.float32)
    sums = tl.zeros([WIDTH], tl.float32)
    for step in range(steps * n_parts):
        time = step // n_parts
        unit = first + (step % n_parts) * PART + tl.arange(0, PART)
        mask = unit < last
        row = tl.load(unit_row + unit, mask=mask, other=0)
        g = tl.load(_address(grad, time * n_units + unit, WIDTH), mask=mask[:, None], other=0.0)
        states = tl.load(_address(x, time * n_rows + row, WIDTH), mask=mask[:, None], other=0.0)
        total = tl.dot(tl.trans(g), states, total, input_precision="ieee")
        sums += tl.sum(g.to(tl.float32), axis=0)
    start = partial + chunk.to(tl.int64) * ((WIDTH + 1) * WIDTH)
    tl.store(_address(start, channel, WIDTH), total)
    tl.store(start + WIDTH * WIDTH + channel, sums)


@triton.jit
def add_chunks(partial, total, role_chunks, SIZE: constexpr, BLOCK: constexpr, PARTS: constexpr):
    """Sums of the chunks of every role, in a fixed order.

    Args:
        partial: [chunk, size]
        total: Written. [role, size]
    """
    role = tl.program_id(0)
    place = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    last = tl.load(role_chunks + role + 1)
    result = tl.zeros([BLOCK], tl.float32)
    for first in range(tl.load(role_chunks + role), last, PARTS):
        chunk = first + tl.arange(0, PARTS)
        mask = (chunk < last)[:, None] & (place < SIZE)[None, :]
        values = tl.load(partial + chunk.to(tl.int64)[:, None] * SIZE + place[None, :], mask=mask, other=0.0)
        result += tl.sum(values, axis=0)
    tl.store(total + role * SIZE + place, result, mask=place < SIZE)
