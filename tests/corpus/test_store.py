"""What is stored is what was simulated, whether read as days or as a dataset."""

from __future__ import annotations

import pickle
from dataclasses import fields

import numpy as np
import pytest

from mycelium.corpus.plan import stratum
from mycelium.corpus.store import Corpus
from mycelium.errors import FeederError
from mycelium.feeders import feeder_path
from mycelium.schema import HOURS, PHASES
from mycelium.sense.placement import place
from mycelium.sense.policies import POLICIES
from mycelium.simulate.cases import CaseMix
from mycelium.simulate.network import Network, NetworkSource
from tests.corpus.bench import SEED


@pytest.mark.parametrize("name", ["ieee13", "lv_town", "us_suburb"])
def test_a_stored_day_is_the_simulated_one(name: str, corpus: Corpus) -> None:
    network = Network(NetworkSource(feeder_path(name), None, name), CaseMix())
    cases = corpus.cases[corpus.cases["network"] == name]
    assert len(cases) >= 8
    for label, record in list(cases.iterrows())[::3]:
        number = int(record["number"])
        stored = corpus.day(label)
        simulated = network.simulate(SEED, number, stratum(name, SEED, number).mix)
        for field in fields(stored):
            if field.name == "network":
                continue
            one, two = getattr(stored, field.name), getattr(simulated, field.name)
            if isinstance(one, np.ndarray):
                assert one.dtype == two.dtype and np.array_equal(one, two), field.name
            else:
                assert one == two, field.name
    network.close()


def test_a_dataset_has_named_dimensions_over_the_map(corpus: Corpus) -> None:
    data = corpus.open("ieee13")
    cases = corpus.cases[(corpus.cases["network"] == "ieee13") & (corpus.cases["variant"] == 0)]
    assert data.v_pu.dims == ("case", "hour", "node") and data.sizes["hour"] == HOURS
    assert data.case.to_numpy().tolist() == cases["number"].tolist()
    grid = corpus.grid("ieee13")
    for phase in PHASES:
        series = data.v_pu.sel(bus="671", phase=phase)
        bus = grid.bus.index[grid.bus["name"] == "671"][0]
        node = grid.wiring.find(np.array([bus]), np.array([PHASES.index(phase) + 1]))[0]
        base = 1e3 * grid.bus["base_kv"].iat[bus]
        expected = np.stack([np.abs(corpus.day(label).v[:, node]) / base for label in cases.index])
        assert np.array_equal(series.to_numpy().reshape(expected.shape), expected)
    assert 0.5 < float(data.v_pu.sel(bus="671", phase="A").max()) < 1.2


def test_a_dataset_reads_any_part_like_the_whole(corpus: Corpus) -> None:
    data = corpus.open("lv_town")
    whole = data.load().copy(deep=True)
    lazy = corpus.open("lv_town")
    part = lazy.isel(case=[2, 0], hour=slice(3, 20, 4), node=[5, 1, 2])
    for name in ("v_pu", "angle_deg"):
        assert np.array_equal(part[name], whole[name].isel(case=[2, 0], hour=slice(3, 20, 4), node=[5, 1, 2]))
    assert np.array_equal(lazy.switch_open.isel(case=1), whole.switch_open.isel(case=1))
    assert float(lazy.v_pu.isel(case=0, hour=4, node=0)) == float(whole.v_pu[0, 4, 0])


def test_placements_are_stored_once_per_network_and_policy(corpus: Corpus) -> None:
    for name in corpus.networks:
        for policy in POLICIES.values():
            assert corpus.placement(name, policy.name) == place(corpus.grid(name), policy, name)


def test_a_corpus_travels_to_another_process(corpus: Corpus) -> None:
    label = corpus.cases.index[3]
    before = np.array(corpus.day(label).v)
    moved: Corpus = pickle.loads(pickle.dumps(corpus))
    assert np.array_equal(moved.day(label).v, before)


def test_what_is_not_there_is_said(corpus: Corpus) -> None:
    with pytest.raises(FeederError, match=r"variant 99; it has variants \[0"):
        corpus.open("lv_town", 99)
    with pytest.raises(FeederError, match="no day of network 'nowhere'"):
        corpus.open("nowhere")
    with pytest.raises(FeederError, match=r"Corpus\.networks"):
        corpus.grid("nowhere")
