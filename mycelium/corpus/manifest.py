"""The manifest: one row per case, and the digests of all labels. Equal corpora have equal bytes."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mycelium.corpus.catalogue import Entry, Split
from mycelium.corpus.labels import split_digest
from mycelium.corpus.layout import LABELS, UnitRecord, shard_name
from mycelium.errors import FeederError

COLUMNS: dict[str, tuple[pa.DataType, str]] = {
    "network": (pa.string(), "name in the catalogue"),
    "family": (pa.string(), "networks of one origin"),
    "split": (pa.string(), "train, validation, test or benchmark"),
    "number": (pa.int32(), "case number, from 0 within the network"),
    "seed": (pa.int64(), "seed of all cases"),
    "stratum": (pa.string(), "what the case was asked to be"),
    "status": (pa.string(), "done or rejected"),
    "reason": (pa.string(), "why it was rejected"),
    "variant": (pa.int16(), "record variant; 0 is the network as published"),
    "ties": (pa.int16(), "ties that the variant adds: such cases are scored separately"),
    "shard": (pa.string(), "file of the day"),
    "row": (pa.int32(), "row in the file"),
    "solver": (pa.string(), "fixed point or engine"),
    "day_of_year": (pa.int16(), "date of the profiles"),
    "phases_changed": (pa.int32(), "groups that are not on their recorded phase"),
    "switching": (pa.string(), "none, keep or lose"),
    "switches_open": (pa.int32(), "switches that are open"),
    "energised_share": (pa.float64(), "share of nodes that are tied to a source"),
    "fault_type": (pa.string(), "LG, LL, LLG, LLL, LLLG; none on a sound day"),
    "fault_place": (pa.string(), "bus, line or transformer"),
    "fault_element": (pa.int32(), "row in the table of its kind"),
    "fault_name": (pa.string(), "name of that element"),
    "fault_terminal": (pa.int16(), "winding of a transformer, from 0"),
    "fault_x": (pa.float64(), "fraction of a line's length from terminal 1"),
    "fault_conductors": (pa.string(), "faulted conductors, as '1.2'; '?' is hidden"),
    "fault_resistance_ohm": (pa.float64(), "resistance, ohm"),
    "labels": (pa.string(), "sha256 of everything drawn: equal on any machine"),
}

_ADDED = ("network", "family", "split", "seed", "shard", "row")  # to what a unit's record says of a case
_DIGEST = "labels_sha256"

_SCHEMA = pa.schema(
    [pa.field(name, dtype, metadata={"says": says}) for name, (dtype, says) in COLUMNS.items()]
)  # fmt: skip


def manifest_bytes(entries: Mapping[str, Entry], seed: int, records: Iterable[UnitRecord]) -> bytes:
    """The manifest as a Parquet file.

    Args:
        entries: Networks by name.
        seed: Seed of all cases.
        records: Of all units, by network in the order wanted, then chunk.
    """
    rows = []
    for unit in records:
        entry = entries[unit.network]
        next_row: dict[int, int] = {}
        for case in unit.cases:
            row = {"network": unit.network, "family": entry.family, "split": entry.split.value, "seed": seed, **case}
            if case["status"] == "done":
                variant = case["variant"]
                row["shard"] = shard_name(unit.network, variant, unit.chunk)
                row["row"] = next_row.get(variant, 0)
                next_row[variant] = row["row"] + 1
            rows.append(row)
    table = pa.Table.from_pylist(rows, schema=_SCHEMA)
    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression="zstd")
    return buffer.getvalue()


def labels_bytes(entries: Mapping[str, Entry], records: Iterable[UnitRecord]) -> bytes:
    """Number of cases and digest of all labels, per split, as JSON."""
    cases: dict[Split, list[tuple[str, int, str | None]]] = {}
    for unit in records:
        own = cases.setdefault(entries[unit.network].split, [])
        own += [(unit.network, case["number"], case.get("labels")) for case in unit.cases]
    content = {
        split.value: {"cases": len(cases[split]), _DIGEST: split_digest(cases[split])}
        for split in Split
        if split in cases
    }
    return (json.dumps(content, indent=1) + "\n").encode()


def read_table(path: Path) -> pa.Table:
    """All cases, as stored; raises FeederError if that is no manifest."""
    try:
        table = pq.read_table(io.BytesIO(path.read_bytes()))
        table.validate(full=True)
        if not table.schema.equals(_SCHEMA):
            raise ValueError("other columns than a manifest has")
    except (OSError, ValueError, KeyError) as error:  # what Arrow raises is one of these
        raise damaged_error(path, error) from error
    return table


def read_manifest(path: Path) -> pd.DataFrame:
    """All cases. Numbers that a case may lack are nullable integers, so that rows of elements stay integers."""
    table = read_table(path).to_pandas(types_mapper=_NULLABLE.get)
    return table.astype({"number": "int64", "seed": "int64"})


_NULLABLE = {pa.int16(): pd.Int16Dtype(), pa.int32(): pd.Int32Dtype(), pa.int64(): pd.Int64Dtype()}


def agrees(record: UnitRecord, manifest: pa.Table) -> bool:
    """Whether a manifest says the same of the cases of a unit as its record."""
    names = [name for name in COLUMNS if name not in _ADDED]
    numbers = [case["number"] for case in record.cases]
    chosen = pc.and_(
        pc.equal(manifest["network"], record.network), pc.is_in(manifest["number"], pa.array(numbers, pa.int32()))
    )
    try:
        own = pa.Table.from_pylist(record.cases, pa.schema([_SCHEMA.field(name) for name in names]))
    except (ValueError, TypeError, OverflowError):
        return False
    return bool(manifest.filter(chosen).select(names).combine_chunks().equals(own))


# ---- labels -------------------------------------------------------------------------------------------------------


def read_labels(folder: Path) -> dict[str, dict[str, Any]]:
    """What ``labels_bytes`` wrote, per split; raises FeederError if that is not what is there."""
    path = folder / LABELS
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return {split: {"cases": part["cases"], _DIGEST: str(part[_DIGEST])} for split, part in content.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise damaged_error(path, error) from error


def damaged_error(path: Path, error: Exception) -> FeederError:
    """What to say of a file that is not what was written."""
    return FeederError(
        f"{path}: missing or damaged ({error}); `mycelium corpus validate` says what else is damaged, and the next "
        "`corpus build` makes it again"
    )
