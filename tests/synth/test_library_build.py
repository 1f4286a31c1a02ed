"""Building the library: what is measured on a network whose every number is known, and which networks are measured."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from mycelium.corpus.catalogue import Split
from mycelium.errors import FeederError
from mycelium.feeders import feeder_path
from mycelium.simulate.network import NetworkSource
from mycelium.synth.library import Library
from mycelium.synth.library_build import build_library, join_sites, rate_conductors, training_entries
from mycelium.synth.library_equipment import (
    conductors,
    loads,
    not_customers_because,
    transformers,
)
from mycelium.synth.library_model import Model
from mycelium.synth.library_planning import statistic, statistics
from mycelium.synth.library_rows import Conductor, Construction, CustomerClass, Level, Region, Role, Statistic
from mycelium.synth.library_settings import capacitors, convention, regulators
from tests.conftest import ReferenceNetworks
from tests.shapes import REPOSITORY
from tests.synth.tiny import tiny

CATALOGUE = REPOSITORY / "experiments" / "reference-networks.toml"


def read(master: Path) -> Model:
    return Model.read(NetworkSource(master, None, "n"), "f")


def by_name(model: Model) -> dict[str, Statistic]:
    return {found.name: found for found in statistics(model)}


# ---- one network --------------------------------------------------------------------------------------------------


def test_equipment_is_what_the_model_says(tmp_path: Path) -> None:
    model = read(tiny(tmp_path))
    lines = {(row.level, row.n_phases): row for row in conductors(model)}
    assert set(lines) == {(Level.MEDIUM, 3), (Level.MEDIUM, 1), (Level.LOW, 2)}  # the tie is no conductor
    main, triplex = lines[Level.MEDIUM, 3], lines[Level.LOW, 2]
    assert (main.r1_ohm_per_km, main.x1_ohm_per_km, main.r0_ohm_per_km, main.x0_ohm_per_km) == (0.3, 0.4, 0.6, 1.2)
    assert (main.ampacity_a, main.rated, main.length_km) == (300.0, True, pytest.approx(1.2))
    assert main.construction is Construction.OVERHEAD and triplex.construction is Construction.CABLE
    assert (2 * triplex.r1_ohm_per_km + triplex.r0_ohm_per_km) / 3 == pytest.approx(0.9 - 0.1)  # of z1 = 0.6, z0 = 1.2
    tapped = {row.kva: row for row in transformers(model)}
    assert set(tapped) == {25.0, 50.0}
    assert (tapped[25.0].role, tapped[25.0].centre_tapped, tapped[25.0].count) == (Role.DISTRIBUTION, True, 1)
    assert tapped[25.0].secondary_kv == 0.24 and tapped[25.0].r_pct == pytest.approx(0.6 + 1.2 / 2)
    assert tapped[25.0].x_pct == pytest.approx((2.0 + 2.2) / 2) and tapped[25.0].x_legs_pct == pytest.approx(1.4)


def test_settings_are_per_unit_of_the_voltage_they_hold(tmp_path: Path) -> None:
    model = read(tiny(tmp_path))
    (setting,) = regulators(model)
    assert setting.target_pu == pytest.approx(123 * 60 / 7200, abs=1e-5) and setting.delay_s == 45
    assert setting.band_pu == pytest.approx(2 * 60 / 7200, abs=1e-5) and not setting.at_substation
    (bank,) = capacitors(model)
    assert (bank.kvar, bank.n_phases, bank.control) == (9.0, 3, "voltage")
    assert (bank.on, bank.off) == pytest.approx((118 * 60 / 7199.6, 125 * 60 / 7199.6), abs=1e-4)
    style = convention(model)
    assert (style.region, style.centre_tapped, style.lv_single_kv) == (Region.NORTH_AMERICA, True, 0.24)
    assert style.mv_kv == 12.47 and style.customers == 6 and style.source_pu == 1.02


def test_planning_statistics_follow_from_the_layout(tmp_path: Path) -> None:
    found = by_name(read(tiny(tmp_path)))
    assert found["customers_per_single_phase_transformer"].quantiles == (3.0,) * 11
    utilisation = np.hypot(1, 0.25) * np.array([2 + 3 + 4, 5 + 6 + 7]) / [25.0, 50.0]
    assert found["transformer_utilisation"].quantiles[::10] == pytest.approx(np.sort(utilisation), rel=1e-3)
    assert found["kw_per_customer"].quantiles == (4.5,)
    assert found["service_span_m"].quantiles[::10] == (10.0, 60.0)
    assert found["lv_reach_m"].quantiles[::10] == pytest.approx((30.0, 60.0))
    assert found["mv_reach_km"].quantiles == (pytest.approx(1.4),)  # not over the open tie
    assert found["mv_single_phase_share"].quantiles == (pytest.approx(0.2 / 1.4, rel=1e-3),)
    assert found["mv_km_per_switch"].quantiles == (pytest.approx(1.2),)
    assert found["ties_per_switch"].quantiles == (1.0,)
    assert found["capacitor_kvar_per_kw"].quantiles == (pytest.approx(9 / 27, rel=1e-3),)
    assert found["capacitor_distance_km"].quantiles == (pytest.approx(0.6),)
    assert found["regulator_distance_km"].quantiles == (pytest.approx(0.7),)
    assert found["line_regulators"].quantiles == (1.0,) and found["pv_customer_share"].quantiles == (0.0,)


def test_a_line_drawn_in_pieces_is_one_span(tmp_path: Path) -> None:
    whole, pieces = (by_name(read(tiny(tmp_path / str(n), pieces=n))) for n in (1, 7))
    for name in ("service_span_m", "lv_reach_m", "mv_span_m", "mv_reach_km"):
        assert pieces[name].quantiles == pytest.approx(whole[name].quantiles), name
        assert pieces[name].n == whole[name].n


def test_records_stand_for_every_customer(tmp_path: Path) -> None:
    kw = (2.0, 3.0, 4.0, 5.0, 6.0, 7.0)
    rows = list(loads(read(tiny(tmp_path, demand_kw=kw))))
    assert sorted(row.kw for row in rows) == list(kw) and all(row.kvar == row.kw / 4 for row in rows)
    assert sum(row.count for row in rows) == len(kw)


@pytest.mark.parametrize(
    ("demand_kw", "why"),
    [
        ((5.0,) * 6, "placeholder: one value"),
        ((0.0,) * 6, "placeholder: no demand"),
        ((2.0, 3.0, 4.0, 80.0, 90.0, 70.0), "aggregate: more than a single-phase service carries"),
        ((2.0, 3.0, 4.0), "too few"),
    ],
)
def test_placeholders_and_aggregates_are_left_out(tmp_path: Path, demand_kw: tuple[float, ...], why: str) -> None:
    model = read(tiny(tmp_path, demand_kw=demand_kw))
    assert not_customers_because(model, CustomerClass.SINGLE_PHASE) == why
    assert not list(loads(model))


def test_demand_of_a_load_with_a_shape_is_its_peak(tmp_path: Path) -> None:
    master = tiny(tmp_path)
    shape = "new loadshape.s npts=24 interval=1 mult=(" + " ".join(["0.5"] * 23 + ["3.0"]) + ")\n"
    text = master.read_text().replace("new load.s0 ", shape + "new load.s0 daily=s ")
    master.write_text(text)
    model = read(master)
    place = model.grid.consumer["name"].tolist().index("s0")
    assert model.nominal_kw[place] == pytest.approx(3.0 * 2.0) and model.nominal_kvar[place] == pytest.approx(1.5)
    assert model.nominal_kw.sum() == pytest.approx(27.0 + 4.0)


def test_the_builtin_library_is_what_its_networks_say(reference_network: ReferenceNetworks) -> None:
    family = "smartds_aus"
    builtin = Library.builtin()
    entries = [entry for entry in training_entries(CATALOGUE) if entry.family == family]
    for entry in entries:
        _, _, name = entry.master.as_posix().partition(f"networks/{family}/")
        master = reference_network(f"{family}/{name}")  # load shapes lie beside the families
        model = Model.read(NetworkSource(master, reference_network.cache, entry.name), family)
        for kind, facts in (("loads", loads), ("transformers", transformers), ("statistics", statistics)):
            kept = [row for row in getattr(builtin, kind) if row.network == entry.name]
            assert kept == list(facts(model)), kind
        assert [row for row in builtin.conventions if row.network == entry.name] == [convention(model)]
    assert len(entries) == 2


# ---- many networks --------------------------------------------------------------------------------------------------


def catalogue(path: Path, splits: dict[str, str]) -> Path:
    tables = []
    for name, split in splits.items():
        values = {"name": name, "master": str(feeder_path(name)), "family": "bundled", "split": split}
        tables.append("[[network]]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items()))
    path.write_text("".join(tables))
    return path


def test_only_training_networks_are_measured_by_any_number_of_workers(tmp_path: Path) -> None:
    splits = {"us_suburb": "train", "ieee13": "test", "ieee34": "validation", "ieee37": "benchmark", "lv_town": "train"}
    path = catalogue(tmp_path / "networks.toml", splits)
    assert [entry.split for entry in training_entries(path)] == [Split.TRAIN, Split.TRAIN]
    seen: list[tuple[int, int]] = []
    one, _ = build_library(path, 1, lambda done, total: seen.append((done, total)))
    two, _ = build_library(path, 2, lambda done, total: None)
    assert one.networks == {"us_suburb", "lv_town"} and one == two and seen == [(1, 2), (2, 2)]
    regions = {row.network: row.region for row in one.conventions}
    assert regions == {"us_suburb": Region.NORTH_AMERICA, "lv_town": Region.EUROPE}


def test_a_catalogue_without_training_networks_is_refused(tmp_path: Path) -> None:
    path = catalogue(tmp_path / "networks.toml", {"ieee13": "test"})
    with pytest.raises(FeederError, match='no network has split = "train"'):
        training_entries(path)


def test_feeders_of_one_transformer_are_counted_together() -> None:
    name = "customers_per_three_phase_transformer"
    part = {n: statistic("f", n, name, np.array([v])) for n, v in (("f.x.1", 30.0), ("f.x.2", 12.0), ("f.y.1", 5.0))}
    whole = [statistic("f", "f.z.1", name, np.array([7.0])), statistic("f", "f.z.1", "mv_span_m", np.ones(20))]
    kept = [row for row in join_sites([*part.values(), *whole]) if isinstance(row, Statistic) and row.name == name]
    # x is the sum of its two, y a part of nobody knows what, z a network with its medium voltage
    assert {row.network: row.quantiles[0] for row in kept} == {"f.x.1": 42.0, "f.z.1": 7.0}


def test_a_line_without_a_rating_gets_that_of_its_resistance() -> None:
    def line(ohm: float, amps: float, rated: bool) -> Conductor:
        return Conductor(
            "f", "n", Level.LOW, Construction.CABLE, 3, ohm, 0.1, ohm, 0.1, 0.0, 0.0, amps, rated, 1.0
        )  # fmt: skip

    rated = [line(ohm, 200.0 * ohm**-0.5, True) for ohm in np.geomspace(0.1, 2.0, 12)]
    result = rate_conductors([*rated, line(0.25, 400.0, False)])
    assert result[:-1] == rated
    assert isinstance(result[-1], Conductor) and result[-1].ampacity_a == pytest.approx(400.0, rel=1e-3)
    assert rate_conductors([line(0.25, 400.0, False)]) == []  # nothing to learn a rating from
