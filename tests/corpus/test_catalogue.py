"""The catalogue: clear errors, digests of models, and no feeder in two splits."""

from __future__ import annotations

import json
import multiprocessing
import os
import re
import shutil
import tomllib
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from mycelium.corpus.catalogue import Entry, Split, catalogue_of_index, model_digest, read_catalogue, read_model
from mycelium.corpus.fingerprint import Fingerprint, straddling
from mycelium.engine import Engine
from mycelium.errors import FeederError
from mycelium.feeders import FEEDERS, feeder_path
from mycelium.grid.dss_script import read_script
from mycelium.grid.grid import Grid
from mycelium.grid.read_opendss import read_circuit, read_opendss
from tests.conftest import ReferenceNetworks
from tests.corpus.bench import write_corpus
from tests.shapes import REPOSITORY

CATALOGUE = REPOSITORY / "experiments" / "reference-networks.toml"
GOOD = {"name": "a", "master": "a/Master.dss", "family": "f", "split": "train"}


def write(path: Path, *records: dict[str, object]) -> Path:
    tables = ["[[network]]\n" + "".join(f"{k} = {json.dumps(v)}\n" for k, v in record.items()) for record in records]
    path.write_text("\n".join(tables))
    return path


# ---- reading -----------------------------------------------------------------------------------------------------


def test_paths_are_relative_to_the_file_wherever_it_is_read_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_corpus(tmp_path / "experiments").with_name("catalogue.toml")
    monkeypatch.chdir(path.parent)
    for given in (path, Path("catalogue.toml")):
        entry = read_catalogue(given)[0]
        assert (entry.name, entry.split, entry.family) == ("ieee13", Split.TRAIN, "bundled")
        assert entry.master.is_absolute() and entry.master.samefile(feeder_path("ieee13"))


@pytest.mark.parametrize(
    ("records", "says"),
    [
        ([GOOD, {**GOOD, "name": "A"}], r"networks\.toml:7: .*called 'a' already"),
        ([GOOD, {**GOOD, "name": "b", "split": "tset"}], r"networks\.toml:7: network 'b': split 'tset'.*validation"),
        ([{**GOOD, "master": ""}], r"networks\.toml:1: network 'a' lacks `master`"),
        ([{key: GOOD[key] for key in ("master", "family", "split")}], r"networks\.toml:1: a network lacks `name`"),
        ([{**GOOD, "licence": 3}], r"networks\.toml:1: network 'a': `licence` is 3; expected a text"),
        ([{**GOOD, "licnce": "MIT"}], r"networks\.toml:1: network 'a': unknown `licnce`; known are .*licence"),
        ([{**GOOD, "name": 300 * "a"}], r"networks\.toml:1: network 'a+…': its name has 300 char.*at most 100"),
        ([{**GOOD, "name": True}], r"networks\.toml:1: network 'True': `name` is true; expected a text"),
        ([{**GOOD, "name": "../a"}], r"networks\.toml:1: network '\.\./a': expected letters"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(records: list[dict[str, object]], says: str, tmp_path: Path) -> None:
    with pytest.raises(FeederError, match=says):
        read_catalogue(write(tmp_path / "networks.toml", *records))


@pytest.mark.parametrize(
    "text",
    ["", "[[network]", "network = 3", "network = [1, 2]", "network = ['a']", "network = [['a']]", "network = []",
     "title = 'mine'\n[[network]]\nname = 'a'"],
)  # fmt: skip
def test_what_is_no_catalogue_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "networks.toml").write_text(text)
    with pytest.raises(FeederError, match=r"networks\.toml"):
        read_catalogue(tmp_path / "networks.toml")
    with pytest.raises(FeederError, match="nowhere"):
        read_catalogue(tmp_path / "nowhere.toml")


# ---- digests -----------------------------------------------------------------------------------------------------


def entry_of(folder: Path, sha256: str = "") -> Entry:
    return Entry("a", folder / "Master.dss", "f", Split.TRAIN, sha256=sha256)


def test_a_model_is_refused_when_any_of_its_files_is_edited(tmp_path: Path) -> None:
    folder = tmp_path / "us_suburb"
    shutil.copytree(feeder_path("us_suburb").parent, folder)
    digest, commands = read_model(entry_of(folder))
    assert read_model(entry_of(folder, digest)) == (digest, commands) and commands > 50

    used = {path.name for path in folder.rglob("*.dss")} | {path.name for path in folder.rglob("*.csv")}
    assert len(used) > 2  # a master, what it redirects to, data files
    for name in sorted(used):
        path = next(folder.rglob(name))
        before = path.read_text()
        path.write_text(re.sub(r"\d", lambda found: str((int(found[0]) + 1) % 10), before, count=1))
        try:
            changed = read_model(entry_of(folder))[0] != digest
        except FeederError:
            changed = True  # it is no model any more
        assert changed, f"{name} is not part of the digest"
        path.write_text(before)
    (folder / "Master.dss").write_text((folder / "Master.dss").read_text() + "! a word\n")
    with pytest.raises(FeederError, match=r"network 'a'.*not the one in the catalogue.*sha256"):
        read_model(entry_of(folder, digest))


def test_a_digest_does_not_depend_on_where_the_model_lies_or_what_bounds_it(tmp_path: Path) -> None:
    for name in FEEDERS:
        shutil.copytree(feeder_path(name).parent, tmp_path / "elsewhere" / name)
        here, there = feeder_path(name), tmp_path / "elsewhere" / name / "Master.dss"
        assert model_digest(read_script(here)) == model_digest(read_script(there, tmp_path))


def test_a_missing_master_is_named_with_its_network(tmp_path: Path) -> None:
    with pytest.raises(FeederError, match=r"network 'a': no such file .*fetch or unpack .*shared/unpack networks`"):
        read_model(entry_of(tmp_path))


# ---- the reference networks --------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def reference(reference_network: ReferenceNetworks) -> list[Entry]:
    """The reference catalogue, its masters unpacked."""
    entries = []
    for entry in read_catalogue(CATALOGUE):
        name = entry.master.as_posix().partition("/networks/networks/")[2]
        master = reference_network(name)
        entries.append(replace(entry, master=master, root=master.parents[len(Path(name).parts)]))
    return entries


def test_the_catalogue_is_the_index_and_holds_no_path_of_a_machine(
    reference: list[Entry], reference_network: ReferenceNetworks, tmp_path: Path
) -> None:
    index = reference_network.shared / "networks" / "index.json"
    assert catalogue_of_index(index, reference_network.cache, tmp_path / "again.toml") == len(reference)
    text = CATALOGUE.read_text()
    kept, again = (tomllib.loads(t)["network"] for t in (text, (tmp_path / "again.toml").read_text()))
    for one, other, record in zip(kept, again, json.loads(index.read_text()), strict=True):
        assert {**one, "master": "", "root": ""} == {**other, "master": "", "root": ""}, "write the catalogue anew"
        assert one["master"].endswith(record["master"]) and one["split"] == record["split"]
        assert one.get("defect", "") == (record["known_defect"] or "")
    assert "/home" not in text and "/work" not in text and str(Path.home()) not in text


def test_no_feeder_is_in_two_splits(reference: list[Entry]) -> None:
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(4, os.cpu_count() or 1), spawn) as pool:
        found = pool.map(_fingerprint, [(entry.master, entry.root) for entry in reference], chunksize=20)
        fingerprints = dict(zip([entry.name for entry in reference], found, strict=True))
    split = {entry.name: entry.split for entry in reference}
    assert list(straddling(split, fingerprints)) == []

    # The fingerprint does see what is known to be the same feeder, twins under another name among it.
    twins = [name for name in fingerprints if name.startswith("csiro_enwl_4wire.")]
    assert len(twins) == 128
    for name in twins:
        three_wire = fingerprints[name.replace("csiro_enwl_4wire", "enwl")]
        assert fingerprints[name].similarity(three_wire) == 1.0 and fingerprints[name].is_near(three_wire), name
    for one, other in (
        ("enwl.network_1.Feeder_1", "ieee.LVTestCase"),
        ("enwl.network_1.Feeder_1", "ie_enerport"),
        ("ieee.8500-Node.Master", "ieee.8500-Node.Master-unbal"),
        ("ieee.8500-Node.Master", "ieee.ieee9500.Master-bal-initial-config"),
        ("ieee.123Bus", "oedi_ieee123.qsts"),
        ("iowa240.isu_model", "iowa240.nreca_switches_der"),
    ):
        assert fingerprints[one].is_near(fingerprints[other]), (one, other)

    # And it tells neighbours apart: hardly any pair of feeders of one family is alike.
    family = [name for name in fingerprints if name.startswith("enwl.")]
    alike = sum(fingerprints[a].is_near(fingerprints[b]) for a in family for b in family if a < b)
    assert alike < 0.002 * len(family) ** 2 / 2

    # One moved to another split would be found.
    moved = {**split, "ieee.LVTestCase": Split.TEST}
    found_pairs = {tuple(sorted((a, b))) for a, b, _ in straddling(moved, fingerprints)}
    assert ("enwl.network_1.Feeder_1", "ieee.LVTestCase") in found_pairs


def _fingerprint(job: tuple[Path, Path]) -> Fingerprint:
    script = read_script(*job)
    engine = Engine(script)
    grid, _, _ = read_circuit(script, engine)
    engine.close()
    return Fingerprint.of(grid)


# ---- fingerprints ------------------------------------------------------------------------------------------------


def shuffled(grid: Grid, rng: np.random.Generator) -> Grid:
    """The same network: buses and lines in another order, under other names, its phases turned round."""
    place = rng.permutation(len(grid.bus))  # new row of each bus
    turn = {"1": "2", "2": "3", "3": "1"}
    tables = {}
    for name, table in grid.tables.items():
        new = table.copy()
        for column in table.columns:
            if re.fullmatch(r"bus\d", column):
                new[column] = np.where(table[column] >= 0, place[table[column]], -1).astype(table[column].dtype)
            elif re.fullmatch(r"conductors\d", column):
                turned = [".".join(turn.get(part, part) for part in text.split(".")) for text in table[column]]
                new[column] = pd.array(turned, dtype="str")
            elif column == "name":
                new[column] = pd.array([f"x{k}" for k in rng.permutation(len(table))], dtype="str")
        tables[name] = new
    tables["bus"] = tables["bus"].iloc[np.argsort(place)].reset_index(drop=True)
    order = rng.permutation(len(grid.line))
    tables["line"] = tables["line"].iloc[order].reset_index(drop=True)
    return replace(grid, tables=tables)


def test_a_fingerprint_knows_a_network_by_its_topology_alone() -> None:
    fingerprints = {}
    for name in FEEDERS:
        grid = read_opendss(feeder_path(name))[0]
        fingerprints[name] = Fingerprint.of(grid)
        rng = np.random.default_rng(1)
        for _ in range(3):
            other = Fingerprint.of(shuffled(grid, rng))
            assert fingerprints[name].colours == other.colours
            assert other.length_km == pytest.approx(fingerprints[name].length_km, rel=1e-12)
    near = {(a, b) for a in FEEDERS for b in FEEDERS if a != b and fingerprints[a].is_near(fingerprints[b])}
    assert not near


def test_a_feeder_with_a_street_more_is_still_that_feeder_and_half_of_it_is_not() -> None:
    grid = read_opendss(feeder_path("ieee123"))[0]
    whole = Fingerprint.of(grid)

    def without(customers: np.ndarray) -> Fingerprint:
        return Fingerprint.of(grid.replace_tables(consumer=grid.consumer.drop(index=customers).reset_index(drop=True)))

    n = len(grid.consumer)
    assert whole.is_near(without(np.arange(3))) and not whole.is_near(without(np.arange(n // 2)))
    similarity = [whole.similarity(without(np.arange(count))) for count in (0, 3, n // 4, n // 2)]
    assert similarity[0] == 1.0 and sorted(similarity, reverse=True) == similarity
    assert whole.similarity(without(np.arange(3))) == without(np.arange(3)).similarity(whole)
