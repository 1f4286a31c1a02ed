"""OpenDSS models written by tests, imported together with the engine that compiled them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mycelium.engine import Engine
from mycelium.grid.admittance import Admittance
from mycelium.grid.check import ENGINE_CLASS
from mycelium.grid.dss_script import read_script
from mycelium.grid.grid import Configuration, Grid
from mycelium.grid.import_report import ImportReport
from mycelium.grid.read_opendss import read_circuit
from mycelium.schema import MATRICES, TABLES, ElementKind

Blocks = np.ndarray

SOURCE = "new circuit.model bus1=a basekv=12.47 pu=1.02 isc3=3000 isc1=2500"


@dataclass(frozen=True)
class Model:
    """An imported model, and the engine with its circuit."""

    engine: Engine
    grid: Grid
    configuration: Configuration
    report: ImportReport

    @staticmethod
    def read(master: Path) -> Model:
        script = read_script(master)
        engine = Engine(script)
        return Model(engine, *read_circuit(script, engine))

    @staticmethod
    def of(folder: Path, *lines: str, source: str = SOURCE) -> Model:
        """The model of these lines, written into a folder."""
        master = folder / "Master.dss"
        master.write_text("\n".join([source, *lines]) + "\n")
        return Model.read(master)

    @property
    def admittance(self) -> Admittance:
        return Admittance.of(self.grid, self.configuration)


def blocks(admittance: Admittance) -> Iterator[tuple[ElementKind, str, Blocks]]:
    """Kind, name and primitive of every element."""
    for kind in ElementKind:
        first = admittance.layout.first_value[kind]
        for row, name in enumerate(admittance.grid.tables[kind.value]["name"]):
            values = admittance.values[first[row] : first[row + 1]]
            size = round(len(values) ** 0.5)
            yield kind, str(name), values.reshape(size, size)


def engine_block(engine: Engine, kind: ElementKind, name: str) -> Blocks:
    """The engine's primitive of an element, which it keeps column by column."""
    circuit = engine.dss.ActiveCircuit
    circuit.SetActiveElement(f"{ENGINE_CLASS[kind]}.{name}")
    flat = np.asarray(circuit.ActiveCktElement.Yprim, dtype=np.float64).view(np.complex128)
    size = round(len(flat) ** 0.5)
    return flat.reshape(size, size).T


def assert_same_primitive(ours: Blocks, theirs: Blocks, name: str) -> None:
    """Equal to 1e-9 of each entry, and to rounding of the largest: no large entry hides a wrong small one."""
    assert ours.shape == theirs.shape, name
    allowed = 1e-9 * np.abs(theirs) + 1e-14 * np.abs(theirs).max()
    worst = np.max(np.abs(ours - theirs) / allowed)
    assert worst <= 1.0, f"{name}: {worst:.3g} times what is allowed\n{ours}\n{theirs}"


def assert_same_grid(one: Grid, other: Grid) -> None:
    """Bit-equal: every column with its type, every matrix."""
    assert (one.name, one.frequency_hz) == (other.name, other.frequency_hz)
    for table, columns in TABLES.items():
        for column in columns:
            a, b = one.tables[table][column], other.tables[table][column]
            assert a.dtype == b.dtype, (table, column)
            assert a.to_numpy().tolist() == b.to_numpy().tolist() or same_bits(a.to_numpy(), b.to_numpy()), (
                table,
                column,
            )
    for matrix in MATRICES:
        assert same_bits(one.matrices[matrix], other.matrices[matrix]), matrix


def same_bits(one: np.ndarray, other: np.ndarray) -> bool:
    return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
