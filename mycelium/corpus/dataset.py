"""Days of a network as an xarray Dataset over the memory map: ``ds.v_pu.sel(bus="650", phase="A")``.

Dimensions: ``case`` (its number), ``hour`` (0 to 23), ``node`` (bus and phase), ``regulated`` (transformer and
winding), ``capacitor``, ``switch``, ``group``. A phase is A, B, C, or ``?`` for the one conductor of a hidden-phase
bus; other conductors go by their number. Voltages are computed from the map when a value is asked for, and only there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import xarray as xr
from xarray.backends import BackendArray
from xarray.core import indexing

from mycelium.corpus.shard import Shard
from mycelium.grid.grid import Grid
from mycelium.schema import HIDDEN, HIDDEN_MARK, HOURS, PHASES

Array = npt.NDArray[Any]
Values = Callable[[Array, Any], Array]

_FACTS = (
    "stratum", "ties", "solver", "day_of_year", "phases_changed", "switching", "energised_share", "fault_type",
    "fault_place", "fault_name", "fault_terminal", "fault_x", "fault_conductors", "fault_resistance_ohm",
)  # fmt: skip


class _Stored(BackendArray):
    """One array of all cases, read case by case from the shards they lie in."""

    def __init__(self, parts: Sequence[Array], values: Values, dtype: npt.DTypeLike) -> None:
        self._parts, self._values = parts, values
        self.shape = (len(parts), *parts[0].shape)
        self.dtype = np.dtype(dtype)

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Array:
        return np.asarray(
            indexing.explicit_indexing_adapter(key, self.shape, indexing.IndexingSupport.OUTER, self._read)
        )

    def _read(self, key: tuple[Any, ...]) -> Array:
        """Values at an outer index: whole numbers, slices and arrays, one per dimension."""
        which, *rest = key
        picked = np.arange(len(self._parts))[which]
        if picked.ndim == 0:
            return self._one(int(picked), rest)
        if not len(picked):
            empty = self._one(0, rest)
            return np.zeros((0, *empty.shape), self.dtype)
        return np.stack([self._one(int(case), rest) for case in picked])

    def _one(self, case: int, rest: list[Any]) -> Array:
        part = self._parts[case]
        for axis in reversed(range(len(rest))):  # whole numbers drop an axis: the last first
            part = part[(slice(None),) * axis + (rest[axis],)]
        return np.asarray(self._values(part, rest[-1]), dtype=self.dtype)


def open_dataset(grid: Grid, cases: pd.DataFrame, shards: Sequence[Shard]) -> xr.Dataset:
    """Days of one variant of one network.

    Args:
        grid: Its records.
        cases: Their rows in the manifest.
        shards: The shard of each.
    """
    rows = cases["row"].to_numpy(dtype=np.int64)
    base = 1e3 * grid.bus["base_kv"].to_numpy()[grid.wiring.bus]

    def lazy(dims: tuple[str, ...], name: str, dtype: npt.DTypeLike, values: Values, says: str) -> xr.Variable:
        is_complex = name == "v"
        parts = [
            (shard.complex(name) if is_complex else shard.arrays[name])[row]
            for shard, row in zip(shards, rows, strict=True)
        ]
        data = indexing.LazilyIndexedArray(_Stored(parts, values, dtype))
        return xr.Variable(("case", *dims), data, {"says": says})

    def plain(part: Array, _: Any) -> Array:
        return part

    variables = {
        "v_pu": lazy(
            ("hour", "node"), "v", np.float64, lambda v, at: np.abs(v) / base[at], "magnitude to ground, per unit"
        ),
        "angle_deg": lazy(
            ("hour", "node"), "v", np.float64, lambda v, at: np.rad2deg(np.angle(v)), "angle to ground, degrees"
        ),
        "tap_pu": lazy(("hour", "regulated"), "tap_pu", np.float64, plain, "taps of regulated windings, per unit"),
        "capacitor_steps": lazy(("hour", "capacitor"), "capacitor_steps", np.int16, plain, "steps in operation"),
        "energised": lazy(("node",), "energised", np.bool_, plain, "tied to a source by what is closed"),
        "switch_open": lazy(("switch",), "switch_open", np.bool_, plain, "true positions"),
        "group_phase": lazy(("group",), "group_phase", np.int8, plain, "true phase slot of a hidden-phase group"),
    }
    variables |= {name: xr.Variable(("case",), _plain_values(cases[name])) for name in _FACTS}
    coordinates = _coordinates(grid).assign(case=cases["number"].to_numpy(dtype=np.int64), hour=np.arange(HOURS))
    facts = {"network": str(cases["network"].iloc[0]), "variant": int(cases["variant"].iloc[0])}
    return xr.Dataset(variables, coordinates, facts)


def _plain_values(column: pd.Series) -> Array:
    """Texts with '' where there is none, whole numbers with -1, shares with NaN."""
    if pd.api.types.is_float_dtype(column.dtype):
        return np.asarray(column, dtype=np.float64)
    if pd.api.types.is_integer_dtype(column.dtype):
        return np.asarray(column.fillna(-1), dtype=np.int64)
    return np.asarray(column.fillna(""), dtype=np.str_)


def _coordinates(grid: Grid) -> xr.Coordinates:
    """Names of nodes, windings, capacitors, switches and groups."""
    wiring, winding = grid.wiring, grid.winding.iloc[grid.regulated]
    phase = {HIDDEN: HIDDEN_MARK} | {k + 1: name for k, name in enumerate(PHASES)}
    node = pd.MultiIndex.from_arrays(
        [
            grid.bus["name"].to_numpy(dtype=object)[wiring.bus],
            np.array([phase.get(c, str(c)) for c in wiring.conductor.tolist()], dtype=object),
        ],
        names=("bus", "phase"),
    )
    regulated = pd.MultiIndex.from_arrays(
        [
            grid.transformer["name"].to_numpy(dtype=object)[winding["transformer"].to_numpy()],
            winding["number"].to_numpy(dtype=np.int64),
        ],
        names=("transformer", "winding"),
    )
    coordinates = xr.Coordinates.from_pandas_multiindex(node, "node")
    coordinates = coordinates.merge(xr.Coordinates.from_pandas_multiindex(regulated, "regulated")).coords
    return coordinates.assign(
        capacitor=grid.capacitor["name"].to_numpy(dtype=np.str_),
        switch=grid.line["name"].to_numpy(dtype=np.str_)[grid.switches],
        group=np.arange(grid.n_groups),
    )
