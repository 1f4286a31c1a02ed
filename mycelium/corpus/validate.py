"""Checks a built corpus: files, shards against manifest and grids, labels, splits, and physics.

What is damaged is named, and noted in the folder: the next build makes exactly that again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from mycelium.corpus.checksums import note_damaged
from mycelium.corpus.damage import damaged_files
from mycelium.corpus.labels import day_labels, split_digest
from mycelium.corpus.layout import LABELS
from mycelium.corpus.manifest import read_labels
from mycelium.corpus.stats import straddling_networks
from mycelium.corpus.store import Corpus
from mycelium.grid.admittance import Admittance
from mycelium.grid.check import kirchhoff_ratio
from mycelium.grid.grid import Grid
from mycelium.schema import HOURS, FaultPlace
from mycelium.simulate.day import Day
from mycelium.simulate.fault import faulted_bus
from mycelium.simulate.fixed_point_day import fault_admittance
from mycelium.simulate.seeds import generator

KIRCHHOFF = 1e-6  # largest imbalance of currents at a node, relative; as for imports

Injections = list[tuple[npt.NDArray[np.int64], npt.NDArray[np.complex128]]]


@dataclass(frozen=True, slots=True)
class Validation:
    """What was found.

    Attributes:
        files: Files checked.
        damaged: Those that are not what was written, or missing: the next build makes them again.
        wrong: What contradicts itself although no file is damaged.
        days: Days whose labels and shapes were checked.
        physics: Days whose currents were summed at every node.
        kirchhoff: The largest imbalance among them, relative.
    """

    files: int
    damaged: list[str]
    wrong: list[str]
    days: int
    physics: int
    kirchhoff: float


def validate(folder: Path, sample: int = 50, tick: Callable[[int, int], None] = lambda done, total: None) -> Validation:
    """Check a corpus.

    Args:
        folder: The corpus.
        sample: Days whose physics is checked, drawn at random, the same every time.
        tick: Called with the number of files checked and their total.
    """
    files, damaged = damaged_files(folder, tick)
    note_damaged(folder, damaged)
    if damaged:
        return Validation(files, damaged, [], 0, 0, float("nan"))
    corpus = Corpus.open_folder(folder)
    wrong = [*_wrong_days(corpus), *_wrong_labels(corpus), *straddling_networks(corpus)]
    cases = corpus.cases
    rng = generator("validate", len(cases))
    chosen = cases.index[np.sort(rng.permutation(len(cases))[:sample])]
    worst = 0.0
    for case in chosen:
        day = corpus.day(int(case))
        largest = imbalance(corpus.grid(day.network, day.variant), day)
        worst = max(worst, largest)
        if not largest <= KIRCHHOFF:
            wrong.append(f"network '{day.network}', case {day.number}: currents do not balance ({largest:.1e})")
    return Validation(files, [], wrong, len(cases), len(chosen), worst)


# ---- shards and labels --------------------------------------------------------------------------------------------


def _wrong_days(corpus: Corpus) -> Iterator[str]:
    """Days that are not what the manifest says, or do not fit the grid."""
    for (network, variant), cases in corpus.cases.groupby(["network", "variant"], sort=False):
        grid = corpus.grid(network, variant)
        for label, case in cases.iterrows():
            who = f"network '{network}', case {case['number']}"
            shard = corpus.shard(case["shard"])
            if int(case["row"]) >= len(shard.numbers) or shard.numbers[int(case["row"])] != case["number"]:
                yield f"{who}: {case['shard']} does not hold it in row {case['row']}"
                continue
            day = corpus.day(label)
            if not _fits(day, grid):
                yield f"{who}: the arrays in {case['shard']} do not fit the grid"
            elif day_labels(day) != case["labels"]:
                yield f"{who}: the labels in {case['shard']} are not those drawn"


def _fits(day: Day, grid: Grid) -> bool:
    items = {table: len(grid.wiring.terminals[table].row) for table in ("consumer", "der", "substation")}
    interior = 0
    if day.fault is not None and day.fault.place is FaultPlace.LINE:
        interior = int(grid.line["n_conductors"].iat[day.fault.element])
    expected = {
        "v": (HOURS, grid.wiring.n_nodes),
        "v_interior": (interior,),
        "tap_pu": (HOURS, len(grid.regulated)),
        "capacitor_steps": (HOURS, len(grid.capacitor)),
        "consumer_current": (HOURS, items["consumer"]),
        "der_current": (HOURS, items["der"]),
        "source_current": (HOURS, items["substation"]),
        "energised": (grid.wiring.n_nodes,),
        "switch_open": (len(grid.switches),),
        "group_phase": (grid.n_groups,),
    }
    return all(getattr(day, name).shape == shape for name, shape in expected.items())


def _wrong_labels(corpus: Corpus) -> Iterator[str]:
    content = read_labels(corpus.folder)
    for split, cases in corpus.manifest.groupby("split", sort=False):
        drawn = [
            (network, int(number), labels if isinstance(labels, str) else None)
            for network, number, labels in zip(cases["network"], cases["number"], cases["labels"], strict=True)
        ]
        if content.get(split) != {"cases": len(drawn), "labels_sha256": split_digest(drawn)}:
            yield f"{LABELS}: not the digest of the labels of {split} in the manifest"


# ---- physics ------------------------------------------------------------------------------------------------------


def imbalance(grid: Grid, day: Day) -> float:
    """Largest imbalance of currents at any node in any hour: through B, into customers and devices, into the fault."""
    faulted = HOURS - 1 if day.fault is not None else HOURS
    worst = 0.0
    for hours, admittance in day.admittances(grid):
        for hour in hours[hours != faulted]:
            worst = max(worst, kirchhoff_ratio(admittance, day.v[hour], _injected(grid, day, int(hour)))[0])
    return max(worst, _faulted_hour(grid, day)) if day.fault is not None else worst


def _faulted_hour(grid: Grid, day: Day) -> float:
    assert day.fault is not None
    v, bus = day.v[-1], faulted_bus(grid, day.fault)
    if day.fault.place is FaultPlace.LINE:
        bus = len(grid.bus)  # between the sections
        grid, v = day.split(grid)
    injected = _injected(grid, day, HOURS - 1)
    into_fault = fault_admittance(grid, bus, day.fault) @ v
    admittance = Admittance.of(grid, day.configuration(HOURS - 1))
    return kirchhoff_ratio(admittance, v, [*injected, (np.arange(len(v)), into_fault)])[0]


def _injected(grid: Grid, day: Day, hour: int) -> Injections:
    return [
        (grid.wiring.nodes_of("consumer", day.group_phase), day.consumer_current[hour]),
        (grid.wiring.nodes_of("der", day.group_phase), day.der_current[hour]),
    ]
