"""What was made of a file of readings: what was used, what it covers, what was not used and why, row by row."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt
from rich.console import Console, Group, RenderableType
from rich.markup import escape
from rich.table import Table

from mycelium.grid.grid import Grid
from mycelium.schema import CHANNELS, HOURS, Quantity
from mycelium.sense.readings import Readings

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

_WORDS = {
    Quantity.VOLTAGE: "voltage",
    Quantity.ANGLE: "voltage angle",
    Quantity.CURRENT: "current",
    Quantity.ACTIVE: "active power",
    Quantity.REACTIVE: "reactive power",
    Quantity.TAP: "tap readback",
}

EXAMPLES = 5  # told per finding
_GAPS_TOLD = 20  # listed in JSON
_TEXT = 60  # characters of a cell that are told

# What people call the rows of a channel's table, and the class in front of their names.
NOUNS = {
    "bus": ("buses", "bus"),
    "line": ("lines", "line"),
    "winding": ("transformer terminals", "transformer"),
    "consumer": ("customers", "consumer"),
    "substation": ("sources", "source"),
}


class Trouble(StrEnum):
    """Why rows were not used, or what is worth knowing about those that were."""

    MALFORMED = "malformed row"
    TIME = "time"
    ELEMENT = "unknown element"
    QUANTITY = "quantity"
    TERMINAL = "terminal"
    PHASE = "phase"
    HIDDEN = "phase in question"
    VALUE = "value"
    OUTSIDE = "outside the 24 hours"
    SUB_HOURLY = "several readings an hour"
    OFF_HOUR = "not on the hour"
    REPEATED = "repeated row"
    CONFLICT = "conflicting rows"
    UNIT = "unit"
    SCALE = "scale"
    CLOCK = "clock change"
    HOURS = "hours"
    COLUMN = "column ignored"


@dataclass(frozen=True, slots=True, eq=False)
class Finding:
    """Rows with the same trouble.

    Attributes:
        trouble: Which.
        column: Column it is in; empty where it concerns whole rows.
        rows: All of them, as ``ReadingsReport.rows_are`` says; empty where it concerns no rows. [row]
        says: What was expected, and what to do.
        examples: The first few causes, each with a row.
        used: Whether the rows were used all the same.
    """

    trouble: Trouble
    column: str
    rows: Ints
    says: str
    examples: tuple[str, ...] = ()
    used: bool = False

    def as_dict(self) -> dict[str, object]:
        """For JSON."""
        return {
            "trouble": str(self.trouble),
            "column": self.column,
            "count": len(self.rows),
            "used": self.used,
            "says": self.says,
            "examples": list(self.examples),
            "rows": self.rows.tolist(),
        }


@dataclass(frozen=True, slots=True)
class Coverage:
    """How many elements report one quantity.

    Attributes:
        channel: Key of ``schema.CHANNELS``.
        values: Readings accepted.
        elements: Rows of the channel's table with at least one.
        of: Rows of the table that can have one.
    """

    channel: str
    values: int
    elements: int
    of: int

    def __str__(self) -> str:
        channel = CHANNELS[self.channel]
        verb = "has" if self.elements == 1 else "have"
        return f"{self.elements} of {self.of} {NOUNS[channel.table][0]} {verb} {_WORDS[channel.quantity]}"


@dataclass(frozen=True, slots=True)
class Gap:
    """Hours, of the 24, in which an element that reports a quantity did not, on one of its phases at least."""

    element: str
    quantity: str
    hours: int


@dataclass(frozen=True, slots=True)
class ReadingsReport:
    """Result of reading a frame or file.

    Attributes:
        source: File, or 'frame'.
        rows_are: How rows are numbered.
        rows: Rows in it.
        used: Rows that became readings.
        start: First of the 24 hours; empty where no time could be read.
        hours_seen: Hours with a reading.
        coverage: Per channel.
        findings: What was not used, then what is worth knowing.
        gaps: Elements with hours missing, most first.
    """

    source: str
    rows_are: str
    rows: int
    used: int
    start: str
    hours_seen: int
    coverage: tuple[Coverage, ...]
    findings: tuple[Finding, ...]
    gaps: tuple[Gap, ...]

    def of(self, trouble: Trouble) -> tuple[Finding, ...]:
        """Findings of one kind."""
        return tuple(finding for finding in self.findings if finding.trouble is trouble)

    def as_dict(self) -> dict[str, object]:
        """For JSON; long lists are counted and shortened."""
        return {
            "source": self.source,
            "rows": self.rows,
            "used": self.used,
            "not_used": self.rows - self.used,
            "start": self.start,
            "hours_seen": self.hours_seen,
            "rows_are": self.rows_are,
            "coverage": {
                c.channel: {"values": c.values, "elements": c.elements, "of": c.of, "says": str(c)}
                for c in self.coverage
            },
            "findings": [finding.as_dict() for finding in self.findings],
            "gaps": {
                "count": len(self.gaps),
                "examples": [
                    {"element": gap.element, "quantity": gap.quantity, "hours": gap.hours}
                    for gap in self.gaps[:_GAPS_TOLD]
                ],
            },
        }

    def __str__(self) -> str:
        text = io.StringIO()
        Console(file=text, width=120).print(self)
        return text.getvalue()

    def __rich__(self) -> RenderableType:
        start = f"the 24 hours from {self.start}, {self.hours_seen} of them with readings" if self.start else "no hour"
        parts: list[RenderableType] = [escape(f"{self.source}: {self.used} of {self.rows} rows used; {start}")]
        if self.used:
            parts.append(self._accepted())
        refused = [finding for finding in self.findings if not finding.used]
        noted = [finding for finding in self.findings if finding.used]
        if refused:
            parts.append(_findings("not used", refused))
            parts.append(f"rows: {self.rows_are}")
        if noted:
            parts.append(_findings("worth knowing", noted))
        if self.gaps:
            told = ", ".join(f"{gap.element} {gap.quantity} ({gap.hours} h)" for gap in self.gaps[:EXAMPLES])
            of = "series of readings has" if len(self.gaps) == 1 else "series of readings have"
            parts.append(escape(f"gaps: {len(self.gaps)} {of} hours missing, such as {told}"))
        return Group(*parts)

    def _accepted(self) -> Table:
        table = Table("quantity", "readings", "coverage", title="accepted")
        for c in self.coverage:
            if c.values:
                table.add_row(c.channel, str(c.values), str(c))
        silent = [c.channel for c in self.coverage if c.of and not c.values]
        if silent:
            table.caption = f"none of: {', '.join(silent)}"
        return table


def _findings(title: str, findings: list[Finding]) -> Table:
    table = Table("what", "rows", "why", "for example", title=title, show_lines=True)
    for finding in findings:
        what = f"{finding.trouble} ({finding.column})" if finding.column else str(finding.trouble)
        rows = str(len(finding.rows)) if len(finding.rows) else ""
        table.add_row(*(escape(text) for text in (what, rows, finding.says, "\n".join(finding.examples))))
    return table


def told(text: str) -> str:
    """A cell of a stranger's file, in quotes, with whatever would not print written out."""
    lines = text.count("\n")
    swallowed = f" (takes {lines + 1} lines: a quotation mark is opened and not closed)" if lines else ""
    return repr(text if len(text) <= _TEXT else text[:_TEXT] + "...") + swallowed


def gather(failed: Flags, cause: Ints, row: Ints, tell: Callable[[int], str]) -> tuple[Ints, tuple[str, ...]]:
    """Row numbers that failed, and examples: one per cause, in the order of their first rows.

    Args:
        failed: Which rows. [item]
        cause: What is the same for rows with the same cause. [item]
        row: Number of each row, for people. [item]
        tell: What to say of an item, which stands for all with its cause.
    """
    items = np.flatnonzero(failed)
    _, first, count = np.unique(cause[items], return_index=True, return_counts=True)
    examples = []
    for k in np.argsort(first, kind="stable")[:EXAMPLES]:
        item = int(items[first[k]])
        more = f" and {count[k] - 1} more" if count[k] > 1 else ""
        examples.append(f"row {row[item]}{more}: {tell(item)}")
    if len(first) > EXAMPLES:
        examples.append(f"... and {len(first) - EXAMPLES} more like these")
    return row[items], tuple(examples)


def coverage(readings: Readings, possible: dict[str, Flags]) -> tuple[Coverage, ...]:
    """What the readings cover, per channel.

    Args:
        readings: The day.
        possible: Where a reading can be, per channel. [row, slot]
    """
    return tuple(
        Coverage(key, int(seen.sum()), int(seen.any(axis=(0, 2)).sum()), int(possible[key].any(axis=1).sum()))
        for key, seen in readings.seen.items()
    )


def gaps(readings: Readings, grid: Grid) -> tuple[Gap, ...]:
    """Hours missing of every element that reports a quantity at all, most first."""
    found = []
    for key, seen in readings.seen.items():
        channel = CHANNELS[key]
        ever: Flags = np.any(seen, axis=0)
        missing = HOURS - np.all(seen | ~ever, axis=2).sum(axis=0)
        rows = np.flatnonzero(ever.any(axis=1) & (missing > 0))
        names = element_names(grid, channel.table)
        found += [Gap(names[row], channel.quantity.value, int(missing[row])) for row in rows]
    return tuple(sorted(found, key=lambda gap: -gap.hours))


def element_names(grid: Grid, table: str) -> npt.NDArray[np.object_]:
    """Names of a table's rows with their class, as in 'bus.650'; a winding has its transformer's. [row]"""
    if table == "winding":
        names = grid.transformer["name"].to_numpy(dtype=object)[grid.winding["transformer"].to_numpy()]
    else:
        names = grid.tables[table]["name"].to_numpy(dtype=object)
    return np.array([f"{NOUNS[table][1]}.{name}" for name in names], dtype=object)
