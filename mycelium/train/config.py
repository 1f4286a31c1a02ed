"""A training run as a TOML file, read into frozen dataclasses; unknown names and wrong types are refused by name.

    [data]
    catalogue = "reference-networks.toml"   # relative to this file
    [model]
    preset = "paper"

Everything else has the paper's value unless the file says otherwise. ``record`` is what a run keeps of it: all values,
no path of this machine.
"""

from __future__ import annotations

import tomllib
import types
import typing
from dataclasses import dataclass, field, fields, is_dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

from mycelium.errors import FeederError
from mycelium.model.config import MyceliumConfig
from mycelium.sense.policies import POLICIES

T = TypeVar("T")


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


@dataclass(frozen=True, slots=True, kw_only=True)
class FinetuneConfig:
    """Where training starts from, if not from scratch.

    Attributes:
        weights: Folder of weights; theirs is the model's configuration, too.
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
        model: Its sizes and parts.
    """

    name: str
    seed: int = 0
    data: DataConfig
    model: MyceliumConfig
    objective: ObjectiveConfig = field(default_factory=ObjectiveConfig)
    optimiser: OptimiserConfig = field(default_factory=OptimiserConfig)
    hardware: HardwareConfig = field(default_factory=HardwareConfig)
    finetune: FinetuneConfig | None = None

    def record(self) -> dict[str, Any]:
        """As JSON has it: what decides the result, and no path of this machine."""
        return {
            "name": self.name,
            "seed": self.seed,
            "data": _plain(replace(self.data, workers=0)),
            "model": self.model.record(),
            "objective": _plain(self.objective),
            "optimiser": _plain(self.optimiser),
            "hardware": {"precision": self.hardware.precision.value},
            "finetune": None if self.finetune is None else _plain(self.finetune),
        }


def _plain(section: Any) -> dict[str, Any]:
    values = {entry.name: getattr(section, entry.name) for entry in fields(section)}
    return {key: value.name if isinstance(value, Path) else value for key, value in values.items()}


# ---- reading ------------------------------------------------------------------------------------------------------

_PRESETS = {"paper": MyceliumConfig.paper, "tiny": MyceliumConfig.tiny}


def read_config(path: Path) -> TrainConfig:
    """The run of a TOML file; paths in it are relative to it."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise FeederError(f"{path}: not a training file ({error})") from error
    if "data" not in content or "model" not in content:
        raise FeederError(f"{path}: [data] with `catalogue` and [model] with `preset` must be there")
    if "name" in content:
        raise FeederError(f"{path}: `name` is that of the file; leave it out")
    model = content.pop("model")
    config: TrainConfig = _section(
        TrainConfig, {**content, "name": path.stem, "model": _model(model, f"{path}: [model]")}, str(path), path.parent
    )
    _check(config, path)
    return config


_AT_LEAST_ONE = {
    "data": ("cases_per_run", "normalisation_cases", "validation_cases", "most_buses"),
    "optimiser": ("batch", "epochs", "patience", "samples_per_epoch"),
    "hardware": ("buses_per_batch",),
}


def _check(config: TrainConfig, path: Path) -> None:
    for section, names in _AT_LEAST_ONE.items():
        for name in names:
            if getattr(getattr(config, section), name) < 1:
                raise FeederError(f"{path}: {name} = {getattr(getattr(config, section), name)}: expected at least 1")
    group = config.optimiser.batch * config.data.cases_per_run
    if config.optimiser.samples_per_epoch % group:
        raise FeederError(
            f"{path}: samples_per_epoch = {config.optimiser.samples_per_epoch}: expected a multiple of "
            f"batch × cases_per_run = {group}"
        )
    if not config.data.policies:
        raise FeederError(f"{path}: policies = []: expected some of {', '.join(POLICIES)}")
    for name, given, known in (
        ("policies", config.data.policies, tuple(POLICIES)),
        ("tasks", config.objective.tasks, config.model.tasks),
    ):
        if not set(given) <= set(known):
            raise FeederError(f"{path}: {name} = {list(given)}: expected some of {', '.join(known)}")


def _model(table: dict[str, Any], where: str) -> MyceliumConfig:
    """A preset, with some values changed."""
    preset = table.pop("preset", None)
    if preset not in _PRESETS:
        raise FeederError(f"{where}: preset = {preset!r}; expected one of {', '.join(_PRESETS)}")
    start = _PRESETS[preset]()
    window = _changed(start.window, table.pop("window", {}), f"{where}.window")
    try:
        config = _changed(replace(start, window=window), table, where)
        _ = config.attention  # whose sizes have rules of their own
    except ValueError as error:
        raise FeederError(f"{where}: {error}") from error
    return config


def _changed(start: T, table: dict[str, Any], where: str) -> T:
    """A dataclass with some values from a table."""
    hints = typing.get_type_hints(type(start))
    values = {key: _value(_known(hints, key, where), value, f"{where}: {key}", None) for key, value in table.items()}
    return replace(start, **values)  # type: ignore[type-var]


def _section(kind: type[T], table: dict[str, Any], where: str, folder: Path) -> T:
    hints = typing.get_type_hints(kind)
    values = {key: _value(_known(hints, key, where), value, f"{where}: {key}", folder) for key, value in table.items()}
    try:
        return kind(**values)
    except TypeError as error:
        raise FeederError(f"{where}: {str(error).rpartition('__init__() ')[2]}") from error


def _known(hints: dict[str, Any], key: str, where: str) -> Any:
    if key not in hints:
        raise FeederError(f"{where}: unknown `{key}`; known are {', '.join(hints)}")
    return hints[key]


def _value(hint: Any, value: Any, where: str, folder: Path | None) -> Any:
    """A TOML value as its annotation has it."""
    if typing.get_origin(hint) is types.UnionType:  # X | None; TOML has no None
        hint = next(part for part in typing.get_args(hint) if part is not types.NoneType)
    if is_dataclass(hint) and isinstance(value, hint):  # type: ignore[arg-type]
        return value
    if is_dataclass(hint) and isinstance(value, dict):
        return _section(typing.cast("type[Any]", hint), value, where, folder or Path())
    if typing.get_origin(hint) is tuple and isinstance(value, list):
        return tuple(_value(typing.get_args(hint)[0], part, where, folder) for part in value)
    if hint is Path and isinstance(value, str):
        return (folder or Path()) / value
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(hint, type) and issubclass(hint, StrEnum) and value in list(hint):
        return hint(value)
    if hint in (int, float, str, bool) and type(value) is hint:
        return value
    raise FeederError(f"{where} = {value!r}; expected {_told(hint)}")


def _told(hint: Any) -> str:
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return f"one of {', '.join(hint)}"
    names = {int: "a whole number", float: "a number", str: "a text", bool: "true or false", Path: "a path as text"}
    return names.get(hint, f"a {getattr(hint, '__name__', 'list')}")
