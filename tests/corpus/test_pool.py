"""Answers come in order, once each, whatever happens to the workers."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from mycelium.corpus.pool import Died, Pool, PoolConfig, Task
from mycelium.errors import FeederError

# Items are texts: "kill" ends the process, "kill once PATH" does so if PATH does not exist yet, and so on.


class Work:
    """Answers with the item, its process, and how many topics' items it has answered."""

    def __init__(self) -> None:
        self.answered = 0
        self.ballast: list[bytearray] = []

    def __call__(self, items: Sequence[str]) -> list[tuple[str, int, int]]:
        return [self.answer(item) for item in items]

    def answer(self, item: str) -> tuple[str, int, int]:
        what, _, argument = item.partition(" ")
        if what == "kill" or (what == "once" and not Path(argument).exists()):
            if argument:
                Path(argument).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        if what == "wait":
            time.sleep(float(argument))
        if what == "grow":
            self.ballast.append(bytearray(b"x" * (int(argument) << 20)))
        self.answered += 1
        return item, os.getpid(), self.answered


class Unborn:
    def __init__(self) -> None:
        os._exit(7)

    def __call__(self, items: Sequence[str]) -> Sequence[str]:
        return items


def tasks(count: int, size: int = 3, topics: int = 4) -> Iterator[Task[str]]:
    for k in range(count):
        yield Task(f"topic {k % topics}", tuple(f"say {k}.{j}" for j in range(size)))


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_answers_come_in_order_and_once_each(workers: int) -> None:
    with Pool(Work, PoolConfig(workers=workers)) as pool:
        found = [(task.topic, [answer[0] for answer in answers]) for task, answers in pool.answers(tasks(30))]
    assert found == [(task.topic, list(task.items)) for task in tasks(30)]


def test_a_second_series_meets_the_same_workers() -> None:
    with Pool(Work, PoolConfig(workers=2)) as pool:
        first, second = ({answer[1] for _, answers in pool.answers(tasks(10)) for answer in answers} for _ in range(2))
    assert len(first | second) <= 2  # one may still be starting while the other does the whole first series


def test_a_killed_worker_costs_nothing_but_time(tmp_path: Path) -> None:
    """The machine kills a process once: its task is done again, and all is as if nothing had happened."""
    series = [Task("a", ("say 1", f"once {tmp_path / 'flag'}", "say 2")), *tasks(12)]
    with Pool(Work, PoolConfig(workers=2)) as pool:
        found = [[answer[0] for answer in answers] for _, answers in pool.answers(series)]
    assert found == [list(task.items) for task in series]


def test_an_item_that_always_kills_is_an_answer_and_the_others_of_its_task_are_kept() -> None:
    series = [*tasks(3), Task("a", ("say x", "kill", "say y")), *tasks(5)]
    with Pool(Work, PoolConfig(workers=2)) as pool:
        found = [answers for _, answers in pool.answers(series)]
    assert isinstance(found[3][1], Died)
    assert [answer[0] for answer in (found[3][0], found[3][2])] == ["say x", "say y"]
    rest = [answer for k, answers in enumerate(found) if k != 3 for answer in answers]
    assert not any(isinstance(answer, Died) for answer in rest)


def test_killed_from_outside_again_and_again_it_still_answers_everything() -> None:
    series = [Task(f"topic {k % 3}", tuple(f"wait 0.0{j}" for j in range(3))) for k in range(24)]
    with Pool(Work, PoolConfig(workers=2)) as pool:
        found = []
        for k, (_, answers) in enumerate(pool.answers(series)):
            found.append(answers)
            if k in (2, 9, 15):
                alive = next(answer[1] for answer in answers if not isinstance(answer, Died))
                with suppress(ProcessLookupError):  # it was replaced meanwhile
                    os.kill(alive, signal.SIGKILL)
    assert len(found) == len(series) and all(len(answers) == 3 for answers in found)
    assert sum(isinstance(answer, Died) for answers in found for answer in answers) <= 3


def test_workers_that_grow_are_replaced() -> None:
    series = [Task("a", (f"grow {60 if k % 2 else 1}",)) for k in range(12)]
    with Pool(Work, PoolConfig(workers=1, memory_mib=250)) as pool:
        processes = [answers[0][1] for _, answers in pool.answers(series)]
    assert len(processes) == 12 and len(set(processes)) > 1


def test_few_tasks_are_taken_before_they_are_needed() -> None:
    taken: list[int] = []

    def counted() -> Iterator[Task[str]]:
        for k, task in enumerate(tasks(100)):
            taken.append(k)
            yield task

    config = PoolConfig(workers=2, ahead=3)
    with Pool(Work, config) as pool:
        series = pool.answers(counted())
        for place in range(10):
            next(series)
            assert len(taken) <= place + 1 + config.ahead * config.workers
        series.close()


def test_topics_stay_with_the_workers_that_have_them_open() -> None:
    series = [Task(f"topic {k % 8}", ("wait 0.02",)) for k in range(160)]
    with Pool(Work, PoolConfig(workers=2, ahead=8)) as pool:
        who: dict[str, set[int]] = {}
        for task, answers in pool.answers(series):
            who.setdefault(task.topic, set()).add(answers[0][1])
    assert sum(len(workers) for workers in who.values()) <= 12, (
        "8 topics on 2 workers, each on one of them but for a few"
    )


def test_one_topic_uses_all_workers() -> None:
    with Pool(Work, PoolConfig(workers=3)) as pool:
        found = {answers[0][1] for _, answers in pool.answers(Task("a", ("wait 0.05",)) for _ in range(40))}
    assert len(found) == 3


def test_leaving_early_ends_the_workers() -> None:
    pool = Pool(Work, PoolConfig(workers=2))
    series = pool.answers(tasks(1000))
    _, answers = next(series)
    series.close()
    for _ in range(100):
        try:
            os.kill(answers[0][1], 0)
        except ProcessLookupError:
            break
        time.sleep(0.05)
    else:
        raise AssertionError("the worker is still there")
    # And it can be used again.
    assert len(list(pool.answers(tasks(4)))) == 4
    pool.close()


def test_workers_that_cannot_start_are_an_error_not_a_loop() -> None:
    with Pool(Unborn, PoolConfig(workers=1)) as pool, pytest.raises(FeederError, match="exit code 7"):
        list(pool.answers(tasks(2)))
