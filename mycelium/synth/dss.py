"""The OpenDSS text of a design: the same words define an element in a file and edit it in the engine."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mycelium.synth.design import (
    LEGS,
    ROOT_3,
    Capacitor,
    Conductors,
    Design,
    Element,
    InverterMode,
    Line,
    LineRole,
    Load,
    Pv,
    Regulator,
    Switch,
    Unit,
    UnitRole,
)
from mycelium.synth.library_rows import Conductor

V_MIN_PU, V_MAX_PU = 0.8, 1.2  # loads keep constant power between these
TAP_STEP = 0.025  # off-load taps of transformers
_CONTROL_V = 120.0  # secondary of the potential transformers
# IEEE 1547-2018, category B: reactive power per unit of the inverter's rating over voltage per unit.
VOLT_VAR = ((0.92, 0.44), (0.98, 0.0), (1.02, 0.0), (1.08, -0.44))


def number(value: float) -> str:
    """Shortest text of seven digits; the same digits on any machine."""
    return f"{value:.7g}"


def at(bus: str, conductors: Conductors) -> str:
    return ".".join([bus, *map(str, conductors)])


def line_code(line: Line) -> str:
    """Name of the line code of a line: its type, and how many circuits lie side by side."""
    return f"{_type_name(line.type)}_{line.parallel}"


def _type_name(row: Conductor) -> str:
    letter = {"medium_voltage": "mv", "low_voltage": "lv"}[row.level]
    return f"{letter}{row.n_phases}_{row.r1_ohm_per_km * 1e4:.0f}_{row.ampacity_a:.0f}"


def line_code_text(line: Line) -> str:
    """Definition of a line's code: parallel circuits divide the impedance and add up capacitance and rating."""
    row, n = line.type, line.parallel
    ohm = {"r1": row.r1_ohm_per_km, "x1": row.x1_ohm_per_km, "r0": row.r0_ohm_per_km, "x0": row.x0_ohm_per_km}
    text = " ".join(f"{key}={number(value / n)}" for key, value in ohm.items())
    farad = f"c1={number(row.c1_nf_per_km * n)} c0={number(row.c0_nf_per_km * n)}"
    amps = f"normamps={number(line.rated_a)} emergamps={number(1.25 * line.rated_a)}"
    return f"LineCode.{line_code(line)} nphases={row.n_phases} units=km {text} {farad} {amps}"


def definitions(element: Element) -> list[str]:
    """`Class.name properties` of what an element is made of; put `New` or `Edit` before each."""
    match element:
        case Line():
            return [_line(element)]
        case Switch():
            return [_switch(element)]
        case Unit():
            return [_centre_tapped(element) if element.role is UnitRole.CENTRE_TAPPED else _unit(element)]
        case Regulator():
            return _regulator(element)
        case Capacitor():
            return _capacitor(element)
        case Load():
            return [_load(element)]
        case Pv():
            return [_pv(element)]


def _line(line: Line) -> str:
    return (
        f"Line.{line.name} phases={len(line.conductors)} bus1={at(line.bus1, line.conductors)} "
        f"bus2={at(line.bus2, line.conductors)} linecode={line_code(line)} length={number(line.length_m)} units=m"
    )


def _switch(switch: Switch) -> str:
    return (
        f"Line.{switch.name} phases={len(switch.conductors)} bus1={at(switch.bus1, switch.conductors)} "
        f"bus2={at(switch.bus2, switch.conductors)} switch=yes r1=0.0001 x1=0.0001 r0=0.0001 x0=0.0001 c1=0 c0=0 "
        f"length=1 normamps={number(switch.rated_a)} emergamps={number(1.25 * switch.rated_a)}"
    )


def _unit(unit: Unit) -> str:
    kind = unit.type
    conns = " ".join("delta" if delta else "wye" for delta in (kind.primary_delta, kind.secondary_delta))
    return (
        f"Transformer.{unit.name} phases=3 windings=2 buses=[{at(unit.bus1, unit.conductors)} "
        f"{at(unit.bus2, unit.conductors)}] conns=[{conns}] kVs=[{number(unit.kv1)} {number(unit.kv2)}] "
        f"kVAs=[{number(unit.kva)} {number(unit.kva)}] taps=[{number(unit.tap)} 1] Xhl={number(kind.x_pct)} "
        f"%Rs=[{number(kind.r_pct / 2)} {number(kind.r_pct / 2)}] {_losses(unit)}"
    )


def _centre_tapped(unit: Unit) -> str:
    """Three windings. Each leg is rated for the whole power at half the voltage, so that at full load of both the
    legs carry half their rated current: a resistance of r each adds r / 2 to the primary's r / 2."""
    kind, half_kv = unit.type, unit.kv2 / 2
    legs = f"{at(unit.bus2, (LEGS[0], 0))} {at(unit.bus2, (0, LEGS[1]))}"
    kva = number(unit.kva)
    return (
        f"Transformer.{unit.name} phases=1 windings=3 buses=[{at(unit.bus1, unit.conductors)} {legs}] "
        f"conns=[wye wye wye] kVs=[{number(unit.kv1)} {number(half_kv)} {number(half_kv)}] kVAs=[{kva} {kva} {kva}] "
        f"taps=[{number(unit.tap)} 1 1] Xhl={number(kind.x_pct)} Xht={number(kind.x_pct)} "
        f"Xlt={number(kind.x_legs_pct)} %Rs=[{number(kind.r_pct / 2)} {number(kind.r_pct)} {number(kind.r_pct)}] "
        f"{_losses(unit)}"
    )


def _losses(unit: Unit) -> str:
    kind = unit.type
    return (
        f"%noloadloss={number(kind.no_load_loss_pct)} %imag={number(kind.magnetizing_pct)} "
        f"normhkva={number(unit.kva)} emerghkva={number(1.25 * unit.kva)}"
    )


def _regulator(bank: Regulator) -> list[str]:
    kv = bank.kv / ROOT_3
    texts = []
    for conductor in bank.conductors:
        name = f"{bank.name}_{conductor}"
        texts += [
            f"Transformer.{name} phases=1 windings=2 bank={bank.name} buses=[{at(bank.bus1, (conductor,))} "
            f"{at(bank.bus2, (conductor,))}] conns=[wye wye] kVs=[{number(kv)} {number(kv)}] "
            f"kVAs=[{number(bank.kva)} {number(bank.kva)}] Xhl=0.1 %Rs=[0.005 0.005] taps=[1 1] "
            f"normhkva={number(bank.kva)} emerghkva={number(1.25 * bank.kva)}",
            f"RegControl.{name} transformer={name} winding=2 ptratio={number(kv * 1e3 / _CONTROL_V)} "
            f"vreg={number(_CONTROL_V * bank.target_pu)} band={number(_CONTROL_V * bank.setting.band_pu)} "
            f"delay={number(bank.setting.delay_s)}",
        ]
    return texts


def _capacitor(bank: Capacitor) -> list[str]:
    three = len(bank.conductors) == 3
    kv = bank.kv if three else bank.kv / ROOT_3
    return [
        f"Capacitor.{bank.name} phases={len(bank.conductors)} bus1={at(bank.bus, bank.conductors)} conn=wye "
        f"kV={number(kv)} kvar={number(bank.kvar)}"
    ]


def capacitor_control(bank: Capacitor, watched: str) -> str:
    """The control of a capacitor that has one: it switches on below and off above a voltage at its own bus.

    Args:
        bank: The capacitor.
        watched: Name of a line whose second end is at its bus.
    """
    assert bank.setting is not None
    low, high = bank.setting.on, bank.setting.off
    return (
        f"CapControl.{bank.name} element=Line.{watched} terminal=2 capacitor={bank.name} type=voltage "
        f"ptratio={number(bank.kv / ROOT_3 * 1e3 / _CONTROL_V)} ONsetting={number(_CONTROL_V * low)} "
        f"OFFsetting={number(_CONTROL_V * high)} delay={number(bank.setting.delay_s)}"
    )


def _load(load: Load) -> str:
    phases = 3 if len(load.conductors) == 3 else 1
    return (
        f"Load.{load.name} phases={phases} bus1={at(load.bus, load.conductors)} conn=wye model=1 kV={number(load.kv)} "
        f"kW={number(load.kw)} kvar={number(load.kvar)} vminpu={V_MIN_PU} vmaxpu={V_MAX_PU} daily={load_shape(load)}"
    )


def load_shape(load: Load) -> str:
    return f"load_{load.customer}"


def pv_shape(pv: Pv) -> str:
    return f"pv_{pv.customer}"


def _pv(pv: Pv) -> str:
    """Behind a centre tap a system has two phases to the neutral, one per leg. With one phase across the legs the
    engine's volt-var control would measure one leg against the voltage of both, see 0.5 per unit and raise voltage."""
    phases = len(pv.conductors)
    kv = pv.kv / 2 * ROOT_3 if phases == 2 else pv.kv
    pf = pv.pf if pv.mode is InverterMode.FIXED_PF else 1.0
    return (
        f"PVSystem.{pv.name} phases={phases} bus1={at(pv.bus, pv.conductors)} conn=wye kV={number(kv)} "
        f"kVA={number(pv.kva)} Pmpp={number(pv.kw)} %Pmpp={number(pv.limit_pct)} irradiance=1 pf={number(pf)} "
        f"%cutin=0.1 %cutout=0.1 varfollowinverter=yes vminpu={V_MIN_PU} vmaxpu={V_MAX_PU} daily={pv_shape(pv)}"
    )


def volt_var_texts(pvs: Iterable[Pv]) -> list[str]:
    """The controls of the inverters in volt-var mode, one for each number of phases.

    In one control a system of two phases after one of one phase makes the engine write beyond its arrays: every voltage
    of the solution is then rubbish, and called converged. A factor of -1 lets each control find its own step: of the
    fixed ones tried, each left some network swinging.
    """
    groups: dict[int, list[str]] = {}
    for pv in pvs:
        if pv.mode is InverterMode.VOLT_VAR:
            groups.setdefault(len(pv.conductors), []).append(f"PVSystem.{pv.name}")
    return [
        f"InvControl.volt_var_{n} DERList=[{' '.join(names)}] mode=voltvar vvc_curve1=volt_var "
        "voltage_curvex_ref=rated RefReactivePower=VARMAX deltaq_factor=-1 VoltageChangeTolerance=0.001 "
        "VarChangeTolerance=0.02"
        for n, names in sorted(groups.items())
    ]


def volt_var_curve() -> str:
    x, y = (" ".join(number(value) for value in values) for values in zip(*VOLT_VAR, strict=True))
    return f"XYCurve.volt_var npts={len(VOLT_VAR)} Xarray=[{x}] Yarray=[{y}]"


def shape_text(name: str, active: Sequence[float], reactive: Sequence[float] | None) -> str:
    """A load shape of one day, hourly."""
    p = f"mult=({' '.join(f'{value:.5g}' for value in active)})"
    q = "" if reactive is None else f" qmult=({' '.join(f'{value:.5g}' for value in reactive)})"
    return f"LoadShape.{name} npts={len(active)} interval=1 {p}{q}"


def watched_lines(design: Design) -> dict[str, str]:
    """The medium-voltage line that ends at each bus."""
    return {line.bus2: line.name for line in design.lines.values() if line.role is LineRole.FEEDER}


def header(design: Design) -> list[str]:
    """Commands that come before any element."""
    source = design.source
    return [
        f"Set DefaultBaseFrequency={number(design.frequency_hz)}",
        f"New Circuit.{design.name} bus1={source.bus} basekV={number(source.kv)} pu={number(source.pu)} angle=0 "
        f"phases=3 MVAsc3={number(source.short_circuit_mva)} MVAsc1={number(0.8 * source.short_circuit_mva)}",
    ]


def footer(design: Design) -> list[str]:
    """Commands that come after all elements."""
    bases = sorted({bus.base_kv for bus in design.buses.values()}, reverse=True)
    return [f"Set VoltageBases=[{' '.join(number(base) for base in bases)}]", "CalcVoltageBases"]


def opened(design: Design) -> list[str]:
    """Commands that open the switches that are open; both ends, or the line would keep its charging current."""
    return [f"Open Line.{s.name} {end}" for s in design.switches.values() if s.is_open for end in (1, 2)]
