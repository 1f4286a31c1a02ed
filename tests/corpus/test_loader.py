"""Loading: every sample once, the same whoever renders it, live or stored; frozen where it must be, new where not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch

from mycelium.corpus.catalogue import Split
from mycelium.corpus.constants import fit_stored
from mycelium.corpus.live import LiveConfig, LiveNetwork, LiveSamples, weights
from mycelium.corpus.loader import StoredConfig, StoredSamples
from mycelium.corpus.pool import PoolConfig
from mycelium.corpus.store import Corpus
from mycelium.corpus.stream import stream
from mycelium.errors import FeederError
from mycelium.feeders import feeder_path
from mycelium.sense.policies import POLICIES
from mycelium.simulate.network import NetworkSource
from mycelium.window.batch import Batch
from mycelium.window.columns import WindowOptions
from mycelium.window.normalise import Normalisation
from mycelium.window.sample import SampleId
from mycelium.window.static import GridFeatures
from mycelium.window.window import map_tensors
from tests.corpus.bench import CASES, SEED

PLAIN = Normalisation.identity()
NAMES = ("noisy_missing_dense", "observability_ami_sparse")
POLICY = tuple(POLICIES[name] for name in NAMES)


def digest(batch: Batch) -> list[bytes]:
    """Every tensor of inputs and targets."""
    found: list[bytes] = []

    def add(tensor: torch.Tensor) -> torch.Tensor:
        found.append(tensor.numpy().tobytes())
        return tensor

    map_tensors(batch.window(), add)
    map_tensors(batch.targets(), add)
    return found


def digests(batches: Iterable[Batch]) -> dict[tuple[SampleId, ...], list[bytes]]:
    return {batch.samples: digest(batch) for batch in batches}


def samples(batches: Iterable[Batch]) -> list[SampleId]:
    return [sample for batch in batches for sample in batch.samples]


def network(name: str, family: str = "bundled", buses: int = 20) -> LiveNetwork:
    return LiveNetwork(name, NetworkSource(feeder_path(name), None, name), family, buses)


# ---- stored ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("split", [Split.VALIDATION, Split.BENCHMARK])
def test_every_case_comes_once_under_every_policy(corpus: Corpus, split: Split) -> None:
    with StoredSamples(corpus, split, StoredConfig(), PLAIN) as loader:
        found = samples(loader.epoch())
        cases = corpus.cases[corpus.cases["split"] == split.value]
        expected = {(n, k, p) for n, k in zip(cases["network"], cases["number"], strict=True) for p in POLICIES}
        assert {(s.network, s.number, s.policy) for s in found} == expected
        assert len(found) == len(expected) == len(loader) and not loader.rejected


def test_workers_do_not_show(corpus: Corpus) -> None:
    config = StoredConfig(POLICY, cases_per_task=3, tasks_together=2, buses_per_batch=300)
    with StoredSamples(corpus, Split.VALIDATION, config, PLAIN) as here:
        expected = digests(here.epoch())
    with StoredSamples(corpus, Split.VALIDATION, replace(config, pool=PoolConfig(2)), PLAIN) as elsewhere:
        assert digests(elsewhere.epoch()) == expected
    assert len(expected) > 3


def test_evaluation_is_frozen_and_training_is_drawn_anew(corpus: Corpus) -> None:
    config = StoredConfig(POLICY[:1], buses_per_batch=1)
    with StoredSamples(corpus, Split.VALIDATION, config, PLAIN) as frozen:
        assert digests(frozen.epoch(0)) == digests(frozen.epoch(1))
    with StoredSamples(corpus, Split.VALIDATION, replace(config, shuffle=True), PLAIN) as fresh:
        one, two = list(fresh.epoch(1)), list(fresh.epoch(2))
        again = list(fresh.epoch(1))
    assert digests(one) == digests(again) and [b.samples for b in one] == [b.samples for b in again]
    assert [s.number for s in samples(one)] != [s.number for s in samples(two)], "the order"
    by_number = {batch.samples[0].number: batch for batch in two}
    for batch in one:
        other = by_number[batch.samples[0].number]
        assert torch.equal(batch.targets().v_pu, other.targets().v_pu)
        assert batch.samples[0].draw == 1 and other.samples[0].draw == 2
        assert digest(batch) != digest(other), "noise and losses"


def test_a_policy_of_ones_own_is_rendered_beside_those_of_the_corpus(corpus: Corpus) -> None:
    own = replace(POLICIES["noisy_missing_dense"], name="mine", customer_share=0.5)
    with StoredSamples(
        corpus, Split.VALIDATION, StoredConfig((POLICIES["clean"], own), buses_per_batch=1), PLAIN
    ) as both:
        found = list(both.epoch())
        assert len(found) == len(both) and not both.rejected
    metered = {"clean": 0, "mine": 0}
    for batch in found:
        metered[batch.samples[0].policy] += int(batch.window().consumer_voltage_seen.any(dim=0).sum())
    assert 0.4 < metered["mine"] / metered["clean"] < 0.6


def test_batches_keep_to_the_budget_of_buses(corpus: Corpus) -> None:
    size = len(corpus.grid("lv_town").bus)
    with StoredSamples(corpus, Split.VALIDATION, StoredConfig(POLICY, buses_per_batch=3 * size), PLAIN) as loader:
        batches = list(loader.epoch())
    assert max(len(batch.samples) for batch in batches) == 3
    assert all(batch.window().n_buses <= 3 * size for batch in batches)


def test_large_networks_can_be_left_out_and_nothing_left_is_said(corpus: Corpus) -> None:
    with pytest.raises(FeederError, match="'validation' has no cases"):
        StoredSamples(corpus, Split.VALIDATION, StoredConfig(most_buses=3), PLAIN)


def test_constants_come_from_training_networks_alone(corpus: Corpus) -> None:
    constants = fit_stored(corpus, NAMES, cases=2)
    assert set(constants.networks) == {"ieee13"}
    manifest = corpus.manifest[corpus.manifest["split"] == Split.TRAIN.value]
    assert fit_stored(Corpus(corpus.folder, manifest), NAMES, cases=2) == constants
    with pytest.raises(FeederError, match="no training networks"):
        fit_stored(Corpus(corpus.folder, corpus.manifest[corpus.manifest["split"] == "test"]))


def test_without_the_nominal_reference_angles_are_scaled_as_what_they_are(corpus: Corpus) -> None:
    """A degree more must be as visible on phase B as on A, which is near zero."""
    usual, plain = (fit_stored(corpus, NAMES, cases=2, nominal_angle=flag) for flag in (True, False))
    assert plain.temporal["bus"]["angle_deg"][1] > 30 * usual.temporal["bus"]["angle_deg"][1]
    assert {**plain.temporal["bus"], "angle_deg": 0} == {**usual.temporal["bus"], "angle_deg": 0}
    middle, spread = plain.temporal["bus"]["angle_deg"]
    assert abs((np.deg2rad(120.0) - middle) / spread) < plain.core, "within what is not compressed"
    plain.save(corpus.folder.parent / "plain.json")
    assert Normalisation.load(corpus.folder.parent / "plain.json") == plain
    with pytest.raises(FeederError, match="nominal_angle = True"):
        GridFeatures.of(corpus.grid("ieee13"), WindowOptions(nominal_angle=False), usual)
    GridFeatures.of(corpus.grid("ieee13"), WindowOptions(nominal_angle=False), plain)


# ---- live --------------------------------------------------------------------------------------------------------

LIVE = LiveConfig(seed=SEED, cases_per_epoch=24, run=4, runs_together=2, buses_per_batch=1)


def test_a_live_case_is_the_stored_case_of_its_number(corpus: Corpus) -> None:
    """Inputs and targets, bit by bit: the corpus was built elsewhere, by other code paths."""
    stored = StoredConfig(buses_per_batch=1)
    with StoredSamples(corpus, Split.VALIDATION, stored, PLAIN) as loader:
        expected = digests(loader.epoch())
    with LiveSamples([network("lv_town")], replace(LIVE, cases_per_epoch=CASES), PLAIN) as live:
        found = digests(live.epoch(0))
    assert len(found) >= 8
    assert all(expected[key] == value for key, value in found.items())


def test_the_order_of_live_cases_depends_on_the_seed_alone() -> None:
    networks = [network("ieee13"), network("lv_town"), network("us_suburb")]
    with LiveSamples(networks, LIVE, PLAIN) as here:
        expected = [(batch.samples, digest(batch)) for batch in here.epoch(0)]
    with LiveSamples(networks, replace(LIVE, pool=PoolConfig(2)), PLAIN) as elsewhere:
        assert [(batch.samples, digest(batch)) for batch in elsewhere.epoch(0)] == expected
    with LiveSamples(networks, replace(LIVE, seed=SEED + 1), PLAIN) as other:
        assert [sample for sample, _ in expected] != [batch.samples for batch in other.epoch(0)]


def test_no_live_case_comes_twice() -> None:
    networks = [network("ieee13"), network("lv_town")]
    live = LiveSamples(networks, replace(LIVE, cases_per_epoch=400), PLAIN)
    seen: set[tuple[str, int]] = set()
    for epoch in range(3):
        tasks = list(live.tasks(epoch))
        wanted = [(task.topic, item.case) for task in tasks for item in task.items]
        assert len(wanted) == len(set(wanted)) == 400
        assert not seen & set(wanted)
        seen |= set(wanted)
    live.close()


def test_networks_are_drawn_by_their_weights() -> None:
    networks = [network("ieee13", "a", 10), network("lv_town", "a", 40), network("us_suburb", "b", 10)]
    assert np.allclose(weights(networks, 0.0, 1.0), [1 / 3, 1 / 3, 1 / 3])
    assert np.allclose(weights(networks, 0.0, 0.0), [1 / 4, 1 / 4, 1 / 2])
    assert np.allclose(weights(networks, 0.5, 0.0), [1 / 6, 1 / 3, 1 / 2])
    live = LiveSamples(networks, replace(LIVE, cases_per_epoch=4000, run=1, family_exponent=0.0), PLAIN)
    drawn = [task.topic for task in live.tasks(0)]
    live.close()
    assert abs(drawn.count("us_suburb") / 4000 - 1 / 2) < 4 * np.sqrt(0.25 / 4000)


def test_too_large_networks_leave_nothing_to_draw() -> None:
    with pytest.raises(FeederError, match="above 5 buses"):
        LiveSamples([network("ieee13")], replace(LIVE, most_buses=5), PLAIN)


def test_a_network_that_gives_nothing_is_counted_not_fatal() -> None:
    missing = LiveNetwork("gone", NetworkSource(feeder_path("ieee13").parent / "gone.dss", None), "x", 10)
    with LiveSamples([network("ieee13"), missing], LIVE, PLAIN) as live:
        found = samples(live.epoch(0))
        assert found and all(sample.network == "ieee13" for sample in found)
        assert live.delivered == len(found)
        lost = sum(count for (name, _), count in live.rejected.items() if name == "gone")
    assert lost == sum(len(task.items) for task in live.tasks(0) if task.topic == "gone") > 0


# ---- on their way to a device ------------------------------------------------------------------------------------


def test_streaming_changes_nothing_and_ends(corpus: Corpus) -> None:
    config = StoredConfig(POLICY, buses_per_batch=300)
    with StoredSamples(corpus, Split.VALIDATION, config, PLAIN) as loader:
        expected = digests(loader.epoch())
        assert digests(stream(loader.epoch(), "cpu")) == expected


def test_an_error_on_the_way_comes_out_where_batches_are_used() -> None:
    def broken() -> Iterator[Batch]:
        raise FeederError("the disk is gone")
        yield

    with pytest.raises(FeederError, match="the disk is gone"):
        next(stream(broken(), "cpu"))


def test_leaving_early_closes_the_source(corpus: Corpus) -> None:
    closed = []

    def endless(batch: Batch) -> Iterator[Batch]:
        try:
            while True:
                yield batch
        finally:
            closed.append(True)

    with StoredSamples(corpus, Split.VALIDATION, StoredConfig(POLICY), PLAIN) as loader:
        one = next(iter(loader.epoch()))
    batches = stream(endless(one), "cpu")
    next(batches)
    batches.close()  # type: ignore[attr-defined]
    assert closed == [True]
