"""Training files: what is published is read, and what is wrong is named."""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from mycelium.corpus.pool import Task
from mycelium.corpus.render import Wanted
from mycelium.errors import FeederError
from mycelium.model.config import MyceliumConfig
from mycelium.model.weights import BUNDLED
from mycelium.train.config import Precision
from mycelium.train.feed import Feed, FeedConfig
from mycelium.train.read_config import read_config
from mycelium.train.schedule import Patience, cosine
from mycelium.window.columns import Communication
from tests.shapes import REPOSITORY
from tests.train.toy import write_run

EXPERIMENTS = REPOSITORY / "experiments"
PUBLISHED = [
    path
    for path in sorted(EXPERIMENTS.rglob("*.toml"))
    if any(word in path.read_text() for word in ("[optimiser]", "[hardware]", "base ="))
]
_TASKS = ("state", "phase", "switch", "fault")
# What each has that paper.toml has not: the rows of the paper's tables that need no synthetic networks.
ABLATIONS: dict[str, dict[str, object]] = {
    "no-communication": {"model.window.communication": "none"},
    "random-communication": {"model.window.communication": "random"},
    "no-angle-reference": {"model.window.nominal_angle": False},
    "cap-5k": {"data.most_buses": 5_000},
    "cap-20k": {"data.most_buses": 20_000},
    **{f"single-{task}": {"model.tasks": [task]} for task in _TASKS},
    **{f"heads-{task}": {"finetune": {"scope": "heads"}, "objective.tasks": [task]} for task in _TASKS},
    **{f"full-{task}": {"finetune": {"scope": "all"}, "objective.tasks": [task]} for task in _TASKS},
}


@pytest.mark.parametrize("path", PUBLISHED, ids=lambda path: str(path.relative_to(EXPERIMENTS)))
def test_published_files_are_read(path: Path) -> None:
    config = read_config(path)
    assert config.data.catalogue.is_file()
    json.dumps(config.record())
    assert not any(str(path.parent) in text for text in json.dumps(config.record()).split('"')), (
        "a path of this machine"
    )


def test_the_papers_run_has_the_papers_values() -> None:
    config = read_config(EXPERIMENTS / "paper.toml")
    optimiser = config.optimiser
    assert config.model == MyceliumConfig.paper()
    assert (optimiser.learning_rate, optimiser.weight_decay, optimiser.clip) == (1e-3, 1e-2, 1.0)
    assert (optimiser.batch, optimiser.samples_per_epoch, optimiser.epochs, optimiser.patience) == (64, 12_800, 100, 10)
    assert config.data.most_buses == 10_000 and config.objective.magnitude_scale == 100.0


@pytest.mark.parametrize("name", ABLATIONS)
def test_an_ablation_is_the_papers_run_but_for_what_its_name_says(name: str) -> None:
    config = read_config(EXPERIMENTS / "ablations" / f"{name}.toml")
    expected = read_config(EXPERIMENTS / "paper.toml").record() | {"name": name}
    for key, value in ABLATIONS[name].items():
        *tables, last = key.split(".")
        table = expected
        for part in tables:
            table = table[part]
        assert table[last] != value, "the paper's run has it already"
        table[last] = value
    assert json.loads(json.dumps(config.record())) == json.loads(json.dumps(expected))
    assert config.data.catalogue.resolve() == EXPERIMENTS / "reference-networks.toml"
    if config.finetune is not None:
        assert config.finetune.weights.resolve() == REPOSITORY / "out" / "paper" / "best"


def test_every_ablation_is_known() -> None:
    assert {path.stem for path in (EXPERIMENTS / "ablations").iterdir()} == set(ABLATIONS)


def test_a_file_says_only_how_it_differs_from_its_base(tmp_path: Path) -> None:
    """Paths of either are relative to itself, and a model may start from a preset again."""
    base = read_config(write_run(tmp_path / "a", model="width = 8\nwindow.position = false\n"))
    (tmp_path / "b").mkdir()
    file = tmp_path / "b" / "changed.toml"
    file.write_text('base = "../a/run.toml"\n[data]\ncorpus = "built"\n[model.window]\ncommunication = "none"\n')
    config = read_config(file)
    assert config.name == "changed" and base.model is not None and config.model is not None
    assert config.data == replace(base.data, corpus=tmp_path / "b" / "built", catalogue=config.data.catalogue)
    assert config.data.catalogue.resolve() == tmp_path / "a" / "feeders.toml"
    window = replace(base.model.window, communication=Communication.NONE)
    assert config.model == replace(base.model, window=window) and not window.position
    assert config.optimiser == base.optimiser and config.hardware == base.hardware
    file.write_text('base = "../a/run.toml"\n[model]\npreset = "tiny"\n')
    assert read_config(file).model == MyceliumConfig.tiny()
    for text, message in (
        ('base = "gone.toml"', "gone.toml: not a training file"),
        ("base = 3", "base = 3; expected a training file"),
        ('base = "changed.toml"', "has a `base` itself"),
        ('base = "../a/run.toml"\n[optimiser]\nbatch = 0', "changed.toml: .optimiser.: batch = 0: expected at least 1"),
    ):
        file.write_text(text)
        with pytest.raises(FeederError, match=message):
            read_config(file)


def test_weights_to_start_from_may_be_bundled_ones(tmp_path: Path) -> None:
    finetune = '[finetune]\nweights = "small"\n'
    config = read_config(write_run(tmp_path, model=None, more=finetune))
    assert config.model is None and config.finetune is not None and config.finetune.weights == BUNDLED / "small"
    shutil.copytree(BUNDLED / "small", tmp_path / "small")
    config = read_config(write_run(tmp_path, model=None, more=finetune))
    assert config.finetune is not None and config.finetune.weights == tmp_path / "small", "a folder beside the file"


def test_values_are_taken_and_presets_changed(tmp_path: Path) -> None:
    file = write_run(tmp_path, model='width = 8\nwindow.communication = "none"\n', hardware='precision = "bfloat16"\n')
    config = read_config(file)
    assert config.model is not None and config.model.width == 8 and config.model.window.communication == "none"
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
        ({"more": '[finetune]\nscope = "heads"\n'}, r"\[finetune\]: `weights` is missing"),
        ({"model": None}, r"expected \[model\] with `preset`, or \[finetune\] with `weights`"),
        ({"learning_rate": -1.0}, r"\[optimiser\]: learning_rate = -1.0: expected a number above 0"),
        ({"learning_rate": math.nan}, r"learning_rate = nan: expected a number above 0"),
        ({"learning_rate": math.inf}, r"learning_rate = inf: expected a number above 0"),
        ({"learning_rate": 10**400}, r"learning_rate = 10+…; expected a number"),
        ({"weight_decay": -1.0}, r"weight_decay = -1.0: expected at least 0"),
        ({"clip": -1.0}, r"clip = -1.0: expected a number above 0"),
        ({"clip": 0}, r"clip = 0.0: expected a number above 0"),
        ({"epochs": 2**63}, r"epochs = 9223372036854775808; expected a whole number"),
        ({"hardware": "save_minutes = -1\n"}, r"\[hardware\]: save_minutes = -1.0: expected at least 0"),
        ({"hardware": "save_minutes = nan\n"}, r"save_minutes = nan: expected at least 0"),
        ({"data": "size_exponent = 400\n"}, r"size_exponent = 400.0: expected -4 to 4"),
        ({"data": "networks = []\n"}, r"networks = \[\]: expected patterns"),
        ({"data": "policies = []\n"}, r"policies = \[\]: expected some of"),
        ({"data": 'policies = "clean"\n'}, r"policies = 'clean'; expected a list, each a text"),
        ({"data": "policies = [1]\n"}, r"policies = 1; expected a text"),
        ({"model": "window = 3\n"}, r"\[model\]: window = 3; expected a table"),
        ({"model": 'window = ["a"]\n'}, r"window = \['a'\]; expected a table"),
        ({"more": "[objective]\nangle_scale = -3\n"}, r"angle_scale = -3.0: expected at least 0"),
        ({"more": "[objective]\nmagnitude_scale = inf\n"}, r"magnitude_scale = inf: expected at least 0"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, parts: dict[str, object], message: str) -> None:
    file = write_run(tmp_path, **parts)  # type: ignore[arg-type]
    with pytest.raises(FeederError, match=message):
        read_config(file)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("threads = 1", "threads = -1", r"threads = -1: expected 0 to 1024"),
        ("workers = 0", "workers = -1", r"\[data\]: workers = -1: expected 0 to 1024"),
        ('device = "cpu"', 'device = "tpu"', r"device = 'tpu': expected one of auto, cpu, cuda"),
        ("[model]", "[[model]]", r"model = \[.*; expected a table, \[model\]"),
        ("[optimiser]", "[[optimiser]]", r"optimiser = \[.*; expected a table"),
        ('preset = "tiny"', 'preset = ["tiny"]', r"\[model\]: preset = \['tiny'\]; expected one of paper, tiny"),
        ('preset = "tiny"', "", r"\[model\]: preset is missing; expected one of paper, tiny"),
        ('catalogue = "feeders.toml"', "", r"\[data\]: `catalogue` is missing"),
        ("[data]", "[date]", r"\[data\] with `catalogue` must be there"),
    ],
)
def test_slips_are_named_in_words_of_the_file(tmp_path: Path, old: str, new: str, message: str) -> None:
    file = write_run(tmp_path)
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new))
    with pytest.raises(FeederError, match=message) as caught:
        read_config(file)
    assert "Config" not in str(caught.value) and "tuple" not in str(caught.value)


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
