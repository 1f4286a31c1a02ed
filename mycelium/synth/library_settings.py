"""Settings and conventions of one network: regulators, capacitors, voltages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from mycelium.schema import DerKind
from mycelium.synth.library_model import Model
from mycelium.synth.library_rows import CapacitorSetting, Convention, Level, Region, RegulatorSetting

AT_SUBSTATION_KM = 0.2  # a regulator nearer to the source than this is the feeder head's
PLAUSIBLE_PU = (0.9, 1.1)  # voltage settings outside mean that a potential transformer's ratio is not what it seems
EUROPEAN_HZ = 50.0
MOST_KVA = 20e3  # a larger regulator is a placeholder
_SPLIT_KV = 0.24  # across both legs of a centre tap
_SPLIT_THREE_KV = 0.208  # beside centre taps, where no three-phase customer says

Counted = TypeVar("Counted", RegulatorSetting, CapacitorSetting)


def regulators(model: Model) -> Iterator[RegulatorSetting]:
    """Settings of the regulators at medium voltage, with the number of units."""
    place = {name: row for row, name in enumerate(model.grid.transformer["name"])}
    found = []
    for control in model.engine.alt.RegControl:
        row = place.get(str(control.Transformer_str).lower())
        if control.Enabled and row is not None:
            found.append(_regulator(model, control, row))
    yield from _counted(setting for setting in found if setting is not None)


def _regulator(model: Model, control: Any, row: int) -> RegulatorSetting | None:
    unit = model.grid.transformer.iloc[row]
    winding = model.grid.winding.iloc[int(unit["first_winding"]) + int(control.TapWinding) - 1]
    bus = int(winding["bus1"])
    nominal_v = 1e3 * float(winding["rated_kv"]) / (np.sqrt(3.0) if unit["n_phases"] == 3 else 1.0)
    target_pu = float(control.VReg * control.PTRatio) / nominal_v
    if not (PLAUSIBLE_PU[0] <= target_pu <= PLAUSIBLE_PU[1] and model.at_level([bus], Level.MEDIUM)[0]):
        return None
    return RegulatorSetting(
        family=model.family,
        network=model.network,
        target_pu=round(target_pu, 5),
        band_pu=round(float(control.Band * control.PTRatio) / nominal_v, 5),
        delay_s=float(control.Delay),
        kva=round(kva, 2) if (kva := float(winding["rated_kva"])) <= MOST_KVA else 0.0,
        mv_kv=round(float(model.line_to_line_kv[bus]), 3),
        ct_primary_a=float(control.CTPrim),
        r_v=float(control.R),
        x_v=float(control.X),
        at_substation=bool(model.distance_km[bus] < AT_SUBSTATION_KM),
        count=1,
    )


def capacitors(model: Model) -> Iterator[CapacitorSetting]:
    """Shunt capacitors at medium voltage, with their controls."""
    grid = model.grid
    control = {str(c.Capacitor_str).lower(): c for c in model.engine.alt.CapControl if c.Enabled}
    shunt = grid.capacitor[~grid.capacitor["series"] & model.at_level(grid.capacitor["bus1"], Level.MEDIUM)]
    found = []
    for unit in shunt.itertuples():
        kind, on, off, delay_s = _control(control.get(str(unit.name)), float(unit.rated_kv), int(unit.n_phases))
        kv = round(float(model.line_to_line_kv[int(unit.bus1)]), 3)
        kvar, n_phases = round(float(unit.rated_kvar), 2), int(unit.n_phases)
        found.append(CapacitorSetting(model.family, model.network, kvar, n_phases, kv, kind, on, off, delay_s, 1))
    yield from _counted(found)


def _control(control: Any, rated_kv: float, n_phases: int) -> tuple[str, float, float, float]:
    """Kind, on and off settings, delay; kind 'none' where nothing, or nothing plausible, switches it."""
    if control is None:
        return "none", 0.0, 0.0, 0.0
    kind, on, off = str(control.Type_str).lower(), float(control.OnSetting), float(control.OffSetting)
    if kind.startswith("volt"):
        nominal_v = 1e3 * rated_kv / (np.sqrt(3.0) if n_phases > 1 else 1.0)
        on, off = (round(value * float(control.PTRatio) / float(nominal_v), 5) for value in (on, off))
        if not (PLAUSIBLE_PU[0] <= on < off <= PLAUSIBLE_PU[1]):
            return "none", 0.0, 0.0, 0.0
    return kind, on, off, float(control.Delay)


def _counted(settings: Iterator[Counted] | list[Counted]) -> Iterator[Counted]:
    """Each different setting once, with its number."""
    for setting, count in Counter(settings).items():
        yield replace(setting, count=count)


def convention(model: Model) -> Convention:
    """Voltages and devices. Customers are those behind distribution transformers: 0 where there are none."""
    grid = model.grid
    region = Region.EUROPE if grid.frequency_hz == EUROPEAN_HZ else Region.NORTH_AMERICA
    serving, phases, bus = (model.of_customer(column) for column in ("transformer", "n_phases", "bus1"))
    served = serving >= 0
    single, three = served & (phases < 3), served & (phases == 3)
    low = model.line_to_line_kv[bus] if len(bus) else np.zeros(0)
    # Some models leave the centre tap of a single-phase unit out and give its whole secondary voltage.
    alone = served & (model.bank_phases[serving] == 1) if served.any() else served
    behind_tap = region is Region.NORTH_AMERICA and bool(single.any() and alone[single].mean() > 0.5)
    single_kv = _SPLIT_KV if behind_tap else round(_most(low[single]) / 3.0**0.5, 3)
    pv = grid.der["kind"] == DerKind.PV
    return Convention(
        family=model.family,
        network=model.network,
        region=region,
        frequency_hz=grid.frequency_hz,
        mv_kv=_most(model.line_to_line_kv[_primaries(model)]),
        lv_single_kv=single_kv,
        lv_three_kv=_most(low[three]) or (_SPLIT_THREE_KV if behind_tap else round(single_kv * 3.0**0.5, 3)),
        centre_tapped=behind_tap,
        source_pu=float(grid.substation["setpoint_pu"].iloc[0]),
        has_capacitors=bool(len(grid.capacitor)),
        has_regulators=bool(grid.transformer["regulator"].any()),
        has_pv=bool(pv.any()),
        has_switches=bool(len(grid.switches)),
        customers=int(served.sum()),
    )


def _primaries(model: Model) -> np.ndarray:
    """Bus of the first winding of every distribution transformer."""
    unit = model.grid.transformer[model.grid.transformer["distribution"]]
    return np.asarray(model.grid.winding["bus1"].to_numpy()[unit["first_winding"]], dtype=np.int64)


def _most(values: np.ndarray) -> float:
    """The commonest value; 0 of none."""
    found, count = np.unique(np.round(values, 3), return_counts=True)
    return float(found[np.argmax(count)]) if len(found) else 0.0
