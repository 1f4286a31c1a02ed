"""Weights on disk: what was saved comes back, and nothing else is taken."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from mycelium import Mycelium, MyceliumConfig
from mycelium.errors import FeederError
from mycelium.model import weights
from mycelium.model.weights import CONFIG, MODEL, NORMALISATION
from mycelium.window.normalise import Normalisation
from tests.model.windows import answers, assert_same, union

CONSTANTS = Normalisation({"bus": {"base_kv": (1.5, 0.25)}}, {"line": {"current_a": (0.1, 2.0)}}, ("a", "b"))
SOME = "backbone.layers.0.feedforward.bus.widen.weight"


def tiny() -> Mycelium:
    torch.manual_seed(0)
    return Mycelium(MyceliumConfig.tiny(), CONSTANTS)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tiny().save_pretrained(tmp_path / "dummy")
    return tmp_path / "dummy"


def rewrite(folder: Path, change: Callable[[dict[str, torch.Tensor]], Any]) -> None:
    """Change the weights of a folder, with a hash that fits."""
    state = load_file(folder / MODEL)
    change(state)
    save_file(state, folder / MODEL)
    edit(folder, lambda record: record["sha256"].update({MODEL: weights._hash(folder / MODEL)}))


def edit(folder: Path, change: Callable[[dict[str, Any]], Any], fits: bool = True) -> None:
    """Change the configuration of a folder, with a hash of the model that fits."""
    record = json.loads((folder / CONFIG).read_text())
    change(record)
    if fits:
        record["sha256"]["model"] = weights._hash_of_record(record["model"])
    (folder / CONFIG).write_text(json.dumps(record))


def test_what_was_saved_comes_back(folder: Path) -> None:
    model = Mycelium.from_pretrained(folder)
    saved = tiny()
    assert model.config == saved.config and model.normalisation == CONSTANTS
    assert not model.training
    for name, value in saved.state_dict().items():
        assert torch.equal(model.state_dict()[name], value), name
    window, _ = union()
    with torch.no_grad():
        assert_same(answers(model(window)), answers(saved.eval()(window)), 0.0)
    assert sorted(file.name for file in folder.iterdir()) == sorted([CONFIG, MODEL, NORMALISATION])


def test_a_dummy_is_small(folder: Path) -> None:
    assert sum(file.stat().st_size for file in folder.iterdir()) < 50_000


def test_half_precision_halves_the_file_and_loads_as_float32(folder: Path) -> None:
    size = (folder / MODEL).stat().st_size
    tiny().save_pretrained(folder, torch.bfloat16)
    assert (folder / MODEL).stat().st_size < 0.8 * size  # the header of a tiny model is half of it
    model = Mycelium.from_pretrained(folder)
    for name, value in tiny().state_dict().items():
        assert torch.equal(model.state_dict()[name], value.bfloat16().float()), name


def test_the_paper_in_half_precision_is_below_30_megabytes() -> None:
    assert 2 * sum(value.numel() for value in Mycelium(MyceliumConfig.paper()).parameters()) < 30e6


def test_saving_twice_writes_the_same_bytes(folder: Path, tmp_path: Path) -> None:
    tiny().save_pretrained(tmp_path / "again")
    for file in (CONFIG, MODEL, NORMALISATION):
        assert (folder / file).read_bytes() == (tmp_path / "again" / file).read_bytes()


def test_a_save_that_fails_leaves_what_was_there(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {file.name: file.read_bytes() for file in folder.iterdir()}

    def full(*_: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(weights, "save_file", full)
    with pytest.raises(OSError, match="no space"):
        tiny().save_pretrained(folder)
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before


def test_never_replaces_a_folder_of_something_else(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(FeederError, match="holds no weights"):
        tiny().save_pretrained(tmp_path)
    assert (tmp_path / "thesis.txt").read_text() == "mine"


REFUSED: dict[str, tuple[Callable[[Path], Any], str]] = {
    "a missing weight": (lambda at: rewrite(at, lambda state: state.pop(SOME)), f"{SOME} is missing"),
    "a weight too many": (
        lambda at: rewrite(at, lambda state: state.update(extra=torch.zeros(2))),
        "extra is not a part of the model",
    ),
    "another shape": (
        lambda at: rewrite(at, lambda state: state.update({SOME: torch.zeros(3, 5)})),
        f"{SOME} is 3×5, expected 4×4",
    ),
    "changed weights": (lambda at: (at / MODEL).write_bytes((at / MODEL).read_bytes()[:-1] + b"\1"), "sha256 differs"),
    "weights cut off": (lambda at: (at / MODEL).write_bytes((at / MODEL).read_bytes()[:1000]), "sha256 differs"),
    "no weights": (lambda at: (at / MODEL).unlink(), "missing"),
    "no constants": (lambda at: (at / NORMALISATION).unlink(), "missing"),
    "no configuration": (
        lambda at: (at / CONFIG).unlink(),
        "holds no config.json; expected a folder of save_pretrained",
    ),
    "a configuration that is no JSON": (lambda at: (at / CONFIG).write_text("{"), "not the configuration of a model"),
    "another format": (lambda at: edit(at, lambda record: record.update(format=0)), "format 0, expected 2"),
    "a name too many": (lambda at: edit(at, lambda record: record["model"].update(depth=3)), r"unknown \['depth'\]"),
    "a name too few": (lambda at: edit(at, lambda record: record["model"].pop("layers")), r"missing \['layers'\]"),
    "other columns": (
        lambda at: edit(at, lambda record: record["model"]["window"].pop("extended")),
        r"WindowOptions: missing \['extended'\]",
    ),
    "a size that does not fit": (
        lambda at: edit(at, lambda record: record["model"].update(heads=3)),
        "powers of two",
    ),
    "a size that is no number": (
        lambda at: edit(at, lambda record: record["model"].update(width="wide")),
        "width 'wide': expected",
    ),
    "no convolutions": (lambda at: edit(at, lambda record: record["model"].update(dilations=[1, 0])), "dilations"),
    "dropout of all": (lambda at: edit(at, lambda record: record["model"].update(dropout=1.0)), "dropout 1.0"),
    "an unknown task": (lambda at: edit(at, lambda record: record["model"].update(tasks=["weather"])), "weather"),
    "unknown links": (
        lambda at: edit(at, lambda record: record["model"]["window"].update(communication="radio")),
        "radio",
    ),
    "whole numbers": (
        lambda at: rewrite(at, lambda state: state.update({SOME: torch.zeros(4, 4, dtype=torch.int64)})),
        f"{SOME} is of torch.int64, expected floating-point",
    ),
    "weights that are no numbers": (
        lambda at: rewrite(at, lambda state: state.update({SOME: torch.full((4, 4), torch.nan)})),
        f"{SOME} has values that are no finite numbers",
    ),
    "one infinite weight": (
        lambda at: rewrite(at, lambda state: state[SOME][1, 2].fill_(torch.inf)),
        "no finite numbers",
    ),
    "another depth": (lambda at: edit(at, lambda record: record["model"].update(layers=2)), "is missing"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refuses(name: str, folder: Path) -> None:
    spoil, message = REFUSED[name]
    spoil(folder)
    with pytest.raises(FeederError, match=message) as error:
        Mycelium.from_pretrained(folder)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "change",
    [{"heads": 1}, {"dilations": [1, 1]}, {"dropout": 0.2}, {"tasks": ["state"]}, {"window.nominal_angle": False},
     {"window.communication": "random"}],
)  # fmt: skip
def test_refuses_a_configuration_that_was_altered(change: dict[str, Any], folder: Path) -> None:
    """Sizes of which no weight can tell, too."""

    def alter(record: dict[str, Any]) -> None:
        for name, value in change.items():
            place, _, last = name.rpartition(".")
            (record["model"][place] if place else record["model"])[last] = value

    edit(folder, alter, fits=False)
    with pytest.raises(FeederError, match="its model is not the one it was written with"):
        Mycelium.from_pretrained(folder)


def test_a_configuration_may_be_laid_out_anew(folder: Path) -> None:
    record = json.loads((folder / CONFIG).read_text())
    (folder / CONFIG).write_text(json.dumps(record, indent=4, sort_keys=True))
    assert Mycelium.from_pretrained(folder).config == MyceliumConfig.tiny()


def test_weights_of_the_first_format_are_brought_up_to_date(folder: Path) -> None:
    new = (folder / CONFIG).read_bytes()
    edit(folder, lambda record: (record.update(format=1), record["sha256"].pop("model")), fits=False)
    with pytest.raises(FeederError, match=r"format 1, expected 2; `python -m mycelium\.model\.weights .*dummy`"):
        Mycelium.from_pretrained(folder)
    old = (folder / CONFIG).read_bytes()
    weights.bring_up_to_date(folder)
    assert (folder / CONFIG).read_bytes() == new
    with pytest.raises(FeederError, match="format 2, expected 1"):
        weights.bring_up_to_date(folder)
    (folder / CONFIG).write_bytes(old)
    (folder / MODEL).write_bytes((folder / MODEL).read_bytes()[:-1] + b"\1")
    with pytest.raises(FeederError, match="sha256 differs"):
        weights.bring_up_to_date(folder)
    assert (folder / CONFIG).read_bytes() == old


def test_weights_that_ship_load() -> None:
    for name in (path.name for path in weights.BUNDLED.iterdir() if path.is_dir()):
        Mycelium.from_pretrained(name)


def test_a_folder_of_a_run_points_to_its_weights(folder: Path) -> None:
    run = folder.parent / "run"
    run.mkdir()
    for name in ("best", "last"):
        tiny().save_pretrained(run / name)
    with pytest.raises(FeederError, match=r"did you mean .*run/best or .*run/last\?"):
        Mycelium.from_pretrained(run)


def test_refuses_what_is_no_safetensors_file(folder: Path) -> None:
    (folder / MODEL).write_bytes(b"weights")
    edit(folder, lambda record: record["sha256"].update({MODEL: weights._hash(folder / MODEL)}))
    with pytest.raises(FeederError, match="not a safetensors file"):
        Mycelium.from_pretrained(folder)


def test_a_name_is_that_of_bundled_weights(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "BUNDLED", folder.parent)
    assert Mycelium.from_pretrained("dummy").config == MyceliumConfig.tiny()
    with pytest.raises(FeederError, match="bundled are: dummy"):
        Mycelium.from_pretrained("larger")


def test_a_long_list_of_problems_is_cut(folder: Path) -> None:
    rewrite(folder, lambda state: [state.pop(name) for name in list(state)[:20]])
    with pytest.raises(FeederError, match="and 15 more"):
        Mycelium.from_pretrained(folder)
