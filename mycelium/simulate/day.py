"""Day: the hidden truth of 24 hours. Only the simulator makes one; only losses, metrics and sensing read one."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from jaxtyping import Bool, Complex128, Float64, Int8, Int16

from mycelium.errors import FeederError
from mycelium.grid.admittance import Admittance
from mycelium.grid.grid import Configuration, Grid
from mycelium.schema import HOURS, ElementKind, FaultPlace, FaultType
from mycelium.simulate.fault import Fault, split_line

Complex = npt.NDArray[np.complex128]
Floats = npt.NDArray[np.float64]

_ARRAYS = (
    "v", "v_interior", "tap_pu", "capacitor_steps", "consumer_current", "der_current", "source_current",
    "energised", "switch_open", "group_phase",
)  # fmt: skip


@dataclass(frozen=True)
class Day:
    """Truth of one case.

    Attributes:
        v: Node voltages, V. [hour, node]
        v_interior: Voltages inside a faulted line at the last hour, in the order of the line's conductors, V; else
            empty. [conductor]
        tap_pu: Taps of regulated windings. [hour, regulated winding]
        capacitor_steps: Steps in operation. [hour, capacitor]
        consumer_current: Currents into customers' terminal conductors, A. [hour, item]
        der_current: Currents into generators, storage and PV, A. [hour, item]
        source_current: Currents into sources' terminal conductors, A. [hour, item]
        energised: Whether a node is tied to a source by what is closed. [node]
        switch_open: True positions. [switch]
        group_phase: True phase slot of every hidden-phase group. [group]
        fault: The fault of the last hour, if there is one.
        network, seed, number: Which case this is.
        variant: Record variant of the network.
        day_of_year: Date of the profiles.
        solver: "engine" or "fixed point".
    """

    v: Complex128[Complex, "hour=24 node"]
    v_interior: Complex128[Complex, " conductor"]
    tap_pu: Float64[Floats, "hour=24 regulated"]
    capacitor_steps: Int16[npt.NDArray[np.int16], "hour=24 capacitor"]
    consumer_current: Complex128[Complex, "hour=24 consumer_item"]
    der_current: Complex128[Complex, "hour=24 der_item"]
    source_current: Complex128[Complex, "hour=24 source_item"]
    energised: Bool[npt.NDArray[np.bool_], " node"]
    switch_open: Bool[npt.NDArray[np.bool_], " switch"]
    group_phase: Int8[npt.NDArray[np.int8], " group"]
    fault: Fault | None
    network: str
    seed: int
    number: int
    variant: int
    day_of_year: int
    solver: str

    def configuration(self, hour: int) -> Configuration:
        """True configuration of an hour."""
        return Configuration(self.switch_open, self.group_phase, self.tap_pu[hour], self.capacitor_steps[hour])

    def branch_currents(self, grid: Grid) -> Complex128[Complex, "hour=24 row"]:
        """Currents into every terminal conductor of every element, A. [hour, row of B]

        At the last hour of a line fault the row of the faulted line holds the current into either end of it.
        """
        result = np.zeros((HOURS, 0), dtype=np.complex128)
        for hours, admittance in self.admittances(grid):
            part = admittance.currents(self.v[hours])
            if not result.shape[1]:
                result = np.zeros((HOURS, part.shape[1]), dtype=np.complex128)
            result[hours] = part
        if self.fault is not None and self.fault.place is FaultPlace.LINE:
            result[-1] = self._faulted_line_currents(grid)
        return result

    def admittances(self, grid: Grid) -> Iterator[tuple[npt.NDArray[np.int64], Admittance]]:
        """Hours that share taps and steps, and the admittance of these hours."""
        state = np.concatenate([self.tap_pu, self.capacitor_steps], axis=1)
        _, first, kind = np.unique(state, axis=0, return_index=True, return_inverse=True)
        base = Admittance.of(grid, self.configuration(int(first[0]))) if len(first) else None
        for k, hour in enumerate(first):
            assert base is not None  # the state has 24 rows
            yield np.flatnonzero(kind.ravel() == k), base.at(self.configuration(int(hour)))

    def split(self, grid: Grid) -> tuple[Grid, Complex]:
        """Grid and node voltages of the last hour of a line fault, the interior bus included. [node]"""
        if self.fault is None or self.fault.place is not FaultPlace.LINE:
            raise ValueError("only a line fault has an interior bus")
        cut, interior = split_line(grid, self.fault.element, self.fault.x)
        v = np.zeros(cut.wiring.n_nodes, dtype=np.complex128)
        node = cut.wiring.find(grid.wiring.bus, grid.wiring.conductor)
        v[node] = self.v[-1]
        t = cut.wiring.terminals["line"]
        items = np.flatnonzero((t.bus == interior) & (t.row == self.fault.element))
        v[cut.wiring.find(t.bus[items], t.conductor[items])] = self.v_interior
        return cut, v

    def _faulted_line_currents(self, grid: Grid) -> Complex:
        assert self.fault is not None
        cut, v = self.split(grid)
        admittance = Admittance.of(cut, self.configuration(HOURS - 1))
        currents = admittance.currents(v)
        second = admittance.layout.rows_of(ElementKind.LINE, len(cut.line) - 1)
        n = len(second) // 2
        first = admittance.layout.rows_of(ElementKind.LINE, self.fault.element)
        whole = np.delete(currents, second)
        whole[first[n:]] = currents[second[n:]]
        return whole

    def save(self, path: Path) -> None:
        """Write into one file, whole or not at all; equal days give equal bytes."""
        record = {
            "network": self.network,
            "seed": self.seed,
            "number": self.number,
            "variant": self.variant,
            "day_of_year": self.day_of_year,
            "solver": self.solver,
            "fault": None if self.fault is None else asdict(self.fault),
        }
        arrays: dict[str, Any] = {name: getattr(self, name) for name in _ARRAYS}
        part = path.with_name(path.name + ".part")
        with part.open("wb") as file:
            np.savez(file, record=np.array(json.dumps(record)), **arrays)
        part.replace(path)

    @staticmethod
    def load(path: Path) -> Day:
        try:
            with Path(path).open("rb") as file, np.load(file, allow_pickle=False) as data:
                record = json.loads(str(data["record"]))
                arrays = {name: data[name] for name in _ARRAYS}
        except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
            raise FeederError(f"{path}: not a Day file ({error})") from error
        fault = record.pop("fault")
        if fault is not None:
            fault["type"], fault["place"] = FaultType(fault["type"]), FaultPlace(fault["place"])
            fault["conductors"] = tuple(fault["conductors"])
            fault = Fault(**fault)
        return Day(**arrays, **record, fault=fault)
