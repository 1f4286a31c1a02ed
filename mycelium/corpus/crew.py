"""Workers that build units: processes of this machine. ``ray_crew`` has the same for a cluster."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Protocol

from mycelium.corpus.layout import UnitRecord
from mycelium.corpus.plan import Unit
from mycelium.corpus.unit import UnitBuilder, UnitFailed

# One thread each: cores are kept busy by processes, and results do not depend on how a sum is split.
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")


@dataclass(frozen=True, slots=True)
class Failed:
    """A unit of which nothing could be made, and why: another attempt may do better."""

    reason: str


@dataclass(frozen=True, slots=True)
class Stop:
    """Something that no other unit would survive either, as a full disk."""

    reason: str


Answer = UnitRecord | Failed | Stop


class Crew(Protocol):
    """Workers, numbered from 0, each with one unit at a time."""

    @property
    def size(self) -> int: ...

    def hand(self, worker: int, unit: Unit) -> None:
        """Give an idle worker a unit."""

    def wait(self) -> tuple[int, Answer]:
        """The next worker that is done, or dead, and what came of its unit."""

    def renew(self, worker: int) -> None:
        """Put a fresh process in the place of an idle or dead worker."""

    def close(self) -> None:
        """End all workers at once; what they were doing is lost, what is finished is not."""


def answer(builder: UnitBuilder, unit: Unit) -> Answer:
    """Build a unit in a worker; nothing it can raise stops the worker."""
    try:
        return builder.build(unit)
    except UnitFailed as error:
        return Failed(str(error))
    except OSError as error:
        return Stop(f"{error.filename or unit.network}: {error.strerror or error}")
    except Exception as error:
        builder.close()
        return Failed(f"{type(error).__name__}: {error}")


def died(how: str) -> Failed:
    return Failed(f"the worker process died ({how}; out of memory?)")


class LocalCrew:
    """Processes of this machine."""

    def __init__(self, folder: Path, size: int) -> None:
        self._folder = folder
        self._context = multiprocessing.get_context("spawn")
        self._workers = [self._start() for _ in range(size)]

    @property
    def size(self) -> int:
        return len(self._workers)

    def hand(self, worker: int, unit: Unit) -> None:
        with suppress(BrokenPipeError, ConnectionResetError):  # it died while idle: `wait` will say so
            self._workers[worker][1].send(unit)

    def wait(self) -> tuple[int, Answer]:
        ready = wait([connection for _, connection in self._workers])
        worker = next(k for k, (_, connection) in enumerate(self._workers) if connection in ready)
        process, connection = self._workers[worker]
        try:
            result: Answer = connection.recv()
        except (EOFError, ConnectionResetError):
            process.join()
            code = process.exitcode or 0
            result = died(signal.Signals(-code).name if code < 0 else f"exit code {code}")
        return worker, result

    def renew(self, worker: int) -> None:
        self._end(*self._workers[worker])
        self._workers[worker] = self._start()

    def close(self) -> None:
        for process, connection in self._workers:
            self._end(process, connection)

    def _start(self) -> tuple[SpawnProcess, Connection]:
        ours, theirs = self._context.Pipe()
        process = self._context.Process(target=_serve, args=(theirs, self._folder), daemon=True)
        with _environment(ONE_THREAD):
            process.start()
        theirs.close()  # so that its end is seen here
        return process, ours

    @staticmethod
    def _end(process: SpawnProcess, connection: Connection) -> None:
        process.kill()
        process.join()
        process.close()
        connection.close()


@contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _serve(connection: Connection, folder: Path) -> None:
    """What a worker process does until the pipe closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the builder is interrupted, and ends its workers
    threading.Thread(target=_end_with_parent, daemon=True).start()
    builder = UnitBuilder(folder)
    with suppress(EOFError):
        while True:
            connection.send(answer(builder, connection.recv()))


def _end_with_parent() -> None:
    """A killed builder must not leave workers that go on writing."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
    os._exit(1)
