"""Training from a built corpus: its training split, all of it before any of it again; and live, by the strata."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from mycelium.corpus.catalogue import Split
from mycelium.corpus.plan import read_plan
from mycelium.errors import FeederError
from mycelium.evaluate.frozen import entries_of
from mycelium.train.config import Precision, TrainConfig
from mycelium.train.draw import draw_of, network_sizes
from mycelium.train.prepare import SIZES, prepare_training
from mycelium.train.read_config import read_config
from mycelium.train.run import run_training
from tests.corpus.bench import Serial, write_corpus
from tests.train.toy import STEPS, curve, write_run

CASES = 10


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    with pytest.MonkeyPatch.context() as patch:
        Serial(patch)(read_plan(write_corpus(folder, {"ieee13": "train", "ieee37": "test"}, CASES)), folder / "built")
    return folder / "built"


def stored(built: Path, folder: Path) -> TrainConfig:
    config = read_config(write_run(folder))
    return replace(config, data=replace(config.data, corpus=built))


def test_a_stored_case_comes_again_when_all_others_have_come(built: Path, tmp_path: Path) -> None:
    config = stored(built, tmp_path)
    config = replace(config, optimiser=replace(config.optimiser, samples_per_epoch=64))
    draw = draw_of(config, [], {})
    wanted = [item for task in draw.tasks(0) for item in task.items]
    assert len(wanted) == 64 and {item.network for item in wanted} == {"ieee13"}
    times = Counter(item.case for item in wanted)
    assert max(times.values()) - min(times.values()) <= 1
    assert {item.policies[0] for item in wanted} == set(config.data.policies)
    assert [i for t in draw.tasks(0) for i in t.items] == wanted, "an epoch is a function of its number"
    assert [i for t in draw.tasks(1) for i in t.items] != wanted
    assert draw.frequency == pytest.approx((0.5, *(0.1,) * 5), abs=0.15) and sum(draw.frequency) == pytest.approx(1.0)


def test_a_run_on_a_built_corpus_comes_to_its_end(built: Path, tmp_path: Path) -> None:
    assert run_training(stored(built, tmp_path), tmp_path / "run").finished
    assert len(curve(tmp_path / "run")) == STEPS


def test_live_cases_have_the_frequencies_of_their_strata(tmp_path: Path) -> None:
    config = read_config(write_run(tmp_path))
    entries = entries_of(config.data.catalogue, Split.TRAIN, ["*"])
    draw = draw_of(config, entries, network_sizes(entries, 0))
    assert draw.frequency == (0.5, 0.1, 0.1, 0.1, 0.1, 0.1)
    small = replace(config, data=replace(config.data, most_buses=3))
    with pytest.raises(FeederError, match="all above 3 buses"):
        draw_of(small, entries, network_sizes(entries, 0))


def test_what_is_prepared_is_not_done_again(tmp_path: Path) -> None:
    config = read_config(write_run(tmp_path))
    prepare_training(config, tmp_path / "run")
    before = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "run").iterdir()}
    run_training(config, tmp_path / "run", minutes=0.0)
    assert before == {name: (tmp_path / "run" / name).stat().st_mtime_ns for name in before}
    (tmp_path / "run" / SIZES).write_text("{}")
    with pytest.raises(FeederError, match="lacks ieee13"):
        run_training(config, tmp_path / "run")


def test_half_precision_stays_close(tmp_path: Path) -> None:
    config = read_config(write_run(tmp_path))
    half = replace(config, hardware=replace(config.hardware, precision=Precision.BFLOAT16))
    for name, run in (("whole", config), ("half", half)):
        run_training(run, tmp_path / name, minutes=0.0)
    whole, rounded = (float(curve(tmp_path / name)[0]["loss"]) for name in ("whole", "half"))
    assert rounded == pytest.approx(whole, rel=0.02) and rounded != whole
