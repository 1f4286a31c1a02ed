"""`mycelium train`."""

from __future__ import annotations

import math
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn

from mycelium.errors import FeederError
from mycelium.interrupts import ending_at_once

if TYPE_CHECKING:
    from mycelium.train.loop import Row

app = App(name="train", help="Train a model: one TOML file, one run.")
_out, _err = Console(soft_wrap=True), Console(stderr=True, soft_wrap=True)


@app.default
def train(
    config: Path,
    *,
    out: Path | None = None,
    minutes: float | None = None,
    prepare: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Train; running it again goes on after the last checkpoint. Under `torchrun` all processes take part.

    Args:
        config: TOML file of the run, as in `experiments/`.
        out: Folder of the run; `out/NAME` if not given.
        minutes: Stop after so long, with a checkpoint. Ctrl-C and SIGTERM do the same, and end with 130 and 143.
        prepare: Only do what comes once, before the first step, and needs no accelerator.
    """
    with ending_at_once():
        from mycelium.train.log import STEPS
        from mycelium.train.loop import BEST, LAST
        from mycelium.train.prepare import prepare_training
        from mycelium.train.read_config import read_config
        from mycelium.train.run import run_training

    if minutes is not None and not minutes >= 0:
        raise FeederError(f"--minutes {minutes:g}: expected at least 0; 0 stops after one step")
    run = read_config(config)
    folder = out or Path("out") / run.name
    quiet = int(os.environ.get("RANK", "0")) > 0
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=_err, transient=True, disable=quiet) as bar:
        task = bar.add_task(run.name, total=run.optimiser.steps)

        def watch(kind: str, row: Row) -> None:
            if kind == STEPS:
                bar.update(task, completed=row["step"], description=f"{run.name}: loss {row['loss']:.4f}")
            else:
                bar.console.print(_epoch(row), highlight=False)

        def say(text: str) -> None:
            bar.update(task, description=f"{run.name}: {text}")

        if prepare:
            prepare_training(run, folder, say)
            return
        sitting = run_training(run, folder, math.inf if minutes is None else minutes, watch, say)
    progress = sitting.progress
    end = "finished" if sitting.finished else f"to be continued: `mycelium train {config} --out {folder}`"
    best = f"best validation loss {progress.patience.best:.4f} in {folder / BEST}, " if progress.epoch else ""
    if not quiet:
        _out.print(
            f"{progress.epoch} epochs; {best}last weights in {folder / LAST}; {end}", highlight=False, markup=False
        )
    if sitting.signal is not None:  # so that what was to come after training does not
        sys.exit(128 + sitting.signal)


def _epoch(row: Row) -> str:
    return (
        f"epoch {row['epoch']:.0f}: training {row['train_loss']:.4f}, validation {row['loss']:.4f} "
        f"(state {row['state']:.4f}, phase {row['phase']:.4f}, switch {row['switch']:.4f}, fault {row['fault']:.4f}), "
        f"best {row['best']:.4f}, {row['seconds']:.0f} s"
    )
