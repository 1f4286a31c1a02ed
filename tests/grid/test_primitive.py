"""Primitive admittances of hand-written elements: the engine's own, and what physics demands of any of them."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

from mycelium.grid.check import check_physics
from mycelium.schema import ElementKind
from tests.grid.models import Model, assert_same_primitive, blocks, engine_block

LIMIT = 1e-6


def connections(n_phases: int) -> list[str]:
    """Two windings of every connection, rating order and shift."""
    tail = "%rs=(1 0.7) xhl=5 %noloadloss=0.3 %imag=0.8 kvas=(500 300) taps=(1.02 0.98)"
    buses = "windings=2 buses=(a.1.2 b.1.2)" if n_phases == 1 else "windings=2 buses=(a b)"
    return [
        f"new transformer.t phases={n_phases} {buses} conns=({one} {two}) kvs={kvs} leadlag={lead} {tail}"
        for one, two in itertools.product(("wye", "delta"), repeat=2)
        for lead in ("lag", "lead")
        for kvs in ("(12.47 0.48)", "(0.48 12.47)")
    ]


_PAIR = "new transformer.t phases=3 windings=2 buses=(a b) conns=(delta wye) kvs=(12.47 0.48) kvas=(500 500) xhl=5"
_SINGLE = "new transformer.t phases=1 windings=2 buses=(a.2.0 b.1.0) kvs=(7.2 0.24) kvas=(25 25) xhl=2"

TRANSFORMERS = [
    *(text for n in (1, 2, 3) for text in connections(n)),
    *(
        f"new transformer.t phases={n} windings=3 buses=(a b c) conns=({conns}) kvs=(12.47 0.48 0.24) "
        f"kvas=(500 300 200) taps=(1.02 0.98 1.1) xhl=5 xht=4 xlt=3 %rs=(1 0.7 0.5) %imag=0.8 ppm=7 {lead}"
        for n in (1, 3)
        for conns in ("wye wye wye", "delta wye wye", "wye wye delta", "wye delta wye", "delta delta delta")
        for lead in ("leadlag=lag", "leadlag=lead")
    ),
    # Centre-tapped, and with reversed polarity
    "new transformer.t phases=1 windings=3 buses=(a.1 b.1.0 b.0.2) kvs=(7.2 0.12 0.12) kvas=(25 25 25) "
    "%rs=(0.6 1.2 1.2) xhl=2.04 xht=2.04 xlt=1.36 %noloadloss=0.2",
    "new transformer.t phases=1 windings=2 buses=(a.1.0 b.0.1) kvs=(7.2 0.24) kvas=(25 25) xhl=2",
    # Neutrals: open, solid, through an impedance, brought out, ungrounded
    *(f"{_PAIR} wdg=2 rneut={r} xneut={x}" for r, x in ((-1, 0), (0, 0), (3, 1), (0, 2), (0.5, 0))),
    f"{_PAIR} wdg=2 bus=b.1.2.3.4 rneut=0.4",
    f"{_PAIR} wdg=2 bus=b.1.2.3.4",
    # Losses, taps, floating windings
    f"{_PAIR} %noloadloss=0.5",
    f"{_PAIR} %imag=1.5",
    f"{_PAIR} ppm=0",
    f"{_PAIR} ppm=50",
    f"{_PAIR} %loadloss=2",
    f"{_PAIR} wdg=1 tap=0.95",
    f"{_PAIR} wdg=2 tap=1.0375 maxtap=1.2 mintap=0.8 numtaps=64",
    f"{_SINGLE} wdg=2 tap=1.05",
    # By a code, and by a bank; line to line; a regulator between two buses
    "new xfmrcode.k phases=3 windings=2 conns=(delta wye) kvs=(12.47 0.4) kvas=(100 100) xhl=4 %rs=(0.8 0.9)\n"
    "new transformer.t xfmrcode=k buses=(a b)",
    "new transformer.t phases=1 windings=2 buses=(a.1.2 b.1.0) kvs=(12.47 0.24) kvas=(50 50) xhl=3",
    "new transformer.t phases=1 windings=2 buses=(a.2 r.2) kvs=(7.2 7.2) kvas=(1666 1666) xhl=0.01 %loadloss=0.01\n"
    "new regcontrol.c transformer=t winding=2 vreg=122 band=2 ptratio=60",
    "new transformer.t phases=1 windings=2 buses=(a.1.3 r.1.3) kvs=(12.47 12.47) kvas=(2000 2000) xhl=1",
]

_GROUND = "\nnew reactor.g bus1=a.4 phases=1 r=0.1 x=0.1"  # else the engine finds no voltage for the neutral

LINES = [
    "new line.l bus1=a bus2=b r1=0.3 x1=0.6 r0=0.9 x0=1.8 c1=10 c0=4 length=1.7",
    "new line.l bus1=a bus2=b r1=0.3 x1=0.6 r0=0.9 x0=1.8 c1=0 c0=0 length=2 units=mi",
    "new line.l bus1=a.2 bus2=b.2 phases=1 r1=0.3 x1=0.6 r0=0.9 x0=1.8 c1=10 c0=4 length=1.7",
    "new line.l bus1=a.1.3 bus2=b.1.3 phases=2 r1=0.3 x1=0.6 r0=0.9 x0=1.8 c1=10 c0=4",
    "new line.l bus1=a.1.2.3 bus2=b.2.3.1 phases=3 r1=0.3 x1=0.6 r0=0.9 x0=1.8 b1=4 b0=2",
    "new line.l bus1=a bus2=b switch=yes",
    "new line.l bus1=a bus2=b switch=yes r1=1e-4 x1=0 r0=1e-4 x0=0 c1=0 c0=0 length=1",
    "new line.l bus1=a bus2=b rmatrix=(0.4 | 0.1 0.5 | 0.1 0.2 0.6) xmatrix=(1 | 0.3 1.1 | 0.3 0.3 1.2) "
    "cmatrix=(9 | -2 8 | -1 -2 9) length=800 units=m",
    "new line.l bus1=a.1.2.3.4 bus2=b.1.2.3.4 phases=4 rmatrix=(0.6 | 0.05 0.6 | 0.05 0.05 0.6 | 0.05 0.05 0.05 0.7) "
    "xmatrix=(0.8 | 0.5 0.8 | 0.5 0.5 0.8 | 0.4 0.4 0.5 0.8) cmatrix=(0 | 0 0 | 0 0 0 | 0 0 0 0) length=0.1 units=km"
    + _GROUND,
    "new line.l bus1=a.1.4 bus2=b.1.4 phases=2 rmatrix=(1.9 | 0.05 1.9) xmatrix=(0.8 | 0.7 0.8) cmatrix=(0 | 0 0)"
    + _GROUND,
    "new line.l bus1=a.1.2.3.1.2.3 bus2=b.1.2.3.11.12.13 phases=6 r1=0.3 x1=0.6 r0=0.9 x0=1.8 c1=10 c0=4",
]

LINE_CODES = [
    "new linecode.k nphases=3 r1=0.3 x1=0.6 r0=0.9 x0=1.8 c1=10 c0=4 units=mi",
    "new linecode.k nphases=3 r1=0.3 x1=0.6 r0=0.9 x0=1.8 c1=10 c0=4 units=none",
    "new linecode.k nphases=3 basefreq=50 r1=0.3 x1=0.6 r0=0.9 x0=1.8 c1=10 c0=4 units=km",
    "new linecode.k nphases=3 r1=0.3 x1=0.6 r0=0.9 x0=1.8 c1=10 c0=4 units=km rg=0.02 xg=0.1 rho=50",
    "new linecode.k nphases=3 units=km rmatrix=(0.4 | 0.1 0.5 | 0.1 0.2 0.6) xmatrix=(1 | 0.3 1.1 | 0.3 0.3 1.2) "
    "cmatrix=(9 | -2 8 | -1 -2 9)",
    "new linecode.k nphases=4 units=km rmatrix=(0.4 | 0.1 0.5 | 0.1 0.2 0.6 | 0.1 0.1 0.1 0.7) xmatrix=(1 | 0.3 1.1 | "
    "0.3 0.3 1.2 | 0.3 0.3 0.3 1.3) cmatrix=(9 | -2 8 | -1 -2 9 | -1 -1 -1 8) neutral=4 kron=yes",
]

_WIRES = (
    "new wiredata.p rac=0.306 gmrac=0.0244 runits=mi gmrunits=ft radius=0.3605 radunits=in normamps=530\n"
    "new wiredata.n rac=0.592 gmrac=0.00814 runits=mi gmrunits=ft radius=0.2815 radunits=in\n"
)
GEOMETRIES = [
    f"{_WIRES}new linegeometry.g nconds=4 nphases=3 units=ft reduce=yes "
    "cond=1 wire=p x=-4 h=28 cond=2 wire=p x=-1.5 h=28 "
    "cond=3 wire=p x=3 h=28 cond=4 wire=n x=0 h=24\nnew line.l bus1=a bus2=b geometry=g length=2 units=kft",
    f"{_WIRES}new linegeometry.g nconds=4 nphases=4 units=ft reduce=no "
    "cond=1 wire=p x=-4 h=28 cond=2 wire=p x=-1.5 h=28 "
    "cond=3 wire=p x=3 h=28 cond=4 wire=n x=0 h=24\n"
    "new line.l phases=4 bus1=a.1.2.3.4 bus2=b.1.2.3.4 geometry=g length=300 units=m" + _GROUND,
    f"{_WIRES}new linegeometry.g nconds=2 nphases=1 units=ft reduce=yes cond=1 wire=p x=0 h=28 cond=2 wire=n x=0 h=24\n"
    "new line.l phases=1 bus1=a.3 bus2=b.3 geometry=g length=1 units=mi rho=250",
    f"{_WIRES}new linespacing.s nconds=4 nphases=3 units=ft x=(-4 -1.5 3 0) h=(28 28 28 24)\n"
    "new line.l phases=3 bus1=a bus2=b spacing=s wires=(p p p n) length=1 units=km",
    "new cndata.c runits=mi radunits=in gmrunits=in inslayer=0.220 diains=1.06 diacable=1.16 rac=1.541 gmrac=0.013 "
    "diam=0.368 rstrand=1 gmrstrand=0.00208 diastrand=0.0641 k=6 gmrunits=ft\nnew linegeometry.g nconds=3 nphases=3 "
    "units=ft reduce=no cond=1 cncable=c x=-0.5 h=-4 cond=2 cncable=c x=0 h=-4 cond=3 cncable=c x=0.5 h=-4\n"
    "new line.l bus1=a bus2=b geometry=g length=1 units=mi",
]

CAPACITORS = [
    "new capacitor.c bus1=a phases=3 kvar=300 kv=12.47",
    "new capacitor.c bus1=a.2 phases=1 kvar=100 kv=7.2",
    "new capacitor.c bus1=a.1.2 phases=2 kvar=50 kv=12.47",
    "new capacitor.c bus1=a bus2=a.4.4.4 phases=3 kvar=300 kv=12.47",
    "new capacitor.c bus1=a kvar=300 kv=12.47 conn=delta",
    "new capacitor.c bus1=a.1.2 phases=1 kvar=100 kv=12.47 conn=delta",
    "new capacitor.c bus1=a.1.2 phases=2 kvar=50 kv=12.47 conn=delta",
    "new capacitor.c bus1=a kvar=(100 100 100) numsteps=3 states=(1 1 0) kv=12.47",
    "new capacitor.c bus1=a kvar=(100 100) numsteps=2 states=(1 0) kv=12.47 conn=delta",
    "new capacitor.c bus1=a numsteps=4 kvar=(600) kv=12.47 states=(0 1 0 1)",
    "new capacitor.c bus1=a phases=3 kvar=100 kv=12.47 r=1 xl=2",
    "new capacitor.c bus1=a phases=3 kvar=100 kv=12.47 conn=delta xl=3",
    "new capacitor.c bus1=a phases=3 kvar=600 kv=12.47 harm=5",
    "new capacitor.c bus1=a bus2=z phases=3 cuf=10",
    "new capacitor.c bus1=a.3 bus2=z.3 phases=1 cuf=25",
]

REACTORS = [
    "new reactor.r bus1=a bus2=z r=0.1 x=0.5",
    "new reactor.r bus1=a.2 bus2=z.2 phases=1 r=0.1 x=0.5",
    "new reactor.r bus1=a.1.3 bus2=z.1.3 phases=2 lmh=3 r=0.2",
    "new reactor.r bus1=a.2 bus2=a.4 phases=1 r=1 x=5 rp=6",
    "new reactor.r bus1=a kvar=100 kv=12.47",
    "new reactor.r bus1=a.1 phases=1 kvar=100 kv=7.2 rp=2000",
    "new reactor.r bus1=a r=1 x=2 rp=5 conn=delta",
    "new reactor.r bus1=a.1.2 phases=1 r=1 x=20 conn=delta",
    "new reactor.r bus1=a phases=2 r=1 x=20 conn=delta",
    "new reactor.r bus1=a kvar=100 kv=12.47 conn=delta",
    "new reactor.r bus1=a bus2=z z=(0.3 1)",
    "new reactor.r bus1=a bus2=z z1=(1 2) z0=(3 4)",
    "new reactor.r bus1=a bus2=z z1=(1 2) z0=(3 4) z2=(2 2)",
    "new reactor.r bus1=a.1 bus2=z.1 phases=1 z1=(1 2) z0=(3 4)",
    "new reactor.r bus1=a.1.2 bus2=z.1.2 phases=2 z1=(1 2) z0=(3 4)",
    "new reactor.r bus1=a bus2=z rmatrix=(1 | 0.1 1 | 0.1 0.1 1) xmatrix=(2 | 0.3 2 | 0.3 0.3 2)",
    "new reactor.r bus1=a bus2=z parallel=yes rmatrix=(1 | 0.1 1 | 0.1 0.1 1) xmatrix=(2 | 0.3 2 | 0.3 0.3 2)",
    "new reactor.r bus1=a bus2=z parallel=yes r=3 x=2",
]

SOURCES = [
    "new vsource.v bus1=q phases=1 basekv=7.2 r1=1 x1=2 r0=3 x0=4",
    "new vsource.v bus1=q phases=2 basekv=7.2 r1=1 x1=2 r0=3 x0=4",
    "new vsource.v bus1=q phases=3 basekv=7.2 z1=(1 2) z0=(3 4)",
    "new vsource.v bus1=q phases=3 basekv=7.2 z1=(1 2) z0=(3 4) z2=(2 3)",
    "new vsource.v bus1=q phases=3 basekv=12.47 mvasc3=200 mvasc1=150 x1r1=5 x0r0=3 angle=30 pu=0.98",
    "new vsource.v bus1=q phases=3 basekv=12.47 isc3=4000 isc1=3000",
    "new vsource.v bus1=q phases=3 basekv=12.47 puz1=(0.01 0.05) puz0=(0.02 0.06) basemva=10",
    "new vsource.v bus1=q phases=3 basekv=12.47 model=ideal puzideal=(1e-6 0.001)",
    "new vsource.v bus1=q bus2=q2 phases=3 basekv=0.5 z1=(1 2) z0=(3 4)\nnew reactor.g bus1=q2 r=0.1 x=0.1",
]


OWN_BASE_FREQUENCY = [
    "new transformer.e phases=3 windings=3 buses=(a b c) conns=(delta wye wye) kvs=(12.47 0.48 0.24) "
    "kvas=(500 300 200) xhl=5 xht=4 xlt=3 %imag=1 rneut=1 xneut=2 basefreq=50",
    "new reactor.e bus1=a kvar=100 kv=12.47 basefreq=50",
    "new reactor.e bus1=a bus2=z z1=(1 2) z0=(3 4) basefreq=50",
    "new capacitor.e bus1=a kvar=100 kv=12.47 basefreq=50",
    "new vsource.e bus1=q basekv=12.47 z1=(1 2) z0=(3 4) basefreq=50",
]


def assert_agrees(folder: Path, text: str, kind: ElementKind, *names: str) -> None:
    """The element's primitive is the engine's, and from the engine's voltages follow the engine's currents."""
    model = Model.of(folder, *text.split("\n"))
    found = {(k, n): block for k, n, block in blocks(model.admittance)}
    assert {(kind, name) for name in names} <= found.keys()
    result = check_physics(model.engine, model.grid, model.configuration)
    for (k, n), block in found.items():
        theirs = engine_block(model.engine, k, n)
        assert_same_primitive(block, theirs, f"{k}.{n}")
        assert_passive(block, reciprocal="z2=" not in text)
    assert result.converged
    assert result.primitive_max_rel <= 1e-9
    assert result.current_max_rel <= LIMIT, result.current_worst
    assert result.kirchhoff_max_rel <= LIMIT, result.kirchhoff_worst


def assert_passive(block: np.ndarray, reciprocal: bool) -> None:
    """No element makes power, and all but those with a negative sequence of their own are reciprocal."""
    scale = np.abs(block).max()
    if reciprocal:
        assert np.abs(block - block.T).max() <= 1e-9 * scale
    assert np.linalg.eigvalsh((block + block.conj().T) / 2)[0] >= -1e-9 * scale


def short(text: str) -> str:
    return text.rpartition("\n")[2][:70]


@pytest.mark.parametrize("text", TRANSFORMERS, ids=short)
def test_transformer(tmp_path: Path, text: str) -> None:
    assert_agrees(tmp_path, text, ElementKind.TRANSFORMER, "t")


@pytest.mark.parametrize("text", LINES + GEOMETRIES, ids=short)
def test_line(tmp_path: Path, text: str) -> None:
    assert_agrees(tmp_path, text, ElementKind.LINE, "l")


@pytest.mark.parametrize("code", LINE_CODES, ids=short)
def test_line_by_code_in_every_unit(tmp_path: Path, code: str) -> None:
    names = [f"l_{unit}" for unit in ("none", "mi", "kft", "km", "m", "ft", "in", "cm", "mm")]
    lines = [f"new line.{name} bus1=a bus2=b linecode=k length=0.7 units={name[2:]}" for name in names]
    assert_agrees(tmp_path, "\n".join([code, *lines]), ElementKind.LINE, *names)


@pytest.mark.parametrize("text", CAPACITORS, ids=short)
def test_capacitor(tmp_path: Path, text: str) -> None:
    assert_agrees(tmp_path, text, ElementKind.CAPACITOR, "c")


@pytest.mark.parametrize("text", REACTORS, ids=short)
def test_reactor(tmp_path: Path, text: str) -> None:
    assert_agrees(tmp_path, text, ElementKind.REACTOR, "r")


@pytest.mark.parametrize("text", SOURCES, ids=short)
def test_source(tmp_path: Path, text: str) -> None:
    assert_agrees(tmp_path, text, ElementKind.SUBSTATION, "v")


@pytest.mark.parametrize("text", OWN_BASE_FREQUENCY, ids=short)
def test_element_written_for_another_base_frequency(tmp_path: Path, text: str) -> None:
    kind = {"vsource": "substation"}.get(text[4:].split(".")[0], text[4:].split(".")[0])
    assert_agrees(tmp_path, text, ElementKind(kind), "e")


def test_impedances_do_not_wait_for_a_solve(tmp_path: Path) -> None:
    """The engine works lines out when it first builds Y; a model may end before, or edit lines after."""
    line = "new line.l bus1=a bus2=b r1=0.3 x1=0.6 r0=0.9 x0=1.8 c1=0 c0=0 length=2"
    late = [line, "set voltagebases=[12.47]", "calcvoltagebases", "line.l.length=3", "new line.m like=l bus2=c r1=0.5"]
    early = Model.of(tmp_path, line).grid.line
    assert early["r1_ohm"].to_numpy() == pytest.approx([0.6], rel=1e-12)
    edited = Model.of(tmp_path, *late).grid.line.set_index("name")
    assert edited.loc["l", "r1_ohm"] == pytest.approx(0.9, rel=1e-12)
    assert edited.loc["m", "r1_ohm"] == pytest.approx(1.5, rel=1e-12)
