"""Windows of networks of every kind, for a look at everything that a model is given."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from mycelium.grid.grid import Grid
from mycelium.sense.measure import Meters
from mycelium.sense.placement import place
from mycelium.sense.policies import POLICIES
from mycelium.sense.readings import Readings
from mycelium.sense.sense import sense
from mycelium.simulate.cases import CaseMix
from mycelium.simulate.circuit import Rejection
from mycelium.simulate.day import Day
from mycelium.simulate.network import Network, NetworkSource
from mycelium.window.batch import Batch
from mycelium.window.columns import Store, WindowOptions
from mycelium.window.normalise import Normalisation
from mycelium.window.sample import Sample, SampleId
from mycelium.window.static import GridFeatures
from mycelium.window.supervision import Targets
from mycelium.window.targets import TargetLayout
from mycelium.window.temporal import Observer
from mycelium.window.window import Window, map_tensors

# The smallest of every family that has something to ask, so that all kinds of records are there.
KINDS = (
    "dsuite/spd_r/master_scaled.dss",
    "smartds_gso_urban/uhs9_1247/uhs9_1247--udt13714/Master.dss",
    "smartds_aus/p1uhs23_1247--p1udt21301/Master.dss",
    "smartds_sfo/p35u_substation/Master.dss",
    "smartds_gso_rural/rhs1_1247--rdt137/Master.dss",
    "smartds_gso_industrial/ihs3_1247--idt226/Master.dss",
    "iowa240/isu_model/Master.dss",
    "epri/ckt7/Master_ckt7.dss",
    "ieee/13Bus/IEEE13Nodeckt.dss",
    "pnnl_taxonomy/R1_12_47_3/Master.dss",
    "csiro_au_mvlv/LV/LV16_12bus/Master.dss",
    "csiro_enwl_4wire/network_23/Feeder_3/Master.dss",
    "enwl/network_20/Feeder_5/Master.dss",
    "nl_eindhoven/OpenDSS/Eindhoven_RDN1.dss",
    "es_oviedo/OpenDSS/RF4.dss",
    "ie_enerport/Master.dss",
    "cimhub/IEEE123_PV/IEEE123Master_fixedVR.dss",
    "oedi_ieee123/qsts/master.dss",
    "fr_roseau/LVFeeder00939/Master.dss",
)

EVENTS = CaseMix(variant=0.0, phase_change=0.5, keep_supply=0.3, lose_supply=0.2, fault=0.5)
_ATTEMPTS = 40


@dataclass(frozen=True)
class Kind:
    """A network and some of its days, with everything that happens."""

    name: str
    published: Grid
    grid: Grid
    days: tuple[Day, ...]

    @functools.cached_property
    def features(self) -> GridFeatures:
        return GridFeatures.of(self.grid, WindowOptions.everything(), Normalisation.identity())

    @functools.cached_property
    def _meters(self) -> dict[str, Meters]:
        placed = {name: place(self.published, policy, self.name) for name, policy in POLICIES.items()}
        return {name: Meters.of(self.grid, placement) for name, placement in placed.items()}

    def readings(self, day: Day, policy: str, *sample: int) -> Readings:
        return sense(self._meters[policy], day, *sample)

    def batch(self, day: Day, policy: str, *sample: int) -> Batch:
        observed = Observer.of(self.features).observe(self.readings(day, policy, *sample))
        targets = TargetLayout.of(self.grid, self.features).of_day(day)
        return Batch.of([(self.features, Sample(SampleId(self.name), observed, targets))])


@functools.cache
def kind_of(master: Path, root: Path, days: int) -> Kind:
    """A network compiled, and this many days of it."""
    network = Network(NetworkSource(master, root), EVENTS)
    found: list[Day] = []
    for number in range(_ATTEMPTS):
        try:
            found.append(network.simulate(11, number))
        except Rejection:
            continue
        if len(found) == days:
            break
    assert len(found) == days, f"{master}: {len(found)} days in {_ATTEMPTS} cases"
    grid = network.published.grid
    network.close()
    return Kind(network.name, grid, grid, tuple(found))


def variants_of(network: Network, days: int) -> list[Kind]:
    """Record variants of a network, each with those of its first days that are simulated on it."""
    found: dict[int, list[Day]] = {}
    number = 0
    while sum(len(part) for part in found.values()) < days:
        with contextlib.suppress(Rejection):
            day = network.simulate(11, number, replace(EVENTS, variant=1.0, keep_supply=0.7, lose_supply=0.0))
            found.setdefault(day.variant, []).append(day)
        number += 1
    published = network.published.grid
    return [Kind(network.name, published, network.circuit(number).grid, tuple(part)) for number, part in found.items()]


def other_truth(day: Day, with_phases: bool) -> Day:
    """The same voltages and currents of customers, devices and sources under another story."""
    return replace(
        day,
        switch_open=~day.switch_open,
        tap_pu=np.roll(day.tap_pu, 1, axis=0) + 0.01,
        capacitor_steps=(1 - np.minimum(day.capacitor_steps, 1)).astype(np.int16),
        energised=~day.energised,
        fault=None,
        v_interior=np.zeros(0, complex),
        group_phase=((day.group_phase + 1) % 3).astype(np.int8) if with_phases else day.group_phase,
    )


def bits(window: Window) -> list[bytes]:
    """Every tensor of a window."""
    found: list[bytes] = []

    def add(tensor: torch.Tensor) -> torch.Tensor:
        found.append(tensor.numpy().tobytes())
        return tensor

    map_tensors(window, add)
    return found


# ---- what was seen, as a classifier wants it -----------------------------------------------------------------------


def mask_tables(kinds: list[Kind], with_ties: bool = False) -> dict[str, pd.DataFrame]:
    """Nothing but masks, for customers in question, switches and whole networks, with their truth."""
    found: dict[str, list[pd.DataFrame]] = {"phase": [], "switch": [], "fault": []}
    for kind in kinds:
        for k, day in enumerate(kind.days):
            for policy in POLICIES:
                batch = kind.batch(day, policy, k)
                window, truth = batch.window(), batch.targets()
                for task, rows in zip(found, _rows(window, truth, with_ties), strict=True):
                    found[task].append(rows.assign(network=kind.name, case=day.number))
    return {task: pd.concat(parts, ignore_index=True) for task, parts in found.items()}


def _rows(window: Window, truth: Targets, with_ties: bool) -> Iterator[pd.DataFrame]:
    asked = np.flatnonzero(truth.phase_eligible.numpy())
    yield _seen(window, Store.CONSUMER, asked).assign(truth=truth.phase.numpy()[asked])
    switches = np.flatnonzero((truth.is_switch & (~truth.tie | with_ties)).numpy())
    yield _seen(window, Store.LINE, switches).assign(truth=truth.switch_open.numpy()[switches].astype(int))
    columns = {}
    for store, part in window.temporal.items():
        share = part.seen.float().mean(dim=1) if part.seen.shape[1] else torch.zeros(24, part.seen.shape[2])
        columns |= {f"{store} {k} day": share[:-1, k].mean().item() for k in range(share.shape[1])}
        columns |= {f"{store} {k} last": share[-1, k].item() for k in range(share.shape[1])}
    yield pd.DataFrame([columns]).assign(truth=int(truth.fault_class[0] > 0))


def _seen(window: Window, store: Store, rows: np.ndarray) -> pd.DataFrame:
    """How many hours each column was seen, and whether it was at the last."""
    seen = window.temporal[store].seen.numpy()[:, rows]
    columns = {f"{k} hours": seen[:, :, k].sum(axis=0) for k in range(seen.shape[2])}
    columns |= {f"{k} last": seen[-1, :, k].astype(int) for k in range(seen.shape[2])}
    return pd.DataFrame(columns)
