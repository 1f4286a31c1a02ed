"""Where everything lies in a corpus folder, and the records of its units.

    plan.json                                  what was asked for
    units/<network>/<chunk>.json               what came of a unit: its cases, and the files that hold them
    shards/<network>/v<variant>-<chunk>.safetensors
    grids/<network>/<variant>.npz              records of the network as published (0) and of its variants
    placements/<network>/<policy>.json         which elements carry sensors
    manifest.parquet                           one row per case
    labels.json                                digest of all labels, per split
    normalisation.json                         constants of the training networks, if there are any
    checksums.sha256                           of all of these; `sha256sum -c` reads it

A unit is finished when its record is there, which is written last. The others are written when all units are finished.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mycelium.corpus.catalogue import NAME
from mycelium.corpus.files import Written, write_whole
from mycelium.corpus.labels import Record
from mycelium.corpus.plan import Unit

PLAN = "plan.json"
MANIFEST = "manifest.parquet"
LABELS = "labels.json"
CHECKSUMS = "checksums.sha256"
DAMAGED = "damaged.json"  # files that `validate` found damaged; the next build makes them again
NORMALISATION = "normalisation.json"
FIGURES = "figures"
BUILT = ("units", "shards", "grids", "placements")  # folders that a build makes


_FILE = re.compile(
    "|".join(
        (
            *(re.escape(name) for name in (PLAN, MANIFEST, LABELS, NORMALISATION)),
            rf"units/{NAME}/\d{{4,}}\.json",
            rf"shards/{NAME}/v\d+-\d{{4,}}\.safetensors",
            rf"grids/{NAME}/\d+\.npz",
            rf"placements/{NAME}/[\w-]+\.json",
        )
    ),
    re.ASCII,
)


def is_listed_kind(name: object) -> bool:
    """Whether it is the name of a file that ``CHECKSUMS`` may list.

    Names come from files that anybody may have written, and what they name is removed: nothing else will do, so that
    none leads out of the folder.
    """
    return isinstance(name, str) and _FILE.fullmatch(name) is not None


def shard_name(network: str, variant: int, chunk: int) -> str:
    return f"shards/{network}/v{variant}-{chunk:04d}.safetensors"


def grid_name(network: str, variant: int) -> str:
    return f"grids/{network}/{variant}.npz"


def placement_name(network: str, policy: str) -> str:
    return f"placements/{network}/{policy}.json"


def unit_name(unit: Unit) -> str:
    return unit_file(unit.network, unit.chunk)


def unit_file(network: str, chunk: int) -> str:
    return f"units/{network}/{chunk:04d}.json"


@dataclass(frozen=True, slots=True)
class UnitRecord:
    """What came of a unit.

    Attributes:
        network: Its network.
        chunk: Which unit of the network.
        failed: Why none of it could be simulated; empty if it could.
        cases: One record per case, in order.
        files: Every file that its cases need, by name.
    """

    network: str
    chunk: int
    failed: str
    cases: list[Record]
    files: Mapping[str, Written]

    @property
    def has_days(self) -> bool:
        return any(case["status"] == "done" for case in self.cases)

    def covers(self, unit: Unit) -> bool:
        return [case["number"] for case in self.cases] == list(unit.numbers)

    def missing(self, folder: Path) -> list[str]:
        """Its files that are not there, or not of the right size."""
        return [name for name, written in self.files.items() if _size(folder / name) != written.size]

    def write(self, folder: Path, name: str) -> None:
        files = {name: [written.size, written.sha256] for name, written in sorted(self.files.items())}
        write_whole(folder / name, (json.dumps({**asdict(self), "files": files}, indent=0) + "\n").encode())

    @staticmethod
    def read(path: Path) -> UnitRecord | None:
        """None if there is none, or it is damaged: the unit is then made again."""
        try:
            content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            files = {name: Written(*written) for name, written in content.pop("files").items()}
            record = UnitRecord(**content, files=files)
            return record if record._is_sound(path) else None
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None

    def _is_sound(self, path: Path) -> bool:
        return (
            path.as_posix().endswith(f"/{unit_file(self.network, self.chunk)}")
            and isinstance(self.failed, str)
            and all(is_listed_kind(name) for name in self.files)
            and all(isinstance(case["number"], int) and case["status"] in ("done", "rejected") for case in self.cases)
        )


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else -1
