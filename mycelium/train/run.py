"""A training run from its file: networks, normalisation constants, model, workers, validation; then the loop."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

from mycelium.corpus.pool import PoolConfig
from mycelium.corpus.render import RenderWork
from mycelium.errors import FeederError
from mycelium.evaluate.frozen import FrozenConfig, simulated
from mycelium.model.mycelium import Mycelium
from mycelium.train.config import FinetuneConfig, TrainConfig
from mycelium.train.draw import Draw
from mycelium.train.feed import Feed, FeedConfig
from mycelium.train.loop import Row, Sitting, go_on, train
from mycelium.train.objective import PARTS, Objective
from mycelium.train.prepare import Prepared, constants_of, prepared_in
from mycelium.train.processes import Processes, joined
from mycelium.train.record import differences, record_of, shown_differences
from mycelium.train.trainer import Trainer
from mycelium.window.batch import Batch
from mycelium.window.normalise import Normalisation


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
        given = None if config.finetune is None else _given(config, config.finetune)
        prepared = prepared_in(run, config, processes, tell)
        trainer = _trainer(config, prepared, given, run, processes)
        progress = go_on(trainer, run)
        tell("validation samples")
        validation = _validation(trainer, prepared)
        with _feed(trainer, prepared.draw) as feed:
            tell("training")
            return train(trainer, feed, validation, run, progress, minutes, watch if processes.first else _unwatched)


def _unwatched(kind: str, row: Row) -> None:
    """Rows are the same on every process."""


def _given(config: TrainConfig, finetune: FinetuneConfig) -> Mycelium:
    """Weights to start from; they say what the model is."""
    model = Mycelium.from_pretrained(finetune.weights)
    if config.model is not None:
        changed = differences(model.config.record(), config.model.record())
        if changed:
            raise FeederError(
                f"{finetune.weights}: not the model of [model] ({shown_differences(changed)}); leave [model] out: "
                "[finetune] takes that of its weights"
            )
    unknown = set(config.objective.tasks) - set(model.config.tasks)
    if unknown:
        raise FeederError(f"{finetune.weights}: has no readout for {', '.join(sorted(unknown))}")
    return model


def _trainer(
    config: TrainConfig, prepared: Prepared, given: Mycelium | None, run: Path, processes: Processes
) -> Trainer:
    """What trains weights to start from, or fresh ones, which are the same on every process."""
    constants = None
    if given is None:
        assert config.model is not None  # a configuration has a model or weights
        constants = constants_of(config, prepared, run, processes)
        normalisation = Normalisation.load(constants)
        torch.manual_seed(config.seed)
        given = Mycelium(config.model, normalisation)
    config = replace(config, model=given.config)
    objective = Objective(
        prepared.draw.frequency,
        config.objective.tasks or given.config.tasks,
        config.objective.magnitude_scale,
        config.objective.angle_scale,
    )
    networks = {"train": list(prepared.training.values()), "validation": list(prepared.validation.values())}
    record = record_of(config, networks, constants, processes.world)
    return Trainer.of(config, given, objective, processes, record)


def _validation(trainer: Trainer, prepared: Prepared) -> list[Batch]:
    """This process's share of the validation samples, rendered once and kept; refused if there are none anywhere."""
    config, model, processes = trainer.config, trainer.model, trainer.processes
    data, entries = config.data, prepared.validated
    frozen = FrozenConfig(
        data.policies, False, config.hardware.buses_per_batch, model.config.window, workers=data.workers
    )
    # All are named, and others have no cases here: a network's policies depend on its place among all of them.
    cases = {
        entry.name: data.validation_cases if k % processes.world == processes.rank else 0
        for k, entry in enumerate(entries)
    }
    with simulated(cases, entries, data.validation_seed, frozen, model.normalisation) as samples:
        batches = list(samples.epoch())
    counts = torch.zeros(len(PARTS), dtype=torch.float64)
    for batch in batches:
        counts += trainer.objective.counts(batch.targets(), batch.graph)
    everywhere = processes.add(torch.cat([counts, torch.tensor([float(len(batches))])]).to(processes.device))
    if not everywhere[-1]:
        reasons = "; ".join(f"{network}: {reason}" for network, reason in list(samples.rejected)[:3])
        raise FeederError(f"no validation case gave a sample ({reasons}); without them there is no best checkpoint")
    if not trainer.objective.coefficients(everywhere[:-1]).any():
        raise FeederError(
            f"no validation sample has a question of the tasks {', '.join(trainer.objective.tasks)}, so the loss would "
            "be 0 from the start, and there is no best checkpoint; validate on other networks"
        )
    return batches


def _feed(trainer: Trainer, draw: Draw) -> Feed:
    config, model, processes = trainer.config, trainer.model, trainer.processes
    feed = FeedConfig(
        config.optimiser.batch,
        config.data.cases_per_run,
        config.hardware.buses_per_batch,
        processes.rank,
        processes.world,
    )
    start = partial(RenderWork, draw.open_network, model.config.window, model.normalisation)
    return Feed(draw.tasks, start, feed, PoolConfig(workers=config.data.workers))
