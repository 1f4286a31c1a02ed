"""Voltage regulators and capacitors of a proposed network, as its convention has them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from mycelium.synth.design import ROOT_3, THREE_PHASES, Branch, Bus, Capacitor, Design, Line, LineRole, Regulator
from mycelium.synth.library import Library
from mycelium.synth.library_rows import RegulatorSetting
from mycelium.synth.parameters import Parameters

_TARGET_PU = (0.985, 1.03)  # set-points outside leave no room for what lies behind the regulator
_BAND_PU = (0.0125, 0.025)
_SIZES_KVAR = (50.0, 100.0, 150.0, 300.0, 450.0, 600.0, 900.0, 1200.0)
_MOST_CAPACITORS = 6
_BETWEEN_PU = 0.02  # least distance of the voltages at which a capacitor goes on and off


def add_equipment(design: Design, parameters: Parameters, library: Library, rng: np.random.Generator) -> None:
    """Put regulators and capacitors into a design."""
    convention = parameters.convention
    feeders = design.feeders_of()
    main = [line for line in design.lines.values() if line.role is LineRole.FEEDER and line.conductors == THREE_PHASES]
    if convention.has_regulators and main:
        places = [main[0]] if rng.random() < 0.7 else []
        far = _by_distance(design, main, feeders)
        for _ in range(parameters.line_regulators):
            places.append(far[int(len(far) * (0.3 + 0.5 * rng.random()))])
        for line in {line.name: line for line in places}.values():
            bus, bank, moved = regulator_before(design, line, library.draw_regulator(rng, convention))
            design.buses[bus.name] = bus
            design.put(bank)
            design.put(moved)
    kvar = parameters.capacitor_kvar_per_kw * sum(load.kw for load in design.loads.values())
    if kvar >= _SIZES_KVAR[0] and main:
        _add_capacitors(design, parameters, library, main, kvar, rng)


def _by_distance(design: Design, lines: list[Line], feeders: dict[str, Branch]) -> list[Line]:
    """Lines by their number of steps from the source."""
    steps: dict[str, int] = {}
    for line in lines:  # a line comes after the one that feeds it
        above = feeders.get(line.bus1)
        steps[line.name] = 1 + (steps.get(above.name, 0) if above is not None else 0)
    return sorted(lines, key=lambda line: (steps[line.name], line.name))


def regulator_before(design: Design, line: Line, setting: RegulatorSetting) -> tuple[Bus, Regulator, Line]:
    """A regulator at the head of a line: the bus behind it, the regulator, and the line with its end moved there."""
    before = design.buses[line.bus1]
    number = len(design.regulators)
    name = f"r{number}"
    bus = Bus(name, round(before.x_m + 4, 2), round(before.y_m - 4, 2), before.base_kv, before.area)
    kv = before.base_kv
    bank = Regulator(
        f"regulator_{number}", line.bus1, name, line.conductors, sound(setting), kv,
        regulator_kva(kv, line.rated_a), round(float(np.clip(setting.target_pu, *_TARGET_PU)), 4),
    )  # fmt: skip
    return bus, bank, replace(line, bus1=name)


def regulator_kva(kv: float, amps: float) -> float:
    """Rating of one unit for a line of this rating."""
    return round(kv / ROOT_3 * amps, 1)


def sound(setting: RegulatorSetting) -> RegulatorSetting:
    """A setting with a band that a tap step fits into several times."""
    return replace(setting, band_pu=float(np.clip(setting.band_pu, *_BAND_PU)), delay_s=max(setting.delay_s, 1.0))


def _add_capacitors(
    design: Design, parameters: Parameters, library: Library, main: list[Line], kvar: float, rng: np.random.Generator
) -> None:
    """Banks of the library's kind until the sampled reactive power is there."""
    left, lines = kvar, list(main)
    while left >= _SIZES_KVAR[0] and len(design.capacitors) < _MOST_CAPACITORS and lines:
        setting = library.draw_capacitor(rng, parameters.convention)
        size = max((s for s in _SIZES_KVAR if s <= min(left, setting.kvar * 1.01)), default=_SIZES_KVAR[0])
        line = lines.pop(int(len(lines) * (0.3 + 0.7 * rng.random())))
        controlled = setting.control == "voltage" and 0.9 < setting.on < setting.off - _BETWEEN_PU < 1.1
        design.put(
            Capacitor(
                f"capacitor_{len(design.capacitors)}", line.bus2, THREE_PHASES, design.buses[line.bus2].base_kv, size,
                setting if controlled else None,
            )
        )  # fmt: skip
        left -= size
