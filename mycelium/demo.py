"""The main job on a bundled feeder: simulate a day with a fault, meter it, and estimate it from what the meters report.

The last step takes the weights that ship with the package, or others. The model sees records and readings alone; its
answers are printed beside the truth and drawn into an HTML file.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from mycelium.feeders import feeder_path
from mycelium.grid.check import kirchhoff_ratio
from mycelium.grid.grid import Grid
from mycelium.grid.inspection import inspect_model
from mycelium.schema import HIDDEN, HOURS, PHASES, ElementKind, FaultPlace
from mycelium.sense.measure import Meters
from mycelium.sense.placement import place
from mycelium.sense.policies import POLICIES
from mycelium.sense.sense import sense
from mycelium.simulate.cases import Case, CaseMix
from mycelium.simulate.day import Day
from mycelium.simulate.fault import Fault
from mycelium.simulate.network import Network, NetworkSource

if TYPE_CHECKING:
    from mycelium.model.mycelium import Mycelium

POLICY = "observability_ami_medium"  # what it is metered with
REPORT = Path("out/demo.html")
FEEDER = "lv_town"
SEED = 1
# Everything at once, on the published records: a demonstration, not a draw of the corpus.
MIX = CaseMix(variant=0.0, phase_change=1.0, keep_supply=1.0, lose_supply=0.0, fault=1.0)


def run_demo(console: Console, weights: str | None = None, report: Path = REPORT) -> None:
    """Import, simulate, estimate and print.

    Args:
        console: Where to print.
        weights: Folder or name of weights; the first that ship with the package if not given.
        report: HTML file to write.
    """
    from mycelium.model.mycelium import Mycelium  # the model is imported when it is needed

    bundled = _bundled()
    weights = weights or next(iter(bundled), None)
    model = None if weights is None else Mycelium.from_pretrained(weights)  # first: it may be refused
    master = feeder_path(FEEDER)
    found = inspect_model(master)
    facts = found.as_dict()
    console.print(
        f"[bold]1. The records.[/] {FEEDER}: {facts['buses']} buses, {facts['lines']} lines, "
        f"{facts['distribution_transformers']} distribution transformers, {facts['consumers']} customers; the phase of "
        f"{facts['eligible_consumers']} and the position of {facts['switches']} switches are questions.\n"
        f"   Import against the engine: primitives {found.check.primitive_max_rel:.0e}, "
        f"currents {found.check.current_max_rel:.0e}, Kirchhoff {found.check.kirchhoff_max_rel:.0e} "
        f"(limits 1e-9, 1e-6, 1e-6)."
    )
    network = Network(NetworkSource(master), MIX)
    case = network.draw(SEED, 0)
    grid = network.published.grid
    console.print(f"[bold]2. The day.[/] {_events(grid, case)}")
    day = network.published.solve(case)
    console.print(_hours(grid, day))
    console.print(
        f"[bold]3. The check.[/] Solved by the {day.solver}. With our own B, from the records alone, currents balance "
        f"at every node before the fault: largest ratio to the bound, times 1e-6, is {_imbalance(grid, day):.0e}."
    )
    if case.fault is not None:
        console.print(f"[bold]4. The fault.[/] {_fault_effect(grid, day, case.fault)}")
    if model is None:
        console.print(
            "[bold]5. The estimate.[/] No weights ship with this version: train some (`mycelium train "
            "experiments/toy.toml`), then `mycelium demo --weights out/toy/best`."
        )
        return
    _estimate(console, grid, day, model, report, str(weights))
    if weights in bundled:
        console.print(
            "   The weights that ship are a narrow model that a processor trained in an hour: they show how it is "
            "done, not how well it can be done (docs/training.md)."
        )


def _bundled() -> list[str]:
    """Names of weights that ship with the package."""
    from mycelium.model.weights import BUNDLED

    return sorted(folder.name for folder in BUNDLED.iterdir() if folder.is_dir()) if BUNDLED.is_dir() else []


def _estimate(console: Console, grid: Grid, day: Day, model: Mycelium, report: Path, weights: str) -> None:
    """Meter the day, answer the four questions from the readings, and compare with the truth."""
    from mycelium.report.answers import Answers
    from mycelium.report.page import write_report
    from mycelium.report.truth import compared, true_targets

    readings = sense(Meters.of(grid, place(grid, POLICIES[POLICY], day.network)), day, day.seed, day.number)
    answers = Answers.of(grid, model.estimate(grid, readings))
    truth = true_targets(grid, day)
    console.print(
        f"[bold]5. The estimate.[/] From the records and {readings.count:,} readings ({POLICY}), by {weights}:"
    )
    table = Table("question", "said", "true", title="four answers")
    for row in compared(answers, truth):
        table.add_row(*(escape(text) for text in row))
    console.print(table)
    write_report(report, grid, readings, answers, truth, FEEDER)
    console.print(f"   Drawn, with the truth beside it: {report}")


def _events(grid: Grid, case: Case) -> str:
    names = grid.line["name"].iloc[grid.switches].tolist()
    opened = [name for name, is_open in zip(names, case.configuration.switch_open, strict=True) if is_open]
    fault = "no fault" if case.fault is None else describe_fault(grid, case.fault)
    return (
        f"{case.profile.season}, day {case.profile.day_of_year}; {case.phases_changed} services changed phase; "
        f"switching: {case.switching} (open: {', '.join(opened)}); at hour {HOURS - 1}: {fault}."
    )


def describe_fault(grid: Grid, fault: Fault) -> str:
    """A fault in words."""
    table = {FaultPlace.BUS: grid.bus, FaultPlace.LINE: grid.line, FaultPlace.TRANSFORMER: grid.transformer}[
        fault.place
    ]
    name = table["name"].iat[fault.element]
    where = {
        FaultPlace.BUS: f"at bus {name}",
        FaultPlace.LINE: f"inside line {name}, {100 * fault.x:.0f} % along",
        FaultPlace.TRANSFORMER: f"at winding {fault.terminal + 1} of transformer {name}",
    }[fault.place]
    phases = "".join("?" if c == HIDDEN else PHASES[c - 1] for c in fault.conductors)
    return f"{fault.type} on {phases} {where} through {fault.resistance_ohm:.2f} ohm"


def _hours(grid: Grid, day: Day) -> Table:
    """Voltages and substation power, hour by hour."""
    wiring = grid.wiring
    base = 1e3 * grid.bus["base_kv"].to_numpy()[wiring.bus]
    seen = day.energised & (wiring.conductor <= 3)
    pu = np.abs(day.v[:, seen]) / base[seen]
    source = wiring.nodes_of("substation", day.group_phase)
    at_source = np.where(source >= 0, day.v[:, source], 0.0)
    power = -(at_source * day.source_current.conj()).sum(axis=1) / 1e3
    table = Table(
        "hour", "lowest p.u.", "median p.u.", "highest p.u.", "substation kW", "kvar", title="voltages and power"
    )
    for hour in (0, 4, 8, 12, 16, 20, HOURS - 2, HOURS - 1):
        v = pu[hour]
        table.add_row(
            str(hour), f"{v.min():.3f}", f"{np.median(v):.3f}", f"{v.max():.3f}",
            f"{power[hour].real:.1f}", f"{power[hour].imag:.1f}",
        )  # fmt: skip
    return table


def _imbalance(grid: Grid, day: Day) -> float:
    """Largest Kirchhoff ratio over the hours before the fault."""
    worst = 0.0
    for hours, admittance in day.admittances(grid):
        nodes = [grid.wiring.nodes_of(table, day.group_phase) for table in ("consumer", "der")]
        for hour in hours[hours < HOURS - 1]:
            currents = (day.consumer_current[hour], day.der_current[hour])
            worst = max(worst, kirchhoff_ratio(admittance, day.v[hour], list(zip(nodes, currents, strict=True)))[0])
    return worst


def _fault_effect(grid: Grid, day: Day, fault: Fault) -> str:
    """What the fault does to currents and customers."""
    currents = np.abs(day.branch_currents(grid))
    first = next(iter(day.admittances(grid)))[1].layout.first_row[ElementKind.TRANSFORMER]
    through = currents[:, first[0] : first[-1]].max(axis=1)
    base = 1e3 * grid.bus["base_kv"].to_numpy()[grid.wiring.bus]
    phase = day.energised & (grid.wiring.conductor <= 3)
    low = np.mean(np.abs(day.v[-1, phase]) / base[phase] < 0.9)
    return (
        f"{describe_fault(grid, fault)[0].upper()}{describe_fault(grid, fault)[1:]}: the largest transformer current "
        f"goes from {through[-2]:.0f} A to {through[-1]:.0f} A, and {100 * low:.0f} % of the energised phases fall "
        "below 0.9 p.u."
    )
