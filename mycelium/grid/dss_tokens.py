"""What OpenDSS text means: its tokens, names and paths, and the properties that touch files.

What we check must be what the engine will do, so this follows the engine's own rules, odd corners included: a
quote opens only where a token starts, the first empty value ends a command, and an abbreviation means the
first name in the engine's list that starts with it. The lists come from the engine itself.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from functools import cache
from pathlib import Path, PureWindowsPath

from mycelium.errors import FeederError

MAX_FILE_BYTES = 256 * 2**20
# Files that redirect to each other many times over would otherwise grow without bound; each counts as a block
# at least.
MAX_TOTAL_BYTES = 2 * MAX_FILE_BYTES
_BLOCK_BYTES = 4096
# Models in use hold a stray zero byte here and there, and the engine reads over it.
MAX_ZERO_SHARE = 0.001

QUOTES: Mapping[str, str] = {'"': '"', "'": "'", "(": ")", "[": "]", "{": "}"}

# Up to the next delimiter: comma, equals sign, blank, or a comment (`!` or `//`).
_UNQUOTED = re.compile(r"[^,= \t!/]*(?:/(?!/)[^,= \t!/]*)*")

# A command on properties that hides nothing: no variable, and no `=` inside quotes, as where an array names
# a file; `//` has to be looked for apart. The groups are the element and its class, with quotes and without.
# Repetitions are possessive, which keeps the time linear.
_INSIDE = r"""[^ \t,=!@]*+"""
_WORD = rf"""[^ \t,=!@"'(\[{{]{_INSIDE}"""
_QUOTED = r"""\([^)=]*+\)|\[[^\]=]*+\]|"[^"=]*+"|'[^'=]*+'|\{[^}=]*+\}"""
_ELEMENT = rf"""(?:"(([a-z0-9_]++)\.[^"=@]++)"|(([a-z0-9_]++)\.{_INSIDE}))"""
PLAIN_LINE = re.compile(
    rf"(?:(?:new|edit)[ \t]++(?:object[ \t]*+=[ \t]*+)?+{_ELEMENT}|~|more|m)"
    rf"(?:[ \t,]++(?:{_WORD}[ \t]*+=[ \t]*+)?(?:{_WORD}|{_QUOTED}))*+(?=[ \t]*+(?:!|$))",
    re.IGNORECASE | re.ASCII,
)
# Rules and boxes drawn with punctuation, and a word in brackets; the engine stops at both.
STRAY_LINE = re.compile(r"[^a-z0-9]*|\[[^\[\]]*\]", re.IGNORECASE | re.ASCII)


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a command: `name=value`, or a value given by position.

    Attributes:
        name: in lower case; empty when the value is given by position.
        value: without its quotes, with a variable (`@x`) replaced by what it stands for.
        label: the name as written, quotes included.
        written: the value as written, quotes included.
    """

    name: str
    value: str
    label: str
    written: str

    @property
    def text(self) -> str:
        """The parameter as text for the engine."""
        return f"{self.label}={self.written}" if self.label else self.written


_NOTHING = Parameter("", "", "", "")


class Tokens:
    """Takes the parameters of one line of OpenDSS text, in order.

    Iterating ends where the command ends for the engine: at the end of the line, a comment or an empty value.

    Args:
        text: the line, or the inside of a quoted value.
        variables: the script's variables, as in `expand`.
    """

    def __init__(self, text: str, variables: Mapping[str, str]) -> None:
        self._text = text + " "
        self._last = len(text)
        self._variables = variables
        self._delimiter = " "
        self._end = self._last
        self._at = self._skip_blanks(0)

    @property
    def remainder(self) -> str:
        """What has not been taken yet."""
        return self._text[self._at : self._last]

    @property
    def source(self) -> str:
        """The line without surrounding blanks and without the comment, if one was reached."""
        return self._text[: self._end].strip(" \t")

    def take(self) -> Parameter:
        """The next parameter; its value is empty where the command ends."""
        start = self._at
        if start > self._last:
            return _NOTHING
        self._delimiter = " "
        value, end = self._token()
        name = label = ""
        if self._delimiter == "=":
            name, label, start = value.lower(), self._text[start:end], self._at
            value, end = self._token()
        return Parameter(name, expand(value, self._variables), label, self._text[start:end])

    def __iter__(self) -> Iterator[Parameter]:
        while (parameter := self.take()).value:
            yield parameter

    def _token(self) -> tuple[str, int]:
        """Takes one token; returns it without quotes, and where it ends in the text."""
        text, at, last = self._text, self._at, self._last
        close = QUOTES.get(text[at])
        if close is not None:
            end = text.find(close, at + 1, last)
            # A quote left open runs to the end of the line.
            value = text[at + 1 : end] if end >= 0 else text[at + 1 : last]
            at = end + 1 if end >= 0 else last
        else:
            matched = _UNQUOTED.match(text, at, last)
            end = matched.end() if matched else at
            value, at = text[at:end], end
            if at < last:
                found = text[at]
                self._delimiter = found if found in ",=" else "!" if found in "!/" else " "
        end = at
        if self._delimiter == "!":
            self._end = at
            self._at = last + 1
            return value, end
        if self._delimiter == " ":
            at = self._skip_blanks(at)
        if text[at] in ",=":
            self._delimiter = text[at]
            at += 1
        self._at = self._skip_blanks(at)
        return value, end

    def _skip_blanks(self, at: int) -> int:
        text, last = self._text, self._last
        while at < last and text[at] in " \t":
            at += 1
        return at


def expand(token: str, variables: Mapping[str, str]) -> str:
    """Replaces a variable at the start of a token by its value, as the engine does after splitting the line.

    Args:
        token: may start with a variable: `@x`, `@x.1.2`, `@x^suffix`.
        variables: values by lower-case name, `@` included; the engine puts braces around a value that itself
            refers to a variable, and takes them off here.
    """
    if len(token) < 2 or token[0] != "@":
        return token
    end = token.find("^")
    if end < 0:
        end = token.find(".")
    name, tail = (token, "") if end < 0 else (token[:end], token[end:])
    value = variables.get(name.lower())
    if value is None:
        return token
    if value.startswith("{"):
        value = value[1:-1]
    return value + tail


def quoted(value: str, avoid: str = "") -> str | None:
    """The value in quotes that can hold it and use no character of `avoid`; None if there are none."""
    for opening, closing in QUOTES.items():
        if closing not in value and opening not in avoid and closing not in avoid:
            return opening + value + closing
    return None


def file_in_array(value: str, variables: Mapping[str, str]) -> tuple[Parameter, str] | None:
    """Finds the file that an array value asks the engine to read, as in `mult=(file=a.csv, column=2)`.

    Returns:
        The file parameter and the text after it, or None for an array written out. The engine takes any
        abbreviation of `dblfile` and `sngfile`, and anything that starts with them.
    """
    if "=" not in value:
        return None
    tokens = Tokens(value, variables)
    first = tokens.take()
    name = first.name
    binary = name and any(name.startswith(full) or full.startswith(name) for full in ("dblfile", "sngfile"))
    return (first, tokens.remainder) if binary or name == "file" else None


class Purpose(Enum):
    """Why a property may not go to the engine unseen; the text ends a note or an error about the property."""

    DATA_FILE = "reads numbers from a file"
    CODE = "loads and runs a library"
    TRACE = "would write a file as the simulation runs"
    SAVE = "would write a file"
    MAP = "is not used: data files are read as a whole"


@dataclass(frozen=True)
class Vocabulary:
    """The names the engine knows, in its own order, which decides what an abbreviation means.

    Attributes:
        commands: lower case.
        options: of the `set` command, lower case.
        properties: of each class, by lower-case class name; values without a name go by their order.
        purposes: of the properties that touch files, by class and property.
        plain_classes: classes without such a property.
    """

    commands: Sequence[str]
    options: Sequence[str]
    properties: Mapping[str, Sequence[str]]
    purposes: Mapping[tuple[str, str], Purpose]
    plain_classes: frozenset[str]
    _found: dict[tuple[str, str], int] = field(default_factory=dict, repr=False, compare=False)

    def command(self, word: str) -> str:
        """The full name of a command, or an empty string."""
        position = self._position("", self.commands, word)
        return self.commands[position - 1] if position else ""

    def option(self, name: str) -> int:
        """The position of a `set` option, from 1; 0 if there is none of that name."""
        return self._position("set", self.options, name)

    def property(self, class_name: str, name: str) -> int:
        """The position of a property in its class, from 1; 0 if there is none of that name."""
        return self._position("." + class_name, self.properties[class_name], name)

    def _position(self, table: str, names: Sequence[str], asked: str) -> int:
        key = (table, asked.lower())
        if key not in self._found:
            self._found[key] = _first_match(names, key[1])
        return self._found[key]


def _first_match(names: Sequence[str], asked: str) -> int:
    if asked in names:
        return names.index(asked) + 1
    return next((i for i, name in enumerate(names, 1) if asked and name.startswith(asked)), 0)


@cache
def vocabulary() -> Vocabulary:
    """Asks the engine for its names, once per process."""
    from dss import dss

    backend = dss._api_util  # dss-python has no public call for the schema
    schema = json.loads(backend.ffi.string(backend.lib.DSS_ExtractSchema(backend.ffi.NULL, 0)))
    executive = dss.Executive
    properties: dict[str, Sequence[str]] = {}
    purposes: dict[tuple[str, str], Purpose] = {}
    for class_ in schema["classes"]:
        class_name = class_["name"].lower()
        names = properties[class_name] = tuple(entry["name"].lower() for entry in class_["properties"])
        for name, entry in zip(names, class_["properties"], strict=True):
            purpose = _purpose(name, "IsFilename" in entry["flags"], names)
            if purpose is not None:
                purposes[class_name, name] = purpose
    return Vocabulary(
        commands=tuple(executive.Command(i).lower() for i in range(1, executive.NumCommands + 1)),
        options=tuple(executive.Option(i).lower() for i in range(1, executive.NumOptions + 1)),
        properties=properties,
        purposes=purposes,
        plain_classes=frozenset(properties) - {class_name for class_name, _ in purposes},
    )


def _purpose(name: str, is_file_name: bool, siblings: Sequence[str]) -> Purpose | None:
    if is_file_name:
        # Every other property that names a file names a library.
        return Purpose.DATA_FILE if name.endswith("file") else Purpose.CODE
    if name in ("userdata", "shaftdata", "dynadata"):
        return Purpose.CODE
    if name in ("debugtrace", "eventlog"):
        return Purpose.TRACE
    if name == "memorymapping":
        return Purpose.MAP
    return Purpose.SAVE if name == "action" and "dblfile" in siblings else None


class OutsideError(Exception):
    """A path leads out of the feeder's folder."""


class Folder:
    """Finds what paths in scripts mean below one folder, and nowhere else.

    Models often come from Windows: back-slashes separate, and the case of a name does not matter.

    Args:
        root: the folder, absolute and without links.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._bytes_read = 0
        self._listings: dict[Path, Mapping[str, str]] = {}
        self._data_files: dict[tuple[Path, str], Path | str] = {}

    def path(self, asked: str, start: Path) -> Path:
        """Where a path leads, links not followed, whether anything is there or not.

        Raises:
            OutsideError: it leads out of the folder.
        """
        if os.name != "nt" and PureWindowsPath(asked).drive:
            raise OutsideError
        path = Path(os.path.normpath(start / asked.replace("\\", "/")))
        if not path.is_relative_to(self.root):
            raise OutsideError
        return path

    def find(self, asked: str, start: Path) -> Path | None:
        """The file or folder that a path means, or None if there is none.

        Raises:
            OutsideError: it leads out of the folder, perhaps by a link.
        """
        wanted = self.path(asked, start)
        found = wanted
        if not os.path.lexists(wanted):
            found = self.root
            for part in wanted.relative_to(self.root).parts:
                name = part if os.path.lexists(found / part) else self._listing(found).get(part.lower())
                if name is None:
                    return None
                found /= name
        try:
            inside = found.resolve(strict=True).is_relative_to(self.root)
        except (OSError, RuntimeError):  # a link to nothing or to itself, or no permission
            return None
        if not inside:
            raise OutsideError
        return found

    def data_file(self, asked: str, start: Path) -> Path | str:
        """The full path of a data file, or why there is none."""
        key = start, asked
        if key not in self._data_files:
            reason = "does not exist"
            try:
                found = self.find(asked, start)
            except OutsideError:
                found, reason = None, "lies outside the feeder's folder; give --root DIR to allow it"
            usable = found is not None and found.is_file()
            self._data_files[key] = found if found and usable else f"data file '{asked}' {reason}"
        return self._data_files[key]

    def relative(self, path: Path) -> str:
        """A path below the folder as messages write it."""
        return path.relative_to(self.root).as_posix()

    def read(self, path: Path) -> str:
        """The text of a file, with Unix line ends; bytes that are not UTF-8 are read as Latin-1.

        Raises:
            FeederError: it cannot be read, or is not text.
        """
        name = self.relative(path)
        try:
            size = path.stat().st_size
            self._bytes_read += max(size, _BLOCK_BYTES)
            if size > MAX_FILE_BYTES or self._bytes_read > MAX_TOTAL_BYTES:
                raise FeederError(f"'{name}' is too large for an OpenDSS script; is it the right file?")
            content = path.read_bytes()
        except OSError as error:
            raise FeederError(f"'{name}' cannot be read: {error.strerror}; check its permissions.") from error
        if content.count(b"\0") > len(content) * MAX_ZERO_SHARE:
            raise FeederError(f"'{name}' is not a text file; save it as UTF-8 text or correct the path.")
        try:
            text = content.decode("utf-8-sig")
        except UnicodeDecodeError:
            text = content.decode("latin-1")
        return text.replace("\0", "").replace("\r\n", "\n").replace("\r", "\n")

    def _listing(self, folder: Path) -> Mapping[str, str]:
        if folder not in self._listings:
            names: list[str] = []
            with suppress(OSError, RuntimeError):  # not a folder, a link to itself, or no permission
                if folder.resolve(strict=True).is_relative_to(self.root):
                    names = [entry.name for entry in folder.iterdir()]
            self._listings[folder] = {name.lower(): name for name in names}
        return self._listings[folder]


# The engine reads through a null pointer if it needs a shape that has no data, so a flat one stands in.
_STAND_INS = {
    "loadshape": "npts=1 interval=1 mult=[1]",
    "tshape": "npts=1 interval=1 temp=[25]",
    "priceshape": "npts=1 interval=1 price=[1]",
    "growthshape": "npts=1 year=[1] mult=[1]",
}
# Data that a power flow does without.
_OPTIONAL = frozenset(
    {("loadshape", "qmult"), ("spectrum", "csvfile"), ("spectrum", "harmonic"), ("spectrum", "%mag")}
) | {("spectrum", "angle")}


class PropertyCheck:
    """Takes out of an element's properties what would read, write or run what it may not.

    Args:
        folder: data files in it may be read.
        variables: the script's variables, as in `expand`; may grow.
    """

    def __init__(self, folder: Folder, variables: Mapping[str, str]) -> None:
        self._words = vocabulary()
        self._folder = folder
        self._variables = variables

    def check(
        self, class_name: str, parameters: Iterable[Parameter], start: Path
    ) -> tuple[list[str], bool, list[tuple[str, str]]]:
        """Goes through the properties that a command sets on an element of a class.

        Args:
            class_name: lower case, one that the engine knows.
            parameters: of the command, after the element.
            start: the folder that paths are relative to.

        Returns:
            The properties as text for the engine; whether that differs from what was written; and what was
            left out or replaced, as (property, reason).

        Raises:
            FeederError: a property runs code, or the element is nothing without data that cannot be read.
        """
        names = self._words.properties[class_name]
        texts: list[str] = []
        notes: list[tuple[str, str]] = []
        changed, position = False, 0
        for parameter in parameters:
            position = self._words.property(class_name, parameter.name) if parameter.name else position + 1
            name = names[position - 1] if 0 < position <= len(names) else ""
            text, why = self._checked(class_name, name, parameter, start)
            if why:
                notes.append((name, why))
            if text is None:
                # After a change, values without a name would count from elsewhere.
                counted = changed and name and not parameter.name
                text = f"{name}={parameter.written}" if counted else parameter.text
            else:
                changed = True
            texts.append(text)
        return texts, changed, notes

    def _checked(self, class_name: str, name: str, parameter: Parameter, start: Path) -> tuple[str | None, str]:
        """What the engine gets (None: the property as it is; empty: nothing), and why if anything is lost."""
        purpose = self._words.purposes.get((class_name, name))
        if purpose is None:
            found = file_in_array(parameter.value, self._variables) if name else None
            return self._with_data(class_name, name, found[0], found[1], start) if found else (None, "")
        if purpose is Purpose.DATA_FILE:
            return self._with_data(class_name, name, parameter, None, start)
        if purpose is Purpose.CODE:
            raise FeederError(f"{name} {purpose.value}, which is never done; remove it from the model.")
        if purpose is Purpose.SAVE and parameter.value.lower().startswith("n"):  # normalize
            return None, ""
        return "", purpose.value

    def _with_data(
        self, class_name: str, name: str, file: Parameter, options: str | None, start: Path
    ) -> tuple[str, str]:
        """A property with the full path of its data file; or what stands in for it, and why.

        `options` is what follows the file in an array, and None where the property itself is the file's name.
        """
        path = self._folder.data_file(file.value, start)
        if isinstance(path, Path):
            text = quoted(str(path))
            if text and options is not None:
                text = quoted(f"{file.label}={text} {options}", avoid=text[0] + text[-1])
            if text:
                return f"{name}={text}", ""
            path = f"data file '{file.value}' has a path with too many kinds of quotes; rename it"
        if (class_name, name) in _OPTIONAL:
            return "", path
        if class_name not in _STAND_INS:
            raise FeederError(f"{name}: {path}. The element is nothing without its data.")
        return _STAND_INS[class_name], f"{path}; a flat shape ({_STAND_INS[class_name]}) stands in for it"
