"""Time and memory of a day's estimate on growing feeders: both grow with the number of buses, and no faster.

    python -m benchmarks.scaling [--buses N ...] [--rounds N] [--figure docs/scaling.svg]
    python -m benchmarks.scaling --device cuda [--buses N ...]     # needs CUDA; also a step of training

The model is the paper's, with random weights. Feeders are made here: an 11 kV tree with distribution transformers, each
with a low-voltage zone of single-phase customers. Each is simulated for a day and read under a sensor policy, in a
process of its own, so that its largest memory is its own. *Features* are made once per network, a *window* once per day
of readings; *inference* is the model. Times are of one core and count what the process computed, so that other work on
the machine does not; on a GPU they are elapsed. Memory is what inference adds to the process, or takes on the device.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from mycelium import Mycelium, MyceliumConfig
from mycelium.sense.measure import Meters
from mycelium.sense.placement import place
from mycelium.sense.policies import POLICIES
from mycelium.sense.sense import sense
from mycelium.simulate.cases import CaseMix
from mycelium.simulate.network import Network, NetworkSource
from mycelium.window.batch import Batch
from mycelium.window.columns import BACKBONE
from mycelium.window.normalise import Normalisation
from mycelium.window.sample import Sample, SampleId
from mycelium.window.static import GridFeatures
from mycelium.window.temporal import Observer
from mycelium.window.window import Window

QUIET = CaseMix(variant=0.0, phase_change=0.0, keep_supply=0.0, lose_supply=0.0, fault=0.0)
POLICY = "noisy_missing_medium"
ZONE = 9  # customers' buses of a low-voltage zone, besides the transformer's
SIZES = {"cpu": (100, 300, 1000, 3000, 10_000), "cuda": (1000, 3000, 10_000, 20_000)}
MIB = 2**20


def write_feeder(folder: Path, n_buses: int) -> Path:
    """An OpenDSS model of about ``n_buses`` buses."""
    rng = np.random.default_rng(n_buses)
    n_zones = max(1, n_buses // (ZONE + 2))
    lines = [
        "Clear",
        "Set DefaultBaseFrequency=50",
        f"New Circuit.grown_{n_buses} bus1=mv0 basekv=11 pu=1.02 phases=3 MVAsc3=500 MVAsc1=400",
        "New Linecode.mv nphases=3 r1=0.05 x1=0.08 r0=0.2 x0=0.3 c1=10 c0=8 units=km",
        "New Linecode.lv nphases=3 r1=0.2 x1=0.08 r0=0.8 x0=0.3 c1=0 c0=0 units=km",
    ]
    for zone in range(1, n_zones + 1):
        above = int(rng.integers(max(0, zone // 2 - 4), zone))  # half as many levels as a binary tree has branches
        switch = " switch=yes" if zone % 10 == 0 else ""
        lines.append(f"New Line.mv{zone} bus1=mv{above} bus2=mv{zone} linecode=mv length=0.1 units=km{switch}")
        lines.append(
            f"New Transformer.t{zone} phases=3 windings=2 buses=[mv{zone} lv{zone}_0.1.2.3.0] conns=[delta wye] "
            f"kVs=[11 0.416] kVAs=[100 100] Xhl=4.5 %Rs=[0.6 0.6] %noloadloss=0.2 %imag=0.5"
        )
        for k in range(1, ZONE + 1):
            start, end = f"lv{zone}_{int(rng.integers(max(0, k - 3), k))}", f"lv{zone}_{k}"
            lines.append(f"New Line.l{zone}_{k} bus1={start} bus2={end} linecode=lv length=0.03 units=km")
            phase = int(rng.integers(1, 4))
            lines.append(f"New Load.c{zone}_{k} phases=1 bus1={end}.{phase} kV=0.24 kW=1.5 pf=0.95 model=1")
    lines += ["Set VoltageBases=[11 0.416]", "CalcVoltageBases", "Solve"]
    master = folder / "Master.dss"
    master.write_text("\n".join(lines) + "\n")
    return master


@dataclass(frozen=True)
class Measured:
    """One size; times in milliseconds, memory in MiB.

    Attributes:
        buses, edges: Of the feeder; edges are all along which messages pass.
        features_ms, window_ms, inference_ms: Fastest.
        memory_mib: What inference adds.
        training_ms, training_mib: A forward and backward pass in bfloat16, activations recomputed; None on a processor.
    """

    buses: int
    edges: int
    features_ms: float
    window_ms: float
    inference_ms: float
    memory_mib: float
    training_ms: float | None = None
    training_mib: float | None = None


def timed(rounds: int, device: str, job: Callable[[], object]) -> float:
    """Fastest of some runs, in milliseconds."""
    clock = time.process_time if device == "cpu" else time.perf_counter
    best = float("inf")
    for _ in range(rounds):
        start = clock()
        job()
        if device == "cuda":
            torch.cuda.synchronize()
        best = min(best, 1e3 * (clock() - start))
    return best


def measure(n_buses: int, rounds: int, device: str) -> Measured:
    """Make a feeder of this size, and time all that an estimate needs."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = Mycelium(MyceliumConfig.paper()).eval().to(device)
    options = model.config.window
    with tempfile.TemporaryDirectory() as folder:
        network = Network(NetworkSource(write_feeder(Path(folder), n_buses)), QUIET)
        grid, day = network.published.grid, network.simulate(1, 0, QUIET)
    readings = sense(Meters.of(grid, place(grid, POLICIES[POLICY], network.name)), day, 1, 0)

    def features() -> GridFeatures:
        return GridFeatures.of(grid, options, Normalisation.identity())

    known = features()
    observer = Observer.of(known)

    def window() -> Window:
        sample = Sample(SampleId(grid.name), observer.observe(readings), None)
        return Batch.of([(known, sample)]).to(device).window()

    times = [timed(rounds, device, features), timed(rounds, device, window)]
    ready = window()

    def infer() -> None:
        with torch.no_grad():
            model(ready)

    before = _memory_mib(device)
    infer()
    memory = _memory_mib(device) - before
    times.append(timed(rounds, device, infer))
    edges = 2 * sum(ready.edges[kind].shape[1] for kind in BACKBONE)
    training = _training(model, ready, rounds) if device == "cuda" else (None, None)
    return Measured(len(grid.bus), edges, times[0], times[1], times[2], memory, *training)


def _memory_mib(device: str) -> float:
    """Most memory so far."""
    if device == "cuda":
        return torch.cuda.max_memory_allocated() / MIB
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / MIB


def _training(model: Mycelium, window: Window, rounds: int) -> tuple[float, float]:
    model.train()
    model.backbone.recompute = True
    torch.cuda.reset_peak_memory_stats()

    def step() -> None:
        model.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.bfloat16):
            found = model(window)
        torch.stack([value.nan_to_num().square().mean() for value in vars(found).values()]).sum().backward()

    step()
    return timed(rounds, "cuda", step), torch.cuda.max_memory_allocated() / MIB


def exponent(sizes: list[int], values: list[float]) -> float:
    """Slope of the straight line through the logarithms of the larger half of sizes: 1 is linear."""
    half = len(sizes) // 2
    return float(np.polyfit(np.log(sizes[half:]), np.log(values[half:]), 1)[0])


def report(rows: list[Measured]) -> None:
    """Print the table and how each column grows."""
    print(
        "| buses | edges | features, ms | window, ms | inference, ms | µs per bus | memory, MiB | KiB per bus |", end=""
    )
    training = rows[0].training_ms is not None
    print(" training, ms | training, MiB |" if training else "")
    print("|" + "---:|" * (10 if training else 8))
    for row in rows:
        print(
            f"| {row.buses} | {row.edges} | {row.features_ms:.0f} | {row.window_ms:.1f} | {row.inference_ms:.0f} "
            f"| {1e3 * row.inference_ms / row.buses:.0f} | {row.memory_mib:.0f} "
            f"| {1024 * row.memory_mib / row.buses:.0f} |",
            end="",
        )
        print(f" {row.training_ms:.0f} | {row.training_mib:.0f} |" if training else "")
    if len(rows) > 3:
        sizes = [row.buses for row in rows]
        time_grows = exponent(sizes, [row.inference_ms for row in rows])
        memory_grows = exponent(sizes, [row.memory_mib for row in rows])
        print(f"\nOver the larger half, inference grows as buses^{time_grows:.2f}, memory as buses^{memory_grows:.2f}.")


def draw(rows: list[Measured], file: Path) -> None:
    """Time and memory against buses, with lines of slope one."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "mycelium"  # the same bytes every time
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(8, 3.2), layout="constrained")
    sizes = np.array([row.buses for row in rows])
    curves = (
        ("inference of a day, s", [row.inference_ms / 1e3 for row in rows]),
        ("memory of inference, MiB", [row.memory_mib for row in rows]),
    )
    for axis, (label, values) in zip(axes, curves, strict=True):
        axis.loglog(sizes, values[-1] * sizes / sizes[-1], color="#8a8a8a", lw=0.8, ls="--", label="linear")
        axis.loglog(sizes, values, color="#2a7f62", marker="o", ms=4)
        axis.set_xlabel("buses")
        axis.set_title(label, loc="left", fontsize=10)
        axis.spines[["top", "right"]].set_visible(False)
        axis.legend(frameon=False)
    figure.savefig(file, metadata={"Date": None})


def main() -> None:
    """Measure every size in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--buses", type=int, nargs="+", help="sizes of feeders")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--figure", type=Path, help="file to draw to, SVG")
    arguments = parser.parse_args()
    if arguments.device == "cuda" and not torch.cuda.is_available():
        sys.exit("--device cuda needs a GPU and a torch with CUDA; without it, this runs on the processor")
    place_name = torch.cuda.get_device_name() if arguments.device == "cuda" else "one core"
    print(f"On {place_name}; torch {torch.__version__}; policy {POLICY}.\n", flush=True)
    rows = []
    for n_buses in arguments.buses or SIZES[arguments.device]:
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            rows.append(pool.apply(measure, (n_buses, arguments.rounds, arguments.device)))
        print(f"{rows[-1].buses} buses: {rows[-1].inference_ms:.0f} ms", file=sys.stderr, flush=True)
    report(rows)
    if arguments.figure is not None:
        draw(rows, arguments.figure)


if __name__ == "__main__":
    main()
