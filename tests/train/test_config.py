"""Training files: what is published is read, and what is wrong is named."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from mycelium.corpus.pool import Task
from mycelium.corpus.render import Wanted
from mycelium.errors import FeederError
from mycelium.model.config import MyceliumConfig
from mycelium.train.config import Precision, read_config
from mycelium.train.feed import Feed, FeedConfig
from mycelium.train.schedule import Patience, cosine
from tests.shapes import REPOSITORY
from tests.train.toy import write_run

PUBLISHED = [
    path
    for path in sorted((REPOSITORY / "experiments").glob("*.toml"))
    if "[optimiser]" in path.read_text() or "[hardware]" in path.read_text()
]


@pytest.mark.parametrize("path", PUBLISHED, ids=lambda path: path.stem)
def test_published_files_are_read(path: Path) -> None:
    config = read_config(path)
    assert config.data.catalogue.is_file()
    json.dumps(config.record())
    assert not any(str(path.parent) in text for text in json.dumps(config.record()).split('"')), (
        "a path of this machine"
    )


def test_the_papers_run_has_the_papers_values() -> None:
    config = read_config(REPOSITORY / "experiments" / "paper.toml")
    optimiser = config.optimiser
    assert config.model == MyceliumConfig.paper()
    assert (optimiser.learning_rate, optimiser.weight_decay, optimiser.clip) == (1e-3, 1e-2, 1.0)
    assert (optimiser.batch, optimiser.samples_per_epoch, optimiser.epochs, optimiser.patience) == (64, 12_800, 100, 10)
    assert config.data.most_buses == 10_000 and config.objective.magnitude_scale == 100.0


def test_values_are_taken_and_presets_changed(tmp_path: Path) -> None:
    file = write_run(tmp_path, model='width = 8\nwindow.communication = "none"\n', hardware='precision = "bfloat16"\n')
    config = read_config(file)
    assert config.model.width == 8 and config.model.window.communication == "none"
    assert config.model.window.extended == MyceliumConfig.tiny().window.extended
    assert config.hardware.precision is Precision.BFLOAT16


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"data": "pace = 3\n"}, r"\[data\]|data: unknown `pace`; known are"),
        ({"model": "depth = 3\n"}, r"unknown `depth`"),
        ({"model": 'width = "wide"\n'}, r"width = 'wide'; expected a whole number"),
        ({"hardware": 'precision = "half"\n'}, r"expected one of float32, bfloat16"),
        ({"data": 'policies = ["clear"]\n'}, r"policies = \['clear'\]: expected some of clean"),
        ({"samples_per_epoch": 12}, r"samples_per_epoch = 12: expected a multiple of batch × cases_per_run = 8"),
        ({"epochs": 0}, r"epochs = 0: expected at least 1"),
        ({"batch": 0}, r"batch = 0: expected at least 1"),
        ({"model": "width = 10\nheads = 4\n"}, r"\[model\]: .*10"),
        ({"more": '[objective]\ntasks = ["weather"]\n'}, r"tasks = \['weather'\]: expected some of state"),
        ({"more": '[finetune]\nscope = "heads"\n'}, r"missing 1 required .*'weights'"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, parts: dict[str, object], message: str) -> None:
    file = write_run(tmp_path, **parts)  # type: ignore[arg-type]
    with pytest.raises(FeederError, match=message):
        read_config(file)


def test_a_file_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text("data = [")
    with pytest.raises(FeederError, match="not a training file"):
        read_config(tmp_path / "run.toml")


def test_the_learning_rate_falls_along_a_cosine() -> None:
    assert cosine(0, 100, 1e-3) == 1e-3 and cosine(100, 100, 1e-3) == pytest.approx(0.0, abs=1e-18)
    assert cosine(50, 100, 1e-3) == pytest.approx(0.5e-3)
    assert cosine(25, 100, 1.0) + cosine(75, 100, 1.0) == pytest.approx(1.0)


def test_patience_counts_epochs_without_a_better_loss() -> None:
    patience = Patience()
    for loss, since in ((3.0, 0), (2.0, 0), (2.0, 1), (float("nan"), 2), (1.0, 0)):
        patience = patience.after(loss)
        assert patience.since == since and patience.improved == (since == 0)
    assert replace(patience, since=1).best == 1.0


# ---- which cases a step asks for ----------------------------------------------------------------------------------


def asked(rank: int, world: int, first: int = 0) -> list[list[tuple[str, int]]]:
    """Cases of every step of one process, none rendered: 4 groups of 4 runs of 3 cases."""
    steps: list[list[tuple[str, int]]] = []

    class Recording(Feed):
        def _sample(self, task: Task[Wanted], answer: object) -> object:  # type: ignore[override]
            return answer

        def _step(self, samples: list[object], epoch: int, step: int) -> object:  # type: ignore[override]
            steps.append([(wanted.network, wanted.case) for wanted in samples])  # type: ignore[attr-defined]
            return step

    def tasks(epoch: int):  # type: ignore[no-untyped-def]
        for run in range(16):
            yield Task(f"n{run}", tuple(Wanted(f"n{run}", case, ("clean",)) for case in range(3)))

    from mycelium.corpus.pool import PoolConfig

    with Recording(tasks, lambda: lambda wanted: wanted, FeedConfig(4, 3, 100, rank, world), PoolConfig()) as feed:  # type: ignore[arg-type,return-value]
        numbers = list(feed.epoch(0, first))
    assert numbers == list(range(first, 12))
    return steps


def test_every_case_is_asked_for_once_and_a_step_has_a_case_of_every_run() -> None:
    steps = asked(0, 1)
    assert len(steps) == 12 and all(len({network for network, _ in step}) == 4 for step in steps)
    assert len({case for step in steps for case in step}) == 48


@pytest.mark.parametrize("world", [2, 4])
def test_processes_share_each_step_evenly(world: int) -> None:
    shares = [asked(rank, world) for rank in range(world)]
    for step, alone in enumerate(asked(0, 1)):
        together = [case for share in shares for case in share[step]]
        assert sorted(together) == sorted(alone)
        assert all(len(share[step]) == 4 // world for share in shares)


@pytest.mark.parametrize("first", [1, 3, 5, 11])
def test_going_on_within_an_epoch_asks_for_the_rest(first: int) -> None:
    assert asked(0, 1, first) == asked(0, 1)[first:]


def test_a_batch_that_does_not_divide_is_refused() -> None:
    with pytest.raises(FeederError, match="does not go into 3 processes"):
        FeedConfig(64, 8, 100, 0, 3)
