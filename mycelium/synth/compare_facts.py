"""Facts of many feeders: of the training references, kept in a small file, and of a run's accepted feeders."""

from __future__ import annotations

import dataclasses
import json
import multiprocessing
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import numpy as np
import pandas as pd

from mycelium.errors import FeederError
from mycelium.simulate.network import NetworkSource
from mycelium.synth.library_build import LEFT_OUT, training_entries
from mycelium.synth.run import ACCEPTED
from mycelium.synth.statistics import FeederFacts, feeder_facts
from mycelium.synth.write import MASTER, SAMPLE

SYNTHETIC = "synthetic"
_DIGITS = "%.5g"
_TASKS_PER_WORKER = 25  # engines keep memory of old circuits: workers are replaced


@dataclass(frozen=True)
class Facts:
    """Facts of feeders.

    Attributes:
        table: One row per feeder, columns as in ``FeederFacts``.
        failed: Feeders that have none, and why.
    """

    table: pd.DataFrame
    failed: dict[str, str]


def reference_facts(catalogue: Path, workers: int, progress: Callable[[int, int], None]) -> Facts:
    """Measure the training networks of a catalogue, without those that the library leaves out."""
    entries = [entry for entry in training_entries(catalogue) if entry.family not in LEFT_OUT]
    facts = _measure([_Job(entry.network_source, entry.family) for entry in entries], workers, progress)
    return Facts(join_sites(facts.table), facts.failed)


def synthetic_facts(run: Path, workers: int, progress: Callable[[int, int], None]) -> Facts:
    """Measure the accepted feeders of a run."""
    feeders = accepted_feeders(run)
    jobs = [_Job(NetworkSource(f / MASTER, None, f.name), SYNTHETIC, f / SAMPLE) for f in feeders]
    return _measure(jobs, workers, progress)


def accepted_feeders(run: Path) -> tuple[Path, ...]:
    """Folders of a run's accepted feeders, by name; none that is still being written."""
    masters = sorted((run / ACCEPTED).glob(f"*/{MASTER}"))
    found = tuple(master.parent for master in masters if master.parent.suffix != ".part")
    if not found:
        raise FeederError(f"{run}: no accepted feeder ({ACCEPTED}/*/{MASTER}); make some with `mycelium synth`")
    return found


@dataclass(frozen=True, slots=True)
class _Job:
    """One feeder, and the file that says how much of its loads' demand coincides."""

    source: NetworkSource
    family: str
    sample: Path | None = None


def _measure(jobs: Sequence[_Job], workers: int, progress: Callable[[int, int], None]) -> Facts:
    rows: list[FeederFacts] = []
    failed: dict[str, str] = {}
    with multiprocessing.get_context("spawn").Pool(workers, maxtasksperchild=_TASKS_PER_WORKER) as pool:
        for done, (name, found) in enumerate(pool.imap(_facts_of, jobs), start=1):
            if isinstance(found, FeederFacts):
                rows.append(found)
            else:
                failed[name] = found
            progress(done, len(jobs))
    columns = [field.name for field in dataclasses.fields(FeederFacts)]
    return Facts(pd.DataFrame([dataclasses.asdict(row) for row in rows], columns=columns), failed)


def _facts_of(job: _Job) -> tuple[str, FeederFacts | str]:
    name = job.source.name or str(job.source.master)
    try:
        coincidence = None if job.sample is None else _coincidence(job.sample)
        return name, feeder_facts(job.source, job.family, coincidence)
    except FeederError as error:
        return name, str(error)


def _coincidence(sample: Path) -> dict[str, float]:
    """Coincidence factor of each load, which a synthetic feeder's record of its sampling holds."""
    try:
        content = json.loads(sample.read_text(encoding="utf-8"))
        return {str(load).lower(): float(value) for load, value in content["coincidence"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise FeederError(f"{sample}: expected JSON with `coincidence`, a factor per load ({error!r})") from error


def join_sites(table: pd.DataFrame) -> pd.DataFrame:
    """Customers per transformer where each feeder of one transformer is a network of its own.

    Networks with one transformer whose names differ in the last part only are feeders of one: the first gets the sum.
    One without others beside it is a part, and nobody knows which: it gets none.
    """
    table = table.copy()
    lone = table[(table["transformers"] == 1) & table["customers_per_transformer"].notna()]
    site = lone["family"] + " " + lone["name"].str.rpartition(".")[0]
    for _, feeders in lone.groupby(site):
        total = feeders["customers_per_transformer"].sum() if len(feeders) > 1 else np.nan
        table.loc[feeders.index, "customers_per_transformer"] = np.nan
        table.loc[feeders.index[0], "customers_per_transformer"] = total
    return table


def write_facts(table: pd.DataFrame, path: Path) -> None:
    """Write a CSV with five digits."""
    table.to_csv(path, index=False, float_format=_DIGITS, lineterminator="\n")


def read_facts(path: Path | None = None) -> pd.DataFrame:
    """Read a CSV of facts; that of the training references, which ships with the package, if no path is given."""
    if path is None:
        with resources.as_file(resources.files("mycelium.synth") / "data" / "reference_facts.csv") as builtin:
            return read_facts(builtin)
    try:
        table = pd.read_csv(path)
    except (OSError, ValueError) as error:
        raise FeederError(f"{path}: not a table of facts ({error}); make one with `mycelium synth facts`") from error
    missing = [field.name for field in dataclasses.fields(FeederFacts) if field.name not in table]
    if missing:
        raise FeederError(f"{path}: lacks the columns {missing}; make it anew with `mycelium synth facts`")
    return table
