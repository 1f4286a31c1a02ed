"""Grid: what the utility's records say. Configuration: what they do not.

A Grid holds component tables with fixed columns (``mycelium.schema.TABLES``) and packed matrices. It has no switch
position, no phase of a customer whose phase is a question, no regulator position, no voltage. Those are a
Configuration's, and only the simulator, losses and metrics read one.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from jaxtyping import Bool, Float64, Int8, Int16, Int64

from mycelium.errors import FeederError
from mycelium.grid.validation_report import ValidationReport
from mycelium.grid.wiring import Wiring
from mycelium.schema import MATRICES, TABLES

FORMAT = 1

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Grid:
    """Records of one network.

    Attributes:
        name: A name for people.
        frequency_hz: Base frequency.
        tables: One frame per component, columns as in ``schema.TABLES``.
        matrices: Packed square matrices, names as in ``schema.MATRICES``.
    """

    name: str
    frequency_hz: float
    tables: Mapping[str, pd.DataFrame]
    matrices: Mapping[str, Floats]

    def __post_init__(self) -> None:
        for table, columns in TABLES.items():
            if table not in self.tables:
                raise ValueError(f"a Grid needs the table '{table}'")
            found, expected = list(self.tables[table].columns), list(columns)
            if found != expected:
                raise ValueError(f"table '{table}' has the columns {found}, expected {expected}")
        missing = [name for name in MATRICES if name not in self.matrices]
        if missing:
            raise ValueError(f"a Grid needs the matrices {missing}")

    @property
    def bus(self) -> pd.DataFrame:
        return self.tables["bus"]

    @property
    def consumer(self) -> pd.DataFrame:
        return self.tables["consumer"]

    @property
    def substation(self) -> pd.DataFrame:
        return self.tables["substation"]

    @property
    def capacitor(self) -> pd.DataFrame:
        return self.tables["capacitor"]

    @property
    def der(self) -> pd.DataFrame:
        return self.tables["der"]

    @property
    def line(self) -> pd.DataFrame:
        return self.tables["line"]

    @property
    def transformer(self) -> pd.DataFrame:
        return self.tables["transformer"]

    @property
    def winding(self) -> pd.DataFrame:
        return self.tables["winding"]

    @property
    def reactor(self) -> pd.DataFrame:
        return self.tables["reactor"]

    @cached_property
    def wiring(self) -> Wiring:
        """Nodes and the node of every terminal conductor."""
        return Wiring.of(self.tables)

    @cached_property
    def switches(self) -> Int64[Ints, " switch"]:
        """Rows of the line table that can be operated. [switch]"""
        return np.flatnonzero(self.line["switch"].to_numpy())

    @cached_property
    def regulated(self) -> Int64[Ints, " regulated"]:
        """Rows of the winding table whose tap a regulator moves. [regulated winding]"""
        return np.flatnonzero(self.winding["regulated"].to_numpy())

    @cached_property
    def n_groups(self) -> int:
        """Number of hidden-phase groups."""
        columns = [self.tables[table]["group"] for table in ("consumer", "der", "line")]
        return max((int(column.max()) + 1 for column in columns if len(column)), default=0)

    def replace_tables(self, **tables: pd.DataFrame) -> Grid:
        """A copy with some tables exchanged."""
        return replace(self, tables={**self.tables, **tables})

    def without_names(self) -> Grid:
        """A copy whose names are row numbers: what features are made of. Real names often spell a customer's phase."""
        numbered = {
            name: table.assign(name=np.arange(len(table)).astype(str)).astype({"name": table["name"].dtype})
            for name, table in self.tables.items()
            if "name" in table
        }
        return replace(self, name="", tables={**self.tables, **numbered})

    def validate(self) -> ValidationReport:
        """Everything in the records that is wrong or hard to believe."""
        from mycelium.grid.validate import validate  # which needs a Grid

        return validate(self)

    def save(self, path: Path) -> None:
        """Write the Grid into one file (zip of arrays), exactly."""
        arrays: dict[str, npt.NDArray[Any]] = {
            "format": np.array(FORMAT),
            "name": np.array(self.name),
            "frequency_hz": np.array(self.frequency_hz),
        }
        for table, columns in TABLES.items():
            for column, spec in columns.items():
                dtype = np.str_ if spec.dtype == "str" else spec.dtype
                arrays[f"{table}.{column}"] = self.tables[table][column].to_numpy().astype(dtype)
        arrays |= {f"matrix.{name}": self.matrices[name] for name in MATRICES}
        path = Path(path)
        part = path.with_name(f"{path.name}.{os.getpid()}.part")  # two processes may save the same variant at once
        with part.open("wb") as file:
            np.savez_compressed(file, allow_pickle=False, **arrays)
        part.replace(path)

    @staticmethod
    def load(path: Path) -> Grid:
        """Read a file written by ``save``; refuses anything else by name."""
        try:
            with Path(path).open("rb") as file, np.load(file, allow_pickle=False) as data:
                arrays = dict(data)
        except (OSError, ValueError, zipfile.BadZipFile) as error:
            raise FeederError(f"{path}: not a Grid file ({error})") from error
        if "format" not in arrays or int(arrays["format"]) != FORMAT:
            raise FeederError(f"{path}: not a Grid file of format {FORMAT}; write it again with this version")
        tables = {
            table: make_table(table, {column: arrays[f"{table}.{column}"] for column in columns})
            for table, columns in TABLES.items()
        }
        matrices = {name: arrays[f"matrix.{name}"] for name in MATRICES}
        return Grid(str(arrays["name"]), float(arrays["frequency_hz"]), tables, matrices)


def make_table(table: str, columns: Mapping[str, object]) -> pd.DataFrame:
    """A component table with the schema's columns, order and dtypes."""
    specs = TABLES[table]
    unknown = set(columns) - set(specs)
    if unknown or len(columns) < len(specs):
        raise ValueError(f"table '{table}': unknown {sorted(unknown)}, missing {sorted(set(specs) - set(columns))}")
    data = {}
    for name, spec in specs.items():
        values = np.asarray(columns[name], dtype=object if spec.dtype == "str" else spec.dtype)
        data[name] = pd.array(values.astype(str), dtype="str") if spec.dtype == "str" else values
    return pd.DataFrame(data)


@dataclass(frozen=True, slots=True)
class Configuration:
    """The hidden state of the equipment, fixed over a day unless an hour is asked for.

    Attributes:
        switch_open: Positions, in the order of ``Grid.switches``. [switch]
        group_phase: Phase slot 0, 1, 2 of each hidden-phase group. [group]
        tap_pu: Taps in the order of ``Grid.regulated``. [regulated winding]
        capacitor_steps: Steps in operation. [capacitor]
    """

    switch_open: Bool[npt.NDArray[np.bool_], " switch"]
    group_phase: Int8[npt.NDArray[np.int8], " group"]
    tap_pu: Float64[Floats, " regulated"]
    capacitor_steps: Int16[npt.NDArray[np.int16], " capacitor"]

    def check(self, grid: Grid) -> None:
        """Raise ValueError where the sizes or values do not fit the grid."""
        expected = {
            "switch_open": (self.switch_open, len(grid.switches)),
            "group_phase": (self.group_phase, grid.n_groups),
            "tap_pu": (self.tap_pu, len(grid.regulated)),
            "capacitor_steps": (self.capacitor_steps, len(grid.capacitor)),
        }
        for name, (values, size) in expected.items():
            if values.shape != (size,):
                raise ValueError(f"Configuration.{name} has shape {values.shape}, the grid needs ({size},)")
        if np.any((self.group_phase < 0) | (self.group_phase > 2)):
            raise ValueError("Configuration.group_phase holds something else than 0, 1, 2")
