"""Training cases drawn live: simulated, sensed and made into windows in worker processes. Nothing touches the disk.

Every case is a function of (network, seed, number): with the same numbers it is the case that a corpus of that seed
stores, and its sample the one that a ``StoredSamples`` of it renders. Every epoch has numbers of its own, so no case
comes twice. The order of delivery does not depend on the number of workers or their fate.

Cases follow the strata of ``corpus.plan`` unless a mix is given. Workers draw *runs* of cases of one network: compiling
a network takes as long as some dozen days of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import numpy.typing as npt

from mycelium.corpus.catalogue import Entry
from mycelium.corpus.days import SimulatedDays
from mycelium.corpus.gather import Gatherer
from mycelium.corpus.pool import Pool, PoolConfig, Task
from mycelium.corpus.render import Rendered, RenderWork, Wanted
from mycelium.errors import FeederError
from mycelium.grid.read_opendss import read_opendss
from mycelium.sense.policies import POLICIES, Policy
from mycelium.simulate.cases import CaseMix
from mycelium.simulate.network import NetworkSource
from mycelium.simulate.seeds import generator
from mycelium.window.batch import Batch
from mycelium.window.columns import WindowOptions
from mycelium.window.normalise import Normalisation

EPOCH = 1_000_000  # numbers of a network that one epoch may use


@dataclass(frozen=True, slots=True)
class LiveNetwork:
    """A network to draw cases of.

    Attributes:
        name: Cases are drawn from it.
        source: Where it comes from.
        family: Networks of one origin.
        n_buses: Its size.
    """

    name: str
    source: NetworkSource
    family: str
    n_buses: int

    @staticmethod
    def of(entry: Entry) -> LiveNetwork:
        """A catalogued network; imports it to count its buses."""
        grid, _, _ = read_opendss(entry.master, entry.root)
        return LiveNetwork(entry.name, entry.network_source, entry.family, len(grid.bus))


@dataclass(frozen=True)
class LiveConfig:
    """How cases are drawn.

    Attributes:
        seed: Of all cases and of their order.
        cases_per_epoch: Number of cases, rejected ones included; a whole number of runs.
        run: Cases that a worker draws of a network at a time.
        runs_together: Runs whose samples are mixed into batches.
        buses_per_batch: Most buses of a batch.
        most_buses: Larger networks are left out; None takes all.
        size_exponent: A network's weight is its number of buses to this power: 0 draws all alike.
        family_exponent: A family's weight is its number of networks to this power: 1 draws networks alike, 0 families.
        policies: Sensor policies, drawn alike, one per case.
        mix: How often events are drawn; None takes the strata of ``corpus.plan``.
        options: Of the windows.
        pool: Workers.
    """

    seed: int = 0
    cases_per_epoch: int = 12_800
    run: int = 8
    runs_together: int = 16
    buses_per_batch: int = 20_000
    most_buses: int | None = 10_000
    size_exponent: float = 0.0
    family_exponent: float = 1.0
    policies: tuple[Policy, ...] = tuple(POLICIES.values())
    mix: CaseMix | None = None
    options: WindowOptions = field(default_factory=WindowOptions)
    pool: PoolConfig = field(default_factory=PoolConfig)


class LiveSamples:
    """Draws epochs of new cases. Its workers stay from epoch to epoch: close it, or use ``with``."""

    def __init__(self, networks: Sequence[LiveNetwork], config: LiveConfig, normalisation: Normalisation) -> None:
        """Prepare.

        Args:
            networks: Training networks.
            config: How to draw.
            normalisation: Constants of the training networks.
        """
        most = config.most_buses
        self.networks = [network for network in networks if most is None or network.n_buses <= most]
        if not self.networks:
            raise FeederError(f"no network to draw cases of: {len(networks)} given, all above {most} buses")
        self.config = config
        self._gatherer = Gatherer()
        sources = {network.name: network.source for network in self.networks}
        open_network = partial(SimulatedDays, sources, config.seed, config.mix, config.policies)
        start = partial(RenderWork, open_network, config.options, normalisation)
        self._pool: Pool[Wanted, Rendered] = Pool(start, config.pool)

    def __enter__(self) -> LiveSamples:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the workers."""
        self._pool.close()

    @property
    def rejected(self) -> Counter[tuple[str, str]]:
        """Number of cases that gave no sample, by (network, reason)."""
        return self._gatherer.rejected

    @property
    def delivered(self) -> int:
        """Number of samples given out."""
        return self._gatherer.delivered

    def epoch(self, number: int) -> Iterator[Batch]:
        """The batches of an epoch."""
        config = self.config
        done = self._pool.answers(self.tasks(number))
        yield from self._gatherer.batches(
            done, config.runs_together, config.buses_per_batch, "live", config.seed, number
        )

    def tasks(self, epoch: int) -> Iterator[Task[Wanted]]:
        """The runs of an epoch, in order: a function of networks, seed and epoch."""
        config = self.config
        rng = generator("live order", config.seed, epoch)
        below = np.cumsum(weights(self.networks, config.size_exponent, config.family_exponent))
        next_case = dict.fromkeys((network.name for network in self.networks), epoch * EPOCH)
        for _ in range(-(-config.cases_per_epoch // config.run)):
            chosen = min(int(np.searchsorted(below, rng.random() * below[-1], side="right")), len(below) - 1)
            name = self.networks[chosen].name
            first = next_case[name]
            next_case[name] += config.run
            yield Task(name, tuple(self._wanted(name, case) for case in range(first, first + config.run)))

    def _wanted(self, network: str, case: int) -> Wanted:
        policies = self.config.policies
        which = int(generator(network, "live policy", self.config.seed, case).integers(len(policies)))
        return Wanted(network, case, (policies[which].name,))


def weights(networks: Sequence[LiveNetwork], size_exponent: float, family_exponent: float) -> npt.NDArray[np.float64]:
    """Probability of each network. [network]"""
    size = np.array([float(network.n_buses) for network in networks]) ** size_exponent
    members = Counter(network.family for network in networks)
    total = {family: sum(size[k] for k, n in enumerate(networks) if n.family == family) for family in members}
    weight = np.array(
        [
            size[k] / total[network.family] * members[network.family] ** family_exponent
            for k, network in enumerate(networks)
        ]
    )
    return np.asarray(weight / weight.sum())
