"""The report: every bus is drawn, tables say what the model said, nothing runs or is fetched, truth only on demand."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from rich.console import Console

from mycelium import Mycelium, MyceliumConfig
from mycelium.demo import run_demo
from mycelium.feeders import FEEDERS, feeder_path
from mycelium.grid.grid import Grid
from mycelium.grid.read_opendss import read_opendss
from mycelium.model.estimates import Estimates
from mycelium.report.answers import Answers
from mycelium.report.drawing import feeder_svg
from mycelium.report.layout import positions
from mycelium.report.page import observed_buses, page
from mycelium.report.truth import compared, true_targets
from mycelium.schema import HIDDEN
from tests.sense.networks import FAULTED, QUIET
from tests.train.windows import random_estimates, true_estimates
from tests.window.render import Case, case_of

POLICY = "noisy_missing_medium"


def case(feeder: str = "lv_fourwire") -> Case:
    return case_of(feeder, FAULTED, POLICY)


def said(c: Case) -> tuple[Estimates, Answers]:
    estimates = random_estimates(c.batch().window())
    return estimates, Answers.of(c.grid, estimates)


def true_answers(c: Case) -> Answers:
    batch = c.batch()
    return Answers.of(c.grid, true_estimates(batch.targets(), batch.window()))


def svg(c: Case, answers: Answers) -> ElementTree.Element:
    return ElementTree.fromstring(feeder_svg(c.grid, answers, observed_buses(c.grid, c.readings)))


@pytest.mark.parametrize("feeder", ["lv_fourwire", "us_suburb", "ieee13"])
def test_tables_say_what_the_model_said(feeder: str) -> None:
    c = case(feeder)
    estimates, answers = said(c)
    p_open = torch.sigmoid(estimates.switch.double()).numpy()
    assert answers.switches["switch"].tolist() == c.grid.line["name"].iloc[c.grid.switches].tolist()
    assert answers.switches["p_open"].tolist() == pytest.approx(p_open[c.grid.switches].tolist())
    assert answers.candidates["p"].sum() == pytest.approx(1.0) and answers.faults["p"].sum() == pytest.approx(1.0)
    assert answers.candidates["p"].is_monotonic_decreasing
    best = int(estimates.location.argmax())
    tables = [("bus", row) for row in range(len(c.grid.bus))] + [("line", row) for row in range(len(c.grid.line))]
    tables += [("transformer", row) for row in range(len(c.grid.transformer))]
    first = answers.candidates.iloc[0]
    assert (first["kind"], first["row"]) == tables[best] and first["rank"] == 1
    assert first["name"] == c.grid.tables[first["kind"]]["name"].iat[first["row"]]
    assert len(answers.phases) == int(c.grid.consumer["eligible"].sum())


def test_the_truth_said_is_the_truth_compared() -> None:
    c = case()
    answers, truth = true_answers(c), true_targets(c.grid, c.day)
    for name in ("v_pu", "phase", "switch_open", "fault_class", "location"):
        assert torch.equal(getattr(truth, name), getattr(c.batch().targets(), name)), name
    there = np.isfinite(answers.v_pu)
    assert np.array_equal(there, np.broadcast_to(truth.valid.numpy(), there.shape)), (
        "phases of hidden buses are the true ones"
    )
    rows = {question: (said, true) for question, said, true in compared(answers, truth)}
    assert rows["state"][1].endswith("mean error 0.0000 p.u.")
    n = len(answers.phases)
    assert rows["phases"][1] == f"{n} of {n} right"
    assert rows["open switches"][0] == rows["open switches"][1]
    assert rows["fault"][0].startswith(rows["fault"][1]) and "ranked 1 of" in rows["its place"][1]


def test_a_hidden_bus_has_one_voltage() -> None:
    c = case()
    _, answers = said(c)
    hidden = c.grid.wiring.bus[c.grid.wiring.conductor == HIDDEN]
    assert len(hidden) and (np.isfinite(answers.v_pu[0, hidden]).sum(axis=1) == 1).all()
    frame = answers.voltages(c.grid)
    assert len(frame) == np.isfinite(answers.v_pu).sum() and not frame.isna().any().any()


@pytest.mark.parametrize("feeder", FEEDERS)
def test_every_bus_has_a_place_in_the_picture(feeder: str) -> None:
    grid, _, _ = read_opendss(feeder_path(feeder))
    unplaced = grid.replace_tables(bus=grid.bus.assign(x=np.nan, y=np.nan))
    half = grid.bus["x"].where(np.arange(len(grid.bus)) % 3 > 0)
    for g in (grid, unplaced, grid.replace_tables(bus=grid.bus.assign(x=half))):
        place = positions(g)
        assert place.shape == (len(grid.bus), 2) and np.isfinite(place).all()
        assert np.ptp(place, axis=0).max() == pytest.approx(1.0, abs=0.1)
    apart = positions(unplaced)
    distance = np.linalg.norm(apart[:, None] - apart[None, :], axis=2) + np.eye(len(apart))
    assert distance.min() > 1e-4, "two buses of the tree lie on each other"


def test_the_drawing_has_every_bus_switch_and_candidate() -> None:
    c = case()
    _, answers = said(c)
    answers = replace(answers, faults=answers.faults.assign(p=[0.1, 0.5, 0.1, 0.1, 0.1, 0.1]))
    root = svg(c, answers)
    marks = [element.get("class", "") for element in root.iter()]
    observed = observed_buses(c.grid, c.readings)
    assert marks.count("bus seen") == int(observed.sum()) and marks.count("bus inferred") == int((~observed).sum())
    assert marks.count("switch open") == int(answers.switches["open"].sum())
    assert marks.count("switch open") + marks.count("switch closed") == len(c.grid.switches)
    assert marks.count("candidate") == 5
    assert "truth" not in marks
    quiet = replace(answers, faults=answers.faults.assign(p=[0.9, 0.02, 0.02, 0.02, 0.02, 0.02]))
    assert "candidate" not in [element.get("class", "") for element in svg(c, quiet).iter()]


def test_the_page_fetches_nothing_and_hides_the_truth_unless_given() -> None:
    c = case()
    _, answers = said(c)
    text = page(c.grid, c.readings, answers)
    assert "http" not in text and "src=" not in text and "@import" not in text
    assert "NaN" not in text and "nan" not in re.sub(r"[a-z]+nan|nan[a-z]+", "", text)
    assert "True:" not in text and "<th>true" not in text and 'class="truth"' not in text
    with_truth = page(c.grid, c.readings, answers, true_targets(c.grid, c.day))
    assert "True:" in with_truth and 'class="truth"' in with_truth
    values = json.loads(text.split('id="v">')[1].split("</script>")[0])
    assert len(values) == 24 and len(values[0]) == len(c.grid.bus)
    assert values[5][3] == pytest.approx(np.nanmin(answers.v_pu[5, 3]), abs=1e-4)


def test_names_cannot_run_in_the_page() -> None:
    c = case()
    evil = '<script>alert("x")</script>'
    tables = {
        name: table.assign(name=[f"{evil}{k}" for k in range(len(table))]) if "name" in table else table
        for name, table in c.grid.tables.items()
    }
    grid = Grid(evil, c.grid.frequency_hz, tables, c.grid.matrices)
    answers = Answers.of(grid, random_estimates(c.batch().window()))
    text = page(grid, c.readings, answers, true_targets(c.grid, c.day))
    assert evil not in text and "&lt;script&gt;" in text
    ElementTree.fromstring(feeder_svg(grid, answers, observed_buses(grid, c.readings)))


def test_a_feeder_without_switches_or_questions_has_a_page_too() -> None:
    c = case_of("ieee37", QUIET, POLICY)
    no_switch = c.grid.replace_tables(line=c.grid.line.assign(switch=False))
    answers = Answers.of(no_switch, random_estimates(c.batch().window()))
    text = page(no_switch, c.readings, answers)
    assert "The records have none" in text and "No customer's phase is in question" in text


def test_the_demo_prints_four_answers_and_draws_them(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    torch.manual_seed(0)
    Mycelium(MyceliumConfig.tiny()).save_pretrained(tmp_path / "weights")
    text = io.StringIO()
    run_demo(Console(file=text, width=120), str(tmp_path / "weights"), tmp_path / "demo.html")
    for question in ("state", "phases", "open switches", "fault", "its place"):
        assert question in text.getvalue()
    assert "</html>" in (tmp_path / "demo.html").read_text()
