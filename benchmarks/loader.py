"""How fast windows are made, as ratios within one run.

    python benchmarks/loader.py [--networks DIR] [--rounds N] [--only NAME] [--cases N]

First table, one core, interleaved rounds, the fastest of each; all milliseconds are per window:

* *simulate*: draw and solve a case, whichever solver is valid, as `mycelium corpus build` does, without storing it.
* *render*: sense the day under one policy, make inputs of the readings and targets of the truth. Its ratio is the cost
  of a window over that of its day: below 1.00× rendering costs less than simulating.
* *batch*: the union of windows up to 20,000 buses; *spread*: its dense tensors, on the processor.

Second table, live drawing: days per second of one worker process that simulates only, and windows per second of one
that simulates, senses, makes the window, hands it over, while this process puts batches together. Both draw the same
cases, policies mixed, all variants compiled before. Their ratio is what live drawing keeps of the raw rate. The last
column is what it would keep if this process had no core of its own; the last row, what is kept where networks are drawn
alike, as in training.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from mycelium.corpus.days import SimulatedDays
from mycelium.corpus.live import LiveConfig, LiveNetwork, LiveSamples
from mycelium.corpus.pool import Pool, PoolConfig, Task
from mycelium.corpus.process import WORKER
from mycelium.corpus.render import VariantRenderer, Wanted
from mycelium.sense.policies import POLICIES
from mycelium.simulate.circuit import Rejection
from mycelium.simulate.day import Day
from mycelium.simulate.network import NetworkSource
from mycelium.window.batch import Batch
from mycelium.window.columns import WindowOptions
from mycelium.window.normalise import Normalisation
from mycelium.window.sample import Sample

FEEDERS = {
    "IEEE 123": "networks/ieee/123Bus/IEEE123Master.dss",
    "EU LV": "networks/enwl/network_1/Feeder_1/Master.dss",
    "ckt5": "networks/epri/ckt5/Master_ckt5.dss",
    "ENWL 8/2": "networks/enwl/Network_8/Feeder_2/Master.dss",
    "ckt24": "networks/epri/ckt24/master_ckt24.dss",
}
FAMILIES = ("ieee", "enwl", "epri")
SHOWN = ("noisy_missing_sparse", "observability_ami_dense", "clean")
BUDGET = 20_000


def seconds(job: Callable[[], object]) -> float:
    start = time.perf_counter()
    job()
    return time.perf_counter() - start


def table(*rows: list[str]) -> None:
    for k, row in enumerate(rows):
        print("| " + " | ".join(row) + " |", flush=True)
        if k == 0:
            print("|---|" + "---:|" * (len(row) - 1))


def rendering(name: str, source: NetworkSource, rounds: int) -> list[str]:
    """One row of the first table."""
    days = SimulatedDays({name: source}, 0, None, tuple(POLICIES.values()), name)
    found: list[Day] = []
    number = 0
    while len(found) < 8:
        with suppress(Rejection):
            day = days.day(number)
            if day.variant == 0:
                found.append(day)
        number += 1
    renderer = VariantRenderer.of(days.grid(0), WindowOptions(), Normalisation.identity())
    n = len(days.grid(0).bus)
    together = max(BUDGET // n, 1)
    best: dict[str, float] = {}

    def keep(key: str, value: float) -> None:
        best[key] = min(best.get(key, 1e9), value)

    def render(policy: str) -> list[Sample]:
        wanted = Wanted(name, 0, (policy,))
        return [renderer.samples(day, days.placement, wanted)[0] for day in found]

    for policy in SHOWN:
        render(policy)  # prepares its meters
    for _ in range(rounds):
        keep("simulate", sum(seconds(lambda day=day: days.day(day.number)) for day in found) / len(found))  # type: ignore[misc]
        for policy in SHOWN:
            keep(policy, seconds(lambda policy=policy: render(policy)) / len(found))  # type: ignore[misc]
        samples = render("observability_ami_dense")
        parts = [(renderer.features, samples[k % len(samples)]) for k in range(together)]
        batch = Batch.of(parts)
        keep("batch", seconds(lambda parts=parts: Batch.of(parts)) / together)  # type: ignore[misc]
        keep("spread", seconds(lambda batch=batch: (batch.window(), batch.targets())) / together)  # type: ignore[misc]
    days.close()
    dense = best["observability_ami_dense"]
    return [
        name, f"{n}", f"{1e3 * best['simulate']:.2f}",
        *(f"{1e3 * best[policy]:.2f} ({best[policy] / best['simulate']:.2f}×)" for policy in SHOWN),
        f"{1e3 * best['batch']:.2f}", f"{1e3 * best['spread']:.2f}", f"{1 / dense:.0f}",
        f"{1 / (dense + best['batch']):.0f}",
    ]  # fmt: skip


@dataclass
class Simulate:
    """A worker that only simulates."""

    open_network: Callable[[str], SimulatedDays]

    def __post_init__(self) -> None:
        self.days: SimulatedDays | None = None

    def __call__(self, wanted: Sequence[Wanted]) -> list[int]:
        self.days = self.days or self.open_network(wanted[0].network)
        found = 0
        for one in wanted:
            with suppress(Rejection):
                self.days.day(one.case)
                found += 1
        return [found, *[0] * (len(wanted) - 1)]


def live(name: str, source: NetworkSource, rounds: int, cases: int) -> dict[str, float]:
    """Rates of the second table, per second."""
    network = LiveNetwork(name, source, name, 0)
    config = LiveConfig(cases_per_epoch=cases, pool=PoolConfig(workers=1), runs_together=4)
    open_network = partial(SimulatedDays, {name: source}, config.seed, config.mix, config.policies)
    best = {"raw": 0.0, "live": 0.0, "alone": 0.0}
    with (
        LiveSamples([network], config, Normalisation.identity()) as samples,
        Pool[Wanted, int](partial(Simulate, open_network), config.pool) as pool,
    ):

        def draw() -> int:
            before = samples.delivered
            for _ in samples.epoch(0):
                pass
            return samples.delivered - before

        def simulate() -> int:
            tasks: list[Task[Wanted]] = list(samples.tasks(0))
            return sum(answer for _, answers in pool.answers(tasks) for answer in answers if isinstance(answer, int))

        draw(), simulate()  # compiles what there is to compile
        for _ in range(rounds):
            start, own = time.perf_counter(), time.process_time()
            drawn = draw()
            wall, busy = time.perf_counter() - start, time.process_time() - own
            best["live"] = max(best["live"], drawn / wall)
            best["alone"] = max(best["alone"], drawn / (wall + busy))
            start = time.perf_counter()
            best["raw"] = max(best["raw"], simulate() / (time.perf_counter() - start))
    return best


def kept(name: str, rates: dict[str, float]) -> list[str]:
    """One row of the second table."""
    raw = rates["raw"]
    return [name, f"{raw:.1f}", f"{rates['live']:.1f}", *(f"{rates[key] / raw:.2f}×" for key in ("live", "alone"))]


def alike(parts: list[dict[str, float]]) -> dict[str, float]:
    """Rates where as many days come of every network, as in training."""
    return {key: len(parts) / sum(1.0 / part[key] for part in parts) for key in parts[0]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", type=Path, help="unpacked reference networks; unpacked by itself if absent")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cases", type=int, default=160, help="cases of a live round; a quarter above 2,000 buses")
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    if any(os.environ.get(name) != value for name, value in WORKER.items()):  # what is timed here runs in workers
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **WORKER})
    with tempfile.TemporaryDirectory() as scratch:
        root = arguments.networks
        if root is None:
            root = Path(scratch)
            unpack = Path(__file__).resolve().parents[2] / "shared" / "unpack"
            subprocess.run([sys.executable, unpack, root, *FAMILIES], check=True)
        root = root.absolute()
        chosen = {
            name: NetworkSource(root / master, root, name)
            for name, master in FEEDERS.items()
            if arguments.only.lower() in name.lower()
        }
        print(f"{os.cpu_count()} cores; milliseconds per window\n")
        first = [rendering(name, source, arguments.rounds) for name, source in chosen.items()]
        titles = ["feeder", "buses", "simulate", *(f"render {policy}" for policy in SHOWN), "batch", "spread"]
        table([*titles, "rendered/s", "rendered and batched/s"], *first)
        print()
        second = []
        for row, (name, source) in zip(first, chosen.items(), strict=True):
            cases = arguments.cases if int(row[1]) < 2000 else arguments.cases // 4
            second.append(live(name, source, arguments.rounds, cases))
        rows = [kept(name, rates) for name, rates in zip(chosen, second, strict=True)]
        titles = ["feeder", "days/s simulated", "windows/s drawn live", "kept", "kept on one core"]
        table(titles, *rows, kept("as many days of each", alike(second)))


if __name__ == "__main__":
    main()
