"""A training run from its file: networks, normalisation constants, model, workers, validation; then the loop."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

from mycelium.corpus.catalogue import Split
from mycelium.corpus.files import write_whole
from mycelium.corpus.pool import PoolConfig
from mycelium.corpus.render import RenderWork
from mycelium.errors import FeederError
from mycelium.evaluate.frozen import FrozenConfig, entries_of, simulated
from mycelium.model.mycelium import Mycelium
from mycelium.train.config import TrainConfig
from mycelium.train.draw import Draw, draw_of, network_sizes
from mycelium.train.feed import Feed, FeedConfig
from mycelium.train.loop import Row, Sitting, train
from mycelium.train.objective import Objective
from mycelium.train.processes import Processes, joined
from mycelium.train.trainer import Trainer
from mycelium.window.batch import Batch
from mycelium.window.normalise import Normalisation

CONFIG, NORMALISATION, SIZES = "run.json", "normalisation.json", "networks.json"


def run_training(
    config: TrainConfig,
    run: Path,
    minutes: float = math.inf,
    watch: Callable[[str, Row], None] = lambda kind, row: None,
    say: Callable[[str], None] = lambda text: None,
) -> Sitting:
    """Start a run, or go on with one.

    Args:
        config: The run.
        run: Its folder.
        minutes: Time for this sitting.
        watch: Called with every row of the logs and the name of its file, by the first process.
        say: Called with what is being prepared.
    """
    with joined(config.hardware.device) as processes:
        if config.hardware.threads:
            torch.set_num_threads(config.hardware.threads)
        tell = say if processes.first else (lambda text: None)
        draw, constants = _prepared(config, run, processes, tell)
        model = _model(config, constants)
        tell("validation samples")
        validation = _validation(config, model, processes)
        objective = Objective(
            draw.frequency,
            config.objective.tasks or model.config.tasks,
            config.objective.magnitude_scale,
            config.objective.angle_scale,
        )
        trainer = Trainer.of(replace(config, model=model.config), model, objective, processes)
        if processes.first:
            write_whole(run / CONFIG, (json.dumps(trainer.config.record(), indent=1) + "\n").encode())
        with _feed(config, draw, model, processes) as feed:
            tell("training")
            return train(trainer, feed, validation, run, minutes, watch if processes.first else lambda kind, row: None)


def prepare_training(config: TrainConfig, run: Path, say: Callable[[str], None] = lambda text: None) -> None:
    """What a run does once, before its first sitting: sizes of networks and normalisation constants.

    Args:
        config: The run.
        run: Its folder.
        say: Called with what is being prepared.
    """
    _, constants = _prepared(config, run, Processes(torch.device("cpu")), say)
    constants()


def _prepared(
    config: TrainConfig, run: Path, processes: Processes, say: Callable[[str], None]
) -> tuple[Draw, Callable[[], Normalisation]]:
    """Training cases, and what gives their normalisation constants."""
    entries = entries_of(config.data.catalogue, Split.TRAIN, config.data.networks)
    run.mkdir(parents=True, exist_ok=True)
    file = run / SIZES
    if processes.first and not file.is_file() and config.data.corpus is None:
        say("reading the models of the training networks")
        write_whole(file, (json.dumps(network_sizes(entries, config.data.workers), indent=1) + "\n").encode())
    processes.wait()
    sizes = json.loads(file.read_text()) if config.data.corpus is None else {}
    unknown = [entry.name for entry in entries if config.data.corpus is None and entry.name not in sizes]
    if unknown:
        raise FeederError(f"{file}: lacks {', '.join(unknown[:3])}; remove it if the catalogue has changed")
    draw = draw_of(config, entries, sizes)
    say(f"{draw.networks} training networks; normalisation constants")
    return draw, partial(_constants, config, draw, run, processes)


def _model(config: TrainConfig, constants: Callable[[], Normalisation]) -> Mycelium:
    """Fresh weights, the same on every process; or those to start from, with their own constants."""
    if config.finetune is None:
        normalisation = constants()
        torch.manual_seed(config.seed)
        return Mycelium(config.model, normalisation)
    model = Mycelium.from_pretrained(config.finetune.weights)
    unknown = set(config.objective.tasks) - set(model.config.tasks)
    if unknown:
        raise FeederError(f"{config.finetune.weights}: has no readout for {', '.join(sorted(unknown))}")
    return model


def _constants(config: TrainConfig, draw: Draw, run: Path, processes: Processes) -> Normalisation:
    """Normalisation constants; computed once per run, by the first process."""
    if config.data.normalisation is not None:
        return Normalisation.load(config.data.normalisation)
    file = run / NORMALISATION
    if processes.first and not file.is_file():
        draw.fit().save(file)
    processes.wait()
    return Normalisation.load(file)


def _validation(config: TrainConfig, model: Mycelium, processes: Processes) -> list[Batch]:
    """This process's share of the validation samples, rendered once and kept."""
    data = config.data
    entries = entries_of(data.catalogue, Split.VALIDATION, data.networks)
    frozen = FrozenConfig(
        data.policies, False, config.hardware.buses_per_batch, model.config.window, workers=data.workers
    )
    share = entries[processes.rank :: processes.world]
    cases = {entry.name: data.validation_cases for entry in share}
    with simulated(cases, share, data.validation_seed, frozen, model.normalisation) as samples:
        batches = list(samples.epoch()) if share else []
    if not batches and processes.world == 1:
        reasons = "; ".join(f"{network}: {reason}" for network, reason in list(samples.rejected)[:3])
        raise FeederError(f"no validation case gave a sample ({reasons}); without them there is no best checkpoint")
    return batches


def _feed(config: TrainConfig, draw: Draw, model: Mycelium, processes: Processes) -> Feed:
    feed = FeedConfig(
        config.optimiser.batch,
        config.data.cases_per_run,
        config.hardware.buses_per_batch,
        processes.rank,
        processes.world,
    )
    start = partial(RenderWork, draw.open_network, model.config.window, model.normalisation)
    return Feed(draw.tasks, start, feed, PoolConfig(workers=config.data.workers))
