"""Normalisation constants of a corpus, or of networks whose cases are drawn live: of training networks only."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

import torch

from mycelium.corpus.catalogue import Split
from mycelium.corpus.days import Days, SimulatedDays, StoredDays
from mycelium.corpus.live import LiveConfig, LiveNetwork
from mycelium.corpus.store import Corpus
from mycelium.errors import FeederError
from mycelium.sense.measure import Meters
from mycelium.sense.policies import POLICIES
from mycelium.sense.sense import sense
from mycelium.simulate.circuit import Rejection
from mycelium.window.batch import Batch
from mycelium.window.columns import Store, WindowOptions, static_columns, temporal_columns
from mycelium.window.normalise import Fit, Normalisation
from mycelium.window.sample import Sample, SampleId
from mycelium.window.static import GridFeatures, fit_static
from mycelium.window.temporal import Observer
from mycelium.window.window import Window

CASES = 4  # of each network


def fit_stored(corpus: Corpus, policies: tuple[str, ...] = tuple(POLICIES), cases: int = CASES) -> Normalisation:
    """Constants of a corpus: its training networks, their first cases; nothing else is read.

    Args:
        corpus: Built, with a training split.
        policies: Sensor policies whose readings count.
        cases: First cases of every network.
    """
    training = corpus.cases[corpus.cases["split"] == Split.TRAIN.value]
    if not len(training):
        raise FeederError(f"{corpus.folder}: no training networks, so no normalisation constants")
    fit = Fit()
    for network, rows in training.groupby("network", sort=False):
        chosen = rows.head(cases)
        _add_network(fit, str(network), StoredDays(corpus.folder, chosen, str(network)), chosen.index, policies)
    return fit.result()


def fit_live(
    networks: Iterable[LiveNetwork], config: LiveConfig, policies: tuple[str, ...] = tuple(POLICIES), cases: int = CASES
) -> Normalisation:
    """Constants of networks whose cases are drawn live; the first cases of the first epoch.

    Args:
        networks: Training networks.
        config: How cases are drawn.
        policies: Names of those of its sensor policies whose readings count.
        cases: First cases of every network.
    """
    fit = Fit()
    for network in networks:
        days = SimulatedDays({network.name: network.source}, config.seed, config.mix, config.policies, network.name)
        _add_network(fit, network.name, days, range(cases), policies)
        days.close()
    return fit.result()


def _add_network(fit: Fit, name: str, days: Days, cases: Iterable[int], policies: tuple[str, ...]) -> None:
    fit.networks.append(name)
    fit_static(fit, days.grid(0))
    for case in cases:
        with suppress(Rejection):
            day = days.day(case)
            grid = days.grid(day.variant)
            features = GridFeatures.of(grid, WindowOptions.everything(), Normalisation.identity())
            observer = Observer.of(features)
            for policy in policies:
                readings = sense(Meters.of(grid, days.placement(policy)), day, day.seed, day.number, 0)
                sample = Sample(SampleId(name), observer.observe(readings), None)
                add_window(fit, Batch.of([(features, sample)]).window())


def add_window(fit: Fit, window: Window) -> None:
    """Add a window to normalisation constants; it holds all columns, not normalised."""
    for store, columns in temporal_columns(window.options).items():
        part = window.temporal[store]
        fit.add_temporal(store, columns, part.value.where(part.seen, torch.nan).numpy())
    fit.add_static(Store.SUMMARY, static_columns(window.options)[Store.SUMMARY], window.static[Store.SUMMARY].numpy())
