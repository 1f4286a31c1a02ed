"""The component library: equipment, demand, settings and planning statistics of the training networks.

``Library.builtin()`` ships with the package; ``mycelium synth library`` makes one from a catalogue. Rows are numbers
with the name of the network they were read from. A draw for a convention takes rows of its family; where a family has
too few, those of its region; where that has too few, all. Families count by the square root of their networks
(``TEMPER``), so that the largest does not drown the others.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from mycelium.errors import FeederError
from mycelium.synth.library_rows import (
    STATISTICS,
    CapacitorSetting,
    Conductor,
    Construction,
    Convention,
    CustomerClass,
    Level,
    LoadRecord,
    Region,
    RegulatorSetting,
    Role,
    Source,
    Statistic,
    TransformerType,
)

Floats = npt.NDArray[np.float64]
Row = TypeVar("Row", bound=Source)

TEMPER = 0.5  # a family counts as its number of networks to this power
ENOUGH_TYPES = 3  # a family with fewer line or transformer types of a kind lends from its region
ENOUGH_NETWORKS = 2  # a family with a statistic of fewer networks lends from its region

KINDS: dict[str, type[Source]] = {
    "conductor": Conductor,
    "transformer": TransformerType,
    "load": LoadRecord,
    "regulator": RegulatorSetting,
    "capacitor": CapacitorSetting,
    "convention": Convention,
    "statistic": Statistic,
}
_ENUMS: dict[str, Any] = {
    "level": Level, "construction": Construction, "role": Role, "customer_class": CustomerClass, "region": Region,
}  # fmt: skip
_COMPRESSION = "zstd"


@dataclass(frozen=True)
class Library:
    """Rows of every kind, in the order of their networks."""

    conductors: tuple[Conductor, ...]
    transformers: tuple[TransformerType, ...]
    loads: tuple[LoadRecord, ...]
    regulators: tuple[RegulatorSetting, ...]
    capacitors: tuple[CapacitorSetting, ...]
    conventions: tuple[Convention, ...]
    statistics: tuple[Statistic, ...]

    @staticmethod
    @cache
    def builtin() -> Library:
        """The library that ships with the package."""
        with resources.as_file(resources.files("mycelium.synth") / "data" / "library.parquet") as path:
            return Library.read(path)

    @staticmethod
    def of(rows: Iterable[Source]) -> Library:
        """A library of these rows."""
        by_kind: dict[type[Source], list[Any]] = {kind: [] for kind in KINDS.values()}
        for row in rows:
            by_kind[type(row)].append(row)
        return Library(*(tuple(by_kind[kind]) for kind in KINDS.values()))

    @property
    def rows(self) -> tuple[Source, ...]:
        """All rows."""
        return tuple(row for field in dataclasses.fields(self) for row in getattr(self, field.name))

    def write(self, path: Path) -> None:
        """Write one parquet file: a column per field of any row, empty where a row has no such field."""
        names = {type_: name for name, type_ in KINDS.items()}
        fields = dict.fromkeys(field.name for type_ in KINDS.values() for field in dataclasses.fields(type_))
        records = [{"kind": names[type(row)], **dataclasses.asdict(row)} for row in self.rows]
        columns = {name: [record.get(name) for record in records] for name in ("kind", *fields)}
        table = pa.table({name: pa.array(values, _type_of(name)) for name, values in columns.items()})
        pq.write_table(table, path, compression=_COMPRESSION)

    @staticmethod
    def read(path: Path) -> Library:
        """Read a file that ``write`` made; raises FeederError for any other."""
        try:
            records = pq.read_table(path).to_pylist()
            return Library.of(_row(record) for record in records)
        except (OSError, pa.ArrowInvalid, KeyError, TypeError, ValueError) as error:
            advice = "make one with `mycelium synth library`"
            raise FeederError(f"{path}: not a component library ({error!r}); {advice}") from error

    # ---- conventions and families ----

    @cached_property
    def _region(self) -> dict[str, Region]:
        return {row.network: row.region for row in self.conventions}

    @property
    def networks(self) -> frozenset[str]:
        """Every network that contributes."""
        return frozenset(row.network for row in self.rows)

    def draw_convention(self, rng: np.random.Generator, region: Region | None = None) -> Convention:
        """A source convention: a family by tempered weight, then one of its networks."""
        rows = [row for row in self.conventions if row.complete and region in (None, row.region)]
        if not rows:
            raise FeederError(f"the component library has no convention of region {region}; add networks of it")
        return _draw_row(rng, rows, lambda _: 1.0)

    # ---- equipment ----

    def conductor_ladder(
        self, convention: Convention, level: Level, n_phases: int, construction: Construction | None = None
    ) -> tuple[Conductor, ...]:
        """Line types to choose from, by rising ampacity and falling resistance: a larger one is never worse."""

        def fits(row: Conductor) -> bool:
            return row.level == level and row.n_phases == n_phases and construction in (None, row.construction)

        return self._ladder(
            convention, filter(fits, self.conductors), lambda row: row.ampacity_a, lambda row: -row.r1_ohm_per_km
        )

    def transformer_ladder(
        self, convention: Convention, role: Role, n_phases: int, centre_tapped: bool = False
    ) -> tuple[TransformerType, ...]:
        """Transformer types by rising rating, the most common of each rating. Voltages are the convention's."""

        def fits(row: TransformerType) -> bool:
            return (row.role, row.n_phases, row.centre_tapped) == (role, n_phases, centre_tapped)

        common = sorted(filter(fits, self.transformers), key=lambda row: -row.count)
        return self._ladder(convention, common, lambda row: row.kva, lambda row: row.kva)

    # ---- demand ----

    def draw_loads(self, rng: np.random.Generator, customer_class: CustomerClass, count: int) -> tuple[Floats, Floats]:
        """Nominal kW and kvar of customers of a class, families tempered. [customer], [customer]"""
        rows = [row for row in self.loads if row.customer_class == customer_class]
        if not rows:
            raise FeederError(f"the component library has no {customer_class} load record; add networks with customers")
        chosen = rng.choice(len(rows), size=count, p=_weights(rows, lambda row: float(row.count)))
        pairs = np.array([(row.kw, row.kvar) for row in rows])[chosen]
        return pairs[:, 0], pairs[:, 1]

    # ---- settings ----

    def draw_regulator(self, rng: np.random.Generator, convention: Convention) -> RegulatorSetting:
        """Settings of a regulator."""
        return _draw_row(rng, self._nearest(convention, self.regulators), lambda row: float(row.count))

    def draw_capacitor(self, rng: np.random.Generator, convention: Convention) -> CapacitorSetting:
        """Size and control of a shunt capacitor."""
        return _draw_row(rng, self._nearest(convention, self.capacitors), lambda row: float(row.count))

    # ---- planning statistics ----

    def draw_statistic(
        self, rng: np.random.Generator, convention: Convention, name: str, count: int | None = None
    ) -> Any:
        """Values of a planning statistic: a network of the family (or the pool), then a value between its quantiles.

        Args:
            rng: Where chance comes from.
            convention: Whose family.
            name: One of ``STATISTICS``.
            count: How many, all from one network; one number if not given.
        """
        chosen = self._statistic_of(rng, convention, name)
        values = np.interp(rng.random(count or 1), np.linspace(0.0, 1.0, len(chosen.quantiles)), chosen.quantiles)
        return values if count is not None else float(values[0])

    def _statistic_of(self, rng: np.random.Generator, convention: Convention, name: str) -> Statistic:
        if name not in STATISTICS:
            raise ValueError(f"no planning statistic '{name}'; known are {', '.join(STATISTICS)}")
        family, region, everything = self._near(convention, [row for row in self.statistics if row.name == name])
        rows = family if len(family) >= ENOUGH_NETWORKS else region or everything
        return _draw_row(rng, rows, lambda _: 1.0)

    # ---- where to look ----

    def _near(self, convention: Convention, rows: Iterable[Row]) -> tuple[list[Row], list[Row], list[Row]]:
        """Rows of the convention's family in its region, of its region, and all."""
        everything = list(rows)
        if not everything:
            raise FeederError(f"the component library lacks what family '{convention.family}' needs; add networks")
        region = [row for row in everything if self._region.get(row.network) == convention.region]
        return [row for row in region if row.family == convention.family], region, everything

    def _nearest(self, convention: Convention, rows: Iterable[Row]) -> list[Row]:
        return next(near for near in self._near(convention, rows) if near)

    def _ladder(
        self, convention: Convention, rows: Iterable[Row], first: Callable[[Row], float], second: Callable[[Row], float]
    ) -> tuple[Row, ...]:
        """Types that rise in both, of the nearest source that has enough; of all if none has."""
        for near in self._near(convention, rows):
            ladder = _rising(near, first, second)
            if len(ladder) >= ENOUGH_TYPES:
                break
        return ladder


def _weights(rows: Sequence[Row], within: Callable[[Row], float]) -> Floats:
    """Chance of each row: families by networks to the power TEMPER, networks evenly, rows by ``within``. [row]"""
    networks = Counter(family for family, _ in {(row.family, row.network) for row in rows})
    own = np.array([within(row) for row in rows])
    total: Counter[str] = Counter()
    for row, value in zip(rows, own, strict=True):
        total[row.network] += value
    weight = [
        networks[row.family] ** (TEMPER - 1.0) * value / total[row.network]
        for row, value in zip(rows, own, strict=True)
    ]
    result: Floats = np.asarray(weight, dtype=np.float64) / np.sum(weight)
    return result


def _draw_row(rng: np.random.Generator, rows: Sequence[Row], within: Callable[[Row], float]) -> Row:
    return rows[int(rng.choice(len(rows), p=_weights(rows, within)))]


def _rising(rows: Sequence[Row], first: Callable[[Row], float], second: Callable[[Row], float]) -> tuple[Row, ...]:
    """Rows by ``first``, keeping those that raise both it and ``second``."""
    kept: list[Row] = []
    for row in sorted(rows, key=lambda row: (first(row), second(row))):
        if not kept or (first(row) > first(kept[-1]) and second(row) > second(kept[-1])):
            kept.append(row)
    return tuple(kept)


def _type_of(name: str) -> pa.DataType:
    """Parquet type of a column."""
    annotation = next(
        str(field.type) for kind in KINDS.values() for field in dataclasses.fields(kind) if field.name == name
    ) if name != "kind" else "str"  # fmt: skip
    types = {"float": pa.float64(), "int": pa.int64(), "bool": pa.bool_(), "tuple[float, ...]": pa.list_(pa.float64())}
    return types.get(annotation, pa.dictionary(pa.int32(), pa.string()))


def _row(record: dict[str, Any]) -> Source:
    kind = KINDS[record["kind"]]
    values = {field.name: record[field.name] for field in dataclasses.fields(kind)}
    for name, enum in _ENUMS.items():
        if name in values:
            values[name] = enum(values[name])
    if "quantiles" in values:
        values["quantiles"] = tuple(values["quantiles"])
    return kind(**values)
