"""A feeder small enough to know everything about it: what the library and the facts must find."""

from __future__ import annotations

from pathlib import Path

HEAD = """
clear
set defaultbasefrequency=60
new circuit.tiny bus1=src basekv=12.47 pu=1.02 mvasc3=20000 mvasc1=20000
new linecode.mv nphases=3 units=km r1=0.3 x1=0.4 r0=0.6 x0=1.2 c1=10 c0=5 normamps=300
new linecode.lateral nphases=1 units=km r1=0.8 x1=0.7 r0=0.8 x0=0.7 c1=9 c0=9 normamps=150
new linecode.triplex nphases=2 units=km rmatrix=(0.9 | 0.3 0.9) xmatrix=(0.5 | 0.4 0.5) cmatrix=(1 | 0 1) normamps=200
"""
FOOT = """
set voltagebases=[0.208 12.47]
calcvoltagebases
"""


def unit(name: str, bus: str, conductor: int, kva: float = 25.0) -> str:
    """A centre-tapped transformer; its secondary is `name_lv`."""
    return (
        f"new transformer.{name} phases=1 windings=3 buses=[{bus}.{conductor} {name}_lv.1.0 {name}_lv.0.2] "
        f"kvs=[7.2 0.12 0.12] kvas=[{kva} {kva} {kva}] xhl=2.0 xht=2.2 xlt=1.4 %rs=[0.6 1.2 1.2] %noloadloss=0.3\n"
    )


def service(name: str, start: str, m: float, kw: float, pieces: int = 1) -> str:
    """A triplex service drawn in pieces, and the customer at its end."""
    stops = [start, *(f"{name}_{k}" for k in range(1, pieces)), f"{name}_c"]
    lines = "".join(
        f"new line.{name}_{k} bus1={stops[k]}.1.2 bus2={stops[k + 1]}.1.2 "
        f"linecode=triplex units=m length={m / pieces}\n"
        for k in range(pieces)
    )
    return lines + f"new load.{name} phases=2 bus1={name}_c.1.2 kv=0.208 kw={kw} kvar={kw / 4} vminpu=0.5\n"


def tiny(folder: Path, pieces: int = 1, demand_kw: tuple[float, ...] = (2.0, 3.0, 4.0, 5.0, 6.0, 7.0)) -> Path:
    """Write it: a main of 12 routes of 100 m, a lateral of 200 m, two centre taps with three customers each.

    Args:
        folder: Where to.
        pieces: Of every service line.
        demand_kw: Of the six customers.
    """
    main = "".join(
        f"new line.main_{k} bus1={'src' if k == 0 else f'm{k}'} bus2=m{k + 1} linecode=mv length=100 units=m\n"
        for k in range(12)
    )
    devices = """
new line.lateral bus1=m12.2 bus2=l1.2 linecode=lateral length=200 units=m
new line.tie bus1=m3 bus2=m9 switch=yes r1=0.001 x1=0.001 r0=0.001 x0=0.001 c1=0 c0=0
open line.tie 1
new capacitor.cap bus1=m6 phases=3 kv=12.47 kvar=9
new capcontrol.cap element=line.main_5 terminal=2 capacitor=cap type=voltage ptratio=60 onsetting=118 offsetting=125
new transformer.reg phases=1 windings=2 buses=[m7.1 r.1] kvs=[7.2 7.2] kvas=[500 500] xhl=0.1
new regcontrol.reg transformer=reg winding=2 vreg=123 band=2 ptratio=60 ctprim=100 delay=45
"""
    customers = unit("ta", "m12", 1, 25.0) + unit("tb", "l1", 2, 50.0)
    for k, kw in enumerate(demand_kw):
        customers += service(f"s{k}", f"t{'ab'[k // 3]}_lv", 10.0 * (k + 1), kw, pieces)
    folder.mkdir(parents=True, exist_ok=True)
    master = folder / "Master.dss"
    master.write_text(HEAD + main + devices + customers + FOOT)
    return master
