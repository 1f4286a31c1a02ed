"""Files of readings: CSV and Parquet into columns of text with row numbers that a person finds again."""

from __future__ import annotations

import codecs
import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from mycelium.errors import FeederError
from mycelium.sense.readings_report import EXAMPLES, told

Ints = npt.NDArray[np.int64]

COLUMNS = ("time", "element", "terminal", "phase", "quantity", "value")
_LONGEST_HEADER = 1 << 16  # bytes
_BLOCK = 1 << 24  # bytes; no row may be longer


@dataclass(frozen=True)
class Table:
    """Columns of a file or frame, not yet understood.

    Attributes:
        source: File, or 'frame'.
        columns: The six of ``COLUMNS``. [row]
        row: Number of each row. [row]
        rows_are: How rows are numbered.
        malformed: Numbers of rows that have too many or too few columns. [malformed row]
        swallowed: Lines of a file that are within quotation marks, as parts of other rows.
        examples: What some of these look like.
        extra: Columns that mean nothing here.
    """

    source: str
    columns: dict[str, pd.Series]
    row: Ints
    rows_are: str
    malformed: Ints
    swallowed: int
    examples: tuple[str, ...]
    extra: tuple[str, ...]


def written(cell: object) -> str:
    """A cell as text without blanks around it, empty where there is nothing."""
    nothing = pd.api.types.is_scalar(cell) and pd.isna(cell)
    return "" if nothing else str(cell).strip()


@dataclass(frozen=True)
class Texts:
    """A column of text with few different values.

    Attributes:
        code: Which text. [row]
        text: The different ones, without blanks around them. [text]
    """

    code: Ints
    text: list[str]

    @staticmethod
    def of(column: pd.Series) -> Texts:
        try:
            code, different = pd.factorize(column)
        except (TypeError, NotImplementedError):  # lists and the like, which a Parquet file may hold
            code, different = pd.factorize(column.map(str))
        # The last one is what code -1, a missing value, finds.
        return Texts(code.astype(np.int64), [written(value) for value in different] + [""])


def table_of_frame(frame: pd.DataFrame, source: str = "frame") -> Table:
    """The columns of a frame in memory."""
    place = _find_columns([str(name) for name in frame.columns], source)
    if not len(frame):
        raise FeederError(f"{source}: it has no rows")
    return Table(
        source=source,
        columns={name: frame.iloc[:, k] for name, k in place.items()},
        row=np.arange(len(frame)),
        rows_are="position in the frame, the first being 0",
        malformed=np.zeros(0, np.int64),
        swallowed=0,
        examples=(),
        extra=_extra([str(name) for name in frame.columns], place),
    )


def read_table(path: Path) -> Table:
    """The columns of a file, which its suffix says how to read."""
    readers = {".csv": _read_csv, ".parquet": _read_parquet}
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise FeederError(f"{path}: readings are read from {' or '.join(readers)}, not from '{path.suffix}'")
    try:
        if path.exists() and not path.is_file():  # a pipe would be waited for, and can be read only once
            raise FeederError(f"{path}: it is no regular file; save the readings to one")
        return reader(path)
    except pa.ArrowException as error:
        what = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise FeederError(f"{path}: not a readable {path.suffix[1:]} file ({what})") from error
    except OSError as error:
        raise FeederError(f"{path}: cannot be read ({error.strerror or error})") from error


def _read_parquet(path: Path) -> Table:
    with pa.parquet.ParquetFile(path) as file:
        names = list(file.schema_arrow.names)
        place = _find_columns(names, str(path))
        frame = file.read(columns=[names[k] for k in place.values()]).to_pandas(ignore_metadata=True)
    table = table_of_frame(frame, str(path))
    return Table(**{**vars(table), "extra": _extra(names, place)})


def _read_csv(path: Path) -> Table:
    n_lines = _count_lines(path)
    names, delimiter = _header(path)
    place = _find_columns(names, str(path))
    if n_lines < 2:
        raise FeederError(f"{path}: it has no rows below the header")
    malformed: list[int] = []
    examples: list[str] = []

    def skip(row: pa.csv.InvalidRow) -> str:
        malformed.append(row.number)
        if len(examples) < EXAMPLES:
            found = f"{row.actual_columns} columns, not {row.expected_columns}"
            examples.append(f"row {row.number}: {found}: {told(row.text)}")
        return "skip"

    text = pa.dictionary(pa.int32(), pa.string())
    own = {name: names[k] for name, k in place.items()}
    table = pa.csv.read_csv(
        path,
        # One thread, because only then rows are numbered.
        read_options=pa.csv.ReadOptions(
            use_threads=False, block_size=_BLOCK, column_names=_distinct(names), skip_rows=1
        ),
        parse_options=pa.csv.ParseOptions(
            delimiter=delimiter, invalid_row_handler=skip, ignore_empty_lines=False, newlines_in_values=True
        ),
        convert_options=pa.csv.ConvertOptions(
            include_columns=list(own.values()),
            column_types={column: pa.string() if name == "value" else text for name, column in own.items()},
            strings_can_be_null=False,
        ),
    )
    frame = table.rename_columns(list(own)).to_pandas()
    row = np.delete(np.arange(2, len(frame) + len(malformed) + 2), np.array(malformed, np.int64) - 2)
    blank = (frame == "").all(axis=1).to_numpy() if len(frame) else np.zeros(0, bool)  # lines at the end of a file
    frame, row = frame[~blank], row[~blank]
    if not len(frame) and not malformed:
        raise FeederError(f"{path}: it has no rows below the header")
    return Table(
        source=str(path),
        columns={name: frame[name] for name in own},
        row=row,
        rows_are="as in a spreadsheet, the header being 1",
        malformed=np.array(malformed, np.int64),
        swallowed=max(n_lines - (len(blank) + len(malformed) + 1), 0),
        examples=tuple(examples),
        extra=_extra(names, place),
    )


def _count_lines(path: Path) -> int:
    """Number of lines of a text file, which must be UTF-8."""
    lines, last = 0, b"\n"
    decoder = codecs.getincrementaldecoder("utf-8")()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            try:
                decoder.decode(block)
            except UnicodeDecodeError as error:
                at = lines + _breaks(error.object[: error.start]) + 1
                raise FeederError(f"{path}: line {at} is not UTF-8 text; save the file as 'CSV UTF-8'") from error
            lines += _breaks(block) - (last == b"\r" and block[:1] == b"\n")
            last = block[-1:]
    return lines + (last not in b"\r\n")


def _breaks(text: bytes) -> int:
    """Number of ends of lines, as Windows, Unix or old Macs have them."""
    return text.count(b"\n") + text.count(b"\r") - text.count(b"\r\n")


def _header(path: Path) -> tuple[list[str], str]:
    """Column names of the first line, and the delimiter between them: the one that finds most of ours."""
    with path.open("rb") as file:
        line = file.readline(_LONGEST_HEADER)
    if not line:
        raise FeederError(f"{path}: the file is empty")
    if 3 * line.count(0) > len(line):  # every other byte is 0, which is UTF-8 too
        raise FeederError(f"{path}: line 1 is not UTF-8 text but UTF-16; save the file as 'CSV UTF-8'")
    try:
        text = line.decode("utf-8-sig").replace("\r", "\n").partition("\n")[0]
        found = [(next(csv.reader([text], delimiter=delimiter), []), delimiter) for delimiter in ",;\t"]
    except csv.Error as error:
        raise FeederError(f"{path}: the first line is not a header of a CSV file ({error})") from error
    return max(found, key=lambda names: len({name.strip().lower() for name in names[0]} & set(COLUMNS)))


def _distinct(names: list[str]) -> list[str]:
    """The names, with those that come twice told apart; ours never do."""
    return [name if names.index(name) == k else f"{name} ({k})" for k, name in enumerate(names)]


def _find_columns(names: Sequence[str], source: str) -> dict[str, int]:
    """Place of each of our columns."""
    ours = [name.strip().lower() for name in names]
    missing = [name for name in COLUMNS if name not in ours]
    if missing:
        found = ", ".join(told(name) for name in names[:20]) or "none"
        raise FeederError(
            f"{source}: missing columns: {', '.join(missing)}; it has {found}; readings need {', '.join(COLUMNS)}"
        )
    twice = [name for name in COLUMNS if ours.count(name) > 1]
    if twice:
        raise FeederError(f"{source}: columns that come twice: {', '.join(twice)}")
    return {name: ours.index(name) for name in COLUMNS}


def _extra(names: Sequence[str], place: dict[str, int]) -> tuple[str, ...]:
    return tuple(name for k, name in enumerate(names) if k not in place.values())
