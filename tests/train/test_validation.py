"""Validation: every policy has its turn, however few cases a network gives, and nothing is validated on nothing."""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from mycelium.errors import FeederError
from mycelium.evaluate.frozen import simulated
from mycelium.sense.policies import POLICIES
from mycelium.train import run
from mycelium.train.processes import Processes
from mycelium.train.read_config import read_config
from mycelium.train.run import run_training
from tests.train.toy import write_catalogue, write_run

VALIDATION = ("ieee37", "ieee34", "ieee123", "lv_fourwire", "lv_town", "us_suburb")


class Others(Processes):
    """One of several processes, of which the others have something to validate, or nothing."""

    SAMPLES = 0.0

    def add(self, values: Tensor) -> Tensor:
        return values + self.SAMPLES


class Busy(Others):
    SAMPLES = 1.0


def asked(folder: Path, monkeypatch: pytest.MonkeyPatch, rank: int, world: int) -> list[tuple[str, int, str]]:
    """Network, case and policy of every sample that a process asks for, in order; none is simulated."""
    file = write_run(folder)
    write_catalogue(folder, {"ieee13": "train", **dict.fromkeys(VALIDATION, "validation")})
    found: list[tuple[str, int, str]] = []

    def noted(*arguments: Any) -> object:
        with simulated(*arguments) as samples:
            for task in samples._tasks():
                found.extend((item.network, item.case, *item.policies) for item in task.items)
        return nullcontext(SimpleNamespace(epoch=lambda: iter(()), rejected=()))

    config = read_config(file)
    pretend(Busy(torch.device("cpu"), rank, world), monkeypatch)
    monkeypatch.setattr(run, "simulated", noted)
    monkeypatch.setattr(run, "train", lambda *_: None)
    run_training(config, folder / "run")
    return found


def pretend(processes: Processes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a run be one of several processes; it waits for none, and does what the first one does."""
    monkeypatch.setattr(run, "joined", lambda device: nullcontext(processes))
    monkeypatch.setattr(Processes, "first", property(lambda self: True))
    monkeypatch.setattr(Processes, "wait", lambda self: None)


def test_few_cases_of_each_network_come_under_every_policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    samples = asked(tmp_path, monkeypatch, 0, 1)
    assert [(network, case) for network, case, _ in samples] == [(name, k) for name in VALIDATION for k in (0, 1)]
    times = Counter(policy for *_, policy in samples)
    assert set(times) == set(POLICIES) and max(times.values()) == 2
    names = list(POLICIES)
    for place, name in enumerate(VALIDATION):
        assert [p for network, _, p in samples if network == name] == names[place : place + 2]


def test_what_is_validated_does_not_depend_on_the_number_of_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = asked(tmp_path / "alone", monkeypatch, 0, 1)
    shares = [asked(tmp_path / str(rank), monkeypatch, rank, 2) for rank in range(2)]
    assert all(shares) and sorted(sample for share in shares for sample in share) == sorted(alone)


def test_validation_without_a_sample_on_any_process_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = read_config(write_run(tmp_path))  # one network, which is not the second process's
    pretend(Others(torch.device("cpu"), 1, 2), monkeypatch)
    with pytest.raises(FeederError, match="no validation case gave a sample"):
        run_training(config, tmp_path / "run")


def test_validation_that_asks_nothing_of_the_tasks_is_refused(tmp_path: Path) -> None:
    """Its loss would be 0 at once, and the first weights the best for ever: IEEE 34 has no customer in question."""
    file = write_run(tmp_path, more='[objective]\ntasks = ["phase"]\n')
    write_catalogue(tmp_path, {"ieee13": "train", "ieee34": "validation"})
    with pytest.raises(FeederError, match="no validation sample has a question of the tasks phase"):
        run_training(read_config(file), tmp_path / "run")
