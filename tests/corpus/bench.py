"""What tests of the corpus share: small corpora of bundled feeders, built here or by the command line, or broken."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from mycelium.corpus import build as building
from mycelium.corpus import finish as finishing
from mycelium.corpus.build import Progress, build
from mycelium.corpus.constants import fit_built
from mycelium.corpus.crew import Answer, answer
from mycelium.corpus.layout import FIGURES
from mycelium.corpus.plan import Plan, Unit, read_plan
from mycelium.corpus.unit import UnitBuilder
from mycelium.feeders import feeder_path
from tests.shapes import REPOSITORY

FEEDERS = {"ieee13": "train", "lv_town": "validation", "lv_fourwire": "test", "us_suburb": "benchmark"}
SEED = 3
CASES = 12  # more than a unit, less than two

# Put first on the path of a subprocess: at the FSYNCS-th time something is to be put on disk, that process, or all of
# its group, is killed, or the disk is full. Python imports it by itself, in workers too.
_BREAK = """
import errno, os, signal
left, how, real = [int(os.environ["FSYNCS"])], os.environ["HOW"], os.fsync
def fsync(handle):
    left[0] -= 1
    if left[0] <= 0 and os.environ.get("ONLY", "") in os.readlink(f"/proc/self/fd/{handle}"):
        if how == "full":
            raise OSError(errno.ENOSPC, "No space left on device", os.readlink(f"/proc/self/fd/{handle}"))
        (os.killpg if how == "group" else os.kill)(0 if how == "group" else os.getpid(), signal.SIGKILL)
    real(handle)
os.fsync = fsync
"""


def write_corpus(
    folder: Path,
    feeders: Mapping[str, str] = FEEDERS,
    cases: int = CASES,
    masters: Mapping[str, Path] | None = None,
    seed: int = SEED,
) -> Path:
    """A corpus file over bundled feeders, its catalogue beside it.

    Args:
        folder: Where they go.
        feeders: Split of each.
        cases: Per network.
        masters: Main files of networks that are no bundled feeders, or in their place.
        seed: Of all cases.
    """
    folder.mkdir(parents=True, exist_ok=True)
    tables = []
    for name, split in feeders.items():
        master = (masters or {}).get(name) or feeder_path(name)
        relative = Path(os.path.relpath(master, folder)).as_posix()
        tables.append(f'[[network]]\nname = "{name}"\nmaster = "{relative}"\nfamily = "bundled"\nsplit = "{split}"\n')
    (folder / "catalogue.toml").write_text("\n".join(tables))
    counts = "".join(f"{split} = {cases}\n" for split in sorted(set(feeders.values())))
    (folder / "corpus.toml").write_text(f'catalogue = "catalogue.toml"\nseed = {seed}\n[cases]\n{counts}')
    return folder / "corpus.toml"


def plan_of(folder: Path, feeders: Mapping[str, str] = FEEDERS, cases: int = CASES) -> Plan:
    return read_plan(write_corpus(folder, feeders, cases))


class SerialCrew:
    """One worker, in this process."""

    size = 1

    def __init__(self, folder: Path, _: int) -> None:
        self._folder = folder
        self._builder = UnitBuilder(folder)
        self._unit: Unit | None = None

    def hand(self, worker: int, unit: Unit) -> None:
        self._unit = unit

    def wait(self) -> tuple[int, Answer]:
        assert self._unit is not None
        return 0, answer(self._builder, self._unit)

    def renew(self, worker: int) -> None:
        self._builder.close()
        self._builder = UnitBuilder(self._folder)

    def close(self) -> None:
        self._builder.close()


@dataclass
class Serial:
    """Builds in this process, which saves the start of others."""

    monkeypatch: pytest.MonkeyPatch

    def __call__(self, plan: Plan, folder: Path) -> list[Progress]:
        seen: list[Progress] = []
        with self.monkeypatch.context() as patch:
            patch.setattr(building, "LocalCrew", SerialCrew)
            patch.setattr(finishing, "fit_apart", fit_built)
            build(plan, folder, workers=1, watch=seen.append)
        return seen


def folder_bytes(folder: Path) -> dict[str, bytes]:
    """Every file of a corpus but its figures."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and FIGURES not in path.relative_to(folder).parts
    }


def stamps(folder: Path) -> dict[str, int]:
    """When every file was written."""
    return {p.relative_to(folder).as_posix(): p.stat().st_mtime_ns for p in folder.rglob("*") if p.is_file()}


def start(arguments: list[str], folder: Path, **environment: str) -> subprocess.Popen[str]:
    """Start the command line in a process group of its own; with FSYNCS and HOW set, it breaks there."""
    path = [str(REPOSITORY)]
    if environment:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "sitecustomize.py").write_text(_BREAK)
        path.insert(0, str(folder))
    return subprocess.Popen(
        [sys.executable, "-m", "mycelium.cli", "corpus", *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path), **environment},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str


def run(arguments: list[str], folder: Path, **environment: str) -> Result:
    """Run the command line to its end."""
    process = start(arguments, folder, **environment)
    out, err = process.communicate(timeout=300)
    return Result(process.returncode, out, err)
