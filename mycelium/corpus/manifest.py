"""The manifest: one row per case, and the digests of all labels. Equal corpora have equal bytes."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Mapping

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from mycelium.corpus.catalogue import Entry, Split
from mycelium.corpus.labels import split_digest
from mycelium.corpus.layout import UnitRecord, shard_name

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
        split.value: {"cases": len(cases[split]), "labels_sha256": split_digest(cases[split])}
        for split in Split
        if split in cases
    }
    return (json.dumps(content, indent=1) + "\n").encode()


def read_manifest(content: bytes) -> pd.DataFrame:
    """All cases. Numbers that a case may lack are nullable integers, so that rows of elements stay integers."""
    table = pq.read_table(io.BytesIO(content)).to_pandas(types_mapper=_NULLABLE.get)
    return table.astype({"number": "int64", "seed": "int64"})


_NULLABLE = {pa.int16(): pd.Int16Dtype(), pa.int32(): pd.Int32Dtype(), pa.int64(): pd.Int64Dtype()}
