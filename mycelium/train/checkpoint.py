"""What a run needs to go on exactly where it was: weights, moments of AdamW, and how far it is.

    RUN/state/00001200/part-000.safetensors ... state.json

A checkpoint is a folder of parts of at most 16 MiB, so that it can travel where files must be small; ``state.json``
comes last and names them all with their hashes, so a folder without it was never finished. The one before goes when the
next is complete. Randomness needs no place here: what a step draws is a function of the run's seed and the step.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn
from torch.optim import Optimizer

from mycelium.corpus.files import write_whole
from mycelium.errors import FeederError
from mycelium.train.record import differences, shown_differences
from mycelium.train.schedule import Patience

FORMAT = 2
PART_BYTES = 15 * 2**20
STATE, RECORD = "state", "state.json"


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run is.

    Attributes:
        epoch: Finished epochs.
        step: Finished steps of the present one.
        seconds: Spent training, over all sittings.
        train_loss: Sum of the losses of the present epoch's steps.
        patience: Best validation loss and how long ago.
    """

    epoch: int = 0
    step: int = 0
    seconds: float = 0.0
    train_loss: float = 0.0
    patience: Patience = field(default_factory=Patience)


def save_state(
    run: Path, step: int, model: nn.Module, optimiser: Optimizer, progress: Progress, record: Mapping[str, Any]
) -> None:
    """Write a checkpoint, whole or not at all, and remove older ones.

    Args:
        run: Folder of the run.
        step: Number of the step it is after, over all epochs.
        model, optimiser: What is trained and how.
        progress: How far it is.
        record: What decides the result of the run (``record_of``).
    """
    folder = run / STATE / f"{step:08d}"
    shutil.rmtree(folder, ignore_errors=True)
    parts = {}
    for number, tensors in enumerate(_parts(_tensors(model, optimiser))):
        content = save(tensors)
        name = f"part-{number:03d}.safetensors"
        write_whole(folder / name, content)
        parts[name] = hashlib.sha256(content).hexdigest()
    patience = progress.patience
    kept = {**asdict(progress), "patience": {"since": patience.since, "best": patience.best.hex()}}
    state = {"format": FORMAT, "step": step, "progress": kept, "parts": parts, "run": record}
    write_whole(folder / RECORD, (json.dumps(state, indent=1) + "\n").encode())
    for other in (run / STATE).iterdir():
        if other != folder:
            shutil.rmtree(other, ignore_errors=True)


def last_state(run: Path) -> Path | None:
    """Folder of the last complete checkpoint, if there is one."""
    found = sorted(path.parent for path in (run / STATE).glob(f"*/{RECORD}"))
    return found[-1] if found else None


def load_state(folder: Path, model: nn.Module, optimiser: Optimizer, record: Mapping[str, Any]) -> Progress:
    """Put a checkpoint back; raises FeederError if it is damaged or of another run.

    Args:
        folder: As ``last_state`` gives it.
        model, optimiser: To fill.
        record: What decides the result of the run that is to go on.
    """
    try:
        state = json.loads((folder / RECORD).read_text(encoding="utf-8"))
        if state["format"] != FORMAT:
            raise ValueError(f"format {state['format']}, expected {FORMAT}")
        changed = differences(dict(state["run"]), record)
        if changed:
            raise FeederError(
                f"{folder.parent.parent}: holds another run ({shown_differences(changed)}); train into another folder "
                "(--out), or remove this one"
            )
        tensors: dict[str, Tensor] = {}
        for name, digest in state["parts"].items():
            content = (folder / name).read_bytes()
            if hashlib.sha256(content).hexdigest() != digest:
                raise ValueError(f"{name} is damaged")
            tensors |= load(content)
        progress = _progress(state["progress"])
        _fill(tensors, model, optimiser)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RuntimeError, SafetensorError) as error:
        raise FeederError(f"{folder}: not a checkpoint ({error}); remove it to start again") from error
    return progress


def _progress(kept: Mapping[str, Any]) -> Progress:
    patience = Patience(float.fromhex(kept["patience"]["best"]), int(kept["patience"]["since"]))
    return Progress(int(kept["epoch"]), int(kept["step"]), float(kept["seconds"]), float(kept["train_loss"]), patience)


def _tensors(model: nn.Module, optimiser: Optimizer) -> Iterator[tuple[str, Tensor]]:
    """All weights, and what AdamW knows of every parameter that it moves."""
    for name, value in model.state_dict().items():
        yield f"model/{name}", value
    for number, state in optimiser.state_dict()["state"].items():
        for name, value in state.items():
            yield f"optimiser/{number}/{name}", value


def _parts(tensors: Iterator[tuple[str, Tensor]]) -> Iterator[dict[str, Tensor]]:
    """Tensors in the same order, in groups that fit a part."""
    part: dict[str, Tensor] = {}
    room = PART_BYTES
    for name, value in tensors:
        size = value.numel() * value.element_size()
        if part and size > room:
            yield part
            part, room = {}, PART_BYTES
        part[name] = value.detach().cpu().contiguous()
        room -= size
    yield part


def _fill(tensors: dict[str, Tensor], model: nn.Module, optimiser: Optimizer) -> None:
    weights = {name.split("/", 1)[1]: value for name, value in tensors.items() if name[:6] == "model/"}
    missing = sorted(model.state_dict().keys() - weights.keys())
    if missing:
        raise ValueError(f"{missing[0]} and {len(missing) - 1} more are missing")
    model.load_state_dict(weights)
    state: dict[int, dict[str, Tensor]] = {}
    for name, value in tensors.items():
        if name.startswith("optimiser/"):
            _, number, entry = name.split("/")
            state.setdefault(int(number), {})[entry] = value
    optimiser.load_state_dict({**optimiser.state_dict(), "state": state})


def seed_step(seed: int, step: int, rank: int) -> None:
    """Randomness of one step on one process: dropout."""
    digest = hashlib.sha256(f"{seed}/{step}/{rank}".encode()).digest()
    torch.manual_seed(int.from_bytes(digest[:7], "little"))
