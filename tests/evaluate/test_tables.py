"""The paper's numbers are the paper's, and ours stand beside them, marked, under a header that says what differs."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path

import numpy as np
import pytest

from mycelium.errors import FeederError
from mycelium.evaluate.evaluation import Results
from mycelium.evaluate.metrics import PAPER
from mycelium.evaluate.paper_tables import REFERENCE, TITLES, paper_rows
from mycelium.evaluate.scores import Scores
from mycelium.evaluate.tables import DIFFER, HEADERS, Format, lines_of, render
from mycelium.sense.policies import POLICIES
from mycelium.window.sample import SampleId
from tests.conftest import SHARED, require_shared


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


def printed_numbers(text: str) -> list[float]:
    """All numbers of a piece of LaTeX, in order."""
    text = re.sub(r"(?m)^\s*%.*$", "", text)
    text = re.sub(r"\\(textsuperscript|multirow|cmidrule|cite\w*)\*?(\([lr]+\))?(\{[^}]*\})+", " ", text)
    return [float(number) for number in re.findall(r"(?<![\w@])\d*\.?\d+", text.replace("{,}", ""))]


def test_every_number_is_in_the_paper_in_this_order() -> None:
    require_shared(SHARED)
    rows = [printed_numbers(row) for row in (SHARED / "paper.tex").read_text().split("\\\\")]
    rows = [row for row in rows if row]

    def within(wanted: list[float]) -> bool:
        return any(row[k : k + len(wanted)] == wanted for row in rows for k in range(len(row) - len(wanted) + 1))

    for row in paper_rows():
        wanted = [float(value) for value in row.values.values()]
        if row.table in ("policy", "wls"):
            if row.table == "policy" and len(wanted) == 10:  # the paper has them in two tables
                fault, wanted = wanted[4:], wanted[:4]
                assert within(fault), row
            wanted = [wanted[1], wanted[0], *wanted[2:]] if "v_pu" in row.values else wanted  # volts come first there
        assert wanted and within(wanted), row


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
    text = render("baselines", lines_of("baselines", [ours]), [ours], form)
    assert DIFFER in text and "1 networks, 4 cases, 8 samples" in text
    assert ("a\\_model (ours)" if form is Format.LATEX else "a_model (ours)") in text
    assert "0.5713" in text
    columns = (
        text.count("|", text.index("| split"), text.index("\n", text.index("| split"))) if "| split" in text else 0
    )
    if form is Format.MARKDOWN:
        assert columns == 4 + len(HEADERS) + 1


def test_csv_has_one_value_per_column(ours: Results) -> None:
    text = render("policy", lines_of("policy", [ours]), [ours], Format.CSV)
    rows = list(csv.DictReader(io.StringIO(text)))
    assert all(None not in row and None not in row.values() for row in rows)
    mine = [row for row in rows if row["ours"] == "true"]
    assert {row["policy"] for row in mine} == {"clean", "noisy_missing_dense", "all"}
    assert {row["phase"] for row in mine} == {"0.3000", "0.4000", "0.3500"}


def test_intervals_are_printed_on_request(ours: Results) -> None:
    line = next(line for line in lines_of("baselines", [ours], intervals=True) if line.ours)
    assert re.fullmatch(r"0\.3500 \[0\.\d{4}, 0\.\d{4}\]", line.cells[list(PAPER).index("phase")])


def test_results_come_back_from_their_file(tmp_path: Path, ours: Results) -> None:
    ours.save(tmp_path / "results.json")
    found = Results.load(tmp_path / "results.json")
    assert found.record() == ours.record()


def test_what_is_no_result_is_refused(tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text('{"format": 1}')
    with pytest.raises(FeederError, match="not results of"):
        Results.load(tmp_path / "other.json")
    with pytest.raises(FeederError, match="no table 'weather'"):
        lines_of("weather", [])
