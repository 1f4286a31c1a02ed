"""No array of a Grid tells phases or switch positions, over all reference networks: a classifier is at chance."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
from sklearn.metrics import roc_auc_score

from tests.conftest import ReferenceNetworks
from tests.leaks.reference import chance, predicted, reference_tables

pytestmark = pytest.mark.xdist_group("reference leaks")  # one worker imports the networks, once

FOLDS = 5
# What the way a Grid is written decides; the rest (lengths, ratings, depth) is the utility's engineering.
WRITTEN = ["row", "row mod 2", "name", "bus1", "bus2", "conductors1", "conductors2", "group", "tie"]
NAMED = ["network", "family", "fingerprint", "truth"]


@pytest.fixture(scope="module")
def tables(reference_network: ReferenceNetworks) -> tuple[pd.DataFrame, pd.DataFrame]:
    return reference_tables(*reference_network.all())


@pytest.fixture(scope="module")
def customers(tables: tuple[pd.DataFrame, pd.DataFrame]) -> pd.DataFrame:
    found = tables[0]
    # All of Eindhoven's customers are on phase 1 in the source: cases draw them.
    return found[found["family"] != "nl_eindhoven"].reset_index(drop=True)


def _by_network(table: pd.DataFrame) -> npt.NDArray[np.int64]:
    """Folds that keep copies of a network together. [row]"""
    codes = pd.factorize(table["fingerprint"], sort=True)[0]
    return np.asarray(np.random.default_rng(0).permutation(codes.max() + 1)[codes] % FOLDS)


def _accuracy(table: pd.DataFrame, fold: npt.NDArray[np.int64]) -> float:
    return float(np.mean(predicted(table, fold).argmax(axis=1) == table["truth"]))


def test_there_is_something_to_tell(tables: tuple[pd.DataFrame, pd.DataFrame]) -> None:
    customers, switches = tables
    assert customers["network"].nunique() > 300 and len(customers) > 20_000
    assert switches["network"].nunique() > 150 and switches["truth"].sum() > 300


def test_phases_cannot_be_told_on_networks_not_seen(customers: pd.DataFrame) -> None:
    fold = _by_network(customers)
    assert _accuracy(customers, fold) < chance(customers["truth"].to_numpy(), fold) + 0.02


def test_phases_cannot_be_told_from_neighbours_on_the_same_network(customers: pd.DataFrame) -> None:
    # The classifier sees four fifths of each network's customers with their phases: order would give the rest away.
    first = customers.drop_duplicates("fingerprint")["network"]
    table = customers[customers["network"].isin(first)].reset_index(drop=True)
    fold = np.random.default_rng(1).integers(FOLDS, size=len(table))
    share = chance(table["truth"].to_numpy(), fold)
    written = [name for name in table if name in NAMED or " row" in name or "rank" in name or "group" in name]
    assert _accuracy(table[written], fold) < share + 0.02


def test_a_row_number_that_follows_the_phase_would_be_found(customers: pd.DataFrame) -> None:
    leaky = customers.sort_values(["network", "truth"], kind="stable").reset_index(drop=True)
    leaky["rank"] = leaky.groupby("network").cumcount() / leaky.groupby("network")["truth"].transform("size")
    fold = _by_network(leaky)
    assert _accuracy(leaky, fold) > chance(leaky["truth"].to_numpy(), fold) + 0.2


def test_switch_positions_cannot_be_told_from_how_records_are_written(
    tables: tuple[pd.DataFrame, pd.DataFrame],
) -> None:
    switches = tables[1]
    on_loop = switches[switches["on loop"]].reset_index(drop=True)
    written = on_loop[[*NAMED, *(name for name in WRITTEN if name in on_loop)]]
    probability = predicted(written, _by_network(on_loop))[:, 1]
    auc = roc_auc_score(on_loop["truth"], probability)
    # 164 open switches on a few dozen networks: the standard error of the area is about 0.03.
    assert auc < 0.62, f"area under the curve {auc:.2f}"


def test_an_order_of_switches_that_follows_their_position_would_be_found(
    tables: tuple[pd.DataFrame, pd.DataFrame],
) -> None:
    switches = tables[1].sort_values(["network", "truth"], kind="stable").reset_index(drop=True)
    switches["row"] = switches.groupby("network").cumcount() / switches.groupby("network")["truth"].transform("size")
    on_loop = switches[switches["on loop"]].reset_index(drop=True)
    written = on_loop[[*NAMED, *(name for name in WRITTEN if name in on_loop)]]
    assert roc_auc_score(on_loop["truth"], predicted(written, _by_network(on_loop))[:, 1]) > 0.8
