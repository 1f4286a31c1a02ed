"""Many feeders on many cores: each written once, errors and timeouts reject one seed, a killed run is taken up again.

The folder of a run holds ``feeders/`` and ``rejected/`` with a folder per number, ``plan.json`` (what the run is of)
and ``times.jsonl`` (seconds, which are no part of a feeder). What the two folders hold does not depend on workers.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any

from mycelium.corpus.pool import Died, Pool, PoolConfig, Task, Work, one_by_one
from mycelium.corpus.process import ONE_THREAD
from mycelium.errors import FeederError
from mycelium.synth.accept import Verdict
from mycelium.synth.feeder import Attempt, FeederMaker
from mycelium.synth.geography import read_overture
from mycelium.synth.library import Library
from mycelium.synth.parameters import SynthConfig
from mycelium.synth.profiles import ProfileFiles
from mycelium.synth.propose import Workshop
from mycelium.synth.write import VERDICT, folder_name, write_attempt

PLAN, TIMES = "plan.json", "times.jsonl"
ACCEPTED, REJECTED = "feeders", "rejected"
_GRACE = 1.5  # times the limit until a process that does not stop is ended
_MEMORY_MIB = 3000

Record = dict[str, Any]


@dataclass(frozen=True)
class SynthRun:
    """A run.

    Attributes:
        seed: Of all feeders; feeder k depends on it, on k, and on what follows here.
        out: Folder to write into.
        config: Sizes and chances.
        library: Component library; the built-in one if not given.
        overture: Files of streets and buildings; invented towns if there are none.
        files: Annual profiles; built-in where none is given.
    """

    seed: int
    out: Path
    config: SynthConfig
    library: Path | None
    overture: tuple[Path, ...]
    files: ProfileFiles

    def absolute(self) -> SynthRun:
        """The same with absolute paths, for a process that works in another folder."""
        files = self.files
        return replace(
            self,
            out=self.out.absolute(),
            library=_absolute(self.library),
            overture=tuple(path.absolute() for path in self.overture),
            files=ProfileFiles(
                _absolute(files.residential), _absolute(files.commercial), tuple(path.absolute() for path in files.pv)
            ),
        )

    def workshop(self) -> Workshop:
        library = Library.builtin() if self.library is None else Library.read(self.library)
        places = read_overture(self.overture) if self.overture else []
        return Workshop(self.seed, self.config, library, places, self.files)

    def plan(self) -> Record:
        """What feeders depend on; two runs with the same plan make the same feeders."""
        inputs = [self.library, *self.overture, self.files.residential, self.files.commercial, *self.files.pv]
        return {
            "seed": self.seed,
            "config": asdict(self.config),
            "files": {path.name: _digest(path) for path in inputs if path is not None},
        }


def synth_run(
    run: SynthRun, count: int, workers: int, ray: str | None, tick: Callable[[Record], None]
) -> dict[int, Record]:
    """Make the feeders with numbers below ``count`` that are not there yet.

    Args:
        run: What to make.
        count: How many attempts, accepted or not.
        workers: Processes.
        ray: Address of a Ray cluster that does the work instead.
        tick: Called with the record of each feeder, those found as well.

    Returns:
        Records of all feeders by number.
    """
    _prepare(run)
    records = {number: record for number, record in _found(run.out) if number < count}
    for record in records.values():
        tick(record)
    missing = [number for number in range(count) if number not in records]
    if not missing:
        return records
    run.workshop()  # what is wrong with the inputs is said here, once
    with (run.out / TIMES).open("a") as times:
        for record in _by_ray(run, missing, ray) if ray else _by_pool(run, missing, workers):
            records[record["number"]] = record
            times.write(json.dumps(record) + "\n")
            times.flush()
            tick(record)
    return records


def _prepare(run: SynthRun) -> None:
    run.out.mkdir(parents=True, exist_ok=True)
    for part in run.out.glob("*/*.part"):  # what a killed run left half written
        shutil.rmtree(part)
    plan = json.loads(json.dumps(run.plan()))
    path = run.out / PLAN
    if not path.exists():
        if any(run.out.iterdir()):
            raise FeederError(f"{run.out}: is not empty and holds no {PLAN}; give an empty folder for --out")
        path.write_text(json.dumps(plan, indent=1) + "\n")
    elif json.loads(path.read_text()) != plan:
        raise FeederError(f"{run.out}: holds feeders of another seed, library, geography or configuration ({PLAN})")


def _found(out: Path) -> Iterator[tuple[int, Record]]:
    """Feeders that earlier runs have written, with their times where they are known."""
    times: dict[int, Record] = {}
    path = out / TIMES
    for line in path.read_text().splitlines() if path.exists() else ():
        with contextlib.suppress(json.JSONDecodeError):  # a run was killed while writing it
            record = json.loads(line)
            times[record["number"]] = record
    for status in (ACCEPTED, REJECTED):
        for verdict in sorted((out / status).glob(f"feeder-*/{VERDICT}")):
            if not verdict.parent.name.endswith(".part"):
                number = int(verdict.parent.name.removeprefix("feeder-"))
                yield number, times.get(number) or _record(number, json.loads(verdict.read_text()), {}, 0.0)


def _record(number: int, verdict: Record, seconds: dict[str, float], cpu_s: float) -> Record:
    return {
        "number": number,
        "accepted": verdict["accepted"],
        "reasons": verdict["reasons"],
        "buses": verdict.get("traits", {}).get("buses", 0),
        "cpu_s": round(cpu_s, 3),
        "seconds": {stage: round(value, 3) for stage, value in seconds.items()},
    }


# ---- the worker's side -----------------------------------------------------------------------------------------------


class _OutOfTimeError(Exception):
    """The feeder took longer than the limit."""


class Worker:
    """Makes feeders in its process; nothing that goes wrong with one reaches the next."""

    def __init__(self, run: SynthRun) -> None:
        self._run = run
        self._maker: FeederMaker | None = None

    def __call__(self, number: int) -> Record:
        start = time.process_time()
        maker = self._maker = self._maker or FeederMaker(self._run.workshop())
        limit = self._run.config.time_limit_s
        try:
            with _time_limit(limit):
                attempt = maker.make(number)
        except _OutOfTimeError:
            attempt = self._failed(maker, number, f"timeout: more than {limit} s")
        except Exception as error:  # whatever it is, it is one feeder's
            text = " ".join(str(error).split())[:200]
            attempt = self._failed(maker, number, f"error: {type(error).__name__}: {text}")
        status = ACCEPTED if attempt.verdict.accepted else REJECTED
        folder = self._run.out / status / folder_name(number)
        write_attempt(attempt, folder, self._run.seed)
        found = json.loads((folder / VERDICT).read_text())
        return _record(number, found, attempt.seconds, time.process_time() - start)

    def _failed(self, maker: FeederMaker, number: int, reason: str) -> Attempt:
        self._maker = None  # the engine may be in any state
        attempt = maker.attempt
        rejected = Verdict((reason,))
        return Attempt(number, attempt.parameters, attempt.proposal, None, attempt.repairs, rejected, attempt.seconds)


@contextlib.contextmanager
def _time_limit(limit_s: int) -> Iterator[None]:
    """Raise in the main thread when time is up; end the process if that does not help (an engine that hangs)."""

    def raise_it(_: int, __: FrameType | None) -> None:
        raise _OutOfTimeError

    guard = threading.Timer(_GRACE * limit_s, os._exit, (1,))
    guard.daemon = True
    guard.start()
    if threading.current_thread() is not threading.main_thread():  # no signal arrives here: only the guard is left
        yield
        guard.cancel()
        return
    before = signal.signal(signal.SIGALRM, raise_it)
    signal.setitimer(signal.ITIMER_REAL, limit_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        guard.cancel()


@dataclass(frozen=True)
class _Start:
    """Makes a worker, in its process."""

    run: SynthRun

    def __call__(self) -> Work[int, Record]:
        return one_by_one(Worker(self.run))


# ---- the parent's side -----------------------------------------------------------------------------------------------


def _by_pool(run: SynthRun, numbers: Sequence[int], workers: int) -> Iterator[Record]:
    tasks = (Task(str(number), (number,)) for number in numbers)
    with Pool(_Start(run), PoolConfig(workers=max(workers, 1), memory_mib=_MEMORY_MIB)) as pool:
        for task, answers in pool.answers(tasks):
            for number, answer in zip(task.items, answers, strict=True):
                yield _lost(run, number, answer.reason) if isinstance(answer, Died) else answer


def _lost(run: SynthRun, number: int, reason: str) -> Record:
    """The rejection of a feeder that took its worker with it."""
    attempt = Attempt(number, verdict=Verdict((f"worker: {reason}",)))
    folder = run.out / REJECTED / folder_name(number)
    write_attempt(attempt, folder, run.seed)
    return _record(number, json.loads((folder / VERDICT).read_text()), {}, 0.0)


def _by_ray(run: SynthRun, numbers: Sequence[int], address: str) -> Iterator[Record]:
    """The same on a Ray cluster; the output folder and the inputs on a disk that its nodes share."""
    try:
        import ray
    except ImportError:
        raise FeederError("--ray needs Ray, which is not installed: pip install 'mycelium-grid[cluster]'") from None
    import logging

    try:
        ray.init(address, log_to_driver=False, logging_level=logging.ERROR, runtime_env={"env_vars": ONE_THREAD})
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        raise FeederError(f"--ray {address}: no Ray cluster answers there ({error})") from error
    try:
        actor: Any = ray.remote(num_cpus=1)(_RayWorker)
        size = int(ray.cluster_resources().get("CPU", 1))  # type: ignore[no-untyped-call]
        there = run.absolute()
        idle = [actor.remote(there) for _ in range(size)]
        waiting = list(reversed(numbers))
        busy: dict[Any, tuple[Any, int]] = {}
        while waiting or busy:
            while idle and waiting:
                worker, number = idle.pop(), waiting.pop()
                busy[worker.make.remote(number)] = worker, number
            (ready, *_), _ = ray.wait(list(busy), num_returns=1)
            worker, number = busy.pop(ready)
            try:
                yield ray.get(ready)
                idle.append(worker)
            except ray.exceptions.RayActorError as error:
                yield _lost(run, number, str(error).splitlines()[0])
                idle.append(actor.remote(there))
    finally:
        ray.shutdown()


class _RayWorker:
    """An actor: one process somewhere in the cluster."""

    def __init__(self, run: SynthRun) -> None:
        if not (run.out / PLAN).is_file():
            raise FeederError(f"a node of the cluster does not see {run.out}; put it on a disk that all nodes share")
        self._worker = Worker(run)

    def make(self, number: int) -> Record:
        return self._worker(number)


def _absolute(path: Path | None) -> Path | None:
    return None if path is None else path.absolute()


def _digest(path: Path) -> str:
    if not path.is_file():
        raise FeederError(f"{path}: no such file")
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
