"""Which cases training asks for: runs of cases of one network, in an order that is a function of seed and epoch.

Cases are drawn live (``corpus.live``) or from the training split of a built corpus; either way the order is known
before anything is simulated, so a run that goes on after a kill starts where it was without doing anything again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from mycelium.corpus.catalogue import Entry, Split
from mycelium.corpus.constants import fit_live, fit_stored
from mycelium.corpus.days import Days, SimulatedDays, StoredDays
from mycelium.corpus.live import LiveConfig, LiveNetwork, LiveSamples, weights
from mycelium.corpus.plan import BLOCK, stratum
from mycelium.corpus.pool import Pool, PoolConfig, Task, Work, one_by_one
from mycelium.corpus.render import Wanted
from mycelium.corpus.store import Corpus
from mycelium.errors import FeederError
from mycelium.sense.policies import POLICIES
from mycelium.simulate.network import NetworkSource
from mycelium.simulate.seeds import generator
from mycelium.train.config import TrainConfig
from mycelium.window.normalise import Normalisation
from mycelium.window.targets import FAULT_CLASSES


@dataclass(frozen=True)
class Draw:
    """Training cases.

    Attributes:
        open_network: Opens the days of a network, in a worker.
        tasks: The runs of an epoch, in order.
        frequency: How frequent each of ``targets.FAULT_CLASSES`` is among them.
        fit: Computes normalisation constants from them; told whether angles are relative to their nominal values.
        names: Of their networks.
    """

    open_network: Callable[[str], Days]
    tasks: Callable[[int], Iterator[Task[Wanted]]]
    frequency: tuple[float, ...]
    fit: Callable[[bool], Normalisation]
    names: tuple[str, ...]


def draw_of(config: TrainConfig, entries: Sequence[Entry], sizes: Mapping[str, int]) -> Draw:
    """The draw that a run asks for.

    Args:
        config: The run.
        entries: Its training networks.
        sizes: As ``network_sizes``.
    """
    return _stored(config) if config.data.corpus is not None else _live(config, entries, sizes)


def network_sizes(entries: Sequence[Entry], workers: int) -> dict[str, int]:
    """Number of buses of each network; every model is imported once, which takes a while."""
    tasks = (Task(entry.name, (entry,)) for entry in entries)
    with Pool(_start_counting, PoolConfig(workers=workers)) as pool:
        found = {task.topic: answers[0] for task, answers in pool.answers(tasks)}
    for name, answer in found.items():
        if not isinstance(answer, int):
            raise FeederError(f"network '{name}' cannot be trained on: {answer}")
    return {name: answer for name, answer in found.items() if isinstance(answer, int)}


def _start_counting() -> Work[Entry, int | str]:
    return one_by_one(_count_buses)


def _count_buses(entry: Entry) -> int | str:
    try:
        return LiveNetwork.of(entry).n_buses
    except FeederError as error:
        return str(error)


# ---- live ---------------------------------------------------------------------------------------------------------


def _live(config: TrainConfig, entries: Sequence[Entry], sizes: Mapping[str, int]) -> Draw:
    data = config.data
    networks = [LiveNetwork(e.name, e.network_source, e.family, sizes[e.name]) for e in entries]
    live = LiveConfig(
        seed=data.seed,
        cases_per_epoch=config.optimiser.samples_per_epoch,
        run=data.cases_per_run,
        most_buses=data.most_buses,
        size_exponent=data.size_exponent,
        family_exponent=data.family_exponent,
        policies=tuple(POLICIES[name] for name in data.policies),
    )
    samples = LiveSamples(networks, live, Normalisation.identity())
    sources = {network.name: network.source for network in samples.networks}
    return Draw(
        partial(SimulatedDays, sources, data.seed, None, live.policies),
        samples.tasks,
        _frequency([stratum("any", data.seed, number).fault for number in range(BLOCK)]),
        partial(fit_live, samples.networks, live, data.policies, data.normalisation_cases),
        tuple(network.name for network in samples.networks),
    )


def _frequency(faults: Sequence[str | None]) -> tuple[float, ...]:
    """Share of each fault class."""
    classes = ["normal" if fault is None else str(fault) for fault in faults]
    return tuple(classes.count(name) / len(classes) for name in FAULT_CLASSES)


# ---- stored -------------------------------------------------------------------------------------------------------


def _stored(config: TrainConfig) -> Draw:
    data = config.data
    assert data.corpus is not None  # whoever calls has looked
    corpus = Corpus.open_folder(data.corpus)
    cases = corpus.cases[corpus.cases["split"] == Split.TRAIN.value]
    labels: dict[str, list[int]] = {}
    networks = []
    for name, rows in cases.groupby("network", sort=False):
        n_buses = len(corpus.grid(str(name)).bus)
        if n_buses <= data.most_buses:
            labels[str(name)] = rows.index.tolist()
            networks.append((str(name), str(rows["family"].iloc[0]), n_buses))
    if not networks:
        raise FeederError(f"{corpus.folder}: no training network with cases has at most {data.most_buses} buses")
    faults = cases.loc[cases["network"].isin(labels), "fault_type"]
    return Draw(
        partial(StoredDays, corpus.folder, cases),
        partial(_stored_tasks, config, labels, _weights(networks, config)),
        _frequency([fault if isinstance(fault, str) else None for fault in faults]),
        partial(fit_stored, corpus, data.policies, data.normalisation_cases),
        tuple(labels),
    )


def _weights(networks: Sequence[tuple[str, str, int]], config: TrainConfig) -> tuple[float, ...]:
    """Probability of each of (name, family, buses)."""
    live = [LiveNetwork(name, NetworkSource(Path(name)), family, n_buses) for name, family, n_buses in networks]
    return tuple(weights(live, config.data.size_exponent, config.data.family_exponent).tolist())


def _stored_tasks(
    config: TrainConfig, labels: dict[str, list[int]], share: Sequence[float], epoch: int
) -> Iterator[Task[Wanted]]:
    """Runs of stored cases; noise and losses are drawn anew every epoch."""
    data, names = config.data, list(labels)
    rng = generator("stored order", data.seed, epoch)
    decks: dict[str, list[int]] = {name: [] for name in names}
    for _ in range(config.optimiser.samples_per_epoch // data.cases_per_run):
        name = names[int(rng.choice(len(names), p=np.asarray(share)))]
        chosen = []
        for _ in range(data.cases_per_run):
            if not decks[name]:  # no case comes twice before every other has come
                decks[name] = rng.permutation(labels[name]).tolist()
            policy = data.policies[int(rng.integers(len(data.policies)))]
            chosen.append(Wanted(name, int(decks[name].pop()), (policy,), draw=epoch + 1))
        yield Task(name, tuple(chosen))
