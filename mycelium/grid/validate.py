"""Are the records sound? Every table, reference, rating, conductor and matrix of a Grid, without an engine.

Nothing here raises on a Grid that could be loaded. A check is left out where columns it computes with are unsound,
and the report names it: mend the errors and validate again.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from mycelium.grid.grid import Grid
from mycelium.grid.primitive import reactor_sizes, unpack
from mycelium.grid.service import lv_zone
from mycelium.grid.topology import fed
from mycelium.grid.validate_columns import Audit, check_columns
from mycelium.grid.validation_report import Severity, ValidationReport
from mycelium.grid.wiring import TERMINALS, Terminals
from mycelium.schema import GROUND, HIDDEN, MATRICES, Connection

Flags = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

_IMPLAUSIBLE = 0.25  # a rated voltage this far from its bus's base is asked about
_ANOTHER_BASE = 0.01  # buses that a line joins have one voltage base
_ASYMMETRY = 1e-6  # of a matrix, relative to its largest entry
_NEGATIVE = 1e-6  # an eigenvalue this far below zero, relative to the largest entry, is no rounding
_SINGULAR = 1e-13  # smallest over largest singular value of a matrix that cannot be inverted
_GROUPED = ("consumer", "der", "line")  # tables with hidden-phase groups


def validate(grid: Grid) -> ValidationReport:
    """Check a Grid and name everything that is wrong or hard to believe."""
    audit = Audit(grid)
    with np.errstate(all="ignore"):  # what is not finite is a finding, not a warning of numpy
        check_columns(audit)
        for name, needs, check in _CHECKS:
            if audit.sound(*needs):
                check(audit)
            else:
                audit.not_checked.append(name)
    order = sorted(audit.findings, key=lambda finding: finding.severity is not Severity.ERROR)
    return ValidationReport(grid.name, tuple(order), tuple(audit.not_checked))


# ---- one table --------------------------------------------------------------------------------------------------


def _check_windings(audit: Audit) -> None:
    """Windings lie transformer by transformer, numbered from 1."""
    count = audit.integers("transformer", "n_windings")
    expected = np.cumsum(count) - count
    found = audit.integers("transformer", "first_winding")
    words = "the rows of the winding table in order, transformer by transformer"
    wrong = found != expected
    audit.error("transformer.first_winding", wrong, words, found)
    owner = np.repeat(np.arange(len(count)), count)
    n = len(audit.grid.winding)
    if len(owner) != n:
        audit.error("winding.transformer", None, f"{len(owner)} windings in all", f"{n} rows")
        audit.unsound.add("transformer.first_winding")
        return
    number = np.arange(n) - expected[owner] + 1
    misplaced, misnumbered = (
        audit.integers("winding", "transformer") != owner,
        audit.integers("winding", "number") != number,
    )
    audit.error("winding.transformer", misplaced, words, audit.integers("winding", "transformer"))
    audit.error("winding.number", misnumbered, "1, 2, ... within each transformer", audit.integers("winding", "number"))
    if np.any(wrong) or np.any(misplaced):
        audit.unsound.add("transformer.first_winding")


def _check_transformers(audit: Audit) -> None:
    bank = audit.integers("transformer", "bank")
    audit.error("transformer.bank", bank[bank] != bank, "the first unit of a bank, which is in its own bank", bank)
    three = audit.integers("transformer", "n_windings") == 3
    for column in ("x13_pct", "x23_pct"):
        known = np.isfinite(audit.numbers("transformer", column))
        audit.error(f"transformer.{column}", three & ~known, "a positive number for three windings", "NaN")
        audit.error(
            f"transformer.{column}", ~three & known, "NaN for two windings", audit.numbers("transformer", column)
        )
    moved = np.zeros(len(bank), dtype=bool)
    moved[audit.integers("winding", "transformer")[audit.flags("winding", "regulated")]] = True
    flagged = audit.flags("transformer", "regulator")
    audit.error("transformer.regulator", flagged != moved, "true where a winding is regulated", flagged)


def _check_taps(audit: Audit) -> None:
    low, high, tap = (audit.numbers("winding", name) for name in ("min_tap_pu", "max_tap_pu", "tap_pu"))
    audit.error("winding.max_tap_pu", high < low, "not below min_tap_pu", high)
    outside = (high >= low) & ((tap < low - 1e-9) | (tap > high + 1e-9))
    audit.error("winding.tap_pu", outside, "min_tap_pu to max_tap_pu", tap)
    steps = audit.integers("winding", "n_taps")
    audit.error("winding.n_taps", audit.flags("winding", "regulated") & (steps < 1), "steps to regulate with", steps)


def _check_steps(audit: Audit) -> None:
    steps, initial = audit.integers("capacitor", "steps"), audit.integers("capacitor", "initial_steps")
    audit.error("capacitor.initial_steps", (initial < 0) | (initial > steps), "0 to the number of steps", initial)


def _check_service(audit: Audit) -> None:
    serving, n = audit.integers("consumer", "transformer"), len(audit.grid.transformer)
    served = (serving >= 0) & (serving < n)
    audit.error(
        "consumer.transformer",
        (serving < -1) | (serving >= n),
        f"a row of the transformer table (0 to {n - 1}) or -1 for none",
        serving,
    )
    bank, distribution = audit.integers("transformer", "bank"), audit.flags("transformer", "distribution")
    good = served.copy()
    good[served] = distribution[serving[served]] & (bank[serving[served]] == serving[served])
    audit.error(
        "consumer.transformer", served & ~good, "a distribution transformer, the first unit of its bank", serving
    )


# ---- conductors -------------------------------------------------------------------------------------------------


def _expected_sizes(audit: Audit, table: str) -> list[Ints]:
    """Number of conductors at each terminal by the engine's rules. [terminal][row]"""
    if table == "line":
        return [audit.integers(table, "n_conductors")] * 2
    if table == "winding":
        return [audit.integers("transformer", "n_phases")[audit.integers(table, "transformer")] + 1]
    n = audit.integers(table, "n_phases")
    if table == "substation":
        return [n, n]
    delta = audit.texts(table, "connection") == Connection.DELTA
    if table in ("consumer", "der"):
        return [np.where(delta & (n >= 3), n, n + 1)]
    return [n + (delta & (n < 3)), np.where(delta, 0, n)]


def _check_lengths(table: str) -> Callable[[Audit], None]:
    def check(audit: Audit) -> None:
        for terminal, expected in enumerate(_expected_sizes(audit, table), 1):
            column = f"{table}.conductors{terminal}"
            texts = audit.texts(table, f"conductors{terminal}")
            length = np.array([len(text.split(".")) if text else 0 for text in texts], dtype=np.int64)
            wrong = np.flatnonzero(length != expected)
            if len(wrong):
                audit.unsound.add(column)
                wanted = ", ".join(str(k) for k in np.unique(expected[wrong])[:3])
                audit.error(column, wrong, f"{wanted} conductors", texts)

    return check


def _check_line_phases(audit: Audit) -> None:
    t, n = audit.grid.wiring.terminals["line"], audit.integers("line", "n_phases")
    phase = (t.terminal == 0) & ((t.conductor == HIDDEN) | (t.conductor >= 1) & (t.conductor <= 3))
    count = np.bincount(t.row[phase], minlength=len(n))
    audit.error("line.n_phases", n != count, "the number of phases among its conductors", n)
    fixed = ~audit.flags("line", "switch") & audit.flags("line", "tie")
    audit.error("line.switch", fixed, "true for a tie", "False")


def _check_series(audit: Audit) -> None:
    for table in ("reactor", "capacitor"):
        apart = audit.integers(table, "bus1") != audit.integers(table, "bus2")
        series = audit.flags(table, "series")
        audit.error(f"{table}.series", series != apart, "true where its terminals are at two buses", series)


# ---- hidden phases ----------------------------------------------------------------------------------------------


def _check_hidden(audit: Audit) -> None:
    """Marks, buses and groups of hidden phases say one and the same."""
    wiring, hidden = audit.grid.wiring, audit.grid.wiring.hidden_bus
    groups_at: dict[int, set[int]] = {int(bus): set() for bus in np.flatnonzero(hidden)}
    tied: set[int] = set()
    for table in TERMINALS:
        t = wiring.terminals[table]
        marked = t.conductor == HIDDEN
        shown = hidden[t.bus] & (t.conductor >= 1) & (t.conductor <= 3)
        for terminal in range(TERMINALS[table]):
            rows = np.unique(t.row[shown & (t.terminal == terminal)])
            column = f"{table}.conductors{terminal + 1}"
            audit.error(column, rows, "'?' for a phase at a hidden bus", audit.texts(*column.split(".")))
        if table not in _GROUPED:
            continue
        group = audit.integers(table, "group")
        with_mark = np.zeros(len(group), dtype=bool)
        with_mark[t.row[marked]] = True
        audit.error(f"{table}.group", with_mark & (group < 0), "the group of its '?' conductor", group)
        audit.error(f"{table}.group", ~with_mark & (group >= 0), "-1 where all conductors are on record", group)
        for bus, number in zip(t.bus[marked].tolist(), group[t.row[marked]].tolist(), strict=True):
            groups_at.get(bus, tied).add(number)
    _check_hidden_lines(audit, wiring.terminals["line"])
    empty = np.array([bus for bus, found in groups_at.items() if not found], dtype=np.int64)
    mixed = np.array([bus for bus, found in groups_at.items() if len(found) > 1], dtype=np.int64)
    audit.error("bus.hidden", empty, "an element with a '?' conductor at it", "none")
    found = ", ".join(str(sorted(groups_at[bus])) for bus in mixed.tolist()[:3])
    audit.error("bus.hidden", mixed, "one group at a hidden bus", f"groups {found}")
    _check_groups(audit, tied)


def _check_hidden_lines(audit: Audit, t: Terminals) -> None:
    """A phase known at one end of a line is known at the other."""
    marks = [
        np.bincount(t.row[(t.conductor == HIDDEN) & (t.terminal == k)], minlength=len(audit.grid.line)) for k in (0, 1)
    ]
    for k in (0, 1):
        texts = audit.texts("line", f"conductors{k + 1}")
        audit.error(f"line.conductors{k + 1}", (marks[k] == 0) & (marks[1 - k] > 0), "'?' as at the other end", texts)


def _check_groups(audit: Audit, tied: set[int]) -> None:
    group = {table: audit.integers(table, "group") for table in _GROUPED}
    distinct = np.unique(np.concatenate([values[values >= 0] for values in group.values()]))
    untied = np.setdiff1d(distinct, np.array(sorted(tied), dtype=np.int64))
    for table, values in group.items():
        beyond = values >= len(distinct)
        audit.error(f"{table}.group", beyond, f"groups numbered 0 to {len(distinct) - 1} without gaps", values)
        audit.error(f"{table}.group", np.isin(values, untied), "a group tied to a known bus", values)
    ungrouped = audit.flags("consumer", "eligible") & (group["consumer"] < 0)
    audit.error("consumer.eligible", ungrouped, "a group where the phase is a question", "-1")


# ---- voltages ---------------------------------------------------------------------------------------------------


def _check_voltages(audit: Audit) -> None:
    """Rated voltages against the base of the bus; several phase conductors make them line to line."""
    base = audit.numbers("bus", "base_kv")
    for table, rated in (
        ("consumer", "rated_kv"), ("der", "rated_kv"), ("winding", "rated_kv"), ("capacitor", "rated_kv"),
        ("substation", "base_kv"),
    ):  # fmt: skip
        t = audit.grid.wiring.terminals[table]
        phase = (t.terminal == 0) & ((t.conductor == HIDDEN) | (t.conductor >= 1) & (t.conductor <= 3))
        several = np.bincount(t.row[phase], minlength=len(audit.grid.tables[table])) > 1
        expected = base[audit.integers(table, "bus1")] * np.where(several, np.sqrt(3.0), 1.0)
        kv = audit.numbers(table, rated)
        doubtful = np.abs(kv / expected - 1.0) > _IMPLAUSIBLE
        if table == "capacitor":
            doubtful &= ~audit.flags(table, "series")  # rated for the voltage across it
        near = ", ".join(f"{value:.4g}" for value in np.unique(expected[doubtful])[:3])
        audit.warn(f"{table}.{rated}", doubtful, f"within 25 % of its bus's base ({near} kV)", kv)
    one, other = (base[audit.integers("line", f"bus{k}")] for k in (1, 2))
    apart = np.abs(one / other - 1.0) > _ANOTHER_BASE
    audit.warn("line.bus2", apart, "the voltage base of bus1", "another base")


def _check_frequency(audit: Audit) -> None:
    frequency = audit.grid.frequency_hz
    if not (np.isfinite(frequency) and frequency > 0):
        audit.error("grid.frequency_hz", None, "a positive number", str(frequency))
        return
    values = audit.numbers("substation", "frequency_hz")
    audit.warn("substation.frequency_hz", values != frequency, f"the network's {frequency:g} Hz", values)


# ---- matrices ---------------------------------------------------------------------------------------------------


def _check_matrices(audit: Audit) -> None:
    grid = audit.grid
    sizes = {"line": audit.integers("line", "n_conductors"), "reactor": reactor_sizes(grid)}
    for name, (table, _) in MATRICES.items():
        matrix = grid.matrices[name]
        if not isinstance(matrix, np.ndarray) or matrix.dtype != np.float64 or matrix.ndim != 1:
            found = f"{matrix.dtype} {matrix.shape}" if isinstance(matrix, np.ndarray) else type(matrix).__name__
            audit.error(f"{table}.{name}", None, "a flat array of float64", found)
        elif len(matrix) != np.sum(sizes[table] ** 2):
            audit.error(f"{table}.{name}", None, f"{np.sum(sizes[table] ** 2)} entries", f"{len(matrix)}")
        else:
            _check_finite(audit, table, name, sizes[table])
            continue
        audit.unsound.add(name)
    for size in np.unique(sizes["line"]):
        rows = np.flatnonzero(sizes["line"] == size)
        _check_line_matrices(audit, sizes["line"], rows)


def _check_finite(audit: Audit, table: str, name: str, sizes: Ints) -> None:
    matrix = audit.grid.matrices[name]
    owner = np.repeat(np.arange(len(sizes)), sizes**2)
    bad = ~np.isfinite(matrix)
    audit.error(
        f"{table}.{name}", np.unique(owner[bad]), "finite entries", ", ".join(sorted({str(v) for v in matrix[bad]}))
    )


def _check_line_matrices(audit: Audit, sizes: Ints, rows: Ints) -> None:
    """Matrices of lines with one number of conductors."""
    blocks = {}
    for name in ("line_r_ohm", "line_x_ohm", "line_c_nf"):
        if audit.sound(name):
            block = unpack(audit.grid.matrices[name], sizes, rows)
            blocks[name] = np.where(np.isfinite(block).all(axis=(1, 2), keepdims=True), block, 0.0)
    for name, block in blocks.items():
        scale = np.maximum(np.abs(block).max(axis=(1, 2), keepdims=True), np.finfo(np.float64).tiny)
        unit = block / scale
        skew = np.abs(unit - unit.transpose(0, 2, 1)).max(axis=(1, 2)) > _ASYMMETRY
        audit.warn(f"line.{name}", rows[skew], "a symmetric matrix", "an asymmetric one")
        lowest = np.linalg.eigvalsh((unit + unit.transpose(0, 2, 1)) / 2)[:, 0]
        odd = lowest < -_NEGATIVE
        if name == "line_r_ohm":
            lossless = np.diagonal(unit, axis1=1, axis2=2).min(axis=1) < 0
            audit.error(f"line.{name}", rows[lossless], "no negative resistance", "a negative diagonal entry")
            odd &= ~lossless
        audit.warn(f"line.{name}", rows[odd], "a positive semi-definite matrix", "a negative eigenvalue")
    if "line_r_ohm" in blocks and "line_x_ohm" in blocks:
        z = blocks["line_r_ohm"] + 1j * blocks["line_x_ohm"]
        z /= np.maximum(np.abs(z).max(axis=(1, 2), keepdims=True), np.finfo(np.float64).tiny)
        values = np.linalg.svd(z, compute_uv=False)
        audit.error(
            "line.line_x_ohm",
            rows[values[:, -1] <= _SINGULAR * values[:, 0]],
            "an impedance that can be inverted",
            "a singular one",
        )


def _check_reactor_values(audit: Audit) -> None:
    r, x = audit.numbers("reactor", "r_ohm"), audit.numbers("reactor", "x_ohm")
    audit.error("reactor.x_ohm", np.isnan(r) != np.isnan(x), "r_ohm and x_ohm both, or both NaN", x)


# ---- connections ------------------------------------------------------------------------------------------------


def _check_connections(audit: Audit) -> None:
    grid = audit.grid
    used = np.zeros(len(grid.bus), dtype=bool)
    for t in grid.wiring.terminals.values():
        used[t.bus[t.conductor != GROUND]] = True
    audit.warn("bus.name", ~used, "an element at it", "none")
    audit.warn("bus.name", used & ~fed(grid), "a path to a source with every switch closed", "none")
    unserved = (audit.integers("consumer", "transformer") < 0) & (
        lv_zone(grid)[audit.integers("consumer", "bus1")] >= 0
    )
    audit.warn("consumer.transformer", unserved, "a serving transformer in a low-voltage zone", "-1")


_BUSES = tuple(f"{table}.bus{k + 1}" for table, count in TERMINALS.items() for k in range(count))
_TEXTS = tuple(f"{table}.conductors{k + 1}" for table, count in TERMINALS.items() for k in range(count))
_GROUPS = tuple(f"{table}.group" for table in _GROUPED)
_WIRED = (*_BUSES, *_TEXTS, *_GROUPS, "bus.hidden")
_SERIES = tuple(f"{table}.{name}" for table in ("reactor", "capacitor") for name in ("bus1", "bus2", "series"))
_SIZED = {
    "line": ("n_conductors",), "winding": ("transformer",), "substation": ("n_phases",),
    **dict.fromkeys(("consumer", "der", "capacitor", "reactor"), ("n_phases", "connection")),
}  # fmt: skip

# What each check is about, the columns it computes with, and the check, in this order: earlier ones may find columns
# of later ones unsound.
_CHECKS: list[tuple[str, tuple[str, ...], Callable[[Audit], None]]] = [
    ("frequency", ("substation.frequency_hz",), _check_frequency),
    (
        "order of windings",
        ("transformer.n_windings", "transformer.first_winding", "winding.transformer", "winding.number"),
        _check_windings,
    ),
    (
        "banks and three-winding transformers",
        ("transformer.bank", "transformer.n_windings", "transformer.regulator", "transformer.x13_pct",
         "transformer.x23_pct", "winding.transformer", "winding.regulated"),
        _check_transformers,
    ),
    ("taps", tuple(f"winding.{k}" for k in ("min_tap_pu", "max_tap_pu", "tap_pu", "n_taps", "regulated")), _check_taps),
    ("capacitor steps", ("capacitor.steps", "capacitor.initial_steps"), _check_steps),
    ("serving transformers", ("consumer.transformer", "transformer.bank", "transformer.distribution"), _check_service),
    *(
        (
            f"number of conductors ({table})",
            (*(f"{table}.{k}" for k in columns), *(text for text in _TEXTS if text.startswith(f"{table}.")),
             *(("transformer.n_phases",) if table == "winding" else ())),
            _check_lengths(table),
        )
        for table, columns in _SIZED.items()
    ),
    ("phases of lines", (*_WIRED, "line.n_phases", "line.switch", "line.tie"), _check_line_phases),
    ("series elements", _SERIES, _check_series),
    ("hidden phases", (*_WIRED, "consumer.eligible"), _check_hidden),
    ("reactor values", ("reactor.r_ohm", "reactor.x_ohm"), _check_reactor_values),
    ("matrices", ("line.n_conductors", "reactor.n_phases", "reactor.connection"), _check_matrices),
    (
        "rated voltages",
        (*_WIRED, "bus.base_kv", "substation.base_kv", "capacitor.series",
         *(f"{table}.rated_kv" for table in ("consumer", "der", "winding", "capacitor"))),
        _check_voltages,
    ),
    (
        "connections",
        (*_WIRED, *_SERIES, "line.switch", "transformer.first_winding", "transformer.distribution", "winding.number",
         "winding.transformer", "winding.rated_kv", "consumer.transformer"),
        _check_connections,
    ),
]  # fmt: skip
