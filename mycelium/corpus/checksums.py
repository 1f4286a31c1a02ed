"""The list of checksums of a corpus, one line per file as `sha256sum` writes them; and the note of damaged files.

Both hold names of files, and what is named in the note is removed: only names of files that a corpus has are read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from mycelium.corpus.files import write_whole
from mycelium.corpus.layout import CHECKSUMS, DAMAGED, is_listed_kind
from mycelium.errors import FeederError

_LINE = re.compile(r"([0-9a-f]{64})  (.+)")


@dataclass(frozen=True, slots=True)
class Checksums:
    """Digests of files.

    Attributes:
        digests: By name; of the lines that can be read.
        whole: Whether that is every line, in the order they are written in. Whether a file is missing, it cannot tell.
    """

    digests: Mapping[str, str]
    whole: bool

    @staticmethod
    def read(folder: Path) -> Checksums:
        """The list of a folder; raises FeederError if there is none."""
        path = folder / CHECKSUMS
        if not path.is_file():
            raise FeederError(f"{folder}: no finished corpus; `mycelium corpus build` makes it, or goes on with it")
        content = path.read_bytes()
        found = (_LINE.fullmatch(line) for line in content.decode(errors="replace").split("\n"))
        digests = {line[2]: line[1] for line in found if line is not None and is_listed_kind(line[2])}
        return Checksums(digests, content == checksums_bytes(digests))


def checksums_bytes(digests: Mapping[str, str]) -> bytes:
    """The list, by name."""
    return "".join(f"{digests[name]}  {name}\n" for name in sorted(digests)).encode()


def note_damaged(folder: Path, names: Iterable[str]) -> None:
    """Note for the next build which files it has to make again; none takes an older note away."""
    listed = sorted(names)
    if listed:
        write_whole(folder / DAMAGED, (json.dumps(listed, indent=1) + "\n").encode())
    else:
        (folder / DAMAGED).unlink(missing_ok=True)


def noted_damaged(folder: Path) -> list[str]:
    """What ``note_damaged`` wrote; raises FeederError if that is not what is there."""
    path = folder / DAMAGED
    if not path.exists():
        return []
    try:
        names = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        names = None
    if not isinstance(names, list) or not all(name == CHECKSUMS or is_listed_kind(name) for name in names):
        raise FeederError(
            f"{path}: not a list of files of a corpus; nothing was done. `mycelium corpus validate {folder}` writes it "
            "anew; then build again"
        )
    return names
