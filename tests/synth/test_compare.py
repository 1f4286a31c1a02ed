"""Synthetic against references: facts of feeders from first principles, two-sample statistics, the discriminator."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from mycelium.corpus.catalogue import Split, read_catalogue
from mycelium.errors import FeederError
from mycelium.feeders import feeder_path
from mycelium.grid.read_opendss import read_opendss
from mycelium.simulate.network import NetworkSource
from mycelium.synth.compare import WIDE, compare, markdown
from mycelium.synth.compare_discriminator import FEWEST, discriminate
from mycelium.synth.compare_facts import (
    SYNTHETIC,
    accepted_feeders,
    join_sites,
    read_facts,
    synthetic_facts,
    write_facts,
)
from mycelium.synth.compare_figure import draw_comparison
from mycelium.synth.library_rows import Region
from mycelium.synth.run import ACCEPTED, REJECTED
from mycelium.synth.statistics import COMPARED, FeederFacts, feeder_facts
from mycelium.synth.write import SAMPLE
from tests.shapes import REPOSITORY
from tests.synth.tiny import tiny


def facts_of(master: Path) -> FeederFacts:
    return feeder_facts(NetworkSource(master, None, "n"), "f")


def population(n: int, seed: int, shift: float = 0.0, region: Region = Region.NORTH_AMERICA) -> pd.DataFrame:
    """Feeders whose facts are all lognormal; a shift moves their logarithms."""
    rng = np.random.default_rng(seed)
    values = {fact: np.exp(rng.normal(shift, 1.0, n)) for fact in COMPARED}
    table = pd.DataFrame({"name": [f"n{k}" for k in range(n)], "family": "f", "region": region.value, **values})
    return table.assign(transformers=3)


# ---- facts of one feeder --------------------------------------------------------------------------------------------


def test_structure_is_that_of_the_records() -> None:
    grid, _, _ = read_opendss(feeder_path("us_suburb"))
    facts = facts_of(feeder_path("us_suburb"))
    assert facts.buses == len(grid.bus) and facts.loops == 3  # as its first lines say
    assert facts.region == Region.NORTH_AMERICA and 0.5 < facts.centre_tapped_share < 1.0
    european = facts_of(feeder_path("lv_town"))
    assert european.region == Region.EUROPE and european.centre_tapped_share == 0.0
    assert european.customers_per_transformer > facts.customers_per_transformer


def test_a_known_feeder(tmp_path: Path) -> None:
    facts = facts_of(tiny(tmp_path))
    assert (facts.transformers, facts.customers_per_transformer, facts.centre_tapped_share) == (2, 3.0, 1.0)
    assert facts.loops == 1 and facts.r_over_x == pytest.approx(0.3 / 0.4)  # most of the length is the main
    loading = np.hypot(1, 0.25) * np.array([9.0 / 25.0, 18.0 / 50.0])
    assert facts.transformer_loading == pytest.approx(np.median(loading))
    assert 0.0 < facts.voltage_drop_pu < 0.1
    assert facts.phase_imbalance > 0.5  # nothing is on phase C but the capacitor


def test_the_peak_hour_of_shapes_is_what_is_solved(tmp_path: Path) -> None:
    """Twice the demand in one hour of the shapes, and the sun never helps."""
    plain, shaped = tiny(tmp_path / "plain", demand_kw=(4.0, 6.0, 8.0, 10.0, 12.0, 14.0)), tiny(tmp_path / "shaped")
    mult = " ".join(["0.2"] * 17 + ["2.0"] + ["0.2"] * 6)
    text = shaped.read_text().replace("vminpu=0.5", "vminpu=0.5 daily=s")
    sun = "new pvsystem.pv phases=2 bus1=s5_c.1.2 kv=0.208 kva=5 pmpp=5 irradiance=1\n"
    head, _, tail = text.partition("new linecode.mv")
    shape = f"new loadshape.s npts=24 interval=1 mult=({mult})\n"
    shaped.write_text(head + shape + "new linecode.mv" + tail.replace("set voltagebases", sun + "set voltagebases"))
    ours, theirs = facts_of(shaped), facts_of(plain)
    for fact in ("transformer_loading", "line_loading", "voltage_drop_pu", "phase_imbalance"):
        assert getattr(ours, fact) == pytest.approx(getattr(theirs, fact), rel=1e-6), fact


def test_placeholder_demand_says_nothing_of_the_peak(tmp_path: Path) -> None:
    facts = facts_of(tiny(tmp_path, demand_kw=(1.0,) * 6))
    for fact in ("transformer_loading", "line_loading", "voltage_drop_pu", "phase_imbalance"):
        assert np.isnan(getattr(facts, fact)), fact
    assert facts.customers_per_transformer == 3.0  # but they are there


# ---- facts of many ---------------------------------------------------------------------------------------------------


def test_only_training_networks_are_references() -> None:
    known = {
        entry.name: entry.split for entry in read_catalogue(REPOSITORY / "experiments" / "reference-networks.toml")
    }
    table = read_facts()
    assert {known.get(name) for name in table["name"]} == {Split.TRAIN}
    assert set(table["region"]) == set(Region) and not table["name"].duplicated().any()


def test_only_accepted_feeders_of_a_run_are_measured(tmp_path: Path) -> None:
    for folder in (f"{ACCEPTED}/a", f"{ACCEPTED}/b.12.part", f"{REJECTED}/c"):
        tiny(tmp_path / folder)
        factors = {f"s{k}": 0.5 for k in range(6)}
        (tmp_path / folder / SAMPLE).write_text(json.dumps({"coincidence": factors}))
    assert [folder.name for folder in accepted_feeders(tmp_path)] == ["a"]
    tiny(tmp_path / ACCEPTED / "z")
    (tmp_path / ACCEPTED / "z" / SAMPLE).write_text("[]")
    seen: list[tuple[int, int]] = []
    found = synthetic_facts(tmp_path, 1, lambda done, total: seen.append((done, total)))
    assert found.table["name"].tolist() == ["a"] and found.table["family"].tolist() == [SYNTHETIC]
    assert list(found.failed) == ["z"] and seen == [(1, 2), (2, 2)]
    assert "z/sample.json: expected JSON with `coincidence`, a factor per load" in found.failed["z"]
    loading = np.hypot(1, 0.25) * np.array([9.0 / 25.0, 18.0 / 50.0])
    assert found.table["transformer_loading"].tolist() == pytest.approx([np.median(loading) / 2])
    with pytest.raises(FeederError, match=r"no accepted feeder \(feeders/\*/Master\.dss\); make some"):
        accepted_feeders(tmp_path / ACCEPTED)


def test_facts_read_back(tmp_path: Path) -> None:
    table = population(4, 0)
    write_facts(table, tmp_path / "facts.csv")
    back = read_facts(tmp_path / "facts.csv")
    assert list(back) == list(table) and np.allclose(back[list(COMPARED)], table[list(COMPARED)], rtol=1e-4)
    table.drop(columns="depth").to_csv(tmp_path / "other.csv", index=False)
    with pytest.raises(FeederError, match=r"other\.csv: lacks the columns \['depth'\]"):
        read_facts(tmp_path / "other.csv")
    assert set(table) == {field.name for field in dataclasses.fields(FeederFacts)}


def test_feeders_of_one_transformer_are_summed() -> None:
    table = population(4, 0).assign(
        name=["x.1", "x.2", "y.1", "z"], transformers=[1, 1, 1, 5], customers_per_transformer=[30.0, 12.0, 5.0, 3.0]
    )
    assert join_sites(table)["customers_per_transformer"].tolist() == pytest.approx(
        [42.0, np.nan, np.nan, 3.0], nan_ok=True
    )


# ---- two samples -----------------------------------------------------------------------------------------------------


def test_the_same_feeders_do_not_differ() -> None:
    table = population(50, 0)
    (found,) = compare(table, table)
    assert len(found.facts) == len(COMPARED) and not found.silent
    for fact in found.facts:
        assert (fact.ks, fact.larger, fact.gap) == (0.0, 0.5, "")


def test_a_shift_is_a_gap_in_its_direction() -> None:
    reference = population(60, 1)
    synthetic = population(60, 2).assign(depth=reference["depth"] * 20, loops=reference["loops"] / 20)
    (found,) = compare(synthetic, reference)
    facts = {fact.fact: fact for fact in found.facts}
    assert facts["depth"].ks > 0.7 and facts["depth"].gap.startswith("depth, hops: higher (median")
    assert facts["loops"].larger < 0.1 and "loops with ties closed: lower" in facts["loops"].gap
    assert facts["buses"].gap == "" and facts["buses"].ks < WIDE
    assert facts["depth"].larger == pytest.approx(
        np.mean(synthetic["depth"].to_numpy()[:, None] > reference["depth"].to_numpy())
    )


def test_regions_are_compared_apart_and_silence_is_named() -> None:
    reference = pd.concat([population(30, 0), population(30, 1, 5.0, Region.EUROPE).assign(line_loading=np.nan)])
    (found,) = compare(population(30, 2, 5.0, Region.EUROPE), reference)
    assert found.region is Region.EUROPE and found.silent == ("line_loading",)
    assert all(fact.n_reference == 30 and fact.gap == "" for fact in found.facts)


def test_the_discriminator_sees_what_is_there_and_nothing_else() -> None:
    reference = population(80, 0)
    for apart in discriminate(population(80, 1, shift=3.0), reference):
        assert apart.auc > 0.99
    for same in discriminate(population(80, 1), reference):
        assert abs(same.auc - 0.5) < 0.2 and same.n_reference == 80
    assert discriminate(population(FEWEST - 1, 1), reference) == ()


def test_a_gap_in_the_records_is_no_clue() -> None:
    """Half of the references do not say how loaded their lines are: nothing to tell them by."""
    reference = population(80, 0)
    reference.loc[::2, "line_loading"] = np.nan
    for found in discriminate(population(80, 1), reference):
        assert abs(found.auc - 0.5) < 0.25


def test_the_page_names_gaps_and_the_auc(tmp_path: Path) -> None:
    reference, synthetic = population(40, 0), population(40, 1).assign(buses=1e5)
    comparisons = compare(synthetic, reference)
    text = markdown(comparisons, "comparison.svg")
    assert "## North American feeders" in text and "European" not in text
    assert "Gaps (KS ≥ 0.3, p ≤ 0.01): buses: higher (median 100000" in text
    for found in comparisons[0].discrimination:
        assert f"{found.auc:.3f} ± {found.spread:.3f} ({found.classifier})" in text
    assert "No discriminator" in markdown(compare(synthetic[:5], reference), "comparison.svg")
    draw_comparison(synthetic, reference, tmp_path / "comparison.svg")
    assert "</svg>" in (tmp_path / "comparison.svg").read_text()
