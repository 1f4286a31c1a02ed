"""The catalogue: one TOML that says which networks there are, where they come from, and which split each is in.

    [[network]]
    name = "enwl.network_1.Feeder_1"
    master = "../networks/networks/enwl/network_1/Feeder_1/Master.dss"
    family = "enwl"
    split = "train"

Paths are relative to the file. Optional: ``root`` (folder that bounds what the model may read; the master's own if not
given), ``licence``, ``source``, ``defect`` (what is known to be wrong with it) and ``sha256``, the digest of its files
(``model_digest``): a model edited since is refused. A catalogue of one's own networks is enough to build a corpus
from them.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from mycelium.corpus.files import Written, write_whole
from mycelium.corpus.toml_file import read_toml, shown, text_of
from mycelium.errors import FeederError
from mycelium.grid.dss_script import Script, read_script
from mycelium.grid.dss_tokens import QUOTES
from mycelium.simulate.network import NetworkSource

NAME = r"[A-Za-z0-9][A-Za-z0-9._-]*"  # it is the name of a folder too, on any system
_LONGEST_NAME = 100  # and file systems allow 255 bytes at most
_HEADER = re.compile(r"^\s*\[\[\s*network\s*\]\]", re.MULTILINE)
_REQUIRED = ("name", "master", "family", "split")
_OPTIONAL = ("root", "licence", "source", "sha256", "defect")


class Split(StrEnum):
    """What a network is for. Nothing is fitted, chosen or calibrated on test and benchmark."""

    TRAIN = "train"
    VALIDATION = "validation"
    TEST = "test"
    BENCHMARK = "benchmark"


@dataclass(frozen=True, slots=True)
class Entry:
    """One network.

    Attributes:
        name: Unique; cases are drawn from it.
        master: Its main OpenDSS file, absolute.
        family: Networks of one origin.
        split: What it is for.
        root: Folder that bounds what may be read; the master's own if not given.
        licence, source: Under what terms and from where.
        sha256: Digest of the model's files, if it is pinned.
        defect: What is known to be wrong with it.
    """

    name: str
    master: Path
    family: str
    split: Split
    root: Path | None = None
    licence: str = ""
    source: str = ""
    sha256: str = ""
    defect: str = ""

    @property
    def network_source(self) -> NetworkSource:
        return NetworkSource(self.master, self.root, self.name)


def read_catalogue(path: Path) -> tuple[Entry, ...]:
    """The networks of a catalogue, in its order; raises FeederError naming line and network."""
    text, content = read_toml(path, "a catalogue")
    records = content.pop("network", None)
    if content or not isinstance(records, list) or not records:
        odd = f"'{next(iter(content))}'" if content else "no [[network]]"
        raise FeederError(f"{path}: {odd}; a catalogue holds [[network]] tables, at least one, and nothing else")
    lines = [text.count("\n", 0, found.end()) + 1 for found in _HEADER.finditer(text)]
    lines += [0] * (len(records) - len(lines))  # inline tables have no header
    entries: dict[str, Entry] = {}
    for record, line in zip(records, lines, strict=True):
        where = f"{path}:{line}" if line else str(path)
        entry = _entry(path, where, record)
        same = entries.get(entry.name.lower())
        if same is not None:
            raise FeederError(f"{where}: a network is called '{same.name}' already; give every network its own name")
        entries[entry.name.lower()] = entry
    return tuple(entries.values())


def _entry(path: Path, where: str, record: object) -> Entry:
    if not isinstance(record, dict):
        raise FeederError(
            f"{where}: network = {shown(record)}; expected [[network]] tables with {', '.join(_REQUIRED)}"
        )
    name = record.get("name", "")
    who = f"{where}: network '{name}'" if name else f"{where}: a network"
    for key in _REQUIRED:
        if not record.get(key):
            raise FeederError(f"{who} lacks `{key}`; expected {', '.join(_REQUIRED)}")
    for key, value in record.items():
        if key not in _REQUIRED + _OPTIONAL:
            raise FeederError(f"{who}: unknown `{key}`; known are {', '.join(_REQUIRED + _OPTIONAL)}")
        text_of(f"{who}: `{key}`", value)
    if len(name) > _LONGEST_NAME:
        raise FeederError(
            f"{where}: network '{name[:20]}…': its name has {len(name)} characters; expected at most {_LONGEST_NAME}"
        )
    if not re.fullmatch(NAME, name):
        raise FeederError(f"{who}: expected letters, digits, '.', '_' and '-' in a name, a letter or digit first")
    if record["split"] not in list(Split):
        raise FeederError(f"{who}: split '{record['split']}'; expected one of {', '.join(Split)}")
    root = _path(path, record["root"]) if "root" in record else None
    master = _path(path, record["master"])
    return Entry(**{**record, "master": master, "root": root, "split": Split(record["split"])})


def _path(catalogue: Path, relative: str) -> Path:
    return Path(os.path.normpath(catalogue.absolute().parent / relative))


# ---- what a model is ----------------------------------------------------------------------------------------------


def model_digest(script: Script) -> str:
    """sha256 of a model: of every file that gave a command or numbers, and of its bus coordinates."""
    start = script.master.parent
    files = {script.master, *(script.root / command.file for command in script.commands)}
    files |= {path for command in script.commands for path in _data_files(command.text, f"{script.root}{os.sep}")}
    listing = {Path(os.path.relpath(path, start)).as_posix(): Written.of(path).sha256 for path in files}
    coordinates = json.dumps(sorted(script.bus_coordinates.items()))
    lines = [f"{listing[name]}  {name}\n" for name in sorted(listing)]
    return hashlib.sha256("".join([*lines, coordinates]).encode()).hexdigest()


def _data_files(text: str, root: str) -> Iterator[Path]:
    """Data files that a command names; the script gives their full paths, in quotes."""
    place = text.find(root)
    while place >= 0:
        end = text.index(QUOTES[text[place - 1]], place)
        yield Path(text[place:end])
        place = text.find(root, end)


def read_model(entry: Entry) -> tuple[str, int]:
    """Digest of a network's model and its number of commands; raises FeederError if it is not the one pinned."""
    if not entry.master.is_file():
        raise FeederError(
            f"network '{entry.name}': no such file {entry.master}; fetch or unpack the network first, or correct its "
            "`master`, which is relative to the catalogue. `../shared/unpack networks` "
            "unpacks those of experiments/reference-networks.toml, run in the folder that holds experiments/"
        )
    script = read_script(entry.master, entry.root)
    digest = model_digest(script)
    if entry.sha256 and entry.sha256 != digest:
        raise FeederError(
            f"network '{entry.name}': {entry.master} or a file it reads is not the one in the catalogue "
            f"(sha256 {digest}, expected {entry.sha256}); fetch it again, or pin the new one"
        )
    return digest, len(script.commands)


# ---- the reference networks ---------------------------------------------------------------------------------------


def catalogue_of_index(index: Path, unpacked: Path, out: Path) -> int:
    """Write the catalogue of the reference networks; the number of networks.

    Args:
        index: JSON list of records with ``master``, ``family``, ``split``, ``licence``, ``source``, ``known_defect``.
        unpacked: Folder that masters are relative to, and that bounds what models may read.
        out: TOML file to write.
    """
    try:
        records = json.loads(index.read_text(encoding="utf-8"))
        names = _names([str(record["master"]) for record in records])
        parts = [_text_of(record, name, unpacked, out) for record, name in zip(records, names, strict=True)]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise FeederError(f"{index}: not an index of networks ({error!r})") from error
    head = f"# Networks of {index.name}. Made by `mycelium corpus catalogue`; paths are relative to this file.\n"
    write_whole(out, (head + "".join(parts)).encode())
    return len(parts)


def _names(masters: list[str]) -> list[str]:
    """Folders below the first one, joined by dots; with the file's name where masters share a folder."""
    folders = [Path(master).parent for master in masters]
    shared = {folder for folder in folders if folders.count(folder) > 1}
    return [
        ".".join((*folder.parts[1:], Path(master).stem) if folder in shared else folder.parts[1:])
        for folder, master in zip(folders, masters, strict=True)
    ]


def _text_of(record: dict[str, Any], name: str, unpacked: Path, out: Path) -> str:
    start = out.absolute().parent
    master = unpacked / record["master"]
    digest = model_digest(read_script(master, unpacked))
    values = {
        "name": name,
        "master": Path(os.path.relpath(master.absolute(), start)).as_posix(),
        "root": Path(os.path.relpath(unpacked.absolute(), start)).as_posix(),
        "family": record["family"],
        "split": record["split"],
        "licence": record["licence"],
        "source": "; ".join(record["source"]),
        "sha256": digest,
        "defect": record["known_defect"],
    }
    # A JSON string is a TOML string.
    lines = [f"{key} = {json.dumps(value, ensure_ascii=False)}\n" for key, value in values.items() if value]
    return "\n[[network]]\n" + "".join(lines)
