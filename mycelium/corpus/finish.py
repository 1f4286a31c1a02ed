"""The end of a build: what is made of all units together, and says what is in the corpus."""

from __future__ import annotations

import signal
from collections.abc import Iterable, Mapping
from multiprocessing.connection import Connection
from pathlib import Path

from mycelium.corpus.catalogue import Entry, Split
from mycelium.corpus.checksums import checksums_bytes
from mycelium.corpus.files import Written, whole, write_whole
from mycelium.corpus.layout import (
    BUILT,
    CHECKSUMS,
    LABELS,
    MANIFEST,
    NORMALISATION,
    PLAN,
    UnitRecord,
    is_listed_kind,
    unit_name,
)
from mycelium.corpus.manifest import labels_bytes, manifest_bytes
from mycelium.corpus.plan import Plan, Unit
from mycelium.corpus.process import end_process, start_process
from mycelium.errors import FeederError
from mycelium.window.normalise import Normalisation


def finish(plan: Plan, folder: Path, units: list[Unit]) -> None:
    """Write what says what is in the corpus, and remove what no record knows of."""
    records = [UnitRecord.read(folder / unit_name(unit)) for unit in units]
    known = [record for record in records if record is not None]
    assert len(known) == len(units)  # each has been written, or was found
    entries = {network.entry.name: network.entry for network in plan.networks}
    write_if_changed(folder / MANIFEST, manifest_bytes(entries, plan.seed, known))
    write_if_changed(folder / LABELS, labels_bytes(entries, known))
    files = {name: written.sha256 for record in known for name, written in record.files.items()}
    made = [PLAN, MANIFEST, LABELS, *(unit_name(unit) for unit in units)]
    if is_trained_on(entries, known):
        made.append(NORMALISATION)
        if not (folder / NORMALISATION).exists():
            with whole(folder / NORMALISATION) as part:
                fit_apart(folder).save(part)
    else:
        (folder / NORMALISATION).unlink(missing_ok=True)
    files |= {name: Written.of(folder / name).sha256 for name in made}
    _remove_unknown(folder, files)
    write_if_changed(folder / CHECKSUMS, checksums_bytes(files))


def is_trained_on(entries: Mapping[str, Entry], records: Iterable[UnitRecord]) -> bool:
    """Whether there is a training case, so that there are normalisation constants."""
    return any(record.has_days and entries[record.network].split is Split.TRAIN for record in records)


def write_if_changed(path: Path, content: bytes) -> None:
    """Leave a file alone that is right."""
    if not path.exists() or path.read_bytes() != content:
        write_whole(path, content)


def _remove_unknown(folder: Path, files: Mapping[str, str]) -> None:
    """Remove what a kill left between a shard and its record; what is no file of a corpus is somebody's own."""
    for part in BUILT:
        for path in (folder / part).rglob("*"):
            name = path.relative_to(folder).as_posix()
            if name not in files and is_listed_kind(name) and path.is_file():
                path.unlink()


# ---- normalisation constants --------------------------------------------------------------------------------------


def fit_apart(folder: Path) -> Normalisation:
    """Normalisation constants of a corpus that is built but for them.

    A process of its own with one thread computes them, so that how sums are split cannot show.
    """
    process, connection = start_process(_serve, folder)
    try:
        answer = connection.recv()
    except (EOFError, ConnectionResetError):
        answer = "the process died; out of memory?"
    finally:
        end_process(process, connection)
    if isinstance(answer, Normalisation):
        return answer
    raise FeederError(
        f"{folder}: no normalisation constants ({answer}). Finished cases are kept; run the command again"
    )


def _serve(connection: Connection, folder: Path) -> None:
    """What that process does: answer with the constants, or why there are none."""
    from mycelium.corpus.constants import fit_built  # it needs torch, which whoever builds does not

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the builder is interrupted, and ends this process
    try:
        answer: Normalisation | str = fit_built(folder)
    except Exception as error:
        answer = str(error) if isinstance(error, FeederError) else f"{type(error).__name__}: {error}"
    connection.send(answer)
