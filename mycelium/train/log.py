"""Logs of a run: ``steps.csv`` and ``epochs.csv``, and the same for TensorBoard."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mycelium.corpus.files import write_whole
from mycelium.errors import FeederError
from mycelium.schema import TASKS

STEPS, EPOCHS, BOARD = "steps.csv", "epochs.csv", "tensorboard"
STEP_COLUMNS = ("step", "epoch", "loss", *TASKS, "learning_rate", "gradient_norm", "samples", "pieces", "seconds")
EPOCH_COLUMNS = ("step", "epoch", "train_loss", "loss", *TASKS, "best", "seconds")


class Log:
    """Appends rows; what a killed run wrote after its last checkpoint is taken back."""

    def __init__(self, run: Path, step: int, tensorboard: bool) -> None:
        """Open.

        Args:
            run: Folder of the run.
            step: The step that the run goes on after.
            tensorboard: Whether to write for TensorBoard, too.
        """
        columns = {STEPS: STEP_COLUMNS, EPOCHS: EPOCH_COLUMNS}
        kept = {name: _rows(run / name, columns[name], step) for name in columns}  # all is read before any is written
        self._files = {name: _Table(run / name, columns[name], rows) for name, rows in kept.items()}
        self._board = None
        if tensorboard:
            from torch.utils.tensorboard import SummaryWriter  # which takes a second

            self._board = SummaryWriter(str(run / BOARD), purge_step=step + 1)

    def __enter__(self) -> Log:
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files.values():
            file.close()
        if self._board is not None:
            self._board.close()

    def write(self, name: str, row: Mapping[str, Any]) -> None:
        """Add a row to ``STEPS`` or ``EPOCHS``."""
        self._files[name].write(row)
        if self._board is not None:
            group = "train" if name == STEPS else "validation"
            for key, value in row.items():
                if key not in ("step", "epoch"):
                    self._board.add_scalar(f"{group}/{key}", value, row["step"])


class _Table:
    def __init__(self, path: Path, columns: tuple[str, ...], rows: list[dict[str, str]]) -> None:
        kept = io.StringIO()
        writer = csv.DictWriter(kept, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        write_whole(path, kept.getvalue().encode())
        self._file = path.open("a", newline="", encoding="utf-8")
        self._writer = csv.DictWriter(self._file, columns, lineterminator="\n")

    def write(self, row: Mapping[str, Any]) -> None:
        self._writer.writerow({key: f"{v:.9g}" if isinstance(v, float) else v for key, v in row.items()})
        self._file.flush()

    def close(self) -> None:
        self._file.close()


def _rows(path: Path, columns: tuple[str, ...], step: int) -> list[dict[str, str]]:
    """What is in a file, up to a step; a last row that a kill cut short is later than any checkpoint."""
    if not path.is_file():
        return []
    try:
        lines = list(csv.reader(path.read_text(encoding="utf-8").splitlines()))
        if not lines or tuple(lines[0]) != columns:
            raise ValueError(f"line 1: expected {','.join(columns)}")
        if len(lines[-1]) < len(columns):
            lines.pop()
        rows = []
        for number, line in enumerate(lines[1:], start=2):
            if len(line) != len(columns) or not line[0].isdecimal():
                raise ValueError(f"line {number}: not a row of this log")
            rows.append(dict(zip(columns, line, strict=True)))
    except (ValueError, csv.Error) as error:
        raise FeederError(f"{path}: damaged ({error}); repair it, or remove it to go on without it") from error
    return [row for row in rows if int(row["step"]) <= step]
