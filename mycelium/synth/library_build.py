"""The library's rows from the training networks of a catalogue."""

from __future__ import annotations

import dataclasses
import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mycelium.corpus.catalogue import Entry, Split, read_catalogue
from mycelium.errors import FeederError
from mycelium.synth.library import Library
from mycelium.synth.library_equipment import (
    NONE,
    conductors,
    customer_classes,
    loads,
    not_customers_because,
    transformers,
)
from mycelium.synth.library_model import Model
from mycelium.synth.library_planning import statistic, statistics
from mycelium.synth.library_rows import Conductor, Convention, Source, Statistic
from mycelium.synth.library_settings import capacitors, convention, regulators

# Families whose figures are not what they seem, or are there twice.
LEFT_OUT = {
    "dsuite": "its publisher scaled impedances and lengths on purpose",
    "csiro_enwl_4wire": "the feeders of enwl again, with explicit neutrals",
}
_TASKS_PER_WORKER = 25  # engines keep memory of old circuits: workers are replaced
ENOUGH_RATED, FEWEST_RATED = 10, 3  # line types, for a law per construction, and for any
_PER_TRANSFORMER = "customers_per_three_phase_transformer"


@dataclass(frozen=True, slots=True)
class Remark:
    """What of a network is not in the library, and why."""

    network: str
    what: str
    why: str


def build_library(
    catalogue: Path, workers: int, progress: Callable[[int, int], None]
) -> tuple[Library, tuple[Remark, ...]]:
    """Measure every training network of a catalogue; the result does not depend on the number of workers."""
    training = training_entries(catalogue)
    entries = [entry for entry in training if entry.family not in LEFT_OUT]
    remarks = [Remark(entry.name, "all", LEFT_OUT[entry.family]) for entry in training if entry.family in LEFT_OUT]
    rows: list[Source] = []
    context = multiprocessing.get_context("spawn")
    with context.Pool(workers, maxtasksperchild=_TASKS_PER_WORKER) as pool:
        for done, (found, more) in enumerate(pool.imap(_measure, entries), start=1):
            rows += found
            remarks += more
            progress(done, len(entries))
    return Library.of(rate_conductors(join_sites(rows))), tuple(remarks)


def training_entries(catalogue: Path) -> tuple[Entry, ...]:
    """Networks of the training split: nothing else may be learned from."""
    entries = tuple(entry for entry in read_catalogue(catalogue) if entry.split is Split.TRAIN)
    if not entries:
        raise FeederError(f'{catalogue}: no network has split = "train"; the library is made from these only')
    return entries


def _measure(entry: Entry) -> tuple[list[Source], list[Remark]]:
    try:
        model = Model.read(entry.network_source, entry.family)
    except FeederError as error:
        return [], [Remark(entry.name, "all", str(error))]
    rows = [convention(model), *_rows(model)]
    why = {group: not_customers_because(model, group) for group in customer_classes(model)}
    model.engine.close()
    return rows, [
        Remark(entry.name, f"{group} loads", reason) for group, reason in why.items() if reason not in ("", NONE)
    ]


def _rows(model: Model) -> Iterator[Source]:
    for facts in (conductors, transformers, loads, regulators, capacitors, statistics):
        yield from facts(model)


def join_sites(rows: Sequence[Source]) -> list[Source]:
    """Customers per transformer where a source gives each feeder of one transformer as a network of its own.

    Such networks have one transformer, no medium-voltage feeder, and share the first parts of their names. One
    without others beside it is left out: it is a part of the transformer's customers, and nobody knows which.
    """
    planned = {row.network for row in rows if isinstance(row, Statistic) and row.name == "mv_span_m"}
    parts: dict[tuple[str, str], list[Statistic]] = {}
    kept: list[Source] = []
    for row in rows:
        part = isinstance(row, Statistic) and row.name == _PER_TRANSFORMER and row.network not in planned
        if isinstance(row, Statistic) and part and row.n == 1:
            parts.setdefault((row.family, row.network.rpartition(".")[0]), []).append(row)
        else:
            kept.append(row)
    for (family, _), feeders in parts.items():
        if len(feeders) > 1:
            total = sum(feeder.quantiles[0] for feeder in feeders)
            kept.append(statistic(family, feeders[0].network, _PER_TRANSFORMER, np.array([total])))
    return kept


def rate_conductors(rows: Sequence[Source]) -> list[Source]:
    """Give line types without a rating the one that their resistance suggests: a power law through the rated ones.

    One law per voltage class and construction, or per class where a construction has few rated. Without a law, they
    are left out.
    """
    lines = [row for row in rows if isinstance(row, Conductor)]
    rated = [row for row in lines if row.rated]
    fits = {}
    for key in {(row.level, row.construction) for row in lines}:
        own = [row for row in rated if (row.level, row.construction) == key]
        chosen = own if len(own) >= ENOUGH_RATED else [row for row in rated if row.level is key[0]]
        if len({row.r1_ohm_per_km for row in chosen}) >= FEWEST_RATED:
            fits[key] = np.polyfit(
                np.log([row.r1_ohm_per_km for row in chosen]), np.log([row.ampacity_a for row in chosen]), 1
            )
    result: list[Source] = []
    for row in rows:
        if isinstance(row, Conductor) and not row.rated:
            fit = fits.get((row.level, row.construction))
            if fit is None:
                continue
            amps = float(np.exp(np.polyval(fit, np.log(row.r1_ohm_per_km))))
            row = dataclasses.replace(row, ampacity_a=round(amps, 1))
        result.append(row)
    return result


def provenance(library: Library) -> dict[str, int]:
    """Networks that contribute, per family."""
    pairs = {(row.family, row.network) for row in library.rows if isinstance(row, Convention)}
    families = sorted({family for family, _ in pairs})
    return {family: sum(of == family for of, _ in pairs) for family in families}
