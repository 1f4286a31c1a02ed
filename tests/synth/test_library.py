"""The component library: what is drawn from it, where it comes from, and its file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from mycelium.corpus.catalogue import Split, read_catalogue
from mycelium.errors import FeederError
from mycelium.synth.library import Library
from mycelium.synth.library_rows import (
    STATISTICS,
    Conductor,
    Construction,
    Convention,
    CustomerClass,
    Level,
    LoadRecord,
    Region,
    Role,
    Source,
    Statistic,
)
from tests.shapes import REPOSITORY

CATALOGUE = REPOSITORY / "experiments" / "reference-networks.toml"


def convention(family: str, network: str, region: Region = Region.NORTH_AMERICA) -> Convention:
    tapped = region is Region.NORTH_AMERICA
    return Convention(
        family, network, region, 60.0, 12.47, 0.24, 0.208, tapped, 1.0, False, False, False, False, 50
    )  # fmt: skip


def spans(family: str, network: str, *quantiles: float) -> Statistic:
    return Statistic(family, network, "mv_span_m", 10, quantiles)


def strangers(rows: Sequence[Source]) -> list[str]:
    """Networks of rows that are not training networks of the reference catalogue, under their own family."""
    known = {(e.family, e.name) for e in read_catalogue(CATALOGUE) if e.split is Split.TRAIN}
    return sorted({row.network for row in rows if (row.family, row.network) not in known})


# ---- where it comes from ------------------------------------------------------------------------------------------


def test_only_training_networks_contribute_to_the_builtin_library() -> None:
    rows = Library.builtin().rows
    assert strangers(rows) == []
    for split in (Split.VALIDATION, Split.TEST, Split.BENCHMARK):  # the check sees one that is not
        other = next(e for e in read_catalogue(CATALOGUE) if e.split is split)
        assert strangers([*rows, spans(other.family, other.name, 1.0)]) == [other.name]


# ---- the builtin library is physical --------------------------------------------------------------------------------


def test_builtin_conductors_are_passive_and_rated() -> None:
    for row in Library.builtin().conductors:
        own, mutual = (2 * row.r1_ohm_per_km + row.r0_ohm_per_km) / 3, (row.r0_ohm_per_km - row.r1_ohm_per_km) / 3
        resistance = np.full((row.n_phases, row.n_phases), mutual) + np.eye(row.n_phases) * (own - mutual)
        assert np.all(np.linalg.eigvalsh(resistance) > 0), row
        assert row.x1_ohm_per_km > 0 and row.ampacity_a > 0 and row.length_km > 0, row
        if row.n_phases == 1:
            assert (row.r1_ohm_per_km, row.x1_ohm_per_km) == (row.r0_ohm_per_km, row.x0_ohm_per_km)


def test_builtin_centre_taps_have_a_positive_definite_leakage() -> None:
    tapped = [row for row in Library.builtin().transformers if row.centre_tapped]
    assert tapped
    for row in tapped:
        mutual = row.x_pct - row.x_legs_pct / 2  # X12 = X13 = x, X23 = x_legs, seen from winding 1
        assert np.all(np.linalg.eigvalsh([[row.x_pct, mutual], [mutual, row.x_pct]]) > 0), row
        assert row.secondary_kv == pytest.approx(0.24, rel=0.01) and row.r_pct > 0


@pytest.mark.parametrize("region", list(Region))
def test_both_regions_have_what_a_feeder_needs(region: Region) -> None:
    library = Library.builtin()
    rng = np.random.default_rng(0)
    for _ in range(20):
        drawn = library.draw_convention(rng, region)
        assert drawn.complete and drawn.region is region and drawn.mv_kv > 1
        assert drawn.centre_tapped == (region is Region.NORTH_AMERICA)
        for name in STATISTICS:
            assert np.isfinite(library.draw_statistic(rng, drawn, name))
        for level, n in ((Level.MEDIUM, 3), (Level.LOW, 3)):
            ladder = library.conductor_ladder(drawn, level, n)
            amps, ohm = ([getattr(row, name) for row in ladder] for name in ("ampacity_a", "r1_ohm_per_km"))
            assert len(ladder) >= 3 and np.all(np.diff(amps) > 0) and np.all(np.diff(ohm) < 0)
        for role, tapped in ((Role.DISTRIBUTION, False), (Role.SUBSTATION, False)):
            ratings = [row.kva for row in library.transformer_ladder(drawn, role, 3, tapped)]
            assert len(ratings) >= 3 and np.all(np.diff(ratings) > 0)


def test_low_voltage_is_three_phase_and_shared_by_many_in_europe() -> None:
    library, rng = Library.builtin(), np.random.default_rng(0)
    name = "customers_per_{}_transformer"
    european = library.draw_convention(rng, Region.EUROPE)
    american = library.draw_convention(rng, Region.NORTH_AMERICA)
    many = library.draw_statistic(rng, european, name.format("three_phase"), 200)
    few = library.draw_statistic(rng, american, name.format("single_phase"), 200)
    assert np.median(many) > 10 * np.median(few)
    assert european.lv_three_kv == pytest.approx(np.sqrt(3) * european.lv_single_kv, rel=0.01)


def test_single_phase_records_fit_a_single_phase_service() -> None:
    library, rng = Library.builtin(), np.random.default_rng(0)
    kw, kvar = library.draw_loads(rng, CustomerClass.SINGLE_PHASE, 1000)
    assert np.all(kw > 0) and np.all(np.hypot(kw, kvar) <= 50.0)
    assert 1.0 < np.median(kw) < 10.0
    assert np.median(library.draw_loads(rng, CustomerClass.THREE_PHASE, 1000)[0]) > np.median(kw)


# ---- draws --------------------------------------------------------------------------------------------------------


def test_families_count_by_the_square_root_of_their_networks() -> None:
    rows = [LoadRecord("large", f"l{k}", CustomerClass.SINGLE_PHASE, 1.0, 0.0, 7) for k in range(16)]
    rows += [LoadRecord("small", "s", CustomerClass.SINGLE_PHASE, 2.0, 0.0, 1)]
    kw, _ = Library.of(rows).draw_loads(np.random.default_rng(0), CustomerClass.SINGLE_PHASE, 50_000)
    assert np.mean(kw == 1.0) == pytest.approx(4 / 5, abs=0.01)  # 16 to 1 networks, tempered 4 to 1


def test_a_record_counts_as_the_customers_it_stands_for() -> None:
    rows = [LoadRecord("f", "n", CustomerClass.SINGLE_PHASE, kw, 0.0, count) for kw, count in ((1.0, 3), (2.0, 1))]
    kw, _ = Library.of(rows).draw_loads(np.random.default_rng(0), CustomerClass.SINGLE_PHASE, 50_000)
    assert np.mean(kw == 1.0) == pytest.approx(3 / 4, abs=0.01)


def test_a_family_with_too_few_lends_from_its_region_then_from_all() -> None:
    american = [convention("rich", "r1"), convention("rich", "r2"), convention("poor", "p")]
    european = [convention("far", "f", Region.EUROPE)]
    statistics = [spans("rich", "r1", 1.0), spans("rich", "r2", 1.0), spans("poor", "p", 2.0)]
    library = Library.of([*american, *european, *statistics])
    rng = np.random.default_rng(0)

    def seen(of: Convention) -> set[float]:
        return {library.draw_statistic(rng, of, "mv_span_m") for _ in range(100)}

    assert seen(american[0]) == {1.0}  # two networks of its own
    assert seen(american[2]) == {1.0, 2.0}  # one of its own is too few: its region's
    assert seen(european[0]) == {1.0, 2.0}  # none in its region: all
    with pytest.raises(FeederError, match="family 'rich' needs"):
        library.draw_regulator(rng, american[0])


def test_statistics_are_drawn_between_their_quantiles_and_by_seed_alone() -> None:
    own = convention("f", "a")
    library = Library.of([own, convention("f", "b"), spans("f", "a", 1.0, 2.0, 9.0), spans("f", "b", 1.0, 2.0, 9.0)])
    drawn = [library.draw_statistic(np.random.default_rng(4), own, "mv_span_m", 2000) for _ in range(2)]
    assert np.array_equal(*drawn)
    assert drawn[0].min() >= 1.0 and drawn[0].max() <= 9.0
    assert np.median(drawn[0]) == pytest.approx(2.0, abs=0.2)
    with pytest.raises(ValueError, match="no planning statistic 'span'"):
        library.draw_statistic(np.random.default_rng(0), own, "span")


def test_a_larger_conductor_on_the_ladder_is_never_worse() -> None:
    def line(amps: float, ohm: float) -> Conductor:
        return Conductor(
            "f", "a", Level.LOW, Construction.CABLE, 3, ohm, 0.1, ohm, 0.1, 0.0, 0.0, amps, True, 1.0
        )  # fmt: skip

    good = [line(100, 1.0), line(200, 0.5), line(400, 0.2)]
    odd = line(300, 0.8)  # carries more than the second, and drops more
    ladder = Library.of([convention("f", "a"), odd, *reversed(good)]).conductor_ladder(
        convention("f", "a"), Level.LOW, 3
    )
    assert ladder == tuple(good)


# ---- the file -----------------------------------------------------------------------------------------------------


def test_a_library_reads_back_as_it_was_written(tmp_path: Path) -> None:
    library = Library.builtin()
    library.write(tmp_path / "library.parquet")
    assert Library.read(tmp_path / "library.parquet") == library
    assert (tmp_path / "library.parquet").stat().st_size < 300_000


def test_another_file_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "library.parquet"
    path.write_text("kw\n1\n")
    with pytest.raises(FeederError, match=r"library\.parquet: not a component library .*mycelium synth library"):
        Library.read(path)
    with pytest.raises(FeederError, match=r"absent\.parquet"):
        Library.read(tmp_path / "absent.parquet")
