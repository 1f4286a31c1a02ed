"""Faults in the engine: resistors at a bus, or at a bus between two sections that stand in for a line."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from mycelium.engine import Engine
from mycelium.grid.grid import Configuration, Grid
from mycelium.grid.primitive import unpack
from mycelium.grid.wiring import parse_conductors
from mycelium.schema import GROUND, HIDDEN, FaultPlace
from mycelium.simulate.fault import NEUTRAL, Fault, faulted_bus, legs

Complex = npt.NDArray[np.complex128]

_PREFIX = "mycelium_fault"
INTERIOR_BUS = "mycelium_interior"
_MOST_LEGS = 3


class EngineFault:
    """Spare elements, made once and disabled, that a fault puts in place and ``clear`` takes away."""

    def __init__(self, engine: Engine, grid: Grid) -> None:
        self._engine, self._grid = engine, grid
        self._active: list[str] = []
        self._line = ""
        self._interior_names: list[str] = []
        home = grid.bus["name"].iat[0]
        for k in range(_MOST_LEGS):
            engine.command(f"new fault.{_PREFIX}_{k} phases=1 bus1={home}.1 bus2={home}.0 r=1 enabled=no")
        for n in sorted(set(grid.line["n_conductors"])):
            for half in "ab":
                # Lengths and matrices are replaced at use; a line must be born with its number of conductors.
                engine.command(
                    f"new line.{_PREFIX}_{n}{half} phases={n} bus1={home} bus2={INTERIOR_BUS} r1=1 x1=1 r0=1 x0=1 "
                    "c1=0 c0=0 length=1 enabled=no"
                )

    def apply(self, fault: Fault, configuration: Configuration) -> None:
        """Put a fault in place."""
        if fault.place is FaultPlace.LINE:
            bus, numbers = self._split(fault, configuration)
        else:
            row = faulted_bus(self._grid, fault)
            bus, numbers = str(self._grid.bus["name"].iat[row]), self._numbers_at(row)
        pairs = legs(fault, has_neutral=NEUTRAL in numbers)
        for k, (a, b, siemens) in enumerate(pairs):
            name = f"fault.{_PREFIX}_{k}"
            ends = [f"{bus}.{0 if c == GROUND else numbers[c]}" for c in (a, b)]
            self._engine.command(f"{name}.bus1={ends[0]}")
            self._engine.command(f"{name}.bus2={ends[1]}")
            self._engine.command(f"{name}.r={1.0 / siemens!r}")
            self._enable(name)

    def apply_all(self) -> None:
        """Enable every spare element where it was made: it then has been part of the circuit once."""
        for k in range(_MOST_LEGS):
            self._enable(f"fault.{_PREFIX}_{k}")
        for n in sorted(set(self._grid.line["n_conductors"])):
            self._enable(f"line.{_PREFIX}_{n}a")
            self._enable(f"line.{_PREFIX}_{n}b")

    def _numbers_at(self, bus: int) -> dict[int, int]:
        """Engine conductor number of each Grid conductor of a bus; a hidden own conductor keeps its published one."""
        conductors = self._grid.wiring.conductor[self._grid.wiring.nodes_at(bus)]
        numbers = {int(c): int(c) for c in conductors if c != HIDDEN}
        if HIDDEN in conductors:
            circuit = self._engine.dss.ActiveCircuit
            circuit.SetActiveBus(self._grid.bus["name"].iat[bus])
            numbers[HIDDEN] = next(int(k) for k in circuit.ActiveBus.Nodes if 1 <= k <= 3)
        return numbers

    def _split(self, fault: Fault, configuration: Configuration) -> tuple[str, dict[int, int]]:
        """Replace a line by two sections; the interior bus and the engine's conductor numbers there."""
        grid, row = self._grid, np.array([fault.element])
        sizes = grid.line["n_conductors"].to_numpy().astype(np.int64)
        n = int(sizes[fault.element])
        blocks = {
            key: unpack(grid.matrices[name], sizes, row)[0]
            for name, key in (("line_r_ohm", "rmatrix"), ("line_x_ohm", "xmatrix"), ("line_c_nf", "cmatrix"))
        }
        name = str(grid.line["name"].iat[fault.element])
        line = self._engine.alt.Line[name]
        conductors, _ = parse_conductors(grid.line["conductors1"].iloc[row])
        interior = f"{INTERIOR_BUS}." + ".".join(str(k + 1) for k in range(n))
        halves = (("a", str(line.Bus1), interior, fault.x), ("b", interior, str(line.Bus2), 1.0 - fault.x))
        for half, bus1, bus2, share in halves:
            section = f"line.{_PREFIX}_{n}{half}"
            self._engine.command(f"{section}.bus1={bus1}")
            self._engine.command(f"{section}.bus2={bus2}")
            values = " ".join(f"{key}=[{_rows(block * share)}]" for key, block in blocks.items())
            self._engine.command(f"edit {section} {values} length=1")
            self._enable(section)
        self._engine.command(f"line.{name}.enabled=no")
        self._line = name
        self._interior_names = [f"{INTERIOR_BUS}.{k + 1}" for k in range(n)]
        return INTERIOR_BUS, {int(conductor): k + 1 for k, conductor in enumerate(conductors)}

    def _enable(self, element: str) -> None:
        self._engine.command(f"{element}.enabled=yes")
        self._active.append(element)

    def interior_voltages(self, fault: Fault | None) -> Complex:
        """Voltages of the interior bus, in the order of the line's conductors, V; empty without a line fault."""
        if fault is None or fault.place is not FaultPlace.LINE:
            return np.zeros(0, dtype=np.complex128)
        names = self._engine.node_names()
        v = self._engine.voltages()
        return np.array([v[names.index(name)] for name in self._interior_names], dtype=np.complex128)

    def clear(self) -> None:
        """Take the fault away."""
        for element in self._active:
            self._engine.command(f"{element}.enabled=no")
        self._active.clear()
        if self._line:
            self._engine.command(f"line.{self._line}.enabled=yes")
            self._line = ""


def _rows(block: npt.NDArray[np.float64]) -> str:
    return " | ".join(" ".join(repr(float(value)) for value in row) for row in block)
