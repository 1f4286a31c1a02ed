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
from mycelium.evaluate.frozen import FrozenSamples, Group
from mycelium.evaluate.kept import Done, Kept
from mycelium.evaluate.scores import Scores
from mycelium.evaluate.sums import CONFIDENCE_BINS, Sums, join, sums_of
from mycelium.model.mycelium import Mycelium
from mycelium.window.sample import SampleId
from mycelium.window.targets import FAULT_CLASSES

FORMAT = 1
_NEEDED = ("label", "split", "place", "networks", "cases", "samples")  # of ``Results.about``, for tables
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
    try:
        for group in samples.groups_on(device, done.groups):
            found, new = _sums_of_group(model, group, device, half)
            parts = [done.sums, *found] if done.samples else found
            done = Done(done.groups + 1, [*done.samples, *new], join(parts) if parts else done.sums)
            kept.save(done)
            tick(len(new))
    finally:
        kept.save(done, at_once=True)  # also when it is interrupted
    if not done.samples:
        raise FeederError("no sample to evaluate on: every case was rejected")
    return Scores.of(done.samples, {name: values.numpy() for name, values in done.sums.items()})


def _sums_of_group(
    model: Mycelium, group: Group, device: torch.device, half: bool
) -> tuple[list[Sums], list[SampleId]]:
    """Sums of every batch of a group, and which samples they are of."""
    found: list[Sums] = []
    samples: list[SampleId] = []
    for batch in group.batches.values():
        window, targets = batch.window(), batch.targets()
        with torch.autocast(device.type, torch.bfloat16, enabled=half):
            estimates = model(window)
        found.append(sums_of(estimates, targets, window, model.config.tasks))
        samples += targets.samples
    return found, samples


@dataclass(frozen=True)
class Results:
    """What an evaluation found, as it is kept in a file.

    Attributes:
        about: What was evaluated on what: ``label``, ``weights`` (their hash), ``trained_on`` (names of networks),
            ``split``, ``place``, ``seed``, ``samples``, ``missing`` (of rejected cases), ``cases``, ``networks``.
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
            key = ["network", "policy", "metric"]
            if table.empty or table[key].isna().any(axis=None) or table.duplicated(key).any():
                raise ValueError("its metrics are incomplete, or one is there twice")
            missing = [name for name in _NEEDED if name not in record["about"]]
            if missing:
                raise ValueError(f"it does not say its {', '.join(missing)}")
            return Results(record["about"], table, record["reliability"], record["confusion"]["counts"])
        except OSError as error:
            raise FeederError(f"{path}: cannot be read: {error.strerror}") from error
        except KeyError as error:
            raise FeederError(f"{path}: not results of `mycelium evaluate --json` (without {error})") from error
        except (ValueError, TypeError) as error:
            raise FeederError(f"{path}: not results of `mycelium evaluate --json` ({error})") from error


def _reliability(summed: dict[str, Any], name: str) -> list[list[float]]:
    number = summed[f"{name}_bin_n"]
    safe = np.maximum(number, 1)
    confidence, right = summed[f"{name}_bin_confidence"] / safe, summed[f"{name}_bin_right"] / safe
    return [[float(number[k]), float(confidence[k]), float(right[k])] for k in range(CONFIDENCE_BINS)]
