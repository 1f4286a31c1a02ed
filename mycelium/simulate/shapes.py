"""Demand of a day, bound once to memory that the engine reads: a new day is written in place, at no cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mycelium.engine import Engine
from mycelium.grid.grid import Grid
from mycelium.schema import HOURS, DerKind
from mycelium.simulate.profiles import NO_SHAPE, CustomerClass, DayProfile, DayRequest

Floats = npt.NDArray[np.float64]

_LOAD_SHAPE = "mycelium_load"
_DER_SHAPE = "mycelium_der"
INDUSTRIAL_KW = 200.0  # a three-phase customer above this is taken as industrial, below it as commercial


@dataclass(frozen=True)
class Demand:
    """Nominal powers, and the arrays bound to the engine.

    Attributes:
        nominal_kw, nominal_kvar: Of every customer, in the order of the Grid. [load]
        p_kw, q_kvar: Of the day. [load, hour]
        der_mult: Multiplier of every device, in the order of the Grid. [der, hour]
        der_kind: Kind of every device. [der]
    """

    nominal_kw: Floats
    nominal_kvar: Floats
    p_kw: Floats
    q_kvar: Floats
    der_mult: Floats
    der_kind: npt.NDArray[np.str_]

    @staticmethod
    def of(engine: Engine, grid: Grid) -> Demand:
        """Nominal demand; call it before ``bind_shapes``."""
        batch = engine.alt.Load
        place = {str(name).lower(): k for k, name in enumerate(batch.Name)} if len(batch) else {}
        order = np.array([place[name] for name in grid.consumer["name"]], dtype=np.int64)
        kw = _values(batch.kW)[order] if len(order) else np.zeros(0)
        kvar = _values(batch.kvar)[order] if len(order) else np.zeros(0)
        p_kw, q_kvar = np.repeat(kw[:, None], HOURS, 1), np.repeat(kvar[:, None], HOURS, 1)
        return Demand(kw, kvar, p_kw, q_kvar, np.ones((len(grid.der), HOURS)), grid.der["kind"].to_numpy().astype(str))

    def set(self, profile: DayProfile) -> None:
        """Write a day."""
        self.p_kw[:] = (profile.p_mult * self.nominal_kw).T
        self.q_kvar[:] = (profile.q_mult * self.nominal_kvar).T
        for kind, values in (
            (DerKind.PV, profile.pv_mult),
            (DerKind.STORAGE, profile.storage_mult),
            (DerKind.GENERATOR, profile.generator_mult),
        ):
            self.der_mult[self.der_kind == kind] = values.T


def bind_shapes(engine: Engine, grid: Grid, demand: Demand) -> None:
    """Give every customer and device a shape of its own, in memory owned here."""
    alt = engine.alt
    for k, name in enumerate(grid.consumer["name"]):
        shape = f"{_LOAD_SHAPE}_{k}"
        engine.command(f"new loadshape.{shape} npts={HOURS} interval=1 useactual=yes")
        _bind(alt, shape, demand.p_kw[k], demand.q_kvar[k])
        engine.command(f"load.{name}.daily={shape}")
    classes = {DerKind.PV: "pvsystem", DerKind.GENERATOR: "generator", DerKind.STORAGE: "storage"}
    for k, (name, kind) in enumerate(zip(grid.der["name"], grid.der["kind"], strict=True)):
        shape = f"{_DER_SHAPE}_{k}"
        engine.command(f"new loadshape.{shape} npts={HOURS} interval=1 useactual=no")
        _bind(alt, shape, demand.der_mult[k], None)
        engine.command(f"{classes[DerKind(kind)]}.{name}.daily={shape}")
        if kind == DerKind.STORAGE:
            engine.command(f"storage.{name}.dispmode=follow")


def _values(batch: Any) -> Floats:
    return np.asarray(batch.to_array(), dtype=np.float64)


def _bind(alt: Any, shape: str, p: Floats, q: Floats | None) -> None:
    """Let a load shape read these arrays; altdss 0.2.4 has no Python call for it."""
    api = alt._api_util
    pointer = [api.ffi.NULL if array is None else api.ffi.cast("double*", array.ctypes.data) for array in (p, q)]
    external, single_precision, stride = 1, 0, 1
    api.lib.Alt_LoadShape_Set_Points(
        alt.LoadShape[shape]._ptr, HOURS, api.ffi.NULL, *pointer, external, single_precision, stride
    )


@dataclass(frozen=True)
class OwnShapes:
    """The network's own load shapes, and which customer and PV system uses which.

    Attributes:
        p, q: Multipliers; q is None where a shape has none. Longer or shorter than a day, as published.
        hours_per_step: Of every shape.
        load, pv: Shape of every customer and PV system, ``NO_SHAPE`` where it has none. [load], [pv]
    """

    p: list[Floats]
    q: list[Floats | None]
    hours_per_step: list[float]
    load: npt.NDArray[np.int32]
    pv: npt.NDArray[np.int32]

    @staticmethod
    def read(engine: Engine, grid: Grid) -> OwnShapes:
        """Read the shapes that customers and PV systems refer to; call it before ``bind_shapes``."""
        own = OwnShapes([], [], [], np.zeros(0, np.int32), np.zeros(0, np.int32))
        known: dict[tuple[str, float], int] = {}
        pv_names = grid.der["name"][grid.der["kind"] == DerKind.PV].tolist()
        load = [own._find(engine.alt, engine.alt.Load[name], known) for name in grid.consumer["name"]]
        pv = [own._find(engine.alt, engine.alt.PVSystem[name], known) for name in pv_names]
        return OwnShapes(own.p, own.q, own.hours_per_step, np.array(load, np.int32), np.array(pv, np.int32))

    def _find(self, alt: Any, element: Any, known: dict[tuple[str, float], int]) -> int:
        """Place of an element's shape, read at its first use; yearly shapes go before daily ones."""
        name = str(element.Yearly_str or element.Daily_str or "").lower()
        if not name or name == "default":
            return NO_SHAPE
        shape = alt.LoadShape[name]
        p = np.asarray(shape.PMult, dtype=np.float64)
        if len(p) < HOURS or not np.any(p):
            return NO_SHAPE  # a placeholder, or a shape whose data file was not read
        actual = bool(shape.UseActual)
        base = float(getattr(element, "kW", 0.0) or 0.0) if actual else 1.0
        if base == 0.0:
            return NO_SHAPE
        key = (name, base)
        if key not in known:
            known[key] = len(self.p)
            q = np.asarray(shape.QMult, dtype=np.float64)
            self.p.append(p / base)
            self.q.append(None if actual or len(q) != len(p) or not np.any(q) else q)
            self.hours_per_step.append(float(shape.Interval))
        return known[key]


def day_request(grid: Grid, demand: Demand, own: OwnShapes) -> DayRequest:
    """What a profile source needs to know."""
    three = (grid.consumer["n_phases"] >= 3).to_numpy()
    kind = np.where(
        three,
        np.where(demand.nominal_kw > INDUSTRIAL_KW, CustomerClass.INDUSTRIAL, CustomerClass.COMMERCIAL),
        CustomerClass.RESIDENTIAL,
    )
    count = {kind_: int(np.sum(demand.der_kind == kind_)) for kind_ in DerKind}
    return DayRequest(
        n_load=len(grid.consumer),
        load_class=kind.astype(np.int8),
        own_shape=own.load,
        pv_count=count[DerKind.PV],
        storage_count=count[DerKind.STORAGE],
        generator_count=count[DerKind.GENERATOR],
        own_pv_shape=own.pv,
    )
