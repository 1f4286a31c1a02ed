"""Facts of one feeder, the same for synthetic and reference networks: size, shape, equipment, and its peak hour."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from dss import DSSException

from mycelium.errors import FeederError
from mycelium.grid.check import LIVE_PU, element_slices, node_voltages, terminal_currents
from mycelium.grid.topology import depth, loops
from mycelium.simulate.network import NetworkSource
from mycelium.synth.library_equipment import NONE, UNRATED_A, not_customers_because
from mycelium.synth.library_model import Model
from mycelium.synth.library_rows import CustomerClass
from mycelium.synth.library_settings import convention

Floats = npt.NDArray[np.float64]

# What is compared, in the words of the report; the attributes of ``FeederFacts`` that are numbers of a feeder.
COMPARED: dict[str, str] = {
    "buses": "buses",
    "depth": "depth, hops",
    "customers_per_transformer": "customers per transformer",
    "r_over_x": "R/X of lines, median by length",
    "transformer_loading": "transformer loading at peak, median",
    "line_loading": "line loading at peak, 95th percentile",
    "voltage_drop_pu": "voltage drop at peak, p.u.",
    "phase_imbalance": "imbalance of the head's currents at peak",
    "loops": "loops with ties closed",
    "centre_tapped_share": "share of transformers with centre tap",
}


@dataclass(frozen=True, slots=True)
class FeederFacts:
    """Facts of one feeder; NaN where a model does not say, as it does not about its peak where demand is a placeholder.

    Attributes:
        name, family: Which feeder.
        region: North American or European low voltage.
        buses: Number of buses.
        depth: Most branches between a bus and its substation.
        customers_per_transformer: Loads behind a distribution transformer, mean over those with any; NaN where a load
            stands for several customers.
        transformers: Distribution transformers with customers.
        r_over_x: Positive-sequence R/X of lines that are no switches, median weighted by length.
        transformer_loading: Demand of its customers at peak over the rating of a transformer, median.
        line_loading: Current over normal rating at peak, 95th percentile over rated lines that are no switches.
        voltage_drop_pu: Between the best and the worst served customers (99th and first percentile) at peak.
        phase_imbalance: Largest deviation of a phase current at the head from their mean, over the mean, at peak.
        loops: Independent loops with all switches closed.
        centre_tapped_share: Distribution transformers with a centre tap.
    """

    name: str
    family: str
    region: str
    buses: int
    depth: int
    customers_per_transformer: float
    transformers: int
    r_over_x: float
    transformer_loading: float
    line_loading: float
    voltage_drop_pu: float
    phase_imbalance: float
    loops: int
    centre_tapped_share: float


def feeder_facts(source: NetworkSource, family: str, coincidence: Mapping[str, float] | None = None) -> FeederFacts:
    """Read a feeder and solve its peak; raises FeederError if it cannot be read or solved.

    Args:
        source: Where it is.
        family: Networks of one origin.
        coincidence: Share of its nominal demand that each load has at the peak of the year; such loads are customers.
            If not given, the hour of the largest total of their shapes is the peak, or nominal demand without shapes,
            and loads are looked at whether they are placeholders or aggregates.
    """
    model = Model.read(source, family, coincidence)
    why = [not_customers_because(model, group) if coincidence is None else "" for group in CustomerClass]
    try:
        return _facts(model, _solve_peak(model), why)
    finally:
        model.engine.close()


def _facts(model: Model, v: npt.NDArray[np.complex128], why: list[str]) -> FeederFacts:
    grid = model.grid
    unit = grid.transformer[grid.transformer["distribution"]]
    serving = grid.consumer["transformer"].to_numpy()
    served, customers = np.unique(serving[serving >= 0], return_counts=True)
    kva = np.hypot(model.peak_kw, model.peak_kvar)
    demand = np.bincount(serving[serving >= 0], kva[serving >= 0], len(grid.transformer))
    loading = demand[served] / model.bank_kva[served]
    counted = len(customers) and not any(reason.startswith("aggregate") for reason in why)
    loaded = not all(reason == NONE or reason.startswith("placeholder") for reason in why)
    return FeederFacts(
        name=model.network,
        family=model.family,
        region=convention(model).region.value,
        buses=len(grid.bus),
        depth=depth(grid),
        customers_per_transformer=float(customers.mean()) if counted else np.nan,
        transformers=len(served),
        r_over_x=_r_over_x(model),
        transformer_loading=float(np.median(loading)) if loaded and len(loading) else np.nan,
        line_loading=_line_loading(model) if loaded else np.nan,
        voltage_drop_pu=_voltage_drop(model, v) if loaded else np.nan,
        phase_imbalance=_imbalance(model) if loaded else np.nan,
        loops=loops(grid),
        centre_tapped_share=float(model.centre_tapped[unit.index].mean()) if len(unit) else np.nan,
    )


def _solve_peak(model: Model) -> npt.NDArray[np.complex128]:
    """Node voltages at the peak hour, controls acting, without sun or storage, V. [node]"""
    engine = model.engine
    for name, kw, kvar in zip(model.grid.consumer["name"], model.peak_kw, model.peak_kvar, strict=True):
        engine.command(f"load.{name}.kw={kw:.17g}")
        engine.command(f"load.{name}.kvar={kvar:.17g}")
    for kind in ("PVSystem", "Storage"):
        engine.command(f"batchedit {kind}..* enabled=no")
    engine.set_canonical()
    engine.command("set mode=snapshot")
    engine.command("set controlmode=static")
    try:
        engine.command("solve")
    except DSSException as error:  # such as too many control iterations
        reason = " ".join(str(error).split())
        raise FeederError(f"{model.network}: OpenDSS cannot solve its peak hour: {reason}") from error
    v = node_voltages(engine, model.grid)
    if not engine.dss.ActiveCircuit.Solution.Converged or not np.all(np.isfinite(v)):
        raise FeederError(f"{model.network}: the power flow of its peak hour does not converge")
    return v


def _r_over_x(model: Model) -> float:
    line = model.grid.line
    chosen = line[~line["switch"] & (line["length_km"] > 0) & (line["r1_ohm"] > 0) & (line["x1_ohm"] > 0)]
    return _weighted_median((chosen["r1_ohm"] / chosen["x1_ohm"]).to_numpy(), chosen["length_km"].to_numpy())


def _weighted_median(values: Floats, weight: Floats) -> float:
    if not len(values):
        return float("nan")
    order = np.argsort(values, kind="stable")
    below = np.cumsum(weight[order])
    return float(values[order][np.searchsorted(below, below[-1] / 2)])


def _line_loading(model: Model) -> float:
    line = model.grid.line
    rated = (~line["switch"] & (line["normal_amps"] != UNRATED_A) & (line["normal_amps"] > 0)).to_numpy()
    if not rated.any():
        return float("nan")
    largest = _largest_current(model, "Line", line["name"].tolist())
    return float(np.quantile(largest[rated] / line["normal_amps"].to_numpy()[rated], 0.95))


def _largest_current(model: Model, engine_class: str, names: list[str]) -> Floats:
    """Largest current of any conductor of each element, A. [element]"""
    place, start = element_slices(getattr(model.engine.alt, engine_class))
    sizes = np.array([start[place[name] + 1] - start[place[name]] for name in names])
    current = np.abs(terminal_currents(model.engine, engine_class, names))
    return np.asarray(np.maximum.reduceat(current, np.concatenate([[0], np.cumsum(sizes)[:-1]])))


def _voltage_drop(model: Model, v: npt.NDArray[np.complex128]) -> float:
    grid = model.grid
    wiring = grid.wiring
    v_pu = np.abs(v) / (1e3 * grid.bus["base_kv"].to_numpy()[wiring.bus])
    phase = (wiring.conductor <= len("ABC")) & (v_pu > LIVE_PU)
    here = phase & np.isin(wiring.bus, grid.consumer["bus1"].to_numpy())
    if not here.any():
        return float("nan")
    worst, best = np.quantile(v_pu[here], [0.01, 0.99])
    return float(best - worst)


def _imbalance(model: Model) -> float:
    """Of the first source. Its current is that of its first terminal's phases."""
    source = model.grid.substation.iloc[0]
    n = int(source["n_phases"])
    current = np.abs(terminal_currents(model.engine, "Vsource", [str(source["name"])])[:n])
    mean = current.mean()
    return float(np.abs(current - mean).max() / mean) if n == 3 and mean > 0 else float("nan")
