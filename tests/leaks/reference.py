"""Every customer and switch of the reference networks in tables, as a classifier that looks for leaks wants them."""

from __future__ import annotations

import json
import multiprocessing
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.ensemble import HistGradientBoostingClassifier

from mycelium.grid.grid import Configuration, Grid
from mycelium.grid.read_opendss import read_opendss
from mycelium.grid.topology import branches, hops, on_cycle
from mycelium.schema import TABLES, ElementKind

Table = tuple[pd.DataFrame, npt.NDArray[np.int64]]


def reference_tables(index: Path, unpacked: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Customers in question and switches of every network of the index, with their truth in the column ``truth``."""
    masters = [(unpacked / record["master"], unpacked) for record in json.loads(index.read_text())]
    with multiprocessing.get_context("spawn").Pool(2, maxtasksperchild=40) as pool:
        parts = pool.map(_tables, masters, chunksize=4)
    customers, switches = (pd.concat([part[k] for part in parts], ignore_index=True) for k in (0, 1))
    return customers, switches


def _tables(job: tuple[Path, Path]) -> tuple[pd.DataFrame, pd.DataFrame]:
    master, unpacked = job
    grid, configuration, _ = read_opendss(master, unpacked)
    family = master.relative_to(unpacked / "networks").parts[0]
    fingerprint = f"{len(grid.consumer)} {int(hops(grid).sum())} {int(grid.consumer['eligible'].sum())}"
    named = {"network": str(master), "family": family, "fingerprint": fingerprint}
    bare = grid.without_names()
    return customers_of(bare, configuration).assign(**named), _switches(bare, configuration).assign(**named)


def customers_of(grid: Grid, configuration: Configuration) -> pd.DataFrame:
    """One row per customer in question: every column of its records, its bus and its service lines, and their order."""
    rows = np.flatnonzero(grid.consumer["eligible"].to_numpy())
    group = grid.consumer["group"].to_numpy()[rows]
    bus = grid.consumer["bus1"].to_numpy()[rows]
    line_group = grid.line["group"].to_numpy()
    first = np.full(grid.n_groups + 1, -1)
    first[line_group[::-1]] = np.arange(len(line_group))[::-1]
    line = first[group] if len(rows) else np.zeros(0, int)
    depth, degree = hops(grid), np.bincount(grid.line[["bus1", "bus2"]].to_numpy().ravel(), minlength=len(grid.bus))
    columns: dict[str, Any] = {"truth": configuration.group_phase[group], "hops": depth[bus], "degree": degree[bus]}
    for table, at in (("consumer", rows), ("bus", bus), ("line", line)):
        columns[f"{table} row"], columns[f"{table} row mod 3"] = at, at % 3
        columns |= {f"{table} {name}": values for name, values in _columns(grid, table, at).items()}
    columns["rank"], columns["rank mod 3"] = np.arange(len(rows)), np.arange(len(rows)) % 3
    return pd.DataFrame(columns)


def _switches(grid: Grid, configuration: Configuration) -> pd.DataFrame:
    """One row per switch: every column of its records, its place, and whether it lies on a loop."""
    rows = grid.switches
    ends = grid.line[["bus1", "bus2"]].to_numpy()[rows]
    depth, b = hops(grid), branches(grid)
    line, cycle = b.is_kind(ElementKind.LINE), np.zeros(len(grid.line), bool)
    cycle[b.row[line]] = on_cycle(grid)[line]
    columns: dict[str, Any] = {
        "truth": configuration.switch_open,
        "on loop": cycle[rows],
        "row": rows,
        "row mod 2": rows % 2,
        "hops 1": depth[ends[:, 0]],
        "hops 2": depth[ends[:, 1]],
    }
    return pd.DataFrame(columns | _columns(grid, "line", rows))


def _columns(grid: Grid, table: str, rows: npt.NDArray[Any]) -> dict[str, npt.NDArray[np.float64]]:
    """Every column of these rows as numbers; -1 where there is no row."""
    found = {}
    for name, spec in TABLES[table].items():
        values = grid.tables[table][name]
        numbers = pd.factorize(values, sort=True)[0] if spec.dtype == "str" else values.to_numpy().astype(float)
        found[name] = np.where(rows >= 0, np.append(numbers, -1.0)[rows], -1.0)
    return found


def predicted(table: pd.DataFrame, fold: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Probabilities of each truth for each row, from a classifier that has not seen the row's fold. [row, class]"""
    features = table.drop(columns=["truth", "network", "family", "fingerprint"]).astype(float).fillna(-1.0)
    classes = np.unique(table["truth"])
    result = np.zeros((len(table), len(classes)))
    for k in np.unique(fold):
        train, test = fold != k, fold == k
        used = [name for name in features if features[name][train].nunique() > 1]
        model = HistGradientBoostingClassifier(max_iter=60, random_state=0)
        model.fit(features.loc[train, used], table["truth"][train])
        result[test] = model.predict_proba(features.loc[test, used])
    return result


def chance(truth: npt.NDArray[Any], fold: npt.NDArray[np.int64]) -> float:
    """Accuracy of guessing, for each fold, what is commonest outside it."""
    right = 0
    for k in np.unique(fold):
        values, counts = np.unique(truth[fold != k], return_counts=True)
        right += int(np.sum(truth[fold == k] == values[np.argmax(counts)]))
    return right / len(truth)
