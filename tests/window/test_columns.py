"""The columns are the paper's table, each once, and options switch whole parts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from mycelium.window.columns import (
    BACKBONE,
    ENDS,
    NODES,
    Columns,
    Communication,
    Psi,
    Relation,
    Store,
    WindowOptions,
    names,
    static_columns,
    temporal_columns,
)

BARE = WindowOptions(
    full_impedance=False, winding_connections=False, reactor_impedance=False, extended=False, feeder_head=False,
    communication=Communication.NONE, phase_head=False, nominal_angle=False, position=False,
)  # fmt: skip

# Words of the paper's table, and the columns that hold what they name.
PAPER_STATIC = {
    Store.BUS: ["base_kv", "source", "x", "y", "located"],
    Store.CONSUMER: ["tier_none", "tier_voltage", "tier_active", "tier_reactive"],
    Store.SUBSTATION: [
        "r1_ohm", "x1_ohm", "r0_ohm", "x0_ohm", "mva_sc3", "mva_sc1", "base_kv", "setpoint_pu", "angle_rad",
        "frequency_hz",
    ],
    Store.CAPACITOR: ["rated_kv", "rated_kvar", "steps", "delta", "controlled", "active_share"],
    Store.DER: ["pv", "generator", "storage", "rated_kw", "rated_kvar", "delta"],
    Store.LINE: [
        "switch", "fuse", "recloser", "length_km", "no_length", "normal_a", "emergency_a", "c1_nf", "c0_nf", "r1_ohm",
        "x1_ohm", "r0_ohm", "x0_ohm", "n_phases",
    ],
    Store.TRANSFORMER: [
        "regulator", "fuse", "recloser", "rated_kva", "turns_ratio", "n_windings", "no_load_loss_pct",
        "magnetizing_pct", "x12_pct", "x13_pct", "x23_pct", "n_phases_1", "n_phases_2",
    ],
    Store.REACTOR: ["switch", "fuse", "recloser", "n_phases"],
    Store.TERMINAL: ["winding_1", "winding_2", "winding_3"],
}  # fmt: skip
PHASES, OWN = ["a", "b", "c"], ["a", "b", "c", "own"]


def by_phase(*quantities: str, slots: list[str] = PHASES) -> list[str]:
    return [f"{quantity}_{slot}" for quantity in quantities for slot in slots]


PAPER_TEMPORAL = {
    Store.BUS: by_phase("voltage_v", slots=OWN) + by_phase("angle_deg")
    + by_phase("active_kw", "reactive_kvar", slots=OWN),
    Store.CONSUMER: ["voltage_v", "active_kw", "reactive_kvar"],
    Store.LINE: by_phase("current_a", slots=OWN),
}  # fmt: skip


def same(found: Mapping[Store, Columns], expected: Mapping[Store, list[str]]) -> None:
    for store, wanted in expected.items():
        assert list(names(found[store])) == wanted, store


def test_without_options_the_columns_are_the_papers_without_its_optional_parts() -> None:
    same(static_columns(BARE), PAPER_STATIC)
    same(temporal_columns(BARE), PAPER_TEMPORAL)
    assert set(temporal_columns(BARE)) == {*PAPER_TEMPORAL, Store.GRID}


@pytest.mark.parametrize(
    ("option", "static", "temporal"),
    [
        ("full_impedance", {Store.LINE: 12}, {}),
        ("winding_connections", {Store.TRANSFORMER: 8}, {}),
        ("reactor_impedance", {Store.REACTOR: 3}, {}),
        ("extended", {}, {Store.LINE: 8, Store.TERMINAL: 15, Store.POWER_FLOW: 3}),
        ("feeder_head", {}, {Store.SUBSTATION: 9}),
        ("phase_head", {}, {}),
        ("nominal_angle", {}, {}),
        ("position", {}, {}),
    ],
)
def test_an_option_adds_its_columns_and_no_others(
    option: str, static: dict[Store, int], temporal: dict[Store, int]
) -> None:
    with_it = replace(BARE, **{option: True})
    for columns, added in ((static_columns, static), (temporal_columns, temporal)):
        before, after = columns(BARE), columns(with_it)
        for store in Store:
            old, new = before.get(store, ()), after.get(store, ())
            assert new[: len(old)] == old
            assert len(new) - len(old) == added.get(store, 0), store


@pytest.mark.parametrize("columns", [static_columns, temporal_columns])
def test_names_are_unique_and_flags_are_never_normalised(columns: object) -> None:
    for store, found in columns(WindowOptions.everything()).items():  # type: ignore[operator]
        assert len(set(names(found))) == len(found), store
        for column in found:
            assert (column.constant == "") == (column.psi is Psi.FLAG)


def test_phases_share_their_constants_with_each_other_and_the_own_conductor() -> None:
    for store, found in temporal_columns(WindowOptions.everything()).items():
        for column in found:
            if column.name.endswith(("_a", "_b", "_c", "_own")) and store is not Store.GRID:
                assert column.constant == column.name.rsplit("_", 1)[0]


def test_eighteen_directed_relations_join_nodes() -> None:
    assert len(BACKBONE) == 9
    assert set(ENDS) == set(Relation)
    for relation in BACKBONE:
        assert set(ENDS[relation]) <= set(NODES)
