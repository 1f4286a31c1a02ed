"""What tests of windows share: days of bundled feeders under a policy, as readings, samples and windows."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np

from mycelium.grid.grid import Grid
from mycelium.schema import CHANNELS
from mycelium.sense.readings import Readings
from mycelium.sense.sense import sense
from mycelium.simulate.cases import CaseMix
from mycelium.simulate.day import Day
from mycelium.window.batch import Batch
from mycelium.window.columns import Store, WindowOptions, first, temporal_columns
from mycelium.window.normalise import Normalisation
from mycelium.window.sample import Sample, SampleId
from mycelium.window.static import GridFeatures
from mycelium.window.supervision import Targets
from mycelium.window.targets import TargetLayout
from mycelium.window.temporal import Observer
from mycelium.window.window import Window
from tests.sense.networks import bundled, day_of, meters_of

PLAIN = Normalisation.identity()


@dataclass(frozen=True)
class Case:
    """A day of the published network, seen under a policy."""

    grid: Grid
    day: Day
    readings: Readings

    def features(self, options: WindowOptions | None = None, normalisation: Normalisation = PLAIN) -> GridFeatures:
        return GridFeatures.of(self.grid, options or WindowOptions(), normalisation)

    def part(self, options: WindowOptions | None = None) -> tuple[GridFeatures, Sample]:
        features = self.features(options)
        identity = SampleId(self.day.network, self.day.seed, self.day.number, self.day.variant)
        targets = TargetLayout.of(self.grid, features).of_day(self.day)
        return features, Sample(identity, Observer.of(features).observe(self.readings), targets)

    def batch(self, options: WindowOptions | None = None) -> Batch:
        return Batch.of([self.part(options)])


@functools.cache
def case_of(feeder: str, mix: CaseMix, policy: str = "clean", first_number: int = 0) -> Case:
    network = bundled(feeder)
    day = day_of(network, mix, first_number)
    meters = meters_of(network.published.grid, policy, network.name)
    return Case(network.published.grid, day, sense(meters, day, day.seed, day.number))


def window_of(
    grid: Grid, readings: Readings, options: WindowOptions | None = None, normalisation: Normalisation = PLAIN
) -> Window:
    """A window of readings alone, without any truth."""
    features = GridFeatures.of(grid, options or WindowOptions(), normalisation)
    return Batch.of([(features, Sample(SampleId(grid.name), Observer.of(features).observe(readings), None))]).window()


def both(case: Case, options: WindowOptions | None = None) -> tuple[Window, Targets]:
    batch = case.batch(options)
    return batch.window(), batch.targets()


def column(options: WindowOptions, store: Store, shared: str) -> int:
    return first(temporal_columns(options)[store], shared)


def report(grid: Grid, *readings: tuple[str, int, int, int, float]) -> Readings:
    """Readings of (channel, hour, row, slot, value) and nothing else."""
    none = Readings.none(grid)
    value = {key: none.value[key].copy() for key in CHANNELS}
    seen = {key: none.seen[key].copy() for key in CHANNELS}
    for key, hour, row, slot, number in readings:
        value[key][hour, row, slot] = np.float32(number)
        seen[key][hour, row, slot] = True
    return Readings.of(value, seen)
