"""Files of a corpus: written whole or not at all, and known by their sha256."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

PART = ".part"  # ending of what is being written
_PART_NAME = re.compile(rf"\.\d+({re.escape(PART)})+$")  # as ``whole`` gives it; writers may add another ending


@dataclass(frozen=True, slots=True)
class Written:
    """What a file must be.

    Attributes:
        size: In bytes.
        sha256: Hexadecimal.
    """

    size: int
    sha256: str

    @staticmethod
    def of(path: Path) -> Written:
        """As it is on disk."""
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        return Written(path.stat().st_size, digest)


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """A name to write to; at the end of the block it becomes ``path``, on disk, whole or not at all.

    The name is this process's own, so that two that write the same file do not meet.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{os.getpid()}{PART}")
    try:
        yield part
        with part.open("rb+") as file:
            os.fsync(file.fileno())
        part.replace(path)
        _sync_folder(path.parent)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def _sync_folder(folder: Path) -> None:
    if os.name == "nt":
        return  # folders cannot be opened there; a rename is on disk when it returns
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_whole(path: Path, content: bytes) -> Written:
    """Write a file in one go."""
    with whole(path) as part:
        part.write_bytes(content)
    return Written(len(content), hashlib.sha256(content).hexdigest())


def remove_parts(folder: Path, below: Iterable[str]) -> None:
    """Remove what a killed process left half written.

    Args:
        folder: Whose own files are looked at.
        below: Folders in it, of which all files are. What else is there is none of ours.
    """
    for path in [*folder.glob(f"*{PART}"), *(path for name in below for path in (folder / name).rglob(f"*{PART}"))]:
        if _PART_NAME.search(path.name):
            path.unlink(missing_ok=True)
