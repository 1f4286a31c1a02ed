"""From a day to samples, in a worker: sense it under a policy, make inputs of the readings and targets of the truth."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import ParamSpec, TypeVar

from mycelium.corpus.days import Days
from mycelium.errors import FeederError
from mycelium.grid.grid import Grid
from mycelium.sense.measure import Meters
from mycelium.sense.placement import Placement
from mycelium.sense.sense import sense
from mycelium.simulate.circuit import Rejection
from mycelium.simulate.day import Day
from mycelium.window.columns import WindowOptions
from mycelium.window.normalise import Normalisation
from mycelium.window.sample import Sample, SampleId
from mycelium.window.static import GridFeatures
from mycelium.window.targets import TargetLayout
from mycelium.window.temporal import Observer

P = ParamSpec("P")
T = TypeVar("T")

_HELD_BYTES = 1 << 26  # voltages of days that wait to be rendered


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a worker is asked for: one case under some policies.

    Attributes:
        network: Name of the network.
        case: As its ``Days`` number it.
        policies: One sample each.
        draw: Which draw of noise and losses.
    """

    network: str
    case: int
    policies: tuple[str, ...]
    draw: int = 0


@dataclass(frozen=True, slots=True)
class Rendered:
    """What came of it.

    Attributes:
        samples: In the order of the policies.
        features: Of the samples' grid, if this worker has not handed them over before.
        rejected: Why there is no sample; empty if there is one.
    """

    samples: tuple[Sample, ...] = ()
    features: GridFeatures | None = None
    rejected: str = ""


@dataclass(frozen=True)
class VariantRenderer:
    """Renders days of one network variant.

    Attributes:
        features: Of its grid.
        observer: Makes inputs.
        layout: Makes targets.
        meters: By policy, as they are needed.
    """

    grid: Grid
    features: GridFeatures
    observer: Observer
    layout: TargetLayout
    meters: dict[str, Meters] = field(default_factory=dict)

    @staticmethod
    def of(grid: Grid, options: WindowOptions, normalisation: Normalisation) -> VariantRenderer:
        features = GridFeatures.of(grid, options, normalisation)
        return VariantRenderer(grid, features, Observer.of(features), TargetLayout.of(grid, features))

    def samples(self, day: Day, placements: Callable[[str], Placement], wanted: Wanted) -> tuple[Sample, ...]:
        """A day under some policies."""
        targets = self.layout.of_day(day)
        result = []
        for policy in wanted.policies:
            if policy not in self.meters:
                self.meters[policy] = Meters.of(self.grid, placements(policy))
            readings = sense(self.meters[policy], day, day.seed, day.number, wanted.draw)
            identity = SampleId(wanted.network, day.seed, day.number, day.variant, policy, wanted.draw)
            result.append(Sample(identity, self.observer.observe(readings), targets))
        return tuple(result)


class RenderWork:
    """What a worker does: keeps networks open and renders what is wanted of them.

    Days of several cases are fetched first and rendered after one another: in turns, each would push the other's code
    and tables out of the processor's caches, and rendering would take longer. Whatever goes wrong
    with one case is its answer, so that it cannot stop a run.
    """

    def __init__(
        self, open_network: Callable[[str], Days], options: WindowOptions, normalisation: Normalisation
    ) -> None:
        """Prepare.

        Args:
            open_network: Opens the days of a network, by name.
            options, normalisation: Of the windows.
        """
        self._open_network, self._options, self._normalisation = open_network, options, normalisation
        self._days: dict[str, Days] = {}
        self._refused: dict[str, str] = {}
        self._renderers: dict[tuple[str, int], VariantRenderer] = {}
        self._handed_over: set[tuple[str, int]] = set()

    def __call__(self, wanted: Sequence[Wanted]) -> list[Rendered]:
        """One answer for each that is wanted."""
        found: list[Rendered] = []
        days: list[Day | Rendered] = []
        for one in wanted:
            days.append(_or_why(self._day, one))
            if sum(day.v.nbytes for day in days if isinstance(day, Day)) > _HELD_BYTES:
                found += self._rendered(wanted[len(found) :], days)
                days = []
        return found + self._rendered(wanted[len(found) :], days)

    def _rendered(self, wanted: Sequence[Wanted], days: Sequence[Day | Rendered]) -> list[Rendered]:
        """Days under the policies that are wanted of each; what is no day is its own answer."""
        return [
            day if isinstance(day, Rendered) else _or_why(self._render, one, day)
            for one, day in zip(wanted, days, strict=False)
        ]

    def _day(self, wanted: Wanted) -> Day:
        return self._network(wanted.network).day(wanted.case)

    def _render(self, wanted: Wanted, day: Day) -> Rendered:
        days, key = self._network(wanted.network), (wanted.network, day.variant)
        if key not in self._renderers:
            grid = days.grid(day.variant)
            self._renderers[key] = VariantRenderer.of(grid, self._options, self._normalisation)
        renderer = self._renderers[key]
        samples = renderer.samples(day, days.placement, wanted)
        known = key in self._handed_over
        self._handed_over.add(key)
        return Rendered(samples, None if known else renderer.features)

    def _network(self, name: str) -> Days:
        if name in self._refused:
            raise FeederError(self._refused[name])
        if name not in self._days:
            try:
                self._days[name] = self._open_network(name)
            except FeederError as error:
                self._refused[name] = str(error)
                raise
        return self._days[name]


def _or_why(make: Callable[P, T], *of: P.args, **named: P.kwargs) -> T | Rendered:
    """What is made, or why there is none."""
    try:
        return make(*of, **named)
    except (Rejection, FeederError) as reason:
        return Rendered(rejected=str(reason))
    except MemoryError:
        raise  # the process is of no more use: it dies, and the pool starts another
    except Exception as error:
        return Rendered(rejected=f"{type(error).__name__}: {error}")
