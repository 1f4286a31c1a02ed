"""Starting worker processes: with one thread each, silent on interrupts, ended at once."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

# One thread each: cores are kept busy by processes, and results do not depend on how a sum is split.
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
# Arrays of a few MiB come and go: glibc shall keep their pages, not give them back and have them zeroed again. On the
# EU LV feeder a corpus keeps 0.70 instead of 0.61 of the raw rate (benchmarks/simulate.py with and without).
WORKER = ONE_THREAD | {"MALLOC_MMAP_THRESHOLD_": str(2**25), "MALLOC_TRIM_THRESHOLD_": str(2**28)}


def start_process(serve: Callable[..., None], *arguments: Any) -> tuple[SpawnProcess, Connection]:
    """A new process that calls ``serve(connection, *arguments)``, and our end of its pipe."""
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=serve, args=(theirs, *arguments), daemon=True)
    with _environment(WORKER), _deaf_to_interrupts():
        process.start()
    theirs.close()  # so that its death is seen here
    return process, ours


def end_process(process: SpawnProcess, connection: Connection) -> None:
    """End a process at once."""
    connection.close()
    process.kill()
    process.join()
    process.close()


def resident_mib() -> float:
    """Memory of this process, MiB; its peak where the system does not tell."""
    statm = Path("/proc/self/statm")
    if statm.exists():
        return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20  # bytes on macOS


@contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    """What is started in between never sees Ctrl-C, not while it imports either: its parent is, and ends it."""
    if not hasattr(signal, "pthread_sigmask"):
        yield  # Windows
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


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
