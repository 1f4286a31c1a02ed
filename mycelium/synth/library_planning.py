"""Planning statistics of one network: how many customers, how far, how densely."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from mycelium.grid.topology import loops
from mycelium.schema import DerKind
from mycelium.synth.library_equipment import (
    FEWEST_CUSTOMERS,
    construction_of,
    customer_classes,
    line_types,
    not_customers_because,
)
from mycelium.synth.library_model import Model
from mycelium.synth.library_rows import STATISTICS, Construction, CustomerClass, Level, Statistic
from mycelium.synth.library_settings import AT_SUBSTATION_KM

Floats = npt.NDArray[np.float64]

N_QUANTILES = 11
DIGITS = 4
FEWEST_ROUTES = 10  # a model with fewer medium-voltage routes says nothing about them
MOST_KVAR_PER_KW = 2.0  # more is of a model whose demand is not all there
LEAST_SPAN_M = 1.0  # shorter sections are drawn, not built


def statistics(model: Model) -> Iterator[Statistic]:
    """All statistics that the network has values for, in the order of ``STATISTICS``."""
    found = {**_customers(model), **_lengths(model), **_devices(model)}
    for name in STATISTICS:
        values = np.asarray(found.get(name, ()), dtype=np.float64)
        if len(values):
            yield statistic(model.family, model.network, name, values)


def statistic(family: str, network: str, name: str, values: Floats) -> Statistic:
    """A statistic from its values."""
    quantiles = np.quantile(values, np.linspace(0.0, 1.0, N_QUANTILES if len(values) > 1 else 1))
    return Statistic(family, network, name, len(values), tuple(float(f"{value:.{DIGITS}g}") for value in quantiles))


def _customers(model: Model) -> dict[str, npt.ArrayLike]:
    """Customers per transformer, their classes and demand; aggregates of customers say nothing of these."""
    groups = customer_classes(model)
    why = {group: not_customers_because(model, group) for group in groups}
    real = {group: members for group, members in groups.items() if "aggregate" not in why[group] and len(members)}
    counted = np.sort(np.concatenate([*real.values(), np.zeros(0, np.int64)]))
    serving = model.of_customer("transformer")
    behind = counted[serving[counted] >= 0]
    unit, number = np.unique(serving[behind], return_counts=True)
    phases = model.bank_phases[unit] if len(unit) else np.zeros(0)
    found: dict[str, npt.ArrayLike] = {
        "customers_per_single_phase_transformer": number[phases == 1],
        "customers_per_three_phase_transformer": number[phases == 3],
    }
    if CustomerClass.SINGLE_PHASE in real:
        found["three_phase_customer_share"] = [len(real.get(CustomerClass.THREE_PHASE, ())) / len(counted)]
    kva = np.hypot(model.per_customer(model.nominal_kw), model.per_customer(model.nominal_kvar))
    if not all(why[group] for group in real):
        counted = np.sort(np.concatenate([real[group] for group in real if "placeholder" not in why[group]]))
        behind = counted[serving[counted] >= 0]
        unit = np.unique(serving[behind])
        loading = np.bincount(serving[behind], kva[behind], len(model.bank_kva))
        if len(unit) > 1:  # a model of one transformer is often one of its feeders
            found["transformer_utilisation"] = loading[unit] / model.bank_kva[unit]
        found["kw_per_customer"] = [model.per_customer(model.nominal_kw)[behind].mean()]
    return found


def _lengths(model: Model) -> dict[str, npt.ArrayLike]:
    spans = _spans(model)
    at, ends = spans["level"], spans["service"]
    types = line_types(model)
    medium = types[types["level"] == Level.MEDIUM]
    cable = [
        construction_of(Level.MEDIUM, x, c) is Construction.CABLE
        for x, c in zip(medium["x1_ohm"], medium["c1_nf"], strict=True)
    ]
    routes = _routes(model)
    total = routes["km"].sum()
    winding, unit = model.grid.winding, model.grid.transformer
    low = winding[(unit["distribution"].to_numpy()[winding["transformer"]]) & (winding["number"] == 2)]
    start = np.full(len(unit), np.nan)
    start[low["transformer"]] = model.distance_km[low["bus1"]]
    serving, bus = model.of_customer("transformer"), model.of_customer("bus1")
    behind = serving >= 0
    reach_m = pd.Series(1e3 * (model.distance_km[bus[behind]] - start[serving[behind]])).groupby(serving[behind]).max()
    found: dict[str, npt.ArrayLike] = {
        "lv_span_m": spans["m"][(at == Level.LOW) & ~ends],
        "service_span_m": spans["m"][(at == Level.LOW) & ends],
        "lv_reach_m": reach_m[reach_m > LEAST_SPAN_M],
    }
    if len(routes) >= FEWEST_ROUTES:
        found["mv_span_m"] = spans["m"][at == Level.MEDIUM]
        found["mv_reach_km"] = [np.nanmax(start)] if np.isfinite(start).any() else []
        found["mv_single_phase_share"] = [routes["km"][routes["n_phases"] == 1].sum() / total]
        found["mv_cable_share"] = [medium["km"][cable].sum() / medium["km"].sum()] if len(medium) else []
        found |= _switching(model, float(routes["km"][routes["n_phases"] == 3].sum()))
    return {name: values for name, values in found.items() if not (name.endswith("_m") and _drawn(values))}


def _drawn(lengths_m: npt.ArrayLike) -> bool:
    """Whether lengths are all the same: a placeholder."""
    values = np.asarray(lengths_m)
    return len(values) >= FEWEST_CUSTOMERS and bool(np.ptp(np.quantile(values, [0.1, 0.9])) < LEAST_SPAN_M)


def _routes(model: Model) -> pd.DataFrame:
    """Medium-voltage routes between two buses: single-phase lines side by side are one route of several phases."""
    line = model.grid.line
    chosen = line[~line["switch"] & (line["length_km"] > 0) & model.at_level(line["bus1"], Level.MEDIUM)]
    pair = [np.minimum(chosen["bus1"], chosen["bus2"]), np.maximum(chosen["bus1"], chosen["bus2"])]
    routes = chosen.groupby(pair).agg(km=("length_km", "max"), n_phases=("n_phases", "sum"))
    return routes.assign(n_phases=routes["n_phases"].clip(upper=3))


def _switching(model: Model, three_phase_km: float) -> dict[str, npt.ArrayLike]:
    """Three-phase switches at medium voltage only: single-phase ones are mostly fuses of laterals."""
    line = model.grid.line
    three = line["switch"] & (line["n_phases"] == 3) & model.at_level(line["bus1"], Level.MEDIUM)
    if not three.any() or three_phase_km <= 0:
        return {}
    if loops(model.grid) > three.sum():  # a meshed network, whose loops are no ties
        return {"mv_km_per_switch": [three_phase_km / three.sum()]}
    return {"mv_km_per_switch": [three_phase_km / three.sum()], "ties_per_switch": [loops(model.grid) / three.sum()]}


def _spans(model: Model) -> pd.DataFrame:
    """Line sections between buses where something is: sections drawn in pieces are joined.

    A bus is passed through if two lines meet there and no customer, transformer or other element does.
    """
    grid, line = model.grid, model.grid.line
    n = len(grid.bus)
    km = np.nan_to_num(line["length_km"].to_numpy())
    ends = line[["bus1", "bus2"]].to_numpy().astype(np.int64)
    degree = np.bincount(ends.ravel(), minlength=n)
    busy = degree != 2
    for table in ("consumer", "winding", "capacitor", "der", "substation", "reactor"):
        busy[grid.tables[table]["bus1"].to_numpy().astype(np.int64)] = True
    passed = ~busy[ends]
    rows, side = np.nonzero(passed)
    # Lines and the buses they pass through are the nodes of a graph; its components are the sections.
    edges = (rows, len(line) + ends[rows, side])
    graph = coo_array((np.ones(len(rows)), edges), shape=(len(line) + n, len(line) + n))
    section = connected_components(graph, directed=False)[1][: len(line)]
    customer = np.zeros(n, bool)
    customer[grid.consumer["bus1"].to_numpy().astype(np.int64)] = True
    last = (customer & (degree == 1))[ends].any(axis=1)
    medium, low = (model.at_level(ends[:, 0], level) for level in (Level.MEDIUM, Level.LOW))
    level = np.select([medium, low], [Level.MEDIUM, Level.LOW], "")
    pieces = pd.DataFrame({"section": section, "m": 1e3 * km, "service": last, "level": level})[~line["switch"]]
    spans = pieces.groupby("section").agg({"m": "sum", "service": "any", "level": "first"})
    return spans[spans["m"] >= LEAST_SPAN_M]


def _devices(model: Model) -> dict[str, npt.ArrayLike]:
    grid = model.grid
    total_kw = float(model.nominal_kw.sum())
    customers = len(model.first_load)
    pv = grid.der[grid.der["kind"] == DerKind.PV]
    shunt = grid.capacitor[~grid.capacitor["series"] & model.at_level(grid.capacitor["bus1"], Level.MEDIUM)]
    found: dict[str, npt.ArrayLike] = {
        "pv_customer_share": [len(pv) / customers] if customers else [],
        "pv_kw": pv["rated_kw"],
    }
    if total_kw > 0 and len(pv):
        found["pv_kw_per_kw"] = [pv["rated_kw"].sum() / total_kw]
    if model.at_level(grid.line["bus1"], Level.MEDIUM).sum() < FEWEST_ROUTES:
        return found  # a low-voltage feeder says nothing of the devices of the medium-voltage one
    if shunt["rated_kvar"].sum() < MOST_KVAR_PER_KW * total_kw:
        found["capacitor_kvar_per_kw"] = [shunt["rated_kvar"].sum() / total_kw]
    found["capacitor_distance_km"] = model.distance_km[shunt["bus1"].to_numpy().astype(np.int64)]
    unit = grid.transformer[grid.transformer["regulator"]]
    out = np.unique(grid.winding["bus1"].to_numpy()[unit["first_winding"].to_numpy() + 1])
    away = model.distance_km[out.astype(np.int64)]
    away = away[(away > AT_SUBSTATION_KM) & model.at_level(out, Level.MEDIUM)]
    found["line_regulators"], found["regulator_distance_km"] = [len(away)], away
    return found
