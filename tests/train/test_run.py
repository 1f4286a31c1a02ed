"""A run can be stopped and killed anywhere and comes to the same end; so does one of two processes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from mycelium import Mycelium
from mycelium.errors import FeederError
from mycelium.train.checkpoint import RECORD, last_state
from mycelium.train.config import Scope, TrainConfig
from mycelium.train.loop import Row
from mycelium.train.read_config import read_config
from mycelium.train.run import run_training
from tests.train.toy import STEPS, curve, finish, start, write_run

# What these add to every score, a softmax takes away: their gradients are rounding, which AdamW makes whole steps of.
SHIFTS = (".score.3.bias", ".locate.3.bias")


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("toy"))


@pytest.fixture(scope="module")
def whole(config: Path) -> Path:
    """A run from beginning to end; look, but do not touch."""
    run = config.parent / "whole"
    assert run_training(read_config(config), run).finished
    return run


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return Mycelium.from_pretrained(folder).state_dict()


def assert_same_end(run: Path, whole: Path) -> None:
    for name in ("steps.csv", "epochs.csv"):
        assert curve(run, name) == curve(whole, name), name
    for name in ("best", "last"):
        for key, value in weights(whole / name).items():
            assert torch.equal(weights(run / name)[key], value), f"{name}: {key}"


def test_a_run_learns_and_keeps_best_and_last(whole: Path) -> None:
    steps, epochs = curve(whole), curve(whole, "epochs.csv")
    assert [int(row["step"]) for row in steps] == list(range(1, STEPS + 1))
    assert float(epochs[-1]["loss"]) < float(epochs[0]["loss"])
    assert float(epochs[-1]["best"]) == min(float(row["loss"]) for row in epochs)
    assert any(int(row["pieces"]) > 1 for row in steps), "no step was cut into pieces: the budget is not tested"
    rate = [float(row["learning_rate"]) for row in steps]
    assert rate[0] == 0.01 and rate == sorted(rate, reverse=True) and rate[-1] > 0
    state = last_state(whole)
    assert state is not None and state.name == f"{STEPS:08d}"


def test_a_finished_run_has_nothing_more_to_do(config: Path, whole: Path) -> None:
    before = (whole / "steps.csv").read_bytes()
    assert run_training(read_config(config), whole).finished
    assert (whole / "steps.csv").read_bytes() == before


def test_stopped_within_an_epoch_and_at_its_end_it_comes_to_the_same_end_bit_for_bit(config: Path, whole: Path) -> None:
    run = config.parent / "stopped"
    for steps in (1, 2):
        assert not run_training(read_config(config), run, minutes=0.0).finished
        assert len(curve(run)) == steps
    assert run_training(read_config(config), run).finished
    assert_same_end(run, whole)


def test_killed_anywhere_it_comes_to_the_same_end_bit_for_bit(config: Path, whole: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    file = write_run(tmp_path, hardware="save_minutes = 0.0\n")  # a checkpoint after every step
    process = start(["mycelium.cli", "train", str(file), "--out", str(run)])
    while process.poll() is None and (not (run / "steps.csv").is_file() or not curve(run)):
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    assert 1 <= len(curve(run)) < STEPS
    with (run / "steps.csv").open("a") as log:
        log.write("4,2,0.1")  # a row that a kill cut short
    run_training(read_config(file), run)
    assert_same_end(run, whole)


def test_interrupted_it_finishes_its_step_and_keeps_it(config: Path, whole: Path, tmp_path: Path) -> None:
    def interrupt(kind: str, row: Row) -> None:
        if row["step"] == 1:
            os.kill(os.getpid(), signal.SIGTERM)

    sitting = run_training(read_config(config), tmp_path / "run", watch=interrupt)
    assert not sitting.finished and sitting.signal is signal.SIGTERM
    done = curve(tmp_path / "run")
    assert 1 <= len(done) < STEPS and done == curve(whole)[: len(done)]
    state = last_state(tmp_path / "run")
    assert state is not None and int(state.name) == len(done)


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where two processes trained all of ``tests.train.sittings``."""
    folder = tmp_path_factory.mktemp("together")
    alike = write_run(folder / "without-dropout", model="dropout = 0.0\n", epochs=1)
    stopped = write_run(folder / "with-dropout")
    finish(start(["tests.train.sittings", str(alike), str(stopped), str(folder)], processes=2))
    return folder


def test_two_processes_have_the_losses_of_one(together: Path, tmp_path: Path) -> None:
    """Up to the order of sums, which AdamW turns into a share of a step where a gradient is close to nothing."""
    run_training(read_config(together / "without-dropout" / "run.toml"), tmp_path / "one")
    for name in ("steps.csv", "epochs.csv"):
        one, two = curve(tmp_path / "one", name), curve(together / "alike", name)
        for alone, shared in zip(one, two, strict=True):
            for key in ("loss", "state", "phase", "switch", "fault", "samples", "gradient_norm"):
                if key in alone:
                    assert float(shared[key]) == pytest.approx(float(alone[key]), rel=1e-5), (name, key)
    one, two = weights(tmp_path / "one" / "last"), weights(together / "alike" / "last")
    assert all(any(key.endswith(name) for key in one) for name in SHIFTS)
    for key, value in one.items():
        if not key.endswith(SHIFTS):
            torch.testing.assert_close(two[key], value, rtol=0.0, atol=2e-3)


def test_two_processes_stopped_by_either_come_to_the_same_end_bit_for_bit(together: Path) -> None:
    assert len(curve(together / "whole")) == STEPS
    assert_same_end(together / "stopped", together / "whole")


def test_one_process_does_not_go_on_where_two_were(together: Path) -> None:
    """Each draws its own dropout."""
    with pytest.raises(FeederError, match=r"stopped: holds another run \(processes was 2 and is 1\)"):
        run_training(read_config(together / "with-dropout" / "run.toml"), together / "stopped")


def test_training_ends_when_patience_does(tmp_path: Path) -> None:
    file = write_run(tmp_path, epochs=50, patience=1, learning_rate=0.5)
    sitting = run_training(read_config(file), tmp_path / "run")
    assert sitting.finished and sitting.progress.epoch < 50
    losses = [float(row["loss"]) for row in curve(tmp_path / "run", "epochs.csv")]
    assert losses[-1] >= min(losses[:-1])


@pytest.mark.parametrize("scope", Scope)
def test_fine_tuning_moves_what_it_should(whole: Path, tmp_path: Path, scope: Scope) -> None:
    more = f'[finetune]\nweights = "{whole / "best"}"\nscope = "{scope}"\n[objective]\ntasks = ["switch"]\n'
    file = write_run(tmp_path, model=None, more=more, epochs=1)
    assert run_training(read_config(file), tmp_path / "run").finished
    before, after = weights(whole / "best"), weights(tmp_path / "run" / "last")
    moved = {key for key, value in before.items() if not torch.equal(after[key], value)}
    assert any(key.startswith("readouts.switch.") for key in moved)
    assert not any(key.startswith(("readouts.state.", "readouts.phase.", "readouts.fault.")) for key in moved)
    assert any(key.startswith("backbone.") for key in moved) == (scope is Scope.ALL)


def test_fine_tuning_takes_the_model_of_its_weights_and_no_other(whole: Path, tmp_path: Path) -> None:
    finetune = f'[finetune]\nweights = "{whole / "best"}"\n'
    same = read_config(write_run(tmp_path, more=finetune, epochs=1))  # the preset that the weights have
    run_training(same, tmp_path / "same", minutes=0.0)
    other = read_config(write_run(tmp_path, model="width = 64\n", more=finetune))
    with pytest.raises(FeederError, match=r"not the model of \[model\] \(width was 4 and is 64\).*leave \[model\] out"):
        run_training(other, tmp_path / "other")
    tasks = write_run(tmp_path, model='tasks = ["state"]\n', epochs=1)
    assert run_training(read_config(tasks), tmp_path / "state").finished
    finetune = f'[finetune]\nweights = "{tmp_path / "state" / "best"}"\n[objective]\ntasks = ["fault"]\n'
    with pytest.raises(FeederError, match="best: has no readout for fault"):
        run_training(read_config(write_run(tmp_path, model=None, more=finetune)), tmp_path / "none")
    assert not (tmp_path / "other").exists() and not (tmp_path / "none").exists()


def test_bundled_weights_are_fine_tuned(tmp_path: Path) -> None:
    more = '[finetune]\nweights = "small"\nscope = "heads"\n'
    config = read_config(write_run(tmp_path, model=None, more=more))
    run_training(config, tmp_path / "run", minutes=0.0)
    assert Mycelium.from_pretrained(tmp_path / "run" / "last").config == Mycelium.from_pretrained("small").config


def test_a_damaged_checkpoint_is_refused(config: Path, whole: Path, tmp_path: Path) -> None:
    shutil.copytree(whole, tmp_path / "run")
    state = last_state(tmp_path / "run")
    assert state is not None
    part = state / "part-000.safetensors"
    content = bytearray(part.read_bytes())
    content[-1] ^= 1
    part.write_bytes(content)
    with pytest.raises(FeederError, match=r"part-000\.safetensors is damaged"):
        run_training(read_config(config), tmp_path / "run")


@pytest.mark.parametrize(
    "damage",
    [
        lambda state: [],
        lambda state: state | {"progress": {**state["progress"], "epoch": "second"}},
        lambda state: state | {"parts": {}},
        lambda state: state | {"parts": []},
        lambda state: state | {"run": None},
    ],
)
def test_a_damaged_record_of_a_checkpoint_is_refused(
    damage: Callable[[Any], object], config: Path, whole: Path, tmp_path: Path
) -> None:
    shutil.copytree(whole, tmp_path / "run")
    state = last_state(tmp_path / "run")
    assert state is not None
    (state / RECORD).write_text(json.dumps(damage(json.loads((state / RECORD).read_text()))))
    with pytest.raises(FeederError, match=r"not a checkpoint \(.*\); remove it"):
        run_training(read_config(config), tmp_path / "run")


@pytest.mark.parametrize(
    ("name", "line", "message"),
    [
        ("steps.csv", 1, "line 2: not a row"),
        ("steps.csv", 0, "line 1: expected step,epoch,loss"),
        ("epochs.csv", 1, "line 2: not a row"),
    ],
)
def test_a_damaged_log_is_refused(
    name: str, line: int, message: str, config: Path, whole: Path, tmp_path: Path
) -> None:
    shutil.copytree(whole, tmp_path / "run")
    lines = (whole / name).read_text().splitlines(keepends=True)
    lines[line] = "one" + lines[line][1:]
    (tmp_path / "run" / name).write_text("".join(lines))
    with pytest.raises(FeederError, match=rf"{name}: damaged \({message}.*; repair it, or remove it"):
        run_training(read_config(config), tmp_path / "run")
    (tmp_path / "run" / name).unlink()
    assert run_training(read_config(config), tmp_path / "run").finished


@pytest.mark.parametrize("name", ["best", "last", "state"])
def test_what_is_in_the_way_is_refused_before_the_first_step(name: str, config: Path, tmp_path: Path) -> None:
    target = tmp_path / "run" / name
    target.parent.mkdir()
    if name == "state":
        target.write_text("a file")
    else:
        target.mkdir()
    with pytest.raises(FeederError, match=rf"{name}: holds no .*; remove it"):
        run_training(read_config(config), tmp_path / "run")
    assert not (tmp_path / "run" / "run.json").exists() and not (tmp_path / "run" / "steps.csv").exists()


def test_an_epoch_whose_best_weights_cannot_be_written_is_not_lost(
    config: Path, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save = Mycelium.save_pretrained

    def full(model: Mycelium, folder: Path) -> None:
        if folder.name == "best":
            raise OSError("no space left on device")
        save(model, folder)

    with monkeypatch.context() as patch, pytest.raises(OSError, match="no space left"):
        patch.setattr(Mycelium, "save_pretrained", full)
        run_training(read_config(config), tmp_path / "run")
    state = last_state(tmp_path / "run")
    assert state is not None and int(state.name) == STEPS // 2 and not (tmp_path / "run" / "best").exists()
    stopped = run_training(read_config(config), tmp_path / "run", minutes=0.0)
    assert stopped.progress.epoch == 1 and stopped.progress.step == 1
    assert (tmp_path / "run" / "best").is_dir(), "the best weights are those of the checkpoint"
    run_training(read_config(config), tmp_path / "run")
    assert_same_end(tmp_path / "run", whole)


def test_recomputed_activations_change_nothing(config: Path, whole: Path, tmp_path: Path) -> None:
    recomputed: TrainConfig = read_config(config)
    recomputed = replace(recomputed, hardware=replace(recomputed.hardware, recompute=True))
    run_training(recomputed, tmp_path / "run", minutes=0.0)
    assert curve(tmp_path / "run") == curve(whole)[:1]
