"""Runs of many cases: the same bytes however they are made, nothing lost on the way, reasons for what is left out."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mycelium.errors import FeederError
from mycelium.feeders import feeder_path
from mycelium.grid.grid import Grid
from mycelium.simulate.cases import CaseMix
from mycelium.simulate.day import Day
from mycelium.simulate.network import NetworkSource
from mycelium.simulate.run import Record, Run, simulate_run
from tests.shapes import REPOSITORY
from tests.simulate.bench import EVERYTHING, two_bus

CASES = 10  # more than a worker is handed at a time


def folder_bytes(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def run_of(feeder: str, out: Path, cases: int = CASES, mix: CaseMix = EVERYTHING) -> Run:
    return Run(NetworkSource(feeder_path(feeder)), seed=4, cases=cases, out=out, mix=mix)


def simulated(run: Run, workers: int = 1) -> list[Record]:
    return simulate_run(run, workers, lambda _: None)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of ``CASES`` cases of ieee13 from beginning to end."""
    out = tmp_path_factory.mktemp("whole") / "run"
    simulated(run_of("ieee13", out))
    return out


# ---- what is written ---------------------------------------------------------------------------------------------


def test_a_run_leaves_days_records_and_nothing_else(whole: Path) -> None:
    records = [json.loads(line) for line in (whole / "cases.jsonl").read_text().splitlines()]
    assert [record["number"] for record in records] == list(range(CASES))
    done = [record for record in records if record["status"] == "done"]
    variants = {record["variant"] for record in records}
    expected = {f"case-{record['number']:06d}.npz" for record in done}
    expected |= {f"grid-variant-{variant}.npz" for variant in variants} | {"cases.jsonl", "plan.json"}
    assert {path.name for path in whole.iterdir()} == expected
    assert len(done) >= CASES - 2 and len(variants) > 1


def test_the_record_of_a_case_says_what_its_day_holds(whole: Path) -> None:
    for line in (whole / "cases.jsonl").read_text().splitlines():
        record = json.loads(line)
        if record["status"] != "done":
            continue
        day = Day.load(whole / f"case-{record['number']:06d}.npz")
        grid = Grid.load(whole / f"grid-variant-{record['variant']}.npz")
        assert (day.number, day.variant, day.seed) == (record["number"], record["variant"], 4)
        assert (day.solver, day.day_of_year) == (record["solver"], record["day_of_year"])
        assert record["switches_open"] == day.switch_open.sum()
        assert record["energised_share"] == pytest.approx(day.energised.mean(), abs=1e-6)
        assert (record["fault"] is None) == (day.fault is None)
        if day.fault is not None:
            assert record["fault"]["type"] == day.fault.type and record["fault"]["place"] == day.fault.place
            assert record["fault"]["resistance_ohm"] == day.fault.resistance_ohm
        assert day.v.shape[1] == grid.wiring.n_nodes and len(day.switch_open) == len(grid.switches)


def test_the_number_of_workers_does_not_show(whole: Path, tmp_path: Path) -> None:
    simulated(run_of("ieee13", tmp_path / "two"), workers=2)
    assert folder_bytes(tmp_path / "two") == folder_bytes(whole)


# ---- interruptions -----------------------------------------------------------------------------------------------


class _Interrupted(Exception):
    pass


def test_an_interrupted_run_is_taken_up_where_it_stopped(whole: Path, tmp_path: Path) -> None:
    run, ticks = run_of("ieee13", tmp_path / "run"), []

    def stop_at_the_second(n: int) -> None:
        ticks.append(n)
        if len(ticks) == 2:
            raise _Interrupted

    with pytest.raises(_Interrupted):
        simulate_run(run, 1, stop_at_the_second)
    written = {path.name: path.stat().st_mtime_ns for path in run.out.glob("case-*.npz")}
    assert 0 < len(written) < CASES and ticks[1] > 0

    again: list[int] = []
    simulate_run(run, 1, again.append)
    assert again[0] >= len(written) and sum(again) == CASES  # what was done is not done again
    for name, when in written.items():
        assert (run.out / name).stat().st_mtime_ns == when
    assert folder_bytes(run.out) == folder_bytes(whole)

    simulate_run(run, 1, lambda n: again.append(-n))
    assert again[-1] == -CASES  # a finished run has nothing left to do
    assert folder_bytes(run.out) == folder_bytes(whole)


def test_a_killed_process_loses_nothing_that_was_written(tmp_path: Path) -> None:
    master, mix = feeder_path("ieee13"), CaseMix()  # the command line's mix
    command = [
        sys.executable, "-m", "mycelium.cli", "simulate", str(master),
        "--cases", "300", "--seed", "4", "--workers", "1", "--out", str(tmp_path / "killed"),
    ]  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    process = subprocess.Popen(
        command, cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    deadline = time.monotonic() + 120
    while len(list((tmp_path / "killed").glob("case-*.npz"))) < 10 and time.monotonic() < deadline:
        assert process.poll() is None, "the run ended by itself"
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.wait(timeout=30)
    assert not (tmp_path / "killed" / "cases.jsonl").exists()
    finished = len((tmp_path / "killed" / "cases.part.jsonl").read_text().splitlines())
    assert finished >= 8

    for name in ("killed", "never"):
        simulated(Run(NetworkSource(master), 4, 20, tmp_path / name, mix))
    kept, fresh = folder_bytes(tmp_path / "killed"), folder_bytes(tmp_path / "never")
    assert {name: kept[name] for name in fresh} == fresh
    later = {name for name in kept if name not in fresh}  # cases beyond these 20, whole or in part
    assert all(name.startswith(("case-", "grid-variant-")) for name in later)


def test_a_torn_last_record_is_done_again(whole: Path, tmp_path: Path) -> None:
    run = run_of("ieee13", tmp_path / "run")
    simulated(run)
    lines = (run.out / "cases.jsonl").read_text().splitlines(keepends=True)
    (run.out / "cases.jsonl").unlink()
    (run.out / "cases.part.jsonl").write_text("".join(lines[:4]) + lines[4][:25])
    (run.out / "case-000002.npz").unlink()  # recorded, but its file is gone
    (run.out / "case-000007.npz.part").write_bytes(b"half a day")
    simulated(run)
    assert folder_bytes(run.out) == folder_bytes(whole)


def test_more_cases_later_are_the_same_as_all_at_once(whole: Path, tmp_path: Path) -> None:
    simulated(run_of("ieee13", tmp_path / "run", cases=4))
    ticks: list[int] = []
    simulate_run(run_of("ieee13", tmp_path / "run"), 1, ticks.append)
    assert ticks[0] == 4
    assert folder_bytes(tmp_path / "run") == folder_bytes(whole)


def test_asking_for_fewer_cases_forgets_none_that_are_done(whole: Path, tmp_path: Path) -> None:
    run = run_of("ieee13", tmp_path / "run")
    simulated(run)
    simulated(replace(run, cases=4))
    ticks: list[int] = []
    simulate_run(run, 1, ticks.append)
    assert ticks == [CASES], "finished cases were simulated again"
    assert folder_bytes(run.out) == folder_bytes(whole)


# ---- another plan ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["seed", "mix", "network", "model"])
def test_a_folder_with_cases_of_another_plan_is_refused(what: str, tmp_path: Path) -> None:
    out, master = tmp_path / "run", two_bus(tmp_path / "feeder", kw=100.0)
    run = Run(NetworkSource(master), 0, 2, out, CaseMix())
    simulated(run)
    before = folder_bytes(out)
    if what == "seed":
        other = replace(run, seed=1)
    elif what == "mix":
        other = replace(run, mix=CaseMix(fault=1.0))
    elif what == "network":  # which has a main file of the same name
        other = replace(run, source=NetworkSource(feeder_path("ieee13")))
    else:  # the same file, edited since
        two_bus(tmp_path / "feeder", kw=2000.0)
        other = run
    with pytest.raises(FeederError, match=r"another.*give another --out"):
        simulated(other)
    assert folder_bytes(out) == before


# ---- rejections --------------------------------------------------------------------------------------------------


def test_what_cannot_be_solved_is_recorded_with_its_reason(tmp_path: Path) -> None:
    # 30 times what the line can carry at some hour of any day.
    master = two_bus(tmp_path / "feeder", kw=300_000.0)
    records = simulated(Run(NetworkSource(master), 0, 5, tmp_path / "run", CaseMix(variant=0.0)))
    assert [record["status"] for record in records] == ["rejected"] * 5
    assert all("hour" in record["reason"] and "did not converge" in record["reason"] for record in records)
    assert not list((tmp_path / "run").glob("case-*"))
    kept = folder_bytes(tmp_path / "run")
    ticks: list[int] = []
    simulate_run(Run(NetworkSource(master), 0, 5, tmp_path / "run", CaseMix(variant=0.0)), 1, ticks.append)
    assert ticks == [5] and folder_bytes(tmp_path / "run") == kept  # a rejection is an outcome, not unfinished work


def test_a_dead_feeder_is_recorded_as_such(tmp_path: Path) -> None:
    master = two_bus(tmp_path / "feeder", kw=100.0)
    master.write_text(
        master.read_text().replace(
            "phases=3 bus1=head.1.2.3 bus2=tail", "phases=3 switch=yes bus1=head.1.2.3 bus2=tail"
        )
    )
    mix = CaseMix(variant=0.0, keep_supply=0.0, lose_supply=1.0, fault=0.5)
    dead = simulated(Run(NetworkSource(master), 0, 3, tmp_path / "cut", mix))
    assert {record["reason"] for record in dead} == {"dead feeder: no customer is supplied"}
    nobody = two_bus(tmp_path / "empty", customers=0)
    empty = simulated(Run(NetworkSource(nobody), 0, 2, tmp_path / "none", mix))
    assert {record["reason"] for record in empty} == {"dead feeder: no customer is supplied"}


def test_some_rejections_do_not_stop_the_others(tmp_path: Path) -> None:
    # Near the most the line can carry: some days do not fit.
    master = two_bus(tmp_path / "feeder", kw=16_000.0, customers=1)
    records = simulated(Run(NetworkSource(master), 2, 12, tmp_path / "run", CaseMix(variant=0.0, fault=0.0)))
    status = [record["status"] for record in records]
    assert 0 < status.count("rejected") < 12
    for record in records:
        assert (tmp_path / "run" / f"case-{record['number']:06d}.npz").exists() == (record["status"] == "done")
        if record["status"] == "done":
            day = Day.load(tmp_path / "run" / f"case-{record['number']:06d}.npz")
            assert np.all(np.isfinite(day.v))
