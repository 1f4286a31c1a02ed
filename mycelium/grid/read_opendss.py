"""Import: an OpenDSS model becomes a Grid, a Configuration and a report of what was read."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mycelium.engine import Engine
from mycelium.errors import FeederError
from mycelium.grid import read_elements as elements
from mycelium.grid.base_voltage import base_voltages
from mycelium.grid.dss_script import Script, read_script
from mycelium.grid.grid import Configuration, Grid, make_table
from mycelium.grid.hidden import hide_phases
from mycelium.grid.import_report import ImportReport
from mycelium.grid.service import serving_transformer, three_phase_zone
from mycelium.schema import LOW_VOLTAGE_KV

# Classes that hold data or controls: they have no terminals of their own in the Grid.
_LIBRARY = {
    "linecode", "loadshape", "tshape", "priceshape", "xycurve", "growthshape", "tcc_curve", "spectrum", "wiredata",
    "cndata", "tsdata", "linespacing", "linegeometry", "xfmrcode", "dynamicexp",
}  # fmt: skip
_READ_AS_FLAGS = {
    "regcontrol": "kept by the simulator; the Grid marks the windings it moves",
    "capcontrol": "kept by the simulator; the Grid marks the capacitors it switches",
    "invcontrol": "kept by the simulator; not a record of the Grid",
    "expcontrol": "kept by the simulator; not a record of the Grid",
    "storagecontroller": "kept by the simulator; not a record of the Grid",
    "gendispatcher": "kept by the simulator; not a record of the Grid",
    "fuse": "the Grid marks what it watches; it never acts in a simulated day",
    "recloser": "the Grid marks what it watches; it never acts in a simulated day",
    "relay": "the Grid marks what it watches; it never acts in a simulated day",
    "swtcontrol": "its position is read; it never acts in a simulated day",
}
_OPERATE = re.compile(r"""\s*(?:open|close)\s+(?:object=)?["']?line\.([^\s"']+)""", re.IGNORECASE)
_NAMES_LINE = re.compile(
    r"""\s*(?:(?:new|edit)\s+(?:object\s*=\s*)?)?["']?line\.((?:(?!\.switch\s*=)[^\s"'=,])+)""", re.IGNORECASE
)
_CONTINUES = re.compile(r"\s*(?:~|m(?:o(?:r(?:e)?)?)?\s)", re.IGNORECASE)
_SWITCH = re.compile(r"\bswitch\s*=\s*[\"'(\[{]?\s*([a-z])", re.IGNORECASE)
_HANDLED = {"line", "vsource", "load", "transformer", "capacitor", "reactor", "pvsystem", "generator", "storage"}


def read_opendss(master: Path | str, root: Path | str | None = None) -> tuple[Grid, Configuration, ImportReport]:
    """Read an OpenDSS model.

    Args:
        master: The model's main file.
        root: Folder that bounds what may be read; the master's own folder if not given.

    Raises:
        FeederError: With file, line and advice, if the model cannot be read.
    """
    script = read_script(Path(master), None if root is None else Path(root))
    return read_circuit(script, Engine(script))


def read_circuit(script: Script, engine: Engine) -> tuple[Grid, Configuration, ImportReport]:
    """Read a circuit that is compiled already."""
    report = ImportReport()
    alt = engine.alt
    for note in script.notes:
        report.ignore("script", [f"{note.file}:{note.line}"], f"{note.what}: {note.why}")
    frequency = float(engine.dss.ActiveCircuit.Solution.Frequency)
    grid, out_of_service = _tables(script, alt, frequency, report)
    _account_for_other_classes(engine, report)
    if not len(grid.substation):
        raise FeederError(f"{script.master.name}: no voltage source: the circuit is fed by nothing")
    grid, group_phase = hide_phases(grid, _question_zone(grid), report)
    grid = grid.replace_tables(consumer=grid.consumer.assign(transformer=serving_transformer(grid)))
    configuration = _configuration(engine, grid, out_of_service, group_phase, report)
    lost = report.unaccounted()
    if lost:
        raise FeederError(f"{script.master.name}: elements neither read nor ignored: {lost}; this is a bug")
    return grid, configuration, report


def _tables(script: Script, alt: Any, frequency: float, report: ImportReport) -> tuple[Grid, npt.NDArray[np.bool_]]:
    buses = elements.Buses()
    for name in alt.BusNames():
        buses.find(str(name).lower())
    substation = elements.read_sources(alt, buses, frequency, report)
    transformer, winding = elements.read_transformers(alt, buses, frequency, report)
    line, line_matrices, out_of_service = elements.read_lines(
        alt, buses, _operated_lines(script, alt), frequency, report
    )
    reactor, reactor_matrices = elements.read_reactors(alt, buses, frequency, report)
    capacitor = elements.read_capacitors(alt, buses, report)
    consumer, der = elements.read_consumers(alt, buses, report), elements.read_ders(alt, buses, report)
    place = [script.bus_coordinates.get(name, (np.nan, np.nan)) for name in buses.names]
    bus = {
        "name": buses.names,
        "base_kv": np.ones(len(buses.names)),
        "x": [x for x, _ in place],
        "y": [y for _, y in place],
        "hidden": np.zeros(len(buses.names), bool),
    }
    columns = {
        "bus": bus, "consumer": consumer, "substation": substation, "capacitor": capacitor, "der": der, "line": line,
        "transformer": transformer, "winding": winding, "reactor": reactor,
    }  # fmt: skip
    tables = {table: make_table(table, values) for table, values in columns.items()}
    grid = Grid(str(alt.Name), frequency, tables, {**line_matrices, **reactor_matrices})
    bases = np.asarray(alt.Settings.VoltageBases, dtype=np.float64)
    return grid.replace_tables(bus=grid.bus.assign(base_kv=base_voltages(grid, bases, report))), out_of_service


def _operated_lines(script: Script, alt: Any) -> set[str]:
    """Lines that the model calls switches, or that a command or a switch control opens or closes.

    The engine forgets `switch=yes` where a line code with matrices follows it, so the text is asked, not the engine.
    """
    operated = {str(control.SwitchedObj_str).lower().removeprefix("line.") for control in alt.SwtControl}
    current = ""
    for command in script.commands:
        opened, named = _OPERATE.match(command.text), _NAMES_LINE.match(command.text)
        if opened:
            operated.add(opened.group(1).lower())
        if named:
            current = named.group(1).lower()
        elif not _CONTINUES.match(command.text):
            current = ""
        flag = _SWITCH.search(command.text)
        if current and flag:
            (operated.add if flag.group(1).lower() in "yt" else operated.discard)(current)
    return operated


def _question_zone(grid: Grid) -> npt.NDArray[np.bool_]:
    """Low-voltage buses with a three-phase supply. [bus]"""
    low = grid.bus["base_kv"].to_numpy() * np.sqrt(3.0) < LOW_VOLTAGE_KV
    return np.asarray(three_phase_zone(grid) & low)


def _account_for_other_classes(engine: Engine, report: ImportReport) -> None:
    circuit = engine.dss.ActiveCircuit
    for name in engine.dss.Classes:
        kind = str(name).lower()
        if kind in _HANDLED or kind in _LIBRARY:
            continue
        engine.dss.SetActiveClass(name)
        members = [str(member).lower() for member in circuit.ActiveClass.AllNames if str(member).lower() != "none"]
        if not members:
            continue
        report.total[kind] = len(members)
        if kind in _READ_AS_FLAGS:
            report.ignore(kind, members, _READ_AS_FLAGS[kind])
        else:
            report.ignore(kind, members, "this class is not supported: the network is incomplete without it")


def _configuration(
    engine: Engine, grid: Grid, out_of_service: npt.NDArray[np.bool_], group_phase: npt.NDArray[np.int8],
    report: ImportReport,
) -> Configuration:  # fmt: skip
    alt = engine.alt
    opened = out_of_service | _opened_by_command(engine, grid, report)
    taps = {unit.Name.lower(): np.asarray(unit.Taps, dtype=np.float64) for unit in alt.Transformer if unit.Enabled}
    winding = grid.winding.iloc[grid.regulated]
    owner = grid.transformer["name"].to_numpy()[winding["transformer"]]
    tap = [taps[name][number - 1] for name, number in zip(owner, winding["number"], strict=True)]
    configuration = Configuration(
        switch_open=opened[grid.switches],
        group_phase=group_phase,
        tap_pu=np.array(tap, dtype=np.float64),
        capacitor_steps=grid.capacitor["initial_steps"].to_numpy().astype(np.int16),
    )
    configuration.check(grid)
    return configuration


def _opened_by_command(engine: Engine, grid: Grid, report: ImportReport) -> npt.NDArray[np.bool_]:
    """Lines with an open terminal. [line]"""
    circuit = engine.dss.ActiveCircuit
    opened = np.zeros(len(grid.line), bool)
    partly: list[str] = []
    names, sizes = grid.line["name"].to_numpy(), grid.line["n_conductors"].to_numpy()
    for row in grid.switches:
        name = str(names[row])
        circuit.SetActiveElement(f"line.{name}")
        element = circuit.ActiveCktElement
        states = [element.IsOpen(t, p + 1) for t in (1, 2) for p in range(int(sizes[row]))]
        opened[row] = any(states)
        if any(states[: len(states) // 2]) and not all(states[: len(states) // 2]):
            partly.append(name)
    report.approximate("line", partly, "opened on some conductors only: read as open")
    return opened
