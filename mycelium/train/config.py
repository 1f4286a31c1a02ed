"""A training run: all its values, checked where they are made. ``read_config`` reads them from a TOML file.

What a file does not say is the paper's. ``TrainConfig.record`` is what a run keeps of it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from enum import StrEnum
from pathlib import Path
from typing import Any

from mycelium.model.config import MyceliumConfig
from mycelium.schema import TASKS
from mycelium.sense.policies import POLICIES

_MOST_PROCESSES = 1024  # or threads; beyond that it is a slip
_LARGEST = 1e30  # finite in float32
_STEEPEST = 4.0  # exponent; beyond that weights of networks run out of the range of numbers
DEVICES = ("auto", "cpu", "cuda")


class Precision(StrEnum):
    """Of matrix products; voltages and losses are float32 in either."""

    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"


class Scope(StrEnum):
    """What is trained."""

    ALL = "all"
    HEADS = "heads"  # readouts only: encoders, fusion and backbone stay as they are


@dataclass(frozen=True, slots=True, kw_only=True)
class DataConfig:
    """Where cases come from.

    Attributes:
        catalogue: Networks and their splits.
        networks: Patterns of names; others are left out of training and validation.
        corpus: Built corpus to draw training cases from; simulated live if not given.
        normalisation: File of normalisation constants; computed from the training networks if not given.
        normalisation_cases: Cases of each network that they are computed from.
        seed: Of all cases and of their order.
        policies: Sensor policies, drawn alike, one per case.
        most_buses: Larger networks are not trained on. Validation is not capped.
        size_exponent: A network's weight is its number of buses to this power.
        family_exponent: A family's weight is its number of networks to this power.
        cases_per_run: Cases that a worker draws of a network at a time.
        validation_cases: Of each validation network: the first of ``validation_seed``, under one policy each, in turn.
        validation_seed: Of the validation cases.
        workers: Processes per training process that simulate and render; 0 works in the process itself.
    """

    catalogue: Path
    networks: tuple[str, ...] = ("*",)
    corpus: Path | None = None
    normalisation: Path | None = None
    normalisation_cases: int = 4
    seed: int = 0
    policies: tuple[str, ...] = tuple(POLICIES)
    most_buses: int = 10_000
    size_exponent: float = 0.0
    family_exponent: float = 1.0
    cases_per_run: int = 8
    validation_cases: int = 14
    validation_seed: int = 20261119
    workers: int = 1

    def __post_init__(self) -> None:
        _in_range(self, 1, math.inf, "cases_per_run", "normalisation_cases", "validation_cases", "most_buses")
        _in_range(self, 0, _MOST_PROCESSES, "workers")
        _in_range(self, -_STEEPEST, _STEEPEST, "size_exponent", "family_exponent")
        _some_of(self, "policies", tuple(POLICIES))
        if not self.policies:
            raise ValueError(f"policies = []: expected some of {', '.join(POLICIES)}")
        if not self.networks:
            raise ValueError('networks = []: expected patterns of names, as in ["ieee.*"]')


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectiveConfig:
    """What is minimised; see ``objective``.

    Attributes:
        tasks: Those that count; all of the model's if not given.
        magnitude_scale: lambda_V, per 1 p.u.
        angle_scale: lambda_theta, per radian. The paper leaves it open; 10 makes one degree count like 1.7 mp.u.
    """

    tasks: tuple[str, ...] = ()
    magnitude_scale: float = 100.0
    angle_scale: float = 10.0

    def __post_init__(self) -> None:
        _in_range(self, 0, _LARGEST, "magnitude_scale", "angle_scale")
        _some_of(self, "tasks", TASKS)


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimiserConfig:
    """AdamW along a cosine.

    Attributes:
        learning_rate: At the first step; it falls to 0 at the last.
        weight_decay: Of all parameters.
        clip: Largest norm of the gradient.
        batch: Cases asked for per step, over all processes; rejected ones are missing from it.
        samples_per_epoch: Cases asked for per epoch.
        epochs: Length of the cosine.
        patience: Epochs without a better validation loss after which training ends.
    """

    learning_rate: float = 1e-3
    weight_decay: float = 1e-2
    clip: float = 1.0
    batch: int = 64
    samples_per_epoch: int = 12_800
    epochs: int = 100
    patience: int = 10

    def __post_init__(self) -> None:
        _above_zero(self, "learning_rate", "clip")
        _in_range(self, 0, _LARGEST, "weight_decay")
        _in_range(self, 1, math.inf, "batch", "epochs", "patience", "samples_per_epoch")

    @property
    def steps_per_epoch(self) -> int:
        return self.samples_per_epoch // self.batch

    @property
    def steps(self) -> int:
        return self.steps_per_epoch * self.epochs


@dataclass(frozen=True, slots=True, kw_only=True)
class HardwareConfig:
    """How it is computed.

    Attributes:
        device: "cuda", "cpu", or "auto" for the first that is there.
        precision: Of matrix products.
        buses_per_batch: Node budget: a step is cut into pieces of at most so many buses, and their gradients are added.
        recompute: Keep only states between layers for the backward pass, and compute the rest again.
        threads: Of the processor, for tensors; 0 leaves that to torch.
        save_minutes: A checkpoint is written so often, and at the end of every epoch.
        tensorboard: Write logs for TensorBoard beside the CSV files.
    """

    device: str = "auto"
    precision: Precision = Precision.FLOAT32
    buses_per_batch: int = 20_000
    recompute: bool = False
    threads: int = 0
    save_minutes: float = 5.0
    tensorboard: bool = True

    def __post_init__(self) -> None:
        if self.device not in DEVICES:
            raise ValueError(f"device = {self.device!r}: expected one of {', '.join(DEVICES)}")
        _in_range(self, 1, math.inf, "buses_per_batch")
        _in_range(self, 0, _MOST_PROCESSES, "threads")
        _in_range(self, 0, math.inf, "save_minutes")


@dataclass(frozen=True, slots=True, kw_only=True)
class FinetuneConfig:
    """Where training starts from, if not from scratch.

    Attributes:
        weights: Folder of weights; theirs are the model's configuration and its constants, too.
        scope: What is trained.
    """

    weights: Path
    scope: Scope = Scope.ALL


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainConfig:
    """A run.

    Attributes:
        name: Of the file it was read from.
        seed: Of initial weights and dropout.
        model: Its sizes and parts; None where they are those of the weights that training starts from.
    """

    name: str
    seed: int = 0
    data: DataConfig
    model: MyceliumConfig | None = None
    objective: ObjectiveConfig = field(default_factory=ObjectiveConfig)
    optimiser: OptimiserConfig = field(default_factory=OptimiserConfig)
    hardware: HardwareConfig = field(default_factory=HardwareConfig)
    finetune: FinetuneConfig | None = None

    def __post_init__(self) -> None:
        if self.model is None and self.finetune is None:
            raise ValueError("expected [model] with `preset`, or [finetune] with `weights`")
        group = self.optimiser.batch * self.data.cases_per_run
        if self.optimiser.samples_per_epoch % group:
            raise ValueError(
                f"samples_per_epoch = {self.optimiser.samples_per_epoch}: expected a multiple of "
                f"batch × cases_per_run = {group}"
            )
        if self.model is not None:
            _some_of(self.objective, "tasks", self.model.tasks)

    def record(self) -> dict[str, Any]:
        """As JSON has it: values that decide the result.

        Paths and patterns of names are not among them: what they stand for decides (``mycelium.train.record``).
        """
        return {
            "name": self.name,
            "seed": self.seed,
            "data": _plain(self.data, "networks", "workers"),
            "model": None if self.model is None else self.model.record(),
            "objective": _plain(self.objective),
            "optimiser": _plain(self.optimiser),
            # Dropout is drawn piece by piece, so the size of pieces is among them.
            "hardware": {
                "precision": self.hardware.precision.value,
                "buses_per_batch": self.hardware.buses_per_batch,
            },
            "finetune": None if self.finetune is None else _plain(self.finetune),
        }


def _plain(section: Any, *without: str) -> dict[str, Any]:
    """Values of a section that are no paths."""
    values = {entry.name: getattr(section, entry.name) for entry in fields(section)}
    paths = {entry.name for entry in fields(section) if "Path" in str(entry.type)}
    return {key: value for key, value in values.items() if key not in paths and key not in without}


# ---- what values may be -------------------------------------------------------------------------------------------


def _in_range(section: object, least: float, most: float, *names: str) -> None:
    for name in names:
        value = getattr(section, name)
        if not least <= value <= most:  # nor is "not a number"
            bounds = f"at least {least:g}" if most in (math.inf, _LARGEST) else f"{least:g} to {most:g}"
            raise ValueError(f"{name} = {value}: expected {bounds}")


def _above_zero(section: object, *names: str) -> None:
    for name in names:
        if not 0.0 < getattr(section, name) <= _LARGEST:
            raise ValueError(f"{name} = {getattr(section, name)}: expected a number above 0")


def _some_of(section: object, name: str, known: tuple[str, ...]) -> None:
    given = getattr(section, name)
    if not set(given) <= set(known):
        raise ValueError(f"{name} = {list(given)}: expected some of {', '.join(known)}")
