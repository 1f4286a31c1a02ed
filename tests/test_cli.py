"""The command line: what it prints where, exit codes, errors that a person can act on, and nothing outside."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from mycelium import cli
from mycelium.feeders import feeder_path
from mycelium.interrupts import ending_at_once
from mycelium.simulate.day import Day
from tests.shapes import REPOSITORY
from tests.simulate.bench import two_bus
from tests.train.toy import write_run

KEYS = {
    "buses", "nodes", "lines", "transformers", "consumers", "eligible_consumers", "switches", "loops",
    "kirchhoff_max_rel", "current_max_rel", "nominal_angle_p99_deg", "report",
}  # fmt: skip
SECRET = "7.125,3.25"
TIMEOUT_S = 120  # nothing here takes a tenth of it, and nothing may hang


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str


def command(cwd: Path, *arguments: str) -> Result:
    """Run the command line in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "PYTHONWARNINGS": "error"}
    done = subprocess.run(
        [sys.executable, "-m", "mycelium.cli", *arguments],
        cwd=cwd, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
    )  # fmt: skip
    return Result(done.returncode, done.stdout, done.stderr)


Run = Callable[..., Result]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Result]:
    """Run the command line in this process, which saves the start of another; an escaped exception fails the test."""

    app = cli.app

    def call(*arguments: str) -> Result:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(cli, "app", partial(app, arguments))  # the parser warns where it finds pytest's arguments
        code = 0
        try:
            cli.main()
        except SystemExit as stopped:
            code = int(stopped.code or 0)
        captured = capsys.readouterr()
        return Result(code, captured.out, captured.err)

    return call


def listing(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


# ---- results -----------------------------------------------------------------------------------------------------


def test_inspect_prints_one_json_object(tmp_path: Path) -> None:
    done = command(tmp_path, "inspect", str(feeder_path("lv_town")), "--json")
    assert done.code == 0, done.err
    facts = json.loads(done.out)
    assert set(facts) >= KEYS
    assert (facts["buses"], facts["consumers"], facts["switches"], facts["loops"]) == (66, 49, 7, 4)
    assert facts["eligible_consumers"] == 46
    assert facts["kirchhoff_max_rel"] < 1e-6 and facts["current_max_rel"] < 1e-6
    assert facts["nominal_angle_p99_deg"] < 15.0
    assert {"approximated", "ignored"} <= set(facts["report"])
    assert not list(tmp_path.iterdir())


def test_inspect_prints_a_table_for_people(run: Run) -> None:
    done = run("inspect", str(feeder_path("us_suburb")))
    assert done.code == 0
    for word in ("mycelium_us_suburb", "buses", "kirchhoff max rel", "invcontrol", "fuse"):
        assert word in done.out
    assert "report" not in done.out  # which has tables of its own


def test_simulate_writes_a_run_and_continues_it(tmp_path: Path) -> None:
    model = tmp_path / "model"
    shutil.copytree(feeder_path("ieee13").parent, model)
    before = listing(model)
    arguments = ("simulate", "model/Master.dss", "--out", "days", "--seed", "3", "--json", "--cases")
    done = command(tmp_path, *arguments, "3")
    assert done.code == 0, done.err
    summary = json.loads(done.out)
    assert summary["cases"] == summary["done"] + summary["rejected"] == 3
    assert sum(summary["faults"].values()) == summary["done"]
    assert summary["seed"] == 3
    days = sorted((tmp_path / "days").glob("case-*.npz"))
    assert len(days) == summary["done"] and Day.load(days[0]).network == "mycelium_ieee13"
    assert listing(model) == before
    assert {path.name for path in tmp_path.iterdir()} == {"model", "days"}


def test_simulate_says_what_happened(run: Run, tmp_path: Path) -> None:
    master = str(feeder_path("lv_town"))
    done = run("simulate", master, "--cases", "6", "--out", "days", "--workers", "1")
    assert done.code == 0
    assert "rejected" in done.out and "faults" in done.out
    again = run("simulate", master, "--cases", "6", "--out", "days", "--workers", "1", "--json")
    assert again.code == 0 and json.loads(again.out)["cases"] == 6
    assert len((tmp_path / "days" / "cases.jsonl").read_text().splitlines()) == 6


def test_networks_makes_one_table_and_says_which_failed(tmp_path: Path) -> None:
    two_bus(tmp_path / "unpacked" / "good", kw=100.0)
    two_bus(tmp_path / "unpacked" / "bad", kw=100.0).write_text("New Circuit.x\nRedirect gone.dss\n")
    (tmp_path / "index.json").write_text(json.dumps([{"master": "good/Master.dss"}, {"master": "bad/Master.dss"}]))
    done = command(tmp_path, "networks", "index.json", "--unpacked", "unpacked", "--out", "table.md", "--workers", "1")
    assert done.code == 1 and "1 of 2 networks inspected" in done.out
    assert "Traceback" not in done.err
    table = (tmp_path / "table.md").read_text()
    assert "good/Master.dss" in table and "gone.dss" in table
    rows = {row["master"]: row for row in json.loads((tmp_path / "table.json").read_text())}
    assert set(rows["good/Master.dss"]["facts"]) >= KEYS and rows["bad/Master.dss"]["error"]


def test_demo_runs_anywhere_and_writes_its_page_alone(tmp_path: Path) -> None:
    done = command(tmp_path, "demo")
    assert done.code == 0, done.err
    assert "fault" in done.out and "Kirchhoff" in done.out
    assert all(question in done.out for question in ("state", "phases", "open switches", "its place"))
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [tmp_path / "out" / "demo.html"]


# ---- interrupts --------------------------------------------------------------------------------------------------


def test_an_interrupt_says_that_finished_work_is_kept(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from mycelium.grid import inspection

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(inspection, "inspect_model", interrupted)
    done = run("inspect", str(feeder_path("ieee13")), "--json")
    assert (done.code, done.out, done.err.strip()) == (130, "", "interrupted; finished work is kept")


def test_an_interrupt_during_imports_ends_at_once_without_a_word(tmp_path: Path) -> None:
    """However deep in them it strikes: here at one of the last."""
    script = (
        "import os, signal, sys\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # tests may be run with interrupts ignored
        "class Finder:\n"
        "    @staticmethod\n"
        "    def find_spec(name, path=None, target=None):\n"
        "        if name == 'mycelium.train.command':\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Finder)\n"
        "from mycelium.cli import main\n"
        "main()\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run(
        [sys.executable, "-c", script, "--help"],
        cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")


def test_what_others_say_about_interrupts_holds_during_imports_too() -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with ending_at_once():
            assert signal.getsignal(signal.SIGINT) is signal.SIG_DFL
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # as under nohup
        with ending_at_once():
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_training_that_is_interrupted_is_saved_and_does_not_end_well(
    number: signal.Signals, code: int, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mycelium.train import trainer

    step, steps = trainer.Trainer.step, []

    def interrupted(*arguments: object) -> object:
        if not steps:  # a second time would end it at once
            os.kill(os.getpid(), number)
        steps.append(step(*arguments))  # type: ignore[arg-type]
        return steps[-1]

    monkeypatch.setattr(trainer.Trainer, "step", interrupted)
    file = write_run(tmp_path / "toy")
    done = run("train", str(file), "--out", "here")
    assert done.code == code and "Traceback" not in done.err
    assert done.out.strip().endswith(f"to be continued: `mycelium train {file} --out here`")
    assert list((tmp_path / "here" / "state").glob("*/state.json"))


def test_training_that_finishes_or_runs_out_of_time_ends_well(run: Run, tmp_path: Path) -> None:
    file = str(write_run(tmp_path / "toy"))
    done = run("train", file, "--minutes", "0")
    assert done.code == 0 and "to be continued" in done.out and "--out out/run" in done.out
    done = run("train", file)
    assert done.code == 0 and "finished" in done.out


# ---- errors ------------------------------------------------------------------------------------------------------


def edited(folder: Path, old: str, new: str) -> Path:
    master = two_bus(folder, kw=100.0)
    text = master.read_text()
    assert old in text
    master.write_text(text.replace(old, new))
    return master


BROKEN: dict[str, tuple[Callable[[Path], object], str]] = {
    "missing file": (lambda folder: folder.mkdir(), "Master.dss"),
    "a folder": (lambda folder: (folder / "Master.dss").mkdir(parents=True), "Master.dss"),
    "missing redirect": (
        lambda f: edited(f, "CalcVoltage", "Redirect gone.dss\nCalcVoltage"),
        "Master.dss:7: .*gone.dss",
    ),
    "malformed element": (lambda f: edited(f, "phases=3 bus1=tail", "phaxes=3 bus1=tail"), "Master.dss:5: .*phaxes"),
    "unknown class": (lambda f: edited(f, "New Load.c0", "New Lode.c0"), "Master.dss:5: .*Lode"),
    "no number": (lambda f: edited(f, "length=1", "length=far"), "Master.dss:4: .*far"),
    "no impedance": (lambda f: edited(f, "r1=1.24 x1=2.48 r0=2.84 x0=7.72", "r1=0 x1=0 r0=0 x0=0"), "feeder"),
    "islanded": (lambda f: edited(f, "Set Volt", "Vsource.source.enabled=no\nSet Volt"), "no voltage source"),
    "no circuit": (lambda f: edited(f, "New Circuit.two_bus", "! New Circuit.two_bus"), "Master.dss"),
    "empty": (lambda f: two_bus(f).write_text(""), "Master.dss"),
    "binary": (lambda f: two_bus(f).write_bytes(bytes(range(256)) * 40), "not a text file"),
    "itself": (lambda f: edited(f, "CalcVoltage", "Redirect Master.dss\nCalcVoltage"), "Master.dss:7"),
    "brackets": (
        lambda f: edited(f, "New Load", "New Transformer.t buses=[head tail] what=[/tail]\nNew Load"),
        r"Master.dss:5: .*buses=\[head tail\] what=\[/tail\]",
    ),
    "not convergent": (lambda f: two_bus(f, kw=300_000.0), "converge"),
}


@pytest.mark.parametrize("name", sorted(BROKEN))
def test_what_cannot_be_used_is_said_in_one_error(name: str, run: Run, tmp_path: Path) -> None:
    make, expected = BROKEN[name]
    make(tmp_path / "model")
    before = listing(tmp_path)
    done = run("inspect", "model/Master.dss", "--json")
    assert done.code == 1
    _assert_one_error(done, expected)
    assert listing(tmp_path) == before


def _assert_one_error(done: Result, expected: str) -> None:
    assert done.out == "" or json.loads(done.out)
    assert "Traceback" not in done.err
    assert "error: " in done.err and re.search(expected, done.err), done.err


def test_arguments_that_make_no_sense_are_errors_too(run: Run, tmp_path: Path) -> None:
    master = str(two_bus(tmp_path / "model", kw=100.0))
    (tmp_path / "file").write_text("in the way")
    (tmp_path / "broken.json").write_text('[{"network": "no master"}]')
    for arguments, expected in (
        (("simulate", master, "--cases", "0", "--out", "days"), "at least 1"),
        (("simulate", "gone.dss", "--cases", "1", "--out", "days"), "gone.dss"),
        (("simulate", master, "--cases", "1", "--out", "file"), "file"),
        (("networks", "gone.json", "--unpacked", ".", "--out", "t.md"), "gone.json"),
        (("train", "run.toml", "--minutes", "-1"), "--minutes -1: expected at least 0"),
        (("train", "run.toml", "--minutes", "nan"), "--minutes nan: expected at least 0"),
        (("train", "run.toml"), "run.toml: not a training file"),
        (("networks", "broken.json", "--unpacked", ".", "--out", "t.md"), "broken.json"),
    ):
        done = run(*arguments)
        assert done.code == 1 and done.out == ""
        _assert_one_error(done, expected)
    for arguments in (("inspect",), ("simulate", master), ("nonsense",), ("inspect", master, "--what")):
        done = run(*arguments)
        assert done.code != 0 and "Traceback" not in done.err + done.out


def test_a_folder_of_another_run_is_an_error(run: Run, tmp_path: Path) -> None:
    master = str(two_bus(tmp_path / "model", kw=100.0))
    assert run("simulate", master, "--cases", "1", "--out", "days", "--workers", "1").code == 0
    before = listing(tmp_path)
    done = run("simulate", master, "--cases", "1", "--out", "days", "--workers", "1", "--seed", "9")
    assert done.code == 1
    _assert_one_error(done, "days.*another.*--out")
    assert listing(tmp_path) == before


def test_without_convergence_every_case_is_a_recorded_rejection(run: Run, tmp_path: Path) -> None:
    master = str(two_bus(tmp_path / "model", kw=300_000.0))
    done = run("simulate", master, "--cases", "2", "--out", "days", "--workers", "1", "--json")
    summary = json.loads(done.out)
    assert (done.code, summary["done"], summary["rejected"]) == (0, 0, 2)
    assert sum(summary["rejection_reasons"].values()) == 2


# ---- hostile models ----------------------------------------------------------------------------------------------

# What a stranger's file may try, each with all the rest of a sound model around it. {outside} is a folder it must not
# touch. Whether a command is refused or left out with a remark is not the point here; that it has no effect is.
HOSTILE = {
    "export": "Solve\nExport Voltages {outside}/stolen.csv",
    "export here": "Solve\nExport Voltages",
    "save": "Save Circuit Dir={outside}/copy",
    "show": "Solve\nShow Voltages LN Nodes",
    "dump": "Dump Line.feeder debug",
    "data path": "Set DataPath={outside}\nSolve\nExport Currents",
    "change folder": "cd {outside}\nSolve\nExport Currents",
    "shell": "DOScmd touch {outside}/ran",
    "editor": "Set Editor=/usr/bin/touch\nFileEdit {outside}/ran",
    "monitor": "New Monitor.m element=Line.feeder terminal=1\nSolve mode=daily number=24\nExport Monitors m",
    "meter": "New EnergyMeter.m element=Line.feeder\nSet DemandInterval=yes DIVerbose=yes\nSolve mode=daily\nCloseDI",
    "plot": "Plot circuit",
    "trace": "New RegControl.r transformer=gone winding=1 debugtrace=yes EventLog=yes",
    "library": "New Generator.g bus1=tail kW=1 kV=12.47 model=6 usermodel={outside}/evil.so",
    "options": "Set RecordSubFile={outside}/sub Set LogEvents=yes\nClearAll",
}
READS = {
    "redirect": "Redirect {outside}/secret.dss",
    "redirect by relation": "Redirect ../outside/secret.dss",
    "compile": "Compile {outside}/secret.dss",
    "shape": "New LoadShape.s npts=2 interval=1 mult=(file={outside}/secret.csv)",
    "csv": "New LoadShape.s npts=2 interval=1 csvfile={outside}/secret.csv",
    "coordinates": "BusCoords {outside}/secret.csv",
    "link": "Redirect link.dss",
}


def hostile(tmp_path: Path, lines: str) -> Path:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.csv").write_text(SECRET.replace(",", "\n") + "\n")
    (outside / "secret.dss").write_text("New Load.stolen phases=3 bus1=tail kV=12.47 kW=7.125\n")
    master = two_bus(tmp_path / "model", kw=100.0)
    master.write_text(master.read_text() + lines.format(outside=outside) + "\n")
    (tmp_path / "model" / "link.dss").symlink_to(outside / "secret.dss")
    return master


@pytest.mark.parametrize("name", sorted(HOSTILE))
def test_a_model_cannot_write_or_run_anything(name: str, run: Run, tmp_path: Path) -> None:
    hostile(tmp_path, HOSTILE[name])
    before, home = listing(tmp_path), set(Path.home().iterdir())
    done = run("inspect", "model/Master.dss", "--json")
    assert listing(tmp_path) == before
    assert set(Path.home().iterdir()) == home
    if done.code:
        _assert_one_error(done, "Master.dss:8|Master.dss:9")
    else:
        facts = json.loads(done.out)
        assert (facts["lines"], facts["consumers"], facts["buses"]) == (1, 1, 2)


@pytest.mark.parametrize("name", sorted(READS))
def test_a_model_cannot_read_outside_its_folder(name: str, run: Run, tmp_path: Path) -> None:
    hostile(tmp_path, READS[name])
    before = listing(tmp_path)
    done = run("inspect", "model/Master.dss", "--json")
    assert listing(tmp_path) == before
    assert "7.125" not in done.out + done.err
    if done.code:
        _assert_one_error(done, r"Master.dss:8: ")
    else:  # left out, with a remark that names the place
        facts = json.loads(done.out)
        assert facts["consumers"] == 1
        assert any("Master.dss:8" in remark["names"] for remark in facts["report"]["ignored"])
    if name.startswith("redirect"):  # what bounds reading is the folder that the user says
        allowed = run("inspect", "model/Master.dss", "--json", "--root", str(tmp_path))
        assert allowed.code == 0 and json.loads(allowed.out)["consumers"] == 2


def test_a_hostile_model_has_no_effect_in_a_process_of_its_own(tmp_path: Path) -> None:
    hostile(tmp_path, "\n".join(HOSTILE[name] for name in ("export", "save", "data path", "shell", "monitor", "meter")))
    before = listing(tmp_path)
    done = command(tmp_path, "simulate", "model/Master.dss", "--cases", "1", "--out", "days", "--workers", "1")
    assert "Traceback" not in done.err
    after = {name: content for name, content in listing(tmp_path).items() if not name.startswith("days/")}
    assert after == before
