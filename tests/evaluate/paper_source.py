"""The tables of the paper read from its LaTeX source by structure: which method, split, network, policy and column."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import NamedTuple

# Column heads to names of metrics, the first that matches.
_METRICS = {
    r"mape": "mape_pct", r"p\.u\.": "v_pu", r"\(v\)": "v_volt", r"\(deg\)|circ": "angle_deg", r"\bacc": "phase",
    r"\bprec": "switch_precision", r"\brec": "switch_recall", r"\bdet": "detection_f1", r"\bf1": "switch_f1",
    r"class": "class5", r"\bloc|\bexact": "location", r"hop@1": "hop1", r"hop@2": "hop2", r"hop@3": "hop3",
}  # fmt: skip
_POLICIES = {"clean": "clean", "Aggregate": "all"} | {
    f"{short}_{tier}": f"{long}_{tier}"
    for short, long in (("nm", "noisy_missing"), ("ami", "observability_ami"))
    for tier in ("dense", "medium", "sparse")
}
_NETWORKS = {"Network macro": "macro", "Pooled": "pooled"}
_METHODS = {
    "Ours": "Mycelium 10k",
    "Mycelium": "Mycelium 10k",
    "WLS": "WLS (oracle)",
    "correlation-based (P_xfmr)": "P matcher",
    "correlation-based (P+Q_xfmr)": "P+Q matcher",
    "+25% synthetic": "+25 % synthetic",
}
_PARTS = {
    "ablations": {"a": "communication", "b": "angle_reference"},
    "data_scaling": {"a": "synthetic", "b": "size_cap"},
}


class Key(NamedTuple):
    """Where a row of ours stands."""

    table: str
    split: str
    network: str
    policy: str
    label: str


Row = dict[str, str]  # values by metric


def tables_of(tex: str) -> dict[Key, Row]:
    """Every row of every table of results, as our own tables name them; refuses two values for one place."""
    tex = re.sub(r"(?m)(?<!\\)%.*$", "", tex)
    found: dict[Key, Row] = {}
    for key, row in _all(tex):
        there = found.setdefault(key, {})
        assert not there.keys() & row.keys(), f"{key} twice"
        there |= row
    return found


def _all(tex: str) -> Iterator[tuple[Key, Row]]:
    yield from _by_split(tex, "baselines", "baselines")
    yield from _by_split(tex, "single_vs_multitask", "single_task")
    yield from _by_split(tex, "ablations", "")
    yield from _by_split(tex, "data_scaling", "")
    for network, name, row in _labelled(tex, "tenk_final_per_network"):
        assert network == "Benchmark"
        name = re.sub(r" *\(n=.*\)", "", name)
        yield Key("network", "benchmark", _NETWORKS.get(name, name), "all", "Mycelium 10k"), row
    for policy, name, row in _labelled(tex, "fault_by_policy"):
        yield Key("policy", "benchmark", "pooled", _POLICIES[policy], _METHODS.get(name, name)), row
    for network, name, row in _labelled(tex, "fault_by_network"):
        if name != "Mycelium":  # the other table of networks has these with a digit more
            yield Key("network", "benchmark", network, "all", name), row
    yield from _by_method(tex)
    yield from _phases(tex)
    yield from _wls(tex)


def _by_split(tex: str, label: str, table: str) -> Iterator[tuple[Key, Row]]:
    """Tables whose first column is the split, in parts (a) and (b) where they hold two of ours."""
    for head, name, row in _labelled(tex, label):
        part = re.match(r"\((\w)\) ", head)
        table = _PARTS[label][part[1]] if part else table
        split = head.removeprefix(part[0] if part else "").lower()
        yield Key(table, split, "pooled", "all", _METHODS.get(name, name)), row


def _by_method(tex: str) -> Iterator[tuple[Key, Row]]:
    """State estimation by policy, two methods side by side."""
    head, body = _cells(tex, "se_per_policy")
    for policy, *values in body:
        for method in ("CANOS", "Ours"):
            mine = [k for k, name in enumerate(head[0]) if name == method]
            row = _row([head[-1][k] for k in mine], [values[k - 1].removesuffix("%") for k in mine])
            yield Key("policy", "benchmark", "pooled", _POLICIES[policy], _METHODS.get(method, method)), row


def _phases(tex: str) -> Iterator[tuple[Key, Row]]:
    """Accuracy of phases, one column per split."""
    head, body = _cells(tex, "knn_agg")
    for name, *values in body:
        for split, value in zip(head[-1][1:], values, strict=True):
            yield Key("phase_matching", split.lower(), "pooled", "all", _METHODS.get(name, name)), {"phase": value}


def _wls(tex: str) -> Iterator[tuple[Key, Row]]:
    """Three numbers in a cell: volts (per unit) / degrees; run times are left out."""
    head, body = _cells(tex, "wls_gnn")
    for network, policy, *values in body:
        for k, value in enumerate(values, 2):
            if head[-1][k] != "Result":
                continue
            volts, pu, degrees = re.fullmatch(r"([\d.]+) \(([\d.]+)\) / ([\d.]+)", value).groups()  # type: ignore[union-attr]
            row = {"v_pu": _full(pu), "v_volt": _full(volts), "angle_deg": _full(degrees)}
            yield Key("wls", "benchmark", network, _POLICIES[policy], _METHODS[head[0][k]]), row


def _labelled(tex: str, label: str) -> Iterator[tuple[str, str, Row]]:
    """First and second cell of every row, and its values by metric."""
    head, body = _cells(tex, label)
    for first, second, *values in body:
        yield first, second, _row(head[-1][2:], values)


def _row(heads: list[str], values: list[str]) -> Row:
    """Values by metric; columns that are none are left out, and what the paper leaves open."""
    named = zip((_metric(head) for head in heads), values, strict=True)
    return {name: _full(value) for name, value in named if name and value.strip("-")}


def _metric(head: str) -> str:
    return next((name for pattern, name in _METRICS.items() if re.search(pattern, head.lower())), "")


def _full(number: str) -> str:
    """With its leading zero."""
    return f"0{number}" if number.startswith(".") else number


# ---- LaTeX --------------------------------------------------------------------------------------------------------


def _cells(tex: str, label: str) -> tuple[list[list[str]], list[list[str]]]:
    """Head and body of a table, cells that span rows or columns repeated."""
    start = tex.index(rf"\label{{tab:{label}}}")
    text = tex[tex.index(r"\toprule", start) : tex.index(r"\bottomrule", start)]
    head, _, body = text.partition(r"\midrule")
    head_rows, rows = ([_expanded(row) for row in part.split(r"\\") if _plain(row)] for part in (head, body))
    for above, row in itertools.pairwise(rows):
        row[0] = row[0] or above[0]
    return head_rows, rows


def _expanded(row: str) -> list[str]:
    cells: list[str] = []
    for cell in row.split("&"):
        span = re.search(r"\\multicolumn\{(\d+)\}", cell)
        cells += [_plain(cell)] * (int(span[1]) if span else 1)
    return cells


def _plain(cell: str) -> str:
    """The text of a cell without its markup."""
    cell = re.sub(r"\\(cmidrule\(lr\)|citep?|textsuperscript|multirow|multicolumn\{\d+\})\{[^}]*\}(\{\*\})?", "", cell)
    cell = re.sub(r"\\(toprule|midrule|small|downarrow|uparrow|mathrm)|\^\\d?dagger|\[l\]|~", "", cell)
    cell = re.sub(r"\\(textbf|underline|shortstack)|\\(?=[_% ])|[{}$]", "", cell.replace("{,}", ","))
    return re.sub(r"\s+", " ", cell).strip()
