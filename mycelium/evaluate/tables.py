"""The paper's tables with our rows beside the paper's, as Markdown, LaTeX or CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np

from mycelium.errors import FeederError
from mycelium.evaluate.evaluation import Results
from mycelium.evaluate.metrics import PAPER
from mycelium.evaluate.paper_tables import TITLES, PaperRow, paper_rows
from mycelium.evaluate.scores import ALL, MACRO, POOLED

DIFFER = (
    "The networks differ: the Greensboro feeders that the paper tests on are in our training split, and its 296-bus "
    "and European networks are not ours. Rows of the paper and ours are no comparison number by number."
)
_GREENSBORO = "smartds_gso"  # how the names of its feeders begin
HEADERS = (
    "p.u.", "V", "deg", "MAPE %", "phase", "sw. P", "sw. R", "sw. F1", "det. F1", "class5", "loc.", "hop@1", "hop@2",
    "hop@3",
)  # fmt: skip
_HEAD = ("split", "network", "policy", "method", *HEADERS)
_DECIMALS = (5, 2, 3, 3, *(4,) * 10)
_BY_NETWORK, _BY_POLICY = ("network",), ("policy", "wls")


class Format(StrEnum):
    """How tables are printed."""

    MARKDOWN = "markdown"
    LATEX = "latex"
    CSV = "csv"


@dataclass(frozen=True, slots=True)
class Line:
    """One row of a table.

    Attributes:
        split, network, policy, label: What it is of.
        ours: Whether it is ours.
        cells: One text per metric of the paper.
    """

    split: str
    network: str
    policy: str
    label: str
    ours: bool
    cells: tuple[str, ...]


def lines_of(table: str, results: Sequence[Results], intervals: bool = False) -> list[Line]:
    """The paper's rows of a table, and ours of the same split.

    Args:
        table: Name in ``paper_tables.TITLES``.
        results: Evaluations.
        intervals: Print 95 % intervals with ours.
    """
    if table not in TITLES:
        raise FeederError(f"no table '{table}'; there are {', '.join(TITLES)}")
    theirs = [row for row in paper_rows() if row.table == table]
    found: list[Line] = []
    for split in dict.fromkeys([*(row.split for row in theirs), *(str(r.about["split"]) for r in results)]):
        found += [_of_paper(row) for row in theirs if row.split == split]
        for result in results:
            if result.about["split"] == split:
                found += _ours(table, split, result, intervals)
    return found


def _of_paper(row: PaperRow) -> Line:
    cells = tuple(row.values.get(name, "-") for name in PAPER)
    return Line(row.split, row.network, row.policy, row.label, False, cells)


def _ours(table: str, split: str, result: Results, intervals: bool) -> Iterator[Line]:
    frame = result.table
    networks, policies = [POOLED], [ALL]
    if table in _BY_NETWORK:
        networks = [*(n for n in frame["network"].unique() if n not in (POOLED, MACRO)), MACRO, POOLED]
    if table in _BY_POLICY:
        policies = [*(p for p in frame["policy"].unique() if p != ALL), ALL]
    for network in networks:
        for policy in policies:
            rows = frame[(frame["network"] == network) & (frame["policy"] == policy)].set_index("metric")
            cells = tuple(
                _cell(rows.loc[name, ["value", "low", "high"]].to_numpy(dtype=float), decimals, intervals)
                if name in rows.index
                else "-"
                for name, decimals in zip(PAPER, _DECIMALS, strict=True)
            )
            yield Line(split, network, policy, f"{result.about['label']} (ours)", True, cells)


def _cell(value: np.ndarray[tuple[int], np.dtype[np.float64]], decimals: int, intervals: bool) -> str:
    middle, low, high = value
    if not np.isfinite(middle):
        return "-"
    text = f"{middle:.{decimals}f}"
    return f"{text} [{low:.{decimals}f}, {high:.{decimals}f}]" if intervals and np.isfinite(low) else text


# ---- printing -----------------------------------------------------------------------------------------------------


def header(results: Sequence[Results]) -> list[str]:
    """What must be said before the numbers."""
    return [DIFFER, *(_of_result(result.about) for result in results)]


def _of_result(about: Mapping[str, Any]) -> str:
    trained = [str(name) for name in about.get("trained_on", ())]
    greensboro = "some" if any(name.startswith(_GREENSBORO) for name in trained) else "none"
    training = f"trained on {len(trained)} networks, {greensboro} of them in Greensboro; " if trained else ""
    return (
        f"{about['label']} (ours): {training}split '{about['split']}' of {about['place']}, {about['networks']} "
        f"networks, {about['cases']} cases, {about['samples']} samples."
    )


def render(tables: Mapping[str, Sequence[Line]], results: Sequence[Results], form: Format) -> str:
    """Tables as text, with what must be said before the numbers; CSV says it in comments at the top.

    Args:
        tables: Rows by name in ``paper_tables.TITLES``.
        results: What ours are of.
        form: Of the text.
    """
    said = header(results)
    if form is Format.CSV:
        return _csv(tables, said)
    print_one = _latex if form is Format.LATEX else _markdown
    return "\n".join(print_one(TITLES[name], said, [_row(line) for line in lines]) for name, lines in tables.items())


def _row(line: Line) -> tuple[str, ...]:
    return (line.split, line.network, line.policy, line.label, *line.cells)


def _csv(tables: Mapping[str, Sequence[Line]], said: Sequence[str]) -> str:
    text = io.StringIO()
    text.writelines(f"# {line}\n" for line in said)
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("table", "ours", *_HEAD))
    for name, lines in tables.items():
        writer.writerows((name, str(line.ours).lower(), *_row(line)) for line in lines)
    return text.getvalue()


def _markdown(title: str, said: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    rule = "|" + "---|" * (len(_HEAD) - len(HEADERS)) + "---:|" * len(HEADERS)
    printed = [f"| {' | '.join(row)} |" for row in (_HEAD, *rows)]
    return "\n".join([f"### {title}", "", *(f"> {text}" for text in said), "", printed[0], rule, *printed[1:], ""])


def _latex(title: str, said: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    body = "\n".join(" & ".join(_escaped(cell) for cell in row) + r" \\" for row in rows)
    return "\n".join(
        [
            *(f"% {text}" for text in said),
            r"\begin{table*}[t]",
            rf"\caption{{{_escaped(title)}. {_escaped(' '.join(said))}}}",
            r"\resizebox{\textwidth}{!}{%",
            rf"\begin{{tabular}}{{llll{'r' * len(HEADERS)}}}",
            r"\toprule",
            " & ".join(_escaped(name) for name in _HEAD) + r" \\",
            r"\midrule",
            body,
            r"\bottomrule",
            r"\end{tabular}}",
            r"\end{table*}",
            "",
        ]
    )


def _escaped(text: str) -> str:
    for mark in "&%_#$":
        text = text.replace(mark, f"\\{mark}")
    return text
