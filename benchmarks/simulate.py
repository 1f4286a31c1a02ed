"""How fast days are simulated, as ratios within one run on one core.

    python benchmarks/simulate.py [--networks DIR] [--rounds N] [--only NAME]

For each feeder, one core, interleaved rounds, the fastest of each:

* *element by element*: OpenDSSDirect solves 24 hours (controls off, tolerance 1e-9, demand from load shapes) and reads
  every line, transformer and load, one at a time: currents and powers, and all node voltages.
* *fixed point*: the same day, taps as recorded, by our solver: voltages, customers' currents, and the currents of every
  element by B·V.
* *engine, bare*: 24 hourly solves with controls, tolerance 1e-9, nothing read.
* *engine path*: the same day as we simulate it: canonical reset, 24 solves, voltages, customers' and devices' currents,
  taps and steps read, sources' currents computed.
* *whole case*: what `mycelium simulate` does per case: draw, solve by whichever path is valid, make the Day.
* *corpus case*: the same on a corpus' strata, record variants included; *kept*: the rate of `mycelium corpus build`,
  which also stores them on disk, over that. Both on the same units of cases, with every variant compiled before.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
from opendssdirect import dss as odd

from mycelium.corpus.plan import CASES_PER_UNIT, Unit, stratum
from mycelium.corpus.process import WORKER
from mycelium.corpus.unit import UnitBuilder
from mycelium.feeders import feeder_path
from mycelium.grid.admittance import Admittance
from mycelium.schema import HOURS
from mycelium.simulate.cases import Case, CaseMix
from mycelium.simulate.circuit import Rejection
from mycelium.simulate.fixed_point import FixedPoint
from mycelium.simulate.load_model import LoadModel
from mycelium.simulate.network import Network, NetworkSource

FEEDERS = {
    "IEEE 123": "networks/ieee/123Bus/IEEE123Master.dss",
    "EU LV": "networks/enwl/network_1/Feeder_1/Master.dss",
    "ckt5": "networks/epri/ckt5/Master_ckt5.dss",
    "ckt24": "networks/epri/ckt24/master_ckt24.dss",
    "IEEE 8500": "networks/ieee/8500-Node/Master.dss",
}
FAMILIES = ("ieee", "enwl", "epri")
PLAIN = CaseMix(variant=0.0, phase_change=0.0, keep_supply=0.0, lose_supply=0.0, fault=0.0)
MIXED = CaseMix(variant=0.0)
WARM_UP = 3  # units: 15 cases on the four record variants


def seconds(job: Callable[[], object]) -> float:
    start = time.perf_counter()
    job()
    return time.perf_counter() - start


class ElementByElement:
    """OpenDSSDirect on the same demand, reading elements one by one."""

    def __init__(self, master: Path, p_kw: np.ndarray, q_kvar: np.ndarray, names: list[str]) -> None:
        with tempfile.TemporaryDirectory() as scratch:  # some models write traces beside where they run
            here = Path.cwd()
            try:
                odd.Text.Command("clear")
                odd.Text.Command(f'compile "{master}"')
            finally:
                os.chdir(here)
            del scratch
        for kind in ("EnergyMeter", "Monitor"):
            odd.Text.Command(f"batchedit {kind}..* enabled=no")
        odd.Text.Command("batchedit load..* status=variable")
        for k, name in enumerate(names):
            p, q = (" ".join(f"{x:.10g}" for x in values[k]) for values in (p_kw, q_kvar))
            odd.Text.Command(f"new loadshape.b{k} npts=24 interval=1 useactual=yes mult=({p}) qmult=({q})")
            odd.Text.Command(f"load.{name}.daily=b{k}")

    def day(self) -> int:
        odd.Text.Command("set mode=daily")
        odd.Text.Command("set number=1")
        odd.Text.Command("set tolerance=1e-9")
        odd.Text.Command("set controlmode=off")
        read = 0
        for _ in range(HOURS):
            odd.Solution.Solve()
            odd.Circuit.AllBusVolts()
            for batch in (odd.Lines, odd.Transformers, odd.Loads):
                index = batch.First()
                while index:
                    odd.CktElement.Currents()
                    odd.CktElement.Powers()
                    read += 1
                    index = batch.Next()
        return read


class Ours:
    """The same network through mycelium."""

    def __init__(self, master: Path, root: Path) -> None:
        self.network = Network(NetworkSource(master, root), PLAIN)
        self.mixed = Network(NetworkSource(master, root), MIXED)
        self.circuit = self.network.published
        self.case: Case = self.network.draw(0, 0)
        self.circuit.demand.set(self.case.profile)
        grid, engine = self.circuit.grid, self.circuit.engine
        self.admittance = Admittance.of(grid, self.circuit.recorded)
        self.loads, self.ders = LoadModel.of(engine, grid), LoadModel.of_ders(engine, grid)
        self.point = FixedPoint(self.admittance, self.loads, self.ders)
        self.branch = self.admittance.branch
        self.number = 0

    def fixed_point(self) -> None:
        demand = self.circuit.demand
        none = np.zeros((HOURS, len(self.circuit.grid.der)))
        result = self.point.solve(demand.p_kw.T, demand.q_kvar.T, none, none)
        if not result.converged.all():
            raise SystemExit("the fixed point did not converge")
        self.admittance.currents(result.v)

    def engine_path(self) -> None:
        self.circuit.solve_by_engine(self.case)

    def bare(self) -> None:
        engine = self.circuit.engine
        engine.command("set mode=daily")
        engine.command("set number=1")
        engine.command("set controlmode=static")
        solution = engine.dss.ActiveCircuit.Solution
        for _ in range(HOURS):
            solution.Solve()

    def bare_from_reset(self) -> float:
        """Seconds of the bare solves alone, from the same start as the engine path."""
        self.circuit.reset(self.case.configuration)
        return seconds(self.bare)

    def whole_cases(self, count: int) -> None:
        for _ in range(count):
            self.number += 1
            with suppress(Rejection):
                self.mixed.simulate(1, self.number)


class CorpusUnits:
    """Units of a corpus: simulated only, and built."""

    def __init__(self, name: str, master: Path, root: Path, folder: Path) -> None:
        self.name, self.source = name, NetworkSource(master, root, name)
        self.network, self.builder = Network(self.source, CaseMix()), UnitBuilder(folder)
        for number in range(self.network.n_variants):
            self.network.circuit(number)

    def simulate(self, chunk: int) -> None:
        for number in self._numbers(chunk):
            with suppress(Rejection):
                self.network.simulate(1, number, stratum(self.name, 1, number).mix)

    def build(self, chunk: int) -> None:
        self.builder.build(Unit(self.name, self.source, 1, chunk, self._numbers(chunk), 1.0))

    @staticmethod
    def _numbers(chunk: int) -> range:
        return range(chunk * CASES_PER_UNIT, (chunk + 1) * CASES_PER_UNIT)

    def rates(self, rounds: int) -> tuple[float, float]:
        """Cases per second, simulated and built: the whole of all rounds, each unit once each way."""
        spent = [0.0, 0.0]
        for k in range(WARM_UP):
            self.build(k)
        for k in range(WARM_UP, WARM_UP + rounds):
            spent[0] += seconds(lambda k=k: self.simulate(k))  # type: ignore[misc]
            spent[1] += seconds(lambda k=k: self.build(k))  # type: ignore[misc]
        self.network.close()
        self.builder.close()
        cases = rounds * CASES_PER_UNIT
        return cases / spent[0], cases / spent[1]


def measure(name: str, master: Path, root: Path, rounds: int) -> list[str]:
    ours = Ours(master, root)
    demand = ours.circuit.demand
    theirs = ElementByElement(master, demand.p_kw, demand.q_kvar, ours.circuit.grid.consumer["name"].tolist())
    best: dict[str, float] = {}

    def keep(key: str, value: float) -> None:
        best[key] = min(best.get(key, np.inf), value)

    cases = 10 if len(ours.circuit.grid.bus) < 2000 else 3
    for _ in range(rounds):
        keep("element", seconds(theirs.day))
        keep("fixed", min(seconds(ours.fixed_point) for _ in range(5)))
        keep("bare", ours.bare_from_reset())
        keep("path", seconds(ours.engine_path))
        keep("case", seconds(lambda: ours.whole_cases(cases)) / cases)
    with tempfile.TemporaryDirectory() as folder:
        units = CorpusUnits(name.replace(" ", "_"), master, root, Path(folder))
        simulated, built = units.rates(rounds if len(ours.circuit.grid.bus) < 2000 else 1)
    return [
        name, f"{len(ours.circuit.grid.bus)}", f"{1e3 * best['element']:.1f}", f"{1e3 * best['fixed']:.2f}",
        f"{best['element'] / best['fixed']:.1f}×", f"{1e3 * best['bare']:.1f}", f"{1e3 * best['path']:.1f}",
        f"{best['path'] / best['bare']:.2f}×", f"{best['element'] / best['path']:.1f}×",
        f"{1 / best['fixed']:.0f}", f"{1 / best['case']:.1f}", f"{simulated:.1f}", f"{built / simulated:.2f}×",
    ]  # fmt: skip


def resident_mib() -> float:
    """Memory of this process now, MiB (Linux)."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def memory(feeder: str, cases: int = 1000) -> str:
    """Memory after 100 cases, when every variant is compiled, and after the last."""
    network = Network(NetworkSource(feeder_path(feeder)), CaseMix())
    early = 0.0
    for number in range(cases):
        with suppress(Rejection):
            network.simulate(2, number)
        if number == 99:
            early = resident_mib()
    late = resident_mib()
    network.close()
    return f"{feeder}: {early:.0f} MiB after 100 cases, {late:.0f} MiB after {cases} ({late / early:.2f}×)"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", type=Path, help="unpacked reference networks; unpacked by itself if absent")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    if any(os.environ.get(name) != value for name, value in WORKER.items()):  # what is timed here runs in workers
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **WORKER})
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    with tempfile.TemporaryDirectory() as scratch:
        root = arguments.networks
        if root is None:
            root = Path(scratch)
            unpack = Path(__file__).resolve().parents[2] / "shared" / "unpack"
            subprocess.run([sys.executable, unpack, root, *FAMILIES], check=True)
        titles = [
            "feeder", "buses", "element by element, ms", "fixed point, ms", "ratio", "engine bare, ms",
            "engine path, ms", "path / bare", "element by element / path", "days/s fixed point", "whole cases/s",
            "corpus cases/s", "kept",
        ]  # fmt: skip
        print("| " + " | ".join(titles) + " |")
        print("|---|" + "---:|" * (len(titles) - 1))
        for name, master in FEEDERS.items():
            if arguments.only.lower() in name.lower():
                print("| " + " | ".join(measure(name, root / master, root, arguments.rounds)) + " |", flush=True)
    print()
    for feeder in ("lv_fourwire", "us_suburb"):
        print(f"* memory, {memory(feeder)}", flush=True)


if __name__ == "__main__":
    main()
