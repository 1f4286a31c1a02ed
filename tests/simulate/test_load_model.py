"""Loads at any voltage: each model against its formula, and against the engine."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mycelium.engine import Engine
from mycelium.grid.check import node_voltages, terminal_currents
from mycelium.grid.dss_script import Command, Script
from mycelium.grid.grid import Configuration, Grid
from mycelium.grid.read_opendss import read_circuit
from mycelium.simulate import fixed_point_kernel as kernel
from mycelium.simulate.load_model import LoadModel, Model

Complex = npt.NDArray[np.complex128]

BANDS = ("", "vminpu=0.8 vmaxpu=1.1 vlowpu=0.3", "vminpu=0.4 vmaxpu=1.15 vlowpu=0.5", "vminpu=0 vmaxpu=0 vlowpu=0")
CONNECTIONS = (
    "phases=1 conn=wye bus1=s.1 kv=0.23",
    "phases=1 conn=wye bus1=s.2.3 kv=0.4",
    "phases=1 conn=wye bus1=s.3.4 kv=0.23",
    "phases=1 conn=delta bus1=s.1.2 kv=0.4",
    "phases=2 conn=wye bus1=s.1.2 kv=0.4",
    "phases=2 conn=wye bus1=s.3.1.4 kv=0.4",
    "phases=2 conn=delta bus1=s.1.2.3 kv=0.4",
    "phases=3 conn=wye bus1=s kv=0.4",
    "phases=3 conn=wye bus1=s.1.2.3.4 kv=0.4",
    "phases=3 conn=delta bus1=s kv=0.4",
)
# An ideal three-phase source, and one that lifts the neutral conductor 4 off ground.
SOURCES = (
    "new circuit.test bus1=s phases=3 basekv=0.4 pu=1 r1=1e-6 x1=1e-6 r0=1e-6 x0=1e-6",
    "new vsource.neutral bus1=s.4 phases=1 basekv=0.02 pu=1 angle=30 r1=1e-6 x1=1e-6 r0=1e-6 x0=1e-6",
)


def circuit(*lines: str) -> tuple[Engine, Grid, Configuration]:
    """A circuit from engine commands, controls frozen, solved to 1e-12 when asked to."""
    bases = "set voltagebases=[0.4 11]", "calcvoltagebases"
    commands = tuple(Command("test.dss", number, line) for number, line in enumerate((*lines, *bases), 1))
    script = Script(Path("test.dss"), Path(), commands, {}, ())
    engine = Engine(script)
    grid, configuration, _ = read_circuit(script, engine)
    freeze(engine)
    return engine, grid, configuration


def freeze(engine: Engine) -> None:
    engine.set_canonical()
    for option in ("tolerance=1e-12", "mode=snapshot", "controlmode=off"):
        engine.command(f"set {option}")


def solve(engine: Engine) -> None:
    engine.command("solve")
    assert engine.dss.ActiveCircuit.Solution.Converged


def item_voltages(engine: Engine, grid: Grid, configuration: Configuration, table: str) -> Complex:
    """Solved voltages of terminal conductors, V. [item]"""
    node = grid.wiring.nodes_of(table, configuration.group_phase)
    return np.where(node >= 0, node_voltages(engine, grid)[node], 0.0)


def expected(model: Model, m: float, p: float, q: float, fixed: float, parameters: dict[str, float]) -> complex:
    """Admittance of a branch per unit of base², written down once more from the module's statement."""
    vlow, vmin, vmax = parameters["vlow"], parameters["vmin"], parameters["vmax"]
    if model is Model.CONSTANT_IMPEDANCE or m <= vlow:
        return complex(p, -q)
    inside = vmin < m <= vmax
    on_line = (m - vlow) / (vmin - vlow) if m <= vmin else 0.0
    inverse = (vlow + (1 - vlow) * on_line) / m if m <= vmin else 1 / min(m, vmax)
    square = (vlow + (1 / vmin - vlow) * on_line) / m if m <= vmin else 1 / min(m, vmax) ** 2
    match model:
        case Model.CONSTANT_POWER:
            return complex(p, -q) * square
        case Model.MOTOR:
            return complex(p * square, -q if inside else -q * square)
        case Model.CVR:
            if not inside:
                return complex(p, -q) * square
            return complex(p * m ** (parameters["cvr_p"] - 2), -q * m ** (parameters["cvr_q"] - 2))
        case Model.CONSTANT_CURRENT:
            return complex(p, -q) * inverse
        case Model.FIXED_Q:
            return complex(p / max(min(m, vmax), vmin) ** 2, -fixed / m**2 if inside else -fixed)
        case Model.FIXED_X:
            return complex(p / max(min(m, vmax), vmin) ** 2, -fixed)
        case Model.ZIPV:
            remains = 0.5 * (1 + math.tanh(500 * (m - 0.6)))
            of_p, of_q = 0.2 + 0.3 * inverse + 0.6 * square, 0.1 + 0.5 * inverse + 0.3 * square
            return complex(p * of_p, -q * of_q) * remains
    raise AssertionError


@pytest.mark.parametrize("model", Model)
@pytest.mark.parametrize("cvr", [(0.8, 3.0), (1.0, 2.0), (4.5, 0.1)])
def test_each_model_draws_what_its_formula_says(model: Model, cvr: tuple[float, float]) -> None:
    engine, grid, _ = circuit(
        SOURCES[0],
        f"new load.a phases=1 bus1=s.1 kv=0.25 kw=8 kvar=3 model={int(model)} vlowpu=0.4 vminpu=0.9 vmaxpu=1.05 "
        f"cvrwatts={cvr[0]} cvrvars={cvr[1]} zipv=(0.2 0.3 0.6 0.1 0.5 0.3 0.6)",
    )
    loads = LoadModel.of(engine, grid)
    parameters = {"vlow": 0.4, "vmin": 0.9, "vmax": 1.05, "cvr_p": cvr[0], "cvr_q": cvr[1]}
    m = np.array([0.05, 0.39, 0.41, 0.58, 0.6, 0.602, 0.89, 0.91, 1.0, 1.049, 1.051, 1.3])
    v = m * 250.0 * np.exp(1j * np.linspace(0.0, 6.0, len(m)))
    p_kw, q_kvar = 5.0, 2.0  # not the 8 kW and 3 kvar of the load: models 6 and 7 keep the 3 kvar
    found = loads.terminal_currents(
        np.stack([v, np.zeros_like(v)], 1), np.full((len(m), 1), p_kw), np.full((len(m), 1), q_kvar)
    )
    per_base = np.array([expected(model, x, p_kw, q_kvar, 3.0, parameters) for x in m]) * 1e3 / 250.0**2
    np.testing.assert_allclose(found[:, 0], per_base * v, rtol=1e-13, atol=1e-12)
    np.testing.assert_array_equal(found[:, 1], -found[:, 0])


def all_loads(model: Model) -> list[str]:
    rng = np.random.default_rng(int(model))
    lines = []
    for connection in CONNECTIONS:
        for band in BANDS:
            z = " ".join(f"{x:.3f}" for x in rng.uniform(0.0, 1.0, 6))
            lines.append(
                f"new load.l{len(lines)} {connection} kw={rng.uniform(1, 9):.4f} kvar={rng.uniform(-3, 5):.4f} "
                f"model={int(model)} cvrwatts={rng.uniform(0.3, 2):.3f} cvrvars={rng.choice([1.3, 2.0, 2.4, 3.0])} "
                f"zipv=({z} {rng.choice([0.0, 0.6])}) {band}"
            )
    return lines


@pytest.mark.parametrize("model", Model)
def test_every_connection_and_band_draws_what_the_engine_says(model: Model) -> None:
    engine, grid, configuration = circuit(*SOURCES, *all_loads(model))
    loads = LoadModel.of(engine, grid)
    names = grid.consumer["name"].tolist()
    p_kw = np.array([engine.alt.Load[name].kW for name in names])
    q_kvar = np.array([engine.alt.Load[name].kvar for name in names])
    first = grid.wiring.terminals["consumer"].start[:-1]
    for pu in np.linspace(0.05, 1.3, 51):
        engine.command(f"vsource.source.pu={pu}")
        solve(engine)
        theirs = terminal_currents(engine, "Load", names)
        mine = loads.terminal_currents(item_voltages(engine, grid, configuration, "consumer"), p_kw, q_kvar)
        largest = np.maximum.reduceat(np.abs(theirs), first)
        error = np.maximum.reduceat(np.abs(mine - theirs), first)
        # Past its cutoff the engine's ZIPV keeps the rounding of 1 - 1: what is left there counts as zero.
        assert np.all(error <= 1e-9 * np.maximum(largest, 1e-3)), f"{pu:.3f} pu: {names[int(np.argmax(error))]}"


@pytest.mark.parametrize("kind", ["generator", "pvsystem", "storage"])
@pytest.mark.parametrize("connection", CONNECTIONS)
def test_generators_feed_in_what_the_engine_says(kind: str, connection: str) -> None:
    # Single-phase delta is scaled by a third outside the band: not modelled, and named by reasons_against.
    band = (0.95, 1.05) if "phases=1 conn=delta" in connection else (0.05, 1.3)
    lines = {
        "generator": "new generator.g {} kw=7 kvar=2 vminpu=0.9 vmaxpu=1.1",
        "pvsystem": "new pvsystem.g {} kva=9 pmpp=7 irradiance=1 kvar=2 vminpu=0.9 vmaxpu=1.1 %cutin=0 %cutout=0",
        "storage": "new storage.g {} kwrated=7 kva=9 kwhrated=50 state=discharging kw=7 kvar=2 vminpu=0.9 vmaxpu=1.1",
    }
    engine, grid, configuration = circuit(*SOURCES, lines[kind].format(connection))
    ders = LoadModel.of_ders(engine, grid)
    engine_class = {"generator": "Generator", "pvsystem": "PVSystem", "storage": "Storage"}[kind]
    for pu in np.linspace(*band, 26):
        engine.command(f"vsource.source.pu={pu}")
        solve(engine)
        theirs = terminal_currents(engine, engine_class, ["g"])
        v = item_voltages(engine, grid, configuration, "der")
        mine = ders.terminal_currents(v, np.array([7.0]), np.array([2.0]))
        np.testing.assert_allclose(mine, theirs, rtol=1e-9, atol=1e-9 * np.abs(theirs).max())


def test_the_engine_solves_the_same_whatever_the_neutral_impedance_of_a_load() -> None:
    voltages = []
    for neutral in ("rneut=-1", "rneut=1 xneut=2", "rneut=5"):
        engine, grid, _ = circuit(
            "new circuit.test bus1=s phases=3 basekv=0.4",
            "new line.a bus1=s.1.2.3.0 bus2=b.1.2.3.4 phases=4 rmatrix=(1|0 1|0 0 1|0 0 0 1) "
            "xmatrix=(1|0 1|0 0 1|0 0 0 1) cmatrix=(0|0 0|0 0 0|0 0 0 0) length=0.1",
            f"new load.l phases=1 bus1=b.1.4 kv=0.23 kw=9 kvar=2 {neutral}",
            f"new load.m phases=3 bus1=b.1.2.3.4 kv=0.4 kw=9 kvar=2 {neutral}",
        )
        solve(engine)
        voltages.append(node_voltages(engine, grid))
    assert np.abs(voltages[0][-1]) > 1.0  # the neutral does carry current
    np.testing.assert_allclose(voltages[1], voltages[0], rtol=0, atol=1e-7)
    np.testing.assert_allclose(voltages[2], voltages[0], rtol=0, atol=1e-7)


@pytest.fixture(scope="module")
def mixed() -> LoadModel:
    lines = [line for model in Model for line in all_loads(model)]
    names = [f"load.x{number}" for number in range(len(lines))]
    renamed = [line.replace(line.split()[1], name) for line, name in zip(lines, names, strict=True)]
    engine, grid, _ = circuit(*SOURCES, *renamed)
    return LoadModel.of(engine, grid)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), level=st.floats(0.0, 2.0))
def test_the_currents_of_a_load_sum_to_zero(mixed: LoadModel, seed: int, level: float) -> None:
    rng = np.random.default_rng(seed)
    v = 230.0 * level * (rng.normal(size=(3, mixed.n_items)) + 1j * rng.normal(size=(3, mixed.n_items)))
    p, q = rng.uniform(-5, 9, (2, 3, mixed.n_loads))
    currents = mixed.terminal_currents(v, p, q)
    assert np.all(np.isfinite(currents))
    owner = np.zeros(mixed.n_items, dtype=np.int64)
    owner[mixed.from_item], owner[mixed.to_item] = mixed.load, mixed.load
    for hour in range(3):
        total = np.bincount(owner, currents[hour].real) + 1j * np.bincount(owner, currents[hour].imag)
        largest = np.zeros(mixed.n_loads)
        np.maximum.at(largest, owner, np.abs(currents[hour]))
        assert np.all(np.abs(total) <= 1e-14 * largest)


def test_hours_do_not_touch_each_other(mixed: LoadModel) -> None:
    rng = np.random.default_rng(0)
    v = 230.0 * (rng.normal(size=(24, mixed.n_items)) + 1j * rng.normal(size=(24, mixed.n_items)))
    p, q = rng.uniform(0, 9, (2, 24, mixed.n_loads))
    together = mixed.terminal_currents(v, p, q)
    for hour in (0, 23):
        np.testing.assert_allclose(mixed.terminal_currents(v[hour], p[hour], q[hour]), together[hour], rtol=1e-14)


def test_constant_power_is_the_power_that_was_asked_for() -> None:
    engine, grid, _ = circuit(*SOURCES, "new load.a phases=3 conn=delta bus1=s kv=0.4 kw=9 kvar=3 vminpu=0.5")
    v = 210.0 * np.exp(2j * np.pi / 3 * np.array([0, -1, 1])) + np.array([5.0, 2j, -3.0])
    i = LoadModel.of(engine, grid).terminal_currents(v, np.array([6.0]), np.array([-2.0]))
    assert np.sum(v * i.conj()) == pytest.approx(complex(6000.0, -2000.0), rel=1e-13)


@pytest.mark.parametrize("exponent", [-2.0, -1.2, -0.3, 0.4, 1.0, 2.0])
def test_the_power_series_is_as_good_as_the_library(exponent: float) -> None:
    m = np.linspace(0.5, 2.0, 1001)
    found = np.array([kernel._power(x, exponent) for x in m])
    np.testing.assert_allclose(found, m**exponent, rtol=1e-14)


def test_demand_of_another_number_of_loads_is_refused(mixed: LoadModel) -> None:
    with pytest.raises(ValueError, match="expected"):
        mixed.demand(np.zeros((24, mixed.n_loads + 1)), np.zeros((24, mixed.n_loads)))
