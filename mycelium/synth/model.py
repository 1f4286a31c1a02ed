"""A design in the engine: compiled once, edited by repairs and solved again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from dss import DSSException

from mycelium.engine import Engine
from mycelium.grid.dss_script import Command, Script
from mycelium.schema import HOURS
from mycelium.synth import dss
from mycelium.synth.design import ROOT_3, Conductors, Design, Element, InverterMode, Line
from mycelium.synth.geography import Floats, Ints
from mycelium.synth.profiles import DayShapes

FLOATING_PU = 0.05  # at or below this a value is that of a floating node of a tie


@dataclass(frozen=True)
class Inputs:
    """What the operating points are made of.

    Attributes:
        eta: Coincidence factor of each customer's transformer. [customer]
        demand_lambda: Share of nominal demand in snapshot B.
        shapes: The day.
    """

    eta: Floats
    demand_lambda: float
    shapes: DayShapes


@dataclass(frozen=True)
class State:
    """A solved operating point.

    Attributes:
        converged: Whether it is one.
        v_pu: Voltage of every node. [node]
        loading: Current over rating of every line, switch and transformer. [branch]
    """

    converged: bool
    v_pu: Floats
    loading: Floats

    @property
    def live_v_pu(self) -> Floats:
        """Without floating nodes."""
        return self.v_pu[self.v_pu > FLOATING_PU]

    @property
    def collapsed(self) -> bool:
        """Whether nothing has voltage."""
        return not len(self.live_v_pu)


_NOT_SOLVED = State(False, np.zeros(0), np.zeros(0))


class Solver:
    """One engine that holds one design after the other."""

    def __init__(self) -> None:
        self._engine: Engine | None = None

    def compile(self, commands: Sequence[Command]) -> Engine:
        script = Script(Path("Master.dss"), Path(), tuple(commands), {}, ())
        if self._engine is None:
            self._engine = Engine(script)
        else:
            self._engine.compile(script)
        return self._engine


class Model:
    """A design with its inputs, compiled.

    Attributes:
        design: What the engine holds; change it with ``edit`` only.
        node_bus: Bus of every node of the last solution. [node]
        branch_names: Lines, switches and transformers, as in ``State.loading``. [branch]
        branch_is_line: Which of them are no transformers. [branch]
        solves: Power flows solved so far.
    """

    def __init__(self, solver: Solver, design: Design, inputs: Inputs) -> None:
        self.design, self.inputs = design, inputs
        self.solves = 0
        parts = model_text(design, inputs.shapes)
        commands = [Command(file, k, text) for file, lines in parts.items() for k, text in enumerate(lines, 1)]
        self._engine = solver.compile(commands)
        self._engine.set_canonical()
        self._codes = {dss.line_code(line) for line in design.lines.values()}
        self._controls = {text.split()[0] for text in dss.volt_var_texts(design.pvs.values())}
        self._order_known = False
        self.node_bus: list[str] = []
        self._customer = np.array([load.customer for load in design.loads.values()], dtype=np.int64)
        self._kw = np.array([load.kw for load in design.loads.values()])
        self._kvar = np.array([load.kvar for load in design.loads.values()])
        self._learn_branches()

    # ---- edits ---------------------------------------------------------------------------------------------------

    def edit(self, elements: Sequence[Element]) -> None:
        """Put elements in the place of those of their names, or add them."""
        controlled = self._controlled()
        added = [element for element in elements if self.design.find(element) is None]
        for element in elements:
            if isinstance(element, Line) and dss.line_code(element) not in self._codes:
                self._codes.add(dss.line_code(element))
                self._engine.command(f"new {dss.line_code_text(element)}")
            verb = "new" if self.design.find(element) is None else "edit"
            self.design.put(element)
            for text in dss.definitions(element):
                self._engine.command(f"{verb} {text}")
        if self._controlled() != controlled:
            self._control_inverters()
        if added:
            self._learn_branches()
        self._order_known = False  # a bus or a phase may be new

    def _controlled(self) -> list[tuple[str, Conductors]]:
        """Systems in volt-var mode, and where they are connected."""
        pvs = self.design.pvs.values()
        return [(pv.name, pv.conductors) for pv in pvs if pv.mode is InverterMode.VOLT_VAR]

    def _control_inverters(self) -> None:
        named: set[str] = set()
        for text in dss.volt_var_texts(self.design.pvs.values()):
            name = text.split()[0]
            verb, on = ("edit", " enabled=yes") if name in self._controls else ("new", "")
            self._controls.add(name)
            named.add(name)
            self._engine.command(f"{verb} {text}{on}")
        for name in sorted(self._controls - named):  # nobody is left in it
            self._engine.command(f"{name}.enabled=no")

    # ---- operating points ------------------------------------------------------------------------------------------

    def snapshot_a(self) -> State:
        """Coincident peak demand, no generation."""
        eta = self.inputs.eta[self._customer]
        return self._snapshot(eta * self._kw, eta * self._kvar, sun=0.0)

    def snapshot_b(self) -> State:
        """Low demand, full generation."""
        share = self.inputs.demand_lambda
        return self._snapshot(share * self._kw, share * self._kvar, sun=1.0)

    def _snapshot(self, kw: Floats, kvar: Floats, sun: float) -> State:
        self._demand(kw, kvar, sun)
        self._reset("snapshot")
        return self._solve()

    def day(self) -> list[State]:
        """The 24 hours, one after the other; nothing after an hour that did not converge."""
        self._demand(self._kw, self._kvar, 1.0)
        self._reset("daily")
        states: list[State] = []
        for _ in range(HOURS):
            states.append(self._solve())
            if not states[-1].converged:
                break
        return states

    def _demand(self, kw: Floats, kvar: Floats, sun: float) -> None:
        alt = self._engine.alt
        alt.Load.kW = kw
        alt.Load.kvar = kvar
        if self.design.pvs:
            alt.PVSystem.Irradiance = np.full(len(self.design.pvs), sun)

    def _reset(self, mode: str) -> None:
        """Start as the files do: recorded taps and steps, controls at rest, the zero-load solution."""
        engine = self._engine
        engine.command("reset controls")
        for bank in self.design.regulators.values():
            for conductor in bank.conductors:
                engine.command(f"regcontrol.{bank.name}_{conductor}.reset=yes")
                engine.command(f"transformer.{bank.name}_{conductor}.taps=[1 1]")
        for capacitor in self.design.capacitors.values():
            if capacitor.setting is not None:
                engine.command(f"capcontrol.{capacitor.name}.reset=yes")
                engine.command(f"close capacitor.{capacitor.name} 1")
                engine.command(f"capacitor.{capacitor.name}.states=[1]")
        engine.dss.ActiveCircuit.CtrlQueue.ClearQueue()
        engine.command(f"set mode={mode} number=1 stepsize=1h controlmode=static")
        engine.command("buildy")

    def _solve(self) -> State:
        engine = self._engine
        self.solves += 1
        try:
            engine.dss.ActiveCircuit.Solution.Solve()
        except DSSException:  # too many control iterations, a singular matrix
            return _NOT_SOLVED
        if not engine.dss.ActiveCircuit.Solution.Converged:
            return _NOT_SOLVED
        if not self._order_known:
            self._learn_nodes(engine.alt.YNodeOrder())
        v_pu = np.abs(engine.voltages()) / self._base_v
        if not np.all(np.isfinite(v_pu)):
            return _NOT_SOLVED
        percent = np.asarray(engine.dss.ActiveCircuit.PDElements.AllPctNorm(False), dtype=np.float64)
        return State(True, v_pu, percent[self._branch_place] / 100)

    # ---- what nodes and branches are -------------------------------------------------------------------------------

    def _learn_nodes(self, names: list[str]) -> None:
        self._order_known = True
        self.node_bus = [str(name).lower().partition(".")[0] for name in names]
        self.node_conductor: Ints = np.array([int(str(name).rpartition(".")[2]) for name in names], dtype=np.int64)
        base_kv = np.array([self.design.buses[bus].base_kv for bus in self.node_bus])
        self._base_v = base_kv * 1e3 / ROOT_3

    def _learn_branches(self) -> None:
        names = [str(name).lower() for name in self._engine.dss.ActiveCircuit.PDElements.AllNames]
        kept = [(k, name) for k, name in enumerate(names) if name.startswith(("line.", "transformer."))]
        self._branch_place = np.array([k for k, _ in kept], dtype=np.int64)
        self.branch_names = [name.partition(".")[2] for _, name in kept]
        self.branch_is_line = np.array([name.startswith("line.") for _, name in kept])


def model_text(design: Design, shapes: DayShapes) -> dict[str, list[str]]:
    """The commands of a design, file by file, in the order in which they are read."""
    codes: dict[str, str] = {}
    for line in design.lines.values():
        codes.setdefault(dss.line_code(line), dss.line_code_text(line))
    watched = dss.watched_lines(design)
    controls = [f"New {dss.capacitor_control(c, watched[c.bus])}" for c in design.capacitors.values() if c.setting]
    loads = list(design.loads.values())
    pvs = list(design.pvs.values())
    load_shapes = [
        dss.shape_text(dss.load_shape(load), shapes.p[load.customer], shapes.q[load.customer]) for load in loads
    ]
    pv_shapes = [dss.shape_text(dss.pv_shape(pv), shapes.pv[k], None) for k, pv in enumerate(pvs)]
    return {
        "Circuit": dss.header(design),
        "LineCodes": [f"New {text}" for text in codes.values()],
        "Shapes": [f"New {text}" for text in (*load_shapes, *pv_shapes, dss.volt_var_curve())],
        "Transformers": _new([*design.units.values(), *design.regulators.values()]),
        "Lines": [*_new(design.lines.values()), *_new(design.switches.values()), *dss.opened(design)],
        "Capacitors": [*_new(design.capacitors.values()), *controls],
        "Loads": _new(loads),
        "Photovoltaics": [*_new(pvs), *(f"New {text}" for text in dss.volt_var_texts(pvs))],
        "Bases": dss.footer(design),
    }


def _new(elements: Iterable[Element]) -> list[str]:
    return [f"New {text}" for element in elements for text in dss.definitions(element)]
