"""Features of a Grid: everything of a window that does not depend on readings, once per network variant.

Only records go in. What spans decades is compressed, what is missing becomes 0 after normalisation, and whether it is
missing is a column where that says something (``columns``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from jaxtyping import Bool, Float32, Float64, Int32

from mycelium.grid.communication import Links, communication_links, rewire
from mycelium.grid.grid import Grid
from mycelium.grid.nominal_angle import NominalAngle, nominal_angle, wrap
from mycelium.grid.position import position
from mycelium.schema import Connection, DerKind
from mycelium.simulate.seeds import generator
from mycelium.window.branches import line_matrix, phase_slots, transformer_edges
from mycelium.window.columns import (
    BASE_CURRENT_A,
    MOST_WINDINGS,
    OBJECT,
    Columns,
    Communication,
    Psi,
    Relation,
    Store,
    WindowOptions,
    names,
    static_columns,
    temporal_columns,
)
from mycelium.window.normalise import Fit, Normalisation, normalised

Floats32 = npt.NDArray[np.float32]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int32]
Flags = npt.NDArray[np.bool_]

_SAME_ANGLE_RAD = 1e-6


@dataclass(frozen=True)
class GridFeatures:
    """What a window takes from the records of one network variant.

    Attributes:
        options, normalisation: What they were made with.
        counts: Number of entities of every store with a temporal or static column, and of transformer objects.
        static: Normalised static columns by store. [entity, column]
        position: Positional descriptors, not normalised; none if the option is off. [bus, descriptor]
        edges: End points by relation. [2, edge]
        nominal_rad: Nominal angles, 0 where not valid; all 0 if the option is off. [bus, phase]
        nominal_valid: Whether the bus has this phase and a nominal angle is defined for it; a hidden bus has all three
            candidates. [bus, phase]
        legs: Whether slots 0 and 1 are the two legs of a centre tap. [bus]
        base_v: Line-to-neutral voltage base. [bus]
        base: What readings are divided by; of angles, the nominal angle in radians, NaN where not defined.
            [entity, column]
        scales: Where readings are found.
    """

    options: WindowOptions
    normalisation: Normalisation
    counts: Mapping[str, int]
    static: Mapping[Store, Float32[Floats32, "_ _"]]
    position: Float32[Floats32, "bus descriptor"]
    edges: Mapping[Relation, Int32[Ints, "ends=2 _"]]
    nominal_rad: Float32[Floats32, "bus phase=3"]
    nominal_valid: Bool[Flags, "bus phase=3"]
    legs: Bool[Flags, " bus"]
    base_v: Float32[Floats32, " bus"]
    base: Mapping[Store, Float32[Floats32, "_ _"]]
    scales: Scales

    @staticmethod
    def of(grid: Grid, options: WindowOptions, normalisation: Normalisation) -> GridFeatures:
        """The features of a grid."""
        normalisation.check(options.nominal_angle)
        nominal = nominal_angle(grid)
        tables = static_columns(options)
        static = {}
        for store, values in _static_values(grid, options).items():
            static[store] = normalised(values, normalisation.of_static(store, tables[store]), normalisation.core)
        descriptors = position(grid, nominal)[0] if options.position else np.zeros((len(grid.bus), 0))
        angle = nominal.angle_rad if options.nominal_angle else np.zeros_like(nominal.angle_rad)
        counts: dict[str, int] = {store.value: len(values) for store, values in static.items()}
        counts |= {Store.CONSUMER: len(grid.consumer), OBJECT: len(grid.transformer)}
        counts |= {Store.GRID: 1, Store.POWER_FLOW: 1, Store.SUMMARY: 1}
        return GridFeatures(
            options,
            normalisation,
            counts,
            static,
            descriptors.astype(np.float32),
            _edges(grid, options),
            angle.astype(np.float32),
            nominal.valid,
            _legs(nominal),
            (1e3 * grid.bus["base_kv"].to_numpy()).astype(np.float32),
            _bases(grid, options, np.where(nominal.valid, angle, np.nan)),
            Scales.of(grid),
        )


@dataclass(frozen=True)
class Scales:
    """Where the readings of terminals and sources are found, and how many there could be.

    Attributes:
        winding_bus: Bus of each winding. [winding]
        winding_phase: Phases of each winding. [winding, phase]
        source_bus: Bus of each source. [substation]
        source_phase: Phases of each source. [substation, phase]
        source_v: Voltage base there. [substation]
        possible: Number of readings that could exist in an hour, by family of ``columns.FAMILIES``.
    """

    winding_bus: npt.NDArray[np.int64]
    winding_phase: Bool[Flags, "winding phase=3"]
    source_bus: npt.NDArray[np.int64]
    source_phase: Bool[Flags, "source phase=3"]
    source_v: Float32[Floats32, " source"]
    possible: Mapping[str, int]

    @staticmethod
    def of(grid: Grid) -> Scales:
        source = grid.substation["bus1"].to_numpy().astype(np.int64)
        return Scales(
            winding_bus=grid.winding["bus1"].to_numpy().astype(np.int64),
            winding_phase=phase_slots(grid, "winding", 0),
            source_bus=source,
            source_phase=phase_slots(grid, "substation", 0),
            source_v=(1e3 * grid.bus["base_kv"].to_numpy()[source]).astype(np.float32),
            possible=_possible(grid),
        )


def _bases(
    grid: Grid, options: WindowOptions, angle_rad: Float64[Floats, "bus phase=3"]
) -> dict[Store, Float32[Floats32, "_ _"]]:
    """Base of every reading by store. [entity, column]"""
    consumer, winding = grid.consumer, grid.winding
    wye = (consumer["connection"] == Connection.WYE).to_numpy() & (consumer["n_phases"] > 1).to_numpy()
    n_phases = grid.transformer["n_phases"].to_numpy()[winding["transformer"].to_numpy()].astype(np.float64)
    coil_kv = winding["rated_kv"].to_numpy() / np.where(n_phases > 1, np.sqrt(3.0), 1.0)
    bus_v, at, source = (
        1e3 * grid.bus["base_kv"].to_numpy(),
        winding["bus1"].to_numpy(),
        grid.substation["bus1"].to_numpy(),
    )
    terminal_rad = np.where(phase_slots(grid, "winding", 0), angle_rad[at], np.nan)
    line_a = _first_positive(grid.line["normal_amps"].to_numpy(), grid.line["emergency_amps"].to_numpy())
    # Of each quantity that has no base of its own in ``columns``: one per entity, or of angles one per phase.
    known: dict[Store, tuple[int, dict[str, Floats]]] = {
        Store.BUS: (len(bus_v), {"voltage_v": bus_v, "angle_deg": angle_rad}),
        Store.CONSUMER: (
            len(consumer), {"voltage_v": 1e3 * consumer["rated_kv"].to_numpy() / np.where(wye, np.sqrt(3.0), 1.0)},
        ),
        Store.LINE: (len(grid.line), {"current_a": line_a}),
        Store.TERMINAL: (
            len(winding),
            {
                "voltage_v": bus_v[at],
                "angle_deg": terminal_rad,
                "current_a": _first_positive(winding["rated_kva"].to_numpy() / n_phases / coil_kv),
            },
        ),
        Store.SUBSTATION: (len(source), {"voltage_v": bus_v[source]}),
        Store.GRID: (1, {}),
        Store.POWER_FLOW: (1, {"current_a": np.array([BASE_CURRENT_A])}),
    }  # fmt: skip
    result = {}
    for store, columns in temporal_columns(options).items():
        count, own = known[store]
        table = np.repeat([[column.base for column in columns]], count, axis=0)
        for name, values in own.items():
            where = [k for k, column in enumerate(columns) if column.constant == name]
            table[:, where] = values[:, : len(where)] if values.ndim == 2 else values[:, None]
        result[store] = table.astype(np.float32)
    return result


def _first_positive(*ratings: Floats) -> Floats:
    """The first rating that is one, or the base current. [element]"""
    result = np.full(len(ratings[0]), BASE_CURRENT_A)
    for rating in reversed(ratings):
        result = np.where(np.isfinite(rating) & (rating > 0.0), rating, result)
    return result


def _possible(grid: Grid) -> dict[str, int]:
    """Readings that could exist in one hour: a denominator, so that shares compare between networks."""
    wiring = grid.wiring
    phase = (wiring.conductor >= 1) & (wiring.conductor <= 3)
    own = wiring.hidden_bus[wiring.bus] & (wiring.conductor < 0)
    nodes = int(phase.sum()) + int(own.sum())
    served = np.zeros(len(grid.bus), dtype=bool)
    served[grid.consumer["bus1"].to_numpy()] = True
    branch = int(grid.line["n_phases"].sum()) + int(phase_slots(grid, "winding", 0).sum())
    return {
        "bus_voltage": nodes + int(phase.sum()),
        "bus_power": 2 * int((served[wiring.bus] & (phase | own)).sum()),
        "consumer_voltage": len(grid.consumer),
        "consumer_power": 2 * len(grid.consumer),
        "current": branch,
        "flow": 2 * branch,
        "head": 3 * int(phase_slots(grid, "substation", 0).sum()),
    }


def _legs(nominal: NominalAngle) -> Flags:
    """Both legs of a centre tap and nothing else: two opposite phasors in slots 0 and 1. [bus]"""
    two = nominal.valid[:, 0] & nominal.valid[:, 1] & ~nominal.valid[:, 2]
    apart = np.abs(wrap(nominal.angle_rad[:, 0] - nominal.angle_rad[:, 1] + np.pi))
    return np.asarray(two & (apart < _SAME_ANGLE_RAD))


# ---- static columns ------------------------------------------------------------------------------------------------


def _static_values(grid: Grid, options: WindowOptions) -> dict[Store, Floats]:
    """Transformed static columns by store, NaN where missing. [entity, column]"""
    columns = static_columns(options)
    raw = {
        Store.BUS: _bus(grid),
        Store.SUBSTATION: _substation(grid),
        Store.CAPACITOR: _capacitor(grid),
        Store.DER: _der(grid),
        Store.LINE: _line(grid, options),
        Store.TRANSFORMER: _transformer(grid),
        Store.REACTOR: _reactor(grid),
        Store.TERMINAL: {f"winding_{k + 1}": grid.winding["number"].to_numpy() == k + 1 for k in range(MOST_WINDINGS)},
    }
    return {store: _transformed(columns[store], values) for store, values in raw.items()}


def fit_static(fit: Fit, grid: Grid) -> None:
    """Add a network's static columns to normalisation constants."""
    options = WindowOptions.everything()
    columns = static_columns(options)
    for store, values in _static_values(grid, options).items():
        fit.add_static(store, columns[store], values)


def _transformed(columns: Columns, raw: Mapping[str, npt.ArrayLike]) -> Floats:
    parts = []
    for column in columns:
        values = np.asarray(raw[column.name], dtype=np.float64)
        if column.psi is Psi.ASINH:
            values = np.arcsinh(values / column.base)
        elif column.psi is Psi.DEVIATION:
            values = values / column.base - 1.0
        parts.append(values)
    return np.stack(parts, axis=1)


def _bus(grid: Grid) -> dict[str, npt.ArrayLike]:
    place = grid.bus[["x", "y"]].to_numpy(dtype=np.float64)
    located = np.isfinite(place).all(axis=1)
    known = place[located]
    low, high = (known.min(axis=0), known.max(axis=0)) if len(known) else (np.zeros(2), np.zeros(2))
    extent = float((high - low).max())
    place = (place - (low + high) / 2.0) / (extent / 2.0 if extent > 0.0 else 1.0)
    source = np.zeros(len(grid.bus), dtype=bool)
    source[grid.substation["bus1"].to_numpy()] = True
    x, y = np.where(located[:, None], place, np.nan).T
    return {"base_kv": grid.bus["base_kv"], "source": source, "x": x, "y": y, "located": located}


def _substation(grid: Grid) -> dict[str, npt.ArrayLike]:
    table = grid.substation
    same = ("r1_ohm", "x1_ohm", "r0_ohm", "x0_ohm", "mva_sc3", "mva_sc1", "base_kv", "setpoint_pu", "frequency_hz")
    return {**{name: table[name] for name in same}, "angle_rad": wrap(np.deg2rad(table["angle_deg"].to_numpy()))}


def _capacitor(grid: Grid) -> dict[str, npt.ArrayLike]:
    table = grid.capacitor
    return {
        **{name: table[name] for name in ("rated_kv", "rated_kvar", "steps", "controlled")},
        "delta": table["connection"] == Connection.DELTA,
        "active_share": table["initial_steps"] / np.maximum(table["steps"], 1),
    }


def _der(grid: Grid) -> dict[str, npt.ArrayLike]:
    table = grid.der
    kvar = np.sqrt(np.maximum(table["rated_kva"] ** 2 - table["rated_kw"] ** 2, 0.0))
    return {
        **{kind.value: table["kind"] == kind for kind in DerKind},
        "rated_kw": table["rated_kw"],
        "rated_kvar": kvar,
        "delta": table["connection"] == Connection.DELTA,
    }


def _line(grid: Grid, options: WindowOptions) -> dict[str, npt.ArrayLike]:
    table = grid.line
    same = (
        "switch", "fuse", "recloser", "length_km", "c1_nf", "c0_nf", "r1_ohm", "x1_ohm", "r0_ohm", "x0_ohm", "n_phases",
    )  # fmt: skip
    return {
        **{name: table[name] for name in same},
        "no_length": table["length_km"].isna(),
        "normal_a": table["normal_amps"],
        "emergency_a": table["emergency_amps"],
        **(line_matrix(grid) if options.full_impedance else {}),
    }


def _transformer(grid: Grid) -> dict[str, npt.ArrayLike]:
    edges = transformer_edges(grid)
    table, winding = grid.transformer.iloc[edges.transformer], grid.winding
    same = (
        "regulator", "fuse", "recloser", "n_windings", "no_load_loss_pct", "magnetizing_pct", "x12_pct", "x13_pct",
        "x23_pct",
    )  # fmt: skip
    phases = phase_slots(grid, "winding", 0)
    kv = winding["rated_kv"].to_numpy()
    delta = (winding["connection"] == Connection.DELTA).to_numpy()
    values: dict[str, npt.ArrayLike] = {name: table[name] for name in same}
    values["rated_kva"] = winding["rated_kva"].to_numpy()[edges.first]
    values["turns_ratio"] = kv[edges.first] / kv[edges.other]
    for k, side in ((1, edges.first), (2, edges.other)):
        values[f"n_phases_{k}"] = phases[side].sum(axis=1)
        values[f"delta_{k}"] = delta[side]
        for slot, name in enumerate("abc"):
            values[f"phase_{name}_{k}"] = phases[side, slot]
    return values


def _reactor(grid: Grid) -> dict[str, npt.ArrayLike]:
    table = grid.reactor
    # No reactor of a Grid is operated or protected: these three are the paper's and always 0.
    never = pd.Series(np.zeros(len(table), dtype=bool))
    return {
        "switch": never,
        "fuse": never,
        "recloser": never,
        "n_phases": table["n_phases"],
        "r_ohm": table["r_ohm"],
        "x_ohm": table["x_ohm"],
        "no_impedance": table["r_ohm"].isna() | table["x_ohm"].isna(),
    }


# ---- edges ---------------------------------------------------------------------------------------------------------


def _edges(grid: Grid, options: WindowOptions) -> dict[Relation, Ints]:
    """End points of every relation. [2, edge]"""
    units = transformer_edges(grid)
    winding = grid.winding
    links = communication_links(grid)
    shortcuts = _shortcuts(grid, links, options)
    series = np.flatnonzero(grid.capacitor["series"].to_numpy())
    capacitors = np.arange(len(grid.capacitor))
    reactor = grid.reactor
    pairs: dict[Relation, tuple[Any, Any]] = {
        Relation.LINE: (grid.line["bus1"], grid.line["bus2"]),
        Relation.TRANSFORMER: (winding["bus1"].to_numpy()[units.first], winding["bus1"].to_numpy()[units.other]),
        # A shunt reactor is an edge from its bus to itself.
        Relation.REACTOR: (reactor["bus1"], np.where(reactor["series"], reactor["bus2"], reactor["bus1"])),
        Relation.SERVICE: (np.arange(len(grid.consumer)), grid.consumer["bus1"]),
        Relation.SOURCE: (np.arange(len(grid.substation)), grid.substation["bus1"]),
        # A capacitor in series hangs on both its buses.
        Relation.CAPACITOR: (
            np.concatenate([capacitors, series]),
            np.concatenate([grid.capacitor["bus1"].to_numpy(), grid.capacitor["bus2"].to_numpy()[series]]),
        ),
        Relation.DER: (np.arange(len(grid.der)), grid.der["bus1"]),
        Relation.UPLINK: (shortcuts.uplink_substation, shortcuts.uplink_bus),
        Relation.DOWNLINK: (shortcuts.downlink_consumer, shortcuts.downlink_bus),
        Relation.PHASE_HEAD: (links.downlink_consumer, links.downlink_bus) if options.phase_head else ([], []),
        Relation.TERMINAL_BUS: (np.arange(len(winding)), winding["bus1"]),
        Relation.TERMINAL_OBJECT: (np.arange(len(winding)), winding["transformer"]),
        Relation.OBJECT_EDGE: (units.transformer, np.arange(len(units.transformer))),
    }
    return {
        relation: np.stack([np.asarray(start), np.asarray(end)]).astype(np.int32)
        for relation, (start, end) in pairs.items()
    }


def _shortcuts(grid: Grid, links: Links, options: WindowOptions) -> Links:
    if options.communication is Communication.NONE:
        return Links.none()
    if options.communication is Communication.RANDOM:
        return rewire(links, grid, generator(grid.name, "random communication"))
    return links


def static_names(options: WindowOptions, store: Store) -> tuple[str, ...]:
    """Names of the static columns of a store, in order."""
    return names(static_columns(options)[store])
