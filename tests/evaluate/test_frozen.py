"""Frozen samples are the same from a corpus on disk, its file and a catalogue; and evaluation runs on them."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from mycelium import Mycelium, MyceliumConfig
from mycelium.corpus.catalogue import Split
from mycelium.corpus.plan import read_plan
from mycelium.errors import FeederError
from mycelium.evaluate.evaluation import evaluate
from mycelium.evaluate.frozen import FrozenConfig, entries_of, open_split
from mycelium.evaluate.kept import Done, Kept
from mycelium.evaluate.scores import Scores
from mycelium.window.normalise import Normalisation
from tests.corpus.bench import SEED, Serial, write_corpus

CASES = 4
CONFIG = FrozenConfig(("clean", "noisy_missing_sparse"), options=MyceliumConfig.tiny().window)


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    return write_corpus(tmp_path, {"lv_fourwire": "test", "ieee13": "train"}, CASES)


def scored(place: Path, cases: int | None = None, config: FrozenConfig = CONFIG) -> Scores:
    torch.manual_seed(0)
    model = Mycelium(MyceliumConfig.tiny())
    with open_split(place, Split.TEST, cases, SEED, config, Normalisation.identity()) as samples:
        return evaluate(model, samples, torch.device("cpu"))


def assert_same(one: Scores, other: Scores, cases: int) -> None:
    assert one.networks == other.networks == ["lv_fourwire"]
    key = ["network", "seed", "number", "policy"]
    left, right = (np.lexsort(tuple(s.samples[name] for name in reversed(key))) for s in (one, other))
    assert one.samples.loc[left].values.tolist() == other.samples.loc[right].values.tolist()
    assert len(left) == 2 * cases
    for name, values in one.sums.items():
        np.testing.assert_allclose(values[left], other.sums[name][right], rtol=1e-4, atol=1e-5, err_msg=name)


def test_a_corpus_its_file_and_its_catalogue_give_the_same_scores(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Serial(monkeypatch)(read_plan(corpus), tmp_path / "built")
    stored = scored(tmp_path / "built")
    cases = len(stored.samples) // 2
    assert_same(stored, scored(corpus), cases)
    assert_same(stored, scored(tmp_path / "catalogue.toml", CASES), cases)
    few = scored(tmp_path / "built", 2)
    assert few.samples["number"].max() < 2 and len(few.samples) <= 4


def test_one_policy_per_case_takes_turns(corpus: Path) -> None:
    found = scored(corpus, config=FrozenConfig(CONFIG.policies, every_policy=False, options=CONFIG.options)).samples
    assert found.groupby("number")["policy"].nunique().max() == 1
    assert all(row.policy == CONFIG.policies[row.number % 2] for row in found.itertuples())


class Killed(Exception):
    pass


def test_a_killed_evaluation_goes_on_where_it_was(corpus: Path, tmp_path: Path) -> None:
    model, cpu = Mycelium(MyceliumConfig.tiny()), torch.device("cpu")
    catalogue, cases = tmp_path / "catalogue.toml", 18  # two groups: 16 cases and 2
    seen: list[int] = []

    def until(most: int) -> Callable[[int], None]:
        def tick(samples: int) -> None:
            seen.append(samples)
            if len(seen) == most:
                raise Killed

        return tick

    def run(kept: Kept, most: int = -1) -> Scores:
        seen.clear()
        with open_split(catalogue, Split.TEST, cases, SEED, CONFIG, Normalisation.identity()) as samples:
            return evaluate(model, samples, cpu, tick=until(most), kept=kept)

    whole = run(Kept(None, ""))
    file = tmp_path / "results.json"
    with pytest.raises(Killed):
        run(Kept(file, "this", 0.0), most=2)
    first = seen[1]
    again = run(Kept(file, "this", 0.0))
    assert seen[0] == first > 0 and sum(seen) == len(again.samples), "the first group was not done again"
    assert again.samples.values.tolist() == whole.samples.values.tolist()
    assert all(np.array_equal(again.sums[name], values) for name, values in whole.sums.items())
    assert Kept(file, "that").load() == Done(), "work of something else is not gone on with"
    (tmp_path / "results.json.part").write_bytes(b"no such file")
    assert Kept(file, "this").load() == Done()


def test_an_interrupted_evaluation_keeps_what_is_finished(corpus: Path, tmp_path: Path) -> None:
    """Even if it was not yet time to keep anything."""
    model, file = Mycelium(MyceliumConfig.tiny()), tmp_path / "results.json"

    def interrupt(samples: int) -> None:
        if samples:
            raise KeyboardInterrupt

    with open_split(corpus, Split.TEST, None, SEED, CONFIG, Normalisation.identity()) as samples:
        with pytest.raises(KeyboardInterrupt):
            evaluate(model, samples, torch.device("cpu"), tick=interrupt, kept=Kept(file, "this", 3600.0))
        done = Kept(file, "this").load()
        assert done.groups == 1 and len(done.samples) > 0
        again = Kept(file, "this", 3600.0)
        with pytest.raises(KeyboardInterrupt):
            evaluate(model, samples, torch.device("cpu"), tick=interrupt, kept=again)
    assert Kept(file, "this").load().samples == done.samples


def test_what_cannot_be_evaluated_on_is_told(corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "no.toml").write_text("[")
    for place, split, message in (
        (corpus, Split.BENCHMARK, "no network is in the split 'benchmark'"),
        (tmp_path / "absent.toml", Split.TEST, "not a corpus file or a catalogue: it cannot be read (No such file"),
        (tmp_path / "no.toml", Split.TEST, "not a corpus file or a catalogue"),
        (tmp_path, Split.TEST, "no finished corpus"),
    ):
        with pytest.raises(FeederError, match=re.escape(message)):
            open_split(place, split, None, 0, CONFIG, Normalisation.identity())
    with pytest.raises(FeederError, match=r"is called like enwl\.\*"):
        entries_of(tmp_path / "catalogue.toml", Split.TRAIN, ["enwl.*"])
