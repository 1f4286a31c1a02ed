"""Compiled sparse elimination for many right-hand sides, made for distribution networks.

Only nodes that carry a load or a generator, and few others, take part in the iteration of a fixed point. So the
elimination order puts *passive* nodes first, as long as that hardly fills the matrix: the long chains of line
sections between customers vanish from the iteration and are recovered once, at the end. The rest follows by least
degree. Pivots stay on the diagonal: a nodal admittance matrix of lines and transformers allows it, and it makes
pattern and order a matter of structure alone.

Right-hand sides lie side by side as planes [row, 2, hour], real parts then imaginary parts, so that the innermost
loops run over contiguous hours and become vector instructions. Everything runs in one thread in a fixed order, so
results are the same bits every time.
"""

from __future__ import annotations

import numba
import numpy as np
import numpy.typing as npt

from mycelium.simulate.load_model import add_currents

Complex = npt.NDArray[np.complex128]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

FILL_PER_EDGE = 1.5  # a passive node goes first if that adds at most so many edges for each it removes (measured)
LOST_PIVOT = 1e-13  # a pivot below this part of its row's diagonal is rounding: the node floats
FLOATING_SHUNT = 1e-9  # conductance to ground, as part of the row's diagonal, that then holds it

SLOW = 0.3  # an hour whose step shrinks to no less than this part of the one before is accelerated
_DEPTH = 8  # earlier iterates in a mixture
_SAMPLED_ROWS = 256  # rows whose residuals decide its weights: few slow directions, so few rows tell them apart
_RIDGE = 1e-12

_planes = "float64[:, :, ::1]"
_reals = "float64[::1]"
_ints = "int64[::1]"
_complex = "complex128[::1]"
_bools = "boolean[::1]"


@numba.njit(f"void({_ints}, {_ints}, {_ints}, int64, int64)", cache=True, fastmath=False, nogil=True)
def _put(head: Ints, following: Ints, previous: Ints, node: int, degree: int) -> None:
    """Insert a node at the head of the list of nodes of a degree."""
    first = head[degree]
    following[node], previous[node] = first, -1
    if first >= 0:
        previous[first] = node
    head[degree] = node


@numba.njit(f"void({_ints}, {_ints}, {_ints}, int64, int64)", cache=True, fastmath=False, nogil=True)
def _take(head: Ints, following: Ints, previous: Ints, node: int, degree: int) -> None:
    """Remove a node from the list of nodes of a degree."""
    if previous[node] >= 0:
        following[previous[node]] = following[node]
    else:
        head[degree] = following[node]
    if following[node] >= 0:
        previous[following[node]] = previous[node]


@numba.njit(f"int64({_ints}, {_ints}, {_ints}, {_ints}, int64, int64)", cache=True, fastmath=False, nogil=True)
def _fill(start: Ints, count: Ints, pool: Ints, mark: Ints, stamp: int, node: int) -> int:
    """Edges that eliminating a node would add among its neighbours."""
    neighbours = pool[start[node] : start[node] + count[node]]
    for u in neighbours:
        mark[u] = stamp
    twice = 0
    for u in neighbours:
        twice += count[node] - 1
        for w in pool[start[u] : start[u] + count[u]]:
            twice -= mark[w] == stamp
    return twice // 2


@numba.njit(
    f"Tuple(({_ints}, int64))({_ints}, {_ints}, {_ints}, {_ints}, {_ints}, int64, int64, int64, int64)",
    cache=True, fastmath=False, nogil=True,
)  # fmt: skip
def _merge(
    start: Ints, count: Ints, room: Ints, pool: Ints, mark: Ints, stamp: int, node: int, u: int, used: int
) -> tuple[Ints, int]:
    """Give u the neighbours of an eliminated node, which leaves; returns the pool and how much of it is used."""
    mark[u], mark[node] = stamp, stamp
    first, size = start[node], count[node]
    begin, kept = start[u], 0
    for k in range(begin, begin + count[u]):
        w = pool[k]
        if w != node:
            mark[w] = stamp
            pool[begin + kept] = w
            kept += 1
    if kept + size - 1 > room[u]:  # may not fit: move to fresh room
        if used + kept + size > len(pool):
            larger = np.empty(2 * len(pool) + kept + size, dtype=np.int64)
            larger[:used] = pool[:used]
            pool = larger
        pool[used : used + kept] = pool[begin : begin + kept]
        start[u], room[u], begin = used, kept + size, used
        used += kept + size
    for k in range(first, first + size):
        w = pool[k]
        if mark[w] != stamp:
            pool[begin + kept] = w
            kept += 1
    count[u] = kept
    return pool, used


@numba.njit(
    f"Tuple(({_ints}, int64, {_ints}, {_ints}, {_ints}))({_ints}, {_ints}, {_bools}, float64)",
    cache=True, fastmath=False, nogil=True,
)  # fmt: skip
def eliminate(
    pointer: Ints, column: Ints, passive: Flags, fill_per_edge: float
) -> tuple[Ints, int, Ints, Ints, Ints]:
    """Elimination order, and the neighbours each node has when its turn comes.

    Args:
        pointer, column: Symmetric pattern without diagonal, by rows. [node + 1], [entry]
        passive: Nodes that may go first. [node]
        fill_per_edge: Bound for passive nodes, see ``FILL_PER_EDGE``.

    Returns:
        Order [place], number of passive nodes that went first, and neighbours: those of node i are
        pool[start[i] : start[i] + count[i]].
    """
    n = len(passive)
    start, count, room = pointer[:-1].copy(), np.diff(pointer), np.diff(pointer)
    used = len(column)
    pool = np.empty(2 * used + 64 * n + 64, dtype=np.int64)
    pool[:used] = column
    head = np.full(n + 1, -1, dtype=np.int64)
    following, previous = np.full(n, -1, dtype=np.int64), np.full(n, -1, dtype=np.int64)
    mark, stamp = np.full(n, -1, dtype=np.int64), 0
    queued, done = np.zeros(n, dtype=np.bool_), np.zeros(n, dtype=np.bool_)
    order, place, n_first = np.empty(n, dtype=np.int64), 0, 0
    for phase in range(2):
        n_first = place
        for node in range(n - 1, -1, -1):
            if not done[node] and (phase == 1 or passive[node]):
                _put(head, following, previous, node, count[node])
                queued[node] = True
        degree = 0
        while degree < n:
            node = head[degree]
            if node < 0:
                degree += 1
                continue
            _take(head, following, previous, node, degree)
            queued[node] = False
            stamp += 1
            if phase == 0 and _fill(start, count, pool, mark, stamp, node) > fill_per_edge * degree:
                continue  # comes back when a neighbour goes
            order[place], done[node] = node, True
            place += 1
            for u in pool[start[node] : start[node] + count[node]]:
                if queued[u]:
                    _take(head, following, previous, u, count[u])
                stamp += 1
                pool, used = _merge(start, count, room, pool, mark, stamp, node, u, used)
                if phase == 1 or passive[u]:
                    _put(head, following, previous, u, count[u])
                    queued[u] = True
                    degree = min(degree, count[u])
    return order, n_first, start, count, pool


@numba.njit(
    f"Tuple(({_ints}, {_ints}, {_ints}, {_ints}, {_ints}))({_ints}, {_ints}, {_ints}, {_ints})",
    cache=True, fastmath=False, nogil=True,
)  # fmt: skip
def factor_pattern(
    order: Ints, start: Ints, count: Ints, pool: Ints
) -> tuple[Ints, Ints, Ints, Ints, Ints]:
    """Patterns of the factors by rows, columns ascending, from what ``eliminate`` returns.

    Returns:
        Place of every node [node]; pointer and columns of L (below the diagonal); pointer and columns of U (above it).
    """
    n = len(order)
    place = np.empty(n, dtype=np.int64)
    for i in range(n):
        place[order[i]] = i
    lower, upper = np.zeros(n + 1, dtype=np.int64), np.zeros(n + 1, dtype=np.int64)
    for i in range(n):
        v = order[i]
        upper[i + 1] = upper[i] + count[v]
        for u in pool[start[v] : start[v] + count[v]]:
            lower[place[u] + 1] += 1
    for i in range(n):
        lower[i + 1] += lower[i]
    lower_column, upper_column = np.empty(lower[n], dtype=np.int64), np.empty(upper[n], dtype=np.int64)
    at = lower[:-1].copy()
    for i in range(n):  # rows of L fill in the order of their columns
        v = order[i]
        for u in pool[start[v] : start[v] + count[v]]:
            lower_column[at[place[u]]] = i
            at[place[u]] += 1
    at = upper[:-1].copy()
    for i in range(n):  # and, transposed once more, so do those of U
        for k in range(lower[i], lower[i + 1]):
            j = lower_column[k]
            upper_column[at[j]] = i
            at[j] += 1
    return place, lower, lower_column, upper, upper_column


@numba.njit(
    f"Tuple(({_complex}, {_complex}, {_complex}, {_bools}))"
    f"({_ints}, {_ints}, {_complex}, {_ints}, {_ints}, {_ints}, {_ints}, {_ints}, {_ints})",
    cache=True, fastmath=False, nogil=True, error_model="numpy",
)  # fmt: skip
def factorise(
    pointer: Ints, column: Ints, values: Complex, order: Ints, place: Ints,
    lower: Ints, lower_column: Ints, upper: Ints, upper_column: Ints,
) -> tuple[Complex, Complex, Complex, Flags]:  # fmt: skip
    """LU of a matrix with a symmetric pattern, pivots on the diagonal.

    Args:
        pointer, column, values: The matrix by rows; several entries at one place add up. [node + 1], [entry], [entry]
        order, place, lower, lower_column, upper, upper_column: As from ``factor_pattern``.

    Returns:
        Values of L and U, inverse pivots [place], and where a pivot was lost to rounding. [place]
    """
    n = len(order)
    below, above = np.empty(lower[n], dtype=np.complex128), np.empty(upper[n], dtype=np.complex128)
    inverse, floating = np.empty(n, dtype=np.complex128), np.zeros(n, dtype=np.bool_)
    row = np.zeros(n, dtype=np.complex128)
    for i in range(n):
        v = order[i]
        for k in range(pointer[v], pointer[v + 1]):
            row[place[column[k]]] += values[k]
        size = abs(row[i])
        for k in range(lower[i], lower[i + 1]):
            j = lower_column[k]
            factor = row[j] * inverse[j]
            below[k] = factor
            row[j] = 0.0
            for m in range(upper[j], upper[j + 1]):
                row[upper_column[m]] -= factor * above[m]
        if abs(row[i]) <= LOST_PIVOT * size:
            floating[i] = True
            row[i] += FLOATING_SHUNT * size
        inverse[i] = 1.0 / row[i]
        row[i] = 0.0
        for k in range(upper[i], upper[i + 1]):
            above[k] = row[upper_column[k]]
            row[upper_column[k]] = 0.0
    return below, above, inverse, floating


@numba.njit(f"void(int64, {_ints}, {_ints}, {_complex}, {_complex})", cache=True, fastmath=False, nogil=True)
def forward_one(n_rows: int, lower: Ints, lower_column: Ints, below: Complex, b: Complex) -> None:
    """Solve the columns of L left of ``n_rows`` for one right-hand side, in place."""
    for i in range(len(b)):
        value = b[i]
        for k in range(lower[i], lower[i + 1]):
            if lower_column[k] < n_rows:
                value -= below[k] * b[lower_column[k]]
        b[i] = value


@numba.njit(
    f"void({_planes}, int64, {_ints}, {_ints}, {_complex})", cache=True, fastmath=False, nogil=True
)  # fmt: skip
def _forward(b: Floats, first: int, lower: Ints, lower_column: Ints, below: Complex) -> None:
    """Solve the block of L from row and column ``first`` on, in place. b is [row - first, 2, hour]."""
    n_hours = b.shape[2]
    for i in range(len(b)):
        for k in range(lower[first + i], lower[first + i + 1]):
            j = lower_column[k] - first
            if j < 0:
                continue
            real, imag = below[k].real, below[k].imag
            for h in range(n_hours):
                b[i, 0, h] -= real * b[j, 0, h] - imag * b[j, 1, h]
                b[i, 1, h] -= real * b[j, 1, h] + imag * b[j, 0, h]


@numba.njit(
    f"Tuple((float64[:, :, :, ::1], {_planes}, {_ints}))(int64, int64)", cache=True, fastmath=False, nogil=True
)  # fmt: skip
def _room(n_rows: int, n_hours: int) -> tuple[Floats, Floats, Ints]:
    """Room for kept iterates and their residuals, and the rows at which residuals are kept."""
    kept = np.empty((_DEPTH + 1, n_rows + 1, 2, n_hours))
    kept[:, n_rows] = 0.0
    sampled = np.arange(0, n_rows, max(1, n_rows // _SAMPLED_ROWS))
    return kept, np.empty((_DEPTH + 1, 2 * len(sampled), n_hours)), sampled


@numba.njit(
    f"void({_planes}, {_planes}, {_planes}, int64, {_ints}, {_ints}, {_complex}, {_complex}, {_reals}, {_reals})",
    cache=True, fastmath=False, nogil=True,
)  # fmt: skip
def _backward(
    b: Floats, old: Floats, new: Floats, first: int, upper: Ints, upper_column: Ints, above: Complex,
    inverse: Complex, per_base: Floats, change: Floats,
) -> None:  # fmt: skip
    """Solve the block of U from row ``first`` on; ``change`` is the largest |new - old| / base, squared. [hour]"""
    n_hours = b.shape[2]
    change[:] = 0.0
    for i in range(len(per_base) - 1, -1, -1):
        for k in range(upper[first + i], upper[first + i + 1]):
            j = upper_column[k] - first
            real, imag = above[k].real, above[k].imag
            for h in range(n_hours):
                b[i, 0, h] -= real * new[j, 0, h] - imag * new[j, 1, h]
                b[i, 1, h] -= real * new[j, 1, h] + imag * new[j, 0, h]
        real, imag, scale = inverse[first + i].real, inverse[first + i].imag, per_base[i] * per_base[i]
        for h in range(n_hours):
            new[i, 0, h] = real * b[i, 0, h] - imag * b[i, 1, h]
            new[i, 1, h] = real * b[i, 1, h] + imag * b[i, 0, h]
            step_real, step_imag = new[i, 0, h] - old[i, 0, h], new[i, 1, h] - old[i, 1, h]
            change[h] = max(change[h], (step_real * step_real + step_imag * step_imag) * scale)


@numba.njit(
    f"{_planes}({_planes}, int64, int64)", cache=True, fastmath=False, nogil=True
)  # fmt: skip
def _gram(residual: Floats, slot: int, n_slots: int) -> Floats:
    """Products of the differences d[i] between the last residual and others, and, in the last row, with it itself.

    residual is [slot, value, hour]; the result, lower triangle only, is [n_slots + 1, n_slots, hour].
    """
    n_hours = residual.shape[2]
    gram, difference = np.zeros((n_slots + 1, n_slots, n_hours)), np.empty((n_slots + 1, n_hours))
    for k in range(residual.shape[1]):
        difference[n_slots] = residual[slot, k]
        for i in range(n_slots):
            for h in range(n_hours):
                difference[i, h] = residual[slot, k, h] - residual[i, k, h]
        for i in range(n_slots + 1):
            for j in range(min(i + 1, n_slots)):
                for h in range(n_hours):
                    gram[i, j, h] += difference[i, h] * difference[j, h]
    return gram


@numba.njit(f"{_reals}(float64[:, ::1], int64)", cache=True, fastmath=False, nogil=True, error_model="numpy")
def _weights(gram: Floats, slot: int) -> Floats:
    """Anderson's weights: the differences' best fit to the last residual, 0 for its own slot. [slot]

    The normal equations are scaled, and solved by Cholesky; a ridge carries directions that repeat.
    """
    n = gram.shape[1]
    size, weight = np.ones(n), np.zeros(n)
    for i in range(n):
        if gram[i, i] > 0.0:
            size[i] = np.sqrt(gram[i, i])
    for i in range(n):
        for j in range(i + 1):
            value = gram[i, j] / (size[i] * size[j]) + (_RIDGE if i == j else 0.0)
            for k in range(j):
                value -= gram[i, k] * gram[j, k]
            gram[i, j] = np.sqrt(max(value, _RIDGE)) if i == j else value / gram[j, j]
        value = gram[n, i] / size[i]
        for k in range(i):
            value -= gram[i, k] * weight[k]
        weight[i] = value / gram[i, i]
    for i in range(n - 1, -1, -1):
        for k in range(i + 1, n):
            weight[i] -= gram[k, i] * weight[k]
        weight[i] /= gram[i, i]
    weight /= size
    weight[slot] = 0.0
    return weight


@numba.njit(
    f"void(float64[:, :, :, ::1], {_planes}, int64, int64, {_bools}, {_planes})", cache=True, fastmath=False, nogil=True
)  # fmt: skip
def _mixture(kept: Floats, residual: Floats, slot: int, n_slots: int, slow: Flags, out: Floats) -> None:
    """Where to go on from: the mixture of kept iterates in slow hours, the last iterate in others.

    kept is [slot, row + 1, 2, hour], residual [slot, value, hour], slow [hour], out [row + 1, 2, hour].
    """
    gram, weights = _gram(residual, slot, n_slots), np.zeros((n_slots, len(slow)))
    for h in range(len(slow)):
        if slow[h]:
            weights[:, h] = _weights(gram[:, :, h].copy(), slot)
    last = kept[slot]
    out[:] = last
    for i in range(n_slots):
        if i != slot:
            for row in range(len(out) - 1):
                for part in range(2):
                    for h in range(len(slow)):
                        out[row, part, h] -= weights[i, h] * (last[row, part, h] - kept[i, row, part, h])


@numba.njit(
    f"{_ints}({_planes}, {_complex}, int64, {_ints}, {_ints}, {_complex}, {_ints}, {_ints}, {_complex}, {_complex}, "
    f"{_ints}, {_ints}, {_ints}, float64[:, ::1], {_reals}, float64[:, ::1], float64[:, ::1], {_reals}, "
    f"{_reals}, float64, int64)",
    cache=True, fastmath=False, nogil=True,
)  # fmt: skip
def iterate(
    v: Floats, base: Complex, first: int,
    lower: Ints, lower_column: Ints, below: Complex, upper: Ints, upper_column: Ints, above: Complex, inverse: Complex,
    start: Ints, end: Ints, model: Ints, parameters: Floats, base_v: Floats, p: Floats, q: Floats, fixed: Floats,
    per_base: Floats, tolerance: float, max_iterations: int,
) -> Ints:  # fmt: skip
    """Fixed-point iteration on the nodes from place ``first`` on, with Anderson acceleration where it is slow.

    An hour whose step is more than ``SLOW`` of the one before goes on from a mixture of its last iterates. That turns
    slow convergence, and divergence at heavy load, into convergence; what it converges to is the same.

    Args:
        v: Start and result; the last row is ground and stays 0, V. [row + 1, 2, hour]
        base: Right-hand side without loads, passive nodes eliminated. [row]
        lower ... inverse: Factors, of all places.
        start, end: Rows of v a branch lies between. [branch]
        model ... fixed: Branches, as ``add_currents`` takes them.
        per_base: One over the base voltage of each row, 1/V. [row]
        tolerance: Largest |step| / base at which an hour has converged.

    Returns:
        Iterations after which each hour had converged, 0 where it has not. [hour]
    """
    n_rows, n_hours = len(base), v.shape[2]
    b, change, before = np.zeros_like(v), np.empty(n_hours), np.full(n_hours, np.inf)
    kept, residual, sampled = _room(n_rows, n_hours)
    needed, slow = np.zeros(n_hours, dtype=np.int64), np.zeros(n_hours, dtype=np.bool_)
    old, slot, n_slots, limit = v.copy(), 0, 0, 2
    mixed = old
    for iteration in range(1, max_iterations + 1):
        slot = n_slots if n_slots < limit else (slot + 1) % limit
        n_slots = max(n_slots, slot + 1)
        for i in range(n_rows):
            b[i, 0], b[i, 1] = base[i].real, base[i].imag
        add_currents(old, start, end, model, parameters, base_v, p, q, fixed, -1.0, b)
        _forward(b[:n_rows], first, lower, lower_column, below)
        new = kept[slot]
        _backward(b, old, new, first, upper, upper_column, above, inverse, per_base, change)
        for i in range(len(sampled)):
            row = sampled[i]
            residual[slot, 2 * i : 2 * i + 2] = per_base[row] * (new[row] - old[row])
        for h in range(n_hours):
            done = change[h] <= tolerance * tolerance
            needed[h] = 0 if not done else (needed[h] if needed[h] > 0 else iteration)
            slow[h] = iteration > 1 and not done and change[h] > SLOW * SLOW * before[h]
        before[:] = change
        old = new
        if needed.min() > 0:
            break
        if slow.any():
            limit = _DEPTH + 1
            _mixture(kept, residual, slot, n_slots, slow, mixed)
            old = mixed
    v[:] = kept[slot]
    return needed


@numba.njit(
    f"void({_planes}, {_complex}, {_ints}, {_ints}, {_ints}, {_complex}, {_complex}, complex128[:, ::1])",
    cache=True, fastmath=False, nogil=True,
)  # fmt: skip
def recover(
    v: Floats, y: Complex, order: Ints, upper: Ints, upper_column: Ints, above: Complex, inverse: Complex, out: Complex
) -> None:
    """Voltages of all nodes from those that took part in the iteration.

    Args:
        v: From ``iterate``. [row + 1, 2, hour]
        y: Right-hand side of the passive places after elimination. [passive place]
        order: Node of every place. [place]
        upper, upper_column, above, inverse: Factors.
        out: Receives the voltages, V. [hour, node]
    """
    n_first, n_hours = len(y), v.shape[2]
    passive = np.empty((n_first, 2, n_hours))
    for i in range(n_first - 1, -1, -1):
        passive[i, 0], passive[i, 1] = y[i].real, y[i].imag
        for k in range(upper[i], upper[i + 1]):
            j, real, imag = upper_column[k], above[k].real, above[k].imag
            if j < n_first:
                for h in range(n_hours):
                    passive[i, 0, h] -= real * passive[j, 0, h] - imag * passive[j, 1, h]
                    passive[i, 1, h] -= real * passive[j, 1, h] + imag * passive[j, 0, h]
            else:
                j -= n_first
                for h in range(n_hours):
                    passive[i, 0, h] -= real * v[j, 0, h] - imag * v[j, 1, h]
                    passive[i, 1, h] -= real * v[j, 1, h] + imag * v[j, 0, h]
        real, imag = inverse[i].real, inverse[i].imag
        for h in range(n_hours):
            new_real = real * passive[i, 0, h] - imag * passive[i, 1, h]
            passive[i, 1, h] = real * passive[i, 1, h] + imag * passive[i, 0, h]
            passive[i, 0, h] = new_real
            out[h, order[i]] = complex(passive[i, 0, h], passive[i, 1, h])
    for i in range(n_first, len(order)):
        for h in range(n_hours):
            out[h, order[i]] = complex(v[i - n_first, 0, h], v[i - n_first, 1, h])
