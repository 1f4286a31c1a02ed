"""A run small enough for tests: two bundled feeders, the smallest model, four steps."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from mycelium.feeders import feeder_path
from tests.shapes import REPOSITORY

STEPS = 4
DEFAULTS = {"batch": 4, "samples_per_epoch": 8, "epochs": 2, "learning_rate": 0.01}


FEEDERS = {"ieee13": "train", "ieee37": "validation"}


def write_run(
    folder: Path, model: str | None = "", data: str = "", hardware: str = "", more: str = "", **optimiser: float
) -> Path:
    """A training file and its catalogue; further lines for its sections, of which [model] may be left out."""
    folder.mkdir(parents=True, exist_ok=True)
    write_catalogue(folder, FEEDERS)
    lines = "".join(f"{key} = {value}\n" for key, value in (DEFAULTS | optimiser).items())
    table = "" if model is None else f'[model]\npreset = "tiny"\n{model}'
    (folder / "run.toml").write_text(
        '[data]\ncatalogue = "feeders.toml"\ncases_per_run = 2\nnormalisation_cases = 1\n'
        f"validation_cases = 2\nworkers = 0\n{data}"
        f"{table}[optimiser]\n{lines}"
        f'[hardware]\ndevice = "cpu"\nthreads = 1\nbuses_per_batch = 40\ntensorboard = false\n{hardware}{more}'
    )
    return folder / "run.toml"


def write_catalogue(folder: Path, splits: Mapping[str, str], models: Path | None = None) -> None:
    """The catalogue of bundled feeders, or of copies of their folders in one of one's own."""
    tables = []
    for name, split in splits.items():
        master = feeder_path(name) if models is None else models / name / feeder_path(name).name
        tables.append(
            f'[[network]]\nname = "{name}"\nmaster = "{os.path.relpath(master, folder)}"\n'
            f'family = "bundled"\nsplit = "{split}"\n'
        )
    (folder / "feeders.toml").write_text("\n".join(tables))


def start(arguments: list[str], processes: int = 1) -> subprocess.Popen[str]:
    """A module with arguments, under torchrun where there are several processes."""
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    return subprocess.Popen(
        [sys.executable, *(launcher if processes > 1 else []), "-m", *arguments],
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
