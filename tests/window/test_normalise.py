"""Constants are medians and spreads of training networks, weigh networks alike, and survive a file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mycelium.corpus.constants import add_window
from mycelium.errors import FeederError
from mycelium.window.columns import Column, Psi, Store, WindowOptions
from mycelium.window.normalise import Fit, Normalisation, normalised, squash
from mycelium.window.static import fit_static
from tests.sense.networks import FAULTED, QUIET
from tests.window.render import case_of, window_of

COLUMNS = (
    Column("v_a", Psi.PLAIN, "", shared="v"),
    Column("v_b", Psi.PLAIN, "", shared="v"),
    Column("flag", Psi.FLAG, ""),
)


def constants_of(*feeders: str) -> Normalisation:
    fit = Fit()
    for feeder in feeders:
        case = case_of(feeder, FAULTED, "noisy_missing_dense")
        fit.networks.append(feeder)
        fit_static(fit, case.grid)
        add_window(fit, window_of(case.grid, case.readings, WindowOptions.everything()))
    return fit.result()


def test_the_middle_two_thirds_set_the_scale_and_outliers_do_not() -> None:
    fit = Fit()
    values = np.random.default_rng(1).normal(3.0, 0.5, size=(4000, 3))
    fit.add_static(Store.BUS, COLUMNS, values)
    middle, spread = fit.result().static["bus"]["v"]
    assert middle == pytest.approx(3.0, abs=0.03)
    assert spread == pytest.approx(0.5 * 0.967, rel=0.05)  # two thirds of a normal lie within 0.967 deviations
    spoiled = Fit()
    values[:60] = -1e4
    spoiled.add_static(Store.BUS, COLUMNS, values)
    assert spoiled.result().static["bus"]["v"][1] == pytest.approx(spread, rel=0.1)
    assert "flag" not in fit.result().static["bus"]


def test_every_network_weighs_the_same_and_missing_values_do_not_count() -> None:
    fit = Fit()
    small, large = np.full((10, 3), np.nan), np.full((10_000, 3), np.nan)
    small[:, 0], large[:, 0] = 1.0, 5.0
    fit.add_static(Store.BUS, COLUMNS, small)
    fit.add_static(Store.BUS, COLUMNS, large)
    assert fit.result().static["bus"]["v"][0] == pytest.approx(3.0)


def test_a_column_that_never_varies_is_only_centred() -> None:
    fit = Fit()
    fit.add_static(Store.BUS, COLUMNS, np.full((5, 3), 2.5))
    assert fit.result().static["bus"]["v"] == (2.5, 1.0)


def test_normalised_training_readings_are_of_the_size_of_one() -> None:
    feeders = ("ieee13", "ieee123", "lv_town", "us_suburb")
    normalisation = constants_of(*feeders)
    assert normalisation.networks == feeders
    sizes: dict[tuple[Store, str], list[float]] = {}
    for feeder in feeders:
        case = case_of(feeder, FAULTED, "noisy_missing_dense")
        window = window_of(case.grid, case.readings, normalisation=normalisation)
        for store, part in window.temporal.items():
            values = part.value[part.seen]
            if len(values) and store is not Store.GRID:
                sizes.setdefault((store, "size"), []).append(float(values.abs().median()))
            assert float(part.value.abs().max() if part.value.numel() else 0.0) < 60.0
    for (store, _), medians in sizes.items():
        assert 0.05 < np.median(medians) < 3.0, store


def test_what_is_far_off_is_compressed_smoothly_and_in_order() -> None:
    x = np.linspace(-300.0, 300.0, 60_001)
    y = squash(x, 4.0)
    assert np.array_equal(y[np.abs(x) <= 4.0], x[np.abs(x) <= 4.0])
    assert np.all(np.diff(y) > 0.0) and np.allclose(y, -y[::-1])
    slope = np.diff(y) / np.diff(x)
    assert np.all(np.abs(np.diff(slope)) < 0.01)
    assert np.array_equal(squash(x, np.inf), x)
    assert normalised(np.array([np.nan]), np.array([[1.0], [2.0]]), 4.0).tolist() == [0.0]


def test_a_file_holds_every_digit_and_a_wrong_one_is_named(tmp_path: Path) -> None:
    normalisation = constants_of("ieee13", "lv_town")
    path = tmp_path / "normalisation.json"
    normalisation.save(path)
    assert Normalisation.load(path) == normalisation
    other = tmp_path / "other.json"
    other.write_text('{"format": 99}')
    for wrong in (other, tmp_path / "none.json"):
        with pytest.raises(FeederError, match=wrong.name):
            Normalisation.load(wrong)


def test_columns_without_constants_stay_as_they_are() -> None:
    case = case_of("lv_town", QUIET)
    bare = replace(constants_of("ieee13"), static={}, temporal={}, core=np.inf)
    one, other = window_of(case.grid, case.readings, normalisation=bare), window_of(case.grid, case.readings)
    assert all(np.array_equal(one.static[store], other.static[store]) for store in one.static)
    assert all(np.array_equal(one.temporal[s].value, other.temporal[s].value) for s in one.temporal)
