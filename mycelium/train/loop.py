"""Training: one readable loop.

Epochs of steps (``trainer``); after each, the loss of the frozen validation samples. The best weights and the last are
kept, a checkpoint is written from time to time, and training ends when the loss has not fallen for some epochs.
"""

from __future__ import annotations

import json
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

from mycelium.corpus.files import write_whole
from mycelium.corpus.stream import stream
from mycelium.errors import FeederError
from mycelium.model.weights import CONFIG as WEIGHTS
from mycelium.train.checkpoint import STATE, Progress, last_state, load_state, save_state
from mycelium.train.feed import Feed, Step
from mycelium.train.log import EPOCHS, STEPS, Log
from mycelium.train.objective import by_task
from mycelium.train.schedule import cosine
from mycelium.train.trainer import StepResult, Trainer
from mycelium.window.batch import Batch

CONFIG = "run.json"
BEST, LAST = "best", "last"  # folders of weights
_IN_THE_WAY = "holds no {0}, and is where {0} go; remove it, or train into another folder (--out)"
Row = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Sitting:
    """How a call of ``train`` ended.

    Attributes:
        progress: How far the run is.
        finished: Whether there is nothing more to do; else time was up, or it was interrupted.
        signal: What this process was asked to end with, if it was.
    """

    progress: Progress
    finished: bool
    signal: signal.Signals | None = None


def go_on(trainer: Trainer, run: Path) -> Progress:
    """Take up the folder's run where its checkpoint is; raises FeederError if the folder cannot be trained into.

    Nothing is written before all of it is known to be this run's.

    Args:
        trainer: What is trained; gets the checkpoint's weights.
        run: Folder of the run.
    """
    for name in (BEST, LAST):
        folder = run / name
        if folder.exists() and not (folder / WEIGHTS).is_file():
            raise FeederError(f"{folder}: {_IN_THE_WAY.format('weights')}")
    if (run / STATE).exists() and not (run / STATE).is_dir():
        raise FeederError(f"{run / STATE}: {_IN_THE_WAY.format('checkpoints')}")
    found = last_state(run)
    progress = Progress()
    if found is not None:
        progress = load_state(found, trainer.model, trainer.optimiser, trainer.record)
    if trainer.processes.first:
        write_whole(run / CONFIG, (json.dumps(trainer.record, indent=1) + "\n").encode())
        _keep_best(trainer, run, progress)  # if the end came after the checkpoint and before them
    return progress


def train(
    trainer: Trainer,
    feed: Feed,
    validation: Sequence[Batch],
    run: Path,
    progress: Progress,
    minutes: float = math.inf,
    watch: Callable[[str, Row], None] = lambda kind, row: None,
) -> Sitting:
    """Train until the end of the schedule, of patience, or of the time.

    Args:
        trainer: What is trained.
        feed: This process's steps.
        validation: This process's share of the validation samples.
        run: Folder of the run: logs, checkpoint, weights.
        progress: As ``go_on`` gives it.
        minutes: Time for this sitting; it ends after the step in which they are over.
        watch: Called with every row of the logs and the name of its file.
    """
    settings, writes = trainer.config.optimiser, trainer.processes.first
    clock = _Clock(time.monotonic(), progress.seconds, 60.0 * minutes)
    log = Log(run, _total(trainer, progress), trainer.config.hardware.tensorboard) if writes else nullcontext()
    with log as rows, _interruptions() as interrupted:

        def report(kind: str, row: Row) -> None:
            watch(kind, row)
            if rows is not None:
                rows.write(kind, row)

        while progress.epoch < settings.epochs and progress.patience.since < settings.patience:
            stop, saved = False, time.monotonic()
            steps = feed.epoch(progress.epoch, progress.step)
            for step in _on_device(steps, trainer):
                result = trainer.step(step, _total(trainer, progress), interrupted.by is not None or clock.over)
                stop = result.stop
                progress = _after_step(progress, result, clock)
                report(STEPS, _step_row(trainer, step, result, progress))
                if progress.step == settings.steps_per_epoch:
                    continue  # what follows saves
                if stop or time.monotonic() - saved > 60.0 * trainer.config.hardware.save_minutes:
                    _save(trainer, run, progress)
                    saved = time.monotonic()
                if stop:
                    return Sitting(progress, False, interrupted.by)
            progress = _end_epoch(trainer, validation, run, progress, clock, report)
            if stop:
                break
    over = progress.epoch == settings.epochs or progress.patience.since >= settings.patience
    return Sitting(progress, over, interrupted.by)


@dataclass(frozen=True, slots=True)
class _Clock:
    """Time of this sitting and those before.

    Attributes:
        start: Of this sitting.
        before: Seconds of others.
        limit: Seconds that this one may take.
    """

    start: float
    before: float
    limit: float

    @property
    def over(self) -> bool:
        return time.monotonic() - self.start > self.limit

    @property
    def seconds(self) -> float:
        return self.before + time.monotonic() - self.start


def _total(trainer: Trainer, progress: Progress) -> int:
    """Steps so far, over all epochs."""
    return progress.epoch * trainer.config.optimiser.steps_per_epoch + progress.step


def _on_device(steps: Iterator[Step], trainer: Trainer) -> Iterator[Step]:
    """Steps moved to where they are used, made ahead if workers make them: the engine bears no second thread."""
    device = trainer.processes.device
    if trainer.config.data.workers == 0:
        return (step.to(device) for step in steps)
    return cast("Iterator[Step]", stream(cast("Iterator[Batch]", steps), device))  # which moves whatever can be


def _after_step(progress: Progress, result: StepResult, clock: _Clock) -> Progress:
    return replace(
        progress,
        step=progress.step + 1,
        seconds=clock.seconds,
        train_loss=progress.train_loss + float(result.parts.sum()),
    )


def _step_row(trainer: Trainer, step: Step, result: StepResult, progress: Progress) -> Row:
    settings, done = trainer.config.optimiser, _total(trainer, progress)
    return {
        "step": done,
        "epoch": progress.epoch + 1,
        "loss": float(result.parts.sum()),
        **by_task(result.parts),
        "learning_rate": cosine(done - 1, settings.steps, settings.learning_rate),
        "gradient_norm": result.gradient_norm,
        "samples": result.samples,
        "pieces": len(step.pieces),
        "seconds": progress.seconds,
    }


def _end_epoch(
    trainer: Trainer,
    validation: Sequence[Batch],
    run: Path,
    progress: Progress,
    clock: _Clock,
    report: Callable[[str, Row], None],
) -> Progress:
    """Validate, keep a checkpoint and the best weights."""
    parts = trainer.validate(validation)
    loss, mean = float(parts.sum()), progress.train_loss / trainer.config.optimiser.steps_per_epoch
    patience = progress.patience.after(loss)
    row = {
        "step": _total(trainer, progress),
        "epoch": progress.epoch + 1,
        "train_loss": mean,
        "loss": loss,
        **by_task(parts),
        "best": patience.best,
        "seconds": clock.seconds,
    }
    report(EPOCHS, row)
    progress = Progress(progress.epoch + 1, 0, clock.seconds, 0.0, patience)
    _save(trainer, run, progress)  # first, so that nothing that goes wrong with the others loses the epoch
    if trainer.processes.first:
        _keep_best(trainer, run, progress)
    return progress


def _keep_best(trainer: Trainer, run: Path, progress: Progress) -> None:
    """Where an epoch has just ended with the lowest loss so far, the model is the best."""
    if progress.step == 0 and progress.patience.improved:
        trainer.model.save_pretrained(run / BEST)


def _save(trainer: Trainer, run: Path, progress: Progress) -> None:
    """The last weights and a checkpoint. Processes are in step, so one writes for all."""
    if trainer.processes.first:
        trainer.model.save_pretrained(run / LAST)
        save_state(run, _total(trainer, progress), trainer.model, trainer.optimiser, progress, trainer.record)


@dataclass
class _Interruption:
    """Whether the process was asked to end.

    Attributes:
        by: The signal that asked.
    """

    by: signal.Signals | None = None


@contextmanager
def _interruptions() -> Iterator[_Interruption]:
    """Notes when the process is asked to end (Ctrl-C, a scheduler's notice): the step under way is finished first."""
    asked = _Interruption()
    if threading.current_thread() is not threading.main_thread():
        yield asked  # only the main thread may listen
        return

    def ask(number: int, frame: object) -> None:
        asked.by = signal.Signals(number)
        signal.signal(number, before[asked.by])  # a second time ends it at once

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
