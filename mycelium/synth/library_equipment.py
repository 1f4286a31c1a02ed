"""Equipment and demand of one network: line types, transformer types, load records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pandas as pd

from mycelium.schema import Connection
from mycelium.synth.library_model import Model
from mycelium.synth.library_rows import (
    Conductor,
    Construction,
    CustomerClass,
    Level,
    LoadRecord,
    Role,
    TransformerType,
)

UNRATED_A = 400.0  # OpenDSS's default: a line with it has no rating of its own
CABLE_NF_PER_KM = 100.0  # cables have 150 to 400 nF/km, overhead lines about 10, triplex 60
LV_CABLE_OHM_PER_KM = 0.15  # reactance: low-voltage cables and bundles have 0.07 to 0.12, open wires 0.25 to 0.4
LEAST_KM = 0.05  # a type with less in a network is a jumper, or an oddity
OHM_PER_KM = (0.01, 15.0)  # resistances outside are of jumpers, or slips
LEAST_X_PCT, LEAST_X_PCT_SINGLE = 2.0, 0.5  # three-phase and single-phase units with less are placeholders
MOST_KVA = {True: 2500.0, False: 60e3}  # distribution and substation units with more are placeholders
LOAD_RECORDS = 24  # kept per network and class, evenly over its customers by size
MOST_SINGLE_PHASE_KVA = 50.0  # 200 A at 240 V; a single-phase load above it stands for several customers
NONE = "none"
FEWEST_CUSTOMERS = 5
SAME_VALUE = 0.8  # a group with this share of one value is a placeholder
MOST_OVERSIZE = 0.1  # share of single-phase loads above it from which all are aggregates
ONE_PER_TRANSFORMER = 0.9  # with this share of transformers serving one load, loads are aggregates of their customers


def construction_of(level: Level, x1_ohm_per_km: float, c1_nf_per_km: float) -> Construction:
    """Cable (bundles on poles included) or open wires, by capacitance, at low voltage also by reactance."""
    low = level is Level.LOW and x1_ohm_per_km < LV_CABLE_OHM_PER_KM
    cable = low or c1_nf_per_km > CABLE_NF_PER_KM
    return Construction.CABLE if cable else Construction.OVERHEAD


def line_types(model: Model) -> pd.DataFrame:
    """Lines that are conductors (no switch, no explicit neutral, a length), with values per km. [line]"""
    line = model.grid.line
    km = line["length_km"]
    frame = pd.DataFrame({"row": np.arange(len(line)), "n_phases": line["n_phases"], "km": km})
    for column in ("r1_ohm", "x1_ohm", "r0_ohm", "x0_ohm", "c1_nf", "c0_nf"):
        frame[column] = (line[column] / km.where(km > 0)).round(6)
    frame["amps"] = line["normal_amps"].round(1)
    medium, low = (model.at_level(line["bus1"], level) for level in (Level.MEDIUM, Level.LOW))
    frame["level"] = np.select([medium, low], [Level.MEDIUM, Level.LOW], "")
    plausible = frame["r1_ohm"].between(*OHM_PER_KM) & (frame["x1_ohm"] > 0) & (frame["r0_ohm"] > 0)
    kept = (km > 0) & ~line["switch"] & (line["n_conductors"] == line["n_phases"]) & (frame["level"] != "")
    return frame[kept & plausible]


def conductors(model: Model) -> Iterator[Conductor]:
    """Line types with their length; lines of one type agree in all values to 3 digits."""
    frame = line_types(model)
    values = ["r1_ohm", "x1_ohm", "r0_ohm", "x0_ohm", "c1_nf", "c0_nf"]
    for column in values:
        frame[column] = [float(f"{value:.3g}") for value in frame[column]]
    for key, group in frame.groupby(["level", "n_phases", "amps", *values], sort=True):
        level, n_phases, amps, r1, x1, r0, x0, c1, c0 = key
        if group["km"].sum() < LEAST_KM:
            continue
        kind = construction_of(Level(level), x1, c1)
        length, rated = round(float(group["km"].sum()), 4), bool(amps != UNRATED_A)
        yield Conductor(
            model.family, model.network, Level(level), kind, int(n_phases), r1, x1, r0, x0, c1, c0,
            float(amps), rated, length,
        )  # fmt: skip


def transformers(model: Model) -> Iterator[TransformerType]:
    """Transformer types with their number; distribution units, and those that feed medium voltage from above."""
    counts: Counter[TransformerType] = Counter()
    for row in range(len(model.grid.transformer)):
        found = _transformer(model, row)
        if found is not None:
            counts[found] += 1
    for kind, count in counts.items():
        yield replace(kind, count=count)


def _transformer(model: Model, row: int) -> TransformerType | None:
    unit = model.grid.transformer.iloc[row]
    first, n = int(unit["first_winding"]), int(unit["n_windings"])
    winding = model.grid.winding.iloc[first : first + n]
    tapped = bool(model.centre_tapped[row])
    substation = bool(model.at_level(winding["bus1"].iloc[1], Level.MEDIUM)) and not unit["regulator"]
    stepped = winding["rated_kv"].iloc[0] > 1.2 * winding["rated_kv"].iloc[1]  # a regulator's do not differ
    three = unit["n_phases"] == 3
    if (n != 2 and not tapped) or unit["n_phases"] == 2 or not (unit["distribution"] or (substation and stepped)):
        return None
    least, most = LEAST_X_PCT if three else LEAST_X_PCT_SINGLE, MOST_KVA[unit["distribution"]]
    if unit["x12_pct"] < least or winding["rated_kva"].iloc[0] > most or not winding["r_pct"].any():
        return None
    r_pct = winding["r_pct"].to_numpy()
    return TransformerType(
        family=model.family,
        network=model.network,
        role=Role.DISTRIBUTION if unit["distribution"] else Role.SUBSTATION,
        n_phases=int(unit["n_phases"]),
        centre_tapped=tapped,
        kva=round(float(winding["rated_kva"].iloc[0]), 3),
        primary_kv=round(float(winding["rated_kv"].iloc[0]), 4),
        secondary_kv=round(float(winding["rated_kv"].iloc[1]) * (2 if tapped else 1), 4),
        r_pct=round(float(r_pct[0] + r_pct[1] / (2 if tapped else 1)), 5),
        x_pct=round(float((unit["x12_pct"] + unit["x13_pct"]) / 2 if tapped else unit["x12_pct"]), 4),
        x_legs_pct=round(float(unit["x23_pct"]), 4) if tapped else 0.0,
        no_load_loss_pct=round(float(unit["no_load_loss_pct"]), 4),
        magnetizing_pct=round(float(unit["magnetizing_pct"]), 4),
        primary_delta=bool(winding["connection"].iloc[0] == Connection.DELTA),
        secondary_delta=bool(winding["connection"].iloc[1] == Connection.DELTA),
        count=0,
    )


def customer_classes(model: Model) -> dict[CustomerClass, np.ndarray]:
    """Customers of each class, by number."""
    three = model.of_customer("n_phases") == 3
    return {
        CustomerClass.SINGLE_PHASE: np.flatnonzero(~three),
        CustomerClass.THREE_PHASE: np.flatnonzero(three),
    }


def not_customers_because(model: Model, group: CustomerClass) -> str:
    """Why the loads of a class are no records of customers; empty if they are."""
    members = customer_classes(model)[group]
    kw = model.per_customer(model.nominal_kw)[members]
    kvar = model.per_customer(model.nominal_kvar)[members]
    if not len(members):
        return NONE
    if not np.any(kw > 0):
        return "placeholder: no demand"
    _, count = np.unique(np.round([kw, kvar], 6), axis=1, return_counts=True)
    if len(members) > 1 and count.max() >= SAME_VALUE * len(members):
        return "placeholder: one value"
    if len(members) < FEWEST_CUSTOMERS:
        return "too few"
    if not np.median(model.at_level(model.of_customer("bus1")[members], Level.LOW)):
        return "aggregate: spot loads at medium voltage"
    serving = model.of_customer("transformer")[members]
    if not np.median(serving >= 0):
        return "aggregate: behind no distribution transformer"
    if group is CustomerClass.SINGLE_PHASE and np.mean(np.hypot(kw, kvar) > MOST_SINGLE_PHASE_KVA) > MOST_OVERSIZE:
        return "aggregate: more than a single-phase service carries"
    _, served = np.unique(serving[serving >= 0], return_counts=True)
    if group is CustomerClass.SINGLE_PHASE and np.mean(served == 1) >= ONE_PER_TRANSFORMER:
        return "aggregate: one load per transformer"
    return ""


def loads(model: Model) -> Iterator[LoadRecord]:
    """Nominal demand of customers, evenly over each class by size; none of placeholders and aggregates."""
    kw = model.per_customer(model.nominal_kw)
    kvar = model.per_customer(model.nominal_kvar)
    for group, members in customer_classes(model).items():
        if not_customers_because(model, group):
            continue
        most = MOST_SINGLE_PHASE_KVA if group is CustomerClass.SINGLE_PHASE else np.inf
        members = members[(kw[members] > 0) & (np.hypot(kw, kvar)[members] <= most)]
        order = members[np.argsort(kw[members], kind="stable")]
        edges = np.linspace(0, len(order), min(len(order), LOAD_RECORDS) + 1).round().astype(int)
        for low, high in pairwise(edges):
            middle = order[(low + high) // 2]
            pair = round(float(kw[middle]), 4), round(float(kvar[middle]), 4)
            yield LoadRecord(model.family, model.network, group, *pair, count=int(high - low))
