"""Flattens an OpenDSS model into plain commands that cannot touch anything outside the feeder's folder.

The engine never opens a script itself: `read_script` follows the master file and all it redirects to, and
keeps what describes the network. The rest is left out with a note, or refused. How a line is split, and which
properties touch files, is in `dss_tokens`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path, PureWindowsPath
from typing import NoReturn

from mycelium.errors import FeederError
from mycelium.grid.dss_tokens import (
    PLAIN_LINE,
    STRAY_LINE,
    Folder,
    OutsideError,
    Parameter,
    PropertyCheck,
    Tokens,
    expand,
    file_in_array,
    quoted,
    vocabulary,
)

MAX_DEPTH = 64


@dataclass(frozen=True, slots=True)
class Command:
    """One command for the engine, and where it stands.

    Attributes:
        file: relative to the feeder's folder, with forward slashes.
        line: from 1.
        text: one command; a continuation (`~`) is a command of its own.
    """

    file: str
    line: int
    text: str


@dataclass(frozen=True, slots=True)
class ScriptNote:
    """Something of the script that was left out or changed.

    Attributes:
        file: relative to the feeder's folder, with forward slashes.
        line: from 1.
        what: the element, property or command.
        why: the reason, and what to do where something can be done.
    """

    file: str
    line: int
    what: str
    why: str


@dataclass(frozen=True, slots=True)
class Script:
    """A model as the list of commands that build it.

    Attributes:
        master: the file that was read first, absolute.
        root: the folder that nothing was read outside of, absolute.
        commands: in order; feed them to an engine that has no circuit.
        bus_coordinates: (x, y) by lower-case bus name, in the unit of the model.
        notes: what was left out or changed, in order.
    """

    master: Path
    root: Path
    commands: tuple[Command, ...]
    bus_coordinates: Mapping[str, tuple[float, float]]
    notes: tuple[ScriptNote, ...]


def read_script(master: Path, root: Path | None = None) -> Script:
    """Reads a model from its master file.

    Args:
        master: the OpenDSS file that defines the circuit.
        root: the folder that may be read; by default the one that holds the master.

    Raises:
        FeederError: the model cannot be read, is incomplete, or asks for something it may not do.
    """
    if not master.is_file():
        found = "is a folder" if master.is_dir() else "no such file"
        raise FeederError(f"{master}: {found}; give the path of the feeder's master .dss file.")
    file = master.resolve()
    folder = file.parent if root is None else root.resolve()
    if not file.is_relative_to(folder):
        raise FeederError(f"{master}: lies outside {root}; give a --root that holds the master file.")
    reader = _Reader(folder)
    reader.read_file(file)
    return reader.script(file)


_WHY_MEASURED = "measuring devices play no part in the network and would write files"
_DROPPED_CLASSES = {"energymeter": _WHY_MEASURED, "monitor": _WHY_MEASURED, "sensor": _WHY_MEASURED}

_WHY_DROPPED = "belongs to a simulation, a report or a plot, and does not describe the network"
_DROPPED = {
    "clear": "the engine starts empty",
    "clearall": "the engine starts empty",
    "allocateloads": "load allocation is not run: loads keep the sizes written in the model",
    "interpolate": "bus coordinates are taken as written",
    "rotate": "bus coordinates are taken as written",
    "obfuscate": "elements keep their names",
    "uuids": "identifiers play no part in the network",
}
_REFUSED = {
    "doscmd": "runs a program of the operating system",
    "connect": "opens a network connection",
    "distribute": "adds generators to the model and writes them to a file",
    "makeposseq": "turns the model into a positive-sequence one",
    "reduce": "merges elements of the model",
    "rephase": "changes the phases of the model and writes them to a file",
    "reconductor": "changes the lines of the model",
    "remove": "removes elements of the model",
}
# Options of `set` that say what the network is; the others steer a simulation, a report or a plot.
_NETWORK_OPTIONS = {
    *("defaultbasefrequency", "basefrequency", "voltagebases", "earthmodel", "cktmodel"),
    *("longlinecorrection", "loadmult", "genmult", "allocationfactors", "cfactors", "allowduplicates"),
    *("defaultdaily", "defaultyearly", "normvminpu", "normvmaxpu", "emergvminpu", "emergvmaxpu", "%normal"),
}
_SELECTING_OPTIONS = {"type", "class", "element", "object"}


class _Reader:
    """Goes through the files of one model, line by line."""

    def __init__(self, root: Path) -> None:
        self._words = vocabulary()
        self._plain_classes = self._words.plain_classes - _DROPPED_CLASSES.keys()
        self._handlers = self._make_handlers()
        self._folder = Folder(root)
        self._variables: dict[str, str] = {}
        self._properties = PropertyCheck(self._folder, self._variables)
        self._commands: list[Command] = []
        self._notes: list[ScriptNote] = []
        self._coordinates: dict[str, tuple[float, float]] = {}
        self._current = root
        self._open_files: list[Path] = []
        self._file, self._line = "", 0
        self._circuit = ""
        # The element that `~` continues: the one that the engine has active. No class: not known for sure.
        self._class, self._element = "", ""

    def _make_handlers(self) -> dict[str, Callable[[str, Tokens], None]]:
        return {
            **dict.fromkeys(("calcvoltagebases", "makebuslist", "setkvbase", "setloadandgenkv"), self._keep),
            **dict.fromkeys(("new", "edit", "batchedit"), self._define),
            **dict.fromkeys(("more", "m", "~"), self._continue),
            **dict.fromkeys(("open", "close", "enable", "disable", "select"), self._point),
            **dict.fromkeys(("set", "solve", "solveall"), self._set),
            **dict.fromkeys(("redirect", "compile"), self._redirect),
            **dict.fromkeys(("buscoords", "latlongcoords"), self._read_coordinates),
            "setbusxy": self._set_coordinates,
            "cd": self._change_folder,
            "var": self._define_variables,
        }

    def script(self, master: Path) -> Script:
        """What was read."""
        if not self._circuit:
            raise FeederError(f"{master.name}: makes no circuit (`New Circuit.name`); give the master file.")
        return Script(master, self._folder.root, tuple(self._commands), self._coordinates, tuple(self._notes))

    # Files

    def read_file(self, path: Path) -> None:
        """Reads a script file; on return the file of the caller is current again, but not its folder."""
        text = self._text_of(path)
        caller = self._file, self._line
        self._open_files.append(path.resolve())
        self._file, self._current = self._folder.relative(path), path.parent
        self._read_lines(text)
        self._open_files.pop()
        self._file, self._line = caller

    def _text_of(self, path: Path) -> str:
        try:
            return self._folder.read(path)
        except FeederError as error:
            self._fail(str(error))

    def _read_lines(self, text: str) -> None:
        plain_classes, file, commands = self._plain_classes, self._file, self._commands
        in_comment = False
        for number, line in enumerate(text.split("\n"), 1):
            line = line.strip(" \t")
            if in_comment or line.startswith("/*"):
                # The engine ends a block comment with the line, whatever follows on it.
                in_comment = "*/" not in line
                continue
            plain = PLAIN_LINE.match(line) if "//" not in line and "@" not in line else None
            if plain:
                element = plain[1] or plain[3]
                class_name = (plain[2] or plain[4]).lower() if element else self._class
                if class_name in plain_classes:
                    if element:
                        self._class, self._element = class_name, element
                    commands.append(Command(file, number, plain[0]))
                    continue
            if line:
                self._line = number
                self._read_line(line)

    def _read_line(self, line: str) -> None:
        tokens = Tokens(line, self._variables)
        first = tokens.take()
        if first.name:
            self._edit_property(first, tokens)
            return
        if not first.value:
            return
        if "@" in first.written:
            self._fail(f"'{first.text}': a variable cannot stand for a command; write the command out.")
        verb = self._words.command(first.value)
        if verb in self._handlers:
            self._handlers[verb](verb, tokens)
        elif verb in _REFUSED:
            advice = "remove the line, or run it in OpenDSS and save the circuit it makes"
            self._fail(f"'{verb}' {_REFUSED[verb]}, which is not done here; {advice}.")
        elif verb:
            self._drop(verb, tokens)
        elif STRAY_LINE.fullmatch(line):
            self._note(line[:40], "a line without a command")
        else:
            self._fail_unknown(first.value)

    # Commands by kind

    def _keep(self, verb: str, tokens: Tokens) -> None:
        for _ in tokens:
            pass
        self._append(tokens.source)

    def _drop(self, verb: str, tokens: Tokens) -> None:
        if self._circuit and verb in ("clear", "clearall"):
            self._fail(f"'{verb}' discards the circuit made at {self._circuit}; remove one of the two lines.")
        for parameter in tokens:
            self._refuse_outside(verb, parameter.value)
        self._note(verb, _DROPPED.get(verb, _WHY_DROPPED))

    def _define_variables(self, verb: str, tokens: Tokens) -> None:
        for parameter in tokens:
            if not parameter.name:
                break
            if file_in_array(parameter.value, self._variables):
                self._fail(f"variable {parameter.name} names a data file; write the file where it is used.")
            value = parameter.value
            self._variables[parameter.name] = "{" + value + "}" if "@" in value else value
        self._append(tokens.source, activates=self._class)

    def _redirect(self, verb: str, tokens: Tokens) -> None:
        asked = tokens.take().value
        back = self._current
        path = self._script_file(verb, asked)
        if path.resolve() in self._open_files:
            self._fail(f"{verb} to '{asked}' goes round in a circle, as that file is being read; break it.")
        if len(self._open_files) >= MAX_DEPTH:
            self._fail(f"{verb} to '{asked}' is more than {MAX_DEPTH} files deep; join some of the files.")
        self.read_file(path)
        # The engine stays in the folder of a compiled file, and comes back from a redirected one.
        self._current = path.parent if verb == "compile" else back

    def _script_file(self, verb: str, asked: str) -> Path:
        if not asked:
            self._fail(f"'{verb}' names no file; expected `{verb} FILE`.")
        try:
            path = self._folder.find(asked, self._current)
            if path is None and not Path(asked).suffix:
                path = self._folder.find(asked + ".dss", self._current)
        except OutsideError:
            self._fail_outside(verb, asked)
        if path is None:
            here = self._folder.relative(self._current)
            self._fail(f"{verb} to '{asked}': no such file, seen from '{here}'; add it or correct the path.")
        if not path.is_file():
            self._fail(f"{verb} to '{asked}': expected a file, found a folder; name the file in it.")
        return path

    def _change_folder(self, verb: str, tokens: Tokens) -> None:
        self._enter(verb, tokens.take().value)

    def _enter(self, what: str, asked: str) -> None:
        """Makes a folder the current one, if there is such a folder."""
        try:
            path = self._folder.find(asked, self._current)
        except OutsideError:
            self._fail_outside(what, asked)
        if path is not None and path.is_dir():
            self._current = path

    # Elements

    def _define(self, verb: str, tokens: Tokens) -> None:
        """New, edit and batchedit."""
        target, renamed = self._target(verb, tokens)
        if not self._measures(self._element):
            self._append_checked(f"{verb} {target}", tokens, tokens, edited=renamed)

    def _point(self, verb: str, tokens: Tokens) -> None:
        """Commands that name an element without editing it."""
        target, _ = self._target(verb, tokens)
        if not self._measures(f"{verb} {self._element}"):
            text = self._rebuilt([verb, target, *(parameter.text for parameter in tokens)])
            self._append(text, activates=self._class if verb == "select" else "")

    def _continue(self, verb: str, tokens: Tokens) -> None:
        if not self._class:
            self._fail(f"'{verb}' continues an element, but there is none before it; write `New Class.name`.")
        if self._class not in _DROPPED_CLASSES:  # else part of what is noted already
            self._append_checked(verb, tokens, tokens)

    def _edit_property(self, first: Parameter, tokens: Tokens) -> None:
        """Lines such as `Class.name.property=value more=...`, the name or its class perhaps left out."""
        *names, property_name = first.name.split(".", 2)
        if not property_name or (len(names) < 2 and not self._class):
            self._fail_unknown(first.label)
        if names:
            class_name = names[0] if len(names) == 2 else self._class
            self._activate("edit", class_name, expand(names[-1], self._variables))
        if self._measures(first.label):
            return
        # The engine would put the value in double quotes and split the line anew, so it gets an edit command. In
        # that, a quote in the name of the property has its meaning, which it has not in the middle of a word.
        given = Tokens(f"{property_name}={first.written}", self._variables).take()
        head = f"edit {self._quoted_element()}" if names else "~"
        self._append_checked(head, chain([given], tokens), tokens, edited=True)

    def _target(self, verb: str, tokens: Tokens) -> tuple[str, bool]:
        """Takes the element of a command and makes it active; its text, and whether that is not as written."""
        given = tokens.take()
        class_name, dot, name = given.value.partition(".")
        named_right = "object".startswith(given.name) or given.name.startswith("object")
        if not dot or not named_right:
            self._fail(f"'{verb} {given.text}': expected `{verb} Class.name`.")
        self._activate(verb, class_name, expand(name, self._variables))
        renamed = "@" in given.written
        return self._quoted_element() if renamed else given.text, renamed

    def _activate(self, verb: str, class_name: str, name: str) -> None:
        self._class, self._element = class_name.lower(), f"{class_name}.{name}"
        if self._class == "circuit" and verb == "new":
            if self._circuit:
                self._fail(f"a second circuit, '{name}'; the first is made at {self._circuit}; keep one.")
            self._circuit = f"{self._file}:{self._line}"
            self._class = "vsource"
        elif self._class == "circuit":
            self._fail(f"'{verb} {self._element}' has no effect in OpenDSS; name its Vsource.source instead.")
        elif self._class not in self._words.properties:
            self._fail(f"'{self._element}': OpenDSS has no class of elements '{class_name}'; correct it.")

    def _quoted_element(self) -> str:
        return quoted(self._element) or self._fail(f"'{self._element}': every kind of quotes; rename it.")

    def _measures(self, what: str) -> bool:
        """Whether the active element is one that is left out, which is then noted."""
        why = _DROPPED_CLASSES.get(self._class)
        if why is not None:
            self._note(what, why)
        return why is not None

    # Properties of elements

    def _append_checked(self, head: str, parameters: Iterable[Parameter], tokens: Tokens, edited: bool = False) -> None:
        """Adds a command that sets properties of the active element, without what it may not do.

        Args:
            head: the command and what it names.
            parameters: the properties.
            tokens: of the line, whose text is kept if nothing in it has to change.
            edited: `head` and `parameters` say something else than the line.
        """
        try:
            texts, changed, notes = self._properties.check(self._class, parameters, self._current)
        except FeederError as error:
            self._fail(f"{self._element}: {error}")
        for name, why in notes:
            self._note(f"{self._element}.{name}", why)
        text = self._rebuilt([head, *texts]) if changed or edited else tokens.source
        self._append(text, activates=self._class)

    def _rebuilt(self, pieces: list[str]) -> str:
        """Joins pieces to a command, and makes sure that it means what they mean one by one."""
        text = " ".join(piece for piece in pieces if piece)
        parts = [parameter for piece in pieces for parameter in Tokens(piece, self._variables)]
        whole = list(Tokens(text, self._variables))
        if [(part.name, part.value) for part in parts] != [(part.name, part.value) for part in whole]:
            self._fail(f"'{text[:60]}': quotes too unusual to be checked; write the line with fewer of them.")
        return text

    # Options

    def _set(self, verb: str, tokens: Tokens) -> None:
        """Keeps the options that say what the network is; `solve` may carry options too."""
        kept, position = [], 0
        for parameter in tokens:
            position = self._words.option(parameter.name) if parameter.name else position + 1
            known = 0 < position <= len(self._words.options)
            option = self._words.options[position - 1] if known else ""
            if option in _NETWORK_OPTIONS:
                kept.append(f"{option}={parameter.written}")
                continue
            what = f"set {option or parameter.name}"
            self._refuse_outside(what, parameter.value)
            if option == "datapath":
                self._enter(what, parameter.value)
            elif option in _SELECTING_OPTIONS:
                self._class = ""  # another element is meant by `~` than the one active in the engine
            if verb == "set":
                self._note(what, _WHY_DROPPED if option else "is not an option that the engine knows")
        if kept:
            self._append(self._rebuilt(["set", *kept]))
        if verb != "set":
            self._note(verb, _WHY_DROPPED)

    # Coordinates

    def _read_coordinates(self, verb: str, tokens: Tokens) -> None:
        asked = tokens.take().value
        found = self._folder.data_file(asked, self._current)
        try:
            text = self._folder.read(found) if isinstance(found, Path) else ""
        except FeederError as error:
            text, found = "", str(error)
        if not isinstance(found, Path):
            self._note(verb, f"{found}; buses stay without these coordinates")
        bad = []
        for number, row in enumerate(text.split("\n"), 1):
            columns = [column.value for column in Tokens(row, {})]
            if columns and not self._place(columns, swapped=verb == "latlongcoords"):
                bad.append(number)
        if bad:
            self._note(verb, f"'{asked}': {len(bad)} rows are not `bus, x, y`, the first in line {bad[0]}")

    def _set_coordinates(self, verb: str, tokens: Tokens) -> None:
        columns, position = ["", "", ""], -1
        for parameter in tokens:
            position = "bxy".find(parameter.name[0]) if parameter.name else position + 1
            if 0 <= position < len(columns):
                columns[position] = parameter.value
        if not self._place(columns, swapped=False):
            self._note(verb, "expected a bus, x and y")

    def _place(self, columns: list[str], swapped: bool) -> bool:
        """Gives a bus its coordinates; whether the columns (bus, x, y) made sense."""
        try:
            x, y = float(columns[1]), float(columns[2])
        except (IndexError, ValueError):
            return False
        if not (columns[0] and math.isfinite(x) and math.isfinite(y)):
            return False
        self._coordinates[columns[0].lower()] = (y, x) if swapped else (x, y)
        return True

    # Results

    def _append(self, text: str, activates: str = "") -> None:
        """Adds a command; `activates` is the class whose element it surely leaves active in the engine."""
        self._commands.append(Command(self._file, self._line, text))
        self._class = activates

    def _note(self, what: str, why: str) -> None:
        self._notes.append(ScriptNote(self._file, self._line, what, why))

    def _refuse_outside(self, what: str, value: str) -> None:
        """Stops at a command that is left out anyway, but names a path it has no business with."""
        if not ("/" in value or "\\" in value or value == ".." or PureWindowsPath(value).drive):
            return
        try:
            self._folder.path(value, self._current)
        except OutsideError:
            self._fail(f"'{what}' names '{value}', outside the feeder's folder; remove or correct the line.")

    def _fail_unknown(self, word: str) -> NoReturn:
        self._fail(f"'{word}' is not an OpenDSS command; correct it, or put ! before it if it is a comment.")

    def _fail_outside(self, verb: str, asked: str) -> NoReturn:
        self._fail(
            f"{verb} to '{asked}' leaves the feeder's folder, and nothing else may be read; if you trust the "
            "model, give --root DIR, a folder that holds all of its files."
        )

    def _fail(self, message: str) -> NoReturn:
        raise FeederError(f"{self._file}:{self._line}: {message}" if self._file else message)
