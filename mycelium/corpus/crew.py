"""Workers that build units: processes of this machine. ``ray_crew`` has the same for a cluster."""

from __future__ import annotations

import errno
import multiprocessing
import os
import signal
import threading
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Protocol

from mycelium.corpus.layout import UnitRecord
from mycelium.corpus.plan import Unit
from mycelium.corpus.process import end_process, start_process
from mycelium.corpus.unit import UnitBuilder, UnitFailed


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
        return stopped_by(error, builder.folder)
    except Exception as error:
        builder.close()
        return Failed(f"{type(error).__name__}: {error}")


def stopped_by(error: OSError, folder: Path) -> Stop:
    """What to say when the disk fails.

    Args:
        error: What the system says; it knows the file at times.
        folder: The corpus.
    """
    where = f" ({error.filename})" if error.filename else ""
    advice = "; free some space on its disk" if error.errno in (errno.ENOSPC, errno.EDQUOT) else ""
    return Stop(f"{folder}: {error.strerror or error}{where}{advice}")


def died(how: str) -> Failed:
    return Failed(f"the worker process died ({how}; out of memory?)")


class LocalCrew:
    """Processes of this machine."""

    def __init__(self, folder: Path, size: int) -> None:
        self._folder = folder
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
        end_process(*self._workers[worker])
        self._workers[worker] = self._start()

    def close(self) -> None:
        for process, connection in self._workers:
            end_process(process, connection)

    def _start(self) -> tuple[SpawnProcess, Connection]:
        return start_process(_serve, self._folder)


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
