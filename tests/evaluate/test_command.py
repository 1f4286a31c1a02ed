"""`mycelium evaluate` and `mycelium table` from end to end, on weights that know nothing."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
import torch

from mycelium import Mycelium, MyceliumConfig
from mycelium.cli import app
from mycelium.errors import FeederError
from mycelium.evaluate.metrics import METRICS
from tests.corpus.bench import write_corpus


def call(*arguments: object) -> None:
    app([str(argument) for argument in arguments], result_action="return_value")


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("evaluated")
    corpus = write_corpus(folder, {"lv_fourwire": "test"}, 2)
    torch.manual_seed(0)
    Mycelium(MyceliumConfig.tiny()).save_pretrained(folder / "a_model")
    out = folder / "results.json"
    call("evaluate", "--weights", folder / "a_model", "--catalogue", corpus, "--split", "test", "--json", out)
    return out


def test_results_hold_every_metric_by_policy_and_network(results: Path) -> None:
    record = json.loads(results.read_text())
    assert record["about"]["label"] == "a_model" and record["about"]["split"] == "test"
    assert record["about"]["samples"] == 7 * record["about"]["cases"]
    groups = {(row["network"], row["policy"]) for row in record["metrics"]}
    assert len(groups) == 3 * 8, "pooled, macro and the network, under all policies together and under each"
    assert {row["metric"] for row in record["metrics"]} == set(METRICS)
    assert sum(sum(row) for row in record["confusion"]["counts"]) == record["about"]["samples"]


def test_tables_go_to_a_file_in_any_form(results: Path, tmp_path: Path) -> None:
    for form in ("markdown", "latex", "csv"):
        call("table", results, "--only", "baselines", "--only", "policy", "--format", form, "--out", tmp_path / form)
        assert "a_model" in (tmp_path / form).read_text().replace("\\_", "_")
    rows = list(csv.DictReader(io.StringIO((tmp_path / "csv").read_text())))
    assert {row["table"] for row in rows} == {"baselines", "policy"}, "one header for all tables"


def test_tables_of_the_paper_alone(capsys: pytest.CaptureFixture[str]) -> None:
    call("table", "--only", "wls")
    assert "WLS (oracle)" in capsys.readouterr().out


def test_an_unknown_format_is_refused(results: Path) -> None:
    with pytest.raises(FeederError, match="expected markdown, latex, csv"):
        call("table", results, "--format", "word")
