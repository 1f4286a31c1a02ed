"""Everything that a model is given, on a network of every family: made of records and readings, and silent on truth."""

from __future__ import annotations

import dataclasses
import inspect
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import roc_auc_score

from mycelium.grid.grid import Grid
from mycelium.schema import CHANNELS
from mycelium.sense.policies import POLICIES
from mycelium.sense.readings import Readings
from mycelium.window.columns import WindowOptions
from mycelium.window.normalise import Normalisation
from mycelium.window.static import GridFeatures
from mycelium.window.temporal import Observer
from tests.conftest import ReferenceNetworks
from tests.leaks.windows import KINDS, Kind, bits, kind_of, mask_tables, other_truth, variants_of
from tests.sense.networks import bundled

pytestmark = pytest.mark.xdist_group("window leaks")  # one worker compiles the networks, once

DAYS = 6
FOLDS = 5


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest, reference_network: ReferenceNetworks) -> Kind:
    return kind_of(reference_network(request.param), reference_network.cache, DAYS)


def test_records_without_names_and_from_a_file_make_the_same_inputs(kind: Kind, tmp_path: Path) -> None:
    """Features are a function of the fields of the schema: a Grid that has no others gives every bit again."""
    kind.grid.without_names().save(tmp_path / "grid.npz")
    scrubbed = Grid.load(tmp_path / "grid.npz")
    features = GridFeatures.of(scrubbed, WindowOptions.everything(), Normalisation.identity())
    readings = kind.readings(kind.days[0], "observability_ami_medium", 0)
    bare = Readings.of(
        {key: np.array(readings.value[key]) for key in CHANNELS},
        {key: np.array(readings.seen[key]) for key in CHANNELS},
    )
    one, two = Observer.of(kind.features).observe(readings), Observer.of(features).observe(bare)
    for store, entries in one.entries.items():
        assert entries.place.tobytes() == two.entries[store].place.tobytes(), store
        assert entries.value.tobytes() == two.entries[store].value.tobytes(), store
    assert one.summary.tobytes() == two.summary.tobytes()
    for field in dataclasses.fields(features):
        ours, theirs = getattr(kind.features, field.name), getattr(features, field.name)
        if isinstance(ours, np.ndarray):
            assert ours.tobytes() == theirs.tobytes(), field.name
        elif isinstance(ours, dict):
            for key, value in ours.items():
                assert np.asarray(value).tobytes() == np.asarray(theirs[key]).tobytes(), (field.name, key)


def test_what_is_not_read_from_meters_does_not_reach_the_inputs(kind: Kind) -> None:
    """Positions, taps, steps, fault and energised flags turned over; what buses and customers report stays."""
    for day in kind.days[:3]:
        other = other_truth(day, with_phases=False)
        for policy in ("clean", "noisy_missing_medium"):
            one, two = kind.readings(day, policy, 3), kind.readings(other, policy, 3)
            for key, channel in CHANNELS.items():
                if channel.table in ("bus", "consumer", "der", "substation"):
                    assert one.value[key].tobytes() == two.value[key].tobytes(), key


def test_what_is_seen_depends_on_no_truth(kind: Kind) -> None:
    """Placement and losses are drawn before a day is looked at: the same sample number sees the same of any day."""
    for policy in POLICIES:
        days = [*kind.days, other_truth(kind.days[0], with_phases=True)]
        first, *others = (kind.readings(day, policy, 5) for day in days)
        for other in others:
            for key in CHANNELS:
                assert first.seen[key].tobytes() == other.seen[key].tobytes(), (policy, key)
        again = kind.readings(kind.days[0], policy, 6)
        if policy != "clean":
            assert any(again.seen[key].tobytes() != first.seen[key].tobytes() for key in CHANNELS), "losses are redrawn"


def test_which_targets_count_is_no_input(kind: Kind) -> None:
    """Energised flags decide which angles are scored; with all of them turned over the window is the same."""
    day = kind.days[-1]
    other = dataclasses.replace(day, energised=~day.energised)
    one, two = kind.batch(day, "observability_ami_dense", 2), kind.batch(other, "observability_ami_dense", 2)
    assert bits(one.window()) == bits(two.window())
    assert not np.array_equal(one.targets().angle_valid.numpy(), two.targets().angle_valid.numpy())


def test_inputs_are_made_of_records_and_readings_by_their_types() -> None:
    assert list(inspect.signature(Observer.observe).parameters) == ["self", "readings"]
    assert list(inspect.signature(GridFeatures.of).parameters) == ["grid", "options", "normalisation"]
    assert set(Readings.__dataclass_fields__) == {"layout", "place", "reported"}


# ---- a classifier that sees masks only -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def masks(reference_network: ReferenceNetworks) -> dict[str, pd.DataFrame]:
    return mask_tables([kind_of(reference_network(name), reference_network.cache, DAYS) for name in KINDS])


def test_masks_do_not_tell_phases(masks: dict[str, pd.DataFrame]) -> None:
    table = masks["phase"]
    guess = np.empty(len(table), int)
    for train, test, features in _folds(table):
        guess[test] = _fitted(features[train], table["truth"][train]).predict(features[test])
    # Seven policies see one customer: rows are not independent, customers of a case are.
    customers = len(table) / len(POLICIES)
    commonest = table["truth"].value_counts(normalize=True).max()
    right = float(np.mean(guess == table["truth"]))
    assert customers > 1000
    assert right < commonest + 3 * np.sqrt(commonest * (1 - commonest) / customers)


@pytest.mark.parametrize("task", ["switch", "fault"])
def test_masks_do_not_tell_switches_or_faults(task: str, masks: dict[str, pd.DataFrame]) -> None:
    table = masks[task]
    score = np.empty(len(table))
    for train, test, features in _folds(table):
        score[test] = _fitted(features[train], table["truth"][train]).predict_proba(features[test])[:, 1]
    assert table["truth"].sum() > 40 * len(POLICIES)
    independent = min(table["truth"].sum(), (1 - table["truth"]).sum()) / len(POLICIES)
    area = roc_auc_score(table["truth"], score)
    assert area < 0.5 + 3 * np.sqrt(1 / (12 * independent))


def test_masks_do_not_tell_added_ties() -> None:
    """On record variants, ties are switches among others: whether one is metered says nothing of its position."""
    kinds = [kind for name in ("ieee13", "ieee34") for kind in variants_of(bundled(name), 12)]
    table = mask_tables(kinds, with_ties=True)["switch"]
    score = np.empty(len(table))
    for train, test, features in _folds(table):
        score[test] = _fitted(features[train], table["truth"][train]).predict_proba(features[test])[:, 1]
    independent = min(table["truth"].sum(), (1 - table["truth"]).sum()) / len(POLICIES)
    assert independent > 60
    assert roc_auc_score(table["truth"], score) < 0.5 + 3 * np.sqrt(1 / (12 * independent))


def test_a_mask_that_follows_the_truth_would_be_found(masks: dict[str, pd.DataFrame]) -> None:
    """A meter that is a little likelier to fall silent at the faulted hour."""
    table = masks["fault"].copy()
    name = "bus 0 last"
    table[name] -= 0.1 * table["truth"]
    score = np.empty(len(table))
    for train, test, features in _folds(table):
        score[test] = _fitted(features[train], table["truth"][train]).predict_proba(features[test])[:, 1]
    assert roc_auc_score(table["truth"], score) > 0.65


def _folds(table: pd.DataFrame) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Rows to learn from and to be judged on, which are of other cases; and what is seen. [fold]"""
    cases = table.groupby(["network", "case"], sort=True).ngroup().to_numpy()
    fold = np.random.default_rng(0).permutation(cases.max() + 1)[cases] % FOLDS
    features = table.drop(columns=["truth", "network", "case"]).fillna(0.0).to_numpy(dtype=float)
    return [(np.flatnonzero(fold != k), np.flatnonzero(fold == k), features) for k in range(FOLDS)]


def _fitted(features: np.ndarray, truth: pd.Series) -> HistGradientBoostingClassifier:
    return HistGradientBoostingClassifier(max_iter=40, random_state=0).fit(features, truth)
