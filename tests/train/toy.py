"""A run small enough for tests: two bundled feeders, the smallest model, four steps."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from pathlib import Path

from mycelium.feeders import feeder_path
from tests.shapes import REPOSITORY

STEPS = 4
DEFAULTS = {"batch": 4, "samples_per_epoch": 8, "epochs": 2, "learning_rate": 0.01}


def write_run(
    folder: Path, model: str = "", data: str = "", hardware: str = "", more: str = "", **optimiser: float
) -> Path:
    """A training file and its catalogue; further lines for its sections."""
    folder.mkdir(parents=True, exist_ok=True)
    tables = [
        f'[[network]]\nname = "{name}"\nmaster = "{os.path.relpath(feeder_path(name), folder)}"\n'
        f'family = "bundled"\nsplit = "{split}"\n'
        for name, split in (("ieee13", "train"), ("ieee37", "validation"))
    ]
    (folder / "feeders.toml").write_text("\n".join(tables))
    lines = "".join(f"{key} = {value}\n" for key, value in (DEFAULTS | optimiser).items())
    (folder / "run.toml").write_text(
        '[data]\ncatalogue = "feeders.toml"\ncases_per_run = 2\nnormalisation_cases = 1\n'
        f"validation_cases = 2\nworkers = 0\n{data}"
        f'[model]\npreset = "tiny"\n{model}[optimiser]\n{lines}'
        f'[hardware]\ndevice = "cpu"\nthreads = 1\nbuses_per_batch = 40\ntensorboard = false\n{hardware}{more}'
    )
    return folder / "run.toml"


def start(arguments: list[str], processes: int = 1) -> subprocess.Popen[str]:
    """The command line, under torchrun where there are several processes."""
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    return subprocess.Popen(
        [sys.executable, *(launcher if processes > 1 else []), "-m", "mycelium.cli", *arguments],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
    )  # fmt: skip


def finish(process: subprocess.Popen[str]) -> str:
    """Wait for it; what it printed."""
    out, _ = process.communicate(timeout=300)
    assert process.returncode == 0, out
    return out


def curve(run: Path, name: str = "steps.csv") -> list[dict[str, str]]:
    """A log without times."""
    with (run / name).open() as file:
        return [{key: value for key, value in row.items() if key != "seconds"} for row in csv.DictReader(file)]
