"""A run can be stopped and killed anywhere and comes to the same end; so does one of two processes."""

from __future__ import annotations

import os
import shutil
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from mycelium import Mycelium
from mycelium.errors import FeederError
from mycelium.train.checkpoint import last_state
from mycelium.train.config import Scope, TrainConfig, read_config
from mycelium.train.loop import Row
from mycelium.train.run import run_training
from tests.train.toy import STEPS, curve, finish, start, write_run


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
    process = start(["train", str(file), "--out", str(run)])
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
    assert not sitting.finished
    done = curve(tmp_path / "run")
    assert 1 <= len(done) < STEPS and done == curve(whole)[: len(done)]
    state = last_state(tmp_path / "run")
    assert state is not None and int(state.name) == len(done)


def test_two_processes_have_the_losses_of_one(tmp_path: Path) -> None:
    """Up to the order of sums, which AdamW turns into a share of a step where a gradient is close to nothing."""
    file = write_run(tmp_path, model="dropout = 0.0\n", epochs=1)
    finish(start(["train", str(file), "--out", str(tmp_path / "two")], processes=2))
    run_training(read_config(file), tmp_path / "one")
    for name in ("steps.csv", "epochs.csv"):
        one, two = curve(tmp_path / "one", name), curve(tmp_path / "two", name)
        for alone, together in zip(one, two, strict=True):
            for key in ("loss", "state", "phase", "switch", "fault", "samples", "gradient_norm"):
                if key in alone:
                    assert float(together[key]) == pytest.approx(float(alone[key]), rel=1e-5), (name, key)
    for key, value in weights(tmp_path / "one" / "last").items():
        torch.testing.assert_close(weights(tmp_path / "two" / "last")[key], value, rtol=0.0, atol=2e-3)


def test_training_ends_when_patience_does(tmp_path: Path) -> None:
    file = write_run(tmp_path, epochs=50, patience=1, learning_rate=0.5)
    sitting = run_training(read_config(file), tmp_path / "run")
    assert sitting.finished and sitting.progress.epoch < 50
    losses = [float(row["loss"]) for row in curve(tmp_path / "run", "epochs.csv")]
    assert losses[-1] >= min(losses[:-1])


@pytest.mark.parametrize("scope", Scope)
def test_fine_tuning_moves_what_it_should(whole: Path, tmp_path: Path, scope: Scope) -> None:
    more = f'[finetune]\nweights = "{whole / "best"}"\nscope = "{scope}"\n[objective]\ntasks = ["switch"]\n'
    file = write_run(tmp_path, more=more, epochs=1)
    assert run_training(read_config(file), tmp_path / "run").finished
    before, after = weights(whole / "best"), weights(tmp_path / "run" / "last")
    moved = {key for key, value in before.items() if not torch.equal(after[key], value)}
    assert any(key.startswith("readouts.switch.") for key in moved)
    assert not any(key.startswith(("readouts.state.", "readouts.phase.", "readouts.fault.")) for key in moved)
    assert any(key.startswith("backbone.") for key in moved) == (scope is Scope.ALL)


def test_another_configuration_does_not_go_on_in_the_same_folder(config: Path, whole: Path) -> None:
    other = read_config(config)
    other = replace(other, objective=replace(other.objective, angle_scale=3.0))
    with pytest.raises(FeederError, match="another objective"):
        run_training(other, whole)


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


def test_recomputed_activations_change_nothing(config: Path, whole: Path, tmp_path: Path) -> None:
    recomputed: TrainConfig = read_config(config)
    recomputed = replace(recomputed, hardware=replace(recomputed.hardware, recompute=True))
    run_training(recomputed, tmp_path / "run", minutes=0.0)
    assert curve(tmp_path / "run") == curve(whole)[:1]
