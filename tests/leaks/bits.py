"""Everything the model or a prior can be given of a Grid, as bytes."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import numpy as np
import numpy.typing as npt

from mycelium.grid.communication import communication_links
from mycelium.grid.grid import Grid
from mycelium.grid.nominal_angle import nominal_angle
from mycelium.grid.position import position
from mycelium.grid.service import lv_zone, serving_transformer, three_phase_zone
from mycelium.grid.topology import branches, fed, hop_paths, islands, on_cycle
from mycelium.schema import TABLES

Arrays = dict[str, npt.NDArray[np.generic]]


def recorded(grid: Grid) -> Arrays:
    """Every column and matrix, texts included."""
    arrays: Arrays = {"frequency_hz": np.array(grid.frequency_hz)}
    for table, columns in TABLES.items():
        for column in columns:
            values = grid.tables[table][column].to_numpy()
            arrays[f"{table}.{column}"] = values.astype(str) if values.dtype == object else values
    return arrays | {f"matrix.{name}": np.asarray(values) for name, values in grid.matrices.items()}


def derived(grid: Grid) -> Arrays:
    """Everything computed from the records alone."""
    nominal = nominal_angle(grid)
    descriptors, path = position(grid, nominal)
    arrays: Arrays = {
        "position": descriptors,
        "on_cycle": on_cycle(grid),
        "islands": islands(grid),
        "fed": fed(grid),
        "lv_zone": lv_zone(grid),
        "three_phase_zone": three_phase_zone(grid),
        "serving_transformer": serving_transformer(grid),
        "switches": grid.switches,
        "regulated": grid.regulated,
        "n_groups": np.array(grid.n_groups),
        "node_bus": grid.wiring.bus,
        "node_conductor": grid.wiring.conductor,
    }
    for thing in (nominal, path, hop_paths(grid), branches(grid), communication_links(grid)):
        for field in fields(thing):
            arrays[f"{type(thing).__name__}.{field.name}"] = np.asarray(getattr(thing, field.name))
    for table, terminals in grid.wiring.terminals.items():
        for field in fields(terminals):
            arrays[f"{table}.{field.name}"] = np.asarray(getattr(terminals, field.name))
    return arrays


def differing(one: Arrays, other: Arrays) -> list[str]:
    """Names of arrays whose dtype, shape or bytes differ."""
    assert one.keys() == other.keys()
    return [
        name
        for name in one
        if one[name].dtype != other[name].dtype
        or one[name].shape != other[name].shape
        or one[name].tobytes() != other[name].tobytes()
    ]


def assert_same(one: Grid, other: Grid, folder: Path) -> None:
    """Bit-equal in all tables and matrices, in the file, and in all that follows from them."""
    assert not differing(recorded(one), recorded(other))
    assert not differing(derived(one), derived(other))
    files = [folder / "one.grid", folder / "other.grid"]
    for grid, file in zip((one, other), files, strict=True):
        grid.save(file)
    assert files[0].read_bytes() == files[1].read_bytes()
