"""What decides the result of a run, with no path of this machine: a folder goes on only with the same.

Files are told apart by what is in them, not by what they are called.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mycelium.corpus.catalogue import Entry, read_model
from mycelium.corpus.files import Written
from mycelium.corpus.layout import CHECKSUMS
from mycelium.corpus.pool import Died, Pool, PoolConfig, Task, Work, one_by_one
from mycelium.corpus.toml_file import shown
from mycelium.errors import FeederError
from mycelium.model.weights import CONFIG as WEIGHTS
from mycelium.train.config import TrainConfig

_SHOWN = 3
_MANY = 100  # networks: to start processes takes as long as to read so many


def listed(entries: Sequence[Entry], workers: int = 0) -> dict[str, str]:
    """One line about every network, by name: all that its cases and their share depend on.

    Reads every model, nearly a tenth of a second each; raises FeederError if one is not as the catalogue pins it.

    Args:
        entries: The networks.
        workers: Processes that read, where there are many.
    """
    tasks = (Task(entry.name, (entry,)) for entry in entries)
    found = {}
    with Pool(_start_reading, PoolConfig(workers=workers if len(entries) >= _MANY else 0)) as pool:
        for task, (answer,) in pool.answers(tasks):
            if isinstance(answer, Died):
                raise FeederError(f"network '{task.topic}' cannot be read: {answer.reason}")
            digest, trouble = answer
            if trouble:
                raise FeederError(trouble)
            entry = task.items[0]
            found[entry.name] = f"{entry.name} {entry.family} {entry.split} {digest}"
    return found


def _start_reading() -> Work[Entry, tuple[str, str]]:
    return one_by_one(_digest)


def _digest(entry: Entry) -> tuple[str, str]:
    """Of a model; or what is wrong with it."""
    try:
        return read_model(entry)[0], ""
    except FeederError as error:
        return "", str(error)


def record_of(
    config: TrainConfig, networks: Mapping[str, list[str]], constants: Path | None, processes: int
) -> dict[str, Any]:
    """What decides the result of a run.

    Args:
        config: The run, with its model.
        networks: Lines of its networks by split, in order, as ``listed``; a stored corpus stands for those of training.
        constants: File of normalisation constants, where they are not those of weights to start from.
        processes: How many train together: each draws its own dropout.
    """
    data, finetune = config.data, config.finetune
    return config.record() | {
        "networks": networks,
        "corpus": None if data.corpus is None else digest_of_corpus(data.corpus),
        "constants": None if constants is None else Written.of(constants).sha256,
        # It holds the hashes of the weights and of their constants, which were compared when they were read.
        "weights": None if finetune is None else Written.of(finetune.weights / WEIGHTS).sha256,
        "processes": processes,
    }


def digest_of_corpus(folder: Path) -> str:
    """Of a built corpus: of the list of digests of all its files."""
    return Written.of(folder / CHECKSUMS).sha256


def differences(was: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What is not the same in two records: the dotted name of each value, and what it was and is.

    Args:
        was, now: Compared as JSON would have them.
    """
    before, after = (json.loads(json.dumps(record)) for record in (was, now))
    return _differences(before, after, "")


def _differences(was: object, now: object, key: str) -> list[str]:
    if isinstance(was, Mapping) and isinstance(now, Mapping):
        names = [*was, *(name for name in now if name not in was)]
        parts = (_differences(was.get(name), now.get(name), f"{key}.{name}" if key else name) for name in names)
        return [text for part in parts for text in part]
    if was == now:
        return []
    if isinstance(was, list) and isinstance(now, list):
        gone, new = [part for part in was if part not in now], [part for part in now if part not in was]
        if gone or new:
            return [" and ".join(f"{key} {what}" for what in (_some("lacks", gone), _some("has new", new)) if what)]
        return [f"{key} has another order"]
    return [f"{key} was {shown(was)} and is {shown(now)}"]


def _some(what: str, parts: Sequence[object]) -> str:
    more = f" and {len(parts) - 1} more" if len(parts) > 1 else ""
    return f"{what} {shown(parts[0])}{more}" if parts else ""


def shown_differences(found: Sequence[str]) -> str:
    """The first few differences."""
    more = f"; and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return "; ".join(found[:_SHOWN]) + more
