"""Frozen samples of one split: stored in a built corpus, or simulated now from the same numbers.

A case is a function of (network, seed, number), so a split need not be on disk to be the same everywhere: labels are
bit-equal on any machine, voltages agree to 1e-7 p.u.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import cast

import torch

from mycelium.corpus.catalogue import Entry, Split, read_catalogue
from mycelium.corpus.days import Days, SimulatedDays, StoredDays
from mycelium.corpus.gather import Gatherer
from mycelium.corpus.plan import planned_cases
from mycelium.corpus.pool import Pool, PoolConfig, Task
from mycelium.corpus.render import Rendered, RenderWork, Wanted
from mycelium.corpus.store import Corpus
from mycelium.corpus.stream import stream
from mycelium.corpus.toml_file import read_toml
from mycelium.errors import FeederError
from mycelium.sense.policies import POLICIES
from mycelium.window.batch import Batch
from mycelium.window.columns import WindowOptions
from mycelium.window.normalise import Normalisation
from mycelium.window.window import Movable

_CASES = 14  # of each network of a catalogue, twice the number of policies
_CASES_PER_TASK = 2
_TASKS_TOGETHER = 8  # a group: few enough samples to be held at once


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

    def __post_init__(self) -> None:
        for name, least in (("buses_per_batch", 1), ("workers", 0)):
            _check(name, getattr(self, name), least)


@dataclass(frozen=True)
class Group(Movable):
    """Some samples of a split.

    Attributes:
        batches: Theirs, numbered.
    """

    batches: Mapping[int, Batch]


class FrozenSamples:
    """Samples of a split, the same every time, in groups of which it is known where each begins.

    Close it, or use ``with``.
    """

    def __init__(
        self,
        cases: Mapping[str, Sequence[int]],
        open_network: Callable[[str], Days],
        config: FrozenConfig,
        norm: Normalisation,
    ) -> None:
        """Prepare.

        Args:
            cases: Of each network, as its days number them.
            open_network: Opens the days of a network, in a worker.
            config: How to render.
            norm: Constants of the training networks.
        """
        self.config, self._cases = config, cases
        self._gatherer = Gatherer()
        start = partial(RenderWork, open_network, config.options, norm)
        self._pool: Pool[Wanted, Rendered] = Pool(start, PoolConfig(workers=config.workers))

    def __enter__(self) -> FrozenSamples:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the workers."""
        self._pool.close()

    def __len__(self) -> int:
        """Number of samples, rejected ones included."""
        number = sum(len(cases) for cases in self._cases.values())
        return number * (len(self.config.policies) if self.config.every_policy else 1)

    @property
    def rejected(self) -> Counter[tuple[str, str]]:
        """Number of cases that gave no sample, by (network, reason)."""
        return self._gatherer.rejected

    def groups(self, first: int = 0) -> Iterator[Group]:
        """All groups from one on; those before are not rendered."""
        tasks = itertools.islice(self._tasks(), first * _TASKS_TOGETHER, None)
        answers = self._pool.answers(tasks)
        while True:
            some = list(itertools.islice(answers, _TASKS_TOGETHER))
            if not some:
                return
            batches = self._gatherer.batches(some, _TASKS_TOGETHER, self.config.buses_per_batch, "frozen")
            yield Group(dict(enumerate(batches)))

    def groups_on(self, device: torch.device, first: int = 0) -> Iterator[Group]:
        """The same on a device, made ahead if workers make them: the engine bears no second thread."""
        if self.config.workers == 0:
            return (group.to(device) for group in self.groups(first))
        groups = cast("Iterator[Batch]", self.groups(first))  # `stream` moves whatever can be
        return cast("Iterator[Group]", stream(groups, device))

    def epoch(self) -> Iterator[Batch]:
        """All samples once, in batches."""
        for group in self.groups():
            yield from group.batches.values()

    def _tasks(self) -> Iterator[Task[Wanted]]:
        policies = self.config.policies  # each network begins with the next one, so that few cases of many see all
        for offset, (network, cases) in enumerate(self._cases.items()):
            for first in range(0, len(cases), _CASES_PER_TASK):
                places = range(first, min(first + _CASES_PER_TASK, len(cases)))
                seen = [
                    policies if self.config.every_policy else (policies[(k + offset) % len(policies)],) for k in places
                ]
                yield Task(network, tuple(Wanted(network, cases[k], p) for k, p in zip(places, seen, strict=True)))


def simulated(
    cases: Mapping[str, int], entries: Sequence[Entry], seed: int, config: FrozenConfig, norm: Normalisation
) -> FrozenSamples:
    """Samples simulated when they are asked for.

    Args:
        cases: How many of each network, numbered from 0.
        entries: The networks.
        seed: Of all cases.
        config: How to render.
        norm: Constants of the training networks.
    """
    sources = {entry.name: entry.network_source for entry in entries}
    policies = tuple(POLICIES[name] for name in config.policies)
    open_network = partial(SimulatedDays, sources, seed, None, policies)
    return FrozenSamples({name: range(count) for name, count in cases.items()}, open_network, config, norm)


def open_split(
    place: Path, split: Split, cases: int | None, seed: int, config: FrozenConfig, norm: Normalisation
) -> FrozenSamples:
    """The samples of a split.

    Args:
        place: Folder of a built corpus, file of a corpus (its networks, cases and seed), or catalogue.
        split: Which networks.
        cases: Of each network, at most; None takes what the corpus has, or 14 of a catalogue, which does not say.
        seed: Of cases of a catalogue; a corpus has its own.
        config: How to render; every case under every policy.
        norm: Constants of the training networks.
    """
    if cases is not None:
        _check("cases", cases, 1)
    if place.is_dir():
        return _stored(place, split, cases, config, norm)
    wanted, seed = _wanted(place, split, cases, seed)
    return simulated({entry.name: count for entry, count in wanted}, [e for e, _ in wanted], seed, config, norm)


def _stored(place: Path, split: Split, cases: int | None, config: FrozenConfig, norm: Normalisation) -> FrozenSamples:
    corpus = Corpus.open_folder(place)
    chosen = corpus.cases[corpus.cases["split"] == split.value]
    if cases is not None:
        chosen = chosen[chosen["number"] < cases]
    if not len(chosen):
        raise FeederError(f"{place}: no case is in the split '{split}'")
    labels = {str(name): rows.index.tolist() for name, rows in chosen.groupby("network", sort=False)}
    return FrozenSamples(labels, partial(StoredDays, corpus.folder, chosen), config, norm)


def _wanted(place: Path, split: Split, cases: int | None, seed: int) -> tuple[list[tuple[Entry, int]], int]:
    _, content = read_toml(place, "a corpus file or a catalogue")
    if "network" in content:
        found = [(entry, _CASES if cases is None else cases) for entry in read_catalogue(place) if entry.split is split]
    else:
        planned = planned_cases(place)
        chosen = [(entry, count) for entry, count in planned if entry.split is split]
        found = [(entry, count if cases is None else min(count, cases)) for entry, count in chosen]
        seed = int(content["seed"])
    if not found:
        raise FeederError(f"{place}: no network is in the split '{split}'")
    return found, seed


def _check(name: str, value: int, least: int) -> None:
    if value < least:
        raise FeederError(f"{name} {value}: expected {least} or more")


def entries_of(catalogue: Path, split: Split, patterns: Sequence[str]) -> list[Entry]:
    """Networks of a split whose names fit a pattern; raises FeederError if there are none."""
    found = [entry for entry in read_catalogue(catalogue) if entry.split is split]
    chosen = [entry for entry in found if any(fnmatchcase(entry.name, pattern) for pattern in patterns)]
    if not chosen:
        raise FeederError(f"{catalogue}: no network of the split '{split}' is called like {', '.join(patterns)}")
    return chosen
