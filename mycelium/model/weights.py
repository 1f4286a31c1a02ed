"""Weights on disk: ``config.json``, ``normalisation.json`` and ``model.safetensors`` in one folder.

The config holds the hashes of the other two and of the model's sizes in itself. What does not fit exactly is refused;
nothing is guessed or left as it was. Folders of format 1, which had no hash of the sizes, are brought up to date by

python -m mycelium.model.weights FOLDER
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from mycelium.corpus.files import write_whole
from mycelium.errors import FeederError
from mycelium.model.config import MyceliumConfig
from mycelium.window.normalise import Normalisation

CONFIG, NORMALISATION, MODEL = "config.json", "normalisation.json", "model.safetensors"
FORMAT = 2
BUNDLED = Path(__file__).resolve().parents[1] / "weights"  # folders by name
_SHOWN = 5
_NUMBERS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class Weights:
    """A model as it is saved.

    Attributes:
        config: Its sizes and parts.
        normalisation: Constants of its windows.
        state: Its parameters by name.
        source: Where they come from, for messages.
    """

    config: MyceliumConfig
    normalisation: Normalisation
    state: Mapping[str, Tensor]
    source: str = "these weights"

    def save(self, folder: Path, dtype: torch.dtype) -> None:
        """Write a folder, whole or not at all; replaces one that holds weights."""
        if folder.exists() and not (folder / CONFIG).is_file():
            raise FeederError(f"{folder}: exists and holds no weights; name a folder that does not exist yet")
        part = folder.with_name(folder.name + ".part")
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        save_file(
            {name: value.detach().to("cpu", dtype).contiguous() for name, value in self.state.items()}, part / MODEL
        )
        self.normalisation.save(part / NORMALISATION)
        _write_config(part, self.config.record())
        old = folder.with_name(folder.name + ".old")
        shutil.rmtree(old, ignore_errors=True)
        if folder.exists():
            folder.rename(old)
        part.rename(folder)
        shutil.rmtree(old, ignore_errors=True)

    @staticmethod
    def load(name_or_path: Path | str) -> Weights:
        """Read a folder, or bundled weights by name."""
        folder = _find(name_or_path)
        record = _record(folder / CONFIG, FORMAT)
        _check_files(folder, record["sha256"])
        if _hash_of_record(record["model"]) != record["sha256"].get("model"):
            raise FeederError(
                f"{folder / CONFIG}: its model is not the one it was written with (sha256 differs); copy all again"
            )
        try:
            state = load_file(folder / MODEL)
        except SafetensorError as error:
            raise FeederError(f"{folder / MODEL}: not a safetensors file ({error}); copy it again") from error
        config = MyceliumConfig.of_record(record["model"])
        return Weights(config, Normalisation.load(folder / NORMALISATION), state, str(folder))

    def fill(self, model: nn.Module) -> None:
        """Put the values into a model, if every name and shape is the model's, and every value a finite number."""
        expected = model.state_dict()
        problems = [f"{name} is missing" for name in expected.keys() - self.state.keys()]
        problems += [f"{name} is not a part of the model" for name in self.state.keys() - expected.keys()]
        problems += [
            f"{name} is {_shape(self.state[name])}, expected {_shape(value)}"
            for name, value in expected.items()
            if name in self.state and self.state[name].shape != value.shape
        ]
        for name, value in self.state.items():
            if value.dtype not in _NUMBERS:
                problems.append(f"{name} is of {value.dtype}, expected floating-point numbers")
            elif not value.isfinite().all():
                problems.append(f"{name} has values that are no finite numbers")
        if problems:
            more = f" and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
            raise FeederError(
                f"{self.source}: weights do not fit their {CONFIG}: {'; '.join(sorted(problems)[:_SHOWN])}{more}"
            )
        model.load_state_dict(dict(self.state))


def _find(name_or_path: Path | str) -> Path:
    folder = Path(name_or_path)
    bundled = BUNDLED / str(name_or_path)
    # A folder that happens to have the name of bundled weights is meant only if it holds some.
    is_name = len(folder.parts) == 1 and bundled.is_dir()
    if (folder / CONFIG).is_file():
        return folder
    if is_name:
        return bundled
    if folder.is_dir():
        inside = sorted(path.parent for path in folder.glob(f"*/{CONFIG}"))  # best and last of a training run
        hint = f"did you mean {' or '.join(map(str, inside))}?" if inside else "expected a folder of save_pretrained"
        raise FeederError(f"{folder}: holds no {CONFIG}; {hint}")
    names = sorted(path.name for path in BUNDLED.iterdir() if path.is_dir()) if BUNDLED.is_dir() else []
    raise FeederError(
        f"{name_or_path}: no such folder, and no weights of this name; bundled are: {', '.join(names) or 'none'}"
    )


def _record(file: Path, form: int) -> dict[str, Any]:
    try:
        record = json.loads(file.read_text(encoding="utf-8"))
        if record["format"] != form:
            old = f"; `python -m mycelium.model.weights {file.parent}` brings it up to date"
            raise ValueError(f"format {record['format']}, expected {form}{old if record['format'] == 1 else ''}")
        _ = record["model"], record["sha256"].get
    except OSError as error:
        raise FeederError(f"{file}: cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise FeederError(f"{file}: not the configuration of a model ({error})") from error
    return dict(record)


def _check_files(folder: Path, hashes: Mapping[str, str]) -> None:
    """The files beside the configuration are those it was written with."""
    for name in (NORMALISATION, MODEL):
        file = folder / name
        if not file.is_file():
            raise FeederError(f"{file}: missing; weights are {CONFIG}, {NORMALISATION} and {MODEL} together")
        if _hash(file) != hashes.get(name):
            raise FeederError(f"{file}: not the file that {CONFIG} was written with (sha256 differs); copy all again")


def _write_config(folder: Path, model: dict[str, Any]) -> None:
    """Write a configuration with the hashes of what is in the folder."""
    hashes = {"model": _hash_of_record(model)} | {name: _hash(folder / name) for name in (NORMALISATION, MODEL)}
    record = {"format": FORMAT, "model": model, "sha256": hashes}
    write_whole(folder / CONFIG, (json.dumps(record, indent=1) + "\n").encode())


def _hash_of_record(model: Any) -> str:
    """Of its values, however they are laid out in the file."""
    return hashlib.sha256(json.dumps(model, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _hash(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _shape(value: Tensor) -> str:
    return "×".join(str(size) for size in value.shape) or "a number"


def bring_up_to_date(folder: Path) -> None:
    """Give weights of format 1 the hash of their model; the other files must be those they were saved with."""
    record = _record(folder / CONFIG, 1)
    _check_files(folder, record["sha256"])
    _write_config(folder, MyceliumConfig.of_record(record["model"]).record())


if __name__ == "__main__":
    for given in sys.argv[1:]:
        bring_up_to_date(Path(given))
