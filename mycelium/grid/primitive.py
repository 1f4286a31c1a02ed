"""Primitive admittance of every element, from the Grid's own tables.

A primitive relates the currents into an element's terminal conductors to their voltages. Elements of one size and
build are computed together. Formulas follow the engine's element models, so that both agree to rounding.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pandas as pd

from mycelium.grid.grid import Grid
from mycelium.schema import Connection

Complex = npt.NDArray[np.complex128]
AnyComplex = npt.NDArray[np.complexfloating]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Blocks = Iterator[tuple[Ints, Complex]]  # rows of a table and their primitives [row, item, item]

# The engine's ten digits. With the exact value a stiff source (EPRI ckt7: zero-sequence 0.0001 ohm at 115 kV) would
# differ by 0.03 A of zero-sequence current.
_ENGINE_DEGREES_PER_RADIAN = 57.29577951
_SOLID_GROUND_SIEMENS = 1e6  # the engine's one micro-ohm for a solidly grounded neutral


def unpack(flat: Floats, sizes: Ints, rows: Ints) -> Floats:
    """Square blocks of one size from a packed matrix. [row, size, size]

    Args:
        flat: Packed square matrices, row by row.
        sizes: Order of every packed matrix.
        rows: Rows wanted, all of the same order.
    """
    start = np.concatenate([[0], np.cumsum(sizes * sizes)])
    size = int(sizes[rows[0]])
    return np.asarray(flat[start[rows][:, None] + np.arange(size * size)]).reshape(-1, size, size)


def _by_key(keys: pd.DataFrame | npt.NDArray[np.generic], rows: Ints) -> Iterator[Ints]:
    """Rows split into sets of equal key, in first-seen order."""
    frame = pd.DataFrame(keys)
    for _, index in frame.iloc[rows].groupby(list(frame.columns), sort=False, dropna=False).indices.items():
        yield rows[np.sort(index)]


def two_terminal(y: AnyComplex) -> Complex:
    """Primitive of an admittance between two terminals. [row, 2n, 2n]"""
    block = np.concatenate([np.concatenate([y, -y], 2), np.concatenate([-y, y], 2)], 1)
    return block.astype(np.complex128, copy=False)


def line_primitives(grid: Grid, rows: Ints) -> Blocks:
    sizes = grid.line["n_conductors"].to_numpy().astype(np.int64)
    for part in _by_key(sizes[:, None], rows):
        r, x, c = (unpack(grid.matrices[name], sizes, part) for name in ("line_r_ohm", "line_x_ohm", "line_c_nf"))
        yield part, line_block(r + 1j * x, c, grid.frequency_hz)


def line_block(z_ohm: AnyComplex, c_nf: Floats, frequency_hz: float) -> Complex:
    """Series impedance with half the shunt capacitance at either end. [row, 2n, 2n] from [row, n, n]"""
    block = two_terminal(np.linalg.inv(z_ohm))
    n = z_ohm.shape[1]
    half = 1j * np.pi * frequency_hz * c_nf * 1e-9
    block[:, :n, :n] += half
    block[:, n:, n:] += half
    return block


def reactor_sizes(grid: Grid) -> Ints:
    """Order of the packed matrices of every reactor: an open delta has one corner more than coils. [reactor]"""
    n_phases = grid.reactor["n_phases"].to_numpy().astype(np.int64)
    delta = (grid.reactor["connection"] == Connection.DELTA).to_numpy()
    return np.asarray(n_phases + (delta & (n_phases < 3)))


def reactor_primitives(grid: Grid, rows: Ints) -> Blocks:
    delta, sizes = (grid.reactor["connection"] == Connection.DELTA).to_numpy(), reactor_sizes(grid)
    for part in _by_key(np.stack([sizes, delta], 1), rows):
        y = unpack(grid.matrices["reactor_g_siemens"], sizes, part) + 1j * unpack(
            grid.matrices["reactor_b_siemens"], sizes, part
        )
        yield part, (y if delta[part[0]] else two_terminal(y))


def capacitor_primitives(grid: Grid, rows: Ints, steps: npt.NDArray[np.int16]) -> Blocks:
    """Steps in operation, all equal. A filter reactance is in series with each step."""
    table = grid.capacitor
    n_phases = table["n_phases"].to_numpy().astype(np.int64)
    delta = (table["connection"] == Connection.DELTA).to_numpy()
    for part in _by_key(np.stack([n_phases, delta], 1), rows):
        n = int(n_phases[part[0]])
        y = 2j * np.pi * grid.frequency_hz * table["step_uf"].to_numpy()[part] * 1e-6
        z = table["filter_r_ohm"].to_numpy()[part] + 1j * table["filter_x_ohm"].to_numpy()[part]
        count = steps[part].astype(np.float64)[:, None, None]
        if not delta[part[0]]:
            step = (1.0 / (z + 1.0 / y))[:, None, None] * np.eye(n)
            yield part, two_terminal(step) * count
            continue
        step = y[:, None, None] * delta_coils(n)
        filtered = np.flatnonzero(z != 0)
        if len(filtered):  # the engine lifts the diagonal a little so that the delta inverts
            eye = np.eye(step.shape[1])
            lifted = step[filtered] * (1 + 1e-6 * eye)
            step[filtered] = np.linalg.inv(np.linalg.inv(lifted) + z[filtered][:, None, None] * eye)
        yield part, step * count


def delta_coils(n: int) -> Floats:
    """How n equal coils couple their corners: a ring of three, else a chain of n + 1. [corner, corner]"""
    corners = n if n >= 3 else n + 1
    incidence = np.zeros((n, corners))
    coil = np.arange(n)
    incidence[coil, coil], incidence[coil, (coil + 1) % corners] = 1.0, -1.0
    return np.asarray(incidence.T @ incidence)


def source_impedance(grid: Grid, row: int) -> Complex:
    """Impedance of a source. [phase, phase]"""
    source = grid.substation.iloc[row]
    n = int(source["n_phases"])
    z1, z2, z0 = (complex(source[f"r{k}_ohm"], source[f"x{k}_ohm"]) for k in (1, 2, 0))
    if n == 1:
        return np.array([[z1]])
    if n == 3 and z1 != z2:
        return sequence_matrix(z0, z1, z2)
    return np.asarray(np.eye(n) * z1 + np.ones((n, n)) * (z0 - z1) / 3)


def sequence_matrix(z0: complex, z1: complex, z2: complex) -> Complex:
    """Phase impedance of a three-phase element with these sequence impedances. [phase, phase]"""
    a = complex(-0.5, 0.866025)  # the engine's six digits, so that primitives agree
    own = (z0 + z1 + z2) / 3
    forward, backward = (z0 + a * z1 + a * a * z2) / 3, (z0 + a * a * z1 + a * z2) / 3
    return np.array([[own, forward, backward], [backward, own, forward], [forward, backward, own]])


def source_primitives(grid: Grid, rows: Ints) -> Blocks:
    for row in rows:
        yield np.array([row]), two_terminal(np.linalg.inv(source_impedance(grid, int(row)))[None])


def source_voltages(grid: Grid, row: int) -> Complex:
    """Voltage behind the impedance of a source, V. [phase]"""
    source = grid.substation.iloc[row]
    n = int(source["n_phases"])
    # Phase voltage of an n-phase source rated line to line; 1 for a single phase.
    ratio = 1.0 if n == 1 else 2 * np.sin(np.pi / n)
    magnitude = source["base_kv"] * 1e3 * source["setpoint_pu"] / ratio
    step_deg = 360.0 / n
    # The engine adds a full turn first, which is none in its ten digits.
    angle_deg = 360.0 + source["angle_deg"] - step_deg * np.arange(n)
    return np.asarray(magnitude * np.exp(1j * angle_deg / _ENGINE_DEGREES_PER_RADIAN))


def transformer_primitives(grid: Grid, rows: Ints, tap_pu: Floats) -> Blocks:
    """n-winding transformers, phase by phase, as the engine builds them.

    Args:
        grid: The records.
        rows: Transformer rows.
        tap_pu: Tap of every winding. [winding]
    """
    table, winding = grid.transformer, grid.winding
    first = table["first_winding"].to_numpy().astype(np.int64)
    n_windings = table["n_windings"].to_numpy().astype(np.int64)
    delta = (winding["connection"] == Connection.DELTA).to_numpy()
    connections = np.stack([delta[np.minimum(first + k, len(winding) - 1)] & (k < n_windings) for k in range(3)], 1)
    backwards = delta_runs_backwards(grid)
    keys = np.column_stack([table["n_phases"].to_numpy(), n_windings, connections, backwards])
    for part in _by_key(keys, rows):
        nw, n = int(n_windings[part[0]]), int(table["n_phases"].iat[part[0]])
        index = first[part][:, None] + np.arange(nw)
        y_phase = _one_phase(grid, part, index, tap_pu)
        block = _connect(y_phase, n, connections[part[0], :nw], bool(backwards[part[0]]))
        _ground_neutrals(block, grid, part, index, n)
        yield part, block


def coil_kv(grid: Grid) -> Floats:
    """Rated voltage across one coil of each winding, kV. [winding]"""
    winding = grid.winding
    n = grid.transformer["n_phases"].to_numpy()[winding["transformer"].to_numpy()]
    wye_of_many = (winding["connection"] == Connection.WYE).to_numpy() & (n > 1)
    return np.asarray(winding["rated_kv"].to_numpy() / np.where(wye_of_many, np.sqrt(3.0), 1.0))


def delta_runs_backwards(grid: Grid) -> npt.NDArray[np.bool_]:
    """Whether coils of a delta run from phase i to i-1 rather than i+1. [transformer]

    The high-voltage side is the one with the higher rating as written, line to line, as in the engine.
    """
    table, winding = grid.transformer, grid.winding
    first = table["first_winding"].to_numpy().astype(np.int64)
    delta = (winding["connection"] == Connection.DELTA).to_numpy()
    kv = winding["rated_kv"].to_numpy()
    high = np.where(kv[first] >= kv[first + 1], first, first + 1)
    mixed = delta[first] != delta[first + 1]
    return np.asarray(mixed & (delta[high] != table["delta_lead"].to_numpy()))


def _volt_amperes(grid: Grid, part: Ints) -> Floats:
    """Rating of one phase on winding 1, VA. [row]"""
    table = grid.transformer
    first = table["first_winding"].to_numpy()[part]
    return np.asarray(grid.winding["rated_kva"].to_numpy()[first] * 1e3 / table["n_phases"].to_numpy()[part])


def _antifloat(grid: Grid, part: Ints, index: Ints) -> Floats:
    """Small susceptance that ties both ends of each coil to ground, S. [row, winding]"""
    volts = coil_kv(grid)[index] * 1e3
    ppm = grid.transformer["antifloat_ppm"].to_numpy()[part] * 1e-6
    return np.asarray(-ppm[:, None] / (volts**2 / _volt_amperes(grid, part)[:, None]) / 2.0)


def _one_phase(grid: Grid, part: Ints, index: Ints, tap_pu: Floats) -> Complex:
    """Admittance among the coil ends of one phase: (start, end) of winding 1, 2, ... [row, 2 nw, 2 nw]"""
    table = grid.transformer
    m, nw = index.shape
    va = _volt_amperes(grid, part)
    r = grid.winding["r_pct"].to_numpy()[index] / 100.0
    pairs = {(0, 1): "x12_pct", (0, 2): "x13_pct", (1, 2): "x23_pct"}
    z = np.zeros((m, nw, nw), dtype=np.complex128)  # short-circuit impedance between windings, one-volt base
    for (i, j), column in pairs.items():
        if j < nw:
            z[:, i, j] = z[:, j, i] = (r[:, i] + r[:, j] + 1j * table[column].to_numpy()[part] / 100.0) / va
    zb = 0.5 * (z[:, 1:, 0, None] + z[:, None, 0, 1:] - z[:, 1:, 1:])
    incidence = np.concatenate([-np.ones((nw - 1, 1)), np.eye(nw - 1)], axis=1)
    y = incidence.T @ np.linalg.inv(zb) @ incidence
    # Core loss and magnetizing current sit on winding 2, taken as the closest to the core.
    no_load = table["no_load_loss_pct"].to_numpy()[part] - 1j * table["magnetizing_pct"].to_numpy()[part]
    y[:, 1, 1] += no_load / 100.0 * va
    turns = 1.0 / (coil_kv(grid)[index] * 1e3 * np.where(tap_pu[index] == 0.0, 1e-4, tap_pu[index]))
    ends = np.zeros((m, 2 * nw, nw))
    for k in range(nw):
        ends[:, 2 * k, k], ends[:, 2 * k + 1, k] = turns[:, k], -turns[:, k]
    y_ends = ends @ y @ ends.transpose(0, 2, 1)
    diagonal = np.arange(2 * nw)
    y_ends[:, diagonal, diagonal] += 1j * np.repeat(_antifloat(grid, part, index), 2, axis=1)
    return np.asarray(y_ends)


def _connect(y_phase: Complex, n: int, delta: npt.NDArray[np.bool_], backwards: bool) -> Complex:
    """Tie the coils of all phases to the terminal conductors. [row, nw (n+1), nw (n+1)]"""
    m, nw = len(y_phase), len(delta)
    block = np.zeros((m, nw * (n + 1), nw * (n + 1)), dtype=np.complex128)
    for phase in range(n):
        at = []
        for k in range(nw):
            other = n if not delta[k] or n == 1 else _next_phase(phase, n, backwards)
            at += [k * (n + 1) + phase, k * (n + 1) + other]
        for i, row in enumerate(at):
            for j, column in enumerate(at):
                block[:, row, column] += y_phase[:, i, j]
    return block


def _next_phase(phase: int, n: int, backwards: bool) -> int:
    """Far end of a delta coil; two-phase deltas are open, their third corner is the extra conductor."""
    if n == 2:
        return (phase - 1) % 3 if backwards else phase + 1
    return (phase - 1) % n if backwards else (phase + 1) % n


def _ground_neutrals(block: Complex, grid: Grid, part: Ints, index: Ints, n: int) -> None:
    """Add neutral-to-ground admittances of wye windings, in place."""
    winding = grid.winding
    r, x = winding["neutral_r_ohm"].to_numpy()[index], winding["neutral_x_ohm"].to_numpy()[index]
    wye = (winding["connection"] == Connection.WYE).to_numpy()[index]
    with np.errstate(divide="ignore", invalid="ignore"):
        grounded = np.where((r == 0) & (x == 0), _SOLID_GROUND_SIEMENS, 1.0 / (r + 1j * x))
    value = np.where(r < 0, 1j * _antifloat(grid, part, index), grounded)
    for k in range(index.shape[1]):
        neutral = k * (n + 1) + n
        block[:, neutral, neutral] += np.where(wye[:, k], value[:, k], 0.0)
