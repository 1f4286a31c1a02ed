"""Evaluation of a model on frozen samples, and what a file of results holds."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from mycelium.corpus.files import write_whole
from mycelium.errors import FeederError
from mycelium.evaluate.frozen import FrozenSamples
from mycelium.evaluate.kept import Done, Kept
from mycelium.evaluate.scores import Scores
from mycelium.evaluate.sums import CONFIDENCE_BINS, join, sums_of
from mycelium.model.mycelium import Mycelium
from mycelium.window.sample import SampleId
from mycelium.window.targets import FAULT_CLASSES

FORMAT = 1
COLUMNS = ("network", "policy", "metric", "value", "low", "high", "count", "networks")


@torch.no_grad()
def evaluate(
    model: Mycelium,
    samples: FrozenSamples,
    device: torch.device,
    half: bool = False,
    tick: Callable[[int], None] = lambda samples: None,
    kept: Kept | None = None,
) -> Scores:
    """Scores of a model.

    Args:
        model: The model.
        samples: What to evaluate it on.
        device: Where to work.
        half: Matrix products in bfloat16.
        tick: Called with the number of samples that are new.
        kept: Where finished work is kept, and found again after a kill.
    """
    model.to(device).eval()
    kept = kept or Kept(None, "")
    done = kept.load()
    tick(len(done.samples))
    for group in samples.groups_on(device, done.groups):
        parts = [done.sums] if done.samples else []
        new: list[SampleId] = []
        for batch in group.batches.values():
            window, targets = batch.window(), batch.targets()
            with torch.autocast(device.type, torch.bfloat16, enabled=half):
                estimates = model(window)
            parts.append(sums_of(estimates, targets, window, model.config.tasks))
            new += targets.samples
        done = Done(done.groups + 1, [*done.samples, *new], join(parts) if parts else done.sums)
        kept.save(done)
        tick(len(new))
    if not done.samples:
        raise FeederError("no sample to evaluate on: every case was rejected")
    return Scores.of(done.samples, {name: values.numpy() for name, values in done.sums.items()})


@dataclass(frozen=True)
class Results:
    """What an evaluation found, as it is kept in a file.

    Attributes:
        about: What was evaluated on what: ``label``, ``weights`` (their hash), ``split``, ``place``, ``seed``,
            ``samples``, ``missing`` (of rejected cases), ``cases``, ``networks``.
        table: As ``Scores.table``.
        reliability: Answers by confidence, for each question: number, mean confidence, share of right ones.
        confusion: Fault classes: of the truth by row, as answered by column; empty without that task.
    """

    about: dict[str, Any]
    table: pd.DataFrame
    reliability: dict[str, list[list[float]]]
    confusion: list[list[int]]

    @staticmethod
    def of(scores: Scores, about: dict[str, Any]) -> Results:
        """With intervals."""
        cases = len(scores.samples.drop_duplicates(["network", "seed", "number"]))
        counts = {"samples": len(scores.samples), "cases": cases, "networks": len(scores.networks)}
        summed = scores.summed()
        confusion = summed.get("confusion")
        size = len(FAULT_CLASSES)
        return Results(
            {**about, **counts},
            scores.table(),
            {name: _reliability(summed, name) for name in ("phase", "switch", "fault") if f"{name}_bin_n" in summed},
            [] if confusion is None else confusion.reshape(size, size).astype(int).tolist(),
        )

    def record(self) -> dict[str, Any]:
        """As JSON has it."""
        rows = self.table.astype(object).where(self.table.notna(), None).to_dict("records")
        return {
            "format": FORMAT,
            "about": self.about,
            "metrics": rows,
            "reliability": self.reliability,
            "confusion": {"classes": list(FAULT_CLASSES), "counts": self.confusion},
        }

    def save(self, path: Path) -> None:
        """Write as JSON, whole or not at all."""
        write_whole(path, (json.dumps(self.record(), indent=1, allow_nan=False) + "\n").encode())

    @staticmethod
    def load(path: Path) -> Results:
        """Read what ``save`` wrote."""
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
            if record["format"] != FORMAT:
                raise ValueError(f"format {record['format']}, expected {FORMAT}")
            table = pd.DataFrame(record["metrics"], columns=list(COLUMNS))
            table = table.astype(dict.fromkeys(("value", "low", "high"), "float64"))
            return Results(record["about"], table, record["reliability"], record["confusion"]["counts"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise FeederError(f"{path}: not results of `mycelium evaluate --json` ({error})") from error


def _reliability(summed: dict[str, Any], name: str) -> list[list[float]]:
    number = summed[f"{name}_bin_n"]
    safe = np.maximum(number, 1)
    confidence, right = summed[f"{name}_bin_confidence"] / safe, summed[f"{name}_bin_right"] / safe
    return [[float(number[k]), float(confidence[k]), float(right[k])] for k in range(CONFIDENCE_BINS)]
