"""Building: the same bytes whoever builds and however often it is killed; nothing finished lost; reasons given."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from mycelium.corpus import build as building
from mycelium.corpus import finish as finishing
from mycelium.corpus.build import build
from mycelium.corpus.files import PART
from mycelium.corpus.labels import case_labels, split_digest
from mycelium.corpus.layout import CHECKSUMS, LABELS, MANIFEST, PLAN, UnitRecord, unit_name
from mycelium.corpus.plan import CASES_PER_UNIT, Plan, read_plan, stratum
from mycelium.corpus.store import Corpus
from mycelium.errors import FeederError
from mycelium.feeders import feeder_path
from mycelium.simulate.cases import CaseMix
from mycelium.simulate.network import Network
from tests.corpus.bench import CASES, FEEDERS, Serial, folder_bytes, plan_of, run, stamps, start, write_corpus
from tests.shapes import REPOSITORY
from tests.simulate.bench import two_bus

KILLS = 20


# ---- the same bytes ----------------------------------------------------------------------------------------------


def test_the_number_of_workers_does_not_show(plan: Plan, built: Path, tmp_path: Path) -> None:
    for workers in (1, 3):
        build(plan, tmp_path / str(workers), workers)
        assert folder_bytes(tmp_path / str(workers)) == folder_bytes(built)
    assert not multiprocessing.active_children(), "a worker is left"


def test_a_finished_corpus_is_left_alone(plan: Plan, built: Path, serial: Serial, tmp_path: Path) -> None:
    shutil.copytree(built, tmp_path / "corpus")
    before = stamps(tmp_path / "corpus")
    seen = serial(plan, tmp_path / "corpus")
    assert stamps(tmp_path / "corpus") == before
    assert [state.found for state in seen] == [plan.n_cases]


def test_labels_are_remade_from_the_plan_alone(plan: Plan, built: Path) -> None:
    """What another machine would draw: nothing is solved, and nothing of the corpus is looked at."""
    digests = {}
    for network in plan.networks:
        entry = network.entry
        model = Network(entry.network_source, CaseMix())
        cases = [
            model.draw(plan.seed, k, stratum(entry.name, plan.seed, k).mix) for k in reversed(range(network.cases))
        ]
        digests[entry.split.value] = split_digest((entry.name, case.number, case_labels(case)) for case in cases)
        model.close()
    stored = json.loads((built / LABELS).read_text())
    assert {split: part["labels_sha256"] for split, part in stored.items()} == digests
    assert {split: part["cases"] for split, part in stored.items()} == dict.fromkeys(digests, CASES)


def test_progress_counts_up_to_the_plan(plan: Plan, serial: Serial, tmp_path: Path) -> None:
    seen = serial(plan, tmp_path / "corpus")
    done = [state.done for state in seen]
    assert done[0] == 0 and done[-1] == plan.n_cases and done == sorted(done)
    share = [state.share for state in seen]
    assert share[-1] == pytest.approx(1.0) and share == sorted(share)


# ---- interruptions -----------------------------------------------------------------------------------------------


def test_it_survives_twenty_kills(built: Path, tmp_path: Path) -> None:
    """Killed at any moment: in the middle of a write, between two, while it simulates; builder, worker, or both."""
    corpus, out = write_corpus(tmp_path), tmp_path / "corpus"
    arguments = ["build", str(corpus), "--out", str(out), "--workers", "2"]
    rng = random.Random(4)
    found = []
    for kill in range(KILLS):
        if kill % 4:
            how = rng.choice(["self", "group", "group"])
            process = start(arguments, tmp_path / "break", FSYNCS=str(rng.randint(1, 12)), HOW=how)
        else:
            process = start(arguments, tmp_path / "break", FSYNCS="1000000", HOW="self")
        try:
            process.communicate(timeout=rng.uniform(2.0, 6.0) if kill % 4 == 0 else 60.0)
        except subprocess.TimeoutExpired:
            os.kill(process.pid, signal.SIGKILL)  # the builder alone: its workers have to notice
            process.communicate()
        found.append(len(list(out.glob("units/*/*.json"))))
    assert found == sorted(found), "something finished was lost"
    result = run(arguments, tmp_path)
    assert result.code == 0, result.err
    assert folder_bytes(out) == folder_bytes(built)


def test_what_a_kill_may_leave_is_made_good(plan: Plan, built: Path, serial: Serial, tmp_path: Path) -> None:
    out = tmp_path / "corpus"
    shutil.copytree(built, out)
    before = stamps(out)
    records = sorted(out.glob("units/ieee13/*.json"))
    records[0].write_bytes(records[0].read_bytes()[:100])  # torn: no file system promises more
    records[1].unlink()  # its shards are there, unknown
    (out / "shards" / "ieee13" / "v9-0000.safetensors").write_bytes(b"of a plan that is no more")
    half = next(out.glob("shards/lv_town/*.safetensors"))
    half.write_bytes(half.read_bytes()[: half.stat().st_size // 2])
    (out / f"{half.name}.4711{PART}").write_bytes(b"half a shard")
    for name in (MANIFEST, LABELS, CHECKSUMS):
        (out / name).unlink()
    serial(plan, out)
    assert folder_bytes(out) == folder_bytes(built)
    after = stamps(out)
    untouched = [
        name for name in before if name.split("/")[0] == "shards" and "ieee13" not in name and half.name not in name
    ]
    assert untouched and all(after[name] == before[name] for name in untouched)


def test_a_full_disk_loses_nothing_and_is_said(built: Path, tmp_path: Path) -> None:
    corpus, out = write_corpus(tmp_path), tmp_path / "corpus"
    arguments = ["build", str(corpus), "--out", str(out), "--workers", "2"]
    finished: set[str] = set()
    for room in (3, 30, 60):  # things that go on disk in each process before it is full
        result = run(arguments, tmp_path / "break", FSYNCS=str(room), HOW="full")
        assert result.code == 1 and f"{out}: No space left on device" in result.err, result.err
        assert "free some space" in result.err
        assert "Traceback" not in result.err
        kept = {str(path) for path in out.glob("units/*/*.json")}
        assert finished <= kept
        finished = kept
        assert not list(out.rglob(f"*{PART}")), "what cannot be finished takes the room that is short"
    assert finished and "run the same command again" in " ".join(result.err.split())
    assert run(arguments, tmp_path).code == 0
    assert folder_bytes(out) == folder_bytes(built)


def test_two_builds_in_one_folder_do_not_meet(plan: Plan, built: Path, tmp_path: Path) -> None:
    out = tmp_path / "corpus"
    shutil.copytree(built, out)
    hold = (
        "import fcntl, os, sys; h = os.open(sys.argv[1], os.O_RDONLY); fcntl.flock(h, fcntl.LOCK_EX); print(); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", hold, str(out)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None and other.stdin is not None
        other.stdout.readline()
        with pytest.raises(FeederError, match="another build is at work"):
            build(plan, out)
        other.communicate("\n")
    build(plan, out)


# ---- another plan ------------------------------------------------------------------------------------------------


def test_more_cases_later_are_the_same_as_all_at_once(built: Path, serial: Serial, tmp_path: Path) -> None:
    out = tmp_path / "corpus"
    first = {name: split for name, split in FEEDERS.items() if name != "lv_town"}
    serial(plan_of(tmp_path, first, CASES_PER_UNIT), out)
    before = stamps(out)
    serial(plan_of(tmp_path, first, CASES_PER_UNIT + 1), out)
    seen = serial(plan_of(tmp_path), out)
    assert seen[0].found == 3 * CASES_PER_UNIT  # whole units; of the others days are kept, too
    assert folder_bytes(out) == folder_bytes(built)
    after = stamps(out)
    shards = [name for name in before if name.startswith("shards/")]
    assert shards and all(after[name] == before[name] for name in shards), "finished shards were written again"


def test_days_of_a_unit_that_grows_are_kept(serial: Serial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    only = {"ieee13": "train"}
    out = tmp_path / "corpus"
    serial(plan_of(tmp_path, only, 7), out)
    drawn: list[int] = []
    real = Network.draw

    def draw(self: Network, seed: int, number: int, mix: CaseMix | None = None) -> object:
        drawn.append(number)
        return real(self, seed, number, mix)

    monkeypatch.setattr(Network, "draw", draw)
    serial(plan_of(tmp_path, only, 9), out)
    assert drawn == [7, 8]
    serial(plan_of(tmp_path, only, 9), tmp_path / "fresh")
    assert folder_bytes(out) == folder_bytes(tmp_path / "fresh")


@pytest.mark.parametrize("what", ["seed", "fewer cases", "network gone", "model", "split"])
def test_a_folder_of_another_plan_is_refused(
    what: str, plan: Plan, built: Path, serial: Serial, tmp_path: Path
) -> None:
    out = tmp_path / "corpus"
    shutil.copytree(built, out)
    before = stamps(out)
    first = plan.networks[0]
    other = {
        "seed": replace(plan, seed=plan.seed + 1),
        "fewer cases": replace(plan, networks=(replace(first, cases=3), *plan.networks[1:])),
        "network gone": replace(plan, networks=plan.networks[1:]),
        "model": replace(plan, networks=(replace(first, digest="edited"), *plan.networks[1:])),
        "split": replace(
            plan,
            networks=(
                replace(first, entry=replace(first.entry, split=plan.networks[1].entry.split)),
                *plan.networks[1:],
            ),
        ),
    }[what]
    with pytest.raises(FeederError, match=r"another plan: .* give another --out"):
        serial(other, out)
    assert stamps(out) == before


def test_a_folder_with_something_else_in_it_is_refused(plan: Plan, serial: Serial, tmp_path: Path) -> None:
    (tmp_path / "mine" / "shards").mkdir(parents=True)
    with pytest.raises(FeederError, match=f"no {PLAN}; give another --out"):
        serial(plan, tmp_path / "mine")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / PLAN).write_text("[]")
    with pytest.raises(FeederError, match="cannot be read"):
        serial(plan, tmp_path / "other")


# ---- what goes wrong in a unit -----------------------------------------------------------------------------------


def test_what_cannot_be_solved_is_recorded_with_its_reason(serial: Serial, tmp_path: Path) -> None:
    masters = {"heavy": two_bus(tmp_path / "heavy", kw=300_000.0), "light": two_bus(tmp_path / "light", kw=100.0)}
    path = write_corpus(tmp_path / "plan", {"heavy": "train", "light": "train"}, 10, masters)
    serial(read_plan(path), tmp_path / "corpus")
    corpus = Corpus.open_folder(tmp_path / "corpus")
    heavy = corpus.manifest[corpus.manifest["network"] == "heavy"]
    assert heavy["status"].tolist() == ["rejected"] * 10
    assert heavy["reason"].str.contains("did not converge").all()
    assert corpus.networks == ["light"] and len(corpus.cases) > 5
    before = stamps(tmp_path / "corpus")
    serial(read_plan(path), tmp_path / "corpus")  # a rejection is an outcome, not unfinished work
    assert stamps(tmp_path / "corpus") == before


def test_a_network_that_cannot_be_imported_is_rejected_and_tried_again_by_the_next_build(
    serial: Serial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_of(tmp_path, {"ieee13": "train", "lv_fourwire": "test"}, 3)
    attempts: list[str] = []
    real = Network.__init__

    def broken(self: Network, source: object, *rest: object) -> None:
        if "ieee13" in str(source):
            attempts.append("ieee13")
            raise FeederError(f"{feeder_path('ieee13')}:3: OpenDSS does not accept this")
        real(self, source, *rest)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(Network, "__init__", broken)
        seen = serial(plan, tmp_path / "corpus")
    assert len(attempts) == 2  # tried again once
    assert (seen[-1].done, seen[-1].rejected) == (6, 3)
    corpus = Corpus.open_folder(tmp_path / "corpus")
    reasons = set(corpus.manifest.loc[corpus.manifest["network"] == "ieee13", "reason"])
    assert reasons == {"import: Master.dss:3: OpenDSS does not accept this"}  # no path of this machine
    assert corpus.networks == ["lv_fourwire"]

    serial(plan, tmp_path / "corpus")
    serial(plan, tmp_path / "fresh")
    assert folder_bytes(tmp_path / "corpus") == folder_bytes(tmp_path / "fresh")
    assert Corpus.open_folder(tmp_path / "corpus").networks == ["ieee13", "lv_fourwire"]


def test_a_case_that_hits_a_bug_costs_that_case(
    plan: Plan, built: Path, serial: Serial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Network.draw

    def draw(self: Network, seed: int, number: int, mix: CaseMix | None = None) -> object:
        if (self.name, number) == ("lv_fourwire", 4):
            raise IndexError("row 7 of 6")
        return real(self, seed, number, mix)

    monkeypatch.setattr(Network, "draw", draw)
    serial(plan, tmp_path / "corpus")
    one, all_ = (Corpus.open_folder(folder) for folder in (tmp_path / "corpus", built))
    lost = one.manifest[(one.manifest["network"] == "lv_fourwire") & (one.manifest["number"] == 4)]
    assert lost["reason"].tolist() == ["IndexError: row 7 of 6"]
    assert len(one.cases) == len(all_.cases) - 1
    assert one.cases["labels"].isin(all_.cases["labels"]).all()


def test_a_worker_that_dies_costs_its_unit_only(plan: Plan, built: Path, tmp_path: Path) -> None:
    corpus, out = write_corpus(tmp_path), tmp_path / "corpus"
    arguments = ["build", str(corpus), "--out", str(out), "--workers", "2"]
    result = run(arguments, tmp_path / "break", FSYNCS="1", HOW="self", ONLY="shards/lv_town")
    assert result.code == 0, result.err
    found = Corpus.open_folder(out)
    rejected = found.manifest[found.manifest["network"] == "lv_town"]
    assert set(rejected["reason"]) == {"the worker process died (SIGKILL; out of memory?)"}
    assert set(found.networks) == set(FEEDERS) - {"lv_town"}

    assert run(arguments, tmp_path).code == 0  # with more memory, say
    assert folder_bytes(out) == folder_bytes(built)


def test_units_of_a_network_go_to_the_worker_that_holds_it_and_the_costliest_first(
    tmp_path: Path, serial: Serial, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_of(tmp_path, FEEDERS, 3 * CASES_PER_UNIT)
    handed: list[str] = []
    real = building._Work._hand

    def hand(self: building._Work, crew: object, worker: int, unit: object, held: object) -> None:
        handed.append(unit.network)  # type: ignore[attr-defined]
        real(self, crew, worker, unit, held)  # type: ignore[arg-type]

    monkeypatch.setattr(building._Work, "_hand", hand)
    serial(plan, tmp_path / "corpus")
    size = {network.entry.name: network.size for network in plan.networks}
    order = list(dict.fromkeys(handed))
    assert handed == [name for name in order for _ in range(3)]
    assert [size[name] for name in order] == sorted(size.values(), reverse=True)


def test_a_disk_error_is_no_property_of_a_network(
    plan: Plan, serial: Serial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = os.fsync, []

    def fsync(handle: int) -> None:
        calls.append(handle)
        if len(calls) == 12:
            raise OSError(errno.EIO, "Input/output error")  # no file is named
        real(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(FeederError, match=rf"{tmp_path / 'corpus'}: Input/output error\. Finished cases are kept"):
        serial(plan, tmp_path / "corpus")
    for unit in plan.units():
        record = UnitRecord.read(tmp_path / "corpus" / unit_name(unit))
        assert record is None or not record.failed


def test_a_disk_error_at_the_end_is_said_too(
    plan: Plan, built: Path, serial: Serial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> bytes:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(finishing, "write_whole", full)
        with pytest.raises(FeederError, match=rf"{tmp_path / 'corpus'}: No space left on device; free some space"):
            serial(plan, tmp_path / "corpus")
    serial(plan, tmp_path / "corpus")
    assert folder_bytes(tmp_path / "corpus") == folder_bytes(built)


def test_orphaned_workers_end_with_their_builder(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path, cases=2000)
    process = start(["build", str(corpus), "--out", str(tmp_path / "corpus"), "--workers", "2"], tmp_path)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    deadline = time.monotonic() + 60
    while not list((tmp_path / "corpus").glob("units/*/*.json")) and time.monotonic() < deadline:
        assert process.poll() is None
        time.sleep(0.05)
    workers = [int(child) for child in children.read_text().split()]
    assert len(workers) >= 2
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    while any(Path(f"/proc/{worker}").exists() for worker in workers) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(Path(f"/proc/{worker}").exists() for worker in workers)


def test_nothing_of_the_repository_is_written(built: Path) -> None:
    assert not str(built).startswith(str(REPOSITORY))
    text = b"".join(content for name, content in folder_bytes(built).items() if name.endswith((".json", ".sha256")))
    assert str(REPOSITORY).encode() not in text and str(Path.home()).encode() not in text
