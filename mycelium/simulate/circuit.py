"""One network (or record variant) compiled once in a worker process, then edited and solved again for every case.

Every day starts canonically: recorded taps, steps and stored energy, positions and phases of the case, controls
reset, the zero-load solution. So the order of cases cannot matter. What the engine keeps between days and does not
reset by itself is reset here; each such line says so.

Days are steady states, one per hour. Meters and monitors are never created (``dss_script`` leaves them out), fuses,
reclosers, relays, switch controls and storage controllers are disabled: positions are the case's, storage follows
the day's profile.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from dss import DSSException

from mycelium.engine import Engine
from mycelium.grid.check import DER_CLASS, element_slices, map_nodes
from mycelium.grid.dss_script import Script, read_script
from mycelium.grid.grid import Configuration
from mycelium.grid.read_opendss import read_circuit
from mycelium.grid.sources import Sources
from mycelium.schema import HIDDEN_MARK, HOURS, DerKind
from mycelium.simulate.cases import Case, CaseSpace
from mycelium.simulate.day import Day
from mycelium.simulate.engine_fault import EngineFault
from mycelium.simulate.fixed_point_day import AGREEMENT_PU, FixedPointDays, not_valid_because
from mycelium.simulate.shapes import Demand, OwnShapes, bind_shapes
from mycelium.simulate.variant import Variant, with_variant

Complex = npt.NDArray[np.complex128]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

# Inverter controls remember voltages and powers of the hours before, and nothing resets them: with these a circuit is
# compiled anew for every day.
_REMEMBER = ("InvControl", "ExpControl")
_NEVER_ACT = ("Fuse", "Recloser", "Relay", "SwtControl", "StorageController")


class Rejection(Exception):
    """A case that cannot be a sample: its message is the reason, recorded and counted."""


@dataclass(frozen=True, slots=True)
class _Hour:
    """What is read after each hour's solve."""

    v: Complex
    consumer: Complex
    der: Complex
    tap_pu: Floats
    steps: npt.NDArray[np.int16]


class Circuit:
    """A compiled network ready to simulate days.

    Attributes:
        grid, recorded, report: What was imported.
        space: What cases can draw.
        own_shapes: The network's own load shapes.
        demand: Nominal demand, and the day's that the engine reads.
        fixed_point: Solver of days without control action, None where it is not valid.
        engine_because: Why it is not.
    """

    def __init__(self, script: Script, variant: Variant | None = None) -> None:
        if variant is not None:
            script = with_variant(script, variant)
        self._script = script
        self.engine = Engine(script)
        self.grid, self.recorded, self.report = read_circuit(script, self.engine)
        self.space = CaseSpace.of(self.grid, self.recorded)
        self.own_shapes = OwnShapes.read(self.engine, self.grid)
        self.demand = Demand.of(self.engine, self.grid)
        self._sources = Sources.of(self.grid)
        self._remembers = any(len(getattr(self.engine.alt, name)) for name in _REMEMBER)
        self._prepare()
        self._judge()

    @staticmethod
    def open(master: Path, root: Path | None = None) -> Circuit:
        """Compile the published network."""
        return Circuit(read_script(master, root))

    # ---- preparation -------------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        """Make a freshly compiled circuit ready for days."""
        engine, alt = self.engine, self.engine.alt
        for name in _NEVER_ACT:
            if len(getattr(alt, name)):
                engine.command(f"batchedit {name}..* enabled=no")
        if len(alt.CapControl):
            # The engine never resets the time a capacitor last opened; without dead time it cannot matter.
            engine.command("batchedit capcontrol..* deadtime=0")
        if len(alt.Load):
            engine.command("batchedit load..* status=variable")
        bind_shapes(engine, self.grid, self.demand)
        self._fault = EngineFault(engine, self.grid)
        winding = self.grid.winding.iloc[self.grid.regulated]
        owner = self.grid.transformer["name"].to_numpy()[winding["transformer"].to_numpy()]
        self._regulated = [(alt.Transformer[n], int(k)) for n, k in zip(owner, winding["number"], strict=True)]
        place = {str(name).lower(): k for k, name in enumerate(alt.Capacitor.Name)} if len(alt.Capacitor) else {}
        self._capacitor_place = [place[name] for name in self.grid.capacitor["name"]]
        self._controlled = bool(self.grid.capacitor["controlled"].any())
        self._place_switches()
        self._recorded_energy = {str(s.Name): float(s.pctStored) for s in alt.Storage}
        self._phase_now = self.recorded.group_phase.copy()
        self._der_off: set[str] = set()
        self._names: list[str] = []
        self._order_known = False
        engine.set_canonical()
        self._load_slices = self._slices("Load", self.grid.consumer["name"].tolist())
        self._der_slices = {
            kind: self._slices(DER_CLASS[kind], self.grid.der["name"][self.grid.der["kind"] == kind].tolist())
            for kind in DerKind
        }
        self._warm_up()
        self._fresh = True

    def _place_switches(self) -> None:
        """Enable every switch, with both ends open: an open switch then contributes nothing and keeps its buses."""
        for name in self.grid.line["name"].iloc[self.grid.switches]:
            self.engine.command(f"line.{name}.enabled=yes")
            self._set_switch(name, is_open=True)
        self._open_now = np.ones(len(self.grid.switches), dtype=bool)

    def _set_switch(self, name: str, is_open: bool) -> None:
        verb = "open" if is_open else "close"
        self.engine.command(f"{verb} line.{name} 1")
        self.engine.command(f"{verb} line.{name} 2")

    def _slices(self, engine_class: str, names: list[str]) -> Ints:
        """Places of the named elements' terminal currents in the class's flat array. [item]"""
        batch = getattr(self.engine.alt, engine_class)
        if not names or not len(batch):
            return np.zeros(0, dtype=np.int64)
        place, start = element_slices(batch)
        return np.concatenate([np.arange(start[place[name]], start[place[name] + 1]) for name in names])

    def _warm_up(self) -> None:
        """Solve once with every spare element in place, so that the first case meets the state any later one does."""
        self.reset(self.recorded)
        self.engine.command("set controlmode=off")
        self._fault.apply_all()
        with suppress(DSSException):  # the case itself will say why it cannot be solved
            self.engine.command("solve")
        self._fault.clear()

    def _judge(self) -> None:
        """Let the engine judge the fixed point on the recorded configuration at nominal demand."""
        self.fixed_point: FixedPointDays | None = None
        self.engine_because = not_valid_because(self.engine, self.grid)
        if self.engine_because:
            return
        candidate = FixedPointDays(self.engine, self.grid, self.recorded)
        solved = candidate.solve(self.recorded, self.demand, None)
        if solved is None:
            self.engine_because = ["the fixed point does not converge at nominal demand"]
            return
        self.reset(self.recorded)
        try:
            theirs = self._solve_hour(0).v
        except Rejection as reason:
            self.engine_because = [f"the engine cannot judge: {reason}"]
            return
        base = 1e3 * self.grid.bus["base_kv"].to_numpy()[self.grid.wiring.bus]
        apart = float(np.max(np.abs(solved[0].v[0] - theirs) / base))
        if apart > AGREEMENT_PU:
            self.engine_because = [f"the fixed point is {apart:.1e} p.u. off the engine"]
            return
        self.fixed_point = candidate

    # ---- a day -------------------------------------------------------------------------------------------------

    def solve(self, case: Case) -> Day:
        """Simulate a case; raises Rejection with a reason if it cannot be a sample.

        The fixed point solves it where it is valid, the engine otherwise and where the fixed point does not converge;
        the day says which.
        """
        customer = self.grid.wiring.nodes_of("consumer", case.configuration.group_phase)
        if not np.any(case.energised[customer[customer >= 0]]):
            raise Rejection("dead feeder: no customer is supplied")
        self.demand.set(case.profile)
        day = self._by_fixed_point(case) if self.fixed_point is not None else None
        return day if day is not None else self.solve_by_engine(case)

    def _by_fixed_point(self, case: Case) -> Day | None:
        assert self.fixed_point is not None
        solved = self.fixed_point.solve(case.configuration, self.demand, case.fault)
        if solved is None:
            return None
        result, interior = solved
        return self._day(
            case, "fixed point", interior,
            v=result.v,
            tap_pu=np.repeat(case.configuration.tap_pu[None], HOURS, 0),
            capacitor_steps=np.repeat(case.configuration.capacitor_steps[None], HOURS, 0),
            consumer_current=result.load_currents,
            der_current=result.der_currents,
        )  # fmt: skip

    def solve_by_engine(self, case: Case) -> Day:
        """Simulate a case hour by hour with controls, in the engine; ``demand`` holds its day."""
        if self._remembers and not self._fresh:
            self.engine.compile(self._script)
            self._prepare()
        self._fresh = False
        self._isolate_ders(case.energised, case.configuration)
        self.reset(case.configuration)
        hours = [self._solve_hour(hour) for hour in range(HOURS - 1)]
        self.engine.command("set controlmode=off")
        try:
            if case.fault is not None:
                self._fault.apply(case.fault, case.configuration)
                self._order_known = False
            hours.append(self._solve_hour(HOURS - 1))
            interior = self._fault.interior_voltages(case.fault)
        finally:
            if case.fault is not None:
                self._fault.clear()
                self._order_known = False
        return self._day(
            case, "engine", interior,
            v=np.stack([hour.v for hour in hours]),
            tap_pu=np.stack([hour.tap_pu for hour in hours]),
            capacitor_steps=np.stack([hour.steps for hour in hours]),
            consumer_current=np.stack([hour.consumer for hour in hours]),
            der_current=np.stack([hour.der for hour in hours]),
        )  # fmt: skip

    def _day(self, case: Case, solver: str, interior: Complex, **solved: npt.NDArray[Any]) -> Day:
        return Day(
            **solved,
            v_interior=interior,
            source_current=self._sources.currents(solved["v"]),
            energised=case.energised,
            switch_open=case.configuration.switch_open,
            group_phase=case.configuration.group_phase,
            fault=case.fault,
            network=case.network,
            seed=case.seed,
            number=case.number,
            variant=case.variant,
            day_of_year=case.profile.day_of_year,
            solver=solver,
        )

    def _solve_hour(self, hour: int) -> _Hour:
        solution = self.engine.dss.ActiveCircuit.Solution
        try:
            solution.Solve()
            if not self._order_known:
                self._map_nodes()
        except DSSException as error:
            raise Rejection(f"hour {hour}: {_first_sentence(error)}") from None
        if not solution.Converged:
            raise Rejection(f"hour {hour}: the power flow did not converge")
        v = np.asarray(self._to_grid(self.engine.voltages()))
        if not np.all(np.isfinite(v)):
            raise Rejection(f"hour {hour}: the power flow gave no finite voltages")
        der = [self._currents(DER_CLASS[kind], self._der_slices[kind]) for kind in DerKind]
        return _Hour(v, self._currents("Load", self._load_slices), np.concatenate(der), self._taps(), self._steps())

    def _map_nodes(self) -> None:
        """Learn the engine's node order again; editing a bus, a fault or a tripped generator may have changed it."""
        names = self.engine.alt.YNodeOrder()
        if names != self._names:
            self._names = names
            self._to_grid = map_nodes([str(name).lower() for name in names], self.grid)
        self._order_known = True

    def _currents(self, engine_class: str, places: Ints) -> Complex:
        if not len(places):
            return np.zeros(0, dtype=np.complex128)
        return np.asarray(getattr(self.engine.alt, engine_class).Currents(), dtype=np.complex128)[places]

    def _taps(self) -> Floats:
        return np.array([unit.Taps[number - 1] for unit, number in self._regulated], dtype=np.float64)

    def _steps(self) -> npt.NDArray[np.int16]:
        if self._controlled:  # without controls the steps stay as they were set
            states = list(self.engine.alt.Capacitor.States)
            self._steps_now = np.array([np.sum(states[k] > 0) for k in self._capacitor_place], dtype=np.int16)
        return self._steps_now

    # ---- canonical start ---------------------------------------------------------------------------------------

    def reset(self, configuration: Configuration) -> None:
        """Bring the engine to the start of a day in this configuration."""
        self._set_positions(configuration)
        self._set_phases(configuration)
        engine = self.engine
        engine.command("reset controls")
        for kind in ("RegControl", "CapControl"):
            for control in getattr(engine.alt, kind):
                engine.command(f"{kind}.{control.Name}.reset=yes")
        engine.dss.ActiveCircuit.CtrlQueue.ClearQueue()
        for (unit, number), tap in zip(self._regulated, configuration.tap_pu, strict=True):
            engine.command(f"transformer.{unit.Name}.wdg={number} tap={float(tap)!r}")
        for name, steps, size in zip(
            self.grid.capacitor["name"], configuration.capacitor_steps, self.grid.capacitor["steps"], strict=True
        ):
            # A control opens a capacitor's terminal besides its states: both are set, the typed property is not enough.
            states = " ".join("1" if k < steps else "0" for k in range(size))
            engine.command(f"close capacitor.{name} 1")
            engine.command(f"capacitor.{name}.states=[{states}]")
        self._steps_now = configuration.capacitor_steps
        for name, stored in self._recorded_energy.items():
            engine.command(f"storage.{name}.%stored={stored!r} state=idling")
        engine.command("set mode=daily")  # also makes the next solve start from the zero-load solution
        engine.command("set number=1")
        engine.command("set controlmode=static")
        # Loads stay in Y as they were when Y was last built, which moves the last digits: build it anew.
        engine.command("buildy")

    def _set_positions(self, configuration: Configuration) -> None:
        names = self.grid.line["name"].to_numpy()[self.grid.switches]
        for k in np.flatnonzero(configuration.switch_open != self._open_now):
            self._set_switch(str(names[k]), bool(configuration.switch_open[k]))
        self._open_now = configuration.switch_open.copy()

    def _set_phases(self, configuration: Configuration) -> None:
        changed = np.flatnonzero(configuration.group_phase != self._phase_now)
        if not len(changed):
            return
        phase = configuration.group_phase
        for table, element_class, ends in (("line", "line", 2), ("consumer", "load", 1), ("der", "", 1)):
            frame = self.grid.tables[table]
            for row in np.flatnonzero(np.isin(frame["group"].to_numpy(), changed)):
                record = frame.iloc[row]
                kind = element_class or DER_CLASS[DerKind(record["kind"])]
                for end in range(1, ends + 1):
                    text = self._tied_to(record, end, phase)
                    if text:
                        self.engine.command(f"{kind}.{record['name']}.bus{end}={text}")
        self._phase_now = phase.copy()
        self._order_known = False

    def _tied_to(self, record: object, end: int, phase: npt.NDArray[np.int8]) -> str:
        """Bus string of a hidden conductor's end at a known bus; empty elsewhere."""
        bus = int(record[f"bus{end}"])  # type: ignore[index]
        conductors = str(record[f"conductors{end}"])  # type: ignore[index]
        if self.grid.wiring.hidden_bus[bus] or HIDDEN_MARK not in conductors:
            return ""
        slot = int(phase[int(record["group"])]) + 1  # type: ignore[index]
        return f"{self.grid.bus['name'].iat[bus]}.{conductors.replace(HIDDEN_MARK, str(slot))}"

    def _isolate_ders(self, live: npt.NDArray[np.bool_], configuration: Configuration) -> None:
        """Generators in a dead part trip (anti-islanding)."""
        t = self.grid.wiring.terminals["der"]
        node = self.grid.wiring.nodes_of("der", configuration.group_phase)
        fed = np.zeros(len(self.grid.der), dtype=bool)
        fed[t.row[(node >= 0) & live[node]]] = True
        off = {
            f"{DER_CLASS[DerKind(kind)]}.{name}"
            for kind, name, on in zip(self.grid.der["kind"], self.grid.der["name"], fed, strict=True)
            if not on
        }
        for element in off ^ self._der_off:
            self._order_known = False
            self.engine.command(f"{element}.enabled={'no' if element in off else 'yes'}")
        self._der_off = off


def _first_sentence(error: DSSException) -> str:
    return " ".join(str(error).split()).split(". ")[0][:200]
