"""Frozen samples of one split: stored in a built corpus, or simulated now from the same numbers.

A case is a function of (network, seed, number), so a split need not be on disk to be the same everywhere: labels are
bit-equal on any machine, voltages agree to 1e-7 p.u.
"""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path

import torch

from mycelium.corpus.catalogue import Entry, Split, read_catalogue
from mycelium.corpus.days import SimulatedDays
from mycelium.corpus.gather import Gatherer
from mycelium.corpus.loader import StoredConfig, StoredSamples
from mycelium.corpus.plan import planned_cases
from mycelium.corpus.pool import Pool, PoolConfig, Task
from mycelium.corpus.render import Rendered, RenderWork, Wanted
from mycelium.corpus.store import Corpus
from mycelium.corpus.stream import stream
from mycelium.errors import FeederError
from mycelium.sense.policies import POLICIES
from mycelium.window.batch import Batch
from mycelium.window.columns import WindowOptions
from mycelium.window.normalise import Normalisation

_TASKS_TOGETHER = 16
_CASES_PER_TASK = 8


@dataclass(frozen=True, slots=True)
class FrozenConfig:
    """How a split is rendered.

    Attributes:
        policies: Names of sensor policies.
        every_policy: Render every case under each policy; else under one, in turn.
        buses_per_batch: Most buses of a batch.
        options: Of the windows.
        workers: Processes that simulate and render; 0 works in this one.
    """

    policies: tuple[str, ...] = tuple(POLICIES)
    every_policy: bool = True
    buses_per_batch: int = 20_000
    options: WindowOptions = field(default_factory=WindowOptions)
    workers: int = 0


class SimulatedSamples:
    """Samples simulated when they are asked for, the same every time. Close it, or use ``with``."""

    def __init__(
        self, cases: Mapping[str, int], entries: Sequence[Entry], seed: int, config: FrozenConfig, norm: Normalisation
    ) -> None:
        """Prepare.

        Args:
            cases: How many of each network, numbered from 0.
            entries: The networks.
            seed: Of all cases.
            config: How to render.
            norm: Constants of the training networks.
        """
        self.config, self._cases = config, cases
        self._gatherer = Gatherer()
        sources = {entry.name: entry.network_source for entry in entries}
        policies = tuple(POLICIES[name] for name in config.policies)
        open_network = partial(SimulatedDays, sources, seed, None, policies)
        start = partial(RenderWork, open_network, config.options, norm)
        self._pool: Pool[Wanted, Rendered] = Pool(start, PoolConfig(workers=config.workers))

    def __enter__(self) -> SimulatedSamples:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the workers."""
        self._pool.close()

    def __len__(self) -> int:
        """Number of samples, rejected ones included."""
        return sum(self._cases.values()) * (len(self.config.policies) if self.config.every_policy else 1)

    @property
    def rejected(self) -> Counter[tuple[str, str]]:
        """Number of cases that gave no sample, by (network, reason)."""
        return self._gatherer.rejected

    def epoch(self) -> Iterator[Batch]:
        """All samples once, in batches."""
        answers = self._pool.answers(self._tasks())
        yield from self._gatherer.batches(answers, _TASKS_TOGETHER, self.config.buses_per_batch, "frozen")

    def _tasks(self) -> Iterator[Task[Wanted]]:
        policies = self.config.policies
        for network, cases in self._cases.items():
            for first in range(0, cases, _CASES_PER_TASK):
                numbers = range(first, min(first + _CASES_PER_TASK, cases))
                seen = [policies if self.config.every_policy else (policies[k % len(policies)],) for k in numbers]
                yield Task(network, tuple(Wanted(network, k, p) for k, p in zip(numbers, seen, strict=True)))


def open_split(
    place: Path, split: Split, cases: int | None, seed: int, config: FrozenConfig, norm: Normalisation
) -> SimulatedSamples | StoredSamples:
    """The samples of a split.

    Args:
        place: Folder of a built corpus, file of a corpus (its networks, cases and seed), or catalogue.
        split: Which networks.
        cases: Of each network, at most; None takes what the corpus has. A catalogue does not say how many.
        seed: Of cases of a catalogue; a corpus has its own.
        config: How to render; every case under every policy.
        norm: Constants of the training networks.
    """
    if place.is_dir():
        return _stored(place, split, cases, config, norm)
    wanted, seed = _wanted(place, split, cases, seed)
    return SimulatedSamples(
        {entry.name: count for entry, count in wanted}, [entry for entry, _ in wanted], seed, config, norm
    )


def _stored(place: Path, split: Split, cases: int | None, config: FrozenConfig, norm: Normalisation) -> StoredSamples:
    corpus = Corpus.open_folder(place)
    if cases is not None:
        corpus = Corpus(corpus.folder, corpus.manifest[corpus.manifest["number"] < cases])
    stored = StoredConfig(
        policies=config.policies,
        buses_per_batch=config.buses_per_batch,
        options=config.options,
        pool=PoolConfig(workers=config.workers),
    )
    return StoredSamples(corpus, split, stored, norm)


def _wanted(place: Path, split: Split, cases: int | None, seed: int) -> tuple[list[tuple[Entry, int]], int]:
    try:
        content = tomllib.loads(place.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise FeederError(f"{place}: neither a corpus nor a catalogue ({error})") from error
    if "network" in content:
        if cases is None:
            raise FeederError(f"{place}: a catalogue does not say how many cases; give --cases N, or a corpus")
        found = [(entry, cases) for entry in read_catalogue(place) if entry.split is split]
    else:
        planned = planned_cases(place)
        found = [(entry, min(count, cases or count)) for entry, count in planned if entry.split is split]
        seed = int(content["seed"])
    if not found:
        raise FeederError(f"{place}: no network is in the split '{split}'")
    return found, seed


def on_device(samples: SimulatedSamples | StoredSamples, device: torch.device, workers: int) -> Iterator[Batch]:
    """All samples on a device, made ahead if workers make them: the engine bears no second thread."""
    if workers:
        return stream(samples.epoch(), device)
    return (batch.to(device) for batch in samples.epoch())


def entries_of(catalogue: Path, split: Split, patterns: Sequence[str]) -> list[Entry]:
    """Networks of a split whose names fit a pattern; raises FeederError if there are none."""
    found = [entry for entry in read_catalogue(catalogue) if entry.split is split]
    chosen = [entry for entry in found if any(fnmatchcase(entry.name, pattern) for pattern in patterns)]
    if not chosen:
        raise FeederError(f"{catalogue}: no network of the split '{split}' is called like {', '.join(patterns)}")
    return chosen
