"""A training run read from a TOML file; unknown names, wrong types and senseless values are refused by name.

    [data]
    catalogue = "reference-networks.toml"   # relative to this file
    [model]
    preset = "paper"

A file may start from another one, which is a run of its own, and say only what is different:

    base = "paper.toml"                     # relative to this file, too
    [model.window]
    communication = "none"
"""

from __future__ import annotations

import types
import typing
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

from mycelium.corpus.toml_file import read_toml, shown
from mycelium.errors import FeederError
from mycelium.model.config import MyceliumConfig
from mycelium.model.weights import BUNDLED
from mycelium.model.weights import CONFIG as WEIGHTS
from mycelium.train.config import FinetuneConfig, TrainConfig

T = TypeVar("T")

_PRESETS = {"paper": MyceliumConfig.paper, "tiny": MyceliumConfig.tiny}
_WORDS = {int: "a whole number", float: "a number", str: "a text", bool: "true or false", Path: "a path as text"}
_BITS = 63  # of a whole number in TOML, and in a tensor


def read_config(path: Path) -> TrainConfig:
    """The run of a TOML file; paths in it are relative to it."""
    _, content = read_toml(path, "a training file")
    base = _base(path, content.pop("base")) if "base" in content else None
    if "name" in content:
        raise FeederError(f"{path}: `name` is that of the file; leave it out")
    if base is None and "data" not in content:
        raise FeederError(f"{path}: [data] with `catalogue` must be there")
    top = _Place(path)
    content["name"] = path.stem
    if "model" in content:
        content["model"] = _model(content["model"], top.of("model"), None if base is None else base.model)
    config = _section(TrainConfig, content, top, base)
    if config.finetune is None:
        return config
    return replace(config, finetune=_with_bundled(config.finetune, path.parent))


@dataclass(frozen=True, slots=True)
class _Place:
    """Where in a file we are.

    Attributes:
        file: Which file.
        table: Dotted name of the table; empty at the top.
    """

    file: Path
    table: str = ""

    def __str__(self) -> str:
        return f"{self.file}: [{self.table}]" if self.table else str(self.file)

    def of(self, key: str) -> _Place:
        """A table in this one."""
        return _Place(self.file, f"{self.table}.{key}" if self.table else key)


def _base(path: Path, name: object) -> TrainConfig:
    """The run that a file starts from."""
    if not isinstance(name, str):
        raise FeederError(f"{path}: base = {shown(name)}; expected a training file, as text")
    file = path.parent / name
    if "base" in read_toml(file, "a training file")[1]:
        raise FeederError(f"{path}: base = {shown(name)}: has a `base` itself; name that one, and say all differences")
    return read_config(file)


def _model(table: object, place: _Place, base: MyceliumConfig | None) -> MyceliumConfig:
    """A preset or the base's model, with some values changed."""
    if not isinstance(table, dict):
        raise FeederError(f"{place.file}: model = {shown(table)}; expected a table, [model]")
    values = dict(table)
    preset = values.pop("preset", None)
    if preset is not None or base is None:
        if not isinstance(preset, str) or preset not in _PRESETS:
            was = "is missing" if preset is None else f"= {shown(preset)}"
            raise FeederError(f"{place}: preset {was}; expected one of {', '.join(_PRESETS)}")
        base = _PRESETS[preset]()
    config = _section(MyceliumConfig, values, place, base)
    try:
        _ = config.attention  # whose sizes have rules of their own
    except ValueError as error:
        raise FeederError(f"{place}: {error}") from error
    return config


def _with_bundled(finetune: FinetuneConfig, folder: Path) -> FinetuneConfig:
    """Weights that ship with the package may be given by name, where no folder of that name holds weights."""
    given = finetune.weights
    bundled = BUNDLED / given.name
    if given.parent == folder and bundled.is_dir() and not (given / WEIGHTS).is_file():
        return replace(finetune, weights=bundled)
    return finetune


def _section(kind: type[T], table: dict[str, Any], place: _Place, start: T | None) -> T:
    """A dataclass from a table; what the table does not say is as in ``start``, or as the class has it."""
    hints = typing.get_type_hints(kind)
    values = {}
    for key, value in table.items():
        if key not in hints:
            known = ", ".join(name for name in hints if name != "name" or kind is not TrainConfig)
            raise FeederError(f"{place}: unknown `{key}`; known are {known}")
        values[key] = _value(hints[key], value, place, key, getattr(start, key, None))
    try:
        if start is not None:
            return replace(start, **values)  # type: ignore[type-var]
        for entry in fields(kind):  # type: ignore[arg-type]
            if entry.name not in values and entry.default is MISSING and entry.default_factory is MISSING:
                raise ValueError(f"`{entry.name}` is missing")
        return kind(**values)
    except ValueError as error:
        raise FeederError(f"{place}: {error}") from error


def _value(hint: Any, value: object, place: _Place, key: str, start: Any) -> Any:
    """A TOML value as its annotation has it."""
    if typing.get_origin(hint) is types.UnionType:  # X | None; TOML has no None
        hint = next(part for part in typing.get_args(hint) if part is not types.NoneType)
    if is_dataclass(hint) and isinstance(value, hint):  # type: ignore[arg-type]
        return value  # a model, which is read before
    if is_dataclass(hint) and isinstance(value, dict):
        return _section(typing.cast("type[Any]", hint), value, place.of(key), start)
    if typing.get_origin(hint) is tuple and isinstance(value, list):
        return tuple(_value(typing.get_args(hint)[0], part, place, key, None) for part in value)
    if hint is Path and isinstance(value, str):
        return place.file.parent / value
    if hint is float and type(value) is int and not _is_too_large(value):
        return float(value)
    if isinstance(hint, type) and issubclass(hint, StrEnum) and isinstance(value, str) and value in list(hint):
        return hint(value)
    if hint in (int, float, str, bool) and type(value) is hint and not (hint is int and _is_too_large(value)):
        return value
    raise FeederError(f"{place}: {key} = {shown(value)}; expected {_told(hint)}")


def _is_too_large(value: Any) -> bool:
    return not -(2**_BITS) <= value < 2**_BITS


def _told(hint: Any) -> str:
    """What is expected, in the words of TOML."""
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return f"one of {', '.join(hint)}"
    if typing.get_origin(hint) is tuple:
        return f"a list, each {_told(typing.get_args(hint)[0])}"
    return "a table" if is_dataclass(hint) else _WORDS[hint]
