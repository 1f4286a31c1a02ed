"""`mycelium evaluate` and `mycelium table` from end to end, on weights that know nothing."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
import torch
from rich.console import Console

from mycelium import Mycelium, MyceliumConfig
from mycelium.cli import app
from mycelium.errors import FeederError
from mycelium.evaluate import command
from mycelium.evaluate.evaluation import Results
from mycelium.evaluate.metrics import METRICS
from mycelium.evaluate.tables import DIFFER
from mycelium.window.normalise import Normalisation
from tests.corpus.bench import write_corpus


def call(*arguments: object) -> None:
    app([str(argument) for argument in arguments], result_action="return_value")


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("evaluated")
    corpus = write_corpus(folder, {"lv_fourwire": "test"}, 2)
    torch.manual_seed(0)
    constants = Normalisation({}, {}, ("ieee13", "lv_town"))
    Mycelium(MyceliumConfig.tiny(), constants).save_pretrained(folder / "a_model")
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
    text = (tmp_path / "csv").read_text().splitlines()
    assert DIFFER in text[0] and "a_model (ours)" in text[1]
    rows = list(csv.DictReader(line for line in text if not line.startswith("#")))
    assert {row["table"] for row in rows} == {"baselines", "policy"}, "one header for all tables"


def test_tables_of_the_paper_alone(capsys: pytest.CaptureFixture[str]) -> None:
    call("table", "--only", "wls")
    assert "WLS (oracle)" in capsys.readouterr().out


def test_results_are_printed_within_80_columns(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = io.StringIO()
    monkeypatch.setattr(command, "_out", Console(file=text, width=80))
    command._print(Results.load(results))
    lines = text.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    for metric in METRICS.values():
        assert any(line.startswith(f"{metric.says} ") for line in lines), f"{metric.says} is broken over lines"


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [("--workers", -2, "workers -2: expected 0 or more"), ("--buses-per-batch", -5, "expected 1 or more"),
     ("--buses-per-batch", 0, "expected 1 or more"), ("--cases", 0, "cases 0: expected 1 or more"),
     ("--cases", -1, "cases -1: expected 1 or more")],
)  # fmt: skip
def test_numbers_out_of_range_are_refused(results: Path, option: str, value: int, message: str) -> None:
    folder = results.parent
    for place in (folder / "corpus.toml", folder / "catalogue.toml", folder):
        with pytest.raises(FeederError, match=message):
            call("evaluate", "--weights", folder / "a_model", "--catalogue", place, "--split", "test", option, value)


def test_a_place_that_cannot_be_written_to_is_told_before_the_work(
    results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError("it began to work")

    monkeypatch.setattr(Mycelium, "from_pretrained", never)
    (tmp_path / "file").write_text("")
    for target, message in ((tmp_path, "is a folder; name a file"), (tmp_path / "file" / "x.json", "is not a folder")):
        with pytest.raises(FeederError, match=message):
            call("evaluate", "--weights", "x", "--catalogue", "y", "--split", "test", "--json", target)
        with pytest.raises(FeederError, match=message):
            call("table", results, "--out", target)


def test_results_are_printed_even_if_they_cannot_be_saved(
    results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError("no space left on device")

    text, folder, out = io.StringIO(), results.parent, tmp_path / "new" / "results.json"
    monkeypatch.setattr(command, "_out", Console(file=text, width=80))
    monkeypatch.setattr(Results, "save", full)
    arguments = ["--weights", folder / "a_model", "--catalogue", folder / "corpus.toml", "--split", "test"]
    with pytest.raises(OSError, match="no space left"):
        call("evaluate", *arguments, "--cases", 1, "--json", out)
    assert "voltage MAE, p.u." in text.getvalue()
    assert (tmp_path / "new" / "results.json.part").is_file(), "finished work is kept"


@pytest.mark.parametrize(
    ("weights", "name"),
    [
        ("small", "small"),
        ("out/toy/best", "toy"),
        ("out/toy/last", "toy"),
        ("out/toy/best-bf16/", "toy"),
        ("mine", "mine"),
    ],
)
def test_a_model_is_called_after_its_run(weights: str, name: str) -> None:
    assert command._name_of(weights) == name


def test_results_say_what_the_weights_have_seen(results: Path) -> None:
    assert json.loads(results.read_text())["about"]["trained_on"] == ["ieee13", "lv_town"]


def test_an_unknown_format_is_refused(results: Path) -> None:
    with pytest.raises(FeederError, match="expected markdown, latex, csv"):
        call("table", results, "--format", "word")
