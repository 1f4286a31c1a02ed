"""Steps of training: the pieces of every global batch that one process works on, made ahead by worker processes.

A *group* is ``batch`` runs; step k of it takes case k of every run, so a global batch holds as many networks as there
are runs. The cases of a step are fixed before anything is simulated: they depend neither on the number of processes,
each of which takes every n-th run, nor on what is rejected, which is merely missing. A piece is the union of similar
networks up to the node budget.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from mycelium.corpus.pool import Died, Pool, PoolConfig, Task, Work
from mycelium.corpus.render import Rendered, Wanted
from mycelium.errors import FeederError
from mycelium.window.batch import Batch, group_by_size
from mycelium.window.columns import Store
from mycelium.window.sample import Sample
from mycelium.window.static import GridFeatures
from mycelium.window.window import Movable

_HOPELESS = 100  # answers without a single sample: something is wrong with all of them


@dataclass(frozen=True)
class Step(Movable):
    """This process's part of one global batch.

    Attributes:
        pieces: Unions up to the node budget, numbered.
        samples: How many there are.
    """

    pieces: Mapping[int, Batch]
    samples: int


@dataclass(frozen=True, slots=True)
class FeedConfig:
    """How steps are put together.

    Attributes:
        batch: Cases asked for per step, over all processes.
        run: Cases of one run.
        buses_per_batch: Most buses of a piece.
        rank, world: Which of how many processes this is.
    """

    batch: int
    run: int
    buses_per_batch: int
    rank: int = 0
    world: int = 1

    def __post_init__(self) -> None:
        if self.batch % self.world:
            raise FeederError(f"a batch of {self.batch} does not go into {self.world} processes; change one of them")


class Feed:
    """Makes steps. Its workers stay from epoch to epoch: close it, or use ``with``.

    Attributes:
        rejected: Number of cases that gave no sample, by (network, reason).
    """

    def __init__(
        self,
        tasks: Callable[[int], Iterator[Task[Wanted]]],
        start: Callable[[], Work[Wanted, Rendered]],
        config: FeedConfig,
        pool: PoolConfig,
    ) -> None:
        """Prepare.

        Args:
            tasks: The runs of an epoch, in order.
            start: Makes what renders a case, in a worker.
            config: How steps are put together.
            pool: Workers.
        """
        self.rejected: Counter[tuple[str, str]] = Counter()
        self._tasks, self._config = tasks, config
        self._pool: Pool[Wanted, Rendered] = Pool(start, pool)
        self._features: dict[tuple[str, int], GridFeatures] = {}
        self._delivered = 0

    def __enter__(self) -> Feed:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the workers."""
        self._pool.close()

    def epoch(self, number: int, first: int = 0) -> Iterator[Step]:
        """The steps of an epoch.

        Args:
            number: Which epoch.
            first: First step wanted; what comes before is not simulated, but for its own group.
        """
        config = self._config
        groups, skipped = divmod(first, config.run)
        own = itertools.islice(self._tasks(number), groups * config.batch + config.rank, None, config.world)
        answers = self._pool.answers(own)
        for group in itertools.count(groups):
            runs = [
                [self._sample(task, answer) for answer in results]
                for task, results in itertools.islice(answers, config.batch // config.world)
            ]
            if not runs:
                return
            for k, cases in enumerate(zip(*runs, strict=True)):
                if k >= skipped:
                    yield self._step([case for case in cases if case is not None], number, group * config.run + k)
            skipped = 0

    def _sample(self, task: Task[Wanted], answer: Rendered | Died) -> Sample | None:
        if isinstance(answer, Died) or answer.rejected:
            self.rejected[task.topic, answer.reason if isinstance(answer, Died) else answer.rejected] += 1
            if not self._delivered and self.rejected.total() >= _HOPELESS:
                (network, reason), count = self.rejected.most_common(1)[0]
                raise FeederError(
                    f"none of {self.rejected.total()} cases gave a sample; {count} of '{network}': {reason}"
                )
            return None
        (sample,) = answer.samples
        if answer.features is not None:
            self._features[sample.id.key] = answer.features
        self._delivered += 1
        return sample

    def _step(self, samples: list[Sample], epoch: int, step: int) -> Step:
        parts = [(self._features[sample.id.key], sample) for sample in samples]
        sizes = [features.counts[Store.BUS] for features, _ in parts]
        groups = group_by_size(sizes, self._config.buses_per_batch, "step", epoch, step)
        pieces = {k: Batch.of([parts[j] for j in chosen]) for k, chosen in enumerate(groups)}
        return Step(pieces, len(samples))
