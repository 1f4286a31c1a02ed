"""Days on reference networks of every family: every kind of fault, the fixed point against the engine, Kirchhoff."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from mycelium.schema import FaultPlace, FaultType
from mycelium.simulate.circuit import Circuit, Rejection
from mycelium.simulate.fixed_point_day import AGREEMENT_PU
from tests.conftest import SHARED, ReferenceNetworks, require_shared
from tests.simulate.bench import LAST, case_of, fault_at, imbalance, per_unit

pytestmark = pytest.mark.xdist_group("reference networks")  # the last test counts what the others did

NETWORKS = [
    "ieee/13Bus/IEEE13Nodeckt.dss",
    "ieee/34Bus/ieee34Mod1.dss",
    "ieee/123Bus/IEEE123Master.dss",
    "ieee/4Bus-YY-Bal/4Bus-YY-Bal.DSS",
    "cimhub/ieee123x/Master.dss",
    "csiro_au_mvlv/LV/LV2_43bus/Master.dss",
    "csiro_au_mvlv/LV/LV15_137bus/Master.dss",
    "fr_roseau/MVFeeder015/Master.dss",
    "fr_roseau/MVFeeder210/Master.dss",
    "nl_eindhoven/OpenDSS/Eindhoven_RDN1.dss",
    "es_oviedo/OpenDSS/RF5.dss",
    "smartds_gso_urban/uhs11_1247/uhs11_1247--p1umv22/Master.dss",
    "smartds_sfo/p4u_substation/p4uhs0_4/Master.dss",
    "smartds_aus/p1uhs21_1247--p1udt5257/Master.dss",
    "smartds_gso_industrial/ihs3_1247--idt226/Master.dss",
    "pnnl_taxonomy/GC_12_47_1/Master.dss",
    "pnnl_taxonomy/R1_25_00_1/Master.dss",
    "enwl/network_23/Feeder_3/Master.dss",
    "enwl/network_7/Feeder_7/Master.dss",
    "enwl/network_1/Feeder_1/Master.dss",
    "csiro_enwl_4wire/network_23/Feeder_3/Master.dss",
    "csiro_enwl_4wire/network_7/Feeder_7/Master.dss",
    "dsuite/spd_r/master_scaled.dss",
    "dsuite/spd_s/master_scaled.dss",
    "iowa240/isu_model/Master.dss",
    "oedi_ieee123/qsts/master.dss",
    "smartds_sfo/p2uhs2_1247--p2udt3761/Master.dss",
]
KINDS = [(kind, place) for kind in FaultType for place in FaultPlace]
solved: Counter[tuple[FaultType, FaultPlace]] = Counter()


@pytest.mark.parametrize("name", NETWORKS)
def test_every_kind_of_fault_balances_and_both_solvers_agree(name: str, reference_network: ReferenceNetworks) -> None:
    circuit = Circuit.open(reference_network(name), reference_network.cache)
    done = 0
    for k, (kind, place) in enumerate(KINDS):
        fault = fault_at(circuit, kind, place, pick=37 * k + 5, resistance_ohm=0.02 * 2.0 ** (k % 6), x=0.2 + 0.04 * k)
        if fault is None:
            continue  # no equipment with so many phases
        try:
            day = circuit.solve(case := case_of(circuit, fault, scale=0.3))
        except Rejection:
            continue
        assert imbalance(circuit.grid, day, LAST) < 1e-6, f"{fault}"
        if day.solver == "fixed point":
            judge = circuit.solve_by_engine(case)
            assert np.abs(per_unit(circuit.grid, day.v - judge.v)).max() < AGREEMENT_PU, f"{fault}"
        solved[kind, place] += 1
        done += 1
    assert done >= 3
    circuit.engine.close()


def test_every_kind_of_fault_was_exercised_on_at_least_twenty_networks() -> None:
    require_shared(SHARED)
    assert len(NETWORKS) >= 20
    assert all(solved[kind] >= 20 for kind in KINDS), solved
