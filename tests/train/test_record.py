"""A folder belongs to one run: whatever decides the result is compared before anything goes on, or is written."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from mycelium import Mycelium
from mycelium.errors import FeederError
from mycelium.feeders import feeder_path
from mycelium.train.config import TrainConfig
from mycelium.train.prepare import NORMALISATION, SIZES, prepare_training
from mycelium.train.read_config import read_config
from mycelium.train.record import differences, shown_differences
from mycelium.train.run import run_training
from mycelium.window.normalise import Normalisation
from tests.train.toy import write_catalogue, write_run

NETWORKS = {"ieee13": "train", "ieee34": "train", "ieee37": "validation", "lv_fourwire": "validation"}


def own_run(folder: Path, **lines: str) -> Path:
    """A run on copies of bundled feeders, one a folder beside the file."""
    for name in NETWORKS:
        shutil.copytree(feeder_path(name).parent, folder / "models" / name)
    file = write_run(folder, **lines)  # type: ignore[arg-type]
    write_catalogue(folder, NETWORKS, folder / "models")
    return file


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run's file and, in ``run``, its first step; copy it."""
    folder = tmp_path_factory.mktemp("begun")
    step(own_run(folder))
    return folder


def step(file: Path) -> None:
    """One more step."""
    run_training(read_config(file), file.parent / "run", minutes=0.0)


def contents(run: Path) -> dict[str, bytes]:
    return {str(path.relative_to(run)): path.read_bytes() for path in sorted(run.rglob("*")) if path.is_file()}


def changed(old: str, new: str) -> Callable[[Path], None]:
    """Edits the training file."""

    def edit(folder: Path) -> None:
        text = (folder / "run.toml").read_text()
        assert old in text
        (folder / "run.toml").write_text(text.replace(old, new))

    return edit


def without(name: str) -> Callable[[Path], None]:
    """Takes a network out of the catalogue."""
    left = {other: split for other, split in NETWORKS.items() if other != name}
    return lambda folder: write_catalogue(folder, left, folder / "models")


def reordered(folder: Path) -> None:
    """The order decides what is drawn."""
    write_catalogue(folder, dict(reversed(NETWORKS.items())), folder / "models")


def edited_model(folder: Path) -> None:
    master = folder / "models" / "ieee37" / feeder_path("ieee37").name
    master.write_text(master.read_text() + "\n! edited\n")


def other_constants(folder: Path) -> None:
    file = folder / "run" / NORMALISATION
    file.write_text(file.read_text().replace('"core": 4.0', '"core": 3.0'))
    assert Normalisation.load(file).core == 3.0


CHANGES: dict[str, tuple[Callable[[Path], None], str]] = {
    "objective": (
        changed("[optimiser]", "[objective]\nangle_scale = 3\n[optimiser]"),
        "objective.angle_scale was 10.0",
    ),
    "pieces": (changed("buses_per_batch = 40", "buses_per_batch = 41"), "hardware.buses_per_batch was 40 and is 41"),
    "validation cases": (
        changed("validation_cases = 2", "validation_cases = 3"),
        "data.validation_cases was 2 and is 3",
    ),
    "training network gone": (without("ieee34"), "computed from something else .networks lacks 'ieee34 bundled train"),
    "validation network gone": (without("ieee37"), "holds another run .networks.validation lacks 'ieee37 bundled val"),
    "another order": (reordered, "networks has another order"),
    "model edited": (edited_model, "networks.validation lacks 'ieee37 .*and networks.validation has new 'ieee37"),
    "policies": (changed("workers = 0", 'workers = 0\npolicies = ["clean"]'), "computed from something else .policies"),
    "constants": (other_constants, "holds another run .constants was"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_folder_of_another_run_is_refused_and_left_as_it_is(name: str, begun: Path, tmp_path: Path) -> None:
    change, message = CHANGES[name]
    shutil.copytree(begun, tmp_path / "copy")
    change(tmp_path / "copy")
    before = contents(tmp_path / "copy" / "run")
    with pytest.raises(FeederError, match=message) as refused:
        step(tmp_path / "copy" / "run.toml")
    assert "another folder (--out)" in str(refused.value) and "remove" in str(refused.value)
    assert contents(tmp_path / "copy" / "run") == before


def test_what_does_not_decide_the_result_may_change(begun: Path, tmp_path: Path) -> None:
    """Another place, and how much of the machine is used; names of files, too."""
    folder = tmp_path / "elsewhere"
    shutil.copytree(begun, folder)
    (folder / "feeders.toml").rename(folder / "networks.toml")
    changed("feeders.toml", "networks.toml")(folder)
    changed("threads = 1", "threads = 2\nrecompute = true\nsave_minutes = 0.0")(folder)
    changed("cases_per_run", 'networks = ["ieee*", "lv_*"]\ncases_per_run')(folder)
    step(folder / "run.toml")
    assert "00000002" in " ".join(contents(folder / "run"))
    assert str(tmp_path) not in (folder / "run" / "run.json").read_text()


def tuned(folder: Path, weights: Path) -> Path:
    return write_run(folder, model=None, more=f'[finetune]\nweights = "{weights}"\nscope = "heads"\n')


def test_other_weights_of_the_same_name_are_other_weights(begun: Path, tmp_path: Path) -> None:
    last = begun / "run" / "last"
    moved = Mycelium.from_pretrained(last)
    next(iter(moved.parameters())).data.add_(0.5)
    moved.save_pretrained(tmp_path / "other" / "last")
    shutil.copytree(last, tmp_path / "copy" / "last")
    step(tuned(tmp_path, last))
    step(tuned(tmp_path, tmp_path / "copy" / "last"))
    with pytest.raises(FeederError, match=r"holds another run \(weights was"):
        step(tuned(tmp_path, tmp_path / "other" / "last"))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("workers = 0", 'workers = 0\npolicies = ["clean"]', "policies lacks .* more"),
        ("normalisation_cases = 1", "normalisation_cases = 2", "normalisation_cases was 1 and is 2"),
        ("workers = 0", "workers = 0\nseed = 3", "seed was 0 and is 3"),
        ("workers = 0", "workers = 0\nmost_buses = 20", "networks lacks 'ieee34"),
    ],
)
def test_prepared_constants_are_those_of_the_run(old: str, new: str, message: str, tmp_path: Path) -> None:
    file = own_run(tmp_path)
    prepare_training(read_config(file), tmp_path / "run")
    before = contents(tmp_path / "run")
    changed(old, new)(tmp_path)
    with pytest.raises(FeederError, match=rf"normalisation.json: computed from something else \(.*{message}"):
        step(file)
    assert contents(tmp_path / "run") == before
    (tmp_path / "run" / NORMALISATION).unlink()
    step(file)


def test_constants_without_their_origin_are_refused(begun: Path, tmp_path: Path) -> None:
    shutil.copytree(begun, tmp_path / "copy")
    constants = tmp_path / "copy" / "run" / NORMALISATION
    Normalisation.load(constants).save(constants)
    with pytest.raises(FeederError, match=r"computed from something else \(policies was None"):
        step(tmp_path / "copy" / "run.toml")


@pytest.mark.parametrize("content", ["{", "[]", "3", '{"ieee13": null}'])
def test_damaged_sizes_are_refused(content: str, begun: Path, tmp_path: Path) -> None:
    shutil.copytree(begun, tmp_path / "copy")
    (tmp_path / "copy" / "run" / SIZES).write_text(content)
    with pytest.raises(FeederError, match=r"networks.json: not sizes of networks \(.*\); remove it to count again"):
        step(tmp_path / "copy" / "run.toml")


def test_fine_tuning_prepares_no_constants(begun: Path, tmp_path: Path) -> None:
    config: TrainConfig = read_config(tuned(tmp_path, begun / "run" / "last"))
    prepare_training(config, tmp_path / "run")
    assert sorted(contents(tmp_path / "run")) == [SIZES]


def test_differences_name_keys_and_values() -> None:
    was = json.loads('{"a": {"b": 1, "c": [1, 2]}, "d": null, "e": [1, 2], "f": 1}')
    now = {"a": {"b": 1, "c": (2, 3, 4)}, "d": True, "e": (2, 1), "g": 1}
    found = differences(was, now)
    assert found == [
        "a.c lacks 1 and a.c has new 3 and 1 more",
        "d was None and is true",
        "e has another order",
        "f was 1 and is None",
        "g was None and is 1",
    ]
    assert shown_differences(found).endswith("e has another order; and 2 more")
    assert differences(was, was) == []
