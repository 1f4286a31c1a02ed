"""What is written of a feeder: a runnable OpenDSS model with its day, what was sampled, repaired and found.

A folder is written under another name and renamed, so that it is there as a whole or not at all. Nothing in it
depends on the machine, the time or the number of workers.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from mycelium.synth import dss
from mycelium.synth.design import Design, Line, LineRole, UnitRole
from mycelium.synth.feeder import Attempt, Outcome
from mycelium.synth.geography import Floats
from mycelium.synth.model import FLOATING_PU, State, model_text
from mycelium.synth.propose import Proposal

MASTER, SAMPLE, REPAIRS, VERDICT = "Master.dss", "sample.json", "repairs.jsonl", "verdict.json"
BUSES, STREETS, ATTRIBUTION = "buses.csv", "streets.json", "ATTRIBUTION.txt"
SNAPSHOT_A, SNAPSHOT_B = "SnapshotA.dss", "SnapshotB.dss"
COORDINATES = "Coordinates.csv"
_PART = ".part"
_VOLT_DIGITS, _LOADING_DIGITS = 5, 4

Record = dict[str, Any]


def folder_name(number: int) -> str:
    return f"feeder-{number:06d}"


def write_attempt(attempt: Attempt, folder: Path, seed: int) -> None:
    """Write an accepted feeder whole, of a rejected one what was sampled, done and found."""
    part = folder.with_name(f"{folder.name}.{os.getpid()}{_PART}")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    _json(part / SAMPLE, sample(attempt, seed))
    lines = [json.dumps(record, allow_nan=False) + "\n" for record in attempt.repairs]
    _text(part / REPAIRS, "".join(lines))
    _json(part / VERDICT, verdict(attempt))
    if attempt.verdict.accepted:
        assert attempt.proposal is not None and attempt.outcome is not None
        _write_model(attempt.proposal, attempt.outcome, part)
    shutil.rmtree(folder, ignore_errors=True)
    part.replace(folder)


# ---- the model -----------------------------------------------------------------------------------------------------


def _write_model(proposal: Proposal, outcome: Outcome, folder: Path) -> None:
    design, inputs, place = proposal.design, proposal.inputs, proposal.place
    parts = model_text(design, inputs.shapes)
    header, footer = parts.pop("Circuit"), parts.pop("Bases")
    for name, lines in parts.items():
        _text(folder / f"{name}.dss", "".join(f"{line}\n" for line in lines))
    thanks = f"Streets and buildings: {place.name}; {place.attribution}"
    master = [
        f"! {design.name}: a synthetic feeder of mycelium",
        f"! {thanks}",
        "! The day: Set mode=daily number=24 stepsize=1h, then Solve.",
        f"! Snapshots: Redirect {SNAPSHOT_A} (peak, no generation) or {SNAPSHOT_B} (low demand, full sun), then Solve.",
        "Clear",
        *header,
        *(f"Redirect {name}.dss" for name in parts),
        *footer,
        f"BusCoords {COORDINATES}",
    ]
    _text(folder / MASTER, "".join(f"{line}\n" for line in master))
    _text(folder / COORDINATES, "".join(f"{b.name}, {b.x_m}, {b.y_m}\n" for b in design.buses.values()))
    share = inputs.demand_lambda
    _text(folder / SNAPSHOT_A, _snapshot(design, {i: float(eta) for i, eta in enumerate(inputs.eta)}, 0))
    _text(folder / SNAPSHOT_B, _snapshot(design, {load.customer: share for load in design.loads.values()}, 1))
    parts_of = "Components and statistics: the training networks of the component library"
    _text(folder / ATTRIBUTION, f"{thanks}\n{parts_of}\n")
    _text(folder / BUSES, _buses(outcome, design))
    _json(folder / STREETS, _streets(proposal))


def _snapshot(design: Design, factor: dict[int, float], sun: int) -> str:
    lines = [
        f"Edit Load.{load.name} kW={dss.number(load.kw * factor[load.customer])} "
        f"kvar={dss.number(load.kvar * factor[load.customer])}\n"
        for load in design.loads.values()
    ]
    if design.pvs:
        lines.append(f"BatchEdit PVSystem..* irradiance={sun}\n")
    return "".join(lines)


def _buses(outcome: Outcome, design: Design) -> str:
    """Place, distance from the source and voltages of every bus."""
    distance = distances_m(design)
    rows = ["bus,x_m,y_m,base_kv,area,distance_m,peak_lowest_pu,sunny_highest_pu,day_lowest_pu,day_highest_pu\n"]
    day = np.stack([state.v_pu for state in outcome.day])
    live = np.where(day > FLOATING_PU, day, np.nan)
    index: dict[str, list[int]] = {}
    for k, name in enumerate(outcome.node_bus):
        index.setdefault(name, []).append(k)
    for bus in design.buses.values():
        nodes = index.get(bus.name, [])
        values = [
            _value(outcome.a.v_pu[nodes], np.min), _value(outcome.b.v_pu[nodes], np.max),
            _value(live[:, nodes], np.min), _value(live[:, nodes], np.max),
        ]  # fmt: skip
        text = ",".join(values)
        rows.append(f"{bus.name},{bus.x_m},{bus.y_m},{bus.base_kv},{bus.area},{distance[bus.name]:.1f},{text}\n")
    return "".join(rows)


def _value(values: Floats, pick: Any) -> str:
    known = values[np.isfinite(values)]
    return f"{pick(known):.{_VOLT_DIGITS}f}" if known.size else ""


def distances_m(design: Design) -> dict[str, float]:
    """Line length between the source and each bus."""
    feeders = design.feeders_of()
    found = {design.source.bus: 0.0}
    for bus in design.buses:
        way = []
        at = bus
        while at not in found and at in feeders:
            way.append(at)
            at = feeders[at].bus1
        total = found.get(at, 0.0)
        for name in reversed(way):
            branch = feeders[name]
            total += branch.length_m if isinstance(branch, Line) else 0.0
            found[name] = total
    return {bus: found.get(bus, 0.0) for bus in design.buses}


def _streets(proposal: Proposal) -> Record:
    """The streets of the territory, in metres, and where (0, 0) is."""
    streets, place = proposal.layout.territory.streets, proposal.place
    return {
        "place": place.name,
        "attribution": place.attribution,
        "origin_deg": place.origin_deg,
        "xy_m": streets.xy_m.tolist(),
        "edge": streets.edge.tolist(),
    }


# ---- what was sampled and found --------------------------------------------------------------------------------------


def sample(attempt: Attempt, seed: int) -> Record:
    """Seed and sampled parameters; how repairs changed the design is in the repairs and the model."""
    record: Record = {"seed": seed, "number": attempt.number, "name": f"synth_{seed}_{attempt.number:06d}"}
    if attempt.parameters is not None:
        values = asdict(attempt.parameters)
        convention = values.pop("convention")
        record |= {"demand_lambda": round(values.pop("demand_lambda"), 6), "thermal": values.pop("thermal")}
        record |= {"parameters": _rounded(values), "convention": convention}
    if attempt.proposal is not None:
        place, territory = attempt.proposal.place, attempt.proposal.layout.territory
        record["geography"] = {
            "place": place.name,
            "attribution": place.attribution,
            "origin_deg": place.origin_deg,
            "head_m": territory.streets.xy_m[territory.head].tolist(),
            "street_nodes": len(territory.streets.xy_m),
            "customers": len(territory.access),
        }
        eta, loads = attempt.proposal.inputs.eta, attempt.proposal.design.loads.values()
        record["coincidence"] = {load.name: float(eta[load.customer]) for load in loads}
    return record


def verdict(attempt: Attempt) -> Record:
    """Accepted or not, why, and the final diagnostics."""
    record: Record = {"accepted": attempt.verdict.accepted, "reasons": list(attempt.verdict.reasons)}
    record["repairs"] = len(attempt.repairs)
    found, hours = attempt.outcome, []
    if found is not None:
        record |= {
            "snapshot_a": _diagnostics(found.a, found.branch_is_line),
            "snapshot_b": _diagnostics(found.b, found.branch_is_line),
        }
        hours = [_diagnostics(state, found.branch_is_line) for state in found.day]
    record["hours"] = hours
    if attempt.proposal is not None:
        record["traits"] = traits(attempt.proposal.design)
    return record


def _diagnostics(state: State, is_line: np.typing.NDArray[np.bool_]) -> Record:
    if not state.converged or state.collapsed:
        return {"converged": state.converged, "collapsed": state.collapsed}
    return {
        "converged": True,
        "lowest_pu": round(float(state.live_v_pu.min()), _VOLT_DIGITS),
        "highest_pu": round(float(state.live_v_pu.max()), _VOLT_DIGITS),
        "line_loading": round(float(state.loading[is_line].max(initial=0.0)), _LOADING_DIGITS),
        "transformer_loading": round(float(state.loading[~is_line].max(initial=0.0)), _LOADING_DIGITS),
    }


def traits(design: Design) -> Record:
    """What kind of network it is."""
    feeders = design.feeders_of()
    depth: dict[str, int] = {design.source.bus: 0}
    for bus in design.buses:
        way = []
        at = bus
        while at not in depth and at in feeders:
            way.append(at)
            at = feeders[at].bus1
        for name in reversed(way):
            depth[name] = depth[feeders[name].bus1] + 1
    units = [unit for unit in design.units.values() if unit.role is not UnitRole.SUBSTATION]
    return {
        "buses": len(design.buses),
        "depth": max(depth.values()),
        "customers": len(design.loads),
        "transformers": len(units),
        "centre_tapped": sum(unit.role is UnitRole.CENTRE_TAPPED for unit in units),
        "switches": sum(not switch.is_open for switch in design.switches.values()),
        "ties": sum(switch.is_open for switch in design.switches.values()),
        "regulators": len(design.regulators),
        "capacitors": len(design.capacitors),
        "photovoltaics": len(design.pvs),
        "feeder_km": round(_km(design, (LineRole.FEEDER,)), 3),
        "low_voltage_km": round(_km(design, (LineRole.MAIN, LineRole.SERVICE)), 3),
        "nominal_kw": round(sum(load.kw for load in design.loads.values()), 1),
        "photovoltaics_kw": round(sum(pv.kw for pv in design.pvs.values()), 1),
    }


def _km(design: Design, roles: Sequence[LineRole]) -> float:
    return sum(line.length_m for line in design.lines.values() if line.role in roles) / 1e3


def _rounded(values: Record) -> Record:
    return {k: round(v, 6) if isinstance(v, float) else v for k, v in values.items()}


def _json(path: Path, value: Record) -> None:
    _text(path, json.dumps(value, indent=1, allow_nan=False) + "\n")


def _text(path: Path, text: str) -> None:
    path.write_bytes(text.encode())
