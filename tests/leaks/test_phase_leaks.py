"""No array of a Grid tells the phase of a customer whose phase is a question."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from mycelium.feeders import feeder_path
from mycelium.grid.grid import Grid
from mycelium.grid.read_opendss import read_opendss
from tests.leaks.bits import assert_same
from tests.leaks.rewrite import read_edited, with_phases

# Feeders with customers in question: on services of their own, with an explicit neutral, straight on a bus.
FEEDERS = {"lv_town": 40, "lv_fourwire": 10, "us_suburb": 4, "ieee13": 3}

Phases = npt.NDArray[np.int8]


def _published(feeder: str) -> tuple[Grid, Phases]:
    grid, configuration, _ = read_opendss(feeder_path(feeder))
    assert grid.n_groups == FEEDERS[feeder]
    return grid, configuration.group_phase


@pytest.mark.parametrize("turn", [1, 2])
@pytest.mark.parametrize("feeder", FEEDERS)
def test_relabelling_all_phases_changes_no_bit(feeder: str, turn: int, tmp_path: Path) -> None:
    grid, phase = _published(feeder)
    turned = ((phase + turn) % 3).astype(np.int8)
    other, configuration = read_edited(feeder, tmp_path / "other", with_phases(grid, turned))
    np.testing.assert_array_equal(configuration.group_phase, turned)
    assert_same(grid, other, tmp_path)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("feeder", FEEDERS)
def test_other_phases_customer_by_customer_change_no_bit(feeder: str, seed: int, tmp_path: Path) -> None:
    grid, phase = _published(feeder)
    drawn = np.random.default_rng(seed).integers(3, size=len(phase)).astype(np.int8)
    other, configuration = read_edited(feeder, tmp_path / "other", with_phases(grid, drawn))
    np.testing.assert_array_equal(configuration.group_phase, drawn)
    assert_same(grid, other, tmp_path)


@pytest.mark.parametrize("feeder", FEEDERS)
def test_all_customers_on_one_phase_changes_no_bit(feeder: str, tmp_path: Path) -> None:
    grid, phase = _published(feeder)
    other, configuration = read_edited(feeder, tmp_path / "other", with_phases(grid, np.zeros_like(phase)))
    assert not np.any(configuration.group_phase)
    assert_same(grid, other, tmp_path)
