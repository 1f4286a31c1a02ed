"""From what workers answer to batches, in this process: keeps features, counts rejections, puts samples together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from mycelium.corpus.pool import Died, Task
from mycelium.corpus.render import Rendered, Wanted
from mycelium.errors import FeederError
from mycelium.window.batch import Batch, group_by_size
from mycelium.window.columns import Store
from mycelium.window.sample import Sample
from mycelium.window.static import GridFeatures

_HOPELESS = 100  # answers without a single sample: something is wrong with all of them

Answer = tuple[Task[Wanted], list[Rendered | Died]]


class Gatherer:
    """Makes batches of answers.

    Attributes:
        rejected: Number of cases by (network, reason).
        delivered: Number of samples.
    """

    def __init__(self) -> None:
        self.rejected: Counter[tuple[str, str]] = Counter()
        self.delivered = 0
        self._features: dict[tuple[str, int], GridFeatures] = {}

    def batches(self, answers: Iterable[Answer], tasks_together: int, budget: int, *seed: str | int) -> Iterator[Batch]:
        """Batches of at most ``budget`` buses.

        Args:
            answers: In an order that does not depend on chance.
            tasks_together: Samples of this many tasks are mixed; what comes in one group is never in another's batch.
            budget: Most buses of a batch.
            seed: Names and numbers that the order within a group depends on.
        """
        group: list[Sample] = []
        number = waiting = 0
        for task, results in answers:
            group += self._samples(task, results)
            waiting += 1
            if waiting == tasks_together:
                yield from self._of_group(group, budget, *seed, number)
                group, waiting, number = [], 0, number + 1
        yield from self._of_group(group, budget, *seed, number)

    def _samples(self, task: Task[Wanted], results: list[Rendered | Died]) -> list[Sample]:
        """The samples among a task's answers."""
        found: list[Sample] = []
        for result in results:
            if isinstance(result, Died) or result.rejected:
                self.rejected[task.topic, result.reason if isinstance(result, Died) else result.rejected] += 1
                continue
            if result.features is not None:
                self._features[result.samples[0].id.key] = result.features
            found += result.samples
        self.delivered += len(found)
        if not self.delivered and self.rejected.total() >= _HOPELESS:
            (network, reason), count = self.rejected.most_common(1)[0]
            raise FeederError(f"none of {self.rejected.total()} cases gave a sample; {count} of '{network}': {reason}")
        return found

    def _of_group(self, group: list[Sample], budget: int, *seed: str | int) -> Iterator[Batch]:
        parts = [(self._features[sample.id.key], sample) for sample in group]
        sizes = [features.counts[Store.BUS] for features, _ in parts]
        for chosen in group_by_size(sizes, budget, *seed):
            yield Batch.of([parts[k] for k in chosen])
