"""Normalisation constants of a corpus, or of networks whose cases are drawn live: of training networks only."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from mycelium.corpus.catalogue import Split
from mycelium.corpus.days import Days, SimulatedDays
from mycelium.corpus.live import LiveConfig, LiveNetwork
from mycelium.corpus.store import Corpus
from mycelium.errors import FeederError
from mycelium.grid.grid import Grid
from mycelium.sense.measure import Meters
from mycelium.sense.placement import Placement
from mycelium.sense.policies import POLICIES
from mycelium.sense.sense import sense
from mycelium.simulate.circuit import Rejection
from mycelium.simulate.day import Day
from mycelium.window.batch import Batch
from mycelium.window.columns import Store, WindowOptions, static_columns, temporal_columns
from mycelium.window.normalise import Fit, Normalisation
from mycelium.window.sample import Sample, SampleId
from mycelium.window.static import GridFeatures, fit_static
from mycelium.window.temporal import Observer
from mycelium.window.window import Window

CASES = 4  # of each network
ENOUGH_CASES = 64  # of all networks, for the constants that are stored: a build shall not wait for them


@dataclass(frozen=True, slots=True)
class _BuiltDays:
    """Days of a network of an open corpus; the build that makes it need not be finished."""

    corpus: Corpus
    network: str

    def day(self, case: int) -> Day:
        return self.corpus.day(case)

    def grid(self, variant: int) -> Grid:
        return self.corpus.grid(self.network, variant)

    def placement(self, policy: str) -> Placement:
        return self.corpus.placement(self.network, policy)


def fit_stored(
    corpus: Corpus, policies: tuple[str, ...] = tuple(POLICIES), cases: int = CASES, nominal_angle: bool = True
) -> Normalisation:
    """Constants of a corpus: its training networks, their first cases; nothing else is read.

    Args:
        corpus: Built, with a training split.
        policies: Sensor policies whose readings count.
        cases: First cases of every network.
        nominal_angle: Angles count relative to their nominal values, as in the windows that they are for.
    """
    training = corpus.cases[corpus.cases["split"] == Split.TRAIN.value]
    if not len(training):
        raise FeederError(f"{corpus.folder}: no training networks, so no normalisation constants")
    fit = Fit(nominal_angle)
    for network, rows in training.groupby("network", sort=False):
        name = str(network)
        _add_network(fit, name, _BuiltDays(corpus, name), rows.head(cases).index.tolist(), policies)
    return fit.result()


def fit_built(folder: Path) -> Normalisation:
    """Constants that a corpus keeps: under all policies, from fewer cases of each network where there are many.

    Args:
        folder: Built but for them.
    """
    corpus = Corpus.being_finished(folder)
    networks = corpus.cases.loc[corpus.cases["split"] == Split.TRAIN.value, "network"].nunique()
    return fit_stored(corpus, cases=min(CASES, max(1, ENOUGH_CASES // max(1, networks))))


def fit_live(
    networks: Iterable[LiveNetwork],
    config: LiveConfig,
    policies: tuple[str, ...] = tuple(POLICIES),
    cases: int = CASES,
    nominal_angle: bool = True,
) -> Normalisation:
    """Constants of networks whose cases are drawn live; the first cases of the first epoch.

    Args:
        networks: Training networks.
        config: How cases are drawn.
        policies: Names of those of its sensor policies whose readings count.
        cases: First cases of every network.
        nominal_angle: As in ``fit_stored``.
    """
    fit = Fit(nominal_angle)
    for network in networks:
        days = SimulatedDays({network.name: network.source}, config.seed, config.mix, config.policies, network.name)
        _add_network(fit, network.name, days, range(cases), policies)
        days.close()
    return fit.result()


def _add_network(fit: Fit, name: str, days: Days, cases: Iterable[int], policies: tuple[str, ...]) -> None:
    fit.networks.append(name)
    options = replace(WindowOptions.everything(), nominal_angle=fit.nominal_angle)
    fit_static(fit, days.grid(0))
    for case in cases:
        with suppress(Rejection):
            day = days.day(case)
            grid = days.grid(day.variant)
            features = GridFeatures.of(grid, options, Normalisation.identity())
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
