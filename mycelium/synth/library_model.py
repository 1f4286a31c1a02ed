"""A reference network as the library's measurements see it: records, nominal demand, levels and distances."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mycelium.engine import Engine
from mycelium.errors import FeederError
from mycelium.grid.dss_script import read_script
from mycelium.grid.grid import Configuration, Grid
from mycelium.grid.nominal_angle import nominal_angle
from mycelium.grid.position import accumulate, path_statistics
from mycelium.grid.read_opendss import read_circuit
from mycelium.grid.topology import branches
from mycelium.schema import LOW_VOLTAGE_KV, ElementKind
from mycelium.simulate.network import NetworkSource
from mycelium.simulate.profile_own import daily_means
from mycelium.simulate.shapes import Demand, OwnShapes
from mycelium.synth.library_rows import Level

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

_HIGHEST_MV_KV = 60.0  # line-to-line; above it is transmission, which the library leaves out
_LEG_KV = 0.15  # a load rated below it is on one leg of a centre tap


@dataclass(frozen=True)
class Model:
    """One network.

    Attributes:
        family, network: Where it comes from.
        grid: Its records.
        configuration: Its switch positions.
        engine: Its compiled circuit, for the controls, which are no records.
        nominal_kw, nominal_kvar: Nominal demand, which is the peak of the year, of every load. [consumer]
        peak_kw, peak_kvar: Demand in the hour of the largest total; nominal where loads have no shape. [consumer]
    """

    family: str
    network: str
    grid: Grid
    configuration: Configuration
    engine: Engine
    nominal_kw: Floats
    nominal_kvar: Floats
    peak_kw: Floats
    peak_kvar: Floats

    @staticmethod
    def read(source: NetworkSource, family: str, coincidence: Mapping[str, float] | None = None) -> Model:
        """Read and compile a network.

        Args:
            source: Where it is.
            family: Networks of one origin.
            coincidence: Share of its nominal demand that each load has at the peak, where that is known; else shapes
                tell, as far as there are any.
        """
        script = read_script(source.master, source.root)
        engine = Engine(script)
        grid, configuration, _ = read_circuit(script, engine)
        demand, own = Demand.of(engine, grid), OwnShapes.read(engine, grid)
        # A load with a shape of its own peaks where the shape does: some models give 1 kW and a shape in kW.
        year = _hourly(own)
        hour = int(np.argmax(_per_shape(own, demand.nominal_kw) @ year))
        name = source.name or grid.name
        annual, peak = year.max(axis=1)[own.load], year[:, hour][own.load]  # without a shape, the last
        if coincidence is not None:  # shapes of a day say nothing about the year
            annual, peak = np.ones(len(own.load)), _factors(coincidence, grid.consumer["name"].tolist(), source.master)
        powers = [n * factor for factor in (annual, peak) for n in (demand.nominal_kw, demand.nominal_kvar)]
        return Model(family, name, grid, configuration, engine, *powers)

    @cached_property
    def line_to_line_kv(self) -> Floats:
        """Voltage base, line-to-line. [bus]"""
        return np.asarray(self.grid.bus["base_kv"].to_numpy() * np.sqrt(3.0))

    def at_level(self, bus: npt.ArrayLike, level: Level) -> Bools:
        """Whether buses are of a voltage class. [bus given]"""
        kv = self.line_to_line_kv[np.asarray(bus, dtype=np.int64)]
        if level is Level.LOW:
            return np.asarray(kv < LOW_VOLTAGE_KV)
        return np.asarray((kv >= LOW_VOLTAGE_KV) & (kv < _HIGHEST_MV_KV))

    @cached_property
    def on_one_leg(self) -> Bools:
        """Customers on one leg of a centre tap. [consumer]"""
        consumer = self.grid.consumer
        return np.asarray((consumer["n_phases"] == 1) & (consumer["rated_kv"] < _LEG_KV))

    @cached_property
    def distance_km(self) -> Floats:
        """Line length from the substation over closed switches, lines of unknown length counting nothing. [bus]"""
        opened = np.zeros(len(self.grid.line), bool)
        opened[self.grid.switches] = self.configuration.switch_open
        # Paths ask the tables only, so that the matrices of open lines may stay.
        closed = self.grid.replace_tables(line=self.grid.line[~opened].reset_index(drop=True))
        b, paths = branches(closed), path_statistics(closed, nominal_angle(closed))
        length = np.zeros(len(b) + 1)  # a bus without a branch before it takes the last
        line = np.flatnonzero(b.is_kind(ElementKind.LINE))
        length[line] = np.nan_to_num(closed.line["length_km"].to_numpy()[b.row[line]])
        return np.asarray(accumulate(length[paths.branch][None, :], paths.predecessor)[0])

    @cached_property
    def customer(self) -> Ints:
        """A number for each customer: the loads on the two legs of one service are one. [consumer]"""
        bus = self.grid.consumer["bus1"].to_numpy().astype(np.int64)
        rows = np.arange(len(bus))
        key = np.where(self.on_one_leg, bus, len(self.grid.bus) + rows)
        return np.asarray(np.unique(key, return_inverse=True)[1], dtype=np.int64)

    @cached_property
    def first_load(self) -> Ints:
        """Row of the first load of each customer. [customer]"""
        return np.asarray(np.unique(self.customer, return_index=True)[1], dtype=np.int64)

    def per_customer(self, values: Floats) -> Floats:
        """Sum over the loads of each customer. [customer]"""
        total = np.zeros(len(self.first_load))
        np.add.at(total, self.customer, values)
        return total

    def of_customer(self, column: str) -> npt.NDArray[Any]:
        """A column of the consumer table, at each customer's first load. [customer]"""
        return np.asarray(self.grid.consumer[column].to_numpy()[self.first_load])

    @cached_property
    def bank_kva(self) -> Floats:
        """Rating of the bank that a unit is the first of; 0 for the others. [unit]"""
        unit = self.grid.transformer
        own = self.grid.winding["rated_kva"].to_numpy()[unit["first_winding"].to_numpy()]
        total = np.zeros(len(unit))
        np.add.at(total, unit["bank"].to_numpy(), own)
        return total

    @cached_property
    def bank_phases(self) -> Ints:
        """Phases of the bank that a unit is of: three single-phase units are one three-phase transformer. [unit]"""
        unit = self.grid.transformer
        total = np.bincount(unit["bank"], unit["n_phases"], len(unit))
        return np.asarray(total[unit["bank"].to_numpy()], dtype=np.int64)

    @cached_property
    def centre_tapped(self) -> Bools:
        """Single-phase units with two low-voltage legs. [unit]"""
        winding, unit = self.grid.winding, self.grid.transformer
        low = (winding["rated_kv"] < LOW_VOLTAGE_KV).to_numpy()
        legs = np.bincount(winding["transformer"][low], minlength=len(unit))
        return np.asarray((legs == 2) & (unit["n_phases"] == 1))


def _factors(coincidence: Mapping[str, float], loads: list[str], master: Path) -> Floats:
    missing = [name for name in loads if name not in coincidence]
    if missing:
        raise FeederError(f"{master}: load '{missing[0]}' has no coincidence factor; expected one for each load")
    return np.array([coincidence[name] for name in loads], dtype=np.float64)


def _hourly(own: OwnShapes) -> Floats:
    """Hourly means of all shapes, repeated to the longest, and ones for loads without. [shape + 1, hour]"""
    hours = [daily_means(p, step).ravel() for p, step in zip(own.p, own.hours_per_step, strict=True)]
    longest = max((len(values) for values in hours), default=1)
    return np.stack([*(np.resize(values, longest) for values in hours), np.ones(longest)])


def _per_shape(own: OwnShapes, power: Floats) -> Floats:
    """Sum of power per shape; loads without one come last. [shape + 1]"""
    total = np.zeros(len(own.p) + 1)
    np.add.at(total, own.load, power)
    return total
