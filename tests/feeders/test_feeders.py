"""The bundled feeders: they compile, are self-contained, and the published ones give the published solutions.

The voltages and totals below are from the solutions that the IEEE PES Distribution Test Feeder Working Group
published with the feeder data (radial flow summary: per unit and degrees, node by node).
"""

from __future__ import annotations

import cmath
import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
from dss import DSS

from mycelium.feeders import FEEDERS, feeder_path
from mycelium.grid.grid import Grid
from mycelium.grid.read_opendss import read_opendss

IEEE = ("ieee13", "ieee34", "ieee37", "ieee123")

BUSES_NODES = {
    "ieee13": (16, 41),
    "ieee34": (37, 95),
    "ieee37": (39, 117),
    "ieee123": (131, 277),
    "lv_town": (66, 124),
    "lv_fourwire": (17, 55),
    "us_suburb": (62, 130),
}

LOAD_TOTALS_KW_KVAR = {
    "ieee13": (3466, 2102),
    "ieee34": (1769, 1044),
    "ieee37": (2457, 1201),
    "ieee123": (3490, 1920),
}

# What leaves the substation on phases A, B and C, in kVA.
PUBLISHED_INPUT_KVA = {
    "ieee13": (1251.398 + 681.570j, 977.332 + 373.418j, 1348.461 + 669.784j),
    "ieee123": (1463.861 + 582.101j, 963.484 + 343.687j, 1193.153 + 398.976j),
}

PUBLISHED_TAPS = {
    "ieee13": {"vr_a": 10, "vr_b": 8, "vr_c": 11},
    "ieee34": {"vr1_a": 12, "vr1_b": 5, "vr1_c": 5, "vr2_a": 13, "vr2_b": 11, "vr2_c": 12},
    "ieee37": {"vr_ab": 7, "vr_cb": 4},
    "ieee123": {"vr1": 7, "vr2_a": -1, "vr3_a": 0, "vr3_c": -1, "vr4_a": 8, "vr4_b": 1, "vr4_c": 5},
}

Polar = tuple[float, float] | None

# Magnitude and angle on phases A, B, C; for ieee37 of V_AB, V_BC, V_CA.
PUBLISHED_VOLTAGES: dict[str, dict[str, tuple[Polar, Polar, Polar]]] = {
    "ieee13": {
        "650": ((1.0000, 0.00), (1.0000, -120.00), (1.0000, 120.00)),
        "rg60": ((1.0625, 0.00), (1.0500, -120.00), (1.0687, 120.00)),
        "632": ((1.0210, -2.49), (1.0420, -121.72), (1.0174, 117.83)),
        "634": ((0.9940, -3.23), (1.0218, -122.22), (0.9960, 117.34)),
        "646": (None, (1.0311, -121.98), (1.0134, 117.90)),
        "671": ((0.9900, -5.30), (1.0529, -122.34), (0.9778, 116.02)),
        "675": ((0.9835, -5.56), (1.0553, -122.52), (0.9758, 116.03)),
        "611": (None, None, (0.9738, 115.78)),
        "652": ((0.9825, -5.25), None, None),
    },
    "ieee34": {
        "800": ((1.0500, 0.00), (1.0500, -120.00), (1.0500, 120.00)),
        "808": ((1.0136, -0.75), (1.0296, -120.95), (1.0289, 119.30)),
        "814": ((0.9467, -2.26), (0.9945, -122.70), (0.9893, 118.01)),
        "850": ((1.0176, -2.26), (1.0255, -122.70), (1.0203, 118.01)),
        "822": ((0.9895, -2.33), None, None),
        "856": (None, (0.9977, -123.41), None),
        "852": ((0.9581, -3.11), (0.9680, -124.18), (0.9637, 116.33)),
        "832": ((1.0359, -3.11), (1.0345, -124.18), (1.0360, 116.33)),
        "848": ((1.0310, -3.32), (1.0291, -124.47), (1.0314, 116.00)),
        "840": ((1.0303, -3.23), (1.0287, -124.39), (1.0308, 116.09)),
        "890": ((0.9167, -5.19), (0.9235, -126.78), (0.9177, 113.98)),
    },
    "ieee37": {
        "799": ((1.0000, 0.00), (1.0000, -120.00), (1.0000, 120.00)),
        "799r": ((1.0437, 0.00), (1.0250, -120.00), (1.0345, 120.90)),
        "701": ((1.0317, -0.08), (1.0144, -120.39), (1.0183, 120.61)),
        "702": ((1.0248, -0.14), (1.0089, -120.58), (1.0100, 120.43)),
    },
    "ieee123": {
        "149": ((1.0436, -0.02), (1.0437, -120.02), (1.0436, 119.98)),
        "13": ((1.0079, -1.87), (1.0360, -120.97), (1.0196, 118.90)),
        "11": ((1.0057, -1.51), None, None),
        "33": ((0.9953, -2.52), None, None),
        "39": (None, (1.0278, -121.38), None),
        "51": ((0.9903, -2.53), (1.0248, -121.47), (1.0067, 118.58)),
        "66": ((0.9858, -3.51), (1.0216, -121.87), (0.9955, 117.70)),
        "67": ((1.0355, -3.77), (1.0311, -122.19), (1.0345, 117.61)),
        "75": (None, None, (1.0293, 117.40)),
        "83": ((1.0436, -4.20), (1.0375, -122.63), (1.0390, 117.07)),
        "96": (None, (1.0258, -122.73), None),
        "114": ((1.0216, -4.15), None, None),
        "450": ((1.0348, -3.82), (1.0294, -122.21), (1.0328, 117.53)),
    },
}

# The largest differences, in per unit and degrees, as README.md of the feeders states them.
LARGEST_DIFFERENCE = {
    "ieee13": (0.0002, 0.02),
    "ieee34": (0.0002, 0.05),
    "ieee37": (0.0002, 0.02),
    "ieee123": (0.0004, 0.05),
}

# Independent loops with every switch closed, along lines only and through transformers too.
# Elements in parallel between two buses count once.
LOOPS_ALL_CLOSED = {"ieee123": (1, 2), "lv_town": (3, 4), "us_suburb": (3, 3)}


def compiled(name: str, *commands: str) -> Any:
    """A private engine context with the feeder in it, and `commands` run on it."""
    engine: Any = DSS.NewContext()
    engine.AllowChangeDir = False
    engine.Text.Command = f'compile "{feeder_path(name)}"'
    for command in commands:
        engine.Text.Command = command
    return engine


def solved(name: str, *commands: str) -> Any:
    engine = compiled(name, "set tolerance=1e-9", *commands)
    engine.ActiveCircuit.Solution.Solve()
    assert engine.ActiveCircuit.Solution.Converged
    return engine


def voltages_pu(engine: Any) -> dict[str, complex]:
    """Node voltage by 'bus.node', per unit of the bus's line-to-neutral base."""
    circuit = engine.ActiveCircuit
    flat = circuit.AllBusVolts
    values: dict[str, complex] = {}
    for k, node in enumerate(circuit.AllNodeNames):
        circuit.SetActiveBus(node.split(".")[0])
        values[node.lower()] = complex(flat[2 * k], flat[2 * k + 1]) / (1000.0 * circuit.ActiveBus.kVBase)
    return values


def taps(engine: Any) -> dict[str, int]:
    return {control.Name: control.TapNumber for control in engine.ActiveCircuit.RegControls}


def elements(engine: Any, kind: str) -> list[str]:
    """Full names of the elements of a class, disabled ones included, in the order of the files."""
    names = engine.ActiveCircuit.AllElementNames
    return [name for name in names if name.lower().startswith(kind.lower() + ".")]


def terminals(engine: Any, name: str) -> list[tuple[str, tuple[str, ...]]]:
    """Bus and nodes of each terminal."""
    circuit = engine.ActiveCircuit
    circuit.SetActiveElement(name)
    split = (bus.split(".") for bus in circuit.ActiveCktElement.BusNames)
    return [(bus.lower(), tuple(nodes)) for bus, *nodes in split]


def in_service(engine: Any, name: str) -> bool:
    engine.ActiveCircuit.SetActiveElement(name)
    element = engine.ActiveCircuit.ActiveCktElement
    return bool(element.Enabled) and not any(element.IsOpen(terminal, 0) for terminal in (1, 2))


def bus_graph(engine: Any, kinds: Sequence[str], *, all_closed: bool) -> nx.Graph[str]:
    graph: nx.Graph[str] = nx.Graph()
    for kind in kinds:
        for name in elements(engine, kind):
            if all_closed or in_service(engine, name):
                first, *others = [bus for bus, _ in terminals(engine, name)]
                graph.add_edges_from((first, other) for other in others)
    return graph


def independent_loops(graph: nx.Graph[str]) -> int:
    pairs = graph.number_of_edges() - graph.number_of_nodes()
    return int(pairs) + int(nx.number_connected_components(graph))


def chance(pairs: Iterable[tuple[int, int]]) -> float:
    """p-value of Pearson's test that the two sides, three kinds each, have nothing to do with one another."""
    counts = Counter(pairs)
    total = sum(counts.values())
    left = Counter({k: sum(n for (a, _), n in counts.items() if a == k) for k in {a for a, _ in counts}})
    right = Counter({k: sum(n for (_, b), n in counts.items() if b == k) for k in {b for _, b in counts}})
    assert len(left) == len(right) == 3
    statistic = sum(
        (counts[a, b] - left[a] * right[b] / total) ** 2 / (left[a] * right[b] / total) for a in left for b in right
    )
    # The survival function of chi-square with four degrees of freedom.
    return math.exp(-statistic / 2.0) * (1.0 + statistic / 2.0)


def dss_files(name: str) -> list[Path]:
    return sorted(feeder_path(name).parent.glob("*.dss"))


def commands_of(file: Path) -> list[str]:
    lines = (line.split("!")[0].strip() for line in file.read_text(encoding="utf-8").splitlines())
    return [line for line in lines if line]


def test_every_folder_is_listed_and_every_listed_feeder_is_there() -> None:
    masters = feeder_path("ieee13").parent.parent.glob("*/Master.dss")
    assert {master.parent.name for master in masters} == set(FEEDERS)


def test_unknown_name_is_answered_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"'ieee14'.*ieee13.*us_suburb"):
        feeder_path("ieee14")


@pytest.mark.parametrize("name", FEEDERS)
def test_folder_is_self_contained(name: str) -> None:
    master = feeder_path(name)
    folder = master.parent
    lines = commands_of(master)
    assert lines[0] == "Clear"
    assert re.match(r"Set DefaultBaseFrequency=(50|60)$", lines[1])
    used = {match[1] for line in lines if (match := re.match(r"(?:Redirect|BusCoords) (\S+)$", line))}
    assert used | {"Master.dss"} == {path.name for path in folder.iterdir()}
    everything = [line for file in dss_files(name) for line in commands_of(file)]
    verbs = {line.split()[0].lower() for line in everything}
    assert verbs <= {"clear", "set", "new", "~", "redirect", "open", "calcvoltagebases", "buscoords"}
    classes = {line.split()[1].split(".")[0].lower() for line in everything if line.startswith("New ")}
    assert not classes & {"monitor", "energymeter"}


@pytest.mark.parametrize("name", FEEDERS)
def test_every_file_names_its_source_and_licence(name: str) -> None:
    for file in dss_files(name):
        head = file.read_text(encoding="utf-8").splitlines()[:4]
        source = "IEEE PES Distribution Test Feeder Working Group" if name in IEEE else "Source: invented"
        assert any(source in line for line in head)
        assert any("Apache-2.0" in line for line in head)


@pytest.mark.parametrize("name", FEEDERS)
def test_compiles_and_converges_with_its_controls(name: str) -> None:
    circuit = solved(name).ActiveCircuit
    assert (circuit.NumBuses, circuit.NumNodes) == BUSES_NODES[name]


@pytest.mark.parametrize("name", FEEDERS)
def test_every_bus_has_a_place_and_a_base_voltage(name: str) -> None:
    circuit = solved(name).ActiveCircuit
    places = set()
    for bus in circuit.AllBusNames:
        circuit.SetActiveBus(bus)
        assert circuit.ActiveBus.Coorddefined, bus
        assert circuit.ActiveBus.kVBase > 0.0
        places.add((circuit.ActiveBus.x, circuit.ActiveBus.y))
    assert len(places) == circuit.NumBuses


@pytest.mark.parametrize("name", FEEDERS)
def test_as_shipped_it_is_connected_radial_and_energised(name: str) -> None:
    engine = solved(name)
    graph = bus_graph(engine, ("Line", "Transformer"), all_closed=False)
    assert nx.is_tree(graph)
    assert {bus.lower() for bus in engine.ActiveCircuit.AllBusNames} == set(graph)
    neutral = {node for node in voltages_pu(engine) if name == "lv_fourwire" and node.endswith(".4")}
    assert all(abs(v) > 0.85 for node, v in voltages_pu(engine).items() if node not in neutral)


@pytest.mark.parametrize("name", LOOPS_ALL_CLOSED)
def test_closing_every_switch_makes_loops(name: str) -> None:
    engine = solved(name)
    lines = independent_loops(bus_graph(engine, ("Line",), all_closed=True))
    everything = independent_loops(bus_graph(engine, ("Line", "Transformer"), all_closed=True))
    assert (lines, everything) == LOOPS_ALL_CLOSED[name]
    assert everything >= 2


@pytest.mark.parametrize("name", LOOPS_ALL_CLOSED)
def test_it_solves_with_every_switch_closed(name: str) -> None:
    engine = compiled(name)
    for line in elements(engine, "Line"):
        if not in_service(engine, line):
            (_, nodes), (_, others) = terminals(engine, line)
            assert nodes == others
            engine.Text.Command = f"{line}.enabled=yes"
            engine.Text.Command = f"close {line} 1"
            engine.Text.Command = f"close {line} 2"
    engine.Text.Command = "calcvoltagebases"  # an enabled switch can bring a new bus
    engine.ActiveCircuit.Solution.Solve()
    assert engine.ActiveCircuit.Solution.Converged
    assert all(0.94 < abs(v) < 1.06 for v in voltages_pu(engine).values())


@pytest.mark.parametrize("name", ["ieee123", "lv_town", "us_suburb"])
def test_open_points_are_stated_in_both_ways(name: str) -> None:
    engine = solved(name)
    out = [line for line in elements(engine, "Line") if not in_service(engine, line)]
    enabled = set()
    for line in out:
        engine.ActiveCircuit.SetActiveElement(line)
        enabled.add(bool(engine.ActiveCircuit.ActiveCktElement.Enabled))
        engine.ActiveCircuit.Lines.Name = line.split(".", 1)[1]
        assert engine.ActiveCircuit.Lines.IsSwitch
    assert enabled == {True, False}


@pytest.mark.parametrize("name", IEEE)
def test_regulators_are_shipped_on_the_published_positions(name: str) -> None:
    assert taps(compiled(name)) == PUBLISHED_TAPS[name]


@pytest.mark.parametrize("name", ["ieee13", "ieee123"])
def test_controls_leave_the_published_positions_alone(name: str) -> None:
    assert taps(solved(name)) == PUBLISHED_TAPS[name]


@pytest.mark.parametrize("name", ["ieee34", "ieee37"])
def test_controls_stay_within_one_step_of_the_published_positions(name: str) -> None:
    found = taps(solved(name))
    assert all(abs(found[control] - position) <= 1 for control, position in PUBLISHED_TAPS[name].items())


@pytest.mark.parametrize("name", IEEE)
def test_published_voltages(name: str) -> None:
    found = voltages_pu(solved(name, "set controlmode=off"))
    for bus, published in PUBLISHED_VOLTAGES[name].items():
        for phase, polar in enumerate(published):
            node = f"{bus}.{phase + 1}"
            if polar is None:
                assert node not in found
                continue
            value = found[node]
            if name == "ieee37":
                value = (value - found[f"{bus}.{(phase + 1) % 3 + 1}"]) / math.sqrt(3.0)
            magnitude, angle_deg = polar
            assert abs(value) == pytest.approx(magnitude, abs=LARGEST_DIFFERENCE[name][0]), node
            off_deg = math.degrees(cmath.phase(value * cmath.exp(-1j * math.radians(angle_deg))))
            assert abs(off_deg) < LARGEST_DIFFERENCE[name][1], node


@pytest.mark.parametrize("name", PUBLISHED_INPUT_KVA)
def test_published_substation_input(name: str) -> None:
    circuit = solved(name, "set controlmode=off").ActiveCircuit
    circuit.SetActiveElement("Transformer.substation")
    powers = circuit.ActiveCktElement.Powers
    second = len(powers) // 2
    leaving = [-complex(powers[second + 2 * k], powers[second + 2 * k + 1]) for k in range(3)]
    for found, published in zip(leaving, PUBLISHED_INPUT_KVA[name], strict=True):
        assert abs(found - published) < 0.002 * abs(published)


@pytest.mark.parametrize("name", IEEE)
def test_loads_add_up_to_the_published_totals(name: str) -> None:
    loads = compiled(name).ActiveCircuit.Loads
    rated = [(load.kW, load.kvar) for load in loads]
    assert sum(kw for kw, _ in rated) == pytest.approx(LOAD_TOTALS_KW_KVAR[name][0], abs=0.01)
    assert sum(kvar for _, kvar in rated) == pytest.approx(LOAD_TOTALS_KW_KVAR[name][1], abs=0.01)


def single_phase_customers(engine: Any) -> list[tuple[int, str, int]]:
    """Number in the name, bus and phase of each single-phase customer of lv_town, in file order."""
    found = []
    for name in elements(engine, "Load"):
        bus, nodes = terminals(engine, name)[0]
        if len(nodes) == 1:
            match = re.fullmatch(r"load\.cust_(\d{3})", name.lower())
            assert match
            found.append((int(match[1]), bus, int(nodes[0])))
    return found


def test_lv_town_has_the_customers_it_should() -> None:
    engine = solved("lv_town")
    customers = single_phase_customers(engine)
    on_mains = [bus for _, bus, _ in customers if not bus.startswith("svc_")]
    assert (len(customers), len(on_mains)) == (46, 6)
    assert len(elements(engine, "Load")) - len(customers) == 3
    assert len(elements(engine, "PVSystem")) == 3
    assert len(elements(engine, "Transformer")) == 2
    assert {phase for _, _, phase in customers} == {1, 2, 3}


def test_lv_town_voltages_are_within_limits() -> None:
    assert all(0.94 <= abs(v) <= 1.1 for v in voltages_pu(solved("lv_town")).values())


def test_lv_town_names_and_order_say_nothing_of_the_phase() -> None:
    engine = compiled("lv_town")
    customers = [(number, phase) for number, _, phase in single_phase_customers(engine)]
    services = []
    for name in elements(engine, "Line"):
        bus, nodes = terminals(engine, name)[1]
        if match := re.fullmatch(r"svc_(\d{3})", bus):
            assert name.lower() == f"line.cable_{bus}"
            services.append((int(match[1]), int(nodes[0])))
    assert len(services) == 37
    for group in (customers, services):
        phases = [phase for _, phase in group]
        assert chance((k % 3, phase) for k, phase in enumerate(phases)) > 0.05
        assert chance((number % 3, phase) for number, phase in group) > 0.05
        assert chance(pairwise(phases)) > 0.05


def test_the_chance_test_sees_a_pattern() -> None:
    assert chance((k % 3, k % 3 + 1) for k in range(45)) < 1e-6


def test_lv_fourwire_neutral_is_a_conductor_earthed_once() -> None:
    engine = solved("lv_fourwire")
    pu = voltages_pu(engine)
    neutrals = {node.split(".")[0]: v for node, v in pu.items() if node.endswith(".4")}
    assert set(neutrals) == {bus.lower() for bus in engine.ActiveCircuit.AllBusNames} - {"source11"}
    assert abs(neutrals["lvb"]) < 1e-6  # one electrode only: nothing can flow through it
    assert max(abs(v) for v in neutrals.values()) > 0.005
    for node, v in pu.items():
        bus, phase = node.split(".")
        if phase != "4" and bus in neutrals:
            assert 0.94 < abs(v - neutrals[bus]) < 1.06
    engine.ActiveCircuit.SetActiveElement("Reactor.electrode")
    assert engine.ActiveCircuit.ActiveCktElement.NumPhases == 1


def test_lv_fourwire_customers_are_between_phase_and_neutral() -> None:
    engine = compiled("lv_fourwire")
    nodes = [terminals(engine, name)[0][1] for name in elements(engine, "Load")]
    single = [pair for pair in nodes if len(pair) == 2]
    assert len(single) == 10
    assert all(pair[0] in {"1", "2", "3"} and pair[1] == "4" for pair in single)
    assert all(len(terminals(engine, name)[0][1]) in {2, 3, 4} for name in elements(engine, "Line"))


def test_us_suburb_voltages_are_within_limits() -> None:
    assert all(0.95 <= abs(v) <= 1.05 for v in voltages_pu(solved("us_suburb")).values())


def test_us_suburb_has_one_of_everything() -> None:
    engine = compiled("us_suburb")
    counts = Counter(name.split(".")[0].lower() for name in engine.ActiveCircuit.AllElementNames)
    assert counts["regcontrol"] == 3
    assert counts["fuse"] == 6
    assert counts["pvsystem"] == 2
    for kind in ("vsource", "capacitor", "capcontrol", "invcontrol", "storage", "generator", "recloser"):
        assert counts[kind] == 1, kind
    circuit = engine.ActiveCircuit
    circuit.Lines.Name = "main_1"
    assert circuit.Lines.Geometry == "crossarm"
    centre_tapped = [
        name
        for name in elements(engine, "Transformer")
        if [nodes for _, nodes in terminals(engine, name)][1:] == [("1", "0"), ("0", "2")]
    ]
    assert len(centre_tapped) == 10


def test_us_suburb_runs_a_day_with_its_shapes_and_controls() -> None:
    engine = solved("us_suburb", "solve", "set mode=daily stepsize=1h number=1", "set controlmode=static")
    circuit = engine.ActiveCircuit
    circuit.PVSystems.Name = "roof"
    sun, power = [], []
    steps = set()
    for _ in range(24):
        circuit.Solution.Solve()
        assert circuit.Solution.Converged
        assert all(0.95 <= abs(v) <= 1.05 for v in voltages_pu(engine).values())
        circuit.PVSystems.Name = "roof"
        sun.append(circuit.PVSystems.kW)
        power.append(-circuit.TotalPower[0])
        circuit.Capacitors.Name = "bank"
        steps.add(tuple(int(state) for state in circuit.Capacitors.States))
    assert sun[0] == 0.0 < max(sun)
    assert max(power) > 1.5 * min(power)
    assert len(steps) > 1  # the capacitor control works


def test_two_processes_may_save_the_same_records_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One begins, another begins and ends, the first ends: workers of a run do that with a variant."""
    grid, *_ = read_opendss(feeder_path("ieee13"))
    real, path = np.savez_compressed, tmp_path / "grid.npz"

    def interrupted(*arguments: Any, **arrays: Any) -> None:
        with monkeypatch.context() as other:
            other.setattr(np, "savez_compressed", real)
            other.setattr("os.getpid", lambda: 1)
            grid.save(path)
        real(*arguments, **arrays)

    monkeypatch.setattr(np, "savez_compressed", interrupted)
    grid.save(path)
    assert [file.name for file in tmp_path.iterdir()] == ["grid.npz"]
    assert Grid.load(path).name == grid.name
