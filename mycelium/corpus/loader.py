"""Samples of a built corpus: stored days, rendered when they are loaded, under any policy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial

from mycelium.corpus.catalogue import Split
from mycelium.corpus.days import StoredDays
from mycelium.corpus.gather import Gatherer
from mycelium.corpus.pool import Pool, PoolConfig, Task
from mycelium.corpus.render import Rendered, RenderWork, Wanted
from mycelium.corpus.store import Corpus
from mycelium.errors import FeederError
from mycelium.sense.policies import POLICIES, Policy
from mycelium.simulate.seeds import generator
from mycelium.window.batch import Batch
from mycelium.window.columns import WindowOptions
from mycelium.window.normalise import Normalisation


@dataclass(frozen=True)
class StoredConfig:
    """How a split is loaded.

    Attributes:
        policies: Every case is rendered under each; one's own are placed anew, as a corpus has the seven only.
        cases_per_task: Cases that a worker renders of a network at a time.
        tasks_together: Tasks whose samples are mixed into batches.
        buses_per_batch: Most buses of a batch.
        most_buses: Networks above are left out; None takes all.
        shuffle: Draw the order, and noise and losses, anew in every epoch: for training. Else both are the same always.
        seed: Of the order.
        options: Of the windows.
        pool: Workers.
    """

    policies: tuple[Policy, ...] = tuple(POLICIES.values())
    cases_per_task: int = 8
    tasks_together: int = 16
    buses_per_batch: int = 20_000
    most_buses: int | None = None
    shuffle: bool = False
    seed: int = 0
    options: WindowOptions = field(default_factory=WindowOptions)
    pool: PoolConfig = field(default_factory=PoolConfig)


class StoredSamples:
    """The samples of one split of a corpus. Its workers stay from epoch to epoch: close it, or use ``with``."""

    def __init__(self, corpus: Corpus, split: Split, config: StoredConfig, normalisation: Normalisation) -> None:
        """Prepare.

        Args:
            corpus: Where the days are.
            split: Which of its networks.
            config: How to load.
            normalisation: Constants of the training networks.
        """
        self.config = config
        cases = corpus.cases[corpus.cases["split"] == split.value]
        if config.most_buses is not None:
            names = cases["network"].unique()
            small = {name for name in names if len(corpus.grid(name).bus) <= config.most_buses}
            cases = cases[cases["network"].isin(small)]
        if not len(cases):
            raise FeederError(f"{corpus.folder}: the split '{split}' has no cases; build a corpus that has some")
        self._cases = cases
        self._gatherer = Gatherer()
        own = {policy.name: policy for policy in config.policies if policy != POLICIES.get(policy.name)}
        open_network = partial(StoredDays, corpus.folder, cases, own=own)
        start = partial(RenderWork, open_network, config.options, normalisation)
        self._pool: Pool[Wanted, Rendered] = Pool(start, config.pool)

    def __enter__(self) -> StoredSamples:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the workers."""
        self._pool.close()

    def __len__(self) -> int:
        """Number of samples of an epoch."""
        return len(self._cases) * len(self.config.policies)

    @property
    def rejected(self) -> Counter[tuple[str, str]]:
        """Number of cases that gave no sample, by (network, reason)."""
        return self._gatherer.rejected

    def epoch(self, number: int = 0) -> Iterator[Batch]:
        """All samples once, in batches."""
        config = self.config
        done = self._pool.answers(self.tasks(number))
        epoch = number if config.shuffle else 0
        yield from self._gatherer.batches(
            done, config.tasks_together, config.buses_per_batch, "stored", config.seed, epoch
        )

    def tasks(self, epoch: int = 0) -> Iterator[Task[Wanted]]:
        """What workers are asked for, in order."""
        config = self.config
        draw = epoch if config.shuffle else 0
        names = tuple(policy.name for policy in config.policies)
        tasks = []
        for network, rows in self._cases.groupby("network", sort=False):
            labels = rows.index.tolist()
            if config.shuffle:
                generator("stored cases", network, config.seed, epoch).shuffle(labels)
            for k in range(0, len(labels), config.cases_per_task):
                chosen = labels[k : k + config.cases_per_task]
                tasks.append(Task(network, tuple(Wanted(network, case, names, draw) for case in chosen)))
        if config.shuffle:
            order = generator("stored tasks", config.seed, epoch).permutation(len(tasks))
            tasks = [tasks[k] for k in order]
        yield from tasks
