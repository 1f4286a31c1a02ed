"""Finished work of an evaluation, kept beside its results until they are written: a killed one goes on."""

from __future__ import annotations

import json
import math
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from mycelium.corpus.files import write_whole
from mycelium.window.sample import SampleId

EVERY_SECONDS = 60.0


@dataclass(frozen=True)
class Done:
    """What is finished.

    Attributes:
        groups: How many groups of samples.
        samples: Which samples, in order.
        sums: Theirs. [sample, ...]
    """

    groups: int = 0
    samples: list[SampleId] = field(default_factory=list)
    sums: dict[str, Tensor] = field(default_factory=dict)


class Kept:
    """A file with what is finished, beside the results."""

    def __init__(self, results: Path | None, of: str, every_seconds: float = EVERY_SECONDS) -> None:
        """Prepare.

        Args:
            results: File of the results; None keeps nothing.
            of: All that decides the result, as text: work of anything else is not gone on with.
            every_seconds: It is written so often.
        """
        self._path = None if results is None else results.with_name(results.name + ".part")
        self._of, self._every = of, every_seconds
        self._written = -math.inf if every_seconds == 0 else time.monotonic()
        self._groups = 0

    def load(self) -> Done:
        """What an earlier call finished; nothing if it was of something else, or the file is no such file."""
        if self._path is None or not self._path.is_file():
            return Done()
        try:
            with safe_open(self._path, "pt") as file:
                about = file.metadata() or {}
                if about.get("of") != self._of:
                    return Done()
                samples = [SampleId(**record) for record in json.loads(about["samples"])]
                self._groups = int(about["groups"])
                return Done(self._groups, samples, {name: file.get_tensor(name) for name in file.keys()})  # noqa: SIM118
        except (SafetensorError, KeyError, ValueError):
            return Done()

    def save(self, done: Done, at_once: bool = False) -> None:
        """Keep it, if it is time, or at once if it is the last chance."""
        if self._path is None or done.groups == self._groups:
            return
        if not at_once and time.monotonic() - self._written < self._every:
            return
        about = {
            "of": self._of,
            "groups": str(done.groups),
            "samples": json.dumps([asdict(sample) for sample in done.samples]),
        }
        write_whole(self._path, save({name: value.contiguous() for name, value in done.sums.items()}, about))
        self._written, self._groups = time.monotonic(), done.groups

    def remove(self) -> None:
        """When the results are written."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)
