"""The paper's numbers are the paper's, and ours stand beside them, marked, under a header that says what differs."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from mycelium.errors import FeederError
from mycelium.evaluate.evaluation import Results
from mycelium.evaluate.metrics import PAPER
from mycelium.evaluate.paper_tables import REFERENCE, TITLES, paper_rows
from mycelium.evaluate.scores import Scores
from mycelium.evaluate.tables import DIFFER, HEADERS, Format, header, lines_of, render
from mycelium.sense.policies import POLICIES
from mycelium.window.sample import SampleId
from tests.conftest import SHARED, require_shared
from tests.evaluate.paper_source import Key, Row, tables_of


@pytest.fixture
def ours() -> Results:
    samples = [
        SampleId("a_feeder", 0, case, 0, policy) for case in range(4) for policy in ("clean", "noisy_missing_dense")
    ]
    sums = {
        "phase_right": np.arange(8.0), "phase_n": np.full(8, 10.0), "phase_all_right": np.arange(8.0),
        "phase_all_n": np.full(8, 10.0), "phase_nll": np.ones(8), "phase_bin_n": np.ones((8, 10)),
        "phase_bin_confidence": np.ones((8, 10)), "phase_bin_right": np.ones((8, 10)),
    }  # fmt: skip
    about = {"label": "a_model", "split": "test", "place": "some.toml", "seed": 1, "missing": 0}
    return Results.of(Scores.of(samples, sums), about)


def paper() -> str:
    require_shared(SHARED)
    return (SHARED / "paper.tex").read_text()


def written_down() -> dict[Key, Row]:
    rows = {Key(row.table, row.split, row.network, row.policy, row.label): dict(row.values) for row in paper_rows()}
    assert len(rows) == len(paper_rows()), "two rows for one place"
    return rows


def test_every_number_stands_where_the_paper_has_it_and_none_is_left_out() -> None:
    ours, theirs = written_down(), tables_of(paper())
    assert ours.keys() == theirs.keys()
    for key, row in theirs.items():
        assert ours[key] == row, key


@pytest.mark.parametrize(
    ("one", "other"),
    [("DGS-GNN", "STGATv2"), ("hop@1", "hop@2"), (r"nm\_dense", r"nm\_sparse"), ("rural", "urban"),
     ("{5}{*}{Test}", "{5}{*}{Benchmark}"), ("{4}{c}{CANOS}", "{4}{c}{Ours}"), ("0.1349", "0.1177")],
)  # fmt: skip
def test_a_swap_in_the_paper_is_noticed(one: str, other: str) -> None:
    """The comparison is of places, not only of numbers: each of these leaves every number where it is, or nearly."""
    tex = paper()
    assert one in tex and other in tex
    swapped = tex.replace(one, "\0").replace(other, one).replace("\0", other)
    assert tables_of(swapped) != written_down()


def test_the_reference_is_the_same_wherever_it_is_repeated() -> None:
    tables = ("baselines", "communication", "angle_reference", "synthetic", "size_cap", "single_task")
    for split in ("test", "benchmark"):
        rows = [r for r in paper_rows() if r.table in tables and r.label == REFERENCE and r.split == split]
        assert len(rows) == len(tables)
        assert all(row.values == rows[0].values and len(row.values) == len(PAPER) for row in rows)


def test_rows_of_the_paper_name_our_policies_and_tables() -> None:
    assert {row.table for row in paper_rows()} == set(TITLES)
    assert {row.policy for row in paper_rows()} <= {"all", *POLICIES}


@pytest.mark.parametrize("table", TITLES)
def test_ours_stand_beside_the_papers_and_nothing_of_theirs_is_lost(table: str, ours: Results) -> None:
    lines = lines_of(table, [ours])
    assert sum(not line.ours for line in lines) == sum(row.table == table for row in paper_rows())
    mine = [line for line in lines if line.ours]
    assert mine and all(line.label == "a_model (ours)" and line.split == "test" for line in mine)
    pooled = next(line for line in mine if line.network == "pooled" and line.policy == "all")
    assert pooled.cells[list(PAPER).index("phase")] == "0.3500"
    assert pooled.cells[0] == "-", "what was not answered has no number"


@pytest.mark.parametrize("form", [Format.MARKDOWN, Format.LATEX])
def test_text_says_that_the_networks_differ(form: Format, ours: Results) -> None:
    text = render({"baselines": lines_of("baselines", [ours])}, [ours], form)
    assert DIFFER in text.replace("\\", "") and "1 networks, 4 cases, 8 samples" in text
    assert ("a\\_model (ours)" if form is Format.LATEX else "a_model (ours)") in text
    assert "0.5713" in text
    columns = (
        text.count("|", text.index("| split"), text.index("\n", text.index("| split"))) if "| split" in text else 0
    )
    if form is Format.MARKDOWN:
        assert columns == 4 + len(HEADERS) + 1


def test_csv_has_one_value_per_column_below_what_must_be_said(ours: Results) -> None:
    lines = {name: lines_of(name, [ours]) for name in ("policy", "baselines")}
    text = render(lines, [ours], Format.CSV).splitlines(keepends=True)
    said = [line for line in text if line.startswith("#")]
    assert text[: len(said)] == said and DIFFER in said[0] and "1 networks, 4 cases, 8 samples" in said[1]
    every = list(csv.DictReader(text[len(said) :]))
    assert len(every) == sum(map(len, lines.values())) and {row["table"] for row in every} == set(lines)
    assert len(pd.read_csv(io.StringIO("".join(text)), comment="#")) == len(every)
    rows = [row for row in every if row["table"] == "policy"]
    assert all(None not in row and None not in row.values() for row in rows)
    mine = [row for row in rows if row["ours"] == "true"]
    assert {row["policy"] for row in mine} == {"clean", "noisy_missing_dense", "all"}
    assert {row["phase"] for row in mine} == {"0.3000", "0.4000", "0.3500"}


@pytest.mark.parametrize(
    ("trained_on", "expected"),
    [(["smartds_gso_urban.x", "ieee13"], "trained on 2 networks, some of them in Greensboro;"),
     (["ieee13"], "trained on 1 networks, none of them in Greensboro;"), ([], "a_model (ours): split 'test'")],
)  # fmt: skip
def test_what_is_said_of_weights_is_true_of_them(ours: Results, trained_on: list[str], expected: str) -> None:
    said = header([Results({**ours.about, "trained_on": trained_on}, ours.table, {}, [])])
    assert expected in said[1]


def test_titles_fit_rows_of_both_splits() -> None:
    assert not any("enchmark" in title or "test" in title.lower().split() for title in TITLES.values())


def test_intervals_are_printed_on_request(ours: Results) -> None:
    line = next(line for line in lines_of("baselines", [ours], intervals=True) if line.ours)
    assert re.fullmatch(r"0\.3500 \[0\.\d{4}, 0\.\d{4}\]", line.cells[list(PAPER).index("phase")])


def test_results_come_back_from_their_file(tmp_path: Path, ours: Results) -> None:
    ours.save(tmp_path / "results.json")
    found = Results.load(tmp_path / "results.json")
    assert found.record() == ours.record()


def test_what_is_no_result_is_refused(tmp_path: Path) -> None:
    for content in ('{"format": 1}', '{"format": 2}', "[]", "1", "{", '"format"', "\xff"):
        (tmp_path / "other.json").write_text(content, encoding="latin-1")
        with pytest.raises(FeederError, match="not results of"):
            Results.load(tmp_path / "other.json")
    with pytest.raises(FeederError, match="cannot be read: No such file"):
        Results.load(tmp_path / "absent.json")
    with pytest.raises(FeederError, match="cannot be read: Is a directory"):
        Results.load(tmp_path)
    with pytest.raises(FeederError, match="no table 'weather'"):
        lines_of("weather", [])


@pytest.mark.parametrize(
    "spoil",
    [
        *(lambda record, name=name: record["about"].pop(name) for name in ("split", "label", "place", "cases")),
        lambda record: record["metrics"].append(record["metrics"][0]),
        lambda record: record["metrics"][0].pop("policy"),
        lambda record: record["metrics"][0].update(value="high"),
        lambda record: record.update(about=None),
        lambda record: record.update(metrics={"a": 1}),
    ],
)
def test_results_without_what_tables_need_are_refused(
    spoil: Callable[[dict[str, Any]], Any], ours: Results, tmp_path: Path
) -> None:
    record = ours.record()
    spoil(record)
    (tmp_path / "results.json").write_text(json.dumps(record))
    with pytest.raises(FeederError, match=r"results\.json: not results of"):
        Results.load(tmp_path / "results.json")
