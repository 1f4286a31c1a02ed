"""What tests of sensing share: networks of every kind, compiled once, and days of them."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
import numpy.typing as npt

from mycelium.feeders import FEEDERS, feeder_path
from mycelium.grid.grid import Grid
from mycelium.schema import HOURS, FaultPlace
from mycelium.sense.measure import Measured, Meters
from mycelium.sense.measure_customers import BusDemand
from mycelium.sense.placement import place
from mycelium.sense.policies import POLICIES, Policy
from mycelium.simulate.cases import CaseMix
from mycelium.simulate.circuit import Rejection
from mycelium.simulate.day import Day
from mycelium.simulate.network import Network, NetworkSource
from tests.conftest import ReferenceNetworks

Floats = npt.NDArray[np.float64]

QUIET = CaseMix(variant=0.0, phase_change=0.0, keep_supply=0.0, lose_supply=0.0, fault=0.0)
MOVED = CaseMix(variant=0.0, phase_change=1.0, keep_supply=1.0, lose_supply=0.0, fault=0.0)
FAULTED = CaseMix(variant=0.0, phase_change=1.0, keep_supply=0.0, lose_supply=0.0, fault=1.0)
DEAD = CaseMix(variant=0.0, phase_change=1.0, keep_supply=0.0, lose_supply=1.0, fault=0.0)

REFERENCE = {
    "enwl": "enwl/network_1/Feeder_1/Master.dss",
    "four-wire": "csiro_enwl_4wire/network_23/Feeder_3/Master.dss",
    "four-wire, three-phase customers": "es_oviedo/OpenDSS/RF1.dss",
    "smartds": "smartds_sfo/p1uhs0_1247--p1udt942/Master.dss",
    "ieee 8500": "ieee/8500-Node/Master.dss",
    "ckt5": "epri/ckt5/Master_ckt5.dss",
    "dsuite": "dsuite/spm_r/master_scaled.dss",
    "iowa": "iowa240/isu_model/Master.dss",
}
EVERY = [*FEEDERS, *REFERENCE]
WITH_GROUPS = ["lv_town", "lv_fourwire", "us_suburb", "ieee13"]


def open_network(name: str, reference_network: ReferenceNetworks) -> Network:
    """A bundled feeder or a reference network, by its name here."""
    if name in FEEDERS:
        return _compiled(feeder_path(name), None)
    return _compiled(reference_network(REFERENCE[name]), reference_network.cache)


def bundled(name: str) -> Network:
    return _compiled(feeder_path(name), None)


@functools.cache
def _compiled(master: Path, root: Path | None) -> Network:
    return Network(NetworkSource(master, root), QUIET)


def shown(meters: Meters, measured: Measured, key: str) -> Floats:
    """What the instruments of a channel show without errors. [hour, entry]"""
    return measured.values[meters.part[key]].T


def total(demand: BusDemand, share: Floats) -> Floats:
    """Demand of buses without errors, from shares [share, hour]. [hour, entry]"""
    parts = np.split(share[demand.share], demand.pointer[1:-1])
    return (
        np.array([part.sum(axis=0) for part in parts]).reshape(-1, HOURS).T if len(demand.row) else np.zeros((HOURS, 0))
    )


def day_of(network: Network, mix: CaseMix, first: int = 0) -> Day:
    """The first day of a mix that is no rejection."""
    for number in range(first, first + 12):
        try:
            return network.simulate(5, number, mix)
        except Rejection:
            continue
    raise AssertionError(f"{network.name}: twelve cases in a row were rejected")


def line_faulted_at(network: Network, rows: np.ndarray) -> Day:
    """A day with a fault inside one of these lines."""
    for number in range(400):
        case = network.draw(5, number, FAULTED)
        if case.fault is None or case.fault.place is not FaultPlace.LINE or case.fault.element not in rows:
            continue
        try:
            return network.published.solve(case)
        except Rejection:
            continue
    raise AssertionError(f"{network.name}: no fault inside such a line in 400 cases")


def meters_of(grid: Grid, policy: str | Policy, network: str = "a network") -> Meters:
    """Instruments of a policy on a grid."""
    policy = POLICIES[policy] if isinstance(policy, str) else policy
    return Meters.of(grid, place(grid, policy, network))
