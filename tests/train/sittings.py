"""One of two processes that train: a run as it is, and one that first one, then the other of them stops.

`torchrun --nproc-per-node 2 -m tests.train.sittings ALIKE.toml STOPPED.toml FOLDER`: it takes longest to start them, so
they train all that the tests of two processes need, and stay joined from run to run.
"""

from __future__ import annotations

import math
import sys
from contextlib import nullcontext
from pathlib import Path
from unittest import mock

from mycelium.train.processes import joined
from mycelium.train.read_config import read_config
from mycelium.train.run import run_training


def train_all(alike: Path, stopped: Path, folder: Path, rank: int) -> None:
    """Train into folders of ``folder``.

    Args:
        alike: A run for ``alike``.
        stopped: A run for ``whole``, and in three sittings for ``stopped``.
        folder: Where to.
        rank: Which process this is.
    """
    assert run_training(read_config(alike), folder / "alike").finished
    config = read_config(stopped)
    assert run_training(config, folder / "whole").finished
    for who in (0, 1):  # whose time is over after a step; nobody goes on alone
        assert not run_training(config, folder / "stopped", 0.0 if rank == who else math.inf).finished
    assert run_training(config, folder / "stopped").finished


if __name__ == "__main__":
    files = [Path(text) for text in sys.argv[1:]]
    with joined("cpu") as processes, mock.patch("mycelium.train.run.joined", lambda device: nullcontext(processes)):
        assert processes.world == 2
        train_all(*files, processes.rank)
