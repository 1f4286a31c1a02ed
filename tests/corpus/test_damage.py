"""Damage to what says what a corpus holds: nothing outside is touched, nothing believed, everything made again."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from mycelium.corpus.checksums import Checksums, note_damaged, noted_damaged
from mycelium.corpus.damage import damaged_files
from mycelium.corpus.files import Written
from mycelium.corpus.layout import CHECKSUMS, DAMAGED, LABELS, MANIFEST, NORMALISATION, PLAN, is_listed_kind
from mycelium.corpus.plan import Plan
from mycelium.corpus.store import Corpus
from mycelium.corpus.validate import validate
from mycelium.errors import FeederError
from mycelium.simulate.network import Network
from tests.corpus.bench import CASES, SEED, Serial, folder_bytes, plan_of, run, stamps, write_corpus

OUTSIDE = [
    "../victim.txt",
    "shards/../../victim.txt",
    "shards/lv_town/../../../victim.txt",
    "units/../0000.json",
    "/etc/victim.txt",
    "victim.txt",
    "",
    ".",
    "shards",
    "shards/lv_town",
    "shards/lv_town/v0-0000.safetensors\n",
    "shards//v0-0000.safetensors",
    "grids/lv_town/0.npz/..",
    "placements/lv_town/../../plan.json",
    "..\\victim.txt",
]


def damaged(folder: Path) -> list[str]:
    return damaged_files(folder, lambda done, total: None)[1]


def lines(folder: Path) -> list[str]:
    return (folder / CHECKSUMS).read_text().splitlines(keepends=True)


def without(folder: Path, *parts: str) -> None:
    """Take lines out of the list of checksums."""
    kept = [line for line in lines(folder) if not any(part in line for part in parts)]
    assert len(kept) < len(lines(folder))
    (folder / CHECKSUMS).write_text("".join(kept))


# ---- nothing outside ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", OUTSIDE)
def test_only_names_of_files_of_a_corpus_are_read(name: str, copy: Path) -> None:
    assert not is_listed_kind(name)
    (copy / DAMAGED).write_text(json.dumps([LABELS, name]))
    with pytest.raises(FeederError, match=r"damaged\.json: not a list of files of a corpus; .*corpus validate"):
        noted_damaged(copy)
    with (copy / CHECKSUMS).open("a") as file:
        file.write(f"{64 * '0'}  {name}\n")
    found = Checksums.read(copy)
    assert name not in found.digests and not found.whole


def test_every_file_of_a_corpus_has_a_name_that_is_read(built: Path) -> None:
    listed = Checksums.read(built)
    assert listed.whole
    assert {CHECKSUMS, *listed.digests} == set(folder_bytes(built))


@pytest.mark.parametrize("name", ["../victim.txt", "shards/../../victim.txt"])
def test_nothing_outside_a_corpus_is_removed(
    name: str, plan: Plan, built: Path, copy: Path, serial: Serial, tmp_path: Path
) -> None:
    victim = tmp_path / "victim.txt"
    victim.write_text("mine")
    with (copy / CHECKSUMS).open("a") as file:
        file.write(f"{64 * '0'}  {name}\n")
    assert validate(copy).damaged == [CHECKSUMS]
    serial(plan, copy)
    assert folder_bytes(copy) == folder_bytes(built)
    (copy / DAMAGED).write_text(json.dumps([name]))
    with pytest.raises(FeederError, match="nothing was done"):
        serial(plan, copy)
    assert victim.read_text() == "mine"


def test_a_record_or_a_plan_does_not_lead_outside_either(copy: Path, tmp_path: Path) -> None:
    victim = tmp_path / "victim.txt"
    victim.write_text("mine")
    record = next(copy.glob("units/lv_town/*.json"))
    content = json.loads(record.read_text())
    content["files"]["../victim.txt"] = [4, 64 * "0"]
    record.write_text(json.dumps(content))
    plan = json.loads((copy / PLAN).read_text())
    plan["networks"]["../.."] = plan["networks"]["lv_town"]
    (copy / PLAN).write_text(json.dumps(plan))
    without(copy, "units/lv_town", PLAN)
    found = damaged(copy)
    assert record.relative_to(copy).as_posix() in found and PLAN in found
    note_damaged(copy, found)
    assert noted_damaged(copy) == found and all(".." not in name for name in found)


def test_files_of_somebody_else_are_left_alone(plan: Plan, serial: Serial, tmp_path: Path) -> None:
    others = ["film.mkv.part", "shards/notes.txt", "units/lv_town/mine.json.part", "elsewhere/0.4711.part"]
    serial(plan, tmp_path)
    for name in others:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("mine")
    left = tmp_path / "shards" / "lv_town" / "v0-0000.safetensors.4711.part"
    left.write_text("half")
    serial(plan, tmp_path)
    assert all((tmp_path / name).read_text() == "mine" for name in others)
    assert not left.exists()


def test_a_folder_that_is_refused_is_left_as_it_is(plan: Plan, serial: Serial, tmp_path: Path) -> None:
    (tmp_path / "shards").mkdir()
    (tmp_path / "shards" / "0.4711.part").write_text("mine")
    with pytest.raises(FeederError, match="holds something"):
        serial(plan, tmp_path)
    assert (tmp_path / "shards" / "0.4711.part").exists()


# ---- the list of checksums ---------------------------------------------------------------------------------------

LISTS: dict[str, Callable[[str], str]] = {
    "empty": lambda text: "",
    "half": lambda text: text[: text.index("\n", len(text) // 2) + 1],
    "cut in a line": lambda text: text[: text.index("\n", len(text) // 2) - 20],
    "cut in a digest": lambda text: text[: text.index("\n", len(text) // 2) + 30],
    "without its last line break": lambda text: text[:-1],
    "turned round": lambda text: "".join(reversed(text.splitlines(keepends=True))),
    "a line twice": lambda text: text.splitlines(keepends=True)[0] + text,
    "one file too many": lambda text: text + f"{64 * '0'}  units/zzz/0000.json\n",
    "one digest wrong": lambda text: text.replace(f"{_shard(text)}", f"{64 * '0'}"),
    "binary": lambda text: "\x00\xff" * 100,
}


def _shard(text: str) -> str:
    """Digest of the first shard."""
    return next(line[:64] for line in text.splitlines() if "  shards/" in line)


@pytest.mark.parametrize("how", LISTS)
def test_a_list_that_is_not_the_one_written_is_found_and_nothing_is_simulated_again(
    how: str, plan: Plan, built: Path, copy: Path, serial: Serial, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = copy / CHECKSUMS
    path.write_text(LISTS[how](path.read_text()))
    assert {CHECKSUMS} <= set(validate(copy).damaged) <= {CHECKSUMS, MANIFEST, LABELS, NORMALISATION}

    def simulate(*_: object) -> None:
        raise AssertionError("a day that is there")

    monkeypatch.setattr(Network, "draw", simulate)
    serial(plan, copy)
    assert folder_bytes(copy) == folder_bytes(built)
    assert validate(copy, sample=1).damaged == []


@pytest.mark.parametrize("emptied", [True, False])
@pytest.mark.parametrize(
    "kind", ["shards/lv_town/*", "grids/lv_town/0.npz", "placements/*/*", "units/lv_town/*", MANIFEST, LABELS,
             NORMALISATION]
)  # fmt: skip
def test_a_file_that_is_damaged_and_not_listed_is_found(
    emptied: bool, kind: str, plan: Plan, built: Path, copy: Path, serial: Serial
) -> None:
    victim = sorted(copy.glob(kind))[0]
    name = victim.relative_to(copy).as_posix()
    content = bytearray(victim.read_bytes())
    content[len(content) // 2] ^= 0x04
    victim.write_bytes(content)
    if emptied:
        (copy / CHECKSUMS).write_text("")
    else:
        without(copy, name)
    assert {CHECKSUMS, name} <= set(validate(copy).damaged)
    serial(plan, copy)
    assert folder_bytes(copy) == folder_bytes(built)


@pytest.mark.parametrize("name", [PLAN, "units/lv_town/0000.json"])
def test_a_digest_does_not_make_a_plan_or_a_record_of_anything(name: str, copy: Path) -> None:
    before = Written.of(copy / name).sha256
    (copy / name).write_text("{}")
    text = (copy / CHECKSUMS).read_text()
    (copy / CHECKSUMS).write_text(text.replace(before, Written.of(copy / name).sha256))
    assert name in damaged(copy)


def test_any_bit_of_any_list_is_found(copy: Path) -> None:
    rng = random.Random(8)
    for name in (CHECKSUMS, PLAN, LABELS, "units/ieee13/0000.json"):
        whole = (copy / name).read_bytes()
        for _ in range(25):
            content = bytearray(whole)
            content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
            (copy / name).write_bytes(content)
            found = damaged(copy)
            assert found and all(part == CHECKSUMS or is_listed_kind(part) for part in found)
            assert name in found or name == CHECKSUMS  # of a unit no other knows the digest: it is suspected instead
        (copy / name).write_bytes(whole)
    assert damaged(copy) == []


def test_the_command_says_what_is_damaged_and_ends(copy: Path) -> None:
    path = copy / CHECKSUMS
    path.write_text(path.read_text()[:-30])
    corpus = write_corpus(copy.parent / "plan")
    checked = run(["validate", str(copy)], copy.parent)
    assert checked.code == 1 and f"damaged: {CHECKSUMS}\n" in checked.out and "build again" in checked.err
    assert "damaged: \n" not in checked.out
    again = run(["build", str(corpus), "--out", str(copy), "--workers", "1"], copy.parent)
    assert again.code == 0 and "no feeder is in two splits" in again.out, again.err
    assert run(["validate", str(copy), "--sample", "1"], copy.parent).code == 0
    (path.parent / DAMAGED).write_text("{")
    refused = run(["build", str(corpus), "--out", str(copy)], copy.parent)
    assert refused.code == 1 and "damaged.json: not a list" in refused.err and "Traceback" not in refused.err
    assert run(["validate", str(copy), "--sample", "1"], copy.parent).code == 0  # it takes the note away
    assert not (copy / DAMAGED).exists()


# ---- the plan ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["flipped", "gone", "garbage"])
def test_a_damaged_plan_is_made_again_and_not_exchanged(
    how: str, plan: Plan, built: Path, copy: Path, serial: Serial, tmp_path: Path
) -> None:
    path = copy / PLAN
    text = path.read_text()
    if how == "gone":
        path.unlink()
    else:
        path.write_text(text.replace(f'"seed": {SEED}', f'"seed": {SEED + 1}') if how == "flipped" else "{")
    assert validate(copy).damaged == [PLAN]
    before = stamps(copy)
    with pytest.raises(FeederError, match="not the plan it was built from"):
        serial(plan_of(tmp_path / "more", cases=CASES + 1), copy)
    assert stamps(copy) == before
    serial(plan, copy)
    assert folder_bytes(copy) == folder_bytes(built)


def test_a_plan_that_nobody_knows_is_said(plan: Plan, copy: Path, serial: Serial) -> None:
    (copy / PLAN).unlink()
    (copy / CHECKSUMS).write_text("")
    assert {PLAN, CHECKSUMS} <= set(validate(copy).damaged)
    with pytest.raises(FeederError, match="nobody knows its plan"):
        serial(plan, copy)


# ---- reading -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("content", [None, b"", b"garbage", b"{}", b'{"train": 3}', b"[1]", b"\xff\xfe"])
@pytest.mark.parametrize("name", [MANIFEST, LABELS])
def test_what_cannot_be_read_is_named(name: str, content: bytes | None, copy: Path) -> None:
    if name == LABELS and content == b"{}":
        return  # no labels are labels, of no split
    if content is None:
        (copy / name).unlink()
    else:
        (copy / name).write_bytes(content)
    result = run(["stats", str(copy)], copy.parent)
    assert result.code == 1 and f"{name}: missing or damaged" in result.err and "validate" in result.err, result.err
    assert "Traceback" not in result.err


def test_a_missing_shard_is_named(copy: Path) -> None:
    next(copy.glob("shards/lv_town/*")).unlink()
    result = run(["stats", str(copy)], copy.parent)
    assert result.code == 1 and "missing or damaged" in result.err and "shards/lv_town" in result.err


def test_a_manifest_of_other_columns_is_none(copy: Path) -> None:
    import pandas as pd

    pd.DataFrame({"network": ["lv_town"]}).to_parquet(copy / MANIFEST)
    with pytest.raises(FeederError, match="other columns"):
        Corpus.open_folder(copy)
