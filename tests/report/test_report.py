"""The report: every bus is drawn, tables say what the model said, nothing runs or is fetched, truth only on demand."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from rich.console import Console

from mycelium import Mycelium, MyceliumConfig
from mycelium.demo import run_demo
from mycelium.errors import FeederError
from mycelium.feeders import FEEDERS, feeder_path
from mycelium.grid.grid import Grid
from mycelium.grid.read_opendss import read_opendss
from mycelium.model.estimates import Estimates
from mycelium.report.answers import NOT_ASKED, Answers
from mycelium.report.drawing import feeder_svg
from mycelium.report.layout import positions
from mycelium.report.page import observed_buses, page
from mycelium.report.truth import compared, magnitude_error, true_targets, true_voltage
from mycelium.schema import HIDDEN, TASKS
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
    window = batch.window()
    return Answers.of(c.grid, true_estimates(batch.targets(), window).absolute(window))


def only(task: str, c: Case) -> Answers:
    """Of a model with one readout."""
    torch.manual_seed(0)
    model = Mycelium(replace(MyceliumConfig.tiny(), tasks=(task,)))
    return Answers.of(c.grid, model.estimate(c.grid, c.readings))


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


def test_voltages_of_a_wrong_phase_are_scored_at_the_true_one() -> None:
    """The right voltages of every candidate with every phase wrong: no error of magnitudes, as metrics have it."""
    c = case()
    window, targets = c.batch().window(), c.batch().targets()
    right = true_estimates(targets, window)
    off = 0.01 * (~targets.valid).float()  # only what is no target
    wrong = replace(right, phase=right.phase.roll(1, dims=1), v_pu=right.v_pu + off).absolute(window)
    answers, truth = Answers.of(c.grid, wrong), true_targets(c.grid, c.day)
    rows = {question: (said, true) for question, said, true in compared(answers, truth)}
    assert rows["phases"][1].startswith("0 of ")
    assert rows["state"][1].endswith("mean error 0.0000 p.u.")
    shifted = Answers.of(c.grid, replace(wrong, v_pu=wrong.v_pu + 0.02))
    assert magnitude_error(shifted, truth) == pytest.approx(0.02, rel=1e-4)
    assert "Mean error of magnitudes: 0.0200 p.u." in page(c.grid, c.readings, shifted, truth)


def test_a_hidden_bus_shows_its_one_true_voltage() -> None:
    c = case()
    truth = true_targets(c.grid, c.day)
    bus = int(c.grid.wiring.bus[c.grid.wiring.conductor == HIDDEN][0])
    own = int(truth.valid[bus].nonzero()[0, 0])
    value = f"{float(truth.v_pu[7, bus, own]):.3f}"
    assert true_voltage(truth, 7, bus, own) == value
    for other in {0, 1, 2} - {own}:
        assert true_voltage(truth, 7, bus, other) == f"{value} on {'ABC'[own]}"
    wrong = replace(said(c)[1], v_pu=np.full((24, len(c.grid.bus), 3), 0.9))
    cells = page(c.grid, c.readings, wrong, truth).split("true p.u.")[1].split("</table>")[0]
    assert cells.count("<tr>") == 10 and "<td>-</td>" not in cells


def test_angles_of_tables_are_absolute() -> None:
    c = case("ieee13")
    frame = true_answers(c).voltages(c.grid)
    at_source = frame[(frame["bus"] == c.grid.bus["name"].iat[0]) & (frame["hour"] == 0)]
    assert at_source["phase"].tolist() == ["A", "B", "C"]
    apart = (at_source["angle_deg"].to_numpy() - at_source["angle_deg"].iat[0] + 180.0) % 360.0 - 180.0
    assert apart == pytest.approx([0.0, -120.0, 120.0], abs=3.0)


@pytest.mark.parametrize("task", TASKS)
def test_a_model_of_one_task_has_a_report(task: str) -> None:
    c = case()
    answers, truth = only(task, c), true_targets(c.grid, c.day)
    assert answers.asked == {task}
    found = {question: said for question, said, _ in compared(answers, truth)}
    questions = {"state": ["state"], "phase": ["phases"], "switch": ["open switches"], "fault": ["fault", "its place"]}
    for name, rows in questions.items():
        for row in rows if name == task else rows[:1]:
            assert (found[row] == NOT_ASKED) == (name != task), row
    for given in (truth, None):
        text = page(c.grid, c.readings, answers, given)
        assert text.count("<p>Not asked.") == 3
    ElementTree.fromstring(feeder_svg(c.grid, answers, observed_buses(c.grid, c.readings)))
    frame = answers.voltages(c.grid)
    hidden = c.grid.wiring.bus[c.grid.wiring.conductor == HIDDEN]
    if task == "state":
        assert np.isfinite(answers.v_pu[:, hidden]).all(), "all three candidates, as nothing says which it is"
    else:
        assert not len(frame)


def test_switches_are_not_stated_as_facts() -> None:
    c = case()
    _, answers = said(c)
    n = len(answers.switches)
    assert n >= 1
    doubted = replace(answers, switches=answers.switches.assign(p_open=0.35, open=False))
    name = answers.switches["switch"].iat[0]
    assert f"No switch of {n} is likely open; the likeliest is {name} (35%)." in page(c.grid, c.readings, doubted)
    sure = replace(answers, switches=answers.switches.assign(p_open=0.8, open=True))
    text = page(c.grid, c.readings, sure)
    assert f"Likely open of {n} switches: {name} (80%)" in text and "switches are open" not in text
    assert "not estimated" in text, "nothing says how sure voltages are"


def test_the_chart_has_true_lines_only_with_the_truth() -> None:
    c = case()
    answers = true_answers(c)
    lines = page(c.grid, c.readings, answers, true_targets(c.grid, c.day)).split("<polyline ")[1:]
    points = [re.search(r'points="([^"]+)"', line)[1] for line in lines]  # type: ignore[index]
    assert len(points) == 6 and points[:3] == points[3:], "what was said is true: the lines are the same"
    assert ['class="true"' in line for line in lines] == [False] * 3 + [True] * 3
    assert 'class="true"' not in page(c.grid, c.readings, answers)


def test_a_page_is_called_as_it_is_asked_to_be() -> None:
    c = case()
    _, answers = said(c)
    assert f"<h1>{c.grid.name}</h1>" in page(c.grid, c.readings, answers)
    text = page(c.grid, c.readings, answers, title="a <town>")
    assert "<h1>a &lt;town&gt;</h1>" in text and "<title>a &lt;town&gt;</title>" in text


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
    order = [mark.split()[0] for mark in marks if mark]
    assert "bus" not in order[order.index("switch") :], "no bus is drawn over a switch"
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


def test_the_demo_prints_four_answers_and_draws_them(tmp_path: Path) -> None:
    torch.manual_seed(0)
    Mycelium(MyceliumConfig.tiny()).save_pretrained(tmp_path / "weights")
    text = io.StringIO()
    run_demo(Console(file=text, width=120), str(tmp_path / "weights"), tmp_path / "demo.html")
    for question in ("state", "phases", "open switches", "fault", "its place"):
        assert question in text.getvalue()
    written = (tmp_path / "demo.html").read_text()
    assert "</html>" in written and "<h1>lv_town</h1>" in written


def test_the_demo_refuses_weights_before_it_begins(tmp_path: Path) -> None:
    text = io.StringIO()
    with pytest.raises(FeederError, match="no such folder"):
        run_demo(Console(file=text, width=120), str(tmp_path / "absent"), tmp_path / "demo.html")
    assert not text.getvalue()
