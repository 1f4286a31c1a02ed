"""Builds a corpus: hands units to workers, the longest first, and writes the manifest when all are finished.

It may be killed at any moment. A unit is finished when its record is there, and what is finished is never done again;
the folder ends with the same bytes however often the build was interrupted and however many workers it had.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from mycelium.corpus.catalogue import Split
from mycelium.corpus.checksums import Checksums, note_damaged, noted_damaged
from mycelium.corpus.crew import Crew, Failed, LocalCrew, Stop, stopped_by
from mycelium.corpus.files import remove_parts
from mycelium.corpus.finish import finish, write_if_changed
from mycelium.corpus.layout import BUILT, CHECKSUMS, MANIFEST, NORMALISATION, PLAN, UnitRecord, unit_name
from mycelium.corpus.plan import Plan, Unit, what_changed
from mycelium.corpus.ray_crew import RayCrew
from mycelium.corpus.unit import failed_record
from mycelium.errors import FeederError

ATTEMPTS = 2
NETWORKS_PER_WORKER = 20  # the engine keeps some memory of every circuit: workers are replaced


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a build is.

    Attributes:
        planned: Cases in the plan.
        found: Cases that earlier builds had finished.
        done: Cases finished, these included.
        rejected: Of those finished by this build, the ones that are no samples.
        share: Share of this build's work that is finished, by a guess at what each case costs.
    """

    planned: int
    found: int
    done: int
    rejected: int
    share: float


def build(
    plan: Plan,
    folder: Path,
    workers: int | None = None,
    ray: str | None = None,
    watch: Callable[[Progress], None] = lambda _: None,
) -> Progress:
    """Build what is not built yet.

    Args:
        plan: What the corpus holds.
        folder: Where it goes.
        workers: Processes; every core if not given.
        ray: Address of a Ray cluster that does the work instead.
        watch: Called when something is finished.

    Raises:
        FeederError: the folder holds another plan, another build is at work in it, or nothing can be written.
    """
    make_folder(folder, "--out")
    with _alone(folder), _disk_errors(folder):
        _settle_plan(plan, folder)
        remove_parts(folder, BUILT)
        units = list(plan.units())
        work = _Work(folder, [unit for unit in units if not _is_finished(folder, unit)])
        progress = Progress(plan.n_cases, plan.n_cases - sum(len(unit.numbers) for unit in work.units), 0, 0, 0.0)
        progress = replace(progress, done=progress.found)
        watch(progress)
        if work.units:
            _open_again(plan, folder, work.units)
            size = min(workers or os.cpu_count() or 1, len(work.units))
            crew: Crew = LocalCrew(folder, size) if ray is None else RayCrew(folder, ray)
            try:
                for record, share in work.run(crew):
                    rejected = sum(case["status"] == "rejected" for case in record.cases)
                    progress = replace(
                        progress,
                        done=progress.done + len(record.cases),
                        rejected=progress.rejected + rejected,
                        share=share,
                    )
                    watch(progress)
            finally:
                crew.close()
                remove_parts(folder, BUILT)
        finish(plan, folder, units)
    return progress


def make_folder(folder: Path, option: str) -> None:
    """Make a folder that somebody named, if it is not there.

    Args:
        folder: Which.
        option: Who named it, for the message.
    """
    if folder.exists() and not folder.is_dir():
        raise FeederError(f"{option}: {folder} is a file; give a folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FeederError(f"{option}: {folder} cannot be made ({error.strerror}); give another folder") from error


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Two builds in one folder would undo each other's work."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise FeederError(
            f"{folder}: another build is at work in it; wait for its end, or give another --out"
        ) from None
    finally:
        os.close(handle)


@contextmanager
def _disk_errors(folder: Path) -> Iterator[None]:
    """What this process cannot write is said as what workers cannot."""
    try:
        yield
    except (BlockingIOError, ConnectionError):
        raise
    except OSError as error:
        raise _stopped(stopped_by(error, folder)) from error


def _stopped(why: Stop) -> FeederError:
    return FeederError(f"{why.reason}. Finished cases are kept: put it right and run the same command again")


def _settle_plan(plan: Plan, folder: Path) -> None:
    """Refuse a folder with other cases; take out what validation found damaged."""
    damaged = noted_damaged(folder)
    path, new = folder / PLAN, plan.record()
    content = (json.dumps(new, indent=1) + "\n").encode()
    if PLAN in damaged:
        _require_same_plan(folder, content)
    elif path.exists():
        try:
            changed = what_changed(json.loads(path.read_text(encoding="utf-8")), new)
        except (ValueError, KeyError, TypeError, AttributeError):
            changed = f"{PLAN} cannot be read; `mycelium corpus validate` says whether it is damaged"
        if changed:
            raise FeederError(f"{folder}: holds a corpus of another plan: {changed}; give another --out")
    elif any((folder / part).exists() for part in (*BUILT, MANIFEST)):
        raise FeederError(f"{folder}: holds something, but no {PLAN}; give another --out")
    write_if_changed(path, content)
    for name in damaged:
        if name not in (PLAN, CHECKSUMS):
            (folder / name).unlink(missing_ok=True)
    if CHECKSUMS in damaged:  # last: it says what the plan was
        (folder / CHECKSUMS).unlink(missing_ok=True)
    note_damaged(folder, [])


def _require_same_plan(folder: Path, content: bytes) -> None:
    """Refuse another plan than the damaged one: the list of checksums knows its digest."""
    path = folder / PLAN
    if path.exists() and path.read_bytes() == content:
        return
    digest = Checksums.read(folder).digests.get(PLAN) if (folder / CHECKSUMS).is_file() else None
    if digest is None:
        raise FeederError(f"{folder}: {PLAN} and {CHECKSUMS} are damaged: nobody knows its plan; give another --out")
    if digest != hashlib.sha256(content).hexdigest():
        raise FeederError(
            f"{folder}: {PLAN} is damaged, and this is not the plan it was built from; give the same corpus file and "
            "catalogue as then, or another --out"
        )


def _open_again(plan: Plan, folder: Path, units: list[Unit]) -> None:
    """Take away what would be wrong of a corpus in which units are missing or made again."""
    (folder / CHECKSUMS).unlink(missing_ok=True)
    training = {network.entry.name for network in plan.networks if network.entry.split is Split.TRAIN}
    if any(unit.network in training for unit in units):
        (folder / NORMALISATION).unlink(missing_ok=True)


def _is_finished(folder: Path, unit: Unit) -> bool:
    record = UnitRecord.read(folder / unit_name(unit))
    return record is not None and not record.failed and record.covers(unit) and not record.missing(folder)


# ---- handing out --------------------------------------------------------------------------------------------------


@dataclass
class _Work:
    """Units to build, and which worker gets which.

    A worker goes on with the network it has compiled; a free one takes the costliest network that nobody has begun,
    and, when there is none, helps where most is left.
    """

    folder: Path
    units: list[Unit]
    _left: dict[str, list[Unit]] = field(init=False, default_factory=dict)
    _begun: set[str] = field(init=False, default_factory=set)
    _attempts: dict[Unit, int] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        for unit in reversed(self.units):
            self._left.setdefault(unit.network, []).append(unit)

    def run(self, crew: Crew) -> Iterator[tuple[UnitRecord, float]]:
        """Records of units as they are finished, and the share of the work that is."""
        total, finished = sum(unit.cost for unit in self.units), 0.0
        held: dict[int, list[str]] = {worker: [] for worker in range(crew.size)}  # networks each has compiled
        busy: dict[int, Unit] = {}
        while self._left or busy:
            for worker in range(crew.size):
                if worker not in busy and self._left:
                    busy[worker] = self._next(held[worker][-1:])
                    self._hand(crew, worker, busy[worker], held)
            worker, result = crew.wait()
            unit = busy.pop(worker, None)
            if unit is None:  # it died while idle
                crew.renew(worker)
                held[worker] = []
                continue
            if isinstance(result, Stop):
                raise _stopped(result)
            if isinstance(result, Failed):
                crew.renew(worker)
                held[worker] = []
                self._attempts[unit] = self._attempts.get(unit, 0) + 1
                if self._attempts[unit] < ATTEMPTS:
                    self._left.setdefault(unit.network, []).append(unit)
                    continue
                result = failed_record(unit, result.reason)
                result.write(self.folder, unit_name(unit))
            finished += unit.cost
            yield result, finished / total

    def _next(self, holds: Iterable[str]) -> Unit:
        network = next((name for name in holds if name in self._left), None)
        if network is None:
            fresh = [name for name in self._left if name not in self._begun] or list(self._left)
            network = max(fresh, key=lambda name: sum(unit.cost for unit in self._left[name]))
        self._begun.add(network)
        units = self._left[network]
        unit = units.pop()
        if not units:
            del self._left[network]
        return unit

    def _hand(self, crew: Crew, worker: int, unit: Unit, held: dict[int, list[str]]) -> None:
        if unit.network not in held[worker][-1:]:
            if len(held[worker]) >= NETWORKS_PER_WORKER:
                crew.renew(worker)
                held[worker] = []
            held[worker].append(unit.network)
        crew.hand(worker, unit)
