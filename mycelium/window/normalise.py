"""Normalisation constants: middle and spread of every transformed column over training networks, and nothing else's.

They are the median and half the range of the middle two thirds, so that faults and dead buses do not set the scale;
what lies beyond four spreads is then compressed. Every network counts the same for static columns, and every sample for
temporal ones, however large it is. What is missing does not count.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from mycelium.errors import FeederError
from mycelium.window.columns import Columns, Store

Floats = npt.NDArray[np.floating]

FORMAT = 1
CORE = 4.0
_SMALLEST_SPREAD = 1e-6  # a column that never varies is only centred
_LEVELS = np.linspace(0.005, 0.995, 100)
_MIDDLE_TWO_THIRDS = (1.0 / 6.0, 0.5, 5.0 / 6.0)


@dataclass(frozen=True)
class Normalisation:
    """Middle and spread by store and column; columns it does not name are left as they are.

    Attributes:
        static: Of static columns, as {store: {column: (middle, spread)}}.
        temporal: Of readings, likewise.
        networks: Whose constants these are.
        core: What lies beyond so many spreads is compressed.
        nominal_angle: Whether constants of angles are of angles relative to their nominal values.
    """

    static: Mapping[str, Mapping[str, tuple[float, float]]]
    temporal: Mapping[str, Mapping[str, tuple[float, float]]]
    networks: tuple[str, ...] = ()
    core: float = CORE
    nominal_angle: bool = True

    @staticmethod
    def identity() -> Normalisation:
        """Leaves everything as it is."""
        return Normalisation({}, {}, core=float("inf"))

    def check(self, nominal_angle: bool) -> None:
        """Refuse windows whose angles mean something else; their inputs would be out of all proportion."""
        if self.temporal and self.nominal_angle != nominal_angle:
            raise FeederError(
                f"these normalisation constants were made with nominal_angle = {self.nominal_angle}, and the window "
                f"has {nominal_angle}; compute them again with the window's"
            )

    def of_static(self, store: Store, columns: Columns) -> npt.NDArray[np.float64]:
        """Middle and spread of each column. [2, column]"""
        return _lookup(self.static, store, columns)

    def of_temporal(self, store: Store, columns: Columns) -> npt.NDArray[np.float64]:
        """Middle and spread of each column. [2, column]"""
        return _lookup(self.temporal, store, columns)

    def save(self, path: Path) -> None:
        """Write as JSON, whole or not at all."""
        record = {
            "format": FORMAT,
            "networks": list(self.networks),
            "core": self.core,
            "nominal_angle": self.nominal_angle,
            "static": {store: dict(columns) for store, columns in self.static.items()},
            "temporal": {store: dict(columns) for store, columns in self.temporal.items()},
        }
        part = path.with_name(path.name + ".part")
        part.write_text(json.dumps(record, indent=1, sort_keys=True) + "\n")
        part.replace(path)

    @staticmethod
    def load(path: Path) -> Normalisation:
        """Read what ``save`` wrote."""
        try:
            record = json.loads(Path(path).read_text())
            if record["format"] != FORMAT:
                raise ValueError(f"format {record['format']}, expected {FORMAT}")
            static, temporal = (_pairs(record[kind]) for kind in ("static", "temporal"))
            networks, core = tuple(str(name) for name in record["networks"]), float(record["core"])
            nominal_angle = bool(record.get("nominal_angle", True))  # files before this was asked are of residuals
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise FeederError(f"{path}: not a file of normalisation constants ({error}); compute them again") from error
        return Normalisation(static, temporal, networks, core, nominal_angle)


def _pairs(record: Mapping[str, Mapping[str, list[float]]]) -> dict[str, dict[str, tuple[float, float]]]:
    result: dict[str, dict[str, tuple[float, float]]] = {}
    for store, columns in record.items():
        result[store] = {name: (float(middle), float(spread)) for name, (middle, spread) in columns.items()}
    return result


def _lookup(
    table: Mapping[str, Mapping[str, tuple[float, float]]], store: Store, columns: Columns
) -> npt.NDArray[np.float64]:
    known = table.get(store.value, {})
    pairs = [known.get(column.constant, (0.0, 1.0)) for column in columns]
    return np.array(pairs, dtype=np.float64).reshape(-1, 2).T


def squash(x: Floats, core: float) -> Floats:
    """Values as they are within ``core``, logarithmic beyond: a dead bus must not swamp all others."""
    size = np.abs(x)
    squashed = np.minimum(size, core) * (1.0 + np.log(np.maximum(size / core, 1.0)))
    return np.asarray(np.copysign(squashed, x))


def normalised(values: Floats, constants: npt.NDArray[np.float64], core: float) -> npt.NDArray[np.float32]:
    """Transformed values in spreads from the middle, 0 where missing.

    Args:
        values: NaN where missing. [..., column]
        constants: Middle and spread. [2, column]
        core: What lies beyond so many spreads is compressed.
    """
    middle, spread = constants
    return np.asarray(np.nan_to_num(squash((values - middle) / spread, core), nan=0.0), dtype=np.float32)


@dataclass
class _Distribution:
    """Quantiles of groups of values, every group with the same weight."""

    quantiles: list[npt.NDArray[np.float64]] = field(default_factory=list)

    def add(self, values: Floats) -> None:
        values = values[np.isfinite(values)]
        if len(values):
            self.quantiles.append(np.quantile(values.astype(np.float64), _LEVELS))

    def result(self) -> tuple[float, float]:
        values = np.concatenate(self.quantiles)
        low, middle, high = np.quantile(values, _MIDDLE_TWO_THIRDS)
        spread = (high - low) / 2.0
        if spread <= _SMALLEST_SPREAD:  # most values are the same: let the others set the scale
            spread = float(values.std())
        return float(middle), float(spread) if spread > _SMALLEST_SPREAD else 1.0


def _table() -> dict[str, dict[str, _Distribution]]:
    return defaultdict(lambda: defaultdict(_Distribution))


@dataclass
class Fit:
    """Collects values of transformed, not normalised columns.

    Attributes:
        nominal_angle: As in ``Normalisation``.
        networks: Names seen so far, in order.
    """

    nominal_angle: bool = True
    networks: list[str] = field(default_factory=list)
    _static: dict[str, dict[str, _Distribution]] = field(default_factory=_table)
    _temporal: dict[str, dict[str, _Distribution]] = field(default_factory=_table)

    def add_static(self, store: Store, columns: Columns, values: Floats) -> None:
        """One network's values, NaN where missing. [entity, column]"""
        for name, places in _by_constant(columns):
            self._static[store.value][name].add(values[:, places].ravel())

    def add_temporal(self, store: Store, columns: Columns, values: Floats) -> None:
        """One sample's readings, NaN where there is none. [hour, entity, column]"""
        for name, places in _by_constant(columns):
            self._temporal[store.value][name].add(values[..., places].ravel())

    def result(self) -> Normalisation:
        static, temporal = (
            {
                store: {name: values.result() for name, values in columns.items() if values.quantiles}
                for store, columns in table.items()
            }
            for table in (self._static, self._temporal)
        )
        return Normalisation(static, temporal, tuple(self.networks), nominal_angle=self.nominal_angle)


def _by_constant(columns: Columns) -> Iterable[tuple[str, list[int]]]:
    """Names of constants and the columns that share each."""
    places: dict[str, list[int]] = {}
    for k, column in enumerate(columns):
        if column.constant:
            places.setdefault(column.constant, []).append(k)
    return places.items()
