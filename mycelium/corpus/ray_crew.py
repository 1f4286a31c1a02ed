"""Workers on a Ray cluster. The corpus folder and the networks must be on a disk that all nodes share."""

from __future__ import annotations

import logging
import socket
from pathlib import Path
from typing import Any

from mycelium.corpus.crew import Answer, Failed, Stop, answer, died
from mycelium.corpus.files import Written
from mycelium.corpus.layout import PLAN
from mycelium.corpus.plan import Unit
from mycelium.corpus.process import WORKER
from mycelium.corpus.unit import UnitBuilder
from mycelium.errors import FeederError

_SECONDS_TO_ANSWER = 10.0


class _Worker:
    """An actor: one process somewhere in the cluster."""

    def __init__(self, folder: Path, plan: Written) -> None:
        self._folder, self._plan = folder, plan
        self._builder = UnitBuilder(folder)

    def build(self, unit: Unit) -> Answer:
        for path in (self._folder / PLAN, unit.source.master):
            if not path.is_file():
                return Stop(f"a node of the cluster does not see {path}; put it on a disk that all nodes share")
        if Written.of(self._folder / PLAN) != self._plan:
            return Stop(f"a node of the cluster sees another folder at {self._folder}")
        return answer(self._builder, unit)


def _require_answer(address: str) -> None:
    """Raise FeederError if nobody listens there: Ray itself would go on trying for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon or not port.isdigit():
        return  # "auto", or a name that Ray knows
    try:
        socket.create_connection((host, int(port)), timeout=_SECONDS_TO_ANSWER).close()
    except (OSError, OverflowError) as error:
        raise FeederError(f"--ray {address}: no Ray cluster answers there ({error})") from error


class RayCrew:
    """One actor per CPU of a cluster."""

    def __init__(self, folder: Path, address: str) -> None:
        try:
            import ray
        except ImportError:
            raise FeederError("--ray needs Ray, which is not installed: pip install 'mycelium-grid[cluster]'") from None
        self._ray = ray
        _require_answer(address)
        try:
            ray.init(address, log_to_driver=False, logging_level=logging.ERROR, runtime_env={"env_vars": WORKER})
        except (ConnectionError, RuntimeError, ValueError, OSError) as error:
            raise FeederError(f"--ray {address}: no Ray cluster answers there ({error})") from error
        self._arguments = (folder.absolute(), Written.of(folder / PLAN))
        self._actor = ray.remote(num_cpus=1, max_restarts=0)(_Worker)
        resources: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
        self._workers = [self._start() for _ in range(int(resources.get("CPU", 1)))]
        self._busy: dict[Any, int] = {}

    @property
    def size(self) -> int:
        return len(self._workers)

    def hand(self, worker: int, unit: Unit) -> None:
        self._busy[self._workers[worker].build.remote(unit)] = worker

    def wait(self) -> tuple[int, Answer]:
        (ready, *_), _ = self._ray.wait(list(self._busy), num_returns=1)
        worker = self._busy.pop(ready)
        try:
            result: Answer = self._ray.get(ready)
        except self._ray.exceptions.RayActorError as error:
            result = died(str(error).splitlines()[0])
        except self._ray.exceptions.RayTaskError as error:
            result = Failed(f"{type(error.cause).__name__}: {error.cause}")
        return worker, result

    def renew(self, worker: int) -> None:
        self._ray.kill(self._workers[worker])
        self._workers[worker] = self._start()

    def close(self) -> None:
        for worker in self._workers:
            self._ray.kill(worker)
        self._ray.shutdown()

    def _start(self) -> Any:
        return self._actor.remote(*self._arguments)
