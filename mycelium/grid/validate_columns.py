"""Is each column of a Grid's tables sound by itself? Types, names, references, conductors and numbers.

``Audit`` collects what is found, and remembers which columns must not be computed with.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pandas as pd

from mycelium.grid.grid import Grid
from mycelium.grid.validation_report import Finding, Severity
from mycelium.grid.wiring import TERMINALS
from mycelium.schema import HIDDEN_MARK, TABLES, Connection, DerKind

Flags = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

_VALUES_TOLD = 3
_MOST_CONDUCTORS = 60  # of one element, and the highest conductor number
_PART = rf"(?:\d{{1,2}}|{re.escape(HIDDEN_MARK)})"
_CONDUCTORS = re.compile(rf"{_PART}(?:\.{_PART})*", re.ASCII)

_Rule = tuple[Callable[[Floats], Flags], str]
_POSITIVE: _Rule = (lambda x: np.isfinite(x) & (x > 0), "a positive number")
_NOT_NEGATIVE: _Rule = (lambda x: np.isfinite(x) & (x >= 0), "zero or a positive number")
_FINITE: _Rule = (np.isfinite, "a finite number")
_MAYBE: _Rule = (lambda x: ~np.isinf(x), "a finite number, or NaN where unknown")
_MAYBE_POSITIVE: _Rule = (lambda x: np.isnan(x) | (np.isfinite(x) & (x > 0)), "a positive number, or NaN where unknown")
_COUNT: _Rule = (lambda x: (x >= 1) & (x <= _MOST_CONDUCTORS), f"1 to {_MOST_CONDUCTORS}")
_WINDINGS: _Rule = (lambda x: (x >= 2) & (x <= 3), "2 or 3")
_GROUP: _Rule = (lambda x: x >= -1, "-1 or a group number")

# Every number that is no reference; other checks of this file add what takes more than one column.
NUMBERS: dict[str, dict[str, _Rule]] = {
    "bus": {"base_kv": _POSITIVE, "x": _MAYBE, "y": _MAYBE},
    "consumer": {"n_phases": _COUNT, "rated_kv": _POSITIVE, "group": _GROUP},
    "substation": {
        "n_phases": _COUNT, "base_kv": _POSITIVE, "setpoint_pu": _POSITIVE, "angle_deg": _FINITE,
        "frequency_hz": _POSITIVE, "r1_ohm": _NOT_NEGATIVE, "x1_ohm": _FINITE, "r0_ohm": _NOT_NEGATIVE,
        "x0_ohm": _FINITE, "r2_ohm": _NOT_NEGATIVE, "x2_ohm": _FINITE, "mva_sc3": _POSITIVE, "mva_sc1": _POSITIVE,
    },
    "capacitor": {
        "n_phases": _COUNT, "rated_kv": _POSITIVE, "rated_kvar": _POSITIVE, "steps": _POSITIVE, "step_uf": _POSITIVE,
        "filter_r_ohm": _NOT_NEGATIVE, "filter_x_ohm": _NOT_NEGATIVE, "initial_steps": _NOT_NEGATIVE,
    },
    "der": {
        "n_phases": _COUNT, "rated_kv": _POSITIVE, "rated_kva": _POSITIVE, "rated_kw": _POSITIVE, "group": _GROUP,
    },
    "line": {
        "n_conductors": _COUNT, "n_phases": _NOT_NEGATIVE, "length_km": _MAYBE_POSITIVE, "normal_amps": _POSITIVE,
        "emergency_amps": _POSITIVE, "r1_ohm": _NOT_NEGATIVE, "x1_ohm": _FINITE, "r0_ohm": _NOT_NEGATIVE,
        "x0_ohm": _FINITE, "c1_nf": _FINITE, "c0_nf": _FINITE, "group": _GROUP,
    },
    "transformer": {
        "n_phases": _COUNT, "n_windings": _WINDINGS, "x12_pct": _POSITIVE, "x13_pct": _MAYBE_POSITIVE,
        "x23_pct": _MAYBE_POSITIVE, "no_load_loss_pct": _NOT_NEGATIVE, "magnetizing_pct": _NOT_NEGATIVE,
        "antifloat_ppm": _FINITE, "normal_amps": _POSITIVE,
    },
    "winding": {
        "number": _COUNT, "rated_kv": _POSITIVE, "rated_kva": _POSITIVE, "r_pct": _NOT_NEGATIVE,
        "neutral_r_ohm": _FINITE, "neutral_x_ohm": _FINITE, "tap_pu": _POSITIVE, "min_tap_pu": _POSITIVE,
        "max_tap_pu": _POSITIVE, "n_taps": _NOT_NEGATIVE,
    },
    "reactor": {"n_phases": _COUNT, "normal_amps": _NOT_NEGATIVE, "r_ohm": _MAYBE, "x_ohm": _MAYBE},
}  # fmt: skip
# Limits and sizes that no equation uses: a model in which they are wrong still works.
_ONLY_HINTS = {
    ("line", "normal_amps"), ("line", "emergency_amps"), ("line", "length_km"), ("transformer", "normal_amps"),
    ("der", "rated_kva"), ("der", "rated_kw"), ("capacitor", "rated_kvar"),
}  # fmt: skip

_REFERENCES = {
    "winding.transformer": "transformer",
    "transformer.first_winding": "winding",
    "transformer.bank": "transformer",
}
_CHOICES = {
    **dict.fromkeys(("consumer.connection", "capacitor.connection", "der.connection"), Connection),
    **dict.fromkeys(("winding.connection", "reactor.connection"), Connection),
    "der.kind": DerKind,
}  # fmt: skip


@dataclass
class Audit:
    """Findings so far, and the columns that are unsound.

    Attributes:
        grid: The Grid in question.
        findings: What was found.
        unsound: Columns, as 'table.column', whose values cannot be relied upon to be of their kind.
        not_checked: Checks left out because of unsound columns.
    """

    grid: Grid
    findings: list[Finding] = field(default_factory=list)
    unsound: set[str] = field(default_factory=set)
    not_checked: list[str] = field(default_factory=list)

    def sound(self, *columns: str) -> bool:
        """Whether all these columns hold values of their kind."""
        return self.unsound.isdisjoint(columns)

    def numbers(self, table: str, column: str) -> Floats:
        """A column of numbers. [row]"""
        return np.asarray(self.grid.tables[table][column].to_numpy(), dtype=np.float64)

    def integers(self, table: str, column: str) -> Ints:
        """A column of whole numbers. [row]"""
        return np.asarray(self.grid.tables[table][column].to_numpy(), dtype=np.int64)

    def flags(self, table: str, column: str) -> Flags:
        """A column of flags. [row]"""
        return np.asarray(self.grid.tables[table][column].to_numpy(), dtype=bool)

    def texts(self, table: str, column: str) -> npt.NDArray[np.object_]:
        """A column of texts. [row]"""
        return np.asarray(self.grid.tables[table][column].to_numpy(dtype=object), dtype=np.object_)

    def ids(self, table: str, rows: Flags | Ints) -> tuple[str, ...]:
        """What people call these rows."""
        index = np.flatnonzero(rows) if rows.dtype == bool else rows
        if table == "winding" and self.sound("transformer.name", "winding.transformer"):
            owner, names = self.integers("winding", "transformer")[index], self.texts("transformer", "name")
            if np.all((owner >= 0) & (owner < len(names))):
                number = self.grid.winding["number"].to_numpy()[index]
                return tuple(f"{names[k]} winding {n}" for k, n in zip(owner, number, strict=True))
        if table == "winding" or not self.sound(f"{table}.name"):
            return tuple(f"row {k}" for k in index)
        return tuple(str(name) for name in self.texts(table, "name")[index])

    def add(self, severity: Severity, column: str, rows: Flags | Ints | None, expected: str, found: object) -> None:
        """Add a finding, if there is a row it concerns.

        Args:
            severity: Error or warning.
            column: 'table.column'.
            rows: Rows concerned; None where it is the column as a whole.
            expected: What should be there.
            found: What is there: a text, or the values of the column, of which those of the rows are told.
        """
        table, _, name = column.partition(".")
        if rows is not None and not np.any(rows if rows.dtype == bool else np.ones(len(rows))):
            return
        ids = () if rows is None else self.ids(table, rows)
        told = found if isinstance(found, str) else _told(np.asarray(found)[rows])
        self.findings.append(Finding(severity, table, name, ids, expected, told))

    def error(self, column: str, rows: Flags | Ints | None, expected: str, found: object) -> None:
        self.add(Severity.ERROR, column, rows, expected, found)

    def warn(self, column: str, rows: Flags | Ints | None, expected: str, found: object) -> None:
        self.add(Severity.WARNING, column, rows, expected, found)


def _told(values: npt.NDArray[np.generic]) -> str:
    """The first few distinct values."""
    distinct = list(dict.fromkeys(f"{v:.6g}" if isinstance(v, float) else str(v) for v in values.tolist()))
    return ", ".join(distinct[:_VALUES_TOLD]) + (", ..." if len(distinct) > _VALUES_TOLD else "")


def check_columns(audit: Audit) -> None:
    """Every check of one column by itself; later checks rely on ``audit.unsound``."""
    _check_types(audit)
    _check_names(audit)
    _check_references(audit)
    _check_conductors(audit)
    _check_choices(audit)
    _check_numbers(audit)


def _check_types(audit: Audit) -> None:
    for table, columns in TABLES.items():
        for name, spec in columns.items():
            column = audit.grid.tables[table][name]
            if not _is_type(column, spec.dtype):
                audit.unsound.add(f"{table}.{name}")
                audit.error(f"{table}.{name}", None, f"values of type {spec.dtype}", str(column.dtype))
            elif spec.dtype == "str" and column.isna().any():
                audit.unsound.add(f"{table}.{name}")
                audit.error(f"{table}.{name}", column.isna().to_numpy(), "a text", "nothing")


def _is_type(column: pd.Series, wanted: str) -> bool:
    return isinstance(column.dtype, pd.StringDtype) if wanted == "str" else bool(column.dtype == np.dtype(wanted))


def _check_names(audit: Audit) -> None:
    for table, columns in TABLES.items():
        if "name" not in columns or not audit.sound(f"{table}.name"):
            continue
        frame = audit.grid.tables[table]
        names = frame["name"]
        audit.error(f"{table}.name", (names == "").to_numpy(dtype=bool), "a name", "an empty text")
        key = ["kind", "name"] if table == "der" and audit.sound("der.kind") else ["name"]  # a class may reuse names
        audit.error(f"{table}.name", frame.duplicated(key, keep=False).to_numpy(), "names that occur once", names)


def _check_references(audit: Audit) -> None:
    references = {f"{table}.bus{k + 1}": "bus" for table, n in TERMINALS.items() for k in range(n)} | _REFERENCES
    lowest = dict.fromkeys(references, 0) | {"consumer.transformer": -1}
    for column, low in lowest.items():
        if not audit.sound(column):
            continue
        target = references.get(column, "transformer")
        rows = audit.integers(*column.split("."))
        count = len(audit.grid.tables[target])
        wrong = (rows < low) | (rows >= count)
        allowed = f"a row of the {target} table (0 to {count - 1})" + (" or -1 for none" if low else "")
        if np.any(wrong):
            audit.unsound.add(column)
            audit.error(column, wrong, allowed, rows)


def _check_conductors(audit: Audit) -> None:
    for table, count in TERMINALS.items():
        for terminal in range(1, count + 1):
            column = f"{table}.conductors{terminal}"
            if not audit.sound(column):
                continue
            texts = audit.texts(*column.split("."))
            may_be_empty = terminal == 2 and table in ("capacitor", "reactor")  # a delta has one terminal
            good = np.array([_reads(text) or (may_be_empty and not text) for text in texts], dtype=bool)
            if not np.all(good):
                audit.unsound.add(column)
                audit.error(column, ~good, f"conductors such as '1.2.3.0', at most {_MOST_CONDUCTORS}", texts)
            if not audit.sound(column, f"{table}.group"):
                continue
            several = np.array([text.split(".").count(HIDDEN_MARK) > 1 for text in texts], dtype=bool)
            audit.error(column, several, "at most one conductor of unknown phase", texts)
            if "group" not in TABLES[table]:
                hidden = np.array([HIDDEN_MARK in text for text in texts], dtype=bool)
                audit.error(column, hidden, "conductors on record", texts)
                if np.any(hidden):
                    audit.unsound.add(column)


def _reads(text: str) -> bool:
    if not _CONDUCTORS.fullmatch(text):
        return False
    return all(part == HIDDEN_MARK or int(part) <= _MOST_CONDUCTORS for part in text.split("."))


def _check_choices(audit: Audit) -> None:
    for column, choices in _CHOICES.items():
        if not audit.sound(column):
            continue
        values = audit.texts(*column.split("."))
        wrong = ~np.isin(values.astype(str), [choice.value for choice in choices])
        if np.any(wrong):
            audit.unsound.add(column)
        audit.error(column, wrong, " or ".join(choice.value for choice in choices), values)


def _check_numbers(audit: Audit) -> None:
    for table, columns in NUMBERS.items():
        for name, (good, expected) in columns.items():
            column = f"{table}.{name}"
            if not audit.sound(column):
                continue
            values = audit.numbers(table, name)
            wrong = ~good(values)
            tell = audit.warn if (table, name) in _ONLY_HINTS else audit.error
            tell(column, wrong, expected, values)
            if np.any(wrong):
                audit.unsound.add(column)
