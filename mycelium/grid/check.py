"""Is the import right? Primitives, currents, Kirchhoff and nominal angles against the engine's own solution."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mycelium.engine import Engine
from mycelium.grid.admittance import Admittance
from mycelium.grid.grid import Configuration, Grid
from mycelium.grid.nominal_angle import nominal_angle, wrap
from mycelium.schema import HIDDEN, DerKind, ElementKind

Complex = npt.NDArray[np.complex128]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

TOLERANCE = 1e-6
_EPSILON = np.finfo(np.float64).eps
LIVE_PU = 0.05  # below this a voltage is that of a dead or floating node, whose angle says nothing

ENGINE_CLASS = {
    ElementKind.LINE: "Line",
    ElementKind.TRANSFORMER: "Transformer",
    ElementKind.REACTOR: "Reactor",
    ElementKind.CAPACITOR: "Capacitor",
    ElementKind.SUBSTATION: "Vsource",
}
DER_CLASS = {DerKind.PV: "PVSystem", DerKind.GENERATOR: "Generator", DerKind.STORAGE: "Storage"}


@dataclass(frozen=True, slots=True)
class PhysicsCheck:
    """Result of ``check_physics``.

    Attributes:
        converged: Whether the engine's snapshot solve converged.
        primitive_max_rel: Largest difference of a primitive from the engine's, relative to its largest entry.
        primitive_worst: Element it belongs to.
        current_max_rel: Largest |difference| of element currents B V from the engine's, divided by the bound
            1e-6 max(largest current of the element, 1 A) + 10 eps sum |y||V|, times 1e-6.
        current_worst: Element it belongs to.
        kirchhoff_max_rel: Largest |sum of currents| at a node, divided by the bound
            1e-6 max(largest current there, 1 A) + 10 eps sum |y||V|, times 1e-6.
        kirchhoff_worst: Node it belongs to.
        nominal_angle_p99_deg: 99th percentile of |solved - nominal| over live nodes with a nominal angle.
        nominal_angle_max_deg: The largest.
    """

    converged: bool
    primitive_max_rel: float
    primitive_worst: str
    current_max_rel: float
    current_worst: str
    kirchhoff_max_rel: float
    kirchhoff_worst: str
    nominal_angle_p99_deg: float
    nominal_angle_max_deg: float


def node_voltages(engine: Engine, grid: Grid) -> Complex:
    """Solved voltages on the Grid's nodes, 0 where the engine has no such node, V. [node]"""
    return map_nodes(engine.node_names(), grid)(engine.voltages())


def map_nodes(names: list[str], grid: Grid) -> Callable[[Complex], Complex]:
    """A function from engine node values [..., engine node] to Grid node values [..., node].

    Engine nodes that the Grid has not (the inside of a faulted line) are left out.
    """
    row = {name: k for k, name in enumerate(grid.bus["name"])}
    parts = [name.rpartition(".") for name in names]
    bus = np.array([row.get(bus_name, -1) for bus_name, _, _ in parts], dtype=np.int64)
    conductor = np.array([int(number) for _, _, number in parts], dtype=np.int64)
    own = grid.wiring.hidden_bus[bus] & (conductor <= 3)
    node = np.where(bus >= 0, grid.wiring.find(bus, np.where(own, HIDDEN, conductor)), -1)
    known = np.flatnonzero(node >= 0)

    def to_grid(values: Complex) -> Complex:
        result = np.zeros((*values.shape[:-1], grid.wiring.n_nodes), dtype=values.dtype)
        result[..., node[known]] = values[..., known]
        return result

    return to_grid


def solve_snapshot(engine: Engine) -> bool:
    """Solve the model as shipped, controls frozen."""
    engine.set_canonical()
    engine.command("set mode=snapshot")
    engine.command("set controlmode=off")
    engine.command("solve")
    return bool(engine.dss.ActiveCircuit.Solution.Converged)


def check_physics(engine: Engine, grid: Grid, configuration: Configuration) -> PhysicsCheck:
    """Solve the shipped model and check the import against it."""
    converged = solve_snapshot(engine)
    admittance = Admittance.of(grid, configuration)
    v = node_voltages(engine, grid)
    if not np.all(np.isfinite(v)):  # the engine calls a floating network converged
        return _no_solution(engine, grid, admittance, int(np.argmin(np.isfinite(v))))
    primitive = _primitives(engine, admittance)
    current = _currents(engine, admittance, v)
    injections = injection_currents(engine, grid, configuration)
    kirchhoff, node = kirchhoff_ratio(admittance, v, injections)
    p99, largest = _angles(grid, configuration, v)
    return PhysicsCheck(
        converged, *primitive, *current, kirchhoff, _node_name(grid, node), p99, largest
    )  # fmt: skip


def _no_solution(engine: Engine, grid: Grid, admittance: Admittance, node: int) -> PhysicsCheck:
    """The result where the engine has no voltage for a node: nothing that needs voltages can be right."""
    name, bad = _node_name(grid, node), float("inf")
    return PhysicsCheck(False, *_primitives(engine, admittance), bad, name, bad, name, bad, bad)


def _node_name(grid: Grid, node: int) -> str:
    if node < 0:
        return ""
    conductor = int(grid.wiring.conductor[node])
    return f"{grid.bus['name'].iat[int(grid.wiring.bus[node])]}.{'?' if conductor == HIDDEN else conductor}"


def kirchhoff_ratio(admittance: Admittance, v: Complex, injections: list[tuple[Ints, Complex]]) -> tuple[float, int]:
    """Largest imbalance of currents at a node over its bound, times 1e-6, and the node.

    Args:
        admittance: Of the network.
        v: Node voltages, V. [node]
        injections: Nodes and currents from them into loads, generators and the like, A.
    """
    n = admittance.grid.wiring.n_nodes
    branch = admittance.currents(v)
    source = admittance.layout.first_row[ElementKind.SUBSTATION]
    branch[source[0] : source[-1]] -= admittance.sources.norton  # what a source sends, not what its admittance draws
    inside = admittance.node >= 0
    total = _sum_at(admittance.node[inside], branch[inside], n)
    largest = np.zeros(n)
    np.maximum.at(largest, admittance.node[inside], np.abs(branch[inside]))
    for node, current in injections:
        kept = node >= 0
        total += _sum_at(node[kept], current[kept], n)
        np.maximum.at(largest, node[kept], np.abs(current[kept]))
    rounding = abs(admittance.branch) @ np.abs(v)
    floor = 10 * _EPSILON * np.bincount(admittance.node[inside], rounding[inside], n)
    ratio = np.abs(total) / (TOLERANCE * np.maximum(largest, 1.0) + floor)
    worst = int(np.argmax(ratio)) if n else -1
    return float(ratio[worst] * TOLERANCE) if n else 0.0, worst


def _sum_at(node: Ints, values: Complex, n: int) -> Complex:
    return np.bincount(node, values.real, n) + 1j * np.bincount(node, values.imag, n)


def injection_currents(engine: Engine, grid: Grid, configuration: Configuration) -> list[tuple[Ints, Complex]]:
    """Nodes and terminal currents of loads and generators, from the engine's models of them."""
    result = [
        (
            grid.wiring.nodes_of("consumer", configuration.group_phase),
            terminal_currents(engine, "Load", grid.consumer["name"].tolist()),
        )
    ]
    currents = [
        terminal_currents(engine, engine_class, grid.der["name"][grid.der["kind"] == kind].tolist())
        for kind, engine_class in DER_CLASS.items()
    ]
    result.append((grid.wiring.nodes_of("der", configuration.group_phase), np.concatenate(currents)))
    return result


def terminal_currents(engine: Engine, engine_class: str, names: list[str]) -> Complex:
    """Terminal currents of the named elements of a class, terminal by terminal, A. [item]"""
    if not names:
        return np.zeros(0, dtype=np.complex128)
    batch = getattr(engine.alt, engine_class)
    place, start = element_slices(batch)
    currents = np.asarray(batch.Currents(), dtype=np.complex128)
    return np.concatenate([currents[start[place[name]] : start[place[name] + 1]] for name in names])


def element_slices(batch: Any) -> tuple[dict[str, int], Ints]:
    """Place of each element by name, and where its values start in the batch's flat arrays. [element + 1]"""
    sizes = np.asarray(batch.NumConductors(), np.int64) * np.asarray(batch.NumTerminals(), np.int64)
    return {str(name).lower(): k for k, name in enumerate(batch.Name)}, np.concatenate([[0], np.cumsum(sizes)])


def _primitives(engine: Engine, admittance: Admittance) -> tuple[float, str]:
    circuit = engine.dss.ActiveCircuit
    worst, where = 0.0, ""
    for kind, engine_class in ENGINE_CLASS.items():
        first = admittance.layout.first_value[kind]
        for row, name in enumerate(admittance.grid.tables[kind.value]["name"]):
            ours = admittance.values[first[row] : first[row + 1]]
            circuit.SetActiveElement(f"{engine_class}.{name}")
            if not np.any(ours) or not circuit.ActiveCktElement.Enabled:
                continue  # an open switch has none; nothing to compare
            theirs = np.asarray(circuit.ActiveCktElement.Yprim, dtype=np.float64).view(np.complex128)
            size = round(len(theirs) ** 0.5)
            difference = (
                np.abs(ours.reshape(size, size) - theirs.reshape(size, size).T).max() / np.abs(theirs).max()
                if len(ours) == len(theirs)
                else np.inf
            )
            if not difference <= worst:  # NaN is the worst of all
                worst, where = float(np.nan_to_num(difference, nan=np.inf)), f"{kind.value}.{name}"
    return worst, where


def _currents(engine: Engine, admittance: Admittance, v: Complex) -> tuple[float, str]:
    ours = admittance.currents(v)
    rounding = 10 * _EPSILON * (abs(admittance.branch) @ np.abs(v))
    worst, where = 0.0, ""
    for kind, engine_class in ENGINE_CLASS.items():
        table = admittance.grid.tables[kind.value]
        first = admittance.layout.first_row[kind]
        if not len(table) or kind is ElementKind.SUBSTATION:
            continue  # a source is checked through Kirchhoff, by its own Norton model
        theirs = terminal_currents(engine, engine_class, table["name"].tolist())
        mine, noise = ours[first[0] : first[-1]], rounding[first[0] : first[-1]]
        element = np.repeat(np.arange(len(table)), np.diff(first))
        largest = np.ones(len(table))
        np.maximum.at(largest, element, np.abs(theirs))
        ratio = np.abs(mine - theirs) / (TOLERANCE * largest[element] + noise) * TOLERANCE
        ratio = np.nan_to_num(ratio, nan=np.inf)
        if len(ratio) and ratio.max() > worst:
            place = int(np.argmax(ratio))
            worst, where = float(ratio[place]), f"{kind.value}.{table['name'].iat[int(element[place])]}"
    return worst, where


def _angles(grid: Grid, configuration: Configuration, v: Complex) -> tuple[float, float]:
    """99th percentile and largest |solved - nominal| angle over live nodes with a nominal angle, degrees."""
    reference = nominal_angle(grid)
    nominal, valid = reference.angle_rad, reference.valid
    bus, conductor = grid.wiring.bus, grid.wiring.conductor.copy()
    slot = np.where(conductor == HIDDEN, own_phase(grid, configuration)[bus], conductor - 1)
    used = (slot >= 0) & (slot <= 2)
    used[used] &= valid[bus[used], slot[used]]
    used &= np.abs(v) > LIVE_PU * grid.bus["base_kv"].to_numpy()[bus] * 1e3
    if not np.any(used):
        return float("nan"), float("nan")
    difference = np.rad2deg(np.abs(wrap(np.angle(v[used]) - nominal[bus[used], slot[used]])))
    return float(np.percentile(difference, 99)), float(difference.max())


def own_phase(grid: Grid, configuration: Configuration) -> Ints:
    """True phase slot of the own conductor of each hidden bus, -1 elsewhere. [bus]"""
    slot = np.full(len(grid.bus), -1, dtype=np.int64)
    for table, ends in (("line", 2), ("consumer", 1), ("der", 1)):
        frame = grid.tables[table]
        for end in range(1, ends + 1):
            group = frame["group"].to_numpy()
            bus = frame[f"bus{end}"].to_numpy()
            inside = (group >= 0) & grid.wiring.hidden_bus[bus]
            slot[bus[inside]] = configuration.group_phase[group[inside]]
    return slot
