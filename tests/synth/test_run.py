"""Runs: the same bytes on any number of workers, resumed after a kill, and never stopped by one feeder."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from mycelium.corpus.pool import Work, one_by_one
from mycelium.errors import FeederError
from mycelium.synth import run as running
from mycelium.synth.command import report, synth
from mycelium.synth.feeder import FeederMaker
from mycelium.synth.parameters import SynthConfig
from mycelium.synth.profiles import ProfileFiles
from mycelium.synth.run import Record, SynthRun, Worker, synth_run
from mycelium.synth.summary import put_into, summarise
from tests.conftest import SHARED, require_shared
from tests.corpus.test_ray import _CLUSTER
from tests.shapes import REPOSITORY
from tests.synth.test_feeder import bytes_of

COUNT = 5
ARGUMENTS = ["--count", str(COUNT), "--seed", "3", "--smallest", "20", "--largest", "90"]


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str


def command(arguments: list[str], cwd: Path) -> Result:
    program = [sys.executable, "-m", "mycelium.cli", "synth", *arguments]
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run(program, cwd=cwd, capture_output=True, text=True, env=environment, check=False)
    return Result(done.returncode, done.stdout, done.stderr)


def run_of(out: Path, **config: int) -> SynthRun:
    values = {"smallest_buses": 20, "largest_buses": 90} | config
    return SynthRun(3, out, SynthConfig(**values), None, (), ProfileFiles())  # type: ignore[arg-type]


def quiet(_: Record) -> None:
    pass


def feeders_of(out: Path) -> dict[str, str]:
    """Everything but the times, which are no part of a feeder."""
    keep = ("feeders/", "rejected/", "plan.json")
    return {name: digest for name, digest in bytes_of(out).items() if name.startswith(keep)}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run by the command line with two workers."""
    folder = tmp_path_factory.mktemp("run")
    result = command([*ARGUMENTS, "--out", "run", "--workers", "2"], folder)
    assert result.code == 0, result.err
    assert "accepted" in result.out
    assert {path.name for path in folder.iterdir()} == {"run"}  # nothing outside the folder
    return folder / "run"


def test_one_worker_gives_the_same_bytes(built: Path, tmp_path: Path) -> None:
    records = synth_run(run_of(tmp_path / "run"), COUNT, 1, None, quiet)
    assert sorted(records) == list(range(COUNT))
    assert feeders_of(tmp_path / "run") == feeders_of(built)


def test_a_killed_run_is_taken_up(built: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    program = [sys.executable, "-m", "mycelium.cli", "synth", *ARGUMENTS, "--out", str(out), "--workers", "1"]
    process = subprocess.Popen(
        program, env=os.environ | {"PYTHONPATH": str(REPOSITORY)}, start_new_session=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    end = time.monotonic() + 60
    while not list(out.glob("*/feeder-??????/verdict.json")) and time.monotonic() < end:
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    before = len(list(out.glob("*/feeder-??????")))
    assert before >= 1
    seen: list[int] = []
    synth_run(run_of(out), COUNT, 1, None, lambda record: seen.append(record["number"]))
    assert sorted(seen) == list(range(COUNT))
    assert feeders_of(out) == feeders_of(built)


def test_more_of_the_same_run(built: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    synth_run(run_of(out), 2, 1, None, quiet)
    times = {path: path.stat().st_mtime_ns for path in out.glob("*/*/verdict.json")}
    synth_run(run_of(out), COUNT, 1, None, quiet)
    assert feeders_of(out) == feeders_of(built)
    assert all(path.stat().st_mtime_ns == before for path, before in times.items())


def test_another_run_in_the_same_folder_is_refused(built: Path) -> None:
    with pytest.raises(FeederError, match="another seed"):
        synth_run(run_of(built, largest_buses=91), 1, 1, None, quiet)


def test_a_foreign_folder_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(FeederError, match="empty"):
        synth_run(run_of(tmp_path), 1, 1, None, quiet)
    assert {path.name for path in tmp_path.iterdir()} == {"mine.txt"}


# ---- what goes wrong -----------------------------------------------------------------------------------------------


def test_an_error_rejects_one_seed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make = FeederMaker.make

    def broken(self: FeederMaker, number: int) -> object:
        if number == 1:
            raise ZeroDivisionError("a bug")
        return make(self, number)

    monkeypatch.setattr(FeederMaker, "make", broken)
    worker = Worker(run_of(tmp_path))
    records = [worker(number) for number in range(3)]
    assert [record["reasons"][:1] for record in records if record["number"] == 1] == [
        ["error: ZeroDivisionError: a bug"]
    ]
    assert records[0]["accepted"] and records[2]["accepted"]
    assert (tmp_path / "rejected" / "feeder-000001" / "sample.json").is_file()


def test_a_timeout_rejects_one_seed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make = FeederMaker.make

    def slow(self: FeederMaker, number: int) -> object:
        attempt = make(self, number)
        while number == 0:
            time.sleep(0.01)
        return attempt

    monkeypatch.setattr(FeederMaker, "make", slow)
    worker = Worker(run_of(tmp_path, time_limit_s=3))
    first = worker(0)
    assert not first["accepted"] and first["reasons"] == ["timeout: more than 3 s"]
    assert worker(1)["accepted"]


def test_a_worker_that_dies_rejects_one_seed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "_Start", _StartDeadly)
    records = synth_run(run_of(tmp_path), 3, 1, None, quiet)
    assert records[1]["reasons"][0].startswith("worker: the worker process died")
    assert [records[k]["accepted"] for k in (0, 2)] == [True, True]


@dataclass(frozen=True)
class _StartDeadly:
    run: SynthRun

    def __call__(self) -> Work[int, Record]:
        return one_by_one(_Deadly(self.run))


class _Deadly(Worker):
    def __call__(self, number: int) -> Record:
        if number == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__call__(number)


def test_a_place_without_room_is_a_rejection(tmp_path: Path) -> None:
    import geopandas
    from shapely import LineString

    path = tmp_path / "empty_segments.parquet"
    lines = [LineString([(0, 0), (0.00005, 0)])]  # five metres of street: no plot fits
    geopandas.GeoDataFrame({"subtype": ["road"], "class": ["residential"]}, geometry=lines, crs=4326).to_parquet(path)
    run = SynthRun(0, tmp_path / "run", SynthConfig(20, 40), None, (path,), ProfileFiles())
    record = Worker(run)(0)
    assert not record["accepted"] and record["reasons"][0].startswith("no territory: empty")


def test_wrong_arguments_are_said(tmp_path: Path) -> None:
    for arguments, expected in (
        ({"count": 0}, "--count 0"),
        ({"count": 1, "workers": 0}, "--workers 0"),
        ({"count": 1, "smallest": 50, "largest": 20}, "--largest 20"),
        ({"count": 1, "overture": (tmp_path / "nowhere.parquet",)}, "nowhere.parquet"),
        ({"count": 1, "library": tmp_path / "nowhere.parquet"}, "nowhere.parquet"),
    ):
        with pytest.raises(FeederError, match=expected):
            synth(out=tmp_path / "run", **arguments)  # type: ignore[arg-type]


# ---- real places, clusters, reports --------------------------------------------------------------------------------


def test_real_places_carry_their_attribution(tmp_path: Path) -> None:
    require_shared(SHARED)
    folder = SHARED / "geography"
    files = tuple(folder / f"witten_stockum_{kind}.parquet" for kind in ("segments", "buildings"))
    run = SynthRun(0, tmp_path, SynthConfig(60, 200), None, files, ProfileFiles())
    worker = Worker(run)
    accepted = [record for record in map(worker, range(3)) if record["accepted"]]
    assert accepted
    made = tmp_path / "feeders" / f"feeder-{accepted[0]['number']:06d}"
    for name in ("ATTRIBUTION.txt", "Master.dss", "sample.json", "streets.json"):
        assert "OpenStreetMap contributors" in (made / name).read_text()
    assert json.loads((made / "sample.json").read_text())["geography"]["place"] == "witten_stockum"


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", _CLUSTER],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    assert process.stdin is not None and process.stdout is not None
    try:
        yield next(line.split()[1] for line in process.stdout if line.startswith("address "))
    finally:
        process.stdin.close()
        process.wait(60)
        process.stdout.close()


@pytest.mark.xdist_group("ray")
def test_a_cluster_gives_the_same_bytes(address: str, built: Path, tmp_path: Path) -> None:
    result = command([*ARGUMENTS, "--out", "run", "--ray", address], tmp_path)
    assert result.code == 0, result.err
    assert feeders_of(tmp_path / "run") == feeders_of(built)


def test_the_report_counts_what_is_there(built: Path, tmp_path: Path) -> None:
    found = summarise(built)
    accepted = len(list((built / "feeders").iterdir()))
    rejected = len(list((built / "rejected").iterdir())) if (built / "rejected").exists() else 0
    assert len(found.feeders) == COUNT == accepted + rejected
    assert found.acceptance == accepted / COUNT and sum(found.reasons.values()) == rejected
    assert found.classes["attempts"].sum() == COUNT and (found.feeders["cpu_s"] > 0).all()
    page = (built / "pictures.html").read_text()
    assert page.count("<svg") == 1 and "snapshot A" in page
    document = tmp_path / "doc.md"
    document.write_text(
        "# Title\n\n<!-- results: mycelium synth report -->\nold\n<!-- end of results -->\n\nafter\n"
    )  # fmt: skip
    report(built, into=document)
    text = document.read_text()
    assert "old" not in text and text.startswith("# Title") and text.endswith("after\n")
    assert f"{COUNT} attempts, {accepted} accepted" in text and (tmp_path / "doc.svg").is_file()
    document.write_text("no marks")
    with pytest.raises(FeederError, match="results"):
        put_into(found, tmp_path / "doc.svg", document)
