"""The batched fixed point: hand-computed circuits, Kirchhoff's law, and the engine as judge."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import coo_array, csc_array, csr_array

from mycelium.engine import Engine
from mycelium.feeders import FEEDERS, feeder_path
from mycelium.grid.admittance import Admittance
from mycelium.grid.check import kirchhoff_ratio, node_voltages
from mycelium.grid.dss_script import read_script
from mycelium.grid.grid import Configuration, Grid
from mycelium.grid.read_opendss import read_circuit
from mycelium.schema import DerKind
from mycelium.simulate import fixed_point_factor as factor
from mycelium.simulate.fixed_point import FixedPoint, FixedPointResult, reasons_against
from mycelium.simulate.load_model import LoadModel
from tests.simulate.test_load_model import circuit, freeze, solve

Complex = npt.NDArray[np.complex128]
Floats = npt.NDArray[np.float64]

AGREEMENT_PU = 1e-6
STIFF = "r1=1e-6 x1=1e-6 r0=1e-6 x0=1e-6"
WIDE = "vminpu=0.1 vmaxpu=2 vlowpu=0.05"


@dataclass(frozen=True)
class Case:
    """A compiled circuit and its fixed point."""

    engine: Engine
    grid: Grid
    configuration: Configuration
    point: FixedPoint

    @staticmethod
    def of(engine: Engine, grid: Grid, configuration: Configuration) -> Case:
        admittance = Admittance.of(grid, configuration)
        point = FixedPoint(admittance, LoadModel.of(engine, grid), LoadModel.of_ders(engine, grid))
        return Case(engine, grid, configuration, point)

    @property
    def nominal(self) -> tuple[Floats, Floats]:
        """Nominal power of the loads, in the order of the grid, kW and kvar. [load]"""
        loads = [self.engine.alt.Load[name] for name in self.grid.consumer["name"]]
        return np.array([load.kW for load in loads]), np.array([load.kvar for load in loads])

    def solve(
        self, p_kw: Floats, q_kvar: Floats, der_kw: Floats | float = 0.0, der_kvar: Floats | float = 0.0
    ) -> FixedPointResult:
        shape = (len(p_kw), len(self.grid.der))
        return self.point.solve(p_kw, q_kvar, np.broadcast_to(der_kw, shape), np.broadcast_to(der_kvar, shape))

    def engine_voltages(self, p_kw: Floats, q_kvar: Floats) -> Complex:
        """The engine's solution of the same hours, V. [hour, node]"""
        hours = []
        for hour in range(len(p_kw)):
            for row, name in enumerate(self.grid.consumer["name"]):
                load = self.engine.alt.Load[name]
                load.kW, load.kvar = p_kw[hour, row], q_kvar[hour, row]
            solve(self.engine)
            hours.append(node_voltages(self.engine, self.grid))
        return np.array(hours)

    @property
    def der_power(self) -> tuple[Floats, Floats]:
        """Power that the engine's last solve took for each der, at nominal voltage, kW and kvar. [der]"""
        circuit = self.engine.dss.ActiveCircuit
        found = []
        for kind, name in zip(self.grid.der["kind"], self.grid.der["name"], strict=True):
            match DerKind(kind):
                case DerKind.PV:
                    circuit.PVSystems.Name = name
                    found.append((circuit.PVSystems.kW, circuit.PVSystems.kvar))
                case DerKind.GENERATOR:
                    circuit.Generators.Name = name
                    found.append((circuit.Generators.kW, circuit.Generators.kvar))
                case DerKind.STORAGE:  # idle: what it needs for itself
                    circuit.SetActiveElement(f"storage.{name}")
                    found.append(tuple(-circuit.ActiveCktElement.TotalPowers[:2]))
        return np.array([kw for kw, _ in found]), np.array([kvar for _, kvar in found])

    @property
    def base_v(self) -> Floats:
        """Voltage base of every node, V. [node]"""
        return 1e3 * self.grid.bus["base_kv"].to_numpy()[self.grid.wiring.bus]


def of_text(*lines: str) -> Case:
    return Case.of(*circuit(*lines))


@pytest.fixture(scope="module", params=FEEDERS)
def feeder(request: pytest.FixtureRequest) -> Case:
    """A bundled feeder, controls frozen."""
    script = read_script(feeder_path(request.param))
    engine = Engine(script)
    grid, configuration, _ = read_circuit(script, engine)
    freeze(engine)
    return Case.of(engine, grid, configuration)


def scaled(case: Case, scales: tuple[float, ...]) -> tuple[Floats, Floats]:
    """Demand around multiples of nominal, every load its own. [hour, load]"""
    kw, kvar = case.nominal
    share = np.random.default_rng(1).uniform(0.6, 1.2, (len(scales), len(kw))) * np.array(scales)[:, None]
    return share * kw, share * kvar


def nodes_of(case: Case, bus: str) -> npt.NDArray[np.int64]:
    """Nodes of a bus, conductors in order."""
    return case.grid.wiring.nodes_at(case.grid.bus["name"].tolist().index(bus))


# Hand-computed circuits.


def two_bus(load: str) -> Case:
    """1000 V behind 1 + 2j ohm."""
    return of_text(
        f"new circuit.test bus1=s.1 phases=1 basekv=1 pu=1 {STIFF}",
        "new line.a bus1=s.1 bus2=b.1 phases=1 rmatrix=(1) xmatrix=(2) cmatrix=(0) length=1",
        f"new load.l phases=1 bus1=b.1 kv=1 {load}",
    )


def test_two_buses_with_constant_power() -> None:
    case = two_bus(f"kw=1 kvar=1 model=1 {WIDE}")
    p, q = np.array([[0.0], [20.0], [60.0], [-30.0]]), np.array([[0.0], [10.0], [-20.0], [5.0]])
    result = case.solve(p, q)
    # |V|⁴ + (2 (R P + X Q) - E²) |V|² + |Z|² |S|² = 0, and V* E = |V|² + Z S* as V I* = S.
    z, s = complex(1 + 1e-6, 2 + 1e-6), 1e3 * (p + 1j * q)[:, 0]
    half = (2 * (z.real * s.real + z.imag * s.imag) - 1e6) / 2
    square = -half + np.sqrt(half**2 - abs(z) ** 2 * np.abs(s) ** 2)
    v = (square + z.conjugate() * s) / 1000.0
    np.testing.assert_allclose(result.v[:, nodes_of(case, "b")[0]], v, rtol=1e-8)
    np.testing.assert_allclose(result.load_currents[:, 0], np.conj(s / v), rtol=1e-8, atol=1e-9)
    assert result.converged.all()


@pytest.mark.parametrize("kw", [50.0, 600.0])  # plain iteration diverges with the second: below the line's impedance
def test_two_buses_with_constant_impedance(kw: float) -> None:
    result = (case := two_bus("kw=50 kvar=20 model=2")).solve(np.array([[kw]]), np.array([[20.0]]))
    z = 1000.0**2 / complex(kw * 1e3, -20e3)
    v = 1000.0 * z / (z + complex(1 + 1e-6, 2 + 1e-6))
    assert result.converged.all()
    assert result.v[0, nodes_of(case, "b")[0]] == pytest.approx(v, rel=1e-8)


def test_near_the_largest_load_that_a_line_can_carry_it_does_not_take_long() -> None:
    result = two_bus(f"kw=1 kvar=0 model=1 {WIDE}").solve(np.array([[150.0]]), np.array([[0.0]]))
    # The limit is E² / 2 (|Z| + R) = 154.5 kW; here |Z S| / |V|² = 0.745, which takes plain steps 70 iterations.
    assert result.converged.all()
    assert result.iterations[0] < 20


def test_an_hour_without_a_solution_is_reported_and_leaves_the_others_alone() -> None:
    case = two_bus(f"kw=1 kvar=1 model=1 {WIDE}")
    p = np.array([[20.0], [900.0], [10.0]])  # beyond the 155 kW that the line can carry; vmin is no help at 0.1
    result = case.solve(p, 0.0 * p)
    alone = case.solve(p[[0, 2]], 0.0 * p[[0, 2]])
    assert result.converged.tolist() == [True, False, True]
    assert result.iterations[1] == 0
    np.testing.assert_allclose(result.v[[0, 2]], alone.v, rtol=1e-8)


def test_an_hour_without_numbers_is_not_called_converged() -> None:
    case = two_bus(f"kw=1 kvar=1 model=1 {WIDE}")
    p = np.array([[20.0], [np.nan], [10.0]])
    assert case.solve(p, 0.0 * p).converged.tolist() == [True, False, True]


# Physics on the bundled feeders.


def test_currents_at_every_node_sum_to_zero(feeder: Case) -> None:
    p, q = scaled(feeder, (0.5, 1.0))
    result = feeder.solve(p, q)
    assert result.converged.all()
    node = feeder.grid.wiring.nodes_of("consumer", feeder.configuration.group_phase)
    for hour in range(2):
        ratio, _ = kirchhoff_ratio(feeder.point.admittance, result.v[hour], [(node, result.load_currents[hour])])
        assert ratio < 1e-6


@pytest.mark.parametrize("scales", [(0.2, 1.0), (3.0,)])
def test_voltages_are_the_engine_s_also_below_vmin(feeder: Case, scales: tuple[float, ...]) -> None:
    p, q = scaled(feeder, scales)
    theirs = feeder.engine_voltages(p, q)
    result = feeder.solve(p, q, *feeder.der_power)
    assert result.converged.all()
    known = theirs != 0  # the Grid keeps nodes of open ends that the engine has not
    apart = np.where(known, np.abs(result.v - theirs), 0.0) / feeder.base_v
    assert apart.max() < AGREEMENT_PU


def test_a_solution_is_the_same_bits_every_time(feeder: Case) -> None:
    p, q = scaled(feeder, (0.5, 1.0, 2.0))
    first, second = feeder.solve(p, q), Case.of(feeder.engine, feeder.grid, feeder.configuration).solve(p, q)
    np.testing.assert_array_equal(first.v, second.v)
    np.testing.assert_array_equal(first.load_currents, second.load_currents)


def test_taking_the_ordering_over_changes_nothing(feeder: Case) -> None:
    p, q = scaled(feeder, (1.0,))
    moved = replace(
        feeder.configuration,
        tap_pu=feeder.configuration.tap_pu * 1.01,
        switch_open=feeder.configuration.switch_open ^ (np.arange(len(feeder.grid.switches)) == 0),
    )
    admittance = feeder.point.admittance.at(moved)
    der = np.zeros((1, len(feeder.grid.der)))
    fresh = FixedPoint(admittance, feeder.point.loads, feeder.point.ders)
    reused = FixedPoint(admittance, feeder.point.loads, feeder.point.ders, like=feeder.point)
    np.testing.assert_array_equal(fresh.solve(p, q, der, der).v, reused.solve(p, q, der, der).v)


# Dead, floating and stranded parts.

RING = (
    f"new circuit.test bus1=s phases=3 basekv=0.4 {STIFF}",
    "new linecode.c nphases=3 r1=0.3 x1=0.1 r0=0.9 x0=0.3 c1=0 c0=0",
    "new line.a bus1=s bus2=b linecode=c length=0.2",
    "new line.open bus1=b bus2=c phases=3 switch=yes r1=1e-4 x1=1e-4 r0=1e-4 x0=1e-4 c1=0 c0=0 length=1",
    "new line.d bus1=c bus2=d linecode=c length=0.1",
    "new load.b phases=3 bus1=b kv=0.4 kw=9 kvar=3",
    "new load.d phases=1 bus1=d.2 kv=0.23 kw=4 kvar=1",
)


def test_a_dead_island_is_exactly_zero_and_the_rest_does_not_feel_it() -> None:
    case = of_text(*RING)
    case = replace(case, configuration=replace(case.configuration, switch_open=np.array([True])))
    case = Case.of(case.engine, case.grid, case.configuration)
    gone = ("line.open", "line.d", "load.d")
    small = of_text(*(line for line in RING if not any(name in line for name in gone)))
    p, q = scaled(case, (1.0, 0.5))
    fed = (case.grid.consumer["name"] == "b").to_numpy()
    result, alone = case.solve(p, q), small.solve(p[:, fed], q[:, fed])
    bus = case.grid.bus["name"].to_numpy()[case.grid.wiring.bus]
    island = np.isin(bus, ["c", "d"])
    np.testing.assert_array_equal(case.point.dead, island)
    assert np.all(result.v[:, island] == 0)
    assert np.all(result.load_currents[:, ~fed[case.grid.wiring.terminals["consumer"].row]] == 0)
    for name in ("s", "b"):
        np.testing.assert_allclose(result.v[:, nodes_of(case, name)], alone.v[:, nodes_of(small, name)], rtol=1e-12)
    assert result.converged.all()
    assert np.all(np.abs(of_text(*RING).solve(p, q).v) > 100)  # closed, all of it is alive


def test_a_part_that_nothing_ties_to_ground_has_the_engine_s_voltage_differences() -> None:
    case = of_text(
        "new circuit.test bus1=s phases=3 basekv=11",
        "new transformer.t phases=3 windings=2 buses=(s a) conns=(delta delta) kvs=(11 0.4) kvas=(100 100) xhl=4 ppm=0",
        "new line.l bus1=a bus2=b r1=0.1 x1=0.1 r0=0.3 x0=0.3 c1=0 c0=0 length=0.1",
        "new load.d bus1=b phases=3 conn=delta kv=0.4 kw=30 kvar=10",
        "new load.e bus1=b.1.2 phases=1 conn=delta kv=0.4 kw=8 kvar=1",
    )
    p, q = scaled(case, (1.0,))
    result, theirs = case.solve(p, q), case.engine_voltages(p, q)
    assert len(case.point.floating) == 1
    assert result.converged.all()
    low = np.flatnonzero(case.grid.bus["name"].to_numpy()[case.grid.wiring.bus] != "s")
    mine = result.v[0, low] - result.v[0, low[0]]
    np.testing.assert_allclose(mine, theirs[0, low] - theirs[0, low[0]], rtol=0, atol=1e-5)
    assert np.abs(result.v[0, case.point.floating]) == pytest.approx(0, abs=1e-3)


def test_a_neutral_that_only_loads_share_is_named_and_not_called_converged() -> None:
    case = of_text(
        f"new circuit.test bus1=s phases=3 basekv=0.4 {STIFF}",
        "new load.a phases=3 bus1=s.1.2.3.4 kv=0.4 kw=5 kvar=1",
        "new load.b phases=1 bus1=s.1 kv=0.23 kw=5 kvar=1",
    )
    result = case.solve(*scaled(case, (1.0, 1.0)))
    assert case.point.stranded == ["a"]
    assert not result.converged.any()


def test_a_network_without_loads_is_solved() -> None:
    case = of_text(
        "new circuit.test bus1=s phases=3 basekv=11",
        "new line.l bus1=s bus2=b r1=0.1 x1=0.1 r0=0.3 x0=0.3 c1=900 c0=900 length=30",
    )
    none = np.zeros((2, 0))
    result = case.solve(none, none)
    assert result.converged.all()
    np.testing.assert_allclose(result.v, case.engine_voltages(none, none), rtol=1e-8)


# Faults and generators.


@pytest.mark.parametrize(
    ("fault", "legs"),
    [("phases=1 bus1=d.2 r=0.05", [(2, 0)]), ("phases=1 bus1=d.1 bus2=d.3 r=0.02", [(1, 3)])],
)
def test_extra_admittances_are_a_fault(fault: str, legs: list[tuple[int, int]]) -> None:
    case = of_text(*RING)
    siemens = 1 / float(fault.split("r=")[1])
    bus = case.grid.bus["name"].tolist().index("d")
    entries: list[tuple[int, int, float]] = []
    for ends in legs:
        node = [int(case.grid.wiring.find(np.array([bus]), np.array([end]))[0]) for end in ends if end]
        entries += [(i, j, siemens if i == j else -siemens) for i in node for j in node]
    i, j, y = zip(*entries, strict=True)
    n = case.grid.wiring.n_nodes
    extra = csc_array(coo_array((np.array(y, np.complex128), (i, j)), shape=(n, n)))
    point = FixedPoint(case.point.admittance, case.point.loads, case.point.ders, extra=extra, like=case.point)
    p, q = scaled(case, (1.0,))
    none = np.zeros((1, 0))
    result = point.solve(p, q, none, none)
    case.engine.command(f"new fault.f {fault}")
    np.testing.assert_allclose(result.v, case.engine_voltages(p, q), rtol=0, atol=AGREEMENT_PU * 231)
    assert np.abs(result.v).min() < 0.8 * 231  # the fault does pull a voltage down


@pytest.mark.parametrize(
    "device",
    [
        "new generator.g phases=3 bus1=d kv=0.4 kw={p} kvar={q} model=1",
        "new pvsystem.g phases=1 bus1=d.1 kv=0.23 kva=90 pmpp={p} irradiance=1 kvar={q} %cutin=0 %cutout=0",
        "new pvsystem.g phases=3 conn=delta bus1=d kv=0.4 kva=90 pmpp={p} irradiance=1 kvar={q} %cutin=0 %cutout=0",
    ],
)
@pytest.mark.parametrize("power", [(20.0, 5.0), (60.0, 0.0)])  # the second lifts the voltage beyond vmaxpu
def test_generators_feed_in_as_in_the_engine(device: str, power: tuple[float, float]) -> None:
    case = of_text(*RING, device.format(p=power[0], q=power[1]))
    p, q = scaled(case, (1.0, 0.1))
    result = case.solve(p, q, *power)
    assert result.converged.all()
    np.testing.assert_allclose(result.v, case.engine_voltages(p, q), rtol=0, atol=AGREEMENT_PU * 231)
    fed_in = np.abs(result.v).max() / 231 <= 1.1
    terminal_power = -np.sum(_der_voltages(case, result) * result.der_currents.conj(), axis=1) / 1e3
    assert np.allclose(terminal_power, complex(*power), rtol=1e-9) == fed_in


def _der_voltages(case: Case, result: FixedPointResult) -> Complex:
    node = case.grid.wiring.nodes_of("der", case.configuration.group_phase)
    return np.where(node >= 0, result.v[:, node], 0.0)


# When it is valid.


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("new capacitor.x bus1=b kv=0.4 kvar=5\nnew capcontrol.x element=line.a capacitor=x", "capcontrol.x"),
        ("new pvsystem.x bus1=b kv=0.4 kva=5 pmpp=5\nnew invcontrol.x mode=voltvar", "invcontrol.x"),
        ("new generator.x bus1=b kv=0.4 kw=5 model=3", "generator.x"),
        ("new pvsystem.x bus1=b kv=0.4 kva=5 pmpp=5 balanced=yes", "pvsystem.x"),
        ("new pvsystem.x bus1=b.1.2 phases=1 conn=delta kv=0.4 kva=5 pmpp=5", "pvsystem.x"),
        ("new isource.x bus1=b amps=5", "isource.x"),
        ("new load.x bus1=b.1.2.3.4 kv=0.4 rneut=2\nnew reactor.x phases=1 bus1=b.4 r=1 x=0", "load.x"),
    ],
)
def test_what_stands_against_the_fixed_point_is_named(line: str, word: str) -> None:
    engine, grid, _ = circuit(*RING, *line.split("\n"))
    reasons = reasons_against(engine, grid)
    assert [reason for reason in reasons if word in reason.lower()]


def test_frozen_controls_and_plain_devices_stand_against_nothing() -> None:
    engine, grid, _ = circuit(
        *RING,
        "new capacitor.x bus1=b kv=0.4 kvar=5",
        "new capcontrol.x element=line.a capacitor=x",
        "new pvsystem.x bus1=b kv=0.4 kva=5 pmpp=5",
        "new generator.x bus1=b kv=0.4 kw=5",
        "new storage.x bus1=b kv=0.4 kwrated=5",
        "new load.x bus1=b.1.2.3.4 kv=0.4",
        "new reactor.x phases=1 bus1=b.4 r=1 x=0",
    )
    assert reasons_against(engine, grid, controls_frozen=True) == []
    assert reasons_against(engine, grid) == ["CapControl.x acts during the day"]


# The factorisation.


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), n=st.integers(1, 40), degree=st.floats(0, 6), passive=st.floats(0, 1))
def test_the_factors_are_those_of_the_matrix(seed: int, n: int, degree: float, passive: float) -> None:
    rng = np.random.default_rng(seed)
    wide = rng.uniform(size=(n, n)) < degree / n
    wide |= wide.T | np.eye(n, dtype=bool)
    dense = np.where(wide, rng.normal(size=(n, n)) + 1j * rng.normal(size=(n, n)), 0) + 30 * np.eye(n)
    rows = csr_array(dense)
    pointer, column = rows.indptr.astype(np.int64), rows.indices.astype(np.int64)
    off = csr_array(wide & ~np.eye(n, dtype=bool))
    first = rng.uniform(size=n) < passive
    order, n_first, *neighbours = factor.eliminate(
        off.indptr.astype(np.int64), off.indices.astype(np.int64), first, factor.FILL_PER_EDGE
    )
    np.testing.assert_array_equal(np.sort(order), np.arange(n))
    assert np.all(first[order[:n_first]])
    place, lower, lower_column, upper, upper_column = factor.factor_pattern(order, *neighbours)
    np.testing.assert_array_equal(place[order], np.arange(n))
    below, above, inverse, floating = factor.factorise(
        pointer, column, rows.data, order, place, lower, lower_column, upper, upper_column
    )
    left = csr_array((below, lower_column, lower), shape=(n, n)).toarray() + np.eye(n)
    right = csr_array((above, upper_column, upper), shape=(n, n)).toarray() + np.diag(1 / inverse)
    assert np.allclose(left, np.tril(left))
    assert np.allclose(right, np.triu(right))
    np.testing.assert_allclose(left @ right, dense[np.ix_(order, order)], atol=1e-12)
    assert not floating.any()
