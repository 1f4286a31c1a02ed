"""Which files of a corpus are not what was written.

No file is believed on its own. The list of checksums knows the digest of every file; the plan says which units there
are, and their records know the digests of the files that their cases need. So a list that was cut or emptied is found,
and what it no longer mentions is checked by the other witnesses; what none of them vouches for is made again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from mycelium.corpus.catalogue import Split
from mycelium.corpus.checksums import Checksums
from mycelium.corpus.files import Written
from mycelium.corpus.layout import (
    CHECKSUMS,
    LABELS,
    MANIFEST,
    NORMALISATION,
    PLAN,
    UnitRecord,
    is_listed_kind,
    unit_file,
)
from mycelium.corpus.manifest import agrees, read_table
from mycelium.corpus.plan import CASES_PER_UNIT, MOST_CASES
from mycelium.errors import FeederError

Tick = Callable[[int, int], None]


def damaged_files(folder: Path, tick: Tick) -> tuple[int, list[str]]:
    """Number of files checked, and those that are damaged, missing or vouched for by nothing.

    Args:
        folder: A corpus.
        tick: Called with the number of files checked and their total.
    """
    listed = Checksums.read(folder)
    plan = _plan(folder, listed)
    units = _unit_files(folder, listed, plan)
    records = {name: _record(folder, listed, name) for name in units}
    recorded = {name: written.sha256 for record in records.values() if record for name, written in record.files.items()}
    needed = {PLAN, MANIFEST, LABELS, *units, *recorded}
    if _is_trained_on(plan, records.values()) or (plan is None and NORMALISATION in listed.digests):
        needed.add(NORMALISATION)
    found = _digests(folder, sorted(needed | set(listed.digests)), tick)
    evidence = _Evidence(folder, listed, plan, records, recorded, found)
    damaged = evidence.listed_damage() | evidence.unlisted_damage(needed - set(listed.digests))
    damaged |= {name for name, record in records.items() if record is None} | ({PLAN} if plan is None else set())
    is_complete = not damaged.intersection([PLAN, *units])  # else it cannot be said what should be listed
    if not listed.whole or (is_complete and needed != set(listed.digests)):
        damaged.add(CHECKSUMS)
    return len(found) + 1, sorted(damaged)


@dataclass(frozen=True, slots=True)
class _Evidence:
    """What is known about the files.

    Attributes:
        folder: The corpus.
        listed: The list of checksums.
        plan: What ``PLAN`` says, None if it cannot be believed.
        records: Of all units, by file; None where it cannot be read.
        recorded: Digests of files, as the records say.
        found: Digests as they are on disk; None where there is no such file.
    """

    folder: Path
    listed: Checksums
    plan: Mapping[str, Any] | None
    records: Mapping[str, UnitRecord | None]
    recorded: Mapping[str, str]
    found: Mapping[str, str | None]

    def listed_damage(self) -> set[str]:
        """Files that are not what the list says; or the list, where file and record agree against it."""
        damaged = set()
        known = {PLAN, MANIFEST, LABELS, NORMALISATION, *self.records, *self.recorded}
        sound = self.plan is not None and None not in self.records.values()
        for name, digest in self.listed.digests.items():
            if self.found[name] == digest:
                continue
            is_list = self.found[name] is not None and self.found[name] == self.recorded.get(name)
            is_made_up = self.found[name] is None and sound and name not in known
            damaged.add(CHECKSUMS if is_list or is_made_up else name)
        return damaged

    def unlisted_damage(self, names: set[str]) -> set[str]:
        """Files that the list does not mention, as far as nothing else vouches for them."""
        damaged = {CHECKSUMS} if names else set()
        manifest = _manifest(self.folder, self.listed, self.found)
        for name in names:
            if name == PLAN:
                is_right = self.plan is not None
            elif name in self.records:
                record = self.records[name]
                is_right = record is not None and manifest is not None and self._is_right(record, manifest)
            else:  # what follows from the records has no digest there, and is made again at no cost
                is_right = name in self.recorded and self.found[name] == self.recorded[name]
            if not is_right:
                damaged.add(name)
        return damaged

    def _is_right(self, record: UnitRecord, manifest: pa.Table) -> bool:
        """Whether a record that is not listed says what the manifest, the list and the files do."""
        digests = self.listed.digests
        as_listed = all(digests.get(name, file.sha256) == file.sha256 for name, file in record.files.items())
        return as_listed and not record.missing(self.folder) and agrees(record, manifest)


def _plan(folder: Path, listed: Checksums) -> dict[str, Any] | None:
    """What the plan says; None if it is damaged."""
    try:
        content = (folder / PLAN).read_bytes()
        plan: dict[str, Any] = json.loads(content)
        for name, network in plan["networks"].items():
            Split(network["split"])
            if not is_listed_kind(unit_file(name, 0)) or not 1 <= network["cases"] <= MOST_CASES:
                return None
        return plan if _is_as_listed(folder, listed, PLAN) else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _record(folder: Path, listed: Checksums, name: str) -> UnitRecord | None:
    """The record of a unit; None if it is damaged."""
    record = UnitRecord.read(folder / name)
    return record if record is not None and _is_as_listed(folder, listed, name) else None


def _is_as_listed(folder: Path, listed: Checksums, name: str) -> bool:
    """Whether a file is what the list says, or is not in it."""
    return name not in listed.digests or Written.of(folder / name).sha256 == listed.digests[name]


def _unit_files(folder: Path, listed: Checksums, plan: Mapping[str, Any] | None) -> list[str]:
    """Records of all units: as planned, or those that somebody knows of."""
    if plan is not None:
        return [
            unit_file(name, chunk)
            for name, network in plan["networks"].items()
            for chunk in range(-(-network["cases"] // CASES_PER_UNIT))
        ]
    there = {path.relative_to(folder).as_posix() for path in folder.glob("units/*/*.json")}
    return sorted(name for name in there | set(listed.digests) if name.startswith("units/") and is_listed_kind(name))


def _is_trained_on(plan: Mapping[str, Any] | None, records: Iterable[UnitRecord | None]) -> bool:
    """Whether there is a training case."""
    if plan is None:
        return False
    training = {name for name, network in plan["networks"].items() if network["split"] == Split.TRAIN}
    return any(record is not None and record.network in training and record.has_days for record in records)


def _manifest(folder: Path, listed: Checksums, found: Mapping[str, str | None]) -> pa.Table | None:
    """The manifest as a witness for records; None if it is damaged."""
    if listed.digests.get(MANIFEST, found[MANIFEST]) != found[MANIFEST]:
        return None
    try:
        return read_table(folder / MANIFEST)
    except FeederError:
        return None


def _digests(folder: Path, names: list[str], tick: Tick) -> dict[str, str | None]:
    """Digests of files as they are; None where there is none."""

    def digest(name: str) -> str | None:
        try:
            return Written.of(folder / name).sha256
        except OSError:
            return None

    found: dict[str, str | None] = {}
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for name, value in zip(names, pool.map(digest, names), strict=True):
            found[name] = value
            tick(len(found), len(names))
    return found
