"""What a run does once, before its first sitting: sizes of networks and normalisation constants.

Both are kept in the run's folder with what they were made of; what was made of something else is refused.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from mycelium.corpus.catalogue import Entry, Split
from mycelium.corpus.files import write_whole
from mycelium.errors import FeederError
from mycelium.evaluate.frozen import entries_of
from mycelium.train.config import TrainConfig
from mycelium.train.draw import Draw, draw_of, network_sizes
from mycelium.train.processes import Processes
from mycelium.train.record import differences, digest_of_corpus, listed, shown_differences
from mycelium.window.normalise import Normalisation

NORMALISATION, SIZES = "normalisation.json", "networks.json"
_MADE_OF = "made_of"  # what constants were computed from, in their own file: neither is ever there without the other


@dataclass(frozen=True)
class Prepared:
    """What a run starts from.

    Attributes:
        draw: Its training cases.
        training, validation: Its networks, as ``listed``; none for training where there is a stored corpus.
        validated: The entries of the latter.
    """

    draw: Draw
    training: Mapping[str, str]
    validation: Mapping[str, str]
    validated: Sequence[Entry]


def prepare_training(config: TrainConfig, run: Path, say: Callable[[str], None] = lambda text: None) -> None:
    """Do all that comes once, without training.

    Args:
        config: The run.
        run: Its folder.
        say: Called with what is being prepared.
    """
    alone = Processes(torch.device("cpu"))
    prepared = prepared_in(run, config, alone, say)
    if config.finetune is None:  # else its weights bring theirs
        constants_of(config, prepared, run, alone)


def prepared_in(run: Path, config: TrainConfig, processes: Processes, say: Callable[[str], None]) -> Prepared:
    """Networks and training cases of a run; networks are counted once per folder, by the first process."""
    data = config.data
    validated = entries_of(data.catalogue, Split.VALIDATION, data.networks)
    trained = entries_of(data.catalogue, Split.TRAIN, data.networks) if data.corpus is None else []
    say("reading the files of the networks")
    lines = listed([*trained, *validated], data.workers)
    training, validation = ({entry.name: lines[entry.name] for entry in part} for part in (trained, validated))
    run.mkdir(parents=True, exist_ok=True)
    sizes: dict[str, int] = {}
    if data.corpus is None:
        file = run / SIZES
        if processes.first and not file.is_file():
            say("counting the buses of the training networks")
            counted = network_sizes(trained, data.workers)
            record = {_key(name, training[name]): buses for name, buses in counted.items()}
            write_whole(file, (json.dumps(record, indent=1) + "\n").encode())
        processes.wait()
        sizes = _sizes(file, training)
    draw = draw_of(config, trained, sizes)
    say(f"{len(draw.names)} training networks; normalisation constants")
    return Prepared(draw, training, validation, validated)


def _sizes(file: Path, training: Mapping[str, str]) -> dict[str, int]:
    """Buses of each network, by name; as they were counted, and of the same files."""
    try:
        record = {str(line): int(buses) for line, buses in json.loads(file.read_text(encoding="utf-8")).items()}
    except (ValueError, TypeError, AttributeError) as error:
        raise FeederError(f"{file}: not sizes of networks ({error}); remove it to count again") from error
    unknown = [name for name, line in training.items() if _key(name, line) not in record]
    if unknown:
        raise FeederError(
            f"{file}: lacks {', '.join(unknown[:3])}, or counted other files of that name; train into another folder "
            "(--out), or remove this file to count again"
        )
    return {name: record[_key(name, line)] for name, line in training.items()}


def _key(name: str, line: str) -> str:
    """A network and what is in its files, which its size depends on."""
    return f"{name} {line.rpartition(' ')[2]}"


def constants_of(config: TrainConfig, prepared: Prepared, run: Path, processes: Processes) -> Path:
    """File of the normalisation constants; computed once per folder, by the first process."""
    if config.data.normalisation is not None:
        return config.data.normalisation
    assert config.model is not None  # weights that training starts from bring their own
    nominal_angle = config.model.window.nominal_angle
    file, made_of = run / NORMALISATION, {**_made_of(config, prepared), "nominal_angle": nominal_angle}
    if processes.first and not file.is_file():
        part = file.with_name(file.name + ".new")
        prepared.draw.fit(nominal_angle).save(part)
        record = {**json.loads(part.read_text(encoding="utf-8")), _MADE_OF: made_of}
        write_whole(file, (json.dumps(record, indent=1) + "\n").encode())
        part.unlink()
    processes.wait()
    Normalisation.load(file)  # which refuses what is damaged
    changed = differences(json.loads(file.read_text(encoding="utf-8")).get(_MADE_OF, {}), made_of)
    if changed:
        raise FeederError(
            f"{file}: computed from something else ({shown_differences(changed)}); train into another folder (--out), "
            "or remove this file to compute it again"
        )
    return file


def _made_of(config: TrainConfig, prepared: Prepared) -> dict[str, Any]:
    """What constants depend on."""
    data = config.data
    made_of: dict[str, Any] = {"policies": data.policies, "normalisation_cases": data.normalisation_cases}
    if data.corpus is not None:
        return made_of | {"corpus": digest_of_corpus(data.corpus)}
    return made_of | {"seed": data.seed, "networks": [prepared.training[name] for name in prepared.draw.names]}
