"""How a row of a frame names a place: element, terminal, phase and quantity, and what is wrong where it names none."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt
import pandas as pd

from mycelium.grid.grid import Grid
from mycelium.schema import CHANNELS, OWN, PHASES, Quantity
from mycelium.sense.frame_file import Texts
from mycelium.sense.frame_places import Places
from mycelium.sense.readings_report import Finding, Trouble, gather, told

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

# Classes of elements as frames write them; OpenDSS's own names of two of them are understood too.
CLASSES = ("bus", "line", "transformer", "consumer", "source")
_TABLES = ("bus", "line", "transformer", "consumer", "substation")
_ALIASES = {"load": "consumer", "vsource": "source"}
_TRANSFORMER = CLASSES.index("transformer")

_QUANTITIES = tuple(Quantity)
# What people write for a quantity; only ever suggested.
_MEANT = {
    "v": Quantity.VOLTAGE, "u": Quantity.VOLTAGE, "i": Quantity.CURRENT, "amps": Quantity.CURRENT,
    "p": Quantity.ACTIVE, "power": Quantity.ACTIVE, "q": Quantity.REACTIVE, "tap_position": Quantity.TAP,
}  # fmt: skip
# Units that people write at the end of it, and how to come from them to ours.
_SUM = "of each hour, sum the energies"
_UNITS: dict[str, tuple[Quantity | None, str]] = {
    "kv": (Quantity.VOLTAGE, "give V: multiply by 1000"),
    "mv": (Quantity.VOLTAGE, "give V"),
    "pu": (None, "multiply by the base"),  # of what, the rest of the name says
    "ka": (Quantity.CURRENT, "give A: multiply by 1000"),
    "ma": (Quantity.CURRENT, "give A: divide by 1000"),
    "kw": (Quantity.ACTIVE, ""),
    "w": (Quantity.ACTIVE, "give kW: divide by 1000"),
    "mw": (Quantity.ACTIVE, "give kW: multiply by 1000"),
    "kwh": (Quantity.ACTIVE, f"give mean kW: {_SUM}"),
    "wh": (Quantity.ACTIVE, f"give mean kW: {_SUM}, and divide by 1000"),
    "mwh": (Quantity.ACTIVE, f"give mean kW: {_SUM}, and multiply by 1000"),
    "kvar": (Quantity.REACTIVE, ""),
    "var": (Quantity.REACTIVE, "give kvar: divide by 1000"),
    "mvar": (Quantity.REACTIVE, "give kvar: multiply by 1000"),
    "kvarh": (Quantity.REACTIVE, f"give mean kvar: {_SUM}"),
    "varh": (Quantity.REACTIVE, f"give mean kvar: {_SUM}, and divide by 1000"),
    "mvarh": (Quantity.REACTIVE, f"give mean kvar: {_SUM}, and multiply by 1000"),
    "rad": (Quantity.ANGLE, "give degrees: multiply by 57.29578"),
    "radians": (Quantity.ANGLE, "give degrees: multiply by 57.29578"),
}

_LONGEST = 200  # characters that are compared with names
_BLANK = -1
_UNKNOWN = -2  # a phase or terminal that means nothing

_COLUMN = {
    Trouble.ELEMENT: "element",
    Trouble.QUANTITY: "quantity",
    Trouble.TERMINAL: "terminal",
    Trouble.HIDDEN: "phase",
    Trouble.PHASE: "phase",
}
_SAYS = {
    Trouble.ELEMENT: "expected an element of the feeder with its class, as in 'bus.650' or 'consumer.c1'",
    Trouble.QUANTITY: f"expected a quantity that the element has, out of {', '.join(_QUANTITIES)}",
    Trouble.TERMINAL: "expected the number of the winding for a transformer, 1 or nothing for all else",
    Trouble.HIDDEN: "the phase of this bus or line is the question, so a reading must not answer it: leave the phase "
    "empty, and give no angle",
    Trouble.PHASE: "expected A, B or C, one that is there; nothing where the reading has no phase",
}


def channel_of() -> Ints:
    """Index of the channel that a class's quantity is read into, -1 where it has none. [class, quantity]

    A voltage or angle at a transformer's terminal or a source is that of the bus.
    """
    keys = list(CHANNELS)
    tables = [("bus",), ("line",), ("winding", "bus"), ("consumer",), ("substation", "bus")]
    found = np.full((len(CLASSES), len(_QUANTITIES)), -1)
    for k, own in enumerate(tables):
        for j, quantity in enumerate(_QUANTITIES):
            at_bus = quantity in (Quantity.VOLTAGE, Quantity.ANGLE)
            key = f"{own[-1] if at_bus else own[0]}.{quantity}"
            found[k, j] = keys.index(key) if key in CHANNELS else -1
    return found


_CHANNEL_OF = channel_of()


class Elements:
    """Elements of a grid by name."""

    def __init__(self, grid: Grid) -> None:
        self._row: dict[str, tuple[int, int]] = {}
        self._bare: dict[str, list[str]] = {}
        for k, table in enumerate(_TABLES):
            for row, name in enumerate(grid.tables[table]["name"]):
                full = f"{CLASSES[k]}.{name}".lower()
                self._row[full] = k, row
                self._bare.setdefault(str(name).lower(), []).append(full)

    def find(self, text: str) -> tuple[int, int]:
        """Class and row of an element, -1 where there is none."""
        return self._row.get(_ours(text), (-1, -1))

    def advise(self, text: str) -> str:
        """What may have been meant by a name that is not there."""
        if len(text) > _LONGEST:
            return "far longer than any name"
        bare = text.lower()
        if bare in self._bare:
            return f"write {' or '.join(self._bare[bare])}"
        known = {*CLASSES, *_ALIASES}
        of, dot, _ = bare.partition(".")
        if not dot:
            near = difflib.get_close_matches(bare, self._bare, n=1)
            return f"has no class; closest is {self._bare[near[0]][0]}" if near else "has no class"
        if of not in known:
            near = difflib.get_close_matches(of, known, n=1)
            return f"'{of}' is no class with readings; " + (f"did you mean {near[0]}?" if near else ", ".join(CLASSES))
        ours = _ours(text)
        same = [name for name in self._row if name.startswith(f"{ours.partition('.')[0]}.")]
        near = difflib.get_close_matches(ours, same, n=1)
        return f"closest is {near[0]}" if near else f"nothing like it among {len(same)} of that class"


def _ours(text: str) -> str:
    """A name with our class and in lower case, as in 'consumer.c1' for 'Load.C1'."""
    of, dot, name = text.lower().partition(".")
    return f"{_ALIASES.get(of, of)}{dot}{name}"


def _phase(text: str) -> int:
    return _BLANK if not text else PHASES.index(text.upper()) if text.upper() in PHASES else _UNKNOWN


def _terminal(text: str) -> int:
    digits = text.removesuffix(".0")  # a column of numbers with gaps
    return _BLANK if not text else int(digits) if digits in map(str, range(1, 10)) else _UNKNOWN


def _quantity(text: str) -> int:
    return _QUANTITIES.index(Quantity(text.lower())) if text.lower() in _QUANTITIES else -1


def place_rows(columns: dict[str, pd.Series], number: Ints, grid: Grid, places: Places) -> tuple[Ints, list[Finding]]:
    """The place that each row names, -1 where it names none [row], and what is wrong with these.

    Args:
        columns: Columns of the frame. [row]
        number: Number of each row, for people. [row]
        grid: The network.
        places: Its places.
    """
    texts = {name: Texts.of(columns[name]) for name in ("element", "terminal", "phase", "quantity")}
    named, member = _Named.of(texts, Elements(grid))
    place, failed = _place(named, grid, places)
    findings = []
    for trouble in _COLUMN:
        which = failed[trouble]
        if not which.any():
            continue
        tell = partial(_tell, trouble, named, grid, places)
        numbers, examples = gather(which[member], named.cause(trouble)[member], number, _of_row(tell, member))
        findings.append(Finding(trouble, _COLUMN[trouble], numbers, _SAYS[trouble], examples))
    return place[member], findings


def _of_row(tell: Callable[[int], str], member: Ints) -> Callable[[int], str]:
    return lambda row: tell(int(member[row]))


@dataclass(frozen=True)
class _Named:
    """The different names that rows have: few, in millions of rows.

    Attributes:
        texts: Columns as written; ``code`` is per name here.
        elements: To advise on names.
        kind, row: Class and row of the element, -1 unknown. [name]
        quantity: Index of the quantity, -1 unknown. [name]
        terminal: Number, _BLANK or _UNKNOWN. [name]
        phase: Slot, _BLANK or _UNKNOWN. [name]
    """

    texts: dict[str, Texts]
    elements: Elements
    kind: Ints
    row: Ints
    quantity: Ints
    terminal: Ints
    phase: Ints

    @staticmethod
    def of(texts: dict[str, Texts], elements: Elements) -> tuple[_Named, Ints]:
        """The different names, and which each row has. [row]"""
        key = np.zeros(len(texts["element"].code), np.int64)
        for column in texts.values():
            key = pd.factorize(key * len(column.text) + column.code % len(column.text))[0].astype(np.int64)
        _, first = np.unique(key, return_index=True)
        own = {name: Texts(column.code[first], column.text) for name, column in texts.items()}
        found = np.array([elements.find(text) for text in own["element"].text])[own["element"].code]

        def read(name: str, meaning: Callable[[str], int]) -> Ints:
            return np.array([meaning(text) for text in own[name].text])[own[name].code]

        return _Named(
            own, elements, found[:, 0], found[:, 1],
            read("quantity", _quantity), read("terminal", _terminal), read("phase", _phase),
        ), key  # fmt: skip

    def text(self, column: str, name: int) -> str:
        texts = self.texts[column]
        return texts.text[int(texts.code[name])]

    def cause(self, trouble: Trouble) -> Ints:
        """What is the same for names in trouble for the same reason. [name]"""
        if trouble is Trouble.QUANTITY:
            return self.kind * len(self.texts["quantity"].text) + self.texts["quantity"].code
        return self.texts["element"].code


def _place(named: _Named, grid: Grid, places: Places) -> tuple[Ints, dict[Trouble, Flags]]:
    """Place of each name, -1 where there is none [name], and which names are in trouble, by the first trouble found."""
    channel = np.where((named.kind >= 0) & (named.quantity >= 0), _CHANNEL_OF[named.kind, named.quantity], -1)
    failed = {
        Trouble.ELEMENT: named.kind < 0,
        Trouble.QUANTITY: (named.quantity < 0) | ((named.kind >= 0) & (channel < 0)),
    }
    left = channel >= 0
    row, winding = _channel_row(named, grid, channel)
    no_tap = np.zeros(len(left), bool)
    tap = left & (channel == list(CHANNELS).index("winding.tap_pu")) & (row >= 0)
    no_tap[tap] = ~places.possible["winding.tap_pu"][row[tap], 0]
    failed[Trouble.TERMINAL] = left & ((row < 0) | no_tap)
    left = left & ~failed[Trouble.TERMINAL]

    slot, there, hidden = _slots(named, channel, np.where(left, row, -1), places)
    at = there & (winding >= 0) & (slot < OWN)  # a voltage at a transformer's terminal: of its own conductors
    there[at] &= places.possible["winding.current_a"][winding[at], slot[at]] | tap[at]
    failed[Trouble.HIDDEN] = left & ~there & hidden
    failed[Trouble.PHASE] = left & ~there & ~hidden
    place = np.full(len(left), -1)
    place[there] = places.layout.number(channel[there], row[there], slot[there])
    return place, failed


def _slots(named: _Named, channel: Ints, row: Ints, places: Places) -> tuple[Ints, Flags, Flags]:
    """Slot that the phase says, whether a reading can be there, and whether the phase there is in question. [name]"""
    slot = np.where(named.phase == _BLANK, OWN, named.phase)
    there, hidden = np.zeros(len(row), bool), np.zeros(len(row), bool)
    for k, (key, of) in enumerate(CHANNELS.items()):
        here = (row >= 0) & (channel == k)
        if of.slots == 1:
            there |= here & (named.phase == _BLANK)
            slot[here] = 0
            continue
        can = places.possible[key]
        fits = here & (slot >= 0) & (slot < of.slots)
        there[fits] = can[row[fits], slot[fits]]
        # Angles have no slot OWN; the bus's voltage has.
        own = places.possible["bus.voltage_v"] if of.table == "bus" else can
        hidden[here] = own[row[here], OWN] if own.shape[1] > OWN else False
    return slot, there, hidden


def _channel_row(named: _Named, grid: Grid, channel: Ints) -> tuple[Ints, Ints]:
    """Row in the channel's table, -1 where the terminal is wrong [name], and the winding, -1 for others. [name]"""
    row = np.where((named.terminal == _BLANK) | (named.terminal == 1), named.row, -1)
    windings = np.append(grid.transformer["n_windings"].to_numpy(), 0)
    first = np.append(grid.transformer["first_winding"].to_numpy(), 0)
    unit = np.where(named.kind == _TRANSFORMER, named.row, -1)
    exists = (unit >= 0) & (named.terminal >= 1) & (named.terminal <= windings[unit])
    winding = np.where(exists, first[unit] + named.terminal - 1, -1)
    row = np.where(unit >= 0, winding, row)
    at_bus = np.isin(channel, [k for k, of in enumerate(CHANNELS.values()) if of.table == "bus"]) & (row >= 0)
    for kind, table in ((_TRANSFORMER, "winding"), (CLASSES.index("source"), "substation")):
        which = at_bus & (named.kind == kind)
        row[which] = grid.tables[table]["bus1"].to_numpy()[row[which]]
    return row, winding


def _tell(trouble: Trouble, named: _Named, grid: Grid, places: Places, name: int) -> str:
    """What is wrong with one name."""
    element, phase, quantity = (named.text(column, name) for column in ("element", "phase", "quantity"))
    if trouble is Trouble.ELEMENT:
        return f"{told(element)}: {named.elements.advise(element)}"
    if trouble is Trouble.QUANTITY:
        return _tell_quantity(quantity, int(named.kind[name]))
    if trouble is Trouble.TERMINAL:
        return _tell_terminal(named, grid, name)
    if trouble is Trouble.HIDDEN:
        return f"{element} {quantity}, phase {told(phase)}"
    return f"{element} {quantity}, phase {told(phase)}: {_phases_there(named, grid, places, name)}"


def _tell_quantity(text: str, kind: int) -> str:
    if _quantity(text) < 0:
        return f"{told(text)}{_meant(text.lower()[:_LONGEST])}"
    has = [quantity for quantity, channel in zip(_QUANTITIES, _CHANNEL_OF[kind], strict=True) if channel >= 0]
    return f"{text} of a {CLASSES[kind]}, which has {', '.join(has)}"


def _meant(text: str) -> str:
    """The quantity that may have been meant, and how to come to its unit."""
    near = difflib.get_close_matches(text, _QUANTITIES, n=1, cutoff=0.5)
    of_unit, change = _UNITS.get(re.split(r"[^a-z]+", text)[-1], (None, ""))
    meant = [of_unit or _MEANT.get(text), *near]
    told_of = next((quantity for quantity in meant if quantity), None)
    return f": did you mean {told_of}?{f' Then {change}' if change else ''}" if told_of else ""


def _tell_terminal(named: _Named, grid: Grid, name: int) -> str:
    element, terminal = named.text("element", name), int(named.terminal[name])
    if named.kind[name] != _TRANSFORMER:
        return f"{element}: {told(named.text('terminal', name))}"
    unit = grid.transformer.iloc[named.row[name]]
    windings = int(unit["n_windings"])
    if 1 <= terminal <= windings:
        moved = grid.winding["regulated"].to_numpy()[int(unit["first_winding"]) :][:windings]
        which = ", ".join(str(k + 1) for k in np.flatnonzero(moved)) or "none"
        return f"{element}: no regulator moves the tap of winding {terminal}, only of {which}"
    return f"{element}: {told(named.text('terminal', name))}; it has windings 1 to {windings}"


def _phases_there(named: _Named, grid: Grid, places: Places, name: int) -> str:
    """Phases that a reading could have had."""
    kind, quantity = int(named.kind[name]), int(named.quantity[name])
    channel = list(CHANNELS.values())[_CHANNEL_OF[kind, quantity]]
    if channel.slots == 1:
        return "it has no phase; leave it empty"
    row, winding = (int(rows[name]) for rows in _channel_row(named, grid, _CHANNEL_OF[named.kind, named.quantity]))
    key, at = ("winding.current_a", winding) if winding >= 0 else (channel.key, row)
    can = [phase for phase, has in zip(PHASES, places.possible[key][at], strict=False) if has]
    return f"it has {', '.join(can) or 'no phase'}"
